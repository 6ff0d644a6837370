//! The rows of `keys.rs`. Defaults and the SPEC's words; ranges are ours: wide enough for every sane use, tight enough
//! that a slip of units (seconds for milliseconds, kilobytes for bytes) is seen.

use super::keys::Default::{Absent, Empty, Flag as FlagDefault, Int as IntDefault, Required, Text as TextDefault};
use super::keys::Kind::{
    Choice, Choices, Date, Flag, Int, Json, JsonOrFile, Named, Number, Opaque, RouteOrSplit, Secret, Secrets, Strings,
};
use super::keys::Kind::{Table, Tables, Text, Texts};
use super::keys::{Default, Key, Kind, State, Word};

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const fn key(path: &'static str, kind: Kind, default: Default, meaning: &'static str) -> Key {
    Key { path, kind, default, state: State::Acted, meaning }
}

const fn later(path: &'static str, kind: &'static str, meaning: &'static str) -> Key {
    Key { path, kind: Opaque(kind), default: Absent("—"), state: State::NotBuilt, meaning }
}

const fn ms(path: &'static str, min: u64, max: u64, default: u64, meaning: &'static str) -> Key {
    key(path, Int { min, max, unit: "ms" }, IntDefault(default), meaning)
}

const fn int(
    path: &'static str,
    min: u64,
    max: u64,
    unit: &'static str,
    default: Default,
    meaning: &'static str,
) -> Key {
    key(path, Int { min, max, unit }, default, meaning)
}

const fn usd(path: &'static str, min: f64, unit: &'static str, default: Default, meaning: &'static str) -> Key {
    key(path, Number { min, max: 1_000_000.0, unit }, default, meaning)
}

const NETWORK: Kind = Choice(&[Word("private", true), Word("public", true)]);
const INCLUDED: Kind = Choices(&[
    Word("workflow", true),
    Word("route", true),
    Word("provider", true),
    Word("approval", true),
    Word("client", true),
    Word("operator", true),
    Word("tool", true),
]);
const OUTCOME: Kind =
    Choice(&[Word("succeeded", true), Word("not_executed", true), Word("executed_error", true), Word("unknown", true)]);
const PER_MILLION: &str = "USD per million tokens";
const ANY: Default = Absent("any");
const NOT_STATED: Default = Absent("not stated");
const NONE: Default = Absent("none");

/// All rows, in the order of the documentation. One row a line, whatever its length: it is a table.
#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    // ---- server ----
    key("server", Table, Empty, "The listener and its bounds."),
    key("server.listen", Text, TextDefault("127.0.0.1:8080"), "Address and port of the data plane; beyond loopback only with a `[[client]]`."),
    ms("server.shutdown_grace_ms", 0, HOUR, 30_000, "How long running streams may go on after SIGTERM."),
    int("server.max_body_bytes", 1024, GIB, "bytes", IntDefault(33_554_432), "Largest request body; over it 413."),
    int("server.max_header_bytes", 8192, MIB, "bytes", IntDefault(65_536), "Largest request head; over it 431."),
    int("server.max_event_bytes", 65_536, GIB, "bytes", IntDefault(16_777_216), "Largest line and event of a provider; over it the attempt fails."),
    int("server.max_in_flight", 1, 1_000_000, "requests", IntDefault(10_000), "Requests at once; more are shed with 503."),
    int("server.exhausted_status", 400, 599, "HTTP status", IntDefault(424), "What a caller gets when a provider's failure could not be recovered."),
    key("server.admin_listen", Text, Absent("`127.0.0.1:8081` where there is an `[[operator]]` or `metrics_open`, else off"), "Address and port of the admin side; loopback only, it speaks in clear."),
    key("server.store", Text, Absent("`redb:data/rubicon.redb` where there is an `[[operator]]` or a `[tool.NAME]`, else `memory`"), "Where what must survive a restart is kept: `redb:PATH` or `memory`."),
    int("server.memory_bytes", 64 * MIB, 1 << 50, "bytes", Absent("half the machine's or the cgroup's"), "Memory of the process over which new work is shed with 503."),
    key("server.metrics_open", Flag, FlagDefault(false), "`/metrics` on the admin side without an operator's token."),
    key("server.cors_origins", Texts, NONE, "Origins that get CORS headers, `https://app.example` (scheme, host, port; no path, no `*`): their pages may call this relay, with a key of their own."),
    key("server.retry", Table, Empty, "What attempts after the first may add to the traffic, in any 10 s and by the route that was first asked: the larger of both."),
    key("server.retry.share", Number { min: 0.0, max: 10.0, unit: "of the requests" }, Absent("0.2"), "A share of the requests."),
    int("server.retry.min_per_second", 0, 1_000_000, "attempts", IntDefault(5), "Always allowed."),
    key("telemetry", Table, Empty, "Traces."),
    key("telemetry.otlp_endpoint", Text, Absent("`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT`, else no traces"), "Base URL of an OTLP/HTTP collector, such as `http://127.0.0.1:4318`. Plain http is allowed, as collectors usually stand beside the relay; beyond loopback a warning says so. Read at start only."),
    // ---- log ----
    key("log", Table, Empty, "The log."),
    key("log.format", Choice(&[Word("text", true), Word("json", true)]), Absent("`text` on a terminal, else `json`"), "For people, or JSON lines."),
    key("log.level", Choice(&[Word("error", true), Word("warn", true), Word("info", true), Word("debug", true), Word("trace", true)]), TextDefault("info"), "Least severe line that is written."),
    key("log.events", Text, TextDefault("stdout"), "Where the event lines go: `stdout`, `stderr`, `off` or `file:PATH`."),
    // ---- client ----
    key("client", Tables, Absent("loopback only, no key needed"), "Who may call."),
    key("client.name", Text, Required, "The client's name."),
    key("client.tenant", Text, Absent("the client's name"), "Whose data it is; several clients may share one."),
    key("client.keys", Secrets, Required, "Its keys, as `Authorization: Bearer`, `x-api-key` or `x-goog-api-key`; several for rotation."),
    key("client.workflows", Texts, NONE, "Workflows it may call."),
    key("client.show_routes", Flag, FlagDefault(false), "Whether it sees route names and refusals."),
    key("client.tools", Texts, NONE, "Tools it may claim or run; without any `[[client]]` all may be."),
    // ---- operator ----
    key("operator", Tables, Absent("the admin side is off"), "Who may use the admin side."),
    key("operator.name", Text, Required, "The operator's name, as journaled."),
    key("operator.token", Secret, Required, "Sent as `Authorization: Bearer`; at least 16 characters."),
    key("operator.role", Choice(&[Word("viewer", true), Word("operator", true), Word("approver", true)]), Required, "A viewer reads; an operator kills and disables, too; an approver restores and enables, too."),
    // ---- provider ----
    key("provider", Named, NONE, "An account at a vendor's endpoint."),
    key("provider.kind", Choice(&[Word("openai", true), Word("anthropic", true), Word("openai-compatible", true), Word("azure-openai", true), Word("bedrock", true), Word("gemini", false)]), Required, "How it is spoken to."),
    key("provider.base_url", Text, Absent("the vendor's own; required for `openai-compatible`, `azure-openai` and `bedrock`"), "As that vendor's SDK takes it (anthropic: without `/v1`; both accepted). azure-openai: the resource, to which `/openai/v1` is added, or the whole (`https://RESOURCE.openai.azure.com/openai/v1`). bedrock: `https://bedrock-runtime.REGION.amazonaws.com/openai/v1` or `https://bedrock-mantle.REGION.api.aws/v1`, and `…api.aws/anthropic` for anthropic-messages. No user, query or fragment."),
    key("provider.api_key", Secret, Absent("no credential is sent"), "The key; required at the vendor's own address. Sent as `Authorization: Bearer`; anthropic: `x-api-key`; azure-openai: `api-key`."),
    key("provider.entra_token", Secret, Absent("no token is sent"), "azure-openai, instead of `api_key`: `file:PATH` of an Entra access token that somebody renews (a sidecar), sent as `Authorization: Bearer`. Looked at again at most once a second; while the file is missing, empty or over 64 KiB, the last good token is sent."),
    key("provider.account", Text, Absent("the provider's name"), "Who holds state such as file ids and encrypted reasoning."),
    key("provider.legal_entity", Text, NOT_STATED, "Whose contract it is."),
    key("provider.data_classes", Texts, NOT_STATED, "Data classes it may see."),
    key("provider.network", NETWORK, NOT_STATED, "How it is reached. Recovery over `public` needs an approval that says so."),
    key("provider.terminal", Choice(&[Word("strict", true), Word("lenient", true)]), Absent("`strict`; `lenient` for `openai-compatible` and `bedrock`"), "Whether a finish reason followed by the end of the body ends a stream, too."),
    key("provider.forward_headers", Texts, NONE, "Request headers that go upstream besides the fixed list."),
    key("provider.allow_plain_http", Flag, FlagDefault(false), "Plain http beyond loopback."),
    key("provider.ambiguous_429", Choice(&[Word("stop", true), Word("rate_limited", true)]), TextDefault("stop"), "What a 429 that says nothing usable is."),
    key("provider.attempts_header", Text, NONE, "Response header in which a gateway below reports the attempts it spent."),
    key("provider.idempotency_header", Text, NONE, "Request header that carries a key of each attempt, where the provider supports one."),
    key("provider.depends_on", Texts, NONE, "Failure domains it shares with others; `check` warns when both sides of a failover have one."),
    // ---- route ----
    key("route", Named, NONE, "Provider, model, region and account together."),
    key("route.provider", Text, Required, "A `[provider.NAME]`."),
    key("route.model", Text, Absent("the request's own"), "The model's name sent upstream; azure-openai: the deployment's."),
    key("route.model_class", Text, NOT_STATED, "For `requires.model_classes`."),
    key("route.region", Text, NOT_STATED, "For `requires.regions`."),
    key("route.dialects", Choices(&[Word("chat-completions", true), Word("anthropic-messages", true), Word("responses", true), Word("gemini", false)]), Absent("what the provider's kind speaks"), "Dialects it serves. bedrock: `anthropic-messages` where `base_url` ends in `/anthropic`, else `chat-completions`."),
    key("route.capabilities", Texts, NOT_STATED, "What it can do: `text`, `image`, `tools`, `json_schema`, `web_search`, `beta:<value>` … A failover route must state them."),
    int("route.context_tokens", 1, 1_000_000_000, "tokens", NOT_STATED, "Size of the context."),
    int("route.max_output_tokens", 1, 100_000_000, "tokens", Absent("4096"), "For cost estimates where the request has none."),
    key("route.price", Table, Absent("cost is not counted"), "What it costs."),
    usd("route.price.input", 0.0, PER_MILLION, Required, "Input tokens."),
    usd("route.price.cached_input", 0.0, PER_MILLION, Absent("`input`"), "Input tokens from a cache."),
    usd("route.price.output", 0.0, PER_MILLION, Required, "Output tokens."),
    key("route.timeouts", Table, Empty, "How long to wait for what."),
    ms("route.timeouts.connect_ms", 1, 300_000, 5_000, "To connect."),
    ms("route.timeouts.first_output_ms", 1, HOUR, 60_000, "From an attempt's start to its first visible output."),
    ms("route.timeouts.first_output_reasoning_ms", 1, HOUR, 300_000, "The same, where the request asks for reasoning."),
    ms("route.timeouts.idle_ms", 1, HOUR, 60_000, "Without a byte of the provider, after the boundary."),
    ms("route.timeouts.answer_ms", 1, DAY, 600_000, "Without streaming: an attempt, to the whole answer."),
    key("route.verified", Table, Absent("not verified: no failover to it"), "That somebody tried it for this use."),
    key("route.verified.on", Date, Required, "When."),
    key("route.verified.until", Date, Absent("does not expire"), "Last day it counts."),
    key("route.verified.by", Text, NONE, "Who did it."),
    key("route.verified.evidence", Text, NONE, "Where it is written down."),
    key("route.verified.route_digest", Text, Absent("not compared"), "`rd1:…` of the route as it was verified; `check` prints it. Another host, model, account, region or network makes it stale."),
    key("route.limits", Table, Empty, "What it takes from us at most."),
    int("route.limits.concurrency", 1, 1_000_000, "attempts", Absent("not limited"), "At once, each to its stream's end."),
    int("route.limits.requests_per_minute", 1, 1_000_000_000, "attempts", Absent("not limited"), "In any minute."),
    int("route.limits.tokens_per_minute", 1, 1_000_000_000_000, "tokens", Absent("not limited"), "In any minute, input and output, estimated until told."),
    key("route.failover_limits", Table, Empty, "What recovery traffic may add."),
    int("route.failover_limits.concurrency", 1, 1_000_000, "attempts", Absent("not limited"), "At once, each to its stream's end."),
    int("route.failover_limits.requests_per_second", 1, 1_000_000, "attempts", Absent("not limited"), "In any second."),
    key("route.breaker", Table, Empty, "When it is left alone."),
    int("route.breaker.failures", 0, 1_000_000, "failures", IntDefault(10), "In a row that trip it; 0: never."),
    ms("route.breaker.cooldown_ms", 1, HOUR, 5_000, "Until the first probe; doubled after each failed probe, up to twelve times this."),
    key("route.oncall", Text, NONE, "Whom to call; shown to operators."),
    key("route.schemas", Texts, NOT_STATED, "Schemas it keeps, for `requires.schemas`."),
    key("route.languages", Texts, NOT_STATED, "Languages it is good at, for `requires.languages`."),
    key("route.safety_profile", Text, NOT_STATED, "Its safety profile, for `requires.safety_profile`."),
    // ---- workflow ----
    key("workflow", Named, Required, "What the application owns."),
    int("workflow.version", 1, 9_007_199_254_740_991, "", IntDefault(1), "Shown in events."),
    key("workflow.owner", Text, NONE, "Whose it is; shown in events."),
    key("workflow.models", Texts, NONE, "A request whose `model` is one of these belongs to this workflow."),
    key("workflow.primary", RouteOrSplit, Required, "The route that is asked first, or a planned split: `[{ route = \"a\", weight = 90 }, …]`; each further member needs a `planned` approval. Two members or more."),
    key("workflow.primary.route", Text, Required, "A member's route."),
    int("workflow.primary.weight", 1, 1_000_000, "", Required, "Its share of the sum of all weights."),
    key("workflow.equivalents", Texts, NONE, "Other routes for the same model contract, in order."),
    key("workflow.alternates", Texts, NONE, "Routes to other approved models, in order."),
    key("workflow.commit", Choice(&[Word("first_visible", true), Word("tool_call_complete", true), Word("validated", true)]), TextDefault("first_visible"), "When an attempt is committed. `tool_call_complete`: tool calls wait until they are whole, parse and fit the schema that the request declared. `validated`: the whole answer waits (8 MiB at most) until its end is seen, its calls are good, and its text has the JSON form that the request declared. What fails before anything was shown is a `contract_failure`; a bad call after text is an interruption without it."),
    key("workflow.on_disconnect", Choice(&[Word("cancel", true), Word("finish", false)]), TextDefault("cancel"), "What the last reader's leaving does."),
    key("workflow.on_exhausted", Choice(&[Word("stop", true), Word("queue", false), Word("degraded", false)]), TextDefault("stop"), "What happens when no route is eligible."),
    key("workflow.reasoning", Choice(&[Word("visible", true), Word("hold", true)]), TextDefault("visible"), "Whether reasoning text counts as visible output."),
    key("workflow.hold", Table, Empty, "What is held back before the boundary."),
    int("workflow.hold.max_events", 1, 1_000_000, "events", IntDefault(256), "Over it the hold is released and the attempt committed."),
    int("workflow.hold.max_bytes", 1, 64 * MIB, "bytes", IntDefault(262_144), "The same in bytes."),
    ms("workflow.hold.keepalive_after_ms", 0, HOUR, 15_000, "When a waiting client gets 200 and keep-alives; 0: never."),
    later("workflow.resume", "table", "Resumable streams."),
    key("workflow.passthrough", Texts, NONE, "Paths below `/v1/` that go to the primary (of a planned split: to its first member) as they are, with no recovery: literal segments, `{name}` for one segment, a last `/*` for one or more (`/v1/files/*`, `/v1/responses/{id}`, `/v1/embeddings`). Not what the relay serves itself, save `/v1/responses`, which stands for its background requests."),
    key("workflow.envelope", Table, Empty, "What one operation may spend."),
    ms("workflow.envelope.deadline_ms", 1, DAY, 120_000, "Streaming: to the boundary, all attempts, waits and holds."),
    ms("workflow.envelope.deadline_reasoning_ms", 1, DAY, 600_000, "The same, where the request asks for reasoning."),
    ms("workflow.envelope.answer_deadline_ms", 1, DAY, 600_000, "Without streaming: to the whole answer."),
    int("workflow.envelope.stream_ms", 1, DAY, "ms", Absent("only `idle_ms` ends it"), "To the end of a stream."),
    int("workflow.envelope.max_attempts", 1, 10, "attempts", IntDefault(3), "Attempts in all, the first included."),
    int("workflow.envelope.max_added_latency_ms", 1, DAY, "ms", Absent("only the deadline"), "Time since admission that is not spent in the accepted attempt."),
    usd("workflow.envelope.max_cost_usd", 0.000_001, "USD", Absent("not limited"), "Cost of all attempts."),
    key("workflow.envelope.side_effects", Choice(&[Word("none", true), Word("read_only", true), Word("write_possible", true)]), TextDefault("read_only"), "Hosted tools that a request may declare."),
    key("workflow.envelope.repeat_unanswered", Flag, FlagDefault(true), "Whether an attempt that was sent and got no answer may be repeated."),
    key("workflow.requires", Table, Empty, "What every route but the primary must state."),
    key("workflow.requires.capabilities", Texts, NONE, "Capabilities."),
    key("workflow.requires.regions", Texts, ANY, "Regions."),
    key("workflow.requires.network", NETWORK, ANY, "`private`: a private network only."),
    key("workflow.requires.data_class", Text, NONE, "A class that the provider must be allowed to see."),
    key("workflow.requires.legal_entities", Texts, ANY, "Legal entities."),
    key("workflow.requires.model_classes", Texts, ANY, "Model classes."),
    int("workflow.requires.min_context_tokens", 1, 1_000_000_000, "tokens", NONE, "Least context."),
    key("workflow.requires.schemas", Texts, NONE, "Schemas."),
    key("workflow.requires.languages", Texts, NONE, "Languages."),
    key("workflow.requires.safety_profile", Text, ANY, "Safety profile."),
    key("workflow.failover", Table, Empty, "Whether it fails over."),
    key("workflow.failover.enabled", Flag, FlagDefault(false), "Nothing fails over until somebody says so."),
    key("workflow.failover.equivalent", Flag, FlagDefault(true), "To equivalents."),
    key("workflow.failover.cross_model", Flag, FlagDefault(false), "To alternates."),
    ms("workflow.failover.wait_first_ms", 0, 60_000, 1_000, "A `Retry-After` under this is waited for before failing over; 0: none is."),
    // ---- approval ----
    key("approval", Tables, Absent("no failover"), "No live approval, no failover to that route."),
    key("approval.workflow", Text, Required, "For which workflow."),
    key("approval.route", Text, Required, "For which route."),
    key("approval.purpose", Choice(&[Word("failover", true), Word("cross_model", true), Word("planned", true)]), Required, "`failover` to equivalents, `cross_model` to alternates, `planned` for the further members of a split."),
    key("approval.until", Date, Absent("does not expire"), "Last day it counts."),
    key("approval.network", NETWORK, Absent("private recovery only"), "`public`: recovery over public HTTPS is meant."),
    key("approval.by", Text, NONE, "Who approved."),
    key("approval.evidence", Text, NONE, "Where it is written down."),
    key("approval.route_digest", Text, Absent("not compared"), "`rd1:…` of the route as it was approved; `check` prints it."),
    // ---- tool ----
    key("tool", Named, Absent("none: executions of it are refused"), "A tool that the application runs, or the relay for it, through the execution ledger."),
    key("tool.effect", Choice(&[Word("read_only", true), Word("write", true)]), TextDefault("write"), "Whether it changes anything. A `write` tool runs once an intent; a `read_only` one may run again."),
    key("tool.owner", Text, NONE, "Whose it is: operators list what is uncertain by owner."),
    key("tool.impact", Choice(&[Word("normal", true), Word("high", true)]), TextDefault("normal"), "`high`: an operator's verdict about an unknown outcome needs a second person."),
    key("tool.schema", JsonOrFile, Absent("any object"), "JSON Schema of its arguments (2020-12 unless `$schema` says otherwise), checked before anything is claimed. `$ref` to its own definitions only, and to none that leads back; `format` is not checked. `file:PATH`: a JSON file of at most 64 KiB."),
    key("tool.endpoint", Table, Absent("only the application runs it"), "Where the relay runs it (`POST /v1/tools/NAME`)."),
    key("tool.endpoint.url", Text, Required, "Its address: scheme, host, path and query, no user or fragment. Plain http only to loopback, or where `allow_plain_http` says so."),
    key("tool.endpoint.method", Choice(&[Word("POST", true), Word("PUT", true), Word("PATCH", true), Word("DELETE", true)]), TextDefault("POST"), "Carries the arguments as its body."),
    key("tool.endpoint.headers", Strings, NONE, "Sent besides `Content-Type`, `Idempotency-Key` and `Rubicon-Operation-Id`. A value is text, `env:NAME`, `file:PATH`, or a word before one of these (`Bearer env:NAME`). Credentials (`authorization`, `cookie`, `*-key`, `*-token`, `*-secret`) never as text."),
    key("tool.allow_plain_http", Flag, FlagDefault(false), "Plain http beyond loopback, to `endpoint` and `probe`."),
    ms("tool.timeout_ms", 1, HOUR, 30_000, "From connecting to the last byte of the answer; over it the outcome is unknown once anything was sent."),
    key("tool.result_rules", Tables, Absent("the status decides"), "What an answer means where its status alone would mislead; the first that matches. Each has a `pointer`, a `status`, or both."),
    key("tool.result_rules.pointer", Text, Absent("the body is not looked at"), "JSON Pointer into the answer."),
    key("tool.result_rules.equals", Json, Absent("any value, if only it is there"), "The value that must be there."),
    int("tool.result_rules.status", 100, 599, "HTTP status", Absent("any 2xx but 202"), "The answer's status."),
    key("tool.result_rules.outcome", OUTCOME, Required, "What it means then."),
    key("tool.probe", Table, Absent("a person finds out"), "A status query that finds out what became of an unknown outcome."),
    key("tool.probe.url", Text, Required, "Asked with GET, within 10 s; `{key}` in its path or query stands for the execution key that the call carried as `Idempotency-Key`."),
    key("tool.probe.headers", Strings, NONE, "As `endpoint.headers`."),
    key("tool.probe.rules", Tables, Required, "What its answer means; the first that matches. `not_executed` is *absent*, and so is a 404 that no rule matches where `absent_after_ms` is stated; any other answer is no word, and it is asked again."),
    key("tool.probe.rules.pointer", Text, Absent("the body is not looked at"), "JSON Pointer into the answer."),
    key("tool.probe.rules.equals", Json, Absent("any value, if only it is there"), "The value that must be there."),
    int("tool.probe.rules.status", 100, 599, "HTTP status", Absent("any"), "The answer's status."),
    key("tool.probe.rules.outcome", OUTCOME, Required, "What it means then; `unknown`: not yet decided there."),
    int("tool.probe.absent_after_ms", 0, DAY, "ms", Absent("60000, and a 404 that no rule matches is no word"), "How long after the run *absent* begins to count: longer than it may take until what was done can be seen there. Stating it says that a 404 there means *absent*: a wrong URL would then let it run again."),
    int("tool.probe.agree", 1, 100, "answers", IntDefault(1), "How many answers in a row must agree before they count."),
    key("tool.approval", Choice(&[Word("none", true), Word("before_run", true)]), TextDefault("none"), "`before_run`: each run waits for an operator's approval."),
    key("tool.similar", Choice(&[Word("confirm", true), Word("off", true)]), TextDefault("confirm"), "Whether a near-duplicate (same run of the agent, other free text) of one that is unknown, running or just succeeded is held until it is confirmed. Where there are `key_fields` they tell."),
    int("tool.max_runs", 1, 100, "runs", IntDefault(3), "Runs of one intent in all, where each before was proved not to have executed."),
    key("tool.summary", Text, Absent("the arguments"), "One line for people, JSON Pointers into the arguments in braces: `Charge {/amount} to {/card}`; `{{` is a brace."),
    key("tool.redact", Texts, NONE, "JSON Pointers into arguments and result that operators do not see."),
    key("tool.key_fields", Texts, Absent("all arguments"), "JSON Pointers into the arguments: what makes it the same intent. All must be there."),
    key("tool.ignore_fields", Texts, NONE, "JSON Pointers into the arguments that count for nothing: trace ids, times of the request."),
    int("tool.retention_days", 1, 36_500, "days", Absent("kept"), "After so many days arguments and result of what has ended are erased; the key stays and never runs again."),
    // ---- elsewhere ----
    key("include", Tables, NONE, "Further files, so that what one team owns stands apart from what it may not decide. An included file includes nothing itself; the same name in two files is an error."),
    key("include.path", Text, Required, "A file, or files by `*` in the last part (`workflows/*.toml`; a leading dot is not matched), in the order of their names. At most 256 files and 8 MiB in all."),
    key("include.allow", INCLUDED, Required, "The tables that they may hold; any other is refused. `server`, `log`, `telemetry` and `include` stand in the config itself."),
];

//! Every key of the specification is acted on, informational or refused as not built yet; "acted on" is seen in the settings.

use super::super::keys::{self, KEYS, State};
use super::super::problem::Code;
use super::{BASE, codes, parsed, with};

/// Every key of SPEC section 3's full example and of its annex, by path.
const SPEC: &str = "
server.listen server.admin_listen server.store server.shutdown_grace_ms server.max_body_bytes server.max_header_bytes
server.max_event_bytes server.exhausted_status server.metrics_open server.max_in_flight server.memory_bytes
server.cors_origins client.name client.tenant client.keys client.workflows client.tools client.show_routes
operator.name operator.token operator.role provider.kind provider.base_url provider.api_key provider.account
provider.legal_entity provider.data_classes provider.network provider.terminal provider.forward_headers
provider.allow_plain_http provider.ambiguous_429 provider.depends_on provider.attempts_header provider.idempotency_header
route.provider route.model route.model_class route.region route.dialects route.capabilities route.context_tokens
route.max_output_tokens route.price.input route.price.cached_input route.price.output route.limits.concurrency
route.limits.requests_per_minute route.limits.tokens_per_minute route.failover_limits.concurrency
route.failover_limits.requests_per_second route.timeouts.connect_ms route.timeouts.first_output_ms
route.timeouts.first_output_reasoning_ms route.timeouts.idle_ms route.timeouts.answer_ms route.verified.on
route.verified.by route.verified.evidence route.verified.until route.verified.route_digest route.oncall route.schemas
route.languages route.safety_profile workflow.version workflow.owner workflow.models workflow.primary
workflow.equivalents workflow.alternates workflow.commit workflow.on_disconnect workflow.on_exhausted workflow.reasoning
workflow.resume.keep_ms workflow.resume.max_bytes workflow.resume.detached_ms workflow.hold.max_events
workflow.hold.max_bytes workflow.hold.keepalive_after_ms workflow.passthrough workflow.envelope.deadline_ms
workflow.envelope.deadline_reasoning_ms workflow.envelope.answer_deadline_ms workflow.envelope.stream_ms
workflow.envelope.max_attempts workflow.envelope.max_added_latency_ms workflow.envelope.max_cost_usd
workflow.envelope.side_effects workflow.envelope.repeat_unanswered workflow.requires.capabilities
workflow.requires.regions workflow.requires.network workflow.requires.data_class workflow.requires.legal_entities
workflow.requires.model_classes workflow.requires.min_context_tokens workflow.requires.schemas
workflow.requires.languages workflow.requires.safety_profile workflow.failover.enabled workflow.failover.equivalent
workflow.failover.cross_model workflow.failover.wait_first_ms approval.workflow approval.route approval.purpose
approval.by approval.evidence approval.until approval.network approval.route_digest log.format log.level log.events
tool.schema tool.endpoint.url tool.endpoint.method tool.endpoint.headers tool.probe.url tool.probe.absent_after_ms
tool.probe.agree tool.probe.rules.pointer tool.probe.rules.equals tool.probe.rules.outcome tool.approval tool.similar
tool.max_runs tool.summary tool.redact tool.key_fields tool.ignore_fields tool.effect tool.owner tool.impact
tool.timeout_ms tool.result_rules.pointer tool.result_rules.equals tool.result_rules.outcome tool.result_rules.status
tool.retention_days include.path include.allow
workflow.primary.route workflow.primary.weight
";

/// Keys of ours: SPEC asks for what they set (a shared retry budget, a breaker, traces "when configured") and names no key.
const OURS: &str = "
server.retry.share server.retry.min_per_second telemetry.otlp_endpoint route.breaker.failures route.breaker.cooldown_ms provider.entra_token
tool.allow_plain_http tool.probe.headers tool.probe.rules.status
";

#[test]
fn every_key_of_the_spec_is_in_the_table() {
    for path in SPEC.split_whitespace() {
        let mut at = Some(path);
        let known = loop {
            match at {
                Some(prefix) if KEYS.iter().any(|key| key.path == prefix) => break Some(prefix),
                Some(prefix) => at = prefix.rsplit_once('.').map(|(parent, _)| parent),
                None => break None,
            }
        };
        let key = KEYS.iter().find(|key| Some(key.path) == known).unwrap_or_else(|| panic!("{path} is unknown"));
        assert!(key.path == path || key.state == State::NotBuilt, "{path} is not in the table, only {}", key.path);
    }
}

#[test]
fn every_key_of_the_table_is_in_the_spec() {
    let spec: Vec<&str> = SPEC.split_whitespace().chain(OURS.split_whitespace()).collect();
    for key in KEYS {
        let below = format!("{}.", key.path);
        let known = spec.iter().any(|path| *path == key.path || path.starts_with(&below));
        assert!(known, "{} is not SPEC's", key.path);
    }
}

/// Where in [`BASE`] a key can be written, and as what.
fn place(path: &str) -> (&'static str, &str) {
    for (table, header) in [("tool.endpoint.", "[tool.t.endpoint]"), ("tool.probe.", "[tool.t.probe]")] {
        if let Some(rest) = path.strip_prefix(table) {
            return (header, rest);
        }
    }
    let (section, rest) = path.split_once('.').unwrap();
    (header(section), rest)
}

/// Where a key of a section can be written in [`BASE`].
fn header(section: &str) -> &'static str {
    match section {
        "server" => "[server]",
        "log" => "[log]",
        "client" => "[[client]]",
        "provider" => "[provider.p]",
        "route" => "[route.main]",
        "workflow" => "[workflow.w]",
        "approval" => "[[approval]]",
        "telemetry" => "[telemetry]",
        "tool" => "[tool.t]",
        other => panic!("{other}"),
    }
}

#[test]
fn not_built_keys_are_refused_as_such_and_alone() {
    for key in KEYS.iter().filter(|key| key.state == State::NotBuilt) {
        let (text, line) = match key.path.split_once('.') {
            None => (format!("{} = 1\n{BASE}", key.path), 1),
            Some((section, rest)) => {
                let extra = if rest.starts_with("verified.") { "verified.on = 2026-11-20\n" } else { "" };
                let text = with(header(section), &format!("{extra}{rest} = 1"));
                let line = text.lines().position(|line| line == format!("{rest} = 1")).unwrap() + 1;
                (text, line)
            }
        };
        let problems = parsed(&text).expect_err(key.path);
        assert_eq!(codes(&problems), [format!("not_built_yet {line}")], "{}", key.path);
    }
}

/// A value other than the default for every acted-on key that `BASE` does not spell out itself.
const SAMPLES: &[(&str, &str)] = &[
    ("server.listen", "\"127.0.0.1:9\""),
    ("server.shutdown_grace_ms", "1"),
    ("server.max_body_bytes", "2048"),
    ("server.max_header_bytes", "9000"),
    ("server.max_event_bytes", "70000"),
    ("server.max_in_flight", "7"),
    ("server.exhausted_status", "422"),
    ("server.admin_listen", "\"127.0.0.1:9\""),
    ("server.store", "\"memory\""),
    ("server.memory_bytes", "100000000"),
    ("server.metrics_open", "true"),
    ("server.cors_origins", "[\"https://app.example\"]"),
    ("server.retry.share", "0.1"),
    ("server.retry.min_per_second", "0"),
    ("telemetry.otlp_endpoint", "\"http://127.0.0.1:4318\""),
    ("log.format", "\"text\""),
    ("log.level", "\"debug\""),
    ("log.events", "\"file:events.jsonl\""),
    ("client.tenant", "\"t\""),
    ("client.show_routes", "true"),
    ("provider.base_url", "\"https://gw.example/v1\""),
    ("provider.account", "\"acc\""),
    ("provider.legal_entity", "\"BV\""),
    ("provider.data_classes", "[\"pii\"]"),
    ("provider.network", "\"private\""),
    ("provider.terminal", "\"lenient\""),
    ("provider.forward_headers", "[\"X-Team\"]"),
    ("provider.ambiguous_429", "\"rate_limited\""),
    ("provider.attempts_header", "\"x-attempts\""),
    ("provider.idempotency_header", "\"idempotency-key\""),
    ("provider.depends_on", "[\"azure-eu\"]"),
    ("route.model", "\"m\""),
    ("route.model_class", "\"c\""),
    ("route.region", "\"eu\""),
    ("route.capabilities", "[\"text\"]"),
    ("route.context_tokens", "1000"),
    ("route.max_output_tokens", "10"),
    ("route.price", "{ input = 1, output = 2.5 }"),
    ("route.timeouts.connect_ms", "1"),
    ("route.timeouts.first_output_ms", "1"),
    ("route.timeouts.first_output_reasoning_ms", "1"),
    ("route.timeouts.idle_ms", "1"),
    ("route.timeouts.answer_ms", "1"),
    ("route.verified", "{ on = 2026-11-20, until = 2027-02-20 }"),
    ("workflow.passthrough", "[\"/v1/files/*\"]"),
    ("route.verified.by", "\"me\""),
    ("route.verified.evidence", "\"E-1\""),
    ("route.verified.route_digest", "\"rd1:0123456789abcdef\""),
    ("route.limits.concurrency", "1"),
    ("route.limits.requests_per_minute", "1"),
    ("route.limits.tokens_per_minute", "1"),
    ("route.failover_limits.concurrency", "1"),
    ("route.failover_limits.requests_per_second", "1"),
    ("route.breaker.failures", "0"),
    ("route.breaker.cooldown_ms", "1"),
    ("route.oncall", "\"+31\""),
    ("route.schemas", "[\"s\"]"),
    ("route.languages", "[\"nl\"]"),
    ("route.safety_profile", "\"strict\""),
    ("workflow.version", "3"),
    ("workflow.owner", "\"support\""),
    ("workflow.models", "[\"m\"]"),
    ("workflow.alternates", "[\"third\"]"),
    ("workflow.reasoning", "\"hold\""),
    ("workflow.commit", "\"validated\""),
    ("workflow.hold.max_events", "1"),
    ("workflow.hold.max_bytes", "1"),
    ("workflow.hold.keepalive_after_ms", "0"),
    ("workflow.envelope.deadline_ms", "1"),
    ("workflow.envelope.deadline_reasoning_ms", "1"),
    ("workflow.envelope.answer_deadline_ms", "1"),
    ("workflow.envelope.stream_ms", "1"),
    ("workflow.envelope.max_attempts", "2"),
    ("workflow.envelope.max_added_latency_ms", "1"),
    ("workflow.envelope.max_cost_usd", "0.2"),
    ("workflow.envelope.side_effects", "\"none\""),
    ("workflow.envelope.repeat_unanswered", "false"),
    ("workflow.requires.capabilities", "[\"text\"]"),
    ("workflow.requires.regions", "[\"eu\"]"),
    ("workflow.requires.network", "\"private\""),
    ("workflow.requires.data_class", "\"pii\""),
    ("workflow.requires.legal_entities", "[\"BV\"]"),
    ("workflow.requires.model_classes", "[\"c\"]"),
    ("workflow.requires.min_context_tokens", "5"),
    ("workflow.requires.schemas", "[\"s\"]"),
    ("workflow.requires.languages", "[\"nl\"]"),
    ("workflow.requires.safety_profile", "\"strict\""),
    ("workflow.failover.enabled", "true"),
    ("workflow.failover.equivalent", "false"),
    ("workflow.failover.cross_model", "true"),
    ("workflow.failover.wait_first_ms", "5"),
    ("client.tools", "[\"t\"]"),
    ("tool.effect", "\"read_only\""),
    ("tool.owner", "\"payments\""),
    ("tool.impact", "\"high\""),
    ("tool.schema", "{ type = \"object\", properties = { id = { type = \"string\", maxLength = 64 } } }"),
    ("tool.endpoint.method", "\"PUT\""),
    ("tool.endpoint.headers", "{ x-team = \"payments\" }"),
    ("tool.timeout_ms", "1"),
    ("tool.result_rules", "[{ pointer = \"/ok\", equals = false, outcome = \"executed_error\" }]"),
    ("tool.probe.headers", "{ authorization = \"Bearer env:KEY\" }"),
    ("tool.probe.absent_after_ms", "0"),
    ("tool.probe.agree", "3"),
    ("tool.approval", "\"before_run\""),
    ("tool.similar", "\"off\""),
    ("tool.max_runs", "1"),
    ("tool.summary", "\"Charge {/amount}\""),
    ("tool.redact", "[\"/card\"]"),
    ("tool.key_fields", "[\"/id\"]"),
    ("tool.ignore_fields", "[\"/trace\"]"),
    ("tool.retention_days", "90"),
    ("approval.until", "2027-03-31"),
    ("approval.network", "\"public\""),
    ("approval.by", "\"risk\""),
    ("approval.evidence", "\"CHG-1\""),
    ("approval.route_digest", "\"rd1:0123456789abcdef\""),
];

/// Acted on in a way that no sample above can show; each has its own test in a file beside this one or stands in `BASE`.
const SHOWN_ELSEWHERE: &[&str] = &[
    "client.name",
    "client.keys",
    "client.workflows",
    "provider.kind",
    "provider.api_key",
    "provider.entra_token",
    "provider.allow_plain_http",
    "route.provider",
    "route.dialects",
    "route.price.input",
    "route.price.cached_input",
    "route.price.output",
    "route.verified.on",
    "route.verified.until",
    "workflow.primary.route",
    "workflow.primary.weight",
    "workflow.equivalents",
    "workflow.on_disconnect",
    "workflow.on_exhausted",
    "approval.workflow",
    "approval.route",
    "approval.purpose",
    "operator.name",
    "operator.token",
    "operator.role",
    "include.path",
    "include.allow",
    "tool.endpoint.url",
    "tool.allow_plain_http",
    "tool.probe.url",
    "tool.probe.rules.pointer",
    "tool.probe.rules.equals",
    "tool.probe.rules.status",
    "tool.probe.rules.outcome",
    "tool.result_rules.pointer",
    "tool.result_rules.equals",
    "tool.result_rules.status",
    "tool.result_rules.outcome",
];

#[test]
fn acted_on_keys_show_in_the_settings() {
    let base = format!("{BASE}\n[route.third]\nprovider = \"p\"\n");
    let print = |text: &str| format!("{:?}", parsed(text).unwrap().settings);
    let plain = print(&base);
    for (path, value) in SAMPLES {
        let (header, rest) = place(path);
        let header = format!("{header}\n");
        let needed = if rest.starts_with("verified.") { "verified.on = 2026-11-20\n" } else { "" };
        let text = base.replacen(&header, &format!("{header}{needed}{rest} = {value}\n"), 1);
        let plain = if needed.is_empty() {
            plain.clone()
        } else {
            print(&base.replacen(&header, &format!("{header}{needed}"), 1))
        };
        let loaded = parsed(&text).unwrap_or_else(|problems| panic!("{path}: {:?}", codes(&problems)));
        assert_ne!(format!("{:?}", loaded.settings), plain, "{path} changes nothing");
    }
    for key in KEYS.iter().filter(|key| key.state == State::Acted && keys::children(key.path).next().is_none()) {
        let sampled = SAMPLES.iter().any(|(path, _)| *path == key.path);
        assert!(sampled != SHOWN_ELSEWHERE.contains(&key.path), "{} needs a sample", key.path);
    }
}

#[test]
fn words_of_choices_that_are_not_built_are_refused_and_built_ones_accepted() {
    for (path, value, built) in [
        ("workflow.commit", "\"first_visible\"", true),
        ("workflow.commit", "\"tool_call_complete\"", true),
        ("workflow.commit", "\"validated\"", true),
        ("workflow.on_disconnect", "\"cancel\"", true),
        ("workflow.on_disconnect", "\"finish\"", false),
        ("workflow.on_exhausted", "\"stop\"", true),
        ("workflow.on_exhausted", "\"queue\"", false),
        ("workflow.on_exhausted", "\"degraded\"", false),
        ("route.dialects", "[\"chat-completions\"]", true),
        ("route.dialects", "[\"chat-completions\", \"responses\"]", true),
        ("route.dialects", "[\"gemini\"]", false),
    ] {
        let (section, rest) = path.split_once('.').unwrap();
        let result = parsed(&with(header(section), &format!("{rest} = {value}")));
        match result {
            Ok(_) => assert!(built, "{path} = {value}"),
            Err(problems) => {
                assert!(
                    !built && problems.iter().all(|p| p.code == Code::NotBuiltYet),
                    "{path} = {value}: {problems:?}"
                );
            }
        }
    }
    let problems = parsed(&BASE.replacen("kind = \"openai\"", "kind = \"gemini\"", 1)).expect_err("gemini");
    assert_eq!(problems.iter().map(|p| p.code).collect::<Vec<_>>(), [Code::NotBuiltYet]);
}

//! Fields of event lines, the part of [`names`](super::names) about them.

/// One field of an event line: its name (a dot steps into an object) and what it says. Every field is always there; what is not
/// known or does not apply is `null`.
#[derive(Clone, Copy, Debug)]
pub struct Field(pub &'static str, pub &'static str);

/// Fields that attempts and requests share.
pub const SHARED_FIELDS: &[Field] = &[
    Field("event", "`attempt` or `request`"),
    Field("time", "when it ended, RFC 3339 in UTC"),
    Field("operation", "operation id; null where none was begun"),
    Field("restart_of", "the interrupted operation that this one replaces"),
    Field("client", "name of the client that called"),
    Field("tenant", "whose data it is"),
    Field("workflow", "the workflow"),
    Field("workflow_version", "its `version`"),
    Field("dialect", "the dialect"),
    Field("call", "`chat`, `count_tokens` or `passthrough`"),
    Field("stream", "whether the answer is streamed"),
    Field("requested_model", "the caller's `model`, cut after 128 bytes, what looks like a key masked"),
    Field("served_model", "the model that the provider says it served, likewise cut and masked"),
    Field("route", "the route; of a request: the one whose answer was accepted, else the last one tried"),
    Field("class", "failure class"),
    Field("duration_ms", "of an attempt: from its start; of a request: from admission"),
    Field("hold_ms", "from the provider's response head to the boundary"),
    Field(
        "first_output_ms",
        "to the first visible output, from the same start as `duration_ms`; null where nothing was streamed",
    ),
    Field("input_tokens", "all input tokens, cached ones included"),
    Field("cached_input_tokens", "those from the provider's cache"),
    Field("output_tokens", "output tokens, reasoning included"),
    Field(
        "cost_usd",
        "of an attempt: what it cost; of a request: what its accepted answer cost, null where none was accepted; null where price or usage are not known",
    ),
    Field("circuit", "what the route's breaker was when the attempt began: `healthy`, `tripped` or `probing`"),
    Field("limit_dimension", "of a throttle: `requests`, `tokens`, `day` or `spend`; null where it did not say"),
    Field(
        "success.transport",
        "whether a 2xx came whole; null where that was not up to the provider (the client left, somebody stopped it, no call was made)",
    ),
    Field("success.contract", "whether what came whole is an answer that keeps the contract"),
    Field("success.task", "the application's word; null until it gives it, which has a line of its own (`task`)"),
];

/// Further fields of an attempt.
pub const ATTEMPT_FIELDS: &[Field] = &[
    Field("attempt", "1 for the first of the operation"),
    Field("kind", "`first`, `retry`, `equivalent_failover` or `cross_model_fallback`"),
    Field("provider", "the provider's name in the configuration"),
    Field("sent_model", "the model sent upstream"),
    Field(
        "result",
        "`accepted`, `failed` (nothing was shown), `interrupted` (something was), `unfinished` (left or stopped)",
    ),
    Field("status", "the provider's HTTP status, where a head came"),
    Field("cost_estimated", "whether `cost_usd` is the estimate because usage is not known"),
    Field("retry_after_ms", "the wait that the provider asked for"),
];

/// Further fields of a request.
pub const REQUEST_FIELDS: &[Field] = &[
    Field("state", "`completed`, `interrupted`, `failed`, `stopped`, `refused`, `replayed`"),
    Field("reason", "as the caller gets it in `rubicon.reason`; null for a completed one"),
    Field("status", "HTTP status that the caller got; null where it left before any"),
    Field("replay", "`joined` or `replayed`: the answer of another request with the same Idempotency-Key"),
    Field("attempts", "attempts made"),
    Field("accepted_attempt", "the number of the accepted one"),
    Field(
        "refused",
        "routes that did not serve, each with `route` and `why` (the names of `src/plan/refusals.md`), as in `rubicon.refused` and in the operation",
    ),
    Field("boundary", "what crossed the boundary"),
    Field("events", "events of the accepted attempt that were sent"),
    Field("lost_cost_usd", "cost of the attempts that became no whole answer, estimated where usage is not known"),
    Field("unresolved_executions", "executions and hosted tools that may have acted, outcome not known"),
    Field(
        "recovery.workflow",
        "what the accepted (else the last) attempt was: `retry`, `equivalent_failover`, `cross_model_fallback`, `none`",
    ),
    Field("recovery.attempts.first", "first attempts at the primary"),
    Field("recovery.attempts.retry", "retries of a route"),
    Field("recovery.attempts.equivalent_failover", "attempts at equivalents"),
    Field("recovery.attempts.cross_model_fallback", "attempts at alternates"),
    Field("recovery.recovered", "whether an attempt that was not the primary's first was accepted"),
    Field("recovery.reason", "the class of the failure that recovery answered"),
    Field("recovery.added_latency_ms", "from admission to the start of the accepted attempt"),
];

/// Fields of the line that `POST /v1/operations/{id}/outcome` writes.
pub const TASK_FIELDS: &[Field] = &[
    Field("event", "`task`"),
    Field("time", "when the application said so"),
    Field("operation", "operation id"),
    Field("client", "name of the client that said so"),
    Field("tenant", "whose data it is"),
    Field("workflow", "the workflow"),
    Field("workflow_version", "its `version`"),
    Field("route", "the route whose answer was accepted"),
    Field("outcome", "`accepted` or `rejected`"),
    Field("reason", "the application's reason, what looks like a key masked"),
    Field("success.task", "`true` for `accepted`"),
];

/// Fields of an alarm's line.
pub const ALARM_FIELDS: &[Field] = &[
    Field("event", "`alarm`"),
    Field("time", "when"),
    Field("kind", "what happened"),
    Field("operation", "operation id, where it concerns one"),
    Field("route", "route, where it concerns one"),
    Field("execution", "execution key, where it concerns one"),
    Field("tool", "its tool"),
];

/// Fields of the line of a transition of an execution.
pub const EXECUTION_FIELDS: &[Field] = &[
    Field("event", "`execution`"),
    Field("time", "when it became so"),
    Field("execution", "execution key"),
    Field("tool", "the tool"),
    Field("effect", "`read_only` or `write`"),
    Field("tenant", "whose data it is"),
    Field("operation", "the operation that asked first; null where none is known"),
    Field("root", "the user's action or agent run that it belongs to"),
    Field("occurrence", "which of several same calls"),
    Field("action", "what was done: `plan`, `claim`, `complete`, `expire`, `resolve` …, as in the journal"),
    Field("by", "who did it: a client's or operator's name, `relay`, `probe`"),
    Field("from", "state before; null: it is new"),
    Field("to", "state after"),
    Field("failure", "`not_executed` or `executed_error` of a failed one"),
    Field("reconciliation", "`none`, `probing`, `needs_operator`, `pending_second`, `resolved`"),
    Field("reason", "why, cut after 256 bytes, what looks like a key masked"),
    Field("epoch", "one more with each right to run"),
    Field("version", "one more with each change"),
    Field("runs", "runs of this intent so far"),
    Field("flags", "what is odd: `unplanned`, `changed_arguments`, `double_effect_suspected` …"),
];

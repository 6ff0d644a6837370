//! Every name that can be watched, in one place: metrics with their labels, span names and attributes, fields of event lines (in `fields.rs`).
//!
//! Dashboards and alert rules rely on these to the letter, so each stands here once: the code registers and writes by these
//! constants, `TELEMETRY.md` is printed from them, and tests compare both with what a living relay says. Names of
//! OpenTelemetry's GenAI conventions where those have one (dots become underscores, the unit is a suffix, as Prometheus
//! writes them); what they have no word for begins with `rubicon_`. Base units: seconds, tokens, US dollars.

pub use super::fields::{
    ALARM_FIELDS, ATTEMPT_FIELDS, EXECUTION_FIELDS, Field, REQUEST_FIELDS, SHARED_FIELDS, TASK_FIELDS,
};
use super::ledger_names as ledger;
pub use super::span_names as span;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution, in buckets.
    Histogram,
    /// Always 1; its labels are the message.
    Info,
}

impl Kind {
    /// The name of OpenMetrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// As it is scraped, with unit and `_total`.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its labels, in order.
    pub labels: &'static [&'static str],
    /// One sentence, without a full stop (the library adds it).
    pub help: &'static str,
}

pub(super) const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, labels, help }
}

/// Labels, and what their values are. Each value comes from the configuration or from a closed list: a caller can't make a new one.
pub const LABELS: &[(&str, &str)] = &[
    ("workflow", "a `[workflow.NAME]`, or `none` where the request came to none"),
    ("route", "a `[route.NAME]`"),
    ("dialect", "`chat-completions`, `responses`, `anthropic-messages`, or `none`"),
    (
        "state",
        "of requests: `completed`, `interrupted`, `failed`, `stopped`, `refused` (before any call), `replayed`; of circuits: `healthy`, `tripped`, `probing`",
    ),
    (
        "reason",
        "the word that callers get as `rubicon.reason`, or `none`; of what is shed: `overloaded`, `memory` and `too_many_waiters` at the relay's door, at the routes the nearest of `failover_limit`, `capacity`, `tripped` and `killed`",
    ),
    ("kind", "of attempts: `first`, `retry`, `equivalent_failover`, `cross_model_fallback`; of alarms: what happened"),
    (
        "class",
        "a failure class of SPEC section 6, `none` where the attempt was accepted, `unfinished` where it was left or stopped",
    ),
    ("recovered", "`true` or `false`: whether the attempt that recovery led to was accepted"),
    ("limit_dimension", "`requests`, `tokens`, `day`, `spend`, or `unknown`"),
    ("outcome", "`accepted` or `rejected`, the application's own word"),
    ("purpose", "`failover`, `cross_model` or `planned`"),
    ("version", "of the program"),
    ("gen_ai_operation_name", "`chat`, or `count_tokens`"),
    ("gen_ai_provider_name", "OpenTelemetry's name for the provider's kind"),
    ("gen_ai_request_model", "the model sent upstream where the configuration names it, else `other`"),
    ("gen_ai_token_type", "`input` or `output`"),
    ("error_type", "the failure class, empty where the attempt was accepted"),
    ledger::TOOL,
    ledger::DECISION,
    ledger::FROM,
    ledger::TO,
    ledger::RESULT,
    ledger::PHASE,
    ledger::QUEUE,
];

/// Duration of an attempt (the relay is the provider's client).
pub const DURATION: Metric = metric(
    "gen_ai_client_operation_duration_seconds",
    Kind::Histogram,
    &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type"],
    "Duration of one attempt at a provider",
);
/// Tokens of an attempt.
pub const TOKENS: Metric = metric(
    "gen_ai_client_token_usage",
    Kind::Histogram,
    &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type"],
    "Tokens of one attempt, as its provider told them",
);
/// Time to first visible output.
pub const FIRST_CHUNK: Metric = metric(
    "gen_ai_client_operation_time_to_first_chunk_seconds",
    Kind::Histogram,
    &["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"],
    "Time from an accepted attempt's start to its first visible output, streamed answers only",
);
/// Requests.
pub const REQUESTS: Metric = metric(
    "rubicon_requests_total",
    Kind::Counter,
    &["workflow", "dialect", "state", "reason"],
    "Requests of the data plane by how they ended",
);
/// Attempts.
pub const ATTEMPTS: Metric = metric(
    "rubicon_attempts_total",
    Kind::Counter,
    &["route", "workflow", "kind", "class"],
    "Attempts at providers by what they were for and how they ended",
);
/// Recoveries.
pub const RECOVERIES: Metric = metric(
    "rubicon_recoveries_total",
    Kind::Counter,
    &["workflow", "kind", "recovered"],
    "Requests for which more than the primary's first attempt was made, by the last kind of it",
);
/// Added latency.
pub const ADDED_LATENCY: Metric = metric(
    "rubicon_added_latency_seconds",
    Kind::Histogram,
    &["workflow"],
    "Time from admission to the start of the accepted attempt",
);
/// Hold.
pub const HOLD: Metric = metric(
    "rubicon_hold_seconds",
    Kind::Histogram,
    &["workflow"],
    "Time from the provider's response head to the boundary: how long an accepted answer was held back",
);
/// Interruptions.
pub const INTERRUPTIONS: Metric = metric(
    "rubicon_interruptions_total",
    Kind::Counter,
    &["workflow", "route", "reason"],
    "Answers that were cut after something was shown",
);
/// Hold limit.
pub const HOLD_LIMIT: Metric = metric(
    "rubicon_hold_limit_total",
    Kind::Counter,
    &["workflow"],
    "Attempts committed because the hold was full, before anything was visible",
);
/// In flight.
pub const IN_FLIGHT: Metric = metric("rubicon_in_flight", Kind::Gauge, &[], "Requests that hold a permit now");
/// Shed.
pub const SHED: Metric = metric(
    "rubicon_shed_total",
    Kind::Counter,
    &["reason"],
    "Requests that the relay itself turned away before any call, to be sent again later",
);
/// Retry budget.
pub const RETRY_BUDGET_REFUSED: Metric = metric(
    "rubicon_retry_budget_refused_total",
    Kind::Counter,
    &[],
    "Further attempts that the shared retry budget did not allow",
);
/// Circuit.
pub const CIRCUIT: Metric = metric(
    "rubicon_route_circuit",
    Kind::Gauge,
    &["route", "state"],
    "1 for the state that the route's breaker is in, 0 for the others",
);
/// In use.
pub const IN_USE: Metric = metric(
    "rubicon_route_in_use",
    Kind::Gauge,
    &["route"],
    "Attempts that hold one of the route's concurrency slots now",
);
/// Killed.
pub const KILLED: Metric =
    metric("rubicon_killed", Kind::Gauge, &["route"], "1 where an operator has killed the route");
/// Cost of what was accepted.
pub const COST: Metric = metric(
    "rubicon_cost_usd_total",
    Kind::Counter,
    &["workflow", "route"],
    "US dollars of accepted answers, where price and usage are known",
);
/// Cost of what was lost.
pub const LOST_COST: Metric = metric(
    "rubicon_lost_cost_usd_total",
    Kind::Counter,
    &["workflow", "route"],
    "US dollars of attempts that became no whole answer, estimated where usage is not known",
);
/// Throttles.
pub const THROTTLES: Metric = metric(
    "rubicon_throttles_total",
    Kind::Counter,
    &["route", "limit_dimension"],
    "Attempts that a provider throttled, by the limit that was hit",
);
/// Outcomes.
pub const OUTCOMES: Metric =
    metric("rubicon_outcomes_total", Kind::Counter, &["workflow", "outcome"], "The application's word on answers");
/// Alarms.
pub const ALARMS: Metric =
    metric("rubicon_alarms_total", Kind::Counter, &["kind"], "What somebody should be woken for");
/// Events dropped.
pub const EVENTS_DROPPED: Metric = metric(
    "rubicon_events_dropped_total",
    Kind::Counter,
    &[],
    "Event lines that were not written: the queue was full, or the destination failed",
);
/// Log lines dropped.
pub const LOG_DROPPED: Metric =
    metric("rubicon_log_dropped_total", Kind::Counter, &[], "Log lines that standard error did not take");
/// Spans dropped.
pub const SPANS_DROPPED: Metric = metric(
    "rubicon_spans_dropped_total",
    Kind::Counter,
    &[],
    "Spans that were not exported: the queue was full, or the collector failed",
);
/// Generation.
pub const CONFIG_GENERATION: Metric = metric(
    "rubicon_config_generation",
    Kind::Gauge,
    &[],
    "The configuration in use: 1 at start, one more with each reload that changed something",
);
/// Last reload.
pub const RELOAD_SUCCESS: Metric = metric(
    "rubicon_config_last_reload_success",
    Kind::Gauge,
    &[],
    "1 where the last load of the configuration was taken, 0 where it was refused",
);
/// Its time.
pub const RELOAD_TIME: Metric = metric(
    "rubicon_config_last_reload_success_timestamp_seconds",
    Kind::Gauge,
    &[],
    "When a configuration was taken last",
);
/// Approvals.
pub const APPROVAL_EXPIRY: Metric = metric(
    "rubicon_approval_expiry_timestamp_seconds",
    Kind::Gauge,
    &["workflow", "route", "purpose"],
    "When an approval runs out; absent where it does not",
);
/// Verifications.
pub const VERIFICATION_EXPIRY: Metric = metric(
    "rubicon_verification_expiry_timestamp_seconds",
    Kind::Gauge,
    &["route"],
    "When a route's verification runs out; absent where it does not",
);
/// The control store.
pub const STORE_WRITABLE: Metric = metric(
    "rubicon_control_store_writable",
    Kind::Gauge,
    &[],
    "1 where switches can be saved, 0 after a write of the control store failed",
);
/// Failover.
pub const FAILOVER_DISABLED: Metric = metric(
    "rubicon_failover_disabled",
    Kind::Gauge,
    &[],
    "1 where an operator has switched failover off for all workflows",
);
/// Issuers.
pub const ISSUERS_DROPPED: Metric = metric(
    "rubicon_issuers_dropped_total",
    Kind::Counter,
    &[],
    "Rows of who issued which state that were not written to disk",
);
/// Build.
pub const BUILD: Metric = metric("rubicon_build_info", Kind::Info, &["version"], "The program");

/// All metrics, in the order of the documentation.
pub const METRICS: &[&Metric] = &[
    &DURATION,
    &TOKENS,
    &FIRST_CHUNK,
    &REQUESTS,
    &ATTEMPTS,
    &RECOVERIES,
    &ADDED_LATENCY,
    &HOLD,
    &INTERRUPTIONS,
    &HOLD_LIMIT,
    &IN_FLIGHT,
    &SHED,
    &RETRY_BUDGET_REFUSED,
    &CIRCUIT,
    &IN_USE,
    &KILLED,
    &COST,
    &LOST_COST,
    &THROTTLES,
    &OUTCOMES,
    &ALARMS,
    &EVENTS_DROPPED,
    &LOG_DROPPED,
    &SPANS_DROPPED,
    &CONFIG_GENERATION,
    &RELOAD_SUCCESS,
    &RELOAD_TIME,
    &APPROVAL_EXPIRY,
    &VERIFICATION_EXPIRY,
    &STORE_WRITABLE,
    &FAILOVER_DISABLED,
    &ISSUERS_DROPPED,
    &ledger::CLAIMS,
    &ledger::CLAIM_DURATION,
    &ledger::TRANSITIONS,
    &ledger::PROBES,
    &ledger::OPEN,
    &ledger::AVAILABLE,
    &ledger::QUEUED,
    &ledger::COMMANDS,
    &ledger::BATCHES,
    &ledger::FAILURES,
    &ledger::PLANS,
    &ledger::PLANS_LOST,
    &ledger::OUTCOMES_LOST,
    &BUILD,
];

/// Stands for an absent label value.
pub const NONE: &str = "none";

/// Stands for a model that the configuration does not name.
pub const OTHER: &str = "other";

/// The tracer.
pub const SCOPE: &str = "rubicon";

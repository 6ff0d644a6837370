//! Metrics of the ledger, the part of [`names`](super::names) about executions.
//!
//! Replays that were served are claims with the decision `use_result`, near-duplicates that were held those with `confirm`, and the same
//! intent in other words `conflict`: no further metric repeats them.

use super::names::{Kind, Metric, metric};

/// Claims.
pub const CLAIMS: Metric = metric(
    "rubicon_execution_claims_total",
    Kind::Counter,
    &["tool", "decision"],
    "Claims of tool executions by what was decided, runs by the relay itself included",
);
/// How long a claim took.
pub const CLAIM_DURATION: Metric = metric(
    "rubicon_execution_claim_duration_seconds",
    Kind::Histogram,
    &[],
    "Time from a claim to its decision, which is on disk by then; waits for a running twin are not in it",
);
/// Transitions.
pub const TRANSITIONS: Metric = metric(
    "rubicon_execution_transitions_total",
    Kind::Counter,
    &["tool", "from", "to"],
    "Persisted transitions of executions between states",
);
/// Probes.
pub const PROBES: Metric = metric(
    "rubicon_execution_probes_total",
    Kind::Counter,
    &["tool", "result"],
    "What status queries about unknown outcomes came to; those without any answer are not noted",
);
/// Open records.
pub const OPEN: Metric = metric(
    "rubicon_executions_open",
    Kind::Gauge,
    &["phase"],
    "Executions that have not ended: foreseen, running, or of unknown outcome",
);
/// Whether it works.
pub const AVAILABLE: Metric = metric(
    "rubicon_ledger_available",
    Kind::Gauge,
    &[],
    "1 where executions can be made durable, 0 where they are refused with 503; absent without a ledger",
);
/// What waits.
pub const QUEUED: Metric = metric(
    "rubicon_ledger_queued",
    Kind::Gauge,
    &["queue"],
    "What waits to be persisted: claims and other commands, plans and sightings behind them",
);
/// Commands.
pub const COMMANDS: Metric =
    metric("rubicon_ledger_commands_total", Kind::Counter, &[], "Commands that were answered after their commit");
/// Batches.
pub const BATCHES: Metric = metric(
    "rubicon_ledger_batches_total",
    Kind::Counter,
    &[],
    "Durable commits, one a batch; commands over batches is how many share a sync",
);
/// Failures.
pub const FAILURES: Metric = metric(
    "rubicon_ledger_failures_total",
    Kind::Counter,
    &[],
    "Failures of the ledger's store, each followed by opening it anew",
);
/// Plans.
pub const PLANS: Metric =
    metric("rubicon_ledger_plans_total", Kind::Counter, &[], "Tool calls that were seen in streams and persisted");
/// Plans that are lost.
pub const PLANS_LOST: Metric = metric(
    "rubicon_ledger_plans_lost_total",
    Kind::Counter,
    &[],
    "Tool calls that were seen and not persisted: their executions are flagged `plan_incomplete`",
);
/// Outcomes that are lost.
pub const OUTCOMES_LOST: Metric = metric(
    "rubicon_ledger_outcomes_lost_total",
    Kind::Counter,
    &[],
    "Outcomes that came while the store was down and found no room to wait: their executions become unknown",
);

/// What label values of these metrics are.
pub(super) const TOOL: (&str, &str) = ("tool", "a `[tool.NAME]` of the configuration in force, else `other`");
pub(super) const DECISION: (&str, &str) = (
    "decision",
    "`execute`, `use_result` (a replay), `in_progress`, `reconcile`, `stop`, `confirm` (held as a near-duplicate, after an error or in a restored gap), `await_approval`, `conflict` (same intent, other words), `gone` (erased), `unavailable`",
);
pub(super) const FROM: (&str, &str) =
    ("from", "`none` (it is new), `planned`, `started`, `succeeded`, `failed`, `unknown`");
pub(super) const TO: (&str, &str) =
    ("to", "a state, as in `from`; the same one where only something beside it changed");
pub(super) const RESULT: (&str, &str) = (
    "result",
    "`succeeded`, `not_executed`, `executed_error` (each settled it), `undecided` (it is asked again), `gave_up` (a person must find out)",
);
pub(super) const PHASE: (&str, &str) = ("phase", "`planned`, `started`, `unknown`");
pub(super) const QUEUE: (&str, &str) = ("queue", "`commands`, `behind`");

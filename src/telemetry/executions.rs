//! What is told of executions: a line and a count a transition, a count a claim and a probe, and how the ledger stands at a scrape.
//!
//! In: what the ledger's observer sees, on its writer's thread between a commit and its answers: nothing here waits. Out: the `execution`
//! line, metrics, alarms. No argument, result or evidence is in any of them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rubicon_ledger::{
    Claimed, Draft, Effect, ExecutionKey, Failure, Flag, Ledger, Reconciliation, Record, State, Stats, ToolName,
};
use serde::Serialize;

use super::Telemetry;
use super::events::{AlarmEvent, AlarmKind, Time, bounded, said};
use super::names;
use crate::clock::UnixMillis;
use crate::ids::OperationId;

/// Bytes of a reason: a person's sentence.
const REASON_BYTES_MAX: usize = 256;

/// Between two looks at the ledger for the alarm.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The line of a transition.
#[derive(Clone, Debug, Serialize)]
pub struct ExecutionEvent<'r> {
    /// `execution`.
    pub event: &'static str,
    /// When it became so.
    pub time: Time,
    /// Which.
    pub execution: ExecutionKey,
    /// Of which tool.
    pub tool: &'r str,
    /// What the tool may do.
    pub effect: Effect,
    /// Whose.
    pub tenant: &'r str,
    /// The operation that asked first.
    pub operation: Option<&'r str>,
    /// Of which run.
    pub root: &'r str,
    /// Which of several same calls.
    pub occurrence: u32,
    /// What was done.
    pub action: &'r str,
    /// By whom.
    pub by: String,
    /// State before.
    pub from: Option<State>,
    /// State after.
    pub to: State,
    /// How it failed.
    pub failure: Option<Failure>,
    /// What is done about it.
    pub reconciliation: Reconciliation,
    /// Why.
    pub reason: String,
    /// Its epoch.
    pub epoch: u32,
    /// Its version.
    pub version: u64,
    /// Runs of the intent so far.
    pub runs: u32,
    /// What is odd.
    pub flags: &'r BTreeSet<Flag>,
}

impl<'r> ExecutionEvent<'r> {
    /// The line of one persisted transition.
    #[must_use]
    pub fn of(from: Option<State>, record: &'r Record, entry: &'r Draft) -> Self {
        Self {
            event: "execution",
            time: Time(UnixMillis(entry.at.0)),
            execution: record.key,
            tool: record.tool.as_str(),
            effect: record.effect,
            tenant: record.tenant.as_str(),
            operation: record.operation.as_ref().map(|operation| operation.as_str()),
            root: record.root.as_str(),
            occurrence: record.occurrence.0,
            action: &entry.action,
            by: said(&entry.by),
            from,
            to: record.state,
            failure: record.failure,
            reconciliation: record.reconciliation,
            reason: bounded(&entry.reason, REASON_BYTES_MAX),
            epoch: record.epoch,
            version: record.version,
            runs: record.runs,
            flags: &record.flags,
        }
    }
}

/// The word of a decision, for its counter.
#[must_use]
pub fn decision(claimed: &Claimed) -> &'static str {
    match claimed {
        Claimed::Execute { .. } => "execute",
        Claimed::UseResult(_) => "use_result",
        Claimed::InProgress(_) => "in_progress",
        Claimed::Reconcile(_) => "reconcile",
        Claimed::Stop(_) => "stop",
        Claimed::Confirm { .. } => "confirm",
        Claimed::AwaitApproval(_) => "await_approval",
        Claimed::Conflict { .. } => "conflict",
        Claimed::Gone(_) => "gone",
    }
}

/// A claim that nothing could be decided about: 503.
pub const UNAVAILABLE: &str = "unavailable";

/// Whose words in the journal are a probe's.
const PROBE: &str = "probe";

/// What a probe's line in the journal came to.
fn probe_result(record: &Record, entry: &Draft) -> &'static str {
    match (record.state, record.failure) {
        (State::Succeeded, _) => "succeeded",
        (State::Failed, Some(Failure::NotExecuted)) => "not_executed",
        (State::Failed, _) => "executed_error",
        _ if &*entry.reason == "probe_answer" => "undecided",
        _ => "gave_up",
    }
}

/// How the ledger stands at a scrape.
#[derive(Clone, Copy, Debug)]
pub struct LedgerGauges {
    /// Changes can be made durable.
    pub available: bool,
    /// Its numbers.
    pub stats: Stats,
}

impl Telemetry {
    /// A transition is persisted; without a line of the journal (a renewed lease) nothing is told.
    pub fn transition(&self, from: Option<State>, record: &Record, entry: Option<&Draft>) {
        let Some(entry) = entry else { return };
        self.metrics.transition(&record.tool, from, record.state);
        if &*entry.by == PROBE {
            self.metrics.probed(&record.tool, probe_result(record, entry));
        }
        self.line(&ExecutionEvent::of(from, record, entry));
        // The flag stays on the record; what raises it is the word of an owner whose run is over.
        if record.flags.contains(&Flag::DoubleEffectSuspected) && &*entry.action == "evidence" {
            self.metrics.alarm(AlarmKind::DoubleEffectSuspected);
            self.line(&AlarmEvent {
                event: "alarm",
                time: Time(UnixMillis(entry.at.0)),
                kind: AlarmKind::DoubleEffectSuspected,
                operation: record.operation.as_ref().map(|operation| OperationId::new(operation.as_str())),
                route: None,
                execution: Some(record.key),
                tool: Some(record.tool.clone()),
            });
        }
    }

    /// A claim was decided ([`decision`], or [`UNAVAILABLE`]) after so long.
    pub fn claimed(&self, tool: &ToolName, decision: &'static str, took: Duration) {
        self.metrics.claimed(tool, decision, took);
    }

    /// Whether the ledger can make changes durable, as often as anybody looks: an alarm when it no longer can.
    pub fn ledger_is(&self, available: bool, now: UnixMillis) {
        let was_down = self.ledger_down.swap(!available, Ordering::AcqRel);
        if !available && !was_down {
            self.alarm(AlarmKind::LedgerUnavailable, None, None, now);
        }
    }

    /// The observer that a ledger is started with. It does not keep this alive: the ledger is kept by it ([`Telemetry::watch`]).
    #[must_use]
    pub fn observer(self: &Arc<Self>) -> rubicon_ledger::Observer {
        let telemetry = Arc::downgrade(self);
        Arc::new(move |transition| {
            if let Some(telemetry) = telemetry.upgrade() {
                telemetry.transition(transition.from, transition.record, transition.entry);
            }
        })
    }

    /// Shows how a ledger stands at each scrape. The first call counts.
    pub fn watch(&self, ledger: &Ledger) {
        let ledger = ledger.clone();
        self.metrics.ledger_from(move || LedgerGauges { available: ledger.is_available(), stats: ledger.stats() });
    }

    /// Looks every second whether the ledger can make changes durable ([`Telemetry::ledger_is`]), until it is dropped.
    pub async fn keep_watch(self: Arc<Self>, ledger: Ledger) {
        let mut every = tokio::time::interval(LOOK_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            self.ledger_is(ledger.is_available(), UnixMillis::now());
        }
    }
}

/// The word of a state before.
pub(super) fn from_name(from: Option<State>) -> Cow<'static, str> {
    Cow::Borrowed(from.map_or(names::NONE, State::name))
}

#[cfg(test)]
mod tests;

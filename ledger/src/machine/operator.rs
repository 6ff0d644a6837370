//! What operators do to one execution.
//!
//! In: a verb, the version that the operator saw, a reason. Out: the change, or why not now. Roles are checked before; that the second
//! person is not the first is checked here, since only the record knows. A verdict of a person is never taken back: an unknown is
//! settled once.

use std::sync::Arc;

use super::Decision;
use super::detail;
use super::step::{self, Act, Step};
use crate::command::{Change, Denied, Env, IfMatch, Verb};
use crate::key::Fingerprint;
use crate::record::{Evidence, Failure, Impact, Outcome, Pending, Reconciliation, Record, Settlement, State};
use crate::store::{StoreError, View};

/// Most near-duplicates of one execution that wait to be let through: a person decides each.
const MAX_LET_THROUGH: usize = 64;

/// How a change goes: the record as it is to be, its evidence; or none, where it is so already; or why not.
type Outcomes = Result<Option<(Record, Vec<Evidence>)>, (&'static str, &'static str)>;

pub(super) fn change(command: &Change, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    let Some(record) = view.record(&command.key)? else {
        return Ok(Decision::denied(Vec::new(), Denied::NotFound));
    };
    if matches!(command.if_match, IfMatch::Version(version) if version != record.version) {
        return Ok(Decision::denied(Vec::new(), Denied::VersionMismatch(Box::new(record))));
    }
    let (action, outcome) = match &command.verb {
        Verb::Resolve { .. } if record.state.is_terminal() => {
            return Ok(Decision::denied(Vec::new(), Denied::AlreadySettled(Box::new(record))));
        }
        Verb::Resolve { outcome, settlement } => ("resolve", resolve(&record, command, *outcome, settlement, env)),
        Verb::Confirm => ("confirm", confirm(&record, command, env)),
        Verb::Release => ("release", release(&record, command)),
        Verb::LetThrough { fingerprint } => ("let_through", let_through(&record, *fingerprint)),
        Verb::Note if is_blank(&command.reason) => ("note", Err(REASON_MISSING)),
        Verb::Note => ("note", Ok(Some((record.clone(), Vec::new())))),
        Verb::Assign { to } => ("assign", assign(&record, to.as_ref())),
        Verb::Probe => ("probe", probe(&record)),
    };
    match outcome {
        Err((code, why)) => Ok(Decision::denied(Vec::new(), Denied::NotNow { code, why, record: Box::new(record) })),
        Ok(None) => Ok(Decision::changed(Vec::new(), record)),
        Ok(Some((new, evidence))) => {
            let act = Act::new(&command.by, action, &command.reason);
            let (write, new) = Step::new(Some(&record), act).evidence(evidence).put(new, env)?;
            Ok(Decision::changed(vec![write], new))
        }
    }
}

const REASON_MISSING: (&str, &str) = ("reason_missing", "say why");

fn is_blank(reason: &str) -> bool {
    reason.trim().is_empty()
}

fn resolve(record: &Record, command: &Change, outcome: Outcome, settlement: &Settlement, env: &Env) -> Outcomes {
    if outcome == Outcome::Unknown {
        return Err(("not_a_verdict", "a verdict says what happened"));
    }
    if is_blank(&command.reason) {
        return Err(REASON_MISSING);
    }
    if record.state == State::Planned && (record.awaits_approval || record.approved_by.is_some()) {
        if outcome != Outcome::NotExecuted {
            return Err(("not_unknown", "it has not run: it can be refused as not_executed, and nothing else"));
        }
        return Ok(Some(verdict(record, outcome, settlement, &command.by, env)));
    }
    if record.state != State::Unknown {
        return Err(("not_unknown", "only an unknown outcome can be resolved"));
    }
    if record.impact == Impact::Normal {
        return Ok(Some(verdict(record, outcome, settlement, &command.by, env)));
    }
    let mut new = record.clone();
    new.reconciliation = Reconciliation::PendingSecond;
    new.pending = Some(Pending {
        outcome,
        settlement: settlement.clone(),
        by: Arc::clone(&command.by),
        reason: Arc::clone(&command.reason),
        version: record.version,
        fingerprint: record.fingerprint,
        at: env.now,
    });
    Ok(Some((new, Vec::new())))
}

/// The record with a person's verdict on it. After *not executed* it runs again only when it is released.
fn verdict(
    record: &Record,
    outcome: Outcome,
    settlement: &Settlement,
    by: &Arc<str>,
    env: &Env,
) -> (Record, Vec<Evidence>) {
    let mut new = step::settled(record, outcome, settlement, env);
    if record.state == State::Unknown {
        new.reconciliation = Reconciliation::Resolved;
    }
    new.awaits_approval = false;
    new.approved_by = None;
    new.needs_release = outcome == Outcome::NotExecuted;
    (new, vec![detail::said("operator", record.epoch, by, outcome, settlement, env)])
}

fn confirm(record: &Record, command: &Change, env: &Env) -> Outcomes {
    if let Some(pending) = &record.pending {
        if pending.by == command.by {
            return Err(("same_person", "a second person must confirm it"));
        }
        if (pending.version, pending.fingerprint) != (record.version, record.fingerprint) {
            return Err(("approval_changed", "it has changed since the verdict was given"));
        }
        return Ok(Some(verdict(record, pending.outcome, &pending.settlement, &command.by, env)));
    }
    if record.state != State::Planned {
        return Err(("nothing_pending", "nothing waits for a confirmation"));
    }
    if record.awaits_approval {
        let mut new = record.clone();
        new.awaits_approval = false;
        new.approved_by = Some(Arc::clone(&command.by));
        return Ok(Some((new, Vec::new())));
    }
    if record.approved_by.is_some() {
        return Ok(None);
    }
    Err(("nothing_pending", "nothing waits for a confirmation"))
}

fn release(record: &Record, command: &Change) -> Outcomes {
    if is_blank(&command.reason) {
        return Err(REASON_MISSING);
    }
    if record.erased {
        return Err(("erased", "its content is erased: it never runs again"));
    }
    if record.superseded_by.is_some() {
        return Err(("superseded", "other words took its place"));
    }
    if !matches!(record.failure, Some(Failure::NotExecuted | Failure::ExecutedError)) {
        return Err(("not_failed", "only what failed can run again"));
    }
    if record.released {
        return Ok(None);
    }
    let mut new = record.clone();
    new.needs_release = false;
    new.released = true;
    Ok(Some((new, Vec::new())))
}

fn let_through(record: &Record, fingerprint: Fingerprint) -> Outcomes {
    if record.let_through.contains(&fingerprint) {
        return Ok(None);
    }
    if record.let_through.len() >= MAX_LET_THROUGH {
        return Err(("too_many", "too many wait to be let through already"));
    }
    let mut new = record.clone();
    new.let_through.push(fingerprint);
    Ok(Some((new, Vec::new())))
}

fn assign(record: &Record, to: Option<&Arc<str>>) -> Outcomes {
    if record.assigned_to.as_ref() == to {
        return Ok(None);
    }
    let mut new = record.clone();
    new.assigned_to = to.cloned();
    Ok(Some((new, Vec::new())))
}

/// Whether a probe exists is known to who asks; the record only says that one is wanted now.
fn probe(record: &Record) -> Outcomes {
    if record.state != State::Unknown {
        return Err(("not_unknown", "only an unknown outcome is asked about"));
    }
    if record.pending.is_some() {
        return Err(("pending_second", "a verdict waits for a second person"));
    }
    let mut new = record.clone();
    new.reconciliation = Reconciliation::Probing;
    Ok(Some((new, Vec::new())))
}

//! One change of one record, on its way to the store.
//!
//! In: the record that was seen and how it is to be. Out: the [`Write`], with the next version, its line of the journal, and what must
//! still hold. Every write of the machine is made here, so the invariants are checked here, in production too: a decision that would
//! break one is an error, and nothing is written.

use std::sync::Arc;

use crate::command::Env;
use crate::journal::Draft;
use crate::record::{Evidence, Failure, Outcome, Reconciliation, Record, Settlement, State};
use crate::store::{CallDigest, Expected, Put, StoreError, Write};

/// Who does what, and why: for the journal.
#[derive(Debug, Clone)]
pub(super) struct Act {
    pub(super) by: Arc<str>,
    pub(super) action: &'static str,
    pub(super) reason: Arc<str>,
}

impl Act {
    pub(super) fn new(by: &Arc<str>, action: &'static str, reason: &Arc<str>) -> Self {
        Self { by: Arc::clone(by), action, reason: Arc::clone(reason) }
    }

    /// Done by the ledger itself.
    pub(super) fn own(action: &'static str, reason: &str) -> Self {
        Self { by: Arc::from("ledger"), action, reason: Arc::from(reason) }
    }
}

/// A change being put together.
pub(super) struct Step<'a> {
    old: Option<&'a Record>,
    act: Option<Act>,
    evidence: Vec<Evidence>,
    call: Option<CallDigest>,
}

impl<'a> Step<'a> {
    /// A journaled change; `old` none: the record is new.
    pub(super) fn new(old: Option<&'a Record>, act: Act) -> Self {
        Self { old, act: Some(act), evidence: Vec::new(), call: None }
    }

    /// The renewal of a lease: the one change that the journal does not tell.
    pub(super) fn renewal(old: &'a Record) -> Self {
        Self { old: Some(old), act: None, evidence: Vec::new(), call: None }
    }

    pub(super) fn evidence(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    pub(super) fn call(mut self, call: Option<CallDigest>) -> Self {
        self.call = call;
        self
    }

    /// The write, and the record as it will be.
    pub(super) fn put(self, mut record: Record, env: &Env) -> Result<(Write, Record), StoreError> {
        let version = self.old.map_or(0, |old| old.version);
        record.version = version.checked_add(1).ok_or_else(|| damaged("a version has no successor"))?;
        record.changed_at = env.now;
        if let Some(pending) = &mut record.pending {
            // Remarks and evidence do not void a verdict that waits; whoever confirms names the version that shows them.
            pending.version = record.version;
        }
        check(self.old, &record)?;
        let entry = self.act.map(|act| Draft {
            at: env.now,
            by: act.by,
            action: Arc::from(act.action),
            subject: Arc::from(record.key.to_string()),
            from: Arc::from(self.old.map_or("", |old| old.state.name())),
            to: Arc::from(record.state.name()),
            version: record.version,
            epoch: record.epoch,
            reason: act.reason,
        });
        let put = Put {
            expected: self.old.map(Expected::of),
            record: record.clone(),
            entry,
            evidence: self.evidence,
            call: self.call,
        };
        Ok((Write::Put(Box::new(put)), record))
    }
}

/// A planned call that belongs to a record which stays as it is.
pub(super) fn call_of(record: &Record, call: CallDigest) -> Write {
    Write::Put(Box::new(Put {
        expected: Some(Expected::of(record)),
        record: record.clone(),
        entry: None,
        evidence: Vec::new(),
        call: Some(call),
    }))
}

/// The record becomes unknown: nobody knows what its run did.
pub(super) fn lost(record: &Record, act: Act, kind: &'static str, env: &Env) -> Result<(Write, Record), StoreError> {
    let evidence = Evidence {
        at: env.now,
        kind: Arc::from(kind),
        epoch: record.epoch,
        by: Arc::clone(&act.by),
        detail: Arc::from("{}"),
    };
    let mut new = record.clone();
    new.state = State::Unknown;
    new.reconciliation = open_reconciliation(record);
    Step::new(Some(record), act).evidence([evidence]).put(new, env)
}

/// Who finds out about an unknown: nobody need for a read, which runs again.
pub(super) fn open_reconciliation(record: &Record) -> Reconciliation {
    match (record.effect, record.has_probe) {
        (crate::record::Effect::ReadOnly, _) => Reconciliation::None,
        (crate::record::Effect::Write, true) => Reconciliation::Probing,
        (crate::record::Effect::Write, false) => Reconciliation::NeedsOperator,
    }
}

/// The record with a verdict on it.
pub(super) fn settled(record: &Record, outcome: Outcome, settlement: &Settlement, env: &Env) -> Record {
    let mut new = record.clone();
    new.pending = None;
    let (state, failure) = match outcome {
        Outcome::Succeeded => (State::Succeeded, None),
        Outcome::NotExecuted => (State::Failed, Some(Failure::NotExecuted)),
        Outcome::ExecutedError => (State::Failed, Some(Failure::ExecutedError)),
        Outcome::Unknown => {
            new.state = State::Unknown;
            new.reconciliation = open_reconciliation(record);
            return new;
        }
    };
    new.state = state;
    new.failure = failure;
    new.settlement = Some(settlement.clone());
    new.settled_at = Some(env.now);
    new
}

/// How it ended, in the words of a verdict.
pub(super) fn outcome_of(record: &Record) -> Option<Outcome> {
    match (record.state, record.failure) {
        (State::Succeeded, _) => Some(Outcome::Succeeded),
        (State::Failed, Some(Failure::NotExecuted)) => Some(Outcome::NotExecuted),
        (State::Failed, _) => Some(Outcome::ExecutedError),
        (State::Planned | State::Started | State::Unknown, _) => None,
    }
}

pub(super) fn is_not_executed(record: &Record) -> bool {
    outcome_of(record) == Some(Outcome::NotExecuted)
}

/// Whether this says that something happened in the world.
pub(super) fn says_effect(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Succeeded | Outcome::ExecutedError)
}

/// Whether the right to run it has ended by time.
pub(super) fn is_lease_over(record: &Record, env: &Env) -> bool {
    record.state == State::Started && record.lease.as_ref().is_none_or(|lease| lease.until <= env.now)
}

pub(super) fn damaged(why: &str) -> StoreError {
    StoreError::Damaged(why.to_owned())
}

/// The invariants of every record.
fn check(old: Option<&Record>, new: &Record) -> Result<(), StoreError> {
    let broken = |what: &str| Err(StoreError::Damaged(format!("{}: {what}", new.key)));
    if new.state == State::Started && (new.lease.is_none() || new.epoch == 0) {
        return broken("started without a lease");
    }
    if new.state.is_terminal() && new.settled_at.is_none() {
        return broken("ended without a time");
    }
    if (new.state == State::Failed) != new.failure.is_some() {
        return broken("a failure that does not fit its state");
    }
    if new.pending.is_some() && new.state != State::Unknown {
        return broken("a verdict waits for what is not unknown");
    }
    let Some(old) = old else { return Ok(()) };
    if (old.key, old.sequence, &old.tenant) != (new.key, new.sequence, &new.tenant) {
        return broken("another execution");
    }
    if new.epoch < old.epoch || new.runs < old.runs {
        return broken("its epoch falls");
    }
    let grants = new.epoch > old.epoch;
    if grants && new.state != State::Started {
        return broken("a new epoch without a run");
    }
    let may_become = match old.state {
        State::Planned => matches!(new.state, State::Planned | State::Started | State::Failed),
        State::Started => new.state != State::Planned && !grants,
        State::Unknown => matches!(new.state, State::Unknown | State::Succeeded | State::Failed),
        State::Succeeded => new.state == State::Succeeded,
        State::Failed => matches!(new.state, State::Failed | State::Planned | State::Started),
    };
    if !may_become {
        return broken("a way that no record goes");
    }
    if !old.state.is_terminal() {
        return Ok(());
    }
    let reruns = old.state == State::Failed && new.state != State::Failed;
    if reruns {
        let allowed = old.released || (is_not_executed(old) && !old.needs_release);
        if !allowed || old.erased || old.superseded_by.is_some() {
            return broken("it must not run again");
        }
        return Ok(());
    }
    let kept = (old.failure, old.fingerprint, old.settled_at) == (new.failure, new.fingerprint, new.settled_at);
    let content = (&old.arguments, &old.settlement) == (&new.arguments, &new.settlement)
        || (new.erased && new.arguments.is_none() && new.settlement.is_none());
    if !kept || !content || (old.erased && !new.erased) {
        return broken("terminal facts change");
    }
    Ok(())
}

//! The owner of a run: it is alive, and how it ended.
//!
//! In: heartbeats and completions with a lease token. Out: a longer lease, a settled record, or evidence. What an owner says is never
//! dropped: too late it settles an unknown, of an older run or against what is settled it is evidence (SPEC.md section 8).

use std::sync::Arc;

use super::step::{self, Act, Step};
use super::{Decision, detail};
use crate::command::{Complete, Denied, Env, Heartbeat};
use crate::ids::TenantId;
use crate::key::ExecutionKey;
use crate::record::{Flag, Outcome, Reconciliation, Record, Settlement, State};
use crate::store::{StoreError, View};
use crate::token::{self, Standing};

/// The record of this tenant, and what the token is to it.
fn find(
    tenant: &TenantId,
    key: &ExecutionKey,
    lease_token: &str,
    view: &dyn View,
    env: &Env,
) -> Result<Result<(Record, Standing), Denied>, StoreError> {
    let Some(record) = view.record(key)?.filter(|record| record.tenant == *tenant) else {
        return Ok(Err(Denied::NotFound));
    };
    let claim_id = record.lease.as_ref().and_then(|lease| lease.claim_id.as_deref());
    match token::standing(&env.secret, &record.key, record.epoch, claim_id, lease_token) {
        Standing::Foreign => Ok(Err(Denied::ForeignLease)),
        standing => Ok(Ok((record, standing))),
    }
}

pub(super) fn heartbeat(command: &Heartbeat, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    let (record, standing) = match find(&command.tenant, &command.key, &command.lease_token, view, env)? {
        Ok(found) => found,
        Err(denied) => return Ok(Decision::denied(Vec::new(), denied)),
    };
    if standing != Standing::Present {
        return Ok(Decision::denied(Vec::new(), Denied::StaleLease(Box::new(record))));
    }
    if step::is_lease_over(&record, env) {
        let act = Act::own("expire", "the lease ran out before this heartbeat");
        let (write, record) = step::lost(&record, act, "lease_expired", env)?;
        return Ok(Decision::denied(vec![write], Denied::LeaseOver(Box::new(record))));
    }
    match (record.state, &record.lease) {
        (State::Started, Some(lease)) => {
            let mut new = record.clone();
            let mut lease = lease.clone();
            lease.until = env.now.plus(command.lease_ms);
            new.lease = Some(lease);
            let (write, new) = Step::renewal(&record).put(new, env)?;
            Ok(Decision::changed(vec![write], new))
        }
        (State::Succeeded | State::Failed, _) => {
            Ok(Decision::denied(Vec::new(), Denied::AlreadySettled(Box::new(record))))
        }
        _ => Ok(Decision::denied(Vec::new(), Denied::LeaseOver(Box::new(record)))),
    }
}

pub(super) fn complete(command: &Complete, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    let (record, standing) = match find(&command.tenant, &command.key, &command.lease_token, view, env)? {
        Ok(found) => found,
        Err(denied) => return Ok(Decision::denied(Vec::new(), denied)),
    };
    match standing {
        Standing::Older { epoch } => {
            let doubled = step::says_effect(command.outcome);
            let (write, record) = keep(&record, command, epoch, doubled, env)?;
            Ok(Decision::denied(vec![write], Denied::StaleLease(Box::new(record))))
        }
        _ => present(&record, command, env),
    }
}

fn present(record: &Record, command: &Complete, env: &Env) -> Result<Decision, StoreError> {
    match record.state {
        State::Started => settle(record, command, step::is_lease_over(record, env), env),
        State::Unknown if command.outcome == Outcome::Unknown => still_unknown(record, command, env),
        State::Unknown => settle(record, command, true, env),
        // Waiting for the approval of another run: this one had ended without an effect.
        State::Planned if command.outcome == Outcome::NotExecuted => Ok(Decision::changed(Vec::new(), record.clone())),
        State::Planned | State::Succeeded | State::Failed => {
            if is_same(record, command) {
                return Ok(Decision::changed(Vec::new(), record.clone()));
            }
            let ran_not = record.state == State::Planned || step::is_not_executed(record);
            let doubled = ran_not && step::says_effect(command.outcome);
            let (write, record) = keep(record, command, record.epoch, doubled, env)?;
            Ok(Decision::denied(vec![write], Denied::AlreadySettled(Box::new(record))))
        }
    }
}

/// The same words again; of erased ones only the outcome can be compared.
fn is_same(record: &Record, command: &Complete) -> bool {
    step::outcome_of(record) == Some(command.outcome)
        && (record.erased || record.settlement.as_ref() == Some(&command.settlement))
}

fn settle(record: &Record, command: &Complete, late: bool, env: &Env) -> Result<Decision, StoreError> {
    let mut new = step::settled(record, command.outcome, &command.settlement, env);
    let mut step = Step::new(Some(record), Act::new(&command.by, "complete", &command.why))
        .evidence(command.evidence.iter().cloned());
    if late && new.state.is_terminal() {
        new.reconciliation = Reconciliation::Resolved;
        step = step.evidence([said(command, "late_owner", record.epoch, env)]);
    } else if new.state == State::Unknown && !is_empty(&command.settlement) {
        // It ends nothing, but a reference or a part of an answer helps whoever finds out.
        step = step.evidence([said(command, "answer", record.epoch, env)]);
    }
    let (write, new) = step.put(new, env)?;
    Ok(Decision::changed(vec![write], new))
}

fn still_unknown(record: &Record, command: &Complete, env: &Env) -> Result<Decision, StoreError> {
    if command.evidence.is_empty() && is_empty(&command.settlement) {
        return Ok(Decision::changed(Vec::new(), record.clone()));
    }
    let (write, new) = keep(record, command, record.epoch, false, env)?;
    Ok(Decision::changed(vec![write], new))
}

/// Kept as evidence only.
fn keep(
    record: &Record,
    command: &Complete,
    epoch: u32,
    doubled: bool,
    env: &Env,
) -> Result<(crate::store::Write, Record), StoreError> {
    let mut new = record.clone();
    if doubled {
        new.flags.insert(Flag::DoubleEffectSuspected);
    }
    Step::new(Some(record), Act::new(&command.by, "evidence", &command.why))
        .evidence(command.evidence.iter().cloned())
        .evidence([said(command, "late_owner", epoch, env)])
        .put(new, env)
}

fn said(command: &Complete, kind: &'static str, epoch: u32, env: &Env) -> crate::record::Evidence {
    detail::said(kind, epoch, &Arc::clone(&command.by), command.outcome, &command.settlement, env)
}

fn is_empty(settlement: &Settlement) -> bool {
    settlement.result.is_none() && settlement.external_reference.is_none() && settlement.error.is_none()
}

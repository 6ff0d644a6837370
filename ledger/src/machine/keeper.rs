//! What the ledger does by itself: leases that run out, runs of another life, retention, and lines of the journal.
//!
//! In: a key (and an epoch). Out: an unknown, an erased content, a line. None of it ever leads to a run.

use std::sync::Arc;

use super::Decision;
use super::step::{self, Act, Step};
use crate::command::{Denied, Env, Remark, Reply};
use crate::journal::{Draft, Head};
use crate::key::ExecutionKey;
use crate::record::{Owner, Record, State};
use crate::store::{StoreError, View, Write};

fn found(key: &ExecutionKey, view: &dyn View) -> Result<Result<Record, Decision>, StoreError> {
    Ok(view.record(key)?.ok_or_else(|| Decision::denied(Vec::new(), Denied::NotFound)))
}

pub(super) fn expire(key: &ExecutionKey, epoch: u32, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    let record = match found(key, view)? {
        Ok(record) => record,
        Err(decision) => return Ok(decision),
    };
    if record.epoch != epoch || !step::is_lease_over(&record, env) {
        return Ok(Decision::changed(Vec::new(), record));
    }
    let (write, record) = step::lost(&record, Act::own("expire", "its lease ran out"), "lease_expired", env)?;
    Ok(Decision::changed(vec![write], record))
}

pub(super) fn orphan(key: &ExecutionKey, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    let record = match found(key, view)? {
        Ok(record) => record,
        Err(decision) => return Ok(decision),
    };
    let of_another_life =
        record.lease.as_ref().is_some_and(|lease| matches!(lease.owner, Owner::Own { boot } if boot != env.boot));
    if record.state != State::Started || !of_another_life {
        return Ok(Decision::changed(Vec::new(), record));
    }
    let act = Act::own("orphan", "the process that ran it is gone");
    let (write, record) = step::lost(&record, act, "restarted", env)?;
    Ok(Decision::changed(vec![write], record))
}

pub(super) fn reported(key: &ExecutionKey, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    let record = match found(key, view)? {
        Ok(record) => record,
        Err(decision) => return Ok(decision),
    };
    if record.reported_at.is_some() {
        return Ok(Decision::changed(Vec::new(), record));
    }
    let mut new = record.clone();
    new.reported_at = Some(env.now);
    let act = Act::own("reported", "a later request carried its result");
    let (write, new) = Step::new(Some(&record), act).put(new, env)?;
    Ok(Decision::changed(vec![write], new))
}

/// Only what has ended is erased: an open one is still to be found out about.
pub(super) fn erase(key: &ExecutionKey, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    let record = match found(key, view)? {
        Ok(record) => record,
        Err(decision) => return Ok(decision),
    };
    if record.erased {
        return Ok(Decision::changed(Vec::new(), record));
    }
    if !record.state.is_terminal() {
        let why =
            Denied::NotNow { code: "not_settled", why: "only what has ended can be erased", record: Box::new(record) };
        return Ok(Decision::denied(Vec::new(), why));
    }
    let mut new = record.clone();
    new.arguments = None;
    new.settlement = None;
    new.erased = true;
    new.let_through.clear();
    let (write, new) = Step::new(Some(&record), Act::own("erase", "its retention is over")).put(new, env)?;
    Ok(Decision::changed(vec![write], new))
}

pub(super) fn note(remark: &Remark, env: &Env) -> Decision {
    let draft = Draft {
        at: env.now,
        by: Arc::clone(&remark.by),
        action: Arc::clone(&remark.action),
        subject: Arc::clone(&remark.subject),
        from: Arc::clone(&remark.from),
        to: Arc::clone(&remark.to),
        version: remark.version,
        epoch: 0,
        reason: Arc::clone(&remark.reason),
    };
    Decision { writes: vec![Write::Note(draft)], reply: Reply::Noted(Head::default()) }
}

pub(super) fn gap(open: bool, by: &Arc<str>, reason: &Arc<str>, env: &Env) -> Decision {
    let (from, to) = if open { ("", "gap") } else { ("gap", "") };
    let draft = Draft {
        at: env.now,
        by: Arc::clone(by),
        action: Arc::from(if open { "gap_open" } else { "gap_end" }),
        subject: Arc::from("ledger"),
        from: Arc::from(from),
        to: Arc::from(to),
        version: 0,
        epoch: 0,
        reason: Arc::clone(reason),
    };
    Decision { writes: vec![Write::Gap(open, draft)], reply: Reply::Noted(Head::default()) }
}

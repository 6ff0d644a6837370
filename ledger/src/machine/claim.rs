//! Somebody wants to run a call: the decision which of a dozen answers it gets.
//!
//! In: a claim. Out: the right to run (`right`), or what is known instead. Here is the table for the same words; other words of the same
//! slot are in `words`, reads in `reads`.

use super::right::{self, Candidate, Origin};
use super::step::{self, Act};
use super::{Decision, reads, words};
use crate::canonical::Arguments;
use crate::command::{Claim, Claimed, Denied, Env, Reply};
use crate::differs::{Differences, differs};
use crate::ids::Occurrence;
use crate::key::ExecutionKey;
use crate::project::Projected;
use crate::record::{Effect, Failure, Owner, Record, State};
use crate::store::{CallDigest, StoreError, View, Write, first_key};
use crate::token;

/// A claim, and what follows from it alone.
pub(super) struct Asked<'a> {
    pub(super) claim: &'a Claim,
    pub(super) projected: Projected,
    pub(super) occurrence: Occurrence,
    /// The key of its slot and occurrence.
    pub(super) key: ExecutionKey,
    /// The plan of its `tool_call_id` is known.
    pub(super) is_planned: bool,
    pub(super) view: &'a dyn View,
    pub(super) env: &'a Env,
}

impl Asked<'_> {
    pub(super) fn origin(&self) -> Origin<'_> {
        Origin {
            tenant: &self.claim.tenant,
            root: &self.claim.root,
            operation: self.claim.operation.as_ref(),
            tool: &self.claim.tool,
            arguments: &self.claim.arguments,
            slot: self.projected.slot,
            fingerprint: self.projected.fingerprint,
            occurrence: self.occurrence,
            tool_call_id: self.claim.tool_call_id.as_ref(),
        }
    }
}

pub(super) fn claim(claim: &Claim, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    let Ok(projected) = claim.tool.projection.apply(&claim.arguments) else {
        return Ok(Decision::denied(Vec::new(), Denied::NotFound));
    };
    let (tenant, root, tool) = (&claim.tenant, &claim.root, &claim.tool.name);
    let foreseen = match &claim.tool_call_id {
        Some(id) => view.call(&CallDigest::of(tenant, root, tool, projected.slot, id))?,
        None => None,
    };
    let occurrence = claim.occurrence.or(foreseen).unwrap_or_default();
    let key = first_key(tenant, root, tool, projected.slot, occurrence);
    let found = view.record(&key)?;
    let asked = Asked { claim, projected, occurrence, key, is_planned: foreseen.is_some(), view, env };
    match (claim.tool.effect, found) {
        // A tool whose effect was changed in the configuration: its writes stay writes.
        (Effect::ReadOnly, Some(record)) if record.run.is_none() => write(&asked, record),
        (Effect::ReadOnly, found) => reads::claim(&asked, found),
        (Effect::Write, Some(record)) if record.run.is_none() => write(&asked, record),
        (Effect::Write, _) => right::run(&asked, Candidate::fresh(&asked)?),
    }
}

/// The slot is known.
fn write(asked: &Asked<'_>, first: Record) -> Result<Decision, StoreError> {
    let chain = words::walk(asked, first)?;
    let (writes, last) = lapse(chain.last, asked.env)?;
    if chain.too_long {
        return Ok(answer(writes, Claimed::Stop(Box::new(last))));
    }
    if last.fingerprint == asked.projected.fingerprint {
        same_words(asked, writes, last)
    } else if chain.met {
        // These words were replaced: they never run.
        Ok(conflict(asked, writes, last))
    } else {
        words::other(asked, writes, last)
    }
}

fn same_words(asked: &Asked<'_>, writes: Vec<Write>, record: Record) -> Result<Decision, StoreError> {
    if record.erased {
        return Ok(answer(writes, Claimed::Gone(Box::new(record))));
    }
    let claimed = match (record.state, record.failure) {
        (State::Planned, _) => return right::run(asked, Candidate::of(record, asked)),
        (State::Started, _) => return Ok(running(asked, record)),
        (State::Unknown, _) => Claimed::Reconcile(Box::new(record)),
        (State::Succeeded, _) => Claimed::UseResult(Box::new(record)),
        (State::Failed, Some(Failure::NotExecuted)) if may_run_again(asked, &record) => {
            return right::run(asked, Candidate::of(record, asked));
        }
        (State::Failed, _) if record.released => return right::run(asked, Candidate::of(record, asked)),
        (State::Failed, _) => Claimed::Stop(Box::new(record)),
    };
    Ok(answer(writes, claimed))
}

/// What did not execute may run again, within limits.
pub(super) fn may_run_again(asked: &Asked<'_>, record: &Record) -> bool {
    record.released || (!record.needs_release && record.runs < asked.claim.tool.max_runs)
}

/// Somebody runs it: a client that claims again under the same name gets the same right again. The ledger's own runs are never given
/// out twice: whoever asks has not the task that runs it.
pub(super) fn running(asked: &Asked<'_>, record: Record) -> Decision {
    let claim = asked.claim;
    let again = record.lease.as_ref().filter(|lease| {
        claim.claim_id.is_some() && lease.claim_id == claim.claim_id && (&lease.owner, &claim.owner) == BOTH_CLIENT
    });
    let claimed = match again {
        Some(lease) => Claimed::Execute {
            lease_token: token::lease(&asked.env.secret, &record.key, record.epoch, lease.claim_id.as_deref()),
            record: Box::new(record),
        },
        None => Claimed::InProgress(Box::new(record)),
    };
    answer(Vec::new(), claimed)
}

const BOTH_CLIENT: (&Owner, &Owner) = (&Owner::Client, &Owner::Client);

/// A run whose lease is over is unknown, whether or not somebody has noticed before.
pub(super) fn lapse(record: Record, env: &Env) -> Result<(Vec<Write>, Record), StoreError> {
    if !step::is_lease_over(&record, env) {
        return Ok((Vec::new(), record));
    }
    let act = Act::own("expire", "its lease had run out when it was claimed again");
    let (write, record) = step::lost(&record, act, "lease_expired", env)?;
    Ok((vec![write], record))
}

/// Same intent, other words. Both are seen through the rule of the claim.
pub(super) fn conflict(asked: &Asked<'_>, writes: Vec<Write>, record: Record) -> Decision {
    let theirs = record
        .arguments
        .as_ref()
        .and_then(|text| Arguments::parse(text.as_bytes()).ok())
        .and_then(|arguments| asked.claim.tool.projection.apply(&arguments).ok());
    let differs = match theirs {
        Some(theirs) => differs(&theirs.canonical, &asked.projected.canonical),
        None => Differences { pointers: Vec::new(), complete: false },
    };
    answer(writes, Claimed::Conflict { record: Box::new(record), differs })
}

pub(super) fn answer(writes: Vec<Write>, claimed: Claimed) -> Decision {
    Decision { writes, reply: Reply::Claimed(claimed) }
}

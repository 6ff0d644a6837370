//! The same intent in other words: the reworded double payment.
//!
//! In: a claim and the newest words of its slot. Out: a refusal, or a new record that takes the place of the old one, counts its runs,
//! and is found again by whoever sends the new words again (SPEC.md section 8, *Identity*).

use super::claim::{answer, conflict, may_run_again};
use super::right::{self, Candidate};
use super::step::{self, Act, Step};
use super::{Decision, claim::Asked};
use crate::command::{Claimed, WhyConfirm};
use crate::ids::Occurrence;
use crate::key::ExecutionKey;
use crate::record::{Failure, Flag, Impact, Record, State};
use crate::store::{StoreError, Write, first_key};
use crate::token::{self, Bond};

/// Most words of one intent that are walked along, and most occurrences that are tried for new ones. A person rewords a few times;
/// a loop that does it for ever is stopped here.
const MAX_WORDS: u32 = 256;

/// The words of a slot, from the first to the last.
pub(super) struct Chain {
    /// The words that stand.
    pub(super) last: Record,
    /// The claim's words are among those that were replaced.
    pub(super) met: bool,
    /// Over [`MAX_WORDS`].
    pub(super) too_long: bool,
}

pub(super) fn walk(asked: &Asked<'_>, first: Record) -> Result<Chain, StoreError> {
    let mut chain = Chain { last: first, met: false, too_long: false };
    for _ in 0..MAX_WORDS {
        let Some(next) = chain.last.superseded_by else { return Ok(chain) };
        chain.met |= chain.last.fingerprint == asked.projected.fingerprint;
        chain.last = asked.view.record(&next)?.ok_or_else(|| step::damaged("words that took a place are missing"))?;
    }
    chain.too_long = true;
    Ok(chain)
}

/// The words that stand are others than the claim's.
pub(super) fn other(asked: &Asked<'_>, writes: Vec<Write>, record: Record) -> Result<Decision, StoreError> {
    match (record.state, record.failure) {
        (State::Planned, _) => right::run(asked, Candidate::of(record, asked)),
        (State::Started | State::Unknown | State::Succeeded, _) => Ok(conflict(asked, writes, record)),
        (State::Failed, _) if record.erased => Ok(answer(writes, Claimed::Gone(Box::new(record)))),
        (State::Failed, Some(Failure::NotExecuted)) => {
            if may_run_again(asked, &record) {
                supersede(asked, record, None)
            } else {
                Ok(answer(writes, Claimed::Stop(Box::new(record))))
            }
        }
        (State::Failed, _) if record.released => supersede(asked, record, None),
        (State::Failed, _) => after_error(asked, record),
    }
}

/// It ran and failed, and may have had an effect: somebody must say that the new words are meant.
fn after_error(asked: &Asked<'_>, record: Record) -> Result<Decision, StoreError> {
    let fingerprint = asked.projected.fingerprint;
    if record.let_through.contains(&fingerprint) {
        return supersede(asked, record, Some(fingerprint));
    }
    let bond = Bond {
        why: WhyConfirm::AfterError.name(),
        similar: &record.key,
        similar_words: &record.fingerprint,
        similar_epoch: record.epoch,
        words: &fingerprint,
        epoch: 0,
    };
    let secret = &asked.env.secret;
    let by_caller = asked.claim.tool.impact == Impact::Normal && record.impact == Impact::Normal;
    if by_caller && asked.claim.confirm.as_ref().is_some_and(|text| token::confirms(secret, &bond, text)) {
        return supersede(asked, record, None);
    }
    let confirm_token = by_caller.then(|| token::confirm(secret, &bond));
    let claimed =
        Claimed::Confirm { why: WhyConfirm::AfterError, similar: Some(Box::new(record)), confirm_token, fingerprint };
    Ok(answer(Vec::new(), claimed))
}

/// The new words take the next free occurrence of the slot.
fn supersede(asked: &Asked<'_>, old: Record, used: Option<crate::key::Fingerprint>) -> Result<Decision, StoreError> {
    let Some((occurrence, key)) = free(asked, old.occurrence)? else {
        return Ok(answer(Vec::new(), Claimed::Stop(Box::new(old))));
    };
    let mut candidate = Candidate::fresh(asked)?;
    candidate.new.key = key;
    candidate.new.occurrence = occurrence;
    candidate.new.supersedes = Some(old.key);
    candidate.new.runs = old.runs;
    candidate.reason = format!("in the place of {}", old.key);

    let mut replaced = old.clone();
    replaced.superseded_by = Some(key);
    replaced.flags.insert(Flag::Superseded);
    replaced.released = false;
    replaced.let_through.retain(|words| Some(*words) != used);
    let act = Act { by: asked.claim.by.clone(), action: "supersede", reason: format!("by {key}").into() };
    let (write, _) = Step::new(Some(&old), act).put(replaced, asked.env)?;
    candidate.writes.push(write);
    right::run(asked, candidate)
}

/// The first occurrence after this one that nobody has: a plan of the model's own keeps its place.
fn free(asked: &Asked<'_>, after: Occurrence) -> Result<Option<(Occurrence, ExecutionKey)>, StoreError> {
    let claim = asked.claim;
    let mut at = after;
    for _ in 0..MAX_WORDS {
        let Some(next) = at.next() else { return Ok(None) };
        at = next;
        let key = first_key(&claim.tenant, &claim.root, &claim.tool.name, asked.projected.slot, at);
        if asked.view.record(&key)?.is_none() {
            return Ok(Some((at, key)));
        }
    }
    Ok(None)
}

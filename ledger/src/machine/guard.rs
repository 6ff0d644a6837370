//! The near-duplicate guard: what a model does after an unknown is to ask again in other words, and where no key fields tell the intent
//! those are another slot.
//!
//! In: a claim that would run. Out: free, held until somebody says that it is meant, or let through by an approver. Only a new run
//! of a write tool without key fields is compared, with the newest runs of its root that are unknown, running or just succeeded.

use std::collections::VecDeque;

use super::claim::Asked;
use super::right::MAX_RECENT;
use super::step::{Act, Step};
use crate::canonical::Arguments;
use crate::command::{Claimed, WhyConfirm};
use crate::record::{Effect, Impact, Record, State};
use crate::store::{StoreError, Write};
use crate::token::{self, Bond};
use crate::value::Value;

/// How long after a success a near-duplicate is held (SPEC.md Annex, *Executions*), in milliseconds.
const AFTER_SUCCESS_MS: u64 = 15 * 60 * 1000;

/// Fewest words of a text that counts as free (SPEC.md Annex, *Executions*): shorter ones are names, codes, amounts.
const FREE_WORDS: usize = 3;

/// Most bytes of stored arguments that one claim is compared with, newest first: 64 calls of 256 KiB. The writer's thread does it, and
/// arguments are usually some hundred bytes. Older ones beyond it are not compared.
const MAX_COMPARED_BYTES: usize = 16 << 20;

/// What the guard says.
pub(super) enum Guard {
    /// Nothing like it.
    Free,
    /// An approver's word is used up by this write.
    LetThrough(Write),
    /// Somebody must say that it is meant.
    Held(Box<Claimed>),
}

/// `epoch`: how often these words ran.
pub(super) fn check(asked: &Asked<'_>, epoch: u32) -> Result<Guard, StoreError> {
    let tool = &asked.claim.tool;
    if !tool.guard_similar || tool.effect != Effect::Write || tool.projection.has_key_fields() {
        return Ok(Guard::Free);
    }
    let Some(similar) = newest_similar(asked)? else { return Ok(Guard::Free) };
    let fingerprint = asked.projected.fingerprint;
    if similar.let_through.contains(&fingerprint) {
        return let_through(asked, &similar);
    }
    let bond = Bond {
        why: WhyConfirm::Similar.name(),
        similar: &similar.key,
        similar_words: &similar.fingerprint,
        similar_epoch: similar.epoch,
        words: &fingerprint,
        epoch,
    };
    let secret = &asked.env.secret;
    let by_caller = tool.impact == Impact::Normal;
    if by_caller && asked.claim.confirm.as_ref().is_some_and(|text| token::confirms(secret, &bond, text)) {
        return Ok(Guard::Free);
    }
    let confirm_token = by_caller.then(|| token::confirm(secret, &bond));
    Ok(Guard::Held(Box::new(Claimed::Confirm {
        why: WhyConfirm::Similar,
        similar: Some(Box::new(similar)),
        confirm_token,
        fingerprint,
    })))
}

fn let_through(asked: &Asked<'_>, similar: &Record) -> Result<Guard, StoreError> {
    let fingerprint = asked.projected.fingerprint;
    let mut new = similar.clone();
    new.let_through.retain(|words| *words != fingerprint);
    let act =
        Act { by: asked.claim.by.clone(), action: "let_through_used", reason: format!("for {fingerprint}").into() };
    let (write, _) = Step::new(Some(similar), act).put(new, asked.env)?;
    Ok(Guard::LetThrough(write))
}

/// The newest one only: whoever confirms it knows of a call like this, and the next newest is not asked about in turn.
fn newest_similar(asked: &Asked<'_>) -> Result<Option<Record>, StoreError> {
    let claim = asked.claim;
    let mut room = MAX_COMPARED_BYTES;
    for record in asked.view.recent(&claim.tenant, &claim.root, &claim.tool.name, MAX_RECENT)? {
        if record.slot == asked.projected.slot || !is_fresh(&record, asked) {
            continue;
        }
        let Some(text) = &record.arguments else { continue };
        let Some(left) = room.checked_sub(text.len()) else { return Ok(None) };
        room = left;
        let theirs = Arguments::parse(text.as_bytes()).ok().and_then(|it| claim.tool.projection.apply(&it).ok());
        if theirs.is_some_and(|theirs| is_similar(theirs.canonical.value(), asked.projected.canonical.value())) {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

/// Whether its effect may be the one that is wanted now.
fn is_fresh(record: &Record, asked: &Asked<'_>) -> bool {
    record.effect == Effect::Write
        && match record.state {
            State::Started | State::Unknown => true,
            State::Succeeded => record.settled_at.is_some_and(|at| asked.env.now < at.plus(AFTER_SUCCESS_MS)),
            State::Planned | State::Failed => false,
        }
}

/// Whether two documents are the same but for free text. Walked with a list of its own, not by recursion.
fn is_similar(a: &Value, b: &Value) -> bool {
    let mut open = VecDeque::from([(a, b)]);
    while let Some(pair) = open.pop_front() {
        match pair {
            (Value::Object(a), Value::Object(b)) => {
                if a.len() != b.len() || a.iter().zip(b.iter()).any(|((x, _), (y, _))| x != y) {
                    return false;
                }
                open.extend(a.iter().zip(b.iter()).map(|((_, x), (_, y))| (x, y)));
            }
            (Value::Array(a), Value::Array(b)) => {
                if a.len() != b.len() {
                    return false;
                }
                open.extend(a.iter().zip(b.iter()));
            }
            (Value::String(a), Value::String(b)) => {
                if a != b && !(is_free(a) && is_free(b)) {
                    return false;
                }
            }
            (a, b) if a == b => {}
            _ => return false,
        }
    }
    true
}

/// Three or more words separated by spaces.
fn is_free(text: &str) -> bool {
    text.split(' ').filter(|word| !word.is_empty()).take(FREE_WORDS).count() == FREE_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Canonical;

    #[test]
    fn similar_is_the_same_but_for_free_text() {
        let rows = [
            (r#"{"m":"pay the fee"}"#, r#"{"m":"please pay the fee"}"#, true),
            (r#"{"m":"pay the fee"}"#, r#"{"m":"pay fee"}"#, false),
            (r#"{"m":"pay  fee"}"#, r#"{"m":"pay the fee"}"#, false),
            (r#"{"m":"a\nb\nc"}"#, r#"{"m":"a b c"}"#, false),
            (r#"{"m":"pay the fee","n":1}"#, r#"{"m":"do pay the fee","n":2}"#, false),
            (r#"{"m":"pay the fee","n":1}"#, r#"{"m":"do pay the fee","n":1.0}"#, true),
            (r#"{"m":"pay the fee","to":"a"}"#, r#"{"m":"do pay the fee","to":"b"}"#, false),
            (r#"{"m":["pay the fee",1]}"#, r#"{"m":["pay the fee now",1]}"#, true),
            (r#"{"m":["pay the fee"]}"#, r#"{"m":["pay the fee now",1]}"#, false),
            (r#"{"m":"pay the fee"}"#, r#"{"k":"pay the fee"}"#, false),
            (r#"{"m":"pay the fee"}"#, r#"{"m":"pay the fee","x":null}"#, false),
            (r#"{"m":"pay the fee"}"#, r#"{"m":null}"#, false),
            ("{}", "{}", true),
        ];
        for (a, b, similar) in rows {
            let parse = |text: &str| Canonical::parse(text.as_bytes()).unwrap();
            assert_eq!(is_similar(parse(a).value(), parse(b).value()), similar, "{a} {b}");
            assert_eq!(is_similar(parse(b).value(), parse(a).value()), similar, "{b} {a}");
        }
    }
}

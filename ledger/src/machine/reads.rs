//! Reads: they change nothing, so each claim may run anew, save that a running twin is joined.
//!
//! In: a claim of a `read_only` tool and the newest run of its key. Out: that run (planned or running), or the right to the next one,
//! whose number is part of its key.

use super::Decision;
use super::claim::{self, Asked};
use super::right::{self, Candidate, Origin};
use super::step;
use crate::command::Env;
use crate::ids::RunNumber;
use crate::key::KeyParts;
use crate::record::{Record, State};
use crate::store::{StoreError, View, first_key};

pub(super) fn claim(asked: &Asked<'_>, newest: Option<Record>) -> Result<Decision, StoreError> {
    let Some(newest) = newest else { return another(asked, None, Vec::new()) };
    match newest.state {
        State::Planned => right::run(asked, Candidate::of(newest, asked)),
        State::Started => {
            let (writes, newest) = claim::lapse(newest, asked.env)?;
            if newest.state != State::Started {
                another(asked, Some(&newest), writes)
            } else if newest.fingerprint == asked.projected.fingerprint {
                Ok(claim::running(asked, newest))
            } else {
                Ok(claim::conflict(asked, writes, newest))
            }
        }
        State::Succeeded | State::Failed | State::Unknown => another(asked, Some(&newest), Vec::new()),
    }
}

fn another(
    asked: &Asked<'_>,
    newest: Option<&Record>,
    writes: Vec<crate::store::Write>,
) -> Result<Decision, StoreError> {
    let mut new = next(&asked.origin(), newest, asked.view, asked.env)?;
    right::flag(&mut new, asked)?;
    right::run(asked, Candidate { old: None, new, writes, evidence: Vec::new(), reason: String::new() })
}

/// The next run of this read.
pub(super) fn next(
    origin: &Origin<'_>,
    newest: Option<&Record>,
    view: &dyn View,
    env: &Env,
) -> Result<Record, StoreError> {
    let last = newest.and_then(|record| record.run).map_or(0, |run| run.0);
    let run = RunNumber(last.checked_add(1).ok_or_else(|| step::damaged("a read has no next run"))?);
    let key = KeyParts {
        tenant: origin.tenant,
        root: origin.root,
        tool: &origin.tool.name,
        slot: origin.slot,
        occurrence: origin.occurrence,
        run: Some(run),
    }
    .key();
    let base = first_key(origin.tenant, origin.root, &origin.tool.name, origin.slot, origin.occurrence);
    Ok(right::fresh(origin, key, Some((base, run)), view, env))
}

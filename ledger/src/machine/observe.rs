//! Facts from elsewhere than the owner: a probe's answer, a runner's progress.
//!
//! In: an observation of one epoch. Out: an unknown of that epoch with the verdict on it; anything else keeps the evidence and
//! changes nothing (a failed probe must change nothing, and a status query must never overwrite what has ended: LEDGER.md 8).

use super::Decision;
use super::detail;
use super::step::{self, Act, Step};
use crate::command::{Denied, Env, Observe};
use crate::record::{Outcome, Reconciliation, State};
use crate::store::{StoreError, View};

pub(super) fn observe(command: &Observe, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    let Some(record) = view.record(&command.key)? else {
        return Ok(Decision::denied(Vec::new(), Denied::NotFound));
    };
    let concerns = record.state == State::Unknown && record.epoch == command.epoch;
    let verdict = command.verdict.as_ref().filter(|(outcome, _)| *outcome != Outcome::Unknown);
    let mut evidence = command.evidence.clone();
    let mut new = record.clone();
    let mut action = "evidence";
    match verdict {
        Some((outcome, settlement)) if concerns => {
            new = step::settled(&record, *outcome, settlement, env);
            new.reconciliation = Reconciliation::Resolved;
            action = "observe";
        }
        Some((outcome, settlement)) => {
            evidence.push(detail::said("verdict", command.epoch, &command.by, *outcome, settlement, env));
        }
        None if concerns && command.gives_up && new.reconciliation == Reconciliation::Probing => {
            new.reconciliation = Reconciliation::NeedsOperator;
            action = "give_up";
        }
        None => {}
    }
    if evidence.is_empty() && new == record {
        return Ok(Decision::changed(Vec::new(), record));
    }
    let act = Act::new(&command.by, action, &command.why);
    let (write, new) = Step::new(Some(&record), act).evidence(evidence).put(new, env)?;
    Ok(Decision::changed(vec![write], new))
}

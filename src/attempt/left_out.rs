//! Why the controller left candidates out: when it stops, each candidate that was not asked gets the name of its reason, so that a caller
//! who may see routes is told about every route of the workflow and not only about those that the plan refused.
//!
//! In: the same [`Situation`] that was decided on. Out: candidates and refusals. That `max_attempts` are spent is no reason against a route
//! (the closed list has no name for it; `rubicon.reason` says it), so such candidates are not listed.

use std::time::Duration;

use crate::plan::{Refusal, Role};

use super::budget::{Budget, Exhausted};
use super::control::{Situation, actions};

/// The untried candidates of a stopped operation, each with its reason.
pub fn left_out(s: &Situation<'_>) -> Vec<(usize, Refusal)> {
    let allowed = actions(s.verdict.class);
    let may_act_twice = s.verdict.may_have_run && (s.hosted_may_act || !s.budget.envelope.repeat_unanswered);
    let asked = |index: usize| s.tried.get(index).is_some_and(|tried| tried.attempts > 0);
    let without: Vec<_> = (0..s.plan.candidates.len())
        .filter(|index| {
            s.tried.get(*index).and_then(|tried| tried.class).is_some_and(|class| actions(class).other_provider_only)
        })
        .filter_map(|index| s.plan.candidates.get(index).map(|candidate| &candidate.route.provider.name))
        .collect();
    let mut left = Vec::new();
    for (index, candidate) in s.plan.candidates.iter().enumerate().filter(|(index, _)| !asked(*index)) {
        let is_alternate = candidate.role == Role::Alternate;
        let at_the_same = !is_alternate && without.contains(&&candidate.route.provider.name);
        let fits = if is_alternate { allowed.alternate } else { allowed.equivalent };
        let reason = if s.acted {
            Some(Refusal::SideEffects)
        } else if !allowed.equivalent && !allowed.retry {
            Some(Refusal::ClassBlocked)
        } else if may_act_twice {
            Some(Refusal::SideEffects)
        } else if !fits || at_the_same {
            Some(Refusal::ClassBlocked)
        } else {
            let (need, estimate) = s.needs.get(index).copied().unwrap_or_default();
            // Whether or not attempts are left: the route was passed over for its own reason before they were spent.
            let of_its_own = Budget { attempts: 0, attempts_elsewhere: 0, ..s.budget.clone() };
            of_its_own.check(s.now, need, estimate).err().and_then(of)
        };
        left.extend(reason.map(|reason| (index, reason)));
    }
    left
}

/// Candidates that the cost limit leaves out before any attempt.
pub fn unaffordable(budget: &Budget, needs: &[(Duration, f64)]) -> Vec<(usize, Refusal)> {
    let dear = needs.iter().enumerate().filter(|(_, (_, estimate))| !budget.affords(*estimate));
    dear.map(|(index, _)| (index, Refusal::Cost)).collect()
}

fn of(exhausted: Exhausted) -> Option<Refusal> {
    match exhausted {
        Exhausted::Attempts => None,
        Exhausted::Deadline | Exhausted::AddedLatency => Some(Refusal::Time),
        Exhausted::Cost => Some(Refusal::Cost),
    }
}

#[cfg(test)]
mod tests;

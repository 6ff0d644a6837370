//! After a failure with nothing shown: retry, fail over, or stop, and why. Pure.
//!
//! In: the plan, what each candidate did so far, the verdict, the budget, time and a random number. Out: [`Next`]. The
//! rules are SPEC section 6's table and the paragraphs under it; each is a line in [`actions`] or a step of [`decide`].

use std::time::Duration;

use crate::classify::{Class, Verdict};
use crate::clock::Instant;
use crate::ids::RouteId;
use crate::plan::{Plan, Refusal, Role};

use super::backoff;
use super::budget::{Budget, Exhausted};

/// What happened with one candidate of the plan so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    /// Attempts made there.
    pub attempts: u32,
    /// The class of its last failure.
    pub class: Option<Class>,
    /// Not before this moment (a `Retry-After` it gave).
    pub ready_at: Option<Instant>,
    /// The gate refused it: it is not asked (again) in this operation.
    pub shut: bool,
}

/// Everything a decision reads.
pub struct Situation<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// One entry a candidate, same order.
    pub tried: &'a [Tried],
    /// The candidate that failed just now.
    pub failed: usize,
    /// How.
    pub verdict: &'a Verdict,
    /// What may be spent.
    pub budget: &'a Budget,
    /// The time an attempt needs, and its estimated cost, one entry a candidate.
    pub needs: &'a [(Duration, f64)],
    /// The attempt was cut early for the sake of a fallback ([`cut_at`]): the time that was kept for it is its own, even if a
    /// busy machine ate a little of it.
    pub cut_early: bool,
    /// The request declares a hosted tool that may change the world.
    pub hosted_may_act: bool,
    /// A failed attempt told of one that has run, declared by this request or not (a stored prompt may).
    pub acted: bool,
    /// `failover.wait_first_ms`.
    pub wait_first: Duration,
    /// Now.
    pub now: Instant,
    /// A random number, drawn by the caller.
    pub random: u64,
}

/// The decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Another attempt.
    Attempt {
        /// Index into the plan's candidates.
        candidate: usize,
        /// How long to wait first.
        wait: Duration,
    },
    /// No further attempt.
    Stop {
        /// Why.
        reason: Stop,
        /// The class that the operation failed with.
        class: Class,
    },
}

/// Why there is no further attempt. Printed as `rubicon.reason`; for [`Stop::Blocked`] the class's own name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The class forbids another call.
    Blocked,
    /// No route is eligible for another attempt.
    NoEligibleFallback,
    /// `max_attempts` are spent.
    AttemptsExhausted,
    /// No time for another attempt.
    DeadlineExhausted,
    /// `max_added_latency_ms` is spent.
    AddedLatencyExhausted,
    /// `max_cost_usd` is spent.
    CostExhausted,
    /// The budget of further attempts that all operations of the route share is spent.
    RetryBudgetExhausted,
    /// It may have run, and must not run twice.
    SideEffectUncertain,
}

impl Stop {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocked => "class_blocked",
            Self::NoEligibleFallback => "no_eligible_fallback",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::DeadlineExhausted => "deadline_exhausted",
            Self::AddedLatencyExhausted => "added_latency_exhausted",
            Self::CostExhausted => "cost_exhausted",
            Self::RetryBudgetExhausted => "retry_budget_exhausted",
            Self::SideEffectUncertain => "side_effect_uncertain",
        }
    }
}

impl From<Exhausted> for Stop {
    fn from(exhausted: Exhausted) -> Self {
        match exhausted {
            Exhausted::Attempts => Self::AttemptsExhausted,
            Exhausted::Deadline => Self::DeadlineExhausted,
            Exhausted::AddedLatency => Self::AddedLatencyExhausted,
            Exhausted::Cost => Self::CostExhausted,
        }
    }
}

/// What SPEC section 6 allows before the boundary, a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actions {
    /// To an equivalent.
    pub equivalent: bool,
    /// Only to one at another provider.
    pub other_provider_only: bool,
    /// Else to an alternate.
    pub alternate: bool,
    /// Else the same route again.
    pub retry: bool,
}

const BLOCKED: Actions = Actions { equivalent: false, other_provider_only: false, alternate: false, retry: false };

/// The decision column of SPEC section 6.
pub fn actions(class: Class) -> Actions {
    match class {
        Class::TransportTransient | Class::RateLimited | Class::ProviderOverloaded | Class::ProviderServerError => {
            Actions { equivalent: true, other_provider_only: false, alternate: false, retry: true }
        }
        Class::ModelUnavailable | Class::ContractFailure => {
            Actions { equivalent: true, other_provider_only: true, alternate: true, retry: false }
        }
        Class::QuotaExhausted
        | Class::Ambiguous429
        | Class::AuthenticationOrPermission
        | Class::InvalidRequest
        | Class::Refusal
        | Class::DeadlineExhausted
        | Class::PartialOutput
        | Class::SideEffectUncertain
        | Class::Unclassified => BLOCKED,
    }
}

/// The candidate that is asked first: the first in order that is not shut. An alternate is for a model that is out (SPEC section 6),
/// so not for a primary that has tripped or is full; it is for one that was killed, or that may not serve this request at all.
pub fn first(plan: &Plan, tried: &[Tried], primary: &RouteId) -> Option<usize> {
    let is_shut = |index: usize| tried.get(index).is_some_and(|tried| tried.shut);
    let of_same_model = |index: &usize| plan.candidates.get(*index).is_some_and(|found| found.role != Role::Alternate);
    let all = 0..plan.candidates.len();
    if all.clone().any(|index| of_same_model(&index)) {
        return all.into_iter().find(|index| of_same_model(index) && !is_shut(*index));
    }
    let mut of_primary = plan.refused.iter().filter(|(route, _)| route == primary).flat_map(|(_, reasons)| reasons);
    let only_for_now = of_primary.clone().next().is_some() && of_primary.all(Refusal::is_momentary);
    all.into_iter().find(|index| !only_for_now && !is_shut(*index))
}

/// The candidate of the first attempt, which is bounded by the attempts and the cost only; or why no call is made at all.
///
/// # Errors
/// [`Stop::AttemptsExhausted`], [`Stop::NoEligibleFallback`], [`Stop::CostExhausted`].
pub fn begin(
    plan: &Plan,
    tried: &[Tried],
    primary: &RouteId,
    budget: &Budget,
    needs: &[(Duration, f64)],
) -> Result<usize, Stop> {
    if !budget.attempts_left() {
        return Err(Stop::AttemptsExhausted);
    }
    let candidate = first(plan, tried, primary).ok_or(Stop::NoEligibleFallback)?;
    let (_, estimate) = needs.get(candidate).copied().unwrap_or_default();
    if budget.affords(estimate) { Ok(candidate) } else { Err(Stop::CostExhausted) }
}

/// Decides.
pub fn decide(s: &Situation<'_>) -> Next {
    let class = s.verdict.class;
    let allowed = actions(class);
    // Before anything else, a request's own fault included: what is to be done now is to find out.
    if s.acted {
        return Next::Stop { reason: Stop::SideEffectUncertain, class: Class::SideEffectUncertain };
    }
    if allowed == BLOCKED {
        return Next::Stop { reason: Stop::Blocked, class };
    }
    // "Sent, and no answer": repeating costs money but harms nobody, unless somebody says so or a hosted tool may have acted.
    if s.verdict.may_have_run && (s.hosted_may_act || !s.budget.envelope.repeat_unanswered) {
        return Next::Stop { reason: Stop::SideEffectUncertain, class: Class::SideEffectUncertain };
    }
    let mut refusal = None;
    for (candidate, wait) in options(s, allowed) {
        let (need, estimate) = s.needs.get(candidate).copied().unwrap_or_default();
        let need = if s.cut_early { need / 2 } else { need };
        match s.budget.check(s.now + wait, need, estimate) {
            Ok(()) => return Next::Attempt { candidate, wait },
            // The first option's reason is the one to report: it was the wanted one.
            Err(exhausted) => refusal = refusal.or(Some(exhausted)),
        }
    }
    match refusal {
        None => Next::Stop { reason: Stop::NoEligibleFallback, class },
        Some(Exhausted::Deadline) => Next::Stop { reason: Stop::DeadlineExhausted, class: Class::DeadlineExhausted },
        Some(exhausted) => Next::Stop { reason: exhausted.into(), class },
    }
}

/// Candidates that the class allows, in the order of preference, each with its wait.
fn options(s: &Situation<'_>, allowed: Actions) -> Vec<(usize, Duration)> {
    let mut options = Vec::new();
    let retry_wait = retry_wait(s, s.failed);
    // A short wait that the provider asked for itself beats a change of provider.
    let told_and_short = s.verdict.retry_after.is_some_and(|told| told < s.wait_first);
    // Once: a route that still says no after the wait it asked for has had its turn.
    let first_time = s.tried.get(s.failed).is_some_and(|tried| tried.attempts == 1);
    let open = |index: usize| s.tried.get(index).is_some_and(|tried| !tried.shut);
    if s.verdict.class == Class::RateLimited && told_and_short && first_time && open(s.failed) {
        options.push((s.failed, retry_wait));
    }
    options.extend(untried(s, allowed, Role::Equivalent));
    if allowed.alternate {
        options.extend(untried(s, allowed, Role::Alternate));
    }
    // Everybody was asked once: again, those whose last failure allows it, the one that is ready first.
    let mut again: Vec<(usize, Duration)> = (0..s.plan.candidates.len())
        .filter(|index| s.tried.get(*index).is_some_and(|tried| tried.class.is_some_and(|class| actions(class).retry)))
        .filter(|index| open(*index))
        .map(|index| (index, self::retry_wait(s, index)))
        .collect();
    again.sort_by_key(|(index, wait)| (*wait, *index));
    options.extend(again);
    options
}

/// Candidates of a role (the primary counts among the equivalents of whoever failed) that were not asked yet.
fn untried<'a>(s: &'a Situation<'_>, allowed: Actions, role: Role) -> impl Iterator<Item = (usize, Duration)> + 'a {
    // "At another provider": other than every one that lacks the model or broke the contract, not only the last.
    let without = s.plan.candidates.iter().zip(s.tried);
    let without: Vec<_> = without
        .filter(|(_, tried)| tried.class.is_some_and(|class| actions(class).other_provider_only))
        .map(|(candidate, _)| &candidate.route.provider.name)
        .collect();
    s.plan.candidates.iter().enumerate().filter_map(move |(index, candidate)| {
        let fits_role = match role {
            Role::Alternate => candidate.role == Role::Alternate,
            Role::Primary | Role::Planned | Role::Equivalent => candidate.role != Role::Alternate,
        };
        let fresh = s.tried.get(index).is_none_or(|tried| tried.attempts == 0 && !tried.shut);
        let elsewhere = role == Role::Alternate || !without.contains(&&candidate.route.provider.name);
        (fits_role && fresh && elsewhere && allowed.equivalent).then_some((index, Duration::ZERO))
    })
}

/// How long a route that failed before must be left alone: as told, else backoff with full jitter.
fn retry_wait(s: &Situation<'_>, index: usize) -> Duration {
    let tried = s.tried.get(index).copied().unwrap_or_default();
    match tried.ready_at {
        Some(at) => at.saturating_duration_since(s.now),
        None => {
            // Each candidate draws its own share of the random number, so that their order is random too.
            let random = s.random.rotate_left(u32::try_from(index % 64).unwrap_or(0));
            backoff::full_jitter(tried.attempts.saturating_sub(1), random, backoff::BACKOFF_BASE, backoff::BACKOFF_CAP)
        }
    }
}

/// An attempt is not cut early for a fallback's sake when that would leave it less than this: better one real try than two
/// hopeless ones.
pub const OWN_TIME_MIN: Duration = Duration::from_millis(250);

/// The latest moment at which an attempt on `candidate`, begun at `now`, must have shown something: the deadline, or earlier
/// while an eligible fallback is left that needs time of its own.
pub fn cut_at(
    plan: &Plan,
    tried: &[Tried],
    needs: &[(Duration, f64)],
    budget: &Budget,
    candidate: usize,
    now: Instant,
) -> Instant {
    let fallback = plan.candidates.iter().enumerate().find(|(index, other)| {
        // Silence is `transport_transient`: alternates are not for it.
        *index != candidate
            && other.role != Role::Alternate
            && tried.get(*index).is_none_or(|t| t.attempts == 0 && !t.shut)
    });
    match fallback {
        Some((index, _)) if budget.attempts_left() => {
            let need = needs.get(index).map_or(Duration::ZERO, |(need, _)| *need);
            let early = budget.deadline.checked_sub(need).filter(|early| *early >= now + OWN_TIME_MIN);
            early.unwrap_or(budget.deadline)
        }
        _ => budget.deadline,
    }
}

#[cfg(test)]
mod tests;

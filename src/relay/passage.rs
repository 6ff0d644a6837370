//! The gate on an operation's way: may this attempt begin, what does its end say of its route, and what is a caller told whom no
//! route lets in.
//!
//! Every attempt asks the [`Board`](crate::gate::Board) first and holds its [`Pass`](crate::gate::Pass) to the end of its stream. A
//! refusal costs no attempt and no wait: it is noted under its name, and the next candidate is asked. An attempt after the first
//! also needs the budget that all operations of the first-asked route share.

use std::time::Duration;

use crate::attempt::{backoff, cost};
use crate::clock::Instant;
use crate::contract::{Contract, Endpoint};
use crate::gate::breaker::Change;
use crate::gate::retry_budget::SPENT_HINT;
use crate::gate::{Asking, Closed, Gate as _, Pass};
use crate::plan::{Refusal, Role};
use crate::protocol::signal::Usage;

use super::app::random_u64;
use super::operation::{Failed, Run};

/// The least that a caller is told to wait whom no route lets in now. `Retry-After` counts in whole seconds.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// The most: a route that stays closed for an hour may be open sooner, by an operator or a reload.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Waits are spread over at least this much: SDKs obey `Retry-After` to the second, and callers who were refused together must not
/// come back together.
const SPREAD_MIN: Duration = Duration::from_secs(2);

/// What came of asking the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// The attempt may begin; the run holds its pass.
    In,
    /// The route is not open; that is noted, and it is not asked again.
    Shut,
    /// The shared budget of further attempts is spent.
    BudgetSpent,
}

/// Routes that are closed for the moment only.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedForNow {
    /// 429 where nothing but limits keeps the request out, 503 where a breaker or an operator does: the first says "less of it", the
    /// second "not now".
    pub(super) status: u16,
    /// When the first of them may open, spread.
    pub(super) wait: Duration,
    /// Under which name it is counted if the request is shed: [`nearest`].
    pub(super) by: &'static str,
}

impl Run {
    /// Asks the gate for an attempt. The first attempt of an operation needs no budget, wherever it goes.
    pub(super) fn enter(&mut self, candidate: usize) -> Entered {
        let now = Instant::now();
        let board = &self.job.app.board;
        let route = self.route(candidate);
        let recovery = self.is_recovery(candidate);
        // The plan asked this switch for the first attempt; for a further one it may have been thrown since.
        if recovery && self.first_route.is_some() && board.failover_off(&self.job.workflow.name) {
            self.shut(candidate, Refusal::FailoverDisabled);
            return Entered::Shut;
        }
        let counts = self.job.contract.endpoint == Endpoint::CountTokens;
        let tokens = if counts { 0 } else { cost::tokens(&route, &self.job.contract.facts) };
        let even_if_tripped = self.is_last_resort(candidate);
        let pass = match board.enter(&Asking { route: &route, recovery, even_if_tripped, tokens }, now) {
            Ok(pass) => pass,
            Err(closed) => {
                self.shut(candidate, named(closed));
                return Entered::Shut;
            }
        };
        match &self.first_route {
            Some(first) => {
                let share = &self.job.current.settings.server.retry;
                if !board.take_further(first, share, now) {
                    return Entered::BudgetSpent;
                }
            }
            None => {
                board.operation(&route.name, now);
                self.first_route = Some(route.name.clone());
            }
        }
        self.attempt_at = now;
        self.pass = Some(pass);
        Entered::In
    }

    /// Whether the shared budget has a further attempt left. Asked before a wait for one, and again when it begins.
    pub(super) fn may_try_further(&self, now: Instant) -> bool {
        let share = &self.job.current.settings.server.retry;
        self.first_route.as_ref().is_none_or(|first| self.job.app.board.allows_further(first, share, now))
    }

    /// Another route should have served: by its role, whatever is asked first.
    fn is_recovery(&self, candidate: usize) -> bool {
        self.job.plan.candidates.get(candidate).is_some_and(|candidate| candidate.role != Role::Primary)
    }

    /// Nothing but this route can ever serve the operation, so its breaker does not keep it out: refusing would help nobody.
    fn is_last_resort(&self, candidate: usize) -> bool {
        let plan = &self.job.plan;
        let told = plan.candidates.get(candidate).is_some_and(|candidate| candidate.last_resort);
        told || (plan.candidates.len() == 1 && !plan.refused.iter().any(|(_, reasons)| is_closed_for_now(reasons)))
    }

    /// Notes that the gate refused a candidate.
    fn shut(&mut self, candidate: usize, why: Refusal) {
        let name = self.route(candidate).name.clone();
        tracing::debug!(operation = %self.job.operation.id, route = %name, %why, "route not open");
        if let Some(tried) = self.tried.get_mut(candidate) {
            tried.shut = true;
        }
        let refused = &mut self.job.plan.refused;
        match refused.iter_mut().find(|(route, _)| *route == name) {
            Some((_, reasons)) => reasons.push(why),
            None => refused.push((name, vec![why])),
        }
    }

    /// The attempt crossed the boundary, or its whole answer was accepted.
    pub(super) fn route_lives(&mut self, candidate: usize) {
        let change = self.pass.as_mut().and_then(Pass::succeeded);
        self.note_breaker(candidate, change);
    }

    /// The attempt failed and showed nothing: its pass goes back.
    pub(super) fn route_failed(&mut self, candidate: usize, failed: &Failed, now: Instant) {
        let Some(mut pass) = self.pass.take() else { return };
        let verdict = &failed.verdict;
        // Proof of not having been processed is proof of not having used anything.
        if let Some(tokens) = total(&failed.usage).or((!verdict.may_have_run).then_some(0)) {
            pass.tokens(tokens, now);
        }
        let change = if failed.by_deadline && !self.was_patient(candidate, now) {
            pass.says_nothing();
            None
        } else {
            pass.failed(verdict.class, verdict.retry_after, now)
        };
        drop(pass);
        self.note_breaker(candidate, change);
    }

    /// Whether silence up to a deadline says something of the route. A deadline that the caller tightened does not, unless the attempt
    /// had as long as the route usually needs: one caller's haste must not trip it for everybody.
    fn was_patient(&self, candidate: usize, now: Instant) -> bool {
        let contract = &self.job.contract;
        let own = Contract { envelope: self.job.workflow.envelope, ..contract.clone() };
        let usual = self.job.app.observed.need(&self.route(candidate).name);
        contract.deadline() >= own.deadline()
            || (contract.facts.stream && now.saturating_duration_since(self.attempt_at) >= usual)
    }

    /// Puts what an attempt did use in place of its estimate, where it is known.
    pub(super) fn used(&mut self, usage: &Usage) {
        if let (Some(pass), Some(tokens)) = (&mut self.pass, total(usage)) {
            pass.tokens(tokens, Instant::now());
        }
    }

    /// The attempt and its stream are over.
    pub(super) fn leave(&mut self, usage: &Usage) {
        self.used(usage);
        self.pass = None;
    }

    /// The one place where a breaker's change is told.
    fn note_breaker(&self, candidate: usize, change: Option<Change>) {
        let route = self.route(candidate);
        match change {
            None => {}
            Some(Change::Tripped { until }) => {
                let opens_in_ms = until.saturating_duration_since(Instant::now()).as_millis();
                tracing::warn!(route = %route.name, opens_in_ms, "breaker tripped");
            }
            Some(Change::Healed) => tracing::info!(route = %route.name, "breaker healthy again"),
        }
    }

    /// Whether any route is closed for the moment only, so that the same request may be served a little later.
    pub(super) fn closed_for_now(&self) -> Option<ClosedForNow> {
        let now = Instant::now();
        let refused = self.job.plan.refused.iter().filter(|(_, reasons)| is_closed_for_now(reasons));
        let mut by_limits = true;
        let mut least: Option<Duration> = None;
        let mut by: Option<&Refusal> = None;
        for (route, reasons) in refused {
            by_limits &= reasons.iter().all(|reason| matches!(reason, Refusal::Capacity | Refusal::FailoverLimit));
            let recovery = *route != self.job.workflow.primary.name;
            // As large as the attempt that did not fit: a smaller one may be let in long before.
            let settings = self.job.current.settings.routes.get(route);
            let tokens = settings.map_or(1, |route| cost::tokens(route, &self.job.contract.facts));
            let wait = self.job.app.board.opens_in(route, recovery, tokens, now).unwrap_or_default();
            least = Some(least.map_or(wait, |least| least.min(wait)));
            by = by.into_iter().chain(reasons).min_by_key(|why| nearest(why));
        }
        let by = by.map_or("", Refusal::family);
        let status = if by_limits { 429 } else { 503 };
        least.map(|wait| ClosedForNow { status, wait: spread(wait.clamp(WAIT_MIN, WAIT_MAX), random_u64()), by })
    }
}

/// What a caller is told to wait who met a spent budget of further attempts.
pub(super) fn budget_wait() -> Duration {
    spread(SPENT_HINT, random_u64())
}

/// At least the wait, at most twice as long (and never all at once).
fn spread(wait: Duration, random: u64) -> Duration {
    let span = wait.max(SPREAD_MIN);
    wait + backoff::full_jitter(0, random, span, span)
}

/// How near a closed route was to taking the request: one that only lacks room is what an operator can do something about, whatever
/// else is down.
fn nearest(why: &Refusal) -> u8 {
    match why {
        Refusal::FailoverLimit => 0,
        Refusal::Capacity => 1,
        Refusal::Tripped => 2,
        _ => 3,
    }
}

fn is_closed_for_now(reasons: &[Refusal]) -> bool {
    !reasons.is_empty() && reasons.iter().all(Refusal::is_by_gate)
}

fn total(usage: &Usage) -> Option<u64> {
    Some(usage.input_tokens?.saturating_add(usage.output_tokens?))
}

/// The gate's refusal under its name.
pub(super) fn named(closed: Closed) -> Refusal {
    match closed {
        Closed::Killed => Refusal::Killed,
        Closed::Tripped { .. } => Refusal::Tripped,
        Closed::Capacity => Refusal::Capacity,
        Closed::FailoverLimit => Refusal::FailoverLimit,
    }
}

#[cfg(test)]
mod tests;

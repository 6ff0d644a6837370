//! How an operation ends that has no answer: what its caller is told, and what its idempotency key keeps.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

use crate::attempt::control::Stop;
use crate::boundary::Phase;
use crate::classify::{Class, Verdict};
use crate::clock::Instant;
use crate::protocol::signal::Place;
use crate::reply::Outward;

use super::super::emit::{Head, Out};
use super::super::idempotency::{OUTCOME_KEPT, SHOWN_KEPT};
use super::super::operations::State;
use super::super::{outward, passage};
use super::Run;

impl Run {
    pub(super) async fn refuse(&mut self, stop: Stop, class: Class, verdict: &Verdict) {
        let mut failure = outward::refused(&self.facts(), stop, class, Some(verdict));
        let closed = self.closed_for_now();
        failure.rubicon.retryable |= stop == Stop::NoEligibleFallback && closed.is_some();
        if failure.rubicon.retryable {
            // The caller may come again as soon as the first of the routes is ready (FIELD_CASES F91).
            let told = self.tried.iter().filter_map(|tried| tried.ready_at);
            let told = told.map(|at| at.saturating_duration_since(self.judged_at));
            let budget = (stop == Stop::RetryBudgetExhausted).then(passage::budget_wait);
            let least = told.chain(closed.map(|closed| closed.wait)).chain(budget).min();
            failure.rubicon.retry_after_ms = least.map(outward::millis);
        }
        let unresolved = failure.rubicon.unresolved_executions.unwrap_or(0);
        self.job.operation.update(|known| known.unresolved_executions = unresolved);
        self.will_answer(failure.status);
        self.ended(State::Failed, &failure.rubicon.reason.clone(), Some(class), failure_actions(&failure));
        self.send_refusal(failure, true).await;
    }

    /// No provider was called. Where routes are closed for the moment only the request is shed: it may be sent again.
    pub(super) async fn refuse_without_call(&mut self, stop: Stop, class: Class) {
        let mut failure = outward::refused(&self.facts(), stop, class, None);
        failure.message = format!("No attempt was made: {}.", stop.name());
        failure.rubicon.class = None;
        let shed = self.closed_for_now().filter(|_| stop == Stop::NoEligibleFallback);
        if let Some(closed) = shed {
            self.job.app.telemetry.metrics().shed(closed.by);
            "No route can take this request now; nothing was sent to a provider.".clone_into(&mut failure.message);
            failure.status = closed.status;
            failure.rubicon.retryable = true;
            failure.rubicon.retry_after_ms = Some(outward::millis(closed.wait));
        }
        if let (None, Some(field)) = (&shed, self.begun_elsewhere()) {
            failure.message = format!(
                "The request carries state that only the account which issued it holds ({field}), and no route of that account may serve it now; nothing was sent to a provider.",
            );
            failure.param = Some(field.into());
        }
        self.will_answer(failure.status);
        self.ended(State::Failed, stop.name(), None, vec!["restart"]);
        self.send_refusal(failure, shed.is_none()).await;
    }

    pub(super) async fn stopped(&mut self) {
        let by_shutdown = !self.job.operation.was_stopped();
        let failure = outward::stopped(&self.facts(), by_shutdown, None, self.uncertain());
        let state = if by_shutdown { State::Failed } else { State::Stopped };
        self.will_answer(failure.status);
        self.ended_unfinished(state, if by_shutdown { "shutting_down" } else { "stopped" });
        let final_word = !failure.rubicon.retryable;
        self.send_refusal(failure, final_word).await;
    }

    /// Nobody was there to take the outcome: its key keeps it all the same, so that sending the request again does not generate a
    /// second time at once.
    pub(super) fn settle_unseen(&mut self, reason: &str) {
        if self.job.claim.is_none() || self.budget.attempts == 0 || self.boundary.phase() == Phase::Committed {
            return;
        }
        let mut failure = outward::stopped(&self.facts(), false, None, self.uncertain());
        failure.status = self.job.current.settings.server.exhausted_status;
        failure.code = Some(reason.into());
        reason.clone_into(&mut failure.rubicon.reason);
        failure.message = "The request was given up before its answer came.".to_owned();
        let (head, body) = self.refusal(&failure, true);
        self.settle_failure(&failure, &head, &body);
    }

    /// A failure is kept under its key for a minute, and one after which a tool may have acted for as long as one can be kept.
    fn settle_failure(&mut self, failure: &Outward, head: &Head, body: &Bytes) {
        let uncertain = failure.rubicon.class == Some(Class::SideEffectUncertain);
        let kept = if uncertain { SHOWN_KEPT } else { OUTCOME_KEPT };
        if let Some(claim) = &mut self.job.claim {
            claim.settle(head.clone(), body.clone(), Instant::now(), kept);
        }
    }

    /// An error answer; where keep-alives have spent the status, an error frame and the abort.
    async fn send_refusal(&mut self, mut failure: Outward, final_word: bool) {
        let (head, body) = self.refusal(&failure, final_word);
        if self.budget.attempts > 0 {
            self.settle_failure(&failure, &head, &body);
        } else if let Some(claim) = &mut self.job.claim {
            // What was refused before any provider was called is not an outcome.
            claim.tell(head.clone(), body.clone());
        }
        if self.boundary.phase() == Phase::HeadSent {
            failure.rubicon.would_be_status = Some(failure.status);
            return self.emit.emit(Out::Abort(self.dialect.error_frame(&failure, &Place::default()))).await;
        }
        self.emit.emit(Out::Head(head)).await;
        self.emit.emit(Out::Data(body)).await;
    }

    fn refusal(&self, failure: &Outward, final_word: bool) -> (Head, Bytes) {
        let mut headers = self.own_headers();
        error_headers(&mut headers, failure, final_word);
        let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::FAILED_DEPENDENCY);
        (Head { status, headers }, self.dialect.error_body(failure))
    }

    /// Settles the idempotency key with an answer that can be replayed. Where a tool of the provider may have acted for it, the key
    /// must not generate again for as long as it can be remembered.
    pub(in crate::relay) fn settle(&mut self, head: &Head, body: &Bytes) {
        let kept = if self.job.contract.hosted_may_act() { SHOWN_KEPT } else { OUTCOME_KEPT };
        if let Some(claim) = &mut self.job.claim {
            claim.settle(head.clone(), body.clone(), Instant::now(), kept);
        }
    }
}

fn failure_actions(failure: &Outward) -> Vec<&'static str> {
    match (&failure.rubicon.actions, failure.rubicon.retryable) {
        (Some(actions), _) => actions.clone(),
        (None, true) => vec!["restart"],
        (None, false) => vec!["none"],
    }
}

/// Headers of an error answer. `final_word`: the relay has spent the budget, an SDK must not multiply it.
pub fn error_headers(headers: &mut HeaderMap, failure: &Outward, final_word: bool) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if final_word {
        headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));
    }
    if let Some(ms) = failure.rubicon.retry_after_ms.filter(|_| failure.rubicon.retryable) {
        headers.insert(RETRY_AFTER, ms.div_ceil(1000).into());
    }
}

//! What is noted of an operation as it goes (attempts, the boundary, the end) and told of it: its view, event lines, metrics, spans.
//! Nothing here decides anything.
//!
//! An attempt is told when it ends, the request when the operation ends; both from the driver, so that a driver that is dropped
//! (the client left) tells, too.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use crate::attempt::cost;
use crate::boundary::{Phase, Why};
use crate::classify::limit::LimitDimension;
use crate::classify::{Class, Verdict};
use crate::clock::{Instant, UnixMillis};
use crate::config::settings::{ProviderKind, RouteSettings};
use crate::plan::Role;
use crate::protocol::signal::Usage;
use crate::telemetry::events::{
    AlarmKind, AttemptEvent, AttemptResult, ByKind, Kind, Recovery, RequestEvent, RequestState, Success, Time, Tokens,
    said,
};

use super::app::random_u64;
use super::operation::Run;
use super::operations::{AttemptView, BoundaryView, State, View};

/// What the report knows besides the operation's view.
#[derive(Debug, Default)]
pub(super) struct Report {
    trying: Option<Trying>,
    by_kind: ByKind,
    /// The accepted attempt, else the last one that ended.
    last: Option<Ended>,
    first_failure: Option<Class>,
    limit: Option<LimitDimension>,
    /// Dollars of attempts that became no whole answer.
    lost_usd: Option<f64>,
    /// The status of the relay's own error answer, where one is sent.
    status: Option<u16>,
    /// A committed answer was cut for what the provider said in it, not for how it came.
    spoilt: bool,
    served_model: Option<String>,
}

/// An attempt that is going on.
#[derive(Debug)]
struct Trying {
    candidate: usize,
    route: Arc<RouteSettings>,
    kind: Kind,
    began: Instant,
    estimate_usd: f64,
    circuit: &'static str,
    span_id: u64,
    head_at: Option<Instant>,
    status: Option<u16>,
    hold: Option<Duration>,
    first_output: Option<Duration>,
    committed: bool,
}

/// What the request's event takes from an attempt.
#[derive(Debug)]
struct Ended {
    number: u32,
    route: Arc<RouteSettings>,
    recovery: &'static str,
    began: Instant,
    circuit: &'static str,
    status: Option<u16>,
    hold: Option<Duration>,
    /// It was accepted, whether it came whole or not.
    accepted: bool,
    cost_usd: Option<f64>,
    success: Success,
}

/// How an attempt ended, and what was judged of it.
struct AttemptEnded<'a> {
    result: AttemptResult,
    class: Option<Class>,
    verdict: Option<&'a Verdict>,
    usage: Usage,
    /// What it did cost, where that is known otherwise than by its usage.
    cost_usd: Option<f64>,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `gen_ai.provider.name`.
fn provider_kind(kind: ProviderKind) -> &'static str {
    match kind {
        ProviderKind::OpenAi => "openai",
        ProviderKind::Anthropic => "anthropic",
        // No word of OpenTelemetry's: `openai` would promise OpenAI itself.
        ProviderKind::OpenAiCompatible => "openai_compatible",
    }
}

fn tokens(usage: &Usage) -> Tokens {
    Tokens {
        input_tokens: usage.input_tokens,
        cached_input_tokens: usage.cached_input_tokens,
        output_tokens: usage.output_tokens,
    }
}

impl Run {
    pub(super) fn since_admission(&self) -> u64 {
        millis(self.job.operation.admitted.elapsed())
    }

    /// An attempt begins, its estimated cost reserved.
    pub(super) fn attempt_began(&mut self, candidate: usize, estimate_usd: f64) {
        let route = self.route(candidate);
        let number = self.budget.attempts;
        let view = AttemptView {
            number,
            route: self.job.show_routes.then(|| route.name.clone()),
            started_ms: self.since_admission(),
            ended_ms: None,
            outcome: None,
            class: None,
            provider_status: None,
        };
        self.job.operation.update(|known| known.attempts.push(view));
        let again = self.tried.get(candidate).is_some_and(|tried| tried.attempts > 1);
        let kind = match self.job.plan.candidates.get(candidate).map(|candidate| candidate.role) {
            _ if again => Kind::Retry,
            Some(Role::Equivalent | Role::Planned) => Kind::EquivalentFailover,
            Some(Role::Alternate) => Kind::CrossModelFallback,
            Some(Role::Primary) | None => if number == 1 { Kind::First } else { Kind::Retry },
        };
        self.report.by_kind.count(kind);
        self.report.trying = Some(Trying {
            candidate,
            kind,
            began: Instant::now(),
            estimate_usd,
            circuit: self.job.app.telemetry.metrics().circuit_of(&route.name),
            span_id: if self.job.trace.is_some() { random_u64().max(1) } else { 0 },
            head_at: None,
            status: None,
            hold: None,
            first_output: None,
            committed: false,
            route,
        });
    }

    /// With tracing on the provider sees the attempt's span; otherwise the caller's header goes up as it came.
    pub(super) fn put_traceparent(&self, headers: &mut HeaderMap) {
        if let (Some(trace), Some(trying)) = (&self.job.trace, &self.report.trying)
            && let Ok(value) = HeaderValue::from_str(&trace.header(trying.span_id))
        {
            headers.insert("traceparent", value);
        }
    }

    /// The provider's response head came.
    pub(super) fn head_came(&mut self, status: u16) {
        if let Some(trying) = &mut self.report.trying {
            trying.head_at = Some(Instant::now());
            trying.status = Some(status);
        }
    }

    /// The model that the provider says it served.
    pub(super) fn model_served(&mut self, model: Option<&str>) {
        self.report.served_model = model.map(said);
    }

    /// What the provider said in a committed answer ends it, not how it came.
    pub(super) fn answer_spoilt(&mut self) {
        self.report.spoilt = true;
    }

    /// The relay will answer with an error of this status, if a status can still be sent.
    pub(super) fn will_answer(&mut self, status: u16) {
        self.report.status = Some(status);
    }

    /// An attempt failed and showed nothing. `cost_usd`: what it cost, where that is known.
    pub(super) fn attempt_failed(&mut self, verdict: &Verdict, usage: Usage, cost_usd: Option<f64>) {
        let ended = self.since_admission();
        self.job.operation.update(|known| {
            if let Some(attempt) = known.attempts.last_mut() {
                attempt.ended_ms = Some(ended);
                attempt.class = Some(verdict.class);
                attempt.provider_status = verdict.provider_status;
            }
        });
        let route = self.report.trying.as_ref().map(|trying| trying.route.name.clone());
        if verdict.alarm {
            tracing::error!(route = ?route, "ALARM: the provider's certificate is not acceptable");
            let telemetry = &self.job.app.telemetry;
            let operation = Some(&self.job.operation.id);
            telemetry.alarm(AlarmKind::BadCertificate, operation, route.as_ref(), UnixMillis::now());
        }
        tracing::info!(
            operation = %self.job.operation.id, workflow = %self.job.workflow.name, route = ?route,
            attempt = self.budget.attempts, class = verdict.class.name(),
            status = verdict.provider_status, alarm = verdict.alarm, "attempt failed"
        );
        self.report.first_failure.get_or_insert(verdict.class);
        let (result, class) = (AttemptResult::Failed, Some(verdict.class));
        self.attempt_ended(&AttemptEnded { result, class, verdict: Some(verdict), usage, cost_usd });
    }

    /// Notes the boundary.
    pub(super) fn committed(&mut self, candidate: usize, why: Why, took: Duration) {
        self.key_shown();
        let at_ms = self.since_admission();
        let attempt = self.budget.attempts;
        self.job.app.observed.first_output(&self.route(candidate).name, took);
        self.job.operation.update(|known| {
            known.boundary = Some(BoundaryView { at_ms, why, attempt });
            if let Some(view) = known.attempts.last_mut() {
                view.outcome = Some("accepted");
            }
        });
        if let Some(trying) = &mut self.report.trying {
            trying.first_output = Some(took);
        }
        self.attempt_accepted();
        if why == Why::HoldLimit {
            self.job.app.telemetry.metrics().hold_limit(&self.job.workflow.name);
            tracing::warn!(operation = %self.job.operation.id, "hold_limit: committed before anything was visible");
        }
    }

    /// The attempt that is going on is the answer: nothing is held back any more.
    pub(super) fn attempt_accepted(&mut self) {
        if let Some(trying) = &mut self.report.trying {
            trying.hold = trying.head_at.map(|at| at.elapsed());
            trying.committed = true;
        }
    }

    /// The answer goes out and is not kept: the key never generates again.
    pub(super) fn key_shown(&mut self) {
        if let Some(claim) = &mut self.job.claim {
            claim.shown(Instant::now());
        }
    }

    /// Notes the end.
    pub(super) fn ended(&mut self, state: State, reason: &str, class: Option<Class>, actions: Vec<&'static str>) {
        let at_ms = self.since_admission();
        let served = self.report.trying.as_ref().filter(|trying| trying.committed).map(|t| t.route.name.clone());
        self.job.operation.update(|known| {
            known.state = state;
            known.actions = actions;
            known.reason = (!reason.is_empty()).then(|| reason.to_owned());
            known.class = class;
            known.ended_at = Some(UnixMillis::now());
            known.served_route = served;
            if let Some(attempt) = known.attempts.last_mut()
                && attempt.ended_ms.is_none()
            {
                attempt.ended_ms = Some(at_ms);
            }
        });
        let view = self.job.operation.view();
        tracing::info!(
            operation = %view.operation_id, workflow = %view.workflow, version = self.job.workflow.version,
            state = state.name(), reason, attempts = self.budget.attempts, stream = view.stream, events = view.after,
            boundary_ms = view.boundary.map(|boundary| boundary.at_ms), took_ms = at_ms,
            input_tokens = view.usage.input_tokens, output_tokens = view.usage.output_tokens, "operation ended"
        );
        let cut = self.report.trying.as_ref().is_some_and(|trying| trying.committed);
        let (result, class) = match state {
            State::Completed => (AttemptResult::Accepted, None),
            // Only a provider's failure has a class of its own; one left behind is nobody's failure.
            State::Interrupted if cut && !self.left_or_stopped() => (AttemptResult::Interrupted, class),
            _ => (AttemptResult::Unfinished, None),
        };
        self.attempt_ended(&AttemptEnded { result, class, verdict: None, usage: view.usage, cost_usd: None });
        self.request_ended(&view, state, at_ms);
    }

    /// Somebody stopped it, or a driver without a reader is being dropped.
    fn left_or_stopped(&self) -> bool {
        self.job.operation.stop.is_cancelled() || self.boundary.phase() != Phase::Closed
    }

    /// Tells of the attempt that is going on, if one is.
    fn attempt_ended(&mut self, end: &AttemptEnded<'_>) {
        let Some(trying) = self.report.trying.take() else { return };
        let priced = trying.route.price.is_some();
        let known = match end.result {
            AttemptResult::Accepted => cost::actual(&trying.route, &end.usage),
            // Counts of a cut answer are of a part of it (Anthropic's first event has one output token).
            _ => end.cost_usd,
        };
        let estimated = priced && known.is_none() && end.result != AttemptResult::Accepted;
        let cost_usd = known.filter(|_| priced).or(estimated.then_some(trying.estimate_usd));
        if end.result != AttemptResult::Accepted && let Some(usd) = cost_usd {
            *self.report.lost_usd.get_or_insert(0.0) += usd;
        }
        // What came whole and was no answer is another failure than what did not come.
        let whole = match end.result {
            AttemptResult::Interrupted => self.report.spoilt,
            _ => {
                trying.status.is_some_and(|status| (200..300).contains(&status))
                    && end.class != Some(Class::TransportTransient)
            }
        };
        let limit = end.verdict.and_then(|verdict| verdict.limit);
        self.report.limit = limit.or(self.report.limit);
        let success = Success::of(end.result, whole);
        let event = AttemptEvent {
            event: "attempt",
            time: Time(UnixMillis::now()),
            whose: self.job.whose.clone(),
            attempt: self.budget.attempts,
            kind: trying.kind,
            route: trying.route.name.clone(),
            provider: trying.route.provider.name.clone(),
            sent_model: trying.route.model.as_deref().map(said).or_else(|| self.job.whose.requested_model.clone()),
            served_model: self.report.served_model.clone().filter(|_| trying.committed),
            result: end.result,
            class: end.class,
            status: trying.status,
            duration_ms: millis(trying.began.elapsed()),
            hold_ms: trying.hold.map(millis),
            first_output_ms: trying.first_output.map(millis),
            tokens: tokens(&end.usage),
            cost_usd,
            cost_estimated: estimated,
            circuit: trying.circuit,
            limit_dimension: limit,
            retry_after_ms: end.verdict.and_then(|verdict| verdict.retry_after).map(millis),
            success,
            provider_kind: provider_kind(trying.route.provider.kind),
        };
        let span = self.job.trace.as_ref().map(|trace| (trace, trying.span_id));
        self.job.app.telemetry.attempt(&event, span);
        self.report.last = Some(Ended {
            number: self.budget.attempts,
            recovery: self.recovery(trying.candidate),
            began: trying.began,
            circuit: trying.circuit,
            status: trying.status,
            hold: trying.hold,
            accepted: trying.committed,
            cost_usd: cost_usd.filter(|_| end.result == AttemptResult::Accepted),
            success,
            route: trying.route,
        });
    }

    /// Tells of the request, once.
    fn request_ended(&self, view: &View, state: State, duration_ms: u64) {
        let report = &self.report;
        let last = report.last.as_ref();
        let accepted = last.filter(|last| last.accepted);
        let admitted = self.job.operation.admitted;
        let workflow = last.map_or(crate::telemetry::names::NONE, |last| last.recovery);
        let recovered = accepted.is_some() && workflow != crate::telemetry::names::NONE;
        let state = match state {
            State::Completed => RequestState::Completed,
            State::Interrupted => RequestState::Interrupted,
            State::Stopped => RequestState::Stopped,
            State::Failed | State::Running => RequestState::Failed,
        };
        let event = RequestEvent {
            event: "request",
            time: Time(UnixMillis::now()),
            whose: self.job.whose.clone(),
            state,
            reason: view.reason.clone(),
            class: view.class,
            status: self.status_sent(accepted),
            replay: None,
            route: last.map(|last| last.route.name.clone()),
            served_model: report.served_model.clone().filter(|_| accepted.is_some()),
            attempts: self.budget.attempts,
            accepted_attempt: accepted.map(|accepted| accepted.number),
            duration_ms,
            hold_ms: accepted.and_then(|accepted| accepted.hold).map(millis),
            first_output_ms: view.boundary.map(|boundary| boundary.at_ms),
            boundary: view.boundary.map(|boundary| boundary.why),
            events: view.after,
            tokens: tokens(&view.usage),
            cost_usd: accepted.and_then(|accepted| accepted.cost_usd),
            lost_cost_usd: report.lost_usd,
            unresolved_executions: view.unresolved_executions,
            recovery: Recovery {
                workflow,
                attempts: report.by_kind,
                recovered,
                reason: report.first_failure.filter(|_| workflow != crate::telemetry::names::NONE),
                added_latency_ms: accepted.map(|accepted| millis(accepted.began.duration_since(admitted))),
            },
            circuit: last.map(|last| last.circuit),
            limit_dimension: report.limit,
            success: last.map(|last| last.success).unwrap_or_default(),
        };
        self.job.app.telemetry.request(&event, self.job.trace.as_ref());
    }

    /// The status that the client got.
    fn status_sent(&self, accepted: Option<&Ended>) -> Option<u16> {
        match accepted {
            Some(accepted) => Some(accepted.status.filter(|status| matches!(status, 200..=206)).unwrap_or(200)),
            // Keep-alives have spent it.
            None if self.boundary.phase() == Phase::HeadSent => Some(200),
            None => self.report.status,
        }
    }
}

//! What is noted of an operation as it goes (attempts, the boundary, the end) and told of it: its view, event lines, metrics, spans.
//! Nothing here decides anything.
//!
//! An attempt is told when it ends, the request when the operation ends; both from the driver, so that a driver that is dropped
//! (the client left) tells, too. `tell.rs` makes the events.

mod tell;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use crate::boundary::{Phase, Why};
use crate::classify::limit::LimitDimension;
use crate::classify::{Class, Verdict};
use crate::clock::{Instant, UnixMillis};
use crate::config::settings::RouteSettings;
use crate::gate::Pass;
use crate::gate::breaker::BreakerState;
use crate::ids::RouteId;
use crate::plan::Role;
use crate::protocol::signal::Usage;
use crate::telemetry::events::{AlarmKind, AttemptResult, ByKind, Kind, Success, said};

use super::app::random_u64;
use super::operation::Run;
use super::operations::{AttemptView, BoundaryView, State};
use super::outward::refusals;

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
            route: Some(route.name.clone()),
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
            Some(Role::Primary) | None => {
                if number == 1 {
                    Kind::First
                } else {
                    Kind::Retry
                }
            }
        };
        self.report.by_kind.count(kind);
        self.report.trying = Some(Trying {
            candidate,
            kind,
            began: Instant::now(),
            estimate_usd,
            circuit: self.pass.as_ref().map_or(BreakerState::Healthy, Pass::circuit).name(),
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
        let shown = route.as_ref().map_or("", RouteId::as_str);
        if verdict.alarm {
            tracing::error!(route = shown, "ALARM: the provider's certificate is not acceptable");
            let telemetry = &self.job.app.telemetry;
            let operation = Some(&self.job.operation.id);
            telemetry.alarm(AlarmKind::BadCertificate, operation, route.as_ref(), UnixMillis::now());
        }
        tracing::info!(
            operation = %self.job.operation.id, workflow = %self.job.workflow.name, route = shown,
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
        let refused = refusals(&self.job.plan, &self.left_out);
        self.job.operation.update(|known| {
            known.refused = refused;
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
}

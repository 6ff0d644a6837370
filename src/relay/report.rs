//! What is noted of an operation as it goes: attempts, the boundary, the end. Nothing here decides anything.

use std::time::Duration;

use crate::boundary::Why;
use crate::classify::{Class, Verdict};
use crate::clock::{Instant, UnixMillis};
use crate::config::settings::RouteSettings;

use super::operation::Run;
use super::operations::{AttemptView, BoundaryView, State};

impl Run {
    pub(super) fn since_admission(&self) -> u64 {
        u64::try_from(self.job.operation.admitted.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn attempt_began(&self, candidate: usize) {
        let view = AttemptView {
            number: self.budget.attempts,
            route: self.job.show_routes.then(|| self.route(candidate).name.clone()),
            started_ms: self.since_admission(),
            ended_ms: None,
            outcome: None,
            class: None,
            provider_status: None,
        };
        self.job.operation.update(|known| known.attempts.push(view));
    }

    pub(super) fn attempt_failed(&self, route: &RouteSettings, verdict: &Verdict) {
        let ended = self.since_admission();
        self.job.operation.update(|known| {
            if let Some(attempt) = known.attempts.last_mut() {
                attempt.ended_ms = Some(ended);
                attempt.class = Some(verdict.class);
                attempt.provider_status = verdict.provider_status;
            }
        });
        if verdict.alarm {
            tracing::error!(route = %route.name, "ALARM: the provider's certificate is not acceptable");
        }
        tracing::info!(
            operation = %self.job.operation.id, workflow = %self.job.workflow.name, route = %route.name,
            attempt = self.budget.attempts, class = verdict.class.name(),
            status = verdict.provider_status, alarm = verdict.alarm, "attempt failed"
        );
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
        if why == Why::HoldLimit {
            tracing::warn!(operation = %self.job.operation.id, "hold_limit: committed before anything was visible");
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
        self.job.operation.update(|known| {
            known.state = state;
            known.actions = actions;
            known.reason = (!reason.is_empty()).then(|| reason.to_owned());
            known.class = class;
            known.ended_at = Some(UnixMillis::now());
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
    }
}

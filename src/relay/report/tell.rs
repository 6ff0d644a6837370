//! From what was noted of an attempt and of an operation to their events.

use crate::attempt::cost;
use crate::boundary::Phase;
use crate::classify::Class;
use crate::clock::UnixMillis;
use crate::config::settings::ProviderKind;
use crate::protocol::signal::Usage;
use crate::telemetry::events::{
    AttemptEvent, AttemptResult, Call, Recovery, RequestEvent, RequestState, Success, Time, Tokens, said,
};
use crate::telemetry::names;

use super::super::operation::Run;
use super::super::operations::{State, View};
use super::{AttemptEnded, Ended, millis};

/// `gen_ai.provider.name`.
fn provider_kind(kind: ProviderKind) -> &'static str {
    match kind {
        ProviderKind::OpenAi => "openai",
        ProviderKind::AzureOpenAi => "azure.ai.openai",
        ProviderKind::Anthropic => "anthropic",
        ProviderKind::Bedrock => "aws.bedrock",
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
    /// Tells of the attempt that is going on, if one is.
    pub(super) fn attempt_ended(&mut self, end: &AttemptEnded<'_>) {
        let Some(trying) = self.report.trying.take() else { return };
        // Counting tokens costs nothing.
        let priced = trying.route.price.is_some() && self.job.whose.call == Call::Chat;
        let known = match end.result {
            AttemptResult::Accepted => cost::actual(&trying.route, &end.usage),
            // Counts of a cut answer are of a part of it (Anthropic's first event has one output token).
            _ => end.cost_usd,
        };
        let estimated = priced && known.is_none() && end.result != AttemptResult::Accepted;
        let cost_usd = known.filter(|_| priced).or(estimated.then_some(trying.estimate_usd));
        if end.result != AttemptResult::Accepted
            && let Some(usd) = cost_usd
        {
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
    pub(super) fn request_ended(&self, view: &View, state: State, duration_ms: u64) {
        let report = &self.report;
        let last = report.last.as_ref();
        let accepted = last.filter(|last| last.accepted);
        let admitted = self.job.operation.admitted;
        let workflow = last.map_or(names::NONE, |last| last.recovery);
        let recovered = accepted.is_some() && workflow != names::NONE;
        let state = match state {
            State::Completed => RequestState::Completed,
            State::Interrupted => RequestState::Interrupted,
            State::Stopped => RequestState::Stopped,
            State::Failed | State::Running => RequestState::Failed,
        };
        let given_up = accepted.is_none() && matches!(state, RequestState::Stopped | RequestState::Interrupted);
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
                reason: report.first_failure.filter(|_| workflow != names::NONE),
                added_latency_ms: accepted.map(|accepted| millis(accepted.began.duration_since(admitted))),
            },
            circuit: last.map(|last| last.circuit),
            refused: view.refused.clone(),
            limit_dimension: report.limit,
            // One that was stopped or left between two attempts was not up to a provider.
            success: last.filter(|_| !given_up).map(|last| last.success).unwrap_or_default(),
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

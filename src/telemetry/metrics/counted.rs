//! What an attempt and a request count for, once each, when they end.

use std::borrow::Cow;

use crate::class::Class;
use crate::ids::WorkflowId;
use crate::telemetry::events::{AttemptEvent, AttemptResult, Call, RequestEvent, RequestState};
use crate::telemetry::names;

use super::{Metrics, Text, labels, owned, seconds};

fn workflow(name: Option<&WorkflowId>) -> Text {
    name.map_or(Cow::Borrowed(names::NONE), owned)
}

impl Metrics {
    pub(in crate::telemetry) fn attempt(&self, event: &AttemptEvent) {
        let class = match (event.result, event.class) {
            (AttemptResult::Accepted, _) => names::NONE,
            (_, Some(class)) => class.name(),
            (_, None) => "unfinished",
        };
        let workflow = workflow(event.whose.workflow.as_ref());
        let values = [owned(&event.route), workflow.clone(), event.kind.name().into(), class.into()];
        self.attempts.get_or_create(&labels(&names::ATTEMPTS, values)).inc();
        let chat = event.whose.call == Call::Chat;
        let operation: Text = Cow::Borrowed(event.whose.call.name());
        let provider: Text = Cow::Borrowed(event.provider_kind);
        let model = self.model(event.sent_model.as_deref());
        let error = if event.result == AttemptResult::Accepted { "" } else { class };
        let values = [operation.clone(), provider.clone(), model.clone(), error.into()];
        self.duration.get_or_create(&labels(&names::DURATION, values)).observe(seconds(event.duration_ms));
        for (kind, count) in [("input", event.tokens.input_tokens), ("output", event.tokens.output_tokens)] {
            let Some(count) = count.filter(|_| chat) else { continue };
            let values = [operation.clone(), provider.clone(), model.clone(), Cow::Borrowed(kind)];
            #[allow(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
            self.tokens.get_or_create(&labels(&names::TOKENS, values)).observe(count as f64);
        }
        if let Some(ms) = event.first_output_ms {
            let values = [operation, provider, model];
            self.first_chunk.get_or_create(&labels(&names::FIRST_CHUNK, values)).observe(seconds(ms));
        }
        if let Some(usd) = event.cost_usd.filter(|usd| usd.is_finite() && *usd > 0.0) {
            let (family, named) = match event.result {
                AttemptResult::Accepted => (&self.cost, &names::COST),
                _ => (&self.lost_cost, &names::LOST_COST),
            };
            family.get_or_create(&labels(named, [workflow, owned(&event.route)])).inc_by(usd);
        }
        if event.class.is_some_and(throttled) {
            let dimension = event.limit_dimension.map_or("unknown", |dimension| dimension.name());
            let values = [owned(&event.route), Cow::Borrowed(dimension)];
            self.throttles.get_or_create(&labels(&names::THROTTLES, values)).inc();
        }
    }

    pub(in crate::telemetry) fn request(&self, event: &RequestEvent) {
        let workflow = workflow(event.whose.workflow.as_ref());
        let dialect = event.whose.dialect.map_or(names::NONE, |dialect| dialect.name());
        let reason = event.reason.clone().map_or(Cow::Borrowed(names::NONE), Cow::Owned);
        let values = [workflow.clone(), dialect.into(), event.state.name().into(), reason.clone()];
        self.requests.get_or_create(&labels(&names::REQUESTS, values)).inc();
        if event.recovery.workflow != names::NONE {
            let recovered = if event.recovery.recovered { "true" } else { "false" };
            let values = [workflow.clone(), event.recovery.workflow.into(), recovered.into()];
            self.recoveries.get_or_create(&labels(&names::RECOVERIES, values)).inc();
        }
        if let Some(ms) = event.recovery.added_latency_ms {
            self.added_latency.get_or_create(&labels(&names::ADDED_LATENCY, [workflow.clone()])).observe(seconds(ms));
        }
        if let Some(ms) = event.hold_ms {
            self.hold.get_or_create(&labels(&names::HOLD, [workflow.clone()])).observe(seconds(ms));
        }
        // What passes through is interrupted only once its head went out.
        let shown = event.accepted_attempt.is_some() || event.whose.call == Call::Passthrough;
        if event.state == RequestState::Interrupted && shown {
            let route = event.route.as_ref().map_or(Cow::Borrowed(names::NONE), owned);
            self.interruptions.get_or_create(&labels(&names::INTERRUPTIONS, [workflow, route, reason])).inc();
        }
    }
}

/// Whether a class says that a limit was hit.
fn throttled(class: Class) -> bool {
    matches!(class, Class::RateLimited | Class::QuotaExhausted | Class::Ambiguous429)
}

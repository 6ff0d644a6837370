//! Budgets under which the configured failover could never finish, and costs that nobody counts.

use std::time::Duration;

use crate::config::settings::WorkflowSettings;
use crate::config::{Code, Severity};

use super::Finder;
use super::failover::Candidate;

/// What a second attempt needs besides connecting, as long as nothing was measured (SPEC section 6: "2 s without data").
const FIRST_OUTPUT_UNMEASURED: Duration = Duration::from_secs(2);

/// Less than this and not even an attempt that is refused at once (handshake, head, decision) fits before the second one.
const ADDED_LATENCY_LEAST: Duration = Duration::from_millis(100);

pub(super) fn time(workflow: &WorkflowSettings, on: &[&Candidate<'_>], finder: &mut Finder<'_>) {
    let envelope = &workflow.envelope;
    let key = |name: &str| format!("workflow.{}.envelope.{name}", workflow.name);
    if envelope.max_attempts < 2 {
        let message = "failover is enabled and the first attempt is the last";
        finder.push(Severity::Error, Code::TooFewAttempts, key("max_attempts"), message);
    }
    // The first attempt is cut early enough for a fallback, so what counts is what the quickest fallback needs.
    let routes =
        on.iter().map(|one| one.route.as_ref()).chain((workflow.splits.len() > 1).then_some(&*workflow.primary));
    let connect = routes.map(|route| route.timeouts.connect).min().unwrap_or_default();
    let needs = connect + FIRST_OUTPUT_UNMEASURED;
    for (name, deadline) in [
        ("deadline_ms", envelope.deadline),
        ("deadline_reasoning_ms", envelope.deadline_reasoning),
        ("answer_deadline_ms", envelope.answer_deadline),
    ] {
        if deadline <= needs {
            let message = format!(
                "{} ms leave no time for a second attempt, which needs {} ms (connect_ms + 2000)",
                deadline.as_millis(),
                needs.as_millis()
            );
            finder.push(Severity::Error, Code::DeadlineTooShort, key(name), message);
        }
    }
    added_latency(workflow, needs, finder);
}

fn added_latency(workflow: &WorkflowSettings, needs: Duration, finder: &mut Finder<'_>) {
    let Some(added) = workflow.envelope.max_added_latency else { return };
    let key = format!("workflow.{}.envelope.max_added_latency_ms", workflow.name);
    let timeouts = &workflow.primary.timeouts;
    // A silent primary is cut for the fallback's sake, or by its own timeout.
    let silent = timeouts.first_output.min(workflow.envelope.deadline.saturating_sub(needs));
    if added < ADDED_LATENCY_LEAST {
        let message =
            format!("under {} ms no failed attempt fits before a second one", ADDED_LATENCY_LEAST.as_millis());
        finder.push(Severity::Error, Code::AddedLatencyTooShort, key, message);
    } else if added < timeouts.connect {
        let message = format!(
            "a primary that does not answer its connect takes connect_ms = {} ms: nothing is left to fail over",
            timeouts.connect.as_millis()
        );
        finder.push(Severity::Warning, Code::AddedLatencyTooShort, key, message);
    } else if added < silent {
        let message = format!(
            "a primary that connects and stays silent is given up after {} ms: nothing is left to fail over",
            silent.as_millis()
        );
        finder.push(Severity::Warning, Code::AddedLatencyTooShort, key, message);
    }
}

pub(super) fn cost(workflow: &WorkflowSettings, finder: &mut Finder<'_>) {
    if workflow.envelope.max_cost_usd.is_none() {
        return;
    }
    let members = workflow.splits.iter().skip(1).map(|split| &split.route);
    let routes =
        std::iter::once(&workflow.primary).chain(members).chain(&workflow.equivalents).chain(&workflow.alternates);
    let unpriced: Vec<String> =
        routes.filter(|route| route.price.is_none()).map(|route| format!("`{}`", route.name)).collect();
    if !unpriced.is_empty() {
        let key = format!("workflow.{}.envelope.max_cost_usd", workflow.name);
        let message = format!("without `price` the cost of {} is not counted", unpriced.join(", "));
        finder.push(Severity::Warning, Code::CostWithoutPrice, key, message);
    }
}

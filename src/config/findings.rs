//! What `check` says beyond loading: failovers that can never act, what will soon stop them from acting, and what nobody
//! has tried.
//!
//! In: a config that loaded, and now. Out: problems with their places. An error here does not keep `serve` from starting: an
//! approval that ran out overnight must not take the primary down with it.
//!
//! Reasons are the refusal names of SPEC's annex "Routing"; those that depend on a request or on the moment (pins, capacity,
//! circuit) are `plan`'s, not this file's.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::UnixMillis;

use super::Loaded;
use super::problem::{Code, Places, Problem, Severity, shown};
use super::settings::{Approval, Network, Purpose, Requires, RouteSettings, Settings, Verified, WorkflowSettings};

/// What a second attempt needs besides connecting, as long as nothing was measured (SPEC section 6: "2 s without data").
const FIRST_OUTPUT_UNMEASURED: Duration = Duration::from_secs(2);
/// Less than this and not even an attempt that is refused at once (handshake, head, decision) fits before the second one.
const ADDED_LATENCY_LEAST: Duration = Duration::from_millis(100);
/// How early an end is announced.
const SOON_MS: u64 = 30 * 86_400_000;

/// Everything that `check` finds beyond loading, in the order of the file.
pub fn findings(loaded: &Loaded, now: UnixMillis) -> Vec<Problem> {
    let settings = &loaded.settings;
    let mut report = Report { places: &loaded.places, list: Vec::new() };
    for workflow in settings.workflows.values() {
        failover(settings, workflow, now, &mut report);
        cost(workflow, &mut report);
    }
    reachable(settings, &mut report);
    outstanding(settings, &mut report);
    report.list.sort_by_key(|problem| (problem.line, problem.column));
    report.list
}

struct Report<'l> {
    places: &'l Places,
    list: Vec<Problem>,
}

impl Report<'_> {
    fn push(&mut self, severity: Severity, code: Code, key: String, message: impl Into<String>) {
        let (line, column) = self.places.of(&key);
        let file = self.places.file_of(&key).to_owned();
        self.list.push(Problem { severity, file, line, column, key, code, message: message.into() });
    }
}

/// A route that failover may go to.
struct Candidate<'s> {
    route: &'s RouteSettings,
    purpose: Purpose,
    list: &'static str,
    /// Approvals for this workflow, route and purpose.
    approvals: Vec<(usize, &'s Approval)>,
}

fn candidates<'s>(settings: &'s Settings, workflow: &'s WorkflowSettings) -> Vec<Candidate<'s>> {
    let on = workflow.failover;
    let lists: [(bool, &'s [Arc<RouteSettings>], Purpose, &'static str); 2] = [
        (on.equivalent, &workflow.equivalents, Purpose::Failover, "equivalents"),
        (on.cross_model, &workflow.alternates, Purpose::CrossModel, "alternates"),
    ];
    let mut all = Vec::new();
    for (_, routes, purpose, list) in lists.into_iter().filter(|(on, ..)| *on) {
        for route in routes {
            let fits = |approval: &Approval| {
                approval.workflow == workflow.name && approval.route == route.name && approval.purpose == purpose
            };
            let approvals = settings.approvals.iter().enumerate().filter(|(_, approval)| fits(approval)).collect();
            all.push(Candidate { route, purpose, list, approvals });
        }
    }
    all
}

fn failover(settings: &Settings, workflow: &WorkflowSettings, now: UnixMillis, report: &mut Report<'_>) {
    let key = |name: &str| format!("workflow.{}.{name}", workflow.name);
    let enabled_key = key("failover.enabled");
    for (switch, routes, list) in [
        (workflow.failover.equivalent, &workflow.equivalents, "equivalents"),
        (workflow.failover.cross_model, &workflow.alternates, "alternates"),
    ] {
        let by = if list == "equivalents" { "equivalent" } else { "cross_model" };
        if routes.is_empty() || (workflow.failover.enabled && switch) {
            continue;
        }
        let why = if workflow.failover.enabled {
            format!("failover.{by} = false")
        } else {
            "failover.enabled = false, the default".to_owned()
        };
        let message = format!("these routes are never used: {why}");
        report.push(Severity::Warning, Code::FailoverDisabled, key(list), message);
    }
    if workflow.failover.cross_model && workflow.alternates.is_empty() {
        let message = "no `alternates` are named: there is no other model to go to";
        report.push(Severity::Warning, Code::CrossModelWithoutAlternates, key("failover.cross_model"), message);
    }
    if !workflow.failover.enabled {
        return;
    }
    let candidates = candidates(settings, workflow);
    if candidates.is_empty() {
        let message = "failover is enabled and there is no route it may go to: name `equivalents`, or `alternates` with `failover.cross_model = true`";
        report.push(Severity::Error, Code::FailoverWithoutCandidates, enabled_key, message);
        return;
    }
    let mut alive = 0;
    for candidate in &candidates {
        alive += usize::from(judge(workflow, candidate, now, report));
    }
    if alive == 0 {
        let message = "failover is enabled and can never act: every candidate is refused (see there)";
        report.push(Severity::Error, Code::FailoverNeverActs, enabled_key.clone(), message);
    }
    let primary_provider = &workflow.primary.provider.name;
    if candidates.iter().all(|candidate| candidate.route.provider.name == *primary_provider) {
        let message = format!(
            "every failover route is at the primary's provider `{primary_provider}`: its outage takes them all"
        );
        report.push(Severity::Warning, Code::SharedProvider, enabled_key, message);
    }
    time(workflow, &candidates, report);
}

/// Reports on one candidate; whether it can be eligible for some request now.
fn judge(workflow: &WorkflowSettings, candidate: &Candidate<'_>, now: UnixMillis, report: &mut Report<'_>) -> bool {
    let route = candidate.route;
    let list_key = format!("workflow.{}.{}", workflow.name, candidate.list);
    let mut reasons = refusals(&workflow.requires, route, &workflow.primary);
    reasons.extend(verification_refusal(route.verified.as_ref(), now));
    reasons.extend(approval_refusal(&candidate.approvals, now));
    if route.capabilities.is_none() {
        let message = format!(
            "route `{}` serves as a fallback of workflow `{}` and must state its `capabilities`",
            route.name, workflow.name
        );
        let key = format!("route.{}.capabilities", route.name);
        report.push(Severity::Error, Code::FailoverRouteStatesNothing, key, message);
    }
    let mut public_ok = true;
    match route.provider.network {
        Some(Network::Public) => {
            for (index, approval) in &candidate.approvals {
                if approval.network != Some(Network::Public) {
                    public_ok = false;
                    let message = format!(
                        "provider `{}` is public: recovery over public HTTPS needs `network = \"public\"` here",
                        route.provider.name
                    );
                    report.push(
                        Severity::Error,
                        Code::ApprovalNotPublic,
                        format!("approval[{index}].network"),
                        message,
                    );
                }
            }
        }
        None => {
            let message = format!(
                "fallback route `{}` goes to a provider that does not say whether it is private or public",
                route.name
            );
            let key = format!("provider.{}.network", route.provider.name);
            report.push(Severity::Warning, Code::NetworkNotStated, key, message);
        }
        Some(Network::Private) => {}
    }
    if !reasons.is_empty() {
        let message = format!("route `{}` is refused for every request: {}", route.name, reasons.join(", "));
        report.push(Severity::Warning, Code::CandidateIneligible, list_key.clone(), message);
    }
    expiries(workflow, candidate, now, report);
    if let (Purpose::Failover, Some(theirs), Some(ours)) =
        (candidate.purpose, &route.model_class, &workflow.primary.model_class)
        && theirs != ours
    {
        let message = format!(
            "route `{}` is of model class {}, the primary of {}: is it an equivalent?",
            route.name,
            shown(theirs),
            shown(ours)
        );
        report.push(Severity::Warning, Code::ModelClassDiffers, list_key, message);
    }
    reasons.is_empty() && route.capabilities.is_some() && public_ok
}

/// Why a route is refused whatever the request asks, by what is written in the config.
fn refusals(requires: &Requires, route: &RouteSettings, primary: &RouteSettings) -> Vec<String> {
    let mut reasons = Vec::new();
    let provider = &route.provider;
    let in_list = |list: &[String], value: Option<&String>| list.is_empty() || value.is_some_and(|v| list.contains(v));
    if !route.dialects.iter().any(|dialect| primary.dialects.contains(dialect)) {
        reasons.push("dialect (none in common with the primary)".to_owned());
    }
    if !in_list(&requires.regions, route.region.as_ref()) {
        reasons.push("region".to_owned());
    }
    if requires.network == Some(Network::Private) && provider.network != Some(Network::Private) {
        reasons.push("network".to_owned());
    }
    if let Some(class) = &requires.data_class
        && !provider.data_classes.as_ref().is_some_and(|classes| classes.contains(class))
    {
        reasons.push("data_class".to_owned());
    }
    if !in_list(&requires.legal_entities, provider.legal_entity.as_ref()) {
        reasons.push("legal_entity".to_owned());
    }
    if !in_list(&requires.model_classes, route.model_class.as_ref()) {
        reasons.push("model_class".to_owned());
    }
    if requires.min_context_tokens.is_some_and(|least| route.context_tokens.is_none_or(|has| has < least)) {
        reasons.push("context_too_large".to_owned());
    }
    let states = route.capabilities.as_deref().unwrap_or_default();
    let lacking = requires.capabilities.iter().filter(|needed| !states.contains(needed));
    reasons.extend(lacking.map(|needed| format!("capability:{}", shown(needed).replace('`', ""))));
    reasons
}

fn verification_refusal(verified: Option<&Verified>, now: UnixMillis) -> Option<String> {
    match verified {
        None => Some("verification_missing".to_owned()),
        Some(verified) if verified.until.is_some_and(|until| until < now) => Some("verification_expired".to_owned()),
        Some(_) => None,
    }
}

fn approval_refusal(approvals: &[(usize, &Approval)], now: UnixMillis) -> Option<String> {
    let live = |approval: &Approval| approval.until.is_none_or(|until| until >= now);
    match approvals {
        [] => Some("approval_missing".to_owned()),
        all if all.iter().any(|(_, approval)| live(approval)) => None,
        _ => Some("approval_expired".to_owned()),
    }
}

fn expiries(workflow: &WorkflowSettings, candidate: &Candidate<'_>, now: UnixMillis, report: &mut Report<'_>) {
    let days = |until: UnixMillis| (until.0.saturating_sub(now.0)) / 86_400_000;
    let soon = |until: Option<UnixMillis>| until.filter(|u| *u >= now && u.0.saturating_sub(now.0) < SOON_MS);
    for (index, approval) in &candidate.approvals {
        if let Some(until) = soon(approval.until) {
            let message = format!(
                "ends in {} days; workflow `{}` then cannot fail over to `{}`",
                days(until),
                workflow.name,
                candidate.route.name
            );
            report.push(Severity::Warning, Code::ApprovalExpiresSoon, format!("approval[{index}].until"), message);
        }
    }
    if let Some(until) = candidate.route.verified.as_ref().and_then(|verified| soon(verified.until)) {
        let key = format!("route.{}.verified.until", candidate.route.name);
        let message = format!("ends in {} days; workflow `{}` then cannot fail over to it", days(until), workflow.name);
        if !report.list.iter().any(|known| known.key == key && known.code == Code::VerificationExpiresSoon) {
            report.push(Severity::Warning, Code::VerificationExpiresSoon, key, message);
        }
    }
}

/// Budgets under which the configured failover could never finish.
fn time(workflow: &WorkflowSettings, candidates: &[Candidate<'_>], report: &mut Report<'_>) {
    let envelope = &workflow.envelope;
    let key = |name: &str| format!("workflow.{}.envelope.{name}", workflow.name);
    if envelope.max_attempts < 2 {
        let message = "failover is enabled and the first attempt is the last";
        report.push(Severity::Error, Code::TooFewAttempts, key("max_attempts"), message);
    }
    // The first attempt is cut early enough for a fallback, so what counts is what the quickest fallback needs.
    let connect = candidates.iter().map(|candidate| candidate.route.timeouts.connect).min().unwrap_or_default();
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
            report.push(Severity::Error, Code::DeadlineTooShort, key(name), message);
        }
    }
    let Some(added) = envelope.max_added_latency else { return };
    let first_connect = workflow.primary.timeouts.connect;
    if added < ADDED_LATENCY_LEAST {
        let message =
            format!("under {} ms no failed attempt fits before a second one", ADDED_LATENCY_LEAST.as_millis());
        report.push(Severity::Error, Code::AddedLatencyTooShort, key("max_added_latency_ms"), message);
    } else if added < first_connect {
        let message = format!(
            "a primary that does not answer its connect takes connect_ms = {} ms: nothing is left to fail over",
            first_connect.as_millis()
        );
        report.push(Severity::Warning, Code::AddedLatencyTooShort, key("max_added_latency_ms"), message);
    }
}

fn cost(workflow: &WorkflowSettings, report: &mut Report<'_>) {
    if workflow.envelope.max_cost_usd.is_none() {
        return;
    }
    let routes = std::iter::once(&workflow.primary).chain(&workflow.equivalents).chain(&workflow.alternates);
    let unpriced: Vec<String> = routes.filter(|route| route.price.is_none()).map(|r| format!("`{}`", r.name)).collect();
    if !unpriced.is_empty() {
        let key = format!("workflow.{}.envelope.max_cost_usd", workflow.name);
        let message = format!("without `price` the cost of {} is not counted", unpriced.join(", "));
        report.push(Severity::Warning, Code::CostWithoutPrice, key, message);
    }
}

fn reachable(settings: &Settings, report: &mut Report<'_>) {
    for (index, client) in settings.clients.iter().enumerate().filter(|(_, client)| client.workflows.is_empty()) {
        let message = format!("client `{}` may call nothing: it names no `workflows`", client.name);
        report.push(Severity::Warning, Code::ClientWithoutWorkflows, format!("client[{index}].workflows"), message);
    }
    for name in settings.workflows.keys().filter(|_| !settings.clients.is_empty()) {
        if !settings.clients.iter().any(|client| client.workflows.contains(name)) {
            let message = format!("no [[client]] may call workflow `{name}`");
            report.push(Severity::Warning, Code::WorkflowUnreachable, format!("workflow.{name}"), message);
        }
    }
}

/// Live checks that nobody has made: `check` calls no provider.
fn outstanding(settings: &Settings, report: &mut Report<'_>) {
    for provider in settings.providers.values() {
        let what = if provider.api_key.is_some() { "address, key and models were" } else { "address and models were" };
        let message = format!("{what} not tried: `check` calls nobody");
        report.push(Severity::Info, Code::CredentialsNotTried, format!("provider.{}", provider.name), message);
    }
    if !settings.approvals.is_empty() {
        let message = "approvals carry no route digest: whether each route is still what was approved was not compared";
        report.push(Severity::Info, Code::DigestNotCompared, "approval".to_owned(), message);
    }
}

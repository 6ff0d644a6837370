//! Failovers that can never act, one workflow at a time: every reason against every route that could stand in, each at the key
//! that would have to change.

use std::sync::Arc;

use crate::config::settings::{Approval, Network, Purpose, RouteSettings, Settings, WorkflowSettings};
use crate::config::{Code, Severity, shown};
use crate::plan::eligible::{Standing, standing};
use crate::plan::{Refusal, Role, digest};

use super::{Disabled, Finder, budgets, domains};

/// A route that could stand in, or have a share.
pub(super) struct Candidate<'s> {
    pub(super) route: &'s Arc<RouteSettings>,
    pub(super) role: Role,
    /// The list of the workflow that names it.
    pub(super) list: &'static str,
    /// Every reason that stands for each request.
    pub(super) reasons: Vec<Refusal>,
    /// Approvals for this workflow, route and purpose.
    approvals: Vec<(usize, &'s Approval)>,
}

/// Every request uses text, so a route that states nothing can serve none.
const TEXT: &str = "text";

fn candidate<'s>(
    settings: &'s Settings,
    workflow: &'s WorkflowSettings,
    (route, role, list): (&'s Arc<RouteSettings>, Role, &'static str),
    now: crate::clock::UnixMillis,
) -> Candidate<'s> {
    let asked = Standing { workflow, approvals: &settings.approvals, route, role, now, failover_off: false };
    let mut reasons = standing(&asked);
    let states = |name: &str| route.capabilities.iter().flatten().any(|stated| stated == name);
    let text = Refusal::Capability(TEXT.to_owned());
    if route.name != workflow.primary.name && !states(TEXT) && !reasons.contains(&text) {
        reasons.push(text);
    }
    let fits = |approval: &Approval| {
        approval.workflow == workflow.name && approval.route == route.name && approval.purpose == asked.purpose()
    };
    let approvals = settings.approvals.iter().enumerate().filter(|(_, approval)| fits(approval)).collect();
    Candidate { route, role, list, reasons, approvals }
}

/// Routes that may stand in: other members of the split, equivalents, alternates.
pub(super) fn standins<'s>(
    settings: &'s Settings,
    workflow: &'s WorkflowSettings,
    now: crate::clock::UnixMillis,
) -> Vec<Candidate<'s>> {
    let members = workflow.splits.iter().skip(1).map(|split| (&split.route, Role::Planned, "primary"));
    let equivalents = workflow.equivalents.iter().map(|route| (route, Role::Equivalent, "equivalents"));
    let alternates = workflow.alternates.iter().map(|route| (route, Role::Alternate, "alternates"));
    members.chain(equivalents).chain(alternates).map(|one| candidate(settings, workflow, one, now)).collect()
}

/// Everything about one workflow's failover.
pub(super) fn find(workflow: &WorkflowSettings, finder: &mut Finder<'_>) {
    let settings = &finder.loaded.settings;
    shares(settings, workflow, finder);
    let all = standins(settings, workflow, finder.now);
    for one in all.iter().filter(|one| !one.reasons.is_empty()) {
        // A further member that is not approved to stand in still has its share, which is told apart.
        let role = if one.role == Role::Planned { "planned (standing in)" } else { one.role.name() };
        disabled(workflow, one, role, finder);
    }
    switches(workflow, finder);
    if !workflow.failover.enabled {
        return;
    }
    let enabled_key = format!("workflow.{}.failover.enabled", workflow.name);
    let on: Vec<&Candidate<'_>> = all.iter().filter(|one| !is_off(one)).collect();
    // The first member of a split stands in for the others with no approval.
    let first = usize::from(workflow.splits.len() > 1 && workflow.failover.equivalent);
    if on.is_empty() && first == 0 {
        let message = "failover is enabled and there is no route it may go to: name `equivalents`, or `alternates` with `failover.cross_model = true`";
        finder.push(Severity::Error, Code::FailoverWithoutCandidates, enabled_key, message);
        return;
    }
    for one in &on {
        // That a member of a split is not approved to stand in is a choice.
        let by_choice = one.role == Role::Planned && one.approvals.is_empty();
        if !by_choice {
            for reason in &one.reasons {
                refused(workflow, one, reason, finder);
            }
        }
        stated(workflow, one, finder);
    }
    if first == 0 && on.iter().all(|one| !one.reasons.is_empty()) {
        let message = "failover is enabled and can never act: every candidate is refused (see there)";
        finder.push(Severity::Error, Code::FailoverNeverActs, enabled_key, message);
    }
    domains::find(workflow, &on, finder);
    budgets::time(workflow, &on, finder);
}

fn is_off(one: &Candidate<'_>) -> bool {
    one.reasons.iter().any(|reason| matches!(reason, Refusal::FailoverDisabled | Refusal::CrossModelDisabled))
}

fn disabled(workflow: &WorkflowSettings, one: &Candidate<'_>, role: &'static str, finder: &mut Finder<'_>) {
    let why = one.reasons.iter().map(ToString::to_string).collect();
    let entry = Disabled { workflow: workflow.name.clone(), route: one.route.name.clone(), role, why };
    finder.report.disabled.push(entry);
}

/// Members of a planned split that get no share.
fn shares(settings: &Settings, workflow: &WorkflowSettings, finder: &mut Finder<'_>) {
    for split in workflow.splits.iter().skip(1) {
        let one = candidate(settings, workflow, (&split.route, Role::Primary, "primary"), finder.now);
        if one.reasons.is_empty() {
            continue;
        }
        disabled(workflow, &one, "planned (share)", finder);
        for reason in &one.reasons {
            let message = format!(
                "route `{}` has no share of the planned split of workflow `{}`: {reason}. {}",
                one.route.name,
                workflow.name,
                told(&one, reason)
            );
            finder.push(Severity::Error, Code::SplitMemberRefused, place(workflow, &one, reason), message);
        }
    }
}

fn switches(workflow: &WorkflowSettings, finder: &mut Finder<'_>) {
    let key = |name: &str| format!("workflow.{}.{name}", workflow.name);
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
        finder.push(Severity::Warning, Code::FailoverDisabled, key(list), message);
    }
    if workflow.failover.cross_model && workflow.alternates.is_empty() {
        let message = "no `alternates` are named: there is no other model to go to";
        finder.push(Severity::Warning, Code::CrossModelWithoutAlternates, key("failover.cross_model"), message);
    }
}

/// One reason for which a failover route can never act.
fn refused(workflow: &WorkflowSettings, one: &Candidate<'_>, reason: &Refusal, finder: &mut Finder<'_>) {
    let route = one.route;
    if *reason == Refusal::Capability(TEXT.to_owned()) && route.capabilities.is_none() {
        let message = format!(
            "route `{}` serves as a fallback of workflow `{}` and must state its `capabilities`",
            route.name, workflow.name
        );
        let key = format!("route.{}.capabilities", route.name);
        return finder.push(Severity::Error, Code::FailoverRouteStatesNothing, key, message);
    }
    let not_public = |approval: &Approval| approval.network != Some(Network::Public);
    if *reason == Refusal::Network && route.provider.network == Some(Network::Public) {
        for (index, _) in one.approvals.iter().filter(|(_, approval)| not_public(approval)) {
            let message = format!(
                "provider `{}` is public: recovery over public HTTPS needs `network = \"public\"` here",
                route.provider.name
            );
            finder.push(Severity::Error, Code::ApprovalNotPublic, format!("approval[{index}].network"), message);
        }
        if workflow.requires.network != Some(Network::Private) {
            return;
        }
    }
    let message = format!(
        "route `{}` can never stand in for workflow `{}`: {reason}. {}",
        route.name,
        workflow.name,
        told(one, reason)
    );
    finder.push(Severity::Error, Code::CandidateIneligible, place(workflow, one, reason), message);
}

/// The refusal's own sentences; of a digest also what it is now.
fn told(one: &Candidate<'_>, reason: &Refusal) -> String {
    let entry = reason.entry();
    let now = match reason {
        Refusal::ApprovalStale | Refusal::VerificationStale => {
            format!(" It is {} now: {}.", digest::route_digest(one.route), digest::covers(one.route))
        }
        _ => String::new(),
    };
    format!("{} {}{now}", entry.meaning, entry.remedy)
}

/// The key that would have to change.
fn place(workflow: &WorkflowSettings, one: &Candidate<'_>, reason: &Refusal) -> String {
    let route = |key: &str| format!("route.{}.{key}", one.route.name);
    let provider = |key: &str| format!("provider.{}.{key}", one.route.provider.name);
    let list = format!("workflow.{}.{}", workflow.name, one.list);
    let approval =
        |key: &str| one.approvals.first().map_or(list.clone(), |(index, _)| format!("approval[{index}].{key}"));
    match reason {
        Refusal::ApprovalExpired => approval("until"),
        Refusal::ApprovalStale => approval("route_digest"),
        Refusal::VerificationMissing => route("verified"),
        Refusal::VerificationExpired => route("verified.until"),
        Refusal::VerificationStale => route("verified.route_digest"),
        Refusal::Region => route("region"),
        Refusal::Network => provider("network"),
        Refusal::DataClass => provider("data_classes"),
        Refusal::LegalEntity => provider("legal_entity"),
        Refusal::ModelClass => route("model_class"),
        Refusal::SafetyProfile => route("safety_profile"),
        Refusal::Language => route("languages"),
        Refusal::Schema => route("schemas"),
        Refusal::Dialect => route("dialects"),
        Refusal::Capability(_) => route("capabilities"),
        Refusal::ContextTooLarge => route("context_tokens"),
        _ => list,
    }
}

/// What a failover route does not state, or states otherwise than its primary.
fn stated(workflow: &WorkflowSettings, one: &Candidate<'_>, finder: &mut Finder<'_>) {
    let route = one.route;
    if route.provider.network.is_none() {
        let message = format!(
            "fallback route `{}` goes to a provider that does not say whether it is private or public",
            route.name
        );
        let key = format!("provider.{}.network", route.provider.name);
        finder.push(Severity::Warning, Code::NetworkNotStated, key, message);
    }
    if route.context_tokens.is_none() {
        let message = format!(
            "fallback route `{}` does not state its `context_tokens`: whether a request fits there is not compared",
            route.name
        );
        finder.push(Severity::Info, Code::ContextNotCompared, format!("route.{}.context_tokens", route.name), message);
    }
    if let (false, Some(theirs), Some(ours)) =
        (one.role == Role::Alternate, &route.model_class, &workflow.primary.model_class)
        && theirs != ours
    {
        let message = format!(
            "route `{}` is of model class {}, the primary of {}: is it an equivalent?",
            route.name,
            shown(theirs),
            shown(ours)
        );
        let key = format!("workflow.{}.{}", workflow.name, one.list);
        finder.push(Severity::Warning, Code::ModelClassDiffers, key, message);
    }
}

/// As the configuration writes it.
pub(super) fn purpose_name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Failover => "failover",
        Purpose::CrossModel => "cross_model",
        Purpose::Planned => "planned",
    }
}

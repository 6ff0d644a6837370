//! The refusals of a plan as reasons for people: what each means, what to do about it, and which approval it is that lacks.

use crate::config::settings::WorkflowSettings;
use crate::ids::RouteId;

use super::super::eligible::{Standing, approval};
use super::super::{Plan, Refusal, Role, World};
use super::Reason;

/// All of them, in the order of the plan.
pub(super) fn reasons(workflow: &WorkflowSettings, plan: &Plan, world: &World<'_>) -> Vec<Reason> {
    let of = |route: &RouteId| {
        if workflow.equivalents.iter().any(|other| other.name == *route) {
            Role::Equivalent
        } else if workflow.alternates.iter().any(|other| other.name == *route) {
            Role::Alternate
        } else if workflow.primary.name == *route {
            Role::Primary
        } else {
            Role::Planned
        }
    };
    let all = plan.refused.iter().flat_map(|(route, reasons)| reasons.iter().map(move |reason| (route, reason)));
    all.map(|(route, why)| {
        let role = of(route);
        reason(route, role, why, &purposes(workflow, world, route, role, why))
    })
    .collect()
}

/// One of them, with the purposes of the approval that it lacks.
pub(super) fn reason(route: &RouteId, role: Role, why: &Refusal, purposes: &[&'static str]) -> Reason {
    let entry = why.entry();
    let remedy = if purposes.is_empty() {
        entry.remedy.into()
    } else {
        let purposes: Vec<_> = purposes.iter().map(|purpose| format!("purpose = \"{purpose}\"")).collect();
        format!("{} Here: {}.", entry.remedy, purposes.join(" and ")).into()
    };
    Reason {
        route: route.to_string(),
        role: role.name().into(),
        why: why.to_string(),
        means: entry.meaning.into(),
        remedy,
    }
}

/// For which purposes the approval lacks that `why` speaks of. A member of a split may need two: one for its share, one to stand in for
/// another.
fn purposes(
    workflow: &WorkflowSettings,
    world: &World<'_>,
    route: &RouteId,
    role: Role,
    why: &Refusal,
) -> Vec<&'static str> {
    let of_splits = workflow.splits.iter().map(|split| &split.route);
    let mut known = of_splits.chain(&workflow.equivalents).chain(&workflow.alternates);
    let Some(route) = known.find(|known| known.name == *route) else { return Vec::new() };
    let roles = if role == Role::Planned { &[Role::Primary, Role::Planned][..] } else { &[role] };
    let standing = |role: &Role| Standing {
        workflow,
        approvals: world.approvals,
        route,
        role: *role,
        now: world.now,
        failover_off: false,
    };
    roles
        .iter()
        .map(standing)
        .filter(|one| approval(one).as_ref() == Some(why))
        .map(|one| one.purpose().name())
        .collect()
}

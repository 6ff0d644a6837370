//! Which routes may serve an operation, in what order, and why not the others. A pure function of the configuration, the
//! request's contract and the date, so that it can be explained from a shell with no server.
//!
//! The primary is always a candidate (it needs no approval); it is refused only for state that another account holds, which
//! this build cannot know. Every other route passes one predicate a reason ([`eligible`]); a refusal is data.

pub mod eligible;

use std::sync::Arc;

use crate::clock::{Instant, UnixMillis};
use crate::config::settings::{Approval, RouteSettings, WorkflowSettings};
use crate::contract::Contract;
use crate::gate::{Closed, Gate};
use crate::ids::RouteId;

pub use eligible::Refusal;

/// What a candidate is to the workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The primary, or the chosen member of a planned split.
    Primary,
    /// Another member of a planned split.
    Planned,
    /// Another route for the same model contract.
    Equivalent,
    /// Another, approved, model.
    Alternate,
}

/// A route that may serve.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The route.
    pub route: Arc<RouteSettings>,
    /// Its role.
    pub role: Role,
}

/// Candidates in order, and the refused with their reasons.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In the order in which they are tried.
    pub candidates: Vec<Candidate>,
    /// Route and every reason that holds, in the order of the configuration.
    pub refused: Vec<(RouteId, Vec<Refusal>)>,
}

/// What the plan depends on beside the workflow and the request.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// All approvals.
    pub approvals: &'a [Approval],
    /// What is closed at this moment.
    pub gate: &'a dyn Gate,
    /// Wall time, for dates.
    pub now: UnixMillis,
    /// The same moment, for the gate.
    pub at: Instant,
    /// A random number, drawn by the caller once an operation: the choice of a planned split.
    pub draw: u64,
}

/// Makes the plan.
pub fn plan(workflow: &WorkflowSettings, contract: &Contract, world: &World<'_>) -> Plan {
    let (approvals, now) = (world.approvals, world.now);
    let mut plan = Plan::default();
    let killed = |route: &RouteSettings| world.gate.closed(&route.name, false, world.at) == Some(Closed::Killed);
    if killed(&workflow.primary) {
        plan.refused.push((workflow.primary.name.clone(), vec![Refusal::Killed]));
    } else {
        plan.candidates.push(Candidate { route: Arc::clone(&workflow.primary), role: Role::Primary });
    }
    let others = workflow
        .equivalents
        .iter()
        .map(|route| (route, Role::Equivalent))
        .chain(workflow.alternates.iter().map(|route| (route, Role::Alternate)));
    for (route, role) in others {
        let mut reasons = eligible::refusals(&eligible::Question { workflow, approvals, contract, route, role, now });
        if world.gate.failover_off(&workflow.name) && !reasons.contains(&Refusal::FailoverDisabled) {
            reasons.push(Refusal::FailoverDisabled);
        }
        if killed(route) {
            reasons.push(Refusal::Killed);
        }
        if reasons.is_empty() {
            plan.candidates.push(Candidate { route: Arc::clone(route), role });
        } else {
            plan.refused.push((route.name.clone(), reasons));
        }
    }
    plan
}

//! Which routes may serve an operation, in what order, and why not the others. A pure function of the configuration, the
//! request's contract, the date and what is closed at the moment, so that it can be explained from a shell with no server.
//!
//! The primary needs no approval, and what it does not state is not checked; it is refused only where it does not fit at all (dialect,
//! model, state of another account), where an operator killed it, and for the moment ([`order`]). Every other route passes one
//! predicate a reason ([`eligible`]); a refusal is data, and its names are one closed list ([`refusal`], `refusals.md`).

pub mod digest;
pub mod eligible;
pub mod explain;
mod order;
pub mod pins;
pub mod refusal;
#[cfg(test)]
mod refusals_doc;

use std::sync::Arc;

use crate::clock::{Instant, UnixMillis};
use crate::config::settings::{Approval, RouteSettings, WorkflowSettings};
use crate::contract::Contract;
use crate::gate::Gate;
use crate::ids::RouteId;

pub use pins::{Issuers, NobodyKnown};
pub use refusal::Refusal;

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

impl Role {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Planned => "planned",
            Self::Equivalent => "equivalent",
            Self::Alternate => "alternate",
        }
    }
}

/// A route that may serve.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The route.
    pub route: Arc<RouteSettings>,
    /// Its role.
    pub role: Role,
    /// There is no other route for this operation: a tripped breaker does not keep it out.
    pub last_resort: bool,
}

/// A member of the planned split.
#[derive(Clone, Debug)]
pub struct Member {
    /// The route.
    pub route: Arc<RouteSettings>,
    /// Its weight.
    pub weight: u32,
    /// Why it has no share; empty: it has.
    pub why: Vec<Refusal>,
}

/// Candidates in order, and the refused with their reasons.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In the order in which they are tried.
    pub candidates: Vec<Candidate>,
    /// Route and every reason that holds, in the order in which they would have been tried.
    pub refused: Vec<(RouteId, Vec<Refusal>)>,
    /// When the first route that is refused as `tripped` may be asked again.
    pub ready_at: Option<Instant>,
    /// The members of a planned split; empty where the primary is one route.
    pub split: Vec<Member>,
}

impl Plan {
    /// No route may serve, and one of them may in a while: what stands against it is the moment alone.
    pub fn is_closed_for_now(&self) -> bool {
        self.candidates.is_empty() && self.refused.iter().any(|(_, reasons)| reasons.iter().all(Refusal::is_momentary))
    }
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
    /// Who issued the state that a request may carry.
    pub issuers: &'a dyn Issuers,
}

/// Makes the plan.
pub fn plan(workflow: &WorkflowSettings, contract: &Contract, world: &World<'_>) -> Plan {
    let held = pins::holders(&contract.facts.pins, world.issuers, &workflow.primary.provider.account);
    let asker = order::Asker { workflow, contract, world, held: &held };
    let members = asker.members();
    let mut seats = asker.seats(&members);
    let mut plan = Plan { ready_at: asker.closed_now(&mut seats), ..Plan::default() };
    for seat in seats {
        if seat.reasons.is_empty() {
            plan.candidates.push(Candidate { route: seat.route, role: seat.role, last_resort: seat.last_resort });
        } else {
            plan.refused.push((seat.route.name.clone(), seat.reasons));
        }
    }
    if !workflow.splits.is_empty() {
        plan.split = members;
    }
    plan
}

//! Who is asked first, who next: the choice of a planned split, and what is closed at this moment.
//!
//! In: the workflow, the request and the [`World`]. Out: seats in order, each with the reasons against it.
//!
//! 1. Of a planned split one member is chosen by weight, once an operation: among those that the configuration and the request leave
//!    (further members need an approval for `planned`; the first needs none) and that nobody killed. What has no share is left to the others.
//! 2. The other members come next, as recovery: the first needs no approval, the others one for `failover`.
//! 3. Then equivalents, then alternates, each in the order of the configuration.
//!
//! **The moment** ([`closed_now`]) is judged after all that, because a breaker moves traffic and does not refuse what has nowhere else to go:
//!
//! - `capacity` and `failover_limit` always refuse.
//! - `tripped` refuses only where another route is the right one for this request: nothing of the configuration or the request stands
//!   against it and nobody killed it. Where the tripped route is alone, it stays a candidate. Where the other one is right but full
//!   at the moment, or tripped as well, both are refused: there is somewhere to go, only not now, so the caller is told to come again
//!   instead of a failing route being asked once more.
//! - An alternate is no place for a breaker to go to. It stands in for a model that is out or broke the contract, which limits and breakers
//!   do not say. So where the route and its equivalents are closed for the moment only, alternates are refused as `class_blocked`.

use std::sync::Arc;

use crate::clock::Instant;
use crate::config::settings::{RouteSettings, WorkflowSettings};
use crate::contract::Contract;
use crate::gate::Closed;

use super::eligible::{Question, Standing, refusals};
use super::pins::Held;
use super::{Member, Refusal, Role, World};

/// A route of the workflow in its place.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) route: Arc<RouteSettings>,
    pub(super) role: Role,
    pub(super) reasons: Vec<Refusal>,
    /// Nothing else could serve, so its breaker does not keep it out.
    pub(super) last_resort: bool,
}

/// Asks about the routes of one workflow for one request.
pub(super) struct Asker<'a> {
    pub(super) workflow: &'a WorkflowSettings,
    pub(super) contract: &'a Contract,
    pub(super) world: &'a World<'a>,
    /// Who holds the state in the request.
    pub(super) held: &'a [Held],
}

impl Asker<'_> {
    /// What the configuration, the request and the kill switch say against a route.
    fn against(&self, route: &RouteSettings, role: Role) -> Vec<Refusal> {
        let standing = Standing {
            workflow: self.workflow,
            approvals: self.world.approvals,
            route,
            role,
            now: self.world.now,
            failover_off: self.world.gate.failover_off(&self.workflow.name),
        };
        let mut reasons = refusals(&Question { standing, contract: self.contract, held: self.held });
        if self.closed(route, role) == Some(Closed::Killed) {
            reasons.push(Refusal::Killed);
        }
        reasons
    }

    fn closed(&self, route: &RouteSettings, role: Role) -> Option<Closed> {
        self.world.gate.closed(&route.name, role != Role::Primary, self.world.at)
    }

    /// The members of the workflow's primary, and whether each has a share. One route is a split of one.
    pub(super) fn members(&self) -> Vec<Member> {
        let one = |route: &Arc<RouteSettings>, weight| Member {
            route: Arc::clone(route),
            weight,
            why: self.against(route, Role::Primary),
        };
        if self.workflow.splits.is_empty() {
            return vec![one(&self.workflow.primary, 1)];
        }
        self.workflow.splits.iter().map(|split| one(&split.route, split.weight)).collect()
    }

    /// All seats in order; the moment is not judged yet.
    pub(super) fn seats(&self, members: &[Member]) -> Vec<Seat> {
        let chosen = choose(members, self.world.draw);
        let mut seats = Vec::new();
        if let Some(member) = chosen.and_then(|index| members.get(index)) {
            seats.push(Seat {
                route: Arc::clone(&member.route),
                role: Role::Primary,
                reasons: Vec::new(),
                last_resort: false,
            });
        }
        for (index, member) in members.iter().enumerate().filter(|(index, _)| Some(*index) != chosen) {
            let alone = members.len() == 1;
            let role = if alone { Role::Primary } else { Role::Planned };
            let mut reasons = self.against(&member.route, role);
            // Why it had no share is told too, where it may not stand in either.
            if !reasons.is_empty() && index > 0 {
                let further: Vec<_> = member.why.iter().filter(|why| !reasons.contains(why)).cloned().collect();
                reasons.extend(further);
            }
            seats.push(Seat { route: Arc::clone(&member.route), role, reasons, last_resort: false });
        }
        let lists = [(&self.workflow.equivalents, Role::Equivalent), (&self.workflow.alternates, Role::Alternate)];
        for (routes, role) in lists {
            seats.extend(routes.iter().map(|route| Seat {
                route: Arc::clone(route),
                role,
                reasons: self.against(route, role),
                last_resort: false,
            }));
        }
        seats
    }

    /// Judges the moment; returns when the first tripped route may be asked again.
    pub(super) fn closed_now(&self, seats: &mut [Seat]) -> Option<Instant> {
        let mut ready_at: Option<Instant> = None;
        // The right routes for this request, whatever the moment says.
        let right: Vec<bool> = seats.iter().map(|seat| seat.reasons.is_empty()).collect();
        let roles: Vec<Role> = seats.iter().map(|seat| seat.role).collect();
        let is_elsewhere = |index: usize, role: Role| {
            right.iter().zip(&roles).enumerate().any(|(other, (right, other_role))| {
                other != index && *right && (*other_role != Role::Alternate || role == Role::Alternate)
            })
        };
        for (index, seat) in seats.iter_mut().enumerate().filter(|(_, seat)| seat.reasons.is_empty()) {
            match self.closed(&seat.route, seat.role) {
                None => {}
                Some(Closed::Killed) => seat.reasons.push(Refusal::Killed),
                Some(Closed::Capacity) => seat.reasons.push(Refusal::Capacity),
                Some(Closed::FailoverLimit) => seat.reasons.push(Refusal::FailoverLimit),
                // The only one that could serve is asked, tripped or not.
                Some(Closed::Tripped { .. }) if !is_elsewhere(index, seat.role) => seat.last_resort = true,
                Some(Closed::Tripped { until }) => {
                    seat.reasons.push(Refusal::Tripped);
                    ready_at = Some(ready_at.map_or(until, |earliest| earliest.min(until)));
                }
            }
        }
        let is_main = |seat: &&Seat| seat.role != Role::Alternate;
        let open = seats.iter().filter(is_main).any(|seat| seat.reasons.is_empty());
        let only_now = |seat: &Seat| !seat.reasons.is_empty() && seat.reasons.iter().all(Refusal::is_momentary);
        if !open && seats.iter().filter(is_main).any(only_now) {
            for seat in seats.iter_mut().filter(|seat| seat.role == Role::Alternate && seat.reasons.is_empty()) {
                seat.reasons.push(Refusal::ClassBlocked);
            }
        }
        ready_at
    }
}

/// The member that `draw` falls on, by weight, among those with a share.
pub(super) fn choose(members: &[Member], draw: u64) -> Option<usize> {
    let shares = || members.iter().enumerate().filter(|(_, member)| member.why.is_empty());
    let sum: u64 = shares().map(|(_, member)| u64::from(member.weight)).sum();
    // 2^64 is no multiple of the sum: the first members are favoured by less than one in four billion.
    let mut left = draw.checked_rem(sum)?;
    for (index, member) in shares() {
        match left.checked_sub(u64::from(member.weight)) {
            Some(rest) => left = rest,
            None => return Some(index),
        }
    }
    None
}

#[cfg(test)]
mod tests;

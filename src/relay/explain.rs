//! The plan for a request that somebody only asks about, with what is closed in this process and what was seen of its routes:
//! `GET /admin/v1/explain`. The words are [`plan::explain`](crate::plan::explain)'s, as offline.

use std::time::Duration;

use crate::attempt::budget::Budget;
use crate::attempt::control::{self, Stop, Tried};
use crate::attempt::{cost, left_out};
use crate::clock::{Instant, UnixMillis};
use crate::config::settings::WorkflowSettings;
use crate::contract::Contract;
use crate::ids::TenantId;
use crate::plan::explain::{Ask, AskError, Explanation, Judges, NoCall, explain as explained};
use crate::plan::{Plan, World};

use super::app::{App, random_u64};
use super::auth;
use super::issued::OfTenant;

/// Explains, as things stand now. State that the request carries is looked up as `tenant`'s; without one as that of the only tenant
/// there is, if there is one.
///
/// # Errors
/// When workflow, dialect, headers or request cannot be read.
pub fn explain(app: &App, ask: &Ask, tenant: Option<&str>) -> Result<Explanation, AskError> {
    let current = app.current();
    let now = UnixMillis::now();
    let mut tenants = current.settings.clients.iter().map(|client| &client.tenant);
    let only = tenants.next().filter(|first| tenants.all(|other| other == *first));
    let tenant = tenant
        .map(TenantId::new)
        .or_else(|| only.cloned())
        .unwrap_or_else(|| TenantId::new(auth::NOBODY_IN_PARTICULAR));
    let world = World {
        approvals: &current.settings.approvals,
        gate: &*app.board,
        now,
        at: Instant::now(),
        draw: random_u64(),
        issuers: &OfTenant::new(app.control.issuers(), &tenant, now),
    };
    let figures = |route: &_, contract: &Contract| need_and_cost(app, route, contract);
    explained(&current.settings, ask, &world, Judges { figures: &figures, no_call: &no_call })
}

fn need_and_cost(app: &App, route: &crate::config::settings::RouteSettings, contract: &Contract) -> (Duration, f64) {
    (app.observed.need(&route.name), cost::estimate(route, &contract.facts))
}

/// Why no provider would be called though the plan has routes, as the driver of an operation judges it when it begins: the attempts are
/// used up by layers above, or the first attempt alone costs too much.
pub fn no_call(
    plan: &Plan,
    workflow: &WorkflowSettings,
    contract: &Contract,
    needs: &[(Duration, f64)],
) -> Option<NoCall> {
    let budget = Budget::new(Instant::now(), contract.deadline(), contract.envelope, contract.attempts_used);
    let tried = vec![Tried::default(); plan.candidates.len()];
    let stop = control::begin(plan, &tried, &workflow.primary.name, &budget, needs).err()?;
    let refused = match stop {
        // The refusals say it, each by its own name.
        Stop::NoEligibleFallback => return None,
        Stop::CostExhausted => left_out::unaffordable(&budget, needs),
        _ => Vec::new(),
    };
    Some(NoCall { reason: stop.name(), refused })
}

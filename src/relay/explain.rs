//! The plan for a request that somebody only asks about, with what is closed in this process and what was seen of its routes:
//! `GET /admin/v1/explain`. The words are [`plan::explain`](crate::plan::explain)'s, as offline.

use crate::attempt::cost;
use crate::clock::{Instant, UnixMillis};
use crate::ids::TenantId;
use crate::plan::World;
use crate::plan::explain::{Ask, AskError, Explanation, explain as explained};

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
    explained(&current.settings, ask, &world, &|route, contract| {
        (app.observed.need(&route.name), cost::estimate(route, &contract.facts))
    })
}

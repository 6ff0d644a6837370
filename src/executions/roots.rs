//! The root of an operation that a claim names, and whether its plans ought to be there.
//!
//! What this process knows of the operation comes first, then what the ledger kept of its executions (an operation is forgotten after a
//! while, and a restart forgets them all); an operation that neither knows is its own root (SPEC section 8).

use rubicon_ledger::store::Filter;
use rubicon_ledger::{OperationId, Planning, RootId, TenantId};

use crate::clock::UnixMillis;
use crate::ids;
use crate::relay::app::App;

use super::answer::{Problem, aside};

/// How long after the start that followed a stop which may have lost plans a claim of an operation that nobody knows may be missing its plan: longer than agent runs last.
const PLANS_MISSED_MS: u64 = 24 * 60 * 60 * 1000;

/// The root of an operation.
pub(super) async fn root_of(app: &App, tenant: &TenantId, operation: &OperationId) -> Result<RootId, Problem> {
    let reader = app.ledger.reader();
    let filter = Filter { tenant: Some(tenant.clone()), operation: Some(operation.clone()), ..Filter::default() };
    let page = aside(move || reader.list(&filter, 1)).await?;
    Ok(page.records.into_iter().next().map_or_else(|| operation.clone().into(), |record| record.root))
}

/// Whether a plan ought to be there.
pub(super) fn planning(app: &App, tenant: &ids::TenantId, operation: Option<&OperationId>) -> Planning {
    let known = operation.and_then(|id| app.operations.get(tenant, &ids::OperationId::new(id.as_str())));
    if known.is_some() {
        return Planning::Complete;
    }
    let until = app.started_at.0.saturating_add(PLANS_MISSED_MS);
    let lost = app.ledger.unclean_stop().is_some() && UnixMillis::now().0 < until;
    if lost { Planning::MayBeLost } else { Planning::Complete }
}

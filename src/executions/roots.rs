//! The root of an operation that a claim names, and whether its plans ought to be there.
//!
//! What this process knows of the operation comes first, then what the ledger kept of its executions (an operation is forgotten after a
//! while, and a restart forgets them all); an operation that neither knows is its own root (SPEC section 8).

use rubicon_ledger::{Flag, OperationId, Planning, RootId};

use crate::clock::UnixMillis;
use crate::ids;
use crate::relay::app::App;
use crate::relay::roots;

use super::answer::{Problem, aside};

/// How long after a start that followed an unclean stop a claim of an operation that nobody knows may be missing its plan: longer than
/// agent runs last.
const PLANS_MISSED_MS: u64 = 24 * 60 * 60 * 1000;

/// The root of an operation, and the flags that its executions carry.
pub(super) async fn root_of(
    app: &App,
    tenant: &ids::TenantId,
    operation: &OperationId,
) -> Result<(RootId, Vec<Flag>), Problem> {
    let id = ids::OperationId::new(operation.as_str());
    if let Some(known) = app.operations.get(tenant, &id) {
        return Ok((known.root.id.clone(), known.root.flags()));
    }
    let (ledger, tenant) = (app.ledger.clone(), tenant.clone());
    let kept = aside(move || roots::kept(&ledger, &tenant, &id)).await?;
    Ok((kept.unwrap_or_else(|| operation.clone().into()), Vec::new()))
}

/// Whether a plan ought to be there.
pub(super) fn planning(app: &App, tenant: &ids::TenantId, operation: Option<&OperationId>) -> Planning {
    let known = operation.and_then(|id| app.operations.get(tenant, &ids::OperationId::new(id.as_str())));
    if let Some(known) = known {
        return known.planning();
    }
    let until = app.started_at.0.saturating_add(PLANS_MISSED_MS);
    let lost = app.ledger.unclean_stop().is_some() && UnixMillis::now().0 < until;
    if lost { Planning::MayBeLost } else { Planning::Complete }
}

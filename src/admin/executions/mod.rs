//! Executions on the admin side (SPEC section 9): lists, one with all that is known of it, and what a person may do about an unknown.
//!
//! In: requests of operators. Out: JSON, and changes of the ledger, each by the version that was seen and under the operator's name. The
//! ledger holds all rules; here are roles, bodies and words.

mod body;
mod bulk;
mod change;
mod filter;
mod gap;
mod list;
mod of_operation;
mod show;
mod suggest;
mod view;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::relay::app::App;

use super::answer::Problem;

pub(super) use of_operation::of_operation;

/// What who may look may do.
pub(super) fn viewer() -> Router<Arc<App>> {
    Router::new().route("/admin/v1/executions", get(list::list)).route("/admin/v1/executions/{key}", get(show::one))
}

/// What operators may do: find out, and say how it ended.
pub(super) fn operator() -> Router<Arc<App>> {
    Router::new()
        .route("/admin/v1/executions/{key}/resolve", post(change::resolve))
        .route("/admin/v1/executions/{key}/probe", post(change::probe))
        .route("/admin/v1/executions/{key}/notes", post(change::note))
        .route("/admin/v1/executions/{key}/assign", post(change::assign))
}

/// What approvers may do: let something run, agree as the second person, and many at once.
pub(super) fn approver() -> Router<Arc<App>> {
    Router::new()
        .route("/admin/v1/executions/{key}/confirm", post(change::confirm))
        .route("/admin/v1/executions/{key}/release", post(change::release))
        .route("/admin/v1/executions/{key}/confirm-claim", post(change::confirm_claim))
        .route("/admin/v1/executions/bulk", post(bulk::bulk))
        .route("/admin/v1/gap/end", post(gap::end))
}

//! The data plane's calls of the ledger (SPEC section 8): claim, heartbeat, completion, and a look at a record.
//!
//! In: requests with a client's key. Out: JSON, each decision of the ledger by its own status. `ask.rs` lets a request in and `body.rs`
//! reads it strictly; `claims.rs` makes a claim of it, `roots.rs` finds its root, `decision.rs` answers; `settle.rs` is the
//! owner's side of a run; `tools.rs` has the relay run a tool itself; `EXECUTIONS.md` tells every answer (`doc.rs` prints it).
//! Everything that is decided is decided by the ledger's machine: this room only asks and tells. Tenants never meet: whatever is
//! not a caller's own is 404, as if it had never been.

mod answer;
mod ask;
mod body;
mod calls;
mod claims;
mod decision;
#[cfg(test)]
mod doc;
mod prefer;
mod roots;
mod settle;
mod tools;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::relay::app::App;

/// The calls, to be merged into the data plane's router.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/executions", post(calls::claim))
        .route("/v1/executions/{key}", get(calls::execution))
        .route("/v1/executions/{key}/heartbeat", post(settle::heartbeat))
        .route("/v1/executions/{key}/complete", post(settle::complete))
        .route("/v1/tools/{tool}", post(tools::handle))
}

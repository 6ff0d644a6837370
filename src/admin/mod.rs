//! The admin side: what operators see and switch, on a listener of its own (SPEC section 9).
//!
//! In: requests with an operator's token, over loopback. Out: JSON; every change goes through the control store, which journals it.
//! Three groups of paths, one a role, each behind one [`auth::guard`]: no handler can forget to ask. A browser's page is
//! kept out by `Host` and `Origin` before anything else, and there are no CORS headers.
//!
//! Without an operator only `/metrics` (with `metrics_open`) and `/healthz` answer.

mod answer;
mod auth;
mod backup;
mod change;
mod executions;
mod explain;
mod failover;
mod journal;
mod ledger;
mod mirror;
mod operations;
mod query;
mod routes;
mod system;

use std::sync::Arc;

use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::Request;

use crate::config::settings::OperatorRole;
use crate::relay::app::App;

use answer::Problem;
use auth::Guard;
use mirror::Mirror;

/// The routes of the admin side.
pub fn router(app: Arc<App>) -> Router {
    let mirror = Mirror::default();
    let (at_start, started) = (mirror.clone(), Arc::clone(&app));
    // What the last life could not tell the ledger.
    app.tasks.spawn(async move { at_start.follow(&started).await });
    let guard = |role| Guard::new(Arc::clone(&app), role);
    let viewer = Router::new()
        .route("/admin/v1/routes", get(routes::list))
        .route("/admin/v1/routes/{route}", get(routes::one))
        .route("/admin/v1/failover", get(failover::show))
        .route("/admin/v1/operations", get(operations::list))
        .route("/admin/v1/operations/{id}", get(operations::one))
        .route("/admin/v1/journal", get(journal::entries))
        .route("/admin/v1/journal/head", get(journal::head))
        .route("/admin/v1/journal/verify", get(journal::verify))
        .route("/admin/v1/explain", get(explain::explain).post(explain::explain))
        .route("/admin/v1/config", get(system::config))
        .merge(executions::viewer())
        .route_layer(from_fn_with_state(guard(OperatorRole::Viewer), auth::guard));
    let operator = Router::new()
        .route("/admin/v1/routes/{route}/kill", post(routes::kill))
        .route("/admin/v1/failover/disable", post(failover::disable))
        .merge(executions::operator())
        .route_layer(from_fn_with_state(guard(OperatorRole::Operator), auth::guard));
    let approver = Router::new()
        .route("/admin/v1/routes/{route}/restore", post(routes::restore))
        .route("/admin/v1/failover/enable", post(failover::enable))
        .route("/admin/v1/ledger/backup", get(backup::backup))
        .merge(executions::approver())
        .route_layer(from_fn_with_state(guard(OperatorRole::Approver), auth::guard));
    let metrics = Router::new()
        .route("/metrics", get(system::metrics))
        .route_layer(from_fn_with_state(guard(OperatorRole::Viewer), auth::guard_metrics));
    viewer
        .merge(operator)
        .merge(approver)
        .merge(metrics)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(Extension(mirror))
        .layer(axum::middleware::from_fn(auth::loopback_only))
        .route("/healthz", get(system::healthz))
        .with_state(app)
}

async fn not_found(request: Request<axum::body::Body>) -> Problem {
    Problem::new(404, "not_found", format!("{} {} is not served here.", request.method(), request.uri().path()))
}

async fn method_not_allowed(request: Request<axum::body::Body>) -> Problem {
    let message = format!("{} is not allowed on {}.", request.method(), request.uri().path());
    Problem::new(405, "method_not_allowed", message)
}

/// What handlers answer with.
type Answer = Result<Response, Problem>;

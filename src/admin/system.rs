//! The process itself: alive, which configuration, how its numbers stand.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;
use http::header::HeaderValue;

use crate::relay::app::App;
use crate::telemetry::metrics::CONTENT_TYPE;

use super::Answer;
use super::answer::{harden, json};
use super::query::Query;

/// `GET /healthz`.
pub(super) async fn healthz() -> Response {
    json(&serde_json::json!({ "status": "ok" }))
}

/// `GET /admin/v1/config`.
pub(super) async fn config(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    Query::read(request.uri(), &[])?;
    let current = app.current();
    Ok(json(&serde_json::json!({
        "generation": current.generation,
        "loaded_at": current.loaded_at,
        "store_writable": app.control.is_writable(),
        "reload": app.reload_status(),
    })))
}

/// `GET /metrics`, in OpenMetrics' text format. What the control store and the gate know is asked now; all else is counted as
/// it happens.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let switches = app.control.switches();
    let metrics = app.telemetry.metrics();
    metrics.control(app.control.is_writable(), switches.failover_off.is_some(), app.control.issuers().dropped());
    let mut response = Response::new(Body::from(app.telemetry.render_metrics()));
    harden(response.headers_mut(), HeaderValue::from_static(CONTENT_TYPE));
    response
}

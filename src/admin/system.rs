//! The process itself: alive, which configuration, how its numbers stand.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Request;
use http::header::HeaderValue;

use crate::relay::app::App;

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

/// `GET /metrics`, in Prometheus' text format.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let switches = app.control.switches();
    let rows = [
        (
            "rubicon_control_store_writable",
            "gauge",
            "Whether switches can be saved: 0 after an IO of the control store failed.",
            u64::from(app.control.is_writable()),
        ),
        (
            "rubicon_routes_killed",
            "gauge",
            "Routes that operators killed.",
            u64::try_from(switches.killed.len()).unwrap_or(u64::MAX),
        ),
        ("rubicon_failover_disabled", "gauge", "Failover is switched off.", u64::from(switches.failover_off.is_some())),
        (
            "rubicon_issuers_dropped_total",
            "counter",
            "Rows of who issued which state that were not written to disk.",
            app.control.issuers().dropped(),
        ),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in rows {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"));
    }
    let mut response = Response::new(Body::from(text));
    harden(response.headers_mut(), HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    response
}

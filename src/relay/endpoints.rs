//! The data plane beside the generating calls: models, operations, health, and what is not served.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request, StatusCode};

use crate::ids::OperationId;
use crate::protocol::Dialect;

use super::app::App;
use super::auth::Caller;
use super::executions;
use super::intake::{Answer, Refusal, denied};
use super::operations::{Operation, Operations};

pub(super) fn json(status: StatusCode, value: &impl serde::Serialize) -> Answer {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(axum::body::Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `GET /v1/models`: the workflows this client may call, in OpenAI's list shape.
pub async fn models(State(app): State<Arc<App>>, request: Request<axum::body::Body>) -> Answer {
    let caller = match app.current().clients.find(request.headers(), request.uri()) {
        Ok(caller) => caller,
        Err(error) => return denied(error).into_response(Dialect::ChatCompletions),
    };
    let mut data = Vec::new();
    for workflow in &caller.workflows {
        let names: Vec<&str> = if workflow.models.is_empty() {
            vec![workflow.name.as_str()]
        } else {
            workflow.models.iter().map(String::as_str).collect()
        };
        for id in names {
            data.push(serde_json::json!({ "id": id, "object": "model", "created": 0, "owned_by": workflow.name }));
        }
    }
    json(StatusCode::OK, &serde_json::json!({ "object": "list", "data": data }))
}

pub(super) fn find_operation(
    app: &App,
    headers: &HeaderMap,
    uri: &http::Uri,
    id: Result<Path<String>, PathRejection>,
) -> Result<(Arc<Caller>, Arc<Operation>), Refusal> {
    let caller = app.current().clients.find(headers, uri).map_err(denied)?;
    // An id that is not UTF-8 was never given out.
    let id = id.map_or_else(|_| String::new(), |Path(id)| id);
    app.operations
        .get(&caller.tenant, &OperationId::new(&id))
        .map(|operation| (caller, operation))
        .ok_or_else(no_operation)
}

/// `GET /v1/operations/{id}`; also of one that only the ledger knows, from its executions.
pub async fn operation(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    request: Request<axum::body::Body>,
) -> Answer {
    let caller = match app.current().clients.find(request.headers(), request.uri()) {
        Ok(caller) => caller,
        Err(error) => return denied(error).into_response(Dialect::ChatCompletions),
    };
    // An id that is not UTF-8 was never given out.
    let id = OperationId::new(&id.map_or_else(|_| String::new(), |Path(id)| id));
    let shown = match app.operations.get(&caller.tenant, &id) {
        Some(operation) => Ok(Some(executions::known(&app, &operation, caller.show_routes).await)),
        None => executions::remembered(&app, &caller.tenant, &id).await,
    };
    match shown {
        Ok(Some(shown)) => json(StatusCode::OK, &shown),
        Ok(None) => no_operation().into_response(Dialect::ChatCompletions),
        Err(executions::Unreadable) => {
            let message = "The ledger cannot be read now: whether there is such an operation is not known.";
            Refusal::new(503, "ledger_unavailable", message).into_response(Dialect::ChatCompletions)
        }
    }
}

fn no_operation() -> Refusal {
    Refusal::new(404, "operation_not_found", "There is no such operation.")
}

/// `DELETE /v1/operations/{id}`: stop. An ended operation stays as it is.
pub async fn stop(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    request: Request<axum::body::Body>,
) -> Answer {
    match find_operation(&app, request.headers(), request.uri(), id) {
        Ok((caller, operation)) => {
            if Operations::stop(&operation) {
                tracing::info!(operation = %operation.id, "stop asked for");
            }
            json(StatusCode::OK, &executions::known(&app, &operation, caller.show_routes).await)
        }
        Err(refusal) => refusal.into_response(Dialect::ChatCompletions),
    }
}

/// What the specification has and this build has not: says so instead of looking like an unknown path. 404, because SDKs retry
/// every 5xx.
pub async fn not_built(request: Request<axum::body::Body>) -> Answer {
    let message = format!("{} is not built yet.", request.uri().path());
    Refusal::new(404, "not_built_yet", message).into_response(dialect_of(request.uri().path()))
}

/// `GET /healthz`.
pub async fn healthz() -> Answer {
    json(StatusCode::OK, &serde_json::json!({ "status": "ok" }))
}

/// `GET /readyz`: 503 as soon as a shutdown begins. A ledger that cannot write is told and nothing more: plain streams go on.
pub async fn readyz(State(app): State<Arc<App>>) -> Answer {
    if app.is_draining() {
        return json(StatusCode::SERVICE_UNAVAILABLE, &serde_json::json!({ "status": "shutting_down" }));
    }
    let ledger = if app.ledger.is_available() { "ok" } else { "unavailable" };
    json(StatusCode::OK, &serde_json::json!({ "status": "ok", "ledger": ledger }))
}

/// Whatever is not served.
pub async fn not_found(request: Request<axum::body::Body>) -> Answer {
    let message = format!("{} {} is not served here.", request.method(), request.uri().path());
    Refusal::new(404, "not_found", message).into_response(dialect_of(request.uri().path()))
}

/// A path that is served, by another method.
pub async fn method_not_allowed(request: Request<axum::body::Body>) -> Answer {
    let message = format!("{} is not allowed on {}.", request.method(), request.uri().path());
    Refusal::new(405, "method_not_allowed", message).into_response(dialect_of(request.uri().path()))
}

/// Whose errors are written for a path that no dialect's call is behind.
pub(super) fn dialect_of(path: &str) -> Dialect {
    match path {
        _ if path.starts_with("/v1/messages") => Dialect::AnthropicMessages,
        _ if path.starts_with("/v1/responses") => Dialect::Responses,
        _ => Dialect::ChatCompletions,
    }
}

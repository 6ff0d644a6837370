//! Operations of all tenants: their attempts with route names, never their content.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::Request;
use serde::Serialize;

use crate::ids::{OperationId, TenantId};
use crate::relay::app::App;
use crate::relay::executions::fill;
use crate::relay::operations::{Operation, State as OperationState, View as OperationView};
use crate::tool::object::Short;

use super::Answer;
use super::answer::{Problem, json};
use super::executions::of_operation;
use super::query::Query;

/// An operation as shown here.
#[derive(Serialize)]
struct View {
    tenant: TenantId,
    #[serde(flatten)]
    known: OperationView,
}

impl View {
    fn new(operation: &Operation) -> Self {
        Self { tenant: operation.tenant.clone(), known: operation.view() }
    }
}

/// `GET /admin/v1/operations?state=&workflow=&limit=&cursor=`: oldest first.
pub(super) async fn list(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    let query = Query::read(request.uri(), &["state", "workflow", "tenant", "limit", "cursor"])?;
    let (limit, after) = (query.limit()?, query.number("cursor")?.unwrap_or(0));
    let state = match query.get("state") {
        None => None,
        Some(name) => {
            let all = OperationState::ALL;
            let found = all.iter().find(|state| state.name() == name);
            let names = || all.iter().map(|state| state.name()).collect::<Vec<_>>().join(", ");
            let wrong = || Problem::new(400, "invalid_query", format!("`state` is one of {}.", names()));
            Some(*found.ok_or_else(wrong)?)
        }
    };
    let fits = |view: &View| {
        state.is_none_or(|state| view.known.state == state)
            && query.get("workflow").is_none_or(|workflow| view.known.workflow.as_str() == workflow)
            && query.get("tenant").is_none_or(|tenant| view.tenant.as_str() == tenant)
    };
    let mut operations = Vec::new();
    let mut next = None;
    let mut last = after;
    for (number, operation) in app.operations.after(after) {
        let view = View::new(&operation);
        if !fits(&view) {
            continue;
        }
        if operations.len() == limit {
            next = Some(last.to_string());
            break;
        }
        last = number;
        operations.push(view);
    }
    Ok(json(&serde_json::json!({ "operations": operations, "next_cursor": next })))
}

/// `GET /admin/v1/operations/{id}?tenant=`. Tenants choose their ids, so two may have chosen one.
pub(super) async fn one(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    let query = Query::read(request.uri(), &["tenant"])?;
    let id = OperationId::new(&path.map(|Path(id)| id).unwrap_or_default());
    let mut found = app.operations.of_all_tenants(&id);
    found.retain(|operation| query.get("tenant").is_none_or(|tenant| operation.tenant.as_str() == tenant));
    match found.as_slice() {
        [] => remembered(&app, query.get("tenant"), &id).await,
        [operation] => {
            let mut view = View::new(operation);
            let executions = of_operation(&app, Some(operation.tenant.as_str()), id.as_str()).await?;
            fill(&mut view.known, &executions);
            Ok(json(&view))
        }
        several => {
            let tenants: Vec<&str> = several.iter().map(|operation| operation.tenant.as_str()).collect();
            let message =
                format!("Several tenants have an operation of this id: add ?tenant= ({}).", tenants.join(", "));
            Err(Problem::new(409, "operation_ambiguous", message))
        }
    }
}

/// The ledger remembers longer than the table of operations, and knows those that only tools named.
async fn remembered(app: &App, tenant: Option<&str>, id: &OperationId) -> Answer {
    let executions = of_operation(app, tenant, id.as_str()).await?;
    if executions.is_empty() {
        return Err(Problem::new(404, "operation_not_found", "There is no such operation."));
    }
    let executions: Vec<_> = executions
        .iter()
        .map(|record| Remembered { tenant: record.tenant.as_str(), execution: Short::new(record) })
        .collect();
    Ok(json(&serde_json::json!({ "operation_id": id, "state": "none", "executions": executions })))
}

/// An execution of an operation that is not known otherwise; tenants choose ids, so it says whose it is.
#[derive(Serialize)]
struct Remembered<'r> {
    tenant: &'r str,
    #[serde(flatten)]
    execution: Short,
}

//! `GET /admin/v1/explain?workflow=`: which routes the living process would ask, in what order, and why not the others.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::Request;

use crate::ids::WorkflowId;
use crate::relay::app::App;

use super::Answer;
use super::answer::Problem;
use super::query::Query;

/// The plan of a workflow at this moment.
pub(super) async fn explain(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    let query = Query::read(request.uri(), &["workflow"])?;
    let current = app.current();
    let missing = || Problem::new(400, "workflow_missing", "Say which: ?workflow=NAME.");
    let name = WorkflowId::new(query.get("workflow").ok_or_else(missing)?);
    if !current.settings.workflows.contains_key(&name) {
        return Err(Problem::new(404, "workflow_not_found", "There is no such workflow."));
    }
    Err(Problem::new(404, "not_built_yet", "explain is not built yet."))
}

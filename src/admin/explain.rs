//! `GET /admin/v1/explain?workflow=&dialect=&header=`: which routes the living process would ask, in what order, and why not the others.
//!
//! The request that is asked about is the body of the `GET` (it may be as long as on the data plane), or `request=` in the query;
//! without one, the smallest request of the dialect. `header` holds request headers, `Name: value`, one a line. The answer is
//! [`plan::explain`](crate::plan::explain)'s, as `rubicon explain` prints it offline.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use bytes::Bytes;
use http::Request;

use crate::plan::explain::Ask;
use crate::relay::app::App;
use crate::relay::explain::explain as explained;

use super::Answer;
use super::answer::{Problem, json};
use super::change::read_body;
use super::query::Query;

/// The plan of a workflow at this moment.
pub(super) async fn explain(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    let (parts, body) = request.into_parts();
    let query = Query::read(&parts.uri, &["workflow", "dialect", "header", "request"])?;
    let max = app.current().settings.server.max_body_bytes;
    let body = read_body(body, max, parts.extensions.get()).await?;
    let text = |name| query.get(name).map(str::to_owned);
    let ask = Ask {
        workflow: text("workflow"),
        dialect: text("dialect"),
        headers: query.get("header").unwrap_or_default().lines().map(str::to_owned).collect(),
        request: if body.is_empty() { text("request").map(Bytes::from) } else { Some(body) },
    };
    let explanation = explained(&app, &ask).map_err(|error| match error.code {
        "unknown_workflow" => Problem::new(404, "workflow_not_found", error.message),
        code => Problem::new(400, code, error.message),
    })?;
    Ok(json(&explanation))
}

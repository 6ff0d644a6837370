//! `GET /admin/v1/explain?workflow=&dialect=&header=`: which routes this process would ask for a request, in what order, and why not
//! the others, in the words of `rubicon explain`. The request, if it is to be a certain one, is the body (with `POST` for clients that
//! send none with `GET`; neither changes anything). What it holds is never shown.

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

/// The plan for a request at this moment.
pub(super) async fn explain(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    let query = Query::read_with(request.uri(), &["workflow", "dialect", "request", "tenant"], &["header"])?;
    let (parts, body) = request.into_parts();
    let max = app.current().settings.server.max_body_bytes;
    let body = read_body(body, parts.extensions.get(), max).await?;
    let ask = Ask {
        workflow: query.get("workflow").map(str::to_owned),
        dialect: query.get("dialect").map(str::to_owned),
        headers: query.all("header").flat_map(str::lines).map(str::to_owned).collect(),
        request: if body.is_empty() {
            query.get("request").map(|text| Bytes::from(text.to_owned()))
        } else {
            Some(body)
        },
    };
    let explanation = explained(&app, &ask, query.get("tenant"));
    explanation.map(|explanation| json(&explanation)).map_err(|error| Problem::new(400, error.code, error.message))
}

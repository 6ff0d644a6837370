//! The gap of a restored backup: what ran between the backup and its restoring is not in the ledger, so no write runs by itself until
//! an approver says that it is known.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::Request;
use rubicon_ledger::{Command, Reply};
use serde_json::json;

use crate::relay::app::App;
use crate::relay::secrets::masked;

use super::super::Answer;
use super::super::answer::{Problem, json as answer};
use super::super::auth::Operator;
use super::super::change::{read_body, reason};
use super::super::ledger;
use super::super::query::Query;
use super::body::Members;

/// A reason and nothing else.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// `POST /admin/v1/gap/end {reason}`. It has no version: to end what has ended already changes nothing.
pub(super) async fn end(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    Query::read(request.uri(), &[])?;
    let (parts, body) = request.into_parts();
    let operator = parts.extensions.get::<Operator>().cloned();
    let operator = operator.ok_or_else(|| Problem::new(401, "missing_token", "No operator."))?;
    let body = read_body(body, parts.extensions.get(), BODY_BYTES_MAX).await?;
    let said = Members::read(&body, &["reason"])?.text("reason")?.unwrap_or_default();
    let reason = masked(&app.current().settings, &reason(&said)?);
    let command = Command::Gap { open: false, by: Arc::from(operator.name), reason: Arc::from(reason) };
    let ended = ledger::of(&app).submit(command).await.map_err(|error| ledger::unavailable(&error))?;
    let Reply::Noted(head) = ended else {
        return Err(Problem::new(500, "internal", "The ledger answered something else."));
    };
    Ok(answer(&json!({ "gap": "ended", "head": head })))
}

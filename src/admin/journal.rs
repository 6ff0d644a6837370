//! The journal: its entries, its end, and whether its chain holds. Read from the disk, on threads that may block.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::Request;
use tokio::task::spawn_blocking;

use crate::control::Control;
use crate::control::store::Failed;
use crate::relay::app::App;

use super::Answer;
use super::answer::{Problem, json};
use super::query::Query;

/// Hex digits of a head's hash.
const HASH_DIGITS: usize = 64;

async fn read<T: Send + 'static>(
    app: Arc<App>,
    read: impl FnOnce(&Control) -> Result<T, Failed> + Send + 'static,
) -> Result<T, Problem> {
    match spawn_blocking(move || read(&app.control)).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            tracing::error!(%error, "the journal cannot be read");
            Err(Problem::store_unavailable("The journal cannot be read; the log says why."))
        }
        Err(_) => Err(Problem::store_unavailable("The journal could not be read.")),
    }
}

/// `GET /admin/v1/journal?from=&limit=`: oldest first; `from` is a sequence number, and so is `next_cursor`.
pub(super) async fn entries(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    let query = Query::read(request.uri(), &["from", "cursor", "limit"])?;
    let from = query.number("cursor")?.or(query.number("from")?).unwrap_or(1);
    let limit = query.limit()?;
    let mut entries = read(app, move |control| control.entries(from, limit.saturating_add(1))).await?;
    let next = (entries.len() > limit).then(|| entries.pop()).flatten().map(|entry| entry.sequence.to_string());
    Ok(json(&serde_json::json!({ "entries": entries, "next_cursor": next })))
}

/// `GET /admin/v1/journal/head`: keep it elsewhere, and `verify?head=` finds a tail that was cut off.
pub(super) async fn head(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    Query::read(request.uri(), &[])?;
    Ok(json(&read(app, Control::head).await?))
}

/// `GET /admin/v1/journal/verify?head=`.
pub(super) async fn verify(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    let query = Query::read(request.uri(), &["head"])?;
    let wanted = query.get("head").map(str::to_ascii_lowercase);
    let is_hash = |text: &String| text.len() == HASH_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if wanted.as_ref().is_some_and(|text| !is_hash(text)) {
        return Err(Problem::new(400, "invalid_query", "`head` is the hash of a head: 64 hex digits."));
    }
    Ok(json(&read(app, move |control| control.verify(wanted)).await?))
}

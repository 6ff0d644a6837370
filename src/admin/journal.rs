//! The journal: its entries, its end, and whether its chain holds. Read from the disk, on threads that may block.
//!
//! It is the ledger's: every transition of an execution, and operators' switches repeated as remarks. The control store keeps the
//! switches in a journal of its own as well, so that a kill never waits for the ledger; `verify` walks along both.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use http::Request;
use rubicon_ledger::store::Verdict;
use serde::Serialize;
use tokio::task::spawn_blocking;

use crate::control;
use crate::relay::app::App;

use super::Answer;
use super::answer::{Problem, json};
use super::ledger;
use super::mirror::Mirror;
use super::query::Query;

/// Hex digits of a head's hash.
const HASH_DIGITS: usize = 64;

/// `GET /admin/v1/journal?from=&limit=`: oldest first; `from` is a sequence number, and so is `next_cursor`.
pub(super) async fn entries(
    State(app): State<Arc<App>>,
    Extension(mirror): Extension<Mirror>,
    request: Request<Body>,
) -> Answer {
    let query = Query::read(request.uri(), &["from", "cursor", "limit"])?;
    let from = query.number("cursor")?.or(query.number("from")?).unwrap_or(1).max(1);
    let limit = query.limit()?;
    mirror.follow(&app).await;
    let mut entries = ledger::read(&app, move |reader| reader.entries(from, limit.saturating_add(1))).await?;
    let next = (entries.len() > limit).then(|| entries.pop()).flatten().map(|entry| entry.sequence.to_string());
    Ok(json(&serde_json::json!({ "entries": entries, "next_cursor": next })))
}

/// `GET /admin/v1/journal/head`: keep it elsewhere, and `verify?head=` finds a tail that was cut off.
pub(super) async fn head(
    State(app): State<Arc<App>>,
    Extension(mirror): Extension<Mirror>,
    request: Request<Body>,
) -> Answer {
    Query::read(request.uri(), &[])?;
    mirror.follow(&app).await;
    Ok(json(&ledger::read(&app, |reader| reader.head()).await?))
}

/// What the walk along both journals found.
#[derive(Debug, Serialize)]
struct Verified {
    #[serde(flatten)]
    ledger: Verdict,
    /// The control store's own journal.
    control: control::journal::Verdict,
}

/// `GET /admin/v1/journal/verify?head=`.
pub(super) async fn verify(
    State(app): State<Arc<App>>,
    Extension(mirror): Extension<Mirror>,
    request: Request<Body>,
) -> Answer {
    let query = Query::read(request.uri(), &["head"])?;
    // An empty one is a script's variable that was not set: it must not pass for a tail that was looked at.
    let wanted = query.all("head").next().map(str::to_ascii_lowercase);
    let is_hash = |text: &String| text.len() == HASH_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if wanted.as_ref().is_some_and(|text| !is_hash(text)) {
        return Err(Problem::new(400, "invalid_query", "`head` is the hash of a head: 64 hex digits."));
    }
    mirror.follow(&app).await;
    let mut verdict = ledger::read(&app, move |reader| reader.verify(wanted.as_deref())).await?;
    let asked = Arc::clone(&app);
    let control = match spawn_blocking(move || asked.control.verify(None)).await {
        Ok(Ok(control)) => control,
        Ok(Err(error)) => {
            tracing::error!(%error, "the control store's journal cannot be read");
            return Err(Problem::store_unavailable("The control store's journal cannot be read; the log says why."));
        }
        Err(_) => return Err(Problem::store_unavailable("The control store's journal could not be read.")),
    };
    verdict.ok &= control.ok;
    Ok(json(&Verified { ledger: verdict, control }))
}

//! Lists of executions: light rows, oldest first, a page at a time.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::Request;
use rubicon_ledger::store::{Filter, Reader, StoreError};
use rubicon_ledger::{Record, UnixMillis};
use serde_json::{Map, Value, json};

use crate::clock;
use crate::config::settings::Settings;
use crate::relay::app::App;

use super::super::Answer;
use super::super::answer::json as answer;
use super::super::ledger;
use super::super::query::Query;
use super::filter::{NAMES, filter};
use super::view;

/// Records that are in memory at once: each may hold a result of 8 MiB, of which a row shows nothing.
const AT_ONCE: usize = 32;

/// What was found, and where to go on.
pub(super) type Found<T> = (Vec<T>, Option<u64>);

/// Walks along what fits, at most `limit` records, and gives what `row` makes of each; and where to go on. A rare filter over many records
/// makes the store give up a page early (`SCAN_MAX` of `rubicon_ledger::store`): it is asked to go on `scans` times.
pub(super) fn walk<T>(
    reader: &dyn Reader,
    mut filter: Filter,
    limit: usize,
    mut scans: usize,
    mut row: impl FnMut(Record) -> T,
) -> Result<Found<T>, StoreError> {
    let mut rows = Vec::new();
    loop {
        let asked = AT_ONCE.min(limit - rows.len());
        let page = reader.list(&filter, asked)?;
        let short = page.records.len() < asked;
        rows.extend(page.records.into_iter().map(&mut row));
        let Some(next) = page.next else { return Ok((rows, None)) };
        if rows.len() >= limit || (short && scans == 0) {
            return Ok((rows, Some(next)));
        }
        scans -= usize::from(short);
        filter.after = next;
    }
}

/// Pages that a list lets the store give up early before it answers with what there is.
const SCANS: usize = 4;

/// The rows of the executions that fit.
fn rows(
    reader: &dyn Reader,
    filter: Filter,
    limit: usize,
    settings: &Settings,
    now: UnixMillis,
) -> Result<Found<Map<String, Value>>, StoreError> {
    walk(reader, filter, limit, SCANS, |record| view::row(&record, settings, now))
}

/// Now, as the ledger counts.
pub(super) fn now() -> UnixMillis {
    UnixMillis(clock::UnixMillis::now().0)
}

/// `GET /admin/v1/executions?state=&tool=&operation=&root=&tenant=&owner=&older_than=&cursor=&limit=`.
pub(super) async fn list(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    let known = [&NAMES[..], &["cursor", "limit"]].concat();
    let query = Query::read(request.uri(), &known)?;
    let (limit, now) = (query.limit()?, now());
    let mut filter = filter(|name| query.get(name), now)?;
    filter.after = query.number("cursor")?.unwrap_or_default();
    let current = app.current();
    let found = ledger::read(&app, move |reader| rows(reader, filter, limit, &current.settings, now)).await;
    let (executions, next) = found?;
    Ok(answer(&json!({ "executions": executions, "next_cursor": next.map(|next| next.to_string()) })))
}

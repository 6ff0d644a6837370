//! One execution with all that is known of it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::Request;
use rubicon_ledger::store::{Filter, Reader, StoreError};
use rubicon_ledger::{Canonical, ExecutionKey, Record, UnixMillis, differs};

use crate::config::settings::Settings;
use crate::relay::app::App;
use crate::tool::object::HISTORY_MAX;

use super::super::Answer;
use super::super::answer::{etag, tagged};
use super::super::ledger;
use super::super::query::Query;
use super::list::{now, walk};
use super::view::{Shown, Similar, key, row, whole};

/// Executions of the same root and tool that are looked at, and that are shown.
const LOOKED_AT_MAX: usize = 1000;
const SIMILAR_MAX: usize = 20;

/// The execution of a path.
pub(super) fn named(path: Result<Path<String>, PathRejection>) -> Result<ExecutionKey, super::Problem> {
    path.ok().and_then(|Path(text)| key(&text)).ok_or_else(ledger::not_found)
}

/// Others of the same root and tool: of the oldest 1000 the newest 20.
fn similar(
    reader: &dyn Reader,
    record: &Record,
    settings: &Settings,
    now: UnixMillis,
) -> Result<Vec<Similar>, StoreError> {
    let filter = Filter {
        tenant: Some(record.tenant.clone()),
        root: Some(record.root.clone()),
        tool: Some(record.tool.clone()),
        ..Filter::default()
    };
    let own = words(record);
    let (found, _) = walk(reader, filter, LOOKED_AT_MAX, 0, |other| {
        (other.key != record.key).then(|| {
            let pointers = own.as_ref().zip(words(&other)).map(|(own, other)| differs(own, &other).pointers);
            let differs = pointers.map(|pointers| pointers.iter().map(ToString::to_string).collect());
            Similar { row: row(&other, settings, now), differs }
        })
    })?;
    let mut found: Vec<Similar> = found.into_iter().flatten().collect();
    found.drain(..found.len().saturating_sub(SIMILAR_MAX));
    Ok(found)
}

fn words(record: &Record) -> Option<Canonical> {
    Canonical::parse(record.arguments.as_deref()?.as_bytes()).ok()
}

/// `GET /admin/v1/executions/{key}`.
pub(super) async fn one(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    Query::read(request.uri(), &[])?;
    let (key, now, current) = (named(path)?, now(), app.current());
    let found = ledger::read(&app, move |reader| {
        let Some(record) = reader.record(&key)? else { return Ok(None) };
        let (history, evidence) = (reader.history(&key, HISTORY_MAX)?, reader.evidence(&key)?);
        let settings = &current.settings;
        let similar = similar(reader, &record, settings, now)?;
        let version = record.version;
        let shown = Shown::new(record, evidence, settings);
        Ok(Some((version, whole(&shown, Some(&history), Some(similar), None, settings, now))))
    });
    let (version, body) = found.await?.ok_or_else(ledger::not_found)?;
    Ok(tagged(&body, &etag(version)))
}

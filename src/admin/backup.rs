//! `GET /admin/v1/ledger/backup`: a copy of the ledger as of one moment, as one download, while executions go on.
//!
//! The copy is made beside the ledger, under a name of its own that is gone once it was opened for reading: whatever happens to the
//! download, nothing stays behind. One at a time: each holds old pages of the ledger as long as it is made.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, HeaderName, HeaderValue};
use rubicon_ledger::Head;
use rubicon_ledger::store::{Reader, StoreError};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::config::settings::StoreSettings;
use crate::relay::app::{App, random_id};

use super::Answer;
use super::answer::{Problem, harden};
use super::ledger;
use super::query::Query;

/// Copies that are made at once.
static MAKING: Semaphore = Semaphore::const_new(1);

/// What is read of the copy at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// Makes the copy and opens it; its name is gone then.
fn made(reader: &dyn Reader, path: &PathBuf) -> Result<(File, u64, Head), StoreError> {
    let head = reader.backup(path)?;
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let removed = std::fs::remove_file(path);
    let io = |error: std::io::Error| StoreError::Io(error.to_string());
    let (bytes, file) = opened.map_err(io)?;
    removed.map_err(io)?;
    Ok((file, bytes, head))
}

/// `GET /admin/v1/ledger/backup`. `Rubicon-Journal-Head` is the hash that `verify --head` must find in the copy.
pub(super) async fn backup(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    Query::read(request.uri(), &[])?;
    let StoreSettings::Redb(store) = &app.current().settings.server.store else {
        let message = "This relay keeps its ledger in memory only: there is nothing to back up.";
        return Err(Problem::new(409, "nothing_kept", message));
    };
    let busy = |_| Problem::new(503, "too_busy", "A backup is being made; try again when it is done.");
    let permit = MAKING.try_acquire().map_err(busy)?;
    let random = random_id().map_err(|_| Problem::store_unavailable("The system has no randomness for a name."))?;
    let mut name = store.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{random:032x}.backup"));
    let (path, reader) = (store.with_file_name(name), ledger::of(&app).reader());
    let made = spawn_blocking(move || {
        // Whoever asked may have gone: the copy is made to its end all the same, and only then the next one.
        let _permit = permit;
        made(&*reader, &path)
    });
    let (file, bytes, head) = match made.await {
        Ok(Ok(made)) => made,
        Ok(Err(error)) => {
            tracing::error!(%error, "a backup of the ledger could not be made");
            return Err(Problem::store_unavailable("The backup could not be made; the log says why."));
        }
        Err(_) => return Err(Problem::store_unavailable("The backup could not be made.")),
    };
    let chunks = stream::unfold(Some(file), async |file| {
        let mut file = file?;
        let read = spawn_blocking(move || {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            let limit = u64::try_from(CHUNK_BYTES).unwrap_or(u64::MAX);
            let read = file.by_ref().take(limit).read_to_end(&mut chunk);
            (file, read.map(|_| Bytes::from(chunk)))
        });
        match read.await {
            Ok((file, Ok(chunk))) if !chunk.is_empty() => Some((Ok(chunk), Some(file))),
            Ok((_, Ok(_))) => None,
            // The length was told: whoever reads notices that it is cut.
            Ok((_, Err(error))) => Some((Err(error), None)),
            Err(error) => Some((Err(std::io::Error::other(error)), None)),
        }
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    harden(headers, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"rubicon.redb\""));
    if let Ok(hash) = HeaderValue::from_str(&head.hash) {
        headers.insert(HeaderName::from_static("rubicon-journal-head"), hash);
    }
    Ok(response)
}

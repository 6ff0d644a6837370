//! `POST /v1/tools/{tool}`: the relay runs the tool's endpoint itself, in a task that no client stops.
//!
//! In: a claim without a lease of its own. Out: the tool's own answer (status, content type, bytes, as they are on disk) where it succeeded or
//! ended in an error of its own; else the ledger's decision, as a claim would get it. A caller waits as long as the tool may take, or as
//! long as it prefers; one that leaves stops nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as HttpBody;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Request, StatusCode};
use rubicon_ledger::{Claimed, Failure, Owner, Record, State as ExecutionState, ToolResult, Unavailable};

use crate::config::settings::ToolSettings;
use crate::relay::app::App;
use crate::relay::intake::Answer;
use crate::tool::answer::Stored;
use crate::tool::run::{Call, Came};

use super::answer::{Answered, Problem, REPLAYED, SOON_S, given};
use super::ask::Asked;
use super::body::Body;
use super::calls::{CLAIM_BYTES_MAX, gone};
use super::claims;
use super::decision::{self, EXECUTION_KEY, key_header};
use super::prefer;

const MEMBERS: [&str; 7] = ["operation_id", "root", "arguments", "occurrence", "tool_call_id", "claim_id", "confirm"];

/// Beyond the tool's own time: until the outcome is on disk.
const STORED_BY: Duration = Duration::from_secs(10);

/// A tool's answer is data of another system: no browser may take it for a page of ours.
const NO_SNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// `POST /v1/tools/{tool}`.
pub(super) async fn run(
    State(app): State<Arc<App>>,
    tool: Result<Path<String>, PathRejection>,
    request: Request<HttpBody>,
) -> Answer {
    given(ran(&app, tool, request).await)
}

async fn ran(app: &App, tool: Result<Path<String>, PathRejection>, request: Request<HttpBody>) -> Answered {
    let asked = Asked::new(app, request, CLAIM_BYTES_MAX).await?;
    let name = tool.map_or_else(|_| String::new(), |Path(name)| name);
    let tool = claims::tool(&asked.current.settings, &asked.caller, &name)?;
    let call = {
        let body = Body::read(&asked.body, &MEMBERS)?;
        // Owner and lease are the runner's to set.
        let owner = Owner::Own { boot: app.boot };
        let claim = claims::read(app, &asked.caller, &asked.headers, &body, &tool, owner, claims::LEASE_MS).await?;
        let written = body.written("arguments").map_or("{}", |raw| raw.get());
        Call { claim, tool: Arc::clone(&tool), arguments: Bytes::copy_from_slice(written.as_bytes()) }
    };
    let patience = prefer::wait(&asked.headers).unwrap_or_else(|| tool.timeout.saturating_add(STORED_BY));
    let coming = app.runner.call(call, patience);
    let came = match &asked.transport {
        None => coming.await,
        Some(transport) => transport.while_there(coming).await.ok_or_else(gone)?,
    };
    let answer = given(answer(app, &tool, came).await);
    Ok(asked.hold(answer))
}

async fn answer(app: &App, tool: &ToolSettings, came: Came) -> Answered {
    match came {
        Came::Ran { record, replayed } => match record.state {
            ExecutionState::Unknown => Err(decision::refusal(app, Claimed::Reconcile(record)).await),
            ExecutionState::Started | ExecutionState::Planned => {
                Err(decision::refusal(app, Claimed::InProgress(record)).await)
            }
            ExecutionState::Succeeded | ExecutionState::Failed => ended(app, tool, record, replayed).await,
        },
        Came::Decided(Claimed::UseResult(record)) => ended(app, tool, record, true).await,
        Came::Decided(Claimed::Stop(record)) if record.failure == Some(Failure::ExecutedError) => {
            ended(app, tool, record, true).await
        }
        Came::Decided(claimed) => decision::answer(app, claimed).await,
        Came::NotRecorded(key) => {
            let message = "The tool was called, and its outcome could not be recorded yet: nobody is told what it was until it is. \
                           Ask again with the same call.";
            let problem = Problem::new(503, "ledger_unavailable", message).retry_after(SOON_S);
            let key = HeaderValue::from_str(&key.to_string()).unwrap_or_else(|_| HeaderValue::from_static(""));
            Err(problem.header(EXECUTION_KEY, key))
        }
        Came::TooManyWait(_) => Err(claims::too_many()),
        Came::TooManyRun => {
            let message = "As many tools run as may; nothing was claimed.";
            Err(Problem::new(503, "too_many_runs", message).retry_after(SOON_S))
        }
        Came::NotRunnable => {
            let message =
                "The relay has no `endpoint` for this tool: claim it with POST /v1/executions and run it yourself.";
            Err(Problem::new(400, "tool_not_runnable", message).param("tool"))
        }
        Came::Unavailable(Unavailable::Busy) => Err(Problem::unavailable(&Unavailable::Busy)),
        Came::Unavailable(error) => Err(Problem::unavailable(&error)),
    }
}

/// The answer of one that ended: the stored bytes, where the tool answered and had run.
async fn ended(app: &App, tool: &ToolSettings, record: Box<Record>, replayed: bool) -> Answered {
    let failed = record.failure;
    if failed == Some(Failure::NotExecuted) {
        return Err(not_executed(app, tool, record).await);
    }
    let result = record.settlement.as_ref().and_then(|settled| settled.result.clone());
    match (result, failed) {
        (Some(ToolResult { status: Some(status), content_type, body }), _) => {
            Ok(stored(status, content_type.as_deref(), &body, &record, replayed))
        }
        // A person or a probe said how it ended, and with what.
        (Some(ToolResult { status: None, content_type, body }), None) => {
            Ok(stored(200, content_type.as_deref(), &body, &record, replayed))
        }
        (_, None) => decision::answer(app, Claimed::UseResult(record)).await,
        (_, Some(_)) => Err(decision::refusal(app, Claimed::Stop(record)).await),
    }
}

/// Proved: it had no effect. The next call may run it, unless its runs are spent.
async fn not_executed(app: &App, tool: &ToolSettings, record: Box<Record>) -> Problem {
    if record.needs_release || record.runs >= tool.rule.max_runs {
        return decision::refusal(app, Claimed::Stop(record)).await;
    }
    let message = "The call did not execute; the same call may be made again.";
    Problem::new(409, "not_executed", message)
        .retry_after(SOON_S)
        .with("decision", &"not_executed")
        .with("execution", &decision::object(app, &record).await)
        .version(record.version)
        .header(EXECUTION_KEY, key_header(&record))
}

fn stored(status: u16, content_type: Option<&str>, body: &[u8], record: &Record, replayed: bool) -> Answer {
    let mut response = Response::new(HttpBody::new(Stored::new(Bytes::copy_from_slice(body))));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    if let Some(value) = content_type.and_then(|value| HeaderValue::from_str(value).ok()) {
        headers.insert(CONTENT_TYPE, value);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(NO_SNIFF, HeaderValue::from_static("nosniff"));
    headers.insert(EXECUTION_KEY, key_header(record));
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

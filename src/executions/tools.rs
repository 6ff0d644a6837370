//! `POST /v1/tools/{tool}`: the relay runs the tool's HTTP endpoint itself.
//!
//! In: a claim without `tool` and lease. Out: the tool's own status, type and bytes, once they are on disk; or the decision that there is
//! instead. Everything that may be refused is refused before anything is claimed. The run is the ledger's ([`Runner`]): this handler waits
//! for it and may leave. A twin that runs is waited for without `Prefer: wait`, since a caller of a slow tool waits anyhow.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as HttpBody;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Request, StatusCode};
use rubicon_ledger::{Claimed, Failure, Owner, Record, State as Stands};

use crate::relay::app::App;
use crate::relay::intake::Answer;
use crate::telemetry::executions;
use crate::tool::answer::Stored;
use crate::tool::run::{self, Call, Came, LEASE_MARGIN};

use super::answer::{Answered, Problem, REPLAYED, SHOULD_RETRY, SOON_S, given};
use super::ask::Asked;
use super::body::Body;
use super::decision::{self, EXECUTION_KEY, key_header};
use super::{claims, prefer};

/// A claim: arguments of at most a mebibyte as they are written, and names.
pub(super) const CALL_BYTES_MAX: usize = 2 << 20;

/// No `claim_id`: the same one gets the same right to run again, which is for owners who lost an answer. The relay never does.
pub(super) const MEMBERS: [&str; 6] = ["operation_id", "root", "arguments", "occurrence", "tool_call_id", "confirm"];

/// The claim's lease is the runner's to say; this stands until then.
const LEASE_MS: u64 = claims::LEASE_MS;

/// `POST /v1/tools/{tool}`.
pub(super) async fn handle(
    State(app): State<Arc<App>>,
    tool: Result<Path<String>, PathRejection>,
    request: Request<HttpBody>,
) -> Answer {
    given(ran(&app, tool, request).await)
}

async fn ran(app: &App, tool: Result<Path<String>, PathRejection>, request: Request<HttpBody>) -> Answered {
    let asked = Asked::new(app, request, CALL_BYTES_MAX).await?;
    // A name that is not UTF-8 is no tool's.
    let name = tool.map_or_else(|_| String::new(), |Path(name)| name);
    let (call, patience) = {
        let body = Body::read(&asked.body, &MEMBERS)?;
        let tool = claims::tool(&asked.current.settings, &asked.caller, &name)?;
        if tool.endpoint.is_none() {
            let message = "The tool has no `endpoint` in the configuration: claim it and run it yourself.";
            return Err(Problem::new(400, "tool_not_runnable", message).param("tool"));
        }
        let owner = Owner::Own { boot: app.boot };
        let claim = claims::read(app, &asked.caller, &asked.headers, &body, &tool, owner, LEASE_MS).await?;
        let written = body.written("arguments").map_or("", |raw| raw.get());
        let longest = tool.timeout.saturating_add(LEASE_MARGIN);
        let patience = prefer::wait(&asked.headers).map_or(longest, |wait: Duration| wait.min(longest));
        (Call { claim, tool, arguments: Bytes::copy_from_slice(written.as_bytes()) }, patience)
    };
    let tool = call.tool.rule.name.clone();
    let calling = app.runner.call(call, patience);
    let came = match &asked.transport {
        None => calling.await,
        Some(transport) => transport.while_there(calling).await.ok_or_else(gone)?,
    };
    if let Some(word) = word(&came) {
        app.telemetry.claimed(&tool, word, None);
    }
    let answer = given(answer(app, came).await);
    Ok(asked.hold(answer))
}

/// The decision to be counted; none where nothing was asked of the ledger.
fn word(came: &Came) -> Option<&'static str> {
    Some(match came {
        Came::Ran { replayed: true, .. } => "use_result",
        Came::Ran { .. } | Came::NotRecorded(_) => "execute",
        Came::Decided(claimed) => executions::decision(claimed),
        Came::Unavailable(_) => executions::UNAVAILABLE,
        _ => return None,
    })
}

fn gone() -> Problem {
    Problem::new(400, "client_gone", "The client left; what it asked for goes on.")
}

async fn answer(app: &App, came: Came) -> Answered {
    match came {
        Came::Ran { record, .. } if may_run_again(app, &record) => Err(not_executed(app, &record).await),
        Came::Ran { record, replayed } => ended(app, record, replayed).await,
        // A stored result, and a stored error: the tool's own answer again.
        Came::Decided(Claimed::UseResult(record) | Claimed::Stop(record)) => ended(app, record, true).await,
        Came::Decided(claimed) => decision::answer(app, claimed).await,
        Came::NotRecorded(key) => {
            let message = "The tool was run and its outcome is not on disk yet: it is not told before it is. The same call later \
                           gets it, or that it is not known; it never runs a second time.";
            let problem = Problem::new(503, "outcome_not_recorded", message).retry_after(SOON_S);
            let header = HeaderValue::from_str(&key.to_string()).unwrap_or_else(|_| HeaderValue::from_static(""));
            Err(problem.header(EXECUTION_KEY, header))
        }
        Came::TooManyWait(_) => {
            let message = "As many callers as may wait for this execution already do.";
            Err(Problem::new(503, "too_many_waiters", message).retry_after(SOON_S))
        }
        Came::TooManyRun => {
            let message = "As many tools as may run at once already do.";
            Err(Problem::new(503, "too_many_runs", message).retry_after(SOON_S))
        }
        Came::NotRunnable => Err(Problem::new(400, "tool_not_runnable", "The tool has no `endpoint`.")),
        Came::Unavailable(error) => Err(Problem::unavailable(&error)),
    }
}

/// A run that is over: its stored bytes, or what its record says instead.
async fn ended(app: &App, record: Box<Record>, replayed: bool) -> Answered {
    let kept = record.state == Stands::Succeeded || record.failure == Some(Failure::ExecutedError);
    if kept && record.erased {
        return Err(decision::refusal(app, Claimed::Gone(record)).await);
    }
    match (record.state, record.failure) {
        (Stands::Succeeded, _) | (Stands::Failed, Some(Failure::ExecutedError)) => match stored(&record, replayed) {
            Some(answer) => Ok(answer),
            None if record.state == Stands::Succeeded => decision::answer(app, Claimed::UseResult(record)).await,
            None => Err(decision::refusal(app, Claimed::Stop(record)).await),
        },
        (Stands::Failed, _) => Err(decision::refusal(app, Claimed::Stop(record)).await),
        (Stands::Unknown, _) => Err(decision::refusal(app, Claimed::Reconcile(record)).await),
        (Stands::Started | Stands::Planned, _) => Err(decision::refusal(app, Claimed::InProgress(record)).await),
    }
}

/// Whether the next same call would run: for those whose run it was, and who waited for it. The ledger says the same to the others.
fn may_run_again(app: &App, record: &Record) -> bool {
    let tool = app.current().settings.tools.get(&record.tool).cloned();
    record.failure == Some(Failure::NotExecuted)
        && record.superseded_by.is_none()
        && !record.needs_release
        && tool.is_some_and(|tool| record.runs < tool.rule.max_runs)
}

/// It was tried, and is proved not to have run. When is best only the tool can say.
async fn not_executed(app: &App, record: &Record) -> Problem {
    let message = "It did not run: that is proved. The same call runs it again, within the tool's `max_runs`.";
    let problem = Problem::new(409, "not_executed", message).retryable();
    let problem = match run::asked_wait(record) {
        None => problem,
        // No wait is over before it was: rounded up.
        Some(wait) => problem.retry_after(u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX)),
    };
    let object = decision::object(app, record).await;
    let problem = problem.with("decision", &"not_executed").with("execution", &object).version(record.version);
    problem.header(EXECUTION_KEY, key_header(record))
}

/// The tool's answer as it is stored. None: it is settled without one, or an error came from elsewhere than the tool and has no status.
fn stored(record: &Record, replayed: bool) -> Option<Answer> {
    let result = record.settlement.as_ref()?.result.as_ref()?;
    let status = match result.status {
        Some(status) => StatusCode::from_u16(status).ok()?,
        None if record.state == Stands::Succeeded => StatusCode::OK,
        None => return None,
    };
    let mut answer = Answer::new(HttpBody::new(Stored::new(Bytes::copy_from_slice(&result.body))));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    if let Some(value) = result.content_type.as_deref().and_then(|value| HeaderValue::from_str(value).ok()) {
        headers.insert(CONTENT_TYPE, value);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REPLAYED, HeaderValue::from_static(if replayed { "true" } else { "false" }));
    if status.is_client_error() || status.is_server_error() {
        // It is the stored answer for ever: an SDK that sends again gets it again.
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    Some(decision::about(answer, record, false))
}

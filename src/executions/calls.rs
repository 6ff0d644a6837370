//! `POST /v1/executions` and `GET /v1/executions/{key}`.

use std::sync::Arc;

use axum::body::Body as HttpBody;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::{HeaderValue, Request, StatusCode};
use rubicon_ledger::Owner;

use crate::relay::app::App;
use crate::relay::intake::{self, Answer};
use crate::tool::object::{Execution, HISTORY_MAX};

use super::answer::{Answered, PREFERENCE_APPLIED, Problem, aside, given, json};
use super::ask::Asked;
use super::body::Body;
use super::claims::{self, Decided, LEASE_MS, LEASE_MS_MAX, LEASE_MS_MIN};
use super::decision;
use super::prefer;
use super::settle::key_of;

/// A claim: arguments of at most a mebibyte as they are written, and names.
pub(super) const CLAIM_BYTES_MAX: usize = 2 << 20;

pub(super) const MEMBERS: [&str; 9] =
    ["operation_id", "root", "tool", "arguments", "occurrence", "tool_call_id", "lease_ms", "claim_id", "confirm"];

/// `POST /v1/executions`.
pub(super) async fn claim(State(app): State<Arc<App>>, request: Request<HttpBody>) -> Answer {
    given(claimed(&app, request).await)
}

async fn claimed(app: &App, request: Request<HttpBody>) -> Answered {
    let asked = Asked::new(app, request, CLAIM_BYTES_MAX).await?;
    let wait = prefer::wait(&asked.headers);
    let claim = {
        let body = Body::read(&asked.body, &MEMBERS)?;
        let tool = claims::tool(&asked.current.settings, &asked.caller, &body.needed("tool")?)?;
        let lease_ms = body.number("lease_ms", LEASE_MS_MIN, LEASE_MS_MAX)?.unwrap_or(LEASE_MS);
        claims::read(app, &asked.caller, &asked.headers, &body, &tool, Owner::Client, lease_ms).await?
    };
    let deciding = claims::decide(app, claim, wait);
    let decided = match &asked.transport {
        None => deciding.await?,
        Some(transport) => transport.while_there(deciding).await.unwrap_or_else(|| Err(gone()))?,
    };
    let Decided { claimed, waited } = decided;
    let mut answer = given(decision::answer(app, claimed).await);
    if waited && let Some(wait) = wait {
        let applied = HeaderValue::from_str(&format!("wait={}", wait.as_secs()));
        answer.headers_mut().extend(applied.ok().map(|applied| (PREFERENCE_APPLIED, applied)));
    }
    Ok(asked.hold(answer))
}

/// Nobody reads this.
fn gone() -> Problem {
    Problem::new(400, "client_gone", "The client left.")
}

/// `GET /v1/executions/{key}`: the record, bare, with its history and evidence.
pub(super) async fn execution(
    State(app): State<Arc<App>>,
    key: Result<Path<String>, PathRejection>,
    request: Request<HttpBody>,
) -> Answer {
    given(shown(&app, key, request).await)
}

async fn shown(app: &App, key: Result<Path<String>, PathRejection>, request: Request<HttpBody>) -> Answered {
    let caller = app.current().clients.find(request.headers(), request.uri()).map_err(intake::denied)?;
    let key = key_of(key)?;
    let reader = app.ledger.reader();
    let found = aside(move || {
        let Some(record) = reader.record(&key)? else { return Ok(None) };
        let (history, evidence) = (reader.history(&record.key, HISTORY_MAX)?, reader.evidence(&record.key)?);
        Ok(Some((record, history, evidence)))
    });
    let found = found.await?.filter(|(record, ..)| record.tenant.as_str() == caller.tenant.as_str());
    let (record, history, evidence) = found.ok_or_else(Problem::not_found)?;
    let body = Execution::new(&record, Some(&history), Some(&evidence));
    Ok(decision::about(json(StatusCode::OK, &body), &record, false))
}

//! The owner of a run speaks: it is alive, or it is over.

use std::sync::Arc;

use axum::body::Body as HttpBody;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::{Request, StatusCode};
use rubicon_ledger::{
    Canonical, Changed, Complete, Denied, ExecutionKey, Heartbeat, Outcome, Refusal, Settlement, ToolResult,
};

use crate::relay::app::App;
use crate::relay::intake::Answer;

use super::answer::{Answered, Members, Problem, given, json, shared};
use super::ask::Asked;
use super::body::{Body, invalid};
use super::claims::{LEASE_MS, LEASE_MS_MAX, LEASE_MS_MIN, tenant};
use super::decision::{EXECUTION_KEY, about, key_header, object};

/// A heartbeat: a token and a number.
pub(super) const HEARTBEAT_BYTES_MAX: usize = 16 * 1024;

/// A tool's answer (SPEC Annex, Bounds).
pub(super) const RESULT_BYTES_MAX: usize = 8 << 20;

/// A completion: a result, an error as large as arguments may be, and names.
pub(super) const COMPLETE_BYTES_MAX: usize = RESULT_BYTES_MAX + (1 << 20) + HEARTBEAT_BYTES_MAX;

pub(super) const HEARTBEAT_MEMBERS: [&str; 2] = ["lease_token", "lease_ms"];

pub(super) const COMPLETE_MEMBERS: [&str; 5] = ["lease_token", "outcome", "result", "external_reference", "error"];

/// What the journal says of a settlement by the client that ran it.
const WHY: &str = "owner_said";

/// `POST /v1/executions/{key}/heartbeat`.
pub(super) async fn heartbeat(
    State(app): State<Arc<App>>,
    key: Result<Path<String>, PathRejection>,
    request: Request<HttpBody>,
) -> Answer {
    given(beat(&app, key, request).await)
}

async fn beat(app: &App, key: Result<Path<String>, PathRejection>, request: Request<HttpBody>) -> Answered {
    let asked = Asked::about_a_run(app, request, HEARTBEAT_BYTES_MAX).await?;
    let key = key_of(key)?;
    let body = Body::read(&asked.body, &HEARTBEAT_MEMBERS)?;
    let command = Heartbeat {
        tenant: tenant(&asked.caller)?,
        key,
        lease_token: body.needed("lease_token")?,
        lease_ms: body.number("lease_ms", LEASE_MS_MIN, LEASE_MS_MAX)?.unwrap_or(LEASE_MS),
    };
    let changed = app.ledger.heartbeat(command).await.map_err(|error| Problem::unavailable(&error))?;
    let answer = settled(app, changed).await?;
    Ok(asked.hold(answer))
}

/// `POST /v1/executions/{key}/complete`.
pub(super) async fn complete(
    State(app): State<Arc<App>>,
    key: Result<Path<String>, PathRejection>,
    request: Request<HttpBody>,
) -> Answer {
    given(end(&app, key, request).await)
}

async fn end(app: &App, key: Result<Path<String>, PathRejection>, request: Request<HttpBody>) -> Answered {
    let asked = Asked::about_a_run(app, request, COMPLETE_BYTES_MAX).await?;
    let key = key_of(key)?;
    let body = Body::read(&asked.body, &COMPLETE_MEMBERS)?;
    let command = Complete {
        tenant: tenant(&asked.caller)?,
        key,
        lease_token: body.needed("lease_token")?,
        outcome: outcome(&body)?,
        settlement: settlement(&body)?,
        why: shared(WHY),
        evidence: Vec::new(),
        by: shared(asked.caller.client.as_str()),
    };
    let changed = app.ledger.complete(command).await.map_err(|error| Problem::unavailable(&error))?;
    let answer = settled(app, changed).await?;
    Ok(asked.hold(answer))
}

fn outcome(body: &Body<'_>) -> Result<Outcome, Problem> {
    match &*body.needed("outcome")? {
        "succeeded" => Ok(Outcome::Succeeded),
        "not_executed" => Ok(Outcome::NotExecuted),
        "executed_error" => Ok(Outcome::ExecutedError),
        "unknown" => Ok(Outcome::Unknown),
        _ => Err(invalid("outcome", "must be succeeded, not_executed, executed_error or unknown")),
    }
}

/// What it ended with; a result is kept as it was written.
fn settlement(body: &Body<'_>) -> Result<Settlement, Problem> {
    let result = match body.raw("result") {
        Some(raw) if raw.get().len() > RESULT_BYTES_MAX => {
            let message = format!("The result is over {RESULT_BYTES_MAX} bytes.");
            return Err(Problem::new(413, "result_too_large", message).param("result"));
        }
        result => result.map(|raw| ToolResult {
            status: None,
            content_type: Some(shared("application/json")),
            body: Arc::from(raw.get().as_bytes()),
        }),
    };
    let error = match body.raw("error") {
        None => None,
        Some(raw) => Some(Canonical::parse(raw.get().as_bytes()).map_err(|refused| {
            let status = if refused.kind == Refusal::TooLarge { 413 } else { 400 };
            let message = format!("The error is refused at {:?}: {}.", refused.pointer.to_string(), refused.kind);
            Problem::new(status, "invalid_error", message)
                .param("error")
                .with("pointer", &refused.pointer.to_string())
                .with("reason", &refused.kind.code())
        })?),
    };
    Ok(Settlement {
        result,
        external_reference: body.text("external_reference")?,
        error: error.map(|error| shared(error.as_str())),
    })
}

/// The key of a path. What is none was never given out.
pub(super) fn key_of(path: Result<Path<String>, PathRejection>) -> Result<ExecutionKey, Problem> {
    path.ok().and_then(|Path(key)| key.parse().ok()).ok_or_else(Problem::not_found)
}

async fn settled(app: &App, changed: Result<Changed, Denied>) -> Answered {
    match changed {
        Ok(Changed { record, .. }) => {
            let body = Members::default().with("execution", &object(app, &record).await);
            Ok(about(json(StatusCode::OK, &body), &record, false))
        }
        Err(denied) => Err(refused(app, denied).await),
    }
}

async fn refused(app: &App, denied: Denied) -> Problem {
    let problem = problem(&denied);
    let (Denied::StaleLease(record)
    | Denied::LeaseOver(record)
    | Denied::AlreadySettled(record)
    | Denied::VersionMismatch(record)
    | Denied::NotNow { record, .. }) = denied
    else {
        return problem;
    };
    problem
        .with("execution", &object(app, &record).await)
        .version(record.version)
        .header(EXECUTION_KEY, key_header(&record))
}

/// What a refusal says by itself; the execution comes beside it where it is the caller's.
pub(super) fn problem(denied: &Denied) -> Problem {
    let code = match denied {
        Denied::NotFound => return Problem::not_found(),
        Denied::ForeignLease => return Problem::new(409, "foreign_lease", sentence(denied)).param("lease_token"),
        Denied::StaleLease(_) => "stale_lease",
        Denied::LeaseOver(_) => "lease_over",
        Denied::AlreadySettled(_) => "already_settled",
        Denied::VersionMismatch(_) => "version_mismatch",
        Denied::NotNow { code, .. } => code,
    };
    Problem::new(409, code, sentence(denied))
}

fn sentence(denied: &Denied) -> String {
    match denied {
        Denied::ForeignLease => "The lease token is none of this execution.".to_owned(),
        Denied::StaleLease(_) => {
            "The lease token is of an older run; what you say is kept as evidence and changes nothing.".to_owned()
        }
        Denied::LeaseOver(_) => {
            "The lease ran out, so the outcome counts as unknown. `complete` still settles it.".to_owned()
        }
        Denied::AlreadySettled(_) => "It has ended otherwise already; that stands.".to_owned(),
        other => format!("{other}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settlement, Problem> {
        settlement(&Body::read(text.as_bytes(), &["result", "external_reference", "error"])?)
    }

    #[test]
    fn a_result_is_kept_as_written_and_an_error_in_its_canonical_form() {
        let said = read(
            "{\"result\": {\"b\": 1.0,\n \"a\": 2}, \"error\": {\"b\":1.0, \"a\":2}, \"external_reference\": \"po_7\"}",
        );
        let said = said.unwrap();
        assert_eq!(&*said.result.unwrap().body, b"{\"b\": 1.0,\n \"a\": 2}");
        assert_eq!(said.error.as_deref(), Some("{\"a\":2,\"b\":1}"));
        assert_eq!(said.external_reference.as_deref(), Some("po_7"));
        let none = read("{\"result\":null}").unwrap();
        assert_eq!((none.result, none.error, none.external_reference), (None, None, None));
    }

    #[test]
    fn what_has_no_canonical_form_or_is_too_large_is_refused() {
        assert!(format!("{:?}", read("{\"error\":{\"a\":{\"b\":1,\"b\":1}}}").unwrap_err()).contains("duplicate_name"));
        let large = format!("{{\"result\":\"{}\"}}", "x".repeat(RESULT_BYTES_MAX));
        assert!(format!("{:?}", read(&large).unwrap_err()).contains("result_too_large"));
    }
}

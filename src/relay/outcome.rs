//! `POST /v1/operations/{id}/outcome`: the application's word on whether the task succeeded, beside what the relay itself can see
//! (transport, contract).
//!
//! `{"outcome": "accepted" | "rejected", "reason"?: "…"}`. Said once: the same again is 200, another word 409. An operation that
//! still runs has no outcome yet (409 `still_running`). The word goes to a line of its own (`task`), to the operation's view, and
//! to `rubicon_outcomes_total`. The reason is the application's own text: shown as it is to its own clients, in the event line with
//! what looks like a key masked.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State as Shared};
use http::{Request, StatusCode};
use serde_json::Value;

use crate::clock::UnixMillis;
use crate::protocol::Dialect;
use crate::telemetry::events::{Outcome, TaskEvent, TaskSuccess, Time, bounded};

use super::app::App;
use super::auth::Caller;
use super::endpoints::{find_operation, json};
use super::executions;
use super::intake::{Answer, Refusal, check_content, read_body};
use super::members::{NoMembers, members};
use super::operations::{Operation, OutcomeView, State};
use super::secrets::masked;
use super::transport::Transport;

/// The body: an outcome and a reason, however it is escaped.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// `reason`, in bytes of UTF-8: a sentence or two, and no transcript.
pub const REASON_BYTES_MAX: usize = 1024;

/// `POST /v1/operations/{id}/outcome`.
pub async fn outcome(
    Shared(app): Shared<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    request: Request<axum::body::Body>,
) -> Answer {
    match said(&app, id, request).await {
        Ok((caller, operation)) => json(StatusCode::OK, &executions::known(&app, &operation, caller.show_routes).await),
        Err(refusal) => refusal.into_response(Dialect::ChatCompletions),
    }
}

async fn said(
    app: &App,
    id: Result<Path<String>, PathRejection>,
    request: Request<axum::body::Body>,
) -> Result<(Arc<Caller>, Arc<Operation>), Refusal> {
    let (parts, body) = request.into_parts();
    let (caller, operation) = find_operation(app, &parts.headers, &parts.uri, id)?;
    check_content(&parts.headers)?;
    let body = read_body(body, BODY_BYTES_MAX).await?;
    if let Some(transport) = parts.extensions.get::<Transport>() {
        transport.body_read();
    }
    let word = read(&body)?;
    match note(&operation, word) {
        Noted::New => tell(app, &caller, &operation),
        Noted::Again => {}
        Noted::Running => {
            return Err(Refusal::new(409, "still_running", "The operation is still running: it has no outcome yet."));
        }
        Noted::Differs => {
            let message = "Another outcome was told for this operation; the first one stands.";
            return Err(Refusal::new(409, "outcome_differs", message));
        }
    }
    Ok((caller, operation))
}

struct Word {
    outcome: Outcome,
    reason: Option<String>,
}

fn read(body: &[u8]) -> Result<Word, Refusal> {
    let members = members(body).map_err(|no| match no {
        NoMembers::NotAnObject => Refusal::new(400, "invalid_json", "The request body must be one JSON object."),
        NoMembers::Twice(name) => invalid(&name, "stands in it twice"),
    })?;
    if let Some(unknown) = members.keys().find(|name| !matches!(name.as_str(), "outcome" | "reason")) {
        let shown = bounded(unknown, 64);
        let message = format!("There is no member {shown:?}; there are \"outcome\" and \"reason\".");
        return Err(Refusal::new(400, "unknown_member", message).param(&shown));
    }
    let outcome = match members.get("outcome") {
        Some(Value::String(word)) if word == "accepted" => Outcome::Accepted,
        Some(Value::String(word)) if word == "rejected" => Outcome::Rejected,
        Some(_) => return Err(invalid("outcome", "must be \"accepted\" or \"rejected\"")),
        None => return Err(invalid("outcome", "is missing: \"accepted\" or \"rejected\"")),
    };
    let reason = match members.get("reason") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.len() <= REASON_BYTES_MAX => Some(text.clone()),
        Some(Value::String(_)) => return Err(invalid("reason", &format!("is over {REASON_BYTES_MAX} bytes"))),
        Some(_) => return Err(invalid("reason", "must be a text")),
    };
    Ok(Word { outcome, reason })
}

fn invalid(member: &str, problem: &str) -> Refusal {
    Refusal::new(400, "invalid_member", format!("The member {member:?} {problem}.")).param(member)
}

enum Noted {
    New,
    Again,
    Differs,
    Running,
}

/// Under the record's lock: of two words at once one is the first.
fn note(operation: &Operation, word: Word) -> Noted {
    let mut noted = Noted::Running;
    operation.update(|known| {
        noted = match &known.outcome {
            _ if known.state == State::Running => Noted::Running,
            // Who repeats it need not repeat why.
            Some(told) if told.outcome == word.outcome && (word.reason.is_none() || told.reason == word.reason) => {
                Noted::Again
            }
            Some(_) => Noted::Differs,
            None => {
                let at = UnixMillis::now();
                known.outcome = Some(OutcomeView { outcome: word.outcome, reason: word.reason, at });
                Noted::New
            }
        };
    });
    noted
}

fn tell(app: &App, caller: &Caller, operation: &Operation) {
    let view = operation.view();
    let Some(told) = view.outcome else { return };
    app.telemetry.task(&TaskEvent {
        event: "task",
        time: Time(told.at),
        operation: view.operation_id,
        client: caller.client.clone(),
        tenant: caller.tenant.clone(),
        workflow: view.workflow,
        workflow_version: Some(view.workflow_version),
        route: view.served_route,
        outcome: told.outcome,
        reason: told.reason.map(|reason| bounded(&masked(&app.current().settings, &reason), REASON_BYTES_MAX)),
        success: TaskSuccess { task: told.outcome == Outcome::Accepted },
    });
}

//! What the ledger decided on a claim, as an answer (SPEC section 8, the table of calls).

use http::header::{ETAG, HeaderName, HeaderValue, LOCATION};
use http::{HeaderMap, StatusCode};
use rubicon_ledger::store::Reader;
use rubicon_ledger::{Claimed, Failure, Record, WhyConfirm};
use serde_json::value::{RawValue, to_raw_value};

use crate::relay::app::App;
use crate::relay::intake::Answer;
use crate::tool::object::{Execution, HISTORY_MAX};

use super::answer::{Answered, Members, Problem, REPLAYED, SOON_S, etag, json};

/// Names the execution in every answer about one.
pub(super) const EXECUTION_KEY: HeaderName = HeaderName::from_static("rubicon-execution-key");

/// What a model may be told about an execution whose outcome is not known (SPEC section 8: a fixed text).
pub(super) fn model_text(record: &Record) -> String {
    format!(
        "It is not known whether this call of {} took effect. Do not call it again, neither with the same nor with reworded \
         arguments: the outcome is being checked. Execution: {}",
        record.tool.as_str(),
        record.key
    )
}

/// A record with its history, as JSON.
pub(super) async fn object(app: &App, record: &Record) -> Box<RawValue> {
    let (reader, record) = (app.ledger.reader(), record.clone());
    let made = tokio::task::spawn_blocking(move || whole(&*reader, &record)).await;
    made.unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A decision stands whether or not the journal can be read: its lines are left out then.
fn whole(reader: &dyn Reader, record: &Record) -> Box<RawValue> {
    let history = reader.history(&record.key, HISTORY_MAX).ok();
    to_raw_value(&Execution::new(record, history.as_deref(), None)).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The answer to a claim.
pub(super) async fn answer(app: &App, claimed: Claimed) -> Answered {
    let Some((status, decision)) = granted(&claimed) else { return Err(refusal(app, claimed).await) };
    let (record, lease_token, replayed) = match claimed {
        Claimed::Execute { record, lease_token } => (record, Some(lease_token), false),
        Claimed::UseResult(record) => (record, None, true),
        Claimed::AwaitApproval(record) => (record, None, false),
        other => return Err(refusal(app, other).await),
    };
    let mut body = Members::default().with("decision", &decision).with("execution", &object(app, &record).await);
    if let Some(lease_token) = lease_token {
        body = body.with("lease_token", &lease_token);
    }
    let mut answer = about(json(status, &body), &record, !replayed);
    if replayed {
        answer.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(answer)
}

/// The decisions that are no refusals, with their status.
pub(super) fn granted(claimed: &Claimed) -> Option<(StatusCode, &'static str)> {
    match claimed {
        Claimed::Execute { .. } => Some((StatusCode::CREATED, "execute")),
        Claimed::UseResult(_) => Some((StatusCode::OK, "use_result")),
        Claimed::AwaitApproval(_) => Some((StatusCode::ACCEPTED, "await_approval")),
        _ => None,
    }
}

/// The decisions that let nothing run and have no result.
pub(super) async fn refusal(app: &App, claimed: Claimed) -> Problem {
    let problem = refused(&claimed);
    let decision = problem.decision();
    let problem = problem.with("decision", &decision);
    let record = match claimed {
        Claimed::Confirm { similar: None, .. } => return problem.with("similar", &None::<()>),
        Claimed::Confirm { similar: Some(similar), .. } => {
            return problem.with("similar", &object(app, &similar).await);
        }
        Claimed::InProgress(record)
        | Claimed::Reconcile(record)
        | Claimed::Stop(record)
        | Claimed::Gone(record)
        | Claimed::Conflict { record, .. }
        | Claimed::Execute { record, .. }
        | Claimed::UseResult(record)
        | Claimed::AwaitApproval(record) => record,
    };
    problem
        .with("execution", &object(app, &record).await)
        .version(record.version)
        .header(EXECUTION_KEY, key_header(&record))
}

/// What a refusal says by itself; the execution comes beside it.
pub(super) fn refused(claimed: &Claimed) -> Problem {
    match claimed {
        Claimed::InProgress(_) => {
            let message = "It is running now. Ask again later, or wait with `Prefer: wait=N`.";
            Problem::new(409, "in_progress", message).retry_after(SOON_S)
        }
        Claimed::Reconcile(record) => {
            let message =
                "It was started and its outcome is not known: it is being checked, and does not run again meanwhile.";
            Problem::new(409, "reconcile", message).with("model_text", &model_text(record))
        }
        Claimed::Stop(record) => Problem::new(409, "stop", why_stopped(record)),
        Claimed::Gone(_) => {
            let message = "It ran, and what it answered was erased after its retention: it never runs again.";
            Problem::new(410, "result_erased", message)
        }
        Claimed::Conflict { differs, .. } => {
            let pointers: Vec<String> = differs.pointers.iter().map(ToString::to_string).collect();
            let message = "The same intent is on record in other words: it is one execution and does not run a second time. \
                           If another one is meant, say so with `occurrence`.";
            let problem = Problem::new(422, "conflict", message).with("differs", &pointers);
            if differs.complete { problem } else { problem.with("differs_complete", &false) }
        }
        Claimed::Confirm { why, confirm_token, fingerprint, .. } => {
            Problem::new(409, "confirm", why_confirm(*why, confirm_token.is_some()))
                .with("reason", &why.name())
                .with("confirm_token", confirm_token)
                .with("fingerprint", fingerprint)
        }
        // Answered by `answer`: they are no refusals.
        Claimed::Execute { .. } | Claimed::UseResult(_) | Claimed::AwaitApproval(_) => {
            Problem::new(409, "in_progress", "It goes on.").retry_after(SOON_S)
        }
    }
}

fn why_stopped(record: &Record) -> &'static str {
    match record.failure {
        Some(Failure::ExecutedError) => "It ran and ended in an error; that is final.",
        _ if record.superseded_by.is_some() => "Other words took its place; these never run.",
        _ if record.needs_release => {
            "An operator found that it did not run; it runs again once an operator releases it."
        }
        Some(Failure::NotExecuted) => "It did not run, and has no run left; an operator may release one more.",
        None => "It does not run by itself.",
    }
}

fn why_confirm(why: WhyConfirm, has_token: bool) -> &'static str {
    match (why, has_token) {
        (WhyConfirm::Similar, true) => {
            "It looks like another execution (`similar`) in other words. If it is meant as well, send the claim again with \
             `confirm_token` as `confirm`."
        }
        (WhyConfirm::Similar, false) => {
            "It looks like another execution (`similar`) in other words, and the tool's impact is high: an approver must let \
             it through."
        }
        (WhyConfirm::AfterError, true) => {
            "The same intent in other words (`similar`) ended in an error. If it is to run in these, send the claim again with \
             `confirm_token` as `confirm`."
        }
        (WhyConfirm::AfterError, false) => {
            "The same intent in other words (`similar`) ended in an error: an approver must let it through."
        }
        (WhyConfirm::RestoredGap, _) => {
            "The ledger was restored from a backup, and what ran since is not known: an operator must end the gap first."
        }
    }
}

/// An answer about an execution: its version, its name, and where it is where it was made.
pub(super) fn about(mut answer: Answer, record: &Record, located: bool) -> Answer {
    let headers: &mut HeaderMap = answer.headers_mut();
    headers.insert(ETAG, etag(record.version));
    headers.insert(EXECUTION_KEY, key_header(record));
    if located && let Ok(path) = HeaderValue::from_str(&format!("/v1/executions/{}", record.key)) {
        headers.insert(LOCATION, path);
    }
    answer
}

/// The key, as a header.
pub(super) fn key_header(record: &Record) -> HeaderValue {
    HeaderValue::from_str(&record.key.to_string()).unwrap_or_else(|_| HeaderValue::from_static(""))
}

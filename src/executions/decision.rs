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
    match claimed {
        Claimed::Execute { record, lease_token } => {
            let body = decided("execute", object(app, &record).await).with("lease_token", &lease_token);
            Ok(about(json(StatusCode::CREATED, &body), &record, true))
        }
        Claimed::UseResult(record) => {
            let body = decided("use_result", object(app, &record).await);
            let mut answer = about(json(StatusCode::OK, &body), &record, false);
            answer.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            Ok(answer)
        }
        Claimed::AwaitApproval(record) => {
            let body = decided("await_approval", object(app, &record).await);
            Ok(about(json(StatusCode::ACCEPTED, &body), &record, true))
        }
        other => Err(refusal(app, other).await),
    }
}

fn decided(decision: &'static str, execution: Box<RawValue>) -> Members {
    Members::default().with("decision", &decision).with("execution", &execution)
}

/// The decisions that let nothing run and have no result.
pub(super) async fn refusal(app: &App, claimed: Claimed) -> Problem {
    let (record, problem) = match claimed {
        Claimed::InProgress(record) => {
            let message = "It is running now. Ask again later, or wait with `Prefer: wait=N`.";
            (record, Problem::new(409, "in_progress", message).retry_after(SOON_S))
        }
        Claimed::Reconcile(record) => {
            let text = model_text(&record);
            let message =
                "It was started and its outcome is not known: it is being checked, and does not run again meanwhile.";
            (record, Problem::new(409, "reconcile", message).with("model_text", &text))
        }
        Claimed::Stop(record) => {
            let problem = Problem::new(409, "stop", why_stopped(&record));
            (record, problem)
        }
        Claimed::Gone(record) => {
            let message = "It ran, and what it answered was erased after its retention: it never runs again.";
            (record, Problem::new(410, "result_erased", message))
        }
        Claimed::Conflict { record, differs } => {
            let pointers: Vec<String> = differs.pointers.iter().map(ToString::to_string).collect();
            let message = "The same intent is on record in other words: it is one execution and does not run a second time. \
                           If another one is meant, say so with `occurrence`.";
            let problem = Problem::new(422, "conflict", message).with("differs", &pointers);
            (record, if differs.complete { problem } else { problem.with("differs_complete", &false) })
        }
        Claimed::Confirm { why, similar, confirm_token, fingerprint } => {
            let problem = Problem::new(409, "confirm", why_confirm(why, confirm_token.is_some()))
                .with("decision", &"confirm")
                .with("reason", &why.name())
                .with("confirm_token", &confirm_token)
                .with("fingerprint", &fingerprint);
            return match similar {
                None => problem.with("similar", &None::<()>),
                Some(similar) => problem.with("similar", &object(app, &similar).await),
            };
        }
        // Answered by `answer`: they are no refusals.
        Claimed::Execute { record, .. } | Claimed::UseResult(record) | Claimed::AwaitApproval(record) => {
            (record, Problem::new(409, "in_progress", "It goes on.").retry_after(SOON_S))
        }
    };
    let decision = problem.decision();
    problem
        .with("decision", &decision)
        .with("execution", &object(app, &record).await)
        .version(record.version)
        .header(EXECUTION_KEY, key_header(&record))
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

//! Changes of one execution: each by the version that was seen, with a reason, under the operator's name.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::Request;
use rubicon_ledger::{Change, ExecutionKey, Fingerprint, IfMatch, Outcome, Record, Settlement, ToolResult, Verb};

use crate::relay::app::App;
use crate::relay::secrets::masked;

use super::super::Answer;
use super::super::answer::{Problem, etag, tagged};
use super::super::auth::Operator;
use super::super::change::{line, read_body, reason, version};
use super::super::ledger;
use super::super::query::Query;
use super::body::Members;
use super::list::now;
use super::show::named;
use super::view::{Shown, whole};

/// A tool's answer may have this size (SPEC Annex, Bounds), so may what a person puts in its place; and a little around it.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024 + 16 * 1024;

/// A change that somebody asks for, read and checked.
struct Asked {
    key: ExecutionKey,
    seen: u64,
    by: Arc<str>,
    members: Members,
    /// As it stood a moment ago: enough for what never changes of it.
    record: Record,
}

impl Asked {
    async fn read(
        app: &App,
        path: Result<Path<String>, PathRejection>,
        request: Request<Body>,
        known: &[&str],
    ) -> Result<Self, Problem> {
        Query::read(request.uri(), &[])?;
        let key = named(path)?;
        let record = ledger::read(app, move |reader| reader.record(&key)).await?.ok_or_else(ledger::not_found)?;
        let (parts, body) = request.into_parts();
        let operator = parts.extensions.get::<Operator>().cloned();
        // The guard puts it there.
        let operator = operator.ok_or_else(|| Problem::new(401, "missing_token", "No operator."))?;
        let seen = version(&parts.headers)?;
        let body = read_body(body, parts.extensions.get(), BODY_BYTES_MAX).await?;
        let members = Members::read(&body, known)?;
        Ok(Self { key, seen, by: Arc::from(operator.name), members, record })
    }

    /// The reason, which the journal keeps for ever.
    fn reason(&self, app: &App) -> Result<Arc<str>, Problem> {
        let text = self.members.text("reason")?.unwrap_or_default();
        Ok(Arc::from(masked(&app.current().settings, &reason(&text)?)))
    }

    /// The reason where none must be given.
    fn reason_if_any(&self, app: &App) -> Result<Arc<str>, Problem> {
        match self.members.text("reason")? {
            None => Ok(Arc::from("")),
            Some(_) => self.reason(app),
        }
    }

    async fn make(self, app: &App, verb: Verb, reason: Arc<str>) -> Answer {
        let change = Change { key: self.key, if_match: IfMatch::Version(self.seen), by: self.by, verb, reason };
        let changed = ledger::of(app).change(change).await.map_err(|error| ledger::unavailable(&error))?;
        let changed = changed.map_err(|denied| ledger::denied(&denied))?;
        let (version, current) = (changed.record.version, app.current());
        let shown = Shown::new(*changed.record, Vec::new(), &current.settings);
        let body = whole(&shown, None, None, Some(changed.changed), &current.settings, now());
        Ok(tagged(&body, &etag(version)))
    }
}

/// The word of a verdict.
pub(super) fn outcome(text: Option<String>) -> Result<Outcome, Problem> {
    match text.as_deref() {
        Some("succeeded") => Ok(Outcome::Succeeded),
        Some("not_executed") => Ok(Outcome::NotExecuted),
        Some("executed_error") => Ok(Outcome::ExecutedError),
        _ => {
            let message = "`outcome` is one of succeeded, not_executed, executed_error.";
            Err(Problem::new(400, "invalid_outcome", message))
        }
    }
}

/// `POST …/resolve {outcome, external_reference?, result?, reason}`. Where impact is high a second person confirms.
pub(super) async fn resolve(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    let asked = Asked::read(&app, path, request, &["outcome", "external_reference", "result", "reason"]).await?;
    let reason = asked.reason(&app)?;
    let outcome = outcome(asked.members.text("outcome")?)?;
    let reference = asked.members.text("external_reference")?;
    let reference = reference.map(|text| line(&text, "invalid_external_reference")).transpose()?;
    let result = asked.members.raw("result").map(|raw| ToolResult {
        status: None,
        content_type: Some(Arc::from("application/json")),
        body: Arc::from(raw.as_bytes()),
    });
    if result.is_some() && outcome == Outcome::NotExecuted {
        return Err(Problem::new(400, "invalid_body", "What did not execute has no result."));
    }
    let settlement = Settlement { result, external_reference: reference.map(Arc::from), error: None };
    asked.make(&app, Verb::Resolve { outcome, settlement }, reason).await
}

/// `POST …/confirm {reason?}`: the second person agrees, or lets run what awaits an approval.
pub(super) async fn confirm(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    let asked = Asked::read(&app, path, request, &["reason"]).await?;
    let reason = asked.reason_if_any(&app)?;
    asked.make(&app, Verb::Confirm, reason).await
}

/// `POST …/release {reason}`: one new run of what did not execute.
pub(super) async fn release(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    let asked = Asked::read(&app, path, request, &["reason"]).await?;
    let reason = asked.reason(&app)?;
    asked.make(&app, Verb::Release, reason).await
}

/// `POST …/confirm-claim {fingerprint, reason}`: the near-duplicate of this one with that fingerprint may run, once.
pub(super) async fn confirm_claim(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    let asked = Asked::read(&app, path, request, &["fingerprint", "reason"]).await?;
    let reason = asked.reason(&app)?;
    let text = asked.members.text("fingerprint")?.unwrap_or_default();
    let wrong = |_| Problem::new(400, "invalid_fingerprint", "`fingerprint` is that of the claim that was held: fp_….");
    let fingerprint: Fingerprint = text.parse().map_err(wrong)?;
    asked.make(&app, Verb::LetThrough { fingerprint }, reason).await
}

/// `POST …/notes {text}`: a remark for those who come after.
pub(super) async fn note(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    let asked = Asked::read(&app, path, request, &["text"]).await?;
    let text = asked.members.text("text")?.unwrap_or_default();
    if text.trim().is_empty() {
        return Err(Problem::new(400, "text_missing", "A note has a text: {\"text\": \"…\"}."));
    }
    let text = masked(&app.current().settings, &line(&text, "invalid_text")?);
    asked.make(&app, Verb::Note, Arc::from(text)).await
}

/// `POST …/assign {to, reason?}`; `null`: nobody.
pub(super) async fn assign(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    let asked = Asked::read(&app, path, request, &["to", "reason"]).await?;
    let reason = asked.reason_if_any(&app)?;
    if asked.members.raw("to").is_none() {
        return Err(Problem::new(400, "invalid_body", "`to` is a name, or null for nobody."));
    }
    let to = asked.members.text("to")?.map(|text| line(&text, "invalid_to")).transpose()?;
    asked.make(&app, Verb::Assign { to: to.map(Arc::from) }, reason).await
}

/// `POST …/probe {reason?}`: asks the tool now.
pub(super) async fn probe(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    let asked = Asked::read(&app, path, request, &["reason"]).await?;
    let reason = asked.reason_if_any(&app)?;
    let current = app.current();
    if current.settings.tools.get(&asked.record.tool).is_none_or(|tool| tool.probe.is_none()) {
        let message = "The tool has no probe in the configuration: a person must find out.";
        return Err(Problem::new(409, "no_probe", message).version(asked.record.version));
    }
    asked.make(&app, Verb::Probe, reason).await
}

//! Failover switched off and on again, for all workflows or for one.
//!
//! All its switches are one document with one version, so that one `ETag` stands for what an operator saw.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::Request;
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::config::settings::{Settings, WorkflowSettings};
use crate::control::record::{Record, Subject};
use crate::control::table::Known;
use crate::ids::WorkflowId;
use crate::relay::app::App;

use super::Answer;
use super::answer::{Problem, etag, tagged};
use super::change::Asked;
use super::query::Query;

/// The document.
#[derive(Debug, Serialize)]
struct View {
    /// Of every workflow.
    disabled: bool,
    reason: Option<String>,
    by: Option<String>,
    since: Option<UnixMillis>,
    /// Of the document: the latest change of any of its switches.
    version: u64,
    saved: bool,
    /// In the answer to a change: whether it made one.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    workflows: Vec<WorkflowView>,
}

/// A workflow's own switch.
#[derive(Debug, Serialize)]
struct WorkflowView {
    workflow: WorkflowId,
    /// By an operator.
    disabled: bool,
    /// Whether the configuration lets it fail over at all; null where it has no such workflow any more.
    enabled_in_config: Option<bool>,
    reason: Option<String>,
    by: Option<String>,
    since: Option<UnixMillis>,
    /// The document's version when this switch last changed.
    version: u64,
    saved: bool,
}

impl WorkflowView {
    fn new(name: &WorkflowId, settings: Option<&WorkflowSettings>, known: &Known) -> Self {
        let record = &known.record;
        let touched = record.version > 0;
        Self {
            workflow: name.clone(),
            disabled: record.stopped,
            enabled_in_config: settings.map(|settings| settings.failover.enabled),
            reason: touched.then(|| record.reason.clone()),
            by: touched.then(|| record.by.clone()),
            since: touched.then_some(record.since),
            version: record.version,
            saved: known.saved,
        }
    }
}

fn view(settings: &Settings, known: &BTreeMap<Subject, Known>) -> View {
    let untouched = Known { record: Record::default(), saved: true };
    let version =
        known.iter().filter(|(subject, _)| subject.is_failover()).map(|(_, known)| known.record.version).max();
    let mut workflows: BTreeMap<&WorkflowId, WorkflowView> = BTreeMap::new();
    for (name, workflow) in &settings.workflows {
        let known = known.get(&Subject::WorkflowFailover(name.clone())).unwrap_or(&untouched);
        workflows.insert(name, WorkflowView::new(name, Some(workflow), known));
    }
    for (subject, known) in known {
        if let Subject::WorkflowFailover(name) = subject {
            workflows.entry(name).or_insert_with(|| WorkflowView::new(name, None, known));
        }
    }
    let all = known.get(&Subject::Failover).unwrap_or(&untouched);
    let touched = all.record.version > 0;
    View {
        disabled: all.record.stopped,
        reason: touched.then(|| all.record.reason.clone()),
        by: touched.then(|| all.record.by.clone()),
        since: touched.then_some(all.record.since),
        version: version.unwrap_or_default(),
        saved: all.saved,
        changed: None,
        workflows: workflows.into_values().collect(),
    }
}

fn answer(app: &App, changed: Option<bool>) -> Answer {
    let mut view = view(&app.current().settings, &app.control.known());
    view.changed = changed;
    let tag = etag(view.version);
    Ok(tagged(&view, &tag))
}

/// `GET /admin/v1/failover`.
pub(super) async fn show(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    Query::read(request.uri(), &[])?;
    answer(&app, None)
}

/// `POST /admin/v1/failover/disable`.
pub(super) async fn disable(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    switch(&app, request, true).await
}

/// `POST /admin/v1/failover/enable`.
pub(super) async fn enable(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    switch(&app, request, false).await
}

async fn switch(app: &Arc<App>, request: Request<Body>, stop: bool) -> Answer {
    Query::read(request.uri(), &[])?;
    let asked = Asked::read(request, stop, app).await?;
    let subject = match asked.workflow.as_deref() {
        None => Subject::Failover,
        Some(name) => {
            let subject = Subject::WorkflowFailover(WorkflowId::new(name));
            let configured = app.current().settings.workflows.contains_key(&WorkflowId::new(name));
            if !configured && !app.control.known().contains_key(&subject) {
                let message = "There is no such workflow, and there never was a switch of it.";
                return Err(Problem::new(404, "workflow_not_found", message));
            }
            subject
        }
    };
    let done = asked.make(app, subject).await?;
    answer(app, Some(done.changed))
}

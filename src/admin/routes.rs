//! Routes: how they stand, kill and restore.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::Request;
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::config::settings::{RouteSettings, Settings};
use crate::control::record::{Record, Subject};
use crate::control::table::Known;
use crate::ids::{ProviderId, RouteId};
use crate::relay::app::App;

use super::Answer;
use super::answer::{Problem, etag, tagged};
use super::change::Asked;
use super::query::Query;

/// A route as shown.
#[derive(Debug, Serialize)]
struct View {
    route: RouteId,
    /// Null where the configuration has no such route any more: its switch is kept all the same.
    provider: Option<ProviderId>,
    model: Option<String>,
    region: Option<String>,
    oncall: Option<String>,
    configured: bool,
    killed: bool,
    reason: Option<String>,
    by: Option<String>,
    since: Option<UnixMillis>,
    version: u64,
    /// It would survive a restart.
    saved: bool,
    /// In the answer to a change: whether it made one.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
}

impl View {
    fn new(route: &RouteId, settings: Option<&RouteSettings>, known: &Known) -> Self {
        let record = &known.record;
        let touched = record.version > 0;
        Self {
            route: route.clone(),
            provider: settings.map(|settings| settings.provider.name.clone()),
            model: settings.and_then(|settings| settings.model.clone()),
            region: settings.and_then(|settings| settings.region.clone()),
            oncall: settings.and_then(|settings| settings.oncall.clone()),
            configured: settings.is_some(),
            killed: record.stopped,
            reason: touched.then(|| record.reason.clone()),
            by: touched.then(|| record.by.clone()),
            since: touched.then_some(record.since),
            version: record.version,
            saved: known.saved,
            changed: None,
        }
    }
}

/// Routes of the configuration, and those that still have a switch.
fn all(settings: &Settings, known: &BTreeMap<Subject, Known>) -> BTreeMap<RouteId, View> {
    let untouched = Known { record: Record::default(), saved: true };
    let configured = settings.routes.iter().map(|(name, route)| {
        let known = known.get(&Subject::Route(name.clone())).unwrap_or(&untouched);
        (name.clone(), View::new(name, Some(route), known))
    });
    let mut all: BTreeMap<RouteId, View> = configured.collect();
    for (subject, known) in known {
        if let Subject::Route(name) = subject
            && !all.contains_key(name)
        {
            all.insert(name.clone(), View::new(name, None, known));
        }
    }
    all
}

fn view(app: &App, name: &str) -> Result<View, Problem> {
    let mut all = all(&app.current().settings, &app.control.known());
    let missing =
        || Problem::new(404, "route_not_found", "There is no such route, and there never was a switch of it.");
    all.remove(&RouteId::new(name)).ok_or_else(missing)
}

/// The name in the path; one that is not UTF-8 is no name.
fn name(path: Result<Path<String>, PathRejection>) -> String {
    path.map(|Path(name)| name).unwrap_or_default()
}

/// `GET /admin/v1/routes`. Its entity tag stands for all switches of routes together, and for no single one.
pub(super) async fn list(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    Query::read(request.uri(), &[])?;
    let all = all(&app.current().settings, &app.control.known());
    let mut hasher = blake3::Hasher::new();
    for view in all.values() {
        hasher.update(view.route.as_str().as_bytes());
        hasher.update(&view.version.to_be_bytes());
    }
    let tag = hasher.finalize().to_hex();
    let routes: Vec<&View> = all.values().collect();
    Ok(tagged(&serde_json::json!({ "routes": routes }), &format!("W/\"routes-{}\"", tag.get(..16).unwrap_or_default())))
}

/// `GET /admin/v1/routes/{route}`.
pub(super) async fn one(State(app): State<Arc<App>>, path: Result<Path<String>, PathRejection>) -> Answer {
    let view = view(&app, &name(path))?;
    let tag = etag(view.version);
    Ok(tagged(&view, &tag))
}

/// `POST /admin/v1/routes/{route}/kill`.
pub(super) async fn kill(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    switch(&app, &name(path), request, true).await
}

/// `POST /admin/v1/routes/{route}/restore`.
pub(super) async fn restore(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    switch(&app, &name(path), request, false).await
}

async fn switch(app: &App, name: &str, request: Request<Body>, stop: bool) -> Answer {
    Query::read(request.uri(), &[])?;
    view(app, name)?;
    let asked = Asked::read(request, stop, app).await?;
    if asked.workflow.is_some() {
        return Err(Problem::new(400, "invalid_body", "A route has no workflow: it is killed for all of them."));
    }
    let route = RouteId::new(name);
    let done = asked.make(app, Subject::Route(route.clone())).await?;
    let current = app.current();
    let known = Known { record: done.record, saved: true };
    let mut view = View::new(&route, current.settings.routes.get(&route).map(|route| &**route), &known);
    view.changed = Some(done.changed);
    Ok(tagged(&view, &etag(view.version)))
}

//! Routes: how they stand, by operators and by themselves, kill and restore.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::Request;
use serde::Serialize;

use crate::clock::{Instant, UnixMillis};
use crate::config::settings::{FailoverLimits, Limits, RouteSettings};
use crate::control::record::{Record, Subject};
use crate::control::table::Known;
use crate::gate::RouteView;
use crate::gate::breaker::BreakerState;
use crate::ids::{ProviderId, RouteId};
use crate::plan::digest::route_digest;
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
    /// What an approval's `route_digest` must be.
    digest: Option<String>,
    limits: Option<Limits>,
    failover_limits: Option<FailoverLimits>,
    #[serde(flatten)]
    now: Option<Now>,
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

/// How a configured route stands by itself at this moment.
#[derive(Debug, Serialize)]
struct Now {
    /// Its breaker.
    circuit: BreakerState,
    /// Failures in a row, while healthy.
    failures: u32,
    /// Until the next probe may go, milliseconds; only while no attempt may begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    opens_in_ms: Option<u64>,
    /// Attempts that hold a place, each to its stream's end.
    in_use: u32,
    /// Those of them that are recovery traffic.
    recovery_in_use: u32,
}

impl From<&RouteView> for Now {
    fn from(view: &RouteView) -> Self {
        Self {
            circuit: view.breaker,
            failures: view.failures,
            opens_in_ms: view.opens_in.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            in_use: view.attempts,
            recovery_in_use: view.recovering,
        }
    }
}

impl View {
    fn new(route: &RouteId, settings: Option<&RouteSettings>, now: Option<&RouteView>, known: &Known) -> Self {
        let record = &known.record;
        let touched = record.version > 0;
        Self {
            route: route.clone(),
            provider: settings.map(|settings| settings.provider.name.clone()),
            model: settings.and_then(|settings| settings.model.clone()),
            region: settings.and_then(|settings| settings.region.clone()),
            oncall: settings.and_then(|settings| settings.oncall.clone()),
            configured: settings.is_some(),
            digest: settings.map(route_digest),
            limits: settings.map(|settings| settings.limits),
            failover_limits: settings.map(|settings| settings.failover_limits),
            now: settings.and(now).map(Now::from),
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
fn all(app: &App) -> BTreeMap<RouteId, View> {
    let (current, known) = (app.current(), app.control.known());
    let settings = &current.settings;
    let now = app.board.view(Instant::now());
    let now = |name: &RouteId| now.iter().find(|view| view.route == *name);
    let untouched = Known { record: Record::default(), saved: true };
    let configured = settings.routes.iter().map(|(name, route)| {
        let known = known.get(&Subject::Route(name.clone())).unwrap_or(&untouched);
        (name.clone(), View::new(name, Some(route), now(name), known))
    });
    let mut all: BTreeMap<RouteId, View> = configured.collect();
    for (subject, known) in &known {
        if let Subject::Route(name) = subject
            && !all.contains_key(name)
        {
            all.insert(name.clone(), View::new(name, None, None, known));
        }
    }
    all
}

fn view(app: &App, name: &str) -> Result<View, Problem> {
    let mut all = all(app);
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
    let all = all(&app);
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

async fn switch(app: &Arc<App>, name: &str, request: Request<Body>, stop: bool) -> Answer {
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
    let now = app.board.view(Instant::now());
    let now = now.iter().find(|view| view.route == route);
    let mut view = View::new(&route, current.settings.routes.get(&route).map(|route| &**route), now, &known);
    view.changed = Some(done.changed);
    Ok(tagged(&view, &etag(view.version)))
}

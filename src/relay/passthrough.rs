//! What a workflow passes through: a path of its `passthrough` goes to its primary as it is, once, and the answer comes back as
//! it is.
//!
//! In: a request that no other endpoint takes. Out: one call to the primary's provider, whatever the method, its answer byte for
//! byte, or an error of the relay's in the caller's dialect: a rejection of the request keeps the provider's status and words,
//! every other failure is `exhausted_status`, as everywhere (SPEC section 7). No recovery, no boundary, no operation: ids in such paths are one
//! account's. The request's body is held (`max_body_bytes`), the answer's never: a piece is read when the client has taken the one
//! before. What breaks off is cut, never ended cleanly; nor is an event stream of responses that lacks its own end ([`watched`]).
//!
//! The primary of a planned split is its first member, and with it every id in a path: a draw by weight would send the second call about
//! a file to another account than the first.
//!
//! No caller chooses a host: scheme, authority and the path's beginning are the provider's, and a segment that a server might take
//! for a step upwards is refused.

mod passing_on;
mod reading;
mod watched;

use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue,
};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use crate::attempt::control::Stop;
use crate::classify::{self, Context, ERROR_BODY_BYTES_MAX, Evidence, Timer};
use crate::clock::{Instant, UnixMillis};
use crate::config::settings::{RouteSettings, WorkflowSettings};
use crate::contract::headers;
use crate::gate::{Asking, Closed, Pass};
use crate::ids::OperationId;
use crate::protocol::Dialect;
use crate::telemetry::events::{AlarmKind, Call};
use crate::upstream::{request, token};

use super::admission::Permit;
use super::app::{App, Current};
use super::auth::Caller;
use super::client_body::{ClientBody, Limits};
use super::emit::Driven;
use super::endpoints::{self, dialect_of};
use super::intake::{self, Answer, Refusal};
use super::outward::{self, Facts};
use super::passage::named;
use super::read::{is_event_stream, read_bounded};
use super::stream::ERROR_BODY_WAIT;
use super::told::Told;
use super::transport::{InRequest, Transport};
use passing_on::{Shown, pump};
pub(super) use reading::foreground;
use reading::{RESPONSES, is_of, is_plain, model_of, own_model, routed};
use watched::Watched;

/// Headers of an answer that come down besides the provider's request id: what its bytes are.
const DOWN: [HeaderName; 4] = [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_DISPOSITION];

/// Whatever no other endpoint takes.
pub async fn other(State(app): State<Arc<App>>, request: Request<axum::body::Body>) -> Answer {
    if is_listed(&app, request.uri().path()) { pass(app, request).await } else { endpoints::not_found(request).await }
}

/// The same for a path that the relay will serve itself one day.
pub async fn or_not_built(State(app): State<Arc<App>>, request: Request<axum::body::Body>) -> Answer {
    if is_listed(&app, request.uri().path()) { pass(app, request).await } else { endpoints::not_built(request).await }
}

/// Whether any workflow lists it. Where none does there is nothing to ask a key for.
fn is_listed(app: &App, path: &str) -> bool {
    app.current().settings.workflows.values().any(|workflow| lists(workflow, path))
}

fn lists(workflow: &WorkflowSettings, path: &str) -> bool {
    workflow.passthrough.iter().any(|pattern| pattern.matches(path))
}

async fn pass(app: Arc<App>, request: Request<axum::body::Body>) -> Answer {
    let dialect = dialect_of(request.uri().path());
    let mut told = Told::new(&app.telemetry, Call::Passthrough, dialect, request.headers());
    let answer = admit(app, dialect, request, &mut told).await;
    intake::told(told, answer, dialect)
}

async fn admit(
    app: Arc<App>,
    dialect: Dialect,
    request: Request<axum::body::Body>,
    told: &mut Told,
) -> Result<Answer, Refusal> {
    let (parts, body) = request.into_parts();
    let transport = parts.extensions.get::<Transport>().cloned();
    let in_request = transport.as_ref().map(|transport| transport.begin(parts.version == Version::HTTP_2));
    let current = app.current();
    let (caller, permit) = intake::enter(&app, &current, &parts)?;
    told.caller(&caller);
    check(&parts)?;
    let asked = headers::read(&parts.headers)
        .map_err(|error| Refusal::new(400, error.code, format!("{error}.")).param(error.header))?;
    let body = intake::read_body(body, current.settings.server.max_body_bytes).await?;
    if let Some(transport) = &transport {
        transport.body_read();
    }
    let model = model_of(&parts.headers, &body);
    let workflow = choose(&caller, parts.uri.path(), asked.workflow.as_deref(), model.as_ref().map(|found| &*found.0))?;
    told.passing(workflow);
    let passing = Passing {
        body: own_model(body, model, workflow),
        workflow: Arc::clone(workflow),
        dialect,
        query: parts.uri.query().and_then(intake::without_credentials),
        show_routes: caller.show_routes,
        in_request,
        permit,
        until: asked.deadline.map(|deadline| Instant::now() + deadline),
        transport: transport.clone(),
        current,
        parts,
    };
    intake::there(transport.as_ref(), forward(app, passing, told)).await
}

/// What can't pass, whoever sends it.
fn check(parts: &Parts) -> Result<(), Refusal> {
    // An answer to TRACE may hold the credential that was sent.
    if matches!(parts.method, Method::TRACE | Method::CONNECT) {
        return Err(Refusal::new(405, "method_not_allowed", format!("{} does not pass through.", parts.method)));
    }
    if parts.version < Version::HTTP_11 {
        // A cut answer could not be told from a whole one.
        let message = "What passes through needs HTTP/1.1 or HTTP/2.";
        return Err(Refusal::new(426, "http_version_not_supported", message).upgrade());
    }
    if !is_plain(parts.uri.path()) {
        return Err(Refusal::new(400, "invalid_path", "The path has a segment that does not pass through."));
    }
    intake::check_encoding(&parts.headers)
}

/// The header's, else the model's, else the only one that lists the path.
fn choose<'a>(
    caller: &'a Caller,
    path: &str,
    named: Option<&str>,
    model: Option<&str>,
) -> Result<&'a Arc<WorkflowSettings>, Refusal> {
    let message = "This path is not among the passthrough paths of the workflow.";
    let listed = |workflow: &'a Arc<WorkflowSettings>| {
        lists(workflow, path)
            .then_some(workflow)
            .ok_or_else(|| Refusal::new(404, "passthrough_not_configured", message))
    };
    if let Some(name) = named {
        let found = caller.workflows.iter().find(|workflow| workflow.name.as_str() == name);
        return listed(found.ok_or_else(|| {
            Refusal::new(400, "unknown_workflow", "Rubicon-Workflow names no workflow you may call.")
        })?);
    }
    if let Some(owner) = model.and_then(|model| caller.workflows.iter().find(|workflow| is_of(workflow, model))) {
        return listed(owner);
    }
    let mut fitting = caller.workflows.iter().filter(|workflow| lists(workflow, path));
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(Refusal::new(404, "passthrough_not_configured", "No workflow you may call has this path.")),
        _ => Err(Refusal::new(
            400,
            "workflow_missing",
            "Several workflows you may call have this path; name one with Rubicon-Workflow.",
        )),
    }
}

/// Whether a workflow takes background requests: it lists [`RESPONSES`].
pub(super) fn takes_background(workflow: &WorkflowSettings) -> bool {
    lists(workflow, RESPONSES)
}

/// Sends a background request: to the primary, with the route's model as ever, and with no recovery.
pub(super) async fn background(app: Arc<App>, mut passing: Passing, told: &mut Told) -> Result<Answer, Refusal> {
    check(&passing.parts)?;
    if passing.parts.headers.contains_key("idempotency-key") {
        // It would have to be remembered for as long as the answer is being made.
        let message = "A background request can't be repeated under an Idempotency-Key: its own id is what to ask by.";
        return Err(Refusal::new(400, "idempotency_not_supported", message).param("Idempotency-Key"));
    }
    if let Some(own) = &passing.workflow.primary.model {
        passing.body = routed(&passing.body, own);
    }
    let transport = passing.transport.clone();
    intake::there(transport.as_ref(), forward(app, passing, told)).await
}

/// A request that passes.
pub(super) struct Passing {
    pub(super) current: Arc<Current>,
    pub(super) workflow: Arc<WorkflowSettings>,
    /// Whose errors the caller reads.
    pub(super) dialect: Dialect,
    pub(super) parts: Parts,
    pub(super) query: Option<String>,
    pub(super) body: Bytes,
    pub(super) show_routes: bool,
    pub(super) transport: Option<Transport>,
    pub(super) permit: Permit,
    pub(super) in_request: Option<InRequest>,
    /// `Rubicon-Deadline-Ms`.
    pub(super) until: Option<Instant>,
}

/// Sends it to the workflow's primary, once, and turns the answer's head and body into the client's.
async fn forward(app: Arc<App>, passing: Passing, told: &mut Told) -> Result<Answer, Refusal> {
    let began = Instant::now();
    let route = Arc::clone(&passing.workflow.primary);
    let pass = enter(&app, &route, began)?;
    let stop = app.cut.child_token();
    let within = began + route.timeouts.answer;
    let until = passing.until.map_or(within, |until| until.min(within));
    let sent = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(shut_down(&passing)),
        sent = send(&route, &passing, until) => sent,
    };
    let method = &passing.parts.method;
    let status = sent.as_ref().ok().map(|response| response.status().as_u16());
    let took_ms = began.elapsed().as_millis();
    tracing::info!(workflow = %passing.workflow.name, route = %route.name, %method, status, took_ms, "passed through");
    let response = sent.map_err(|evidence| failed(&app, &route, &passing, &evidence))?;
    if response.status().is_success() {
        return Ok(answer(&app, &route, response, passing, (pass, stop, told)));
    }
    let (head, body) = response.into_parts();
    let until = until.min(Instant::now() + ERROR_BODY_WAIT);
    // The status alone is evidence enough.
    let body =
        timeout_at(until, read_bounded(body, ERROR_BODY_BYTES_MAX)).await.map_or(Bytes::new(), |read| read.bytes);
    let evidence = Evidence::Http { status: head.status.as_u16(), headers: &head.headers, body: &body };
    Err(failed(&app, &route, &passing, &evidence))
}

/// A killed route gets nothing, and what passes through takes of its limits like everything else, to its last byte. Its breaker keeps
/// nothing out, as there is no other route, and learns nothing: what becomes of files and batches says little of a model.
fn enter(app: &App, route: &RouteSettings, now: Instant) -> Result<Pass, Refusal> {
    let asking = Asking { route, recovery: false, even_if_tripped: true, tokens: 0 };
    let mut pass = app.board.enter(&asking, now).map_err(|closed| {
        app.telemetry.metrics().shed(named(closed).family());
        let status = if matches!(closed, Closed::Capacity | Closed::FailoverLimit) { 429 } else { 503 };
        Refusal::new(status, Stop::NoEligibleFallback.name(), "The route of this path takes no request now.")
    })?;
    pass.says_nothing();
    Ok(pass)
}

async fn send(
    route: &RouteSettings,
    passing: &Passing,
    until: Instant,
) -> Result<Response<Incoming>, Evidence<'static>> {
    token::refresh(&route.provider).await;
    let Passing { parts, query, body, dialect, .. } = passing;
    let (method, path) = (parts.method.clone(), parts.uri.path());
    let built = request::pass(route, *dialect, method, path, query.as_deref(), &parts.headers, body.clone());
    let (Ok(request), Some(upstream)) = (built, passing.current.upstreams.get(&route.name)) else {
        tracing::error!(route = %route.name, "a request that passes through could not be built");
        return Err(Evidence::BadAnswer);
    };
    match timeout_at(until, upstream.send(request)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(fault)) => Err(Evidence::Transport(fault)),
        Err(_) => Err(Evidence::Silence(Timer::Answer)),
    }
}

/// There is no operation to look up, so its id is not told.
fn told(passing: &Passing, make: impl FnOnce(&Facts<'_>) -> crate::reply::Outward) -> Refusal {
    let nobody = OperationId::new("");
    let exhausted_status = passing.current.settings.server.exhausted_status;
    let mut failure = make(&Facts { operation: &nobody, attempts: 1, exhausted_status, plan: None, left_out: &[] });
    failure.rubicon.operation_id = None;
    Refusal::of_failure(failure)
}

fn failed(app: &App, route: &RouteSettings, passing: &Passing, evidence: &Evidence<'_>) -> Refusal {
    let provider = &route.provider;
    let ambiguous_429_is_rate_limit = provider.ambiguous_429_is_rate_limit;
    let context = Context { dialect: passing.dialect, ambiguous_429_is_rate_limit, now: UnixMillis::now() };
    let mut verdict = classify::classify(evidence, &context);
    if let Some(secret) = provider.credential() {
        verdict.said.mask_exactly(secret.expose());
    }
    if verdict.alarm {
        tracing::error!(route = %route.name, "ALARM: the provider's certificate is not acceptable");
        app.telemetry.alarm(AlarmKind::BadCertificate, None, Some(&route.name), UnixMillis::now());
    }
    told(passing, |facts| outward::refused(facts, Stop::Blocked, verdict.class, Some(&verdict)))
}

/// Nobody knows what an unanswered request did, unless it could do nothing.
fn shut_down(passing: &Passing) -> Refusal {
    told(passing, |facts| outward::stopped(facts, true, None, !passing.parts.method.is_safe()))
}

fn answer(
    app: &App,
    route: &RouteSettings,
    response: Response<Incoming>,
    passing: Passing,
    (pass, stop, told): (Pass, CancellationToken, &mut Told),
) -> Answer {
    let (head, body) = response.into_parts();
    let mut headers = HeaderMap::new();
    for name in DOWN {
        if let Some(value) = head.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    if let Some(value) = super::secrets::request_id(&passing.current.settings, &head.headers) {
        headers.insert(HeaderName::from_static("rubicon-provider-request-id"), value);
    }
    headers.insert(HeaderName::from_static("rubicon-attempts"), HeaderValue::from_static("1"));
    headers.insert(HeaderName::from_static("rubicon-recovery"), HeaderValue::from_static("none"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let (true, Ok(name)) = (passing.show_routes, HeaderValue::from_str(route.name.as_str())) {
        headers.insert(HeaderName::from_static("rubicon-served-route"), name);
    }
    if head.headers.contains_key(CONTENT_TYPE) && is_event_stream(&head.headers) {
        headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
        if let Some(transport) = &passing.transport {
            transport.hide_close(&passing.parts.headers);
        }
    }
    let server = &passing.current.settings.server;
    let watched = Watched::of(passing.parts.uri.path(), &head.headers, server.max_event_bytes);
    if watched.is_some() {
        // A frame may follow what the provider counted.
        headers.remove(CONTENT_LENGTH);
    }
    let (idle, exhausted_status) = (route.timeouts.idle, server.exhausted_status);
    let limits = Limits { stop: stop.clone(), until: None };
    // Only standard status codes go out (FIELD_CASES F38).
    let status = if matches!(head.status.as_u16(), 200..=206) { head.status } else { StatusCode::OK };
    let mut shown = Shown::new(told, status, stop);
    if body.is_end_stream() && watched.is_none() {
        // Nobody will ask for a body of no bytes.
        shown.whole();
    }
    let driven = Driven::new(|emitter| async move {
        let _held = pass;
        pump(body, emitter, idle, shown, (watched, exhausted_status)).await;
    });
    let (body, watch) = ClientBody::new(driven, passing.transport, passing.permit, passing.in_request, limits);
    app.tasks.spawn(watch);
    let mut response = Response::new(axum::body::Body::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

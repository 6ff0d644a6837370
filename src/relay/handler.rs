//! HTTP in: authentication, limits, headers and body to a [`Contract`], then the driver; its first item is the response head.
//!
//! Every refusal here is an error in the caller's dialect, made before any provider is asked, and harms no other request.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request, StatusCode, Version};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use crate::clock::{Instant, UnixMillis};
use crate::config::settings::WorkflowSettings;
use crate::contract::headers::{self, Asked};
use crate::contract::{Contract, Endpoint};
use crate::ids::OperationId;
use crate::plan;
use crate::protocol::Dialect;
use crate::protocol::signal::Usage;
use crate::reply::Outward;

use super::app::{App, random_id};
use super::auth::Caller;
use super::client_body::{ClientBody, WholeBody};
use super::emit::{Driven, Head, Out};
use super::idempotency::{Claim, Claimed, Stored};
use super::operation::{Job, error_headers, run};
use super::operations::{self, Operation, Operations, View};
use super::outward;
use super::transport::{InRequest, Transport};

/// A request body that stops coming for this long is given up (408).
const BODY_STALL_MAX: Duration = Duration::from_secs(30);

/// What a handler answers: a response in any of three bodies.
pub type Answer = Response<axum::body::Body>;

/// `POST /v1/chat/completions`.
pub async fn chat_completions(State(app): State<Arc<App>>, request: Request<axum::body::Body>) -> Answer {
    call(app, Endpoint::ChatCompletions, request).await
}

/// `POST /v1/messages`.
pub async fn messages(State(app): State<Arc<App>>, request: Request<axum::body::Body>) -> Answer {
    call(app, Endpoint::Messages, request).await
}

/// `POST /v1/messages/count_tokens`.
pub async fn count_tokens(State(app): State<Arc<App>>, request: Request<axum::body::Body>) -> Answer {
    call(app, Endpoint::CountTokens, request).await
}

/// A refusal by the relay itself.
struct Refusal {
    failure: Box<Outward>,
    headers: HeaderMap,
}

impl Refusal {
    fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { failure: Box::new(outward::own(status, code, message.into(), None)), headers: HeaderMap::new() }
    }

    fn param(mut self, param: &str) -> Self {
        self.failure.param = Some(param.into());
        self
    }

    fn of(mut self, operation: &OperationId) -> Self {
        self.failure.rubicon.operation_id = Some(operation.clone());
        self
    }

    fn into_response(mut self, dialect: Dialect) -> Answer {
        // Shedding is no final word, and neither is a key that is in use: the caller may come again.
        let final_word =
            !matches!(self.failure.status, 429 | 503) && !matches!(self.failure.rubicon.reason.as_str(), "in_progress");
        self.headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        error_headers(&mut self.headers, &self.failure, final_word);
        let mut response = Response::new(axum::body::Body::from(dialect.error_body(&self.failure)));
        *response.status_mut() = StatusCode::from_u16(self.failure.status).unwrap_or(StatusCode::BAD_REQUEST);
        *response.headers_mut() = self.headers;
        response
    }
}

async fn call(app: Arc<App>, endpoint: Endpoint, request: Request<axum::body::Body>) -> Answer {
    let dialect = endpoint.dialect();
    match admit(app, endpoint, request).await {
        Ok(answer) => answer,
        Err(refusal) => {
            tracing::info!(
                status = refusal.failure.status,
                reason = refusal.failure.rubicon.reason.as_str(),
                "request refused"
            );
            refusal.into_response(dialect)
        }
    }
}

async fn admit(app: Arc<App>, endpoint: Endpoint, request: Request<axum::body::Body>) -> Result<Answer, Refusal> {
    // The deadline starts here.
    let admitted = Instant::now();
    let (parts, body) = request.into_parts();
    let transport = parts.extensions.get::<Transport>().cloned();
    let in_request = transport.as_ref().map(|transport| transport.begin(parts.version == Version::HTTP_2));
    if app.is_draining() {
        return Err(Refusal::new(503, "shutting_down", "The relay is shutting down."));
    }
    let caller = app.clients.find(&parts.headers, &parts.uri).map_err(denied)?;
    let permit = Arc::clone(&app.in_flight)
        .try_acquire_owned()
        .map_err(|_| Refusal::new(503, "overloaded", "The relay has as many requests as it may take."))?;
    let asked = headers::read(&parts.headers)
        .map_err(|error| Refusal::new(400, error.code, format!("{error}.")).param(error.header))?;
    check_content(&parts.headers)?;
    let body = read_body(body, app.settings.server.max_body_bytes).await?;
    let contract = contract(&caller, endpoint, &body, &asked)?;
    let Admission { workflow, contract } = contract;
    if let Some(old) = &asked.restart_of {
        may_restart(&app, &caller, old)?;
    }
    let fingerprint = fingerprint(endpoint, &workflow, &body);
    let chosen = asked.operation.is_some();
    let id = match asked.operation {
        Some(id) => id,
        None => OperationId::from_random(
            random_id()
                .map_err(|_| Refusal::new(503, "no_randomness", "The system gives no random bits for an id."))?,
        ),
    };
    let stream = contract.facts.stream;
    let mut claim = None;
    if chosen {
        let key = (caller.tenant.clone(), id.clone());
        match app.idempotency.claim(key, fingerprint, !stream, admitted) {
            Claimed::New(new) => claim = Some(new),
            Claimed::Join(receiver) => return joined(receiver, &id, permit).await,
            Claimed::Replay(stored) => return Ok(replay(&stored, true)),
            other => return Err(key_refusal(&other).of(&id)),
        }
    }
    let operation = register(&app, &caller, &workflow, &contract, id, asked.restart_of, admitted);
    let plan = {
        let mut plan = plan::plan(&workflow, &app.settings.approvals, &contract, UnixMillis::now());
        // Without a model in the request, only routes that name one can serve.
        plan.candidates.retain(|candidate| contract.facts.model.is_some() || candidate.route.model.is_some());
        plan
    };
    let job = Job {
        app: Arc::clone(&app),
        operation,
        workflow,
        contract,
        plan,
        body,
        headers: parts.headers,
        query: parts.uri.query().map(str::to_owned),
        show_routes: caller.show_routes,
        claim,
    };
    let sender = job.claim.as_ref().and_then(Claim::sender);
    let driven = Driven::new(|emitter| run(job, emitter));
    match sender {
        // Others may join a keyed answer, so it must not depend on this one's connection.
        Some(sender) => detached(&app, driven, sender, permit).await,
        None => Ok(respond(driven, transport, permit, in_request).await),
    }
}

/// A restart is a new operation; it is refused while the old one may still do something, or may have done something that
/// nobody has looked into (SPEC section 7).
fn may_restart(app: &App, caller: &Caller, old: &OperationId) -> Result<(), Refusal> {
    let Some(known) = app.operations.get(&caller.tenant, old) else {
        return Err(Refusal::new(404, "operation_not_found", "Rubicon-Restart-Of names no operation that is known."));
    };
    let view = known.view();
    if view.state == operations::State::Running {
        return Err(Refusal::new(409, "still_running", "The operation to be restarted is still running.").of(old));
    }
    if view.unresolved_executions > 0 {
        let message = "A tool of the operation to be restarted may have acted: find out first.";
        let mut refusal = Refusal::new(409, "side_effect_uncertain", message).of(old);
        refusal.failure.rubicon.unresolved_executions = Some(view.unresolved_executions);
        refusal.failure.rubicon.actions = Some(vec!["reconcile"]);
        return Err(refusal);
    }
    Ok(())
}

fn denied(denied: super::auth::Denied) -> Refusal {
    Refusal::new(denied.status, denied.code, denied.message)
}

fn key_refusal(claimed: &Claimed) -> Refusal {
    match claimed {
        Claimed::Mismatch => Refusal::new(
            422,
            "idempotency_key_reused",
            "This Idempotency-Key was used with another request body; a key stands for one request.",
        ),
        Claimed::NotKept => Refusal::new(
            409,
            "outcome_not_kept",
            "The answer under this Idempotency-Key was given and is not kept; it is never generated again.",
        ),
        Claimed::Full => Refusal::new(503, "too_many_waiters", "Too many requests use Idempotency-Keys now."),
        _ => Refusal::new(409, "in_progress", "The request with this Idempotency-Key is still being answered."),
    }
}

fn check_content(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(Refusal::new(415, "unsupported_content_encoding", "The request body must not be compressed."));
    }
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let media = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media == "application/json" || (media.starts_with("application/") && media.ends_with("+json")) {
        return Ok(());
    }
    Err(Refusal::new(415, "unsupported_media_type", "The request body must be application/json."))
}

async fn read_body(mut body: axum::body::Body, max: usize) -> Result<Bytes, Refusal> {
    let too_large = || Refusal::new(413, "request_too_large", format!("The request body is over {max} bytes."));
    if http_body::Body::size_hint(&body).lower() > u64::try_from(max).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    let mut bytes = BytesMut::new();
    loop {
        let frame = timeout(BODY_STALL_MAX, body.frame())
            .await
            .map_err(|_| Refusal::new(408, "request_timeout", "The request body stopped coming."))?;
        match frame {
            None => return Ok(bytes.freeze()),
            Some(Err(_)) => return Err(Refusal::new(400, "body_broken", "The request body broke off.")),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    if bytes.len() + data.len() > max {
                        return Err(too_large());
                    }
                    bytes.extend_from_slice(&data);
                }
            }
        }
    }
}

struct Admission {
    workflow: Arc<WorkflowSettings>,
    contract: Contract,
}

fn contract(caller: &Caller, endpoint: Endpoint, body: &Bytes, asked: &Asked) -> Result<Admission, Refusal> {
    let mut facts = endpoint.dialect().read_request(body).map_err(|error| {
        let refusal = Refusal::new(400, error.code, error.message);
        match error.param {
            Some(param) => refusal.param(param),
            None => refusal,
        }
    })?;
    if endpoint == Endpoint::CountTokens {
        facts.stream = false;
    }
    let model = facts.model.as_ref().map(|(name, _)| name.as_str());
    let workflow = Arc::clone(workflow(caller, asked.workflow.as_deref(), model)?);
    if model.is_none() && workflow.primary.model.is_none() {
        return Err(Refusal::new(400, "model_missing", "The request names no model, and neither does the route.")
            .param("model"));
    }
    let contract = Contract::new(endpoint, facts, workflow.envelope, asked);
    if let Some(tool) = contract.forbidden_tool() {
        let message =
            format!("The tool {tool} is run by the provider and is not allowed by this workflow's side_effects.");
        return Err(Refusal::new(400, "side_effects_not_allowed", message).param("tools"));
    }
    if !workflow.primary.dialects.contains(&endpoint.dialect()) {
        let message = format!("The workflow {} does not speak {}.", workflow.name, endpoint.dialect().name());
        return Err(Refusal::new(400, "dialect_not_supported", message));
    }
    Ok(Admission { workflow, contract })
}

/// The header's, else the model's, else the only one, else a clear 400.
fn workflow<'a>(
    caller: &'a Caller,
    named: Option<&str>,
    model: Option<&str>,
) -> Result<&'a Arc<WorkflowSettings>, Refusal> {
    if let Some(name) = named {
        return caller
            .workflows
            .iter()
            .find(|workflow| workflow.name.as_str() == name)
            .ok_or_else(|| Refusal::new(400, "unknown_workflow", "Rubicon-Workflow names no workflow you may call."));
    }
    if let Some(found) = model
        .and_then(|model| caller.workflows.iter().find(|workflow| workflow.models.iter().any(|name| name == model)))
    {
        return Ok(found);
    }
    match caller.workflows.as_slice() {
        [only] => Ok(only),
        [] => Err(Refusal::new(403, "no_workflow_allowed", "This client may call no workflow.")),
        _ => Err(Refusal::new(
            400,
            "unknown_model",
            "The model belongs to no workflow you may call; name one with Rubicon-Workflow or see GET /v1/models.",
        )
        .param("model")),
    }
}

fn fingerprint(endpoint: Endpoint, workflow: &WorkflowSettings, body: &Bytes) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("rubicon 2026-11-30 idempotent request v1");
    for part in [format!("{endpoint:?}").as_bytes(), workflow.name.as_str().as_bytes(), body] {
        hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

fn register(
    app: &App,
    caller: &Caller,
    workflow: &WorkflowSettings,
    contract: &Contract,
    id: OperationId,
    restart_of: Option<OperationId>,
    admitted: Instant,
) -> Arc<Operation> {
    if let Some(old) = restart_of.as_ref().and_then(|old| app.operations.get(&caller.tenant, old)) {
        old.update(|known| known.restarted_as = Some(id.clone()));
    }
    let view = View {
        operation_id: id,
        restart_of,
        restarted_as: None,
        state: operations::State::Running,
        actions: vec!["none"],
        reason: None,
        class: None,
        workflow: workflow.name.clone(),
        dialect: contract.endpoint.dialect(),
        stream: contract.facts.stream,
        created_at: UnixMillis::now(),
        ended_at: None,
        attempts: Vec::new(),
        boundary: None,
        after: 0,
        finish_reason: None,
        usage: Usage::default(),
        executions: Vec::new(),
        unresolved_executions: 0,
    };
    let operation = Arc::new(Operation::new(view, caller.tenant.clone(), admitted, app.cut.child_token()));
    app.operations.insert(&operation, admitted);
    operation
}

/// Turns a driver into a response: its head when it comes, then the rest as the body.
async fn respond(
    mut driven: Driven,
    transport: Option<Transport>,
    permit: OwnedSemaphorePermit,
    in_request: Option<InRequest>,
) -> Answer {
    let Some(head) = first_head(&mut driven).await else { return no_answer() };
    let streamed =
        head.headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
    let body = if streamed {
        axum::body::Body::new(ClientBody::new(driven, transport, Some(permit), in_request))
    } else {
        axum::body::Body::new(WholeBody::new(rest(&mut driven).await, permit, in_request))
    };
    build(head, body)
}

async fn first_head(driven: &mut Driven) -> Option<Head> {
    loop {
        match driven.next().await? {
            Out::Head(head) => return Some(head),
            Out::Data(_) | Out::Abort => {}
        }
    }
}

/// All data of a whole answer: one piece, so nothing is copied.
async fn rest(driven: &mut Driven) -> Bytes {
    let mut whole = Bytes::new();
    while let Some(out) = driven.next().await {
        if let Out::Data(data) = out {
            whole = if whole.is_empty() { data } else { [whole, data].concat().into() };
        }
    }
    whole
}

fn build(head: Head, body: axum::body::Body) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

fn no_answer() -> Answer {
    Refusal::new(500, "internal", "The relay made no answer.").into_response(Dialect::ChatCompletions)
}

/// Runs a keyed answer in a task of its own and waits for it. When everybody who waited has left it is cancelled.
async fn detached(
    app: &App,
    mut driven: Driven,
    sender: Arc<watch::Sender<Option<Arc<Stored>>>>,
    permit: OwnedSemaphorePermit,
) -> Result<Answer, Refusal> {
    let mut receiver = sender.subscribe();
    app.tasks.spawn(async move {
        let _permit = permit;
        tokio::select! {
            () = sender.closed() => {}
            () = async { while driven.next().await.is_some() {} } => {}
        }
        // Ends the wait of everybody if the driver settled nothing.
        drop(driven);
        drop(sender);
    });
    outcome(&mut receiver).await.map(|stored| replay(&stored, false))
}

async fn outcome(receiver: &mut watch::Receiver<Option<Arc<Stored>>>) -> Result<Arc<Stored>, Refusal> {
    let found = receiver.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
    found.ok_or_else(|| Refusal::new(503, "not_answered", "The request under this Idempotency-Key came to no end."))
}

async fn joined(
    mut receiver: watch::Receiver<Option<Arc<Stored>>>,
    id: &OperationId,
    permit: OwnedSemaphorePermit,
) -> Result<Answer, Refusal> {
    let _permit = permit;
    outcome(&mut receiver).await.map(|stored| replay(&stored, true)).map_err(|refusal| refusal.of(id))
}

fn replay(stored: &Stored, again: bool) -> Answer {
    let mut head = stored.head.clone();
    if again {
        head.headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
    build(head, axum::body::Body::from(stored.body.clone()))
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Answer {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(axum::body::Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `GET /v1/models`: the workflows this client may call, in OpenAI's list shape.
pub async fn models(State(app): State<Arc<App>>, request: Request<axum::body::Body>) -> Answer {
    let caller = match app.clients.find(request.headers(), request.uri()) {
        Ok(caller) => caller,
        Err(error) => return denied(error).into_response(Dialect::ChatCompletions),
    };
    let mut data = Vec::new();
    for workflow in &caller.workflows {
        let names: Vec<&str> = if workflow.models.is_empty() {
            vec![workflow.name.as_str()]
        } else {
            workflow.models.iter().map(String::as_str).collect()
        };
        for id in names {
            data.push(serde_json::json!({ "id": id, "object": "model", "created": 0, "owned_by": workflow.name }));
        }
    }
    json(StatusCode::OK, &serde_json::json!({ "object": "list", "data": data }))
}

fn find_operation(app: &App, headers: &HeaderMap, uri: &http::Uri, id: &str) -> Result<Arc<Operation>, Refusal> {
    let caller = app.clients.find(headers, uri).map_err(denied)?;
    app.operations
        .get(&caller.tenant, &OperationId::new(id))
        .ok_or_else(|| Refusal::new(404, "operation_not_found", "There is no such operation."))
}

/// `GET /v1/operations/{id}`.
pub async fn operation(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    request: Request<axum::body::Body>,
) -> Answer {
    match find_operation(&app, request.headers(), request.uri(), &id) {
        Ok(operation) => json(StatusCode::OK, &operation.view()),
        Err(refusal) => refusal.into_response(Dialect::ChatCompletions),
    }
}

/// `DELETE /v1/operations/{id}`: stop. An ended operation stays as it is.
pub async fn stop(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request<axum::body::Body>) -> Answer {
    match find_operation(&app, request.headers(), request.uri(), &id) {
        Ok(operation) => {
            if Operations::stop(&operation) {
                tracing::info!(operation = %operation.id, "stop asked for");
            }
            json(StatusCode::OK, &operation.view())
        }
        Err(refusal) => refusal.into_response(Dialect::ChatCompletions),
    }
}

/// `GET /v1/operations/{id}/stream`: transcripts are not built yet, and this says so instead of looking like an unknown id.
pub async fn resume_not_built() -> Answer {
    Refusal::new(501, "not_built_yet", "This build keeps no transcripts: streams can't be resumed.")
        .into_response(Dialect::ChatCompletions)
}

/// `GET /healthz`.
pub async fn healthz() -> Answer {
    json(StatusCode::OK, &serde_json::json!({ "status": "ok" }))
}

/// `GET /readyz`: 503 as soon as a shutdown begins.
pub async fn readyz(State(app): State<Arc<App>>) -> Answer {
    if app.is_draining() {
        return json(StatusCode::SERVICE_UNAVAILABLE, &serde_json::json!({ "status": "shutting_down" }));
    }
    json(StatusCode::OK, &serde_json::json!({ "status": "ok" }))
}

/// Whatever is not served.
pub async fn not_found(request: Request<axum::body::Body>) -> Answer {
    let message = format!("{} {} is not served here.", request.method(), request.uri().path());
    Refusal::new(404, "not_found", message).into_response(dialect_of(request.uri().path()))
}

/// A path that is served, by another method.
pub async fn method_not_allowed(request: Request<axum::body::Body>) -> Answer {
    let message = format!("{} is not allowed on {}.", request.method(), request.uri().path());
    Refusal::new(405, "method_not_allowed", message).into_response(dialect_of(request.uri().path()))
}

fn dialect_of(path: &str) -> Dialect {
    if path.starts_with("/v1/messages") { Dialect::AnthropicMessages } else { Dialect::ChatCompletions }
}

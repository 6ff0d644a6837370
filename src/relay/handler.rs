//! HTTP in: authentication, limits, headers and body to a [`Contract`], then the driver; its first item is the response head.
//!
//! Every refusal here is an error in the caller's dialect, made before any provider is asked, and harms no other request.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Version};
use rubicon_ledger::RootId;
use tokio::sync::watch;

use crate::clock::{Instant, UnixMillis};
use crate::config::settings::WorkflowSettings;
use crate::contract::headers::{self, Asked};
use crate::contract::{Contract, Endpoint};
use crate::ids::{OperationId, TenantId};
use crate::plan::{self, World};
use crate::protocol::Dialect;
use crate::protocol::signal::Usage;

use super::admission::Permit;
use super::app::{App, random_id, random_u64};
use super::auth::Caller;
use super::client_body::{ClientBody, Limits, WholeBody};
use super::emit::{Driven, Head, Out};
use super::idempotency::{Claim, Claimed, Stored};
use super::intake::{self, Answer, Refusal};
use super::issued::OfTenant;
use super::operation::{Job, run};
use super::operations::{self, Names, Operation, View};
use super::passthrough::{self, Passing};
use super::restart::may_restart;
use super::roots::{self, Inferred, Root};
use super::seat;
use super::told::{Told, call_of};
use super::transport::{InRequest, Transport};

/// `POST /v1/chat/completions`.
pub async fn chat_completions(State(app): State<Arc<App>>, request: Request<axum::body::Body>) -> Answer {
    call(app, Endpoint::ChatCompletions, request).await
}

/// `POST /v1/messages`.
pub async fn messages(State(app): State<Arc<App>>, request: Request<axum::body::Body>) -> Answer {
    call(app, Endpoint::Messages, request).await
}

/// `POST /v1/responses`.
pub async fn responses(State(app): State<Arc<App>>, request: Request<axum::body::Body>) -> Answer {
    call(app, Endpoint::Responses, request).await
}

/// `POST /v1/messages/count_tokens`.
pub async fn count_tokens(State(app): State<Arc<App>>, request: Request<axum::body::Body>) -> Answer {
    call(app, Endpoint::CountTokens, request).await
}

async fn call(app: Arc<App>, endpoint: Endpoint, request: Request<axum::body::Body>) -> Answer {
    let dialect = endpoint.dialect();
    let mut told = Told::new(&app.telemetry, call_of(endpoint), dialect, request.headers());
    let answer = admit(app, endpoint, request, &mut told).await;
    intake::told(told, answer, dialect)
}

async fn admit(
    app: Arc<App>,
    endpoint: Endpoint,
    request: Request<axum::body::Body>,
    told: &mut Told,
) -> Result<Answer, Refusal> {
    // The deadline starts here.
    let admitted = Instant::now();
    let (parts, body) = request.into_parts();
    let transport = parts.extensions.get::<Transport>().cloned();
    let in_request = transport.as_ref().map(|transport| transport.begin(parts.version == Version::HTTP_2));
    let current = app.current();
    let (caller, permit) = intake::enter(&app, &current, &parts)?;
    told.caller(&caller);
    let asked = headers::read(&parts.headers)
        .map_err(|error| Refusal::new(400, error.code, format!("{error}.")).param(error.header))?;
    intake::check_content(&parts.headers)?;
    let body = intake::read_body(body, current.settings.server.max_body_bytes).await?;
    if let Some(transport) = &transport {
        transport.body_read();
    }
    if let Some(foreground) = passthrough::foreground(&parts, &body) {
        let workflow = contract(&caller, endpoint, &foreground, &asked)?.workflow;
        if passthrough::takes_background(&workflow) {
            told.passing(&workflow);
            let query = parts.uri.query().and_then(intake::without_credentials);
            let until = asked.deadline.map(|deadline| admitted + deadline);
            let (dialect, show_routes) = (endpoint.dialect(), caller.show_routes);
            let passing = Passing {
                current,
                workflow,
                dialect,
                parts,
                query,
                body,
                show_routes,
                transport,
                permit,
                in_request,
                until,
            };
            return passthrough::background(app, passing, told).await;
        }
    }
    let Admission { workflow, contract } = contract(&caller, endpoint, &body, &asked)?;
    told.contract(&workflow, &contract);
    told.whose.restart_of.clone_from(&asked.restart_of);
    if contract.facts.stream && parts.version < Version::HTTP_11 {
        // Its body would end with the connection, so a cut stream could not be told from a whole one.
        let message = "Streaming needs HTTP/1.1 or HTTP/2.";
        return Err(Refusal::new(426, "http_version_not_supported", message).upgrade());
    }
    if let (true, Some(transport)) = (contract.facts.stream, &transport) {
        transport.hide_close(&parts.headers);
    }
    let restarted = match &asked.restart_of {
        Some(old) => Some(may_restart(&app, &caller.tenant, old).await?),
        None => None,
    };
    let fingerprint = fingerprint(endpoint, &workflow, &body);
    let chosen = asked.operation.is_some();
    let id = match asked.operation {
        Some(id) => id,
        None => OperationId::from_random(
            random_id()
                .map_err(|_| Refusal::new(503, "no_randomness", "The system gives no random bits for an id."))?,
        ),
    };
    told.whose.operation = Some(id.clone());
    let ledger = seat::ledger(&app, &current.settings).filter(|_| endpoint != Endpoint::CountTokens);
    let inferred = match ledger {
        Some(ledger) => roots::infer(ledger, &caller.tenant, endpoint.dialect(), &body).await,
        None => Inferred::default(),
    };
    let (names, own) = ledger_names(&caller, &id)?;
    let root = roots::decide(restarted, asked.root, &inferred, own);
    let stream = contract.facts.stream;
    let mut claim = None;
    if chosen {
        let key = (caller.tenant.clone(), id.clone());
        match app.idempotency.claim(key, fingerprint, !stream, admitted) {
            Claimed::New(new) => claim = Some(new),
            Claimed::Join(receiver) => {
                told.replay("joined");
                return intake::there(transport.as_ref(), joined(receiver, &id, permit)).await;
            }
            Claimed::Replay(stored) => {
                told.replay("replayed");
                return Ok(replay(&stored, true));
            }
            other => {
                if matches!(other, Claimed::Full) {
                    app.telemetry.metrics().shed(TOO_MANY_WAITERS);
                }
                return Err(key_refusal(&other).of(&id));
            }
        }
    }
    if let Some(ledger) = ledger.filter(|_| !inferred.carried.is_empty()) {
        app.tasks.spawn(roots::report(ledger.clone(), inferred.carried));
    }
    let operation = register(&app, names, root, &workflow, &contract, asked.restart_of, admitted);
    let plan = {
        let now = UnixMillis::now();
        let world = World {
            approvals: &current.settings.approvals,
            gate: &*app.board,
            now,
            at: admitted,
            draw: random_u64(),
            issuers: &OfTenant::new(app.control.issuers(), &caller.tenant, now),
        };
        plan::plan(&workflow, &contract, &world)
    };
    let job = Job {
        app: Arc::clone(&app),
        current,
        caller: Arc::clone(&caller),
        operation,
        workflow,
        contract,
        plan,
        body,
        headers: parts.headers,
        query: parts.uri.query().and_then(intake::without_credentials),
        show_routes: caller.show_routes,
        claim,
        whose: told.whose.clone(),
        trace: told.trace.clone(),
    };
    let sender = job.claim.as_ref().and_then(Claim::sender);
    let until = job.contract.envelope.stream.map(|stream| admitted + stream);
    let limits = Limits { stop: job.operation.stop.clone(), until };
    let driven = Driven::new(|emitter| run(job, emitter));
    told.hand_over();
    match sender {
        // Others may join a keyed answer, so it must not depend on this one's connection.
        Some(sender) => intake::there(transport.as_ref(), detached(&app, driven, sender, permit)).await,
        None => {
            let watched = transport.clone();
            let answer = async { Ok(respond(&app, driven, transport, permit, in_request, limits).await) };
            intake::there(watched.as_ref(), answer).await
        }
    }
}

/// The table of keys is full: shed like anything else for which there is no room.
const TOO_MANY_WAITERS: &str = "too_many_waiters";

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
        Claimed::Full => Refusal::new(503, TOO_MANY_WAITERS, "Too many requests use Idempotency-Keys now."),
        _ => Refusal::new(409, "in_progress", "The request with this Idempotency-Key is still being answered."),
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
    // `GET /v1/models` shows a workflow without `models` by its name, so that must do too.
    if let Some(found) =
        model.and_then(|model| caller.workflows.iter().find(|workflow| workflow.name.as_str() == model))
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

/// What the ledger calls an operation, and the root that it is by itself. Tenants are checked by the configuration and ids by their
/// header, more narrowly than the ledger checks its names.
fn ledger_names(caller: &Caller, id: &OperationId) -> Result<(Names, RootId), Refusal> {
    let names = rubicon_ledger::TenantId::new(caller.tenant.as_str())
        .and_then(|tenant| Ok(Names { tenant, operation: rubicon_ledger::OperationId::new(id.as_str())? }))
        .map_err(|error| Refusal::new(400, "invalid_header", format!("This id cannot be used: {error}.")))?;
    let own = RootId::from(names.operation.clone());
    Ok((names, own))
}

fn fingerprint(endpoint: Endpoint, workflow: &WorkflowSettings, body: &Bytes) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("rubicon 2026-11-30 idempotent request v1");
    for part in [format!("{endpoint:?}").as_bytes(), workflow.name.as_str().as_bytes(), body] {
        hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

pub(super) fn register(
    app: &App,
    names: Names,
    root: Root,
    workflow: &WorkflowSettings,
    contract: &Contract,
    restart_of: Option<OperationId>,
    admitted: Instant,
) -> Arc<Operation> {
    let (tenant, id) = (TenantId::new(names.tenant.as_str()), OperationId::new(names.operation.as_str()));
    if let Some(old) = restart_of.as_ref().and_then(|old| app.operations.get(&tenant, old)) {
        old.update(|known| known.restarted_as = Some(id.clone()));
    }
    let view = View {
        operation_id: id,
        root: root.id.clone(),
        plans_incomplete: false,
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
        outcome: None,
        workflow_version: workflow.version,
        refused: Vec::new(),
        served_route: None,
    };
    let operation = Arc::new(Operation::new(view, names, root, admitted, app.cut.child_token()));
    app.operations.insert(&operation, admitted);
    operation
}

/// Turns a driver into a response: its head when it comes, then the rest as the body.
async fn respond(
    app: &App,
    mut driven: Driven,
    transport: Option<Transport>,
    permit: Permit,
    in_request: Option<InRequest>,
    limits: Limits,
) -> Answer {
    let Some(head) = first_head(&mut driven).await else { return no_answer() };
    let streamed =
        head.headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
    let body = if streamed {
        let (body, watch) = ClientBody::new(driven, transport, permit, in_request, limits);
        app.tasks.spawn(watch);
        axum::body::Body::new(body)
    } else {
        axum::body::Body::new(WholeBody::new(rest(&mut driven).await, permit, in_request))
    };
    build(head, body)
}

async fn first_head(driven: &mut Driven) -> Option<Head> {
    loop {
        match driven.next().await? {
            Out::Head(head) => return Some(head),
            Out::Data(_) | Out::Abort(_) => {}
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
    permit: Permit,
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
    permit: Permit,
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

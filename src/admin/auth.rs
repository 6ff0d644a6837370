//! Who may do what: loopback names only, an operator's token, a role.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request};
use tokio::sync::Semaphore;

use crate::config::settings::{OperatorRole, OperatorSettings};
use crate::relay::app::App;
use crate::relay::auth::is_loopback;

use super::answer::Problem;

/// Requests of one role at once. Reading the journal takes a thread each; who only reads must not keep a kill waiting, so each
/// role has its own.
const AT_ONCE_MAX: usize = 64;

/// The operator that a request was let in as.
#[derive(Clone, Debug)]
pub(super) struct Operator {
    /// As journaled.
    pub(super) name: String,
}

/// What stands before a group of paths.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    app: Arc<App>,
    role: OperatorRole,
    at_once: Arc<Semaphore>,
}

impl Guard {
    pub(super) fn new(app: Arc<App>, role: OperatorRole) -> Self {
        Self { app, role, at_once: Arc::new(Semaphore::new(AT_ONCE_MAX)) }
    }
}

/// A page in a browser must reach nothing here, not even by a name that resolves to this machine.
pub(super) async fn loopback_only(request: Request<Body>, next: Next) -> Response {
    if is_loopback(request.headers(), request.uri()) {
        return next.run(request).await;
    }
    let message = "The admin side answers to loopback names only, and to no page of another origin.";
    Problem::new(403, "host_not_allowed", message).into_response()
}

/// Lets in who has a token of the role.
pub(super) async fn guard(State(guard): State<Guard>, mut request: Request<Body>, next: Next) -> Response {
    let current = guard.app.current();
    let operators = &current.settings.operators;
    if operators.is_empty() {
        let message = "There is no [[operator]], so the admin side is off.";
        return Problem::new(404, "admin_off", message).into_response();
    }
    let operator = match find(operators, request.headers()) {
        Ok(operator) => operator,
        Err(problem) => {
            tracing::warn!(path = request.uri().path(), "the admin side was asked without an operator's token");
            return problem.into_response();
        }
    };
    if operator.role < guard.role {
        let path = request.uri().path();
        tracing::warn!(path, operator = %operator.name, "an operator asked for more than the role allows");
        let message =
            format!("This takes the role {}; {} is {}.", word(guard.role), operator.name, word(operator.role));
        return Problem::new(403, "role_too_low", message).into_response();
    }
    request.extensions_mut().insert(Operator { name: operator.name.clone() });
    admit(&guard, request, next).await
}

/// The same for `/metrics`, which may be open to all.
pub(super) async fn guard_metrics(State(guard): State<Guard>, request: Request<Body>, next: Next) -> Response {
    let current = guard.app.current();
    if !current.settings.server.metrics_open
        && let Err(problem) = find(&current.settings.operators, request.headers())
    {
        return problem.into_response();
    }
    admit(&guard, request, next).await
}

async fn admit(guard: &Guard, request: Request<Body>, next: Next) -> Response {
    let Ok(_permit) = guard.at_once.try_acquire() else {
        let message = format!("{AT_ONCE_MAX} such requests are being answered; try again.");
        return Problem::new(503, "too_busy", message).into_response();
    };
    next.run(request).await
}

/// The operator whose token it is. All are compared, by hashes in constant time.
fn find<'o>(operators: &'o [Arc<OperatorSettings>], headers: &HeaderMap) -> Result<&'o OperatorSettings, Problem> {
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    let Some(token) = token.filter(|token| !token.is_empty()) else {
        return Err(Problem::new(401, "missing_token", "Send an operator's token as Authorization: Bearer."));
    };
    let mut found = None;
    for operator in operators {
        if operator.token.matches(token) {
            found = Some(&**operator);
        }
    }
    found.ok_or_else(|| Problem::new(401, "invalid_token", "The token is not one of this relay's operators."))
}

/// As written in the configuration.
fn word(role: OperatorRole) -> &'static str {
    match role {
        OperatorRole::Viewer => "viewer",
        OperatorRole::Operator => "operator",
        OperatorRole::Approver => "approver",
    }
}

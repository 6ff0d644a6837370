//! CORS: pages of the origins that `[server] cors_origins` names may call the data plane. Without any, nothing of it is served.
//!
//! In: a request on its way to the handlers. Out: the same, and around a named origin's requests the headers that a browser asks
//! for. Preflights are answered here, without a key: they carry none. Credentials mode is off: keys are headers that the page sets
//! itself, and a cookie is never one. Any request header may be sent: which of them mean something or go upstream is decided where
//! they are read. The answer's body is not touched: how it ends, aborts included, is the relay's promise.
//!
//! An origin that is not named is served as without CORS, so that the browser keeps the answer from its page.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ETAG, LOCATION, ORIGIN, RETRY_AFTER};
use http::{HeaderName, Method};
use tower_http::cors::{AllowHeaders, AllowOrigin, Cors};
use tower_service::Service as _;

use crate::relay::app::App;

/// How long a browser may remember a preflight's answer: a round trip saved for most calls of a session, and not much longer
/// than an operator who takes an origin out expects.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Response headers that a page may read besides the few that it always may: all of the relay's own, and those of its answers about executions.
const EXPOSED: [HeaderName; 14] = [
    HeaderName::from_static("rubicon-operation-id"),
    HeaderName::from_static("rubicon-attempts"),
    HeaderName::from_static("rubicon-recovery"),
    HeaderName::from_static("rubicon-resume"),
    HeaderName::from_static("rubicon-served-route"),
    HeaderName::from_static("rubicon-provider-request-id"),
    HeaderName::from_static("rubicon-execution-key"),
    HeaderName::from_static("idempotent-replayed"),
    HeaderName::from_static("x-should-retry"),
    HeaderName::from_static("retry-after-ms"),
    HeaderName::from_static("preference-applied"),
    RETRY_AFTER,
    // The version of an execution, and where it is.
    ETAG,
    LOCATION,
];

/// The middleware. Origins are those of the configuration in force.
pub(super) async fn answer(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let preflight = request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let plain_options = request.method() == Method::OPTIONS && !preflight;
    let named = request.headers().get(ORIGIN).filter(|origin| {
        let named = &app.current().settings.server.cors_origins;
        named.iter().any(|named| named.as_bytes() == origin.as_bytes())
    });
    let Some(origin) = named.filter(|_| !plain_options).cloned() else { return next.run(request).await };
    let mut cors = Cors::new(next)
        // Not `exact`: the answer depends on who asks, and `Vary` must say so.
        .allow_origin(AllowOrigin::predicate(move |asked, _| *asked == origin))
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED)
        .max_age(MAX_AGE);
    match cors.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

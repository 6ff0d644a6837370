//! What every request goes through before anybody is asked for an answer: who it is, whether there is room, its body in time and
//! within its bound; and how it is refused.
//!
//! In: a request's head and body. Out: the caller with a permit, the bytes, or a [`Refusal`], which harms no other request.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use tokio::time::timeout_at;

use crate::clock::Instant;
use crate::ids::OperationId;
use crate::protocol::Dialect;
use crate::reply::Outward;

use super::admission::{Permit, Shed};
use super::app::{App, Current};
use super::auth::{Caller, Denied};
use super::operation::error_headers;
use super::outward;
use super::told::CLIENT_GONE;
use super::told::Told;
use super::transport::Transport;

/// A request body that stops coming for this long is given up (408).
const BODY_STALL_MAX: Duration = Duration::from_secs(30);

/// A request body must be whole within this (408): 32 MiB at 56 KB/s. Else a byte now and then would hold a permit for years.
const BODY_MAX: Duration = Duration::from_secs(600);

/// What a handler answers: a response in any of three bodies.
pub type Answer = Response<axum::body::Body>;

/// A refusal by the relay itself.
#[derive(Debug)]
pub struct Refusal {
    /// What the caller is told.
    pub failure: Box<Outward>,
    headers: HeaderMap,
}

impl Refusal {
    pub(super) fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { failure: Box::new(outward::own(status, code, message.into(), None)), headers: HeaderMap::new() }
    }

    /// A failure that was judged already.
    pub(super) fn of_failure(failure: Outward) -> Self {
        Self { failure: Box::new(failure), headers: HeaderMap::new() }
    }

    pub(super) fn param(mut self, param: &str) -> Self {
        self.failure.param = Some(param.into());
        self
    }

    /// A 426 must say to what (RFC 9110, 15.5.22).
    pub(super) fn upgrade(mut self) -> Self {
        self.headers.insert(http::header::UPGRADE, HeaderValue::from_static("HTTP/1.1"));
        self
    }

    pub(super) fn log(&self) {
        let (status, reason) = (self.failure.status, self.failure.rubicon.reason.as_str());
        tracing::info!(status, reason, "request refused");
    }

    /// It is about this operation.
    pub(super) fn of(mut self, operation: &OperationId) -> Self {
        self.failure.rubicon.operation_id = Some(operation.clone());
        self
    }

    pub(super) fn into_response(mut self, dialect: Dialect) -> Answer {
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

/// Without a key, or with a wrong one.
pub fn denied(denied: Denied) -> Refusal {
    Refusal::new(denied.status, denied.code, denied.message)
}

/// The one place where new work is shed.
fn shed(app: &App, why: Shed) -> Refusal {
    app.telemetry.metrics().shed(why.name());
    Refusal::new(503, why.name(), why.message())
}

/// Lets a request in by its head alone: who it is, and whether there is room.
///
/// # Errors
/// Who has no key, and what there is no room for; everything once a shutdown has begun.
pub fn enter(app: &App, current: &Current, parts: &http::request::Parts) -> Result<(Arc<Caller>, Permit), Refusal> {
    if app.is_draining() {
        return Err(Refusal::new(503, "shutting_down", "The relay is shutting down."));
    }
    enter_draining(app, current, parts)
}

/// The same during a shutdown too: for words about what runs already.
///
/// # Errors
/// As [`enter`].
pub fn enter_draining(
    app: &App,
    current: &Current,
    parts: &http::request::Parts,
) -> Result<(Arc<Caller>, Permit), Refusal> {
    if head_bytes(parts) > current.settings.server.max_header_bytes {
        let message = format!("The request head is over {} bytes.", current.settings.server.max_header_bytes);
        return Err(Refusal::new(431, "request_head_too_large", message));
    }
    let caller = current.clients.find(&parts.headers, &parts.uri).map_err(denied)?;
    // Before the body is read: what is shed costs next to nothing. After the key: who has none learns nothing of the load.
    let permit = app.admission.enter(current.settings.server.max_in_flight).map_err(|why| shed(app, why))?;
    Ok((caller, permit))
}

/// What a call came to, told once and put into the caller's dialect where it is a refusal.
pub(super) fn told(told: Told, answer: Result<Answer, Refusal>, dialect: Dialect) -> Answer {
    match answer {
        Ok(answer) => {
            told.answered(answer.status());
            answer
        }
        Err(refusal) => {
            told.refused(&refusal.failure);
            refusal.log();
            refusal.into_response(dialect)
        }
    }
}

/// A generating call's body is plain JSON, as far as its head says.
///
/// # Errors
/// 415 where it says otherwise.
pub fn check_content(headers: &HeaderMap) -> Result<(), Refusal> {
    check_encoding(headers)?;
    if !headers.contains_key(CONTENT_TYPE) || is_json(headers) {
        return Ok(());
    }
    Err(Refusal::new(415, "unsupported_media_type", "The request body must be application/json."))
}

/// Whatever it is, it must be plain.
pub(super) fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
        return Err(Refusal::new(415, "unsupported_content_encoding", "The request body must not be compressed."));
    }
    Ok(())
}

/// Whether a body is said to be JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    let media = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"))
}

/// A whole body, within its bound and in time.
///
/// # Errors
/// 413, 408, or that it broke off.
pub async fn read_body(mut body: axum::body::Body, max: usize) -> Result<Bytes, Refusal> {
    let too_large = || Refusal::new(413, "request_too_large", format!("The request body is over {max} bytes."));
    if http_body::Body::size_hint(&body).lower() > u64::try_from(max).unwrap_or(u64::MAX) {
        return Err(too_large());
    }
    let mut bytes = BytesMut::new();
    let whole_by = Instant::now() + BODY_MAX;
    loop {
        let frame = timeout_at(whole_by.min(Instant::now() + BODY_STALL_MAX), body.frame())
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

/// The size of a request's head as HTTP/1.1 writes it, near enough.
fn head_bytes(parts: &http::request::Parts) -> usize {
    const PER_LINE: usize = 4; // ": " and the line end
    let headers = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + PER_LINE);
    let path = parts.uri.path_and_query().map_or(0, |path| path.as_str().len());
    headers.sum::<usize>() + path
}

/// A query passes, save a caller's credentials in it: `key` is how Google's SDKs send one, the others are the field's usual names.
pub(super) fn without_credentials(query: &str) -> Option<String> {
    const CREDENTIALS: [&str; 4] = ["key", "api_key", "api-key", "access_token"];
    let passes = |pair: &&str| !CREDENTIALS.contains(&pair.split('=').next().unwrap_or_default());
    let kept: Vec<&str> = query.split('&').filter(passes).collect();
    (!kept.is_empty()).then(|| kept.join("&"))
}

/// Waits for an answer as long as there is somebody to take it; dropping it cancels what it waits for.
pub(super) async fn there(
    transport: Option<&Transport>,
    answer: impl Future<Output = Result<Answer, Refusal>>,
) -> Result<Answer, Refusal> {
    let Some(transport) = transport else { return answer.await };
    transport.while_there(answer).await.unwrap_or_else(|| Err(Refusal::new(400, CLIENT_GONE, "The client left.")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_credential_of_the_caller_goes_up_in_the_query() {
        for (query, passes) in [
            ("beta=true", Some("beta=true")),
            ("key=secret&beta=true", Some("beta=true")),
            ("a=1&api_key=secret&b=&c", Some("a=1&b=&c")),
            ("key=secret", None),
            ("monkey=1&keys=2", Some("monkey=1&keys=2")),
        ] {
            assert_eq!(super::without_credentials(query).as_deref(), passes, "{query}");
        }
    }

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_or_trickles_is_given_up() {
        for (pause, gives_up) in [(40, 30), (20, 600)] {
            let trickle = futures_util::stream::unfold((), move |()| async move {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                Some((Ok::<_, std::convert::Infallible>(Bytes::from_static(b" ")), ()))
            });
            let began = Instant::now();
            let Err(refusal) = read_body(axum::body::Body::from_stream(trickle), 1 << 20).await else {
                panic!("a body without an end was read")
            };
            assert_eq!((refusal.failure.status, began.elapsed().as_secs()), (408, gives_up));
        }
    }
}

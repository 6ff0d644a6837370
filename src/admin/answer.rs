//! How the admin side answers: JSON that nobody stores, entity tags, and errors with a stable code.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

/// An error: `{ "error": { "code", "message" } }`, and beside it what a program may need to go on.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    beside: Map<String, Value>,
    etag: Option<String>,
}

impl Problem {
    pub(super) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, code, message: message.into(), beside: Map::new(), etag: None }
    }

    /// The store cannot be asked, or cannot take it.
    pub(super) fn store_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "store_unavailable", message)
    }

    /// Its stable code.
    pub(super) fn code(&self) -> &'static str {
        self.code
    }

    /// Its words for people.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// A member beside `error`.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.beside.insert(name.to_owned(), value.into());
        self
    }

    /// The version that would have fitted.
    pub(super) fn version(mut self, version: u64) -> Self {
        self.etag = Some(etag(version));
        self.with("version", version)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = self.beside;
        body.insert("error".to_owned(), serde_json::json!({ "code": self.code, "message": self.message }));
        let mut response = respond(self.status, &body);
        if let Some(value) = self.etag.and_then(|etag| HeaderValue::from_str(&etag).ok()) {
            response.headers_mut().insert(ETAG, value);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A version as an entity tag.
pub(super) fn etag(version: u64) -> String {
    format!("\"{version}\"")
}

/// 200 with a body.
pub(super) fn json(value: &impl Serialize) -> Response {
    respond(StatusCode::OK, value)
}

/// 200 with a body and its entity tag.
pub(super) fn tagged(value: &impl Serialize, etag: &str) -> Response {
    let mut response = json(value);
    if let Ok(value) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(ETAG, value);
    }
    response
}

fn respond(status: StatusCode, value: &impl Serialize) -> Response {
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = status;
    harden(response.headers_mut(), HeaderValue::from_static("application/json"));
    response
}

/// What every answer carries.
pub(super) fn harden(headers: &mut HeaderMap, content_type: HeaderValue) {
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
}

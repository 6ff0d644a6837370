//! How the ledger's calls answer: JSON that nobody stores, versions as entity tags, and refusals that a program can act on.
//!
//! Every answer that is not 2xx has `error` (`code`, `message`, `type`) and `retryable`: whether the very same request may sensibly be sent
//! again by itself. Only then there is a `Retry-After`, where somebody knows a time; where it is not, `x-should-retry: false`, since SDKs retry a bare 409. Where the ledger
//! decided, its `decision` and the execution stand beside.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use rubicon_ledger::Unavailable;
use rubicon_ledger::store::StoreError;
use serde::Serialize;
use serde::ser::SerializeMap as _;
use serde_json::value::{RawValue, to_raw_value};

use crate::relay::intake::{Answer, Refusal};
use crate::tool::arguments::BadArguments;

/// `Idempotent-Replayed`: the answer is one that was stored.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// `Preference-Applied` (RFC 7240).
pub(super) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

pub(super) const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Seconds after which a run that goes on, or a full queue, is worth another look.
pub(super) const SOON_S: u64 = 1;

/// Seconds after which a store that failed is worth another look: it is opened anew in between.
pub(super) const STORE_S: u64 = 5;

/// Members of an answer, in their order; values are JSON already.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<(&'static str, Box<RawValue>)>);

impl Members {
    /// One more. What JSON cannot carry (there is nothing such here) becomes null.
    pub(super) fn with(mut self, name: &'static str, value: &impl Serialize) -> Self {
        self.0.push((name, to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())));
        self
    }
}

impl Serialize for Members {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// A refusal.
#[derive(Debug)]
pub(super) struct Problem {
    status: u16,
    code: String,
    message: String,
    /// The member of the request that is meant.
    param: Option<String>,
    retryable: bool,
    retry_after_s: Option<u64>,
    extra: Box<Extra>,
}

/// What a refusal has beside its `error`.
#[derive(Debug, Default)]
struct Extra {
    members: Members,
    headers: HeaderMap,
}

#[derive(Serialize)]
struct ErrorMember<'p> {
    code: &'p str,
    message: &'p str,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'p str>,
}

impl Problem {
    /// Final: the same request again gets the same answer.
    pub(super) fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            code: code.to_owned(),
            message: message.into(),
            param: None,
            retryable: false,
            retry_after_s: None,
            extra: Box::default(),
        }
    }

    /// About this member of the body.
    pub(super) fn param(mut self, name: &str) -> Self {
        self.param = Some(name.to_owned());
        self
    }

    /// The same request may be sent again after so many seconds.
    pub(super) fn retry_after(mut self, seconds: u64) -> Self {
        self.retryable = true;
        self.retry_after_s = Some(seconds);
        self
    }

    /// The same request may be sent again, and nobody knows when it is best.
    pub(super) fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// A member beside `error`.
    pub(super) fn with(mut self, name: &'static str, value: &impl Serialize) -> Self {
        self.extra.members = std::mem::take(&mut self.extra.members).with(name, value);
        self
    }

    /// A header.
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.extra.headers.insert(name, value);
        self
    }

    /// The decision that this refusal is: its code, save for what was erased.
    pub(super) fn decision(&self) -> String {
        if self.status == 410 { "gone".to_owned() } else { self.code.clone() }
    }

    /// Status, code, words, and the seconds after which it may be sent again: for `EXECUTIONS.md`.
    #[cfg(test)]
    pub(super) fn told(&self) -> (u16, &str, &str, Option<u64>) {
        (self.status, &self.code, &self.message, self.retry_after_s)
    }

    /// The members beside `error`, in their order.
    #[cfg(test)]
    pub(super) fn members(&self) -> Vec<&'static str> {
        self.extra.members.0.iter().map(|(name, _)| *name).collect()
    }

    /// The record's version.
    pub(super) fn version(mut self, version: u64) -> Self {
        self.extra.headers.insert(ETAG, etag(version));
        self
    }

    /// Another tenant's key, one that never was and one that is no key look alike.
    pub(super) fn not_found() -> Self {
        Self::new(404, "execution_not_found", "There is no such execution.")
    }

    /// The ledger takes nothing now: nothing was claimed, nothing may run.
    pub(super) fn unavailable(error: &Unavailable) -> Self {
        let seconds = if matches!(error, Unavailable::Busy) { SOON_S } else { STORE_S };
        // What exactly failed (paths, errors of the system) is the operators' business.
        tracing::warn!(%error, "the ledger refused a call");
        let message = "The ledger cannot make anything durable now: nothing was recorded by this call that you may rely on, \
                       and nothing may run on its account.";
        Self::new(503, "ledger_unavailable", message).retry_after(seconds)
    }

    /// The store cannot be read.
    pub(super) fn unreadable(error: StoreError) -> Self {
        Self::unavailable(&error.into())
    }

    /// Arguments that are refused; pointers start at the arguments.
    pub(super) fn arguments(bad: &BadArguments) -> Self {
        Self::new(if bad.too_large { 413 } else { 400 }, "invalid_arguments", sentence(&bad.message))
            .param("arguments")
            .with("pointer", &bad.pointer.to_string())
            .with("reason", &bad.reason)
    }

    /// As an answer.
    pub(super) fn into_answer(self) -> Answer {
        let error = ErrorMember {
            code: &self.code,
            message: &self.message,
            r#type: kind(self.status),
            param: self.param.as_deref(),
        };
        let mut body = Members::default().with("error", &error).with("retryable", &self.retryable);
        body.0.extend(self.extra.members.0);
        let mut answer = json(StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST), &body);
        let headers = answer.headers_mut();
        headers.extend(self.extra.headers);
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if !self.retryable {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        tracing::debug!(status = self.status, code = self.code, "an execution's call was refused");
        answer
    }
}

impl From<Refusal> for Problem {
    /// What every endpoint refuses alike: no key, no room, a body that is too large or does not come.
    fn from(refusal: Refusal) -> Self {
        let failure = *refusal.failure;
        let param = failure.param.as_ref().and_then(|param| param.as_str()).map(str::to_owned);
        let retry_after_s = failure.rubicon.retry_after_ms.map(|ms| ms.div_ceil(1000));
        let problem = Self::new(failure.status, &failure.rubicon.reason, failure.message);
        Self { param, retryable: retry_after_s.is_some(), retry_after_s, ..problem }
    }
}

/// The `type` of OpenAI's errors with a status.
fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 => "timeout_error",
        409 => "conflict_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

/// A version as an entity tag.
pub(super) fn etag(version: u64) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
}

/// A JSON answer.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What a request came to.
pub(super) type Answered = Result<Answer, Problem>;

/// As the router wants it.
pub(super) fn given(answered: Answered) -> Answer {
    answered.unwrap_or_else(Problem::into_answer)
}

/// Reads the store on a thread that may block.
pub(super) async fn aside<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(read).await {
        Ok(read) => read.map_err(Problem::unreadable),
        Err(error) => Err(Problem::unavailable(&Unavailable::Store(error.to_string()))),
    }
}

/// Text that is shared with a command.
pub(super) fn shared(text: &str) -> Arc<str> {
    Arc::from(text)
}

/// Words of another room as a sentence.
pub(super) fn sentence(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), chars.as_str()))
}

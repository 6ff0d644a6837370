//! One class for each failure, from everything the provider said and not from its status alone (SPEC section 6).
//!
//! In: [`Evidence`] of how an attempt failed. Out: a [`Verdict`]. Pure: status codes, provider words and timers stop here; who
//! reads a verdict never asks for a status again.

use std::time::Duration;

use http::HeaderMap;
use serde::Serialize;

use crate::clock::UnixMillis;
use crate::protocol::Dialect;
use crate::protocol::signal::Fault;

/// SPEC section 6's classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Refused, reset, DNS, timeout before output, body cut before output, empty 200, 408, 425.
    TransportTransient,
    /// 429 known to be temporary.
    RateLimited,
    /// 503 overload or slow-down, 529, in-stream overload error.
    ProviderOverloaded,
    /// 500, 502, 504, 520–526, in-stream server error.
    ProviderServerError,
    /// This model is out, unknown there or lacks capacity; the provider is not down.
    ModelUnavailable,
    /// The answer came and breaks the contract.
    ContractFailure,
    /// Quota, credits, billing or spending limit, whatever status it arrives under.
    QuotaExhausted,
    /// A 429 that says nothing usable.
    #[serde(rename = "ambiguous_429")]
    Ambiguous429,
    /// 401, 403.
    AuthenticationOrPermission,
    /// 400, other 404, 413, 422; context too long.
    InvalidRequest,
    /// Safety rejection, content filter.
    Refusal,
    /// No time for another attempt.
    DeadlineExhausted,
    /// Failed after visible output.
    PartialOutput,
    /// Failed after a hosted tool or execution may have acted.
    SideEffectUncertain,
    /// Everything else; a bad certificate, with an alarm.
    Unclassified,
}

/// What happened to an attempt that failed.
#[derive(Clone, Debug)]
pub enum Evidence<'a> {
    /// No usable HTTP head came.
    Transport(TransportFault),
    /// A head with a status other than 2xx, and its body as far as it was read (bounded).
    Http {
        /// Status code.
        status: u16,
        /// Response headers.
        headers: &'a HeaderMap,
        /// Body, at most [`ERROR_BODY_BYTES_MAX`].
        body: &'a [u8],
    },
    /// An error event in the stream, or an error object in a 200 body; with the response's headers.
    Fault {
        /// What the event said.
        fault: &'a Fault,
        /// Response headers.
        headers: &'a HeaderMap,
    },
    /// The body ended without the terminal event. `events` counts whole events with data before it.
    Truncated {
        /// Whole events seen.
        events: u64,
    },
    /// The body broke off with a transport error.
    BodyCut,
    /// One of the attempt's own timers ran out.
    Silence(Timer),
    /// A line or event over its limit, or bytes that cannot be the announced format.
    BadFraming,
    /// A 2xx whose body is not the dialect's answer (wrong content type, not JSON, wrong shape).
    BadAnswer,
}

/// What of an error body is read and looked at. 64 KiB: the largest recorded one is a 19 KB HTML page.
pub const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// Transport errors, as the upstream client tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportFault {
    /// Name resolution failed.
    Dns,
    /// Connection refused or unreachable.
    Refused,
    /// The connect timer ran out.
    ConnectTimeout,
    /// TLS handshake failed for another reason than the certificate.
    Tls,
    /// The certificate is not acceptable: an alarm, never retried elsewhere in silence.
    Certificate,
    /// Reset or closed before a whole head. `sent` is true unless it is proved that no byte of the request left.
    Reset {
        /// Whether any byte of the request was handed to the kernel.
        sent: bool,
    },
    /// The head is not HTTP, or over its limit.
    BadHead,
}

/// Which timer of an attempt ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    /// `first_output_ms`: nothing visible in time.
    FirstOutput,
    /// `idle_ms`: no byte after the boundary.
    Idle,
    /// `answer_ms`: a whole answer did not come in time.
    Answer,
    /// Cut early so that an eligible fallback still has time, or the operation's deadline.
    Deadline,
    /// `stream_ms`: the stream as a whole took too long.
    Stream,
}

/// What classification depends on besides the evidence.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The dialect of the attempt.
    pub dialect: Dialect,
    /// `[provider.X] ambiguous_429 = "rate_limited"`.
    pub ambiguous_429_is_rate_limit: bool,
    /// Wall time, for dates in `Retry-After`.
    pub now: UnixMillis,
}

/// The judgement.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// False only with proof that the provider did not process the request ("Sent, and no answer", SPEC section 6).
    pub may_have_run: bool,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// The provider's HTTP status, if a head came.
    pub provider_status: Option<u16>,
    /// The provider's error type, code, message and param as sent (keys masked in the message).
    pub said: Said,
    /// Somebody should be woken: a bad certificate.
    pub alarm: bool,
}

/// The provider's own words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// `type`.
    pub kind: Option<String>,
    /// `code`, unchanged (text or number).
    pub code: Option<serde_json::Value>,
    /// `message`.
    pub message: Option<String>,
    /// `param`.
    pub param: Option<serde_json::Value>,
}

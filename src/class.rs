//! The closed list of failure classes (SPEC section 6): a word that `classify` gives, the controller decides by, and callers, logs
//! and documents show under one name.
//!
//! A file of its own, below every room: `classify` reads what `protocol` makes of an error, `protocol` prints a
//! [`Outward`](crate::reply::Outward) that names the class; if either of them had it, they would import from each other.

use serde::Serialize;

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

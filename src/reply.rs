//! What the caller is told when something fails: one value, printed by each dialect in its own shape.
//!
//! Two messages by design: `message` here is safe for the caller; what the log gets is written where it happens.

use serde::Serialize;

use crate::class::Class;
use crate::ids::{OperationId, RouteId};

/// A failure as the caller sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Outward {
    /// HTTP status of a JSON error answer. In a stream it becomes `rubicon.would_be_status` where nothing was shown yet.
    pub status: u16,
    /// `error.code`; the relay's own codes are stable and documented.
    pub code: Option<serde_json::Value>,
    /// `error.type`: the provider's for its own 400-class answers, else the dialect's nearest (each dialect chooses).
    pub kind: Option<String>,
    /// `error.param`, the provider's or the offending member.
    pub param: Option<serde_json::Value>,
    /// A plain sentence.
    pub message: String,
    /// The member `rubicon`.
    pub rubicon: Rubicon,
}

/// The member `rubicon` of every failure (SPEC sections 6 and 7).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rubicon {
    /// What became of the operation.
    pub status: Status,
    /// Why, from a closed list.
    pub reason: String,
    /// The class of the last failure, where a provider was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Whether sending the same request again can make sense.
    pub retryable: bool,
    /// When, if somebody said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The operation, absent where none was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<OperationId>,
    /// Attempts made by this relay for this operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The provider's HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_status: Option<u16>,
    /// The provider's error `type` and `code`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_error: Option<ProviderError>,
    /// The status this would have had, were the 200 not already sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_be_status: Option<u16>,
    /// Events of the accepted attempt that went out before the interruption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// What the caller may do now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<&'static str>>,
    /// Tool executions (and hosted tools that may have acted) whose outcome is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unresolved_executions: Option<u32>,
    /// Tool executions that may have acted and whose outcome is not known, where they stand in the way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub executions: Vec<Uncertain>,
    /// Routes that were not used and why; only for clients configured to see routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
}

/// An execution whose outcome is not known, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uncertain {
    /// Its key, under which the rest of it can be read.
    pub key: String,
    /// The tool.
    pub tool: String,
    /// `started` or `unknown`.
    pub state: &'static str,
}

/// `rubicon.status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// No answer could be had; nothing was shown.
    Unavailable,
    /// The answer was cut after something was shown.
    Interrupted,
    /// The request itself was refused, by the relay or by the provider.
    Rejected,
    /// Somebody stopped the operation.
    Stopped,
}

/// The provider's own words for an error, its text left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProviderError {
    /// `type`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// `code`.
    pub code: Option<String>,
}

/// A route that was not used, and the named reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The route.
    pub route: RouteId,
    /// The refusal's name (SPEC Annex, Routing).
    pub why: String,
}

//! Failures and keep-alives in the Messages format.
//!
//! In: an [`Outward`]. Out: the bytes of a JSON error answer or of one error frame. `error.type` is what the official SDKs and the
//! AI SDK branch on; the rules are STREAMS.md 2.2 and 2.4 (`overloaded_error` makes the AI SDK try three times, `api_error` once,
//! so the relay never says the first), and the errors page of platform.claude.com for types by status. The member `rubicon`
//! stands at top level in both (SPEC Annex, Streams). Deliberately not here: statuses and headers, the abort after a frame.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::reply::{Outward, Rubicon, Status};

const API_ERROR: &str = "api_error";
const INVALID_REQUEST: &str = "invalid_request_error";

/// Types that say "this request will not do", with which a provider's own 400-class answer passes unchanged, also as a frame.
const REJECTIONS: &[&str] = &[
    INVALID_REQUEST,
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "conflict_error",
];

/// Types that also say "try again", fit for an answer with a status of its own, not for a frame.
const TEMPORARY: &[&str] = &["rate_limit_error", "timeout_error", API_ERROR];

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    error: Inner<'a>,
    rubicon: &'a Rubicon,
}

#[derive(Serialize)]
struct Inner<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a Value>,
}

/// The JSON body of an error answer.
pub fn error_body(failure: &Outward) -> Bytes {
    let own = failure.kind.as_deref().filter(|kind| REJECTIONS.contains(kind) || TEMPORARY.contains(kind));
    json(failure, own.unwrap_or_else(|| by_status(failure.status))).into()
}

/// The error frame: `event: error` (without that line the official SDKs stay silent, STREAMS.md 2.2) and the data on one line.
pub fn error_frame(failure: &Outward) -> Bytes {
    let kind = match (failure.rubicon.status, failure.kind.as_deref()) {
        (Status::Rejected, Some(kind)) if REJECTIONS.contains(&kind) => kind,
        (Status::Rejected, _) => {
            Some(by_status(failure.status)).filter(|kind| REJECTIONS.contains(kind)).unwrap_or(API_ERROR)
        }
        _ => API_ERROR,
    };
    let mut frame = b"event: error\ndata: ".to_vec();
    frame.extend_from_slice(&json(failure, kind));
    frame.extend_from_slice(b"\n\n");
    frame.into()
}

/// A `ping`: the official SDKs drop it before the application sees it (STREAMS.md 2.1, 2.7). Bytes as Anthropic sends them.
pub fn keepalive() -> Bytes {
    Bytes::from_static(b"event: ping\ndata: {\"type\": \"ping\"}\n\n")
}

/// The type for a status of the relay's own (platform.claude.com, errors: "may also use this error type for other 4XX").
/// 424 is the relay's word for "nobody could answer", so it is no fault of the request.
fn by_status(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        408 | 424 => API_ERROR,
        400..=499 => INVALID_REQUEST,
        _ => API_ERROR,
    }
}

/// One line of JSON: serde_json escapes line ends inside strings, so it is safe as `data:`.
fn json(failure: &Outward, kind: &str) -> Vec<u8> {
    let body = Body {
        kind: "error",
        error: Inner { kind, message: &failure.message, code: failure.code.as_ref(), param: failure.param.as_ref() },
        rubicon: &failure.rubicon,
    };
    // Strings, numbers and lists of them: printing can't fail. Were it to, the client still gets an error it can read.
    serde_json::to_vec(&body)
        .unwrap_or_else(|_| br#"{"type":"error","error":{"type":"api_error","message":"the request failed"}}"#.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OperationId;

    fn failure(status: u16, kind: Option<&str>, outcome: Status) -> Outward {
        Outward {
            status,
            code: Some("no_eligible_fallback".into()),
            kind: kind.map(str::to_owned),
            param: None,
            message: "No route\ncould answer. \u{2028}".to_owned(),
            rubicon: Rubicon {
                status: outcome,
                reason: "no_eligible_fallback".to_owned(),
                class: None,
                retryable: true,
                retry_after_ms: Some(30_000),
                operation_id: Some(OperationId::new("op_1")),
                attempts: Some(2),
                provider_status: None,
                provider_error: None,
                would_be_status: None,
                after: None,
                actions: None,
                unresolved_executions: None,
                executions: Vec::new(),
                refused: Vec::new(),
            },
        }
    }

    #[test]
    fn types() {
        use Status::{Interrupted, Rejected, Unavailable};
        for (status, kind, outcome, in_body, in_frame) in [
            (424, None, Unavailable, "api_error", "api_error"),
            (424, Some("overloaded_error"), Unavailable, "api_error", "api_error"),
            (424, Some("server_error"), Interrupted, "api_error", "api_error"),
            (424, Some("invalid_request_error"), Interrupted, "invalid_request_error", "api_error"),
            (503, Some("overloaded_error"), Unavailable, "api_error", "api_error"),
            (529, None, Unavailable, "api_error", "api_error"),
            (429, None, Unavailable, "rate_limit_error", "api_error"),
            (429, Some("rate_limit_error"), Rejected, "rate_limit_error", "api_error"),
            (400, None, Rejected, "invalid_request_error", "invalid_request_error"),
            (400, Some("billing_error"), Rejected, "billing_error", "billing_error"),
            (400, Some("BadRequest"), Rejected, "invalid_request_error", "invalid_request_error"),
            (401, None, Rejected, "authentication_error", "authentication_error"),
            (402, None, Rejected, "billing_error", "billing_error"),
            (403, None, Rejected, "permission_error", "permission_error"),
            (404, None, Rejected, "not_found_error", "not_found_error"),
            (409, None, Rejected, "invalid_request_error", "invalid_request_error"),
            (409, Some("conflict_error"), Rejected, "conflict_error", "conflict_error"),
            (413, None, Rejected, "request_too_large", "request_too_large"),
            (422, None, Rejected, "invalid_request_error", "invalid_request_error"),
            (500, None, Rejected, "api_error", "api_error"),
        ] {
            let failure = failure(status, kind, outcome);
            let body: Value = serde_json::from_slice(&error_body(&failure)).unwrap();
            let frame = error_frame(&failure);
            let data: Value = serde_json::from_slice(frame.strip_prefix(b"event: error\ndata: ").unwrap()).unwrap();
            assert_eq!(body["error"]["type"], in_body, "{status} {kind:?} {outcome:?}");
            assert_eq!(data["error"]["type"], in_frame, "{status} {kind:?} {outcome:?}");
        }
    }

    #[test]
    fn exact_bytes() {
        let mut failure = failure(424, None, Status::Unavailable);
        let body = "{\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"No route\\ncould answer. \u{2028}\",\
            \"code\":\"no_eligible_fallback\"},\"rubicon\":{\"status\":\"unavailable\",\"reason\":\"no_eligible_fallback\",\
            \"retryable\":true,\"retry_after_ms\":30000,\"operation_id\":\"op_1\",\"attempts\":2}}";
        assert_eq!(error_body(&failure), body);
        assert_eq!(error_frame(&failure), format!("event: error\ndata: {body}\n\n"));
        failure.code = None;
        failure.param = Some("messages.0".into());
        let body: Value = serde_json::from_slice(&error_body(&failure)).unwrap();
        assert_eq!(body["error"].get("code"), None);
        assert_eq!(body["error"]["param"], "messages.0");
        assert_eq!(keepalive(), "event: ping\ndata: {\"type\": \"ping\"}\n\n");
    }

    #[test]
    fn our_own_reader_takes_the_frame_for_a_fault_and_the_keepalive_for_a_ping() {
        use crate::protocol::signal::{Show, StreamReader};
        let frame = error_frame(&failure(424, None, Status::Interrupted));
        let data = frame.strip_prefix(b"event: error\ndata: ").unwrap();
        let fault = super::super::stream::Reader::new().read(b"error", data).fault.unwrap();
        assert_eq!(fault.kind.as_deref(), Some("api_error"));
        assert_eq!(fault.code.as_deref(), Some("no_eligible_fallback"));
        let reading = super::super::stream::Reader::new().read(b"ping", b"{\"type\": \"ping\"}");
        assert_eq!(reading.show, Show::Ping);
    }
}

//! Errors and keep-alives in the shapes that chat-completions clients take.
//!
//! In: an [`Outward`]. Out: bytes. The one in-stream shape that raises in every official SDK is a bare error object: no `event:` line,
//! no `choices`, nothing with a finish reason, no `[DONE]` after it (STREAMS.md 2.2). Why frames carry a numeric `code`: the AI SDK
//! takes an error frame that comes before what *it* calls output (refusals and reasoning are none to it) for a status 500 and
//! sends the request again, unless `code` is a status that it does not retry (STREAMS.md 2.4); the words for programs stand in
//! `rubicon` instead. Deliberately not here: which failure it is, and the abort that follows a frame.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::reply::{Outward, Status};

/// The status that none of the SDKs retries (STREAMS.md 2.4), as `code` of a frame that has no other status to tell.
const NOT_RETRIED: u16 = 424;

/// The JSON body of an error answer, `rubicon` at its top level.
pub fn error_body(failure: &Outward) -> Bytes {
    let code = failure.code.clone().unwrap_or(Value::Null);
    Bytes::from(json!({ "error": error(failure, failure.status, code), "rubicon": failure.rubicon }).to_string())
}

/// The one error frame, `rubicon` inside `error`.
///
/// `code` is `rubicon.would_be_status` where that is set (SPEC Annex, Streams); for an interruption it is 424 whatever the
/// configured status is, because something was shown and nothing may send the request again; else the failure's own code.
pub fn error_frame(failure: &Outward) -> Bytes {
    let interrupted = failure.rubicon.status == Status::Interrupted;
    let status = failure.rubicon.would_be_status.unwrap_or(if interrupted { NOT_RETRIED } else { failure.status });
    let code = match (failure.rubicon.would_be_status, &failure.code) {
        (None, Some(code)) if !interrupted => code.clone(),
        _ => Value::from(status),
    };
    let mut error = error(failure, status, code);
    error.insert("rubicon".to_owned(), serde_json::to_value(&failure.rubicon).unwrap_or_default());
    // Printed JSON has no line ends in it, so one `data:` line holds it.
    Bytes::from(format!("data: {}\n\n", json!({ "error": error })))
}

/// A comment block; for a client that asked for `id:` fields a bare comment line, because openai-python dispatches on a blank line
/// while it remembers an id, and fails to parse the empty data (STREAMS.md 2.1).
pub fn keepalive(ids: bool) -> Bytes {
    Bytes::from_static(if ids { b": keep-alive\n" } else { b": keep-alive\n\n" })
}

/// The error object that OpenAI has in all its dialects.
pub(in crate::protocol) fn error(failure: &Outward, status: u16, code: Value) -> Map<String, Value> {
    let kind = failure.kind.as_deref().unwrap_or_else(|| kind_of(status));
    [
        ("message", Value::from(failure.message.as_str())),
        ("type", Value::from(kind)),
        ("param", failure.param.clone().unwrap_or(Value::Null)),
        ("code", code),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// The `type` that OpenAI uses with a status; `upstream_error` for the relay's own 424, which OpenAI never sends.
fn kind_of(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 => "timeout_error",
        409 => "conflict_error",
        424 => "upstream_error",
        429 => "rate_limit_error",
        500..=599 => "server_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OperationId;
    use crate::protocol::chat_completions::{fault, stream::Reader};
    use crate::protocol::signal::StreamReader as _;
    use crate::reply::{ProviderError, Rubicon};

    fn failure(status: Status, http: u16) -> Outward {
        Outward {
            status: http,
            code: None,
            kind: None,
            param: None,
            message: "The answer was cut.\nStart again; \"[DONE]\" did not come.".to_owned(),
            rubicon: Rubicon {
                status,
                reason: "partial_output".to_owned(),
                class: None,
                retryable: false,
                retry_after_ms: None,
                operation_id: Some(OperationId::new("op_1")),
                attempts: Some(1),
                provider_status: None,
                provider_error: Some(ProviderError { kind: Some("server_error".to_owned()), code: None }),
                would_be_status: None,
                after: Some(57),
                actions: Some(vec!["restart"]),
                unresolved_executions: Some(0),
                executions: Vec::new(),
                refused: Vec::new(),
            },
        }
    }

    fn frame_json(frame: &Bytes) -> Value {
        let text = std::str::from_utf8(frame).unwrap();
        let json = text.strip_prefix("data: ").and_then(|rest| rest.strip_suffix("\n\n")).unwrap();
        assert!(!json.contains('\n'), "one data line: {json}");
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_body_has_rubicon_beside_error() {
        let mut refused = failure(Status::Rejected, 400);
        refused.code = Some(json!("context_length_exceeded"));
        refused.kind = Some("invalid_request_error".to_owned());
        refused.param = Some(json!("messages"));
        let body: Value = serde_json::from_slice(&error_body(&refused)).unwrap();
        assert_eq!(body.as_object().unwrap().keys().collect::<Vec<_>>(), ["error", "rubicon"]);
        assert_eq!(
            body["error"],
            json!({ "message": refused.message, "type": "invalid_request_error", "param": "messages",
                    "code": "context_length_exceeded" })
        );
        assert_eq!(body["rubicon"]["after"], 57);
        assert_eq!(body["rubicon"]["provider_error"], json!({ "type": "server_error", "code": null }));
    }

    #[test]
    fn a_frame_is_one_bare_error_object_with_rubicon_inside() {
        let frame = frame_json(&error_frame(&failure(Status::Interrupted, 502)));
        assert_eq!(frame.as_object().unwrap().keys().collect::<Vec<_>>(), ["error"]);
        assert_eq!(frame["error"]["rubicon"]["status"], "interrupted");
        assert_eq!(frame["error"]["rubicon"]["operation_id"], "op_1");
        assert_eq!(frame["error"]["type"], "upstream_error");
        assert!(frame["error"]["param"].is_null());
    }

    #[test]
    fn the_code_of_a_frame() {
        for (status, http, would_be, own, code) in [
            (Status::Interrupted, 424, None, None, json!(424)),
            (Status::Interrupted, 502, None, Some(json!("server_error")), json!(424)),
            (Status::Unavailable, 424, Some(424), None, json!(424)),
            (Status::Unavailable, 502, Some(502), Some(json!("x")), json!(502)),
            (Status::Rejected, 400, Some(400), Some(json!("context_length_exceeded")), json!(400)),
            (Status::Stopped, 409, None, Some(json!("stopped")), json!("stopped")),
            (Status::Stopped, 409, None, None, json!(409)),
        ] {
            let mut failure = failure(status, http);
            failure.rubicon.would_be_status = would_be;
            failure.code = own;
            assert_eq!(frame_json(&error_frame(&failure))["error"]["code"], code, "{status:?} {http} {would_be:?}");
        }
    }

    #[test]
    fn our_own_frame_and_body_read_as_faults() {
        let frame = error_frame(&failure(Status::Interrupted, 424));
        let data = frame.strip_prefix(b"data: ").unwrap();
        let fault = Reader::new(1).read(b"", data).fault.unwrap();
        assert_eq!((fault.kind.as_deref(), fault.status), (Some("upstream_error"), Some(424)));
        assert!(fault::of_body(&error_body(&failure(Status::Unavailable, 424))).is_some());
    }

    #[test]
    fn every_status_has_a_type() {
        for (status, kind) in [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (403, "permission_error"),
            (404, "not_found_error"),
            (408, "timeout_error"),
            (409, "conflict_error"),
            (410, "invalid_request_error"),
            (413, "invalid_request_error"),
            (422, "invalid_request_error"),
            (424, "upstream_error"),
            (429, "rate_limit_error"),
            (500, "server_error"),
            (503, "server_error"),
            (529, "server_error"),
        ] {
            assert_eq!(kind_of(status), kind, "{status}");
        }
    }

    #[test]
    fn keepalives_are_comments() {
        assert_eq!(keepalive(false), ": keep-alive\n\n");
        assert_eq!(keepalive(true), ": keep-alive\n");
    }
}

//! Error objects of the Responses format.
//!
//! In: a whole JSON body, or an event that is a fault. Out: a [`Fault`] with the provider's own words. Shapes (STREAMS.md 1.4):
//! `{"type":"error","code","message","param"}` (documented), `{"type":"error","error":{…}}` (in reality), both in one, a response
//! with `error` or with a `status` that is a failure, in `response.failed` or by itself; and every shape of the servers that speak
//! chat-completions, because they are the same servers. Deliberately not here: what class of failure it is (`classify`).

use crate::protocol::chat_completions::fault as shared;
use crate::protocol::json_walk::{is_empty, member, text, valid};
use crate::protocol::signal::Fault;

/// Statuses of a response that will never be an answer.
const FAILED: &[&str] = &["failed", "cancelled"];

/// The error in a whole JSON body, whatever its status was.
pub fn of_body(body: &[u8]) -> Option<Fault> {
    of_json(valid(body)?)
}

/// As [`of_body`], of text that is valid JSON.
pub(super) fn of_json(json: &str) -> Option<Fault> {
    let response = member(json, "response").filter(|response| response.starts_with('{'));
    if let Some(fault) = response.and_then(of_response) {
        return Some(fault);
    }
    if member(json, "object").and_then(text).as_deref() == Some("response") {
        return of_response(json);
    }
    shared::of_json(json)
}

/// The error of a response object: its `error`, or its status where that says that it failed and not why.
pub(super) fn of_response(response: &str) -> Option<Fault> {
    if let Some(error) = member(response, "error").filter(|error| !is_empty(error) && *error != "false") {
        return Some(shared::of_error(error, "{}"));
    }
    let status = member(response, "status").and_then(text)?;
    FAILED.contains(&&*status).then(|| Fault { code: Some(status.into_owned()), ..Fault::default() })
}

/// An event that is a fault by its type or its `event:` line: in a shape that is known, or as far as it is understood.
pub(super) fn of_event(data: &[u8]) -> Fault {
    match valid(data) {
        Some(json) => of_json(json).unwrap_or_else(|| shared::of_error(json, "{}")),
        None => shared::of_event(data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (body, type, code, message)
    type Case = (&'static str, Option<&'static str>, Option<&'static str>, Option<&'static str>);

    const FAULTS: &[Case] = &[
        // Flat, as documented.
        (
            r#"{"type":"error","code":"server_error","message":"m","param":null,"sequence_number":3}"#,
            None,
            Some("server_error"),
            Some("m"),
        ),
        (r#"{"type":"error","code":null,"message":"m"}"#, None, None, Some("m")),
        // Nested, as sent.
        (
            r#"{"type":"error","sequence_number":2,"error":{"type":"tokens","code":"rate_limit_exceeded","message":"m","param":null}}"#,
            Some("tokens"),
            Some("rate_limit_exceeded"),
            Some("m"),
        ),
        // Both: the nested one says more.
        (
            r#"{"type":"error","code":"flat","message":"flat","error":{"type":"t","code":"c","message":"m"}}"#,
            Some("t"),
            Some("c"),
            Some("m"),
        ),
        (r#"{"error":{"message":"m","type":"t","code":null}}"#, Some("t"), None, Some("m")),
        (
            r#"{"type":"response.failed","response":{"object":"response","status":"failed","error":{"code":"server_error","message":"m"}}}"#,
            None,
            Some("server_error"),
            Some("m"),
        ),
        (r#"{"type":"response.failed","response":{"status":"failed","error":null}}"#, None, Some("failed"), None),
        (
            r#"{"object":"response","status":"failed","error":{"code":"c","message":"m"},"output":[]}"#,
            None,
            Some("c"),
            Some("m"),
        ),
        (r#"{"object":"response","status":"cancelled","error":null}"#, None, Some("cancelled"), None),
        (
            r#"{"object":"response","status":"completed","error":{"code":"c","message":"m"}}"#,
            None,
            Some("c"),
            Some("m"),
        ),
        (r#"{"detail":"Unsupported parameter"}"#, None, None, Some("Unsupported parameter")),
    ];

    #[test]
    fn every_shape_of_an_error() {
        for (body, kind, code, message) in FAULTS {
            let fault = of_body(body.as_bytes()).unwrap_or_else(|| panic!("no fault in {body}"));
            assert_eq!(
                (fault.kind.as_deref(), fault.code.as_deref(), fault.message.as_deref()),
                (*kind, *code, *message)
            );
        }
    }

    #[test]
    fn what_is_no_error() {
        for body in [
            "",
            "{}",
            "[]",
            r#"{"object":"response","status":"completed","error":null,"output":[]}"#,
            r#"{"object":"response","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#,
            r#"{"object":"response","status":"in_progress","output":[{"type":"mcp_call","error":{"message":"m"}}]}"#,
            r#"{"type":"response.completed","response":{"status":"completed","error":{}}}"#,
        ] {
            assert_eq!(of_body(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn an_error_event_is_a_fault_even_if_nobody_understands_it() {
        assert_eq!(of_event(b"upstream broke").message.as_deref(), Some("upstream broke"));
        assert_eq!(of_event(br#"{"a":1}"#), Fault::default());
        assert_eq!(of_event(br#"{"type":"response.failed"}"#).kind.as_deref(), Some("response.failed"));
        assert_eq!(of_event(br#"{"message":"m"}"#).message.as_deref(), Some("m"));
    }
}

//! Errors and keep-alives in the shapes that Responses clients take.
//!
//! In: an [`Outward`], and where the stream stands. Out: bytes. No one frame raises everywhere, so there are two (STREAMS.md 2.2): an
//! `error` event that is flat (as documented) and nested (as sent) in one object, at which the official SDKs and the AI SDK
//! raise; then `response.failed` with the same text, from which Codex takes its message. Its code is the relay's own, whatever
//! happened: Codex takes a list of the provider's codes for final and replaces the text at one (STREAMS.md 2.5). The
//! numbers go on where the stream stood. The AI SDK sends again what fails before any output unless the code is a status that it
//! does not retry, so a failure in keep-alive mode has `rubicon.would_be_status` as its code, as in chat-completions.
//! The member `rubicon` stands at the top level of `error` and in `response.error` (SPEC Annex, Streams).
//! Deliberately not here: which failure it is, and the abort that follows the frames.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::protocol::chat_completions::reply as shared;
use crate::protocol::signal::Place;
use crate::reply::{Outward, Status};

/// The code of every `response.failed` of the relay's.
const OWN_CODE: &str = "rubicon_interrupted";

/// The status that none of the SDKs retries (STREAMS.md 2.4); its `type` is that of an interruption.
const NOT_RETRIED: u16 = 424;

/// The JSON body of an error answer: OpenAI has one shape for both of its dialects.
pub fn error_body(failure: &Outward) -> Bytes {
    shared::error_body(failure)
}

/// The two last frames, on one `data:` line each (printed JSON has no line ends in it).
pub fn error_frame(failure: &Outward, place: &Place) -> Bytes {
    let interrupted = failure.rubicon.status == Status::Interrupted;
    let status = failure.rubicon.would_be_status.unwrap_or(if interrupted { NOT_RETRIED } else { failure.status });
    let code = match (failure.rubicon.would_be_status, &failure.code) {
        // Text, as the schema has it; the AI SDK reads a status in it all the same.
        (Some(status), _) => Value::from(status.to_string()),
        (None, Some(Value::String(code))) if !interrupted => Value::from(code.as_str()),
        _ => Value::from(OWN_CODE),
    };
    let message = failure.message.as_str();
    let error = json!({
        "type": "error",
        "code": code,
        "message": message,
        "param": failure.param,
        "sequence_number": place.sequence,
        "error": shared::error(failure, status, code.clone()),
        "rubicon": failure.rubicon,
    });
    // A client that has seen no response yet is told one of the relay's.
    let operation = failure.rubicon.operation_id.as_ref().map(ToString::to_string);
    let failed = json!({
        "type": "response.failed",
        "sequence_number": place.sequence.saturating_add(1),
        "response": {
            "id": place.id.clone().or(operation).unwrap_or_default(),
            "object": "response",
            "created_at": place.created_at,
            "status": "failed",
            "error": { "code": OWN_CODE, "message": message, "rubicon": failure.rubicon },
            "incomplete_details": null,
            "instructions": null,
            "metadata": {},
            "model": place.model.as_deref().unwrap_or_default(),
            "output": [],
            "parallel_tool_calls": true,
            "temperature": null,
            "tool_choice": "auto",
            "tools": [],
            "top_p": null,
            "usage": null,
        },
    });
    Bytes::from(format!("event: error\ndata: {error}\n\nevent: response.failed\ndata: {failed}\n\n"))
}

/// A keep-alive before the first event. It is OpenAI's own, with the number that the first event will have: it takes none for itself
/// (STREAMS.md 2.7), and typed clients want the member. A comment would not keep Codex, whose idle timer counts events.
///
/// An official SDK gets a comment all the same: the `.stream()` helpers of openai-python and openai-node take a keep-alive in the
/// middle of a stream, and raise at any event before `response.created` (`tests/clients`, stream-slow-start). They have no
/// timer of their own between events, so a comment keeps what can cut them, the connection.
pub fn keepalive(official_sdk: bool) -> Bytes {
    if official_sdk {
        return Bytes::from_static(b": keep-alive\n\n");
    }
    Bytes::from_static(b"event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":0}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OperationId;
    use crate::protocol::responses::{fault, stream::Reader};
    use crate::protocol::signal::{Show, StreamReader as _};
    use crate::reply::Rubicon;

    /// Codes at which Codex ends for good or tells something else than what was said (STREAMS.md 2.5).
    const OF_CODEX: &[&str] = &[
        "context_length_exceeded",
        "insufficient_quota",
        "usage_not_included",
        "invalid_prompt",
        "cyber_policy",
        "server_is_overloaded",
        "slow_down",
        "rate_limit_exceeded",
    ];

    fn failure(status: Status, http: u16) -> Outward {
        Outward {
            status: http,
            code: Some("rubicon_interrupted".into()),
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
                provider_error: None,
                would_be_status: None,
                after: Some(5),
                actions: Some(vec!["restart"]),
                unresolved_executions: Some(0),
                executions: Vec::new(),
                refused: Vec::new(),
            },
        }
    }

    fn frames(bytes: &Bytes) -> (Value, Value) {
        let text = std::str::from_utf8(bytes).unwrap();
        let (error, failed) = text
            .strip_prefix("event: error\ndata: ")
            .unwrap()
            .split_once("\n\nevent: response.failed\ndata: ")
            .unwrap();
        let failed = failed.strip_suffix("\n\n").unwrap();
        assert!(!error.contains('\n') && !failed.contains('\n'), "one data line each");
        (serde_json::from_str(error).unwrap(), serde_json::from_str(failed).unwrap())
    }

    #[test]
    fn both_forms_in_one_object_and_then_the_response_that_failed() {
        let place = Place { sequence: 5, id: Some("resp_1".into()), model: Some("m".into()), created_at: 7 };
        let failure = failure(Status::Interrupted, 502);
        let (error, failed) = frames(&error_frame(&failure, &place));
        assert_eq!(
            (&error["type"], &error["code"], &error["message"], &error["param"], &error["sequence_number"]),
            (&json!("error"), &json!("rubicon_interrupted"), &json!(failure.message), &Value::Null, &json!(5))
        );
        assert_eq!(
            error["error"],
            json!({ "type": "upstream_error", "code": "rubicon_interrupted", "message": failure.message, "param": null })
        );
        assert_eq!(error["rubicon"]["after"], 5);
        assert_eq!(failed["sequence_number"], 6);
        let response = &failed["response"];
        assert_eq!(
            (&response["id"], &response["status"], &response["created_at"]),
            (&json!("resp_1"), &json!("failed"), &json!(7))
        );
        assert_eq!((&response["error"]["code"], &response["error"]["message"]), (&error["code"], &error["message"]));
        assert_eq!(response["error"]["rubicon"], error["rubicon"]);
    }

    #[test]
    fn the_codes() {
        for (status, http, would_be, own, code) in [
            (Status::Interrupted, 424, None, json!("rubicon_interrupted"), "rubicon_interrupted"),
            (Status::Interrupted, 424, None, json!("server_is_overloaded"), "rubicon_interrupted"),
            (Status::Unavailable, 424, Some(424), json!("no_eligible_fallback"), "424"),
            (Status::Rejected, 400, Some(400), json!("context_length_exceeded"), "400"),
            (Status::Stopped, 409, None, json!("stopped"), "stopped"),
            (Status::Stopped, 409, None, json!(7), "rubicon_interrupted"),
        ] {
            let mut failure = failure(status, http);
            failure.rubicon.would_be_status = would_be;
            failure.code = Some(own);
            let (error, failed) = frames(&error_frame(&failure, &Place::default()));
            assert_eq!((&error["code"], &error["error"]["code"]), (&json!(code), &json!(code)), "{status:?}");
            let told = failed["response"]["error"]["code"].as_str().unwrap();
            assert!(told == OWN_CODE && !OF_CODEX.contains(&told), "{told}");
            assert_eq!(failed["response"]["id"], "op_1", "the operation's, where no response was told");
        }
    }

    #[test]
    fn our_own_frames_read_back_as_what_they_are() {
        let bytes = error_frame(&failure(Status::Interrupted, 424), &Place::default());
        let (error, failed) = frames(&bytes);
        for frame in [&error, &failed] {
            let fault =
                Reader::new().read(b"", frame.to_string().as_bytes()).fault.expect("a relay above sees a fault");
            assert_eq!(fault.code.as_deref(), Some("rubicon_interrupted"));
        }
        assert!(fault::of_body(&error_body(&failure(Status::Unavailable, 424))).is_some());
        assert_eq!(keepalive(true), ": keep-alive\n\n");
        let keepalive = std::str::from_utf8(&keepalive(false)).unwrap().to_owned();
        let data =
            keepalive.strip_prefix("event: keepalive\ndata: ").and_then(|rest| rest.strip_suffix("\n\n")).unwrap();
        assert_eq!(Reader::new().read(b"keepalive", data.as_bytes()).show, Show::Ping);
    }
}

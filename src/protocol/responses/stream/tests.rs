//! What a reader says over a whole stream: ends, faults, usage, place.

use proptest::prelude::*;

use super::*;
use crate::protocol::signal::VisibleKind;

const CREATED: &str = r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":1762402743.5,"status":"in_progress","model":"gpt-x","output":[]}}"#;
const DELTA: &str = r#"{"type":"response.output_text.delta","sequence_number":4,"delta":"x"}"#;
const COMPLETED: &str = r#"{"type":"response.completed","sequence_number":9,"response":{"id":"resp_1","status":"completed","model":"gpt-x-1","output":[],"usage":{"input_tokens":3,"input_tokens_details":{"cached_tokens":1},"output_tokens":2}}}"#;
const INCOMPLETE: &str = r#"{"type":"response.incomplete","response":{"status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"},"usage":{"output_tokens":5}}}"#;
const ERROR: &str = r#"{"type":"error","sequence_number":5,"error":{"type":"server_error","code":null,"message":"m"}}"#;
const FAILED: &str = r#"{"type":"response.failed","sequence_number":6,"response":{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"m"},"usage":{"input_tokens":8,"output_tokens":1}}}"#;

fn after(events: &[&str]) -> Reader {
    let mut reader = Reader::new();
    for event in events {
        reader.read(b"", event.as_bytes());
    }
    reader
}

#[test]
fn how_far_a_stream_has_come() {
    for (events, ending, finish) in [
        (&[][..], Ending::Open, None),
        (&[CREATED, DELTA], Ending::Open, None),
        (&[CREATED, DELTA, COMPLETED], Ending::Terminal, Some("completed")),
        (&[CREATED, DELTA, INCOMPLETE], Ending::Terminal, Some("max_output_tokens")),
        (&[CREATED, DELTA, "[DONE]"], Ending::Open, None),
        (&[COMPLETED, "[DONE]"], Ending::Terminal, Some("completed")),
        (&[r#"{"type":"response.completed"}"#], Ending::Terminal, Some("completed")),
        (&[r#"{"type":"response.incomplete","response":{}}"#], Ending::Terminal, Some("incomplete")),
        (&[CREATED, ERROR, FAILED], Ending::Open, None),
        (&[r#"{"type":"response.output_text.delta","delta":"response.completed"}"#], Ending::Open, None),
        (&[r#"{"type":"response.completed","response":{"status":"failed"}}"#], Ending::Open, None),
        (&[r#"{"type":"response.completed","response":{"status":"cancelled","error":null}}"#], Ending::Open, None),
        (
            &[r#"{"type":"response.completed","response":{"status":"completed","error":{"code":"c"}}}"#],
            Ending::Open,
            None,
        ),
    ] {
        let reader = after(events);
        assert_eq!((reader.ending(), reader.finish_reason()), (ending, finish), "{events:?}");
    }
}

#[test]
fn terminal_events_are_marked_as_such() {
    for (data, terminal) in [(COMPLETED, true), (INCOMPLETE, true), ("[DONE]", true), (CREATED, false), (DELTA, false)]
    {
        assert_eq!(Reader::new().read(b"", data.as_bytes()).terminal, terminal, "{data}");
    }
}

#[test]
fn faults() {
    for (name, data, code, message) in [
        ("", ERROR, None, Some("m")),
        ("", FAILED, Some("server_error"), Some("m")),
        ("error", r#"{"code":"c","message":"m"}"#, Some("c"), Some("m")),
        ("error", "upstream broke", None, Some("upstream broke")),
        ("error", "", None, Some("")),
        ("", r#"{"error":{"code":"c","message":"m"}}"#, Some("c"), Some("m")),
        ("", r#"{"type":"response.in_progress","error":{"code":"c"}}"#, Some("c"), None),
        ("response.failed", r#"{"response":{"error":{"code":"c","message":"m"}}}"#, Some("c"), Some("m")),
        (
            "",
            r#"{"type":"response.cancelled","response":{"status":"cancelled","error":null}}"#,
            Some("cancelled"),
            None,
        ),
        ("response.cancelled", r#"{"response":{"status":"cancelled"}}"#, Some("cancelled"), None),
        ("", r#"{"detail":"no such model"}"#, None, Some("no such model")),
        (
            "",
            r#"{"type":"response.completed","response":{"status":"failed","error":{"code":"c","message":"m"}}}"#,
            Some("c"),
            Some("m"),
        ),
    ] {
        let reading = Reader::new().read(name.as_bytes(), data.as_bytes());
        let fault = reading.fault.unwrap_or_else(|| panic!("no fault: {data}"));
        assert_eq!((fault.code.as_deref(), fault.message.as_deref()), (code, message), "{data}");
        assert!(!reading.terminal, "{data}");
    }
    for data in [CREATED, r#"{"type":"response.mcp_call.failed","item_id":"i"}"#, r#"{"type":"x","error":null}"#, "{}"]
    {
        assert_eq!(Reader::new().read(b"", data.as_bytes()).fault, None, "{data}");
    }
    assert_eq!(after(&[CREATED, FAILED]).usage().input_tokens, Some(8), "what a failed response cost is told, too");
}

#[test]
fn usage_model_and_place() {
    let reader = after(&[CREATED]);
    assert_eq!((reader.usage(), reader.served_model()), (Usage::default(), Some("gpt-x")));
    let reader = after(&[CREATED, DELTA, COMPLETED]);
    let usage = Usage { input_tokens: Some(3), cached_input_tokens: Some(1), output_tokens: Some(2) };
    assert_eq!((reader.usage(), reader.served_model()), (usage, Some("gpt-x-1")));
    let place = Place {
        sequence: 5,
        id: Some("resp_1".to_owned()),
        model: Some("gpt-x".to_owned()),
        created_at: 1_762_402_743,
    };
    assert_eq!(after(&[CREATED, DELTA]).place(), place);
    assert_eq!(
        after(&[CREATED, DELTA, ERROR]).place(),
        place,
        "the relay's frame stands where the provider's error stood"
    );
    assert_eq!(after(&[DELTA, CREATED]).place().sequence, 6, "numbers never go back");
    assert_eq!(after(&[r#"{"type":"response.created"}"#, r#"{"type":"response.queued"}"#]).place().sequence, 2);
    assert_eq!(Reader::new().place(), Place::default());
}

#[test]
fn an_items_emptiness_looks_into_its_parts() {
    for (item, show) in [
        (r#"{"type":"message","content":[]}"#, Show::Preamble),
        (
            r#"{"type":"message","content":[{"type":"output_text","text":"","annotations":[],"logprobs":[]}]}"#,
            Show::Preamble,
        ),
        (r#"{"type":"message","content":[{"type":"refusal","refusal":"no"}]}"#, Show::Visible(VisibleKind::Text)),
        (r#"{"type":"message","content":"text"}"#, Show::Visible(VisibleKind::Text)),
        (r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}"#, Show::Preamble),
        (
            r#"{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}"#,
            Show::Visible(VisibleKind::Reasoning),
        ),
        ("7", Show::Visible(VisibleKind::Unknown)),
        ("null", Show::Visible(VisibleKind::Unknown)),
    ] {
        for event in ["added", "done"] {
            let data = format!(r#"{{"type":"response.output_item.{event}","item":{item}}}"#);
            assert_eq!(Reader::new().read(b"", data.as_bytes()).show, show, "{data}");
        }
    }
}

#[test]
fn items_that_a_response_brings_count_as_if_they_were_announced() {
    let text = r#"{"type":"message","content":[{"type":"output_text","text":"x"}]}"#;
    let thought = r#"{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}"#;
    let empty = r#"{"type":"message","content":[]}"#;
    let call = r#"{"type":"function_call","name":"f"}"#;
    let (search, pay) = (r#"{"type":"web_search_call"}"#, r#"{"type":"mcp_call","name":"pay"}"#);
    for (output, show) in [
        ("[]".to_owned(), Show::Preamble),
        ("null".to_owned(), Show::Preamble),
        (format!("[{empty}]"), Show::Preamble),
        (format!("[{thought}]"), Show::Visible(VisibleKind::Reasoning)),
        (format!("[{text},{thought}]"), Show::Visible(VisibleKind::Text)),
        (format!("[{thought},{call}]"), Show::Visible(VisibleKind::ToolCall)),
        (format!("[{search},{text}]"), Show::Effect { may_act: false }),
        (format!("[{pay},{search},{text}]"), Show::Effect { may_act: true }),
        (r#"[{"type":"robot_arm_call"}]"#.to_owned(), Show::Effect { may_act: true }),
        (r#"[{"type":"hologram"}]"#.to_owned(), Show::Visible(VisibleKind::Unknown)),
        ("[7]".to_owned(), Show::Visible(VisibleKind::Unknown)),
        (r#""text""#.to_owned(), Show::Visible(VisibleKind::Unknown)),
    ] {
        for event in ["created", "queued", "in_progress"] {
            let data = format!(r#"{{"type":"response.{event}","response":{{"id":"r","output":{output}}}}}"#);
            assert_eq!(Reader::new().read(b"", data.as_bytes()), Reading::of(show), "{data}");
        }
    }
}

#[test]
fn what_a_failed_response_tells_of_has_acted() {
    let acted = Show::Effect { may_act: true };
    for (output, show) in [
        ("", Show::Preamble),
        (
            r#"{"type":"message","content":[{"type":"output_text","text":"x"}]},{"type":"web_search_call"}"#,
            Show::Preamble,
        ),
        (r#"{"type":"reasoning","summary":[]},{"type":"mcp_call","name":"pay"}"#, acted),
        (r#"{"type":"shell_call"}"#, acted),
        (r#"{"type":"robot_arm_call"}"#, acted),
    ] {
        for (event, error) in [
            ("response.failed", r#"{"code":"server_error","message":"m"}"#),
            ("response.failed", "null"),
            ("response.cancelled", "null"),
            ("response.completed", r#"{"code":"server_error","message":"m"}"#),
        ] {
            let data =
                format!(r#"{{"type":"{event}","response":{{"status":"failed","error":{error},"output":[{output}]}}}}"#);
            let reading = Reader::new().read(b"", data.as_bytes());
            assert_eq!((reading.show, reading.fault.is_some(), reading.terminal), (show, true, false), "{data}");
        }
    }
}

proptest! {
    /// Whatever comes: no panic, an end that stays, and numbers that never go back.
    #[test]
    fn monotonic(events in prop::collection::vec(prop_oneof![
        Just(CREATED.to_owned()), Just(DELTA.to_owned()), Just(COMPLETED.to_owned()), Just(ERROR.to_owned()), Just("[DONE]".to_owned()),
        "[{}\\[\\]\":,a-z1]{0,20}",
        (0u64..u64::MAX).prop_map(|n| format!(r#"{{"type":"response.in_progress","sequence_number":{n}}}"#)),
    ], 0..12)) {
        let mut reader = Reader::new();
        for event in events {
            let (ending, sequence) = (reader.ending(), reader.place().sequence);
            reader.read(b"", event.as_bytes());
            prop_assert!(ending == Ending::Open || reader.ending() == Ending::Terminal);
            prop_assert!(reader.place().sequence >= sequence);
        }
    }
}

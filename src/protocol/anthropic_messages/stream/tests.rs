//! Events of an Anthropic stream, one row a case, and what each shows, ends or issues.

use super::*;
use crate::protocol::signal::VisibleKind;

/// An event that falls under each row of the table, in the rows' order: event name (empty: as most proxies send it) and data.
pub(in super::super) const EXAMPLES: &[(&str, &str)] = &[
    ("content_block_delta", r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" "}}"#),
    ("content_block_delta", r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}"#),
    ("", r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"Hm"}}"#),
    ("", r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"","estimated_tokens":50}}"#),
    ("", r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}"#),
    ("", r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":""}}"#),
    ("", r#"{"type":"content_block_delta","delta":{"type":"citations_delta","citation":{"type":"char_location"}}}"#),
    ("", r#"{"type":"content_block_delta","delta":{"type":"citations_delta","citation":null}}"#),
    ("", r#"{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"Eq"}}"#),
    ("", r#"{"type":"content_block_delta","delta":{"type":"signature_delta","signature":""}}"#),
    (
        "",
        r#"{"type":"content_block_delta","delta":{"type":"compaction_delta","content":null,"encrypted_content":"x"}}"#,
    ),
    ("", r#"{"type":"content_block_delta","delta":{"type":"compaction_delta","content":null}}"#),
    ("", r#"{"type":"content_block_delta","delta":{"type":"hologram_delta","hologram":""}}"#),
    ("message_start", r#"{"type":"message_start","message":{"content":[],"model":"m","usage":{"input_tokens":1}}}"#),
    ("", r#"{"type":"message_start","message":{"content":[{"type":"text","text":"Hi"}]}}"#),
    ("ping", r#"{"type": "ping", "extra": {"a": 1}}"#),
    ("", r#"{"type":"content_block_stop","index":0}"#),
    ("", r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"explanation":"No."}}}"#),
    (
        "",
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_details":null},"usage":{"output_tokens":2}}"#,
    ),
    ("", r#"{"type":"message_stop"}"#),
    ("error", r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"text","text":"Hi"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"text","text":"","citations":[{"a":1}]}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"citations":[],"type":"text","text":""}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"thinking","thinking":"","signature":"Eq"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"thinking","thinking":"","signature":""}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"redacted_thinking","data":"Eq"}}"#),
    (
        "",
        r#"{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"web_search","input":{}}}"#,
    ),
    ("", r#"{"type":"content_block_start","content_block":{"type":"compaction","content":"So far"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"compaction","content":null}}"#),
    (
        "",
        r#"{"type":"content_block_start","content_block":{"type":"fallback","from":{"model":"a"},"to":{"model":"b"}}}"#,
    ),
    ("", r#"{"type":"content_block_start","content_block":{"type":"server_tool_use","name":"web_search","input":{}}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"server_tool_use","name":"web_fetch"}}"#),
    (
        "",
        r#"{"type":"content_block_start","content_block":{"type":"server_tool_use","name":"tool_search_tool_regex"}}"#,
    ),
    ("", r#"{"type":"content_block_start","content_block":{"type":"server_tool_use","name":"tool_search_tool_bm25"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"server_tool_use","name":"advisor"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"server_tool_use","name":"code_execution"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"server_tool_use","name":"bash_code_execution"}}"#),
    (
        "",
        r#"{"type":"content_block_start","content_block":{"name":"text_editor_code_execution","type":"server_tool_use"}}"#,
    ),
    ("", r#"{"type":"content_block_start","content_block":{"type":"server_tool_use","name":"web_shop"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"mcp_tool_use","name":"ask","server_name":"s"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"mcp_tool_listing","tools":[{"name":"ask"}]}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"mcp_tool_result","content":[]}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"web_search_tool_result","content":[]}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"web_fetch_tool_result","content":{}}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"advisor_tool_result","content":{}}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"code_execution_tool_result","content":{}}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"bash_code_execution_tool_result","content":{}}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"text_editor_code_execution_tool_result"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"tool_search_tool_result","content":{}}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"container_upload","file_id":"file_1"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"robot_tool_use","name":"arm"}}"#),
    ("", r#"{"type":"content_block_start","content_block":{"type":"hologram"}}"#),
    ("vertex_event", r#"{"type":"vertex_event","usage":{"input_tokens":1}}"#),
    ("completion", r#"{"type":"completion","completion":" Hi","stop_reason":null,"model":"m"}"#),
    ("completion", r#"{"type":"completion","completion":"","stop_reason":"stop_sequence","model":"m"}"#),
    ("data", "[DONE]"),
    ("", " "),
    ("content_block_delta", "Internal Server Error"),
    ("message_moved", r#"{"type":"message_moved"}"#),
];

fn reading(name: &str, data: &str) -> Reading {
    Reader::new().read(name.as_bytes(), data.as_bytes())
}

#[test]
fn one_event_a_row() {
    assert_eq!(EXAMPLES.len(), table::ROWS.len());
    for (row, (name, data)) in table::ROWS.iter().zip(EXAMPLES) {
        let reading = reading(name, data);
        assert_eq!(reading.show, row.show, "{row:?}\n{data}");
        assert_eq!(reading.fault.is_some(), row.event == "error", "{row:?}\n{data}");
        // The example is of this row and not of one that shows the same.
        let in_data = |word: &str| word.contains(['*', ' ', '[']) || word.is_empty() || data.contains(word);
        assert!(in_data(row.event) && in_data(row.sub), "{row:?}\n{data}");
        let named = row.when.strip_prefix("named ").unwrap_or_default();
        assert!(data.contains(named), "{row:?}\n{data}");
    }
}

#[test]
fn the_json_type_decides_and_the_event_line_only_without_it() {
    let visible = Show::Visible(VisibleKind::Text);
    let unknown = Show::Visible(VisibleKind::Unknown);
    for (name, data, show) in [
        ("ping", r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}"#, visible),
        ("content_block_delta", r#"{"delta":{"type":"text_delta","text":"x"}}"#, visible),
        ("content_block_delta", r#"{"type":"","delta":{"type":"text_delta","text":"x"}}"#, visible),
        ("content_block_delta", r#"{"type":null,"delta":{"type":"text_delta","text":""}}"#, Show::Preamble),
        ("ping", "{}", Show::Ping),
        ("ping", "", Show::Ping),
        ("message_stop", "", Show::Preamble),
        ("", "{}", unknown),
        ("", "[]", unknown),
        ("", "7", unknown),
        ("", "null", unknown),
        ("", r#"{"id":"c","choices":[{"delta":{"role":"assistant"}}]}"#, unknown),
        ("", r#"{"type":7}"#, unknown),
        // Escapes change nothing.
        ("", r#"{"\u0074ype":"\u0070ing"}"#, Show::Ping),
        // Half an emoji is text.
        ("", r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"\ud83d"}}"#, visible),
        // Shapes that nobody declared are visible.
        ("", r#"{"type":"content_block_delta","delta":"x"}"#, unknown),
        ("", r#"{"type":"content_block_delta"}"#, unknown),
        ("", r#"{"type":"content_block_delta","delta":{"text":"x"}}"#, unknown),
        ("", r#"{"type":"content_block_start","index":0}"#, unknown),
        ("", r#"{"type":"content_block_start","content_block":{}}"#, unknown),
        ("", r#"{"type":"message_start","message":"x"}"#, unknown),
        ("", r#"{"type":"ping","type":"ping"}"#, unknown),
        ("", r#"{"type":"message_start"}"#, Show::Preamble),
        ("", r#"{"type":"ping"} x"#, Show::Visible(VisibleKind::NotJson)),
        ("", "{\"type\":\"ping", Show::Visible(VisibleKind::NotJson)),
        ("", "\u{feff}{}", Show::Visible(VisibleKind::NotJson)),
        ("content_block_start", r#"{"content_block":{"type":"server_tool_use"}}"#, Show::Effect { may_act: true }),
    ] {
        let reading = reading(name, data);
        assert_eq!((reading.show, reading.fault), (show, None), "{name} {data}");
    }
    let bytes = Reader::new().read(b"\xff", b"{\"type\":\"\xff\"}");
    assert_eq!(bytes.show, Show::Visible(VisibleKind::NotJson));
}

#[test]
fn faults() {
    let told = |kind: &str, message: &str| Fault {
        kind: (!kind.is_empty()).then(|| kind.to_owned()),
        message: (!message.is_empty()).then(|| message.to_owned()),
        ..Fault::default()
    };
    for (name, data, fault) in [
        ("error", r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#, told("api_error", "m")),
        ("", r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#, told("api_error", "m")),
        ("", r#"{"error":{"type":"api_error","message":"m"}}"#, told("api_error", "m")),
        ("error", r#"{"error":"m"}"#, told("", "m")),
        ("error", "out of memory", told("", "out of memory")),
        ("error", "", told("", "")),
        ("error", r#"{"type":"ping"}"#, told("", "")),
        ("error", r#"{"type":"error","type":"error"}"#, told("", "")),
        ("", r#"{"type":"error"}"#, told("", "")),
        ("", r#"{"type":"error","message":"m"}"#, told("", "m")),
        ("", r#"{"type":"overloaded_error","message":"m"}"#, told("overloaded_error", "m")),
        ("", r#"{"message":"m"}"#, told("", "m")),
        ("", r#"{"detail":"m"}"#, told("", "m")),
        (
            "message_delta",
            r#"{"type":"message_delta","delta":{"stop_reason":"error"},"error":{"message":"m"}}"#,
            told("", "m"),
        ),
    ] {
        let mut reader = Reader::new();
        assert_eq!(reader.read(name.as_bytes(), data.as_bytes()).fault, Some(fault), "{name} {data}");
        assert_eq!(reader.ending(), Ending::Open, "a fault ends nothing well: {name} {data}");
    }
    for data in [r#"{"type":"ping","error":null}"#, r#"{"type":"ping","error":{}}"#, r#"{"type":"ping","error":false}"#]
    {
        assert_eq!(reading("", data), Reading::of(Show::Ping), "{data}");
    }
}

#[test]
fn endings() {
    const DELTA: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    const NO_REASON: &str = r#"{"type":"message_delta","delta":{"stop_reason":null}}"#;
    const STOP: &str = r#"{"type":"message_stop"}"#;
    for (events, ending, reason) in [
        (&[][..], Ending::Open, None),
        (&[NO_REASON], Ending::Open, None),
        (&["[DONE]"], Ending::Open, None),
        (&[DELTA], Ending::Finished, Some("end_turn")),
        (&[DELTA, "[DONE]"], Ending::Finished, Some("end_turn")),
        (&[DELTA, NO_REASON], Ending::Finished, Some("end_turn")),
        (&[DELTA, STOP], Ending::Terminal, Some("end_turn")),
        (&[STOP], Ending::Open, None),
        (&[NO_REASON, STOP], Ending::Open, None),
        (&[STOP, DELTA], Ending::Finished, Some("end_turn")),
        (&[STOP, DELTA, STOP], Ending::Terminal, Some("end_turn")),
        (&[DELTA, STOP, NO_REASON], Ending::Terminal, Some("end_turn")),
        (&[DELTA, STOP, "[DONE]", "x"], Ending::Terminal, Some("end_turn")),
        (&[r#"{"type":"message_delta","delta":{"stop_reason":""}}"#], Ending::Open, None),
        (&[r#"{"type":"message_start","message":{"stop_reason":"end_turn"}}"#], Ending::Open, Some("end_turn")),
        (&[r#"{"type":"message_start","message":{"stop_reason":"end_turn"}}"#, STOP], Ending::Open, Some("end_turn")),
        (&[r#"{"type":"completion","completion":"","stop_reason":"x"}"#], Ending::Finished, Some("x")),
    ] {
        let mut reader = Reader::new();
        for event in events {
            reader.read(b"", event.as_bytes());
        }
        assert_eq!((reader.ending(), reader.finish_reason()), (ending, reason), "{events:?}");
    }
    let mut reader = Reader::new();
    reader.read(b"", DELTA.as_bytes());
    reader.read(b"message_stop", b"{}");
    assert_eq!(reader.ending(), Ending::Terminal);
}

#[test]
fn the_terminal_event_is_marked_whether_it_ends_anything_or_not() {
    const STOP: &str = r#"{"type":"message_stop"}"#;
    for (name, data, terminal) in [
        ("message_stop", STOP, true),
        ("", STOP, true),
        ("message_stop", "{}", true),
        ("data", "[DONE]", true),
        ("message_stop", r#"{"type":"ping"}"#, false),
        ("message_delta", r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#, false),
        ("", r#"{"type":"message_stop","error":{"message":"m"}}"#, false),
    ] {
        assert_eq!(reading(name, data).terminal, terminal, "{name} {data}");
    }
}

#[test]
fn the_model_that_answers_is_the_last_one_named() {
    let mut reader = Reader::new();
    reader.read(b"", br#"{"type":"message_start","message":{"model":"claude-a"}}"#);
    assert_eq!(reader.served_model(), Some("claude-a"));
    reader
        .read(b"", br#"{"type":"content_block_start","content_block":{"type":"fallback","to":{"model":"claude-b"}}}"#);
    assert_eq!(reader.served_model(), Some("claude-b"));
    let long = format!(r#"{{"type":"message_start","message":{{"model":"{}"}}}}"#, "x".repeat(100_000));
    reader.read(b"", long.as_bytes());
    assert_eq!(reader.served_model().map(str::len), Some(super::super::usage::NAME_BYTES_MAX));
}

//! The table against the schema, against itself, and every row against the reader.

use std::collections::HashSet;

use super::*;
use crate::protocol::responses::stream::Reader;
use crate::protocol::signal::StreamReader as _;

/// Event types of openai-python 3.57.0's `ResponseStreamEvent`: the 58 of the schema of 2026-08-21 and
/// `response.compaction.compacting`.
const EVENTS: &str = "error response.audio.delta response.audio.done response.audio.transcript.delta \
    response.audio.transcript.done response.code_interpreter_call.completed response.code_interpreter_call.in_progress \
    response.code_interpreter_call.interpreting response.code_interpreter_call_code.delta \
    response.code_interpreter_call_code.done response.compaction.compacting response.completed response.content_part.added \
    response.content_part.done response.created response.custom_tool_call_input.delta response.custom_tool_call_input.done \
    response.failed response.file_search_call.completed response.file_search_call.in_progress \
    response.file_search_call.searching response.function_call_arguments.delta response.function_call_arguments.done \
    response.image_generation_call.completed response.image_generation_call.generating \
    response.image_generation_call.in_progress response.image_generation_call.partial_image response.in_progress \
    response.incomplete response.mcp_call.completed response.mcp_call.failed response.mcp_call.in_progress \
    response.mcp_call_arguments.delta response.mcp_call_arguments.done response.mcp_list_tools.completed \
    response.mcp_list_tools.failed response.mcp_list_tools.in_progress response.output_item.added \
    response.output_item.done response.output_text.annotation.added response.output_text.delta response.output_text.done \
    response.queued response.reasoning_summary_part.added response.reasoning_summary_part.done \
    response.reasoning_summary_text.delta response.reasoning_summary_text.done response.reasoning_text.delta \
    response.reasoning_text.done response.refusal.delta response.refusal.done response.shell_call_command.added \
    response.shell_call_command.delta response.shell_call_command.done response.shell_call_output_content.delta \
    response.shell_call_output_content.done response.web_search_call.completed response.web_search_call.in_progress \
    response.web_search_call.searching";

/// Item types of the same package's `ResponseOutputItem`.
const ITEMS: &str = "message file_search_call function_call function_call_output web_search_call computer_call \
    computer_call_output reasoning program program_output tool_search_call tool_search_output additional_tools compaction \
    image_generation_call code_interpreter_call local_shell_call local_shell_call_output shell_call shell_call_output \
    apply_patch_call apply_patch_call_output mcp_call mcp_list_tools mcp_approval_request mcp_approval_response \
    custom_tool_call custom_tool_call_output";

#[test]
fn every_declared_type_has_a_row_of_its_own() {
    let events: Vec<&str> = EVENTS.split_whitespace().collect();
    assert_eq!(events.len(), 59);
    for event in events.into_iter().chain(["keepalive", "response.apply_patch_call_operation_diff.delta"]) {
        assert!(ROWS.iter().any(|row| row.event == event), "{event}");
    }
    for item in ITEMS.split_whitespace() {
        for event in [ADDED, DONE] {
            assert!(ROWS.iter().any(|row| (row.event, row.sub) == (event, item)), "{event} {item}");
        }
    }
}

/// An event with something in it wherever it may have something, or with nothing.
fn example(row: &Row) -> String {
    let kind = row.event.replace('*', "response.some_new");
    let sub = row.sub.replace('*', "some_new");
    let text = if row.when == EMPTY { "" } else { "x" };
    match row.event {
        "[DONE]" => " [DONE] ".to_owned(),
        "no data" => "  ".to_owned(),
        "not JSON" => "[DONE".to_owned(),
        ADDED | DONE => {
            let content = match (&*sub, row.when) {
                ("reasoning", FILLED) => r#""summary":[{"type":"summary_text","text":"x"}]"#,
                ("reasoning", _) => {
                    r#""summary":[],"content":[{"type":"reasoning_text","text":""}],"encrypted_content":"gAAA""#
                }
                ("message", FILLED) => {
                    r#""role":"assistant","content":[{"type":"output_text","text":"x","annotations":[]}]"#
                }
                _ => r#""status":"in_progress","content":[{"type":"output_text","text":"","annotations":[]}]"#,
            };
            format!(r#"{{"type":"{kind}","output_index":0,"item":{{"type":"{sub}","id":"i",{content}}}}}"#)
        }
        _ if !row.sub.is_empty() => {
            format!(r#"{{"type":"{kind}","item_id":"i","part":{{"type":"{sub}","text":"{text}","annotations":[]}}}}"#)
        }
        "response.completed" | "response.incomplete" => {
            let item =
                r#"{"type":"mcp_call","id":"i"},{"type":"message","content":[{"type":"output_text","text":"x"}]}"#;
            format!(r#"{{"type":"{kind}","response":{{"output":[{item}],"error":null}}}}"#)
        }
        _ => {
            let content =
                ["delta", "text", "refusal", "arguments", "input"].map(|name| format!(r#""{name}":"{text}""#));
            format!(
                r#"{{"type":"{kind}","sequence_number":3,"item_id":"i",{},"annotation":"{text}","obfuscation":"ab"}}"#,
                content.join(",")
            )
        }
    }
}

#[test]
fn every_row_has_an_example_that_the_reader_reads_as_the_row_says() {
    for row in ROWS {
        let data = example(row);
        let reading = Reader::new().read(b"", data.as_bytes());
        assert_eq!(reading.fault.is_some(), row.when == FAULT, "{row:?}: {data}");
        if row.when != FAULT {
            assert_eq!(reading.show, row.show, "{row:?}: {data}");
        }
        // The name on the `event:` line says the same where the JSON has no type.
        if let Some(json) = data.strip_prefix(&format!(r#"{{"type":"{}","#, row.event)) {
            let again = Reader::new().read(row.event.as_bytes(), format!("{{{json}").as_bytes());
            assert_eq!((again.show, again.fault.is_some()), (reading.show, reading.fault.is_some()), "{row:?}");
        }
    }
}

#[test]
fn each_content_member_makes_its_event_visible() {
    for (event, member, kind) in [
        ("response.output_text.delta", "delta", Text),
        ("response.output_text.done", "text", Text),
        ("response.refusal.done", "refusal", Refusal),
        ("response.function_call_arguments.done", "arguments", ToolCall),
        ("response.custom_tool_call_input.done", "input", ToolCall),
        ("response.output_text.annotation.added", "annotation", Citation),
    ] {
        for (value, expected) in
            [("\"x\"", Show::Visible(kind)), ("\"\"", HELD), ("null", HELD), ("\"\\ud83d\"", Show::Visible(kind))]
        {
            let data = format!(r#"{{"type":"{event}","{member}":{value}}}"#);
            assert_eq!(Reader::new().read(b"", data.as_bytes()).show, expected, "{data}");
        }
    }
}

#[test]
fn no_row_stands_behind_one_that_takes_all_of_its_events() {
    for (at, row) in ROWS.iter().enumerate() {
        let seen = if row.when == EMPTY { EMPTY } else { FILLED };
        let (event, sub) = (row.event.replace('*', "some_new"), row.sub.replace('*', "some_new"));
        assert_eq!(find(&event, &sub, seen), Some(row), "row {at}");
    }
}

#[test]
fn rows_are_distinct() {
    let keys: HashSet<_> = ROWS.iter().map(|row| (row.event, row.sub, row.when)).collect();
    assert_eq!(keys.len(), ROWS.len());
}

#[test]
fn the_unknown_is_visible_and_an_unknown_call_may_act() {
    for (event, sub, expected) in [
        ("response.hologram.delta", "", Show::Visible(Unknown)),
        ("", "", Show::Visible(Unknown)),
        (ADDED, "hologram", Show::Visible(Unknown)),
        (ADDED, "", Show::Visible(Unknown)),
        (DONE, "robot_call", MAY_ACT),
        (PART_ADDED, "hologram", HELD),
    ] {
        assert_eq!(show(event, sub, EMPTY), expected, "{event} {sub}");
    }
    assert_eq!(show(PART_ADDED, "hologram", FILLED), Show::Visible(Unknown));
}

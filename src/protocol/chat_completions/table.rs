//! The first-visible-output table of chat-completions, and the one place where it is looked up.
//!
//! In: where a member stands, its name, and whether there is anything in it. Out: the [`Row`] that applies; what that row shows
//! is what the reader reports, so the printed table and the behaviour cannot part. Sources: STREAMS.md 1.3 and 1.7, the delta
//! types of openai-python 3.57 and groq-python, and the recordings (each name below that OpenAI does not have names its
//! sender). The rule behind the rows (SPEC Annex, Streams): an unknown non-empty member of `delta` is visible, unknown members
//! elsewhere are not, an event that is not JSON is. Deliberately not here: finish reasons, usage (`stream.rs`, `usage.rs`).
//!
//! A choice's `message`, which Perplexity and Writer send beside or instead of `delta`, is read by the rows of `delta`.

use crate::protocol::signal::{Row, Show, VisibleKind};

/// Applies whatever the value is.
const ALWAYS: &str = "always";
/// Applies when there is something in the value: not `null`, `""`, or an array or object of nothing but those.
const NON_EMPTY: &str = "non-empty";
/// Applies when there is nothing in the value.
const EMPTY: &str = "empty or null";
/// The event is the provider's error event; what it shows has no meaning.
pub(super) const FAULT: &str = "non-empty: a fault, not a show";

/// Any name that no row before it has.
const ANY: &str = "*";

const fn row(event: &'static str, sub: &'static str, when: &'static str, show: Show) -> Row {
    Row { event, sub, when, show }
}

const fn visible(event: &'static str, kind: VisibleKind) -> Row {
    row(event, "", NON_EMPTY, Show::Visible(kind))
}

const fn preamble(event: &'static str) -> Row {
    row(event, "", ALWAYS, Show::Preamble)
}

const fn fault(event: &'static str, sub: &'static str) -> Row {
    row(event, sub, FAULT, Show::Preamble)
}

/// The rows; of several that match, the first one counts.
pub const ROWS: &[Row] = &[
    // The event as a whole.
    row("data", "[DONE]", ALWAYS, Show::Preamble),
    row("data", "blank", ALWAYS, Show::Ping),
    row("data", "not JSON", ALWAYS, Show::Visible(VisibleKind::NotJson)),
    row("data", "not an object", ALWAYS, Show::Visible(VisibleKind::Unknown)),
    fault("event", "error"),
    // Members of `choices[].delta`.
    preamble("delta.role"),
    row("delta.content", "thinking", NON_EMPTY, Show::Visible(VisibleKind::Reasoning)), // Mistral: parts of that type only
    visible("delta.content", VisibleKind::Text),
    visible("delta.refusal", VisibleKind::Refusal),
    visible("delta.tool_calls", VisibleKind::ToolCall),
    visible("delta.function_call", VisibleKind::ToolCall),
    visible("delta.audio", VisibleKind::Audio),
    visible("delta.annotations", VisibleKind::Citation),
    visible("delta.reasoning_content", VisibleKind::Reasoning), // DeepSeek, vLLM, llama.cpp, xAI
    visible("delta.reasoning", VisibleKind::Reasoning),         // Groq, Ollama, OpenRouter
    visible("delta.reasoning_details", VisibleKind::Reasoning), // OpenRouter
    visible("delta.reasoning_text", VisibleKind::Reasoning),    // GitHub Copilot
    visible("delta.reasoning_opaque", VisibleKind::Reasoning),  // GitHub Copilot
    visible("delta.thinking_blocks", VisibleKind::Reasoning),   // LiteLLM
    visible("delta.images", VisibleKind::Image),                // OpenRouter
    visible("delta.citations", VisibleKind::Citation),          // Perplexity, LiteLLM
    row("delta.executed_tools", "", NON_EMPTY, Show::Effect { may_act: true }), // Groq: search and code, run by Groq
    preamble("delta.channel"),                                  // Groq: the name of the reasoning's channel
    preamble("delta.token_id"),                                 // Together: the number of the token beside it
    visible("delta.*", VisibleKind::Unknown),
    row("delta.*", "", EMPTY, Show::Preamble),
    // Other members of a choice.
    visible("choice.text", VisibleKind::Text), // legacy completions; Together repeats the delta there
    row("choice.delta", "not an object", NON_EMPTY, Show::Visible(VisibleKind::Unknown)),
    row("choice.message", "not an object", NON_EMPTY, Show::Visible(VisibleKind::Unknown)),
    fault("choice.finish_reason", "error"), // OpenRouter
    fault("choice.error", ""),              // OpenRouter
    preamble("choice.finish_reason"),
    preamble("choice.logprobs"),
    preamble("choice.content_filter_results"), // Azure
    preamble("choice.*"),
    // Members of the chunk.
    fault("chunk.error", ""),
    fault("chunk.object", "error"), // vLLM before 0.10, Mistral
    fault("chunk.type", "error"),
    row("chunk.choices", "not an array", NON_EMPTY, Show::Visible(VisibleKind::Unknown)),
    row("chunk.choices", "not an object inside", NON_EMPTY, Show::Visible(VisibleKind::Unknown)),
    row("chunk.choices", "", EMPTY, Show::Preamble),
    preamble("chunk.usage"),
    preamble("chunk.prompt_filter_results"), // Azure
    preamble("chunk.obfuscation"),
    preamble("chunk.moderation"),
    preamble("chunk.x_groq"),
    row("chunk.type", "ping", ALWAYS, Show::Ping),
    row("chunk.type", "keepalive", ALWAYS, Show::Ping),
    preamble("chunk.*"),
];

/// What applies where no row does (a test proves that this never happens): what is not known is visible.
const NO_ROW: Row = visible("", VisibleKind::Unknown);

/// The row for the member `name` of `place` (`delta`, `choice`, `chunk`). `sub` is what is told apart within it, empty for
/// nothing; `empty` whether there is nothing in its value.
pub(super) fn member(place: &str, name: &str, sub: &str, empty: bool) -> &'static Row {
    let applies = |row: &&Row| {
        let Some((row_place, row_name)) = row.event.split_once('.') else { return false };
        row_place == place
            && (row_name == name || row_name == ANY)
            && (row.sub.is_empty() || row.sub == sub)
            && (row.when == ALWAYS || (row.when == EMPTY) == empty)
    };
    ROWS.iter().find(applies).unwrap_or(&NO_ROW)
}

/// The row for the event as a whole: `event` is `data` or `event` (its name).
pub(super) fn whole(event: &str, sub: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.event == event && row.sub == sub)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::protocol::chat_completions::stream::Reader;
    use crate::protocol::signal::StreamReader as _;

    /// One example event a row: (event, sub, when, `event:` line, data).
    const EXAMPLES: &[(&str, &str, &str, &str, &str)] = &[
        ("data", "[DONE]", ALWAYS, "", " [DONE] "),
        ("data", "blank", ALWAYS, "", "  "),
        ("data", "not JSON", ALWAYS, "", "[DONE"),
        ("data", "not an object", ALWAYS, "", "\"text\""),
        ("event", "error", FAULT, "error", r#"{"message":"flat"}"#),
        ("delta.role", "", ALWAYS, "", r#"{"choices":[{"index":0,"delta":{"role":"assistant"}}]}"#),
        (
            "delta.content",
            "thinking",
            NON_EMPTY,
            "",
            r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}}]}"#,
        ),
        ("delta.content", "", NON_EMPTY, "", r#"{"choices":[{"delta":{"role":"assistant","content":"\ud83d"}}]}"#),
        ("delta.refusal", "", NON_EMPTY, "", r#"{"choices":[{"delta":{"content":null,"refusal":"I"}}]}"#),
        (
            "delta.tool_calls",
            "",
            NON_EMPTY,
            "",
            r#"{"choices":[{"delta":{"content":"","tool_calls":[{"index":0,"function":{"arguments":""}}]}}]}"#,
        ),
        ("delta.function_call", "", NON_EMPTY, "", r#"{"choices":[{"delta":{"function_call":{"name":"f"}}}]}"#),
        ("delta.audio", "", NON_EMPTY, "", r#"{"choices":[{"delta":{"audio":{"id":"audio_1"}}}]}"#),
        (
            "delta.annotations",
            "",
            NON_EMPTY,
            "",
            r#"{"choices":[{"delta":{"annotations":[{"type":"url_citation"}]}}]}"#,
        ),
        (
            "delta.reasoning_content",
            "",
            NON_EMPTY,
            "",
            r#"{"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}]}"#,
        ),
        ("delta.reasoning", "", NON_EMPTY, "", r#"{"choices":[{"delta":{"content":"","reasoning":"hm"}}]}"#),
        (
            "delta.reasoning_details",
            "",
            NON_EMPTY,
            "",
            r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":"AA=="}]}}]}"#,
        ),
        ("delta.reasoning_text", "", NON_EMPTY, "", r#"{"choices":[{"delta":{"reasoning_text":"hm"}}]}"#),
        ("delta.reasoning_opaque", "", NON_EMPTY, "", r#"{"choices":[{"delta":{"reasoning_opaque":"AA=="}}]}"#),
        (
            "delta.thinking_blocks",
            "",
            NON_EMPTY,
            "",
            r#"{"choices":[{"delta":{"thinking_blocks":[{"type":"thinking"}]}}]}"#,
        ),
        ("delta.images", "", NON_EMPTY, "", r#"{"choices":[{"delta":{"images":[{"image_url":{"url":"data:,"}}]}}]}"#),
        ("delta.citations", "", NON_EMPTY, "", r#"{"choices":[{"delta":{"citations":["https://example.test"]}}]}"#),
        (
            "delta.executed_tools",
            "",
            NON_EMPTY,
            "",
            r#"{"choices":[{"delta":{"content":"x","executed_tools":[{"index":0,"type":"python"}]}}]}"#,
        ),
        ("delta.channel", "", ALWAYS, "", r#"{"choices":[{"delta":{"reasoning":"","channel":"analysis"}}]}"#),
        ("delta.token_id", "", ALWAYS, "", r#"{"choices":[{"delta":{"content":"","token_id":9707}}]}"#),
        ("delta.*", "", NON_EMPTY, "", r#"{"choices":[{"delta":{"something_new":{"a":0}}}]}"#),
        ("delta.*", "", EMPTY, "", r#"{"choices":[{"delta":{"something_new":{"a":null,"b":[""]},"content":""}}]}"#),
        ("choice.text", "", NON_EMPTY, "", r#"{"object":"text_completion","choices":[{"text":"x","index":0}]}"#),
        ("choice.delta", "not an object", NON_EMPTY, "", r#"{"choices":[{"delta":"x"}]}"#),
        ("choice.message", "not an object", NON_EMPTY, "", r#"{"choices":[{"message":["x"]}]}"#),
        ("choice.finish_reason", "error", FAULT, "", r#"{"choices":[{"delta":{},"finish_reason":"error"}]}"#),
        ("choice.error", "", FAULT, "", r#"{"choices":[{"delta":{"content":"x"},"error":{"code":502}}]}"#),
        ("choice.finish_reason", "", ALWAYS, "", r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#),
        ("choice.logprobs", "", ALWAYS, "", r#"{"choices":[{"delta":{},"logprobs":{"content":[{"token":"x"}]}}]}"#),
        (
            "choice.content_filter_results",
            "",
            ALWAYS,
            "",
            r#"{"choices":[{"delta":{},"content_filter_results":{"hate":{"filtered":false}}}]}"#,
        ),
        ("choice.*", "", ALWAYS, "", r#"{"choices":[{"delta":{},"something_new":"x"}]}"#),
        ("chunk.error", "", FAULT, "", r#"{"error":{"message":"m"},"choices":[{"delta":{"content":"x"}}]}"#),
        ("chunk.object", "error", FAULT, "", r#"{"object":"error","message":"m","code":400}"#),
        ("chunk.type", "error", FAULT, "", r#"{"type":"error","message":"m"}"#),
        ("chunk.choices", "not an array", NON_EMPTY, "", r#"{"choices":{"0":{"delta":{"content":"x"}}}}"#),
        ("chunk.choices", "not an object inside", NON_EMPTY, "", r#"{"choices":["x"]}"#),
        ("chunk.choices", "", EMPTY, "", r#"{"choices":null}"#),
        ("chunk.usage", "", ALWAYS, "", r#"{"choices":[],"usage":{"prompt_tokens":1}}"#),
        (
            "chunk.prompt_filter_results",
            "",
            ALWAYS,
            "",
            r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}"#,
        ),
        ("chunk.obfuscation", "", ALWAYS, "", r#"{"choices":[{"delta":{"content":""}}],"obfuscation":"abc"}"#),
        ("chunk.moderation", "", ALWAYS, "", r#"{"choices":[],"moderation":{"flagged":false}}"#),
        ("chunk.x_groq", "", ALWAYS, "", r#"{"choices":[{"delta":{"role":"assistant"}}],"x_groq":{"id":"r"}}"#),
        ("chunk.type", "ping", ALWAYS, "ping", r#"{"type":"ping"}"#),
        ("chunk.type", "keepalive", ALWAYS, "", r#"{"type":"keepalive"}"#),
        ("chunk.*", "", ALWAYS, "", r#"{"citations":["https://example.test"],"something_new":7}"#),
    ];

    #[test]
    fn every_row_has_an_example_that_the_reader_reads_as_the_row_says() {
        let mut shown = HashSet::new();
        for row in ROWS {
            let mut examples = EXAMPLES.iter().filter(|e| (e.0, e.1, e.2) == (row.event, row.sub, row.when));
            let (.., name, data) = examples.next().unwrap_or_else(|| panic!("no example for {row:?}"));
            assert!(examples.next().is_none(), "two examples for {row:?}");
            let reading = Reader::new(1).read(name.as_bytes(), data.as_bytes());
            assert_eq!(reading.fault.is_some(), row.when == FAULT, "{row:?}: {reading:?}");
            if row.when != FAULT {
                assert_eq!(reading.show, row.show, "{row:?}");
            }
            shown.insert((row.event, row.sub, row.when));
        }
        assert_eq!(shown.len(), ROWS.len(), "two rows with the same key");
        assert_eq!(EXAMPLES.len(), ROWS.len(), "an example without a row");
    }

    #[test]
    fn a_choices_message_is_read_by_the_rows_of_delta() {
        for row in ROWS.iter().filter(|row| row.event.starts_with("delta.")) {
            let example = EXAMPLES.iter().find(|e| (e.0, e.1, e.2) == (row.event, row.sub, row.when)).unwrap();
            let data = example.4.replace("\"delta\":", "\"message\":");
            assert_ne!(data, example.4);
            assert_eq!(Reader::new(1).read(b"", data.as_bytes()).show, row.show, "{data}");
        }
    }

    #[test]
    fn there_is_a_row_for_every_member_anywhere() {
        for place in ["delta", "choice", "chunk"] {
            for name in ["", "x", "content", "choices", "delta", "error", "a.b"] {
                for empty in [true, false] {
                    assert!(!member(place, name, "", empty).event.is_empty(), "{place}.{name}");
                }
            }
        }
    }
}

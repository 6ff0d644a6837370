//! Anthropic Messages as the mock speaks it: the event names and shapes of STREAMS.md, one event a function, and whole
//! answers.

use super::{Auto, INPUT_TOKENS, JsonText, MODEL, output_tokens, paced, quoted};
use crate::mock::script::{Answer, AutoDialect, AutoTool, Event, Step};

const ID: &str = "msg_mock0000000000000001";

/// A whole stream of text: `message_start`, one text block with a delta each piece, `message_delta`, `message_stop`.
pub fn anthropic_text(pieces: &[&str]) -> Answer {
    stream(MODEL, &spec(pieces, None))
}

/// A whole stream of one tool call: a `tool_use` block with a delta each piece of its input.
pub fn anthropic_tool_use(name: &str, input: &[&str]) -> Answer {
    stream(MODEL, &spec(&[], Some((name, input))))
}

/// A whole answer of text, not streamed.
pub fn anthropic_whole_text(text: &str) -> Answer {
    Answer::json_text(200, whole(MODEL, &spec(&[text], None)))
}

/// A whole answer of one tool call, not streamed.
pub fn anthropic_whole_tool_use(name: &str, input: &str) -> Answer {
    Answer::json_text(200, whole(MODEL, &spec(&[], Some((name, &[input])))))
}

/// `message_start`, with the input tokens.
pub fn message_start() -> Step {
    start(MODEL)
}

/// `content_block_start` of an empty text block.
pub fn text_start(index: u32) -> Step {
    block_start(index, r#"{"type":"text","text":""}"#)
}

/// `content_block_delta` with text.
pub fn text_delta(index: u32, text: &str) -> Step {
    block_delta(index, &format!(r#"{{"type":"text_delta","text":{}}}"#, quoted(text)))
}

/// `content_block_start` of a tool call.
pub fn tool_start(index: u32, name: &str) -> Step {
    let name = quoted(name);
    block_start(index, &format!(r#"{{"type":"tool_use","id":"toolu_mock0001","name":{name},"input":{{}}}}"#))
}

/// `content_block_delta` with a piece of a tool's input.
pub fn input_delta(index: u32, piece: &str) -> Step {
    block_delta(index, &format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, quoted(piece)))
}

/// `content_block_stop`.
pub fn block_stop(index: u32) -> Step {
    event("content_block_stop", format!(r#"{{"type":"content_block_stop","index":{index}}}"#))
}

/// `message_delta`: why it stops (`end_turn`, `max_tokens`, `tool_use` …) and the output tokens.
pub fn message_delta(stop_reason: &str, output_tokens: u64) -> Step {
    let reason = quoted(stop_reason);
    event(
        "message_delta",
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":{reason},"stop_sequence":null}},"usage":{{"output_tokens":{output_tokens}}}}}"#
        ),
    )
}

/// `message_stop`.
pub fn message_stop() -> Step {
    event("message_stop", r#"{"type":"message_stop"}"#.to_owned())
}

/// `ping`.
pub fn ping() -> Step {
    event("ping", r#"{"type":"ping"}"#.to_owned())
}

/// `error` in the stream, e.g. of type `overloaded_error`.
pub fn error(kind: &str, message: &str) -> Step {
    let (kind, message) = (quoted(kind), quoted(message));
    event("error", format!(r#"{{"type":"error","error":{{"type":{kind},"message":{message}}}}}"#))
}

pub(super) fn stream(model: &str, auto: &Auto) -> Answer {
    let mut answer = Answer::sse().step(start(model));
    let mut index = 0;
    if !auto.text.is_empty() {
        answer = answer.step(text_start(index));
        for piece in &auto.text {
            answer = paced(answer, auto.pace_ms, text_delta(index, piece));
        }
        answer = answer.step(block_stop(index));
        index += 1;
    }
    if let Some(AutoTool { name, arguments }) = &auto.tool {
        answer = paced(answer, auto.pace_ms, tool_start(index, name));
        for piece in arguments {
            answer = paced(answer, auto.pace_ms, input_delta(index, piece));
        }
        answer = answer.step(block_stop(index));
    }
    answer.step(message_delta(stop_reason(auto), output_tokens(auto))).step(message_stop())
}

pub(super) fn whole(model: &str, auto: &Auto) -> JsonText {
    let mut blocks = Vec::new();
    if !auto.text.is_empty() {
        blocks.push(format!(r#"{{"type":"text","text":{}}}"#, quoted(&auto.text.concat())));
    }
    if let Some(AutoTool { name, arguments }) = &auto.tool {
        // Input that is no JSON cannot be said in this form; it is sent as a string, so that the reader sees what came.
        let input = arguments.concat();
        let input = if serde_json::from_str::<serde::de::IgnoredAny>(&input).is_ok() { input } else { quoted(&input) };
        let name = quoted(name);
        blocks.push(format!(r#"{{"type":"tool_use","id":"toolu_mock0001","name":{name},"input":{input}}}"#));
    }
    let (model, blocks, reason, output) = (quoted(model), blocks.join(","), stop_reason(auto), output_tokens(auto));
    JsonText(format!(
        r#"{{"id":"{ID}","type":"message","role":"assistant","model":{model},"content":[{blocks}],"stop_reason":"{reason}","stop_sequence":null,"usage":{{"input_tokens":{INPUT_TOKENS},"output_tokens":{output}}}}}"#
    ))
}

fn start(model: &str) -> Step {
    let model = quoted(model);
    event(
        "message_start",
        format!(
            r#"{{"type":"message_start","message":{{"id":"{ID}","type":"message","role":"assistant","model":{model},"content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":{INPUT_TOKENS},"output_tokens":1}}}}}}"#
        ),
    )
}

fn block_start(index: u32, block: &str) -> Step {
    let data = format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#);
    event("content_block_start", data)
}

fn block_delta(index: u32, delta: &str) -> Step {
    event("content_block_delta", format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#))
}

fn stop_reason(auto: &Auto) -> &'static str {
    if auto.tool.is_some() { "tool_use" } else { "end_turn" }
}

fn event(name: &str, data: String) -> Step {
    Step::Event(Event { name: Some(name.to_owned()), data })
}

fn spec(text: &[&str], tool: Option<(&str, &[&str])>) -> Auto {
    super::spec(AutoDialect::AnthropicMessages, text, tool)
}

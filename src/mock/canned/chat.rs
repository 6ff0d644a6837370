//! OpenAI Chat Completions as the mock speaks it: the shapes of STREAMS.md 1.3, one event a function, and whole answers.

use super::{Auto, INPUT_TOKENS, JsonText, MODEL, output_tokens, paced, quoted};
use crate::mock::script::{Answer, AutoDialect, AutoTool, Event, Step};

const ID: &str = "chatcmpl-mock0000000000000001";
const CREATED: u64 = 1_767_225_600;

/// A whole stream of text: role chunk, a delta each piece, finish, usage, `[DONE]`.
pub fn chat_text(pieces: &[&str]) -> Answer {
    stream(MODEL, &spec(pieces, None), true)
}

/// A whole stream of one tool call: role chunk, its name, a delta each piece of its arguments, finish, usage, `[DONE]`.
pub fn chat_tool_call(name: &str, arguments: &[&str]) -> Answer {
    stream(MODEL, &spec(&[], Some((name, arguments))), true)
}

/// A whole answer of text, not streamed.
pub fn chat_whole_text(text: &str) -> Answer {
    Answer::json_text(200, whole(MODEL, &spec(&[text], None)))
}

/// A whole answer of one tool call, not streamed.
pub fn chat_whole_tool_call(name: &str, arguments: &str) -> Answer {
    Answer::json_text(200, whole(MODEL, &spec(&[], Some((name, &[arguments])))))
}

/// The first chunk: a role and no text.
pub fn role() -> Step {
    chunk(MODEL, r#"{"role":"assistant","content":"","refusal":null}"#, None)
}

/// A chunk of text.
pub fn delta(text: &str) -> Step {
    content(MODEL, text)
}

/// The chunk that ends the choice: `stop`, `length`, `tool_calls`, `content_filter`.
pub fn finish(reason: &str) -> Step {
    chunk(MODEL, "{}", Some(reason))
}

/// The usage chunk, which has no choices.
pub fn usage(output_tokens: u64) -> Step {
    usage_chunk(MODEL, output_tokens)
}

/// `[DONE]`.
pub fn done() -> Step {
    data("[DONE]".to_owned())
}

/// An error in the stream: the bare form, which is OpenAI's own.
pub fn error(kind: &str, code: &str, message: &str) -> Step {
    let (kind, code, message) = (quoted(kind), quoted(code), quoted(message));
    data(format!(r#"{{"error":{{"message":{message},"type":{kind},"param":null,"code":{code}}}}}"#))
}

pub(super) fn stream(model: &str, auto: &Auto, with_usage: bool) -> Answer {
    let mut answer = Answer::sse().step(chunk(model, r#"{"role":"assistant","content":"","refusal":null}"#, None));
    for piece in &auto.text {
        answer = paced(answer, auto.pace_ms, content(model, piece));
    }
    if let Some(AutoTool { name, arguments }) = &auto.tool {
        let call = format!(
            r#"{{"tool_calls":[{{"index":0,"id":"call_mock0001","type":"function","function":{{"name":{},"arguments":""}}}}]}}"#,
            quoted(name)
        );
        answer = paced(answer, auto.pace_ms, chunk(model, &call, None));
        for piece in arguments {
            let piece = format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":{}}}}}]}}"#, quoted(piece));
            answer = paced(answer, auto.pace_ms, chunk(model, &piece, None));
        }
    }
    answer = answer.step(chunk(model, "{}", Some(finish_reason(auto))));
    if with_usage {
        answer = answer.step(usage_chunk(model, output_tokens(auto)));
    }
    answer.step(done())
}

pub(super) fn whole(model: &str, auto: &Auto) -> JsonText {
    let content = if auto.text.is_empty() { "null".to_owned() } else { quoted(&auto.text.concat()) };
    let calls = auto.tool.as_ref().map_or(String::new(), |AutoTool { name, arguments }| {
        let (name, arguments) = (quoted(name), quoted(&arguments.concat()));
        format!(
            r#","tool_calls":[{{"id":"call_mock0001","type":"function","function":{{"name":{name},"arguments":{arguments}}}}}]"#
        )
    });
    let (model, reason, usage) = (quoted(model), finish_reason(auto), usage_object(output_tokens(auto)));
    JsonText(format!(
        r#"{{"id":"{ID}","object":"chat.completion","created":{CREATED},"model":{model},"choices":[{{"index":0,"message":{{"role":"assistant","content":{content},"refusal":null{calls}}},"logprobs":null,"finish_reason":"{reason}"}}],"usage":{usage}}}"#
    ))
}

fn content(model: &str, text: &str) -> Step {
    chunk(model, &format!(r#"{{"content":{}}}"#, quoted(text)), None)
}

fn chunk(model: &str, delta: &str, finish: Option<&str>) -> Step {
    let (model, finish) = (quoted(model), finish.map_or("null".to_owned(), quoted));
    data(format!(
        r#"{{"id":"{ID}","object":"chat.completion.chunk","created":{CREATED},"model":{model},"choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}],"usage":null}}"#
    ))
}

fn usage_chunk(model: &str, output_tokens: u64) -> Step {
    let (model, usage) = (quoted(model), usage_object(output_tokens));
    data(format!(
        r#"{{"id":"{ID}","object":"chat.completion.chunk","created":{CREATED},"model":{model},"choices":[],"usage":{usage}}}"#
    ))
}

fn usage_object(output: u64) -> String {
    let total = INPUT_TOKENS + output;
    format!(r#"{{"prompt_tokens":{INPUT_TOKENS},"completion_tokens":{output},"total_tokens":{total}}}"#)
}

fn finish_reason(auto: &Auto) -> &'static str {
    if auto.tool.is_some() { "tool_calls" } else { "stop" }
}

fn data(data: String) -> Step {
    Step::Event(Event { name: None, data })
}

fn spec(text: &[&str], tool: Option<(&str, &[&str])>) -> Auto {
    super::spec(AutoDialect::ChatCompletions, text, tool)
}

//! OpenAI Responses as the mock speaks it: the event names and shapes of STREAMS.md and the recordings, one event a function, and
//! whole answers. Every event has its number; a stream that is put together by hand numbers its events itself.

use super::{Auto, INPUT_TOKENS, JsonText, MODEL, output_tokens, paced, quoted};
use crate::mock::script::{Answer, AutoDialect, AutoTool, Event, Step};

/// The id of every canned response.
pub const ID: &str = "resp_mock000000000000001";

const MESSAGE: &str = "msg_mock0001";
const CALL: &str = "fc_mock0001";
const CREATED: u64 = 1_700_000_000;

/// A whole stream of text: `response.created`, `.in_progress`, one message with a delta each piece, `response.completed`.
pub fn responses_text(pieces: &[&str]) -> Answer {
    stream(MODEL, &spec(pieces, None))
}

/// A whole stream of one function call: a `function_call` item with a delta each piece of its arguments.
pub fn responses_tool_call(name: &str, arguments: &[&str]) -> Answer {
    stream(MODEL, &spec(&[], Some((name, arguments))))
}

/// A whole answer of text, not streamed.
pub fn responses_whole_text(text: &str) -> Answer {
    Answer::json_text(200, whole(MODEL, &spec(&[text], None)))
}

/// A whole answer of one function call, not streamed.
pub fn responses_whole_tool_call(name: &str, arguments: &str) -> Answer {
    Answer::json_text(200, whole(MODEL, &spec(&[], Some((name, &[arguments])))))
}

/// `response.created`.
pub fn created(number: u64) -> Step {
    lifecycle("created", number, "in_progress", MODEL, "", None)
}

/// `response.in_progress`.
pub fn in_progress(number: u64) -> Step {
    lifecycle("in_progress", number, "in_progress", MODEL, "", None)
}

/// `response.output_item.added` with an item as it is given, JSON.
pub fn item_added(number: u64, index: u32, item: &str) -> Step {
    event("response.output_item.added", number, &format!(r#","output_index":{index},"item":{item}"#))
}

/// `response.output_item.added` of an empty message.
pub fn message_added(number: u64, index: u32) -> Step {
    item_added(number, index, &message("in_progress", ""))
}

/// `response.content_part.added` of an empty text part.
pub fn part_added(number: u64, index: u32) -> Step {
    let part = part("");
    event(
        "response.content_part.added",
        number,
        &format!(r#","item_id":"{MESSAGE}","output_index":{index},"content_index":0,"part":{part}"#),
    )
}

/// `response.output_text.delta`.
pub fn text_delta(number: u64, index: u32, text: &str) -> Step {
    let text = quoted(text);
    event(
        "response.output_text.delta",
        number,
        &format!(r#","item_id":"{MESSAGE}","output_index":{index},"content_index":0,"delta":{text},"logprobs":[]"#),
    )
}

/// `response.output_item.added` of a function call.
pub fn call_added(number: u64, index: u32, name: &str) -> Step {
    item_added(number, index, &call("in_progress", name, ""))
}

/// `response.function_call_arguments.delta`.
pub fn arguments_delta(number: u64, index: u32, piece: &str) -> Step {
    let piece = quoted(piece);
    event(
        "response.function_call_arguments.delta",
        number,
        &format!(r#","item_id":"{CALL}","output_index":{index},"delta":{piece}"#),
    )
}

/// `response.completed` with items as they are given, JSON, and the output tokens.
pub fn completed(number: u64, output: &str, output_tokens: u64) -> Step {
    lifecycle("completed", number, "completed", MODEL, output, Some(output_tokens))
}

/// `response.incomplete` for a reason (`max_output_tokens`, `content_filter`).
pub fn incomplete(number: u64, reason: &str) -> Step {
    let reason = quoted(reason);
    let response = response("incomplete", MODEL, "", Some(1))
        .replace(r#""incomplete_details":null"#, &format!(r#""incomplete_details":{{"reason":{reason}}}"#));
    event("response.incomplete", number, &format!(r#","response":{response}"#))
}

/// `response.failed` with a code and a message.
pub fn failed(number: u64, code: &str, message: &str) -> Step {
    let (code, message) = (quoted(code), quoted(message));
    let response = response("failed", MODEL, "", None)
        .replace(r#""error":null"#, &format!(r#""error":{{"code":{code},"message":{message}}}"#));
    event("response.failed", number, &format!(r#","response":{response}"#))
}

/// `error` as it is sent: nested.
pub fn error(number: u64, kind: &str, code: &str, message: &str) -> Step {
    let (kind, code, message) = (quoted(kind), quoted(code), quoted(message));
    event("error", number, &format!(r#","error":{{"type":{kind},"code":{code},"message":{message},"param":null}}"#))
}

/// `error` as it is documented: flat.
pub fn error_flat(number: u64, code: &str, message: &str) -> Step {
    let (code, message) = (quoted(code), quoted(message));
    event("error", number, &format!(r#","code":{code},"message":{message},"param":null"#))
}

/// `keepalive`, which is in no schema.
pub fn keepalive(number: u64) -> Step {
    event("keepalive", number, "")
}

/// Any event of this type; `members` are further members as JSON, with a comma before each.
pub fn event(kind: &str, number: u64, members: &str) -> Step {
    let data = format!(r#"{{"type":"{kind}","sequence_number":{number}{members}}}"#);
    Step::Event(Event { name: Some(kind.to_owned()), data })
}

pub(super) fn stream(model: &str, auto: &Auto) -> Answer {
    // Numbers go up by one an event.
    let mut next = 0;
    let mut number = move || {
        next += 1;
        next - 1
    };
    let start = |kind: &str, number: u64| lifecycle(kind, number, "in_progress", model, "", None);
    let mut answer = Answer::sse().step(start("created", number())).step(start("in_progress", number()));
    let mut index = 0;
    if !auto.text.is_empty() {
        answer = answer.step(message_added(number(), index)).step(part_added(number(), index));
        for piece in &auto.text {
            answer = paced(answer, auto.pace_ms, text_delta(number(), index, piece));
        }
        let text = auto.text.concat();
        let place = format!(r#","item_id":"{MESSAGE}","output_index":{index},"content_index":0"#);
        let whole = quoted(&text);
        answer = answer
            .step(event("response.output_text.done", number(), &format!(r#"{place},"text":{whole},"logprobs":[]"#)))
            .step(event("response.content_part.done", number(), &format!(r#"{place},"part":{}"#, part(&text))))
            .step(item_done(number(), index, &message("completed", &text)));
        index += 1;
    }
    if let Some(AutoTool { name, arguments }) = &auto.tool {
        answer = paced(answer, auto.pace_ms, call_added(number(), index, name));
        for piece in arguments {
            answer = paced(answer, auto.pace_ms, arguments_delta(number(), index, piece));
        }
        let arguments = arguments.concat();
        let done = format!(r#","item_id":"{CALL}","output_index":{index},"arguments":{}"#, quoted(&arguments));
        answer = answer.step(event("response.function_call_arguments.done", number(), &done)).step(item_done(
            number(),
            index,
            &call("completed", name, &arguments),
        ));
    }
    answer.step(lifecycle("completed", number(), "completed", model, &items(auto), Some(output_tokens(auto))))
}

pub(super) fn whole(model: &str, auto: &Auto) -> JsonText {
    JsonText(response("completed", model, &items(auto), Some(output_tokens(auto))))
}

fn items(auto: &Auto) -> String {
    let mut items = Vec::new();
    if !auto.text.is_empty() {
        items.push(message("completed", &auto.text.concat()));
    }
    if let Some(AutoTool { name, arguments }) = &auto.tool {
        items.push(call("completed", name, &arguments.concat()));
    }
    items.join(",")
}

fn lifecycle(kind: &str, number: u64, status: &str, model: &str, output: &str, tokens: Option<u64>) -> Step {
    let response = response(status, model, output, tokens);
    event(&format!("response.{kind}"), number, &format!(r#","response":{response}"#))
}

fn item_done(number: u64, index: u32, item: &str) -> Step {
    event("response.output_item.done", number, &format!(r#","output_index":{index},"item":{item}"#))
}

fn response(status: &str, model: &str, output: &str, output_tokens: Option<u64>) -> String {
    let model = quoted(model);
    let usage = output_tokens.map_or_else(
        || "null".to_owned(),
        |output| {
            let total = INPUT_TOKENS + output;
            format!(
                r#"{{"input_tokens":{INPUT_TOKENS},"input_tokens_details":{{"cached_tokens":0}},"output_tokens":{output},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{total}}}"#
            )
        },
    );
    format!(
        r#"{{"id":"{ID}","object":"response","created_at":{CREATED},"status":"{status}","background":false,"error":null,"incomplete_details":null,"instructions":null,"max_output_tokens":null,"model":{model},"output":[{output}],"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{{"effort":null,"summary":null}},"store":true,"temperature":1.0,"text":{{"format":{{"type":"text"}}}},"tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled","usage":{usage},"user":null,"metadata":{{}}}}"#
    )
}

fn message(status: &str, text: &str) -> String {
    let content = if text.is_empty() { String::new() } else { part(text) };
    format!(r#"{{"id":"{MESSAGE}","type":"message","status":"{status}","content":[{content}],"role":"assistant"}}"#)
}

fn part(text: &str) -> String {
    format!(r#"{{"type":"output_text","annotations":[],"logprobs":[],"text":{}}}"#, quoted(text))
}

fn call(status: &str, name: &str, arguments: &str) -> String {
    let (name, arguments) = (quoted(name), quoted(arguments));
    format!(
        r#"{{"id":"{CALL}","type":"function_call","status":"{status}","arguments":{arguments},"call_id":"call_mock0001","name":{name}}}"#
    )
}

fn spec(text: &[&str], tool: Option<(&str, &[&str])>) -> Auto {
    super::spec(AutoDialect::Responses, text, tool)
}

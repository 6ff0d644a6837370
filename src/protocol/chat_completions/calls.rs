//! The parts of a chat-completions answer that can be judged, and what the request declares of them.
//!
//! In: one event's data, a whole body, a request. Out: [`Part`]s, [`Declared`]. A call is whole when its choice has a finish reason
//! (the next index does not end one for certain: some servers mix them, and nothing can be released before the last is whole).
//! Facts: `index` may be missing or 0 for every call (Gemini's compatible endpoint), then ids tell them apart; arguments may be an
//! object (Ollama); `function_call` is the older form of one call.

use super::stream::finish_of;
use crate::protocol::json_walk::{elements, is_empty, member, members, text, valid};
use crate::protocol::parts::{At, Declared, Format, Part, inner};

/// The place of the older `function_call`, of which a choice has one.
const FUNCTION_CALL: u64 = u64::MAX;

/// The parts of one event.
pub fn of_event<'a>(data: &'a [u8], each: &mut dyn FnMut(Part<'a>)) {
    of_choices(data, false, each);
}

/// The parts of a whole answer; its choices are as whole as it is.
pub fn of_answer<'a>(body: &'a [u8], each: &mut dyn FnMut(Part<'a>)) {
    of_choices(body, true, each);
}

fn of_choices<'a>(data: &'a [u8], whole: bool, each: &mut dyn FnMut(Part<'a>)) {
    let choices = valid(data).and_then(|json| member(json, "choices")).unwrap_or_default();
    for (position, choice) in elements(choices).enumerate() {
        let number = number(choice).unwrap_or(position as u64);
        // Perplexity repeats all that was said in `message`, beside `delta`.
        let said = member(choice, "delta").filter(|delta| !is_empty(delta)).or_else(|| member(choice, "message"));
        of_message(number, said.unwrap_or_default(), each);
        if whole || finish_of(choice).is_some() {
            each(Part::ChoiceEnds(number));
        }
    }
}

fn of_message<'a>(choice: u64, message: &'a str, each: &mut dyn FnMut(Part<'a>)) {
    let at = At { choice, index: 0 };
    for (name, value) in members(message) {
        match name {
            "content" => {
                let parts = elements(value).filter_map(|part| member(part, "text"));
                for inner in inner(value).into_iter().chain(parts.filter_map(inner)).filter(|inner| !inner.is_empty()) {
                    each(Part::Text { at, inner, whole: false });
                }
            }
            "refusal" if !is_empty(value) => each(Part::Refusal(choice)),
            "tool_calls" => {
                for (position, call) in elements(value).enumerate() {
                    let index = number(call).unwrap_or(position as u64);
                    let (kind, arguments) =
                        if member(call, "custom").is_some() { ("custom", "input") } else { ("function", "arguments") };
                    let id = member(call, "id").and_then(text).filter(|id| !id.is_empty());
                    let called = member(call, kind).unwrap_or_default();
                    each(Part::Call { at: At { choice, index }, id, name: named(called), freeform: kind == "custom" });
                    of_arguments(At { choice, index }, member(called, arguments).unwrap_or_default(), each);
                }
            }
            "function_call" if !is_empty(value) => {
                let at = At { choice, index: FUNCTION_CALL };
                each(Part::Call { at, id: None, name: named(value), freeform: false });
                of_arguments(at, member(value, "arguments").unwrap_or_default(), each);
            }
            _ => {}
        }
    }
}

fn of_arguments<'a>(at: At, value: &'a str, each: &mut dyn FnMut(Part<'a>)) {
    if let Some(inner) = inner(value) {
        each(Part::Piece { at, inner });
    } else if value.starts_with('{') {
        each(Part::Input { at, json: value });
    }
}

fn number(json: &str) -> Option<u64> {
    member(json, "index")?.parse().ok()
}

fn named(json: &str) -> Option<std::borrow::Cow<'_, str>> {
    member(json, "name").and_then(text).filter(|name| !name.is_empty())
}

/// What the request declares.
pub fn declared(body: &[u8]) -> Declared<'_> {
    let mut declared = Declared::default();
    for (name, value) in members(valid(body).unwrap_or_default()) {
        match name {
            "tools" => elements(value).for_each(|tool| {
                let kind = if member(tool, "custom").is_some() { "custom" } else { "function" };
                let tool = member(tool, kind).unwrap_or_default();
                declared.tool(named(tool), member(tool, "parameters"));
            }),
            "functions" => elements(value).for_each(|tool| declared.tool(named(tool), member(tool, "parameters"))),
            "response_format" => {
                declared.format = match member(value, "type").and_then(text).as_deref() {
                    Some("json_object") => Some(Format::Object),
                    Some("json_schema") => {
                        Some(Format::Schema(member(value, "json_schema").and_then(|format| member(format, "schema"))))
                    }
                    _ => None,
                };
            }
            _ => {}
        }
    }
    declared
}

//! The parts of a Responses answer that can be judged, and what the request declares of them.
//!
//! In: one event's name and data, a whole body, a request. Out: [`Part`]s, [`Declared`]. A call is an item `function_call` or
//! `custom_tool_call`, whole at its `response.output_item.done`, which tells the arguments once more; so does the terminal event.
//! Text is taken from whole items only: the deltas say the same.

use crate::protocol::json_walk::{elements, is_empty, member, members, text, valid};
use crate::protocol::parts::{At, Declared, Format, Part, inner};

/// Parts of one item that have a place of their own; the rest share the last one.
const PARTS_MAX: u64 = 1 << 16;

/// The parts of one event.
pub fn of_event<'a>(name: &'a [u8], data: &'a [u8], each: &mut dyn FnMut(Part<'a>)) {
    let Some(json) = valid(data) else { return };
    let kind = member(json, "type").and_then(text).unwrap_or_else(|| String::from_utf8_lossy(name));
    let index = member(json, "output_index").and_then(|index| index.parse().ok()).unwrap_or(0);
    let at = At { choice: 0, index };
    let of_item = |each: &mut dyn FnMut(Part<'a>), done: bool| {
        of_item(at.index, member(json, "item").unwrap_or_default(), done, each);
    };
    match &*kind {
        "response.output_item.added" => of_item(each, false),
        "response.output_item.done" => of_item(each, true),
        "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
            each(Part::Call { at, id: None, name: None, freeform: kind.starts_with("response.custom") });
            if let Some(inner) = member(json, "delta").and_then(inner) {
                each(Part::Piece { at, inner });
            }
        }
        "response.function_call_arguments.done" => {
            if let Some(inner) = member(json, "arguments").and_then(inner) {
                each(Part::Whole { at, inner });
            }
        }
        "response.completed" | "response.incomplete" => {
            of_output(member(json, "response").unwrap_or_default(), each);
        }
        _ => {}
    }
}

/// The parts of a whole answer.
pub fn of_answer<'a>(body: &'a [u8], each: &mut dyn FnMut(Part<'a>)) {
    of_output(valid(body).unwrap_or_default(), each);
}

fn of_output<'a>(response: &'a str, each: &mut dyn FnMut(Part<'a>)) {
    for (position, item) in elements(member(response, "output").unwrap_or_default()).enumerate() {
        of_item(position as u64, item, true, each);
    }
}

fn of_item<'a>(index: u64, item: &'a str, done: bool, each: &mut dyn FnMut(Part<'a>)) {
    let at = At { choice: 0, index };
    let kind = member(item, "type").and_then(text).unwrap_or_default();
    let arguments = match &*kind {
        "function_call" => "arguments",
        "custom_tool_call" => "input",
        "message" if done => return of_content(index, member(item, "content").unwrap_or_default(), each),
        _ => return,
    };
    let name = member(item, "name").and_then(text);
    let id = member(item, "call_id").and_then(text).filter(|id| !id.is_empty());
    each(Part::Call { at, id, name, freeform: arguments == "input" });
    if done {
        if let Some(inner) = member(item, arguments).and_then(inner) {
            each(Part::Whole { at, inner });
        }
        let cut = member(item, "status").and_then(text).as_deref() == Some("incomplete");
        each(Part::Ends { at, cut });
    }
}

fn of_content<'a>(index: u64, content: &'a str, each: &mut dyn FnMut(Part<'a>)) {
    for (position, part) in elements(content).enumerate() {
        match member(part, "type").and_then(text).as_deref() {
            Some("refusal") => each(Part::Refusal(0)),
            Some("output_text") => {
                let place = index.saturating_mul(PARTS_MAX).saturating_add((position as u64).min(PARTS_MAX - 1));
                if let Some(inner) = member(part, "text").and_then(inner) {
                    each(Part::Text { at: At { choice: 0, index: place }, inner, whole: true });
                }
            }
            _ => {}
        }
    }
}

/// What the request declares.
pub fn declared(body: &[u8]) -> Declared<'_> {
    let mut declared = Declared::default();
    for (name, value) in members(valid(body).unwrap_or_default()) {
        match name {
            "tools" => elements(value).for_each(|tool| {
                of_tool(tool, &mut declared);
                // A namespace has tools of its own.
                elements(member(tool, "tools").unwrap_or_default()).for_each(|tool| of_tool(tool, &mut declared));
            }),
            "text" => {
                let format = member(value, "format").filter(|format| !is_empty(format)).unwrap_or_default();
                declared.format = match member(format, "type").and_then(text).as_deref() {
                    Some("json_object") => Some(Format::Object),
                    Some("json_schema") => Some(Format::Schema(member(format, "schema"))),
                    _ => None,
                };
            }
            _ => {}
        }
    }
    declared
}

fn of_tool<'a>(tool: &'a str, declared: &mut Declared<'a>) {
    if matches!(member(tool, "type").and_then(text).as_deref(), Some("function" | "custom")) {
        declared.tool(member(tool, "name").and_then(text), member(tool, "parameters"));
    }
}

//! The parts of a Messages answer that can be judged, and what the request declares of them.
//!
//! In: one event's name and data, a whole body, a request. Out: [`Part`]s, [`Declared`]. A call is a `tool_use` block, whole at its
//! `content_block_stop`; what the provider runs itself (`server_tool_use`, `mcp_tool_use`) is none. Its input comes as pieces of JSON
//! text, of which there may be none for a tool without arguments.

use crate::protocol::json_walk::{elements, is_empty, member, members, text, valid};
use crate::protocol::parts::{At, Declared, Format, Part, inner};

/// The parts of one event.
pub fn of_event<'a>(name: &'a [u8], data: &'a [u8], each: &mut dyn FnMut(Part<'a>)) {
    let Some(json) = valid(data) else { return };
    let kind = member(json, "type").and_then(text).unwrap_or_else(|| String::from_utf8_lossy(name));
    let index = member(json, "index").and_then(|index| index.parse().ok()).unwrap_or(0);
    let at = At { choice: 0, index };
    match &*kind {
        "message_start" => {
            let content = member(json, "message").and_then(|message| member(message, "content"));
            of_content(content.unwrap_or_default(), each);
        }
        "content_block_start" => of_block(at, member(json, "content_block").unwrap_or_default(), each),
        "content_block_delta" => {
            for (name, value) in members(member(json, "delta").unwrap_or_default()) {
                match (name, inner(value)) {
                    ("partial_json", Some(inner)) => each(Part::Piece { at, inner }),
                    ("text", Some(inner)) => each(Part::Text { at, inner, whole: false }),
                    _ => {}
                }
            }
        }
        "content_block_stop" => each(Part::Ends { at, cut: false }),
        _ => {}
    }
}

/// The parts of a whole answer.
pub fn of_answer<'a>(body: &'a [u8], each: &mut dyn FnMut(Part<'a>)) {
    of_content(valid(body).and_then(|json| member(json, "content")).unwrap_or_default(), each);
}

fn of_content<'a>(content: &'a str, each: &mut dyn FnMut(Part<'a>)) {
    for (position, block) in elements(content).enumerate() {
        let at = At { choice: 0, index: position as u64 };
        of_block(at, block, each);
        each(Part::Ends { at, cut: false });
    }
}

fn of_block<'a>(at: At, block: &'a str, each: &mut dyn FnMut(Part<'a>)) {
    match member(block, "type").and_then(text).as_deref() {
        Some("tool_use") => {
            let told = |name| member(block, name).and_then(text);
            each(Part::Call { at, id: told("id"), name: told("name"), freeform: false });
            if let Some(json) = member(block, "input").filter(|input| *input != "null") {
                each(Part::Input { at, json });
            }
        }
        Some("text") => {
            if let Some(inner) = member(block, "text").and_then(inner).filter(|inner| !inner.is_empty()) {
                each(Part::Text { at, inner, whole: false });
            }
        }
        _ => {}
    }
}

/// What the request declares.
pub fn declared(body: &[u8]) -> Declared<'_> {
    let mut declared = Declared::default();
    for (name, value) in members(valid(body).unwrap_or_default()) {
        let format = match name {
            "tools" => {
                elements(value)
                    .for_each(|tool| declared.tool(member(tool, "name").and_then(text), member(tool, "input_schema")));
                continue;
            }
            "output_config" => member(value, "format"),
            // The same before it had its place.
            "output_format" => Some(value),
            _ => None,
        };
        if let Some(format) = format.filter(|format| !is_empty(format))
            && member(format, "type").and_then(text).as_deref() == Some("json_schema")
        {
            declared.format = Some(Format::Schema(member(format, "schema")));
        }
    }
    declared
}

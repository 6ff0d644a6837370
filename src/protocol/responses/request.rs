//! What a Responses request asks for.
//!
//! In: the body as the caller sent it. Out: [`RequestFacts`], or a 400. As in chat-completions, members that decide what the relay does
//! (`model`, `stream`, `background`) must have the right type, and so must what a tool of the provider's or a pin could hide in
//! (`input`, `tools`); every other member is the provider's to judge, passes untouched and counts as far as it is understood.
//! Names count however they are spelt (`features::JUDGED`). `background: true` is refused: what goes on after the connection is
//! gone can't be held to its end (SPEC Annex, Requests). A stored prompt (`prompt.id`) is the capability `stored_prompt`: no answer
//! issues one, so no memory could ever know whose it is, but an operator knows which accounts have it.
//! Deliberately not here: which capability a route has, and editing (`protocol::request::with_model`).

use bytes::Bytes;

use super::pins;
use crate::protocol::chat_completions::hosted::{self, invalid};
use crate::protocol::features;
use crate::protocol::json_object::{Object, members as top_level};
use crate::protocol::json_walk::{ELEMENT, elements, is_empty, member, plain_names, text, text_bytes, walk};
use crate::protocol::pin::{Kind, Pins};
use crate::protocol::request::{HostedTool, RequestError, RequestFacts};

/// Namespaces inside namespaces of tools. One is declared; what lies deeper may act, whatever it is.
const NAMESPACES_MAX: u8 = 4;

/// Content part types and the capability that each needs; any other is a capability under its own name.
const PARTS: &[(&str, &str)] = &[
    ("input_text", "text"),
    ("output_text", "text"),
    ("text", "text"),
    ("summary_text", "text"),
    ("reasoning_text", "text"),
    ("refusal", "text"),
    ("input_image", "image"),
    ("computer_screenshot", "image"),
    ("input_file", "file"),
    ("input_audio", "audio"),
    ("output_audio", "audio"),
    ("input_video", "video"),
];

/// Item types and the capability that each needs: an item that tells of a tool needs who knows the tool. Any other is a
/// capability under its own name.
const ITEMS: &[(&str, &str)] = &[
    ("", "text"),
    ("message", "text"),
    ("reasoning", "text"),
    ("item_reference", "text"), // a pin
    ("additional_tools", "tools"),
    ("function_call", "tools"),
    ("function_call_output", "tools"),
    ("custom_tool_call", "tools"),
    ("custom_tool_call_output", "tools"),
    ("web_search_call", "web_search"),
    ("file_search_call", "file_search"),
    ("image_generation_call", "image_generation"),
    ("tool_search_call", "tool_search"),
    ("tool_search_output", "tool_search"),
    ("code_interpreter_call", "code_interpreter"),
    ("computer_call", "computer_use"),
    ("computer_call_output", "computer_use"),
    ("shell_call", "shell"),
    ("shell_call_output", "shell"),
    ("local_shell_call", "shell"),
    ("local_shell_call_output", "shell"),
    ("apply_patch_call", "apply_patch"),
    ("apply_patch_call_output", "apply_patch"),
    ("mcp_call", "mcp"),
    ("mcp_list_tools", "mcp"),
    ("mcp_approval_request", "mcp"),
    ("mcp_approval_response", "mcp"),
    ("program", "programmatic_tool_calling"),
    ("program_output", "programmatic_tool_calling"),
];

/// Strings in items that are no text for the model: labels, and media, which providers count by other rules than length.
const NO_TEXT: &[&str] = &[
    "role",
    "type",
    "id",
    "call_id",
    "status",
    "phase",
    "file_id",
    "container_id",
    "image_url",
    "file_url",
    "file_data",
    "data",
    "detail",
    "format",
    "encrypted_content",
    "fingerprint",
    "signature",
    "server_label",
    "approval_request_id",
];

/// Reads the body.
///
/// # Errors
/// `invalid_json`: not one JSON object. `model_twice`. `invalid_type`: `model` is no string, `stream` or `background` no boolean, `input`
/// neither text nor array, `tools` no array, or a tool's `type` is given twice or no string. `background_not_supported`.
pub fn read(body: &Bytes) -> Result<RequestFacts, RequestError> {
    let object = top_level(body)?;
    let mut facts = RequestFacts {
        model: model(&object)?,
        insert_at: object.insert_at,
        empty: object.members.is_empty(),
        choices: 1,
        ..RequestFacts::default()
    };
    let mut found = Found::default();
    found.capability("text");
    for top in &object.members {
        let (name, value) = (features::judged(&top.name), plain_names(top.value.get(), features::JUDGED));
        if &*value != "null" {
            found.member(&mut facts, name, &value)?;
        }
    }
    if found.parallel && found.capabilities.iter().any(|name| name == "tools") {
        found.capability("parallel_tools");
    }
    if facts.reasoning {
        found.capability("reasoning");
    }
    facts.text_bytes = found.text_bytes;
    facts.capabilities = found.capabilities;
    facts.capabilities.extend(found.hosted.iter().map(|tool| tool.name.clone()));
    facts.capabilities.sort_unstable();
    facts.capabilities.dedup();
    facts.hosted_tools = found.hosted;
    facts.pins = found.pins.presented();
    Ok(facts)
}

/// What was found so far.
#[derive(Default)]
struct Found {
    text_bytes: u64,
    capabilities: Vec<String>,
    hosted: Vec<HostedTool>,
    pins: Pins,
    /// `parallel_tool_calls: true` was said in words: it is the default, so only then it is needed.
    parallel: bool,
}

impl Found {
    fn member(&mut self, facts: &mut RequestFacts, name: &str, value: &str) -> Result<(), RequestError> {
        match name {
            // Of doubled ones the last counts, as in the JSON parsers of Python, Go and JavaScript.
            "stream" => facts.stream = boolean("stream", value)?,
            "background" if boolean("background", value)? => {
                let message = "`background` is not supported: a response must be answered on its own connection.";
                return Err(RequestError {
                    code: "background_not_supported",
                    message: message.to_owned(),
                    param: Some("background"),
                });
            }
            "background" => {}
            "input" if value.starts_with('"') => self.text(value),
            "input" if value.starts_with('[') => elements(value).try_for_each(|item| self.item(item))?,
            "input" => return Err(invalid("input", "must be a string or an array")),
            "instructions" => walk(value, |_, leaf| self.text(leaf)),
            "tools" if value.starts_with('[') => self.tools(value, 0)?,
            "tools" => return Err(invalid("tools", "must be an array")),
            "prompt" => {
                self.capability("stored_prompt");
                self.content(value);
            }
            "text" => self.format(member(value, "format").unwrap_or_default()),
            "response_format" => self.format(value), // of chat-completions, for servers that take it all the same
            "reasoning" => {
                let off = member(value, "effort") == Some("\"none\"") || member(value, "enabled") == Some("false");
                facts.reasoning |= !off && value != "false" && !is_empty(value);
            }
            "reasoning_effort" => facts.reasoning |= !matches!(value, "\"none\"" | "\"\""),
            "max_output_tokens" => facts.max_output_tokens = value.parse().ok(),
            "parallel_tool_calls" => self.parallel = value == "true",
            "top_logprobs" if value != "0" => self.capability("logprobs"),
            "include" => {
                if elements(value).filter_map(text).any(|each| each.ends_with("logprobs")) {
                    self.capability("logprobs");
                }
            }
            "previous_response_id" => self.pins.present(Kind::Response, value),
            "conversation" | "conversation_id" => self.pins.present(Kind::Conversation, value),
            "container" | "container_id" => self.pins.present(Kind::Container, value),
            "plugins" if value.starts_with('[') => hosted::of_plugins(value, &mut self.hosted), // OpenRouter
            "search_parameters" if member(value, "mode") != Some("\"off\"") => {
                hosted::add(&mut self.hosted, hosted::web_search()); // xAI
            }
            "web_search_options" => hosted::add(&mut self.hosted, hosted::web_search()),
            "modalities" | "audio" if !is_empty(value) && value != r#"["text"]"# => self.capability(name),
            _ => {
                if let Some(feature) = features::of_member(name, value) {
                    self.capability(feature);
                }
            }
        }
        Ok(())
    }

    /// One item of `input`.
    fn item(&mut self, item: &str) -> Result<(), RequestError> {
        if !item.starts_with('{') {
            return Err(invalid("input", "has an item that is not an object"));
        }
        let kind = member(item, "type").and_then(text).unwrap_or_default();
        match ITEMS.iter().find(|(name, _)| *name == kind) {
            Some((_, capability)) => self.capability(capability),
            None => self.capability(&features::named(&kind)),
        }
        pins::of_input_item(&kind, item, &mut self.pins);
        if matches!(&*kind, "additional_tools" | "tool_search_output") {
            self.tools(member(item, "tools").unwrap_or_default(), 0)?;
        }
        let is_picture = kind == "image_generation_call";
        walk(item, |path, leaf| {
            let name = path.iter().rev().find(|step| **step != ELEMENT).copied().unwrap_or_default();
            let is_label = NO_TEXT.contains(&name) || (is_picture && name == "result");
            if !is_label {
                self.text(leaf);
            }
            // Of a message, and of what a function or the computer gave back; an object instead of an array is one part.
            if let ["content" | "output", ELEMENT, "type"] | ["content" | "output", "type"] = path {
                self.part(leaf);
            }
        });
        Ok(())
    }

    /// Whatever may hold parts, at any depth: a prompt's variables.
    fn content(&mut self, value: &str) {
        pins::of_members(value, &mut self.pins);
        walk(value, |path, leaf| match path {
            [.., "type"] => self.part(leaf),
            [.., name] if !NO_TEXT.contains(name) => self.text(leaf),
            _ => {}
        });
    }

    fn part(&mut self, kind: &str) {
        let kind = text(kind).unwrap_or_default();
        match PARTS.iter().find(|(part, _)| *part == kind) {
            Some((_, capability)) => self.capability(capability),
            None => self.capability(&features::named(&kind)),
        }
    }

    /// What the answer must look like: `json_schema`, `json_object`, `grammar` …
    fn format(&mut self, format: &str) {
        walk(format, |_, leaf| self.text(leaf));
        match member(format, "type").and_then(text).as_deref() {
            Some("text") => {}
            Some(kind) => self.capability(&features::named(kind)),
            None if is_empty(format) => {}
            None => self.capability("response_format"),
        }
    }

    /// `tools`, at top level, in a namespace, or of an item that adds some.
    fn tools(&mut self, tools: &str, depth: u8) -> Result<(), RequestError> {
        if depth == 0 {
            walk(tools, |_, leaf| self.text(leaf));
            pins::of_members(tools, &mut self.pins);
        }
        for tool in elements(tools) {
            if member(tool, "type").and_then(text).as_deref() == Some("namespace") {
                self.capability("tools");
                if depth < NAMESPACES_MAX {
                    self.tools(member(tool, "tools").unwrap_or_default(), depth + 1)?;
                } else {
                    hosted::add(&mut self.hosted, HostedTool { name: features::UNKNOWN.to_owned(), may_act: true });
                }
                continue;
            }
            match hosted::of_tool(tool)? {
                Some(hosted_tool) => hosted::add(&mut self.hosted, hosted_tool),
                None => self.capability("tools"),
            }
            // An id; as an object it is made anew (`auto`), of files that `pins` sees.
            if let Some(container) = member(tool, "container").filter(|container| container.starts_with('"')) {
                self.pins.present(Kind::Container, container);
            }
        }
        Ok(())
    }

    fn text(&mut self, leaf: &str) {
        self.text_bytes = self.text_bytes.saturating_add(text_bytes(leaf));
    }

    fn capability(&mut self, name: &str) {
        let name = if self.capabilities.len() < features::CAPABILITIES_MAX { name } else { features::UNKNOWN };
        if !self.capabilities.iter().any(|each| each == name) {
            self.capabilities.push(name.to_owned());
        }
    }
}

fn model(object: &Object<'_>) -> Result<Option<(String, std::ops::Range<usize>)>, RequestError> {
    let mut models = object.all("model");
    let Some(model) = models.next() else { return Ok(None) };
    if models.next().is_some() {
        let message = "the request body has the member \"model\" twice".to_owned();
        return Err(RequestError { code: "model_twice", message, param: Some("model") });
    }
    // Not `text`, which takes half a character as it is written: such a name could not be compared with anything.
    match serde_json::from_str::<String>(model.value.get()) {
        Ok(name) => Ok(Some((name, model.range.clone()))),
        Err(_) => Err(invalid("model", "must be a string")),
    }
}

fn boolean(param: &'static str, value: &str) -> Result<bool, RequestError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(invalid(param, "must be a boolean")),
    }
}

#[cfg(test)]
mod tests;

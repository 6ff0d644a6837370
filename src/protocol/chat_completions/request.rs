//! What a chat-completions request asks for.
//!
//! In: the body as the caller sent it. Out: [`RequestFacts`]. Members that decide what the relay does (`model`, `stream`, `n`) must
//! have the right type, because a guess there would read the answer wrongly, and so must the lists in which a tool of the
//! provider's or a pin could hide (`tools`, `mcp_servers`, `plugins`, `messages`); every other member is the provider's to judge, passes
//! untouched and counts as far as it is understood. Names count however they are spelt (`features::JUDGED`). The body is
//! looked at in place; nothing of it is copied unless a name has to be made plain. Deliberately not here: which capability a route has, and editing (`protocol::request::with_model`).

use bytes::Bytes;

use super::hosted::{self, invalid};
use super::pins;
use crate::protocol::features;
use crate::protocol::json_object::{Member, Object, members as top_level};
use crate::protocol::json_walk::{ELEMENT, elements, is_empty, member, plain_names, text, text_bytes, walk};
use crate::protocol::pin::{Kind, Pins};
use crate::protocol::request::{HostedTool, RequestError, RequestFacts};

/// Top-level members whose text goes to the model as input, whole.
const DEFINITIONS: &[&str] = &["tools", "functions", "response_format"];

/// Content part types and the capability that each needs; any other is a capability under its own name.
const PARTS: &[(&str, &str)] = &[
    ("text", "text"),
    ("input_text", "text"),
    ("output_text", "text"),
    ("refusal", "text"),
    ("thinking", "text"), // Mistral, and Anthropic's blocks handed back: no need, but a pin where signed
    ("redacted_thinking", "text"), // as above
    ("image_url", "image"),
    ("input_image", "image"),
    ("image", "image"),
    ("input_audio", "audio"),
    ("audio_url", "audio"),
    ("video_url", "video"),
    ("input_video", "video"),
    ("file", "file"),
    ("input_file", "file"),
    ("file_url", "file"),
    ("document", "file"),
    ("document_url", "file"),
];

/// Strings in messages that are no text for the model: labels, and media, which providers count by other rules than length.
const NO_TEXT: &[&str] = &[
    "role",
    "type",
    "id",
    "tool_call_id",
    "file_id",
    "url",
    "image_url",
    "file_url",
    "document_url",
    "data",
    "file_data",
    "detail",
    "format",
    "encrypted_content",
    "signature",
    "thought_signature",
    "reasoning_opaque",
    "media_type",
    "mime_type",
];

/// Reads the body.
///
/// # Errors
/// `invalid_json`: not one JSON object. `model_twice`. `invalid_type`: `model` is no string, `stream` no boolean, `n` no whole number,
/// one of the lists no array, or a tool's `type` is given twice or no string.
pub fn read(body: &Bytes) -> Result<RequestFacts, RequestError> {
    let object = top_level(body)?;
    let mut facts = RequestFacts {
        model: model(&object)?,
        insert_at: object.insert_at,
        empty: object.members.is_empty(),
        stream: stream(&object)?,
        choices: choices(&object)?,
        ..RequestFacts::default()
    };
    let mut pins = Pins::default();
    facts.capabilities.push("text".to_owned());
    if facts.model.as_ref().is_some_and(|(model, _)| model.ends_with(":online")) {
        hosted::add(&mut facts.hosted_tools, hosted::web_search()); // OpenRouter's suffix
    }
    for top in &object.members {
        let (name, value) = (features::judged(&top.name), plain_names(top.value.get(), features::JUDGED));
        let value = &*value;
        if value == "null" {
            continue;
        }
        if DEFINITIONS.contains(&name) {
            walk(value, |_, leaf| facts.text_bytes = facts.text_bytes.saturating_add(text_bytes(leaf)));
        }
        top_member(&mut facts, &mut pins, name, value)?;
    }
    let capable = |name: &str| facts.capabilities.iter().any(|each| each == name);
    if capable("tools") && object.last("parallel_tool_calls").is_some_and(|value| value.value.get() == "true") {
        facts.capabilities.push("parallel_tools".to_owned());
    }
    if facts.reasoning {
        facts.capabilities.push("reasoning".to_owned());
    }
    facts.capabilities.extend(facts.hosted_tools.iter().map(|tool| tool.name.clone()));
    facts.capabilities.sort_unstable();
    facts.capabilities.dedup();
    facts.pins = pins.presented();
    Ok(facts)
}

fn top_member(facts: &mut RequestFacts, pins: &mut Pins, name: &str, value: &str) -> Result<(), RequestError> {
    match name {
        "messages" => messages(facts, pins, array("messages", value)?),
        "tools" => tools(facts, pins, array("tools", value)?)?,
        "functions" if !is_empty(value) => capability(facts, "tools"),
        "plugins" => hosted::of_plugins(array("plugins", value)?, &mut facts.hosted_tools),
        "mcp_servers" => {
            if elements(array("mcp_servers", value)?).next().is_some() {
                hosted::add(&mut facts.hosted_tools, HostedTool { name: "mcp".to_owned(), may_act: true });
            }
        }
        "web_search_options" => hosted::add(&mut facts.hosted_tools, hosted::web_search()),
        // xAI: searches unless told not to. Qwen: only when told to.
        "search_parameters" if member(value, "mode") != Some("\"off\"") => {
            hosted::add(&mut facts.hosted_tools, hosted::web_search());
        }
        "enable_search" if value != "false" => hosted::add(&mut facts.hosted_tools, hosted::web_search()),
        // `json_schema`, `json_object`, and those of compatible servers (`grammar`, `regex` …).
        "response_format" => match member(value, "type").and_then(text).as_deref() {
            Some("text") => {}
            Some(kind) => capability(facts, &features::named(kind)),
            None if is_empty(value) => {}
            None => capability(facts, "response_format"),
        },
        "reasoning" => {
            let off = member(value, "effort") == Some("\"none\"") || member(value, "enabled") == Some("false");
            facts.reasoning |= !off && value != "false";
        }
        "reasoning_effort" => facts.reasoning |= !matches!(value, "\"none\"" | "\"\""),
        "thinking" => {
            facts.reasoning |= matches!(member(value, "type").and_then(text).as_deref(), Some("enabled" | "adaptive"))
        }
        "logprobs" if value == "true" => capability(facts, "logprobs"),
        "top_logprobs" if value != "0" => capability(facts, "logprobs"),
        "modalities" if value.starts_with('[') => elements(value).for_each(|each| modality(facts, each)),
        "modalities" => modality(facts, value),
        "audio" => capability(facts, "audio"),
        // `max_completion_tokens` replaced `max_tokens`; where both are given, the larger one is the estimate.
        "max_tokens" | "max_completion_tokens" => {
            facts.max_output_tokens = facts.max_output_tokens.max(value.parse().ok());
        }
        "previous_response_id" => pins.present(Kind::Response, value),
        "conversation" | "conversation_id" => pins.present(Kind::Conversation, value),
        "container" | "container_id" => pins.present(Kind::Container, value),
        _ => {
            if let Some(feature) = features::of_member(name, value) {
                capability(facts, feature);
            }
        }
    }
    Ok(())
}

/// A list in which something could hide that the relay must judge, so nothing else will do.
fn array<'a>(param: &'static str, value: &'a str) -> Result<&'a str, RequestError> {
    if value.starts_with('[') { Ok(value) } else { Err(wrong_type(param, "an array")) }
}

/// What an answer may consist of beside text.
fn modality(facts: &mut RequestFacts, value: &str) {
    match text(value).as_deref() {
        Some("text") => {}
        Some("image") => capability(facts, "image_output"), // `image` is one in the request
        Some(other) => capability(facts, &features::named(other)),
        None => capability(facts, "modalities"),
    }
}

fn capability(facts: &mut RequestFacts, name: &str) {
    let name = if facts.capabilities.len() < features::CAPABILITIES_MAX { name } else { features::UNKNOWN };
    if !facts.capabilities.iter().any(|each| each == name) {
        facts.capabilities.push(name.to_owned());
    }
}

/// What a leaf of the messages says of the kind of its content part: by the part's `type`, and by the member that holds the
/// part's content, which some servers need no `type` for.
fn content_kind(facts: &mut RequestFacts, path: &[&str], leaf: &str) {
    // An object instead of an array of parts is one part.
    let part = match path {
        [ELEMENT, "content", ELEMENT, part @ ..] | [ELEMENT, "content", part @ ..] => part,
        _ => return,
    };
    match part {
        ["type"] => {
            let kind = text(leaf).unwrap_or_default();
            match PARTS.iter().find(|(part, _)| *part == kind) {
                Some((_, name)) => capability(facts, name),
                None => capability(facts, &features::named(&kind)),
            }
        }
        [held, ..] if leaf != "null" => {
            if let Some((_, name)) = PARTS.iter().find(|(part, _)| part == held) {
                capability(facts, name);
            }
        }
        _ => {}
    }
}

/// Roles of messages that tell what a tool said.
const TOOL_ROLES: &[&str] = &["tool", "function"];

/// A history that tells of calls needs a model that knows tools, whether or not this request declares any.
fn of_tools(path: &[&str], leaf: &str) -> bool {
    match path {
        [ELEMENT, "role"] => text(leaf).is_some_and(|role| TOOL_ROLES.iter().any(|one| role.eq_ignore_ascii_case(one))),
        [ELEMENT, "tool_calls" | "function_call", ..] => !is_empty(leaf) && leaf != "false",
        _ => false,
    }
}

fn messages(facts: &mut RequestFacts, pins: &mut Pins, value: &str) {
    elements(value).for_each(|message| pins::redacted(message, pins));
    walk(value, |path, leaf| {
        let name = path.iter().rev().find(|step| **step != ELEMENT).copied().unwrap_or_default();
        if !NO_TEXT.contains(&name) {
            facts.text_bytes = facts.text_bytes.saturating_add(text_bytes(leaf));
        }
        content_kind(facts, path, leaf);
        if of_tools(path, leaf) {
            capability(facts, "tools");
        }
        pins::of_leaf(path.get(1..).unwrap_or_default(), leaf, pins);
    });
}

fn tools(facts: &mut RequestFacts, pins: &mut Pins, value: &str) -> Result<(), RequestError> {
    for tool in elements(value) {
        let Some(hosted_tool) = hosted::of_tool(tool)? else {
            capability(facts, "tools");
            continue;
        };
        hosted::add(&mut facts.hosted_tools, hosted_tool);
        walk(tool, |path, leaf| match path {
            _ if !leaf.starts_with('"') => {}
            ["container"] => pins.present(Kind::Container, leaf),
            [.., "file_ids" | "vector_store_ids"] | [.., "file_ids" | "vector_store_ids", ELEMENT] => {
                pins.present(Kind::File, leaf)
            }
            _ => {}
        });
    }
    Ok(())
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
        Err(_) => Err(wrong_type("model", "a string")),
    }
}

fn stream(object: &Object<'_>) -> Result<bool, RequestError> {
    match object.last("stream").map(|member| member.value.get()) {
        None | Some("null" | "false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(wrong_type("stream", "a boolean")),
    }
}

/// Absent, `null` and 0 (which every provider refuses) read as 1.
fn choices(object: &Object<'_>) -> Result<u32, RequestError> {
    let number = |member: &Member<'_>| member.value.get().parse::<u32>().map(|n| n.max(1));
    match object.last("n") {
        None => Ok(1),
        Some(member) if member.value.get() == "null" => Ok(1),
        Some(member) => number(member).map_err(|_| wrong_type("n", "a whole number")),
    }
}

fn wrong_type(param: &'static str, must_be: &str) -> RequestError {
    invalid(param, &format!("must be {must_be}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(body: &str) -> RequestFacts {
        read(&Bytes::copy_from_slice(body.as_bytes())).unwrap_or_else(|error| panic!("{body}: {error}"))
    }

    #[test]
    fn the_plain_facts() {
        let body = r#" { "messages":[{"role":"user","content":"héllo"}] , "model" : "gpt-\u0035","stream":true,"n":2,
            "max_tokens":100,"max_completion_tokens":50,"unknown":{"model":"x"}}"#;
        let facts = facts(body);
        let (model, range) = facts.model.clone().unwrap();
        assert_eq!((model.as_str(), body.get(range)), ("gpt-5", Some(r#""gpt-\u0035""#)));
        assert_eq!((facts.insert_at, facts.empty, facts.stream, facts.choices), (2, false, true, 2));
        assert_eq!((facts.max_output_tokens, facts.text_bytes), (Some(100), 6));
        assert_eq!(facts.capabilities, ["text"]);
        assert!(!facts.reasoning && facts.hosted_tools.is_empty() && facts.pins.is_empty());
    }

    #[test]
    fn what_is_absent_or_null_has_its_default() {
        for body in ["{}", r#"{"stream":null,"n":null,"tools":null,"reasoning":null,"logprobs":null,"audio":null}"#] {
            let facts = facts(body);
            assert_eq!((facts.stream, facts.choices, facts.max_output_tokens, facts.text_bytes), (false, 1, None, 0));
            assert_eq!((facts.capabilities, facts.model), (vec!["text".to_owned()], None), "{body}");
            assert!(!facts.reasoning && facts.hosted_tools.is_empty() && facts.pins.is_empty(), "{body}");
        }
        assert!(facts(" {\n}").empty);
    }

    #[test]
    fn a_history_with_calls_uses_tools() {
        for (messages, tools) in [
            (
                r#"[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}]"#,
                true,
            ),
            (r#"[{"role":"tool","tool_call_id":"c","content":"4"}]"#, true),
            (r#"[{"Role":"Tool","content":"4"}]"#, true),
            (r#"[{"role":"assistant","function_call":{"name":"f","arguments":""}}]"#, true),
            (r#"[{"role":"function","name":"f","content":"4"}]"#, true),
            (r#"[{"role":"assistant","T\u006fol_calls":[{"id":"c"}]}]"#, true),
            (r#"[{"role":"assistant","content":"x","tool_calls":[],"function_call":null}]"#, false),
            (r#"[{"role":"assistant","content":"x","tool_calls":null}]"#, false),
            (r#"[{"role":"user","content":"role: tool"}]"#, false),
            (r#"[{"role":"user","content":[{"type":"text","text":"x","role":"tool"}]}]"#, false),
        ] {
            for body in [format!(r#"{{"messages":{messages}}}"#), format!(r#"{{"messages":{messages},"tools":[]}}"#)] {
                assert_eq!(facts(&body).capabilities.contains(&"tools".to_owned()), tools, "{body}");
            }
        }
        let both = r#"{"parallel_tool_calls":true,"messages":[{"role":"tool","content":"4"}]}"#;
        assert_eq!(facts(both).capabilities, ["parallel_tools", "text", "tools"]);
    }

    #[test]
    fn refusals() {
        for (body, code, param) in [
            ("[]", "invalid_json", None),
            ("{\"model\":\"a\"", "invalid_json", None),
            (r#"{"model":"a","x":1,"mod\u0065l":"b"}"#, "model_twice", Some("model")),
            (r#"{"model":"a","model":"a"}"#, "model_twice", Some("model")),
            (r#"{"model":1}"#, "invalid_type", Some("model")),
            (r#"{"model":null}"#, "invalid_type", Some("model")),
            (r#"{"model":"\ud800"}"#, "invalid_type", Some("model")),
            (r#"{"stream":"true"}"#, "invalid_type", Some("stream")),
            (r#"{"stream":1}"#, "invalid_type", Some("stream")),
            (r#"{"n":"2"}"#, "invalid_type", Some("n")),
            (r#"{"n":-1}"#, "invalid_type", Some("n")),
            (r#"{"n":1.5}"#, "invalid_type", Some("n")),
            (r#"{"tools":{"type":"mcp"}}"#, "invalid_type", Some("tools")),
            (r#"{"tools":"mcp"}"#, "invalid_type", Some("tools")),
            (r#"{"tools":7}"#, "invalid_type", Some("tools")),
            (r#"{"tools":[],"Tool\u0073":{"type":"mcp"}}"#, "invalid_type", Some("tools")),
            (r#"{"tools":[{"type":"mcp","type":"function"}]}"#, "invalid_type", Some("tools")),
            (r#"{"tools":[{"type":"function","t\u0079pe":"mcp"}]}"#, "invalid_type", Some("tools")),
            (r#"{"tools":[{"type":"function","Type":"mcp"}]}"#, "invalid_type", Some("tools")),
            (r#"{"tools":[{"type":7,"function":{}}]}"#, "invalid_type", Some("tools")),
            (r#"{"mcp_servers":{"url":"x"}}"#, "invalid_type", Some("mcp_servers")),
            (r#"{"plugins":{"id":"web"}}"#, "invalid_type", Some("plugins")),
            (r#"{"messages":{"role":"user"}}"#, "invalid_type", Some("messages")),
            (r#"{"messages":"hi"}"#, "invalid_type", Some("messages")),
        ] {
            let error = read(&Bytes::copy_from_slice(body.as_bytes())).unwrap_err();
            assert_eq!((error.code, error.param), (code, param), "{body}");
        }
    }

    #[test]
    fn capabilities() {
        let part = |part: &str| {
            format!(r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":"x"}},{part}]}}]}}"#)
        };
        for (body, capabilities) in [
            (part(r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#), "image text"),
            (part(r#"{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}"#), "audio text"),
            (part(r#"{"type":"file","file":{"file_data":"AAAA","filename":"a.pdf"}}"#), "file text"),
            (part(r#"{"type":"video_url","video_url":{"url":"https://example.test"}}"#), "text video"),
            (part(r#"{"type":"zork"}"#), "text zork"),
            (part(r#"{"type":"zork gl\u00fchen"}"#), "text zork_gl_hen"),
            (part(r#"{"type":7}"#), "text unknown"),
            (part(r#"{"t\u0079pe":"image_url"}"#), "image text"),
            (part(r#"{"type":"im\u0061ge_url"}"#), "image text"),
            (part(r#"{"type":"text","Type":"image_url"}"#), "image text"),
            (part(r#"{"image_url":{"url":"https://example.test"}}"#), "image text"),
            (part(r#"{"type":"refusal","refusal":"x"}"#), "text"),
            (r#"{"messages":[{"role":"user","content":{"type":"image_url"}}]}"#.into(), "image text"),
            (r#"{"Me\u0073sages":[{"role":"user","Content":[{"type":"file"}]}]}"#.into(), "file text"),
            (r#"{"prediction":{"type":"content","content":"x"}}"#.into(), "prediction text"),
            (r#"{"prediction":null,"logit_bias":{},"documents":[]}"#.into(), "text"),
            (
                r#"{"logit_bias":{"9":-100},"guided_choice":["a"],"documents":[{"x":1}]}"#.into(),
                "documents guided_choice logit_bias text",
            ),
            (r#"{"temperature":1,"top_p":1,"seed":7,"stop":"x","frequency_penalty":1,"user":"u"}"#.into(), "text"),
            (r#"{"modalities":["text","video","image"]}"#.into(), "image_output text video"),
            (r#"{"modalities":"audio"}"#.into(), "audio text"),
            (r#"{"response_format":{"type":"grammar","grammar":"x"}}"#.into(), "grammar text"),
            (r#"{"response_format":"json"}"#.into(), "response_format text"),
            (r#"{"mcp_servers":[{"url":"x"}]}"#.into(), "mcp text"),
            (r#"{"mcp_servers":[]}"#.into(), "text"),
            (r#"{"TOOLS":[{"TYPE":"mcp"}]}"#.into(), "mcp text"),
            (r#"{"tools":[{"t\u0079pe":"mcp"}]}"#.into(), "mcp text"),
            (r#"{"tools":[{"type":"\u006dcp"}]}"#.into(), "mcp text"),
            (r#"{"modalities":["text","audio"],"audio":{"voice":"alloy","format":"pcm16"}}"#.into(), "audio text"),
            (r#"{"tools":[{"type":"function","function":{"name":"f"}}]}"#.into(), "text tools"),
            (r#"{"functions":[{"name":"f"}]}"#.into(), "text tools"),
            (r#"{"tools":[],"functions":[],"parallel_tool_calls":true}"#.into(), "text"),
            (
                r#"{"tools":[{"type":"custom","custom":{"name":"f"}}],"parallel_tool_calls":true}"#.into(),
                "parallel_tools text tools",
            ),
            (
                r#"{"tools":[{"type":"function","function":{"name":"f"}}],"parallel_tool_calls":false}"#.into(),
                "text tools",
            ),
            (r#"{"tools":[{"type":"mcp"},{"type":"function"}]}"#.into(), "mcp text tools"),
            (r#"{"tools":[{"type":"web_search_preview_2025_03_11"}]}"#.into(), "text web_search"),
            (r#"{"web_search_options":{}}"#.into(), "text web_search"),
            (r#"{"search_parameters":{"mode":"auto"}}"#.into(), "text web_search"),
            (r#"{"search_parameters":{"mode":"off"}}"#.into(), "text"),
            (r#"{"plugins":[{"id":"web"}]}"#.into(), "text web_search"),
            (r#"{"model":"openai/gpt-5:online"}"#.into(), "text web_search"),
            (r#"{"response_format":{"type":"json_schema","json_schema":{}}}"#.into(), "json_schema text"),
            (r#"{"response_format":{"type":"json_object"}}"#.into(), "json_object text"),
            (r#"{"response_format":{"type":"text"}}"#.into(), "text"),
            (r#"{"logprobs":true,"top_logprobs":3}"#.into(), "logprobs text"),
            (r#"{"logprobs":false,"top_logprobs":0}"#.into(), "text"),
            (r#"{"reasoning_effort":"high"}"#.into(), "reasoning text"),
            (
                r#"{"reasoning_effort":"none","reasoning":{"effort":"none"},"thinking":{"type":"disabled"}}"#.into(),
                "text",
            ),
            (r#"{"reasoning":{"enabled":false}}"#.into(), "text"),
            (r#"{"reasoning":{"max_tokens":2000}}"#.into(), "reasoning text"),
            (r#"{"thinking":{"type":"enabled","budget_tokens":1024}}"#.into(), "reasoning text"),
            (r#"{"thinking":{"type":"adaptive"}}"#.into(), "reasoning text"),
        ] {
            let facts = facts(&body);
            assert_eq!(facts.capabilities.join(" "), capabilities, "{body}");
            assert_eq!(facts.reasoning, capabilities.contains("reasoning"), "{body}");
        }
    }

    #[test]
    fn over_the_bound_of_capabilities_something_stays_that_no_route_states() {
        let parts: Vec<_> = (0..1000).map(|n| format!(r#"{{"type":"zork_{n}"}}"#)).collect();
        let facts = facts(&format!(r#"{{"messages":[{{"content":[{}]}}]}}"#, parts.join(",")));
        assert_eq!(facts.capabilities.len(), features::CAPABILITIES_MAX + 1);
        assert!(facts.capabilities.iter().any(|name| name == features::UNKNOWN));
    }

    #[test]
    fn hosted_tools_and_what_may_act() {
        let facts = facts(
            r#"{"tools":[{"type":"web_search"},{"type":"mcp"},{"type":"new_thing"},{"type":"mcp"}],"tools":[{"type":"shell"}]}"#,
        );
        let tools: Vec<_> = facts.hosted_tools.iter().map(|tool| (tool.name.as_str(), tool.may_act)).collect();
        assert_eq!(
            tools,
            [("web_search", false), ("mcp", true), ("new_thing", true), ("shell", true)],
            "of doubled members all"
        );
    }

    #[test]
    fn pins() {
        let message = |inner: &str| format!(r#"{{"messages":[{{"role":"assistant",{inner}}}]}}"#);
        for (body, pins) in [
            (message(r#""content":[{"type":"file","file":{"file_id":"file-1"}}]"#), "file_id"),
            (message(r#""content":[{"type":"file","file":{"file_id":null,"file_data":"AA"}}]"#), ""),
            (message(r#""audio":{"id":"audio_1"}"#), "file_id"),
            (message(r#""reasoning_details":[{"type":"reasoning.encrypted","data":"AA"}]"#), "encrypted_content"),
            (message(r#""reasoning_details":[{"type":"reasoning.text","text":"t","signature":"AA"}]"#), "signature"),
            (message(r#""reasoning_details":[{"type":"reasoning.text","text":"t","signature":null}]"#), ""),
            (message(r#""reasoning_content":"hm""#), ""),
            (message(r#""tool_calls":[{"extra_content":{"google":{"thought_signature":"AA"}}}]"#), "signature"),
            (message(r#""thinking_blocks":[{"type":"thinking","signature":"AA"},{"type":"redacted_thinking","data":"AA"}]"#),
                "encrypted_content signature"),
            (message(r#""tool_calls":[{"function":{"name":"f","arguments":"{\"file_id\":\"x\"}"}}]"#), ""),
            (message(r#""content":"{\"signature\":\"x\"}""#), ""),
            (message(r#""content":[{"type":"file","file":{"file\u005fid":"file-1"}}]"#), "file_id"),
            (message(r#""content":[{"type":"file","file":{"File_ID":"file-1"}}]"#), "file_id"),
            (message(r#""thinking_blocks":[{"type":"redacted\u005fthinking","data":"AA"}]"#), "encrypted_content"),
            (r#"{"tools":[{"type":"function","function":{"parameters":{"properties":{"file_id":{"type":"string"}}}}}]}"#.into(), ""),
            (r#"{"tools":[{"type":"code_interpreter","container":"cntr_1"}]}"#.into(), "container"),
            (r#"{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["f"]}}]}"#.into(), "file_id"),
            (r#"{"tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}"#.into(), "file_id"),
            (r#"{"previous_response_id":"r","conversation":"c","container":null}"#.into(), "conversation previous_response_id"),
        ] {
            assert_eq!(facts(&body).pin_fields().join(" "), pins, "{body}");
        }
    }

    #[test]
    fn text_is_counted_and_media_is_not() {
        let media = "A".repeat(10_000);
        let body = format!(
            r#"{{"messages":[{{"role":"system","content":"12345"}},{{"role":"user","content":[{{"type":"text","text":"\u00e9"}},
            {{"type":"image_url","image_url":{{"url":"data:image/png;base64,{media}"}}}},{{"type":"file","file":{{"file_data":"{media}"}}}}]}},
            {{"role":"assistant","tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]}},
            {{"role":"tool","tool_call_id":"c","content":"abc"}}],"metadata":{{"a":"{media}"}}}}"#
        );
        assert_eq!(facts(&body).text_bytes, 5 + 2 + 1 + 2 + 3);
        let tools = r#"{"tools":[{"type":"function","function":{"name":"f","description":"12345"}}]}"#;
        assert_eq!(facts(tools).text_bytes, 8 + 1 + 5);
    }

    #[test]
    fn depth_is_no_danger() {
        let deep = format!(
            r#"{{"messages":{}"x"{},"tools":{}{}}}"#,
            "[".repeat(90_000),
            "]".repeat(90_000),
            "[".repeat(9_000),
            "]".repeat(9_000)
        );
        assert_eq!(facts(&deep).text_bytes, 1);
    }
}

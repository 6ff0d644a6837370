//! What a Messages request asks for, `count_tokens` included.
//!
//! In: the body as the caller sent it. Out: [`RequestFacts`], or a 400. Why so little is checked: the provider judges a
//! request; the relay refuses only what it can't read for certain and must (`model`, `stream`, tools, content with pins …),
//! because a tool or a pin that it overlooks breaks a promise. A member given twice: `model` is refused, of the others every
//! value is read and the last one counts. `null` is absent, save for `model`, where it would end up twice. Names by which something is
//! judged count however they are spelt, and so does a doubled one (`features::JUDGED`).
//! Deliberately not here: headers (`anthropic-beta`), edits of the body ([`with_model`](crate::protocol::request::with_model)).

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::blocks::{Found, invalid};
use super::fields::{Raw, count, each, filled, is_array, object, word};
use crate::protocol::features;
use crate::protocol::json_object::{self, Object};
use crate::protocol::json_walk::plain_names;
use crate::protocol::pin::{Kind, Pin};
use crate::protocol::request::{RequestError, RequestFacts};

/// Reads a request body.
///
/// # Errors
/// `invalid_json` (not one JSON object), `model_twice`, `invalid_type` (a member the relay must read is of another type).
pub fn read(body: &Bytes) -> Result<RequestFacts, RequestError> {
    let object = json_object::members(body)?;
    let mut facts = RequestFacts {
        model: model(&object)?,
        insert_at: object.insert_at,
        empty: object.members.is_empty(),
        choices: 1,
        ..RequestFacts::default()
    };
    let mut found = Found::default();
    found.capability("text");
    for member in &object.members {
        let name = features::judged(&member.name);
        match plain_names(member.value.get(), features::JUDGED) {
            Cow::Borrowed(_) => read_member(name, member.value, &mut facts, &mut found)?,
            Cow::Owned(plain) => {
                let value = RawValue::from_string(plain).map_err(|_| invalid_names())?;
                read_member(name, &value, &mut facts, &mut found)?;
            }
        }
    }
    if facts.reasoning {
        found.capability("reasoning");
    }
    facts.text_bytes = found.text_bytes;
    facts.hosted_tools = found.hosted;
    facts.capabilities = found.capabilities.into_iter().collect();
    facts.pins = found.pins.presented();
    Ok(facts)
}

fn model(object: &Object<'_>) -> Result<Option<(String, std::ops::Range<usize>)>, RequestError> {
    let mut given = object.all("model");
    let Some(member) = given.next() else { return Ok(None) };
    if given.next().is_some() {
        let message = "`model` is given twice".to_owned();
        return Err(RequestError { code: "model_twice", message, param: Some("model") });
    }
    let name = word(Some(member.value)).ok_or_else(|| invalid("model", "must be a string"))?;
    Ok(Some((name.into_owned(), member.range.clone())))
}

/// For what can't happen: valid JSON with other names in it is valid JSON.
fn invalid_names() -> RequestError {
    RequestError { code: "invalid_json", message: "a name in the request cannot be read".to_owned(), param: None }
}

fn read_member(name: &str, value: &RawValue, facts: &mut RequestFacts, found: &mut Found) -> Result<(), RequestError> {
    let value = Some(value).filter(|value| value.get() != "null");
    match name {
        "stream" => {
            facts.stream = match value.map(RawValue::get) {
                None | Some("false") => false,
                Some("true") => true,
                Some(_) => return Err(invalid("stream", "must be true or false")),
            }
        }
        "max_tokens" => {
            facts.max_output_tokens = count(value);
            if value.is_some() && facts.max_output_tokens.is_none() {
                return Err(invalid("max_tokens", "must be a whole number"));
            }
        }
        "system" => found.text_or_blocks(value, "system")?,
        "messages" => items(value, "messages", |message| read_message(message, found))?,
        "tools" => items(value, "tools", |tool| found.tool(tool, "tools"))?,
        "mcp_servers" => items(value, "mcp_servers", |_| found.host("mcp", true, "mcp_servers"))?,
        "thinking" => facts.reasoning = thinks(value)?,
        "tool_choice" => read_tool_choice(value, found)?,
        "output_format" if value.is_some() => found.capability("json_schema"),
        "output_config" => read_output_config(value, found)?,
        "container" => {
            if container(value, found)? {
                found.capability("skills");
            }
        }
        "thread" => names_message(value, "thread", Kind::Thread, found)?,
        "diagnostics" => names_message(value, "diagnostics", Kind::Response, found)?,
        // Billing state of a refused request; good at the organization that issued it only.
        "fallback_credit_token" => found.pin(Kind::Encrypted, value),
        "web_search_options" if value.is_some() => found.host("web_search", false, "web_search_options")?,
        // Of other dialects: who answers this one and knows them all the same is to say so.
        "modalities" | "audio" | "functions" | "plugins" | "response_format" if filled(value) => found.capability(name),
        _ => {
            if let Some(feature) = value.and_then(|value| features::of_member(name, value.get())) {
                found.capability(feature);
            }
        }
    }
    Ok(())
}

fn items<'a>(
    value: Raw<'a>,
    param: &'static str,
    visit: impl FnMut(&'a RawValue) -> Result<(), RequestError>,
) -> Result<(), RequestError> {
    let Some(value) = value else { return Ok(()) };
    if each(value, visit)? { Ok(()) } else { Err(invalid(param, "must be an array")) }
}

/// `T` from an object, nothing from `null`.
fn optional<'a, T: Deserialize<'a>>(value: Raw<'a>, param: &'static str) -> Result<Option<T>, RequestError> {
    let Some(value) = value else { return Ok(None) };
    object(value).map(Some).ok_or_else(|| invalid(param, "must be an object that names no member twice"))
}

fn read_message(raw: &RawValue, found: &mut Found) -> Result<(), RequestError> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        content: Raw<'a>,
    }
    let message: Message<'_> = object(raw)
        .ok_or_else(|| invalid("messages", "has a message that is not an object, or that names a member twice"))?;
    found.text_or_blocks(message.content, "messages")
}

/// `thinking`: everything but `disabled` asks for reasoning (`enabled`, `adaptive`, `between_tools`, what comes next).
fn thinks(value: Raw<'_>) -> Result<bool, RequestError> {
    #[derive(Deserialize)]
    struct Thinking<'a> {
        #[serde(borrow, rename = "type")]
        kind: Raw<'a>,
    }
    let thinking: Option<Thinking<'_>> = optional(value, "thinking")?;
    Ok(thinking.is_some_and(|thinking| word(thinking.kind).is_none_or(|kind| kind != "disabled")))
}

/// Parallel calls are the default, so only a caller that says so in words is taken to need them.
fn read_tool_choice(value: Raw<'_>, found: &mut Found) -> Result<(), RequestError> {
    #[derive(Deserialize)]
    struct ToolChoice<'a> {
        #[serde(borrow)]
        disable_parallel_tool_use: Raw<'a>,
    }
    let choice: Option<ToolChoice<'_>> = optional(value, "tool_choice")?;
    if choice.and_then(|choice| choice.disable_parallel_tool_use).is_some_and(|raw| raw.get() == "false") {
        found.capability("parallel_tools");
    }
    Ok(())
}

fn read_output_config(value: Raw<'_>, found: &mut Found) -> Result<(), RequestError> {
    #[derive(Deserialize)]
    struct OutputConfig<'a> {
        #[serde(borrow)]
        format: Raw<'a>,
    }
    let config: Option<OutputConfig<'_>> = optional(value, "output_config")?;
    if config.is_some_and(|config| config.format.is_some()) {
        found.capability("json_schema");
    }
    Ok(())
}

/// `container`: an id, or an object with an id or with skills. Pins it where it is bound to an account (by the id, or by skills of the
/// caller's own; Anthropic's own are everywhere), and tells whether it has skills.
fn container(value: Raw<'_>, found: &mut Found) -> Result<bool, RequestError> {
    #[derive(Deserialize)]
    struct Container<'a> {
        #[serde(borrow)]
        id: Raw<'a>,
        #[serde(borrow)]
        skills: Raw<'a>,
    }
    #[derive(Deserialize)]
    struct Skill<'a> {
        #[serde(borrow, rename = "type")]
        kind: Raw<'a>,
        #[serde(borrow)]
        skill_id: Raw<'a>,
    }
    if value.is_some_and(|value| value.get().starts_with('"')) {
        found.pin(Kind::Container, value);
        return Ok(false);
    }
    let Some(container) = optional::<Container<'_>>(value, "container")? else { return Ok(false) };
    found.pin(Kind::Container, container.id);
    let is_list = is_array(container.skills);
    if container.skills.is_some() && !is_list {
        found.pins.insert(Pin::nameless(Kind::Container));
    }
    items(container.skills.filter(|_| is_list), "container", |skill| {
        let skill = object::<Skill<'_>>(skill);
        let kind = skill.as_ref().and_then(|skill| word(skill.kind));
        match skill.and_then(|skill| skill.skill_id) {
            _ if kind.as_deref() == Some("anthropic") => {}
            Some(id) => found.pin(Kind::Container, Some(id)),
            None => found.pins.insert(Pin::nameless(Kind::Container)),
        }
        Ok(())
    })?;
    Ok(filled(container.skills))
}

/// `thread` and `diagnostics` may name an earlier answer, which only the account that gave it knows.
fn names_message(value: Raw<'_>, param: &'static str, kind: Kind, found: &mut Found) -> Result<(), RequestError> {
    #[derive(Deserialize)]
    struct Names<'a> {
        #[serde(borrow)]
        previous_message_id: Raw<'a>,
    }
    let names: Option<Names<'_>> = optional(value, param)?;
    found.pin(kind, names.and_then(|names| names.previous_message_id));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::request::{HostedTool, with_model};

    fn facts(body: &str) -> RequestFacts {
        read(&Bytes::copy_from_slice(body.as_bytes())).unwrap()
    }

    #[test]
    fn a_whole_request() {
        let body = r#"{"max_tokens":1024, "model" : "claude-x","stream":true,
            "thinking":{"type":"adaptive"},
            "system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],
            "tool_choice":{"type":"auto","disable_parallel_tool_use":false},
            "tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"f","input_schema":{"type":"object"}}],
            "mcp_servers":[{"type":"url","url":"https://mcp.example.test/mcp","name":"s"}],
            "output_config":{"effort":"low","format":{"type":"json_schema","schema":{}}},
            "container":"container_1",
            "messages":[{"role":"user","content":"Hello"},
                {"role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"Eq"}]},
                {"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"file_1"}},
                    {"type":"document","source":{"type":"base64","data":"JVBE"}}]}]}"#;
        let facts = facts(body);
        let (model, range) = facts.model.clone().unwrap();
        assert_eq!((model.as_str(), body.get(range)), ("claude-x", Some("\"claude-x\"")));
        assert_eq!(
            (facts.insert_at, facts.empty, facts.stream, facts.reasoning, facts.choices),
            (1, false, true, true, 1)
        );
        assert_eq!(facts.max_output_tokens, Some(1024));
        assert_eq!(facts.text_bytes, 9 + 49 + 46 + 5 + 2);
        assert_eq!(
            facts.hosted_tools,
            [
                HostedTool { name: "web_search".to_owned(), may_act: false },
                HostedTool { name: "mcp".to_owned(), may_act: true }
            ]
        );
        assert_eq!(
            facts.capabilities,
            ["file", "image", "json_schema", "mcp", "parallel_tools", "reasoning", "text", "tools", "web_search"]
        );
        assert_eq!(facts.pin_fields(), ["container", "file_id", "signature"]);
        let edited = with_model(&Bytes::copy_from_slice(body.as_bytes()), &facts, "claude-y");
        assert_eq!(edited, body.replace("claude-x", "claude-y"));
    }

    #[test]
    fn the_smallest_requests() {
        let none = facts("{ }");
        assert_eq!((none.model, none.empty, none.stream, none.reasoning), (None, true, false, false));
        assert_eq!((none.capabilities, none.choices), (vec!["text".to_owned()], 1));
        let body = r#" {"messages":[{"role":"user","content":"hi"}]}"#;
        let without = facts(body);
        let edited = with_model(&Bytes::copy_from_slice(body.as_bytes()), &without, "claude-y");
        assert_eq!(edited, r#" {"model":"claude-y","messages":[{"role":"user","content":"hi"}]}"#);
    }

    #[test]
    fn single_members() {
        type Ask = fn(&RequestFacts) -> bool;
        let is_pinned: Ask = |facts| !facts.pins.is_empty();
        let is_schema: Ask = |facts| facts.capabilities.iter().any(|c| c == "json_schema");
        let is_parallel: Ask = |facts| facts.capabilities.iter().any(|c| c == "parallel_tools");
        let acts: Ask = |facts| facts.hosted_tools.iter().any(|tool| tool.may_act);
        for (member, ask, expected) in [
            (r#""stream":true"#, (|facts| facts.stream) as Ask, true),
            (r#""stream":null"#, |facts| facts.stream, false),
            (r#""stream":true,"stream":false"#, |facts| facts.stream, false),
            (r#""max_tokens":null"#, |facts| facts.max_output_tokens.is_none(), true),
            (r#""max_tokens":0"#, |facts| facts.max_output_tokens == Some(0), true),
            (r#""thinking":{"type":"enabled","budget_tokens":1024}"#, |facts| facts.reasoning, true),
            (r#""thinking":{"type":"between_tools"}"#, |facts| facts.reasoning, true),
            (r#""thinking":{"type":"disabled"}"#, |facts| facts.reasoning, false),
            (r#""thinking":null"#, |facts| facts.reasoning, false),
            (r#""output_format":{"type":"json_schema","schema":{}}"#, is_schema, true),
            (r#""output_format":null"#, is_schema, false),
            (r#""output_config":{"effort":"high"}"#, is_schema, false),
            (r#""output_config":{"format":null}"#, is_schema, false),
            (r#""tool_choice":{"type":"auto"}"#, is_parallel, false),
            (r#""tool_choice":{"type":"any","disable_parallel_tool_use":true}"#, is_parallel, false),
            (r#""mcp_servers":[]"#, acts, false),
            (r#""mcp_servers":null,"tools":null,"system":null,"messages":null,"container":null"#, acts, false),
            // A member given twice: every value is read.
            (r#""tools":[{"type":"code_execution_20250825"}],"tools":[]"#, acts, true),
            (r#""messages":[{"role":"system","content":[{"type":"tool_addition","tool":{"type":"x"}}]}]"#, acts, true),
            (r#""container":"c""#, is_pinned, true),
            (r#""container":{"id":"c"}"#, is_pinned, true),
            (r#""container":{"skills":[{"type":"anthropic","skill_id":"pptx"}]}"#, is_pinned, false),
            (r#""container":{"skills":[{"type":"custom","skill_id":"skill_1"}]}"#, is_pinned, true),
            (r#""container":{"skills":"all"}"#, is_pinned, true),
            (r#""thread":{"type":"create"}"#, is_pinned, false),
            (r#""thread":{"type":"continue","previous_message_id":"msg_1"}"#, is_pinned, true),
            (r#""diagnostics":{"previous_message_id":"msg_1"}"#, is_pinned, true),
            (r#""fallback_credit_token":"t""#, is_pinned, true),
            (r#""metadata":{"file_id":"f","signature":"s"}"#, is_pinned, false),
        ] {
            assert_eq!(ask(&facts(&format!("{{{member}}}"))), expected, "{member}");
        }
    }

    #[test]
    fn features_have_their_own_names() {
        let part = |part: &str| format!(r#"{{"messages":[{{"role":"user","content":[{part}]}}]}}"#);
        for (body, capabilities) in [
            (part(r#"{"type":"zork"}"#), "text zork"),
            (part(r#"{"type":"zork\n2"}"#), "text zork_2"),
            (part(r#"{"type":7}"#), "text unknown"),
            (part(r#"{"text":"x"}"#), "text"),
            (
                part(r#"{"type":"search_result","source":"u","content":[{"type":"text","text":"x"}]}"#),
                "search_result text",
            ),
            (part(r#"{"type":"tool_result","content":[{"type":"zork"}]}"#), "text tools zork"),
            (part(r#"{"type":"tool_result","content":"x"}"#), "text tools"),
            (part(r#"{"type":"document","source":{"type":"content","content":[{"type":"zork"}]}}"#), "file text zork"),
            (
                part(r#"{"type":"document","source":{"type":"base64","data":"AA"},"citations":{"enabled":true}}"#),
                "citations file text",
            ),
            (part(r#"{"type":"document","citations":{"enabled":false}}"#), "file text"),
            (part(r#"{"type":"server_tool_use","name":"bash_code_execution","input":{}}"#), "code_execution text"),
            (part(r#"{"type":"web_search_tool_result","content":[{"type":"web_search_result"}]}"#), "text web_search"),
            (part(r#"{"type":"mcp_tool_use","name":"f"}"#), "mcp text"),
            (part(r#"{"Type":"image"}"#), "image text"),
            (part(r#"{"t\u0079pe":"image"}"#), "image text"),
            (r#"{"prediction":{"type":"content"}}"#.into(), "prediction text"),
            (r#"{"prediction":null,"modalities":[],"logit_bias":{}}"#.into(), "text"),
            (r#"{"modalities":["audio"],"audio":{"voice":"x"}}"#.into(), "audio modalities text"),
            (r#"{"context_management":{"edits":[{"type":"x"}]}}"#.into(), "context_management text"),
            (r#"{"container":{"skills":[{"type":"anthropic","skill_id":"pptx"}]}}"#.into(), "skills text"),
            (r#"{"web_search_options":{}}"#.into(), "text web_search"),
            (
                r#"{"temperature":1,"top_k":4,"top_p":1,"stop_sequences":["x"],"metadata":{"user_id":"u"}}"#.into(),
                "text",
            ),
            (r#"{"TOOLS":[{"TYPE":"mcp_toolset"}]}"#.into(), "mcp text"),
            (r#"{"tools":[{"t\u0079pe":"mcp_toolset"}]}"#.into(), "mcp text"),
        ] {
            assert_eq!(facts(&body).capabilities.join(" "), capabilities, "{body}");
        }
        let parts: Vec<_> = (0..1000).map(|n| format!(r#"{{"type":"zork_{n}"}}"#)).collect();
        let many = facts(&part(&parts.join(","))).capabilities;
        assert_eq!(many.len(), features::CAPABILITIES_MAX + 1);
        assert!(many.iter().any(|name| name == features::UNKNOWN));
    }

    #[test]
    fn refused() {
        for (body, code, param) in [
            ("", "invalid_json", None),
            ("[]", "invalid_json", None),
            ("{\"model\":\"a\"", "invalid_json", None),
            ("{\"model\":\"a\",\"m\\u006fdel\":\"b\"}", "model_twice", Some("model")),
            ("{\"model\":null}", "invalid_type", Some("model")),
            ("{\"model\":7}", "invalid_type", Some("model")),
            ("{\"model\":\"\\ud800\"}", "invalid_type", Some("model")),
            ("{\"stream\":\"true\"}", "invalid_type", Some("stream")),
            ("{\"stream\":1}", "invalid_type", Some("stream")),
            ("{\"max_tokens\":-1}", "invalid_type", Some("max_tokens")),
            ("{\"max_tokens\":\"9\"}", "invalid_type", Some("max_tokens")),
            ("{\"messages\":{}}", "invalid_type", Some("messages")),
            ("{\"messages\":[\"hi\"]}", "invalid_type", Some("messages")),
            ("{\"messages\":[{\"content\":7}]}", "invalid_type", Some("messages")),
            ("{\"messages\":[{\"content\":\"a\",\"content\":[]}]}", "invalid_type", Some("messages")),
            ("{\"system\":7}", "invalid_type", Some("system")),
            ("{\"tools\":{}}", "invalid_type", Some("tools")),
            ("{\"tools\":[null]}", "invalid_type", Some("tools")),
            ("{\"tools\":{\"type\":\"mcp_toolset\"}}", "invalid_type", Some("tools")),
            ("{\"tools\":\"mcp\"}", "invalid_type", Some("tools")),
            ("{\"tools\":7}", "invalid_type", Some("tools")),
            ("{\"Tools\":7}", "invalid_type", Some("tools")),
            ("{\"tools\":[{\"type\":\"custom\",\"Type\":\"mcp_toolset\"}]}", "invalid_type", Some("tools")),
            ("{\"tools\":[{\"type\":\"custom\",\"t\\u0079pe\":\"mcp_toolset\"}]}", "invalid_type", Some("tools")),
            ("{\"messages\":[{\"content\":\"a\",\"Content\":[]}]}", "invalid_type", Some("messages")),
            ("{\"MCP_servers\":{}}", "invalid_type", Some("mcp_servers")),
            ("{\"mcp_servers\":{}}", "invalid_type", Some("mcp_servers")),
            ("{\"thinking\":true}", "invalid_type", Some("thinking")),
            ("{\"thinking\":{\"type\":\"disabled\",\"type\":\"enabled\"}}", "invalid_type", Some("thinking")),
            ("{\"tool_choice\":\"auto\"}", "invalid_type", Some("tool_choice")),
            ("{\"output_config\":[]}", "invalid_type", Some("output_config")),
            ("{\"container\":7}", "invalid_type", Some("container")),
            ("{\"thread\":\"t\"}", "invalid_type", Some("thread")),
        ] {
            let error = read(&Bytes::copy_from_slice(body.as_bytes())).unwrap_err();
            assert_eq!((error.code, error.param), (code, param), "{body}: {}", error.message);
        }
    }
}

//! What requests are taken to ask for.

use super::*;
use crate::protocol::request::with_model;

fn facts(body: &str) -> RequestFacts {
    read(&Bytes::copy_from_slice(body.as_bytes())).unwrap_or_else(|error| panic!("{body}: {error}"))
}

#[test]
fn the_plain_facts() {
    let body = r#" { "input":"héllo" , "model" : "gpt-\u0035","stream":true,"max_output_tokens":100,"instructions":"Be brief",
        "store":false,"metadata":{"model":"x"},"background":false,"unknown":{"stream":false}}"#;
    let facts = facts(body);
    let (model, range) = facts.model.clone().unwrap();
    assert_eq!((model.as_str(), body.get(range)), ("gpt-5", Some(r#""gpt-\u0035""#)));
    assert_eq!((facts.insert_at, facts.empty, facts.stream, facts.choices), (2, false, true, 1));
    assert_eq!((facts.max_output_tokens, facts.text_bytes), (Some(100), 6 + 8));
    assert_eq!(facts.capabilities, ["text"]);
    assert!(!facts.reasoning && facts.hosted_tools.is_empty() && facts.pins.is_empty());
    let edited = with_model(&Bytes::copy_from_slice(body.as_bytes()), &facts, "other");
    assert_eq!(std::str::from_utf8(&edited).unwrap(), body.replacen(r#""gpt-\u0035""#, r#""other""#, 1));
}

#[test]
fn what_is_absent_or_null_has_its_default() {
    for body in ["{}", r#"{"stream":null,"background":null,"input":null,"tools":null,"reasoning":null,"include":null}"#]
    {
        let facts = facts(body);
        assert_eq!((facts.stream, facts.choices, facts.max_output_tokens, facts.text_bytes), (false, 1, None, 0));
        assert_eq!((facts.capabilities, facts.model), (vec!["text".to_owned()], None), "{body}");
    }
}

#[test]
fn refusals() {
    for (body, code, param) in [
        ("[]", "invalid_json", None),
        ("{\"model\":\"a\"", "invalid_json", None),
        (r#"{"model":"a","mod\u0065l":"b"}"#, "model_twice", Some("model")),
        (r#"{"model":1}"#, "invalid_type", Some("model")),
        (r#"{"model":null}"#, "invalid_type", Some("model")),
        (r#"{"stream":"true"}"#, "invalid_type", Some("stream")),
        (r#"{"background":true}"#, "background_not_supported", Some("background")),
        (r#"{"b\u0061ckground":true}"#, "background_not_supported", Some("background")),
        (r#"{"Background":true}"#, "background_not_supported", Some("background")),
        (r#"{"background":true,"background":false}"#, "background_not_supported", Some("background")),
        (r#"{"background":"true"}"#, "invalid_type", Some("background")),
        (r#"{"input":7}"#, "invalid_type", Some("input")),
        (r#"{"input":{"role":"user"}}"#, "invalid_type", Some("input")),
        (r#"{"input":["hi"]}"#, "invalid_type", Some("input")),
        (r#"{"tools":{}}"#, "invalid_type", Some("tools")),
        (r#"{"tools":[{"type":7}]}"#, "invalid_type", Some("tools")),
        (r#"{"tools":[{"type":"function","type":"mcp"}]}"#, "invalid_type", Some("tools")),
        (r#"{"tools":[{"type":"namespace","tools":[{"type":7}]}]}"#, "invalid_type", Some("tools")),
    ] {
        let error = read(&Bytes::copy_from_slice(body.as_bytes())).unwrap_err();
        assert_eq!((error.code, error.param), (code, param), "{body}");
    }
}

#[test]
fn capabilities() {
    let input = |item: &str| format!(r#"{{"input":[{item}]}}"#);
    let part = |part: &str| input(&format!(r#"{{"role":"user","content":[{part}]}}"#));
    for (body, capabilities) in [
        (part(r#"{"type":"input_text","text":"x"}"#), "text"),
        (part(r#"{"type":"input_image","image_url":"data:,"}"#), "image text"),
        (part(r#"{"type":"input_file","file_url":"https://x.example.test"}"#), "file text"),
        (part(r#"{"type":"input_audio","input_audio":{"data":"AA"}}"#), "audio text"),
        (part(r#"{"type":"hologram"}"#), "hologram text"),
        (part(r#"{"Type":"input_image"}"#), "image text"),
        (input(r#"{"role":"user","content":{"type":"input_image"}}"#), "image text"),
        (input(r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#), "text tools"),
        (
            input(r#"{"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]}"#),
            "image text tools",
        ),
        (
            input(r#"{"type":"computer_call_output","output":{"type":"computer_screenshot"}}"#),
            "computer_use image text",
        ),
        (input(r#"{"type":"web_search_call","id":"ws","status":"completed"}"#), "text web_search"),
        (input(r#"{"type":"mcp_call","id":"m","arguments":"{}"}"#), "mcp text"),
        (input(r#"{"type":"local_shell_call","action":{"type":"exec"}}"#), "shell text"),
        (input(r#"{"type":"configuration_update","reasoning":{"effort":"high"}}"#), "configuration_update text"),
        (input(r#"{"type":"compaction","encrypted_content":"E"}"#), "compaction text"),
        (input(r#"{"type":"reasoning","id":"r","summary":[]}"#), "text"),
        (
            input(r#"{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"f"}]}"#),
            "text tools",
        ),
        (r#"{"tools":[{"type":"function","name":"f"}]}"#.into(), "text tools"),
        (r#"{"tools":[{"type":"custom","name":"f"}],"parallel_tool_calls":true}"#.into(), "parallel_tools text tools"),
        (r#"{"parallel_tool_calls":true}"#.into(), "text"),
        (
            r#"{"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}]}"#.into(),
            "text tools",
        ),
        (r#"{"tools":[{"type":"web_search_2025_08_26"}]}"#.into(), "text web_search"),
        (r#"{"tools":[{"type":"computer_use_preview"}]}"#.into(), "computer_use text"),
        (r#"{"text":{"format":{"type":"json_schema","name":"x","schema":{}}}}"#.into(), "json_schema text"),
        (r#"{"text":{"format":{"type":"json_object"}}}"#.into(), "json_object text"),
        (r#"{"text":{"format":{"type":"text"},"verbosity":"low"}}"#.into(), "text"),
        (r#"{"top_logprobs":3}"#.into(), "logprobs text"),
        (r#"{"top_logprobs":0}"#.into(), "text"),
        (r#"{"include":["message.output_text.logprobs"]}"#.into(), "logprobs text"),
        (r#"{"include":["reasoning.encrypted_content"]}"#.into(), "text"),
        (r#"{"context_management":[{"type":"compaction"}]}"#.into(), "context_management text"),
        (
            r#"{"prompt":{"id":"pmpt_1","variables":{"x":{"type":"input_image"},"y":"z"}}}"#.into(),
            "image stored_prompt text",
        ),
        (r#"{"metadata":{"a":"b"},"store":true,"user":"u","service_tier":"flex","truncation":"auto"}"#.into(), "text"),
    ] {
        assert_eq!(facts(&body).capabilities.join(" "), capabilities, "{body}");
    }
}

#[test]
fn reasoning() {
    for (body, asks) in [
        (r#"{"reasoning":{"effort":"high"}}"#, true),
        (r#"{"reasoning":{"summary":"auto"}}"#, true),
        (r#"{"reasoning":{"effort":"minimal","summary":null}}"#, true),
        (r#"{"reasoning":{"effort":"none","summary":"auto"}}"#, false),
        (r#"{"reasoning":{"effort":null,"summary":null}}"#, false),
        (r#"{"reasoning":{}}"#, false),
        (r#"{"reasoning":null}"#, false),
    ] {
        let facts = facts(body);
        assert_eq!(facts.reasoning, asks, "{body}");
        assert_eq!(facts.capabilities.iter().any(|name| name == "reasoning"), asks, "{body}");
    }
}

#[test]
fn hosted_tools_and_what_may_act() {
    let facts = facts(
        r#"{"tools":[{"type":"web_search"},{"type":"mcp","server_label":"x"},{"type":"file_search"},{"type":"image_generation"},
            {"type":"code_interpreter","container":{"type":"auto"}},{"type":"local_shell"},{"type":"computer_use_preview"},
            {"type":"tool_search"},{"type":"apply_patch"},{"type":"programmatic_tool_calling"},{"type":"function","name":"f"}]}"#,
    );
    let tools: Vec<_> = facts.hosted_tools.iter().map(|tool| (tool.name.as_str(), tool.may_act)).collect();
    let expected = [
        ("web_search", false),
        ("mcp", true),
        ("file_search", false),
        ("image_generation", false),
        ("code_interpreter", true),
        ("shell", true),
        ("computer_use", true),
        ("tool_search", false),
        ("apply_patch", true),
        ("programmatic_tool_calling", true),
    ];
    assert_eq!(tools, expected);
}

#[test]
fn a_hosted_tool_cannot_hide() {
    let namespaces = |depth: usize| {
        let (open, close) = (r#"{"type":"namespace","tools":["#, "]}");
        format!(r#"{{"tools":[{}{{"type":"mcp"}}{}]}}"#, open.repeat(depth), close.repeat(depth))
    };
    for body in [
        r#"{"input":[{"type":"additional_tools","tools":[{"type":"mcp"}]}]}"#.to_owned(),
        r#"{"input":[{"type":"tool_search_output","tools":[{"type":"mcp"}]}]}"#.to_owned(),
        r#"{"t\u006fols":[{"type":"mcp"}]}"#.to_owned(),
        r#"{"Tools":[{"TYPE":"mcp"}]}"#.to_owned(),
        r#"{"tools":[],"tools":[{"type":"mcp"}]}"#.to_owned(),
        namespaces(1),
        namespaces(usize::from(NAMESPACES_MAX) + 1),
        namespaces(3000),
    ] {
        assert!(facts(&body).hosted_tools.iter().any(|tool| tool.may_act), "{body:.80}");
    }
}

#[test]
fn text_is_counted_and_media_is_not() {
    let media = "A".repeat(10_000);
    let body = format!(
        r#"{{"instructions":"12345","input":[{{"role":"user","content":[{{"type":"input_text","text":"\u00e9"}},
        {{"type":"input_image","image_url":"data:image/png;base64,{media}"}},{{"type":"input_file","file_data":"{media}"}}]}},
        {{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":"{{}}"}},
        {{"type":"function_call_output","call_id":"c","output":"abc"}},
        {{"type":"image_generation_call","id":"ig","result":"{media}"}},
        {{"type":"reasoning","id":"r","summary":[],"encrypted_content":"{media}"}}],"metadata":{{"a":"{media}"}}}}"#
    );
    assert_eq!(facts(&body).text_bytes, 5 + 2 + 1 + 2 + 3);
    let tools = r#"{"tools":[{"type":"function","name":"f","description":"12345"}]}"#;
    assert_eq!(facts(tools).text_bytes, 8 + 1 + 5);
}

#[test]
fn over_the_bound_of_capabilities_something_stays_that_no_route_states() {
    let parts: Vec<_> = (0..1000).map(|n| format!(r#"{{"type":"zork_{n}"}}"#)).collect();
    let facts = facts(&format!(r#"{{"input":[{}]}}"#, parts.join(",")));
    assert_eq!(facts.capabilities.len(), features::CAPABILITIES_MAX + 1);
    assert!(facts.capabilities.iter().any(|name| name == features::UNKNOWN));
}

#[test]
fn depth_is_no_danger() {
    let deep = format!(r#"{{"input":[{{"content":{}"x"{}}}]}}"#, "[".repeat(90_000), "]".repeat(90_000));
    assert_eq!(facts(&deep).text_bytes, 1);
}

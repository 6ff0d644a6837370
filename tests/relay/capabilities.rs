//! A request that uses a feature the secondary lacks is never sent there, and nothing is dropped from it: one row a capability.
//!
//! The primary is down. The secondary of workflow `lack-N` states everything but the row's capability and is not called; that of
//! `have-N` states it, too, and gets the caller's own bytes.

use std::collections::BTreeSet;

use bytes::Bytes;
use rubicon::mock::{Answer, AutoDialect};
use rubicon::protocol::Dialect;

use crate::harness::{Http, client, path, relay_with, send, url};
use crate::setup::{always, overloaded};

struct Row {
    name: &'static str,
    /// Members of the request beside `model`, `stream`, `max_tokens`.
    members: String,
    /// A beta header's value.
    beta: Option<&'static str>,
}

const TEXT: &str = r#""messages":[{"role":"user","content":"hi"}]"#;

fn row(name: &'static str, members: impl Into<String>) -> Row {
    Row { name, members: members.into(), beta: None }
}

/// With members beside a line of text.
fn with(name: &'static str, members: &str) -> Row {
    row(name, format!("{TEXT},{members}"))
}

/// With a content part.
fn part(name: &'static str, part: &str) -> Row {
    row(name, format!(r#""messages":[{{"role":"user","content":[{{"type":"text","text":"x"}},{part}]}}]"#))
}

fn tool(name: &'static str, kind: &str) -> Row {
    with(name, &format!(r#""tools":[{{"type":"{kind}"}}]"#))
}

fn beta(name: &'static str, value: &'static str) -> Row {
    Row { beta: Some(value), ..row(name, TEXT) }
}

const FUNCTION: &str = r#""tools":[{"type":"function","function":{"name":"f","parameters":{}}}]"#;

fn chat() -> Vec<Row> {
    vec![
        row("text", TEXT),
        part("image", r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#),
        part("audio", r#"{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}"#),
        part("video", r#"{"type":"video_url","video_url":{"url":"https://example.test/v"}}"#),
        part("file", r#"{"type":"file","file":{"file_data":"AAAA","filename":"a.pdf"}}"#),
        part("new_kind", r#"{"type":"new_kind","x":1}"#),
        with("tools", FUNCTION),
        with("tools", r#""functions":[{"name":"f"}]"#),
        with("parallel_tools", &format!("{FUNCTION},\"parallel_tool_calls\":true")),
        with("json_schema", r#""response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{}}}"#),
        with("json_object", r#""response_format":{"type":"json_object"}"#),
        with("grammar", r#""response_format":{"type":"grammar","grammar":"x"}"#),
        with("logprobs", r#""logprobs":true"#),
        with("reasoning", r#""reasoning_effort":"high""#),
        with("reasoning", r#""thinking":{"type":"enabled","budget_tokens":1024}"#),
        with("audio", r#""modalities":["text","audio"],"audio":{"voice":"v","format":"wav"}"#),
        with("image_output", r#""modalities":["text","image"]"#),
        with("prediction", r#""prediction":{"type":"content","content":"x"}"#),
        with("suffix", r#""suffix":"x""#),
        with("continue_final_message", r#""continue_final_message":true"#),
        with("translation_options", r#""translation_options":{"source_lang":"nl"}"#),
        with("documents", r#""documents":[{"text":"x"}]"#),
        with("data_sources", r#""data_sources":[{"type":"azure_search"}]"#),
        with("logit_bias", r#""logit_bias":{"9":-100}"#),
        with("guided_json", r#""guided_json":{"type":"object"}"#),
        with("guided_regex", r#""guided_regex":"x+""#),
        with("guided_choice", r#""guided_choice":["yes","no"]"#),
        with("guided_grammar", r#""guided_grammar":"root ::= x""#),
        with("structured_outputs", r#""structured_outputs":{"json":{}, "x":1}"#),
        with("ebnf", r#""ebnf":"root ::= x""#),
        with("regex", r#""regex":"x+""#),
        with("context_management", r#""context_management":{"edits":[{"type":"x"}]}"#),
        tool("mcp", "mcp"),
        tool("code_interpreter", "code_interpreter"),
        tool("computer_use", "computer_use_preview"),
        tool("shell", "local_shell"),
        tool("web_search", "web_search_preview_2025_03_11"),
        with("web_search", r#""web_search_options":{}"#),
        tool("web_fetch", "web_fetch"),
        tool("file_search", "file_search"),
        tool("image_generation", "image_generation"),
        tool("datetime", "openrouter:datetime"),
        tool("new_hosted_tool", "new_hosted_tool"),
        with("file_parser", r#""plugins":[{"id":"file-parser"}]"#),
        with("mcp", r#""mcp_servers":[{"url":"https://example.test"}]"#),
        beta("beta:realtime-v1", "realtime-v1"),
    ]
}

fn own_tool(name: &'static str, kind: &str) -> Row {
    with(name, &format!(r#""tools":[{{"type":"{kind}","name":"{name}"}}]"#))
}

fn messages() -> Vec<Row> {
    const CUSTOM: &str = r#""tools":[{"name":"f","input_schema":{"type":"object"}}]"#;
    vec![
        row("text", TEXT),
        part("image", r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}"#),
        part("file", r#"{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"}}"#),
        part(
            "citations",
            r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"x"},"citations":{"enabled":true}}"#,
        ),
        part(
            "search_result",
            r#"{"type":"search_result","source":"https://example.test","title":"t","content":[{"type":"text","text":"x"}]}"#,
        ),
        part("new_kind", r#"{"type":"new_kind","x":1}"#),
        with("tools", CUSTOM),
        with(
            "parallel_tools",
            &format!(r#"{CUSTOM},"tool_choice":{{"type":"auto","disable_parallel_tool_use":false}}"#),
        ),
        with("json_schema", r#""output_config":{"format":{"type":"json_schema","schema":{}}}"#),
        with("reasoning", r#""thinking":{"type":"enabled","budget_tokens":1024}"#),
        with("skills", r#""container":{"skills":[{"type":"anthropic","skill_id":"pptx"}]}"#),
        with("context_management", r#""context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}"#),
        with("mcp", r#""mcp_servers":[{"type":"url","url":"https://example.test","name":"s"}]"#),
        own_tool("bash", "bash_20250124"),
        own_tool("computer", "computer_20250124"),
        own_tool("memory", "memory_20250818"),
        own_tool("text_editor", "text_editor_20250728"),
        own_tool("web_search", "web_search_20250305"),
        own_tool("web_fetch", "web_fetch_20250910"),
        own_tool("code_execution", "code_execution_20250825"),
        own_tool("tool_search_tool_regex", "tool_search_tool_regex_20251119"),
        own_tool("advisor", "advisor_20260301"),
        own_tool("new_hosted_tool", "new_hosted_tool"),
        beta("beta:interleaved-thinking-2025-05-14", "interleaved-thinking-2025-05-14"),
    ]
}

/// Items of a responses request.
fn items(name: &'static str, items: &str) -> Row {
    row(name, format!(r#""input":[{items}]"#))
}

fn responses() -> Vec<Row> {
    const HI: &str = r#""input":"hi""#;
    let with = |name, members: &str| row(name, format!("{HI},{members}"));
    let tool = |name, kind: &str| with(name, &format!(r#""tools":[{{"type":"{kind}"}}]"#));
    let part = |name, part: &str| items(name, &format!(r#"{{"role":"user","content":[{part}]}}"#));
    const FUNCTION: &str = r#""tools":[{"type":"function","name":"f","parameters":{}}]"#;
    vec![
        row("text", HI),
        part("image", r#"{"type":"input_image","image_url":"data:image/png;base64,AAAA"}"#),
        part("audio", r#"{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}"#),
        part("video", r#"{"type":"input_video","video_url":"https://example.test/v"}"#),
        part("file", r#"{"type":"input_file","file_data":"AAAA","filename":"a.pdf"}"#),
        part("new_kind", r#"{"type":"new_kind","x":1}"#),
        with("tools", FUNCTION),
        with("parallel_tools", &format!("{FUNCTION},\"parallel_tool_calls\":true")),
        items("tools", r#"{"type":"function_call_output","call_id":"c","output":"x"}"#),
        items("apply_patch", r#"{"type":"apply_patch_call_output","call_id":"c","status":"completed"}"#),
        items("new_item", r#"{"type":"new_item","x":1}"#),
        with("json_schema", r#""text":{"format":{"type":"json_schema","name":"s","schema":{}}}"#),
        with("json_object", r#""text":{"format":{"type":"json_object"}}"#),
        with("logprobs", r#""top_logprobs":2"#),
        with("reasoning", r#""reasoning":{"effort":"high"}"#),
        with("stored_prompt", r#""prompt":{"id":"pmpt_1"}"#),
        with("context_management", r#""context_management":[{"type":"compaction"}]"#),
        tool("mcp", "mcp"),
        tool("code_interpreter", "code_interpreter"),
        tool("computer_use", "computer_use_preview"),
        tool("shell", "local_shell"),
        tool("web_search", "web_search_preview_2025_03_11"),
        tool("file_search", "file_search"),
        tool("image_generation", "image_generation"),
        tool("new_hosted_tool", "new_hosted_tool"),
        Row { beta: Some("responses=v1"), ..row("beta:responses=v1", HI) },
    ]
}

/// Names of SPEC that a dialect can ask for must each have a row: a reader that forgets one fails here.
const NAMED_BY_SPEC: [&str; 11] = [
    "text",
    "image",
    "audio",
    "file",
    "tools",
    "parallel_tools",
    "json_schema",
    "reasoning",
    "web_search",
    "mcp",
    "code_interpreter",
];

#[test]
fn every_capability_that_the_spec_names_has_a_row() {
    let names: BTreeSet<&str> = chat().iter().chain(&messages()).chain(&responses()).map(|row| row.name).collect();
    for name in NAMED_BY_SPEC.into_iter().chain(["computer_use", "shell", "file_search", "image_generation"]) {
        assert!(names.contains(name), "{name}");
    }
}

fn body(dialect: Dialect, row: &Row) -> String {
    let max = if dialect == Dialect::AnthropicMessages { ",\"max_tokens\":64" } else { "" };
    format!("{{\"model\":\"m\" , \"stream\":false{max},{},\"x_unknown\":[1.50]}}", row.members)
}

fn needs(dialect: Dialect, row: &Row) -> Vec<String> {
    let facts = dialect.read_request(&Bytes::from(body(dialect, row))).unwrap();
    let mut needs = facts.capabilities;
    needs.extend(row.beta.map(|value| format!("beta:{value}")));
    needs
}

async fn hold(dialect: Dialect, auto: AutoDialect, rows: &[Row]) {
    let (a, b) = (always(overloaded()).await, always(Answer::auto(auto, &["from ", "b"])).await);
    let mut text = String::from("[server]\nlisten = \"127.0.0.1:0\"\nretry = { share = 1.0, min_per_second = 1000 }\n");
    for (name, base) in [("a", a.base_url()), ("b", b.base_url())] {
        text += &format!("[provider.{name}]\nkind = \"openai-compatible\"\nbase_url = \"{base}/v1\"\n");
    }
    let route = |name: &str, provider: &str, lines: &str| {
        format!("[route.{name}]\nprovider = \"{provider}\"\ndialects = [\"{}\"]\n{lines}\n", dialect.name())
    };
    text += &route("main", "a", "");
    let mut workflows = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let needed = needs(dialect, row);
        assert!(needed.iter().any(|name| name == row.name), "{}: {needed:?}", row.name);
        for (kind, has) in [("lack", false), ("have", true)] {
            let stated: Vec<_> = needed.iter().filter(|name| has || *name != row.name).collect();
            let name = format!("{kind}-{index}");
            text += &route(&name, "b", &format!("capabilities = {stated:?}\nverified = {{ on = 2026-01-01 }}"));
            text += &format!(
                "[workflow.{name}]\nprimary = \"main\"\nequivalents = [\"{name}\"]\nfailover = {{ enabled = true }}\n\
                 envelope = {{ max_attempts = 2, side_effects = \"write_possible\" }}\n\
                 [[approval]]\nworkflow = \"{name}\"\nroute = \"{name}\"\npurpose = \"failover\"\n"
            );
            workflows.push(name);
        }
    }
    text += &format!("[[client]]\nname = \"c\"\nkeys = [\"env:C\"]\nshow_routes = true\nworkflows = {workflows:?}\n");
    let key = "c".repeat(40);
    // Failing primaries must not trip a breaker: every row asks it.
    let text = text.replace("[route.main]\n", "[route.main]\nbreaker = { failures = 0 }\n");
    let relay = relay_with(&text, &[("C", key.as_str())].into_iter().collect()).await;
    let client = client(Http::One);
    for (index, row) in rows.iter().enumerate() {
        let sent = body(dialect, row);
        for kind in ["lack", "have"] {
            let what = format!("{} {} {kind}", dialect.name(), row.name);
            let before = (a.calls(), b.calls());
            let name = format!("{kind}-{index}");
            let mut request = client.post(url(&relay, path(dialect))).bearer_auth(&key);
            request = request.header("content-type", "application/json").header("rubicon-workflow", &name);
            if let Some(value) = row.beta {
                let header = if dialect == Dialect::AnthropicMessages { "anthropic-beta" } else { "openai-beta" };
                request = request.header(header, value);
            }
            let answered = send(request.body(sent.clone())).await;
            let calls = b.calls() - before.1;
            if kind == "lack" {
                assert_eq!((answered.status, calls), (424, 0), "{what}: {}", answered.text());
                let why = format!("capability:{}", row.name);
                let refused = answered.json()["rubicon"]["refused"].clone();
                assert_eq!(refused, serde_json::json!([{ "route": name, "why": why }]), "{what}");
            } else {
                assert_eq!((answered.status, calls), (200, 1), "{what}: {}", answered.text());
                assert_eq!(answered.header("rubicon-served-route"), name, "{what}");
                assert_eq!(b.requests().last().unwrap().body, sent, "{what}: not the caller's own bytes");
            }
            assert!(a.calls() > before.0, "{what}: the primary is asked whatever it states");
            assert_eq!(a.requests().last().unwrap().body, sent, "{what}: not the caller's own bytes");
        }
    }
}

#[tokio::test]
async fn chat_completions() {
    hold(Dialect::ChatCompletions, AutoDialect::ChatCompletions, &chat()).await;
}

#[tokio::test]
async fn responses_of_openai() {
    hold(Dialect::Responses, AutoDialect::Responses, &responses()).await;
}

#[tokio::test]
async fn anthropic_messages() {
    hold(Dialect::AnthropicMessages, AutoDialect::AnthropicMessages, &messages()).await;
}

//! "Sent, and no answer" (SPEC section 6): what may have run is repeated only where that harms nobody.

use rubicon::classify::Class;
use rubicon::mock::{Answer, Step, anthropic, anthropic_text, chat_text};
use rubicon::protocol::Dialect;
use serde_json::{Value, json};

use super::{CHAT, MESSAGES, assert_from};
use crate::harness::{Answered, Http, client, path, post, relay, request, send, url};
use crate::setup::{Setup, always, error, limited, overloaded, refused_base, server_error};

/// (what, answer, whether it may have run): SPEC's own list.
fn rows() -> Vec<(&'static str, Answer, bool)> {
    let in_stream =
        |kind: &str| Answer::sse().text(": hi\n\n").text(&format!("data: {}\n\n", error("said", kind, Value::Null)));
    let mut closed = Answer::new();
    closed.steps.push(Step::CloseBeforeHead);
    let html = |status: u16| Answer::new().head(status, &[("content-type", "text/html")]).text("<h1>Bad gateway</h1>");
    vec![
        ("closed", closed, true),
        ("reset", Answer::new().abort_rst(), true),
        ("timeout", Answer::new().hang(), true),
        ("500", server_error(), true),
        ("502", html(502), true),
        ("504", html(504), true),
        ("503 without a word of overload", html(503), true),
        ("408", Answer::json_error(408, error("timed out", "timeout", Value::Null)), true),
        ("in-stream server error", in_stream("server_error"), true),
        ("a body cut", Answer::sse().text(": hi\n\n").abort_fin(), true),
        ("an empty 200", Answer::sse().text(": hi\n\n"), true),
        ("503 overloaded", overloaded(), false),
        ("529 overloaded", Answer::json_error(529, error("Overloaded", "overloaded_error", Value::Null)), false),
        ("429", limited("retry-after", "30"), false),
        ("425", Answer::json_error(425, error("too early", "early", Value::Null)), false),
    ]
}

/// The refusal that says: find out first.
fn assert_uncertain(answered: &Answered, what: &str) {
    let json = answered.json();
    assert_eq!(answered.status, 424, "{what}: {json}");
    let rubicon = &json["rubicon"];
    assert_eq!(rubicon["class"], "side_effect_uncertain", "{what}: {json}");
    assert_eq!(rubicon["reason"], "side_effect_uncertain", "{what}: {json}");
    assert_eq!(rubicon["actions"], json!(["reconcile"]), "{what}: {json}");
    assert_eq!(rubicon["unresolved_executions"], 1, "{what}: {json}");
    assert_eq!(rubicon["retryable"], false, "{what}: {json}");
    assert_eq!(rubicon["attempts"], 1, "{what}: {json}");
    assert_eq!((answered.header("retry-after"), answered.header("x-should-retry")), ("", "false"), "{what}");
}

const TIMEOUTS: &str = "timeouts = { first_output_ms = 300, answer_ms = 300 }";

#[tokio::test]
async fn a_workflow_may_forbid_to_repeat_what_may_have_run() {
    for (what, answer, may_have_run) in rows() {
        for repeat in [true, false] {
            let (a, b) = (always(answer.clone()).await, always(chat_text(&["from b"])).await);
            let setup = Setup::primary(a.base_url())
                .with_route(TIMEOUTS)
                .equivalent("b", &b)
                .workflow(&format!("envelope = {{ repeat_unanswered = {repeat} }}"));
            let relay = relay(&setup.text()).await;
            let answered = post(&client(Http::One), &relay, path(CHAT), request(CHAT, true)).await;
            if may_have_run && !repeat {
                assert_uncertain(&answered, what);
                assert_eq!((a.calls(), b.calls()), (1, 0), "{what}");
                let id = answered.header("rubicon-operation-id");
                let known = send(client(Http::One).get(url(&relay, &format!("/v1/operations/{id}")))).await.json();
                assert_eq!(
                    (&known["unresolved_executions"], &known["actions"]),
                    (&json!(1), &json!(["reconcile"])),
                    "{known}"
                );
                assert_eq!((&known["class"], &known["state"]), (&json!("side_effect_uncertain"), &json!("failed")));
            } else {
                assert_from(&answered, "b", "equivalent_failover");
                assert_eq!((a.calls(), b.calls()), (1, 1), "{what}");
            }
        }
    }
    // A connection that never was is proof.
    let b = always(chat_text(&["from b"])).await;
    let setup =
        Setup::primary(refused_base().await).equivalent("b", &b).workflow("envelope = { repeat_unanswered = false }");
    let relay = relay(&setup.text()).await;
    let answered = post(&client(Http::One), &relay, path(CHAT), request(CHAT, true)).await;
    assert_from(&answered, "b", "equivalent_failover");
}

fn with(dialect: Dialect, stream: bool, member: &str) -> String {
    request(dialect, stream).replace("\"stream\"", &format!("{member},\"stream\""))
}

const MCP: &str = r#""mcp_servers":[{"type":"url","url":"https://mcp.example.test","name":"crm"}]"#;
const SEARCH: &str = r#""tools":[{"type":"web_search_20250305","name":"web_search"}]"#;

#[tokio::test]
async fn hosted_tools_that_may_act_are_never_run_twice() {
    for stream in [true, false] {
        for (what, answer, may_have_run) in rows() {
            if !stream && (what == "a body cut" || what.contains("in-stream")) {
                continue; // those are streams
            }
            for (tool, acts) in [(MCP, true), (SEARCH, false)] {
                let what = format!("{what} {tool} stream={stream}");
                let from_b = Answer::auto(rubicon::mock::AutoDialect::AnthropicMessages, &["from b"]);
                let (a, b) = (always(answer.clone()).await, always(from_b).await);
                let setup = Setup::primary(a.base_url())
                    .with_route(TIMEOUTS)
                    .equivalent("b", &b)
                    .workflow("envelope = { side_effects = \"write_possible\" }");
                let relay = relay(&setup.text()).await;
                let body = with(MESSAGES, stream, tool);
                let answered = post(&client(Http::One), &relay, path(MESSAGES), body).await;
                if may_have_run && acts {
                    assert_uncertain(&answered, &what);
                    assert_eq!((a.calls(), b.calls()), (1, 0), "{what}");
                } else {
                    assert_from(&answered, "b", "equivalent_failover");
                    assert_eq!((a.calls(), b.calls()), (1, 1), "{what}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_hosted_tool_that_started_crosses_and_its_failure_asks_for_reconciliation() {
    let start = |block: Value| {
        Answer::sse()
            .step(anthropic::message_start())
            .event("content_block_start", json!({"type":"content_block_start","index":0,"content_block":block}))
            .abort_rst()
    };
    let mcp = json!({"type":"mcp_tool_use","id":"mcptoolu_1","name":"create","server_name":"crm","input":{}});
    let search = json!({"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}});
    for (block, class, action, unresolved) in
        [(mcp, Class::SideEffectUncertain, "reconcile", 1), (search, Class::PartialOutput, "restart", 0)]
    {
        let block = start(block);
        let mut steps = block.steps;
        steps.insert(steps.len() - 1, Step::DelayMs(50)); // a reset may overtake what it follows
        let (a, b) = (always(Answer { steps }).await, always(anthropic_text(&["from b"])).await);
        let setup = Setup::primary(a.base_url())
            .equivalent("b", &b)
            .workflow("envelope = { side_effects = \"write_possible\" }");
        let relay = relay(&setup.text()).await;
        let body = with(MESSAGES, true, &format!("{MCP},{SEARCH}"));
        let answered = post(&client(Http::One), &relay, path(MESSAGES), body).await;
        assert!(!answered.clean && answered.status == 200, "{}", answered.text());
        let rubicon = &answered.last_event()["rubicon"];
        assert_eq!(rubicon["class"], serde_json::to_value(class).unwrap(), "{rubicon}");
        assert_eq!(rubicon["reason"], rubicon["class"]);
        assert_eq!((&rubicon["actions"], &rubicon["unresolved_executions"]), (&json!([action]), &json!(unresolved)));
        assert_eq!((&rubicon["after"], a.calls(), b.calls()), (&json!(2), 1, 0));
    }
}

#[tokio::test]
async fn side_effects_are_refused_without_a_call() {
    let a = always(Answer::auto(rubicon::mock::AutoDialect::AnthropicMessages, &["from a"])).await;
    let function = r#""tools":[{"name":"f","input_schema":{"type":"object"}}]"#;
    // (the workflow's, the header's, tool, refused)
    let rows = [
        ("none", None, SEARCH, true),
        ("none", None, MCP, true),
        ("none", None, function, false),
        ("none", Some("write_possible"), SEARCH, true),
        ("read_only", None, SEARCH, false),
        ("read_only", None, MCP, true),
        ("read_only", Some("none"), SEARCH, true),
        ("write_possible", None, MCP, false),
        ("write_possible", Some("read_only"), MCP, true),
        ("write_possible", Some("none"), function, false),
    ];
    for (workflow, header, tool, refused) in rows {
        let setup = Setup::primary(a.base_url()).workflow(&format!("envelope = {{ side_effects = \"{workflow}\" }}"));
        let relay = relay(&setup.text()).await;
        let before = a.calls();
        let mut request =
            client(Http::One).post(url(&relay, path(MESSAGES))).header("content-type", "application/json");
        if let Some(header) = header {
            request = request.header("rubicon-side-effects", header);
        }
        let answered = send(request.body(with(MESSAGES, false, tool))).await;
        let what = format!("{workflow} {header:?} {tool}: {}", answered.text());
        if refused {
            let json = answered.json();
            assert_eq!((answered.status, &json["error"]["code"]), (400, &json!("side_effects_not_allowed")), "{what}");
            assert_eq!(
                (&json["rubicon"]["status"], &json["rubicon"]["attempts"]),
                (&json!("rejected"), &json!(0)),
                "{what}"
            );
            assert_eq!(json["error"]["type"], "invalid_request_error", "{what}");
        } else {
            assert_from(&answered, "a", "none");
        }
        assert_eq!(a.calls() - before, u64::from(!refused), "{what}");
    }
}

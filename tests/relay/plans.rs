//! The relay's seat at the stream: a tool call of a committed answer is a plan before the client has the last byte of it, in all
//! dialects, streamed or not; nothing waits for the disk.

use rubicon::mock::{Answer, MockProvider, Rule, Step};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, client, path, provider, relay, send, url};
use crate::raw::Raw;
use crate::setup::Setup;

/// Tools with a slot of their own, without one, and one that only reads.
const TOOLS: &str =
    "[tool.charge]\nkey_fields = [\"/order\"]\n[tool.send]\nsimilar = \"off\"\n[tool.look]\neffect = \"read_only\"\n";

/// A call: id, name, arguments in the provider's own words.
pub(crate) type Call<'a> = (&'a str, &'a str, &'a str);

/// A relay with a ledger in memory.
pub(crate) async fn with_ledger(a: &MockProvider, more: &str) -> Server {
    relay(&Setup::primary(a.base_url()).server("store = \"memory\"").tables(&format!("{TOOLS}{more}")).text()).await
}

fn event(data: &Value) -> String {
    let name = data["type"].as_str().map_or_else(String::new, |name| format!("event: {name}\n"));
    format!("{name}data: {data}\n\n")
}

fn chunk(delta: &Value, finish: &Value) -> String {
    event(
        &json!({ "id": "x", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }),
    )
}

/// The events of an answer that makes these calls: up to the last byte of their arguments, and the rest.
fn streamed(dialect: Dialect, response: &str, calls: &[Call<'_>]) -> (String, String) {
    let (mut shown, mut rest) = (String::new(), String::new());
    match dialect {
        Dialect::ChatCompletions => {
            for (index, (id, name, arguments)) in calls.iter().enumerate() {
                let head = json!({ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": "" } });
                shown += &chunk(&json!({ "tool_calls": [head] }), &Value::Null);
                let (one, two) = arguments.split_at(arguments.len() / 2);
                for piece in [one, two] {
                    let piece = json!({ "index": index, "function": { "arguments": piece } });
                    shown += &chunk(&json!({ "tool_calls": [piece] }), &Value::Null);
                }
            }
            rest += &chunk(&json!({}), &json!("tool_calls"));
            rest += "data: [DONE]\n\n";
        }
        Dialect::AnthropicMessages => {
            let message = json!({ "id": response, "type": "message", "role": "assistant", "model": "m", "content": [], "usage": { "input_tokens": 1, "output_tokens": 1 } });
            shown += &event(&json!({ "type": "message_start", "message": message }));
            for (index, (id, name, arguments)) in calls.iter().enumerate() {
                shown += &std::mem::take(&mut rest);
                let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
                shown += &event(&json!({ "type": "content_block_start", "index": index, "content_block": block }));
                let (one, two) = arguments.split_at(arguments.len() / 2);
                for piece in [one, two] {
                    let delta = json!({ "type": "input_json_delta", "partial_json": piece });
                    shown += &event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }));
                }
                rest += &event(&json!({ "type": "content_block_stop", "index": index }));
            }
            let delta = json!({ "stop_reason": "tool_use" });
            rest += &event(&json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 2 } }));
            rest += &event(&json!({ "type": "message_stop" }));
        }
        Dialect::Responses => {
            let created = json!({ "id": response, "object": "response", "status": "in_progress", "output": [] });
            shown += &event(&json!({ "type": "response.created", "sequence_number": 0, "response": created }));
            let mut items = Vec::new();
            for (index, (id, name, arguments)) in calls.iter().enumerate() {
                shown += &std::mem::take(&mut rest);
                let item = |arguments: &str| json!({ "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": arguments });
                shown +=
                    &event(&json!({ "type": "response.output_item.added", "output_index": index, "item": item("") }));
                let (one, two) = arguments.split_at(arguments.len() / 2);
                for piece in [one, two] {
                    shown += &event(
                        &json!({ "type": "response.function_call_arguments.delta", "output_index": index, "delta": piece }),
                    );
                }
                rest += &event(
                    &json!({ "type": "response.output_item.done", "output_index": index, "item": item(arguments) }),
                );
                items.push(item(arguments));
            }
            let done = json!({ "id": response, "object": "response", "status": "completed", "output": items, "usage": { "input_tokens": 1, "output_tokens": 1 } });
            rest += &event(&json!({ "type": "response.completed", "sequence_number": 99, "response": done }));
        }
    }
    (shown, rest)
}

fn whole(dialect: Dialect, response: &str, calls: &[Call<'_>]) -> Value {
    let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
    let parsed = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    match dialect {
        Dialect::ChatCompletions => {
            let calls = calls.iter().map(|(id, name, arguments)| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }));
            let message = json!({ "role": "assistant", "content": null, "tool_calls": calls.collect::<Vec<_>>() });
            json!({ "id": "x", "object": "chat.completion", "choices": [{ "index": 0, "message": message, "finish_reason": "tool_calls" }] })
        }
        Dialect::AnthropicMessages => {
            let blocks = calls.iter().map(|(id, name, arguments)| json!({ "type": "tool_use", "id": id, "name": name, "input": parsed(arguments) }));
            json!({ "id": response, "type": "message", "role": "assistant", "model": "m", "content": blocks.collect::<Vec<_>>(), "stop_reason": "tool_use", "usage": usage })
        }
        Dialect::Responses => {
            let items = calls.iter().map(|(id, name, arguments)| json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments }));
            json!({ "id": response, "object": "response", "status": "completed", "output": items.collect::<Vec<_>>(), "usage": usage })
        }
    }
}

/// An answer that makes these calls.
pub(crate) fn answer(dialect: Dialect, stream: bool, response: &str, calls: &[Call<'_>]) -> Answer {
    if stream {
        let (shown, rest) = streamed(dialect, response, calls);
        Answer::sse().step(Step::Text(shown + &rest))
    } else {
        Answer::json(200, whole(dialect, response, calls))
    }
}

/// Asks under an operation id of our own.
pub(crate) async fn ask(
    relay: &Server,
    dialect: Dialect,
    operation: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Answered {
    let request = client(Http::One).post(url(relay, path(dialect))).header("idempotency-key", operation).json(body);
    send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
}

/// A first request of a user.
pub(crate) fn first(dialect: Dialect, stream: bool) -> Value {
    serde_json::from_str(&crate::harness::request(dialect, stream)).expect("JSON")
}

/// Claims a call that a model asked for.
pub(crate) async fn claim(relay: &Server, operation: &str, (id, name, arguments): Call<'_>) -> Answered {
    let arguments: Value = serde_json::from_str(arguments).expect("JSON");
    let body = json!({ "operation_id": operation, "tool": name, "arguments": arguments, "tool_call_id": id });
    send(client(Http::One).post(url(relay, "/v1/executions")).json(&body)).await
}

/// An operation, as shown.
pub(crate) async fn shown(relay: &Server, operation: &str) -> Value {
    send(client(Http::One).get(url(relay, &format!("/v1/operations/{operation}")))).await.json()
}

#[tokio::test]
async fn a_call_is_planned_before_its_last_byte_is_there() {
    for dialect in Dialect::ALL {
        let call = ("call_1", "charge", "{\"order\": 7, \"note\": \"a \\\"b\\\" }\"}");
        let (before, rest) = streamed(dialect, "resp_1", &[call]);
        let held = Answer::sse().step(Step::Text(before)).gate("rest").step(Step::Text(rest));
        let a = provider(Rule::new("a").answer(held)).await;
        let relay = with_ledger(&a, "").await;
        let mut stream =
            Raw::post(relay.address(), dialect, "Idempotency-Key: op_1\r\n", &first(dialect, true).to_string()).await;
        // The arguments' closing brace: what completes the call for the dialect is still to come.
        stream.read_until(if dialect == Dialect::ChatCompletions { "\\\" }\\\"}\"}" } else { "}\\\"}\"" }).await;
        let claimed = claim(&relay, "op_1", call).await.json();
        assert_eq!(claimed["decision"], "execute", "{dialect:?} {claimed}");
        assert_eq!(claimed["execution"]["flags"], json!([]), "{dialect:?} {claimed}");
        assert_eq!(claimed["execution"]["tool_call_id"], "call_1");
        a.open_gate("rest", 1);
        stream.read_until("\r\n0\r\n\r\n").await;
        assert_eq!(shown(&relay, "op_1").await["root"], "op_1");
    }
}

#[tokio::test]
async fn same_calls_of_one_answer_are_told_apart() {
    let calls = [
        ("c1", "charge", "{\"order\":1,\"n\":1}"),
        ("c2", "charge", "{\"n\":1,\"order\":1.0}"),
        ("c3", "charge", "{\"order\":2}"),
        ("c4", "charge", "{\"order\":1,\"n\":2}"),
        ("c5", "other", "{\"order\":1}"),
    ];
    for dialect in Dialect::ALL {
        for stream in [true, false] {
            let a = provider(Rule::new("a").answer(answer(dialect, stream, "resp_1", &calls))).await;
            let relay = with_ledger(&a, "").await;
            let answered = ask(&relay, dialect, "op_1", &[], &first(dialect, stream)).await;
            assert!(answered.status == 200 && answered.clean, "{dialect:?} {stream} {}", answered.text());
            for (call, occurrence) in calls[..4].iter().zip([0, 1, 0, 2]) {
                let claimed = claim(&relay, "op_1", *call).await.json();
                assert_eq!(claimed["decision"], "execute", "{dialect:?} {stream} {call:?} {claimed}");
                assert_eq!(claimed["execution"]["occurrence"], occurrence, "{dialect:?} {stream} {call:?}");
                assert_eq!(claimed["execution"]["flags"], json!([]), "{dialect:?} {stream} {claimed}");
            }
            let unplanned = claim(&relay, "op_1", ("c9", "send", "{}")).await.json();
            assert_eq!(unplanned["execution"]["flags"], json!(["unplanned"]), "{unplanned}");
        }
    }
}

#[tokio::test]
async fn a_call_that_was_held_back_is_no_plan() {
    let dialect = Dialect::AnthropicMessages;
    let (before, _) = streamed(dialect, "msg_1", &[("c1", "send", "{\"a\":1}"), ("c2", "send", "{\"a\":2}")]);
    // The second call never comes to its end: with `tool_call_complete` it is not shown.
    let a = provider(Rule::new("a").answer(Answer::sse().step(Step::Text(before)).delay_ms(30).abort_rst())).await;
    let text = Setup::primary(a.base_url()).server("store = \"memory\"").tables(TOOLS).text();
    let text = text.replacen("primary = ", "commit = \"tool_call_complete\"\nprimary = ", 1);
    let relay = relay(&text).await;
    let answered = ask(&relay, dialect, "op_1", &[], &first(dialect, true)).await;
    assert!(
        !answered.clean && answered.text().contains("c1") && !answered.text().contains("c2"),
        "{}",
        answered.text()
    );
    let flags = |claimed: Value| claimed["execution"]["flags"].clone();
    assert_eq!(flags(claim(&relay, "op_1", ("c1", "send", "{\"a\":1}")).await.json()), json!([]));
    assert_eq!(flags(claim(&relay, "op_1", ("c2", "send", "{\"a\":2}")).await.json()), json!(["unplanned"]));
}

#[tokio::test]
async fn what_is_too_large_to_plan_makes_plans_incomplete() {
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let dialect = Dialect::ChatCompletions;
    let a = provider(Rule::new("a").answer(answer(dialect, true, "", &[("c1", "send", &long)]))).await;
    let relay = with_ledger(&a, "").await;
    assert!(ask(&relay, dialect, "op_1", &[], &first(dialect, true)).await.clean);
    let claimed = claim(&relay, "op_1", ("c1", "send", "{}")).await.json();
    assert_eq!(claimed["execution"]["flags"], json!(["plan_incomplete"]), "{claimed}");
    assert_eq!(shown(&relay, "op_1").await["plans_incomplete"], true);
}

#[tokio::test]
async fn a_ledger_that_takes_nothing_stops_no_stream() {
    let dialect = Dialect::ChatCompletions;
    let a = provider(Rule::new("a").answer(answer(dialect, true, "", &[("c1", "send", "{}")]))).await;
    let relay = with_ledger(&a, "").await;
    let ledger = relay.app().ledger.clone();
    tokio::task::spawn_blocking(move || ledger.close()).await.expect("closed");
    let answered = ask(&relay, dialect, "op_1", &[], &first(dialect, true)).await;
    assert!(answered.status == 200 && answered.clean && answered.text().ends_with("[DONE]\n\n"), "{}", answered.text());
    let shown = shown(&relay, "op_1").await;
    assert_eq!((&shown["state"], &shown["plans_incomplete"]), (&json!("completed"), &json!(true)), "{shown}");
}

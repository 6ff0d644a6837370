//! Whether something may be asked again: `Rubicon-Restart-Of`, keys whose client left, and waits. Where a tool that the provider runs
//! may have acted, nobody asks again before somebody has looked, and record, refusal and key say the same.

use std::time::Duration;

use rubicon::clock::Instant;
use rubicon::ids::{OperationId, TenantId};
use rubicon::mock::{Answer, MockProvider, Step, anthropic, anthropic_text, chat_text};
use rubicon::protocol::Dialect;
use rubicon::relay::idempotency::Claimed;
use rubicon::serve::Server;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::child::Serving;
use crate::harness::{Answered, Http, PATIENCE, client, path, relay, request, send, url};
use crate::setup::{Setup, always, limited, overloaded, server_error};

const MESSAGES: Dialect = Dialect::AnthropicMessages;
const MCP: &str = r#""mcp_servers":[{"type":"url","url":"https://mcp.example.test","name":"crm"}]"#;
const SEARCH: &str = r#""tools":[{"type":"web_search_20250305","name":"web_search"}]"#;

fn body(stream: bool, tool: &str) -> String {
    let tool = if tool.is_empty() { String::new() } else { format!("{tool},") };
    request(MESSAGES, stream).replace("\"stream\"", &format!("{tool}\"stream\""))
}

async fn may_act(a: &MockProvider) -> Server {
    relay(&Setup::primary(a.base_url()).workflow("envelope = { side_effects = \"write_possible\" }").text()).await
}

fn call(base: &str, id: &str, body: String) -> reqwest::RequestBuilder {
    let call = client(Http::One).post(format!("{base}{}", path(MESSAGES)));
    call.header("content-type", "application/json").header("idempotency-key", id).body(body)
}

async fn record(base: &str, id: &str) -> Value {
    send(client(Http::One).get(format!("{base}/v1/operations/{id}"))).await.json()
}

/// The record, once it has ended.
async fn ended(base: &str, id: &str) -> Value {
    let found = timeout(PATIENCE, async {
        loop {
            let known = record(base, id).await;
            if !["running", "null"].contains(&known["state"].as_str().unwrap_or("null")) {
                return known;
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    found.await.expect("an end")
}

async fn restart(base: &str, old: &str, new: &str) -> Answered {
    send(call(base, new, body(true, "")).header("rubicon-restart-of", old)).await
}

/// The code of a refusal in the Messages dialect.
fn code(answered: &Answered) -> String {
    answered.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_restart_is_of_what_is_known_and_has_ended() {
    let held = Answer::new().gate("go").then(anthropic_text(&["old"]));
    let cut = Answer::sse().step(anthropic::message_start()).step(anthropic::text_start(0));
    let cut = cut.step(anthropic::text_delta(0, "cut")).delay_ms(30).abort_rst();
    let a = crate::harness::provider(
        rubicon::mock::Rule::new("a")
            .answer(held)
            .answer(anthropic_text(&["new"]))
            .answer(cut)
            .answer(anthropic_text(&["newer"])),
    )
    .await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    let base = url(&relay, "");

    let unknown = restart(&base, "never", "new").await;
    assert_eq!((unknown.status, code(&unknown)), (404, "operation_not_found".to_owned()));
    let running = tokio::spawn(send(call(&base, "old", body(true, ""))));
    a.wait_for(|stats| stats.at_gates == 1).await;
    let early = restart(&base, "old", "new").await;
    assert_eq!((early.status, code(&early)), (409, "still_running".to_owned()));
    assert_eq!(early.json()["rubicon"]["operation_id"], "old");
    assert_eq!(a.calls(), 1, "a refusal calls nobody");
    assert_eq!(record(&base, "old").await.get("restarted_as"), None);
    a.open_gate("go", 1);
    assert!(running.await.expect("a task").clean);

    // Of a completed one, and of an interrupted one.
    for (old, new, text) in [("old", "new", "new"), ("cut", "newer", "newer")] {
        if old == "cut" {
            assert!(!send(call(&base, "cut", body(true, ""))).await.clean);
        }
        let restarted = restart(&base, old, new).await;
        assert!(restarted.clean && restarted.text().contains(text), "{}", restarted.text());
        let (old_one, new_one) = (record(&base, old).await, record(&base, new).await);
        assert_eq!((&old_one["restarted_as"], &new_one["restart_of"]), (&json!(new), &json!(old)));
        assert_eq!((old_one.get("restart_of"), new_one.get("restarted_as")), (None, None));
        assert_eq!(old_one["state"], if old == "cut" { "interrupted" } else { "completed" }, "{old_one}");
    }
    assert_eq!(a.calls(), 4);
}

/// How an operation ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// By itself, as its provider has it.
    Itself,
    Left,
    Stopped,
}

fn start(block: Value) -> Answer {
    Answer::sse()
        .step(anthropic::message_start())
        .event("content_block_start", json!({"type":"content_block_start","index":0,"content_block":block}))
}

fn tool_started() -> Answer {
    start(json!({"type":"mcp_tool_use","id":"mcptoolu_1","name":"create","server_name":"crm","input":{}}))
}

fn text_began() -> Answer {
    Answer::sse().step(anthropic::message_start()).step(anthropic::text_start(0)).step(anthropic::text_delta(0, "x"))
}

struct Row {
    what: &'static str,
    tool: &'static str,
    stream: bool,
    answer: Answer,
    end: End,
    state: &'static str,
    uncertain: bool,
}

fn row(what: &'static str, tool: &'static str, answer: Answer, end: End, state: &'static str, uncertain: bool) -> Row {
    Row { what, tool, stream: true, answer, end, state, uncertain }
}

fn rows() -> Vec<Row> {
    let events = |answer: &Answer| answer.clone().hang();
    let nothing = || Answer::new().hang();
    let held = || Answer::sse().step(anthropic::message_start()).hang();
    let limited = || limited("retry-after", "5");
    let mut rows = vec![
        row(
            "a started tool's stream is cut",
            MCP,
            tool_started().delay_ms(30).abort_rst(),
            End::Itself,
            "interrupted",
            true,
        ),
        row("a started tool's client leaves", MCP, events(&tool_started()), End::Left, "interrupted", true),
        row("a started tool is stopped", MCP, events(&tool_started()), End::Stopped, "stopped", true),
        row(
            "an undeclared tool's stream is cut",
            "",
            tool_started().delay_ms(30).abort_rst(),
            End::Itself,
            "interrupted",
            true,
        ),
        row("an undeclared tool's client leaves", "", events(&tool_started()), End::Left, "interrupted", true),
        row("an undeclared tool is stopped", "", events(&tool_started()), End::Stopped, "stopped", true),
        row("failed in silence with a tool", MCP, server_error(), End::Itself, "failed", true),
        row("completed with a tool", MCP, anthropic_text(&["x"]), End::Itself, "completed", false),
        row(
            "refused with a tool",
            MCP,
            Answer::json_error(401, json!({"error":{"message":"no"}})),
            End::Itself,
            "failed",
            false,
        ),
        row(
            "text was cut with a tool that had not started",
            MCP,
            text_began().delay_ms(30).abort_rst(),
            End::Itself,
            "interrupted",
            false,
        ),
        row("a wait between attempts is left", MCP, limited(), End::Left, "interrupted", false),
        row("a wait between attempts is stopped", MCP, limited(), End::Stopped, "stopped", false),
    ];
    for (tool, uncertain) in [(MCP, true), (SEARCH, false), ("", false)] {
        for (end, state) in [(End::Left, "interrupted"), (End::Stopped, "stopped")] {
            rows.push(row("before the head", tool, nothing(), end, state, uncertain));
            rows.push(row("while held", tool, held(), end, state, uncertain));
            rows.push(row("after text", tool, events(&text_began()), end, state, uncertain));
            rows.push(Row { stream: false, ..row("a whole answer", tool, nothing(), end, state, uncertain) });
        }
    }
    rows
}

async fn ends(row: Row) {
    let Row { what, tool, stream, answer, end, state, uncertain } = row;
    let what = format!("{what}, {end:?}, tool {tool:?}, stream {stream}");
    let events = answer.steps.iter().filter(|step| matches!(step, Step::Event(_))).count() as u64;
    let waits = matches!(answer.steps.first(), Some(Step::Head(head)) if head.status == 429);
    let a =
        crate::harness::provider(rubicon::mock::Rule::new("a").answer(answer).answer(anthropic_text(&["again"]))).await;
    let relay = may_act(&a).await;
    let base = url(&relay, "");
    let running = tokio::spawn(send(call(&base, "old", body(stream, tool))));
    if end == End::Itself {
        running.await.expect("a task");
    } else {
        a.wait_for(|stats| stats.calls == 1 && stats.events_sent == events).await;
        // Until the relay has it too: shown, or judged.
        let shown = if events > 1 { events } else { 0 };
        let seen = timeout(PATIENCE, async {
            loop {
                let known = record(&base, "old").await;
                if known["after"] == shown && (!waits || known["attempts"][0]["class"] == "rate_limited") {
                    return;
                }
                sleep(Duration::from_millis(5)).await;
            }
        });
        seen.await.unwrap_or_else(|_| panic!("{what}: not seen"));
        if end == End::Left {
            running.abort();
        } else {
            let stop = client(Http::One).delete(format!("{base}/v1/operations/old"));
            assert_eq!(send(stop).await.status, 200);
            let answered = running.await.expect("a task");
            let rubicon =
                if shown > 0 { answered.last_event()["rubicon"].clone() } else { answered.json()["rubicon"].clone() };
            let class = if uncertain { json!("side_effect_uncertain") } else { Value::Null };
            assert_eq!((&rubicon["reason"], &rubicon["class"]), (&json!("stopped"), &class), "{what}: {rubicon}");
            assert_eq!(rubicon["actions"] == json!(["reconcile"]), uncertain, "{what}: {rubicon}");
        }
    }
    let known = ended(&base, "old").await;
    assert_eq!(known["state"], state, "{what}: {known}");
    assert_eq!(known["unresolved_executions"], u32::from(uncertain), "{what}: {known}");
    assert_eq!(known["class"] == "side_effect_uncertain", uncertain, "{what}: {known}");
    assert_eq!(known["actions"] == json!(["reconcile"]), uncertain, "{what}: {known}");

    let calls = a.calls();
    let restarted = restart(&base, "old", "new").await;
    if uncertain {
        let json = restarted.json();
        assert_eq!((restarted.status, code(&restarted)), (409, "side_effect_uncertain".to_owned()), "{what}");
        assert_eq!(
            (&json["rubicon"]["actions"], &json["rubicon"]["unresolved_executions"], &json["rubicon"]["operation_id"]),
            (&json!(["reconcile"]), &json!(1), &json!("old")),
            "{what}: {json}"
        );
        assert_eq!(
            (&json["rubicon"]["retryable"], restarted.header("x-should-retry")),
            (&json!(false), "false"),
            "{what}"
        );
        assert_eq!(a.calls(), calls, "{what}: nobody was called");
        assert_eq!(record(&base, "old").await.get("restarted_as"), None, "{what}");
    } else {
        assert_ne!(restarted.status, 409, "{what}: {}", restarted.text());
        assert_eq!(record(&base, "old").await["restarted_as"], "new", "{what}");
    }
    // The first end is the only one.
    let again = record(&base, "old").await;
    for member in ["state", "class", "actions", "unresolved_executions", "ended_at", "reason"] {
        assert_eq!(known[member], again[member], "{what}: {member}");
    }
}

#[tokio::test]
async fn what_may_have_acted_is_not_restarted() {
    futures_util::StreamExt::for_each_concurrent(futures_util::stream::iter(rows()), 8, ends).await;
}

#[tokio::test]
async fn an_operation_ends_once_in_the_log_too() {
    let stopped = text_began().hang();
    let rows = [
        ("completed", anthropic_text(&["x"]), End::Itself),
        ("cut", text_began().delay_ms(30).abort_rst(), End::Itself),
        ("acted", tool_started().delay_ms(30).abort_rst(), End::Itself),
        ("refused", server_error(), End::Itself),
        ("left", stopped.clone(), End::Left),
        ("stopped", stopped, End::Stopped),
        ("unseen", Answer::new().hang(), End::Left),
        ("silenced", Answer::new().hang(), End::Stopped),
    ];
    let mut tables = String::new();
    let mut providers = Vec::new();
    for (name, answer, _) in &rows {
        let a = always(answer.clone()).await;
        tables += &format!(
            "[provider.{name}]\nkind = \"openai-compatible\"\nbase_url = \"{}/v1\"\nterminal = \"strict\"\n[route.{name}]\nprovider = \"{name}\"\n\
             dialects = [\"anthropic-messages\"]\n[workflow.{name}]\nprimary = \"{name}\"\nenvelope = {{ max_attempts = 1 }}\n",
            a.base_url()
        );
        providers.push(a);
    }
    let relay = Serving::start("", &tables, &[]).await;
    let base = relay.url("");
    for ((name, answer, end), a) in rows.iter().zip(&providers) {
        let events = answer.steps.iter().filter(|step| matches!(step, Step::Event(_))).count();
        let running = tokio::spawn(send(call(&base, name, body(true, "")).header("rubicon-workflow", *name)));
        if *end != End::Itself {
            a.wait_for(|stats| stats.calls == 1 && stats.events_sent == events as u64).await;
            while record(&base, name).await["after"] != events {
                sleep(Duration::from_millis(5)).await;
            }
        }
        match end {
            End::Itself => drop(running.await.expect("a task")),
            End::Left => running.abort(),
            End::Stopped => {
                send(client(Http::One).delete(format!("{base}/v1/operations/{name}"))).await;
                running.await.expect("a task");
            }
        }
        ended(&base, name).await;
    }
    let (status, printed) = relay.stop().await;
    assert_eq!(status, 0);
    for (name, _, _) in rows {
        let is_end =
            |line: &&str| line.contains("\"operation ended\"") && line.contains(&format!("\"operation\":\"{name}\""));
        assert_eq!(printed.lines().filter(is_end).count(), 1, "{name}: {printed}");
    }
}

/// Whether the key is still taken at a time: its outcome (or that there was one) is known.
fn kept(relay: &Server, key: &str, after: Duration) -> bool {
    let key = (TenantId::new("local"), OperationId::new(key));
    // Another body's fingerprint: a key that is kept is a mismatch.
    !matches!(relay.app().idempotency.claim(key, [0; 32], true, Instant::now() + after), Claimed::New(_))
}

#[tokio::test]
async fn a_key_whose_client_left_is_not_generated_again() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    for stream in [true, false] {
        for (tool, uncertain) in [("", false), (SEARCH, false), (MCP, true)] {
            let what = format!("stream {stream}, tool {tool:?}");
            let a = always(Answer::new().hang()).await;
            let relay = may_act(&a).await;
            let base = url(&relay, "");
            let running = tokio::spawn(send(call(&base, "k", body(stream, tool))));
            a.wait_for(|stats| stats.calls == 1).await;
            running.abort();
            a.wait_for(|stats| stats.disconnects == 1).await;
            ended(&base, "k").await;
            for _ in 0..2 {
                let again = send(call(&base, "k", body(stream, tool))).await;
                let json = again.json();
                assert_eq!((again.status, again.header("idempotent-replayed")), (424, "true"), "{what}: {json}");
                assert_eq!(
                    (&json["rubicon"]["reason"], code(&again)),
                    (&json!("client_gone"), "client_gone".to_owned())
                );
                assert_eq!((again.header("x-should-retry"), &json["rubicon"]["retryable"]), ("false", &json!(false)));
                assert_eq!(json["rubicon"]["class"] == "side_effect_uncertain", uncertain, "{what}: {json}");
                assert_eq!(json["rubicon"]["actions"] == json!(["reconcile"]), uncertain, "{what}: {json}");
            }
            let other = send(call(&base, "k", body(stream, "\"x\":1"))).await;
            assert_eq!(other.status, 422, "{what}");
            assert_eq!(a.calls(), 1, "{what}: nobody was called");
            let second = Duration::from_secs(1);
            assert!(kept(&relay, "k", Duration::from_secs(55)), "{what}");
            assert_eq!(kept(&relay, "k", Duration::from_secs(61)), uncertain, "{what}");
            if uncertain {
                assert!(kept(&relay, "k", DAY - 60 * second), "{what}");
            }
            assert!(!kept(&relay, "k", DAY + second), "{what}");
        }
    }
}

#[tokio::test]
async fn an_overload_after_the_answer_began_is_no_proof_where_a_tool_may_have_acted() {
    let begun = Answer::sse().step(anthropic::message_start());
    let answer = begun.step(anthropic::error("overloaded_error", "Overloaded"));
    let first = Answer::sse().step(anthropic::error("overloaded_error", "Overloaded"));
    for (what, answer, tool, again) in [
        ("begun", answer.clone(), MCP, false),
        ("begun, a look-up", answer.clone(), SEARCH, true),
        ("begun, no tool", answer, "", true),
        ("the first word", first, MCP, true),
    ] {
        let (a, b) = (always(answer).await, always(anthropic_text(&["from b"])).await);
        let setup = Setup::primary(a.base_url()).equivalent("b", &b);
        let relay = relay(&setup.workflow("envelope = { side_effects = \"write_possible\" }").text()).await;
        let base = url(&relay, "");
        let answered = send(call(&base, "k", body(true, tool))).await;
        if again {
            assert!(answered.clean && answered.text().contains("from b"), "{what}: {}", answered.text());
            assert_eq!((a.calls(), b.calls()), (1, 1), "{what}");
            continue;
        }
        let json = answered.json();
        assert_eq!((answered.status, code(&answered)), (424, "side_effect_uncertain".to_owned()), "{what}: {json}");
        assert_eq!((a.calls(), b.calls()), (1, 0), "{what}");
        let known = record(&base, "k").await;
        for said in [&json["rubicon"], &known] {
            assert_eq!(
                (&said["class"], &said["actions"], &said["unresolved_executions"]),
                (&json!("side_effect_uncertain"), &json!(["reconcile"]), &json!(1)),
                "{what}: {said}"
            );
        }
        assert_eq!(send(call(&base, "k", body(true, tool))).await.header("idempotent-replayed"), "true");
        assert!(kept(&relay, "k", Duration::from_secs(3600)), "{what}: longer than the outcome of what did nothing");
        assert_eq!((a.calls(), b.calls()), (1, 0), "{what}");
    }
}

#[tokio::test]
async fn a_wait_of_nothing_is_one_more_try_and_the_least_wait_is_forwarded() {
    let chat = |base: &str| {
        let call = client(Http::One).post(format!("{base}{}", path(Dialect::ChatCompletions)));
        call.header("content-type", "application/json").body(request(Dialect::ChatCompletions, true))
    };
    let (a, b) = (always(limited("retry-after", "0")).await, always(chat_text(&["from b"])).await);
    let relay_of = async |a: &MockProvider, b: &MockProvider| {
        relay(&Setup::primary(a.base_url()).equivalent("b", b).workflow("envelope = { deadline_ms = 20000 }").text())
            .await
    };
    let relay = relay_of(&a, &b).await;
    let answered = send(chat(&url(&relay, ""))).await;
    assert!(answered.clean && answered.text().contains("from b"), "{}", answered.text());
    assert_eq!((answered.header("rubicon-attempts"), a.calls(), b.calls()), ("3", 2, 1));

    // Longer than the deadline, so nothing is waited for here.
    for (of_a, of_b, least) in [("200", "90", "90"), ("90", "200", "90"), ("120", "120", "120")] {
        let (a, b) = (always(limited("retry-after", of_a)).await, always(limited("retry-after", of_b)).await);
        let relay = relay_of(&a, &b).await;
        let answered = send(chat(&url(&relay, ""))).await;
        let json = answered.json();
        assert_eq!((answered.status, answered.header("retry-after")), (424, least), "{of_a}, {of_b}: {json}");
        let ms = json["error"]["rubicon"]["retry_after_ms"].as_u64().or(json["rubicon"]["retry_after_ms"].as_u64());
        let least: u64 = least.parse().expect("a number");
        assert!(ms.is_some_and(|ms| (least * 1000 - 900..=least * 1000).contains(&ms)), "{of_a}, {of_b}: {json}");
        assert_eq!((a.calls(), b.calls()), (1, 1));
    }
    // One that says nothing of waiting does not hide the other's word.
    let (a, b) = (always(limited("retry-after", "100")).await, always(overloaded()).await);
    let setup = Setup::primary(a.base_url()).equivalent("b", &b).workflow("envelope = { max_attempts = 2 }");
    let relay = crate::harness::relay(&setup.text()).await;
    assert_eq!(send(chat(&url(&relay, ""))).await.header("retry-after"), "100");
}

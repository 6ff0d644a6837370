//! `POST /v1/tools/{tool}`: one request, one connection, one verdict; the answer's bytes from the record.

use std::sync::Arc;

use rubicon::serve::Server;
use serde_json::Value;

use crate::harness::{Answered, Http, PATIENCE, client, post, relay, send, url};
use crate::raw::Raw;
use crate::setup::refused_base;
use crate::tool_server::{Act, ToolServer, answer};

/// A relay with one tool `pay`; `lines` stand under it.
pub(crate) async fn relay_of(endpoint: &str, lines: &str) -> Server {
    relay(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nstore = \"memory\"\nshutdown_grace_ms = 200\n\
         [provider.p]\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:9/v1\"\n[route.r]\nprovider = \"p\"\n\
         [workflow.default]\nprimary = \"r\"\n\
         [tool.pay]\nendpoint = {{ url = \"{endpoint}\", headers = {{ x-shop = \"7\" }} }}\n{lines}\n"
    ))
    .await
}

pub(crate) fn body(arguments: &str) -> String {
    format!("{{\"operation_id\":\"op-1\",\"arguments\":{arguments}}}")
}

pub(crate) async fn pay(relay: &Server, arguments: &str) -> Answered {
    post(&client(Http::One), relay, "/v1/tools/pay", body(arguments)).await
}

/// The record behind an answer.
pub(crate) async fn record(relay: &Server, key: &str) -> Value {
    send(client(Http::One).get(url(relay, &format!("/v1/executions/{key}")))).await.json()
}

/// A whole request, for a socket that leaves.
fn message(relay: &Server) -> String {
    let (address, text) = (relay.address(), body("{}"));
    let length = text.len();
    format!(
        "POST /v1/tools/pay HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{text}"
    )
}

fn decision(answered: &Answered) -> String {
    answered.json()["decision"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_tool_gets_the_arguments_as_written_and_the_caller_its_bytes_for_ever() {
    let tool = ToolServer::always(201, "{ \"id\" : 1.0 }").await;
    let relay = relay_of(&tool.url("/pay?x=1"), "").await;
    let first = pay(&relay, "{ \"b\": 1.0,  \"a\": \"\\u0041\" }").await;
    assert_eq!((first.status, first.text()), (201, "{ \"id\" : 1.0 }"));
    assert_eq!(first.header("content-type"), "application/json; a=b");
    assert_eq!(first.header("idempotent-replayed"), "false");
    let key = first.header("rubicon-execution-key").to_owned();
    let request = tool.requests().pop().expect("a request");
    let (head, sent) = request.split_once("\r\n\r\n").expect("a head");
    assert_eq!(sent, "{ \"b\": 1.0,  \"a\": \"\\u0041\" }");
    assert!(head.starts_with("POST /pay?x=1 HTTP/1.1\r\n"), "{head}");
    for line in [
        format!("idempotency-key: {key}"),
        "rubicon-operation-id: op-1".to_owned(),
        "content-type: application/json".to_owned(),
        "x-shop: 7".to_owned(),
        format!("host: {}", tool.address),
    ] {
        assert!(head.lines().any(|there| there == line), "{line} is not in {head}");
    }
    // The same intent in another spelling.
    let again = pay(&relay, "{\"a\":\"A\",\"b\":1}").await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!(again.header("rubicon-execution-key"), key);
    assert_eq!(again.header("content-type"), "application/json; a=b");
    assert_eq!(tool.requests().len(), 1);
    let record = record(&relay, &key).await;
    assert_eq!(record["state"], "succeeded");
    let seen = &record["evidence"][0]["detail"];
    assert_eq!(seen["bytes_sent"], request.len(), "counted to the byte: {record}");
    assert_eq!(seen["request_complete"], true);
    assert_eq!(seen["status"], 201);
    relay.shutdown().await;
}

#[tokio::test]
async fn each_status_has_its_verdict_and_no_redirect_is_followed() {
    let elsewhere = ToolServer::always(200, "{}").await;
    let rows = [
        (200, "succeeded", None, ""),
        (204, "succeeded", None, ""),
        (202, "unknown", None, "reconcile"),
        (301, "unknown", None, "reconcile"),
        (302, "unknown", None, "reconcile"),
        (307, "failed", Some("not_executed"), "not_executed"),
        (308, "failed", Some("not_executed"), "not_executed"),
        (400, "failed", Some("executed_error"), ""),
        (401, "failed", Some("not_executed"), "not_executed"),
        (409, "unknown", None, "reconcile"),
        (422, "failed", Some("executed_error"), ""),
        (429, "failed", Some("not_executed"), "not_executed"),
        (500, "unknown", None, "reconcile"),
        (503, "unknown", None, "reconcile"),
    ];
    for (status, state, failure, decided) in rows {
        let location = elsewhere.url("/there");
        let length = if status == 204 { "" } else { "content-length: 2\r\n" };
        let text = if status == 204 { "" } else { "{}" };
        let bytes = format!("HTTP/1.1 {status} X\r\nlocation: {location}\r\n{length}\r\n{text}");
        let tool = ToolServer::start(vec![Act::Answer(bytes)]).await;
        let relay = relay_of(&tool.url("/pay"), "").await;
        let answered = pay(&relay, "{}").await;
        let key = answered.header("rubicon-execution-key").to_owned();
        if decided.is_empty() {
            assert_eq!(answered.status, status);
            assert_eq!(answered.text(), text);
            let again = pay(&relay, "{}").await;
            assert_eq!((again.status, again.header("idempotent-replayed")), (status, "true"));
        } else {
            assert_eq!((answered.status, decision(&answered).as_str()), (409, decided), "{status}");
            assert_eq!(answered.json()["execution"]["key"], key.as_str());
        }
        assert_eq!(tool.requests().len(), 1, "{status}");
        let record = record(&relay, &key).await;
        assert_eq!((record["state"].as_str(), record["failure"].as_str()), (Some(state), failure), "{status}");
        if state == "unknown" {
            let again = pay(&relay, "{}").await;
            assert_eq!((again.status, decision(&again).as_str()), (409, "reconcile"), "{status}");
            assert_eq!(tool.requests().len(), 1, "an unknown run is never run again");
            assert!(record["evidence"][0]["detail"]["body_base64"].is_string(), "{status}: {record}");
        }
        relay.shutdown().await;
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn no_hidden_resend() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\"".to_owned();
    let rows: Vec<(&str, Act, usize, Option<u64>)> = vec![
        ("closed after the request", Act::AnswerAndClose(String::new()), 1, Some(0)),
        ("reset after the request", Act::AnswerAndReset(String::new()), 1, Some(0)),
        ("half a request, then reset", Act::ReadAndReset(20), 0, Some(0)),
        ("half an answer, then closed", Act::AnswerAndClose(half.clone()), 1, Some(4)),
        ("half an answer, then reset", Act::AnswerAndReset(half), 1, None),
        ("half a head", Act::AnswerAndClose("HTTP/1.1 200 OK\r\ncont".to_owned()), 1, None),
        ("no HTTP", Act::AnswerAndClose("SSH-2.0-x\r\n\r\n".to_owned()), 1, None),
        (
            "half a chunk",
            Act::AnswerAndClose("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab".to_owned()),
            1,
            None,
        ),
        ("an end that is not told", Act::AnswerAndClose("HTTP/1.1 200 OK\r\n\r\n{\"a\":".to_owned()), 1, Some(5)),
    ];
    for (what, act, requests, kept) in rows {
        let tool = ToolServer::start(vec![act]).await;
        let relay = relay_of(&tool.url("/pay"), "").await;
        let answered = pay(&relay, "{\"n\":1}").await;
        assert_eq!((answered.status, decision(&answered).as_str()), (409, "reconcile"), "{what}");
        let record = record(&relay, answered.header("rubicon-execution-key")).await;
        assert_eq!(record["state"], "unknown", "{what}");
        let seen = &record["evidence"][0]["detail"];
        assert!(seen["bytes_sent"].as_u64().is_some_and(|bytes| bytes > 0), "{what}: {seen}");
        if let Some(bytes @ 1..) = kept {
            assert_eq!(seen["body_bytes"], bytes, "{what}: {seen}");
        }
        assert_eq!(decision(&pay(&relay, "{\"n\":1}").await), "reconcile", "{what}");
        assert_eq!((tool.requests().len(), tool.connections()), (requests, 1), "{what}");
        relay.shutdown().await;
    }
}

#[tokio::test]
async fn a_connection_is_never_used_twice() {
    let tool = ToolServer::always(200, "{}").await;
    let relay = relay_of(&tool.url("/pay"), "").await;
    for n in 0..3 {
        assert_eq!(pay(&relay, &format!("{{\"n\":{n}}}")).await.status, 200);
    }
    assert_eq!((tool.requests().len(), tool.connections()), (3, 3));
    relay.shutdown().await;
}

#[tokio::test]
async fn refused_is_not_executed_and_may_run_again_up_to_max_runs() {
    let relay = relay_of(&refused_base().await, "max_runs = 2").await;
    for run in 1..=3 {
        let answered = pay(&relay, "{}").await;
        // The second was the last.
        let wanted = if run == 1 { "not_executed" } else { "stop" };
        assert_eq!((answered.status, decision(&answered).as_str()), (409, wanted), "run {run}");
        assert_eq!(answered.json()["error"]["code"], wanted, "run {run}");
        assert_eq!(answered.json()["retryable"], run == 1, "run {run}");
        assert_eq!(answered.headers.contains_key("x-should-retry"), run != 1, "run {run}");
        assert!(!answered.headers.contains_key("retry-after"), "nobody knows when");
        let record = record(&relay, answered.header("rubicon-execution-key")).await;
        assert_eq!(record["failure"], "not_executed");
        assert_eq!(record["epoch"], run.min(2));
        assert_eq!(record["evidence"][0]["detail"]["bytes_sent"], 0);
        assert_eq!(record["evidence"][0]["detail"]["request_complete"], false);
    }
    relay.shutdown().await;
}

#[tokio::test]
async fn what_was_refused_may_succeed() {
    let later = answer(429, "{}").replace("\r\n\r\n", "\r\nretry-after: 7\r\n\r\n");
    let tool = ToolServer::start(vec![Act::Answer(later), Act::Answer(answer(200, "{\"ok\":1}"))]).await;
    let relay = relay_of(&tool.url("/"), "").await;
    let first = pay(&relay, "{}").await;
    assert_eq!((first.status, decision(&first).as_str(), first.header("retry-after")), (409, "not_executed", "7"));
    assert_eq!(first.json()["execution"]["error"], serde_json::json!({ "code": "refused", "retry_after_ms": 7000 }));
    let second = pay(&relay, "{}").await;
    assert_eq!((second.status, second.header("idempotent-replayed")), (200, "false"));
    assert_eq!(tool.requests().len(), 2);
    relay.shutdown().await;
}

#[tokio::test]
async fn a_slow_tool_is_unknown_at_its_timeout() {
    let tool = ToolServer::start(vec![Act::Hang]).await;
    let relay = relay_of(&tool.url("/"), "timeout_ms = 300").await;
    let answered = pay(&relay, "{}").await;
    assert_eq!(decision(&answered), "reconcile");
    assert!(answered.json()["model_text"].is_string());
    let record = record(&relay, answered.header("rubicon-execution-key")).await;
    assert_eq!(record["evidence"][0]["detail"]["request_complete"], true);
    relay.shutdown().await;
}

#[tokio::test]
async fn an_answer_over_8_mib_is_no_answer() {
    let size = 8 * 1024 * 1024;
    for (bytes, status) in [(size, 200), (size + 1, 409)] {
        let chunked = format!(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{bytes:x}\r\n{}\r\n0\r\n\r\n",
            "x".repeat(bytes)
        );
        for text in [answer(200, &"x".repeat(bytes)), chunked] {
            let tool = ToolServer::start(vec![Act::Answer(text)]).await;
            let relay = relay_of(&tool.url("/"), "").await;
            let answered = pay(&relay, "{}").await;
            assert_eq!(answered.status, status, "{bytes}");
            if status == 200 {
                assert_eq!(answered.body.len(), size);
            } else {
                assert_eq!(decision(&answered), "reconcile");
            }
            relay.shutdown().await;
        }
    }
}

#[tokio::test]
async fn result_rules_say_what_an_answer_means() {
    let rules = "result_rules = [{ pointer = \"/ok\", equals = false, outcome = \"executed_error\" }, \
                 { status = 409, outcome = \"succeeded\" }]";
    let rows = [
        (200, "{\"ok\":false}", 200, "failed"),
        (200, "{\"ok\":true}", 200, "succeeded"),
        (409, "{}", 409, "succeeded"),
        (200, "?", 409, "unknown"),
    ];
    for (status, text, wanted, state) in rows {
        let tool = ToolServer::always(status, text).await;
        let relay = relay_of(&tool.url("/"), rules).await;
        let answered = pay(&relay, "{}").await;
        assert_eq!(answered.status, wanted, "{status} {text}");
        let record = record(&relay, answered.header("rubicon-execution-key")).await;
        assert_eq!(record["state"], state, "{status} {text}");
        relay.shutdown().await;
    }
}

#[tokio::test]
async fn a_hundred_callers_at_once_are_one_effect_and_get_the_same_bytes() {
    let tool = ToolServer::start(vec![Act::AnswerOnGo(answer(200, "{\"id\":\"only\"}"))]).await;
    let relay = Arc::new(relay_of(&tool.url("/"), "").await);
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let relay = Arc::clone(&relay);
            tokio::spawn(async move { pay(&relay, "{\"n\":1}").await })
        })
        .collect();
    tool.until_requests(1).await;
    tool.go();
    let mut fresh = 0;
    for caller in callers {
        let answered = caller.await.expect("an answer");
        assert_eq!((answered.status, answered.text()), (200, "{\"id\":\"only\"}"));
        fresh += usize::from(answered.header("idempotent-replayed") == "false");
    }
    assert_eq!((fresh, tool.connections()), (1, 1));
    Arc::into_inner(relay).expect("the last").shutdown().await;
}

#[tokio::test]
async fn a_client_that_leaves_does_not_stop_it() {
    let tool = ToolServer::start(vec![Act::AnswerOnGo(answer(200, "{\"id\":7}"))]).await;
    let relay = relay_of(&tool.url("/"), "").await;
    let mut raw = Raw::open(relay.address()).await;
    raw.write(message(&relay).as_bytes()).await;
    tool.until_requests(1).await;
    raw.reset();
    tool.go();
    let again = pay(&relay, "{}").await;
    assert_eq!((again.status, again.text(), again.header("idempotent-replayed")), (200, "{\"id\":7}", "true"));
    assert_eq!(tool.connections(), 1);
    relay.shutdown().await;
}

#[tokio::test]
async fn a_twin_is_waited_for_only_as_long_as_wanted() {
    let tool = ToolServer::start(vec![Act::AnswerOnGo(answer(200, "{}"))]).await;
    let relay = Arc::new(relay_of(&tool.url("/"), "").await);
    let first = tokio::spawn({
        let relay = Arc::clone(&relay);
        async move { pay(&relay, "{}").await }
    });
    tool.until_requests(1).await;
    let impatient = client(Http::One).post(url(&relay, "/v1/tools/pay")).header("prefer", "wait=1");
    let answered = send(impatient.header("content-type", "application/json").body(body("{}"))).await;
    assert_eq!((answered.status, decision(&answered).as_str()), (409, "in_progress"));
    tool.go();
    assert_eq!(first.await.expect("an answer").status, 200);
    Arc::into_inner(relay).expect("the last").shutdown().await;
}

#[tokio::test]
async fn a_shutdown_waits_for_its_grace_and_then_the_run_is_unknown() {
    let tool = ToolServer::start(vec![Act::Hang]).await;
    let relay = relay_of(&tool.url("/"), "").await;
    let reader = relay.app().ledger.reader();
    let request = client(Http::One).post(url(&relay, "/v1/tools/pay")).header("content-type", "application/json");
    let caller = tokio::spawn(send(request.body(body("{}"))));
    tool.until_requests(1).await;
    relay.shutdown().await;
    let answered = caller.await.expect("an answer");
    assert_eq!((answered.status, decision(&answered).as_str()), (409, "reconcile"));
    let key = answered.header("rubicon-execution-key").parse().expect("a key");
    let record = reader.record(&key).expect("a store").expect("a record");
    assert_eq!(record.state, rubicon_ledger::State::Unknown);
}

#[tokio::test]
async fn a_shutdown_waits_for_a_run_whose_client_has_left() {
    let tool = ToolServer::start(vec![Act::AnswerOnGo(answer(200, "{}"))]).await;
    let relay = relay_of(&tool.url("/"), "").await;
    let (reader, app) = (relay.app().ledger.reader(), Arc::clone(relay.app()));
    let mut raw = Raw::open(relay.address()).await;
    raw.write(message(&relay).as_bytes()).await;
    tool.until_requests(1).await;
    raw.reset();
    let left = async {
        while app.admission.in_flight() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, left).await.expect("the relay sees it");
    let stopping = tokio::spawn(relay.shutdown());
    tool.go();
    stopping.await.expect("an end");
    let page = reader.list(&rubicon_ledger::store::Filter::default(), 9).expect("a store");
    let states: Vec<_> = page.records.iter().map(|record| record.state).collect();
    assert_eq!(states, [rubicon_ledger::State::Succeeded]);
}

#[tokio::test]
async fn what_may_not_run_is_never_sent() {
    let tool = ToolServer::always(200, "{}").await;
    let lines = "schema = { type = \"object\", required = [\"n\"], properties = { n = { type = \"integer\" } } }\nkey_fields = [\"/n\"]\n\
                 [tool.other]\n[tool.look]\neffect = \"read_only\"";
    let relay = relay_of(&tool.url("/"), lines).await;
    let client = client(Http::One);
    let rows = [
        ("pay", body("{\"n\":\"x\"}"), 400, "invalid_arguments"),
        ("pay", body("{}"), 400, "invalid_arguments"),
        ("pay", body("[]"), 400, "invalid_arguments"),
        ("pay", body("{\"n\":1,\"n\":2}"), 400, "invalid_arguments"),
        ("pay", "{\"operation_id\":\"o\"}".to_owned(), 400, "missing_member"),
        ("pay", "{\"arguments\":{\"n\":1}}".to_owned(), 400, "missing_member"),
        ("pay", "{\"operation_id\":\"o\",\"arguments\":{\"n\":1},\"tool\":\"pay\"}".to_owned(), 400, "unknown_member"),
        (
            "pay",
            "{\"operation_id\":\"o\",\"arguments\":{\"n\":1},\"claim_id\":\"c\"}".to_owned(),
            400,
            "unknown_member",
        ),
        ("other", body("{}"), 400, "tool_not_runnable"),
        ("nobody", body("{}"), 404, "unknown_tool"),
    ];
    for (name, text, status, code) in rows {
        let answered = post(&client, &relay, &format!("/v1/tools/{name}"), text.clone()).await;
        assert_eq!((answered.status, answered.json()["error"]["code"].as_str()), (status, Some(code)), "{name} {text}");
    }
    assert_eq!(tool.connections(), 0);
    relay.shutdown().await;
}

#[tokio::test]
async fn other_words_for_the_same_intent_do_not_run() {
    let tool = ToolServer::always(200, "{}").await;
    let relay = relay_of(&tool.url("/"), "key_fields = [\"/n\"]").await;
    assert_eq!(pay(&relay, "{\"n\":1,\"why\":\"a\"}").await.status, 200);
    let reworded = pay(&relay, "{\"n\":1,\"why\":\"b\"}").await;
    assert_eq!((reworded.status, decision(&reworded).as_str()), (422, "conflict"));
    assert_eq!(tool.connections(), 1);
    relay.shutdown().await;
}

#[tokio::test]
async fn a_read_only_tool_runs_anew_each_time() {
    let tool = ToolServer::always(200, "{}").await;
    let relay = relay_of(&tool.url("/"), "effect = \"read_only\"").await;
    for _ in 0..2 {
        assert_eq!(pay(&relay, "{}").await.header("idempotent-replayed"), "false");
    }
    tool.play(Act::AnswerAndClose(String::new()));
    assert_eq!(decision(&pay(&relay, "{}").await), "reconcile");
    tool.play(Act::Answer(answer(200, "{}")));
    assert_eq!(pay(&relay, "{}").await.status, 200);
    assert_eq!(tool.connections(), 4);
    relay.shutdown().await;
}

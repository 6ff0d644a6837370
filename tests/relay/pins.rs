//! State that only one account holds (SPEC section 3): turn two of a conversation goes where turn one was answered, or the caller is
//! told why not; what nobody is known to have issued belongs to the primary.

use std::collections::BTreeMap;
use std::sync::Arc;

use rubicon::mock::{Answer, MockProvider, Rule, Script, responses, responses_text, responses_whole_text};
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, client, provider, relay_with, send, settings_with, url};
use crate::setup::{Setup, always, overloaded};

const RED: &str = "red-key-0123456789abcdef0123456789abcdef";
const BLUE: &str = "blue-key-0123456789abcdef0123456789abcdef";

fn env() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([("RED", RED), ("BLUE", BLUE)])
}

fn config(a: &MockProvider, b: &MockProvider, server: &str, approved: bool) -> String {
    let clients = "[[client]]\nname = \"red\"\nkeys = [\"env:RED\"]\nworkflows = [\"default\"]\nshow_routes = true\n\
                   [[client]]\nname = \"blue\"\nkeys = [\"env:BLUE\"]\nworkflows = [\"default\"]\nshow_routes = true\n";
    let setup = Setup::primary(a.base_url()).equivalent("b", b).server(server).tables(clients);
    let setup = if approved { setup } else { setup.unapproved() };
    setup.failover("enabled = true").text()
}

/// `a` is down for the first turn only: a model decides, so that no time has to pass.
async fn a_is_down_for_turn_one() -> MockProvider {
    let script = Script::default()
        .rule(Rule::new("one").model("turn-one").answer(overloaded()))
        .rule(Rule::new("two").answer(responses_text(&["from a"])));
    MockProvider::start(script).await.unwrap()
}

async fn ask(relay: &Server, key: &str, path: &str, body: Value) -> Answered {
    let post = client(Http::One).post(url(relay, path)).bearer_auth(key);
    send(post.header("content-type", "application/json").body(body.to_string())).await
}

async fn respond(relay: &Server, key: &str, model: &str, more: Value) -> Answered {
    let mut body = json!({ "model": model, "stream": true, "input": "hi" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ask(relay, key, "/v1/responses", body).await
}

#[track_caller]
fn assert_from(answered: &Answered, who: &str, recovery: &str) {
    assert_eq!((answered.status, answered.clean), (200, true), "{}", answered.text());
    assert!(answered.text().contains(&format!("from {who}")), "{}", answered.text());
    assert_eq!(answered.header("rubicon-recovery"), recovery);
}

fn refused(answered: &Answered) -> Vec<(String, String)> {
    let json = answered.json();
    let list = json["rubicon"]["refused"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list.iter().map(|refused| (text(&refused["route"]), text(&refused["why"]))).collect()
}

fn pair(route: &str, why: &str) -> (String, String) {
    (route.to_owned(), why.to_owned())
}

#[tokio::test]
async fn turn_two_goes_back_to_who_answered_turn_one() {
    for stream in [true, false] {
        let a = a_is_down_for_turn_one().await;
        let whole = if stream { responses_text(&["from b"]) } else { responses_whole_text("from b") };
        let b = provider(Rule::new("all").answer(whole)).await;
        let relay = relay_with(&config(&a, &b, "", true), &env()).await;
        assert_from(&respond(&relay, RED, "turn-one", json!({ "stream": stream })).await, "b", "equivalent_failover");
        // `a` is well again, and did not issue this.
        let two = json!({ "previous_response_id": responses::ID, "stream": stream });
        assert_from(&respond(&relay, RED, "turn-two", two.clone()).await, "b", "none");
        assert_eq!((a.calls(), b.calls()), (1, 2));
        // What is one tenant's says nothing of another's: unknown, so it is the primary's, and never fails over.
        let other = respond(&relay, BLUE, "turn-two", json!({ "previous_response_id": responses::ID })).await;
        assert_from(&other, "a", "none");
        let other = respond(&relay, BLUE, "turn-one", two).await;
        assert_eq!(other.status, 424, "{}", other.text());
        assert_eq!(refused(&other), [pair("b", "pinned:previous_response_id")]);
        assert_eq!(b.calls(), 2);
    }
}

#[tokio::test]
async fn or_the_caller_is_told_why_not() {
    let a = a_is_down_for_turn_one().await;
    let b = provider(Rule::new("all").answer(responses_text(&["from b"])).answer(overloaded())).await;
    let relay = relay_with(&config(&a, &b, "", true), &env()).await;
    assert_from(&respond(&relay, RED, "turn-one", json!({})).await, "b", "equivalent_failover");
    let two = || json!({ "previous_response_id": responses::ID });
    // Its holder is down: nobody else is asked.
    let down = respond(&relay, RED, "turn-two", two()).await;
    assert_eq!((down.status, down.json()["rubicon"]["class"].clone()), (424, json!("provider_overloaded")));
    assert_eq!(refused(&down), [pair("a", "pinned:previous_response_id")]);
    let b_calls = b.calls();
    // Its holder may not be asked any more.
    relay.app().replace(Arc::new(settings_with(&config(&a, &b, "", false), &env())));
    let barred = respond(&relay, RED, "turn-two", two()).await;
    let json = barred.json();
    assert_eq!((barred.status, &json["rubicon"]["reason"]), (424, &json!("no_eligible_fallback")), "{json}");
    assert_eq!(json["rubicon"]["attempts"], 0);
    assert_eq!(json["error"]["param"], "previous_response_id");
    let message = json["error"]["message"].as_str().unwrap();
    assert!(message.contains("previous_response_id") && !message.contains(responses::ID), "{message}");
    assert_eq!(refused(&barred), [pair("a", "pinned:previous_response_id"), pair("b", "approval_missing")]);
    assert_eq!((a.calls(), b.calls()), (1, b_calls), "nobody was asked");
}

/// A client that asks on as soon as it has the last event meets a relay that knows already, though the provider's connection is open.
#[tokio::test]
async fn it_is_known_before_the_client_has_it() {
    use futures_util::StreamExt as _;
    let a = a_is_down_for_turn_one().await;
    let steps = [
        responses::created(0),
        responses::message_added(1, 0),
        responses::part_added(2, 0),
        responses::text_delta(3, 0, "from b"),
    ];
    let open = steps.into_iter().fold(Answer::sse(), Answer::step).hang();
    let b = provider(Rule::new("all").answer(open).answer(responses_text(&["from b"]))).await;
    let relay = relay_with(&config(&a, &b, "", true), &env()).await;
    let body = json!({ "model": "turn-one", "stream": true, "input": "hi" });
    let post = client(Http::One).post(url(&relay, "/v1/responses")).bearer_auth(RED);
    let first = post.header("content-type", "application/json").body(body.to_string()).send().await.unwrap();
    let mut stream = first.bytes_stream();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("from b") {
        seen.extend_from_slice(&stream.next().await.expect("more").expect("bytes"));
    }
    // The stream goes on all the while.
    let two = respond(&relay, RED, "turn-two", json!({ "previous_response_id": responses::ID })).await;
    assert_from(&two, "b", "none");
}

#[tokio::test]
async fn what_was_issued_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store = \"redb:{}/r.redb\"", folder.path().display());
    let a = a_is_down_for_turn_one().await;
    let b = provider(Rule::new("all").answer(responses_text(&["from b"]))).await;
    let relay = relay_with(&config(&a, &b, &store, true), &env()).await;
    assert_from(&respond(&relay, RED, "turn-one", json!({})).await, "b", "equivalent_failover");
    relay.shutdown().await;
    // What is left of the old relay in this process goes in its own time, and the store's lock with it.
    let relay = loop {
        match Server::start(settings_with(&config(&a, &b, &store, true), &env())).await {
            Ok(relay) => break relay,
            Err(error) => assert!(error.to_string().contains("another process"), "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    let two = respond(&relay, RED, "turn-two", json!({ "previous_response_id": responses::ID })).await;
    assert_from(&two, "b", "none");
}

/// Signed thinking is state, too: only the account that signed it takes it back.
#[tokio::test]
async fn thinking_goes_back_to_who_signed_it() {
    let event = |name: &str, data: Value| (name.to_owned(), data);
    let turn = [
        event(
            "message_start",
            json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message", "role": "assistant", "content": [],
                    "model": "m", "stop_reason": null, "usage": { "input_tokens": 3, "output_tokens": 1 } } }),
        ),
        event(
            "content_block_start",
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "thinking", "thinking": "", "signature": "" } }),
        ),
        event(
            "content_block_delta",
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "thinking_delta", "thinking": "from b" } }),
        ),
        event(
            "content_block_delta",
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "signature_delta", "signature": "c2lnbmVkLWJ5LWI=" } }),
        ),
        event("content_block_stop", json!({ "type": "content_block_stop", "index": 0 })),
        event(
            "message_delta",
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 5 } }),
        ),
        event("message_stop", json!({ "type": "message_stop" })),
    ];
    let answer = turn.into_iter().fold(Answer::sse(), |answer, (name, data)| answer.event(&name, data));
    let a = always(overloaded()).await;
    let b = provider(Rule::new("all").answer(answer)).await;
    let relay = relay_with(&config(&a, &b, "", true), &env()).await;
    let body = |messages: Value| json!({ "model": "m", "stream": true, "max_tokens": 64, "messages": messages });
    let one = ask(&relay, RED, "/v1/messages", body(json!([{ "role": "user", "content": "hi" }]))).await;
    assert_from(&one, "b", "equivalent_failover");
    let thought = |signature: &str| {
        json!([
            { "role": "user", "content": "hi" },
            { "role": "assistant", "content": [{ "type": "thinking", "thinking": "from b", "signature": signature }] },
            { "role": "user", "content": "and?" }
        ])
    };
    let two = ask(&relay, RED, "/v1/messages", body(thought("c2lnbmVkLWJ5LWI="))).await;
    assert_from(&two, "b", "none");
    assert_eq!(a.calls(), 1);
    // Somebody else's signature is the primary's, and does not fail over.
    let other = ask(&relay, RED, "/v1/messages", body(thought("b3RoZXI="))).await;
    assert_eq!(other.status, 424, "{}", other.text());
    assert_eq!(refused(&other), [pair("b", "pinned:signature")]);
}

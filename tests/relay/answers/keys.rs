//! `Idempotency-Key`: joins, replays, conflicts, and who may leave.

use std::time::Duration;

use rubicon::mock::{Answer, MockProvider, Rule, chat, chat_text, chat_whole_text};
use rubicon::serve::Server;
use serde_json::json;

use super::CHAT;
use crate::harness::{Answered, Http, client, path, provider, relay, relay_with, request, send, url};
use crate::setup::{Setup, always, limited, overloaded};

fn keyed(client: &reqwest::Client, relay: &Server, key: &str, body: &str) -> reqwest::RequestBuilder {
    let request = client.post(url(relay, path(CHAT))).header("content-type", "application/json");
    request.header("idempotency-key", key).body(body.to_owned())
}

async fn ask(relay: &Server, key: &str, stream: bool) -> Answered {
    send(keyed(&client(Http::One), relay, key, &request(CHAT, stream))).await
}

/// An answer that waits at the gate `go` before its head.
fn gated(answer: Answer) -> Answer {
    Answer::new().gate("go").then(answer)
}

/// Waits until the relay has `count` requests in flight, and then until they have come as far as they can: there is no sign by
/// which a waiter could be told from outside.
async fn settled(relay: &Server, count: usize) {
    while relay.app().admission.in_flight() != count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
}

async fn alone(a: &MockProvider, envelope: &str) -> Server {
    relay(&Setup::primary(a.base_url()).workflow(&format!("envelope = {{ {envelope} }}")).text()).await
}

#[tokio::test]
async fn a_second_request_joins_the_running_one_and_later_ones_get_it_again() {
    let a = always(gated(chat_whole_text("only once"))).await;
    let relay = alone(&a, "").await;
    let body = request(CHAT, false);
    let first = tokio::spawn(send(keyed(&client(Http::One), &relay, "k/1", &body)));
    a.wait_for(|stats| stats.at_gates == 1).await;
    let second = tokio::spawn(send(keyed(&client(Http::Two), &relay, "k/1", &body)));
    settled(&relay, 2).await;
    assert_eq!(a.calls(), 1);
    a.open_gate("go", 1);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let third = ask(&relay, "k/1", false).await;
    for (answered, replayed) in [(&first, ""), (&second, "true"), (&third, "true")] {
        assert_eq!((answered.status, answered.body == first.body), (200, true), "{}", answered.text());
        assert!(answered.text().contains("only once"));
        assert_eq!(answered.header("idempotent-replayed"), replayed);
        assert_eq!(answered.header("rubicon-operation-id"), "k/1", "the key is the operation's id");
    }
    assert_eq!(a.calls(), 1);
    // The structured-field form of the same key.
    assert_eq!(ask(&relay, "\"k/1\"", false).await.header("idempotent-replayed"), "true");
    // Another key is another operation.
    a.open_gate("go", 1);
    assert_eq!(ask(&relay, "k/2", false).await.header("idempotent-replayed"), "");
    assert_eq!(a.calls(), 2);
}

#[tokio::test]
async fn another_body_or_endpoint_under_the_same_key_is_422() {
    let a = always(chat_whole_text("one")).await;
    let relay = alone(&a, "").await;
    assert_eq!(ask(&relay, "k", false).await.status, 200);
    let bodies = [request(CHAT, true), request(CHAT, false).replace("hi", "ho"), request(CHAT, false) + " "];
    for body in bodies {
        let answered = send(keyed(&client(Http::One), &relay, "k", &body)).await;
        let json = answered.json();
        assert_eq!((answered.status, &json["error"]["code"]), (422, &json!("idempotency_key_reused")), "{json}");
        assert_eq!((&json["rubicon"]["status"], answered.header("x-should-retry")), (&json!("rejected"), "false"));
    }
    let elsewhere = client(Http::One)
        .post(url(&relay, "/v1/messages"))
        .header("content-type", "application/json")
        .header("idempotency-key", "k")
        .body(request(CHAT, false).replace("\"stream\"", "\"max_tokens\":1,\"stream\""));
    assert_eq!(send(elsewhere).await.status, 422);
    for bad in ["", "a b", &"x".repeat(256)] {
        let answered = ask(&relay, bad, false).await;
        assert_eq!((answered.status, &answered.json()["error"]["code"]), (400, &json!("invalid_header")), "{bad:?}");
    }
    assert_eq!(a.calls(), 1);
}

#[tokio::test]
async fn a_failure_that_showed_nothing_is_the_outcome_streamed_or_not() {
    for stream in [true, false] {
        for answer in
            [overloaded(), limited("retry-after", "40"), Answer::json_error(400, json!({"error":{"message":"no"}}))]
        {
            let a = provider(Rule::new("a").answer(answer).answer(chat_text(&["never"]))).await;
            let relay = alone(&a, "max_attempts = 1").await;
            let first = ask(&relay, "k", stream).await;
            let again = ask(&relay, "k", stream).await;
            assert!(first.status >= 400, "{}", first.text());
            assert_eq!((again.status, &again.body), (first.status, &first.body));
            for header in ["rubicon-operation-id", "rubicon-attempts", "x-should-retry", "retry-after", "content-type"]
            {
                assert_eq!(again.header(header), first.header(header), "{header}");
            }
            assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
            assert_eq!(a.calls(), 1);
        }
    }
}

#[tokio::test]
async fn what_was_refused_before_a_call_is_told_and_not_stored() {
    for stream in [true, false] {
        let a = always(if stream { chat_text(&["now"]) } else { chat_whole_text("now") }).await;
        let relay = alone(&a, "max_attempts = 2").await;
        let spent =
            keyed(&client(Http::One), &relay, "k", &request(CHAT, stream)).header("x-stainless-retry-count", "2");
        let answered = send(spent).await;
        let json = answered.json();
        assert_eq!(
            (answered.status, &json["rubicon"]["reason"]),
            (424, &json!("attempts_exhausted")),
            "{stream} {json}"
        );
        assert_eq!((&json["rubicon"]["attempts"], a.calls()), (&json!(0), 0));
        let answered = ask(&relay, "k", stream).await;
        assert_eq!((answered.status, answered.header("idempotent-replayed")), (200, ""), "{}", answered.text());
        assert_eq!(a.calls(), 1);
    }
}

#[tokio::test]
async fn one_that_leaves_takes_nothing_from_those_who_wait() {
    let a = always(gated(chat_whole_text("for the one who stayed"))).await;
    let relay = alone(&a, "").await;
    let body = request(CHAT, false);
    let leaving = tokio::spawn(send(keyed(&client(Http::One), &relay, "k", &body)));
    a.wait_for(|stats| stats.at_gates == 1).await;
    let staying = tokio::spawn(send(keyed(&client(Http::One), &relay, "k", &body)));
    settled(&relay, 2).await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    // Its own request is noticed to be gone while the answer is still being made.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!((a.disconnects(), a.stats().at_gates), (0, 1));
    a.open_gate("go", 1);
    let answered = staying.await.unwrap();
    assert_eq!((answered.status, answered.header("idempotent-replayed")), (200, "true"));
    assert!(answered.text().contains("for the one who stayed"));
    assert_eq!(a.calls(), 1);
}

#[tokio::test]
async fn when_all_have_left_it_is_cancelled_and_the_key_does_not_generate_again() {
    let a = always(gated(chat_whole_text("again"))).await;
    let relay = alone(&a, "").await;
    let body = request(CHAT, false);
    let both = [client(Http::One), client(Http::One)];
    let waiting = both.map(|client| tokio::spawn(send(keyed(&client, &relay, "k", &body))));
    settled(&relay, 2).await;
    for task in waiting {
        task.abort();
    }
    a.wait_for(|stats| stats.disconnects == 1).await;
    settled(&relay, 0).await;
    a.open_gate("go", 1);
    let answered = ask(&relay, "k", false).await;
    assert_eq!((answered.status, answered.header("idempotent-replayed"), a.calls()), (424, "true", 1));
    assert_eq!(answered.json()["rubicon"]["reason"], "client_gone");
}

#[tokio::test]
async fn a_streamed_key_is_in_progress_then_its_outcome_is_not_kept() {
    let answer =
        gated(Answer::sse().step(chat::delta("Hel")).gate("rest").step(chat::finish("stop")).step(chat::done()));
    let a = always(answer).await;
    let relay = alone(&a, "").await;
    let first = tokio::spawn(send(keyed(&client(Http::One), &relay, "k", &request(CHAT, true))));
    a.wait_for(|stats| stats.at_gates == 1).await;

    // Nothing shown: it may still fail, so the caller may come again.
    let early = ask(&relay, "k", true).await;
    let json = early.json();
    assert_eq!((early.status, &json["error"]["code"]), (409, &json!("in_progress")), "{json}");
    assert_eq!((early.header("x-should-retry"), &json["rubicon"]["operation_id"]), ("", &json!("k")));

    a.open_gate("go", 1);
    a.wait_for(|stats| stats.events_sent == 1 && stats.at_gates == 1).await;
    for _ in 0..400 {
        if ask(&relay, "k", true).await.json()["error"]["code"] == "outcome_not_kept" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let shown = ask(&relay, "k", true).await;
    assert_eq!((shown.status, &shown.json()["error"]["code"]), (409, &json!("outcome_not_kept")));
    assert_eq!(shown.header("x-should-retry"), "false");

    a.open_gate("rest", 1);
    let first = first.await.unwrap();
    assert!(first.clean && first.text().ends_with("data: [DONE]\n\n"));
    let after = ask(&relay, "k", true).await;
    assert_eq!((after.status, &after.json()["error"]["code"]), (409, &json!("outcome_not_kept")));
    assert_eq!(a.calls(), 1, "never a second generation");
}

#[tokio::test]
async fn a_streamed_key_whose_client_left_before_anything_was_shown_does_not_generate_again() {
    let a = always(gated(chat_text(&["again"]))).await;
    let relay = alone(&a, "").await;
    let leaving = tokio::spawn(send(keyed(&client(Http::One), &relay, "k", &request(CHAT, true))));
    a.wait_for(|stats| stats.at_gates == 1).await;
    leaving.abort();
    a.wait_for(|stats| stats.disconnects == 1).await;
    settled(&relay, 0).await;
    a.open_gate("go", 1);
    let answered = ask(&relay, "k", true).await;
    assert_eq!((answered.status, answered.header("idempotent-replayed"), a.calls()), (424, "true", 1));
    assert_eq!(answered.json()["rubicon"]["reason"], "client_gone");
}

#[tokio::test]
async fn an_interrupted_stream_is_never_generated_again_under_its_key() {
    let a = always(Answer::sse().step(chat::delta("Hel")).delay_ms(50).abort_rst()).await;
    let relay = alone(&a, "").await;
    assert!(!ask(&relay, "k", true).await.clean);
    let again = ask(&relay, "k", true).await;
    assert_eq!((again.status, &again.json()["error"]["code"]), (409, &json!("outcome_not_kept")));
    assert_eq!(a.calls(), 1);
}

#[tokio::test]
async fn where_keep_alives_spent_the_status_the_failure_is_replayed_with_its_true_one() {
    let a = always(Answer::new().delay_ms(300).then(overloaded())).await;
    let setup =
        Setup::primary(a.base_url()).workflow("hold = { keepalive_after_ms = 50 }\nenvelope = { max_attempts = 1 }");
    let relay = relay(&setup.text()).await;
    let first = ask(&relay, "k", true).await;
    assert_eq!((first.status, first.clean), (200, false));
    let again = ask(&relay, "k", true).await;
    assert_eq!((again.status, again.header("idempotent-replayed"), a.calls()), (424, "true", 1));
    assert_eq!(again.json()["rubicon"]["class"], "provider_overloaded");
}

#[tokio::test]
async fn keys_of_two_tenants_do_not_meet_and_those_of_one_do() {
    let a = always(chat_whole_text("yours")).await;
    let client_table = |name: &str, tenant: &str| {
        format!("[[client]]\nname = \"{name}\"\n{tenant}keys = [\"env:{name}\"]\nworkflows = [\"default\"]\n")
    };
    let tables = client_table("red", "") + &client_table("blue", "") + &client_table("worker", "tenant = \"red\"\n");
    let key = |name: &str| format!("{name}-{}", "0".repeat(40));
    let (red, blue, worker) = (key("red"), key("blue"), key("worker"));
    let env = [("red", red.as_str()), ("blue", blue.as_str()), ("worker", worker.as_str())].into_iter().collect();
    let relay = relay_with(&Setup::primary(a.base_url()).tables(&tables).text(), &env).await;
    let client = client(Http::One);
    let ask = async |who: &str, body: &str| send(keyed(&client, &relay, "k", body).bearer_auth(who)).await;
    let (one, other) = (request(CHAT, false), request(CHAT, false).replace("hi", "ho"));
    assert_eq!(ask(&red, &one).await.header("idempotent-replayed"), "");
    assert_eq!(ask(&blue, &one).await.header("idempotent-replayed"), "", "not red's answer");
    assert_eq!(a.calls(), 2);
    assert_eq!(ask(&worker, &one).await.header("idempotent-replayed"), "true", "red's tenant");
    assert_eq!(ask(&worker, &other).await.status, 422);
    let known = async |who: &str| send(client.get(url(&relay, "/v1/operations/k")).bearer_auth(who)).await.json();
    assert_ne!(known(&red).await["created_at"].as_u64(), None);
    assert_eq!(known(&red).await, known(&worker).await);
    assert_eq!(a.calls(), 2);
}

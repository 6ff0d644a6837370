//! `GET` and `DELETE /v1/operations/{id}`, `GET /v1/models`, health, and a shutdown of the real binary.

mod shutdown;

use rubicon::mock::{Answer, MockProvider, Rule, anthropic, chat, chat_text, chat_whole_text, responses};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, client, path, provider, relay, relay_with, request, send, url};
use crate::setup::{Setup, always, overloaded};

const CHAT: Dialect = Dialect::ChatCompletions;
const MESSAGES: Dialect = Dialect::AnthropicMessages;

async fn get(relay: &Server, path: &str) -> Answered {
    send(client(Http::One).get(url(relay, path))).await
}

async fn known(relay: &Server, id: &str) -> Value {
    let answered = get(relay, &format!("/v1/operations/{id}")).await;
    assert_eq!((answered.status, answered.header("cache-control")), (200, "no-store"), "{}", answered.text());
    answered.json()
}

/// What is known, once `until` holds.
async fn known_when(relay: &Server, id: &str, until: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..1000 {
        let view = known(relay, id).await;
        if until(&view) {
            return view;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("never: {}", known(relay, id).await);
}

fn call(relay: &Server, dialect: Dialect, stream: bool, id: &str) -> reqwest::RequestBuilder {
    let request = client(Http::One).post(url(relay, path(dialect))).header("content-type", "application/json");
    request.header("idempotency-key", id).body(self::request(dialect, stream))
}

async fn simple(a: &MockProvider, b: &MockProvider) -> Server {
    relay(&Setup::primary(a.base_url()).equivalent("b", b).text()).await
}

#[tokio::test]
async fn a_running_operation_then_a_completed_one() {
    let a = always(overloaded()).await;
    let answer = Answer::new().gate("head").step(chat::role()).gate("out").step(chat::delta("Hel"));
    let b = always(answer.gate("end").step(chat::finish("stop")).step(chat::usage(3)).step(chat::done())).await;
    let relay = simple(&a, &b).await;
    let running = tokio::spawn(send(call(&relay, CHAT, true, "op-1")));
    b.wait_for(|stats| stats.at_gates == 1).await;

    let view = known(&relay, "op-1").await;
    assert_eq!(
        (&view["operation_id"], &view["state"], &view["actions"]),
        (&json!("op-1"), &json!("running"), &json!(["none"]))
    );
    assert_eq!(
        (&view["workflow"], &view["dialect"], &view["stream"]),
        (&json!("default"), &json!("chat-completions"), &json!(true))
    );
    assert_eq!((&view["boundary"], &view["after"], view.get("ended_at")), (&Value::Null, &json!(0), None));
    assert_eq!((&view["executions"], &view["unresolved_executions"]), (&json!([]), &json!(0)));
    let attempts = view["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2, "{view}");
    assert_eq!(
        (&attempts[0]["number"], &attempts[0]["class"], &attempts[0]["provider_status"]),
        (&json!(1), &json!("provider_overloaded"), &json!(503))
    );
    assert!(attempts[0]["ended_ms"].as_u64() >= attempts[0]["started_ms"].as_u64());
    assert_eq!(
        (&attempts[1]["number"], attempts[1].get("ended_ms"), attempts[1].get("outcome")),
        (&json!(2), None, None)
    );
    assert_eq!(attempts[0].get("route"), None, "only for clients that may see routes");

    b.open_gate("head", 1);
    b.open_gate("out", 1);
    let view = known_when(&relay, "op-1", |view| view["after"] == 2).await;
    assert_eq!(
        (&view["state"], &view["boundary"]["attempt"], &view["boundary"]["why"]),
        (&json!("running"), &json!(2), &json!({ "visible": "text" })),
        "{view}"
    );
    assert_eq!(view["attempts"][1]["outcome"], "accepted");
    b.open_gate("end", 1);
    assert!(running.await.unwrap().clean);
    let view = known(&relay, "op-1").await;
    assert_eq!(
        (&view["state"], &view["finish_reason"], &view["after"]),
        (&json!("completed"), &json!("stop"), &json!(5)),
        "{view}"
    );
    assert_eq!(view["usage"]["output_tokens"], 3);
    assert!(view["ended_at"].as_u64() >= view["created_at"].as_u64());
    assert!(view["attempts"][1]["ended_ms"].is_u64());
    assert_eq!((view.get("reason"), view.get("class"), &view["actions"]), (None, None, &json!(["none"])));
}

#[tokio::test]
async fn every_end_is_told() {
    let rows: Vec<(&str, Dialect, bool, Answer, Value)> = vec![
        (
            "whole",
            CHAT,
            false,
            chat_whole_text("x"),
            json!({"state":"completed","actions":["none"],"finish_reason":"stop","boundary":null}),
        ),
        (
            "empty but complete",
            CHAT,
            true,
            Answer::sse().step(chat::role()).step(chat::finish("stop")).step(chat::done()),
            json!({"state":"completed","boundary":null,"after":3}),
        ),
        (
            "cut",
            CHAT,
            true,
            Answer::sse().step(chat::delta("x")).delay_ms(50).abort_rst(),
            json!({"state":"interrupted","reason":"partial_output","class":"partial_output","actions":["restart"],"after":1,"unresolved_executions":0}),
        ),
        (
            "cut in a message",
            MESSAGES,
            true,
            Answer::sse()
                .step(anthropic::message_start())
                .step(anthropic::text_start(0))
                .step(anthropic::text_delta(0, "x")),
            json!({"state":"interrupted","reason":"partial_output","after":3}),
        ),
        (
            "tool may have acted",
            CHAT,
            true,
            Answer::sse()
                .text("data: {\"choices\":[{\"index\":0,\"delta\":{\"executed_tools\":[{\"name\":\"python\"}]}}]}\n\n"),
            json!({"state":"interrupted","reason":"side_effect_uncertain","class":"side_effect_uncertain","actions":["reconcile"],"unresolved_executions":1}),
        ),
        (
            "blocked",
            CHAT,
            true,
            Answer::json_error(401, json!({"error":{"message":"no"}})),
            json!({"state":"failed","reason":"authentication_or_permission","class":"authentication_or_permission","actions":["none"],"after":0}),
        ),
        (
            "rejected",
            CHAT,
            false,
            Answer::json_error(400, json!({"error":{"message":"no"}})),
            json!({"state":"failed","reason":"invalid_request","class":"invalid_request","actions":["none"]}),
        ),
        (
            "spent",
            CHAT,
            true,
            overloaded(),
            json!({"state":"failed","reason":"attempts_exhausted","class":"provider_overloaded","actions":["restart"]}),
        ),
    ];
    for (what, dialect, stream, answer, expected) in rows {
        let a = always(answer).await;
        let relay = relay(&Setup::primary(a.base_url()).workflow("envelope = { max_attempts = 1 }").text()).await;
        send(call(&relay, dialect, stream, "op")).await;
        let view = known_when(&relay, "op", |view| view["state"] != "running").await;
        for (member, value) in expected.as_object().unwrap() {
            assert_eq!(&view[member], value, "{what}: {member} of {view}");
        }
        assert_eq!(view["attempts"].as_array().unwrap().len(), 1, "{what}");
        assert!(view["attempts"][0]["ended_ms"].is_u64() && view["ended_at"].is_u64(), "{what}: {view}");
    }
}

#[tokio::test]
async fn a_client_that_left_is_told_and_the_provider_is_let_go() {
    for shown in [true, false] {
        let begun = if shown { Answer::sse().step(chat::delta("x")) } else { Answer::sse().text(": hi\n\n") };
        let a = always(begun.gate("never")).await;
        let relay = relay(&Setup::primary(a.base_url()).text()).await;
        let running = tokio::spawn(send(call(&relay, CHAT, true, "op")));
        a.wait_for(|stats| stats.at_gates == 1).await;
        if shown {
            known_when(&relay, "op", |view| view["after"] == 1).await;
        }
        running.abort();
        a.wait_for(|stats| stats.disconnects == 1).await;
        let view = known_when(&relay, "op", |view| view["state"] != "running").await;
        assert_eq!((&view["state"], &view["reason"]), (&json!("interrupted"), &json!("client_gone")), "{view}");
        assert_eq!((&view["actions"], &view["after"]), (&json!(["restart"]), &json!(u64::from(shown))));
        assert_eq!(a.calls(), 1);
    }
}

#[tokio::test]
async fn a_whole_answer_that_nobody_waits_for_is_cancelled_with_and_without_a_key() {
    for http in [Http::One, Http::Two] {
        for keyed in [true, false] {
            let a = always(Answer::new().gate("never")).await;
            let relay = relay(&Setup::primary(a.base_url()).text()).await;
            let request = client(http).post(url(&relay, path(CHAT))).header("content-type", "application/json");
            let request = if keyed { request.header("idempotency-key", "op") } else { request };
            let running = tokio::spawn(send(request.body(self::request(CHAT, false))));
            a.wait_for(|stats| stats.at_gates == 1).await;
            running.abort();
            a.wait_for(|stats| stats.disconnects == 1).await;
            if keyed {
                let view = known_when(&relay, "op", |view| view["state"] != "running").await;
                assert_eq!((&view["state"], &view["reason"]), (&json!("interrupted"), &json!("client_gone")), "{view}");
            }
        }
    }
}

async fn delete(relay: &Server, id: &str) -> Answered {
    send(client(Http::One).delete(url(relay, &format!("/v1/operations/{id}")))).await
}

#[tokio::test]
async fn stopped_before_output_the_waiting_request_gets_409() {
    for (dialect, stream) in [(CHAT, true), (CHAT, false), (MESSAGES, true), (MESSAGES, false)] {
        let (a, b) = (always(Answer::new().gate("never")).await, always(chat_text(&["from b"])).await);
        let relay = simple(&a, &b).await;
        let waiting = tokio::spawn(send(call(&relay, dialect, stream, "op")));
        a.wait_for(|stats| stats.at_gates == 1).await;
        assert_eq!(delete(&relay, "op").await.status, 200);
        let answered = waiting.await.unwrap();
        let json = answered.json();
        assert_eq!((answered.status, &json["error"]["code"]), (409, &json!("stopped")), "{json}");
        assert_eq!((&json["rubicon"]["status"], &json["rubicon"]["retryable"]), (&json!("stopped"), &json!(false)));
        assert_eq!(answered.header("x-should-retry"), "false");
        a.wait_for(|stats| stats.disconnects == 1).await;
        assert_eq!((a.calls(), b.calls()), (1, 0), "a stop is no failure to recover from");
        let view = known(&relay, "op").await;
        assert_eq!((&view["state"], &view["reason"]), (&json!("stopped"), &json!("stopped")), "{view}");
    }
}

#[tokio::test]
async fn stopped_while_it_waits_to_try_again() {
    let a = always(crate::setup::limited("retry-after", "50")).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    let waiting = tokio::spawn(send(call(&relay, CHAT, true, "op")));
    known_when_class(&relay, "op").await;
    assert_eq!(delete(&relay, "op").await.status, 200);
    let answered = waiting.await.unwrap();
    assert_eq!((answered.status, answered.json()["error"]["code"].as_str()), (409, Some("stopped")));
    assert_eq!(a.calls(), 1);
}

async fn known_when_class(relay: &Server, id: &str) {
    for _ in 0..1000 {
        let answered = get(relay, &format!("/v1/operations/{id}")).await;
        if answered.status == 200 && answered.json()["attempts"][0]["class"].is_string() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("no attempt failed");
}

#[tokio::test]
async fn stopped_after_output_the_stream_ends_with_a_frame_and_an_abort() {
    for dialect in Dialect::ALL {
        let begun = match dialect {
            Dialect::ChatCompletions => Answer::sse().step(chat::delta("Hel")),
            Dialect::AnthropicMessages => Answer::sse()
                .step(anthropic::message_start())
                .step(anthropic::text_start(0))
                .step(anthropic::text_delta(0, "Hel")),
            Dialect::Responses => Answer::sse()
                .step(responses::created(0))
                .step(responses::message_added(1, 0))
                .step(responses::text_delta(2, 0, "Hel")),
        };
        let events = if dialect == CHAT { 1 } else { 3 };
        for http in [Http::One, Http::Two] {
            let (a, b) = (always(begun.clone().gate("never")).await, always(chat_text(&["from b"])).await);
            let relay = simple(&a, &b).await;
            let request = client(http).post(url(&relay, path(dialect))).header("content-type", "application/json");
            let request = request.header("idempotency-key", "op").body(self::request(dialect, true));
            let running = tokio::spawn(send(request));
            a.wait_for(|stats| stats.at_gates == 1).await;
            known_when(&relay, "op", |view| view["after"] == events).await;
            assert_eq!(delete(&relay, "op").await.status, 200);
            let answered = running.await.unwrap();
            assert!(!answered.clean && answered.text().contains("Hel"), "{}", answered.text());
            let frame = answered.last_event();
            let frame = if dialect == Dialect::Responses { &frame["response"] } else { &frame };
            let rubicon = if dialect == MESSAGES { &frame["rubicon"] } else { &frame["error"]["rubicon"] };
            assert_eq!(
                (&rubicon["status"], &rubicon["reason"], &rubicon["after"]),
                (&json!("stopped"), &json!("stopped"), &json!(events)),
                "{frame}"
            );
            a.wait_for(|stats| stats.disconnects == 1).await;
            assert_eq!((a.calls(), b.calls()), (1, 0));
            let view = known(&relay, "op").await;
            assert_eq!((&view["state"], &view["after"]), (&json!("stopped"), &json!(events)), "{view}");
            // Stopping what has ended changes nothing.
            assert_eq!(delete(&relay, "op").await.json()["ended_at"], view["ended_at"]);
        }
    }
}

#[tokio::test]
async fn stopping_what_has_completed_leaves_it_completed() {
    let a = always(chat_whole_text("x")).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    send(call(&relay, CHAT, false, "op")).await;
    assert_eq!(delete(&relay, "op").await.json()["state"], "completed");
    assert_eq!(send(call(&relay, CHAT, false, "op")).await.header("idempotent-replayed"), "true");
}

#[tokio::test]
async fn everybody_who_joined_is_told_of_a_stop() {
    let a = always(Answer::new().gate("never")).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    let waiting = [(), ()].map(|()| tokio::spawn(send(call(&relay, CHAT, false, "op"))));
    a.wait_for(|stats| stats.at_gates == 1).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    delete(&relay, "op").await;
    for task in waiting {
        let answered = task.await.unwrap();
        assert_eq!((answered.status, answered.json()["error"]["code"].as_str()), (409, Some("stopped")));
    }
    assert_eq!(a.calls(), 1);
}

#[tokio::test]
async fn ids_in_paths_are_percent_encoded() {
    let a = always(chat_whole_text("x")).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    for (id, encoded) in [
        ("a/b", "a%2Fb"),
        ("a?b#c", "a%3Fb%23c"),
        ("100%", "100%25"),
        ("%2F", "%252F"),
        ("a+b", "a+b"),
        ("..", "%2E%2E"),
    ] {
        let answered = send(call(&relay, CHAT, false, id)).await;
        assert_eq!((answered.status, answered.header("rubicon-operation-id")), (200, id));
        let found = send(client(Http::One).get(format!("http://{}/v1/operations/{encoded}", relay.address()))).await;
        if id == ".." {
            continue; // a client's URL library resolves it before it is sent
        }
        assert_eq!((found.status, found.json()["operation_id"].as_str()), (200, Some(id)), "{}", found.text());
    }
    for unknown in ["none", "a%2Fbb", "A%2Fb"] {
        assert_eq!(get(&relay, &format!("/v1/operations/{unknown}")).await.status, 404);
    }
    let broken = get(&relay, "/v1/operations/%FF").await;
    assert!((400..500).contains(&broken.status), "{}", broken.status);
    let resume = get(&relay, "/v1/operations/a%2Fb/stream").await;
    assert_eq!((resume.status, resume.json()["error"]["code"].as_str()), (404, Some("not_built_yet")));
}

#[tokio::test]
async fn another_tenants_operation_is_unknown_and_models_are_ones_own() {
    let a = always(Answer::new().gate("go").then(chat_whole_text("x"))).await;
    let tables = "[[client]]\nname = \"red\"\nkeys = [\"env:RED\"]\nworkflows = [\"default\", \"other\"]\nshow_routes = true\n\
                  [[client]]\nname = \"blue\"\nkeys = [\"env:BLUE\"]\nworkflows = [\"default\"]\n\
                  [workflow.other]\nprimary = \"a\"\nmodels = [\"m-1\", \"m-2\"]\n";
    let (red, blue) = (format!("red-{}", "0".repeat(40)), format!("blue-{}", "0".repeat(40)));
    let env = [("RED", red.as_str()), ("BLUE", blue.as_str())].into_iter().collect();
    let relay = relay_with(&Setup::primary(a.base_url()).tables(tables).text(), &env).await;
    let waiting =
        tokio::spawn(send(call(&relay, CHAT, false, "op").bearer_auth(&red).header("rubicon-workflow", "default")));
    a.wait_for(|stats| stats.at_gates == 1).await;
    let at = |method: http::Method, path: &str| client(Http::One).request(method, url(&relay, path));
    for method in [http::Method::GET, http::Method::DELETE] {
        let answered = send(at(method.clone(), "/v1/operations/op").bearer_auth(&blue)).await;
        let json = answered.json();
        assert_eq!((answered.status, &json["error"]["code"]), (404, &json!("operation_not_found")), "{json}");
        let unknown = send(at(method.clone(), "/v1/operations/never").bearer_auth(&blue)).await.json();
        assert_eq!(json["error"], unknown["error"], "nothing tells them apart");
        assert_eq!(send(at(method, "/v1/operations/op")).await.status, 401, "and without a key nothing is told");
    }
    assert_eq!(a.disconnects(), 0, "nobody else can stop it");
    a.open_gate("go", 1);
    assert_eq!(waiting.await.unwrap().status, 200);
    let mine = send(at(http::Method::GET, "/v1/operations/op").bearer_auth(&red)).await.json();
    assert_eq!((&mine["state"], &mine["attempts"][0]["route"]), (&json!("completed"), &json!("a")));

    let models = async |key: &str| {
        let json = send(at(http::Method::GET, "/v1/models").bearer_auth(key)).await.json();
        assert_eq!(json["object"], "list");
        let data = json["data"].as_array().unwrap().clone();
        assert!(
            data.iter()
                .all(|model| model["object"] == "model" && model["created"].is_u64() && model["owned_by"].is_string())
        );
        data.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(models(&red).await, ["default", "m-1", "m-2"]);
    assert_eq!(models(&blue).await, ["default"]);
    assert_eq!(send(at(http::Method::GET, "/v1/models")).await.status, 401);
}

#[tokio::test]
async fn a_key_that_runs_again_is_a_new_operation_under_the_same_id() {
    let a = provider(Rule::new("a").answer(chat_text(&["again"]))).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    // What was refused before any call is no outcome, so the key runs again.
    let spent = send(call(&relay, CHAT, true, "op").header("rubicon-attempts-used", "9")).await;
    assert_eq!((spent.status, a.calls()), (424, 0));
    known_when(&relay, "op", |view| view["state"] == "failed").await;
    assert!(send(call(&relay, CHAT, true, "op")).await.clean);
    let view = known(&relay, "op").await;
    assert_eq!((&view["state"], view["attempts"].as_array().unwrap().len()), (&json!("completed"), 1));
}

#[tokio::test]
async fn alive_and_ready() {
    let a = always(chat_text(&["x"])).await;
    let tables = "[[client]]\nname = \"red\"\nkeys = [\"env:RED\"]\nworkflows = [\"default\"]\n";
    let red = format!("red-{}", "0".repeat(40));
    let relay =
        relay_with(&Setup::primary(a.base_url()).tables(tables).text(), &[("RED", red.as_str())].into_iter().collect())
            .await;
    for path in ["/healthz", "/readyz"] {
        let answered = get(&relay, path).await;
        assert_eq!((answered.status, answered.json()["status"].as_str()), (200, Some("ok")), "no key is asked for");
    }
    let missing = get(&relay, "/v1/nothing").await;
    assert_eq!((missing.status, missing.json()["error"]["code"].as_str()), (404, Some("not_found")));
    let wrong = get(&relay, "/v1/messages").await;
    assert_eq!(
        (wrong.status, wrong.json()["type"].as_str(), wrong.json()["error"]["code"].as_str()),
        (405, Some("error"), Some("method_not_allowed"))
    );
}

//! `POST /v1/operations/{id}/outcome`: the application's word, said once, shown, counted and written down.

use rubicon::mock::{Answer, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, client, path, relay, relay_with, request, send, url};
use crate::setup::{Setup, always};
use crate::watched::{Lines, sum};

const CHAT: Dialect = Dialect::ChatCompletions;

fn say(relay: &Server, id: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
    let request = client(Http::One).post(url(relay, &format!("/v1/operations/{id}/outcome")));
    request.header("content-type", "application/json").body(body)
}

async fn says(relay: &Server, id: &str, body: &Value) -> Answered {
    send(say(relay, id, body.to_string())).await
}

fn ask(relay: &Server, id: &str) -> reqwest::RequestBuilder {
    let request = client(Http::One).post(url(relay, path(CHAT))).header("content-type", "application/json");
    request.header("idempotency-key", id).body(self::request(CHAT, true))
}

#[tokio::test]
async fn said_once_and_repeated_at_will() {
    const KEY: &str = concat!("sk-", "proj-0123456789abcdefghij");
    let a = always(chat_text(&["fine"])).await;
    let lines = Lines::new();
    let relay = relay(&Setup::primary(a.base_url()).workflow("version = 4").tables(&lines.table()).text()).await;
    send(ask(&relay, "op")).await;
    let accepted = json!({"outcome": "accepted", "reason": format!("the refund was booked, key {KEY}")});
    let first = says(&relay, "op", &accepted).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let view = first.json();
    assert_eq!(view["outcome"]["outcome"], "accepted", "{view}");
    assert_eq!(view["outcome"]["reason"], accepted["reason"], "its own words, to its own client");
    assert!(
        view["outcome"]["at"].is_u64() && view.get("served_route").is_none() && view.get("workflow_version").is_none()
    );
    for again in [accepted.clone(), json!({"outcome": "accepted"}), json!({"outcome": "accepted", "reason": null})] {
        let answered = says(&relay, "op", &again).await;
        assert_eq!((answered.status, answered.json()["outcome"].clone()), (200, view["outcome"].clone()));
    }
    for other in [json!({"outcome": "rejected"}), json!({"outcome": "accepted", "reason": "another"})] {
        let answered = says(&relay, "op", &other).await;
        assert_eq!((answered.status, answered.json()["error"]["code"].as_str()), (409, Some("outcome_differs")));
    }
    let got = send(client(Http::One).get(url(&relay, "/v1/operations/op"))).await.json();
    assert_eq!(got["outcome"], view["outcome"]);
    let line = lines.of(&relay, "task", 1).await.remove(0);
    for (name, value) in [
        ("operation", json!("op")),
        ("workflow", json!("default")),
        ("workflow_version", json!(4)),
        ("route", json!("a")),
        ("client", json!("local")),
        ("outcome", json!("accepted")),
        ("success", json!({"task": true})),
    ] {
        assert_eq!(line[name], value, "{line}");
    }
    let reason = line["reason"].as_str().unwrap();
    assert!(reason.starts_with("the refund was booked") && !reason.contains("0123456789"), "{reason}");
    assert_eq!(sum(&relay, "rubicon_outcomes_total", &["workflow=\"default\"", "outcome=\"accepted\""]), 1.0);
    assert_eq!(sum(&relay, "rubicon_outcomes_total", &[]), 1.0);
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let a = always(chat_text(&["fine"])).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    send(ask(&relay, "op")).await;
    let long = "x".repeat(1025);
    let rows = [
        ("", 400, "invalid_json", json!(null)),
        ("[]", 400, "invalid_json", json!(null)),
        ("{}", 400, "invalid_member", json!("outcome")),
        (r#"{"outcome":"accepted","outcome":"rejected"}"#, 400, "invalid_member", json!("outcome")),
        (r#"["accepted",null]"#, 400, "invalid_json", json!(null)),
        (r#"{"outcome":"maybe"}"#, 400, "invalid_member", json!("outcome")),
        (r#"{"outcome":true}"#, 400, "invalid_member", json!("outcome")),
        (r#"{"outcome":"rejected","reason":7}"#, 400, "invalid_member", json!("reason")),
        (&format!(r#"{{"outcome":"rejected","reason":"{long}"}}"#), 400, "invalid_member", json!("reason")),
        (r#"{"outcome":"rejected","why":"x"}"#, 400, "unknown_member", json!("why")),
        (&" ".repeat(20_000), 413, "request_too_large", json!(null)),
    ];
    for (body, status, code, param) in rows {
        let answered = send(say(&relay, "op", body.to_owned())).await;
        let json = answered.json();
        assert_eq!(
            (answered.status, &json["error"]["code"], &json["error"]["param"]),
            (status, &json!(code), &param),
            "{json}"
        );
    }
    let text = client(Http::One).post(url(&relay, "/v1/operations/op/outcome")).header("content-type", "text/plain");
    assert_eq!(send(text.body("{}")).await.status, 415);
    assert_eq!(says(&relay, "nobody", &json!({"outcome": "accepted"})).await.status, 404);
    let get = send(client(Http::One).get(url(&relay, "/v1/operations/op/outcome"))).await;
    assert_eq!(get.status, 405);
    let view = send(client(Http::One).get(url(&relay, "/v1/operations/op"))).await.json();
    assert!(view.get("outcome").is_none(), "{view}");
    let fits = json!({"outcome": "rejected", "reason": "é".repeat(512)});
    assert_eq!(says(&relay, "op", &fits).await.status, 200);
}

#[tokio::test]
async fn while_it_runs_it_has_no_outcome() {
    let a = always(Answer::new().gate("go").then(chat_text(&["fine"]))).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    let running = tokio::spawn(send(ask(&relay, "op")));
    a.wait_for(|stats| stats.at_gates == 1).await;
    let answered = says(&relay, "op", &json!({"outcome": "accepted"})).await;
    assert_eq!((answered.status, answered.json()["error"]["code"].as_str()), (409, Some("still_running")));
    a.open_gate("go", 1);
    running.await.unwrap();
    assert_eq!(says(&relay, "op", &json!({"outcome": "accepted"})).await.status, 200);
}

#[tokio::test]
async fn another_tenant_knows_nothing_of_it_and_a_client_of_the_same_may_say_it() {
    let a = always(chat_text(&["fine"])).await;
    let mut clients = String::new();
    for (name, tenant, key) in [("web", "one", "WEB"), ("worker", "one", "WORKER"), ("other", "two", "OTHER")] {
        clients += &format!(
            "[[client]]\nname = \"{name}\"\ntenant = \"{tenant}\"\nkeys = [\"env:{key}\"]\nworkflows = [\"default\"]\n"
        );
    }
    let env = [("WEB", "key-of-web"), ("WORKER", "key-of-worker"), ("OTHER", "key-of-other")];
    let lines = Lines::new();
    let text = Setup::primary(a.base_url()).tables(&clients).tables(&lines.table()).text();
    let relay = relay_with(&text, &env.into()).await;
    send(ask(&relay, "op").header("x-api-key", "key-of-web")).await;
    let word = json!({"outcome": "rejected"}).to_string();
    assert_eq!(send(say(&relay, "op", word.clone())).await.status, 401);
    assert_eq!(send(say(&relay, "op", word.clone()).header("x-api-key", "key-of-other")).await.status, 404);
    assert_eq!(send(say(&relay, "op", word).header("x-api-key", "key-of-worker")).await.status, 200);
    let line = lines.of(&relay, "task", 1).await.remove(0);
    assert_eq!(
        (&line["client"], &line["tenant"], &line["success"]["task"]),
        (&json!("worker"), &json!("one"), &json!(false))
    );
}

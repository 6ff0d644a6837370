//! What the caller of a failed operation is told.

use rubicon::classify::Class;
use rubicon::mock::{Answer, Rule, chat_text};
use rubicon::protocol::Dialect;
use serde_json::json;

use super::assert_refused;
use crate::harness::{Answered, Http, client, path, post, provider, relay, relay_with, request, send, url};
use crate::setup::{Setup, always, error, limited, overloaded, server_error};

const CHAT: Dialect = Dialect::ChatCompletions;
const MESSAGES: Dialect = Dialect::AnthropicMessages;

async fn once(dialect: Dialect, answer: Answer, server: &str) -> Answered {
    let a = always(answer).await;
    let setup = Setup::primary(a.base_url()).server(server).workflow("envelope = { max_attempts = 1 }");
    let answered = post(&client(Http::One), &relay(&setup.text()).await, path(dialect), request(dialect, true)).await;
    assert_eq!(a.calls(), 1);
    answered
}

#[tokio::test]
async fn a_spent_budget_is_424_with_the_providers_status_and_its_wait() {
    // (answer, class, provider's status, error type and code, wait in ms, Retry-After)
    let rows = [
        (overloaded(), Class::ProviderOverloaded, 503, json!({"type":"overloaded_error","code":null}), None, ""),
        (server_error(), Class::ProviderServerError, 500, json!({"type":"server_error","code":null}), None, ""),
        (
            limited("retry-after", "7"),
            Class::RateLimited,
            429,
            json!({"type":"requests","code":"rate_limit_exceeded"}),
            Some(7000),
            "7",
        ),
        (
            limited("retry-after-ms", "1200"),
            Class::RateLimited,
            429,
            json!({"type":"requests","code":"rate_limit_exceeded"}),
            Some(1200),
            "2",
        ),
        (
            Answer::new().head(502, &[("retry-after", "3")]),
            Class::ProviderServerError,
            502,
            json!(null),
            Some(3000),
            "3",
        ),
    ];
    for (answer, class, status, said, wait, header) in rows {
        for dialect in [CHAT, MESSAGES] {
            let what = format!("{class:?} {dialect:?}");
            let answered = once(dialect, answer.clone(), "").await;
            assert_refused(&answered, class, 1, &what);
            let rubicon = &answered.json()["rubicon"];
            assert_eq!(answered.status, 424, "{what}");
            assert_eq!(rubicon["status"], "unavailable", "{what}");
            assert_eq!(rubicon["reason"], "attempts_exhausted", "{what}");
            assert_eq!(rubicon["retryable"], true, "{what}");
            assert_eq!(rubicon["provider_status"], status, "{what}");
            assert_eq!(rubicon["provider_error"], said, "{what}: {rubicon}");
            assert_eq!(rubicon["retry_after_ms"].as_u64(), wait, "{what}");
            assert_eq!(answered.header("retry-after"), header, "{what}");
            assert_eq!(rubicon.get("refused"), None, "{what}");
            // SDKs answer this word with retries of their own (STREAMS.md 2.4).
            assert_ne!(answered.json()["error"]["type"], "overloaded_error", "{what}");
        }
    }
}

#[tokio::test]
async fn the_status_of_a_spent_budget_is_configurable() {
    let answered = once(CHAT, overloaded(), "exhausted_status = 599").await;
    assert_eq!((answered.status, answered.header("x-should-retry")), (599, "false"));
    // A rejection of the request itself keeps its own.
    let rejected = Answer::json_error(422, error("no", "invalid_request_error", json!("bad_thing")));
    assert_eq!(once(CHAT, rejected, "exhausted_status = 599").await.status, 422);
}

#[tokio::test]
async fn a_rejection_passes_the_providers_words_with_keys_masked() {
    let key = format!("sk-{}", "proj-a1B2c3D4".repeat(3));
    let body = json!({ "error": {
        "message": format!("`temperature` is not supported with {key}."), "type": "invalid_request_error",
        "param": "temperature", "code": "unsupported_parameter" } });
    for status in [400, 404, 413, 422] {
        let answered = once(CHAT, Answer::json_error(status, body.clone()), "").await;
        let json = answered.json();
        assert_eq!(answered.status, status, "{json}");
        assert_eq!(json["error"]["type"], "invalid_request_error");
        assert_eq!(json["error"]["param"], "temperature");
        assert_eq!(json["error"]["code"], "unsupported_parameter");
        let message = json["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("`temperature` is not supported with ") && !message.contains("a1B2c3D4"),
            "{message}"
        );
        assert_eq!(
            (&json["rubicon"]["status"], &json["rubicon"]["class"]),
            (&json!("rejected"), &json!("invalid_request"))
        );
        assert_eq!(
            json["rubicon"]["provider_error"],
            json!({"type":"invalid_request_error","code":"unsupported_parameter"})
        );
    }
    // Inside a 200 it counts as 400.
    let answered = once(CHAT, Answer::sse().text(&format!("data: {body}\n\n")), "").await;
    assert_eq!((answered.status, answered.json()["rubicon"]["provider_status"].as_u64()), (400, Some(400)));
    // Anthropic's shape stays Anthropic's.
    let body = json!({"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: required"}});
    let answered = once(MESSAGES, Answer::json_error(400, body), "").await;
    assert_eq!(answered.status, 400);
    assert_eq!(answered.json()["type"], "error");
    assert_eq!(answered.json()["error"], json!({"type":"invalid_request_error","message":"max_tokens: required"}));
}

#[tokio::test]
async fn an_unreadable_error_body_is_not_passed_on() {
    let answer = Answer::new()
        .head(400, &[("content-type", "application/json"), ("content-encoding", "gzip")])
        .text("\u{1f}\u{8b}\u{8}\u{0}\u{0}\u{3}garbage");
    let answered = once(CHAT, answer, "").await;
    assert_eq!(answered.status, 400);
    let message = answered.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(!message.contains("garbage") && message.chars().all(|c| !c.is_control()), "{message:?}");
}

#[tokio::test]
async fn refusals_and_routes_are_for_those_who_may_see_them() {
    let a = provider(Rule::new("a").answer(overloaded()).answer(overloaded()).answer(chat_text(&["from a"]))).await;
    let b = always(chat_text(&["never"])).await;
    let clients = "[[client]]\nname = \"seer\"\nkeys = [\"env:SEER\"]\nworkflows = [\"default\"]\nshow_routes = true\n\
                   [[client]]\nname = \"blind\"\nkeys = [\"env:BLIND\"]\nworkflows = [\"default\"]";
    let setup = Setup::primary(a.base_url())
        .equivalent("b", &b)
        .unapproved()
        .alternate("x", &b)
        .failover("enabled = true")
        .workflow("envelope = { max_attempts = 1 }")
        .tables(clients);
    let (seer, blind) = (format!("seer-{}", "0".repeat(40)), format!("blind-{}", "0".repeat(40)));
    let env = [("SEER", seer.as_str()), ("BLIND", blind.as_str())].into_iter().collect();
    let relay = relay_with(&setup.text(), &env).await;
    let client = client(Http::One);
    let ask = async |key: &str| {
        let request = client.post(url(&relay, path(CHAT))).bearer_auth(key).header("content-type", "application/json");
        send(request.body(self::request(CHAT, true))).await
    };
    let seen = ask(&seer).await.json();
    assert_eq!(
        seen["rubicon"]["refused"],
        json!([{ "route": "b", "why": "approval_missing" }, { "route": "x", "why": "cross_model_disabled" }]),
        "{seen}"
    );
    assert_eq!(ask(&blind).await.json()["rubicon"].get("refused"), None);
    assert_eq!(ask(&seer).await.header("rubicon-served-route"), "a");
    assert_eq!(ask(&blind).await.header("rubicon-served-route"), "");
    assert_eq!(b.calls(), 0);
}

#[tokio::test]
async fn where_keep_alives_spent_the_status_it_is_told_in_the_frame() {
    let a = always(Answer::new().delay_ms(400).then(overloaded())).await;
    let setup =
        Setup::primary(a.base_url()).workflow("hold = { keepalive_after_ms = 50 }\nenvelope = { max_attempts = 1 }");
    let relay = relay(&setup.text()).await;
    for dialect in [CHAT, MESSAGES] {
        let answered = post(&client(Http::One), &relay, path(dialect), request(dialect, true)).await;
        assert_eq!((answered.status, answered.clean), (200, false), "{}", answered.text());
        let frame = answered.last_event();
        let rubicon = if dialect == CHAT { &frame["error"]["rubicon"] } else { &frame["rubicon"] };
        assert_eq!((&rubicon["status"], &rubicon["would_be_status"]), (&json!("unavailable"), &json!(424)), "{frame}");
        assert_eq!(rubicon["class"], "provider_overloaded");
        assert_eq!(rubicon["attempts"], 1);
        for early in ["rubicon-attempts", "rubicon-recovery", "rubicon-served-route"] {
            assert_eq!(answered.header(early), "", "not known when the head went out");
        }
        if dialect == CHAT {
            assert_eq!(frame["error"]["code"], 424);
        }
    }
}

//! Without streaming: the same engine, the whole answer read and accepted before its first byte goes out. And idempotency keys: one
//! operation, one outcome (SPEC Annex, Idempotency).

mod keys;

use rubicon::classify::Class;
use rubicon::mock::{Answer, AutoDialect, Rule, anthropic_whole_text, chat_whole_text};
use rubicon::protocol::Dialect;
use serde_json::json;

use crate::harness::{Answered, Http, client, path, post, provider, recordings, relay, request};
use crate::setup::{Setup, always, error, overloaded, server_error};

const CHAT: Dialect = Dialect::ChatCompletions;
const MESSAGES: Dialect = Dialect::AnthropicMessages;

fn auto(dialect: Dialect, text: &str) -> Answer {
    let dialect = match dialect {
        Dialect::ChatCompletions => AutoDialect::ChatCompletions,
        Dialect::AnthropicMessages => AutoDialect::AnthropicMessages,
        Dialect::Responses => AutoDialect::Responses,
    };
    Answer::auto(dialect, &[text])
}

/// An answer of one's own bytes.
fn json_bytes(body: &str) -> Answer {
    Answer::new()
        .head(200, &[("content-type", "application/json; charset=utf-8"), ("x-request-id", "req_7")])
        .text(body)
}

#[tokio::test]
async fn a_whole_answer_passes_byte_for_byte() {
    // White space, order, doubles, escapes and unknown members as they came; and what some providers send to keep a line alive.
    let odd = "\n\n  {\"z\":1.0e0, \"id\" : \"x\",\"choices\":[ {\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"caf\\u00e9 ✓\"},\
               \"finish_reason\":\"stop\",\"z\":{} } ],\"object\":\"chat.completion\", \"z\":2 }\r\n ";
    for http in [Http::One, Http::Two] {
        let a = always(json_bytes(odd)).await;
        let relay = relay(&Setup::primary(a.base_url()).text()).await;
        let answered = post(&client(http), &relay, path(CHAT), request(CHAT, false)).await;
        assert_eq!((answered.status, answered.text()), (200, odd));
        assert_eq!(answered.header("content-type"), "application/json; charset=utf-8");
        assert_eq!(answered.header("rubicon-provider-request-id"), "req_7");
        assert_eq!((answered.header("rubicon-attempts"), answered.header("rubicon-recovery")), ("1", "none"));
        assert_eq!((answered.header("cache-control"), answered.header("x-should-retry")), ("no-store", ""));
        if http == Http::One {
            assert_eq!(answered.header("content-length"), odd.len().to_string(), "it is known, so it is told");
        }
    }
}

#[tokio::test]
async fn recorded_whole_answers_pass_byte_for_byte() {
    let mut seen = 0;
    for folder in ["errors", "chat-completions"] {
        for recording in recordings(folder) {
            let whole = recording.status == 200 && recording.body.trim_ascii_start().starts_with(b"{");
            // One JSON document, and an answer: the rest of these folders are streams and errors.
            let Ok(value) = serde_json::from_slice::<serde_json::Value>(&recording.body) else { continue };
            if !whole || value["choices"][0]["finish_reason"].is_null() {
                continue;
            }
            let a = always(Answer::new().recording(&recording.path)).await;
            let relay = relay(&Setup::primary(a.base_url()).text()).await;
            let answered = post(&client(Http::One), &relay, path(CHAT), request(CHAT, false)).await;
            assert_eq!(answered.status, 200, "{}: {}", recording.name, answered.text());
            assert!(answered.body == recording.body, "{}", recording.name);
            seen += 1;
        }
    }
    eprintln!("{seen} recorded whole answers");
    if !recordings("errors").is_empty() {
        assert!(seen >= 2, "openrouter's keep-alive white space and azure's content filter at least");
    }
}

#[tokio::test]
async fn an_invalid_answer_is_a_broken_contract_and_shows_nothing() {
    let choice = json!({"index":0,"message":{"role":"assistant","content":"NO"},"finish_reason":"stop"});
    let rows = [
        (CHAT, "{}".to_owned()),
        (CHAT, "[]".to_owned()),
        (CHAT, "\"NO\"".to_owned()),
        (CHAT, json!({"choices": []}).to_string()),
        (CHAT, json!({"choices": "NO"}).to_string()),
        (
            CHAT,
            json!({"choices": [{"index":0,"message":{"content":""},"finish_reason":null}], "note": "NO"}).to_string(),
        ),
        (CHAT, json!({"choices": [choice]}).to_string() + "trailing"),
        (CHAT, json!({"choices": [choice]}).to_string().replace("\"stop\"", "\"stop")),
        (CHAT, "<html>NO</html>".to_owned()),
        (MESSAGES, json!({"type":"message","content":"NO","stop_reason":"end_turn"}).to_string()),
        (MESSAGES, json!({"type":"message","content":[],"stop_reason":null}).to_string()),
        (MESSAGES, json!({"type":"completion","content":[],"stop_reason":"end_turn"}).to_string()),
    ];
    for (dialect, body) in rows {
        let (a, b) = (always(json_bytes(&body)).await, always(auto(dialect, "from b")).await);
        let relay_two = relay(&Setup::primary(a.base_url()).equivalent("b", &b).text()).await;
        let answered = post(&client(Http::One), &relay_two, path(dialect), request(dialect, false)).await;
        assert!(answered.text().contains("from b") && !answered.text().contains("NO"), "{body}: {}", answered.text());
        assert_eq!((a.calls(), b.calls()), (1, 1), "{body}");
        // Alone: never twice at one provider.
        let relay_one = relay(&Setup::primary(a.base_url()).text()).await;
        let answered = post(&client(Http::One), &relay_one, path(dialect), request(dialect, false)).await;
        let json = answered.json();
        assert_eq!((answered.status, &json["rubicon"]["class"]), (424, &json!("contract_failure")), "{body}: {json}");
        assert!(!answered.text().contains("NO answer") && a.calls() == 2, "{body}");
    }
}

#[tokio::test]
async fn a_whole_answer_has_a_bound() {
    // 65 MiB of white space that would have become an answer.
    let mebibyte = " ".repeat(1 << 20);
    let endless = Answer::new()
        .head(200, &[("content-type", "application/json")])
        .repeat(65, Answer::new().text(&mebibyte))
        .hang();
    let (a, b) = (always(endless).await, always(chat_whole_text("from b")).await);
    let relay = relay(&Setup::primary(a.base_url()).equivalent("b", &b).text()).await;
    let answered = post(&client(Http::One), &relay, path(CHAT), request(CHAT, false)).await;
    assert!(answered.text().contains("from b"), "{}", answered.text().trim());
    a.wait_for(|stats| stats.disconnects == 1).await;
}

#[tokio::test]
async fn whole_answers_recover_like_streams() {
    for dialect in [CHAT, MESSAGES] {
        let rule = Rule::new("a").answer(overloaded()).answer(server_error()).answer(auto(dialect, "from a"));
        let (a, b) = (provider(rule).await, always(auto(dialect, "from b")).await);
        let relay_two = relay(&Setup::primary(a.base_url()).equivalent("b", &b).text()).await;
        let first = post(&client(Http::One), &relay_two, path(dialect), request(dialect, false)).await;
        assert!(first.text().contains("from b"));
        assert_eq!((first.header("rubicon-recovery"), first.header("rubicon-attempts")), ("equivalent_failover", "2"));
        assert_eq!((a.calls(), b.calls()), (1, 1));
        // Alone it is tried again.
        let relay_one = relay(&Setup::primary(a.base_url()).text()).await;
        let again = post(&client(Http::One), &relay_one, path(dialect), request(dialect, false)).await;
        assert!(again.text().contains("from a"));
        assert_eq!((again.header("rubicon-recovery"), again.header("rubicon-attempts")), ("retry", "2"));
    }
}

#[tokio::test]
async fn counting_tokens_is_an_answer_like_any_other() {
    let counted = json!({ "input_tokens": 14 });
    let rule = |name: &str| Rule::new(name).path("/v1/messages/count_tokens");
    let a = provider(rule("a").answer(overloaded()).answer(Answer::json(200, json!({ "tokens": "NO" })))).await;
    let b = provider(rule("b").answer(Answer::json(200, counted.clone()))).await;
    let relay = relay(&Setup::primary(a.base_url()).equivalent("b", &b).text()).await;
    // `max_tokens` is not asked for here, and `stream` means nothing.
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    for calls in 1..=2 {
        let answered = post(&client(Http::One), &relay, "/v1/messages/count_tokens?beta=true", body).await;
        assert_eq!((answered.status, answered.json()), (200, counted.clone()), "overload, then a broken contract");
        assert_eq!(answered.header("rubicon-recovery"), "equivalent_failover");
        assert_eq!((a.calls(), b.calls()), (calls, calls));
    }
    assert_eq!(b.requests()[0].query, "beta=true");
    let refused = Answer::json_error(
        400,
        json!({"type":"error","error":{"type":"invalid_request_error","message":"messages: required"}}),
    );
    let a = always(refused).await;
    let relay = crate::harness::relay(&Setup::primary(a.base_url()).equivalent("b", &b).text()).await;
    let answered = post(&client(Http::One), &relay, "/v1/messages/count_tokens", body).await;
    assert_eq!((answered.status, answered.json()["error"]["message"].as_str()), (400, Some("messages: required")));
    assert_eq!(b.calls(), 2);
}

#[tokio::test]
async fn a_blocked_class_is_one_call_here_too() {
    let quota = error("You exceeded your current quota", "insufficient_quota", json!("insufficient_quota"));
    let (a, b) = (always(Answer::json_error(429, quota)).await, always(anthropic_whole_text("from b")).await);
    let relay = relay(&Setup::primary(a.base_url()).equivalent("b", &b).text()).await;
    let answered: Answered = post(&client(Http::One), &relay, path(MESSAGES), request(MESSAGES, false)).await;
    assert_eq!(answered.json()["rubicon"]["class"], serde_json::to_value(Class::QuotaExhausted).unwrap());
    assert_eq!((a.calls(), b.calls()), (1, 0));
}

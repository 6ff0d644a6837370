//! What one operation may spend: attempts of all layers, time, added latency, money, and the wait that a provider asks for.
//! Further: `budgets/timers.rs` (each timer is its own), `budgets/unanswered.rs` (what may have run is not run twice).

mod timers;
mod unanswered;

use std::time::{Duration, SystemTime};

use rubicon::mock::{Answer, MockProvider, Rule, anthropic, anthropic_text, chat_text, chat_whole_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, client, path, post, provider, relay, request, send, url};
use crate::setup::{Setup, always, limited, overloaded, refused_base, server_error};

const CHAT: Dialect = Dialect::ChatCompletions;
const MESSAGES: Dialect = Dialect::AnthropicMessages;

/// Posts a small chat request with headers of one's own.
async fn ask(relay: &Server, stream: bool, headers: &[(&str, &str)]) -> Answered {
    ask_body(relay, request(CHAT, stream), headers).await
}

async fn ask_body(relay: &Server, body: String, headers: &[(&str, &str)]) -> Answered {
    let mut request = client(Http::One).post(url(relay, path(CHAT))).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(request.body(body)).await
}

#[track_caller]
fn assert_reason(answered: &Answered, reason: &str, attempts: u64) -> Value {
    let json = answered.json();
    assert_eq!(answered.status, 424, "{json}");
    assert_eq!(
        (&json["rubicon"]["reason"], &json["rubicon"]["attempts"]),
        (&json!(reason), &json!(attempts)),
        "{json}"
    );
    assert_eq!(json["error"]["code"], reason, "{json}");
    assert_eq!(answered.header("x-should-retry"), "false");
    json
}

#[track_caller]
fn assert_from(answered: &Answered, who: &str, recovery: &str) {
    assert!(answered.clean && answered.status == 200, "{}", answered.text());
    assert!(answered.text().contains(&format!("from {who}")), "{}", answered.text());
    assert_eq!(answered.header("rubicon-recovery"), recovery);
}

#[tokio::test]
async fn attempts_are_counted_and_headers_can_only_tighten_them() {
    for stream in [true, false] {
        let a = always(overloaded()).await;
        let setup = Setup::primary(a.base_url()).workflow("envelope = { max_attempts = 3 }");
        let relay = relay(&setup.text()).await;
        for (header, calls) in [(None, 3), (Some("1"), 1), (Some("2"), 2), (Some("9"), 3)] {
            let before = a.calls();
            let headers: Vec<_> = header.into_iter().map(|max| ("rubicon-max-attempts", max)).collect();
            assert_reason(&ask(&relay, stream, &headers).await, "attempts_exhausted", calls);
            assert_eq!(a.calls() - before, calls, "{header:?}");
        }
    }
}

#[tokio::test]
async fn attempts_of_the_layers_above_count() {
    let a = always(overloaded()).await;
    let relay = relay(&Setup::primary(a.base_url()).workflow("envelope = { max_attempts = 3 }").text()).await;
    for (headers, calls) in [
        (&[("rubicon-attempts-used", "1")][..], 2),
        (&[("rubicon-attempts-used", "2")], 1),
        (&[("x-stainless-retry-count", "0")], 3),
        (&[("x-stainless-retry-count", "2")], 1),
        (&[("rubicon-attempts-used", "1"), ("x-stainless-retry-count", "1")], 1),
        (&[("rubicon-attempts-used", "3")], 0),
        (&[("rubicon-attempts-used", "4294967295"), ("x-stainless-retry-count", "1")], 0),
        (&[("x-stainless-retry-count", "3")], 0),
        (&[("rubicon-attempts-used", "1"), ("rubicon-max-attempts", "1")], 0),
    ] {
        for stream in [true, false] {
            let before = a.calls();
            let answered = ask(&relay, stream, headers).await;
            let json = assert_reason(&answered, "attempts_exhausted", calls);
            assert_eq!(a.calls() - before, calls, "{headers:?}");
            assert_eq!(json["rubicon"].get("class").is_some(), calls > 0, "{json}");
        }
    }
    for bad in ["x", "-1", "1.5", ""] {
        let answered = ask(&relay, true, &[("rubicon-attempts-used", bad)]).await;
        assert_eq!((answered.status, &answered.json()["error"]["code"]), (400, &json!("invalid_header")), "{bad:?}");
    }
}

#[tokio::test]
async fn attempts_of_a_gateway_below_count() {
    for (told, calls) in [("3", 1), ("2", 2), ("1", 3), ("0", 3), ("many", 3)] {
        for answer in [overloaded(), Answer::sse()] {
            let mut answer = answer;
            if answer.steps.is_empty() {
                answer = Answer::new().head(200, &[("content-type", "text/event-stream")]);
            }
            let a = always(answer.header("x-gateway-attempts", told)).await;
            let setup = Setup::primary(a.base_url())
                .with_provider("attempts_header = \"x-gateway-attempts\"")
                .workflow("envelope = { max_attempts = 3 }");
            assert_reason(&ask(&relay(&setup.text()).await, true, &[]).await, "attempts_exhausted", calls);
            assert_eq!(a.calls(), calls, "{told}");
        }
    }
}

#[tokio::test]
async fn a_short_wait_that_was_asked_for_is_waited_for_on_the_same_route() {
    // A date is made just before it is sent: whole seconds, so up to one of them is left.
    let soon = || {
        let seconds = rubicon::clock::UnixMillis::now().0 / 1000 + 1;
        httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    };
    for (header, value) in
        [("retry-after-ms", "30"), ("retry-after", "0"), ("retry-after", "0.05"), ("retry-after", "a date")]
    {
        for stream in [true, false] {
            let value = if value == "a date" { soon() } else { value.to_owned() };
            let rule = Rule::new("a").answer(limited(header, &value));
            let rule = rule.answer(if stream { chat_text(&["from a"]) } else { chat_whole_text("from a") });
            let (a, b) = (provider(rule).await, always(chat_text(&["from b"])).await);
            let setup = Setup::primary(a.base_url()).equivalent("b", &b);
            // "Under a second": a date may be exactly one away.
            let setup =
                if value.ends_with("GMT") { setup.failover("enabled = true, wait_first_ms = 1500") } else { setup };
            let relay = relay(&setup.text()).await;
            assert_from(&ask(&relay, stream, &[]).await, "a", "retry");
            assert_eq!((a.calls(), b.calls()), (2, 0), "{header}: {value}");
        }
    }
}

#[tokio::test]
async fn a_longer_wait_or_none_goes_to_the_equivalent_at_once() {
    let none =
        || Answer::json_error(429, json!({"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}));
    for answer in [limited("retry-after", "20"), limited("retry-after", "1"), limited("retry-after", "soon"), none()] {
        let (a, b) = (always(answer).await, always(chat_text(&["from b"])).await);
        let relay = relay(&Setup::primary(a.base_url()).equivalent("b", &b).text()).await;
        let began = tokio::time::Instant::now();
        assert_from(&ask(&relay, true, &[]).await, "b", "equivalent_failover");
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!((a.calls(), b.calls()), (1, 1));
    }
    // `wait_first_ms` moves the border.
    let rule = Rule::new("a").answer(limited("retry-after-ms", "1100")).answer(chat_text(&["from a"]));
    let (a, b) = (provider(rule).await, always(chat_text(&["from b"])).await);
    let setup = Setup::primary(a.base_url()).equivalent("b", &b).failover("enabled = true, wait_first_ms = 1500");
    assert_from(&ask(&relay(&setup.text()).await, true, &[]).await, "a", "retry");
    assert_eq!(b.calls(), 0);
}

#[tokio::test]
async fn with_nobody_else_a_wait_is_obeyed_whatever_its_form() {
    let in_two = rubicon::clock::UnixMillis::now().0 / 1000 + 3;
    let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(in_two));
    let google = || {
        let detail = json!({"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.1s"});
        Answer::json_error(
            429,
            json!({"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Resource has been exhausted","details":[detail]}}),
        )
    };
    let rows = [
        ("seconds", limited("retry-after", "1"), 990),
        ("a date", limited("retry-after", &date), 200),
        ("milliseconds win over seconds", limited("retry-after", "3600").header("retry-after-ms", "1100"), 1090),
        ("RetryInfo", google(), 1090),
        (
            "a reset header",
            limited("x-ratelimit-reset-requests", "1100ms").header("x-ratelimit-remaining-requests", "0"),
            1090,
        ),
        ("an invalid hint does not exist", limited("retry-after", "-5"), 0),
    ];
    futures_util::future::join_all(rows.map(async |(what, answer, at_least)| {
        let a = provider(Rule::new("a").answer(answer).answer(chat_text(&["from a"]))).await;
        let relay = relay(&Setup::primary(a.base_url()).text()).await;
        assert_from(&ask(&relay, true, &[]).await, "a", "retry");
        let seen = a.requests();
        let gap = seen[1].at - seen[0].at;
        assert!(gap >= Duration::from_millis(at_least), "{what}: {gap:?}");
        assert!(gap < Duration::from_secs(20), "{what}: {gap:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_ends_it_at_once() {
    for stream in [true, false] {
        let a = always(limited("retry-after", "3600")).await;
        let relay = relay(&Setup::primary(a.base_url()).text()).await;
        let began = tokio::time::Instant::now();
        let answered = ask(&relay, stream, &[("rubicon-deadline-ms", "30000")]).await;
        assert!(began.elapsed() < Duration::from_secs(10), "nothing is waited for");
        let json = assert_reason(&answered, "deadline_exhausted", 1);
        assert_eq!(
            (&json["rubicon"]["class"], &json["rubicon"]["provider_status"]),
            (&json!("deadline_exhausted"), &json!(429))
        );
        assert_eq!((&json["rubicon"]["retry_after_ms"], answered.header("retry-after")), (&json!(3_600_000), "3600"));
        assert_eq!(a.calls(), 1);
    }
}

#[tokio::test]
async fn added_latency_is_bounded() {
    for (max, who) in [(100, None), (60_000, Some("b"))] {
        let (a, b) =
            (always(Answer::new().delay_ms(400).then(overloaded())).await, always(chat_text(&["from b"])).await);
        let setup = Setup::primary(a.base_url())
            .equivalent("b", &b)
            .workflow(&format!("envelope = {{ max_added_latency_ms = {max} }}"));
        let answered = ask(&relay(&setup.text()).await, true, &[]).await;
        match who {
            Some(who) => assert_from(&answered, who, "equivalent_failover"),
            None => drop(assert_reason(&answered, "added_latency_exhausted", 1)),
        }
        assert_eq!((a.calls(), b.calls()), (1, u64::from(who.is_some())));
    }
    // The accepted attempt's own time does not count, however long it takes.
    let a = always(Answer::new().delay_ms(400).then(chat_text(&["from a"]))).await;
    let setup = Setup::primary(a.base_url()).workflow("envelope = { max_added_latency_ms = 100 }");
    assert_from(&ask(&relay(&setup.text()).await, true, &[]).await, "a", "none");
}

/// 0.1 dollars a request that asks for 100 tokens.
const PRICE: &str = "price = { input = 0, output = 1000 }";

async fn priced(a: &MockProvider, b: &MockProvider, max_cost: &str) -> Server {
    let setup = Setup::primary(a.base_url())
        .with_route(PRICE)
        .equivalent("b", b)
        .with_route(PRICE)
        .workflow(&format!("envelope = {{ max_cost_usd = {max_cost} }}"));
    relay(&setup.text()).await
}

#[tokio::test]
async fn cost_is_reserved_and_settled() {
    let body = |stream: bool| request(CHAT, stream).replace("\"stream\"", "\"max_tokens\":100,\"stream\"");
    let used = |tokens: u64| json!({"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens});
    // A whole answer that breaks the contract and says what it cost.
    let broken = |tokens: u64| Answer::json(200, json!({"id":"x","choices":[],"usage": used(tokens)}));
    let rows = [
        ("not known: it counts as its estimate", true, server_error(), "0.15", false),
        ("both estimates fit", true, server_error(), "0.2", true),
        ("proved not to have run", true, overloaded(), "0.1", true),
        ("told: 10 tokens", false, broken(10), "0.15", true),
        ("told: 60 tokens", false, broken(60), "0.15", false),
    ];
    for (what, stream, answer, max_cost, goes_on) in rows {
        let b = always(if stream { chat_text(&["from b"]) } else { chat_whole_text("from b") }).await;
        let a = always(answer).await;
        let answered = ask_body(&priced(&a, &b, max_cost).await, body(stream), &[]).await;
        assert_eq!((a.calls(), b.calls()), (1, u64::from(goes_on)), "{what}: {}", answered.text());
        if goes_on {
            assert_from(&answered, "b", "equivalent_failover");
        } else {
            assert_reason(&answered, "cost_exhausted", 1);
        }
    }
    // Connections that never were cost nothing.
    let b = always(chat_text(&["from b"])).await;
    let setup = Setup::primary(refused_base().await)
        .with_route(PRICE)
        .equivalent("b", &b)
        .with_route(PRICE)
        .workflow("envelope = { max_cost_usd = 0.1 }");
    assert_from(&ask_body(&relay(&setup.text()).await, body(true), &[]).await, "b", "equivalent_failover");
    // What does not even fit once is refused without a call.
    let a = always(chat_text(&["from a"])).await;
    let json = assert_reason(&ask_body(&priced(&a, &b, "0.09").await, body(true), &[]).await, "cost_exhausted", 0);
    assert_eq!(json["rubicon"].get("class"), None);
    assert_eq!(a.calls(), 0);
    // `n` choices cost n times as much.
    let thrice = body(true).replace("\"stream\"", "\"n\":3,\"stream\"");
    assert_reason(&ask_body(&priced(&a, &b, "0.29").await, thrice, &[]).await, "cost_exhausted", 0);
}

#[tokio::test]
async fn a_count_that_is_only_the_beginning_settles_nothing() {
    // Anthropic's `message_start` has `output_tokens: 1` of an answer that went on: unknown, so it counts as its estimate.
    let start = Answer::sse().step(anthropic::message_start()).step(anthropic::error("api_error", "Internal error"));
    let (a, b) = (always(start).await, always(anthropic_text(&["from b"])).await);
    let body = request(MESSAGES, true).replace("\"max_tokens\":64", "\"max_tokens\":100");
    let relay = priced(&a, &b, "0.15").await;
    let answered = post(&client(Http::One), &relay, path(MESSAGES), body).await;
    let json = answered.json();
    assert_eq!(json["rubicon"]["reason"], "cost_exhausted", "{json}");
    assert_eq!((a.calls(), b.calls()), (1, 0));
}

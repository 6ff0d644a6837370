//! A client that leaves is noticed at once, also while nothing moves: its upstream is cancelled, its permit comes back, its
//! record says so, and nothing is tried again for nobody.

use std::time::Duration;

use rubicon::mock::{Answer, MockProvider, Rule, anthropic, chat, responses};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::harness::{Http, client, path, provider, relay, request, two, url};
use crate::raw::{Raw, message};

/// Noticed "promptly": far below every timer of the relay that could end an attempt by itself (60 s and more).
const PROMPTLY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    BeforeHead,
    Held,
    /// Held, and keep-alives have gone out.
    KeptAlive,
    AfterOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Close,
    HalfClose,
    Reset,
    /// HTTP/2: the stream is reset, the connection stays.
    ResetStream,
    /// HTTP/2: the connection goes.
    CloseTwo,
}

const WHENS: [When; 4] = [When::BeforeHead, When::Held, When::KeptAlive, When::AfterOutput];
const HOWS: [How; 5] = [How::Close, How::HalfClose, How::Reset, How::ResetStream, How::CloseTwo];
const DIALECTS: [Dialect; 3] = Dialect::ALL;

/// What shows nothing.
fn preamble(dialect: Dialect) -> Answer {
    match dialect {
        Dialect::ChatCompletions => Answer::sse().step(chat::role()),
        Dialect::AnthropicMessages => Answer::sse().step(anthropic::message_start()).step(anthropic::text_start(0)),
        Dialect::Responses => Answer::sse().step(responses::created(0)).step(responses::message_added(1, 0)),
    }
}

/// And then shows something.
fn shown(dialect: Dialect) -> Answer {
    let delta = match dialect {
        Dialect::ChatCompletions => chat::delta("shown"),
        Dialect::AnthropicMessages => anthropic::text_delta(0, "shown"),
        Dialect::Responses => responses::text_delta(2, 0, "shown"),
    };
    preamble(dialect).step(delta)
}

/// A relay that takes one request at a time.
async fn one_at_a_time(a: &MockProvider, b: &MockProvider, workflow: &str) -> Server {
    relay(&format!("[server]\nlisten = \"127.0.0.1:0\"\nmax_in_flight = 1\n{}", two(a, b, workflow))).await
}

async fn record(relay: &Server, id: &str) -> Value {
    let answer = client(Http::One).get(url(relay, &format!("/v1/operations/{id}"))).send().await.expect("an answer");
    answer.json().await.expect("JSON")
}

/// The record, once it fulfils a condition.
async fn record_when(relay: &Server, id: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let mut known = Value::Null;
    let found = timeout(PROMPTLY, async {
        loop {
            known = record(relay, id).await;
            if fits(&known) {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    let found = found.await;
    assert!(found.is_ok(), "the record stays {known}");
    known
}

/// The upstream is cancelled, the permit is back, the record says why, and nobody else was asked.
async fn noticed(relay: &Server, a: &MockProvider, b: &MockProvider, id: &str, what: &str) -> Value {
    let cancelled = timeout(PROMPTLY, a.wait_for(|stats| stats.disconnects == 1)).await;
    assert!(cancelled.is_ok(), "{what}: the upstream goes on: {:?}", a.stats());
    let permit = timeout(PROMPTLY, relay.app().admission.idle()).await;
    assert!(permit.is_ok(), "{what}: the permit did not come back");
    let known = record_when(relay, id, |known| known["state"] != "running").await;
    assert_eq!((&known["state"], &known["reason"]), (&"interrupted".into(), &"client_gone".into()), "{what}");
    assert_eq!(known["attempts"].as_array().map(Vec::len), Some(1), "{what}: {known}");
    assert_eq!((a.calls(), b.calls()), (1, 0), "{what}");
    known
}

async fn leaves(when: When, how: How, dialect: Dialect) {
    let what = format!("{when:?} {how:?} {dialect:?}");
    let answer = match when {
        When::BeforeHead => Answer::new(),
        When::Held | When::KeptAlive => preamble(dialect),
        When::AfterOutput => shown(dialect),
    };
    let events = answer.steps.iter().filter(|step| matches!(step, rubicon::mock::Step::Event(_))).count() as u64;
    let a = provider(Rule::new("a").answer(answer.hang())).await;
    let b = provider(Rule::new("b").answer(shown(dialect))).await;
    let keepalive = if when == When::KeptAlive { 20 } else { 0 };
    let relay = one_at_a_time(&a, &b, &format!("hold = {{ keepalive_after_ms = {keepalive} }}\n")).await;
    let body = request(dialect, true);
    let reached = async {
        let came = timeout(PROMPTLY, a.wait_for(|stats| stats.calls == 1 && stats.events_sent == events)).await;
        assert!(came.is_ok(), "{what}: {:?}", a.stats());
    };
    let id = "leaving";
    match how {
        How::Close | How::HalfClose | How::Reset => {
            let mut raw = Raw::post(relay.address(), dialect, "idempotency-key: leaving\r\n", &body).await;
            match when {
                When::BeforeHead | When::Held => reached.await,
                When::KeptAlive if dialect == Dialect::ChatCompletions => raw.read_until(": keep-alive").await,
                When::KeptAlive if dialect == Dialect::Responses => raw.read_until("event: keepalive").await,
                When::KeptAlive => raw.read_until("event: ping").await,
                When::AfterOutput => raw.read_until("shown").await,
            }
            match how {
                How::HalfClose => {
                    raw.half_close().await;
                    noticed(&relay, &a, &b, id, &what).await;
                }
                How::Reset => raw.reset(),
                _ => drop(raw),
            }
        }
        How::ResetStream | How::CloseTwo => {
            let client = client(Http::Two);
            let send = client.post(url(&relay, path(dialect))).header("content-type", "application/json");
            let mut sending = tokio::spawn(send.header("idempotency-key", id).body(body).send());
            let mut response = None;
            if matches!(when, When::BeforeHead | When::Held) {
                reached.await;
            } else {
                let mut begun = (&mut sending).await.expect("a task").expect("a head");
                begun.chunk().await.expect("a frame").expect("not the end");
                response = Some(begun);
            }
            sending.abort();
            drop(response);
            if how == How::ResetStream {
                noticed(&relay, &a, &b, id, &what).await;
                // The connection, and whoever else uses it, goes on.
                let alive = client.get(url(&relay, "/healthz")).send().await.expect("an answer");
                assert_eq!(alive.status(), 200, "{what}");
            }
        }
    }
    let known = noticed(&relay, &a, &b, id, &what).await;
    assert_eq!(known["boundary"].is_null(), when != When::AfterOutput, "{what}: {known}");
    assert_eq!(known["after"], if when == When::AfterOutput { events } else { 0 }, "{what}");
}

#[tokio::test]
async fn a_stream_is_left_at_every_point_in_every_way() {
    for when in WHENS {
        for how in HOWS {
            for dialect in DIALECTS {
                leaves(when, how, dialect).await;
            }
        }
    }
}

#[tokio::test]
async fn a_whole_answer_is_left() {
    // With a key the answer runs in a task of its own, and still ends when nobody waits for it any more.
    for headers in ["", "idempotency-key: leaving\r\n"] {
        let a = provider(Rule::new("a").answer(Answer::new().hang())).await;
        let b = provider(Rule::new("b").answer(Answer::new().hang())).await;
        let relay = one_at_a_time(&a, &b, "").await;
        let raw = Raw::post(relay.address(), DIALECTS[0], headers, &request(DIALECTS[0], false)).await;
        a.wait_for(|stats| stats.calls == 1).await;
        drop(raw);
        if headers.is_empty() {
            timeout(PROMPTLY, a.wait_for(|stats| stats.disconnects == 1)).await.expect("cancelled");
            timeout(PROMPTLY, relay.app().admission.idle()).await.expect("a permit");
            assert_eq!((a.calls(), b.calls()), (1, 0));
        } else {
            noticed(&relay, &a, &b, "leaving", "keyed").await;
        }
    }
}

#[tokio::test]
async fn who_joined_a_whole_answer_keeps_it_when_the_first_one_leaves() {
    let whole = rubicon::mock::chat_whole_text("joined");
    let a = provider(Rule::new("a").answer(Answer::new().gate("go").then(whole))).await;
    let b = provider(Rule::new("b").answer(Answer::new().hang())).await;
    let relay = relay(&two(&a, &b, "")).await;
    let ask = || Raw::post(relay.address(), DIALECTS[0], "idempotency-key: k\r\n", JOINED);
    const JOINED: &str = "{\"model\":\"m\",\"messages\":[]}";
    let first = ask().await;
    a.wait_for(|stats| stats.calls == 1).await;
    let mut second = ask().await;
    // Both requests are in: nothing tells when the second has joined, but its permit is taken just before.
    let both_in = async {
        while relay.app().admission.in_flight() < 2 {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PROMPTLY, both_in).await.expect("both in");
    sleep(Duration::from_millis(50)).await;
    first.reset();
    let only_one = async {
        while relay.app().admission.in_flight() > 2 {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PROMPTLY, only_one).await.expect("the first has left");
    a.open_gate("go", 1);
    second.read_until("joined").await;
    assert!(second.text().to_ascii_lowercase().contains("idempotent-replayed: true"), "{}", second.text());
    assert_eq!((a.calls(), a.disconnects(), b.calls()), (1, 0, 0));
}

#[tokio::test]
async fn a_wait_between_attempts_is_left() {
    let limited = Answer::new().head(429, &[("retry-after", "30"), ("content-type", "application/json")]);
    let limited = limited.text("{\"error\":{\"message\":\"Rate limit reached\",\"code\":\"rate_limit_exceeded\"}}");
    let a = provider(Rule::new("a").answer(limited)).await;
    let b = provider(Rule::new("b").answer(Answer::new().hang())).await;
    let relay = one_at_a_time(&a, &b, "failover = { enabled = false }\n").await;
    let body = request(DIALECTS[0], true);
    let raw = Raw::post(relay.address(), DIALECTS[0], "idempotency-key: w\r\n", &body).await;
    record_when(&relay, "w", |known| known["attempts"][0]["class"] == "rate_limited").await;
    assert_eq!(record(&relay, "w").await["state"], "running", "it waits as it was told");
    drop(raw);
    timeout(PROMPTLY, relay.app().admission.idle()).await.expect("a permit");
    let known = record_when(&relay, "w", |known| known["state"] != "running").await;
    assert_eq!((&known["state"], &known["reason"]), (&"interrupted".into(), &"client_gone".into()));
    assert_eq!((a.calls(), b.calls()), (1, 0));
}

#[tokio::test]
async fn a_request_is_left_in_the_middle_of_its_body() {
    let a = provider(Rule::new("a").answer(Answer::new().hang())).await;
    let b = provider(Rule::new("b").answer(Answer::new().hang())).await;
    for reset in [false, true] {
        let relay = one_at_a_time(&a, &b, "").await;
        let whole = message(DIALECTS[0], relay.address(), "", &request(DIALECTS[0], true));
        let mut raw = Raw::open(relay.address()).await;
        raw.write(&whole.as_bytes()[..whole.len() - 3]).await;
        let taken = async {
            while relay.app().admission.in_flight() == 0 {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PROMPTLY, taken).await.expect("the request is being read");
        if reset {
            raw.reset();
        } else {
            drop(raw);
        }
        timeout(PROMPTLY, relay.app().admission.idle()).await.expect("a permit");
    }
    assert_eq!((a.calls(), b.calls()), (0, 0));
}

#[tokio::test]
async fn a_client_that_wrote_ahead_and_then_leaves_is_noticed_too() {
    // Bytes behind the request (a pipelined one, or a stray line end) lie between the relay and the end of the connection.
    for ahead in ["\r\n", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        let a = provider(Rule::new("a").answer(shown(DIALECTS[0]).hang())).await;
        let b = provider(Rule::new("b").answer(Answer::new().hang())).await;
        let relay = one_at_a_time(&a, &b, "").await;
        let whole = message(DIALECTS[0], relay.address(), "idempotency-key: p\r\n", &request(DIALECTS[0], true));
        let mut raw = Raw::open(relay.address()).await;
        raw.write(format!("{whole}{ahead}").as_bytes()).await;
        raw.read_until("shown").await;
        drop(raw);
        noticed(&relay, &a, &b, "p", &format!("{ahead:?} ahead")).await;
    }
}

//! What a route may take is never passed: attempts are held to the end of their streams, recovery traffic has a share of its own,
//! and who does not fit goes elsewhere or is told when to come again.

use rubicon::clock::{Instant, UnixMillis};
use rubicon::gate::{Switch, Switches};
use rubicon::ids::RouteId;
use rubicon::mock::{Answer, Rule, chat, chat_text, chat_whole_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};
use tokio::time::{Duration, timeout};

use crate::harness::{Answered, Http, PATIENCE, client, path, post, provider, relay, request};
use crate::raw::Raw;
use crate::setup::{Setup, always, overloaded};

const DIALECTS: [Dialect; 2] = [Dialect::ChatCompletions, Dialect::AnthropicMessages];
const CHAT: Dialect = Dialect::ChatCompletions;

async fn ask(relay: &Server) -> Answered {
    post(&client(Http::One), relay, path(CHAT), request(CHAT, true)).await
}

/// A stream that shows something and then waits at the gate `end`.
fn long(who: &str) -> Answer {
    let shown = Answer::sse().step(chat::role()).step(chat::delta(&format!("from {who}"))).gate("end");
    shown.step(chat::finish("stop")).step(chat::done())
}

/// Shed: nobody was asked, it says when to come again, and that one may.
#[track_caller]
fn assert_shed(answered: &Answered, status: u16) -> Value {
    let json = answered.json();
    assert_eq!(answered.status, status, "{json}");
    let rubicon = &json["rubicon"];
    assert_eq!(
        (&rubicon["reason"], &rubicon["attempts"], &rubicon["retryable"]),
        (&json!("no_eligible_fallback"), &json!(0), &json!(true)),
        "{json}"
    );
    let wait: u64 = answered.header("retry-after").parse().expect("seconds");
    assert!(wait >= 1 && answered.header("x-should-retry").is_empty());
    rubicon.clone()
}

fn kill(relay: &Server, route: &str) {
    let switch = Switch { by: "ana".to_owned(), reason: "drill".to_owned(), since: UnixMillis(1) };
    let killed = [(RouteId::new(route), switch)].into();
    relay.app().board.set_switches(Switches { killed, ..Switches::default() });
}

async fn ends(relay: &Server, mut running: Raw) {
    running.read_until("[DONE]").await;
    drop(running);
    timeout(PATIENCE, relay.app().admission.idle()).await.expect("over");
}

#[tokio::test]
async fn concurrency_is_held_to_the_end_of_the_stream() {
    for with_b in [false, true] {
        let a = provider(Rule::new("a").answer(long("a")).answer(chat_text(&["from a"]))).await;
        let b = always(chat_text(&["from b"])).await;
        let setup = Setup::primary(a.base_url()).with_route("limits = { concurrency = 1 }");
        let relay = relay(&if with_b { setup.equivalent("b", &b) } else { setup }.text()).await;
        let mut running = Raw::post(relay.address(), CHAT, "", &request(CHAT, true)).await;
        running.read_until("from a").await;
        for dialect in DIALECTS {
            let answered = post(&client(Http::One), &relay, path(dialect), request(dialect, true)).await;
            if with_b && dialect == CHAT {
                assert!(answered.text().contains("from b"), "{}", answered.text());
                assert_eq!(answered.header("rubicon-recovery"), "equivalent_failover");
            } else if !with_b {
                assert_shed(&answered, 429);
            }
        }
        assert_eq!(a.calls(), 1);
        assert!(a.open_gate("end", 1));
        ends(&relay, running).await;
        assert!(ask(&relay).await.text().contains("from a"), "there is room again");
    }
}

#[tokio::test]
async fn recovery_traffic_has_a_share_of_its_own() {
    let a = always(overloaded()).await;
    let b = provider(Rule::new("b").answer(long("b")).answer(chat_text(&["from b"]))).await;
    let setup = Setup::primary(a.base_url())
        .equivalent("b", &b)
        .with_route("failover_limits = { concurrency = 1 }")
        .workflow("envelope = { max_attempts = 2 }")
        .tables("[workflow.own]\nprimary = \"b\"");
    let relay = relay(&setup.text().replace("[workflow.default]", "[workflow.default]\nmodels = [\"m\"]")).await;
    let mut running = Raw::post(relay.address(), CHAT, "", &request(CHAT, true)).await;
    running.read_until("from b").await;
    // The share is in use: the primary is tried again, which is all that is left.
    let answered = ask(&relay).await;
    let rubicon = answered.json()["rubicon"].clone();
    assert_eq!((answered.status, &rubicon["attempts"], b.calls()), (424, &json!(2), 1), "{rubicon}");
    assert_eq!(rubicon["retryable"], true);
    assert!(!answered.header("retry-after").is_empty(), "b may have room soon");
    kill(&relay, "a");
    assert_shed(&ask(&relay).await, 503);
    // Its own traffic is not recovery.
    let own = client(Http::One).post(crate::harness::url(&relay, path(CHAT))).header("rubicon-workflow", "own");
    let own = crate::harness::send(own.body(request(CHAT, true))).await;
    assert!(own.text().contains("from b") && own.header("rubicon-recovery") == "none", "{}", own.text());
    assert!(b.open_gate("end", 1));
    ends(&relay, running).await;
    assert!(ask(&relay).await.text().contains("from b"), "there is room again");
}

#[tokio::test]
async fn requests_are_counted_by_time() {
    for (limit, killed, status, span) in [
        ("limits = { requests_per_minute = 1 }", None, 429, Duration::from_secs(60)),
        ("failover_limits = { requests_per_second = 1 }", Some("a"), 503, Duration::from_secs(1)),
    ] {
        let (a, b) = (always(chat_text(&["from a"])).await, always(chat_text(&["from b"])).await);
        let setup = Setup::primary(a.base_url());
        let setup = if killed.is_some() { setup.equivalent("b", &b) } else { setup }.with_route(limit);
        let relay = relay(&setup.text()).await;
        if let Some(killed) = killed {
            kill(&relay, killed);
        }
        let began = Instant::now();
        assert_eq!(ask(&relay).await.status, 200);
        let answered = ask(&relay).await;
        if began.elapsed() < span {
            assert_shed(&answered, status);
            assert_eq!(a.calls() + b.calls(), 1);
        }
    }
}

#[tokio::test]
async fn tokens_are_estimated_until_told() {
    let body = |stream| request(CHAT, stream).replace("\"stream\"", "\"max_tokens\":5000,\"stream\"");
    // A stream that tells no usage counts as its estimate; a whole answer tells it.
    for (stream, second) in [(true, 429), (false, 200)] {
        let untold = Answer::sse().step(chat::delta("from a")).step(chat::finish("stop")).step(chat::done());
        let answer = if stream { untold } else { chat_whole_text("from a") };
        let a = always(answer).await;
        let setup = Setup::primary(a.base_url()).with_route("limits = { tokens_per_minute = 6000 }");
        let relay = relay(&setup.text()).await;
        let began = Instant::now();
        assert_eq!(post(&client(Http::One), &relay, path(CHAT), body(stream)).await.status, 200);
        let answered = post(&client(Http::One), &relay, path(CHAT), body(stream)).await;
        if began.elapsed() < Duration::from_secs(60) {
            assert_eq!(answered.status, second, "{stream}: {}", answered.text());
            if second == 429 {
                // Not when one token fits again, but when these do: the first request's must have left the minute.
                let wait: u64 = answered.header("retry-after").parse().expect("seconds");
                assert!(wait + began.elapsed().as_secs() >= 59, "{wait}");
            }
        }
    }
}

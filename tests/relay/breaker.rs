//! A route that fails and fails is left alone, one probe at a time finds out when it is back, and an operator can do by hand what
//! the breaker does by itself.

use std::time::Duration;

use rubicon::clock::{Instant, UnixMillis};
use rubicon::gate::breaker::BreakerState;
use rubicon::gate::{RouteView, Switch, Switches};
use rubicon::ids::RouteId;
use rubicon::mock::{Answer, MockProvider, Rule, chat, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::json;
use tokio::time::timeout;

use crate::harness::{Answered, Http, PATIENCE, client, path, post, provider, relay, request, send, url};
use crate::raw::Raw;
use crate::setup::{Setup, always, error, overloaded};

const CHAT: Dialect = Dialect::ChatCompletions;

async fn ask(relay: &Server) -> Answered {
    post(&client(Http::One), relay, path(CHAT), request(CHAT, true)).await
}

#[track_caller]
fn assert_from(answered: &Answered, who: &str, recovery: &str, attempts: &str) {
    assert!(answered.clean && answered.status == 200, "{}", answered.text());
    assert!(answered.text().contains(&format!("from {who}")), "{}", answered.text());
    assert_eq!((answered.header("rubicon-recovery"), answered.header("rubicon-attempts")), (recovery, attempts));
}

fn state(relay: &Server, name: &str) -> RouteView {
    let views = relay.app().board.view(Instant::now());
    views.into_iter().find(|view| view.route.as_str() == name).expect("the route")
}

/// `a` and `b`, and a breaker of `a`.
async fn two(a: &MockProvider, b: &MockProvider, breaker: &str) -> Server {
    let setup = Setup::primary(a.base_url()).with_route(&format!("breaker = {{ {breaker} }}")).equivalent("b", b);
    relay(&setup.text()).await
}

/// Answers of `a`: so many failures, then these.
fn failing(times: usize, then: &[Answer]) -> Rule {
    let failures = (0..times).map(|_| overloaded());
    failures.chain(then.iter().cloned()).fold(Rule::new("a"), Rule::answer)
}

#[tokio::test]
async fn failures_in_a_row_trip_it_and_its_traffic_goes_elsewhere_at_once() {
    let (a, b) = (always(overloaded()).await, always(chat_text(&["from b"])).await);
    let relay = two(&a, &b, "failures = 3, cooldown_ms = 3600000").await;
    for _ in 0..3 {
        assert_from(&ask(&relay).await, "b", "equivalent_failover", "2");
    }
    assert_eq!(state(&relay, "a").breaker, BreakerState::Tripped);
    for _ in 0..3 {
        assert_from(&ask(&relay).await, "b", "equivalent_failover", "1");
    }
    assert_eq!((a.calls(), b.calls()), (3, 6), "a is left alone");
}

#[tokio::test]
async fn one_probe_brings_it_back() {
    let a = provider(failing(2, &[overloaded(), chat_text(&["from a"])])).await;
    let b = always(chat_text(&["from b"])).await;
    let relay = two(&a, &b, "failures = 2, cooldown_ms = 1").await;
    for _ in 0..2 {
        assert_from(&ask(&relay).await, "b", "equivalent_failover", "2");
    }
    // The first probe fails; whoever made it fails over. The second one is whole.
    let back = async {
        while !ask(&relay).await.text().contains("from a") {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, back).await.expect("back");
    assert_eq!((state(&relay, "a").breaker, a.calls()), (BreakerState::Healthy, 4));
    assert_from(&ask(&relay).await, "a", "none", "1");
}

#[tokio::test]
async fn a_probe_whose_client_leaves_is_given_back() {
    let hang = Answer::sse().step(chat::role()).hang();
    let (a, b) = (provider(failing(1, &[hang, chat_text(&["from a"])])).await, always(chat_text(&["from b"])).await);
    let relay = two(&a, &b, "failures = 1, cooldown_ms = 1").await;
    assert_from(&ask(&relay).await, "b", "equivalent_failover", "2");
    tokio::time::sleep(Duration::from_millis(5)).await;
    let raw = Raw::post(relay.address(), CHAT, "", &request(CHAT, true)).await;
    timeout(PATIENCE, a.wait_for(|stats| stats.calls == 2)).await.expect("the probe");
    assert_eq!(state(&relay, "a").breaker, BreakerState::Probing);
    assert_from(&ask(&relay).await, "b", "equivalent_failover", "1");
    drop(raw);
    timeout(PATIENCE, relay.app().admission.idle()).await.expect("it left");
    assert_eq!((state(&relay, "a").breaker, state(&relay, "a").attempts), (BreakerState::Tripped, 0));
    assert_from(&ask(&relay).await, "a", "none", "1");
}

#[tokio::test]
async fn a_route_without_any_other_is_asked_all_the_same() {
    let a = always(overloaded()).await;
    let setup = Setup::primary(a.base_url())
        .with_route("breaker = { failures = 2, cooldown_ms = 3600000 }")
        .workflow("envelope = { max_attempts = 1 }");
    let relay = relay(&setup.text()).await;
    for calls in 1..=5 {
        let answered = ask(&relay).await;
        assert_eq!((answered.status, &answered.json()["rubicon"]["attempts"]), (424, &json!(1)));
        assert_eq!(a.calls(), calls);
    }
    assert_eq!(state(&relay, "a").breaker, BreakerState::Tripped);
}

#[tokio::test]
async fn what_proves_that_the_provider_lives_trips_nothing() {
    let refused = Answer::json_error(400, error("Bad request", "invalid_request_error", json!("bad")));
    let (a, b) = (always(refused).await, always(chat_text(&["from b"])).await);
    let relay = two(&a, &b, "failures = 2, cooldown_ms = 3600000").await;
    for _ in 0..4 {
        assert_eq!(ask(&relay).await.status, 400);
    }
    // Nor does a caller who gives it no time.
    let slow = provider(Rule::new("a").answer(Answer::new().hang())).await;
    let relay = two(&slow, &b, "failures = 1, cooldown_ms = 3600000").await;
    let hasty = client(Http::One).post(url(&relay, path(CHAT))).header("rubicon-deadline-ms", "30");
    let answered = send(hasty.body(request(CHAT, true))).await;
    assert_eq!(answered.json()["rubicon"]["reason"], "deadline_exhausted");
    assert_eq!((state(&relay, "a").breaker, b.calls()), (BreakerState::Healthy, 0));
}

#[tokio::test]
async fn a_killed_route_gets_no_new_attempt_and_what_runs_goes_on() {
    let gated = Answer::sse().step(chat::role()).step(chat::delta("begun ")).gate("end");
    let gated = gated.step(chat::delta("from a")).step(chat::finish("stop")).step(chat::done());
    let a = provider(Rule::new("a").answer(gated).answer(chat_text(&["from a"]))).await;
    let b = always(chat_text(&["from b"])).await;
    let relay = two(&a, &b, "failures = 2").await;
    let mut running = Raw::post(relay.address(), CHAT, "", &request(CHAT, true)).await;
    running.read_until("begun").await;
    let kill = |routes: &[&str]| {
        let switch = || Switch { by: "ana".to_owned(), reason: "drill".to_owned(), since: UnixMillis(1) };
        let killed = routes.iter().map(|name| (RouteId::new(name), switch())).collect();
        relay.app().board.set_switches(Switches { killed, ..Switches::default() });
    };
    kill(&["a"]);
    assert_from(&ask(&relay).await, "b", "equivalent_failover", "1");
    kill(&["a", "b"]);
    for dialect in [CHAT, Dialect::AnthropicMessages] {
        let answered = post(&client(Http::One), &relay, path(dialect), request(dialect, true)).await;
        let rubicon = answered.json()["rubicon"].clone();
        assert_eq!((answered.status, &rubicon["reason"]), (503, &json!("no_eligible_fallback")), "{rubicon}");
        assert_eq!((&rubicon["attempts"], &rubicon["retryable"]), (&json!(0), &json!(true)));
        let wait: u64 = answered.header("retry-after").parse().expect("seconds");
        assert!((1..=120).contains(&wait) && answered.header("x-should-retry").is_empty(), "{wait}");
        assert!(rubicon.get("refused").is_none(), "routes are not for every client");
    }
    assert!(a.open_gate("end", 1));
    running.read_until("[DONE]").await;
    kill(&[]);
    assert_from(&ask(&relay).await, "a", "none", "1");
}

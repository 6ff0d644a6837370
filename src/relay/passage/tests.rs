//! A refusal needs no wait: the driver says it the first time it is polled, with a waker that nobody would wake.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, json};

use super::*;
use crate::clock::UnixMillis;
use crate::config::testing::{TODAY, settings};
use crate::contract::headers::Asked;
use crate::gate::{Switch, Switches};
use crate::ids::RouteId;
use crate::plan::{NobodyKnown, World, plan};
use crate::protocol::Dialect;
use crate::relay::app::App;
use crate::relay::emit::{Driven, Head, Out};
use crate::relay::handler::register;
use crate::relay::operation::{Job, run};
use crate::relay::operations::Names;
use crate::relay::roots::Root;
use crate::telemetry::events::Whose;

/// Two routes that nobody answers for; `a` is the primary.
fn app(route_a: &str, route_b: &str) -> Arc<App> {
    let route = |name: &str, lines: &str| {
        format!(
            "[provider.{name}]\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
             [route.{name}]\nprovider = \"{name}\"\ncapabilities = [\"text\"]\nverified = {{ on = 2026-01-01 }}\n{lines}\n"
        )
    };
    let text = route("a", route_a)
        + &route("b", route_b)
        + "[workflow.w]\nprimary = \"a\"\nequivalents = [\"b\"]\nfailover = { enabled = true }\n\
           [[approval]]\nworkflow = \"w\"\nroute = \"b\"\npurpose = \"failover\"\n";
    Arc::new(App::new(Arc::new(settings(&text))).expect("an app"))
}

/// The driver of a small request.
fn driven(app: &Arc<App>) -> Driven {
    let current = app.current();
    let headers = HeaderMap::from_iter([(http::header::HOST, http::HeaderValue::from_static("localhost"))]);
    let caller = current.clients.find(&headers, &http::Uri::from_static("/")).expect("anyone on loopback");
    let workflow = Arc::clone(&caller.workflows[0]);
    let body = Bytes::from_static(b"{\"model\":\"m\",\"stream\":true,\"messages\":[]}");
    let facts = Dialect::ChatCompletions.read_request(&body).expect("a request");
    let contract = Contract::new(Endpoint::ChatCompletions, facts, workflow.envelope, &Asked::default());
    let now = Instant::now();
    let names = Names {
        tenant: rubicon_ledger::TenantId::new(caller.tenant.as_str()).expect("a tenant"),
        operation: rubicon_ledger::OperationId::new("op_7").expect("an operation"),
    };
    let root = Root { id: names.operation.clone().into(), ambiguous: false };
    let operation = register(app, names, root, &workflow, &contract, None, now);
    let world = World {
        approvals: &current.settings.approvals,
        gate: &*app.board,
        now: TODAY,
        at: now,
        draw: 0,
        issuers: &NobodyKnown,
    };
    let plan = plan(&workflow, &contract, &world);
    let job = Job {
        app: Arc::clone(app),
        current,
        caller,
        operation,
        workflow,
        contract,
        plan,
        body,
        headers,
        query: None,
        show_routes: true,
        claim: None,
        whose: Whose::default(),
        trace: None,
    };
    Driven::new(|emitter| run(job, emitter))
}

/// Head and body, each at the first time of asking; `None`: it waits for something.
fn at_once(driven: &mut Driven) -> Option<(Head, Value)> {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let Poll::Ready(Some(Out::Head(head))) = driven.poll_next(&mut cx) else { return None };
    let Poll::Ready(Some(Out::Data(body))) = driven.poll_next(&mut cx) else { return None };
    Some((head, serde_json::from_slice(&body).expect("JSON")))
}

fn kill(app: &App, routes: &[&str]) {
    let switch = || Switch { by: "ana".to_owned(), reason: "drill".to_owned(), since: UnixMillis(1) };
    let killed = routes.iter().map(|name| (RouteId::new(name), switch())).collect();
    app.board.set_switches(Switches { killed, ..Switches::default() });
}

fn trip(app: &App, name: &str) {
    let route = Arc::clone(&app.current().settings.routes[&RouteId::new(name)]);
    for _ in 0..route.breaker.failures {
        let asking = Asking { route: &route, recovery: false, even_if_tripped: false, tokens: 0 };
        let mut pass = app.board.enter(&asking, Instant::now()).expect("healthy");
        pass.failed(crate::classify::Class::TransportTransient, None, Instant::now());
    }
}

/// Holds the one attempt that the route takes.
fn fill(app: &App, name: &str) -> Pass {
    let route = Arc::clone(&app.current().settings.routes[&RouteId::new(name)]);
    let asking = Asking { route: &route, recovery: true, even_if_tripped: false, tokens: 0 };
    app.board.enter(&asking, Instant::now()).expect("free")
}

#[tokio::test]
async fn what_no_route_takes_is_shed_at_once() {
    const ONE: &str = "limits = { concurrency = 1 }";
    const ONE_MORE: &str = "failover_limits = { concurrency = 1 }";
    let (tripped, killed, capacity, failover) = ("tripped", "killed", "capacity", "failover_limit");
    for (why_a, why_b, status) in [
        (killed, killed, 503),
        // Not here: tripped and killed. The tripped one has nowhere else to go, so it is asked (`plan::order`).
        (tripped, failover, 503),
        (capacity, tripped, 503),
        (capacity, failover, 429),
        (capacity, capacity, 429),
    ] {
        let lines = |why| {
            if why == capacity {
                ONE
            } else if why == failover {
                ONE_MORE
            } else {
                ""
            }
        };
        let app = app(lines(why_a), lines(why_b));
        let mut held = Vec::new();
        let both = [("a", why_a), ("b", why_b)];
        for (name, why) in both {
            if why == tripped {
                trip(&app, name);
            } else if why != killed {
                held.push(fill(&app, name));
            }
        }
        let dead: Vec<_> = both.iter().filter(|(_, why)| *why == killed).map(|(name, _)| *name).collect();
        kill(&app, &dead);
        let what = format!("{why_a} and {why_b}");
        let (head, body) = at_once(&mut driven(&app)).unwrap_or_else(|| panic!("{what}: it waits"));
        assert_eq!(head.status, status, "{what}: {body}");
        let rubicon = &body["rubicon"];
        assert_eq!(
            (&rubicon["reason"], &rubicon["attempts"], &rubicon["retryable"], rubicon.get("class")),
            (&json!("no_eligible_fallback"), &json!(0), &json!(true), None),
            "{what}: {body}"
        );
        let refused: Vec<_> = rubicon["refused"].as_array().expect("a list").iter().collect();
        let named = |route: &str, why: &str| json!({ "route": route, "why": why });
        assert!(refused.contains(&&named("a", why_a)) && refused.contains(&&named("b", why_b)), "{what}: {body}");
        let after: u64 = head.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=120).contains(&after), "{what}: {after}");
        assert_eq!(head.headers.get("x-should-retry"), None, "{what}: it may be sent again");
    }
}

#[tokio::test]
async fn an_open_route_is_asked_and_not_refused() {
    let app = app("", "");
    kill(&app, &["a"]);
    assert!(at_once(&mut driven(&app)).is_none(), "b is being asked");
    kill(&app, &[]);
    trip(&app, "a");
    let mut asked = driven(&app);
    assert!(at_once(&mut asked).is_none(), "b is being asked");
    let attempts: Vec<_> = app.board.view(Instant::now()).iter().map(|route| route.attempts).collect();
    assert_eq!(attempts, [0, 1]);
    drop(asked);
    assert_eq!(app.board.view(Instant::now())[1].attempts, 0, "the client left: the pass is back");
}

#[test]
fn waits_are_spread() {
    let (s, ms) = (Duration::from_secs, Duration::from_millis);
    for (wait, random, spread_to) in [
        (s(1), 0, s(1)),
        (s(1), u64::MAX, s(3)),
        (s(1), 1 << 63, s(2)),
        (s(30), u64::MAX, s(60)),
        (ms(1500), 1 << 63, ms(2500)),
    ] {
        assert_eq!(spread(wait, random), spread_to, "{wait:?}");
    }
}

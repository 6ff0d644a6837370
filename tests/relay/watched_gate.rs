//! What the gate does can be watched: breakers, switches, places in use and shed requests, in metrics, event lines, the admin side and the
//! operation, all from the gate's own state and under the same names.

use std::collections::BTreeMap;
use std::sync::Arc;

use rubicon::clock::UnixMillis;
use rubicon::gate::{Switch, Switches};
use rubicon::ids::RouteId;
use rubicon::mock::{Answer, MockProvider, Rule, chat, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{
    Answered, Http, PATIENCE, client, path, post, provider, relay, request, send, settings_with, url,
};
use crate::operators::{Who, admin, get, with_operators};
use crate::raw::Raw;
use crate::setup::{Setup, always, overloaded};
use crate::watched::{Lines, samples, sum};

const CHAT: Dialect = Dialect::ChatCompletions;

async fn ask(relay: &Server) -> Answered {
    post(&client(Http::One), relay, path(CHAT), request(CHAT, true)).await
}

/// The state that a route's breaker is in, by the metrics: exactly one.
fn circuit(relay: &Server, route: &str) -> String {
    let label = format!("route=\"{route}\"");
    let all = ["healthy", "tripped", "probing"];
    let on = |state: &&str| sum(relay, "rubicon_route_circuit", &[&label, &format!("state=\"{state}\"")]) == 1.0;
    let on: Vec<&str> = all.into_iter().filter(on).collect();
    assert_eq!(on.len(), 1, "{on:?}");
    on.concat()
}

fn kill(relay: &Server, routes: &[&str]) {
    let switch = || Switch { by: "ana".to_owned(), reason: "drill".to_owned(), since: UnixMillis(1) };
    let killed = routes.iter().map(|route| (RouteId::new(route), switch())).collect();
    relay.app().board.set_switches(Switches { killed, ..Switches::default() });
}

/// A stream that shows something and then waits at the gate `end`.
async fn long(who: &str) -> MockProvider {
    let shown = Answer::sse().step(chat::role()).step(chat::delta(&format!("from {who}"))).gate("end");
    provider(Rule::new("long").answer(shown.step(chat::finish("stop")).step(chat::done()))).await
}

async fn running(relay: &Server, who: &str) -> Raw {
    let mut running = Raw::post(relay.address(), CHAT, "", &request(CHAT, true)).await;
    running.read_until(&format!("from {who}")).await;
    running
}

#[tokio::test]
async fn a_breaker_is_seen_and_a_reload_keeps_it() {
    let (a, b) = (always(overloaded()).await, always(chat_text(&["from b"])).await);
    let lines = Lines::new();
    let setup = Setup::primary(a.base_url()).with_route("breaker = { failures = 2, cooldown_ms = 3600000 }");
    let text = setup.equivalent("b", &b).tables(&lines.table()).text();
    let relay = relay(&text).await;
    assert_eq!((circuit(&relay, "a"), circuit(&relay, "b")), ("healthy".to_owned(), "healthy".to_owned()));
    for _ in 0..3 {
        assert_eq!(ask(&relay).await.status, 200);
    }
    assert_eq!((circuit(&relay, "a"), circuit(&relay, "b")), ("tripped".to_owned(), "healthy".to_owned()));
    for line in lines.of(&relay, "attempt", 5).await {
        assert_eq!(line["circuit"], "healthy", "{line}");
    }
    let refused = |line: &Value| line["refused"].clone();
    let told: Vec<Value> = lines.of(&relay, "request", 3).await.iter().map(refused).collect();
    assert_eq!(told, [json!([]), json!([]), json!([{ "route": "a", "why": "tripped" }])]);
    relay.app().replace(Arc::new(settings_with(&text, &BTreeMap::new())));
    assert_eq!((circuit(&relay, "a"), a.calls()), ("tripped".to_owned(), 2));
    ask(&relay).await;
    assert_eq!(a.calls(), 2, "it is still left alone");
    // A route that is gone has no series, one that is back begins anew.
    let alone = Setup::primary(b.base_url()).tables(&lines.table()).text().replace("route.a", "route.z");
    let alone = alone.replace("primary = \"a\"", "primary = \"z\"");
    relay.app().replace(Arc::new(settings_with(&alone, &BTreeMap::new())));
    let left = samples(&relay);
    for metric in ["rubicon_route_circuit", "rubicon_route_in_use", "rubicon_killed"] {
        let mut of: Vec<&String> = left.keys().filter(|name| name.starts_with(metric)).collect();
        of.retain(|name| !name.contains("route=\"z\""));
        assert!(of.is_empty(), "{of:?}");
    }
    relay.app().replace(Arc::new(settings_with(&text, &BTreeMap::new())));
    assert_eq!(circuit(&relay, "a"), "healthy");
}

#[tokio::test]
async fn an_attempt_says_what_its_breaker_was() {
    let failing = Rule::new("a").answer(overloaded()).answer(overloaded()).answer(chat_text(&["from a"]));
    for (cooldown, third) in [("3600000", "tripped"), ("1", "probing")] {
        let a = provider(failing.clone()).await;
        let lines = Lines::new();
        let setup = Setup::primary(a.base_url()).workflow("envelope = { max_attempts = 1 }");
        let setup = setup.with_route(&format!("breaker = {{ failures = 2, cooldown_ms = {cooldown} }}"));
        let relay = relay(&setup.tables(&lines.table()).text()).await;
        for status in [424, 424, 200] {
            assert_eq!(ask(&relay).await.status, status);
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        // There is no other route, so it was asked all the same.
        let said: Vec<Value> =
            lines.of(&relay, "attempt", 3).await.iter().map(|line| line["circuit"].clone()).collect();
        assert_eq!(said, [json!("healthy"), json!("healthy"), json!(third)]);
        let requests = lines.of(&relay, "request", 3).await;
        assert_eq!(requests[2]["circuit"], third);
        assert_eq!(circuit(&relay, "a"), "healthy", "it answered");
    }
}

/// Every request that is turned away before any call is counted once, under the nearest of what kept it out.
#[tokio::test]
async fn shed_requests_are_counted_by_what_kept_them_out() {
    let shed = |relay: &Server, reason: &str| sum(relay, "rubicon_shed_total", &[&format!("reason=\"{reason}\"")]);
    let refused = async |relay: &Server, times: usize, status: u16| {
        for _ in 0..times {
            let answered = ask(relay).await;
            assert_eq!((answered.status, answered.header("retry-after").is_empty()), (status, false));
        }
    };
    let a = long("a").await;
    let setup = Setup::primary(a.base_url()).with_route("limits = { concurrency = 1 }");
    let relay_a = relay(&setup.workflow("passthrough = [\"/v1/files\"]").text()).await;
    let held = running(&relay_a, "a").await;
    refused(&relay_a, 3, 429).await;
    assert_eq!(send(client(Http::One).get(url(&relay_a, "/v1/files"))).await.status, 429);
    assert_eq!(shed(&relay_a, "capacity"), 4.0);
    assert_eq!(sum(&relay_a, "rubicon_route_in_use", &["route=\"a\""]), 1.0);
    kill(&relay_a, &["a"]);
    assert_eq!(sum(&relay_a, "rubicon_killed", &["route=\"a\""]), 1.0);
    refused(&relay_a, 2, 503).await;
    assert_eq!((shed(&relay_a, "killed"), sum(&relay_a, "rubicon_shed_total", &[])), (2.0, 6.0));
    drop(held);
    timeout(PATIENCE, relay_a.app().admission.idle()).await.expect("it left");
    assert_eq!(sum(&relay_a, "rubicon_route_in_use", &["route=\"a\""]), 0.0);

    let (a, b) = (always(overloaded()).await, long("b").await);
    let setup = Setup::primary(a.base_url()).equivalent("b", &b).with_route("failover_limits = { concurrency = 1 }");
    let relay_b = relay(&setup.text()).await;
    kill(&relay_b, &["a"]);
    let _held = running(&relay_b, "b").await;
    refused(&relay_b, 2, 503).await;
    assert_eq!((shed(&relay_b, "failover_limit"), sum(&relay_b, "rubicon_shed_total", &[])), (2.0, 2.0));

    let (a, b) = (always(overloaded()).await, always(overloaded()).await);
    let breaker = "breaker = { failures = 1, cooldown_ms = 3600000 }";
    let setup = Setup::primary(a.base_url()).with_route(breaker).equivalent("b", &b).with_route(breaker);
    let relay_c = relay(&setup.text()).await;
    assert_eq!(ask(&relay_c).await.status, 424, "it was asked");
    refused(&relay_c, 2, 503).await;
    assert_eq!((shed(&relay_c, "tripped"), sum(&relay_c, "rubicon_shed_total", &[])), (2.0, 2.0));
    assert_eq!((a.calls(), b.calls()), (1, 1));
}

/// `killed`, `tripped`, `capacity`, `failover_limit`, and what the configuration and the controller have against a route: one name each,
/// for the caller, for the operation, in the event line.
#[tokio::test]
async fn a_refusal_has_one_name_everywhere() {
    let (a, b) = (always(overloaded()).await, always(overloaded()).await);
    let (c, d) = (long("c").await, always(chat_text(&["from d"])).await);
    let lines = Lines::new();
    let key = "k".repeat(40);
    let keys = |show: bool| {
        let (name, env) = if show { ("sees", "SEES") } else { ("blind", "BLIND") };
        let tenant = "tenant = \"t\"\nworkflows = [\"default\"]";
        format!("[[client]]\nname = \"{name}\"\nkeys = [\"env:{env}\"]\n{tenant}\nshow_routes = {show}\n")
    };
    let setup = Setup::primary(a.base_url())
        .with_route("breaker = { failures = 1, cooldown_ms = 3600000 }")
        .equivalent("b", &b)
        .equivalent("c", &c)
        .with_route("failover_limits = { concurrency = 1 }")
        .equivalent("d", &d)
        .unapproved()
        .tables(&keys(true))
        .tables(&keys(false))
        .tables(&lines.table());
    let blind = "b".repeat(40);
    let env = BTreeMap::from([("SEES", key.as_str()), ("BLIND", blind.as_str())]);
    let relay = crate::harness::relay_with(&setup.text(), &env).await;
    let call = async |key: &str| {
        let posted = client(Http::One).post(url(&relay, path(CHAT))).bearer_auth(key);
        send(posted.header("content-type", "application/json").body(request(CHAT, true))).await
    };
    kill(&relay, &["b"]);
    // The first trips `a` and takes the only place at `c`.
    let mut held =
        Raw::post(relay.address(), CHAT, &format!("authorization: Bearer {key}\r\n"), &request(CHAT, true)).await;
    held.read_until("from c").await;
    let answered = call(&key).await;
    let expected = json!([
        { "route": "a", "why": "tripped" },
        { "route": "b", "why": "killed" },
        { "route": "c", "why": "failover_limit" },
        { "route": "d", "why": "approval_missing" },
    ]);
    let sorted = |mut list: Value| {
        list.as_array_mut().expect("a list").sort_by_key(|refused| refused["route"].to_string());
        list
    };
    assert_eq!(answered.status, 503, "{}", answered.text());
    let told = answered.json()["rubicon"]["refused"].clone();
    assert_eq!(sorted(told.clone()), expected);
    let at = format!("/v1/operations/{}", answered.header("rubicon-operation-id"));
    let view = async |key: &str| send(client(Http::One).get(url(&relay, &at)).bearer_auth(key)).await.json();
    assert_eq!(view(&key).await["refused"], told);
    assert_eq!(view(&blind).await.get("refused"), None, "who may not see routes is not told of them");
    let line = lines.of(&relay, "request", 1).await.remove(0);
    assert_eq!((&line["refused"], &line["reason"]), (&told, &json!("no_eligible_fallback")), "{line}");
    drop(held);
}

#[tokio::test]
async fn operators_see_how_a_route_stands_by_itself() {
    let (a, b) = (always(overloaded()).await, long("b").await);
    let setup = Setup::primary(a.base_url())
        .with_route(
            "oncall = \"team-a\"\nbreaker = { failures = 2, cooldown_ms = 3600000 }\nlimits = { concurrency = 9 }",
        )
        .equivalent("b", &b)
        .with_route("failover_limits = { concurrency = 3 }");
    let relay = with_operators(setup).await;
    let base = admin(&relay);
    let route = async |name: &str| get(&base, &format!("/admin/v1/routes/{name}"), Who::Viewer).await.json();
    let first = running(&relay, "b").await;
    let view = route("a").await;
    assert_eq!((&view["circuit"], &view["failures"], view.get("opens_in_ms")), (&json!("healthy"), &json!(1), None));
    let second = running(&relay, "b").await;
    let view = route("a").await;
    assert_eq!((&view["circuit"], &view["oncall"]), (&json!("tripped"), &json!("team-a")), "{view}");
    assert!(view["opens_in_ms"].as_u64().expect("a wait") > 3_000_000, "{view}");
    assert_eq!(view["limits"], json!({ "concurrency": 9, "requests_per_minute": null, "tokens_per_minute": null }));
    assert!(view["digest"].as_str().expect("a digest").starts_with("rd1:"), "{view}");
    let all = get(&base, "/admin/v1/routes", Who::Viewer).await.json();
    let view = &all["routes"][1];
    let seen = (&view["route"], &view["in_use"], &view["recovery_in_use"], &view["circuit"]);
    assert_eq!(seen, (&json!("b"), &json!(2), &json!(2), &json!("healthy")));
    assert_eq!(view["failover_limits"], json!({ "concurrency": 3, "requests_per_second": null }));
    drop((first, second));
}

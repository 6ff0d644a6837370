//! New work is shed before its body is read, in the caller's dialect, with a time to come again; what runs goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use rubicon::mock::{Answer, Rule, chat, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::json;
use tokio::time::timeout;

use crate::harness::{Answered, Http, PATIENCE, client, path, post, provider, relay, request, settings_with};
use crate::raw::{Raw, message};
use crate::setup::Setup;
use crate::watched::sum;

const DIALECTS: [Dialect; 2] = [Dialect::ChatCompletions, Dialect::AnthropicMessages];
const CHAT: Dialect = Dialect::ChatCompletions;

#[track_caller]
fn assert_shed(dialect: Dialect, answered: &Answered, code: &str) {
    let json = answered.json();
    assert_eq!((answered.status, &json["error"]["code"]), (503, &json!(code)), "{dialect:?} {json}");
    assert_eq!(json.get("type").is_some(), dialect == Dialect::AnthropicMessages, "{json}");
    let rubicon = &json["rubicon"];
    assert_eq!(
        (&rubicon["status"], &rubicon["retryable"], &rubicon["attempts"]),
        (&json!("unavailable"), &json!(true), &json!(0)),
        "{json}"
    );
    assert_eq!((answered.header("retry-after"), answered.header("x-should-retry")), ("1", ""));
}

async fn ask(relay: &Server, dialect: Dialect) -> Answered {
    post(&client(Http::One), relay, path(dialect), request(dialect, true)).await
}

/// The answer comes while the body is still to be sent.
async fn shed_before_its_body(relay: &Server, code: &str) {
    let whole = message(CHAT, relay.address(), "", &request(CHAT, true));
    let head = &whole[..whole.find("\r\n\r\n").expect("a head") + 4];
    let mut raw = Raw::open(relay.address()).await;
    raw.write(head.as_bytes()).await;
    raw.read_until(code).await;
    assert_eq!(raw.status(), 503, "{}", raw.text());
}

/// A stream that waits at the gate `end`, then short ones.
fn stub() -> Rule {
    let long = Answer::sse().step(chat::role()).step(chat::delta("begun")).gate("end");
    let long = long.step(chat::delta(" and done")).step(chat::finish("stop")).step(chat::done());
    Rule::new("a").answer(long).answer(chat_text(&["short"]))
}

#[tokio::test]
async fn over_max_in_flight_which_a_reload_may_change() {
    let a = provider(stub()).await;
    let text = |max: u32| Setup::primary(a.base_url()).server(&format!("max_in_flight = {max}")).text();
    let relay = relay(&text(1)).await;
    let mut running = Raw::post(relay.address(), CHAT, "", &request(CHAT, true)).await;
    running.read_until("begun").await;
    for dialect in DIALECTS {
        assert_shed(dialect, &ask(&relay, dialect).await, "overloaded");
    }
    shed_before_its_body(&relay, "overloaded").await;
    assert_eq!(a.calls(), 1);
    assert_eq!(sum(&relay, "rubicon_shed_total", &["reason=\"overloaded\""]), 3.0);
    relay.app().replace(Arc::new(settings_with(&text(2), &BTreeMap::new())));
    assert_eq!(ask(&relay, CHAT).await.status, 200, "the new limit is in force");
    relay.app().replace(Arc::new(settings_with(&text(1), &BTreeMap::new())));
    timeout(PATIENCE, relay.app().admission.at_most(1)).await.expect("the second is over");
    assert_shed(CHAT, &ask(&relay, CHAT).await, "overloaded");
    assert!(a.open_gate("end", 1));
    running.read_until("[DONE]").await;
    drop(running);
    timeout(PATIENCE, relay.app().admission.idle()).await.expect("idle");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn over_memory_bytes_until_there_is_enough_again() {
    let a = provider(stub()).await;
    let text = Setup::primary(a.base_url()).text();
    let relay = relay(&text).await;
    let mut running = Raw::post(relay.address(), CHAT, "", &request(CHAT, true)).await;
    running.read_until("begun").await;
    let limit = |bytes: Option<u64>| {
        let mut settings = settings_with(&text, &BTreeMap::new());
        settings.server.memory_bytes = bytes;
        relay.app().replace(Arc::new(settings));
    };
    let until = async |short: bool| {
        while relay.app().admission.is_memory_short() != short {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    // No process is that small.
    limit(Some(1));
    timeout(PATIENCE, until(true)).await.expect("measured");
    for dialect in DIALECTS {
        assert_shed(dialect, &ask(&relay, dialect).await, "memory");
    }
    shed_before_its_body(&relay, "memory").await;
    assert_eq!(a.calls(), 1);
    assert_eq!(sum(&relay, "rubicon_shed_total", &["reason=\"memory\""]), 3.0);
    assert!(a.open_gate("end", 1));
    running.read_until("and done").await;
    running.read_until("[DONE]").await;
    limit(Some(u64::MAX));
    timeout(PATIENCE, until(false)).await.expect("measured");
    assert_eq!(ask(&relay, CHAT).await.status, 200);
}

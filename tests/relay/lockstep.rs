//! No event waits for the next one: from the boundary on the provider sends event k + 1 only after the client has event k, byte for
//! byte. A relay that held an event back for any reason (a read-ahead, a buffer, a merge) would stop here for ever.
//!
//! The blocks of a recording are cut by a splitter of the test's own; where the boundary is, the dialect's reader says (its tables
//! are proved beside it; here it is about time, not about meaning).

use std::time::Duration;

use rubicon::mock::{Answer, MockProvider, Rule, Script};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;

use crate::harness::{Http, PATIENCE, client, path, provider, recordings, relay, two, url};
use crate::streams::{Told, error_frame_of, is_stream, request_for, told};

const GATE: &str = "next";

/// A recording as an answer whose events after the boundary wait at a gate.
fn gated(told: &Told, gate: &str) -> Answer {
    let mut answer = Answer::new().head(told.status, &[("content-type", "text/event-stream")]);
    for (at, block) in told.blocks.iter().enumerate() {
        if told.boundary.is_some_and(|boundary| at > boundary) {
            answer = answer.gate(gate);
        }
        answer = answer.text(std::str::from_utf8(&block.raw).expect("recordings are UTF-8"));
    }
    answer
}

async fn in_step(relay: &Server, a: &MockProvider, client: &reqwest::Client, dialect: Dialect, told: &Told) {
    let name = &told.name;
    let body = request_for(dialect, name, told.choices);
    let send = client.post(url(relay, path(dialect))).header("content-type", "application/json").body(body).send();
    let mut response = tokio::time::timeout(PATIENCE, send).await.expect("a head in time").expect("a head");
    assert_eq!(response.status(), told.status, "{name}");
    let (mut got, mut due) = (Vec::new(), told.until_boundary());
    let gated = told.boundary.map_or(told.blocks.len(), |boundary| boundary + 1);
    for block in gated..=told.blocks.len() {
        while got.len() < due.len() {
            let chunk = tokio::time::timeout(PATIENCE, response.chunk())
                .await
                .unwrap_or_else(|_| panic!("{name}: the client waits for block {} and it does not come", block - 1));
            got.extend_from_slice(&chunk.expect("no abort yet").expect("no end yet"));
        }
        assert!(got == due, "{name}: other bytes up to block {}", block - 1);
        if let Some(next) = told.blocks.get(block) {
            assert!(a.open_gate(&format!("{GATE} {name}"), 1));
            if told.fault == Some(block) {
                break;
            }
            due.extend_from_slice(&next.raw);
        }
    }
    let clean = loop {
        match tokio::time::timeout(PATIENCE, response.chunk()).await.expect("an end in time") {
            Ok(Some(chunk)) => got.extend_from_slice(&chunk),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    let tail = got.strip_prefix(&due[..]).unwrap_or_else(|| panic!("{name}: other bytes"));
    assert_eq!(clean, told.ends(true), "{name}");
    if clean {
        assert!(tail.is_empty(), "{name}: {}", String::from_utf8_lossy(tail));
    } else {
        assert_eq!(error_frame_of(dialect, tail)["after"], told.events_before_fault(), "{name}");
    }
}

async fn all(dialect: Dialect, folder: &str, http: Http) {
    let all: Vec<Told> =
        recordings(folder).into_iter().filter(is_stream).map(|recording| told(dialect, &recording)).collect();
    if all.is_empty() {
        return;
    }
    let script = all.iter().fold(Script::default(), |script, told| {
        let gate = format!("{GATE} {}", told.name);
        script.rule(Rule::new(&told.name).model(&told.name).answer(gated(told, &gate)))
    });
    let a = MockProvider::start(script).await.expect("a mock");
    let b = provider(Rule::new("b").answer(Answer::json_error(500, serde_json::json!({})))).await;
    // Some recordings have no terminal event.
    let relay = relay(&two(&a, &b, "").replace("\"strict\"", "\"lenient\"")).await;
    let client = client(http);
    for told in &all {
        in_step(&relay, &a, &client, dialect, told).await;
        assert_eq!(a.calls_of(&told.name), 1, "{}", told.name);
    }
    assert_eq!(b.calls(), 0);
    // Not vacuous: nearly every recording crosses a boundary, and has events after it.
    let crossing = all.iter().filter(|told| told.boundary.is_some_and(|at| at + 1 < told.blocks.len())).count();
    assert!(crossing * 10 >= all.len() * 9, "{crossing} of {}", all.len());
}

#[tokio::test]
async fn chat_completions_over_http1() {
    all(Dialect::ChatCompletions, "chat-completions", Http::One).await;
}

#[tokio::test]
async fn chat_completions_over_h2c() {
    all(Dialect::ChatCompletions, "chat-completions", Http::Two).await;
}

#[tokio::test]
async fn anthropic_messages_over_http1() {
    all(Dialect::AnthropicMessages, "anthropic-messages", Http::One).await;
}

#[tokio::test]
async fn anthropic_messages_over_h2c() {
    all(Dialect::AnthropicMessages, "anthropic-messages", Http::Two).await;
}

#[tokio::test]
async fn responses_over_http1() {
    all(Dialect::Responses, "responses", Http::One).await;
}

#[tokio::test]
async fn responses_over_h2c() {
    all(Dialect::Responses, "responses", Http::Two).await;
}

/// The same for a block that comes in two reads: it waits for its own end and for nothing else.
#[tokio::test]
async fn a_torn_event_waits_for_its_own_end_only() {
    for http in [Http::One, Http::Two] {
        let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
        let (first, second) = event.split_at(20);
        let a = provider(
            Rule::new("a").answer(
                Answer::sse()
                    .text(event)
                    .gate("half")
                    .text(first)
                    .gate("whole")
                    .text(second)
                    .gate("never")
                    .text("data: [DONE]\n\n"),
            ),
        )
        .await;
        let relay = relay(&two(&a, &a, "")).await;
        let send = client(http)
            .post(url(&relay, path(Dialect::ChatCompletions)))
            .header("content-type", "application/json")
            .body(request_for(Dialect::ChatCompletions, "m", 1))
            .send();
        let mut response = tokio::time::timeout(PATIENCE, send).await.expect("in time").expect("a head");
        let next =
            tokio::time::timeout(PATIENCE, response.chunk()).await.expect("in time").expect("data").expect("data");
        assert_eq!(next, event);
        assert!(a.open_gate("half", 1));
        // Half an event is nothing, however long it lies there.
        let half = tokio::time::timeout(Duration::from_millis(200), response.chunk()).await;
        assert!(half.is_err(), "{half:?}");
        assert!(a.open_gate("whole", 1));
        let next =
            tokio::time::timeout(PATIENCE, response.chunk()).await.expect("in time").expect("data").expect("data");
        assert_eq!(next, event);
    }
}

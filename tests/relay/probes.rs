//! The probe loop: unknowns are asked about until they are known.

use std::time::Duration;

use rubicon::serve::Server;
use serde_json::Value;

use crate::harness::PATIENCE;
use crate::tool_server::{Act, ToolServer, answer};
use crate::tools::{pay, record, relay_of};

const RULES: &str = "rules = [{ pointer = \"/s\", equals = \"done\", outcome = \"succeeded\" }, \
                     { pointer = \"/s\", equals = \"none\", outcome = \"not_executed\" }]";

async fn asked(tool: &ToolServer, probe: &ToolServer, more: &str) -> (Server, String) {
    let url = probe.url("/status/{key}");
    let relay = relay_of(&tool.url("/"), &format!("probe = {{ url = \"{url}\", {RULES}{more} }}")).await;
    let answered = pay(&relay, "{}").await;
    assert_eq!(answered.json()["decision"], "reconcile");
    let key = answered.header("rubicon-execution-key").to_owned();
    assert_eq!(record(&relay, &key).await["evidence"][0]["kind"], "sending");
    (relay, key)
}

async fn until(relay: &Server, key: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let looking = async {
        loop {
            let now = record(relay, key).await;
            if holds(&now) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it becomes so")
}

fn settled(record: &Value) -> bool {
    record["state"] != "unknown"
}

#[tokio::test]
async fn accepted_is_asked_about_and_its_result_is_the_answer_from_then_on() {
    let tool = ToolServer::always(202, "{}").await;
    let probe = ToolServer::start(vec![
        Act::Answer(answer(200, "{\"s\":\"busy\"}")),
        Act::Answer(answer(200, "{\"s\":\"done\",\"id\":9}")),
    ])
    .await;
    let (relay, key) = asked(&tool, &probe, "").await;
    let now = until(&relay, &key, settled).await;
    assert_eq!((now["state"].as_str(), now["reconciliation"].as_str()), (Some("succeeded"), Some("resolved")));
    let probes = now["evidence"].as_array().into_iter().flatten().filter(|seen| seen["kind"] == "probe");
    assert_eq!(probes.count(), 2, "each answer is evidence: {now}");
    let again = pay(&relay, "{}").await;
    assert_eq!(
        (again.status, again.text(), again.header("idempotent-replayed")),
        (200, "{\"s\":\"done\",\"id\":9}", "true")
    );
    assert_eq!((tool.requests().len(), probe.requests().len()), (1, 2));
    let encoded = key.replace(':', "%3A");
    assert!(probe.requests()[0].starts_with(&format!("GET /status/{encoded} HTTP/1.1\r\n")), "{:?}", probe.requests());
    relay.shutdown().await;
}

#[tokio::test]
async fn absent_counts_only_after_its_delay_and_then_it_may_run_again() {
    for absent in [answer(404, "{}"), answer(200, "{\"s\":\"none\"}")] {
        let tool = ToolServer::start(vec![Act::AnswerAndClose(String::new()), Act::Answer(answer(200, "{}"))]).await;
        let probe = ToolServer::start(vec![Act::Answer(absent)]).await;
        let (relay, key) = asked(&tool, &probe, ", absent_after_ms = 1500").await;
        let now = until(&relay, &key, settled).await;
        assert_eq!(now["failure"], "not_executed");
        let evidence = now["evidence"].as_array().cloned().expect("evidence");
        let at = |index: usize| evidence[index]["at"].as_u64().expect("a time");
        assert!(at(evidence.len() - 1) - at(0) >= 1400, "{now}");
        assert_eq!(pay(&relay, "{}").await.status, 200);
        assert_eq!(tool.connections(), 2);
        relay.shutdown().await;
    }
}

#[tokio::test]
async fn answers_must_agree_in_a_row_and_failures_change_nothing() {
    let tool = ToolServer::always(500, "{}").await;
    let done = || Act::Answer(answer(200, "{\"s\":\"done\"}"));
    let probe = ToolServer::start(vec![
        done(),
        Act::Answer(answer(200, "{\"s\":\"busy\"}")),
        done(),
        Act::CloseAtOnce,
        Act::Answer(answer(503, "{\"s\":\"none\"}")),
        done(),
    ])
    .await;
    let (relay, key) = asked(&tool, &probe, ", agree = 2, absent_after_ms = 0").await;
    let now = until(&relay, &key, settled).await;
    assert_eq!(now["state"], "succeeded");
    assert_eq!(probe.connections(), 6);
    relay.shutdown().await;
}

#[tokio::test]
async fn without_a_verdict_nothing_is_decided() {
    let tool = ToolServer::always(500, "{}").await;
    let probe = ToolServer::always(200, "{\"s\":\"busy\"}").await;
    let (relay, key) = asked(&tool, &probe, ", absent_after_ms = 0").await;
    probe.until_requests(3).await;
    let now = record(&relay, &key).await;
    assert_eq!((now["state"].as_str(), now["reconciliation"].as_str()), (Some("unknown"), Some("probing")));
    assert_eq!(tool.connections(), 1);
    probe.play(Act::Answer(answer(200, "{\"s\":\"done\"}")));
    until(&relay, &key, settled).await;
    relay.shutdown().await;
}

//! The ledger of a living relay in its metrics and event lines: what was decided, what became of it, and nothing of what it was about.

use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, client, relay, send, url};
use crate::setup::Setup;
use crate::watched::{Lines, sum};

async fn call(relay: &Server, path: &str, body: &Value) -> Answered {
    let request = client(Http::One).post(url(relay, path)).header("content-type", "application/json");
    send(request.body(body.to_string())).await
}

#[tokio::test]
async fn claims_and_transitions_are_counted_and_told() {
    let lines = Lines::new();
    let tables = format!("{}[tool.refund]\nkey_fields = [\"/id\"]\n", lines.table());
    let relay = relay(&Setup::primary("http://127.0.0.1:9").tables(&tables).text()).await;
    let claim = json!({"root": "run-1", "tool": "refund", "arguments": {"id": 7, "note": "SECRET-NOTE"}});
    let first = call(&relay, "/v1/executions", &claim).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let (key, token) = (first.json()["execution"]["key"].clone(), first.json()["lease_token"].clone());
    let done = json!({"lease_token": token, "outcome": "succeeded", "result": {"receipt": "SECRET-RESULT"}});
    let path = format!("/v1/executions/{}/complete", key.as_str().expect("a key"));
    assert_eq!(call(&relay, &path, &done).await.status, 200);
    assert_eq!(call(&relay, "/v1/executions", &claim).await.status, 200);
    let reworded = json!({"root": "run-1", "tool": "refund", "arguments": {"id": 7, "note": "other"}});
    assert_eq!(call(&relay, "/v1/executions", &reworded).await.status, 422);
    for (decision, count) in [("execute", 1.0), ("use_result", 1.0), ("conflict", 1.0)] {
        let label = format!("decision=\"{decision}\"");
        assert_eq!(sum(&relay, "rubicon_execution_claims_total", &["tool=\"refund\"", &label]), count, "{decision}");
    }
    assert_eq!(sum(&relay, "rubicon_execution_claim_duration_seconds_count", &[]), 3.0);
    assert_eq!(sum(&relay, "rubicon_ledger_available", &[]), 1.0);
    assert_eq!(sum(&relay, "rubicon_executions_open", &["phase=\"started\""]), 0.0);
    let told = lines.of(&relay, "execution", 2).await;
    let states: Vec<_> = told.iter().map(|line| (line["from"].clone(), line["to"].clone())).collect();
    assert_eq!(states, [(json!(null), json!("started")), (json!("started"), json!("succeeded"))]);
    for line in &told {
        assert_eq!((&line["execution"], &line["tool"], &line["root"]), (&key, &json!("refund"), &json!("run-1")));
    }
    assert!(!lines.text(&relay).await.contains("SECRET"));
}

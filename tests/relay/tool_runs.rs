//! `POST /v1/tools/{tool}`: the relay runs the tool once, whoever leaves, and answers with its own bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use http::{HeaderMap, StatusCode};
use rubicon::serve::Server;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::executions::{get, post, refused};
use crate::harness::{Answered, Http, PATIENCE, client, relay, send, url};
use crate::setup::Setup;

/// A tool server: counts its calls, answers as it is asked to, and may be held up.
#[derive(Clone)]
struct Tool {
    calls: Arc<AtomicUsize>,
    /// A call waits for a permit.
    go: Arc<Semaphore>,
    seen: Arc<std::sync::Mutex<Vec<(HeaderMap, Bytes)>>>,
}

async fn act(State(tool): State<Tool>, headers: HeaderMap, body: Bytes) -> Response {
    tool.calls.fetch_add(1, Ordering::SeqCst);
    tool.seen.lock().unwrap().push((headers, body.clone()));
    tool.go.acquire().await.expect("open").forget();
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let status = said["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(200);
    let answer = "{\"done\":  true,\n \"n\": 1.0}";
    let status = StatusCode::from_u16(status).expect("a status");
    (status, [("content-type", "application/vnd.tool+json")], answer).into_response()
}

async fn tool(go: usize) -> (Tool, Server) {
    let tool = Tool { calls: Arc::default(), go: Arc::new(Semaphore::new(go)), seen: Arc::default() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().fallback(any(act)).with_state(tool.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let tools = format!(
        "[tool.charge]\nkey_fields = [\"/order\"]\nmax_runs = 2\nendpoint = {{ url = \"http://{address}/charge\" }}\n[tool.own]\n"
    );
    let text = Setup::primary("http://127.0.0.1:9").server("store = \"memory\"").tables(&tools).text();
    (tool, relay(&text).await)
}

async fn run(relay: &Server, arguments: &str) -> Answered {
    let body = format!("{{\"operation_id\":\"op_1\",\"arguments\":{arguments}}}");
    let request = client(Http::One).post(url(relay, "/v1/tools/charge")).header("content-type", "application/json");
    send(request.body(body)).await
}

#[tokio::test]
async fn it_runs_once_and_its_bytes_are_answered_for_ever() {
    let (tool, relay) = tool(100).await;
    let first = run(&relay, "{ \"order\": 1.0 }").await;
    assert_eq!((first.status, first.text()), (200, "{\"done\":  true,\n \"n\": 1.0}"));
    assert_eq!(
        (first.header("content-type"), first.header("idempotent-replayed")),
        ("application/vnd.tool+json", "false")
    );
    let again = run(&relay, "{\"order\":1}").await;
    assert_eq!((again.status, &again.body, again.header("idempotent-replayed")), (200, &first.body, "true"));
    assert_eq!(again.header("content-type"), "application/vnd.tool+json");
    assert_eq!(tool.calls.load(Ordering::SeqCst), 1);
    let (headers, body) = tool.seen.lock().unwrap()[0].clone();
    let key = first.header("rubicon-execution-key");
    assert_eq!(
        (&headers["idempotency-key"], &headers["rubicon-operation-id"]),
        (&key.parse().unwrap(), &"op_1".parse().unwrap())
    );
    assert_eq!(&body[..], b"{ \"order\": 1.0 }", "the arguments as they were written");
    let record = get(&relay, key).await.json();
    assert_eq!((&record["state"], &record["result"]["done"]), (&json!("succeeded"), &json!(true)), "{record}");
}

#[tokio::test]
async fn what_it_answers_decides() {
    let (tool, relay) = tool(100).await;
    let error = run(&relay, "{\"order\":1,\"status\":404}").await;
    assert_eq!((error.status, error.text()), (404, "{\"done\":  true,\n \"n\": 1.0}"), "the tool's own error");
    let again = run(&relay, "{\"order\":1,\"status\":404}").await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (404, "true"));
    assert_eq!(tool.calls.load(Ordering::SeqCst), 1);

    let unknown = refused(&run(&relay, "{\"order\":2,\"status\":500}").await, 409, "reconcile", false);
    assert!(unknown["model_text"].is_string() && unknown["decision"] == "reconcile", "{unknown}");
    refused(&run(&relay, "{\"order\":2,\"status\":500}").await, 409, "reconcile", false);
    assert_eq!(tool.calls.load(Ordering::SeqCst), 2);

    refused(&run(&relay, "{\"order\":3,\"status\":429}").await, 409, "not_executed", true);
    refused(&run(&relay, "{\"order\":3,\"status\":429}").await, 409, "stop", false);
    refused(&run(&relay, "{\"order\":3,\"status\":429}").await, 409, "stop", false);
    assert_eq!(tool.calls.load(Ordering::SeqCst), 4, "two runs in all");
}

#[tokio::test]
async fn a_client_that_leaves_stops_nothing_and_twins_get_the_one_answer() {
    let (tool, relay) = tool(0).await;
    let body = json!({ "operation_id": "op_1", "arguments": { "order": 1 } });
    let request = client(Http::One).post(url(&relay, "/v1/tools/charge")).json(&body);
    let leaving = tokio::spawn(send(request));
    let until = tokio::time::Instant::now() + PATIENCE;
    while tool.calls.load(Ordering::SeqCst) == 0 {
        assert!(tokio::time::Instant::now() < until, "the tool was never called");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    leaving.abort();
    let hasty = client(Http::One).post(url(&relay, "/v1/tools/charge")).header("prefer", "wait=1").json(&body);
    refused(&send(hasty).await, 409, "in_progress", true);
    let twins: Vec<_> = (0..20)
        .map(|_| tokio::spawn(send(client(Http::One).post(url(&relay, "/v1/tools/charge")).json(&body))))
        .collect();
    tool.go.add_permits(1);
    for twin in twins {
        let twin = twin.await.expect("no panic");
        assert_eq!((twin.status, twin.header("idempotent-replayed")), (200, "true"), "{}", twin.text());
    }
    assert_eq!(tool.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_the_relay_does_not_run_is_said() {
    let (tool, relay) = tool(100).await;
    let body = |arguments: Value| json!({ "operation_id": "op_1", "arguments": arguments });
    refused(&post(&relay, "/v1/tools/own", &body(json!({}))).await, 400, "tool_not_runnable", false);
    refused(&post(&relay, "/v1/tools/rm", &body(json!({}))).await, 404, "unknown_tool", false);
    refused(&post(&relay, "/v1/tools/charge", &body(json!({}))).await, 400, "invalid_arguments", false);
    let lease = json!({ "operation_id": "op_1", "arguments": { "order": 1 }, "lease_ms": 1000 });
    refused(&post(&relay, "/v1/tools/charge", &lease).await, 400, "unknown_member", false);
    refused(&post(&relay, "/v1/tools/charge", &json!({ "operation_id": "op_1" })).await, 400, "missing_member", false);
    assert_eq!(tool.calls.load(Ordering::SeqCst), 0);
}

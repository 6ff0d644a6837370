//! The real process: what was acknowledged is there after `kill -9`, a claim's name gets its lease again, the relay's own runs are unknown
//! afterwards; a disk that takes nothing refuses claims and nothing else, and recovers.

use std::path::Path;

use serde_json::{Value, json};

use crate::child::Serving;
use crate::harness::{Answered, Http, client, send};
use crate::setup::Setup;
use crate::tool_server::ToolServer;

fn text(tools: &str) -> String {
    Setup::primary("http://127.0.0.1:9").server("store = \"redb:data/rubicon.redb\"").tables(tools).text()
}

const TOOLS: &str = "[tool.charge]\nkey_fields = [\"/order\"]\n";

async fn serve(folder: &Path, tools: &str) -> Serving {
    Serving::start_in(folder, &text(tools), &[], None).await
}

async fn post(relay: &Serving, path: &str, body: &Value) -> Answered {
    send(client(Http::One).post(format!("http://{}{path}", relay.address)).json(body)).await
}

async fn get(relay: &Serving, path: &str) -> Answered {
    send(client(Http::One).get(format!("http://{}{path}", relay.address))).await
}

fn claim(order: u64, claim_id: &str) -> Value {
    json!({ "operation_id": "op_1", "tool": "charge", "arguments": { "order": order }, "claim_id": claim_id })
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_kill_9() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path(), TOOLS).await;
    let running = post(&relay, "/v1/executions", &claim(1, "c1")).await.json();
    let done = post(&relay, "/v1/executions", &claim(2, "c2")).await.json();
    let key = done["execution"]["key"].as_str().expect("a key").to_owned();
    let result = "{ \"charged\":  2.50 }";
    let body = format!("{{\"lease_token\":{},\"outcome\":\"succeeded\",\"result\":{result}}}", done["lease_token"]);
    let request = client(Http::One).post(format!("http://{}/v1/executions/{key}/complete", relay.address));
    assert_eq!(send(request.header("content-type", "application/json").body(body)).await.status, 200);
    let before = post(&relay, "/v1/executions", &claim(2, "c3")).await;
    assert!(before.text().contains(result), "{}", before.text());
    relay.kill_9().await;

    let relay = serve(folder.path(), TOOLS).await;
    let after = post(&relay, "/v1/executions", &claim(2, "c3")).await;
    assert_eq!((after.status, after.body), (200, before.body), "byte for byte");
    // A client's lease lives on: its claim gets it again by its name, and nobody else does.
    let again = post(&relay, "/v1/executions", &claim(1, "c1")).await;
    assert_eq!((again.status, &again.json()["lease_token"]), (201, &running["lease_token"]), "{}", again.text());
    assert_eq!(post(&relay, "/v1/executions", &claim(1, "other")).await.json()["decision"], "in_progress");
    let shown = get(&relay, "/v1/operations/op_1").await.json();
    assert_eq!((&shown["state"], shown["executions"].as_array().map(Vec::len)), (&json!("none"), Some(2)), "{shown}");
    // Plans of an operation that nobody remembers may have been lost.
    let flagged = post(&relay, "/v1/executions", &claim(3, "c4")).await.json();
    assert_eq!(flagged["execution"]["flags"], json!(["plan_incomplete"]), "{flagged}");
    let path = format!("/v1/executions/{}/complete", running["execution"]["key"].as_str().expect("a key"));
    let late = post(&relay, &path, &json!({ "lease_token": running["lease_token"], "outcome": "succeeded" })).await;
    assert_eq!(late.status, 200, "{}", late.text());
    assert_eq!(relay.stop().await.0, 0);
}

#[tokio::test]
async fn what_the_relay_ran_itself_is_unknown_after_kill_9() {
    let folder = tempfile::tempdir().expect("a folder");
    // Takes the call and never answers.
    let tool = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let tools =
        format!("[tool.charge]\nendpoint = {{ url = \"http://{}/\" }}\n", tool.local_addr().expect("an address"));
    let relay = serve(folder.path(), &tools).await;
    let body = json!({ "operation_id": "op_1", "arguments": { "order": 1 } });
    let url = format!("http://{}/v1/tools/charge", relay.address);
    let asking = tokio::spawn(client(Http::One).post(url).json(&body).send());
    let (called, _) = tool.accept().await.expect("a call");
    called.readable().await.expect("bytes of it");
    relay.kill_9().await;
    assert!(asking.await.expect("no panic").is_err(), "nobody was told anything");

    let relay = serve(folder.path(), &tools).await;
    let told = post(&relay, "/v1/tools/charge", &body).await;
    let told_json = told.json();
    assert_eq!((told.status, &told_json["decision"]), (409, &json!("reconcile")), "{told_json}");
    assert_eq!(told_json["execution"]["state"], "unknown");
    relay.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_refuses_claims_and_nothing_else_until_there_is_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path(), TOOLS).await;
    let first = post(&relay, "/v1/executions", &claim(1, "c1")).await;
    assert_eq!(first.status, 201);
    assert_eq!(relay.stop().await.0, 0);
    let relay = Serving::start_in(folder.path(), &text(TOOLS), &[], Some(1)).await;
    let refused = post(&relay, "/v1/executions", &claim(2, "c2")).await;
    let told = refused.json();
    assert_eq!(
        (refused.status, &told["error"]["code"], &told["retryable"]),
        (503, &json!("ledger_unavailable"), &json!(true))
    );
    assert!(refused.headers.contains_key("retry-after"), "{told}");
    let ready = get(&relay, "/readyz").await;
    assert_eq!((ready.status, &ready.json()["ledger"]), (200, &json!("unavailable")));
    let key = first.json()["execution"]["key"].as_str().expect("a key").to_owned();
    assert_eq!(get(&relay, &format!("/v1/executions/{key}")).await.status, 200, "what is there can be read");
    relay.make_room().await;
    let until = tokio::time::Instant::now() + crate::harness::PATIENCE;
    let taken = loop {
        let taken = post(&relay, "/v1/executions", &claim(2, "c2")).await;
        if taken.status != 503 {
            break taken;
        }
        assert!(tokio::time::Instant::now() < until, "it did not recover: {}", taken.text());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert_eq!(taken.status, 201, "{}", taken.text());
    assert_eq!(get(&relay, "/readyz").await.json()["ledger"], "ok");
    let again = post(&relay, "/v1/executions", &claim(1, "c1")).await;
    assert_eq!(again.json()["lease_token"], first.json()["lease_token"], "nothing acknowledged was lost");
    relay.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_outcome_that_finds_no_room_is_not_told_before_it_is_on_disk_and_the_tool_runs_once() {
    let folder = tempfile::tempdir().expect("a folder");
    // The claim fits on the disk, the answer does not.
    let body = format!("\"{}\"", "x".repeat(6 << 20));
    let tool = ToolServer::always(200, &body).await;
    let tools = format!("[tool.charge]\nkey_fields = [\"/order\"]\nendpoint = {{ url = \"{}\" }}\n", tool.url("/"));
    let four_mib_in_blocks = 4 << 11;
    let relay = Serving::start_in(folder.path(), &text(&tools), &[], Some(four_mib_in_blocks)).await;
    let call = json!({ "operation_id": "op_1", "arguments": { "order": 1 } });
    let told = post(&relay, "/v1/tools/charge", &call).await;
    let code = told.json()["error"]["code"].clone();
    assert_eq!((told.status, &code), (503, &json!("outcome_not_recorded")), "{}", told.text());
    let refused = post(&relay, "/v1/executions", &claim(2, "c2")).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    relay.make_room().await;
    let until = tokio::time::Instant::now() + crate::harness::PATIENCE;
    let again = loop {
        let again = post(&relay, "/v1/tools/charge", &call).await;
        if again.status == 200 {
            break again;
        }
        assert_eq!(again.status, 503, "{}", again.text());
        assert!(tokio::time::Instant::now() < until, "it was never recorded: {}", again.text());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    assert!(again.text() == body && again.header("idempotent-replayed") == "true", "the stored bytes");
    assert_eq!(tool.requests().len(), 1, "it ran once");
    relay.stop().await;
}

#[tokio::test]
async fn a_damaged_ledger_takes_no_claims() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path(), TOOLS).await;
    assert_eq!(post(&relay, "/v1/executions", &claim(1, "c1")).await.status, 201);
    relay.kill_9().await;
    // The record stays, and nothing finds it any more: its call would run again.
    let store = redb::Database::open(folder.path().join("data/rubicon.redb")).expect("a store");
    let index: redb::TableDefinition<'_, &[u8; 25], ()> = redb::TableDefinition::new("index");
    let writing = store.begin_write().expect("a transaction");
    writing.open_table(index).expect("the index").retain(|_, ()| false).expect("emptied");
    writing.commit().expect("damage");
    drop(store);

    let relay = serve(folder.path(), TOOLS).await;
    let refused = post(&relay, "/v1/executions", &claim(1, "other")).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("ledger_unavailable")));
    let ready = get(&relay, "/readyz").await;
    assert_eq!((ready.status, &ready.json()["ledger"]), (200, &json!("unavailable")), "{}", ready.text());
    relay.says("the ledger is damaged and takes no claims", 1).await;
    assert_eq!(get(&relay, "/v1/models").await.status, 200, "everything else goes on");
}

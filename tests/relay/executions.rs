//! The ledger's calls over HTTP: every row of the table of SPEC section 8, the object, heartbeats, completions, and what is kept.

use reqwest::header::HeaderMap;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, client, relay, send, url};
use crate::setup::Setup;

/// Tools with one rule each.
pub(crate) const TOOLS: &str = r#"
[tool.charge]
key_fields = ["/order"]
ignore_fields = ["/trace"]

[tool.send]

[tool.note]
similar = "off"
max_runs = 2

[tool.wire]
impact = "high"

[tool.launch]
approval = "before_run"

[tool.look]
effect = "read_only"

[tool.strict]
key_fields = ["/id"]
schema = { type = "object", required = ["id"], properties = { id = { type = "integer" }, words = { type = "string", maxLength = 5 } }, additionalProperties = false }
"#;

/// A relay with these tools; its provider is never called.
pub(crate) async fn with_tools() -> Server {
    relay(&Setup::primary("http://127.0.0.1:9").server("store = \"memory\"").tables(TOOLS).text()).await
}

/// Posts JSON.
pub(crate) async fn post(relay: &Server, path: &str, body: &Value) -> Answered {
    send(client(Http::One).post(url(relay, path)).json(body)).await
}

/// Claims a call of a tool for the operation `op_1`.
pub(crate) async fn claim(relay: &Server, tool: &str, arguments: Value) -> Answered {
    post(relay, "/v1/executions", &json!({ "operation_id": "op_1", "tool": tool, "arguments": arguments })).await
}

/// Key and lease token of a claim that may run.
pub(crate) fn lease(claimed: &Answered) -> (String, String) {
    let told = claimed.json();
    assert_eq!((claimed.status, &told["decision"]), (201, &json!("execute")), "{told}");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&told["execution"]["key"]), text(&told["lease_token"]))
}

/// Settles a run.
pub(crate) async fn complete(relay: &Server, (key, token): &(String, String), mut body: Value) -> Answered {
    body["lease_token"] = json!(token);
    post(relay, &format!("/v1/executions/{key}/complete"), &body).await
}

/// The record, bare.
pub(crate) async fn get(relay: &Server, key: &str) -> Answered {
    send(client(Http::One).get(url(relay, &format!("/v1/executions/{key}")))).await
}

/// A refusal has all that a program needs: a code, words, a type, whether to come again, and the hint only then.
pub(crate) fn refused(answered: &Answered, status: u16, code: &str, retryable: bool) -> Value {
    let told = answered.json();
    assert_eq!((answered.status, &told["error"]["code"]), (status, &json!(code)), "{told}");
    assert!(told["error"]["message"].as_str().is_some_and(|message| message.len() > 10), "{told}");
    assert!(told["error"]["type"].is_string(), "{told}");
    assert_eq!(told["retryable"], json!(retryable), "{told}");
    assert_eq!(answered.headers.contains_key("retry-after"), retryable, "{told}");
    assert_eq!(answered.headers.contains_key("x-should-retry"), !retryable, "{told}");
    told
}

fn decided(answered: &Answered, status: u16, decision: &str, retryable: bool) -> Value {
    let told = refused(answered, status, decision, retryable);
    assert_eq!(told["decision"], json!(decision), "{told}");
    told
}

#[tokio::test]
async fn a_claim_runs_once_and_its_result_answers_for_ever() {
    let relay = with_tools().await;
    let claimed = claim(&relay, "charge", json!({ "order": 7, "trace": "a" })).await;
    let run = lease(&claimed);
    let told = claimed.json();
    let object = &told["execution"];
    assert_eq!(claimed.header("location"), format!("/v1/executions/{}", run.0));
    assert_eq!(claimed.header("rubicon-execution-key"), run.0);
    assert_eq!(claimed.header("etag"), format!("\"{}\"", object["version"]));
    for (member, value) in [
        ("operation_id", json!("op_1")),
        ("root", json!("op_1")),
        ("tool", json!("charge")),
        ("occurrence", json!(0)),
        ("state", json!("started")),
        ("failure", Value::Null),
        ("reconciliation", json!("none")),
        ("epoch", json!(1)),
        ("arguments", json!({ "order": 7, "trace": "a" })),
        ("result", Value::Null),
        ("external_reference", Value::Null),
        ("error", Value::Null),
        ("tool_call_id", Value::Null),
        ("settled_at", Value::Null),
    ] {
        assert_eq!(object[member], value, "{member}: {object}");
    }
    assert!(object["lease_until"].as_u64() > object["created_at"].as_u64(), "{object}");
    assert!(object["history"].as_array().is_some_and(|lines| !lines.is_empty()), "{object}");

    decided(&claim(&relay, "charge", json!({ "order": 7 })).await, 409, "in_progress", true);

    let said = json!({ "outcome": "succeeded", "result": { "charged": 1.50 }, "external_reference": "ch_1" });
    let done = complete(&relay, &run, said.clone()).await;
    assert_eq!((done.status, &done.json()["execution"]["state"]), (200, &json!("succeeded")), "{}", done.text());
    let again = complete(&relay, &run, said).await;
    assert_eq!((again.status, again.body), (200, done.body), "the same settlement again changes nothing");
    let other = complete(&relay, &run, json!({ "outcome": "executed_error" })).await;
    let other = refused(&other, 409, "already_settled", false);
    assert_eq!(other["execution"]["state"], "succeeded");

    let replay = claim(&relay, "charge", json!({ "trace": "b", "order": 7.0 })).await;
    let told = replay.json();
    assert_eq!((replay.status, &told["decision"]), (200, &json!("use_result")), "{told}");
    assert_eq!(replay.header("idempotent-replayed"), "true");
    assert!(replay.text().contains("{\"charged\":1.5}"), "the bytes that were said: {}", replay.text());
    assert_eq!(told["execution"]["external_reference"], "ch_1");
    assert!(!replay.text().contains(&run.1), "no lease token but in a 201");
    let third = claim(&relay, "charge", json!({ "trace": "b", "order": 7.0 })).await;
    assert_eq!(third.body, replay.body);

    let record = get(&relay, &run.0).await;
    let bare = record.json();
    assert_eq!((record.status, &bare["key"], &bare["state"]), (200, &json!(run.0), &json!("succeeded")), "{bare}");
    assert_eq!(record.header("etag"), format!("\"{}\"", bare["version"]));
    assert!(bare["evidence"].is_array() && bare["decision"].is_null(), "{bare}");
    let actions: Vec<_> = bare["history"].as_array().expect("a list").iter().map(|line| &line["to"]).collect();
    // What the owner said otherwise is kept as evidence, and changes nothing.
    assert_eq!(actions, [&json!("started"), &json!("succeeded"), &json!("succeeded")], "{bare}");
    assert_eq!(bare["evidence"][0]["detail"]["outcome"], "executed_error", "{bare}");
    assert!(!record.text().contains(&run.1), "{bare}");
}

#[tokio::test]
async fn the_same_intent_in_other_words_is_told_where_it_differs() {
    let relay = with_tools().await;
    let run = lease(&claim(&relay, "charge", json!({ "order": 7, "amount": 5, "to": { "iban": "x" } })).await);
    let other = claim(&relay, "charge", json!({ "order": 7, "amount": 6, "to": { "iban": "y" } })).await;
    let told = decided(&other, 422, "conflict", false);
    assert_eq!(told["differs"], json!(["/amount", "/to/iban"]), "{told}");
    assert_eq!(told["execution"]["key"], json!(run.0), "{told}");
    let meant =
        json!({ "operation_id": "op_1", "tool": "charge", "occurrence": 1, "arguments": { "order": 7, "amount": 6 } });
    lease(&post(&relay, "/v1/executions", &meant).await);
}

#[tokio::test]
async fn an_unknown_one_is_checked_and_never_run_again() {
    let relay = with_tools().await;
    let run = lease(&claim(&relay, "charge", json!({ "order": 7 })).await);
    let said = complete(&relay, &run, json!({ "outcome": "unknown", "error": { "message": "cut" } })).await;
    assert_eq!((said.status, &said.json()["execution"]["state"]), (200, &json!("unknown")), "{}", said.text());
    let told = decided(&claim(&relay, "charge", json!({ "order": 7 })).await, 409, "reconcile", false);
    let text = told["model_text"].as_str().expect("a text for the model");
    assert!(text.contains(&run.0) && text.contains("reworded") && text.contains("not known"), "{text}");
    assert_eq!(told["execution"]["reconciliation"], "needs_operator");
    // Its owner finds out after all.
    let late = complete(&relay, &run, json!({ "outcome": "succeeded", "result": "done" })).await;
    assert_eq!((late.status, &late.json()["execution"]["state"]), (200, &json!("succeeded")), "{}", late.text());
    let evidence = get(&relay, &run.0).await.json();
    assert!(evidence["evidence"].as_array().is_some_and(|seen| !seen.is_empty()), "{evidence}");
}

#[tokio::test]
async fn what_ended_in_an_error_stops_and_what_did_not_run_may_run_again() {
    let relay = with_tools().await;
    let run = lease(&claim(&relay, "charge", json!({ "order": 1 })).await);
    complete(&relay, &run, json!({ "outcome": "executed_error", "error": { "code": "no_funds" } })).await;
    let told = decided(&claim(&relay, "charge", json!({ "order": 1 })).await, 409, "stop", false);
    assert_eq!(told["execution"]["failure"], "executed_error");
    assert_eq!(told["execution"]["error"], json!({ "code": "no_funds" }));
    // Other words for it may be meant: the caller has to say so.
    let other = json!({ "order": 1, "amount": 2 });
    let told = decided(&claim(&relay, "charge", other.clone()).await, 409, "confirm", false);
    assert_eq!((&told["reason"], &told["similar"]["key"]), (&json!("after_error"), &json!(run.0)), "{told}");

    let (first, second) =
        (claim(&relay, "note", json!({ "n": 1 })).await, claim(&relay, "note", json!({ "n": 2 })).await);
    let (first, second) = (lease(&first), lease(&second));
    complete(&relay, &first, json!({ "outcome": "not_executed" })).await;
    let again = lease(&claim(&relay, "note", json!({ "n": 1 })).await);
    assert_eq!(again.0, first.0);
    assert_ne!((&again.1, &again.1), (&first.1, &second.1), "a new right to run");
    let stale = complete(&relay, &first, json!({ "outcome": "succeeded" })).await;
    let stale = refused(&stale, 409, "stale_lease", false);
    assert_eq!(stale["execution"]["flags"], json!(["unplanned", "double_effect_suspected"]), "{stale}");
    complete(&relay, &again, json!({ "outcome": "not_executed" })).await;
    decided(&claim(&relay, "note", json!({ "n": 1 })).await, 409, "stop", false);
}

#[tokio::test]
async fn a_near_duplicate_is_held_until_it_is_confirmed_once() {
    let relay = with_tools().await;
    let said = |text: &str| json!({ "to": "a@example.test", "text": text });
    let first = lease(&claim(&relay, "send", said("your order is on its way")).await);
    let reworded = said("your parcel is now on its way");
    let told = decided(&claim(&relay, "send", reworded.clone()).await, 409, "confirm", false);
    assert_eq!((&told["reason"], &told["similar"]["key"]), (&json!("similar"), &json!(first.0)), "{told}");
    assert!(told["fingerprint"].as_str().is_some_and(|print| print.starts_with("fp_")), "{told}");
    let with =
        |confirm: &Value| json!({ "operation_id": "op_1", "tool": "send", "arguments": reworded, "confirm": confirm });
    let made_up = post(&relay, "/v1/executions", &with(&json!("ct_made_up"))).await;
    decided(&made_up, 409, "confirm", false);
    lease(&post(&relay, "/v1/executions", &with(&told["confirm_token"])).await);
    decided(&post(&relay, "/v1/executions", &with(&told["confirm_token"])).await, 409, "in_progress", true);

    let high = |text: &str| json!({ "iban": "x", "text": text });
    lease(&claim(&relay, "wire", high("rent for the month of may")).await);
    let told = decided(&claim(&relay, "wire", high("rent for may as agreed")).await, 409, "confirm", false);
    assert_eq!(told["confirm_token"], Value::Null, "an approver's business: {told}");
}

#[tokio::test]
async fn a_run_that_needs_an_approval_waits_for_it() {
    let relay = with_tools().await;
    let told = claim(&relay, "launch", json!({ "site": 3 })).await;
    assert_eq!((told.status, &told.json()["decision"]), (202, &json!("await_approval")), "{}", told.text());
    assert_eq!(told.json()["execution"]["state"], "planned");
    assert!(told.json()["lease_token"].is_null());
}

#[tokio::test]
async fn a_read_runs_again_and_a_running_one_is_joined() {
    let relay = with_tools().await;
    let first = lease(&claim(&relay, "look", json!({ "q": 1 })).await);
    decided(&claim(&relay, "look", json!({ "q": 1 })).await, 409, "in_progress", true);
    complete(&relay, &first, json!({ "outcome": "succeeded", "result": 1 })).await;
    let second = lease(&claim(&relay, "look", json!({ "q": 1 })).await);
    assert_ne!(first.0, second.0, "a settled read never answers a later claim");
    complete(&relay, &second, json!({ "outcome": "unknown" })).await;
    lease(&claim(&relay, "look", json!({ "q": 1 })).await);
}

#[tokio::test]
async fn a_heartbeat_extends_the_lease_while_it_lasts() {
    let relay = with_tools().await;
    let body = json!({ "operation_id": "op_1", "tool": "charge", "arguments": { "order": 7 }, "lease_ms": 60_000 });
    let claimed = post(&relay, "/v1/executions", &body).await;
    let (key, token) = lease(&claimed);
    let path = format!("/v1/executions/{key}/heartbeat");
    let beat = post(&relay, &path, &json!({ "lease_token": token, "lease_ms": 3_600_000 })).await;
    let until = |answered: &Answered| answered.json()["execution"]["lease_until"].as_u64();
    assert_eq!(beat.status, 200, "{}", beat.text());
    assert!(until(&beat) > until(&claimed), "{}", beat.text());
    for (body, status, code) in [
        (json!({ "lease_token": "lt_made_up" }), 409, "foreign_lease"),
        (json!({ "lease_ms": 1000 }), 400, "missing_member"),
        (json!({ "lease_token": token, "lease_ms": 99 }), 400, "invalid_member"),
        (json!({ "lease_token": token, "lease_ms": 86_400_001 }), 400, "invalid_member"),
        (json!({ "lease_token": token, "lease": 1000 }), 400, "unknown_member"),
    ] {
        refused(&post(&relay, &path, &body).await, status, code, false);
    }
    complete(&relay, &(key, token.clone()), json!({ "outcome": "succeeded" })).await;
    let over = post(&relay, &path, &json!({ "lease_token": token })).await;
    assert_eq!(over.status, 409, "{}", over.text());
}

#[tokio::test]
async fn a_lease_that_ran_out_leaves_it_unknown_and_the_late_owner_settles_it() {
    let relay = with_tools().await;
    let body = json!({ "operation_id": "op_1", "tool": "charge", "arguments": { "order": 7 }, "lease_ms": 100 });
    let run = lease(&post(&relay, "/v1/executions", &body).await);
    let until = tokio::time::Instant::now() + crate::harness::PATIENCE;
    while get(&relay, &run.0).await.json()["state"] != "unknown" {
        assert!(tokio::time::Instant::now() < until, "the lease never ran out");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let beat = post(&relay, &format!("/v1/executions/{}/heartbeat", run.0), &json!({ "lease_token": run.1 })).await;
    refused(&beat, 409, "lease_over", false);
    decided(&claim(&relay, "charge", json!({ "order": 7 })).await, 409, "reconcile", false);
    let late = complete(&relay, &run, json!({ "outcome": "succeeded", "result": 7 })).await;
    assert_eq!((late.status, &late.json()["execution"]["state"]), (200, &json!("succeeded")), "{}", late.text());
}

#[tokio::test]
async fn an_operation_shows_its_executions_and_what_follows() {
    let relay = with_tools().await;
    let operation = || send(client(Http::One).get(url(&relay, "/v1/operations/op_1")));
    assert_eq!(operation().await.status, 404);
    let run = lease(&claim(&relay, "charge", json!({ "order": 7 })).await);
    let shown = operation().await.json();
    assert_eq!(
        (&shown["state"], &shown["actions"], &shown["unresolved_executions"]),
        (&json!("none"), &json!(["none"]), &json!(1)),
        "{shown}"
    );
    assert_eq!(
        (&shown["executions"][0]["key"], &shown["executions"][0]["state"]),
        (&json!(run.0), &json!("started")),
        "{shown}"
    );
    assert!(shown["executions"][0]["arguments"].is_null(), "short: {shown}");
    complete(&relay, &run, json!({ "outcome": "unknown" })).await;
    assert_eq!(operation().await.json()["actions"], json!(["reconcile"]));
    complete(&relay, &run, json!({ "outcome": "succeeded" })).await;
    let shown = operation().await.json();
    assert_eq!((&shown["actions"], &shown["unresolved_executions"]), (&json!(["none"]), &json!(0)), "{shown}");
}

#[tokio::test]
async fn the_ledger_is_part_of_being_ready() {
    let relay = with_tools().await;
    let ready = send(client(Http::One).get(url(&relay, "/readyz"))).await;
    assert_eq!((ready.status, &ready.json()["ledger"]), (200, &json!("ok")));
    let wrong: HeaderMap = send(client(Http::One).get(url(&relay, "/v1/executions"))).await.headers;
    assert_eq!(wrong["allow"], "POST");
}

/// The README's lines for an application, run as they stand there against this relay.
#[tokio::test]
async fn the_readmes_lines_claim_run_and_complete() {
    let tool = "[tool.refund_order]\nkey_fields = [\"/order\"]\n";
    let relay = relay(&Setup::primary("http://127.0.0.1:9").server("store = \"memory\"").tables(tool).text()).await;
    let readme = include_str!("../../README.md");
    let (_, rest) = readme.split_once("<!-- ledger: application -->\n```sh\n").expect("the README has the lines");
    let (lines, _) = rest.split_once("```").expect("and their end");
    let (mut key, mut lease, mut said) = (String::new(), String::new(), Vec::new());
    for line in lines.lines() {
        let line = line.replace("http://127.0.0.1:8080/", &url(&relay, "/"));
        let mut shell = tokio::process::Command::new("sh");
        let output = shell.args(["-ec", &line]).env("KEY", &key).env("LEASE", &lease).output().await.expect("a shell");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{line}: {output:?}"));
        if let Some(token) = told["lease_token"].as_str() {
            lease = token.to_owned();
            key = told["execution"]["key"].as_str().expect("a key").to_owned();
        }
        said.push((told["decision"].clone(), told["execution"]["state"].clone(), told["execution"]["result"].clone()));
    }
    let result = json!({ "refunded": "1001" });
    assert_eq!(said[0], (json!("execute"), json!("started"), Value::Null));
    assert_eq!(said[1], (Value::Null, json!("succeeded"), result.clone()));
    assert_eq!(said[2], (json!("use_result"), json!("succeeded"), result));
    assert_eq!(said.len(), 3);
}

//! Claims over HTTP: whatever is wrong with one is refused before anything is recorded; of many at once one runs; who waits gets the
//! stored bytes.

use futures_util::future::join_all;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::executions::{TOOLS, claim, complete, lease, post, refused, with_tools};
use crate::harness::{Answered, Http, client, relay_with, send, url};
use crate::setup::Setup;

async fn raw(relay: &Server, body: impl Into<String>) -> Answered {
    let request = client(Http::One).post(url(relay, "/v1/executions")).header("content-type", "application/json");
    send(request.body(body.into())).await
}

/// A claim with these arguments, as they are written.
fn with(tool: &str, arguments: &str) -> String {
    format!("{{\"operation_id\":\"op_1\",\"tool\":\"{tool}\",\"arguments\":{arguments}}}")
}

async fn nothing_is_recorded(relay: &Server) {
    let shown = send(client(Http::One).get(url(relay, "/v1/operations/op_1"))).await;
    assert_eq!(shown.status, 404, "{}", shown.text());
}

#[tokio::test]
async fn refused_arguments_are_told_where_and_why_and_leave_nothing() {
    let relay = with_tools().await;
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(64), "]".repeat(64));
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20));
    let digits = format!("{{\"a\":1{}1}}", "0".repeat(5000));
    let rows: &[(&str, &str, u16, &str, &str)] = &[
        ("send", r#"{"to":{"a":1,"\u0061":2}}"#, 400, "duplicate_name", "/to/a"),
        ("send", r#"{"a":[1,"\ud800"]}"#, 400, "lone_surrogate", "/a/1"),
        ("send", r#"{"a":{"\udc00":1}}"#, 400, "lone_surrogate", "/a"),
        ("send", r#"{"a":1e99999999999}"#, 400, "number_out_of_range", "/a"),
        ("send", &digits, 400, "number_too_long", "/a"),
        ("send", &deep, 400, "too_deep", ""),
        ("send", &long, 413, "too_large", ""),
        ("send", "[]", 400, "not_an_object", ""),
        ("send", "\"{}\"", 400, "not_an_object", ""),
        ("send", "null", 400, "not_an_object", ""),
        ("charge", r#"{"amount":1}"#, 400, "key_field_missing", "/order"),
        ("strict", r#"{"id":"7"}"#, 400, "schema:type", "/id"),
        ("strict", r#"{"id":7,"words":"too long"}"#, 400, "schema:maxLength", "/words"),
        ("strict", r#"{"words":"x"}"#, 400, "schema:required", "/id"),
        ("strict", r#"{"id":7,"more":1}"#, 400, "schema:additionalProperties", "/more"),
    ];
    for (tool, arguments, status, reason, pointer) in rows {
        let shown: String = arguments.chars().take(60).collect();
        let told = refused(&raw(&relay, with(tool, arguments)).await, *status, "invalid_arguments", false);
        assert_eq!(told["reason"], json!(reason), "{shown}: {told}");
        if *reason != "too_deep" {
            assert_eq!(told["pointer"], json!(pointer), "{shown}: {told}");
        }
    }
    nothing_is_recorded(&relay).await;
}

#[tokio::test]
async fn a_body_that_is_not_a_claim_is_refused() {
    let relay = with_tools().await;
    let good = |member: &str, value: Value| {
        let mut body = json!({ "operation_id": "op_1", "tool": "send", "arguments": {} });
        body[member] = value;
        body.to_string()
    };
    let rows = [
        (String::new(), 400, "invalid_json", None),
        ("[]".to_owned(), 400, "invalid_json", None),
        ("{\"tool\":\"send\"".to_owned(), 400, "invalid_json", None),
        (good("ocurrence", json!(1)), 400, "unknown_member", Some("ocurrence")),
        (with("send", "{}").replacen('{', "{\"tool\":\"send\",", 1), 400, "invalid_member", Some("tool")),
        (json!({ "tool": "send", "arguments": {} }).to_string(), 400, "missing_member", Some("operation_id")),
        (json!({ "operation_id": "op_1", "arguments": {} }).to_string(), 400, "missing_member", Some("tool")),
        (json!({ "operation_id": "op_1", "tool": "send" }).to_string(), 400, "missing_member", Some("arguments")),
        (good("operation_id", json!("")), 400, "invalid_member", Some("operation_id")),
        (good("operation_id", json!(7)), 400, "invalid_member", Some("operation_id")),
        (good("root", json!("a\u{0}b")), 400, "invalid_member", Some("root")),
        (good("occurrence", json!(-1)), 400, "invalid_member", Some("occurrence")),
        (good("occurrence", json!(4_294_967_296_u64)), 400, "invalid_member", Some("occurrence")),
        (good("occurrence", json!(1.5)), 400, "invalid_member", Some("occurrence")),
        (good("lease_ms", json!(99)), 400, "invalid_member", Some("lease_ms")),
        (good("lease_ms", json!(86_400_001)), 400, "invalid_member", Some("lease_ms")),
        (good("lease_ms", json!("1000")), 400, "invalid_member", Some("lease_ms")),
        (good("claim_id", json!("x".repeat(513))), 400, "invalid_member", Some("claim_id")),
        (good("tool_call_id", json!({})), 400, "invalid_member", Some("tool_call_id")),
        (good("confirm", json!(true)), 400, "invalid_member", Some("confirm")),
        (good("tool", json!("rm")), 404, "unknown_tool", Some("tool")),
        (good("arguments", json!({ "a": "x".repeat(2 << 20) })), 413, "request_too_large", None),
    ];
    for (body, status, code, param) in rows {
        let shown: String = body.chars().take(120).collect();
        let told = refused(&raw(&relay, body).await, status, code, false);
        assert_eq!(told["error"]["param"].as_str(), param, "{shown}: {told}");
    }
    let two = client(Http::One).post(url(&relay, "/v1/executions")).header("rubicon-root", "other");
    let body = json!({ "root": "one", "tool": "send", "arguments": {} });
    refused(&send(two.json(&body)).await, 400, "invalid_member", false);
    let text = client(Http::One).post(url(&relay, "/v1/executions")).header("content-type", "text/plain");
    refused(&send(text.body(with("send", "{}"))).await, 415, "unsupported_media_type", false);
    nothing_is_recorded(&relay).await;
}

#[tokio::test]
async fn a_completion_that_is_none_changes_nothing() {
    let relay = with_tools().await;
    let run = lease(&claim(&relay, "send", json!({ "n": 1 })).await);
    let rows = [
        (json!({}), "missing_member"),
        (json!({ "outcome": "done" }), "invalid_member"),
        (json!({ "outcome": "succeeded", "results": 1 }), "unknown_member"),
        (json!({ "outcome": "succeeded", "external_reference": 7 }), "invalid_member"),
        (json!({ "outcome": "succeeded", "external_reference": "x".repeat(513) }), "invalid_member"),
    ];
    for (body, code) in rows {
        refused(&complete(&relay, &run, body).await, 400, code, false);
    }
    let path = format!("/v1/executions/{}/complete", run.0);
    refused(&post(&relay, &path, &json!({ "outcome": "succeeded" })).await, 400, "missing_member", false);
    let foreign = json!({ "outcome": "succeeded", "lease_token": "lt_made_up" });
    refused(&post(&relay, &path, &foreign).await, 409, "foreign_lease", false);
    let large = json!({ "outcome": "succeeded", "result": "x".repeat(8 << 20) });
    refused(&complete(&relay, &run, large).await, 413, "result_too_large", false);
    let doubled = format!("{{\"lease_token\":\"{}\",\"outcome\":\"succeeded\",\"error\":{{\"a\":1,\"a\":1}}}}", run.1);
    let request = client(Http::One).post(url(&relay, &path)).header("content-type", "application/json");
    let told = refused(&send(request.body(doubled)).await, 400, "invalid_error", false);
    assert_eq!((&told["pointer"], &told["reason"]), (&json!("/a"), &json!("duplicate_name")), "{told}");
    let largest = json!({ "outcome": "succeeded", "result": "x".repeat((8 << 20) - 2) });
    assert_eq!(complete(&relay, &run, largest).await.status, 200, "the bound itself is allowed");
}

#[tokio::test]
async fn who_waits_gets_the_stored_bytes_and_is_told_what_was_applied() {
    let relay = with_tools().await;
    let http = client(Http::One);
    let run = lease(&claim(&relay, "charge", json!({ "order": 7 })).await);
    let body = json!({ "operation_id": "op_2", "root": "op_1", "tool": "charge", "arguments": { "order": 7 } });
    let waiting: Vec<_> = (0..200)
        .map(|_| tokio::spawn(send(http.post(url(&relay, "/v1/executions")).header("prefer", "wait=50").json(&body))))
        .collect();
    let at_once = send(http.post(url(&relay, "/v1/executions")).header("prefer", "wait=1").json(&body)).await;
    refused(&at_once, 409, "in_progress", true);
    assert_eq!(at_once.header("preference-applied"), "wait=1");
    complete(&relay, &run, json!({ "outcome": "succeeded", "result": { "charged": [1, 2.0, "x"] } })).await;
    let waited: Vec<Answered> =
        join_all(waiting).await.into_iter().map(|answered| answered.expect("no panic")).collect();
    for answered in &waited {
        assert_eq!((answered.status, answered.header("idempotent-replayed")), (200, "true"), "{}", answered.text());
        assert_eq!(answered.body, waited[0].body, "byte for byte");
    }
    // One that came after the end had nothing to wait for.
    assert!(waited.iter().any(|answered| answered.header("preference-applied") == "wait=50"));
    assert!(waited[0].text().contains("{\"charged\":[1,2.0,\"x\"]}"), "{}", waited[0].text());
    let settled = send(http.post(url(&relay, "/v1/executions")).header("prefer", "wait=50").json(&body)).await;
    assert_eq!(settled.body, waited[0].body);
    assert_eq!(settled.header("preference-applied"), "", "there was nothing to wait for");
}

#[tokio::test]
async fn of_two_hundred_claims_at_once_exactly_one_may_run() {
    let relay = with_tools().await;
    let http = client(Http::One);
    for order in 0..5 {
        let body = json!({ "operation_id": "op_1", "tool": "charge", "arguments": { "order": order } });
        let claims = (0..200).map(|_| send(http.post(url(&relay, "/v1/executions")).json(&body))).collect::<Vec<_>>();
        let answered = join_all(claims).await;
        let execute = answered.iter().filter(|answered| answered.status == 201).count();
        let in_progress = answered.iter().filter(|answered| answered.json()["decision"] == "in_progress").count();
        assert_eq!((execute, in_progress), (1, 199));
    }
}

#[tokio::test]
async fn the_same_claim_gets_the_same_lease_while_it_lasts() {
    let relay = with_tools().await;
    let body = json!({ "operation_id": "op_1", "tool": "charge", "arguments": { "order": 7 }, "claim_id": "c1" });
    let (first, again) = (post(&relay, "/v1/executions", &body).await, post(&relay, "/v1/executions", &body).await);
    assert_eq!(lease(&first), lease(&again));
    let mut other = body.clone();
    other["claim_id"] = json!("c2");
    refused(&post(&relay, "/v1/executions", &other).await, 409, "in_progress", true);
    complete(&relay, &lease(&first), json!({ "outcome": "succeeded" })).await;
    assert_eq!(post(&relay, "/v1/executions", &body).await.status, 200);
}

#[tokio::test]
async fn a_root_is_said_in_the_body_or_the_header_and_joins_what_it_names() {
    let relay = with_tools().await;
    let http = client(Http::One);
    let arguments = json!({ "order": 7 });
    let body = json!({ "root": "run-1", "tool": "charge", "arguments": arguments });
    let run = lease(&post(&relay, "/v1/executions", &body).await);
    let header = http.post(url(&relay, "/v1/executions")).header("rubicon-root", "run-1");
    let body = json!({ "operation_id": "op_9", "tool": "charge", "arguments": arguments });
    let joined = send(header.json(&body)).await;
    assert_eq!(refused(&joined, 409, "in_progress", true)["execution"]["key"], json!(run.0));
    // Without a word of a root it is the operation's own, and that is remembered.
    let own = lease(&post(&relay, "/v1/executions", &body).await);
    assert_ne!(own.0, run.0);
    let named = json!({ "operation_id": "op_5", "root": "run-5", "tool": "charge", "arguments": arguments });
    let named = lease(&post(&relay, "/v1/executions", &named).await);
    let later = json!({ "operation_id": "op_5", "tool": "charge", "arguments": arguments });
    let later = post(&relay, "/v1/executions", &later).await;
    assert_eq!(refused(&later, 409, "in_progress", true)["execution"]["key"], json!(named.0));
}

#[tokio::test]
async fn a_client_may_claim_its_own_tools_only() {
    let clients = "[[client]]\nname = \"a\"\nkeys = [\"env:A\"]\nworkflows = [\"default\"]\ntools = [\"charge\"]\n";
    let text =
        Setup::primary("http://127.0.0.1:9").server("store = \"memory\"").tables(&format!("{clients}{TOOLS}")).text();
    let relay = relay_with(&text, &[("A", "key-a")].into()).await;
    let say = |tool: &str| {
        let body = json!({ "operation_id": "op_1", "tool": tool, "arguments": { "order": 7 } });
        client(Http::One).post(url(&relay, "/v1/executions")).json(&body)
    };
    refused(&send(say("send").bearer_auth("key-a")).await, 403, "tool_not_allowed", false);
    refused(&send(say("rm").bearer_auth("key-a")).await, 404, "unknown_tool", false);
    refused(&send(say("charge")).await, 401, "missing_api_key", false);
    refused(&send(say("charge").bearer_auth("key-b")).await, 401, "invalid_api_key", false);
    assert_eq!(send(say("charge").header("x-api-key", "key-a")).await.status, 201);
}

//! One tenant never sees, joins or settles another's execution: its key is unknown to all others, and the same call of theirs is
//! another execution.

use reqwest::Method;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::executions::{TOOLS, lease};
use crate::harness::{Answered, Http, client, relay_with, send, url};
use crate::setup::Setup;

const CLIENTS: &str = r#"
[[client]]
name = "web"
tenant = "one"
keys = ["env:WEB"]
tools = ["charge"]

[[client]]
name = "worker"
tenant = "one"
keys = ["env:WORKER"]
tools = ["charge"]

[[client]]
name = "other"
tenant = "two"
keys = ["env:OTHER"]
tools = ["charge"]
"#;

async fn ask(relay: &Server, who: &str, method: Method, path: &str, body: Option<&Value>) -> Answered {
    let mut request = client(Http::One).request(method, url(relay, path)).bearer_auth(format!("key-{who}"));
    if let Some(body) = body {
        request = request.json(body);
    }
    send(request).await
}

#[tokio::test]
async fn a_tenant_s_executions_are_its_own() {
    let text =
        Setup::primary("http://127.0.0.1:9").server("store = \"memory\"").tables(&format!("{CLIENTS}{TOOLS}")).text();
    let env = [("WEB", "key-web"), ("WORKER", "key-worker"), ("OTHER", "key-other")].into();
    let relay = relay_with(&text, &env).await;
    let body = json!({ "operation_id": "op_1", "root": "run", "tool": "charge", "arguments": { "order": 7 }, "claim_id": "c" });
    let claim = |who: &'static str| ask(&relay, who, Method::POST, "/v1/executions", Some(&body));
    let (key, token) = lease(&claim("web").await);
    assert_eq!(lease(&claim("worker").await), (key.clone(), token.clone()), "one tenant, one execution, one claim");
    let (theirs, their_token) = lease(&claim("other").await);
    assert_ne!((&theirs, &their_token), (&key, &token), "another tenant's same words are another execution");

    // Whatever the others ask of it: as if it had never been.
    let never = format!("ex_{}", "0".repeat(64));
    let record = |key: &str| format!("/v1/executions/{key}");
    let complete = json!({ "lease_token": token, "outcome": "not_executed" });
    let beat = json!({ "lease_token": token, "lease_ms": 100 });
    for (method, suffix, body) in [
        (Method::GET, "", None),
        (Method::POST, "/complete", Some(&complete)),
        (Method::POST, "/heartbeat", Some(&beat)),
    ] {
        let at = |key: &str| format!("{}{suffix}", record(key));
        let hers = ask(&relay, "other", method.clone(), &at(&key), body).await;
        let nobodys = ask(&relay, "other", method.clone(), &at(&never), body).await;
        let garbage = ask(&relay, "other", method, &at("ex_1"), body).await;
        assert_eq!((hers.status, nobodys.status, garbage.status), (404, 404, 404), "{}", hers.text());
        assert_eq!((&hers.body, &garbage.body), (&nobodys.body, &nobodys.body), "nothing tells them apart");
        let headers = |answered: &Answered| {
            let mut names: Vec<_> = answered.headers.keys().map(ToString::to_string).collect();
            names.sort();
            names
        };
        assert_eq!(headers(&hers), headers(&nobodys));
    }
    // A foreign token opens nothing of one's own either.
    let foreign = ask(&relay, "other", Method::POST, &format!("{}/complete", record(&theirs)), Some(&complete)).await;
    assert_eq!(foreign.status, 409, "{}", foreign.text());

    // The operation's view has one's own executions only.
    for (who, key) in [("web", &key), ("worker", &key), ("other", &theirs)] {
        let shown = ask(&relay, who, Method::GET, "/v1/operations/op_1", None).await.json();
        let keys: Vec<_> = shown["executions"].as_array().expect("a list").iter().map(|one| &one["key"]).collect();
        assert_eq!(keys, [&json!(key)], "{who}");
    }
    let still = ask(&relay, "web", Method::GET, &record(&key), None).await.json();
    assert_eq!(still["state"], "started", "{still}");
    let done = json!({ "lease_token": token, "outcome": "succeeded", "result": "secret" });
    let settled = ask(&relay, "worker", Method::POST, &format!("{}/complete", record(&key)), Some(&done)).await;
    assert_eq!(settled.status, 200, "clients of one tenant share it: {}", settled.text());
    let again = claim("other").await;
    assert!(!again.text().contains("secret"), "{}", again.text());
}

//! `rubicon explain` offline, `rubicon explain --url` and `GET /admin/v1/explain` of the living relay: one plan, one set of words; and what
//! operators switched off shows in the living one only.

use http::Method;
use rubicon::mock::{MockProvider, chat_whole_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::child::{code, file, printed, run};
use crate::harness::{Http, client, post, send};
use crate::operators::{ENV, OPERATORS, Who, admin, change, get, request, with_operators};
use crate::setup::{Setup, always, overloaded};

const TOOLS: &str =
    r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object"}}"#;

async fn setup() -> (Setup, MockProvider) {
    let b = always(chat_whole_text("from b")).await;
    let setup = Setup::primary("http://127.0.0.1:9").equivalent("b", &b).failover("enabled = true");
    (setup, b)
}

async fn living(relay: &Server, query: &str, body: &str) -> Value {
    let path = format!("/admin/v1/explain?{query}");
    let answered = send(request(&admin(relay), Method::GET, &path, Who::Viewer).body(body.to_owned())).await;
    assert_eq!(answered.status, 200, "{}", answered.text());
    answered.json()
}

async fn shell(line: &str) -> (i32, String) {
    let args: Vec<&str> = line.split(' ').collect();
    let output = run(&args, &[ENV[0], ENV[1], ENV[2], ("RUBICON_TOKEN", ENV[0].1)]).await;
    assert!(!printed(&output).contains(ENV[0].1), "a token was shown");
    (code(&output), String::from_utf8(output.stdout).unwrap())
}

#[tokio::test]
async fn offline_and_living_say_the_same() {
    let (setup, _b) = setup().await;
    let text = setup.text();
    let relay = with_operators(setup).await;
    let (_config, config) = file("rubicon.toml", &format!("{text}{OPERATORS}"));
    let (_asked, asked) = file("request.json", TOOLS);
    for request in [None, Some(&asked)] {
        let more = request.map(|path| format!(" --request {}", path)).unwrap_or_default();
        let headers = " --header rubicon-max-attempts:2 --header openai-beta:x=1";
        let (offline_code, offline) = shell(&format!("explain -c {}{more}{headers}", config)).await;
        let (code, over_admin) = shell(&format!("explain --url {}{more}{headers}", admin(&relay))).await;
        assert_eq!((offline_code, code), (0, 0), "{offline}\n{over_admin}");
        assert_eq!(offline, over_admin);
        assert!(offline.contains("capability:beta:x=1: ") && offline.contains("2 attempts"), "{offline}");
        assert_eq!(offline.contains("capability:json_object: "), request.is_some(), "{offline}");
        let (_, json) = shell(&format!("explain --json -c {}{more}{headers}", config)).await;
        let query = "workflow=default&header=rubicon-max-attempts:+2%0Aopenai-beta:x%3D1";
        let body = if request.is_some() { TOOLS } else { "" };
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), living(&relay, query, body).await);
    }
}

#[tokio::test]
async fn what_is_closed_shows_in_the_living_one() {
    let relay = with_operators(setup().await.0).await;
    let base = admin(&relay);
    let names = |plan: &Value, list: &str, member: &str| -> Vec<String> {
        let all = plan[list].as_array().unwrap();
        all.iter().map(|one| format!("{} {}", one["route"].as_str().unwrap(), one[member].as_str().unwrap())).collect()
    };
    let plan = living(&relay, "", "").await;
    assert_eq!(names(&plan, "candidates", "role"), ["a primary", "b equivalent"]);

    let reason = json!({ "reason": "drill" });
    assert_eq!(change(&base, "/admin/v1/routes/a/kill", Who::Operator, "*", reason.clone()).await.status, 200);
    let plan = living(&relay, "", "").await;
    assert_eq!(names(&plan, "candidates", "role"), ["b equivalent"]);
    assert_eq!(names(&plan, "refused", "why"), ["a killed"]);

    assert_eq!(change(&base, "/admin/v1/failover/disable", Who::Operator, "*", reason).await.status, 200);
    let plan = living(&relay, "", "").await;
    assert_eq!(names(&plan, "refused", "why"), ["a killed", "b failover_disabled"]);
    assert_eq!(plan["failover"]["off_by_operator"], true);
    assert_eq!(plan["eligible"], false);
    let (code, text) = shell(&format!("explain --url {base}")).await;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("no route is eligible\n") && text.contains("switched off by an operator\n"), "{text}");
}

#[tokio::test]
async fn a_tripped_breaker_shows_in_the_living_one() {
    let (a, b) = (always(overloaded()).await, always(chat_whole_text("from b")).await);
    let setup = Setup::primary(a.base_url()).with_route("breaker = { failures = 2, cooldown_ms = 600000 }");
    let relay = with_operators(setup.equivalent("b", &b)).await;
    for _ in 0..2 {
        let body = crate::harness::request(Dialect::ChatCompletions, false);
        let answered = post(&client(Http::One), &relay, "/v1/chat/completions", body).await;
        assert_eq!(answered.status, 200, "{}", answered.text());
    }
    let plan = living(&relay, "", "").await;
    assert_eq!(plan["candidates"][0]["route"], "b", "{plan}");
    assert_eq!((&plan["refused"][0]["route"], &plan["refused"][0]["why"]), (&json!("a"), &json!("tripped")));
}

#[tokio::test]
async fn what_cannot_be_explained() {
    let relay = with_operators(setup().await.0).await;
    for (query, status, code) in [
        ("workflow=nowhere", 400, "unknown_workflow"),
        ("dialect=morse", 400, "unknown_dialect"),
        ("header=no-colon", 400, "invalid_header"),
        ("request=%5B%5D", 400, "invalid_json"),
        ("wrokflow=w", 400, "invalid_query"),
    ] {
        let answered = get(&admin(&relay), &format!("/admin/v1/explain?{query}"), Who::Viewer).await;
        assert_eq!((answered.status, &answered.json()["error"]["code"]), (status, &json!(code)), "{query}");
    }
}

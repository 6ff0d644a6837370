//! To which run a request belongs: the same call repeated by a later turn of one run meets its first record, a new wish of the user
//! does not.

use rubicon::mock::Rule;
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Http, client, provider, send, url};
use crate::plans::{Call, answer, ask, claim, first, shown, with_ledger};

const PAY: Call<'static> = ("c1", "charge", "{\"order\":7}");

/// What a client sends after it ran a call: its result, in other spelling than the model's.
fn with_result(dialect: Dialect, (id, name, _): Call<'_>, arguments: &Value, text: Option<&str>) -> Value {
    let mut body = first(dialect, true);
    let list = if dialect == Dialect::Responses { "input" } else { "messages" };
    let turns = body[list].as_array_mut().expect("turns");
    let spelt = serde_json::to_string_pretty(arguments).expect("JSON");
    match dialect {
        Dialect::ChatCompletions => {
            let call = json!({ "id": id, "type": "function", "function": { "name": name, "arguments": spelt } });
            turns.push(json!({ "role": "assistant", "tool_calls": [call] }));
            turns.push(json!({ "role": "tool", "tool_call_id": id, "content": "ok" }));
        }
        Dialect::AnthropicMessages => {
            let call = json!({ "type": "tool_use", "id": id, "name": name, "input": arguments });
            turns.push(json!({ "role": "assistant", "content": [call] }));
            let mut content = vec![json!({ "type": "tool_result", "tool_use_id": id, "content": "ok" })];
            content.extend(text.map(|text| json!({ "type": "text", "text": text })));
            turns.push(json!({ "role": "user", "content": content }));
        }
        Dialect::Responses => {
            turns.push(json!({ "type": "function_call", "call_id": id, "name": name, "arguments": spelt }));
            turns.push(json!({ "type": "function_call_output", "call_id": id, "output": "ok" }));
        }
    }
    body
}

fn and_then_the_user(dialect: Dialect, mut body: Value) -> Value {
    let list = if dialect == Dialect::Responses { "input" } else { "messages" };
    body[list].as_array_mut().expect("turns").push(json!({ "role": "user", "content": "again" }));
    body
}

/// A relay whose model asks for the same payment each time.
async fn paying(dialect: Dialect) -> Server {
    let a = provider(Rule::new("a").answer(answer(dialect, true, "resp_1", &[PAY]))).await;
    let relay = with_ledger(&a, "").await;
    std::mem::forget(a); // It lives as long as the test.
    relay
}

async fn pay(relay: &Server, operation: &str) -> Value {
    let claimed = claim(relay, operation, PAY).await.json();
    if claimed["decision"] == "execute" {
        let key = claimed["execution"]["key"].as_str().expect("a key");
        let body = json!({ "lease_token": claimed["lease_token"], "outcome": "succeeded", "result": { "paid": 1 } });
        let path = format!("/v1/executions/{key}/complete");
        assert_eq!(send(client(Http::One).post(url(relay, &path)).json(&body)).await.status, 200);
    }
    claimed
}

#[tokio::test]
async fn a_call_repeated_by_a_later_turn_of_a_run_meets_its_first_record() {
    for dialect in Dialect::ALL {
        let relay = paying(dialect).await;
        assert!(ask(&relay, dialect, "op_1", &[], &first(dialect, true)).await.clean);
        assert_eq!(pay(&relay, "op_1").await["decision"], "execute");

        let result = with_result(dialect, PAY, &json!({ "order": 7.0 }), Some("and go on"));
        assert!(ask(&relay, dialect, "op_2", &[], &result).await.clean);
        assert_eq!(shown(&relay, "op_2").await["root"], "op_1", "{dialect:?}");
        let again = pay(&relay, "op_2").await;
        assert_eq!(again["decision"], "use_result", "{dialect:?} {again}");

        let wish = and_then_the_user(dialect, result.clone());
        assert!(ask(&relay, dialect, "op_3", &[], &wish).await.clean);
        assert_eq!(shown(&relay, "op_3").await["root"], "op_3", "{dialect:?}");
        assert_eq!(pay(&relay, "op_3").await["decision"], "execute", "{dialect:?}");

        for (operation, call, arguments) in [
            ("op_4", PAY, json!({ "order": 8 })),
            ("op_5", ("c2", "charge", ""), json!({ "order": 7 })),
            ("op_6", ("c1", "send", ""), json!({ "order": 7 })),
        ] {
            let other = with_result(dialect, call, &arguments, None);
            assert!(ask(&relay, dialect, operation, &[], &other).await.clean);
            assert_eq!(shown(&relay, operation).await["root"], operation, "{dialect:?} what was never emitted");
        }
    }
}

#[tokio::test]
async fn a_result_that_comes_back_is_noted() {
    let dialect = Dialect::ChatCompletions;
    let relay = paying(dialect).await;
    assert!(ask(&relay, dialect, "op_1", &[], &first(dialect, true)).await.clean);
    let key = pay(&relay, "op_1").await["execution"]["key"].as_str().expect("a key").parse().expect("a key");
    let reported = || relay.app().ledger.reader().record(&key).expect("a store").expect("a record").reported_at;
    assert_eq!(reported(), None);
    assert!(ask(&relay, dialect, "op_2", &[], &with_result(dialect, PAY, &json!({ "order": 7 }), None)).await.clean);
    tokio::time::timeout(crate::harness::PATIENCE, async {
        while reported().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("reported");
}

#[tokio::test]
async fn a_header_wins_and_a_doubt_is_flagged() {
    let dialect = Dialect::ChatCompletions;
    let relay = paying(dialect).await;
    for operation in ["op_1", "op_2"] {
        // Two runs that a header tells apart, with the same ids: the newest counts.
        let headers = [("rubicon-root", "run-1")];
        assert!(ask(&relay, dialect, operation, &headers, &first(dialect, true)).await.clean);
        assert_eq!(shown(&relay, operation).await["root"], "run-1");
    }
    let result = with_result(dialect, PAY, &json!({ "order": 7 }), None);
    assert!(ask(&relay, dialect, "op_3", &[("rubicon-root", "run-2")], &result).await.clean);
    assert_eq!(shown(&relay, "op_3").await["root"], "run-2");
    let claimed = pay(&relay, "op_3").await;
    assert_eq!(claimed["execution"]["root"], "run-2");
    assert_eq!(claimed["execution"]["flags"], json!(["root_ambiguous"]), "{claimed}");
    let bad = ask(&relay, dialect, "op_4", &[("rubicon-root", "a b")], &result).await;
    assert_eq!((bad.status, &bad.json()["error"]["code"]), (400, &json!("invalid_header")));
}

#[tokio::test]
async fn results_of_several_runs_name_none() {
    let dialect = Dialect::ChatCompletions;
    let other = ("c2", "charge", "{\"order\":8}");
    let rule = Rule::new("a").answer(answer(dialect, true, "", &[PAY])).answer(answer(dialect, true, "", &[other]));
    let a = provider(rule.answer(answer(dialect, true, "", &[("c3", "charge", "{\"order\":9}")]))).await;
    let relay = with_ledger(&a, "").await;
    for operation in ["op_1", "op_2"] {
        assert!(ask(&relay, dialect, operation, &[], &first(dialect, true)).await.clean);
    }
    let mut both = with_result(dialect, PAY, &json!({ "order": 7 }), None);
    let second = with_result(dialect, other, &json!({ "order": 8 }), None);
    let more = second["messages"].as_array().expect("turns")[1..].to_vec();
    both["messages"].as_array_mut().expect("turns").extend(more);
    assert!(ask(&relay, dialect, "op_3", &[], &both).await.clean);
    assert_eq!(shown(&relay, "op_3").await["root"], "op_3");
    let claimed = claim(&relay, "op_3", ("c3", "charge", "{\"order\":9}")).await.json();
    assert_eq!(claimed["execution"]["flags"], json!(["root_ambiguous"]), "{claimed}");
}

#[tokio::test]
async fn what_the_account_keeps_is_named_by_its_response() {
    let dialect = Dialect::Responses;
    let relay = paying(dialect).await;
    assert!(ask(&relay, dialect, "op_1", &[], &first(dialect, true)).await.clean);
    for (operation, previous, root) in [("op_2", "resp_1", "op_1"), ("op_3", "resp_2", "op_3")] {
        let output = json!({ "type": "function_call_output", "call_id": "c1", "output": "ok" });
        let mut body = first(dialect, true);
        body["input"] = json!([output]);
        body["previous_response_id"] = json!(previous);
        let answered = ask(&relay, dialect, operation, &[], &body).await;
        assert!(answered.clean, "{}", answered.text());
        assert_eq!(shown(&relay, operation).await["root"], root, "{previous}");
    }
}

#[tokio::test]
async fn another_tenants_calls_are_nobodys() {
    let dialect = Dialect::AnthropicMessages;
    let a = provider(Rule::new("a").answer(answer(dialect, true, "", &[PAY]))).await;
    let clients = ["one", "two"].map(|name| {
        format!(
            "[[client]]\nname = \"{name}\"\nkeys = [\"env:{name}\"]\nworkflows = [\"default\"]\ntools = [\"charge\"]\n"
        )
    });
    let text = rubicon_text(&a, &clients.concat());
    let env = std::collections::BTreeMap::from([("one", "key-of-the-first"), ("two", "key-of-the-second")]);
    let relay = crate::harness::relay_with(&text, &env).await;
    let result = with_result(dialect, PAY, &json!({ "order": 7 }), None);
    assert!(ask(&relay, dialect, "op_1", &[("x-api-key", env["one"])], &first(dialect, true)).await.clean);
    for (client_of, root) in [("two", "op_2"), ("one", "op_1")] {
        let key = [("x-api-key", env[client_of])];
        assert!(ask(&relay, dialect, "op_2", &key, &result).await.clean);
        let request = client(Http::One).get(url(&relay, "/v1/operations/op_2")).header("x-api-key", env[client_of]);
        assert_eq!(send(request).await.json()["root"], root, "{client_of}");
    }
}

fn rubicon_text(a: &rubicon::mock::MockProvider, clients: &str) -> String {
    let tools = format!("{}{clients}", "[tool.charge]\nkey_fields = [\"/order\"]\n");
    crate::setup::Setup::primary(a.base_url()).server("store = \"memory\"").tables(&tools).text()
}

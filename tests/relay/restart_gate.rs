//! A restart waits until it is known what the old operation's tools did; then it keeps the old one's root, and what completed answers
//! from the ledger.

use rubicon::mock::{Answer, Rule, Step};
use rubicon::protocol::Dialect;
use serde_json::{Value, json};

use crate::harness::{Http, client, provider, send, url};
use crate::plans::{Call, answer, ask, claim, first, shown, with_ledger};

const CHAT: Dialect = Dialect::ChatCompletions;
const PAY: Call<'static> = ("c1", "charge", "{\"order\":7}");
const LOOK: Call<'static> = ("c2", "look", "{}");

#[tokio::test]
async fn a_restart_waits_for_writes_whose_outcome_is_not_known() {
    let a = provider(Rule::new("a").answer(answer(CHAT, true, "", &[PAY, LOOK]))).await;
    let relay = with_ledger(&a, "").await;
    assert!(ask(&relay, CHAT, "op_1", &[("rubicon-root", "run")], &first(CHAT, true)).await.clean);
    // What only reads stands in nobody's way.
    assert_eq!(claim(&relay, "op_1", LOOK).await.status, 201);
    let claimed = claim(&relay, "op_1", PAY).await.json();
    let key = claimed["execution"]["key"].clone();
    let restart = [("rubicon-restart-of", "op_1")];
    let settle = async |outcome: &str| {
        let body = json!({ "lease_token": claimed["lease_token"], "outcome": outcome });
        let path = format!("/v1/executions/{}/complete", key.as_str().expect("a key"));
        assert_eq!(send(client(Http::One).post(url(&relay, &path)).json(&body)).await.status, 200);
    };
    for state in ["started", "unknown"] {
        if state == "unknown" {
            settle("unknown").await;
        }
        let calls = a.calls();
        let refused = ask(&relay, CHAT, "op_2", &restart, &first(CHAT, true)).await;
        let told = refused.json();
        assert_eq!((refused.status, &told["error"]["code"]), (409, &json!("side_effect_uncertain")), "{told}");
        let rubicon = &told["rubicon"];
        assert_eq!(rubicon["executions"], json!([{ "key": key, "tool": "charge", "state": state }]), "{told}");
        assert_eq!((&rubicon["actions"], &rubicon["unresolved_executions"]), (&json!(["reconcile"]), &json!(1)));
        assert_eq!(a.calls(), calls, "a refusal calls nobody");
    }
    settle("succeeded").await;
    assert!(ask(&relay, CHAT, "op_2", &restart, &first(CHAT, true)).await.clean);
    assert_eq!(shown(&relay, "op_2").await["root"], "run", "the restart keeps the root");
    assert_eq!(claim(&relay, "op_2", PAY).await.json()["decision"], "use_result");
}

#[tokio::test]
async fn an_interruption_says_what_must_be_found_out_first() {
    let before = serde_json::to_string(PAY.2).expect("JSON");
    let call = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"c1\",\"type\":\"function\",\"function\":{{\"name\":\"charge\",\"arguments\":{before}}}}}]}}}}]}}\n\n"
    );
    let cut = || Answer::sse().step(Step::Text(call.clone())).gate("cut").abort_rst();
    let a = provider(Rule::new("a").answer(cut())).await;
    let relay = with_ledger(&a, "").await;
    for (operation, claims) in [("op_1", true), ("op_2", false)] {
        let headers = format!("Idempotency-Key: {operation}\r\n");
        let mut stream = crate::raw::Raw::post(relay.address(), CHAT, &headers, &first(CHAT, true).to_string()).await;
        stream.read_until("order").await;
        if claims {
            assert_eq!(claim(&relay, operation, PAY).await.status, 201);
        }
        a.open_gate("cut", 1);
        stream.read_to_end().await;
        let body = stream.body();
        let frame = body.split("data: ").find(|data| data.contains("interrupted")).expect("a frame");
        let frame: Value = serde_json::from_str(frame.split("\n\n").next().expect("data")).expect("JSON");
        let told = &frame["error"]["rubicon"];
        let (actions, count) = if claims { ("reconcile", 1) } else { ("restart", 0) };
        assert_eq!(told["actions"], json!([actions]), "{frame}");
        assert_eq!(told["unresolved_executions"], count, "{frame}");
        // The plan, or what became of it, stays.
        let executions = &shown(&relay, operation).await["executions"];
        assert_eq!(executions[0]["state"], if claims { "started" } else { "planned" }, "{executions}");
    }
}

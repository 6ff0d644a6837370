//! What only an approver lets run: a tool whose runs wait for one, a near-duplicate where impact is high; and switches that the ledger
//! missed are in its journal after the next start.

use serde_json::json;

use crate::ledger_admin::claim;
use crate::ledger_cli::serve;
use crate::operators::{Who, admin, change, get, told, with_operators};
use crate::setup::Setup;

const TOOLS: &str = "[tool.wipe]\neffect = \"write\"\napproval = \"before_run\"\nkey_fields = [\"/disk\"]\n\
     [tool.post]\neffect = \"write\"\nimpact = \"high\"\nsimilar = \"confirm\"\n";

async fn relay() -> rubicon::serve::Server {
    with_operators(Setup::primary("http://127.0.0.1:9").tables(TOOLS)).await
}

#[tokio::test]
async fn a_run_that_waits_for_an_approval_runs_once_it_has_it() {
    let relay = relay().await;
    let (base, data) = (admin(&relay), crate::harness::url(&relay, ""));
    let waits = claim(&data, "r1", "wipe", json!({ "disk": 7 })).await;
    assert_eq!((waits.status, &waits.json()["decision"]), (202, &json!("await_approval")), "{}", waits.text());
    let list = get(&base, "/admin/v1/executions?state=planned", Who::Viewer).await.json();
    let row = &list["executions"][0];
    assert_eq!(row["awaits_approval"], true, "{row}");
    let path = format!("/admin/v1/executions/{}", row["key"].as_str().expect("a key"));
    let tag = get(&base, &path, Who::Viewer).await.header("etag").to_owned();
    let confirm = format!("{path}/confirm");
    assert_eq!(told(&change(&base, &confirm, Who::Operator, &tag, json!({})).await).0, 403);
    let confirmed = change(&base, &confirm, Who::Approver, &tag, json!({ "reason": "the right disk" })).await;
    assert_eq!((confirmed.status, &confirmed.json()["approved_by"]), (200, &json!("ana")), "{}", confirmed.text());
    assert_eq!(claim(&data, "r1", "wipe", json!({ "disk": 7 })).await.status, 201);
}

#[tokio::test]
async fn a_near_duplicate_of_high_impact_runs_once_an_approver_let_it_through() {
    let relay = relay().await;
    let (base, data) = (admin(&relay), crate::harness::url(&relay, ""));
    let words = |text: &str| json!({ "to": "all", "text": text });
    let first = claim(&data, "r1", "post", words("we are closed on monday")).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let key = first.json()["execution"]["key"].as_str().expect("a key").to_owned();
    let held = claim(&data, "r1", "post", words("on monday we are closed")).await;
    let body = held.json();
    assert_eq!((held.status, &body["decision"]), (409, &json!("confirm")), "{}", held.text());
    assert!(body["confirm_token"].is_null(), "no token for the caller: {body}");
    let path = format!("/admin/v1/executions/{key}");
    let shown = get(&base, &path, Who::Viewer).await;
    let through = format!("{path}/confirm-claim");
    let fingerprint = &body["fingerprint"];
    assert!(fingerprint.is_string(), "{body}");
    let asked = json!({ "fingerprint": fingerprint, "reason": "another wall" });
    let tag = shown.header("etag");
    for (body, code) in [
        (json!({ "fingerprint": fingerprint }), "reason_missing"),
        (json!({ "fingerprint": "fp_1", "reason": "x" }), "invalid_fingerprint"),
    ] {
        assert_eq!(told(&change(&base, &through, Who::Approver, tag, body).await), (400, code.to_owned()));
    }
    let done = change(&base, &through, Who::Approver, tag, asked).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(claim(&data, "r1", "post", words("on monday we are closed")).await.status, 201);
    assert_eq!(
        claim(&data, "r1", "post", words("closed we are on monday")).await.status,
        409,
        "that one, and no other"
    );
}

#[tokio::test]
async fn switches_that_the_ledger_missed_are_in_its_journal_after_the_next_start_and_only_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    let killed =
        change(&relay.admin(), "/admin/v1/routes/a/kill", Who::Operator, "*", json!({ "reason": "drill" })).await;
    assert_eq!(killed.status, 200);
    relay.stop().await;
    // The ledger begins anew; the control store knows of the kill.
    for name in ["rubicon.redb", "rubicon.head"] {
        std::fs::remove_file(folder.path().join("data").join(name)).expect("removed");
    }
    for _ in 0..3 {
        let relay = serve(folder.path()).await;
        let journal = get(&relay.admin(), "/admin/v1/journal", Who::Viewer).await.json();
        let lines = journal["entries"].as_array().expect("entries").clone();
        assert_eq!(lines.len(), 1, "{journal}");
        assert_eq!((&lines[0]["subject"], &lines[0]["reason"]), (&json!("route:a"), &json!("drill")));
        let view = get(&relay.admin(), "/admin/v1/routes/a", Who::Viewer).await.json();
        assert_eq!(view["killed"], true);
        relay.kill_9().await;
    }
}

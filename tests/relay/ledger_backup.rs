//! A backup is whole whatever goes on meanwhile; what is restored holds write claims until an operator says what ran since; a tail that was
//! cut off is found with a head that was kept elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::child::{code, printed, run};
use crate::harness::send;
use crate::ledger_admin::{claim, ran};
use crate::ledger_cli::{data, serve};
use crate::operators::{Who, change, get, request, told};

async fn ledger(args: &[&str], who: Who) -> (i32, String) {
    let output = run(&[&["ledger"], args].concat(), &[("RUBICON_TOKEN", who.token().unwrap_or_default())]).await;
    (code(&output), printed(&output))
}

#[tokio::test]
async fn a_backup_taken_while_claims_go_on_holds_and_its_restoring_leaves_a_gap() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    let (url, data) = (relay.admin(), data(&relay));
    ran(&data, "before", "mail", json!({ "to": "a" }), "succeeded").await;
    let going = Arc::new(AtomicBool::new(true));
    let claims = tokio::spawn({
        let (data, going) = (data.clone(), Arc::clone(&going));
        async move {
            let mut made = 0;
            while going.load(Ordering::Relaxed) {
                ran(&data, "meanwhile", "mail", json!({ "to": made }), "succeeded").await;
                made += 1;
            }
            made
        }
    });
    let backup = folder.path().join("backup.redb");
    let path = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let to = path(&backup);
    // An approver only: it has everything in it, of all tenants.
    assert_eq!(ledger(&["backup", "--to", &to, "--url", &url], Who::Operator).await.0, 1);
    assert!(!backup.exists());
    let (done, said) = ledger(&["backup", "--to", &to, "--url", &url], Who::Approver).await;
    assert!(done == 0 && said.contains("holds; head "), "{said}");
    let (twice, said) = ledger(&["backup", "--to", &to, "--url", &url], Who::Approver).await;
    assert!(twice == 1 && said.contains("nothing is overwritten"), "{said}");
    going.store(false, Ordering::Relaxed);
    assert!(claims.await.expect("the claims") > 0);
    let after = ran(&data, "after", "mail", json!({ "to": "a" }), "succeeded").await;
    let left: Vec<_> = std::fs::read_dir(folder.path().join("data")).expect("a folder").flatten().collect();
    assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().contains("backup")), "{left:?}");

    let config = path(&folder.path().join("rubicon.toml"));
    let restore = ["restore", "--from", &to, "-c", &config, "--reason", "the disk died", "--by", "bob"];
    let (live, said) = ledger(&[&restore[..], &["--force"]].concat(), Who::Nobody).await;
    assert!(live == 1 && said.contains("another process uses this ledger"), "{said}");
    relay.stop().await;
    let (there, said) = ledger(&restore, Who::Nobody).await;
    assert!(there == 1 && said.contains("--force"), "{said}");
    let (restored, said) = ledger(&[&restore[..], &["--force"]].concat(), Who::Nobody).await;
    assert!(restored == 0 && said.contains("restored_gap") && said.contains(".replaced-1"), "{said}");
    assert_eq!(ledger(&["verify", "--file", &to], Who::Nobody).await.0, 0, "the backup itself is as it was");

    let relay = serve(folder.path()).await;
    let (url, data) = (relay.admin(), self::data(&relay));
    // What ran after the backup is not known here: it must not run by itself.
    let held = claim(&data, "after", "mail", json!({ "to": "a" })).await;
    assert_eq!((held.status, &held.json()["decision"]), (409, &json!("confirm")), "{}", held.text());
    assert!(held.text().contains("restored_gap"), "{}", held.text());
    let known = claim(&data, "before", "mail", json!({ "to": "a" })).await;
    assert_eq!(known.json()["decision"], "use_result", "{}", known.text());
    assert_eq!(get(&url, &format!("/admin/v1/executions/{after}"), Who::Viewer).await.status, 404);
    for (who, body, expected) in [
        (Who::Operator, json!({ "reason": "x" }), (403, "role_too_low")),
        (Who::Approver, json!({}), (400, "reason_missing")),
    ] {
        let request = request(&url, http::Method::POST, "/admin/v1/gap/end", who).body(body.to_string());
        assert_eq!(told(&send(request).await), (expected.0, expected.1.to_owned()));
    }
    let (ended, said) = ledger(&["end-gap", "--reason", "looked at the mailer", "--url", &url], Who::Approver).await;
    assert_eq!(ended, 0, "{said}");
    assert_eq!(claim(&data, "after", "mail", json!({ "to": "a" })).await.status, 201);
    let journal = get(&url, "/admin/v1/journal?limit=1000", Who::Viewer).await.json();
    let lines = journal["entries"].as_array().expect("entries").clone();
    let who = |action: &str| lines.iter().find(|line| line["action"] == action).map(|line| line["by"].clone());
    assert_eq!((who("gap_open"), who("gap_end")), (Some(json!("bob")), Some(json!("ana"))));
    assert_eq!(change(&url, "/admin/v1/gap/end", Who::Approver, "1", json!({ "reason": "again" })).await.status, 200);
    relay.stop().await;
    assert_eq!(ledger(&["verify", "-c", &config], Who::Nobody).await.0, 0);
}

#[tokio::test]
async fn a_backup_of_a_stopped_ledger_and_a_tail_that_was_cut_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    ran(&data(&relay), "r1", "mail", json!({ "to": "a" }), "succeeded").await;
    relay.stop().await;
    let config = folder.path().join("rubicon.toml").to_str().expect("UTF-8").to_owned();
    let old = folder.path().join("old.redb").to_str().expect("UTF-8").to_owned();
    let (done, said) = ledger(&["backup", "--to", &old, "-c", &config], Who::Nobody).await;
    assert_eq!(done, 0, "{said}");
    let relay = serve(folder.path()).await;
    for n in 0..10 {
        ran(&data(&relay), "r2", "mail", json!({ "to": n }), "succeeded").await;
    }
    let head = get(&relay.admin(), "/admin/v1/journal/head", Who::Viewer).await.json();
    let hash = head["hash"].as_str().expect("a hash").to_owned();
    relay.stop().await;
    assert_eq!(ledger(&["verify", "--head", &hash, "-c", &config], Who::Nobody).await.0, 0);
    // The older copy is the same ledger without its tail.
    assert_eq!(ledger(&["verify", "--file", &old], Who::Nobody).await.0, 0);
    let (cut, said) = ledger(&["verify", "--head", &hash, "--file", &old], Who::Nobody).await;
    assert!(cut == 1 && said.contains("cut_off"), "{said}");
    // In its place it is found even without one: the relay has kept its head beside the file.
    std::fs::copy(&old, folder.path().join("data/rubicon.redb")).expect("copied");
    let (lost, said) = ledger(&["verify", "-c", &config], Who::Nobody).await;
    assert!(lost == 1 && said.contains("has lost what was in it"), "{said}");
    let bad = folder.path().join("bad.redb");
    std::fs::write(&bad, b"no ledger at all").expect("written");
    let bad = bad.to_str().expect("UTF-8");
    let restore = ["restore", "--from", bad, "-c", &config, "--reason", "x", "--force"];
    let (refused, said) = ledger(&restore, Who::Nobody).await;
    assert!(refused == 1 && !said.contains("is in place"), "{said}");
    assert!(folder.path().join("data/rubicon.redb").exists(), "what is no ledger takes no place");
}

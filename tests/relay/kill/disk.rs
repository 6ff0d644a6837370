//! The real process: `kill -9` and a restart; a disk that takes nothing more; two relays on one store.

use std::path::Path;

use redb::ReadableTable as _;
use serde_json::json;

use super::why;
use crate::child::Serving;
use crate::operators::{ENV, OPERATORS, Who, change, get, told};
use crate::setup::Setup;

/// A config whose store is in its own folder.
fn text() -> String {
    let setup = Setup::primary("http://127.0.0.1:9")
        .server("admin_listen = \"127.0.0.1:0\"\nstore = \"redb:data/rubicon.redb\"");
    setup.tables(OPERATORS).text()
}

async fn serve(folder: &Path) -> Serving {
    Serving::start_in(folder, &text(), &ENV, None).await
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_kill_9() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    let base = relay.admin();
    assert_eq!(change(&base, "/admin/v1/routes/a/kill", Who::Operator, "*", why()).await.status, 200);
    let disabled = change(&base, "/admin/v1/failover/disable", Who::Operator, "*", json!({ "reason": "night" })).await;
    assert_eq!(disabled.status, 200);
    let head = get(&base, "/admin/v1/journal/head", Who::Viewer).await.json();
    relay.kill_9().await;

    let relay = serve(folder.path()).await;
    let base = relay.admin();
    let route = get(&base, "/admin/v1/routes/a", Who::Viewer).await;
    let view = route.json();
    assert_eq!(
        (&view["killed"], &view["by"], &view["reason"], &view["version"], &view["saved"]),
        (&json!(true), &json!("oli"), &json!("drill"), &json!(1), &json!(true))
    );
    let failover = get(&base, "/admin/v1/failover", Who::Viewer).await.json();
    assert_eq!((&failover["disabled"], &failover["reason"]), (&json!(true), &json!("night")));
    let known = format!("/admin/v1/journal/verify?head={}", head["hash"].as_str().expect("a hash"));
    assert_eq!(get(&base, &known, Who::Viewer).await.json()["ok"], true);
    let restored = change(&base, "/admin/v1/routes/a/restore", Who::Approver, route.header("etag"), why()).await;
    assert_eq!(restored.status, 200);
    let entries = get(&base, "/admin/v1/journal", Who::Viewer).await.json();
    let who: Vec<_> = entries["entries"].as_array().expect("a list").iter().map(|e| (&e["action"], &e["by"])).collect();
    assert_eq!(
        who,
        [(&json!("kill"), &json!("oli")), (&json!("disable"), &json!("oli")), (&json!("restore"), &json!("ana"))]
    );
    assert_eq!(relay.stop().await.0, 0);
}

#[tokio::test]
async fn a_route_that_left_the_config_keeps_its_switch() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    assert_eq!(change(&relay.admin(), "/admin/v1/routes/a/kill", Who::Operator, "*", why()).await.status, 200);
    relay.stop().await;
    // The same folder, and the only route has another name.
    let renamed = text().replace("[route.a]", "[route.z]").replace("primary = \"a\"", "primary = \"z\"");
    let relay = Serving::start_in(folder.path(), &renamed, &ENV, None).await;
    let base = relay.admin();
    let routes = get(&base, "/admin/v1/routes", Who::Viewer).await;
    assert!(!routes.header("etag").is_empty());
    let json = routes.json();
    assert_eq!((&json["routes"][0]["route"], &json["routes"][0]["configured"]), (&json!("a"), &json!(false)), "{json}");
    assert_eq!((&json["routes"][0]["killed"], &json["routes"][1]["killed"]), (&json!(true), &json!(false)));
    assert_eq!(change(&base, "/admin/v1/routes/a/restore", Who::Approver, "1", why()).await.status, 200);
    relay.stop().await;
}

#[tokio::test]
async fn a_full_disk_does_not_keep_a_route_from_being_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    // The file is made while there is room.
    let relay = serve(folder.path()).await;
    assert_eq!(change(&relay.admin(), "/admin/v1/routes/a/kill", Who::Operator, "*", why()).await.status, 200);
    assert_eq!(relay.stop().await.0, 0);
    // From now on nothing can be written behind the first 512 or 1024 bytes of any file.
    let relay = Serving::start_in(
        folder.path(),
        &text().replace("[workflow.default]", "[route.c]\nprovider = \"a\"\n[workflow.default]"),
        &ENV,
        Some(1),
    )
    .await;
    let base = relay.admin();
    let restore = change(&base, "/admin/v1/routes/a/restore", Who::Approver, "1", why()).await;
    assert_eq!((told(&restore), &restore.json()["effective"]), ((503, "store_unavailable".to_owned()), &json!(false)));
    assert_eq!(get(&base, "/admin/v1/routes/a", Who::Viewer).await.json()["killed"], true, "it stays killed");
    for _ in 0..2 {
        let kill = change(&base, "/admin/v1/routes/c/kill", Who::Operator, "*", why()).await;
        assert_eq!((told(&kill), &kill.json()["effective"]), ((503, "store_unavailable".to_owned()), &json!(true)));
    }
    let view = get(&base, "/admin/v1/routes/c", Who::Viewer).await.json();
    assert_eq!((&view["killed"], &view["saved"]), (&json!(true), &json!(false)));
    assert_eq!(get(&base, "/admin/v1/config", Who::Viewer).await.json()["store_writable"], false);
    assert_eq!(get(&base, "/healthz", Who::Nobody).await.status, 200);
    assert_eq!(relay.stop().await.0, 0);
    // With room again: what was acknowledged is there, what was not is not.
    let relay = serve(folder.path()).await;
    let base = relay.admin();
    assert_eq!(get(&base, "/admin/v1/routes/a", Who::Viewer).await.json()["killed"], true);
    assert_eq!(get(&base, "/admin/v1/journal/verify", Who::Viewer).await.json()["entries"], 1);
    relay.stop().await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_disk_with_room_again_needs_no_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    assert_eq!(change(&relay.admin(), "/admin/v1/routes/a/kill", Who::Operator, "*", why()).await.status, 200);
    assert_eq!(relay.stop().await.0, 0);
    let config = text().replace("[workflow.default]", "[route.c]\nprovider = \"a\"\n[workflow.default]");
    let relay = Serving::start_in(folder.path(), &config, &ENV, Some(1)).await;
    let base = relay.admin();
    let kill = change(&base, "/admin/v1/routes/c/kill", Who::Operator, "*", why()).await;
    assert_eq!((told(&kill), &kill.json()["effective"]), ((503, "store_unavailable".to_owned()), &json!(true)));
    relay.make_room().await;
    let restored = change(&base, "/admin/v1/routes/a/restore", Who::Approver, "1", why()).await;
    assert_eq!(restored.status, 200, "{}", restored.text());
    assert_eq!(get(&base, "/admin/v1/routes/c", Who::Viewer).await.json()["saved"], true);
    assert_eq!(get(&base, "/admin/v1/config", Who::Viewer).await.json()["store_writable"], true);
    relay.kill_9().await;
    let relay = Serving::start_in(folder.path(), &config, &ENV, None).await;
    let base = relay.admin();
    for (route, killed) in [("a", false), ("c", true)] {
        let view = get(&base, &format!("/admin/v1/routes/{route}"), Who::Viewer).await.json();
        assert_eq!(view["killed"], killed, "{view}");
    }
    let verdict = get(&base, "/admin/v1/journal/verify", Who::Viewer).await.json();
    assert_eq!((&verdict["ok"], &verdict["entries"]), (&json!(true), &json!(3)), "{verdict}");
    relay.stop().await;
}

#[tokio::test]
async fn a_second_relay_on_the_same_store_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    let config = folder.path().join("rubicon.toml");
    let output = crate::child::run(&["serve", "-c", config.to_str().expect("UTF-8")], &ENV).await;
    let printed = crate::child::printed(&output);
    assert_eq!(crate::child::code(&output), 1, "{printed}");
    assert!(printed.contains("rubicon-control.redb: another process uses this control store"), "{printed}");
    assert_eq!(change(&relay.admin(), "/admin/v1/routes/a/kill", Who::Operator, "*", why()).await.status, 200);
    relay.stop().await;
}

/// Somebody changed the journal while the relay was down: the next start says so, wakes somebody, and serves on.
#[tokio::test]
async fn a_journal_that_was_changed_is_an_alarm_at_the_next_start() {
    const JOURNAL: redb::TableDefinition<'_, u64, &[u8]> = redb::TableDefinition::new("journal");
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    assert_eq!(change(&relay.admin(), "/admin/v1/routes/a/kill", Who::Operator, "*", why()).await.status, 200);
    let (_, printed) = relay.stop().await;
    assert!(printed.contains("a new control store"), "{printed}");
    let alarms = async |relay: &Serving| {
        let metrics = get(&relay.admin(), "/metrics", Who::Viewer).await;
        let text = metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix("rubicon_alarms_total{kind=\"journal_broken\"} "));
        line.expect("a line").to_owned()
    };
    let relay = serve(folder.path()).await;
    let (_, printed) = relay.stop().await;
    assert!(!printed.contains("a new control store") && !printed.contains("journal_broken"), "{printed}");

    let database = redb::Database::open(folder.path().join("data/rubicon-control.redb")).expect("a store");
    let transaction = database.begin_write().expect("a transaction");
    {
        let mut journal = transaction.open_table(JOURNAL).expect("a journal");
        let entry = journal.get(1).expect("a read").expect("an entry").value().to_vec();
        let at = entry.windows(5).position(|five| five == b"drill").expect("the reason");
        let forged = [&entry[..at], b"other", &entry[at + 5..]].concat();
        journal.insert(1, forged.as_slice()).expect("written");
    }
    transaction.commit().expect("saved");
    drop(database);

    let relay = serve(folder.path()).await;
    relay.says("ALARM: the journal of switches does not hold", 1).await;
    relay.says("\"kind\":\"journal_broken\"", 1).await;
    assert_eq!(alarms(&relay).await, "1");
    assert_eq!(get(&relay.admin(), "/admin/v1/routes/a", Who::Viewer).await.json()["killed"], true);
    assert_eq!(relay.stop().await.0, 0);
}

/// An emptied store is no new one: it is said, and nothing is served.
#[tokio::test]
async fn an_emptied_store_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    assert_eq!(change(&relay.admin(), "/admin/v1/routes/a/kill", Who::Operator, "*", why()).await.status, 200);
    relay.stop().await;
    std::fs::write(folder.path().join("data/rubicon-control.redb"), "").expect("emptied");
    let path = folder.path().join("rubicon.toml");
    for (command, code) in [("serve", "remove the file by hand"), ("check", "store_unusable")] {
        let output = crate::child::run(&[command, "-c", path.to_str().expect("UTF-8")], &ENV).await;
        let printed = crate::child::printed(&output);
        assert!(crate::child::code(&output) == 1 && printed.contains(code), "{printed}");
    }
}

//! The demo proves itself: all scenes hold, each broken scene is noticed, and nothing else is noticed with it.

use std::path::Path;

use rubicon::demo::scene_names;
use serde_json::{Value, json};

use crate::child::{Running, code, printed, run};

/// The scenes that count payments.
const LEDGER: [&str; 3] = ["tool-timeout", "reworded-payment", "kill-9"];

/// A folder for what the demo keeps while it runs, and the variable that says so.
fn temporary() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("UTF-8").to_owned();
    (folder, path)
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("a folder").next().is_none()
}

#[tokio::test]
async fn all_scenes_go_as_they_must() {
    let (folder, path) = temporary();
    let output = run(&["demo", "--once"], &[("TMPDIR", &path)]).await;
    assert!(is_empty(folder.path()), "it cleans up");
    let (text, count) = (printed(&output), scene_names().len());
    assert_eq!(code(&output), 0, "{text}");
    assert!(text.contains(&format!("{count} of {count} scenes went as they must")), "{text}");
    for scene in scene_names() {
        assert!(text.contains(&format!("[{scene}]")), "{scene}: {text}");
    }
}

#[tokio::test]
async fn every_broken_scene_is_noticed_and_no_other() {
    let (folder, path) = temporary();
    // All at once: most of a demo's time is waiting.
    let runs = scene_names().into_iter().map(|scene| {
        let path = &*path;
        async move { (scene, run(&["demo", "--once", "--break", scene], &[("TMPDIR", path)]).await) }
    });
    let count = scene_names().len();
    for (scene, output) in futures_util::future::join_all(runs).await {
        let text = printed(&output);
        assert_eq!(code(&output), 1, "{scene}: {text}");
        assert!(text.contains(&format!("{} of {count} scenes went as they must", count - 1)), "{scene}: {text}");
        let broken: Vec<&str> = text.split("\n\n").filter(|part| part.contains("NOT AS IT MUST BE")).collect();
        assert!(matches!(broken[..], [one] if one.contains(&format!("[{scene}]"))), "{scene}: {text}");
        // What is broken there is that it runs twice: the bank's count says so, whatever else did.
        let twice = text.contains("effects      2, by the bank's own count");
        assert_eq!(twice, LEDGER.contains(&scene), "{scene}: {text}");
    }
    assert!(is_empty(folder.path()), "they clean up");
}

#[tokio::test]
async fn programs_get_the_same_facts() {
    let output = run(&["demo", "--once", "--json"], &[]).await;
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON lines only")).collect();
    let names: Vec<&str> = lines.iter().filter_map(|line| line["scene"].as_str()).collect();
    assert_eq!(names, scene_names());
    for scene in LEDGER {
        let line = lines.iter().find(|line| line["scene"] == scene).expect("its line");
        let (seen, replayed) = (&line["seen"], json!(scene != "reworded-payment"));
        assert_eq!(
            (&line["ok"], &seen["effects"], &seen["execution"]["state"]),
            (&json!(true), &json!(1), &json!("succeeded")),
            "{line}"
        );
        let last = seen["answers"].as_array().and_then(|answers| answers.last()).expect("an answer");
        assert_eq!(last["replayed"], replayed, "{line}");
    }
}

#[tokio::test]
async fn the_ledgers_lines_to_try_do_what_they_say() {
    let (folder, path) = temporary();
    let demo = Running::start(&["demo", "--only", "kill-9"], &[("TMPDIR", &path)], "Ctrl-C ends it.").await;
    let text = demo.says("Ctrl-C ends it.", 1).await;
    let (_, lines) = text.split_once("A payment whose answer never comes").expect("the lines");
    let (lines, _) = lines.split_once("or point an SDK").expect("and their end");
    // Lines that are commands are indented, and nothing else is.
    let script: String = lines.lines().filter(|line| line.starts_with("  ")).map(|line| format!("{line}\n")).collect();
    let output = tokio::process::Command::new("sh").args(["-ec", &script]).output().await.expect("a shell");
    let said = printed(&output);
    assert!(output.status.success(), "{script}\n{said}");
    let parts = [
        "409 Conflict",
        "\"decision\":\"reconcile\"",
        "\"reconciliation\":\"needs_operator\"",
        "\"reconciliation\":\"resolved\"",
        "idempotent-replayed: true",
        "\r\n\r\n{\"payment\":\"by-hand-1\"}",
        "201 Created",
        "\"decision\":\"execute\"",
    ];
    let mut rest = &*said;
    for part in parts {
        (_, rest) = rest.split_once(part).unwrap_or_else(|| panic!("{part} is not said in its turn: {script}\n{said}"));
    }
    assert_eq!(demo.stop().await.0, 0, "stopped by a signal it ends in order");
    assert!(is_empty(folder.path()), "and cleans up");
}

#[tokio::test]
async fn a_demo_that_went_wrong_does_not_stay_up() {
    let output = run(&["demo", "--break", "quota", "--only", "quota"], &[]).await;
    assert_eq!(code(&output), 1, "{}", printed(&output));
}

#[tokio::test]
async fn one_scene_alone() {
    let output = run(&["demo", "--once", "--only", "quota"], &[]).await;
    let text = printed(&output);
    assert_eq!(code(&output), 0, "{text}");
    assert!(text.contains("1. ") && text.contains("[quota]") && !text.contains("2. "), "{text}");
    assert!(text.contains("1 of 1 scenes went as they must"), "{text}");
}

#[tokio::test]
async fn a_scene_that_does_not_exist_is_wrong_usage() {
    for option in ["--only", "--break"] {
        let output = run(&["demo", "--once", option, "nonsense"], &[]).await;
        let text = printed(&output);
        assert_eq!(code(&output), 2, "{text}");
        assert!(text.contains("nonsense") && text.contains("failover-503"), "it names those that exist: {text}");
    }
}

#[tokio::test]
async fn stopped_in_the_middle_of_a_scene_it_ends_in_order_and_is_no_success() {
    let (folder, path) = temporary();
    // The next scene after this line is one that waits for its deadline.
    let demo = Running::start(&["demo", "--once"], &[("TMPDIR", &path)], "6. ").await;
    let (code, text) = demo.stop().await;
    assert!(code == 1 && !text.contains("scenes went as they must"), "{code}: {text}");
    assert!(is_empty(folder.path()), "it cleans up");
}

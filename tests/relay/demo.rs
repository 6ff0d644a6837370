//! The demo proves itself: all scenes hold, each broken scene is noticed, and nothing else is noticed with it.

use rubicon::demo::scene_names;

use crate::child::{code, printed, run};

#[tokio::test]
async fn all_scenes_go_as_they_must() {
    let output = run(&["demo", "--once"], &[]).await;
    let (text, count) = (printed(&output), scene_names().len());
    assert_eq!(code(&output), 0, "{text}");
    assert!(text.contains(&format!("{count} of {count} scenes went as they must")), "{text}");
    for scene in scene_names() {
        assert!(text.contains(&format!("[{scene}]")), "{scene}: {text}");
    }
}

#[tokio::test]
async fn every_broken_scene_is_noticed_and_no_other() {
    // All at once: most of a demo's time is waiting.
    let runs = scene_names().into_iter().map(|scene| async move {
        let output = run(&["demo", "--once", "--break", scene], &[]).await;
        (scene, output)
    });
    let count = scene_names().len();
    for (scene, output) in futures_util::future::join_all(runs).await {
        let text = printed(&output);
        assert_eq!(code(&output), 1, "{scene}: {text}");
        assert!(text.contains(&format!("{} of {count} scenes went as they must", count - 1)), "{scene}: {text}");
        let broken: Vec<&str> = text.split("\n\n").filter(|part| part.contains("NOT AS IT MUST BE")).collect();
        assert!(matches!(broken[..], [one] if one.contains(&format!("[{scene}]"))), "{scene}: {text}");
    }
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

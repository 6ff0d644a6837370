//! What is printed where, and the exit codes.

use super::*;

const NOW: UnixMillis = UnixMillis(1_796_083_200_000);

const CONFIG: &str = r#"[provider.p]
kind = "openai"
api_key = "env:KEY"
[provider.q]
kind = "openai-compatible"
base_url = "https://q.example/v1"
[route.main]
provider = "p"
[route.spare]
provider = "q"
capabilities = ["text"]
verified = { on = 2026-11-01 }
[workflow.w]
primary = "main"
equivalents = ["spare"]
failover = { enabled = true }
[[approval]]
workflow = "w"
route = "spare"
purpose = "failover"
"#;

/// Exit code, stdout, stderr.
fn explained(config: &str, line: &str, input: &str) -> (ExitCode, String, String) {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: ExplainArgs,
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rubicon.toml");
    std::fs::write(&path, config).unwrap();
    let words = std::iter::once("explain").chain(line.split(' ').filter(|word| !word.is_empty()));
    let mut args = <Line as clap::Parser>::try_parse_from(words).unwrap().args;
    args.config = path;
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let env = |name: &str| (name == "KEY").then(|| "k-1".to_owned());
    let code = offline(&args, &env, NOW, &mut input.as_bytes(), (&mut out, &mut errors));
    (code, String::from_utf8(out).unwrap(), String::from_utf8(errors).unwrap())
}

#[test]
fn the_plan_is_printed_for_people_and_for_programs() {
    let (code, out, errors) = explained(CONFIG, "--workflow w", "");
    assert_eq!((code, errors.as_str()), (ExitCode::SUCCESS, ""));
    assert!(out.contains("routes, in this order:\n  1. main (primary)\n"), "{out}");
    assert!(out.contains("  2. spare (equivalent)\n"), "{out}");
    let tools = r#"{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f"}}]}"#;
    let (code, out, _) = explained(CONFIG, "--json --request -", tools);
    assert_eq!(code, ExitCode::SUCCESS);
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["refused"][0]["why"], "capability:tools");
    assert_eq!(value["candidates"].as_array().unwrap().len(), 1);
}

#[test]
fn what_cannot_be_explained_exits_with_1() {
    let bad = CONFIG.replace("primary = \"main\"", "primary = \"x\"");
    for (config, line, input, said) in [
        (CONFIG, "--workflow v", "", "There is no workflow `v`."),
        (CONFIG, "--workflow w -H rubicon-workflow:v", "", "workflow_contradiction"),
        (CONFIG, "--request nowhere.json", "", "nowhere.json"),
        (CONFIG, "--request -", "[]", "invalid_json"),
        (CONFIG, "--dialect morse", "", "unknown_dialect"),
        (bad.as_str(), "", "", "workflow.w.primary"),
    ] {
        let (code, out, errors) = explained(config, line, input);
        assert_eq!((code, out.as_str()), (ExitCode::FAILURE, ""), "{line}");
        assert!(errors.contains(said), "{errors}");
    }
    // Explained, and no route is eligible.
    let (code, out, _) = explained(CONFIG, "--dialect anthropic-messages", "");
    assert_eq!(code, ExitCode::FAILURE);
    assert!(out.contains("dialect_not_supported") && out.contains("no route is eligible"), "{out}");
}

#[test]
fn what_would_be_refused_before_any_call_exits_with_1() {
    let dear = CONFIG
        .replace(
            "provider = \"p\"\n[route.spare]",
            "provider = \"p\"\nprice = { input = 1.0, output = 1000.0 }\n[route.spare]",
        )
        .replace("[workflow.w]\n", "[workflow.w]\nenvelope = { max_cost_usd = 0.01 }\n");
    for (config, line, reason, called) in [
        (CONFIG, "-H rubicon-attempts-used:1", "", true),
        (CONFIG, "-H rubicon-attempts-used:9", "attempts_exhausted", false),
        (CONFIG, "-H rubicon-attempts-used:1 -H rubicon-max-attempts:1", "attempts_exhausted", false),
        (CONFIG, "-H x-stainless-retry-count:9", "attempts_exhausted", false),
        (dear.as_str(), "", "cost_exhausted", false),
    ] {
        let (code, out, errors) = explained(config, line, "");
        assert_eq!((code == ExitCode::SUCCESS, errors.as_str()), (called, ""), "{line}: {out}");
        let said = format!("no provider would be called (424 {reason}): No attempt was made: {reason}.");
        assert_eq!(out.contains(&said), !called, "{out}");
        let (_, json, _) = explained(config, &format!("--json {line}"), "");
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&value["eligible"], value["no_call"]["reason"].as_str().unwrap_or_default()),
            (&called.into(), reason)
        );
        let dear =
            value["refused"].as_array().unwrap().iter().any(|one| one["route"] == "main" && one["why"] == "cost");
        assert_eq!(dear, reason == "cost_exhausted", "{value}");
    }
}

#[test]
fn a_member_of_a_split_is_told_which_approval_it_lacks() {
    let split = CONFIG.replace(
        "primary = \"main\"\nequivalents = [\"spare\"]",
        "primary = [{ route = \"main\", weight = 1 }, { route = \"spare\", weight = 1 }]",
    );
    for (purpose, told) in [
        ("failover", "approval_missing (purpose = \"planned\")"),
        ("planned", "Here: purpose = \"failover\"."),
        ("cross_model", "Here: purpose = \"planned\" and purpose = \"failover\"."),
    ] {
        let config = split.replace("purpose = \"failover\"", &format!("purpose = \"{purpose}\""));
        let (_, out, errors) = explained(&config, "", "");
        assert!(out.contains(told), "{purpose}: {out}{errors}");
    }
}

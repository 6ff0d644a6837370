//! `rubicon route` and `rubicon failover`, the real binary against a running relay: what they print, their exit codes, and that no
//! token is ever shown.

use serde_json::{Value, json};

use crate::child::{code, file, printed, run};
use crate::operators::{ENV, Who, admin, change, get, with_operators};
use crate::setup::Setup;

struct Shell {
    relay: rubicon::serve::Server,
    base: String,
}

/// What a command printed and how it ended.
struct Said {
    code: i32,
    out: String,
    all: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.all))
    }
}

async fn said(args: &[&str], env: &[(&str, &str)]) -> Said {
    let output = run(args, env).await;
    let all = printed(&output);
    for (_, token) in ENV {
        assert!(!all.contains(token), "a token was shown: {all}");
    }
    Said { code: code(&output), out: String::from_utf8(output.stdout).expect("UTF-8"), all }
}

impl Shell {
    async fn new() -> Self {
        let relay = with_operators(Setup::primary("http://127.0.0.1:9")).await;
        let base = admin(&relay);
        Self { relay, base }
    }

    /// As an operator of that role, whose token is where it is looked for by default.
    async fn run(&self, who: Who, line: &str) -> Said {
        let args: Vec<&str> = line.split(' ').chain(["--url", &self.base]).collect();
        let token = who.token().unwrap_or_default();
        let env = [("RUBICON_TOKEN", token)];
        said(&args, if token.is_empty() { &[] } else { &env }).await
    }
}

#[tokio::test]
async fn a_route_is_killed_and_restored_from_a_shell() {
    let shell = Shell::new().await;
    let list = shell.run(Who::Viewer, "route list").await;
    assert_eq!(list.code, 0, "{}", list.all);
    assert!(list.out.starts_with("ROUTE  PROVIDER  STATE  CIRCUIT  IN USE  RECOVERY  ONCALL"), "{}", list.out);
    assert!(list.out.contains("\na      a         live   healthy  0       0 "), "{}", list.out);
    let killed = shell.run(Who::Operator, "route kill a --reason drill").await;
    assert_eq!(killed.code, 0, "{}", killed.all);
    assert!(
        killed.out.starts_with("a is killed by oli since 20") && killed.out.ends_with("Z: drill\n"),
        "{}",
        killed.out
    );
    let again = shell.run(Who::Operator, "route kill a --reason again").await;
    assert!(again.code == 0 && again.out.starts_with("a is killed already by oli "), "{}", again.all);
    let listed = shell.run(Who::Viewer, "route list --json").await.json();
    assert_eq!((&listed["routes"][0]["killed"], &listed["routes"][0]["reason"]), (&json!(true), &json!("drill")));
    let restored = shell.run(Who::Approver, "route restore a --reason well --json").await;
    assert_eq!((restored.code, &restored.json()["killed"], &restored.json()["by"]), (0, &json!(false), &json!("ana")));
    let entries = get(&shell.base, "/admin/v1/journal", Who::Viewer).await.json();
    let who: Vec<_> =
        entries["entries"].as_array().expect("a list").iter().map(|e| (&e["action"], &e["reason"])).collect();
    assert_eq!(who, [(&json!("kill"), &json!("drill")), (&json!("restore"), &json!("well"))]);
}

#[tokio::test]
async fn failover_is_switched_from_a_shell() {
    let shell = Shell::new().await;
    let show = shell.run(Who::Viewer, "failover show").await;
    assert!(show.code == 0 && show.out.starts_with("failover of all workflows: enabled\n"), "{}", show.all);
    let one = shell.run(Who::Operator, "failover disable --workflow default --reason x").await;
    assert!(one.code == 0 && one.out.contains("default   disabled  enabled "), "{}", one.all);
    let all = shell.run(Who::Operator, "failover disable --reason night --json").await;
    assert_eq!((all.code, &all.json()["disabled"], &all.json()["version"]), (0, &json!(true), &json!(2)));
    for line in ["failover enable --reason x", "failover enable --workflow default --reason x"] {
        let enabled = shell.run(Who::Approver, line).await;
        assert_eq!(enabled.code, 0, "{line}: {}", enabled.all);
    }
    let json = get(&shell.base, "/admin/v1/failover", Who::Viewer).await.json();
    assert_eq!((&json["disabled"], &json["workflows"][0]["disabled"]), (&json!(false), &json!(false)));
}

#[tokio::test]
async fn what_is_refused_exits_with_1_and_says_why() {
    let shell = Shell::new().await;
    change(&shell.base, "/admin/v1/routes/a/kill", Who::Operator, "*", json!({ "reason": "x" })).await;
    for (who, line, says) in [
        (Who::Stranger, "route list", "[invalid_token]"),
        (Who::Viewer, "route kill a --reason x", "[role_too_low]"),
        (Who::Operator, "route restore a --reason x", "[role_too_low]"),
        (Who::Operator, "route kill nobody --reason x", "[route_not_found]"),
        (Who::Operator, "failover disable --workflow nobody --reason x", "[workflow_not_found]"),
    ] {
        let refused = shell.run(who, line).await;
        assert_eq!(refused.code, 1, "{line}: {}", refused.all);
        assert!(refused.all.contains(says) && refused.out.is_empty(), "{line}: {}", refused.all);
        let refused = shell.run(who, &format!("{line} --json")).await;
        assert_eq!((refused.code, refused.json()["error"]["code"].is_string()), (1, true));
    }
    let url = shell.base.clone();
    shell.relay.shutdown().await;
    let gone = said(&["route", "list", "--url", &url], &[("RUBICON_TOKEN", "x")]).await;
    assert!(gone.code == 1 && gone.all.contains("was not reached"), "{}", gone.all);
}

#[tokio::test]
async fn wrong_usage_exits_with_2() {
    let shell = Shell::new().await;
    for (args, env) in [
        (vec!["route", "list", "--url", shell.base.as_str()], vec![]),
        (vec!["route", "list", "--url", "http://admin.example.test:8081"], vec![("RUBICON_TOKEN", "x")]),
        (vec!["route", "list", "--url", "nonsense"], vec![("RUBICON_TOKEN", "x")]),
        (vec!["route", "list", "--token", ENV[0].1, "--url", shell.base.as_str()], vec![]),
        (vec!["route", "kill", "../x", "--reason", "y", "--url", shell.base.as_str()], vec![("RUBICON_TOKEN", "x")]),
        (vec!["route", "kill", "a", "--url", shell.base.as_str()], vec![("RUBICON_TOKEN", "x")]),
        (vec!["failover"], vec![]),
    ] {
        let wrong = said(&args, &env).await;
        assert_eq!(wrong.code, 2, "{args:?}: {}", wrong.all);
    }
}

#[tokio::test]
async fn the_address_is_the_configs_and_the_token_where_it_is_said_to_be() {
    let shell = Shell::new().await;
    let address = shell.relay.admin_address().expect("an admin side");
    // No secret of the relay is in this shell's environment, and none is asked for.
    let text = format!(
        "[server]\nadmin_listen = \"{address}\"\n[provider.p]\nkind = \"openai\"\napi_key = \"env:NOT_HERE\"\n"
    );
    let (folder, config) = file("rubicon.toml", &text);
    let token = folder.path().join("token");
    std::fs::write(&token, format!("{}\n", Who::Viewer.token().expect("a token"))).expect("a file");
    let reference = format!("file:{}", token.display());
    let listed = said(&["route", "list", "-c", &config, "--token", &reference], &[]).await;
    assert_eq!(listed.code, 0, "{}", listed.all);
    let listed = said(&["route", "list", "-c", &config, "--token", "env:MINE"], &[("MINE", ENV[0].1)]).await;
    assert_eq!(listed.code, 0, "{}", listed.all);
    let missing = said(&["route", "list", "-c", "no/such/file.toml"], &[("RUBICON_TOKEN", "x")]).await;
    assert!(missing.code == 1 && missing.all.contains("there is no such file"), "{}", missing.all);
}

//! `rubicon ledger`, the real binary: over the admin side of a running relay, and into the file of a stopped one; and the very lines of the
//! README by which an operator resolves an unknown.

use std::path::Path;

use serde_json::{Value, json};

use crate::child::{Serving, code, printed, run};
use crate::ledger_admin::{TOOLS, claim, ran};
use crate::operators::{ENV, OPERATORS, Who, get};
use crate::setup::Setup;

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

async fn said(args: &[&str], who: Who) -> Said {
    let token = who.token().unwrap_or_default();
    let output = run(args, &[("RUBICON_TOKEN", token)]).await;
    let all = printed(&output);
    assert!(ENV.iter().all(|(_, token)| !all.contains(token)), "a token was shown: {all}");
    Said { code: code(&output), out: String::from_utf8(output.stdout).expect("UTF-8"), all }
}

/// A config whose store is in its own folder.
pub(crate) fn text() -> String {
    let setup = Setup::primary("http://127.0.0.1:9")
        .server("admin_listen = \"127.0.0.1:0\"\nstore = \"redb:data/rubicon.redb\"");
    setup.tables(&format!("{TOOLS}{OPERATORS}")).text()
}

pub(crate) async fn serve(folder: &Path) -> Serving {
    Serving::start_in(folder, &text(), &ENV, None).await
}

pub(crate) fn data(relay: &Serving) -> String {
    format!("http://{}", relay.address)
}

#[tokio::test]
async fn an_unknown_is_found_shown_and_settled_from_a_shell() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    let (url, data) = (relay.admin(), data(&relay));
    let hostile = "a\u{1b}[2J\u{202e}b";
    let mail = ran(&data, "r1", "mail", json!({ "to": hostile }), "unknown").await;
    let pay = ran(&data, "r1", "pay", json!({ "order": 7, "amount": "10", "card": "4111" }), "unknown").await;
    let shell = async |who: Who, args: &[&str]| said(&[&["ledger"], args, &["--url", &url]].concat(), who).await;

    let list = shell(Who::Viewer, &["list", "--state", "unknown"]).await;
    assert!(list.code == 0 && list.out.starts_with("KEY ") && list.out.contains(&mail), "{}", list.all);
    assert!(list.out.contains("Pay 10 for 7") && !list.out.contains("4111"), "{}", list.all);
    assert!(
        !list.out.contains('\u{1b}') && !list.out.contains('\u{202e}'),
        "what others wrote moves no cursor: {:?}",
        list.out
    );
    let page = shell(Who::Viewer, &["list", "--limit", "1", "--json"]).await.json();
    assert_eq!((page["executions"].as_array().map(Vec::len), page["next_cursor"].is_string()), (Some(1), true));
    let cursor = page["next_cursor"].as_str().expect("more").to_owned();
    let rest = shell(Who::Viewer, &["list", "--cursor", &cursor, "--json"]).await.json();
    assert_eq!(rest["executions"][0]["key"], json!(pay));

    let show = shell(Who::Viewer, &["show", &mail]).await;
    assert!(show.code == 0 && show.out.contains("TIMELINE") && show.out.contains("support"), "{}", show.all);
    let version = shell(Who::Viewer, &["show", &mail, "--json"]).await.json()["version"].to_string();
    let stale =
        shell(Who::Operator, &["resolve", &mail, "--outcome", "succeeded", "--reason", "x", "--version", "999"]).await;
    assert!(stale.code == 1 && stale.all.contains("[version_mismatch]") && stale.out.is_empty(), "{}", stale.all);
    let result = folder.path().join("result.json");
    std::fs::write(&result, "{ \"id\": 1.50 }\n").expect("written");
    let result = result.to_str().expect("UTF-8");
    let resolved = shell(
        Who::Operator,
        &[
            "resolve",
            &mail,
            "--outcome",
            "succeeded",
            "--reason",
            "in the outbox",
            "--external-reference",
            "m-17",
            "--result",
            result,
            "--version",
            &version,
        ],
    )
    .await;
    assert!(resolved.code == 0 && resolved.out.starts_with(&format!("{mail} is succeeded")), "{}", resolved.all);
    let replayed = claim(&data, "r1", "mail", json!({ "to": hostile })).await;
    assert!(replayed.text().contains("{ \"id\": 1.50 }"), "{}", replayed.text());

    let first =
        shell(Who::Operator, &["resolve", &pay, "--outcome", "not_executed", "--reason", "not at the bank"]).await;
    assert!(first.code == 0 && first.out.contains("a second person must confirm"), "{}", first.all);
    assert_eq!(shell(Who::Operator, &["confirm", &pay]).await.code, 1, "not an approver");
    let second = shell(Who::Approver, &["confirm", &pay, "--json"]).await;
    assert_eq!((second.code, &second.json()["failure"]), (0, &json!("not_executed")), "{}", second.all);
    let released = shell(Who::Approver, &["release", &pay, "--reason", "pay it"]).await;
    assert_eq!(released.code, 0, "{}", released.all);
    for (who, args, says) in [
        (Who::Operator, &["note", &pay, "--text", "told finance"][..], "version"),
        (Who::Operator, &["assign", &pay, "--to", "bob"], "version"),
    ] {
        let done = shell(who, args).await;
        assert!(done.code == 0 && done.out.contains(says), "{args:?}: {}", done.all);
    }
    let probe = shell(Who::Operator, &["probe", &pay]).await;
    assert!(probe.code == 1 && probe.all.contains("[no_probe]"), "{}", probe.all);
    let gone = shell(Who::Viewer, &["show", &format!("ex_{}", "0".repeat(64))]).await;
    assert!(gone.code == 1 && gone.all.contains("[execution_not_found]"), "{}", gone.all);
    for wrong in [&["show", "ex_1"][..], &["verify", "--head", "x"]] {
        assert_eq!(shell(Who::Viewer, wrong).await.code, 2, "{wrong:?}");
    }
    let journal = shell(Who::Viewer, &["journal"]).await;
    assert!(
        journal.code == 0 && journal.out.contains("in the outbox") && journal.out.contains("oli"),
        "{}",
        journal.all
    );
    let verified = shell(Who::Viewer, &["verify"]).await;
    assert!(verified.code == 0 && verified.out.starts_with("the ledger holds: "), "{}", verified.all);
    relay.stop().await;
}

#[tokio::test]
async fn a_stopped_ledger_is_read_by_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    let (url, data) = (relay.admin(), data(&relay));
    let key = ran(&data, "r1", "pay", json!({ "order": 7, "card": "4111" }), "unknown").await;
    let head = get(&url, "/admin/v1/journal/head", Who::Viewer).await.json();
    let hash = head["hash"].as_str().expect("a hash").to_owned();
    let file = folder.path().join("data/rubicon.redb");
    let file = file.to_str().expect("UTF-8");
    let config = folder.path().join("rubicon.toml");
    let config = config.to_str().expect("UTF-8");
    let busy = said(&["ledger", "verify", "--file", file], Who::Nobody).await;
    assert!(busy.code == 1 && busy.all.contains("another process uses this ledger"), "{}", busy.all);
    relay.stop().await;

    for place in [["--file", file], ["-c", config]] {
        let at = async |args: &[&str]| said(&[&["ledger"], args, &place].concat(), Who::Nobody).await;
        let list = at(&["list"]).await;
        assert!(list.code == 0 && list.out.contains(&key), "{}", list.all);
        let show = at(&["show", &key]).await;
        assert!(show.code == 0 && show.out.contains("TIMELINE") && !show.out.contains("4111"), "{}", show.all);
        let verified = at(&["verify", "--head", &hash, "--json"]).await;
        assert_eq!((verified.code, &verified.json()["ok"]), (0, &json!(true)), "{}", verified.all);
        let other = at(&["verify", "--head", &"0f".repeat(32)]).await;
        assert!(other.code == 1 && other.out.contains("cut_off"), "{}", other.all);
        assert!(at(&["head", "--json"]).await.json()["sequence"].as_u64() >= head["sequence"].as_u64());
        assert!(at(&["journal"]).await.out.contains(&key));
    }
    let content = said(&["ledger", "show", &key, "--content", "--file", file], Who::Nobody).await;
    assert!(content.code == 0 && content.out.contains("4111"), "{}", content.all);
    let none = said(&["ledger", "verify", "--file", "no/such/file.redb"], Who::Nobody).await;
    assert!(none.code == 1 && none.all.contains("there is no ledger"), "{}", none.all);
}

/// The lines between the README's marks, run as they stand there, with this relay's address and key in place of the examples'.
#[tokio::test]
async fn the_readmes_lines_resolve_an_unknown() {
    let folder = tempfile::tempdir().expect("a folder");
    let relay = serve(folder.path()).await;
    let (url, data) = (relay.admin(), data(&relay));
    for kind in ["curl", "shell"] {
        let arguments = json!({ "to": kind });
        let key = ran(&data, "r1", "mail", arguments.clone(), "unknown").await;
        let readme = include_str!("../../README.md");
        let mark = format!("<!-- resolve: {kind} -->\n```sh\n");
        let (_, rest) = readme.split_once(&*mark).expect("the README has the lines");
        let (lines, _) = rest.split_once("```").expect("and their end");
        assert!(lines.contains("http://127.0.0.1:8081") || kind == "shell", "{lines}");
        let script = lines.replace("http://127.0.0.1:8081", &url);
        // Without `--url` it would be the default address.
        let at = |line: &str| {
            if line.starts_with("rubicon") { format!("{line} --url {url}\n") } else { format!("{line}\n") }
        };
        let script: String = script.lines().map(at).collect();
        let binary = Path::new(env!("CARGO_BIN_EXE_rubicon")).parent().expect("a folder");
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        let output = tokio::process::Command::new("sh")
            .args(["-ec", &script])
            .env_clear()
            .envs([("PATH", &*path), ("RUBICON_TOKEN", Who::Operator.token().expect("a token")), ("KEY", &key)])
            .output()
            .await
            .expect("a shell");
        assert!(output.status.success(), "{script}\n{}", printed(&output));
        let view = get(&url, &format!("/admin/v1/executions/{key}"), Who::Viewer).await.json();
        assert_eq!(view["state"], "succeeded", "{script}\n{}", printed(&output));
        assert_eq!(claim(&data, "r1", "mail", arguments).await.json()["decision"], "use_result");
    }
    relay.stop().await;
}

#[tokio::test]
async fn what_a_shell_hands_over_is_not_trusted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let missing = said(&["ledger", "verify", "--file", &path("no\u{1b}[31msuch")], Who::Nobody).await;
    assert!(missing.code == 1 && !missing.all.contains('\u{1b}'), "{}", missing.all);
    for reason in ["", "a\u{1b}[2Jb", "two\nlines"] {
        let (from, file) = (path("from.redb"), path("to.redb"));
        let args = ["ledger", "restore", "--from", &from, "--file", &file, "--by", "ana", "--reason", reason];
        let refused = said(&args, Who::Nobody).await;
        assert!(refused.code == 2 && refused.all.contains("--reason"), "{reason:?}: {}", refused.all);
    }
}

//! A configuration is replaced while requests run: what runs goes on as it began, a bad file changes nothing and is explained, keys
//! are rotated without a caller noticing. The real binary, real signals, real files. (Under 500 streams: `tests/load/reload.rs`.)

use std::path::Path;

use rubicon::mock::{Answer, Rule, chat_text};

use crate::harness::{Http, client, provider, send, two};
use crate::operators::{ENV, OPERATORS, Who, change, get};
use crate::reloader::{REFUSED, Relay, TAKEN, UNCHANGED, config, halves, write};
use crate::setup::{Setup, overloaded};

#[tokio::test]
async fn an_operation_fails_over_as_it_was_planned() {
    let a = provider(Rule::new("a").answer(Answer::new().gate("fail").then(overloaded()))).await;
    let (b, c) = (
        provider(Rule::new("b").answer(chat_text(&["b"]))).await,
        provider(Rule::new("c").answer(chat_text(&["c"]))).await,
    );
    let text = |second| format!("[server]\nlisten = \"127.0.0.1:0\"\n{}", two(&a, second, ""));
    let relay = Relay::start(&[("rubicon.toml", &text(&b))], &[], &[]).await;
    let running = tokio::spawn(send(relay.ask(&client(Http::One), true)));
    a.wait_for(|stats| stats.at_gates == 1).await;
    relay.reload(&text(&c), TAKEN, 1).await;
    assert!(a.open_gate("fail", 1));
    let answered = running.await.expect("an answer");
    assert_eq!((answered.status, b.calls(), c.calls()), (200, 1, 0), "{}", answered.text());
    let running = tokio::spawn(send(relay.ask(&client(Http::One), true)));
    a.wait_for(|stats| stats.at_gates == 1).await;
    assert!(a.open_gate("fail", 1));
    let answered = running.await.expect("an answer");
    assert_eq!((answered.status, b.calls(), c.calls()), (200, 1, 1), "{}", answered.text());
}

#[tokio::test]
async fn a_clients_key_is_rotated_without_a_caller_noticing() {
    const KEYS: [&str; 3] = ["the-first-key", "the-second-key", "the-third-key"];
    let a = provider(Rule::new("a").answer(halves())).await;
    let text = |keys: &str| {
        let client = format!("[[client]]\nname = \"web\"\nworkflows = [\"w\"]\nkeys = [{keys}]\n");
        format!("{}{client}", config(&a, "", ""))
    };
    let files = [("rubicon.toml", text("\"env:FIRST\"")), ("second.key", format!("{}\n", KEYS[1]))];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let relay = Relay::start(&files, &[], &[("FIRST", KEYS[0])]).await;
    let http = client(Http::One);
    let running = tokio::spawn(send(relay.ask(&http, true).header("x-api-key", KEYS[0])));
    a.wait_for(|stats| stats.at_gates == 1).await;

    // Both, then the new one alone, then another value in its file.
    assert_eq!(relay.answer_to(KEYS[1]).await, 401);
    let said = relay.reload(&text("\"env:FIRST\", \"file:second.key\""), TAKEN, 1).await;
    assert!(said.contains("client.web, secrets"), "{said}");
    for key in &KEYS[..2] {
        // Let in as far as the gate, and then it leaves.
        let asked = tokio::spawn(send(relay.ask(&http, true).header("authorization", format!("Bearer {key}"))));
        a.wait_for(|stats| stats.at_gates == 2).await;
        asked.abort();
        a.wait_for(|stats| stats.at_gates == 1).await;
    }
    relay.reload(&text("\"file:second.key\""), TAKEN, 2).await;
    assert_eq!(relay.answer_to(KEYS[0]).await, 401);
    relay.write("second.key", KEYS[2]);
    relay.running.signal("HUP").await;
    let said = relay.running.says(TAKEN, 3).await;
    assert_eq!(relay.answer_to(KEYS[1]).await, 401);
    // The stream of the first key goes on to its end, with a key that is long gone.
    assert!(a.open_gate("go", 2));
    let answered = running.await.expect("an answer");
    assert!(answered.clean && answered.status == 200 && answered.text().contains("second half"), "{}", answered.text());
    assert_eq!(relay.answer_to(KEYS[2]).await, 200);
    for key in KEYS {
        assert!(!said.contains(key), "{said}");
    }
}

#[tokio::test]
async fn what_only_a_restart_changes_stays_and_is_named_and_the_rest_takes_effect() {
    let a = provider(Rule::new("a").answer(halves())).await;
    let relay = Relay::start(&[("rubicon.toml", &config(&a, "max_in_flight = 3", ""))], &[], &[]).await;
    let http = client(Http::One);
    let running: Vec<_> = (0..2).map(|_| tokio::spawn(send(relay.ask(&http, true)))).collect();
    a.wait_for(|stats| stats.at_gates == 2).await;
    let less = config(&a, "max_in_flight = 1", "").replace("127.0.0.1:0", "127.0.0.1:9") + "[log]\nlevel = \"error\"\n";
    let said = relay.reload(&less, TAKEN, 1).await;
    for key in ["server.listen", "log.level"] {
        assert!(said.contains(&format!("warning: {key}: only a restart changes this")), "{said}");
    }
    // One more than runs was free, and is no more; one permit of two must not come back.
    let answered = relay.answer(true).await;
    assert_eq!((answered.status, answered.json()["error"]["code"].as_str()), (503, Some("overloaded")));
    assert!(a.open_gate("go", 2));
    for stream in running {
        let answered = stream.await.expect("an answer");
        assert!(answered.clean && answered.text().contains("second half"), "{}", answered.text());
    }
    let one = loop {
        // The permit comes back when the relay, and not the client, is done.
        let asked = tokio::spawn(send(relay.ask(&http, true)));
        let at_gate = tokio::select! {
            _ = a.wait_for(|stats| stats.at_gates == 1) => true,
            () = tokio::time::sleep(std::time::Duration::from_millis(20)) => a.stats().at_gates == 1,
        };
        if at_gate {
            break asked;
        }
        assert_eq!(asked.await.expect("an answer").status, 503);
    };
    assert_eq!(relay.answer(true).await.status, 503);
    assert!(a.open_gate("go", 1));
    assert_eq!(one.await.expect("an answer").status, 200);
    // And up again.
    relay.reload(&config(&a, "max_in_flight = 2", ""), TAKEN, 2).await;
    let running: Vec<_> = (0..2).map(|_| tokio::spawn(send(relay.ask(&http, true)))).collect();
    a.wait_for(|stats| stats.at_gates == 2).await;
    assert_eq!(relay.answer(true).await.status, 503);
    assert!(a.open_gate("go", 2));
    for stream in running {
        assert_eq!(stream.await.expect("an answer").status, 200);
    }
}

/// Signals that come during a load are one more load after it: the last file wins, however many there are.
#[tokio::test]
async fn the_last_of_many_files_wins() {
    let a = provider(Rule::new("a").answer(chat_text(&["a"]))).await;
    let relay = Relay::start(&[("rubicon.toml", &config(&a, "", ""))], &[], &[]).await;
    for at in 0..20 {
        relay.write("rubicon.toml", &config(&a, "", &format!("model = \"m{at}\"")));
        relay.running.signal("HUP").await;
    }
    let last = async {
        loop {
            assert_eq!(relay.answer(true).await.status, 200);
            if a.requests().last().expect("a request").json()["model"] == "m19" {
                return;
            }
        }
    };
    tokio::time::timeout(crate::harness::PATIENCE, last).await.expect("the last file is in force");
    let (_, printed) = relay.running.stop().await;
    assert!(printed.matches("loading the configuration anew").count() <= 20, "{printed}");
}

/// A token file that was looked at since is the same file.
#[tokio::test]
async fn a_look_at_a_token_file_is_no_change() {
    let a = provider(Rule::new("a").answer(chat_text(&["a"]))).await;
    let azure = Setup::primary(a.base_url()).kind("azure-openai", "").with_provider("entra_token = \"file:token\"");
    let text = azure.text();
    let relay = Relay::start(&[("token", "the-token"), ("rubicon.toml", &text)], &[], &[]).await;
    assert_eq!((relay.answer(true).await.status, a.calls()), (200, 1));
    relay.reload(&text, UNCHANGED, 1).await;
    let (_, printed) = relay.running.stop().await;
    assert!(!printed.contains(TAKEN), "{printed}");
}

/// As Kubernetes mounts a ConfigMap: the file is a link into a folder that is a link, and that link is swapped.
#[tokio::test]
async fn a_watch_sees_swapped_links_included_files_and_secrets() {
    let a = provider(Rule::new("a").answer(chat_text(&["a"]))).await;
    let include = "include = [{ path = \"workflows/*.toml\", allow = [\"workflow\"] }]\n";
    let client_table = "[[client]]\nname = \"web\"\nworkflows = [\"w\"]\nkeys = [\"file:web.key\"]\n";
    let text = |model: &str| format!("{include}{}{client_table}", config(&a, "", &format!("model = \"{model}\"")));
    let folder = tempfile::tempdir().expect("a folder");
    let link = |to: &str, at: &Path| {
        let new = at.join("..new");
        std::os::unix::fs::symlink(to, &new).expect("a link");
        std::fs::rename(new, at.join("..data")).expect("a rename");
    };
    write(folder.path(), "..one/rubicon.toml", &text("one"));
    write(folder.path(), "..two/rubicon.toml", &text("two"));
    write(folder.path(), "web.key", "the-first-key");
    write(folder.path(), "workflows/more.toml", "[workflow.more]\nprimary = \"main\"\n");
    link("..one", folder.path());
    std::os::unix::fs::symlink("..data/rubicon.toml", folder.path().join("rubicon.toml")).expect("a link");
    let relay = Relay::start_in(folder, &["--watch"], &[]).await;
    let model = || a.requests().last().expect("a request").json()["model"].clone();
    assert_eq!((relay.answer_to("the-first-key").await, model()), (200, "one".into()));

    link("..two", relay.folder.path());
    relay.running.says(TAKEN, 1).await;
    assert_eq!((relay.answer_to("the-first-key").await, model()), (200, "two".into()));

    relay.write("web.key", "the-second-key");
    relay.running.says(TAKEN, 2).await;
    assert_eq!((relay.answer_to("the-first-key").await, relay.answer_to("the-second-key").await), (401, 200));

    // A new file of a pattern: broken, and mended.
    relay.write("workflows/yet-more.toml", "[workflow.more]\nprimary = \"main\"\n");
    let said = relay.running.says(REFUSED, 1).await;
    assert!(said.contains("workflows/yet-more.toml:1: error: workflow.more: "), "{said}");
    relay.write("workflows/yet-more.toml", "[workflow.most]\nprimary = \"main\"\n");
    let said = relay.running.says(TAKEN, 3).await;
    assert!(said.contains("\"changed\":\"workflow.most\""), "{said}");
    let (code, _) = relay.running.stop().await;
    assert_eq!(code, 0);
}

/// Operators see what became of a load; what they switched off stays off; and their own tokens are taken away by one.
#[tokio::test]
async fn operators_see_loads_and_their_switches_survive_them() {
    let a = provider(Rule::new("a").answer(chat_text(&["a"]))).await;
    let server = "admin_listen = \"127.0.0.1:0\"\nstore = \"memory\"";
    let text = config(&a, server, "") + OPERATORS;
    let relay = Relay::start(&[("rubicon.toml", &text)], &[], &ENV).await;
    let said = relay.running.says("the admin side is on ", 1).await;
    let base = said.split("the admin side is on ").nth(1).and_then(|rest| rest.lines().next()).expect("a URL");
    let reason = serde_json::json!({ "reason": "INC-7" });
    let killed = change(base, "/admin/v1/routes/main/kill", Who::Operator, "*", reason).await;
    assert_eq!(killed.status, 200, "{}", killed.text());
    assert_ne!(relay.answer(true).await.status, 200);

    relay.reload(&text.replace("kind = ", "kimd = "), REFUSED, 1).await;
    let seen = get(base, "/admin/v1/config", Who::Viewer).await.json();
    assert_eq!((&seen["generation"], &seen["reload"]["failures"]), (&1.into(), &1.into()), "{seen}");
    let problem = seen["reload"]["failed"]["problems"][0].as_str().expect("a line");
    assert!(problem.contains("rubicon.toml:5: error: provider.p.kind: `kind` is required"), "{problem}");

    // Without the last operator, with another model, and a log level that has to wait.
    let less = text
        .rsplit_once("[[operator]]")
        .expect("an operator")
        .0
        .replace("provider = \"p\"", "provider = \"p\"\nmodel = \"m\"");
    relay.reload(&(less + "[log]\nlevel = \"error\"\n"), TAKEN, 1).await;
    let seen = get(base, "/admin/v1/config", Who::Viewer).await.json();
    assert_eq!((&seen["generation"], &seen["reload"]["failed"]), (&2.into(), &serde_json::Value::Null), "{seen}");
    assert_eq!(seen["reload"]["needs_restart"], serde_json::json!(["log.level"]));
    assert_eq!(get(base, "/admin/v1/config", Who::Approver).await.status, 401);
    assert_ne!(relay.answer(true).await.status, 200, "the route is still killed");
    assert_eq!(a.calls(), 0);
    // Without any operator, and without any client: what that means is said, once.
    let client = "[[client]]\nname = \"c\"\nkeys = [\"env:VIC\"]\nworkflows = [\"w\"]\n";
    let nobody = text.split("[[operator]]").next().expect("what is before").to_owned();
    let said = relay.reload(&nobody, TAKEN, 2).await;
    assert_eq!(said.matches("no [[operator]] is left: the admin side is off").count(), 1, "{said}");
    assert!(!said.contains("no [[client]] is left"), "there was none: {said}");
    let workflow = nobody.split("[workflow.").nth(1).and_then(|rest| rest.split(']').next()).expect("a workflow");
    relay.reload(&(nobody.clone() + &client.replace("\"w\"", &format!("{workflow:?}"))), TAKEN, 3).await;
    let said = relay.reload(&nobody, TAKEN, 4).await;
    assert_eq!(said.matches("no [[client]] is left: no key is asked for any more").count(), 1, "{said}");
    assert_eq!(said.matches("no [[operator]] is left").count(), 1, "{said}");
}

//! The example agent (`examples/agent`), its own binary against a relay with its own config: one refund an order, in whatever words, however
//! often it is started; and nothing of a stream that was cut.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rubicon::mock::{Answer, MockProvider, Rule, chat, chat_text, chat_tool_call};
use rubicon::serve::Server;
use tokio::process::Command;
use tokio::time::timeout;

use crate::harness::{PATIENCE, provider, relay_with};

/// What stands in the place of the example's store.
const MEMORY: &str = "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nstore = \"memory\"";
const LOOKUP: &str = r#"{"order":"1001"}"#;
const REFUND: &str = r#"{"order":"1001","cents":4200,"reason":"arrived broken"}"#;

/// The example beside this test's own binary; `cargo test` builds it, unless a single test target is named.
fn binary() -> PathBuf {
    let own = std::env::current_exe().expect("this binary");
    let folder = own.parent().and_then(Path::parent).expect("deps in a profile's folder");
    let path = folder.join("examples").join("agent");
    assert!(path.is_file(), "there is no {}: cargo build --example agent", path.display());
    path
}

/// What a run left.
struct Ran {
    code: Option<i32>,
    printed: String,
}

struct Shop {
    relay: Server,
    model: MockProvider,
    folder: tempfile::TempDir,
}

impl Shop {
    /// A relay with the example's config in front of a model that answers so.
    async fn new(answers: Vec<Answer>) -> Self {
        let rule = answers.into_iter().fold(Rule::new("model"), Rule::answer);
        let model = provider(rule).await;
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/agent/rubicon.toml");
        let text = std::fs::read_to_string(config).expect("the example's config");
        let changes = [
            ("store = \"redb:data/agent.redb\"", MEMORY.to_owned()),
            ("kind = \"openai\"", format!("kind = \"openai\"\nbase_url = \"{}/v1\"", model.base_url())),
        ];
        let text = changes.into_iter().fold(text, |text, (old, new)| {
            assert!(text.contains(old), "the config has no {old}");
            text.replace(old, &new)
        });
        let relay = relay_with(
            &text,
            &BTreeMap::from([("OPENAI_API_KEY", "suite"), ("RUBICON_TOKEN", "suite-operator-token")]),
        )
        .await;
        Self { relay, model, folder: tempfile::tempdir().expect("a folder") }
    }

    /// Starts the agent as this run.
    async fn run(&self, run: &str) -> Ran {
        self.run_on(run, "refunds.txt").await
    }

    /// The same with another book.
    async fn run_on(&self, run: &str, book: &str) -> Ran {
        let mut command = Command::new(binary());
        command.env_clear().stdin(Stdio::null()).kill_on_drop(true).arg("Please refund order 1001");
        command.env("RUBICON_URL", format!("http://{}", self.relay.address())).env("AGENT_RUN", run);
        command.env("AGENT_BOOK", self.folder.path().join(book));
        let output = timeout(PATIENCE, command.output()).await.expect("an end in time").expect("the example runs");
        let printed = [output.stdout, output.stderr].concat();
        Ran { code: output.status.code(), printed: String::from_utf8(printed).expect("UTF-8") }
    }

    /// The lines of the book: key, order, cents.
    fn book(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join("refunds.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn wish(refund: &str) -> Vec<Answer> {
    let (head, tail) = refund.split_at(9);
    let calls = [chat_tool_call("lookup_order", &[LOOKUP]), chat_tool_call("refund_order", &[head, tail])];
    calls.into_iter().chain([chat_text(&["Your money ", "is on its way."])]).collect()
}

#[tokio::test]
async fn a_run_that_is_started_again_refunds_once() {
    let reworded = REFUND.replace("arrived broken", "never worked");
    let cents = REFUND.replace("4200", "4100");
    let shop = Shop::new([wish(REFUND), wish(&reworded), wish(&cents), wish(REFUND)].concat()).await;
    let first = shop.run("run-1").await;
    assert_eq!(first.code, Some(0), "{}", first.printed);
    for said in ["\"paid_cents\":4200", "\"refunded\":\"1001\"", "Your money is on its way."] {
        assert!(first.printed.contains(said), "{said}: {}", first.printed);
    }
    let book = shop.book();
    assert_eq!(book.len(), 1, "{book:?}");
    assert!(book[0].ends_with(" \"1001\" 4200"), "{book:?}");

    let again = shop.run("run-1").await;
    assert_eq!(again.code, Some(0), "{}", again.printed);
    assert!(again.printed.contains("\"refunded\":\"1001\""), "from the record: {}", again.printed);
    assert_eq!(shop.book(), book, "a reason in other words is the same refund");

    let other = shop.run("run-1").await;
    assert_eq!(other.code, Some(0), "{}", other.printed);
    assert!(other.printed.contains("in other words"), "the model is told: {}", other.printed);
    assert!(!other.printed.contains("\"refunded\""), "{}", other.printed);
    assert_eq!(shop.book(), book, "other cents are no second refund of this run");

    assert_eq!(shop.run("run-2").await.code, Some(0));
    let both = shop.book();
    assert_eq!((both.len(), &both[0]), (2, &book[0]), "another run is another wish");
    assert_ne!(both[1].split(' ').next(), book[0].split(' ').next(), "under a key of its own");
    assert_eq!(shop.model.calls(), 12, "three turns each time");
}

#[tokio::test]
async fn what_may_have_taken_effect_is_not_done_again() {
    let shop = Shop::new([wish(REFUND), wish(REFUND)].concat()).await;
    // The folder itself is no file that can be written to.
    let failed = shop.run_on("run-1", "").await;
    assert_eq!(failed.code, Some(0), "{}", failed.printed);
    assert!(failed.printed.contains("It is not known whether this took effect."), "{}", failed.printed);
    let again = shop.run("run-1").await;
    assert_eq!(again.code, Some(0), "{}", again.printed);
    assert!(again.printed.contains("Do not call it again, neither with the same nor"), "{}", again.printed);
    assert!(shop.book().is_empty(), "{:?}", shop.book());
}

#[tokio::test]
async fn nothing_of_a_cut_stream_is_acted_on() {
    let mut cut = chat_tool_call("refund_order", &[REFUND]);
    // The call is whole, its finish reason and `[DONE]` never come.
    let kept = cut.steps.len() - 3;
    cut.steps.truncate(kept);
    let refused = Answer::sse().step(chat::error("server_error", "server_error", "down"));
    let shop = Shop::new(vec![cut.delay_ms(50).abort_rst(), refused]).await;
    let interrupted = shop.run("run-1").await;
    assert_eq!(interrupted.code, Some(1), "{}", interrupted.printed);
    assert!(interrupted.printed.contains("interrupted"), "{}", interrupted.printed);
    let refused = shop.run("run-1").await;
    assert_eq!(refused.code, Some(1), "{}", refused.printed);
    assert!(shop.book().is_empty(), "{:?}", shop.book());
}

//! The examples are true: their files are accepted as they are, and each line of the quickstart's table does what it says.

use std::path::Path;

use rubicon::clock::UnixMillis;
use rubicon::config::{self, Severity};
use rubicon::mock::{MockProvider, Script};

use crate::harness::{Http, client, post, relay};

fn example(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

#[test]
fn the_configs_have_no_problem_and_their_failovers_can_act() {
    for name in ["quickstart/rubicon.toml", "rubicon-failover.toml", "azure-bedrock.toml", "agent/rubicon.toml"] {
        let env = |name: &str| (!name.starts_with("OTEL_")).then(|| format!("key-{name}"));
        let now = UnixMillis::now();
        let loaded = config::load(&example(name), &env, now).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let mut problems = rubicon::check::findings(&loaded, now);
        problems.extend(loaded.warnings);
        problems.retain(|problem| problem.severity != Severity::Info);
        assert!(problems.is_empty(), "{name}: {problems:#?}");
    }
}

/// A line of the README's table.
struct Line {
    model: &'static str,
    status: u16,
    says: &'static str,
    recovery: &'static str,
    attempts: &'static str,
    clean: bool,
    /// Calls of the first and the second provider.
    calls: (u64, u64),
}

const FIRST: &str = "first ";
const SECOND: &str = "second ";

const LINES: &[Line] = &[
    Line { model: "fine", status: 200, says: FIRST, recovery: "none", attempts: "1", clean: true, calls: (1, 0) },
    over("overloaded"),
    over("dies-early"),
    over("silent"),
    Line {
        model: "dies-late",
        status: 200,
        says: "\"status\":\"interrupted\"",
        recovery: "none",
        attempts: "1",
        clean: false,
        calls: (1, 0),
    },
    Line {
        model: "no-quota",
        status: 424,
        says: "\"class\":\"quota_exhausted\"",
        recovery: "",
        attempts: "1",
        clean: true,
        calls: (1, 0),
    },
];

/// The second provider answers in silence.
const fn over(model: &'static str) -> Line {
    let recovery = "equivalent_failover";
    Line { model, status: 200, says: SECOND, recovery, attempts: "2", clean: true, calls: (1, 1) }
}

#[tokio::test]
async fn each_line_of_the_quickstarts_table_does_what_it_says() {
    let readme = std::fs::read_to_string(example("quickstart/README.md")).unwrap();
    assert_eq!(readme.matches("| `ask ").count(), LINES.len(), "a line without a row here");
    let mut script = Script::load(&example("quickstart/script.json")).unwrap_or_else(|problems| panic!("{problems}"));
    let theirs = script.listen.to_string();
    script.listen.set_port(0);
    let mock = MockProvider::start(script).await.unwrap();
    let text = std::fs::read_to_string(example("quickstart/rubicon.toml")).unwrap();
    assert!(text.contains(&theirs), "the config does not speak to {theirs}");
    let relay = relay(&text.replace(&theirs, &mock.addr().to_string())).await;
    let client = client(Http::One);
    for line in LINES {
        assert!(readme.contains(&format!("| `ask {}` |", line.model)), "{}", line.model);
        mock.reset();
        let body =
            format!(r#"{{"model":"{}","stream":true,"messages":[{{"role":"user","content":"hi"}}]}}"#, line.model);
        let answered = post(&client, &relay, "/v1/chat/completions", body).await;
        let seen = (answered.status, answered.header("rubicon-recovery"), answered.header("rubicon-attempts"));
        assert_eq!(seen, (line.status, line.recovery, line.attempts), "{}: {}", line.model, answered.text());
        assert!(answered.text().contains(line.says), "{}: {}", line.model, answered.text());
        assert_eq!(answered.clean, line.clean, "{}", line.model);
        let second = mock.calls_of("second");
        assert_eq!((mock.calls() - second, second), line.calls, "{}", line.model);
    }
    relay.shutdown().await;
    mock.stop().await;
}

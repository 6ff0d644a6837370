//! Nobody has to read what the relay says: with a log, or event lines, that nobody reads or whose reader has gone, requests, kills,
//! reloads and the shutdown go on, and what was lost is counted.

use std::io::{PipeReader, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rubicon::mock::{MockProvider, chat_text};
use rubicon::protocol::Dialect;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::child::{Running, file};
use crate::harness::{self, Http, PATIENCE, client, send};
use crate::operators::{ENV, OPERATORS, Who, change, get};
use crate::setup::{Setup, always};

/// A pipe whose reader has gone.
fn gone() -> Stdio {
    std::io::pipe().expect("a pipe").1.into()
}

/// A pipe that is full, and that nobody reads while the reader is kept.
async fn full() -> (PipeReader, Stdio) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut filler = writer.try_clone().expect("a descriptor");
    let written = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&written);
    // It hangs in a write until the reader is dropped.
    std::thread::spawn(move || {
        while filler.write_all(&[b'.'; 64]).is_ok() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut before = 0;
    loop {
        sleep(Duration::from_millis(100)).await;
        let now = written.load(Ordering::SeqCst);
        if now > 0 && now == before {
            return (reader, writer.into());
        }
        before = now;
    }
}

/// `http://…` of the data plane and of the admin side, from the line of `--json`.
fn addresses(told: &str) -> (String, String) {
    let told: Value = serde_json::from_str(&format!("{{\"admin\":{told}")).expect("a line of JSON");
    let text = |name: &str| told[name].as_str().expect(name).to_owned();
    (text("listening"), text("admin"))
}

fn setup(a: &MockProvider, events: &str) -> String {
    let setup = Setup::primary(a.base_url()).server("admin_listen = \"127.0.0.1:0\"\nstore = \"memory\"");
    setup.tables(&format!("[log]\nlevel = \"debug\"\nevents = \"{events}\"\n{OPERATORS}")).text()
}

async fn ask(base: &str) -> u16 {
    let request =
        client(Http::One).post(format!("{base}/v1/chat/completions")).header("content-type", "application/json");
    send(request.body(harness::request(Dialect::ChatCompletions, true))).await.status
}

async fn dropped(admin: &str, metric: &str) -> f64 {
    let metrics = get(admin, "/metrics", Who::Viewer).await;
    let text = metrics.text();
    let value = text.lines().find_map(|line| line.strip_prefix(metric)).expect("a line");
    value.trim().parse().expect("a number")
}

/// Everything that a relay does and says something about: requests, a switch, reloads.
async fn goes_on(running: &Running, (base, admin): (&str, &str), path: &str) {
    for _ in 0..3 {
        assert_eq!(ask(base).await, 200);
    }
    let killed = change(admin, "/admin/v1/routes/a/kill", Who::Operator, "*", json!({ "reason": "drill" })).await;
    assert_eq!(killed.status, 200, "{}", killed.text());
    assert_eq!(ask(base).await, 503);
    reload(running, admin, "reloads").await;
    // The problems of a bad file go to the log, one by one.
    std::fs::write(path, "nonsense = 1\n[x]\ny = 2\n").expect("a file");
    reload(running, admin, "failures").await;
    let restored = change(admin, "/admin/v1/routes/a/restore", Who::Approver, "1", json!({ "reason": "over" })).await;
    assert_eq!(restored.status, 200, "{}", restored.text());
    assert_eq!(ask(base).await, 200);
}

/// SIGHUP, until it counts as `outcome`.
async fn reload(running: &Running, admin: &str, outcome: &str) {
    running.signal("HUP").await;
    let counted = timeout(PATIENCE, async {
        while get(admin, "/admin/v1/config", Who::Viewer).await.json()["reload"][outcome] != 1 {
            sleep(Duration::from_millis(10)).await;
        }
    });
    counted.await.expect(outcome);
}

const LISTENING: &str = "{\"admin\":";

/// Event lines are for `events`; the log goes to `stderr`.
async fn with_stderr(events: &str, stderr: Stdio) -> (MockProvider, (tempfile::TempDir, String), Running) {
    let a = always(chat_text(&["fine"])).await;
    let config = file("rubicon.toml", &setup(&a, events));
    let running =
        Running::start_with(&["serve", "--json", "-c", &config.1], &ENV, LISTENING, (Stdio::piped(), stderr)).await;
    (a, config, running)
}

#[tokio::test]
async fn a_log_whose_reader_has_gone_costs_lines_and_nothing_else() {
    for events in ["off", "stderr"] {
        let (_a, config, running) = with_stderr(events, gone()).await;
        let (base, admin) = addresses(&running.told);
        goes_on(&running, (&base, &admin), &config.1).await;
        assert!(dropped(&admin, "rubicon_log_dropped_total").await > 0.0);
        let lost = dropped(&admin, "rubicon_events_dropped_total").await;
        assert_eq!(lost > 0.0, events == "stderr", "{events}: {lost}");
        assert_eq!(running.stop().await.0, 0);
    }
}

#[tokio::test]
async fn a_log_that_nobody_reads_stops_nothing() {
    for events in ["off", "stderr"] {
        let (_reader, stderr) = full().await;
        let (_a, config, running) = with_stderr(events, stderr).await;
        let (base, admin) = addresses(&running.told);
        goes_on(&running, (&base, &admin), &config.1).await;
        assert_eq!(running.stop().await.0, 0);
    }
}

/// Nothing can be told, but the exit code is.
#[tokio::test]
async fn a_start_that_fails_needs_no_reader_either() {
    let (_folder, path) = file("rubicon.toml", "nonsense = 1\n");
    let (_reader, unread) = full().await;
    for stderr in [gone(), unread] {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_rubicon"));
        command
            .args(["serve", "-c", &path])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .kill_on_drop(true);
        let status = timeout(PATIENCE, command.status()).await.expect("an end").expect("the binary runs");
        assert_eq!(status.code(), Some(1));
    }
}

/// Event lines on a standard output that nobody reads: beyond the queue they are dropped and counted.
#[tokio::test]
async fn event_lines_that_nobody_reads_are_dropped_and_counted() {
    let a = always(chat_text(&["fine"])).await;
    let (_folder, path) = file("rubicon.toml", &setup(&a, "stdout"));
    let (_reader, stdout) = full().await;
    let prefix = "rubicon serve: listening on ";
    let running = Running::start_with(&["serve", "-c", &path], &ENV, prefix, (stdout, Stdio::piped())).await;
    let (base, admin) = (running.told.clone(), running.line("rubicon serve: the admin side is on "));
    let http = client(Http::One);
    let refused = |_| {
        let request = http.post(format!("{base}/v1/chat/completions")).header("content-type", "application/json");
        async move { assert_eq!(send(request.body("{")).await.status, 400) }
    };
    // More than a batch and the queue hold: a line is over 256 bytes.
    let enough = rubicon::telemetry::lines::QUEUE_LINES_MAX + 64 * 1024 / 256;
    for _ in 0..enough / 16 + 1 {
        futures_util::future::join_all((0..16).map(refused)).await;
    }
    assert!(dropped(&admin, "rubicon_events_dropped_total").await > 0.0);
    goes_on(&running, (&base, &admin), &path).await;
    assert_eq!(running.stop().await.0, 0);
}

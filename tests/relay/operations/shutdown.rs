//! SIGTERM, as an operator's supervisor sends it, to the real binary.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rubicon::mock::{Answer, MockProvider, chat};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::CHAT;
use crate::harness::{Answered, Http, PATIENCE, client, path, request, send};
use crate::setup::{Setup, always};

struct Relay {
    child: Child,
    base: String,
    _folder: tempfile::TempDir,
}

impl Relay {
    async fn start(setup: &Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("rubicon.toml");
        std::fs::write(&config, setup.text()).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_rubicon"))
            .arg("serve")
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let base = tokio::time::timeout(PATIENCE, async {
            loop {
                let line = lines.next_line().await.unwrap().expect("it says where it listens");
                if let Some((_, base)) = line.split_once("listening on ") {
                    return base.trim().to_owned();
                }
            }
        })
        .await
        .expect("it starts");
        // Its log must not fill a pipe that nobody reads.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, base, _folder: folder }
    }

    fn terminate(&self) {
        let id = self.child.id().expect("it runs").to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    async fn get(&self, path: &str) -> Answered {
        send(client(Http::One).get(format!("{}{path}", self.base))).await
    }

    fn stream(&self) -> reqwest::RequestBuilder {
        let request = client(Http::One).post(format!("{}{}", self.base, path(CHAT)));
        request.header("content-type", "application/json").body(self::request(CHAT, true))
    }

    /// Waits until `/readyz` says that it is going.
    async fn draining(&self) {
        for _ in 0..1000 {
            if self.get("/readyz").await.status == 503 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("still ready");
    }

    async fn ended(mut self) -> ExitStatus {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap()
    }
}

async fn held_stream() -> MockProvider {
    let answer = Answer::sse().step(chat::delta("Hel")).gate("end");
    always(answer.step(chat::delta("lo")).step(chat::finish("stop")).step(chat::done())).await
}

#[tokio::test]
async fn running_streams_finish_and_new_requests_are_sent_away() {
    let a = held_stream().await;
    let relay = Relay::start(&Setup::primary(a.base_url())).await;
    assert_eq!(relay.get("/readyz").await.status, 200);
    let running = tokio::spawn(send(relay.stream()));
    a.wait_for(|stats| stats.at_gates == 1).await;

    relay.terminate();
    relay.draining().await;
    assert_eq!(relay.get("/healthz").await.status, 200, "it lives until it ends");
    let refused = send(relay.stream()).await;
    let json = refused.json();
    assert_eq!((refused.status, &json["error"]["code"]), (503, &json!("shutting_down")), "{json}");
    assert_eq!(
        (refused.header("retry-after"), refused.header("x-should-retry")),
        ("1", ""),
        "somebody else may take it"
    );
    assert_eq!((&json["rubicon"]["retryable"], a.calls()), (&json!(true), 1));

    a.open_gate("end", 1);
    let answered = running.await.unwrap();
    assert!(answered.clean && answered.text().ends_with("data: [DONE]\n\n"), "{}", answered.text());
    assert_eq!(relay.ended().await.code(), Some(0));
}

#[tokio::test]
async fn the_grace_limit_interrupts_what_still_runs() {
    let a = held_stream().await;
    let silent = Answer::new().gate("never");
    let quiet = always(silent).await;
    for (provider, shown) in [(&a, true), (&quiet, false)] {
        let relay = Relay::start(&Setup::primary(provider.base_url()).server("shutdown_grace_ms = 300")).await;
        let running = tokio::spawn(send(relay.stream()));
        provider.wait_for(|stats| stats.at_gates == 1).await;
        relay.terminate();
        let answered = running.await.unwrap();
        if shown {
            assert!(!answered.clean && answered.text().contains("Hel"), "{}", answered.text());
            let rubicon = &answered.last_event()["error"]["rubicon"];
            assert_eq!(
                (&rubicon["status"], &rubicon["reason"]),
                (&json!("interrupted"), &json!("shutting_down")),
                "{rubicon}"
            );
            assert_eq!((&rubicon["after"], &rubicon["actions"]), (&json!(1), &json!(["restart"])));
        } else {
            let json = answered.json();
            assert_eq!((answered.status, &json["error"]["code"]), (503, &json!("shutting_down")), "{json}");
            assert_eq!((answered.header("x-should-retry"), &json["rubicon"]["retryable"]), ("", &json!(true)));
        }
        assert_eq!(relay.ended().await.code(), Some(0));
    }
}

#[tokio::test]
async fn an_idle_relay_with_open_connections_ends_at_once() {
    let a = always(Answer::auto(rubicon::mock::AutoDialect::ChatCompletions, &["x"])).await;
    let relay = Relay::start(&Setup::primary(a.base_url())).await;
    // Kept connections of both protocols, and one that never said a word.
    let (one, two) = (client(Http::One), client(Http::Two));
    for client in [&one, &two] {
        assert_eq!(send(client.get(format!("{}/healthz", relay.base))).await.status, 200);
    }
    let mute = tokio::net::TcpStream::connect(relay.base.trim_start_matches("http://")).await.unwrap();
    let began = tokio::time::Instant::now();
    relay.terminate();
    assert_eq!(relay.ended().await.code(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(20), "not the grace of 30 s");
    drop(mute);
}

#[tokio::test]
async fn a_second_sigterm_ends_at_once() {
    let a = held_stream().await;
    let relay = Relay::start(&Setup::primary(a.base_url()).server("shutdown_grace_ms = 600000")).await;
    let running = tokio::spawn(send(relay.stream()));
    a.wait_for(|stats| stats.at_gates == 1).await;
    relay.terminate();
    relay.draining().await;
    relay.terminate();
    relay.ended().await;
    assert!(!running.await.unwrap().clean, "what ran was cut off, and could be seen to be");
}

//! Codex on `/v1/responses`: its rules (STREAMS.md 2.5) as a client of our own, on the same crate it reads streams with.
//!
//! The rules: it ends at `response.completed` and nowhere else; `response.failed` and `.incomplete` are kept and it reads on to the end of
//! the body; some codes are final, all others are tried again with the message shown; its idle timer restarts with
//! each event and not with a comment; what has no type is skipped; and a BOM would make the crate panic.

use eventsource_stream::Eventsource as _;
use futures_util::StreamExt as _;
use rubicon::mock::{Answer, Step, responses, responses_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::Value;

use crate::harness::{Http, PATIENCE, client, path, relay, request, two, url};
use crate::setup::{always, overloaded};

/// Codes at which Codex gives up; at two of them it tells a text of its own.
const FINAL: &[&str] = &[
    "context_length_exceeded",
    "insufficient_quota",
    "usage_not_included",
    "invalid_prompt",
    "cyber_policy",
    "server_is_overloaded",
    "slow_down",
];

/// What Codex makes of a turn.
#[derive(Debug, Default)]
struct Turn {
    text: String,
    completed: bool,
    /// Code and message of `response.failed`.
    failed: Option<(String, String)>,
    /// Events, with or without a type: each restarts its idle timer.
    events: usize,
    keepalives: usize,
    /// Events that came after `response.failed`.
    after_failed: usize,
    /// The body was cut.
    cut: bool,
}

impl Turn {
    fn retries(&self) -> bool {
        !self.completed && self.failed.as_ref().is_none_or(|(code, _)| !FINAL.contains(&code.as_str()))
    }
}

async fn ask(relay: &Server) -> reqwest::Response {
    let ask = client(Http::One).post(url(relay, path(Dialect::Responses))).header("user-agent", "codex_cli_rs/0.90.0");
    let sending = ask.header("content-type", "application/json").body(request(Dialect::Responses, true)).send();
    tokio::time::timeout(PATIENCE, sending).await.expect("in time").expect("a head")
}

/// Plays a turn; `waited` is told of each keep-alive.
async fn turn(relay: &Server, mut waited: impl FnMut(usize)) -> Turn {
    let response = ask(relay).await;
    assert_eq!(response.status(), 200);
    let mut events = response.bytes_stream().eventsource();
    let mut turn = Turn::default();
    while let Some(event) = tokio::time::timeout(PATIENCE, events.next()).await.expect("no hang") {
        let Ok(event) = event else {
            turn.cut = true;
            break;
        };
        turn.events += 1;
        turn.after_failed += usize::from(turn.failed.is_some());
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else { continue };
        match data["type"].as_str() {
            Some("response.output_text.delta") => turn.text += data["delta"].as_str().unwrap_or_default(),
            Some("response.completed") => {
                turn.completed = true;
                break;
            }
            Some("response.failed") => {
                let error = &data["response"]["error"];
                let word = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
                turn.failed = Some((word("code"), word("message")));
            }
            Some("keepalive") => {
                turn.keepalives += 1;
                waited(turn.keepalives);
            }
            _ => {}
        }
    }
    turn
}

fn begun() -> Answer {
    Answer::sse()
        .step(responses::created(0))
        .step(responses::message_added(1, 0))
        .step(responses::text_delta(2, 0, "Hel"))
}

#[tokio::test]
async fn a_whole_turn_and_one_that_was_recovered_end_at_completed() {
    for first in [responses_text(&["from ", "b"]), overloaded(), Answer::sse().step(responses::created(0)).abort_rst()]
    {
        let (a, b) = (always(first).await, always(responses_text(&["from ", "b"])).await);
        let relay = relay(&two(&a, &b, "")).await;
        let turn = turn(&relay, |_| {}).await;
        assert!(turn.completed && !turn.retries(), "{turn:?}");
        assert_eq!((turn.text.as_str(), turn.failed.is_some()), ("from b", false), "{turn:?}");
    }
}

/// Its timer counts events: keep-alives before the answer are events, comments never are.
#[tokio::test]
async fn its_idle_timer_is_kept_by_keep_alives() {
    let a = always(Answer::new().gate("go").then(responses_text(&["late"]))).await;
    let relay = relay(&two(&a, &a, "hold = { keepalive_after_ms = 30 }")).await;
    let turn = turn(&relay, |count| {
        if count == 3 {
            assert!(a.open_gate("go", 1));
        }
    })
    .await;
    assert!(turn.completed && turn.keepalives >= 3, "{turn:?}");
    assert_eq!(turn.text, "late");

    let comments = Answer::new().repeat(5, Answer::new().text(": still here\n\n"));
    let with = begun().then(comments).step(responses::completed(3, "", 1));
    let without = begun().step(responses::completed(3, "", 1));
    let mut events = Vec::new();
    for answer in [with, without] {
        let a = always(answer).await;
        let relay = crate::harness::relay(&two(&a, &a, "")).await;
        events.push(self::turn(&relay, |_| {}).await.events);
    }
    assert_eq!(events, [4, 4], "a comment is no event to it");
}

/// Whatever the provider said, the relay's own fault is none that ends the turn for good or hides the message; and nothing
/// comes behind it, since Codex would read on.
#[tokio::test]
async fn an_interruption_is_shown_tried_again_and_the_last_word() {
    let coded = |code: &str| {
        vec![responses::error(3, "server_error", code, "at capacity"), responses::failed(4, code, "at capacity")]
    };
    let mut tails = vec![vec![], vec![Step::Abort(rubicon::mock::Abort::Rst)]];
    tails.extend(FINAL.iter().map(|code| coded(code)));
    tails.push(coded("rate_limit_exceeded"));
    for tail in tails {
        let what = format!("{tail:?}");
        let answer = tail.into_iter().fold(begun().delay_ms(20), Answer::step);
        let (a, b) = (always(answer).await, always(responses_text(&["from b"])).await);
        let relay = relay(&two(&a, &b, "")).await;
        let turn = turn(&relay, |_| {}).await;
        let (code, message) = turn.failed.clone().unwrap_or_else(|| panic!("{what}: {turn:?}"));
        assert!(turn.retries() && !turn.completed && code == "rubicon_interrupted", "{what}: {turn:?}");
        assert!(message.starts_with("The answer was interrupted: ") && !message.contains("try again in"), "{message}");
        assert!(!what.contains("at capacity") || message.contains("at capacity"), "{what}: {message}");
        assert_eq!((turn.text.as_str(), turn.after_failed, turn.cut), ("Hel", 0, true), "{what}: {turn:?}");
        assert_eq!((a.calls(), b.calls()), (1, 0), "{what}: what was shown is never sent again by the relay");
    }
}

/// A failure of everything after keep-alives comes the same way.
#[tokio::test]
async fn exhausted_after_keep_alives_is_told_too() {
    let a = always(Answer::new().gate("fail").then(overloaded())).await;
    let relay = relay(&two(&a, &a, "envelope = { max_attempts = 1 }\nhold = { keepalive_after_ms = 30 }")).await;
    let turn = turn(&relay, |count| {
        if count == 1 {
            assert!(a.open_gate("fail", 1));
        }
    })
    .await;
    let (code, message) = turn.failed.clone().expect("a failure");
    assert!(turn.retries() && code == "rubicon_interrupted" && !message.is_empty(), "{turn:?}");
}

#[tokio::test]
async fn a_bom_does_not_reach_it() {
    let steps = responses_text(&["x"]).steps;
    let (head, rest) = steps.split_first().expect("a head");
    let answer =
        rest.iter().fold(Answer::new().step(head.clone()).text("\u{feff}"), |answer, step| answer.step(step.clone()));
    let a = always(answer).await;
    let relay = relay(&two(&a, &a, "")).await;
    let turn = turn(&relay, |_| {}).await;
    assert!(turn.completed, "{turn:?}");
    assert_eq!(turn.events, rest.len());
}

/// What has no type, or is no JSON, is skipped and is still an event; a missing end is no end.
#[tokio::test]
async fn what_it_does_not_know_does_not_disturb_it() {
    let odd = begun()
        .data("{\"no\":\"type\"}")
        .event("codex.rate_limits", serde_json::json!({ "type": "codex.rate_limits" }));
    let a = always(odd.step(responses::completed(3, "", 1))).await;
    let relay = relay(&two(&a, &a, "")).await;
    let turn = turn(&relay, |_| {}).await;
    assert!(turn.completed && turn.text == "Hel", "{turn:?}");
    assert_eq!(turn.events, 6);
}

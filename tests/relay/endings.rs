//! Where a stream ends: a terminal event that comes too early is never delivered, nothing after the right one is, and a lenient
//! end after a finish reason needs the proper end of the body.

use std::time::Duration;

use rubicon::mock::{Abort, Answer, Head, Headers, Step, anthropic, chat, responses};
use rubicon::protocol::Dialect;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Answered, Http, client, path, post, relay, request, send, two, url};
use crate::setup::always;
use crate::streams::error_frame_of;

const CHAT: Dialect = Dialect::ChatCompletions;
const MESSAGES: Dialect = Dialect::AnthropicMessages;
const RESPONSES: Dialect = Dialect::Responses;

/// Dialects that tell why an answer ends before its terminal event: in the third one nothing is an end to lenient.
const WITH_REASONS: [Dialect; 2] = [CHAT, MESSAGES];

/// Far more than an end that is seen needs (a quarter of a second), and less than what was waited for before (2 s and more).
const PROMPTLY: Duration = Duration::from_millis(1500);

/// An event as the mock writes it; other steps write themselves.
fn wire(step: &Step) -> String {
    match step {
        Step::Event(event) => {
            let name = event.name.as_ref().map(|name| format!("event: {name}\n")).unwrap_or_default();
            format!("{name}data: {}\n\n", event.data)
        }
        Step::Text(text) => text.clone(),
        other => panic!("no bytes: {other:?}"),
    }
}

fn wires(steps: &[Step]) -> String {
    steps.iter().map(wire).collect()
}

/// The steps one by one, or all in one write.
fn played(steps: &[Step], at_once: bool) -> Answer {
    if at_once {
        return Answer::sse().text(&wires(steps));
    }
    steps.iter().fold(Answer::sse(), |answer, step| answer.step(step.clone()).delay_ms(2))
}

fn raw(data: &str) -> Step {
    Step::Text(format!("data: {data}\n\n"))
}

fn choice(index: u32, delta: &str, finish: &str) -> Step {
    raw(&format!(
        "{{\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":{index},\"delta\":{delta},\"finish_reason\":{finish}}}]}}"
    ))
}

/// What shows nothing, what shows something, and what b answers.
fn opening(dialect: Dialect, shown: bool) -> Vec<Step> {
    let mut steps = match dialect {
        CHAT => vec![chat::role()],
        MESSAGES => vec![anthropic::message_start(), anthropic::text_start(0)],
        RESPONSES => vec![responses::created(0), responses::message_added(1, 0)],
    };
    if shown {
        steps.push(match dialect {
            CHAT => chat::delta("shown"),
            MESSAGES => anthropic::text_delta(0, "shown"),
            RESPONSES => responses::text_delta(2, 0, "shown"),
        });
    }
    steps
}

/// Up to and with the finish reason.
fn finish(dialect: Dialect) -> Vec<Step> {
    match dialect {
        CHAT => vec![chat::finish("stop")],
        MESSAGES => vec![anthropic::block_stop(0), anthropic::message_delta("end_turn", 3)],
        RESPONSES => vec![],
    }
}

fn terminal(dialect: Dialect) -> Step {
    match dialect {
        CHAT => chat::done(),
        MESSAGES => anthropic::message_stop(),
        RESPONSES => responses::completed(3, "", 1),
    }
}

fn fallback(dialect: Dialect) -> Vec<Step> {
    let text = match dialect {
        CHAT => chat::delta("from b"),
        MESSAGES => anthropic::text_delta(0, "from b"),
        RESPONSES => responses::text_delta(2, 0, "from b"),
    };
    [opening(dialect, false), vec![text], finish(dialect), vec![terminal(dialect)]].concat()
}

/// What came, how long it took, the record, and the calls of both providers.
struct Got {
    answered: Answered,
    took: Duration,
    record: Value,
    calls: (u64, u64),
}

async fn ask(dialect: Dialect, lenient: bool, http: Http, answer: Answer, body: &str) -> Got {
    let (a, b) = (always(answer).await, always(played(&fallback(dialect), false)).await);
    let text = two(&a, &b, "envelope = { max_attempts = 2 }");
    let text = if lenient { text.replace("\"strict\"", "\"lenient\"") } else { text };
    let text = format!("[server]\nlisten = \"127.0.0.1:0\"\nmax_event_bytes = 65536\n{text}");
    let relay = relay(&text).await;
    let began = Instant::now();
    let answered = post(&client(http), &relay, path(dialect), body).await;
    let took = began.elapsed();
    let id = answered.header("rubicon-operation-id");
    let record = send(client(Http::One).get(url(&relay, &format!("/v1/operations/{id}")))).await.json();
    Got { answered, took, record, calls: (a.calls(), b.calls()) }
}

fn assert_whole(got: &Got, expected: &str, what: &str) {
    let Got { answered, record, .. } = got;
    assert_eq!((answered.status, answered.text()), (200, expected), "{what}");
    assert!(answered.clean, "{what}: aborted");
    assert_eq!((&record["state"], record.get("class")), (&json!("completed"), None), "{what}: {record}");
}

fn assert_cut(got: &Got, dialect: Dialect, sent: &[Step], what: &str) {
    let Got { answered, record, .. } = got;
    let tail = answered.text().strip_prefix(&wires(sent)).unwrap_or_else(|| panic!("{what}: {}", answered.text()));
    let rubicon = error_frame_of(dialect, tail.as_bytes());
    assert!(!answered.clean, "{what}: a clean end");
    assert_eq!((&rubicon["status"], &rubicon["after"]), (&json!("interrupted"), &json!(sent.len())), "{what}");
    assert_eq!((&record["state"], &record["after"]), (&json!("interrupted"), &json!(sent.len())), "{what}: {record}");
    assert_eq!(got.calls, (1, 0), "{what}: nothing is asked again");
}

/// What comes before a terminal event that may not come yet, and the request's `n`.
fn unfinished(dialect: Dialect) -> Vec<(&'static str, Vec<Step>, u32, Step)> {
    let done = || raw("[DONE]");
    match dialect {
        CHAT => vec![
            ("nothing", vec![], 1, done()),
            ("an empty reason", vec![choice(0, "{}", "\"\"")], 1, done()),
            ("a null reason", vec![choice(0, "{}", "null")], 1, done()),
            ("a usage chunk", vec![chat::usage(3)], 1, done()),
            ("one of two", vec![choice(1, "{\"role\":\"assistant\"}", "null"), choice(0, "{}", "\"stop\"")], 2, done()),
            ("the other of two", vec![choice(1, "{}", "\"stop\"")], 2, done()),
        ],
        MESSAGES => vec![
            ("nothing", vec![], 1, anthropic::message_stop()),
            ("an end of the block", vec![anthropic::block_stop(0)], 1, anthropic::message_stop()),
            (
                "a null reason",
                Answer::new()
                    .event("message_delta", json!({"type":"message_delta","delta":{"stop_reason":null}}))
                    .steps,
                1,
                anthropic::message_stop(),
            ),
            ("a gateway's end alone", vec![anthropic::block_stop(0)], 1, done()),
        ],
        RESPONSES => vec![
            ("a gateway's end alone", vec![], 1, done()),
            ("a response that goes on", vec![responses::in_progress(3)], 1, done()),
        ],
    }
}

#[tokio::test]
async fn a_terminal_event_without_a_finish_reason_is_never_delivered() {
    for dialect in Dialect::ALL {
        for (name, before, n, end) in unfinished(dialect) {
            for shown in [false, true] {
                for at_once in [false, true] {
                    for lenient in [false, true] {
                        let what = format!("{dialect:?}: {name}, shown {shown}, at once {at_once}, lenient {lenient}");
                        let sent = [opening(dialect, shown), before.clone()].concat();
                        let all = [sent.clone(), vec![end.clone()]].concat();
                        // Both hold over both protocols; here they take turns.
                        let http = if at_once { Http::Two } else { Http::One };
                        let n = if n > 1 { format!("\"n\":{n},\"stream\"") } else { "\"stream\"".to_owned() };
                        let body = request(dialect, true).replace("\"stream\"", &n);
                        // The socket stays open: it is the event that tells.
                        let got = ask(dialect, lenient, http, played(&all, at_once).hang(), &body).await;
                        if shown {
                            assert_cut(&got, dialect, &sent, &what);
                            assert!(!got.answered.text().contains("[DONE]"), "{what}");
                        } else {
                            assert_whole(&got, &wires(&fallback(dialect)), &what);
                            assert_eq!(got.calls, (1, 1), "{what}");
                        }
                    }
                }
            }
        }
    }
}

/// What providers, gateways and broken servers send after the end.
fn tails(dialect: Dialect) -> Vec<(&'static str, Vec<Step>)> {
    let error = match dialect {
        CHAT => chat::error("server_error", "server_error", "Internal error"),
        MESSAGES => anthropic::error("overloaded_error", "Overloaded"),
        RESPONSES => responses::failed(9, "server_error", "Internal error"),
    };
    vec![
        ("a whole second stream", fallback(dialect)),
        ("an error event", vec![error]),
        ("text", vec![opening(dialect, true).pop().expect("a delta")]),
        ("what is no JSON", vec![raw("Internal Server Error")]),
        ("half an event", vec![Step::Text("data: {\"cho".to_owned())]),
        ("an event over the limit", vec![Step::Text(format!("data: {}", "x".repeat(100_000)))]),
    ]
}

#[tokio::test]
async fn nothing_that_follows_the_terminal_event_is_delivered_and_the_answer_stays_whole() {
    for dialect in Dialect::ALL {
        for shown in [true, false] {
            let whole = [opening(dialect, shown), finish(dialect), vec![terminal(dialect)]].concat();
            for (name, tail) in tails(dialect) {
                for at_once in [true, false] {
                    for lenient in [true, false] {
                        let what = format!("{dialect:?}: {name}, shown {shown}, at once {at_once}, lenient {lenient}");
                        let all = [whole.clone(), tail.clone()].concat();
                        let body = request(dialect, true);
                        let http = if at_once { Http::Two } else { Http::One };
                        let got = ask(dialect, lenient, http, played(&all, at_once).hang(), &body).await;
                        assert_whole(&got, &wires(&whole), &what);
                        assert!(got.took < PROMPTLY, "{what}: {:?}", got.took);
                        assert_eq!(got.calls, (1, 0), "{what}");
                        assert_eq!(got.record["after"], whole.len(), "{what}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn an_end_is_an_end_however_its_socket_goes_on() {
    let comments = || Answer::new().text(": still here\n\n").delay_ms(20);
    for dialect in Dialect::ALL {
        for shown in [true, false] {
            let whole = [opening(dialect, shown), finish(dialect), vec![terminal(dialect)]].concat();
            for (name, tail) in [
                ("stays open", Answer::new().hang()),
                ("is reset", Answer::new().delay_ms(30).abort_rst()),
                ("is closed", Answer::new().abort_fin()),
                ("comments for ever", Answer::new().repeat(10_000, comments())),
                ("comments as fast as can be", Answer::new().repeat(1_000_000, Answer::new().text(": x\n\n"))),
            ] {
                let what = format!("{dialect:?} {name}, shown {shown}");
                let answer = played(&whole, false).then(tail);
                let got = ask(dialect, false, Http::One, answer, &request(dialect, true)).await;
                let text = got.answered.text();
                let rest = text.strip_prefix(&wires(&whole)).unwrap_or_else(|| panic!("{what}: {text}"));
                assert!(rest.lines().all(|line| line.is_empty() || line.starts_with(": ")), "{what}: {rest}");
                assert!(got.answered.clean && got.took < PROMPTLY, "{what}: {:?}", got.took);
                assert_eq!((&got.record["state"], got.calls), (&json!("completed"), (1, 0)), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_gateways_done_after_the_end_passes() {
    for dialect in [MESSAGES, RESPONSES] {
        for at_once in [true, false] {
            for shown in [true, false] {
                let ends = vec![terminal(dialect), raw("[DONE]")];
                let whole = [opening(dialect, shown), finish(dialect), ends].concat();
                let text = played(&[whole.clone(), vec![raw("{}")]].concat(), at_once).hang();
                let got = ask(dialect, false, Http::One, text, &request(dialect, true)).await;
                assert_whole(&got, &wires(&whole), "[DONE] too, and nothing more");
            }
        }
    }
}

/// How a lenient stream goes on after its finish reason.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Whole,
    /// Cut; failed over where nothing was shown.
    Cut,
}

fn head(length: Option<u64>, until_close: bool) -> Answer {
    let headers = Headers(vec![("content-type".to_owned(), "text/event-stream".to_owned())]);
    Answer::new().step(Step::Head(Head { headers, length, until_close, ..Head::default() }))
}

#[tokio::test]
async fn a_lenient_end_needs_a_finish_reason_and_a_proper_end_of_the_body() {
    for dialect in WITH_REASONS {
        for shown in [true, false] {
            let begun = [opening(dialect, shown), finish(dialect)].concat();
            let bytes = wires(&begun).len() as u64;
            let more = opening(dialect, true).pop().expect("a delta");
            let usage = match dialect {
                CHAT => chat::usage(3),
                _ => anthropic::message_delta("end_turn", 9),
            };
            let abort = |kind| vec![Step::DelayMs(30), Step::Abort(kind)];
            let rows: Vec<(&str, Answer, Vec<Step>, Then)> = vec![
                ("a last chunk", Answer::sse(), vec![], Then::Whole),
                ("its length", head(Some(bytes), false), vec![], Then::Whole),
                ("a body that ends with its connection", head(None, true), vec![], Then::Whole),
                ("usage, and a last chunk", Answer::sse(), vec![usage.clone()], Then::Whole),
                ("a comment, and a last chunk", Answer::sse(), vec![], Then::Whole),
                ("a reset", Answer::sse(), abort(Abort::Rst), Then::Cut),
                ("no last chunk", Answer::sse(), abort(Abort::Fin), Then::Cut),
                (
                    "usage, and no last chunk",
                    Answer::sse(),
                    [vec![usage.clone()], abort(Abort::Fin)].concat(),
                    Then::Cut,
                ),
                ("less than its length", head(Some(bytes + 1), false), vec![Step::Abort(Abort::Fin)], Then::Cut),
            ];
            for (name, start, tail, then) in rows {
                let what = format!("{dialect:?} {name}, shown {shown}");
                let answer = begun.iter().chain(&tail).fold(start, |answer, step| answer.step(step.clone()));
                let sent: Vec<Step> =
                    begun.iter().chain(&tail).filter(|s| matches!(s, Step::Event(_))).cloned().collect();
                let got = ask(dialect, true, Http::One, answer.clone(), &request(dialect, true)).await;
                match then {
                    Then::Whole => {
                        assert_whole(&got, &wires(&sent), &what);
                        assert!(got.took < PROMPTLY, "{what}: {:?}", got.took);
                        assert_eq!(got.calls, (1, 0), "{what}");
                    }
                    Then::Cut if shown => assert_cut(&got, dialect, &sent, &what),
                    Then::Cut => assert_whole(&got, &wires(&fallback(dialect)), &what),
                }
                // Strict knows the terminal event only.
                let got = ask(dialect, false, Http::One, answer, &request(dialect, true)).await;
                if shown {
                    assert_cut(&got, dialect, &sent, &format!("strict {what}"));
                } else {
                    assert_whole(&got, &wires(&fallback(dialect)), &format!("strict {what}"));
                }
            }
            // More after the finish reason: then that was none …
            let went_on = [begun.clone(), vec![more.clone()]].concat();
            let got = ask(dialect, true, Http::One, played(&went_on, false), &request(dialect, true)).await;
            assert_cut(&got, dialect, &went_on, &format!("{dialect:?} more output, shown {shown}"));
            // … and its terminal event is an end all the same.
            let ended = [went_on, vec![terminal(dialect)]].concat();
            let got = ask(dialect, true, Http::One, played(&ended, true).hang(), &request(dialect, true)).await;
            assert_whole(&got, &wires(&ended), &format!("{dialect:?} more output and an end, shown {shown}"));
        }
    }
}

#[tokio::test]
async fn after_a_finish_reason_two_seconds_of_silence_are_an_end() {
    let rows = WITH_REASONS.into_iter().flat_map(|dialect| [(dialect, true), (dialect, false)]);
    let all = rows.map(|(dialect, shown)| async move {
        let begun = [opening(dialect, shown), finish(dialect)].concat();
        let usage = match dialect {
            CHAT => chat::usage(3),
            _ => anthropic::message_delta("end_turn", 9),
        };
        let (what, body) = (format!("{dialect:?}, shown {shown}"), request(dialect, true));
        let silent = ask(dialect, true, Http::One, played(&begun, false).hang(), &body);
        let comments = Answer::new().repeat(1000, Answer::new().text(": x\n\n").delay_ms(100));
        let chatty = ask(dialect, true, Http::One, played(&begun, false).then(comments), &body);
        let late = played(&begun, false).delay_ms(1000).step(usage.clone());
        let late = ask(dialect, true, Http::One, late, &body);
        let (silent, chatty, late) = tokio::join!(silent, chatty, late);
        assert_whole(&silent, &wires(&begun), &what);
        assert!(
            (Duration::from_millis(1900)..Duration::from_secs(10)).contains(&silent.took),
            "{what}: {:?}",
            silent.took
        );
        let rest = chatty.answered.text().strip_prefix(&wires(&begun)).expect("the same").replace(": x\n\n", "");
        assert!(rest.is_empty() && chatty.answered.clean, "{what}: {rest}");
        assert!(chatty.took < Duration::from_secs(10), "{what}: comments put the end off for {:?}", chatty.took);
        assert_whole(&late, &wires(&[begun, vec![usage]].concat()), &what);
    });
    futures_util::future::join_all(all).await;
}

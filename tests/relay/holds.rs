//! What is held before the boundary: its limits, what does not count, reasoning, keep-alives; and the ends of streams.

use std::time::Duration;

use rubicon::mock::{
    Answer, MockProvider, Rule, Step, anthropic, anthropic_text, chat, chat_text, responses, responses_text,
};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;

use crate::harness::{Answered, Http, PATIENCE, client, path, post, provider, read, relay, request, send, two, url};
use crate::streams::error_frame_of;

/// "Nothing comes": long against a loopback round trip, and everything that is waited for comes through a gate.
const A_WHILE: Duration = Duration::from_millis(250);

/// Nothing else of a test takes so long; an end in this time did not wait for `idle_ms` (30 s).
const SOON: Duration = Duration::from_secs(20);

async fn ask(relay: &Server, http: Http, dialect: Dialect) -> Answered {
    post(&client(http), relay, path(dialect), request(dialect, true)).await
}

/// The head of an answer whose body is still to come.
async fn begin(relay: &Server, http: Http, dialect: Dialect) -> reqwest::Response {
    tokio::time::timeout(PATIENCE, sending(relay, http, dialect)).await.expect("a head in time").expect("a head")
}

fn sending(
    relay: &Server,
    http: Http,
    dialect: Dialect,
) -> impl Future<Output = reqwest::Result<reqwest::Response>> + use<> {
    let request = client(http).post(url(relay, path(dialect))).body(request(dialect, true));
    request.header("content-type", "application/json").send()
}

async fn why(relay: &Server, answered: &Answered) -> serde_json::Value {
    let operation = format!("/v1/operations/{}", answered.header("rubicon-operation-id"));
    send(client(Http::One).get(url(relay, &operation))).await.json()["boundary"]["why"].clone()
}

/// What event steps of the mock send.
fn written(steps: &[Step]) -> String {
    let event = |step: &Step| match step {
        Step::Event(event) => {
            let name = event.name.as_ref().map_or(String::new(), |name| format!("event: {name}\n"));
            format!("{name}data: {}\n\n", event.data)
        }
        Step::Text(text) => text.clone(),
        _ => String::new(),
    };
    steps.iter().map(event).collect()
}

fn steps(answer: Answer, steps: &[Step]) -> Answer {
    steps.iter().fold(answer, |answer, step| answer.step(step.clone()))
}

/// An event that shows nothing, one that does, a ping, and reasoning.
fn kinds(dialect: Dialect) -> [Step; 4] {
    let text = |text: &str| Step::Text(text.to_owned());
    match dialect {
        Dialect::ChatCompletions => [
            chat::role(),
            chat::delta("seen"),
            text("data: {\"type\":\"ping\"}\n\n"),
            text("data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n"),
        ],
        Dialect::AnthropicMessages => [
            anthropic::text_start(0),
            anthropic::text_delta(0, "seen"),
            anthropic::ping(),
            text(
                "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
                 \"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
            ),
        ],
        Dialect::Responses => [
            responses::message_added(1, 0),
            responses::text_delta(2, 0, "seen"),
            responses::keepalive(1),
            responses::event("response.reasoning_summary_text.delta", 1, ",\"delta\":\"hm\""),
        ],
    }
}

/// What ends a stream after its text: first what lenient takes for an end, if that differs, then the terminal event.
fn ends(dialect: Dialect) -> [Step; 2] {
    match dialect {
        Dialect::ChatCompletions => [chat::finish("stop"), chat::done()],
        Dialect::AnthropicMessages => [anthropic::message_delta("end_turn", 1), anthropic::message_stop()],
        // There is no sign of an end before the end: a part that is done shows nothing and ends nothing.
        Dialect::Responses => {
            [responses::event("response.output_text.done", 3, ",\"text\":\"\""), responses::completed(4, "", 1)]
        }
    }
}

fn from_b(dialect: Dialect) -> Answer {
    match dialect {
        Dialect::ChatCompletions => chat_text(&["from b"]),
        Dialect::AnthropicMessages => anthropic_text(&["from b"]),
        Dialect::Responses => responses_text(&["from b"]),
    }
}

async fn b_of(dialect: Dialect) -> (MockProvider, String) {
    let answer = from_b(dialect);
    let bytes = written(&answer.steps);
    (provider(Rule::new("b").answer(answer)).await, bytes)
}

/// At the limit a failure still is silent; one event or one byte over it everything goes out, and the attempt is committed.
#[tokio::test]
async fn at_its_limit_the_hold_is_released() {
    for dialect in Dialect::ALL {
        let [held, _, ping, _] = kinds(dialect);
        let size = written(std::slice::from_ref(&held)).len();
        let comment = Step::Text(": nothing\n\n".to_owned());
        for (limits, fits) in [
            ("max_events = 4, max_bytes = 100000".to_owned(), 4),
            (format!("max_events = 100, max_bytes = {}", 3 * size), 3),
            (format!("max_events = 100, max_bytes = {}", 4 * size - 1), 3),
        ] {
            let workflow = format!("hold = {{ {limits}, keepalive_after_ms = 0 }}");
            for over in [false, true] {
                // Pings and comments among them, more than the limits allow for events.
                let mut sent = vec![comment.clone()];
                for _ in 0..fits + usize::from(over) {
                    sent.push(held.clone());
                    sent.extend(std::iter::repeat_n(ping.clone(), 30));
                    sent.push(comment.clone());
                }
                if over {
                    sent.truncate(sent.len() - 31); // the last event is the last that was sent
                }
                let answer = steps(Answer::sse(), &sent).gate("cut").abort_fin();
                let a = provider(Rule::new("a").answer(answer)).await;
                let (b, b_bytes) = b_of(dialect).await;
                let relay = relay(&two(&a, &b, &workflow)).await;
                let sending = sending(&relay, Http::One, dialect);
                tokio::pin!(sending);
                if !over {
                    let early = tokio::time::timeout(A_WHILE, &mut sending).await;
                    assert!(early.is_err(), "{limits}: nothing is shown yet: {early:?}");
                    assert!(a.open_gate("cut", 1));
                }
                let response = tokio::time::timeout(PATIENCE, sending).await.expect("in time").expect("a head");
                assert!(a.open_gate("cut", 1));
                let got = read(response).await;
                assert_eq!(got.status, 200, "{limits}");
                if over {
                    let shown: Vec<Step> = sent
                        .iter()
                        .filter(|step| written(std::slice::from_ref(step)) != ": nothing\n\n")
                        .cloned()
                        .collect();
                    let shown = written(&shown);
                    let tail = got.text().strip_prefix(&shown).unwrap_or_else(|| panic!("{limits}: {}", got.text()));
                    let events = shown.matches("data: ").count();
                    assert_eq!(error_frame_of(dialect, tail.as_bytes())["after"], events, "{limits}");
                    assert!(!got.clean);
                    assert_eq!(why(&relay, &got).await, "hold_limit", "{limits}");
                    assert_eq!((got.header("rubicon-attempts"), b.calls()), ("1", 0), "{limits}");
                } else {
                    assert_eq!((got.text(), got.clean), (b_bytes.as_str(), true), "{limits}");
                    assert_eq!((got.header("rubicon-attempts"), a.calls(), b.calls()), ("2", 1, 1), "{limits}");
                }
            }
        }
    }
}

/// What one attempt held is no burden for the next.
#[tokio::test]
async fn each_attempt_has_the_whole_hold() {
    for dialect in Dialect::ALL {
        let [held, seen, ..] = kinds(dialect);
        let four = std::iter::repeat_n(held, 4).collect::<Vec<_>>();
        let a = provider(Rule::new("a").answer(steps(Answer::sse(), &four).abort_fin())).await;
        let mut whole = four.clone();
        whole.push(seen);
        whole.extend(ends(dialect));
        let b = provider(Rule::new("b").answer(steps(Answer::sse(), &whole))).await;
        let relay = relay(&two(&a, &b, "hold = { max_events = 4 }")).await;
        let got = ask(&relay, Http::One, dialect).await;
        assert_eq!((got.text(), got.clean, got.header("rubicon-attempts")), (written(&whole).as_str(), true, "2"));
        assert_eq!(why(&relay, &got).await, serde_json::json!({ "visible": "text" }));
    }
}

/// `reasoning = "hold"`: not shown before text, forgotten with a failed attempt.
#[tokio::test]
async fn held_reasoning_waits_for_text() {
    for dialect in Dialect::ALL {
        let [held, seen, _, reasoning] = kinds(dialect);
        let before = [held, reasoning.clone(), reasoning.clone()];
        let mut after = vec![seen, reasoning];
        after.extend(ends(dialect));
        let answer = steps(steps(Answer::sse(), &before).gate("text"), &after);
        let a = provider(
            Rule::new("a").answer(answer.clone()).answer(answer).answer(steps(Answer::sse(), &before).abort_fin()),
        )
        .await;
        let (b, b_bytes) = b_of(dialect).await;
        let whole = written(&before) + &written(&after);

        let visible = relay(&two(&a, &b, "")).await;
        let mut response = begin(&visible, Http::One, dialect).await;
        let first = tokio::time::timeout(PATIENCE, response.chunk()).await.expect("in time").expect("data");
        assert!(first.is_some_and(|first| !first.is_empty()), "reasoning is visible unless told otherwise");
        assert!(a.open_gate("text", 1));
        assert!(read(response).await.clean);

        let hidden = relay(&two(&a, &b, "reasoning = \"hold\"")).await;
        let sending = sending(&hidden, Http::One, dialect);
        tokio::pin!(sending);
        let early = tokio::time::timeout(A_WHILE, &mut sending).await;
        assert!(early.is_err(), "reasoning alone is not shown: {early:?}");
        assert!(a.open_gate("text", 1));
        let got = read(tokio::time::timeout(PATIENCE, sending).await.expect("in time").expect("a head")).await;
        assert_eq!((got.text(), got.clean), (whole.as_str(), true));
        assert_eq!(why(&hidden, &got).await, serde_json::json!({ "visible": "text" }));

        let got = ask(&hidden, Http::One, dialect).await;
        assert_eq!((got.text(), got.clean, got.header("rubicon-attempts")), (b_bytes.as_str(), true, "2"));
        assert_eq!((a.calls(), b.calls()), (3, 1));
    }
}

/// Held reasoning has 8 MiB of its own, far over `max_bytes`; past them the attempt fails rather than show what it hides.
#[tokio::test]
async fn too_much_held_reasoning_fails_the_attempt() {
    const EVENT: usize = 64 * 1024;
    for (events, fits) in [(120, true), (130, false)] {
        let piece =
            |text: &str| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"reasoning\":\"{text}\"}}}}]}}\n\n");
        let piece = piece(&"r".repeat(EVENT - piece("").len()));
        assert_eq!(piece.len(), EVENT);
        let many = Answer::sse().step(chat::role()).repeat(events, Answer::new().text(&piece));
        let a = provider(Rule::new("a").answer(many.then(chat_end()))).await;
        let (b, b_bytes) = b_of(Dialect::ChatCompletions).await;
        let relay = relay(&two(&a, &b, "reasoning = \"hold\"")).await;
        let got = ask(&relay, Http::One, Dialect::ChatCompletions).await;
        assert!(got.clean);
        if fits {
            assert_eq!(got.text().matches("\"reasoning\"").count(), events as usize);
            assert!(got.text().ends_with(&written(&chat_end().steps)));
            assert_eq!((got.header("rubicon-attempts"), b.calls()), ("1", 0));
        } else {
            assert_eq!((got.text(), got.header("rubicon-attempts"), b.calls()), (b_bytes.as_str(), "2", 1));
        }
        assert_eq!(a.calls(), 1);
    }
}

fn chat_end() -> Answer {
    steps(Answer::new().step(chat::delta("seen")), &ends(Dialect::ChatCompletions))
}

fn keepalive(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::ChatCompletions => ": keep-alive\n\n",
        Dialect::AnthropicMessages => "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        Dialect::Responses => "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":0}\n\n",
    }
}

/// Reads `count` keep-alives and nothing else.
async fn keepalives(response: &mut reqwest::Response, dialect: Dialect, count: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < count * keepalive(dialect).len() {
        let chunk = tokio::time::timeout(PATIENCE, response.chunk()).await.expect("in time").expect("no abort");
        got.extend_from_slice(&chunk.expect("no end"));
    }
    assert!(std::str::from_utf8(&got).expect("UTF-8").replace(keepalive(dialect), "").is_empty());
    got
}

/// Once a client waited long enough it gets 200 and keep-alives; another provider may still answer, in silence.
#[tokio::test]
async fn keep_alives_spend_the_status_and_nothing_else() {
    for dialect in Dialect::ALL {
        for http in [Http::One, Http::Two] {
            let [held, _, ping, _] = kinds(dialect);
            let error = Answer::json_error(503, serde_json::json!({ "error": { "message": "overloaded" } }));
            // One fails with its head out and events held, one with an error status, one before any byte.
            for failing in [
                steps(Answer::sse(), &[held.clone(), ping.clone(), held.clone()]).gate("fail").abort_fin(),
                Answer::new().gate("fail").then(error.clone()),
                Answer::new().gate("fail").step(Step::CloseBeforeHead),
            ] {
                let a = provider(Rule::new("a").answer(failing)).await;
                let (b, b_bytes) = b_of(dialect).await;
                let relay = relay(&two(&a, &b, "hold = { keepalive_after_ms = 50 }")).await;
                let mut response = begin(&relay, http, dialect).await;
                assert_eq!(response.status(), 200);
                let headers = response.headers().clone();
                assert!(headers["content-type"].to_str().expect("visible").starts_with("text/event-stream"));
                assert_eq!(headers["x-accel-buffering"], "no");
                assert_eq!(headers["cache-control"], "no-store");
                assert!(headers.get("rubicon-attempts").is_none(), "not known yet");
                assert!(headers.get("rubicon-recovery").is_none(), "not known yet");
                assert!(headers.get("connection").is_none());
                let mut body = keepalives(&mut response, dialect, 3).await;
                assert_eq!((a.calls(), b.calls()), (1, 0), "a keep-alive is no failure");
                assert!(a.open_gate("fail", 1));
                let got = read(response).await;
                body.extend_from_slice(&got.body);
                let rest = String::from_utf8(body).expect("UTF-8");
                let rest = rest.replacen(keepalive(dialect), "", usize::MAX);
                assert_eq!(
                    (rest.as_str(), got.clean),
                    (b_bytes.replace(keepalive(dialect), "").as_str(), true),
                    "{http:?}"
                );
                assert_eq!((a.calls(), b.calls()), (1, 1));
                assert_eq!(why(&relay, &got).await, serde_json::json!({ "visible": "text" }));
            }
        }
    }
}

/// Where everything failed after keep-alives, the frame says which status it would have been, and the body is aborted.
#[tokio::test]
async fn after_keep_alives_a_failure_is_a_frame() {
    let overloaded = || Answer::json_error(503, serde_json::json!({ "error": { "message": "overloaded" } }));
    let refused = || {
        Answer::json_error(
            400,
            serde_json::json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "no good" } }),
        )
    };
    for dialect in Dialect::ALL {
        for http in [Http::One, Http::Two] {
            for (answer, would_be, status, words) in
                [(overloaded(), 424, "unavailable", ""), (refused(), 400, "rejected", "no good")]
            {
                let a = provider(Rule::new("a").answer(Answer::new().gate("fail").then(answer.clone()))).await;
                let b = provider(Rule::new("b").answer(answer)).await;
                let relay =
                    relay(&two(&a, &b, "envelope = { max_attempts = 2 }\nhold = { keepalive_after_ms = 50 }")).await;
                let mut response = begin(&relay, http, dialect).await;
                keepalives(&mut response, dialect, 1).await;
                assert!(a.open_gate("fail", 1));
                let got = read(response).await;
                assert!(!got.clean && got.status == 200, "{http:?}");
                let frame = got.text().replace(keepalive(dialect), "");
                let rubicon = error_frame_of(dialect, frame.as_bytes());
                assert_eq!(rubicon["would_be_status"], would_be, "{frame}");
                assert_eq!(rubicon["status"], status, "{frame}");
                assert!(frame.contains(words), "{frame}");
                match dialect {
                    Dialect::ChatCompletions => assert_eq!(got.last_event()["error"]["code"], would_be, "{frame}"),
                    Dialect::AnthropicMessages => {}
                    Dialect::Responses => assert!(frame.contains(&format!("\"code\":\"{would_be}\"")), "{frame}"),
                }
            }
        }
    }
}

/// `keepalive_after_ms = 0`: nothing goes out before the status is the truth.
#[tokio::test]
async fn without_keep_alives_the_status_tells_the_truth() {
    for dialect in Dialect::ALL {
        let refused = serde_json::json!({ "error": { "type": "invalid_request_error", "message": "no good" } });
        let a =
            provider(Rule::new("a").answer(Answer::new().gate("fail").then(Answer::json_error(400, refused)))).await;
        let relay = relay(&two(&a, &a, "hold = { keepalive_after_ms = 0 }")).await;
        let sending = sending(&relay, Http::One, dialect);
        tokio::pin!(sending);
        let early = tokio::time::timeout(2 * A_WHILE, &mut sending).await;
        assert!(early.is_err(), "{early:?}");
        assert!(a.open_gate("fail", 1));
        let got = read(tokio::time::timeout(PATIENCE, sending).await.expect("in time").expect("a head")).await;
        assert_eq!((got.status, got.clean, a.calls()), (400, true, 1));
        assert_eq!(got.json()["rubicon"]["status"], "rejected");
    }
}

/// How far a stream comes before its body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Came {
    Nowhere,
    Reason,
    End,
}

fn stream(dialect: Dialect, shown: bool, came: Came) -> Vec<Step> {
    let [held, seen, ..] = kinds(dialect);
    let [reason, end] = ends(dialect);
    let mut all = vec![held];
    all.extend(shown.then_some(seen));
    all.extend((came >= Came::Reason).then_some(reason));
    all.extend((came >= Came::End).then_some(end));
    all
}

fn with_terminal(text: &str, terminal: &str) -> String {
    text.replace("terminal = \"strict\"", &format!("terminal = \"{terminal}\""))
}

/// Strict takes the terminal event only, lenient a finish reason and the body's proper end too. How the body ends after the terminal
/// event is no matter, and neither is whether the stream showed anything.
#[tokio::test]
async fn which_ends_are_ends() {
    for dialect in Dialect::ALL {
        for came in [Came::Nowhere, Came::Reason, Came::End] {
            for shown in [true, false] {
                let sent = stream(dialect, shown, came);
                let answer = steps(Answer::sse(), &sent);
                let a = provider(Rule::new("a").answer(answer.clone()).answer(answer.delay_ms(30).abort_fin())).await;
                let (b, b_bytes) = b_of(dialect).await;
                for terminal in ["strict", "lenient"] {
                    a.reset();
                    let relay = relay(&with_terminal(&two(&a, &b, ""), terminal)).await;
                    for how in ["ended", "broken"] {
                        let knows_reasons = dialect != Dialect::Responses;
                        let finished = came == Came::Reason && terminal == "lenient" && how == "ended" && knows_reasons;
                        let whole = came == Came::End || finished;
                        let what = format!("{dialect:?} {came:?} shown {shown} {terminal} {how}");
                        let calls = b.calls();
                        let got = ask(&relay, Http::One, dialect).await;
                        assert_eq!(got.status, 200, "{what}");
                        if whole {
                            assert_eq!((got.text(), got.clean), (written(&sent).as_str(), true), "{what}");
                        } else if shown {
                            let tail = got.text().strip_prefix(&written(&sent)).unwrap_or_else(|| panic!("{what}"));
                            assert_eq!(error_frame_of(dialect, tail.as_bytes())["after"], sent.len(), "{what}");
                            assert!(!got.clean, "{what}");
                        } else {
                            assert_eq!((got.text(), got.clean), (b_bytes.as_str(), true), "{what}");
                        }
                        assert_eq!(b.calls() - calls, u64::from(!whole && !shown), "{what}");
                    }
                }
            }
        }
    }
}

/// The end was seen and the socket stays open: the client gets its clean end, the provider is left.
#[tokio::test]
async fn an_open_socket_after_the_end_is_left() {
    let mut rows = Vec::new();
    for dialect in Dialect::ALL {
        for http in [Http::One, Http::Two] {
            for shown in [true, false] {
                rows.push((dialect, http, shown, Came::End, "strict"));
            }
        }
    }
    rows.push((Dialect::ChatCompletions, Http::One, true, Came::Reason, "lenient"));
    rows.push((Dialect::ChatCompletions, Http::One, false, Came::Reason, "lenient"));
    // Two seconds each, all at a time.
    let rows = rows.into_iter().map(|(dialect, http, shown, came, terminal)| async move {
        let what = format!("{dialect:?} {http:?} shown {shown} {terminal}");
        let sent = stream(dialect, shown, came);
        let a = provider(Rule::new("a").answer(steps(Answer::sse(), &sent).hang())).await;
        let relay = relay(&with_terminal(&two(&a, &a, ""), terminal)).await;
        let got = tokio::time::timeout(SOON, ask(&relay, http, dialect)).await.unwrap_or_else(|_| panic!("{what}"));
        assert_eq!((got.text(), got.clean), (written(&sent).as_str(), true), "{what}");
        tokio::time::timeout(PATIENCE, a.wait_for(|stats| stats.disconnects == 1)).await.expect("the socket is closed");
        assert_eq!(a.calls(), 1, "{what}");
    });
    futures_util::future::join_all(rows).await;
}

/// A finish reason is no end to strict, so silence after it is one that `idle_ms` ends.
#[tokio::test]
async fn silence_before_the_end_is_an_interruption() {
    for dialect in Dialect::ALL {
        let sent = stream(dialect, true, Came::Reason);
        let a = provider(Rule::new("a").answer(steps(Answer::sse(), &sent).hang())).await;
        let text = two(&a, &a, "").replace("[route.a]\n", "[route.a]\ntimeouts = { idle_ms = 200 }\n");
        let relay = relay(&text).await;
        let got = ask(&relay, Http::One, dialect).await;
        let tail = got.text().strip_prefix(&written(&sent)).expect("all that came");
        assert_eq!(error_frame_of(dialect, tail.as_bytes())["status"], "interrupted");
        assert!(!got.clean);
        tokio::time::timeout(PATIENCE, a.wait_for(|stats| stats.disconnects == 1)).await.expect("the socket is closed");
        assert_eq!(a.calls(), 1);
    }
}

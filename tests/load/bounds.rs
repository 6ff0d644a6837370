//! Large and many: one huge event, one byte at a time, a huge hold, pings and comments without end. What may pass, passes byte for
//! byte; what is held or dropped has a bound; no timer is fooled; and aborted streams leave nothing behind.

use std::time::Duration;

use rubicon::mock::{Answer, Head, Headers, MockProvider, Rule, Step, anthropic, anthropic_text, chat, chat_text};
use rubicon::protocol::Dialect;

use crate::child::Serving;
use crate::harness::{Answered, Http, client, path, post, provider, read, relay, request, two};

// The example is a program; here it is a part of one.
#[allow(dead_code, unreachable_pub, reason = "its main and its doc comments are for the program")]
#[path = "../../examples/soak.rs"]
mod soak;

const CHAT: Dialect = Dialect::ChatCompletions;
const ANTHROPIC: Dialect = Dialect::AnthropicMessages;

/// Resident memory that a relay may add for one stream with an event of 8 MiB: the event, its JSON being read, and socket buffers.
const MEMORY_MAX: u64 = 64 * 1024 * 1024;

/// Asks a relay of its own process, and says what came and how many bytes its memory had grown at most.
async fn ask(a: &MockProvider, b: &MockProvider, workflow: &str, dialect: Dialect) -> (Answered, u64) {
    let relay = Serving::start("", &two(a, b, workflow), &[]).await;
    let before = relay.memory();
    let client = client(Http::One);
    let send = client.post(relay.url(path(dialect))).header("content-type", "application/json");
    let answer = read(send.body(request(dialect, true)).send().await.expect("a head")).await;
    let grown = relay.memory().peak - before.now;
    assert_eq!(relay.stop().await.0, 0);
    (answer, grown)
}

async fn nobody() -> MockProvider {
    provider(Rule::new("b").answer(chat_text(&["from b"]))).await
}

/// The text of an event step, as the mock writes it.
fn wire(step: &Step) -> String {
    let Step::Event(event) = step else { panic!("not an event") };
    let name = event.name.as_ref().map(|name| format!("event: {name}\n")).unwrap_or_default();
    format!("{name}data: {}\n\n", event.data)
}

fn same(answer: &Answered, expected: &str, what: &str) {
    assert!(answer.clean, "{what}");
    let at = answer.body.iter().zip(expected.as_bytes()).position(|(a, b)| a != b);
    assert!(
        answer.body == expected.as_bytes(),
        "{what}: {} bytes for {}, differ at {at:?}",
        answer.body.len(),
        expected.len()
    );
}

/// One event of 8 MiB between two small ones: in one piece, and in chunks of one byte each, many to a read.
#[tokio::test]
async fn one_event_of_8_mib() {
    let _turn = crate::turn().await;
    let huge = |step: fn(&str) -> Step| step(&"x".repeat(8 << 20));
    let preamble = |text: &str| {
        Step::Text(wire(&chat::role()).replace("\"content\":\"\"", &format!("\"content\":\"\",\"x\":\"{text}\"")))
    };
    let visible =
        [wire(&chat::role()), wire(&huge(chat::delta)), wire(&chat::finish("stop")), wire(&chat::done())].concat();
    let Step::Text(hidden) = preamble(&"x".repeat(8 << 20)) else { panic!("text") };
    let hidden = [hidden, wire(&chat::delta("y")), wire(&chat::finish("stop")), wire(&chat::done())].concat();
    for (what, body) in [("visible", visible), ("over the hold", hidden)] {
        let a = provider(Rule::new("a").answer(Answer::sse().text(&body))).await;
        let b = nobody().await;
        let (answer, grown) = ask(&a, &b, "", CHAT).await;
        same(&answer, &body, what);
        assert!(grown < MEMORY_MAX, "{what}: {grown}");
        assert_eq!((a.calls(), b.calls()), (1, 0), "{what}");
    }
}

#[tokio::test]
async fn one_byte_at_a_time() {
    let _turn = crate::turn().await;
    // 8 MiB take a release build some 20 s; RUBICON_TEST_EVENT_BYTES=8388608 has them.
    let bytes = std::env::var("RUBICON_TEST_EVENT_BYTES").ok().and_then(|text| text.parse().ok()).unwrap_or(256 << 10);
    let event = wire(&chat::delta(&"x".repeat(bytes)));
    let body =
        [&wire(&chat::role()), &event, &wire(&chat::finish("stop")), &wire(&chat::done())].map(String::as_str).concat();
    let mut chunks: String = body.bytes().map(|byte| format!("1\r\n{}\r\n", char::from(byte))).collect();
    chunks += "0\r\n\r\n";
    let headers = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")];
    let headers = Headers(headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
    // The framing is in the text.
    let head = Step::Head(Head { headers, until_close: true, ..Head::default() });
    let a = provider(Rule::new("a").answer(Answer::new().step(head).text(&chunks))).await;
    let b = nobody().await;
    // Nothing is visible before the event is whole.
    let (answer, grown) = ask(&a, &b, "hold = { keepalive_after_ms = 0 }\n", CHAT).await;
    same(&answer, &body, "one byte a chunk");
    assert!(grown < MEMORY_MAX, "{grown}");

    // And each in a write of its own.
    let small = [
        wire(&chat::role()),
        wire(&chat::delta(&"x".repeat(20_000))),
        wire(&chat::finish("stop")),
        wire(&chat::done()),
    ];
    let small = small.concat();
    let a = provider(Rule::new("a").answer(Answer::sse().split(1).text(&small))).await;
    let (answer, _) = ask(&a, &b, "", CHAT).await;
    same(&answer, &small, "one byte a write");
}

#[tokio::test]
async fn a_huge_hold_is_released_in_order_or_dropped_whole() {
    let _turn = crate::turn().await;
    let roles: String = (0..20_000).map(|n| wire(&chat::role()).replace("mock-model", &format!("model-{n}"))).collect();
    let rest = [wire(&chat::delta("from a")), wire(&chat::finish("stop")), wire(&chat::done())].concat();
    let hold = "hold = { max_events = 1000000, max_bytes = 67108864 }\n";
    let b = nobody().await;
    let good = provider(Rule::new("a").answer(Answer::sse().text(&roles).text(&rest))).await;
    let (answer, grown) = ask(&good, &b, hold, CHAT).await;
    same(&answer, &(roles.clone() + &rest), "released");
    assert!(grown < MEMORY_MAX, "{grown}");
    assert_eq!(b.calls(), 0);

    let bad = provider(Rule::new("a").answer(Answer::sse().text(&roles).abort_rst())).await;
    let (answer, _) = ask(&bad, &b, hold, CHAT).await;
    assert!(answer.clean && answer.text().contains("from b") && !answer.text().contains("model-"), "dropped");
    assert_eq!(b.calls(), 1);

    // By default it is committed at the limit: then it can't be taken back.
    let (answer, _) = ask(&bad, &b, "", CHAT).await;
    assert!(!answer.clean && answer.text().contains("model-255\"") && !answer.text().contains("from b"), "committed");
    assert_eq!(b.calls(), 1);
}

#[tokio::test]
async fn pings_and_comments_before_output_are_bounded() {
    let _turn = crate::turn().await;
    let large = |what: &str| format!("{what}{}\n\n", "x".repeat(1 << 20));
    let large_ping = large("event: ping\ndata: {\"type\":\"ping\"}\ndata: ").replace("\ndata: xx", "\nx: xx");
    for (what, dialect, step, times) in [
        ("pings", ANTHROPIC, anthropic::ping(), 10_000),
        ("large pings", ANTHROPIC, Step::Text(large_ping), 200),
        ("comments", CHAT, Step::Text(": still here\n\n".to_owned()), 100_000),
        ("large comments", CHAT, Step::Text(large(": ")), 200),
    ] {
        let shown = if dialect == CHAT { chat_text(&["shown"]) } else { anthropic_text(&["shown"]) };
        let answer = |last: Answer| Answer::sse().repeat(times, Answer::new().step(step.clone())).then(last);
        let steps = Answer { steps: shown.steps.iter().skip(1).cloned().collect() };
        let a = provider(Rule::new("a").answer(answer(steps.clone()))).await;
        let b = provider(Rule::new("b").answer(shown)).await;
        let (passed, grown) = ask(&a, &b, "", dialect).await;
        let expected: String = steps.steps.iter().map(wire).collect();
        assert!(passed.clean && passed.text().ends_with(&expected), "{what}: {} bytes", passed.body.len());
        assert!(passed.body.len() < 2 << 20, "{what}: {} bytes were held", passed.body.len());
        assert!(grown < MEMORY_MAX, "{what}: {grown}");
        assert_eq!(b.calls(), 0, "{what}");

        // However much of it there was, a failure after it is still recovered in silence.
        let a = provider(Rule::new("a").answer(answer(Answer::new().abort_rst()))).await;
        let (passed, _) = ask(&a, &b, "", dialect).await;
        assert!(passed.clean && passed.text().contains("shown"), "{what}");
        assert_eq!(passed.header("rubicon-recovery"), "equivalent_failover", "{what}");
    }
}

#[tokio::test]
async fn a_flood_without_output_does_not_hold_off_the_timer() {
    let _turn = crate::turn().await;
    for (what, dialect, step) in [
        ("pings", ANTHROPIC, anthropic::ping()),
        ("comments", CHAT, Step::Text(": still here\n\n".repeat(1000))),
        ("empty deltas", CHAT, chat::role()),
    ] {
        // A million times without a pause: there is always something to read.
        let flood = Answer::sse().repeat(1_000_000, Answer::new().step(step)).hang();
        let shown = if dialect == CHAT { chat_text(&["shown"]) } else { anthropic_text(&["shown"]) };
        let a = provider(Rule::new("a").answer(flood)).await;
        let b = provider(Rule::new("b").answer(shown)).await;
        let text = two(&a, &b, "hold = { max_events = 1000000, max_bytes = 67108864 }\n");
        let text = text.replace("[route.a]\n", "[route.a]\ntimeouts = { first_output_ms = 300 }\n");
        let relay = relay(&text).await;
        let answer = post(&client(Http::One), &relay, path(dialect), request(dialect, true)).await;
        assert!(answer.clean && answer.text().contains("shown"), "{what}: {}", answer.status);
        assert_eq!((a.calls(), b.calls()), (1, 1), "{what}");
        let left = tokio::time::timeout(Duration::from_secs(10), a.wait_for(|stats| stats.disconnects == 1)).await;
        assert!(left.is_ok(), "{what}: the flood is still being read");
    }
}

#[tokio::test]
async fn aborted_streams_leave_nothing_behind() {
    let _turn = crate::turn().await;
    let streams = std::env::var("RUBICON_TEST_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    let options = soak::Options { streams, concurrency: 16, seed: 7, bound_mib: u64::MAX >> 20 };
    let report = soak::soak(&options, &mut |_| {}).await.expect("a start");
    // Memory and descriptors are those of this whole test process, where others run as well: only the program looks at them.
    assert!(report.leaks.is_empty(), "{report:#?}");
    for (what, count) in &report.ends[..4] {
        assert!(*count > 0, "no stream was ever {what}: {report:#?}");
    }
}

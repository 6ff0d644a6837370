//! A reader that stops reading holds back its own upstream and nothing else: memory stays bounded, other streams flow, and when it
//! reads again everything arrives, byte for byte, and no timer has cut it meanwhile.

use std::time::Duration;

use rubicon::mock::{Answer, MockProvider, Rule, Script, Step, chat, chat_text};
use rubicon::protocol::Dialect;
use tokio::time::{sleep, timeout};

use crate::child::Serving;
use crate::harness::{Http, PATIENCE, client, path, provider, relay, request};
use crate::raw::Raw;

/// Text of one event: fewer, larger events make the flood quick in a debug build.
const PIECE: usize = 64 * 1024;

/// 200 MiB in all.
const PIECES: u32 = 3200;

/// What may lie between the stub and a stalled reader: two kernel send buffers (4 MiB at most each), two receive buffers (up to
/// 32 MiB each where the kernel tunes them that far), and little else.
const IN_BETWEEN_MAX: u64 = 100 * 1024 * 1024;

/// What a relay may need for one stalled stream and one that flows: socket reads of 256 KiB, hyper's and h2's write buffers.
const MEMORY_MAX: u64 = 24 * 1024 * 1024;

/// Below the time that the reader stops for.
const IDLE_MS: u64 = 500;

/// One provider that answers the model `flood` with 200 MiB, and everything else briefly.
async fn stub() -> MockProvider {
    let flood = Answer::sse().step(chat::role()).step(chat::delta("first"));
    let flood = flood.repeat(PIECES, Answer::new().step(chat::delta(&"x".repeat(PIECE))));
    let flood = flood.step(chat::finish("stop")).step(chat::done());
    let script = Script::default()
        .rule(Rule::new("flood").model("flood").answer(flood))
        .rule(Rule::new("brief").answer(chat_text(&["brief"])));
    MockProvider::start(script).await.expect("a stub")
}

fn config(stub: &MockProvider) -> String {
    format!(
        "[provider.a]\nkind = \"openai-compatible\"\nbase_url = \"{}/v1\"\n[route.a]\nprovider = \"a\"\n\
         timeouts = {{ idle_ms = {IDLE_MS} }}\n[workflow.default]\nprimary = \"a\"\n",
        stub.base_url()
    )
}

fn flood_request() -> String {
    request(Dialect::ChatCompletions, true).replace("\"m\"", "\"flood\"")
}

/// The hash and length of what the stub sends.
fn expected() -> (blake3::Hash, u64) {
    let mut hasher = blake3::Hasher::new();
    let mut send = |step: Step| {
        let Step::Event(event) = step else { panic!("not an event") };
        hasher.update(format!("data: {}\n\n", event.data).as_bytes());
    };
    send(chat::role());
    send(chat::delta("first"));
    let piece = "x".repeat(PIECE);
    for _ in 0..PIECES {
        send(chat::delta(&piece));
    }
    send(chat::finish("stop"));
    send(chat::done());
    (hasher.finalize(), hasher.count())
}

/// Waits until the stub could send nothing more for longer than `idle_ms`, twice over, and gives the events it had sent.
async fn stalled(stub: &MockProvider) -> u64 {
    let settled = async {
        let mut before = stub.events_sent();
        loop {
            sleep(Duration::from_millis(2 * IDLE_MS)).await;
            let now = stub.events_sent();
            if now == before {
                return now;
            }
            before = now;
        }
    };
    timeout(PATIENCE, settled).await.expect("the stub comes to a halt")
}

async fn a_reader_stops_and_goes_on(http: Http) {
    let stub = stub().await;
    let relay = Serving::start("", &config(&stub), &[]).await;
    let client = client(http);
    let ask = |body: String| {
        let to = client.post(relay.url(path(Dialect::ChatCompletions))).header("content-type", "application/json");
        to.body(body).send()
    };
    let brief = async |what: &str| {
        let answer = ask(request(Dialect::ChatCompletions, true)).await.expect("a head");
        let text = timeout(PATIENCE, answer.text()).await.expect("in time").expect("a clean end");
        assert!(text.contains("brief") && text.ends_with("data: [DONE]\n\n"), "{what}: {text}");
    };
    brief("before").await;
    let idle = relay.memory();

    let mut slow = ask(flood_request()).await.expect("a head");
    let mut hasher = blake3::Hasher::new();
    hasher.update(&slow.chunk().await.expect("data").expect("not the end"));
    let sent = stalled(&stub).await * PIECE as u64;
    assert!(sent < IN_BETWEEN_MAX, "the upstream was read on: {sent} bytes");
    // With HTTP/2 this goes over the very same connection.
    brief("while the other one stalls").await;
    let held = relay.memory();
    assert!(held.peak - idle.now < MEMORY_MAX, "{idle:?} {held:?}");

    let rest = async {
        while let Some(chunk) = slow.chunk().await.expect("not cut") {
            hasher.update(&chunk);
        }
    };
    timeout(PATIENCE, rest).await.expect("everything in time");
    assert_eq!((hasher.finalize(), hasher.count()), expected(), "{http:?}");
    let after = relay.memory();
    assert!(after.peak - idle.now < MEMORY_MAX, "{idle:?} {after:?}");
    assert_eq!(stub.disconnects(), 0);
    let (code, _) = relay.stop().await;
    assert_eq!(code, 0);
}

#[tokio::test]
async fn a_reader_stops_and_goes_on_over_http1() {
    let _turn = crate::turn().await;
    a_reader_stops_and_goes_on(Http::One).await;
}

#[tokio::test]
async fn a_reader_stops_and_goes_on_over_http2() {
    let _turn = crate::turn().await;
    a_reader_stops_and_goes_on(Http::Two).await;
}

#[tokio::test]
async fn a_stalled_reader_that_leaves_is_noticed() {
    let _turn = crate::turn().await;
    for reset in [false, true] {
        let stub = stub().await;
        let relay = relay(&config(&stub)).await;
        let mut raw = Raw::post(relay.address(), Dialect::ChatCompletions, "", &flood_request()).await;
        raw.read_until("first").await;
        stalled(&stub).await;
        if reset {
            raw.reset();
        } else {
            drop(raw);
        }
        let left = timeout(Duration::from_secs(10), stub.wait_for(|stats| stats.disconnects == 1)).await;
        assert!(left.is_ok(), "reset {reset}: {:?}", stub.stats());
    }
}

#[tokio::test]
async fn a_reader_that_stops_after_the_upstream_has_ended_still_gets_all() {
    let _turn = crate::turn().await;
    // The stub is done and gone at once; everything lies between it and the reader, who comes later than `idle_ms`.
    let pieces = 40;
    let small = Answer::sse().repeat(pieces, Answer::new().step(chat::delta(&"y".repeat(1024))));
    let stub = provider(Rule::new("a").answer(small.step(chat::finish("stop")).step(chat::done()))).await;
    let relay = relay(&config(&stub)).await;
    let body = request(Dialect::ChatCompletions, true);
    let mut raw = Raw::post(relay.address(), Dialect::ChatCompletions, "connection: close\r\n", &body).await;
    stub.wait_for(|stats| stats.events_sent == u64::from(pieces) + 2).await;
    sleep(Duration::from_millis(IDLE_MS + 500)).await;
    assert!(raw.read_to_end().await);
    assert!(raw.text().ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{}", raw.text());
}

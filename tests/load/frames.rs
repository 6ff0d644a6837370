//! The frame of a cut reaches every reader: a thousand times over, because it is lost by a race or not at all, and to readers that
//! are slow, pause, or take nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use rubicon::mock::{Abort, Answer, MockProvider, Rule, Step, chat};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::harness::{Http, PATIENCE, client, path, post, provider, relay, request, send, two, url};
use crate::streams::error_frame_of;

/// How often the races are run; `RUBICON_CUTS` sets it.
fn cuts(default: usize) -> usize {
    std::env::var("RUBICON_CUTS").map_or(default, |text| text.parse().expect("RUBICON_CUTS is a number"))
}

/// Clients at a time.
const AT_A_TIME: usize = 50;

/// Text events of 16 KiB before the cut of a slow reader's stream: far more than the relay's and the kernel's buffers hold.
const BACKLOG: u32 = 64;

fn many(events: u32, bytes: usize, kind: Abort) -> Answer {
    let text = "x".repeat(bytes);
    Answer::sse().step(chat::role()).repeat(events, Answer::new().step(chat::delta(&text))).step(Step::Abort(kind))
}

/// Splits what came into whole events and the last one, the frame.
fn frame_after(body: &[u8], events: u64, what: &str) {
    let text = std::str::from_utf8(body).unwrap_or_else(|_| panic!("{what}: not UTF-8"));
    let frame = text.rfind("data: ").unwrap_or_else(|| panic!("{what}: no event in {} bytes", body.len()));
    assert!(
        text[frame..].starts_with("data: {\"error\""),
        "{what}: no frame after {} bytes, {} events",
        body.len(),
        text.matches("data: ").count()
    );
    let rubicon = error_frame_of(Dialect::ChatCompletions, &body[frame..]);
    assert_eq!(rubicon["status"], "interrupted", "{what}");
    assert_eq!(rubicon["after"], events, "{what}");
    assert_eq!(text[..frame].matches("data: ").count() as u64, events, "{what}: events that the frame counts");
}

async fn delivered<F: Future<Output = ()>>(count: usize, one: impl Fn() -> F) {
    let done = AtomicU64::new(0);
    futures_util::stream::iter(0..count)
        .for_each_concurrent(AT_A_TIME, |_| async {
            one().await;
            done.fetch_add(1, Ordering::Relaxed);
        })
        .await;
    assert_eq!(done.into_inner(), count as u64);
}

async fn a_relay(answer: Answer) -> (MockProvider, Server) {
    let a = provider(Rule::new("a").answer(answer)).await;
    let relay = relay(&two(&a, &a, "failover = { enabled = false }")).await;
    (a, relay)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cuts_deliver_a_thousand_frames() {
    let _turn = crate::turn().await;
    for http in [Http::One, Http::Two] {
        let (a, relay) = a_relay(many(3, 5, Abort::Fin)).await;
        let (client, count) = (client(http), cuts(1000));
        delivered(count, || async {
            let body = request(Dialect::ChatCompletions, true);
            let got = post(&client, &relay, path(Dialect::ChatCompletions), body).await;
            assert!(!got.clean, "{http:?}: a clean end");
            frame_after(&got.body, 4, &format!("{http:?}"));
        })
        .await;
        assert_eq!(a.calls(), count as u64);
    }
}

/// Reads an HTTP/1.1 answer from a socket with a small receive buffer, a little at a time; gives the body and whether it ended
/// with its last chunk.
async fn slow_http1(relay: &Server, pause: Duration) -> (Vec<u8>, bool) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let mut stream = socket.connect(relay.address()).await.expect("a connection");
    let body = request(Dialect::ChatCompletions, true);
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        path(Dialect::ChatCompletions),
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("a request");
    let (mut raw, mut piece) = (Vec::new(), vec![0; 32 * 1024]);
    loop {
        tokio::time::sleep(pause).await;
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await.expect("data in time");
        // A reset would throw away what was not read yet.
        match read.expect("an end in order, no reset") {
            0 => break,
            count => raw.extend_from_slice(&piece[..count]),
        }
    }
    let start = raw.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    assert!(raw.starts_with(b"HTTP/1.1 200 OK\r\n"));
    dechunk(&raw[start..])
}

fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while !rest.is_empty() {
        let line = rest.windows(2).position(|two| two == b"\r\n").expect("a chunk's size");
        let size = std::str::from_utf8(&rest[..line]).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok());
        let (size, data) = (size.expect("a number"), line + 2);
        if size == 0 {
            return (body, true);
        }
        assert!(rest.len() >= data + size + 2, "a chunk is cut in its middle: {} of {size} bytes", rest.len() - data);
        body.extend_from_slice(&rest[data..data + size]);
        assert_eq!(&rest[data + size..data + size + 2], b"\r\n", "whole chunks");
        rest = &rest[data + size + 2..];
    }
    (body, false)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_http1_reader_gets_its_frame() {
    let _turn = crate::turn().await;
    let (_a, relay) = a_relay(many(BACKLOG, 16 * 1024, Abort::Fin)).await;
    delivered(cuts(200), || async {
        let (body, ended) = slow_http1(&relay, Duration::from_millis(2)).await;
        assert!(!ended, "a last chunk");
        frame_after(&body, u64::from(BACKLOG) + 1, "slow HTTP/1.1");
    })
    .await;
}

/// Many slow streams share a connection: each one's window is closed most of the time while the others' data flows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_http2_reader_gets_its_frame() {
    let _turn = crate::turn().await;
    let (_a, relay) = a_relay(many(BACKLOG, 4 * 1024, Abort::Fin)).await;
    let client = reqwest::Client::builder()
        .no_proxy()
        .retry(reqwest::retry::never())
        .http2_prior_knowledge()
        .http2_initial_stream_window_size(8 * 1024)
        .http2_initial_connection_window_size(64 * 1024)
        .build()
        .expect("a client");
    delivered(cuts(200), || async {
        let body = request(Dialect::ChatCompletions, true);
        let send = client.post(url(&relay, path(Dialect::ChatCompletions)));
        let send = send.header("content-type", "application/json").body(body).send();
        let mut response = tokio::time::timeout(PATIENCE, send).await.expect("in time").expect("a head");
        let mut got = Vec::new();
        let clean = loop {
            tokio::time::sleep(Duration::from_millis(3)).await;
            match tokio::time::timeout(PATIENCE, response.chunk()).await.expect("data in time") {
                Ok(Some(chunk)) => got.extend_from_slice(&chunk),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        assert!(!clean, "a clean end");
        frame_after(&got, u64::from(BACKLOG) + 1, "slow HTTP/2");
    })
    .await;
}

/// What waits for a reader that takes nothing is bounded, in the relay and in the kernel, and the rest stays at the provider.
#[tokio::test]
async fn a_reader_that_takes_nothing_costs_little() {
    let _turn = crate::turn().await;
    const EVENT: u64 = 16 * 1024;
    let (_a, relay) = a_relay(many(1024, usize::try_from(EVENT).expect("small"), Abort::Fin)).await;
    let client = client(Http::One);
    let mut got =
        client.post(url(&relay, path(Dialect::ChatCompletions))).body(request(Dialect::ChatCompletions, true));
    got = got.header("content-type", "application/json");
    let response = tokio::time::timeout(PATIENCE, got.send()).await.expect("in time").expect("a head");
    let operation = format!("/v1/operations/{}", response.headers()["rubicon-operation-id"].to_str().expect("visible"));
    // Until nothing moves any more.
    let (mut after, mut still) = (0, 0);
    while still < 5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = send(client.get(url(&relay, &operation))).await.json()["after"].as_u64().expect("a number");
        still = if now == after && now > 0 { still + 1 } else { 0 };
        after = now;
    }
    // This client's own window and buffers are the larger part.
    assert!(after * EVENT < 2 * 1024 * 1024, "{after} events are on their way to a reader that takes none");
}

/// A reader that takes nothing for a while, with all the windows and buffers full, and then reads on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_pauses_gets_its_frame() {
    let _turn = crate::turn().await;
    let (a, relay) = a_relay(many(BACKLOG, 16 * 1024, Abort::Fin)).await;
    let (a, relay) = (Arc::new(a), Arc::new(relay));
    let mut readers = tokio::task::JoinSet::new();
    for http in [Http::One, Http::Two] {
        let relay = Arc::clone(&relay);
        readers.spawn(async move {
            // The default windows of this client are large; the pause counts for HTTP/1.1, the window for HTTP/2.
            let builder = reqwest::Client::builder().no_proxy().retry(reqwest::retry::never());
            let client = match http {
                Http::One => builder.http1_only(),
                Http::Two => builder.http2_prior_knowledge().http2_initial_stream_window_size(40 * 1024),
            };
            let client = client.build().expect("a client");
            let body = request(Dialect::ChatCompletions, true);
            let send = client.post(url(&relay, path(Dialect::ChatCompletions)));
            let send = send.header("content-type", "application/json").body(body).send();
            let mut response = tokio::time::timeout(PATIENCE, send).await.expect("in time").expect("a head");
            let (mut got, mut reads) = (Vec::new(), 0);
            while let Ok(Some(chunk)) = tokio::time::timeout(PATIENCE, response.chunk()).await.expect("data in time") {
                got.extend_from_slice(&chunk);
                reads += 1;
                if reads % 16 == 1 {
                    tokio::time::sleep(Duration::from_millis(700)).await;
                }
            }
            frame_after(&got, u64::from(BACKLOG) + 1, &format!("{http:?} with pauses"));
        });
    }
    readers.spawn({
        let relay = Arc::clone(&relay);
        async move {
            let (body, ended) = slow_http1(&relay, Duration::from_millis(60)).await;
            assert!(!ended, "a last chunk");
            frame_after(&body, u64::from(BACKLOG) + 1, "a very slow reader");
        }
    });
    while let Some(reader) = readers.join_next().await {
        reader.expect("a frame");
    }
    assert_eq!(a.calls(), 3);
}

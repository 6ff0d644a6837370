//! A client that stops reading for good and never leaves: what must end its stream (`stream_ms`, `DELETE`, the end of a shutdown's
//! grace) does so without it, cancels the upstream and gives the permit back. That a reader which takes nothing for two minutes is
//! left by itself is shown with paused time, beside the watch (`src/relay/client_body.rs`).

use std::time::Duration;

use rubicon::mock::{Answer, MockProvider, Rule, chat};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::harness::{Http, PATIENCE, client, path, provider, relay, request, send, two, url};
use crate::raw::Raw;

const CHAT: Dialect = Dialect::ChatCompletions;

/// The watch gives a reader 4 s for its last words; no other timer of the relay that could end such a stream is under a minute.
const PROMPTLY: Duration = Duration::from_secs(15);

/// How the client is stuck.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reader {
    /// HTTP/1.1: the pipe is full.
    One,
    /// HTTP/2: the stream's window is spent.
    Two,
    /// HTTP/2: the stream never had a window, so that hyper does not ask its body once.
    NoWindow,
    /// HTTP/2, and another stream of the connection flows all the time.
    Beside,
}

const READERS: [Reader; 4] = [Reader::One, Reader::Two, Reader::NoWindow, Reader::Beside];

/// What ends it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Time,
    Delete,
    Shutdown,
}

/// 64 MiB: more than what fits between the two where nobody reads; and a stream that goes on and on.
async fn stub() -> MockProvider {
    let piece = Answer::new().step(chat::delta(&"x".repeat(16 * 1024)));
    let flood = Answer::sse().step(chat::role()).step(chat::delta("first")).repeat(4096, piece);
    let drip = Answer::new().step(chat::delta("drip")).delay_ms(50);
    let drip = Answer::sse().step(chat::role()).repeat(100_000, drip);
    let script = rubicon::mock::Script::default()
        .rule(Rule::new("flood").model("m").answer(flood))
        .rule(Rule::new("drip").model("drip").answer(drip));
    MockProvider::start(script).await.expect("a stub")
}

/// A stuck client, held until dropped.
enum Stuck {
    One(#[allow(dead_code, reason = "held open")] Raw),
    Two(#[allow(dead_code, reason = "held open")] Vec<reqwest::Response>, tokio::task::JoinHandle<()>),
}

async fn stuck(relay: &Server, reader: Reader) -> Stuck {
    let body = request(CHAT, true);
    if reader == Reader::One {
        let mut raw = Raw::post(relay.address(), CHAT, "idempotency-key: op\r\n", &body).await;
        raw.read_until("first").await;
        return Stuck::One(raw);
    }
    let window = if reader == Reader::NoWindow { 0 } else { 16 * 1024 };
    let client = reqwest::Client::builder()
        .no_proxy()
        .retry(reqwest::retry::never())
        .http2_prior_knowledge()
        .http2_initial_stream_window_size(window)
        .build()
        .expect("a client");
    let ask = |id: &'static str, body: String| {
        let send = client.post(url(relay, path(CHAT))).header("content-type", "application/json");
        timeout(PATIENCE, send.header("idempotency-key", id).body(body).send())
    };
    let response = ask("op", body).await.expect("in time").expect("a head");
    let reads = if reader == Reader::Beside {
        let mut flows =
            ask("flows", request(CHAT, true).replace("\"m\"", "\"drip\"")).await.expect("in time").expect("a head");
        tokio::spawn(async move { while let Ok(Some(_)) = flows.chunk().await {} })
    } else {
        tokio::spawn(async {})
    };
    // The connection stays with its client.
    let keeps = client.clone();
    let keeps = tokio::spawn(async move {
        reads.await.ok();
        std::future::pending::<()>().await;
        drop(keeps);
    });
    Stuck::Two(vec![response], keeps)
}

impl Drop for Stuck {
    fn drop(&mut self) {
        if let Self::Two(_, task) = self {
            task.abort();
        }
    }
}

/// Until the stub can send nothing more to the stuck reader.
async fn full(a: &MockProvider) {
    let settled = async {
        let (mut before, mut still) = (0, 0);
        while still < 3 {
            sleep(Duration::from_millis(100)).await;
            let now = a.calls_of("flood") * 1_000_000 + a.events_sent();
            // The drip goes on all the time, a few events in between.
            still = if now <= before + 5 { still + 1 } else { 0 };
            before = now;
        }
    };
    timeout(PATIENCE, settled).await.expect("the stub comes to a halt");
}

async fn record(relay: &Server) -> Value {
    send(client(Http::One).get(url(relay, "/v1/operations/op"))).await.json()
}

async fn ends(reader: Reader, by: By) {
    let what = format!("{reader:?} by {by:?}");
    let a = stub().await;
    let stream_ms = if by == By::Time { "envelope = { stream_ms = 2000 }" } else { "" };
    let relay = relay(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nshutdown_grace_ms = 300\nmax_in_flight = 10\n{}",
        two(&a, &a, stream_ms)
    ))
    .await;
    let held = stuck(&relay, reader).await;
    full(&a).await;
    let app = std::sync::Arc::clone(relay.app());
    let state = match by {
        By::Time => "interrupted",
        By::Delete => {
            assert_eq!(record(&relay).await["state"], "running", "{what}");
            let stop = client(Http::One).delete(url(&relay, "/v1/operations/op"));
            assert_eq!(send(stop).await.status, 200, "{what}");
            "stopped"
        }
        By::Shutdown => "interrupted",
    };
    // Its shutdown is awaited all the same: it must not hang on a stuck peer either.
    let (relay, shutdown) =
        if by == By::Shutdown { (None, Some(tokio::spawn(relay.shutdown()))) } else { (Some(relay), None) };
    // Time and shutdown end the other stream of the connection too; a stop does not.
    let goes_on = reader == Reader::Beside && by == By::Delete;
    let upstreams = if reader == Reader::Beside && !goes_on { 2 } else { 1 };
    let cancelled = timeout(PROMPTLY, a.wait_for(|stats| stats.disconnects == upstreams)).await;
    assert!(cancelled.is_ok(), "{what}: an upstream goes on: {:?}", a.stats());
    let id = (rubicon::ids::TenantId::new("local"), rubicon::ids::OperationId::new("op"));
    let known = app.operations.get(&id.0, &id.1).expect("known").view();
    assert_eq!(known.state.name(), state, "{what}: {known:?}");
    assert!(known.ended_at.is_some(), "{what}");
    let back = timeout(PROMPTLY, app.admission.at_most(usize::from(goes_on))).await;
    assert!(back.is_ok(), "{what}: the permit did not come back");
    assert!(!goes_on || a.disconnects() == 1, "{what}: the other stream was cut");
    if let Some(shutdown) = shutdown {
        timeout(2 * PROMPTLY, shutdown).await.unwrap_or_else(|_| panic!("{what}: the shutdown hangs")).expect("a task");
    }
    if let Some(relay) = relay {
        // Whoever comes now is served.
        assert_eq!(send(client(Http::One).get(url(&relay, "/healthz"))).await.status, 200, "{what}");
        assert_eq!(record(&relay).await["ended_at"], serde_json::json!(known.ended_at), "{what}: it ended once");
    }
    drop(held);
}

async fn all(by: By) {
    futures_util::future::join_all(READERS.map(|reader| ends(reader, by))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_ms_ends_a_stream_that_nobody_reads() {
    all(By::Time).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delete_ends_a_stream_that_nobody_reads() {
    all(By::Delete).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_ends_a_stream_that_nobody_reads() {
    all(By::Shutdown).await;
}

/// The upstream ended long ago: what is left for the reader lies in the relay, and its permit comes back all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_frame_of_a_cut_that_nobody_reads_holds_nothing_for_ever() {
    let cut = Answer::sse().step(chat::role()).step(chat::delta("first")).delay_ms(30).abort_fin();
    let a = provider(Rule::new("a").answer(cut)).await;
    let relay = relay(&format!("[server]\nlisten = \"127.0.0.1:0\"\nmax_in_flight = 1\n{}", two(&a, &a, ""))).await;
    let _held = stuck(&relay, Reader::NoWindow).await;
    let stop = client(Http::One).delete(url(&relay, "/v1/operations/op"));
    assert_eq!(send(stop).await.status, 200);
    let back = timeout(PROMPTLY, relay.app().admission.idle()).await;
    assert!(back.is_ok(), "the permit did not come back");
}

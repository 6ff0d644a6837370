//! The whole primary is out while 500 clients go on asking: retries do not multiply it, the secondary gets what it may and not one
//! more, the rest is refused with a time to come again, one probe at a time is made, and what comes back is found.

use std::net::SocketAddr;
use std::time::Duration;

use rubicon::clock::Instant;
use rubicon::gate::breaker::BreakerState;
use rubicon::mock::{Answer, MockProvider, Rule, Script, chat, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use tokio::time::timeout;

use crate::harness::{Answered, Http, PATIENCE, client, path, post, provider, relay, request, send, url};
use crate::setup::{Setup, overloaded};

const CHAT: Dialect = Dialect::ChatCompletions;
const CLIENTS: usize = 500;

/// Each client's requests: the first round meets a healthy breaker.
const ROUNDS: usize = 4;

/// `server.retry.share`.
const SHARE: f64 = 0.2;

/// `failover_limits.concurrency` of the secondary.
const CAP: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    /// It says 503.
    Overloaded,
    /// Nobody listens.
    Refused,
    /// It takes requests and says nothing.
    Silent,
}

/// Answers that were refused, and how long they took.
#[derive(Default)]
struct Sums {
    served: usize,
    refused: usize,
    attempts: u64,
    /// Of those that were refused without a call, milliseconds as the client saw them (of 500 at once, on this machine).
    shed_ms: Vec<u128>,
    /// The same operations.
    shed: Vec<String>,
}

impl Sums {
    #[track_caller]
    fn add(&mut self, answered: &Answered, took: Duration) {
        let attempts: u64 = answered.header("rubicon-attempts").parse().expect("a number");
        self.attempts += attempts;
        if answered.status == 200 {
            assert!(answered.clean && answered.text().contains("from b"), "{}", answered.text());
            self.served += 1;
            return;
        }
        self.refused += 1;
        let json = answered.json();
        let reason = json["rubicon"]["reason"].as_str().expect("a reason");
        let status = if attempts == 0 { 503 } else { 424 };
        assert_eq!(answered.status, status, "{json}");
        assert!(matches!(reason, "no_eligible_fallback" | "retry_budget_exhausted" | "attempts_exhausted"), "{json}");
        assert_eq!(json["rubicon"]["retryable"], true, "{json}");
        let wait: u64 = answered.header("retry-after").parse().unwrap_or_else(|_| panic!("when to come again: {json}"));
        assert!(wait >= 1, "{json}");
        if attempts == 0 {
            self.shed_ms.push(took.as_millis());
            self.shed.push(answered.header("rubicon-operation-id").to_owned());
        }
    }
}

/// The longest that any of the last hundred shed operations took, from its admission to its end, by the relay's own record.
async fn longest_ms(relay: &Server, client: &reqwest::Client, shed: &[String]) -> u64 {
    let mut longest = 0;
    for id in shed.iter().rev().take(100) {
        let known = send(client.get(url(relay, &format!("/v1/operations/{id}")))).await.json();
        assert_eq!(
            (&known["state"], known["attempts"].as_array().map(Vec::len)),
            (&"failed".into(), Some(0)),
            "{known}"
        );
        let time = |name: &str| known[name].as_u64().expect("a time");
        longest = longest.max(time("ended_at").saturating_sub(time("created_at")));
    }
    longest
}

fn breaker(relay: &Server) -> BreakerState {
    let views = relay.app().board.view(Instant::now());
    views.iter().find(|view| view.route.as_str() == "a").expect("the primary").breaker
}

/// One request of every client, all at once.
async fn round(relay: &Server, clients: &[reqwest::Client], sums: &mut Sums) {
    let asked = (0..CLIENTS).map(async |n| {
        let began = Instant::now();
        let answered = post(&clients[n % clients.len()], relay, path(CHAT), request(CHAT, true)).await;
        (answered, began.elapsed())
    });
    for (answered, took) in futures_util::future::join_all(asked).await {
        sums.add(&answered, took);
    }
}

async fn primary(outage: Outage, at: SocketAddr) -> Option<MockProvider> {
    let answer = match outage {
        Outage::Overloaded => Answer::new().delay_ms(20).then(overloaded()),
        Outage::Silent => Answer::new().hang(),
        Outage::Refused => return None,
    };
    let script = Script::default().rule(Rule::new("a").answer(answer)).listen(at);
    Some(MockProvider::start(script).await.expect("a primary"))
}

async fn outage(outage: Outage) {
    let at = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address")
    };
    let a = primary(outage, at).await;
    let slow = Answer::sse().step(chat::role()).step(chat::delta("from b")).delay_ms(20);
    let b = provider(Rule::new("b").answer(slow.step(chat::finish("stop")).step(chat::done()))).await;
    let setup = Setup::primary(format!("http://{at}"))
        .with_route("breaker = { failures = 10, cooldown_ms = 100 }\ntimeouts = { first_output_ms = 500 }")
        .equivalent("b", &b)
        .with_route(&format!("failover_limits = {{ concurrency = {CAP} }}"))
        .server(&format!("retry = {{ share = {SHARE}, min_per_second = 0 }}"));
    let relay = relay(&setup.text()).await;
    // HTTP/2 of a few clients: a socket each would be a test of the machine's limits.
    let clients: Vec<_> = (0..4).map(|_| client(Http::Two)).collect();
    let mut sums = Sums::default();
    let mut calls_of_a = 0;
    for number in 0..ROUNDS {
        round(&relay, &clients, &mut sums).await;
        assert_ne!(breaker(&relay), BreakerState::Healthy, "{outage:?}: ten of {CLIENTS} have failed");
        let Some(a) = &a else { continue };
        if number > 0 && outage == Outage::Overloaded {
            // (A silent one is noticed to be left only after the relay has forgotten it.)
            assert!(a.most_answering() <= 1, "one probe at a time: {:?}", a.stats());
        }
        calls_of_a += a.calls();
        a.reset();
    }
    let requests = CLIENTS * ROUNDS;
    let most = (1.0 + SHARE) * requests as f64;
    assert!(sums.attempts as f64 <= most, "{outage:?}: {} attempts", sums.attempts);
    // A silent primary is left, perhaps before it has read what it was asked.
    let calls = calls_of_a + b.calls();
    assert!(calls <= sums.attempts && (outage != Outage::Overloaded || calls == sums.attempts), "{calls} calls");
    assert!(b.most_answering() <= CAP, "{outage:?}: {:?}", b.stats());
    assert_eq!(sums.served + sums.refused, requests);
    assert!(sums.served >= usize::try_from(CAP).unwrap(), "the secondary serves what it may: {}", sums.served);
    assert!(!sums.shed_ms.is_empty());
    sums.shed_ms.sort_unstable();
    let p99 = sums.shed_ms[sums.shed_ms.len() * 99 / 100];
    // With --nocapture; a slow machine is no failure (that a refusal waits for nothing is `relay::passage`'s test).
    let longest = longest_ms(&relay, &clients[0], &sums.shed).await;
    println!(
        "{outage:?}: {requests} requests, {} attempts, {} served, {} refused, {} of them without a call \
         (p99 {p99} ms at the client, {longest} ms at most in the relay)",
        sums.attempts,
        sums.served,
        sums.refused,
        sums.shed_ms.len()
    );
    if let Some(a) = a {
        a.stop().await;
    }
    comes_back(&relay, at, &b, &clients[0]).await;
}

/// The primary is there again: the next probe finds it, and all traffic returns.
async fn comes_back(relay: &Server, at: SocketAddr, b: &MockProvider, client: &reqwest::Client) {
    let script = Script::default().rule(Rule::new("a").answer(chat_text(&["from a"]))).listen(at);
    let a = MockProvider::start(script).await.expect("the primary again");
    let ask = || post(client, relay, path(CHAT), request(CHAT, true));
    let back = async {
        while !ask().await.text().contains("from a") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, back).await.expect("found");
    assert_eq!(breaker(relay), BreakerState::Healthy);
    let (before, calls) = (b.calls(), a.calls());
    for answered in futures_util::future::join_all((0..50).map(|_| ask())).await {
        assert!(answered.text().contains("from a"), "{}", answered.text());
        assert_eq!((answered.header("rubicon-recovery"), answered.header("rubicon-attempts")), ("none", "1"));
    }
    assert_eq!((a.calls(), b.calls()), (calls + 50, before));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_says_503() {
    let _turn = crate::turn().await;
    outage(Outage::Overloaded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_nobody_listens_for() {
    let _turn = crate::turn().await;
    outage(Outage::Refused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_says_nothing() {
    let _turn = crate::turn().await;
    outage(Outage::Silent).await;
}

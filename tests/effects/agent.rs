//! Agents: they want one thing done at a time, ask for it through the relay, and ask again for as long as they have no answer, as
//! their SDK would. What they were told is what the judge compares with what the oracle did.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand_like::Draw;
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::oracle::{FAULTS, Oracle};
use crate::relay::{KEY, Up};

/// Times that an agent asks before it gives up; a relay that is down does not count.
const ASKS_MAX: u32 = 200;

/// Between two intents of one agent.
const PACE: Duration = Duration::from_millis(5);

/// A small random sequence of our own: the seed of a run is all there is to repeat it.
pub(crate) mod rand_like {
    /// SplitMix64.
    #[derive(Clone, Debug)]
    pub(crate) struct Draw(pub(crate) u64);

    impl Draw {
        pub(crate) fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        pub(crate) fn below(&mut self, bound: u64) -> u64 {
            self.next() % bound
        }
    }
}

/// What an agent was told in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was done, with these bytes.
    Done { tool: &'static str, key: String, body: Vec<u8> },
    /// Nobody knows.
    Unknown { key: String },
    /// It was not done and will not be.
    Failed,
    /// No answer that helps within [`ASKS_MAX`].
    GaveUp(String),
}

/// What all agents share.
pub(crate) struct World {
    pub(crate) oracle: Oracle,
    pub(crate) up: watch::Receiver<Option<Up>>,
    pub(crate) http: Client,
    pub(crate) stop: AtomicBool,
    /// Whether tools misbehave.
    pub(crate) faulty: AtomicBool,
    /// Only this tool, where a kill point is on its way only.
    pub(crate) only: Mutex<Option<&'static str>>,
    pub(crate) ends: Mutex<BTreeMap<String, End>>,
    next: AtomicU64,
    /// Asks that were under way when the relay died.
    pub(crate) lost: AtomicU64,
    /// Tool calls that misbehaved after their first byte.
    pub(crate) misbehaved: AtomicU64,
}

impl World {
    pub(crate) fn new(oracle: Oracle, up: watch::Receiver<Option<Up>>) -> Arc<Self> {
        let http = Client::builder().pool_max_idle_per_host(0).timeout(Duration::from_secs(20)).build();
        Arc::new(Self {
            oracle,
            up,
            http: http.expect("a client"),
            stop: AtomicBool::new(false),
            faulty: AtomicBool::new(true),
            only: Mutex::new(None),
            ends: Mutex::default(),
            next: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            misbehaved: AtomicU64::new(0),
        })
    }

    /// The relay as it is now; waits while it is down.
    async fn alive(&self) -> Up {
        let mut up = self.up.clone();
        let found = up.wait_for(Option::is_some).await.expect("the driver lives");
        found.clone().expect("it is up")
    }

    fn end(&self, intent: &str, end: End) {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).insert(intent.to_owned(), end);
    }
}

/// An answer, or that none came.
struct Answer {
    status: u16,
    key: Option<String>,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

async fn send(request: RequestBuilder) -> Option<Answer> {
    let response = request.send().await.ok()?;
    let status = response.status().as_u16();
    let key = response.headers().get("rubicon-execution-key").and_then(|v| v.to_str().ok()).map(str::to_owned);
    Some(Answer { status, key, body: response.bytes().await.ok()?.to_vec() })
}

/// One agent, until it is told to stop: one intent after the other.
pub(crate) async fn work(world: Arc<World>, mut draw: Draw) {
    while !world.stop.load(Ordering::SeqCst) {
        let only = *world.only.lock().unwrap_or_else(PoisonError::into_inner);
        let tool = only.unwrap_or(["charge", "charge_probed", "own"][usize::try_from(draw.below(3)).unwrap_or(0)]);
        let faulty = world.faulty.load(Ordering::SeqCst) && draw.below(10) < 3;
        let fault = if faulty { FAULTS[usize::try_from(draw.below(7)).unwrap_or(0)] } else { "none" };
        one(&world, tool, fault).await;
        // A few hundred intents a second are enough to be in the way of every kill.
        tokio::time::sleep(PACE).await;
    }
}

/// One intent from the wish to an end.
pub(crate) async fn one(world: &World, tool: &'static str, fault: &str) -> String {
    let intent = format!("i{}", world.next.fetch_add(1, Ordering::SeqCst));
    if !matches!(fault, "none" | "slow" | "refuse") {
        world.misbehaved.fetch_add(1, Ordering::SeqCst);
    }
    let end = if tool == "own" { own(world, &intent, fault).await } else { through(world, tool, &intent, fault).await };
    world.end(&intent, end);
    intent
}

/// What the relay's answer means for an agent.
enum Next {
    Ended(End),
    Again,
}

fn read(decision: &Value) -> Next {
    let key = decision["execution"]["key"].as_str().unwrap_or_default().to_owned();
    match decision["decision"].as_str().unwrap_or_default() {
        "reconcile" => Next::Ended(End::Unknown { key }),
        "stop" => Next::Ended(End::Failed),
        _ => Next::Again,
    }
}

/// The relay runs the tool.
async fn through(world: &World, tool: &'static str, intent: &str, fault: &str) -> End {
    let mut fault = fault;
    let mut last = String::new();
    for _ in 0..ASKS_MAX {
        let up = world.alive().await;
        let body = json!({ "operation_id": format!("op-{intent}"), "arguments": { "intent": intent, "fault": fault } });
        let url = format!("http://{}/v1/tools/{tool}", up.data);
        let sent = send(world.http.post(url).bearer_auth(KEY).json(&body)).await;
        // Whatever came of it, the tool is asked to behave from now on: a second effect would be the relay's doing alone.
        fault = "none";
        let Some(answer) = sent else {
            world.lost.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        if let (200, Some(key)) = (answer.status, &answer.key) {
            return End::Done { tool, key: key.clone(), body: answer.body };
        }
        if let Next::Ended(end) = read(&answer.json()) {
            return end;
        }
        last = format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    End::GaveUp(last)
}

/// The agent runs the tool under a lease.
async fn own(world: &World, intent: &str, fault: &str) -> End {
    let mut last = String::new();
    let mut ran: Option<(String, String, &str)> = None;
    for _ in 0..ASKS_MAX {
        let up = world.alive().await;
        let base = format!("http://{}/v1/executions", up.data);
        if ran.is_none() {
            let body = json!({ "operation_id": format!("op-{intent}"), "tool": "own", "claim_id": intent, "lease_ms": 60_000,
                "arguments": { "intent": intent, "fault": fault } });
            let Some(answer) = send(world.http.post(&base).bearer_auth(KEY).json(&body)).await else {
                world.lost.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let told = answer.json();
            let key = told["execution"]["key"].as_str().unwrap_or_default().to_owned();
            match (answer.status, told["decision"].as_str().unwrap_or_default()) {
                (201, "execute") => {
                    let token = told["lease_token"].as_str().expect("a lease").to_owned();
                    let call = world.http.post(world.oracle.url("/charge")).header("idempotency-key", &key);
                    let done = send(call.json(&json!({ "intent": intent, "fault": fault }))).await;
                    let outcome = match done {
                        Some(answer) if answer.status == 200 => "succeeded",
                        Some(answer) if answer.status == 429 => "not_executed",
                        _ => "unknown",
                    };
                    ran = Some((key, token, outcome));
                }
                (200, "use_result") => {
                    let body = told["execution"]["result"].to_string().into_bytes();
                    return End::Done { tool: "own", key, body };
                }
                _ => {
                    if let Next::Ended(end) = read(&told) {
                        return end;
                    }
                    last = format!("{} {told}", answer.status);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
            }
        }
        let Some((key, token, outcome)) = &ran else { continue };
        let mut body = json!({ "lease_token": token, "outcome": outcome });
        if *outcome == "succeeded" {
            body["result"] = json!({ "charged": intent });
        }
        let url = format!("http://{}/v1/executions/{key}/complete", up.data);
        match send(world.http.post(url).bearer_auth(KEY).json(&body)).await {
            None => {
                world.lost.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Some(answer) if answer.status == 200 => {
                return match *outcome {
                    "succeeded" => {
                        let body = json!({ "charged": intent }).to_string().into_bytes();
                        End::Done { tool: "own", key: key.clone(), body }
                    }
                    "not_executed" => End::Failed,
                    _ => End::Unknown { key: key.clone() },
                };
            }
            Some(answer) => {
                last = format!("complete: {} {}", answer.status, String::from_utf8_lossy(&answer.body));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    End::GaveUp(last)
}

/// The same call once more, for the judge: the bytes and whether they are said to be stored ones.
pub(crate) async fn again(world: &World, tool: &str, intent: &str) -> (u16, bool, Vec<u8>) {
    let up = world.alive().await;
    let arguments = json!({ "intent": intent, "fault": "none" });
    let (path, body) = if tool == "own" {
        (
            "/v1/executions".to_owned(),
            json!({ "operation_id": format!("op-{intent}"), "tool": "own", "arguments": arguments }),
        )
    } else {
        (format!("/v1/tools/{tool}"), json!({ "operation_id": format!("op-{intent}"), "arguments": arguments }))
    };
    let request = world.http.post(format!("http://{}{path}", up.data)).bearer_auth(KEY).json(&body);
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    let replayed = response.headers().get("idempotent-replayed").is_some_and(|value| value == "true");
    let bytes = response.bytes().await.expect("a body").to_vec();
    if tool == "own" {
        let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        return (status, replayed, told["execution"]["result"].to_string().into_bytes());
    }
    (status, replayed, bytes)
}

/// Without any ledger: the same wish, asked of the tool itself and again until it says that it is done.
pub(crate) async fn bypassing(http: &Client, oracle: &Oracle, intent: &str, fault: &str) {
    let mut fault = fault;
    for _ in 0..5 {
        let body = json!({ "intent": intent, "fault": fault });
        let sent = send(http.post(oracle.url("/charge")).header("idempotency-key", intent).json(&body)).await;
        if sent.is_some_and(|answer| answer.status == 200) {
            return;
        }
        fault = "none";
    }
}

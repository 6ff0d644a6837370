//! The effect oracle: hundreds of `kill -9` at named points, and every effect counted.
//!
//! `cargo test --features testing --test effects -- --nocapture --test-threads 1` prints one table. `RUBICON_KILLS` sets how often each
//! point is hit (20). A relay of its own process dies at a named point (`RUBICON_FAILPOINT`), is started over the same store, and agents
//! ask again until they have an answer. In the end: no effect twice, no acknowledged one lost, replays byte for byte, the chain
//! verifies, nothing is left started, and a control run without the ledger shows doubles, so that the oracle is known to see.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod agent;
mod judge;
mod oracle;
mod relay;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use agent::rand_like::Draw;
use agent::{World, bypassing, work};
use judge::{Figures, HEAD, listed, replays};
use oracle::{FAULTS, Oracle, effects};
use relay::{Life, Relay, TOKEN, Up};
use serde_json::{Value, json};

/// Agents at work at once.
const AGENTS: u64 = 4;

/// Longest that a life may go on until it reaches its point.
const REACH: Duration = Duration::from_secs(30);

/// Where the relay dies, and the tool whose calls lead there (LEDGER.md 6).
const POINTS: [(&str, Option<&str>); 17] = [
    ("claim-before-durable", None),
    ("claim-durable", Some("charge")),
    ("tool-connected", Some("charge")),
    ("tool-half-sent", Some("charge")),
    ("tool-all-sent", Some("charge")),
    ("tool-half-response", Some("charge")),
    ("tool-response-complete", Some("charge")),
    ("outcome-in-commit", None),
    ("outcome-durable", Some("charge")),
    ("client-half-sent", Some("charge")),
    ("client-all-sent", Some("charge")),
    ("probe-sent", Some("charge_probed")),
    ("probe-verdict", Some("charge_probed")),
    ("operator-resolve", Some("charge")),
    // In the writer: any transition of anybody.
    ("ledger-before-commit", None),
    ("ledger-in-commit", None),
    ("ledger-after-commit-before-answer", None),
];

/// The tool has done it, and no byte of its answer is there: only the driver can know the moment.
const DONE_UNANSWERED: &str = "tool-done-unanswered";

/// Killed at any moment.
const ANY_MOMENT: &str = "any-moment";

fn kills_a_point() -> u64 {
    std::env::var("RUBICON_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

struct Run {
    world: Arc<World>,
    relay: Relay,
    folder: tempfile::TempDir,
    agents: Vec<tokio::task::JoinHandle<()>>,
}

impl Run {
    async fn new(seed: u64, faulty: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let oracle = Oracle::start(&folder.path().join("effects.log")).await;
        let relay = Relay::new(folder.path(), &oracle.url(""));
        let world = World::new(oracle, relay.up.subscribe());
        world.faulty.store(faulty, Ordering::SeqCst);
        let agents = (0..AGENTS).map(|n| tokio::spawn(work(Arc::clone(&world), Draw(seed + n)))).collect();
        Self { world, relay, folder, agents }
    }

    fn log(&self) -> std::path::PathBuf {
        self.folder.path().join("effects.log")
    }

    fn up(&self) -> Up {
        self.relay.up.borrow().clone().expect("it is up")
    }

    fn only(&self, tool: Option<&'static str>) {
        *self.world.only.lock().expect("a lock") = tool;
    }

    /// One life that dies at `point`; whether it did so.
    async fn die_at(&mut self, point: &str, nth: u64) -> bool {
        let mut life = self.relay.start(Some(&format!("{point}:{nth}"))).await;
        let resolving = (point == "operator-resolve").then(|| {
            let (world, up) = (Arc::clone(&self.world), self.relay.up.borrow().clone());
            let log = self.log();
            tokio::spawn(async move {
                if let Some(up) = up {
                    resolve_unknowns(&world, &up, &log).await;
                }
            })
        });
        let died = life.died(REACH).await;
        if let Some(resolving) = resolving {
            resolving.abort();
        }
        if died.is_none() {
            life.kill().await;
        }
        self.relay.up.send_replace(None);
        died.is_some()
    }

    /// One life that is killed when the tool has acted and says nothing.
    async fn die_unanswered(&mut self) {
        let mut life = self.relay.start(None).await;
        let world = Arc::clone(&self.world);
        let asked = tokio::spawn(async move { agent::one(&world, "charge", "hold").await });
        self.world.oracle.held().await;
        life.kill().await;
        self.relay.up.send_replace(None);
        drop(asked);
    }

    async fn die_any_moment(&mut self, after: Duration) {
        let mut life = self.relay.start(None).await;
        tokio::time::sleep(after).await;
        life.kill().await;
        self.relay.up.send_replace(None);
    }

    /// Lets the agents end what they began.
    async fn finish(&mut self) -> Life {
        self.only(None);
        self.world.faulty.store(false, Ordering::SeqCst);
        let life = self.relay.start(None).await;
        self.world.stop.store(true, Ordering::SeqCst);
        for agent in self.agents.drain(..) {
            tokio::time::timeout(Duration::from_secs(120), agent).await.expect("an agent ends").expect("an agent");
        }
        life
    }

    /// Everything that must hold in the end.
    async fn judge(&mut self, life: Life, kills: u64, name: &str) -> (Figures, Vec<String>) {
        let up = self.up();
        let mut problems = Vec::new();
        // What another life ran is unknown from the start on; what agents ran themselves they have ended.
        let mut started = Value::Null;
        for _ in 0..600 {
            started = listed(&self.world, &up, "state=started").await["executions"].take();
            if started.as_array().is_some_and(Vec::is_empty) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if !started.as_array().is_some_and(Vec::is_empty) {
            problems.push(format!("left started: {started}"));
        }
        let (asked, mut differ) = replays(&self.world).await;
        problems.append(&mut differ);
        let (mut figures, mut more) = Figures::of(&self.world, &self.log(), kills);
        figures.replays = asked;
        problems.append(&mut more);
        life.stop().await;
        self.relay.up.send_replace(None);
        let verified = self.relay.run(&["ledger", "verify"]).await;
        if !verified.status.success() {
            problems.push(format!("the chain does not verify: {verified:?}"));
        }
        println!("{}", figures.row(name));
        (figures, problems)
    }
}

/// An operator who looks at the oracle's book and says how each unknown ended, one after the other.
async fn resolve_unknowns(world: &World, up: &Up, log: &Path) {
    loop {
        let page = listed(world, up, "state=unknown&tool=charge&limit=5").await;
        let unknown = page["executions"].as_array().cloned().unwrap_or_default();
        let done = effects(log);
        for execution in &unknown {
            let key = execution["key"].as_str().expect("a key");
            let ran = done.iter().any(|effect| effect.key == key);
            let outcome = if ran { "succeeded" } else { "not_executed" };
            let url = format!("{}/admin/v1/executions/{key}/resolve", up.admin.trim_end_matches('/'));
            let request = world.http.post(url).bearer_auth(TOKEN);
            let request = request.header("if-match", format!("\"{}\"", execution["version"]));
            // The relay may die of it.
            let _ =
                request.json(&json!({ "outcome": outcome, "reason": "looked it up in the tool's book" })).send().await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_effect_is_doubled_and_none_is_lost_however_often_the_relay_is_killed() {
    let kills = kills_a_point();
    let mut run = Run::new(0x5eed, true).await;
    let (mut died, mut hits) = (0, Vec::new());
    for (point, tool) in POINTS {
        run.only(tool);
        let (mut hit, mut tries) = (0, 0);
        while hit < kills && tries < kills + 5 {
            tries += 1;
            hit += u64::from(run.die_at(point, 1 + tries % 5).await);
        }
        died += hit;
        hits.push((point, hit));
    }
    run.only(None);
    for _ in 0..kills {
        run.die_unanswered().await;
    }
    hits.push((DONE_UNANSWERED, kills));
    let mut draw = Draw(7);
    for _ in 0..2 * kills {
        run.die_any_moment(Duration::from_millis(draw.below(400))).await;
    }
    hits.push((ANY_MOMENT, 2 * kills));
    died += 3 * kills;
    let life = run.finish().await;
    println!("{HEAD}");
    let (figures, problems) = run.judge(life, died, "killed").await;
    for (point, hit) in &hits {
        println!("  {point:<24} {hit:>6}");
    }
    assert!(problems.is_empty(), "{} problems: {:#?}", problems.len(), &problems[..problems.len().min(20)]);
    assert!(hits.iter().all(|(_, hit)| *hit >= kills), "a point was not hit often enough: {hits:?}");
    assert_eq!((figures.lost, figures.doubled, figures.denied), (0, 0, 0));
    assert!(figures.acknowledged > 0 && figures.unknowns <= figures.faults, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_faults_nearly_everything_runs() {
    let mut run = Run::new(0xca1f, false).await;
    let first = run.relay.start(None).await;
    for _ in 0..1200 {
        if run.world.ends.lock().expect("a lock").len() >= 300 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    first.stop().await;
    let life = run.finish().await;
    let (figures, problems) = run.judge(life, 0, "no faults").await;
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(figures.intents >= 300 && figures.acknowledged * 100 >= figures.intents * 99, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_ends_whoever_reads_it_is_told_as_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let oracle = Oracle::start(&folder.path().join("effects.log")).await;
    let mut relay = Relay::new(folder.path(), &oracle.url(""));
    relay.start(None).await.stop().await;
    assert!(relay.run(&["ledger", "verify"]).await.status.success());
    // As the database does on some kinds of damage: it aborts, which nobody in that process can hold up.
    let ended = relay.command(&["ledger", "verify"]).env("RUBICON_FAILPOINT", "ledger-file-open").output().await;
    let ended = ended.expect("the binary runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(said.contains("damaged: reading it ended in an abort"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oracle_sees_doubles_where_nobody_keeps_a_ledger() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("effects.log");
    let oracle = Oracle::start(&log).await;
    let http = reqwest::Client::builder().pool_max_idle_per_host(0).build().expect("a client");
    let mut draw = Draw(0xb9);
    let intents: u64 = 200;
    for n in 0..intents {
        let fault = if draw.below(10) < 3 { FAULTS[usize::try_from(draw.below(7)).unwrap_or(0)] } else { "none" };
        bypassing(&http, &oracle, &format!("i{n}"), fault).await;
    }
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    for effect in effects(&log) {
        *counts.entry(effect.intent).or_default() += 1;
    }
    let doubled = u64::try_from(counts.values().filter(|count| **count > 1).count()).unwrap_or(0);
    let all = counts.values().sum();
    let figures = Figures { intents, effects: all, acknowledged: intents, doubled, ..Figures::default() };
    println!("{}", figures.row("ledger bypassed"));
    assert!(doubled > 0, "the oracle is blind: {counts:?}");
}

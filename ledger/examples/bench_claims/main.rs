//! Durable claims a second: `cargo run --release -p rubicon-ledger --example bench_claims [-- FOLDER [SECONDS]]`.
//!
//! For 1, 16, 256 and 1,024 callers that claim without a pause, each claim another key: how many a second are answered after they are on the
//! disk. Beside each row, measured in turns with it because disks change their mind within seconds: how many `append 4 KiB + fdatasync` the
//! disk does, and how many claims the same store does with one commit each. Syncs are counted by the store's own backend. FOLDER must be on
//! the disk that is meant (`target/bench_claims` if none is named; a folder in memory measures nothing).

mod backend;

use std::error::Error;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use backend::Counted as Backend;
use rubicon_ledger::store::{RedbOptions, RedbStore, Store};
use rubicon_ledger::{
    Arguments, Claim, Claimed, Command, Effect, Env, Impact, Ledger, OperationId, Options, Owner, Planning, Projection,
    RootId, TenantId, ToolName, ToolRule, UnixMillis, decide,
};

type Failed = Box<dyn Error + Send + Sync>;

/// Callers of each row.
const CALLERS: [usize; 4] = [1, 16, 256, 1024];
/// Turns of each row: disk, single commits and callers take turns, since a disk changes its mind within seconds.
const TURNS: u32 = 4;
/// What the disk is asked to sync.
const BLOCK: usize = 4096;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| "target/bench_claims".to_owned());
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let (folder, span) = (Path::new(&folder), Duration::from_secs(seconds));
    fs::create_dir_all(folder)?;
    println!(
        "{:>7} {:>10} {:>10} {:>9} {:>11} {:>8} {:>7} {:>7} {:>12} {:>8} {:>8}",
        "callers",
        "fsyncs/s",
        "single/s",
        "claims/s",
        "x single",
        "x fsync",
        "batch",
        "syncs",
        "syncs/commit",
        "p50 ms",
        "p99 ms"
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    for callers in CALLERS {
        let (mut disk, mut single, mut row) = (Counted::default(), Counted::default(), Row::default());
        for _ in 0..TURNS {
            disk.add(syncs(folder, span / TURNS / 2)?);
            single.add(commits(folder, span / TURNS / 2)?);
            row.add(runtime.block_on(many(folder, span / TURNS, callers))?);
        }
        let (disk, single, row) = (disk.rate(), single.rate(), row.sum());
        println!(
            "{callers:>7} {disk:>10.0} {single:>10.0} {:>9.0} {:>11.1} {:>8.1} {:>7.1} {:>7} {:>12.2} {:>8.2} {:>8.2}",
            row.rate,
            row.rate / single,
            row.rate / disk,
            row.batch,
            row.syncs,
            row.syncs_a_commit,
            row.p50,
            row.p99
        );
    }
    Ok(())
}

/// Appends and syncs, and the seconds they took.
fn syncs(folder: &Path, span: Duration) -> Result<(f64, f64), Failed> {
    let path = folder.join("fsync.bin");
    let mut file = File::create(&path)?;
    let block = [7_u8; BLOCK];
    let (begun, mut syncs) = (clock(), 0.0);
    while begun.elapsed() < span {
        file.write_all(&block)?;
        file.sync_data()?;
        syncs += 1.0;
    }
    let passed = begun.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok((syncs, passed))
}

/// A new store in a file, which counts its syncs.
fn store(folder: &Path, syncs: &Arc<AtomicU64>) -> Result<RedbStore, Failed> {
    let (path, syncs) = (folder.join("bench.redb"), Arc::clone(syncs));
    if path.exists() {
        fs::remove_file(&path)?;
    }
    Ok(RedbStore::with_backend(RedbOptions::new([42; 32]), move |new| Backend::open(&path, new, &syncs))?)
}

/// Claims where each is a commit of its own, and the seconds they took.
fn commits(folder: &Path, span: Duration) -> Result<(f64, f64), Failed> {
    let mut store = store(folder, &Arc::default())?;
    let claims = Claims::new()?;
    let env = Env { now: now(), boot: 1, secret: store.secret() };
    let (begun, mut count) = (clock(), 0.0);
    while begun.elapsed() < span {
        let command = Command::Claim(Box::new(claims.next()?));
        let decision = decide(&command, &store, &env)?;
        store.persist(decision.writes)?;
        count += 1.0;
    }
    Ok((count, begun.elapsed().as_secs_f64()))
}

/// Things counted, and the seconds that they took.
#[derive(Default)]
struct Counted {
    count: f64,
    seconds: f64,
}

impl Counted {
    fn add(&mut self, (count, seconds): (f64, f64)) {
        self.count += count;
        self.seconds += seconds;
    }

    fn rate(&self) -> f64 {
        self.count / self.seconds
    }
}

/// What the turns of a row came to.
#[derive(Default)]
struct Row {
    took: Vec<Duration>,
    seconds: f64,
    commands: u64,
    batches: u64,
    syncs: u64,
}

struct Sum {
    rate: f64,
    batch: f64,
    syncs: u64,
    syncs_a_commit: f64,
    p50: f64,
    p99: f64,
}

impl Row {
    fn add(&mut self, turn: Self) {
        self.took.extend(turn.took);
        self.seconds += turn.seconds;
        self.commands += turn.commands;
        self.batches += turn.batches;
        self.syncs += turn.syncs;
    }

    fn sum(mut self) -> Sum {
        self.took.sort_unstable();
        let took = &self.took;
        let at =
            |share: f64| took.get((took.len() as f64 * share) as usize).map_or(0.0, |took| took.as_secs_f64() * 1e3);
        Sum {
            rate: took.len() as f64 / self.seconds,
            batch: self.commands as f64 / self.batches as f64,
            syncs: self.syncs,
            syncs_a_commit: self.syncs as f64 / self.batches as f64,
            p50: at(0.50),
            p99: at(0.99),
        }
    }
}

/// Claims a second of so many callers at once.
async fn many(folder: &Path, span: Duration, callers: usize) -> Result<Row, Failed> {
    let syncs = Arc::new(AtomicU64::new(0));
    let ledger = Ledger::start(Box::new(store(folder, &syncs)?), Options::new(Arc::new(now), 1))?;
    let claims = Arc::new(Claims::new()?);
    let before = syncs.load(Ordering::SeqCst);
    let begun = clock();
    let asking = (0..callers).map(|_| {
        let (ledger, claims) = (ledger.clone(), Arc::clone(&claims));
        tokio::spawn(async move {
            let mut took = Vec::new();
            while begun.elapsed() < span {
                let asked = clock();
                match ledger.claim(claims.next()?).await? {
                    Claimed::Execute { .. } => took.push(asked.elapsed()),
                    other => return Err(Failed::from(format!("not a new claim: {other:?}"))),
                }
            }
            Ok(took)
        })
    });
    let mut took = Vec::new();
    for one in asking.collect::<Vec<_>>() {
        took.extend(one.await??);
    }
    let passed = begun.elapsed().as_secs_f64();
    let (stats, syncs) = (ledger.stats(), syncs.load(Ordering::SeqCst) - before);
    ledger.close();
    Ok(Row { took, seconds: passed, commands: stats.commands, batches: stats.batches, syncs })
}

/// Claims, each of a payment of its own.
struct Claims {
    tenant: TenantId,
    tool: Arc<ToolRule>,
    made: AtomicU64,
}

impl Claims {
    fn new() -> Result<Self, Failed> {
        let projection = Projection::new(vec!["/invoice".parse()?], Vec::new())?;
        let tool = ToolRule {
            name: ToolName::new("pay_invoice")?,
            effect: Effect::Write,
            impact: Impact::Normal,
            projection: Arc::new(projection),
            max_runs: 3,
            guard_similar: true,
            approve_before_run: false,
            has_probe: false,
            owner: None,
        };
        Ok(Self { tenant: TenantId::new("bench")?, tool: Arc::new(tool), made: AtomicU64::new(0) })
    }

    fn next(&self) -> Result<Claim, Failed> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let arguments =
            format!(r#"{{"invoice":"INV-{number:08}","amount":"120.50","currency":"EUR","reason":"monthly fee"}}"#);
        let operation = OperationId::new(&format!("op_{number}"))?;
        Ok(Claim {
            tenant: self.tenant.clone(),
            root: RootId::from(operation.clone()),
            operation: Some(operation),
            tool: Arc::clone(&self.tool),
            arguments: Arguments::parse(arguments.as_bytes())?,
            occurrence: None,
            tool_call_id: None,
            claim_id: None,
            owner: Owner::Client,
            lease_ms: 3_600_000,
            confirm: None,
            planning: Planning::Complete,
            flags: Vec::new(),
            by: Arc::from("bench"),
        })
    }
}

/// What is measured with.
#[expect(clippy::disallowed_methods, reason = "a measurement is of real time")]
fn clock() -> Instant {
    Instant::now()
}

fn now() -> UnixMillis {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    UnixMillis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

//! Durable claims a second: `cargo run --release -p rubicon-ledger --example bench_claims [-- FOLDER [SECONDS]]`.
//!
//! For 1, 16, 256 and 1,024 callers that claim without a pause, each claim another key: how many a second are answered after they are on the
//! disk. Beside each row, measured just before it because disks change their mind within minutes: how many `append 4 KiB + fdatasync` the
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

use backend::Counted;
use rubicon_ledger::store::{RedbOptions, RedbStore, Store};
use rubicon_ledger::{
    Arguments, Claim, Claimed, Command, Effect, Env, Impact, Ledger, OperationId, Options, Owner, Planning, Projection,
    RootId, TenantId, ToolName, ToolRule, UnixMillis, decide,
};

type Failed = Box<dyn Error + Send + Sync>;

/// Callers of each row.
const CALLERS: [usize; 4] = [1, 16, 256, 1024];
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
        let part = span / 2;
        let (disk, single) = (disk(folder, part)?, single(folder, part)?);
        let row = runtime.block_on(many(folder, span, callers))?;
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

/// Appends and syncs a second.
fn disk(folder: &Path, span: Duration) -> Result<f64, Failed> {
    let path = folder.join("fsync.bin");
    let mut file = File::create(&path)?;
    let block = [7_u8; BLOCK];
    let (begun, mut syncs) = (clock(), 0.0);
    while begun.elapsed() < span {
        file.write_all(&block)?;
        file.sync_data()?;
        syncs += 1.0;
    }
    let rate = syncs / begun.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(rate)
}

/// A new store in a file, which counts its syncs.
fn store(folder: &Path, syncs: &Arc<AtomicU64>) -> Result<RedbStore, Failed> {
    let (path, syncs) = (folder.join("bench.redb"), Arc::clone(syncs));
    if path.exists() {
        fs::remove_file(&path)?;
    }
    Ok(RedbStore::with_backend(RedbOptions::new([42; 32]), move |new| Counted::open(&path, new, &syncs))?)
}

/// Claims a second where each is a commit of its own.
fn single(folder: &Path, span: Duration) -> Result<f64, Failed> {
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
    Ok(count / begun.elapsed().as_secs_f64())
}

struct Row {
    rate: f64,
    batch: f64,
    syncs: u64,
    syncs_a_commit: f64,
    p50: f64,
    p99: f64,
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
    took.sort_unstable();
    let at = |share: f64| took.get((took.len() as f64 * share) as usize).map_or(0.0, |took| took.as_secs_f64() * 1e3);
    Ok(Row {
        rate: took.len() as f64 / passed,
        batch: stats.commands as f64 / stats.batches as f64,
        syncs,
        syncs_a_commit: syncs as f64 / stats.batches as f64,
        p50: at(0.50),
        p99: at(0.99),
    })
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

//! A million executions: `cargo run --release -p rubicon-ledger --example million [-- RECORDS [FOLDER]]`.
//!
//! A child process fills a ledger by the way of every program (claims and completions, group commit) and ends as `kill -9` would, without
//! closing anything. Then: how long it takes until claims are taken again, what a page of unknowns costs beside a page of everything, claims
//! a second, memory, the walk of `verify`, a backup. Of a hundred executions 97 succeeded, one is unknown, one planned, one under a lease.
//! FOLDER must be on the disk that is meant (`target/million`).

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rubicon_ledger::store::{Filter, RedbOptions, RedbStore};
use rubicon_ledger::{
    Arguments, Claim, Claimed, Complete, Effect, Impact, Ledger, OperationId, Options, Outcome, Owner, Plan, Planning,
    Projection, RootId, Settlement, State, TenantId, ToolName, ToolResult, ToolRule, UnixMillis,
};

type Failed = Box<dyn Error + Send + Sync>;

/// Executions where no number is given.
const RECORDS: u64 = 1_000_000;
/// Callers at once while it is filled.
const CALLERS: u64 = 1024;
/// Says to the child what it is.
const CHILD: &str = "RUBICON_MILLION_CHILD";

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let records = arguments.next().map_or(Ok(RECORDS), |text| text.parse())?;
    let folder = arguments.next().unwrap_or_else(|| "target/million".to_owned());
    let path = Path::new(&folder).join("million.redb");
    if std::env::var_os(CHILD).is_some() {
        return fill(&path, records);
    }
    fs::create_dir_all(&folder)?;
    for file in fs::read_dir(&folder)? {
        fs::remove_file(file?.path())?;
    }
    let begun = clock();
    let executable = std::env::current_exe()?;
    let child =
        std::process::Command::new(executable).args([&records.to_string(), &folder]).env(CHILD, "1").output()?;
    if child.status.success() || child.status.code().is_some() {
        return Err(format!("the child was to die by a signal: {child:?}").into());
    }
    say("filled, then killed", &format!("{:.0} s", begun.elapsed().as_secs_f64()));
    say("file", &format!("{} MiB", fs::metadata(&path)?.len() >> 20));
    measure(&path, &Path::new(&folder).join("copy.redb"))
}

fn say(what: &str, figure: &str) {
    println!("{what:<44} {figure:>14}");
}

fn seconds(begun: Instant) -> String {
    format!("{:.3} s", begun.elapsed().as_secs_f64())
}

fn start(path: &Path, boot: u64) -> Result<Ledger, Failed> {
    let store = RedbStore::open(path, RedbOptions::new([42; 32]))?;
    Ok(Ledger::start(Box::new(store), Options::new(Arc::new(now), boot))?)
}

/// Fills it and dies.
fn fill(path: &Path, records: u64) -> Result<(), Failed> {
    let ledger = start(path, 1)?;
    let calls = Arc::new(Calls::new(0)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    runtime.block_on(async {
        let asking = (0..CALLERS).map(|_| tokio::spawn(fill_some(ledger.clone(), Arc::clone(&calls), records)));
        for one in asking.collect::<Vec<_>>() {
            one.await??;
        }
        Ok::<(), Failed>(())
    })?;
    // What goes behind is written by the batches of those who wait.
    ledger.submit_blocking(rubicon_ledger::Command::Claim(Box::new(calls.claim(calls.next())?)))?;
    std::process::abort()
}

async fn fill_some(ledger: Ledger, calls: Arc<Calls>, records: u64) -> Result<(), Failed> {
    loop {
        let number = calls.next();
        if number >= records {
            return Ok(());
        }
        if number.is_multiple_of(100) {
            while !ledger.plan(calls.plan(number)?) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            continue;
        }
        let Claimed::Execute { record, lease_token } = ledger.claim(calls.claim(number)?).await? else {
            return Err(format!("{number} is no new claim").into());
        };
        let outcome = match number % 100 {
            1 => continue,
            2 => Outcome::Unknown,
            _ => Outcome::Succeeded,
        };
        let body = format!(r#"{{"charge":"ch_{number:012}","status":"paid"}}"#);
        let result = ToolResult { status: Some(200), content_type: None, body: Arc::from(body.as_bytes()) };
        let result = (outcome == Outcome::Succeeded).then_some(result);
        let complete = Complete {
            tenant: calls.tenant.clone(),
            key: record.key,
            lease_token,
            outcome,
            settlement: Settlement { result, external_reference: None, error: None },
            why: Arc::from(""),
            evidence: Vec::new(),
            by: Arc::from("million"),
        };
        ledger.complete(complete).await?.map_err(|denied| denied.to_string())?;
    }
}

fn measure(path: &Path, copy: &Path) -> Result<(), Failed> {
    let begun = clock();
    let ledger = start(path, 2)?;
    say("start after kill -9, until claims are taken", &seconds(begun));
    let calls = Arc::new(Calls::new(u64::MAX / 2)?);
    let begun = clock();
    ledger.submit_blocking(rubicon_ledger::Command::Claim(Box::new(calls.claim(calls.next())?)))?;
    say("the first claim", &seconds(begun));
    let reader = ledger.reader();
    for (what, state) in [("a page of 100 unknowns", Some(State::Unknown)), ("a page of 100 of all", None)] {
        let begun = clock();
        let page = reader.list(&Filter { state, ..Filter::default() }, 100)?;
        say(&format!("{what} ({} came)", page.records.len()), &seconds(begun));
    }
    let begun = clock();
    let (mut after, mut unknown) = (0, 0);
    loop {
        let page = reader.list(&Filter { state: Some(State::Unknown), after, ..Filter::default() }, 1000)?;
        unknown += page.records.len();
        let Some(next) = page.next else { break };
        after = next;
    }
    say(&format!("all unknowns, page by page ({unknown})"), &seconds(begun));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    let begun = clock();
    let count = 20_000;
    runtime.block_on(async {
        let asking = (0..256).map(|_| {
            let (ledger, calls) = (ledger.clone(), Arc::clone(&calls));
            tokio::spawn(async move {
                for _ in 0..count / 256 {
                    ledger.claim(calls.claim(calls.next())?).await?;
                }
                Ok::<(), Failed>(())
            })
        });
        for one in asking.collect::<Vec<_>>() {
            one.await??;
        }
        Ok::<(), Failed>(())
    })?;
    say("claims a second, 256 callers", &format!("{:.0}", f64::from(count) / begun.elapsed().as_secs_f64()));
    say("memory so far (VmHWM)", &memory());
    let begun = clock();
    let verdict = reader.verify(None)?;
    say(&format!("verify: {} entries, ok {}", verdict.entries, verdict.ok), &seconds(begun));
    let begun = clock();
    reader.backup(copy)?;
    say("backup", &seconds(begun));
    say("memory in all (VmHWM)", &memory());
    ledger.close();
    if verdict.ok { Ok(()) } else { Err(format!("it does not verify: {verdict:?}").into()) }
}

/// The most resident memory that this process ever had.
fn memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown kB").trim();
    let kib: Option<u64> = line.split(' ').next().and_then(|text| text.parse().ok());
    kib.map_or_else(|| line.to_owned(), |kib| format!("{} MiB", kib >> 10))
}

/// Calls of one tool, each of a payment of its own.
struct Calls {
    tenant: TenantId,
    tool: Arc<ToolRule>,
    made: AtomicU64,
}

impl Calls {
    fn new(first: u64) -> Result<Self, Failed> {
        let tool = ToolRule {
            name: ToolName::new("pay_invoice")?,
            effect: Effect::Write,
            impact: Impact::Normal,
            projection: Arc::new(Projection::new(vec!["/invoice".parse()?], Vec::new())?),
            max_runs: 3,
            guard_similar: true,
            approve_before_run: false,
            has_probe: false,
            owner: Some(Arc::from("payments")),
        };
        Ok(Self { tenant: TenantId::new("million")?, tool: Arc::new(tool), made: AtomicU64::new(first) })
    }

    fn next(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    fn arguments(number: u64) -> Result<Arguments, Failed> {
        let text = format!(r#"{{"invoice":"INV-{number:020}","amount":"120.50","currency":"EUR","reason":"fee"}}"#);
        Ok(Arguments::parse(text.as_bytes())?)
    }

    fn plan(&self, number: u64) -> Result<Plan, Failed> {
        let operation = OperationId::new(&format!("op_{number}"))?;
        Ok(Plan {
            tenant: self.tenant.clone(),
            root: RootId::from(operation.clone()),
            operation,
            tool: Arc::clone(&self.tool),
            arguments: Self::arguments(number)?,
            occurrence: rubicon_ledger::Occurrence(0),
            tool_call_id: Some(Arc::from(format!("call_{number}"))),
            flags: Vec::new(),
        })
    }

    fn claim(&self, number: u64) -> Result<Claim, Failed> {
        let operation = OperationId::new(&format!("op_{number}"))?;
        Ok(Claim {
            tenant: self.tenant.clone(),
            root: RootId::from(operation.clone()),
            operation: Some(operation),
            tool: Arc::clone(&self.tool),
            arguments: Self::arguments(number)?,
            occurrence: None,
            tool_call_id: None,
            claim_id: None,
            owner: Owner::Client,
            lease_ms: 3_600_000,
            confirm: None,
            planning: Planning::Complete,
            flags: Vec::new(),
            by: Arc::from("million"),
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

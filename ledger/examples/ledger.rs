//! The ledger as a library, without the relay: `cargo run -p rubicon-ledger --example ledger [-- FILE]`.
//!
//! One payment is claimed, run and settled; asked again it is answered from the record; in other words it is a conflict. A second one is
//! lost on its way: nobody knows, nothing runs it again, and a person settles it. At the end the journal is verified. Without FILE the store
//! is in memory; with it a redb file that a second run of this example finds again.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rubicon_ledger::store::{MemoryStore, RedbOptions, RedbStore, Store};
use rubicon_ledger::{
    Arguments, Change, Claim, Claimed, Command, Complete, Effect, IfMatch, Impact, Ledger, OperationId, Options,
    Outcome, Owner, Planning, Projection, Record, Reply, RootId, Settlement, TenantId, ToolName, ToolResult, ToolRule,
    UnixMillis, Verb,
};

type Failed = Box<dyn Error>;

fn main() -> Result<(), Failed> {
    // A program uses random bytes here: the store makes its secret of them, and the ledger's life its name.
    let fresh = [7; 32];
    let store: Box<dyn Store> = match std::env::args().nth(1) {
        None => Box::new(MemoryStore::new(fresh)),
        Some(file) => Box::new(RedbStore::open(Path::new(&file), RedbOptions::new(fresh))?),
    };
    // A clock that can be turned, so that a lease may run out in this example.
    let ahead = Arc::new(AtomicU64::new(0));
    let clock = {
        let ahead = Arc::clone(&ahead);
        Arc::new(move || UnixMillis(wall()).plus(ahead.load(Ordering::SeqCst)))
    };
    let ledger = Ledger::start(store, Options::new(clock, 1))?;

    let first = claim(r#"{"invoice":"INV-7","amount":"120.50","reason":"monthly fee"}"#)?;
    match ask(&ledger, first.clone())? {
        Claimed::Execute { record, lease_token } => {
            println!("claimed      {} is {}: run it", short(&record), record.state.name());
            let settled = ledger.submit_blocking(complete(&record, lease_token, b"paid, receipt 991"))?;
            if let Reply::Changed(changed) = settled {
                println!("completed    it is {}", changed?.record.state.name());
            }
        }
        other => println!("found        {}", told(&other)),
    }
    println!("asked again  {}", told(&ask(&ledger, first)?));
    let reworded = claim(r#"{"invoice":"INV-7","amount":"120.50","reason":"the fee for November"}"#)?;
    println!("reworded     {}", told(&ask(&ledger, reworded)?));

    // Whoever runs the next one dies: its lease runs out.
    let second = claim(r#"{"invoice":"INV-8","amount":"80.00","reason":"deposit"}"#)?;
    let key = match ask(&ledger, second.clone())? {
        Claimed::Execute { record, .. } => record.key,
        other => {
            println!("found        {}", told(&other));
            return finish(&ledger);
        }
    };
    let waiting = ledger.changed(&key)?;
    ahead.fetch_add(60_000, Ordering::SeqCst);
    tokio::runtime::Builder::new_current_thread().build()?.block_on(waiting.moved());
    println!("lost         {}", told(&ask(&ledger, second.clone())?));

    let verdict = Change {
        key,
        if_match: IfMatch::Any,
        by: Arc::from("anna"),
        verb: Verb::Resolve { outcome: Outcome::Succeeded, settlement: settlement(b"receipt 992") },
        reason: Arc::from("the bank's statement shows it"),
    };
    if let Reply::Changed(changed) = ledger.submit_blocking(Command::Change(Box::new(verdict)))? {
        println!("resolved     by a person: it is {}", changed?.record.state.name());
    }
    println!("asked again  {}", told(&ask(&ledger, second)?));
    finish(&ledger)
}

fn finish(ledger: &Ledger) -> Result<(), Failed> {
    ledger.close();
    let head = ledger.head();
    let verdict = ledger.reader().verify(Some(&head.hash))?;
    for entry in ledger.reader().entries(1, 100)? {
        println!(
            "  {:>3} {:<9} {:>9} -> {:<9} by {} {}",
            entry.sequence, entry.action, entry.from, entry.to, entry.by, entry.reason
        );
    }
    println!("verified     ok={} entries={} records={}", verdict.ok, verdict.entries, verdict.records);
    if verdict.ok { Ok(()) } else { Err("the journal is broken".into()) }
}

fn ask(ledger: &Ledger, claim: Claim) -> Result<Claimed, Failed> {
    match ledger.submit_blocking(Command::Claim(Box::new(claim)))? {
        Reply::Claimed(claimed) => Ok(claimed),
        other => Err(format!("not an answer to a claim: {other:?}").into()),
    }
}

/// An answer in one line.
fn told(claimed: &Claimed) -> String {
    match claimed {
        Claimed::Execute { record, .. } => format!("execute {}", short(record)),
        Claimed::UseResult(record) => {
            let result = record.settlement.as_ref().and_then(|settled| settled.result.as_ref());
            let body = result.map(|result| String::from_utf8_lossy(&result.body).into_owned());
            format!("use_result: {}", body.unwrap_or_default())
        }
        Claimed::InProgress(record) => format!("in_progress {}", short(record)),
        Claimed::Reconcile(record) => {
            format!("reconcile: {} is {}, it does not run again", short(record), record.state.name())
        }
        Claimed::Stop(record) => format!("stop {}", short(record)),
        Claimed::Confirm { why, .. } => format!("confirm: {}", why.name()),
        Claimed::AwaitApproval(record) => format!("await_approval {}", short(record)),
        Claimed::Conflict { differs, .. } => {
            let pointers: Vec<String> = differs.pointers.iter().map(ToString::to_string).collect();
            format!("conflict: the same payment in other words at {}", pointers.join(", "))
        }
        Claimed::Gone(record) => format!("gone {}", short(record)),
    }
}

fn short(record: &Record) -> String {
    record.key.to_string().chars().take(11).collect()
}

/// A claim of a payment; invoice and amount say which.
fn claim(arguments: &str) -> Result<Claim, Failed> {
    let tool = ToolRule {
        name: ToolName::new("pay_invoice")?,
        effect: Effect::Write,
        impact: Impact::Normal,
        projection: Arc::new(Projection::new(vec!["/invoice".parse()?, "/amount".parse()?], Vec::new())?),
        max_runs: 3,
        guard_similar: true,
        approve_before_run: false,
        has_probe: false,
        owner: None,
    };
    Ok(Claim {
        tenant: TenantId::new("support")?,
        root: RootId::new("run-12")?,
        operation: Some(OperationId::new("op-1")?),
        tool: Arc::new(tool),
        arguments: Arguments::parse(arguments.as_bytes())?,
        occurrence: None,
        tool_call_id: None,
        claim_id: None,
        owner: Owner::Client,
        lease_ms: 30_000,
        confirm: None,
        planning: Planning::MayBeLost,
        flags: Vec::new(),
        by: Arc::from("support-bot"),
    })
}

fn complete(record: &Record, lease_token: Arc<str>, body: &[u8]) -> Command {
    Command::Complete(Box::new(Complete {
        tenant: record.tenant.clone(),
        key: record.key,
        lease_token,
        outcome: Outcome::Succeeded,
        settlement: settlement(body),
        why: Arc::from("answered"),
        evidence: Vec::new(),
        by: Arc::from("support-bot"),
    }))
}

fn settlement(body: &[u8]) -> Settlement {
    let result = ToolResult { status: Some(200), content_type: Some(Arc::from("text/plain")), body: Arc::from(body) };
    Settlement { result: Some(result), external_reference: None, error: None }
}

fn wall() -> u64 {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

//! The writer over a store that fails, waits and counts as a test asks.

mod batches;
mod behind;
mod failure;
mod life;
mod overlay;
mod store;
mod toy;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use self::store::{Fault, Shared};
use super::kept::Kept;
use super::*;
use crate::canonical::Arguments;
use crate::command::{Planning, ToolRule};
use crate::ids::{Occurrence, OperationId, RootId, TenantId, ToolName};
use crate::project::Projection;
use crate::record::{Effect, Flag, Impact, Outcome, Owner, Settlement, ToolResult};

/// A clock that a test turns, in milliseconds.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

struct Bench {
    store: Shared,
    clock: Clock,
    ledger: Ledger,
}

const BOOT: u64 = 77;

fn options(clock: &Clock, queue_max: usize, behind_max: usize) -> Options {
    let clock = Arc::clone(&clock.0);
    let clock = Arc::new(move || UnixMillis(clock.load(Ordering::SeqCst)));
    Options { queue_max, behind_max, ..Options::new(clock, BOOT) }
}

fn bench() -> Bench {
    over(Shared::default(), 10_000, 10_000)
}

fn over(store: Shared, queue_max: usize, behind_max: usize) -> Bench {
    let clock = Clock(Arc::new(AtomicU64::new(1_000_000)));
    let ledger =
        Ledger::start_with(Box::new(store.clone()), options(&clock, queue_max, behind_max), toy::decide).unwrap();
    Bench { store, clock, ledger }
}

fn rule() -> Arc<ToolRule> {
    Arc::new(ToolRule {
        name: ToolName::new("pay").unwrap(),
        effect: Effect::Write,
        impact: Impact::Normal,
        projection: Arc::new(Projection::default()),
        max_runs: 3,
        guard_similar: false,
        approve_before_run: false,
        has_probe: false,
        owner: None,
    })
}

fn words(invoice: u64) -> Arguments {
    Arguments::parse(format!(r#"{{"invoice":{invoice}}}"#).as_bytes()).unwrap()
}

fn claim(invoice: u64) -> Claim {
    Claim {
        tenant: TenantId::new("t").unwrap(),
        root: RootId::new("r").unwrap(),
        operation: Some(OperationId::new("op").unwrap()),
        tool: rule(),
        arguments: words(invoice),
        occurrence: None,
        tool_call_id: None,
        claim_id: None,
        owner: Owner::Client,
        lease_ms: 60_000,
        confirm: None,
        planning: Planning::Complete,
        flags: Vec::new(),
        by: "app".into(),
    }
}

fn plan(invoice: u64) -> Plan {
    Plan {
        tenant: TenantId::new("t").unwrap(),
        root: RootId::new("r").unwrap(),
        operation: OperationId::new("op").unwrap(),
        tool: rule(),
        arguments: words(invoice),
        occurrence: Occurrence::default(),
        tool_call_id: None,
        flags: Vec::new(),
    }
}

fn complete(key: ExecutionKey, lease_token: &Arc<str>) -> Command {
    let result = ToolResult { status: Some(200), content_type: None, body: Arc::from(&b"ok"[..]) };
    Command::Complete(Box::new(Complete {
        tenant: TenantId::new("t").unwrap(),
        key,
        lease_token: Arc::clone(lease_token),
        outcome: Outcome::Succeeded,
        settlement: Settlement { result: Some(result), external_reference: None, error: None },
        why: "".into(),
        evidence: Vec::new(),
        by: "app".into(),
    }))
}

fn ask(ledger: &Ledger, claim: Claim) -> Result<Claimed, Unavailable> {
    match ledger.submit_blocking(Command::Claim(Box::new(claim)))? {
        Reply::Claimed(claimed) => Ok(claimed),
        other => panic!("{other:?}"),
    }
}

fn run(ledger: &Ledger, invoice: u64) -> (Record, Arc<str>) {
    match ask(ledger, claim(invoice)) {
        Ok(Claimed::Execute { record, lease_token }) => (*record, lease_token),
        other => panic!("{other:?}"),
    }
}

/// Asks again and again until `so`; fails after a generous time.
fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let start = queue::now();
    loop {
        if let Some(out) = ask() {
            return out;
        }
        assert!(start.elapsed().as_secs() < 30, "waited 30 s");
        thread::park_timeout(std::time::Duration::from_millis(5));
    }
}

/// While the writer is held: so many claims, then `behind`, in one batch; their answers by invoice.
fn in_one_batch(
    bench: &Bench,
    invoices: std::ops::Range<u64>,
    behind: impl FnOnce(),
) -> Vec<Result<Claimed, Unavailable>> {
    bench.store.with(|inside| inside.held = true);
    let ask_for = |invoice: u64| {
        let ledger = bench.ledger.clone();
        thread::spawn(move || ask(&ledger, claim(invoice)))
    };
    let first = ask_for(1_000_000);
    bench.store.until(|inside| inside.inside == 1);
    let count = invoices.end - invoices.start;
    let asking: Vec<_> = invoices.map(ask_for).collect();
    behind();
    eventually(|| (bench.ledger.stats().queued == count).then_some(()));
    bench.store.with(|inside| inside.held = false);
    assert!(first.join().unwrap().is_ok());
    asking.into_iter().map(|one| one.join().unwrap()).collect()
}

/// Polls on this thread until it is done: the ledger needs no runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(out) => return out,
            std::task::Poll::Pending => thread::park(),
        }
    }
}

//! The writer over a store that fails, waits and counts as a test asks.

mod store;
mod toy;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use self::store::{Fault, Shared};
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

#[test]
fn two_hundred_claims_of_one_key_run_once() {
    let bench = bench();
    bench.store.with(|inside| inside.held = true);
    let asking: Vec<_> = (0..200)
        .map(|_| {
            let ledger = bench.ledger.clone();
            thread::spawn(move || ask(&ledger, claim(1)).unwrap())
        })
        .collect();
    // All but the first batch wait while its commit runs, and none is answered before it has ended.
    eventually(|| (bench.ledger.stats().queued > 100).then_some(()));
    assert_eq!(asking.iter().filter(|one| one.is_finished()).count(), 0);
    bench.store.with(|inside| inside.held = false);
    let answers: Vec<Claimed> = asking.into_iter().map(|one| one.join().unwrap()).collect();
    let runs = answers.iter().filter(|one| matches!(one, Claimed::Execute { .. })).count();
    let waits = answers.iter().filter(|one| matches!(one, Claimed::InProgress(_))).count();
    assert_eq!((runs, waits), (1, 199));
    assert_eq!(bench.ledger.stats().started, 1);
}

#[test]
fn what_waits_while_a_commit_runs_is_one_commit() {
    let bench = bench();
    bench.store.with(|inside| inside.held = true);
    let ask_for = |invoice: u64| {
        let ledger = bench.ledger.clone();
        thread::spawn(move || run(&ledger, invoice))
    };
    let mut asking = vec![ask_for(0)];
    bench.store.until(|inside| inside.inside == 1);
    asking.extend((1..=100).map(ask_for));
    eventually(|| (bench.ledger.stats().queued == 100).then_some(()));
    bench.store.with(|inside| inside.held = false);
    for one in asking {
        one.join().unwrap();
    }
    assert_eq!(bench.store.with(|inside| inside.batches.clone()), [1, 100]);
    let stats = bench.ledger.stats();
    assert_eq!((stats.batches, stats.commands, stats.largest_batch, stats.started), (2, 101, 100, 101));
}

#[test]
fn a_full_queue_refuses_at_once_and_the_queued_ones_are_answered() {
    let bench = over(Shared::default(), 2, 10);
    bench.store.with(|inside| inside.held = true);
    let ask_for = |invoice: u64| {
        let ledger = bench.ledger.clone();
        thread::spawn(move || ask(&ledger, claim(invoice)))
    };
    let first = ask_for(0);
    bench.store.until(|inside| inside.inside == 1);
    let queued = [ask_for(1), ask_for(2)];
    eventually(|| (bench.ledger.stats().queued == 2).then_some(()));
    assert_eq!(ask(&bench.ledger, claim(3)).unwrap_err(), Unavailable::Busy);
    bench.store.with(|inside| inside.held = false);
    assert!(first.join().unwrap().is_ok());
    assert!(queued.into_iter().all(|one| one.join().unwrap().is_ok()));
}

#[test]
fn a_plan_is_met_by_the_claim_after_it_though_nothing_of_it_was_persisted() {
    let bench = bench();
    // The writer is busy, so that all plans still wait when the claim comes.
    bench.store.with(|inside| inside.held = true);
    let first = thread::spawn({
        let ledger = bench.ledger.clone();
        move || run(&ledger, 0)
    });
    bench.store.until(|inside| inside.inside == 1);
    for invoice in 1..=1000 {
        assert!(bench.ledger.plan(plan(invoice)));
    }
    let claimed = thread::spawn({
        let ledger = bench.ledger.clone();
        move || run(&ledger, 1000).0
    });
    eventually(|| (bench.ledger.stats().queued == 1).then_some(()));
    bench.store.with(|inside| inside.held = false);
    assert!(first.join().unwrap().0.flags.contains(&Flag::Unplanned));
    let record = claimed.join().unwrap();
    assert!(record.flags.is_empty(), "{:?}", record.flags);
    // It was one of the first 65 plans that were persisted although it came last; the others follow without any command.
    assert!(record.sequence < 100, "{}", record.sequence);
    eventually(|| (bench.ledger.stats().behind == 0).then_some(()));
    let stats = bench.ledger.stats();
    assert_eq!((stats.plans, stats.planned, stats.started), (1000, 999, 2));
}

#[test]
fn plans_beyond_the_bound_are_refused_at_once() {
    let bench = over(Shared::default(), 10, 3);
    bench.store.with(|inside| inside.held = true);
    let told: Vec<bool> = (0..5).map(|invoice| bench.ledger.plan(plan(invoice))).collect();
    assert_eq!(told, [true, true, true, false, false]);
    bench.store.with(|inside| inside.held = false);
    eventually(|| bench.ledger.plan(plan(9)).then_some(()));
}

#[test]
fn sightings_are_read_from_memory_at_once_and_from_the_store_later() {
    let bench = bench();
    bench.store.with(|inside| inside.held = true);
    let sighting = |digest: u8, operation: &str| Sighting {
        digest: [digest; 16],
        root: RootId::new("r").unwrap(),
        operation: OperationId::new(operation).unwrap(),
        key: None,
        at: UnixMillis(1),
    };
    assert!(bench.ledger.saw(vec![sighting(1, "a"), sighting(2, "b")]));
    assert!(bench.ledger.saw(vec![sighting(1, "c")]));
    let of = |digest: u8| bench.ledger.sighting(&[digest; 16]).unwrap().map(|found| found.operation.to_string());
    assert_eq!((of(1), of(2), of(3)), (Some("c".to_owned()), Some("b".to_owned()), None));
    bench.store.with(|inside| inside.held = false);
    bench.ledger.close();
    let stored = Reader::sighting(&bench.store, &[1; 16]).unwrap().unwrap();
    assert_eq!(stored.operation.as_str(), "c");
}

#[test]
fn after_a_failure_nothing_is_taken_until_the_store_is_open_again() {
    for fault in [Fault::Before, Fault::After, Fault::Panic] {
        let bench = bench();
        bench.store.with(|inside| {
            inside.fault = Some(fault);
            inside.reopen_fails = true;
        });
        assert!(matches!(ask(&bench.ledger, claim(1)), Err(Unavailable::Store(_))));
        assert!(!bench.ledger.is_available() && bench.ledger.failure().is_some());
        assert!(matches!(ask(&bench.ledger, claim(2)), Err(Unavailable::Store(_))));
        assert!(bench.ledger.plan(plan(5)), "plans wait in memory meanwhile");
        bench.store.with(|inside| inside.reopen_fails = false);
        // Whether the first one was written is the store's to tell: never does it run twice.
        let answer = eventually(|| ask(&bench.ledger, claim(1)).ok());
        assert_eq!(matches!(answer, Claimed::Execute { .. }), fault == Fault::Before);
        assert!(bench.ledger.is_available() && bench.ledger.failure().is_none());
        eventually(|| (bench.ledger.stats().planned == 1).then_some(()));
        let stats = bench.ledger.stats();
        assert_eq!((stats.failures, stats.reopened, stats.started), (1, 1, 1));
    }
}

#[test]
fn an_outcome_that_could_not_be_stored_is_stored_after_reopening_before_its_lease_is_looked_at() {
    let bench = bench();
    let (record, token) = run(&bench.ledger, 1);
    bench.store.with(|inside| {
        inside.fault = Some(Fault::Before);
        inside.reopen_fails = true;
    });
    for _ in 0..3 {
        let told = bench.ledger.submit_blocking(complete(record.key, &token));
        assert!(matches!(told, Err(Unavailable::Store(_))));
    }
    assert_eq!(bench.ledger.stats().kept, 1, "said three times, kept once");
    // Long past its lease: the outcome goes first all the same.
    bench.clock.0.fetch_add(3_600_000, Ordering::SeqCst);
    bench.store.with(|inside| inside.reopen_fails = false);
    let answer = eventually(|| ask(&bench.ledger, claim(1)).ok());
    assert!(matches!(answer, Claimed::UseResult(_)), "{answer:?}");
    assert_eq!(bench.ledger.stats().kept, 0);
}

#[test]
fn a_damaged_place_is_the_affair_of_its_own_command() {
    let bench = bench();
    let (record, _) = run(&bench.ledger, 1);
    bench.store.with(|inside| {
        inside.damaged.insert(record.key);
        inside.held = true;
    });
    let ask_for = |invoice: u64| {
        let ledger = bench.ledger.clone();
        thread::spawn(move || ask(&ledger, claim(invoice)))
    };
    let first = ask_for(0);
    bench.store.until(|inside| inside.inside == 1);
    let mut others: Vec<_> = (2..6).map(ask_for).collect();
    let damaged = ask_for(1);
    others.push(first);
    eventually(|| (bench.ledger.stats().queued == 5).then_some(()));
    bench.store.with(|inside| inside.held = false);
    assert!(matches!(damaged.join().unwrap(), Err(Unavailable::Store(_))));
    assert!(others.into_iter().all(|one| one.join().unwrap().is_ok()));
    assert!(bench.ledger.is_available());
}

#[test]
fn what_another_life_ran_itself_is_unknown_before_the_first_command() {
    let bench = bench();
    let own = |boot| Claim { owner: Owner::Own { boot }, ..claim(boot) };
    for boot in 0..1200 {
        ask(&bench.ledger, own(boot)).unwrap();
    }
    run(&bench.ledger, 5000);
    bench.ledger.close();
    let again = over(bench.store.clone(), 10, 10);
    let stats = again.ledger.stats();
    assert_eq!((stats.unknown, stats.started), (1199, 2), "all but this life's and the client's");
    assert!(matches!(ask(&again.ledger, own(3)), Ok(Claimed::Reconcile(_))));
    assert!(matches!(ask(&again.ledger, own(BOOT)), Ok(Claimed::InProgress(_))));
}

#[test]
fn a_lease_that_runs_out_leads_to_unknown_by_itself_and_wakes_who_waits() {
    let bench = bench();
    let (record, _) = run(&bench.ledger, 1);
    let waiter = bench.ledger.changed(&record.key).unwrap();
    bench.clock.0.fetch_add(60_000, Ordering::SeqCst);
    block_on(waiter.moved());
    assert_eq!(bench.store.record(&record.key).unwrap().state, State::Unknown);
    assert_eq!(bench.ledger.stats().unknown, 1);
}

#[test]
fn more_than_a_thousand_do_not_wait_for_one_execution() {
    let bench = bench();
    let (record, token) = run(&bench.ledger, 1);
    let mut waiting: Vec<Waiter> = (0..MAX_WAITERS).map(|_| bench.ledger.changed(&record.key).unwrap()).collect();
    assert_eq!(bench.ledger.changed(&record.key).unwrap_err(), Unavailable::Busy);
    drop(waiting.pop());
    let late = bench.ledger.changed(&record.key).unwrap();
    bench.ledger.submit_blocking(complete(record.key, &token)).unwrap();
    for waiter in waiting {
        block_on(waiter.moved());
    }
    block_on(late.moved());
}

#[test]
fn whoever_waits_learns_that_the_ledger_has_ended() {
    let bench = bench();
    let (record, _) = run(&bench.ledger, 1);
    let waiter = bench.ledger.changed(&record.key).unwrap();
    bench.ledger.close();
    block_on(waiter.moved());
    assert_eq!(ask(&bench.ledger, claim(2)).unwrap_err(), Unavailable::Closed);
    assert!(!bench.ledger.plan(plan(2)) && !bench.ledger.saw(Vec::new()) && !bench.ledger.is_available());
}

#[test]
fn the_end_persists_what_waits_and_is_marked() {
    let bench = bench();
    assert_eq!(bench.ledger.unclean_stop(), None);
    assert!((0..2000).all(|invoice| bench.ledger.plan(plan(invoice))));
    bench.ledger.close();
    bench.ledger.close();
    assert_eq!(bench.store.with(|inside| inside.records.len()), 2000);
    assert_eq!(bench.store.life(), Life::Stopped { at: UnixMillis(1_000_000) });
    // As after a kill: the mark of the life stays.
    let again = over(bench.store.clone(), 10, 10);
    bench.store.with(|inside| inside.fault = Some(Fault::Before));
    bench.store.with(|inside| inside.reopen_fails = true);
    let _ = ask(&again.ledger, claim(9000));
    drop(again);
    assert_eq!(over(bench.store.clone(), 10, 10).ledger.unclean_stop(), Some(UnixMillis(1_000_000)));
}

#[test]
fn an_observer_sees_each_transition_before_its_answer_and_cannot_end_the_ledger() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let store = Shared::default();
    let clock = Clock::default();
    let observer: Observer = {
        let seen = Arc::clone(&seen);
        Arc::new(move |transition: &Transition<'_>| {
            lock(&seen).push((transition.from, transition.record.state));
            panic!("a bad observer");
        })
    };
    let options = Options { observer: Some(observer), ..options(&clock, 10, 10) };
    let ledger = Ledger::start_with(Box::new(store), options, toy::decide).unwrap();
    let (record, token) = run(&ledger, 1);
    assert_eq!(*lock(&seen), [(None, State::Started)]);
    ledger.submit_blocking(complete(record.key, &token)).unwrap();
    assert_eq!(lock(&seen)[1], (Some(State::Started), State::Succeeded));
}

#[test]
fn a_caller_that_leaves_takes_nothing_back() {
    let bench = bench();
    bench.store.with(|inside| inside.held = true);
    {
        let mut asking = std::pin::pin!(bench.ledger.claim(claim(1)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(asking.as_mut().poll(&mut context).is_pending());
    }
    bench.store.with(|inside| inside.held = false);
    assert!(matches!(ask(&bench.ledger, claim(1)), Ok(Claimed::InProgress(_))));
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

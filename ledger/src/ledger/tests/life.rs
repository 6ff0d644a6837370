//! Starts, ends, leases and those who wait.

use super::*;

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
    assert_eq!(bench.store.with(|inside| inside.running), None);
    // As after a kill: the mark of the life stays.
    let again = over(bench.store.clone(), 10, 10);
    bench.store.with(|inside| inside.fault = Some(Fault::Before));
    bench.store.with(|inside| inside.reopen_fails = true);
    let _ = ask(&again.ledger, claim(9000));
    drop(again);
    assert_eq!(over(bench.store.clone(), 10, 10).ledger.unclean_stop(), Some(UnixMillis(1_000_000)));
}

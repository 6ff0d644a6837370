//! A store that fails or is damaged: nothing runs twice, nothing that is known is lost, and others go on.

use super::*;

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
fn what_cannot_be_written_is_the_affair_of_its_own_command_or_plan() {
    let bench = bench();
    let key = |invoice: u64| {
        let (plan, rule) = (plan(invoice), rule());
        let slot = rule.projection.apply(&plan.arguments).unwrap().slot;
        crate::store::first_key(&plan.tenant, &plan.root, &rule.name, slot, plan.occurrence)
    };
    bench.store.with(|inside| inside.unwritable.extend([key(3), key(23)]));
    let answers = in_one_batch(&bench, 0..8, || {
        assert!((20..26).all(|invoice| bench.ledger.plan(plan(invoice))));
    });
    let refused: Vec<usize> = (0..8).filter(|at| answers[*at].is_err()).collect();
    assert_eq!(refused, [3], "{answers:?}");
    eventually(|| (bench.ledger.stats().behind == 0).then_some(()));
    let stats = bench.ledger.stats();
    assert_eq!((stats.plans, stats.plans_lost, stats.planned), (5, 1, 5));
    assert!(bench.ledger.is_available());
}

#[test]
fn outcomes_are_kept_up_to_a_bound_of_number_and_of_bytes() {
    let key = |number: u32| {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        ExecutionKey::from_bytes(bytes)
    };
    let token: Arc<str> = "lease".into();
    let mut kept = Kept::default();
    let room = (0..2000).filter(|number| kept.keep(complete(key(*number), &token))).count();
    assert_eq!((room, kept.len()), (1024, 1024));
    assert!(kept.keep(Command::Reported { key: key(1) }), "nothing else is kept, and that is no loss");

    let mut kept = Kept::default();
    let large = |number: u32| {
        let Command::Complete(mut complete) = complete(key(number), &token) else { panic!() };
        complete.settlement.result.as_mut().unwrap().body = vec![0; 8 * 1024 * 1024].into();
        Command::Complete(complete)
    };
    let room = (0..10).filter(|number| kept.keep(large(*number))).count();
    assert_eq!(room, 7);
    // A part is one commit's; one that is larger goes alone.
    let parts: Vec<usize> = std::iter::from_fn(|| Some(kept.part().len()).filter(|part| *part > 0)).collect();
    assert_eq!(parts, [1; 7]);
    assert!(kept.keep(large(11)), "their room is free again");
}

//! Plans and sightings: never waited for, never missed, never starved.

use super::*;

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
fn a_claim_never_misses_a_plan_that_was_taken_before_it() {
    let bench = bench();
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let ledger = bench.ledger.clone();
            thread::spawn(move || {
                for one in 0..200 {
                    let invoice = thread * 1000 + one;
                    assert!(ledger.plan(plan(invoice)));
                    let (record, _) = run(&ledger, invoice);
                    assert!(record.flags.is_empty(), "{invoice}: {:?}", record.flags);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let stats = bench.ledger.stats();
    assert_eq!((stats.planned, stats.started, stats.plans), (0, 1600, 1600));
}

#[test]
fn plans_are_not_starved_by_commands() {
    let bench = bench();
    let asked = in_one_batch(&bench, 0..100, || {
        assert!((1000..1200).all(|invoice| bench.ledger.plan(plan(invoice))));
    });
    assert!(asked.iter().all(Result::is_ok));
    // Of the batch with a hundred commands a part is plans.
    assert_eq!(bench.store.with(|inside| inside.batches[1]), 100 + crate::ledger::behind::PLANS_BESIDE);
}

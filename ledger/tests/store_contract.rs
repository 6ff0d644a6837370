//! What every store keeps, run over each of them, and each compared with the plainest one after random batches.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy exempts only the test functions themselves")]

use rubicon_ledger::store::{
    CallDigest, Expected, Filter, MemoryStore, Put, RedbOptions, RedbStore, Sighting, Store, StoreError, View, Write,
};
use rubicon_ledger::{GENESIS, Head, OperationId, RootId, State, UnixMillis};

mod stores;
use stores::disk::Disk;
use stores::{Maker, changed, draft, evidence, listed, made, put_of, record, settled, shown};

const FRESH: [u8; 32] = [7; 32];

fn redb() -> RedbStore {
    let options = RedbOptions { sightings_max: 40, ..RedbOptions::new(FRESH) };
    let disk = Disk::default();
    RedbStore::with_backend(options, move |_| Ok(disk.backend())).unwrap()
}

fn each(test: impl Fn(&mut dyn Store)) {
    test(&mut MemoryStore::with_sightings_max(FRESH, 40));
    test(&mut redb());
}

#[test]
fn a_new_store_is_empty_and_says_so() {
    each(|store| {
        assert_eq!(store.head(), Head { sequence: 0, hash: GENESIS.into() });
        assert_eq!((store.next_sequence(), store.is_gap_open()), (1, false));
        let verdict = store.reader().verify(None).unwrap();
        assert!(verdict.ok && verdict.entries == 0 && verdict.records == 0);
        assert!(!store.reader().verify(Some(&"ab".repeat(32))).unwrap().ok, "a head that is not there");
        assert!(store.reader().list(&Filter::default(), 10).unwrap().records.is_empty());
        assert_ne!(store.secret(), FRESH, "the secret is made of the random bytes, and they are not kept");
    });
}

#[test]
fn a_conflict_writes_nothing() {
    each(|store| {
        let first = record(1, 10, 1_000);
        store.persist(vec![made(first.clone())]).unwrap();
        let before = shown(store);
        let (_, good) = changed(&first, "note", 2_000, |record| record.assigned_to = Some("bob".into()));
        let stale = |change: fn(&mut Expected)| {
            let mut put = good.clone();
            put.expected.iter_mut().for_each(change);
            Write::Put(Box::new(put))
        };
        let new = |sequence, n| made(record(sequence, n, 2_000));
        let cases = [
            vec![stale(|expected| expected.version = 2)],
            vec![stale(|expected| expected.epoch = 2)],
            vec![stale(|expected| expected.state = State::Unknown)],
            vec![Write::Put(Box::new(Put { expected: None, ..good.clone() }))],
            vec![new(2, 11), Write::Note(draft(1, "reload", None)), stale(|expected| expected.version = 9)],
            vec![new(3, 11)],
            vec![new(1, 11)],
            vec![new(2, 11), new(3, 11)],
            vec![Write::Put(Box::new(Put {
                expected: Some(Expected::of(&first)),
                record: record(2, 12, 1),
                ..good.clone()
            }))],
        ];
        for (number, batch) in cases.into_iter().enumerate() {
            assert_eq!(store.persist(batch), Err(StoreError::Conflict), "case {number}");
            assert_eq!(shown(store), before, "case {number}");
        }
        store.persist(vec![Write::Put(Box::new(good))]).unwrap();
    });
}

#[test]
fn what_was_written_is_found_in_every_way() {
    each(|store| {
        let first = record(1, 1, 1_000);
        let call = CallDigest([3; 32]);
        let mut put = put_of(first.clone());
        put.call = Some(call);
        put.evidence = vec![evidence(1_000, "sending", "{}"), evidence(1_001, "answer", "{\"status\":200}")];
        let (second, done) = settled(&first, 2_000, b"paid");
        store.persist(vec![Write::Put(Box::new(put)), made(record(2, 2, 1_500)), Write::Put(Box::new(done))]).unwrap();
        let reader = store.reader();
        assert_eq!(reader.record(&first.key).unwrap().as_ref(), Some(&second));
        assert_eq!(View::record(store, &first.key).unwrap().as_ref(), Some(&second));
        assert_eq!(store.call(&call).unwrap(), Some(first.occurrence));
        assert_eq!(store.call(&CallDigest([4; 32])).unwrap(), None);
        let actions: Vec<_> =
            reader.history(&first.key, 10).unwrap().iter().map(|entry| entry.action.to_string()).collect();
        assert_eq!(actions, ["claim", "complete"]);
        assert_eq!(reader.history(&first.key, 1).unwrap().len(), 1, "the newest");
        assert_eq!(&*reader.history(&first.key, 1).unwrap()[0].action, "complete");
        assert_eq!(reader.evidence(&first.key).unwrap().len(), 2);
        assert_eq!(store.due(UnixMillis(40_000), 10).unwrap(), [(record(2, 2, 1_500).key, 1)]);
        assert_eq!(store.due(UnixMillis(31_499), 10).unwrap(), [], "not yet");
        assert_eq!(store.open_records(0, 10).unwrap().len(), 1);
        assert_eq!(store.open_records(2, 10).unwrap().len(), 0);
        let recent = store.recent(&first.tenant, &first.root, &first.tool, 10).unwrap();
        assert_eq!(recent, [second]);
    });
}

#[test]
fn the_newest_run_of_a_read_is_found_by_the_key_without_its_run() {
    each(|store| {
        // Numbers that differ by 126 agree in tenant, root, tool and in the key without the run.
        let runs: Vec<_> = (0..3).map(|n| record(n + 1, 2 + n * 126, 1_000)).collect();
        let base = runs[0].base.unwrap();
        assert!(runs.iter().all(|run| run.base == Some(base)));
        for (n, run) in runs.iter().enumerate() {
            store.persist(vec![made(run.clone())]).unwrap();
            assert_eq!(View::record(store, &base).unwrap().unwrap().sequence, n as u64 + 1);
        }
        let (after, put) = settled(&runs[0], 2_000, b"old");
        store.persist(vec![Write::Put(Box::new(put))]).unwrap();
        assert_eq!(View::record(store, &base).unwrap().unwrap().key, runs[2].key, "newest, not last changed");
        assert_eq!(View::record(store, &after.key).unwrap().unwrap(), after);
        let newest_first: Vec<_> = store.recent(&after.tenant, &after.root, &after.tool, 2).unwrap();
        assert_eq!(newest_first.iter().map(|run| run.sequence).collect::<Vec<_>>(), [3, 2]);
    });
}

#[test]
fn erased_content_is_gone_and_the_chain_still_holds() {
    each(|store| {
        let first = record(1, 10, 1_000);
        let mut put = put_of(first.clone());
        put.evidence = vec![evidence(1_000, "answer", "{\"secret\":1}")];
        let (second, done) = settled(&first, 2_000, &vec![b'x'; 50_000]);
        let (_, erase) = changed(&second, "erase", 3_000, |record| {
            (record.erased, record.arguments, record.settlement) = (true, None, None);
        });
        store.persist(vec![Write::Put(Box::new(put))]).unwrap();
        store.persist(vec![Write::Put(Box::new(done))]).unwrap();
        let head = store.persist(vec![Write::Put(Box::new(erase))]).unwrap();
        let reader = store.reader();
        let found = reader.record(&first.key).unwrap().unwrap();
        assert!(found.erased && found.arguments.is_none() && found.settlement.is_none());
        assert_eq!(&*reader.evidence(&first.key).unwrap()[0].detail, "{}");
        let verdict = reader.verify(Some(&head.hash)).unwrap();
        assert!(verdict.ok, "{verdict:?}");
        assert_eq!((verdict.records, verdict.erased, verdict.entries), (1, 1, 3));
    });
}

#[test]
fn sightings_are_bounded_by_number_and_age() {
    each(|store| {
        let sighting = |n: u8, at| Sighting {
            digest: [n; 16],
            root: RootId::new("run").unwrap(),
            operation: OperationId::new("op").unwrap(),
            key: None,
            at: UnixMillis(at),
        };
        for n in 0..50 {
            store.persist(vec![Write::Sightings(vec![sighting(n, u64::from(n))])]).unwrap();
        }
        let reader = store.reader();
        let known = |n: u8| reader.sighting(&[n; 16]).unwrap().is_some();
        assert!(!known(9) && known(10) && known(49), "the oldest went");
        store.persist(vec![Write::Sightings(vec![sighting(10, 60)])]).unwrap();
        store.persist(vec![Write::Sightings(vec![sighting(100, 61)])]).unwrap();
        assert!(known(10) && !known(11), "seen again is young again");
        store.persist(vec![Write::Sightings(vec![sighting(101, 62 + 24 * 60 * 60 * 1000)])]).unwrap();
        assert!(known(101) && !known(10) && !known(100), "a day later the others are old");
        assert!(reader.verify(None).unwrap().ok);
    });
}

#[test]
fn gap_and_mark_are_kept() {
    each(|store| {
        store.persist(vec![Write::Gap(true, draft(1, "restored", None))]).unwrap();
        assert_eq!(store.mark_running(Some(UnixMillis(5))).unwrap(), None);
        assert!(store.is_gap_open());
        store.reopen(&store.head()).unwrap();
        assert_eq!(store.mark_running(Some(UnixMillis(6))).unwrap(), Some(UnixMillis(5)), "it did not end in order");
        assert_eq!(store.mark_running(None).unwrap(), Some(UnixMillis(6)));
        assert_eq!(store.mark_running(Some(UnixMillis(7))).unwrap(), None);
        store.persist(vec![Write::Gap(false, draft(2, "gap_ended", None))]).unwrap();
        assert!(!store.is_gap_open());
        assert_eq!(store.head().sequence, 2);
    });
}

#[test]
fn random_batches_leave_the_same_in_every_store() {
    for seed in 0..12 {
        let mut maker = Maker::new(seed);
        let mut memory = MemoryStore::with_sightings_max(FRESH, 40);
        let mut redb = redb();
        for _ in 0..25 {
            let batch = maker.batch(12);
            let head = memory.persist(batch.clone()).unwrap();
            assert_eq!(redb.persist(batch).unwrap(), head, "seed {seed}");
        }
        let (left, right) = (shown(&memory), shown(&redb));
        assert_eq!(left, right, "seed {seed}");
        assert_eq!(left.records, maker.records, "seed {seed}");
        let (one, two) = (memory.reader(), redb.reader());
        for filter in filters() {
            for limit in [1, 7, 1_000] {
                assert_eq!(listed(&*one, &filter, limit), listed(&*two, &filter, limit), "seed {seed} {filter:?}");
            }
        }
        let (one, two) = (one.verify(None).unwrap(), two.verify(None).unwrap());
        assert!(one.ok, "seed {seed} {one:?}");
        assert_eq!(one, two, "seed {seed}");
    }
}

fn filters() -> Vec<Filter> {
    let sample = record(1, 1, 0);
    let none = Filter::default();
    vec![
        none.clone(),
        Filter { state: Some(State::Unknown), ..none.clone() },
        Filter { state: Some(State::Succeeded), ..none.clone() },
        Filter { tenant: Some(sample.tenant.clone()), state: Some(State::Started), ..none.clone() },
        Filter { operation: sample.operation.clone(), ..none.clone() },
        Filter { root: Some(sample.root.clone()), ..none.clone() },
        Filter { root: Some(sample.root), tenant: Some(sample.tenant), tool: Some(sample.tool), ..none.clone() },
        Filter { owner: Some("payments".into()), changed_before: Some(UnixMillis(1_700_000_100_000)), ..none.clone() },
        Filter { after: 20, ..none },
    ]
}

//! Crashes, simulated at every write of our tables and our writer (LEDGER.md 5.3), and disks that fail or fill.
//!
//! The disk keeps what was synced and a random part of what was not, torn at 512 bytes; the opening afterwards may crash again, up to
//! four times. What is found must be what was acknowledged, or that and the one batch that was on its way; the chain must hold and the index
//! be whole. `RUBICON_CRASH_SEEDS` asks for more seeds, `RUBICON_CRASH_FROM` begins elsewhere.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy exempts only the test functions themselves"
)]

use std::sync::{Arc, Mutex};

use rubicon_ledger::store::{MemoryStore, OpenError, RedbOptions, RedbStore, Store, StoreError};

mod stores;
use stores::disk::Disk;
use stores::{Maker, Rng, made, record, settled, shown};

const FRESH: [u8; 32] = [7; 32];

/// Seeds of one run in the gate.
const SEEDS: u64 = 1_000;

fn options() -> RedbOptions {
    // A small cache, so that pages are written and read again within a batch, too.
    RedbOptions { cache_bytes: 64 << 10, sightings_max: 20, ..RedbOptions::new(FRESH) }
}

fn open(disk: &Disk) -> Result<RedbStore, OpenError> {
    let disk = disk.clone();
    RedbStore::with_backend(options(), move |_| Ok(disk.backend()))
}

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A store with some batches in it, and the judge that had the same.
fn filled(maker: &mut Maker, batches: u64) -> (Disk, MemoryStore) {
    let (disk, mut judge) = (Disk::default(), MemoryStore::with_sightings_max(FRESH, 20));
    let mut store = open(&disk).unwrap();
    for _ in 0..batches {
        let batch = maker.batch(6);
        judge.persist(batch.clone()).unwrap();
        store.persist(batch).unwrap();
    }
    drop(store);
    (disk, judge)
}

/// Opens what a crash left, crashing up to four times while it does.
fn recovered(mut image: Vec<u8>, rng: &mut Rng) -> (Disk, u64) {
    let mut again = 0;
    while again < 4 && rng.one_in(2) {
        let disk = Disk::of(image.clone());
        disk.fail_after(Some(rng.below(12)));
        let opened = open(&disk);
        again += 1;
        image = disk.crashed(rng);
        drop(opened);
    }
    (Disk::of(image), again)
}

/// One life that ends in a crash after `cut` more changes of the disk; how often opening crashed again, and whether the batch on its way was there.
fn one(seed: u64, cut: Option<u64>) -> (u64, bool) {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9) ^ 0xC0FFEE);
    let mut maker = Maker::new(seed);
    maker.body_max = 20_000;
    let batches = rng.below(6);
    let (disk, mut judge) = filled(&mut maker, batches);
    let mut store = open(&disk).unwrap();
    disk.fail_after(Some(cut.unwrap_or_else(|| rng.below(60))));
    let mut head = store.head();
    let last = loop {
        let batch = maker.batch(6);
        let asked = batch.clone();
        match store.persist(batch) {
            Ok(now) => {
                assert_eq!(judge.persist(asked).unwrap(), now, "seed {seed}");
                head = now;
            }
            Err(StoreError::Io(_)) => break asked,
            Err(other) => panic!("seed {seed}: {other}"),
        }
    };
    assert!(store.persist(vec![]).is_err(), "seed {seed}: a store that failed takes nothing");
    let image = disk.crashed(&mut rng);
    drop(store);
    let (disk, again) = recovered(image, &mut rng);
    let mut store = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let verdict = store.reader().verify(Some(&head.hash)).unwrap();
    assert!(verdict.ok, "seed {seed}: {verdict:?}");
    let found = shown(&store);
    let in_flight = found != shown(&judge);
    if in_flight {
        judge.persist(last).unwrap();
        assert_eq!(found, shown(&judge), "seed {seed}: what was acknowledged, and no more than the one batch");
    }
    // And life goes on.
    maker.records.clone_from(&found.records);
    let batch = maker.batch(4);
    assert_eq!(store.persist(batch.clone()).unwrap(), judge.persist(batch).unwrap(), "seed {seed}");
    assert!(store.reader().verify(None).unwrap().ok, "seed {seed}");
    (again, in_flight)
}

#[test]
fn nothing_acknowledged_is_lost_wherever_it_crashes() {
    let (from, seeds) = (env("RUBICON_CRASH_FROM", 0), env("RUBICON_CRASH_SEEDS", SEEDS));
    let threads = 2;
    let results: Vec<(u64, bool)> = std::thread::scope(|scope| {
        let part = |of: u64| (from..from + seeds).filter(move |seed| seed % threads == of);
        let running: Vec<_> = (0..threads)
            .map(|of| scope.spawn(move || part(of).map(|seed| one(seed, None)).collect::<Vec<_>>()))
            .collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let again: u64 = results.iter().map(|(again, _)| again).sum();
    let in_flight = results.iter().filter(|(_, in_flight)| *in_flight).count() as u64;
    // A test that never crashed in a repair, or never caught a batch on its way, would prove little.
    assert!(again > seeds / 4, "{again} crashes while opening");
    assert!(in_flight > 0, "no batch on its way was found");
    println!("{seeds} seeds, {again} crashes while opening, {in_flight} batches on their way were there");
}

#[test]
fn nothing_acknowledged_is_lost_at_each_write_in_turn() {
    for cut in 0..150 {
        one(7, Some(cut));
    }
}

#[test]
fn no_batch_is_acknowledged_before_it_is_synced() {
    let disk = Disk::default();
    let mut store = open(&disk).unwrap();
    let mut maker = Maker::new(3);
    for _ in 0..50 {
        let before = disk.syncs();
        let head = store.persist(maker.batch(6)).unwrap();
        assert!(disk.syncs() > before);
        // The worst crash, right now: nothing that was not synced survives.
        let found = open(&Disk::of(disk.synced())).unwrap();
        assert_eq!(found.head(), head);
    }
}

#[test]
fn a_failed_disk_is_opened_anew_in_place() {
    let mut maker = Maker::new(11);
    let (disk, mut judge) = filled(&mut maker, 5);
    let mut store = open(&disk).unwrap();
    let mut failures = 0;
    for round in 0..60 {
        disk.fail_after(Some(round % 23));
        let (before, saved) = (maker.clone(), store.head());
        let batch = maker.batch(6);
        match store.persist(batch.clone()) {
            Ok(head) => assert_eq!(judge.persist(batch).unwrap(), head),
            Err(StoreError::Io(_)) => {
                failures += 1;
                assert!(store.persist(vec![]).is_err());
                assert!(store.reopen(&saved).is_err(), "the disk is still gone");
                disk.fail_after(None);
                store.reopen(&saved).unwrap();
                if store.head() == saved {
                    maker = before;
                } else {
                    assert_eq!(judge.persist(batch).unwrap(), store.head());
                }
            }
            Err(other) => panic!("{other}"),
        }
        disk.fail_after(None);
        assert_eq!(shown(&store), shown(&judge));
    }
    assert!(failures > 10);
    assert!(store.reader().verify(Some(&judge.head().hash)).unwrap().ok);
}

#[test]
fn reopening_finds_that_what_was_saved_is_gone() {
    let mut maker = Maker::new(5);
    let (disk, _) = filled(&mut maker, 3);
    let (old, place) = (Disk::of(disk.image()), Arc::new(Mutex::new(disk)));
    let mut store = RedbStore::with_backend(options(), {
        let place = Arc::clone(&place);
        move |_| Ok(place.lock().unwrap().backend())
    })
    .unwrap();
    let saved = store.persist(maker.batch(6)).unwrap();
    store.reopen(&saved).unwrap();
    // Somebody puts an older copy in its place.
    *place.lock().unwrap() = old;
    assert!(matches!(store.reopen(&saved), Err(StoreError::Damaged(_))));
    assert!(store.persist(vec![]).is_err(), "and takes nothing");
}

#[test]
fn a_full_disk_refuses_and_recovers_when_there_is_room() {
    let disk = Disk::default();
    let mut store = open(&disk).unwrap();
    let mut judge = MemoryStore::with_sightings_max(FRESH, 20);
    disk.set_room(Some(disk.image().len() as u64 + (2 << 20)));
    let (mut sequence, mut refused) = (0, 0);
    while refused < 3 {
        let first = record(sequence + 1, sequence + 1, 1_000);
        let (_, done) = settled(&first, 2_000, &vec![b'x'; 200_000]);
        let batch = vec![made(first), rubicon_ledger::store::Write::Put(Box::new(done))];
        match store.persist(batch.clone()) {
            Ok(head) => {
                assert_eq!(judge.persist(batch).unwrap(), head);
                sequence += 1;
            }
            Err(StoreError::Io(why)) => {
                assert!(why.contains("space") || why.contains("full") || why.contains("storage"), "{why}");
                refused += 1;
                let reopened = store.reopen(&judge.head());
                if reopened.is_err() {
                    // A repair may need room, too.
                    disk.set_room(None);
                    store.reopen(&judge.head()).unwrap();
                }
            }
            Err(other) => panic!("{other}"),
        }
        assert!(sequence < 200, "the disk never was full");
    }
    assert_eq!(shown(&store), shown(&judge), "nothing that was acknowledged is lost, and nothing else is there");
    disk.set_room(None);
    let batch = vec![made(record(sequence + 1, sequence + 1, 1_000))];
    assert_eq!(store.persist(batch.clone()).unwrap(), judge.persist(batch).unwrap());
    assert!(store.reader().verify(None).unwrap().ok);
}

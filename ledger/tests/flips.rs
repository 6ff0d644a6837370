//! Files that somebody or something has changed: one bit flipped anywhere, or the journal's end cut off.
//!
//! For each flip: opening fails, or verifying says that it is broken, or everything that a store shows is what it was. Never a panic that
//! gets out, never a record that is silently another one. `RUBICON_FLIPS` asks for more, `RUBICON_FLIPS_FROM` begins elsewhere.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy exempts only the test functions themselves")]

use std::panic;

use redb::backends::InMemoryBackend;
use redb::{Database, ReadableDatabase as _, TableDefinition};
use rubicon_ledger::store::{RedbOptions, RedbStore, Store as _, StoreError};
use rubicon_ledger::{Head, UnixMillis};

mod stores;
use stores::disk::Disk;
use stores::{Maker, Rng, Shown, try_shown};

/// Flips of one run in the gate.
const FLIPS: u64 = 10_000;

/// Flips at which redb 4.6.0 panics again while it unwinds from its own panic, so that the process aborts: nothing false is shown, but no
/// code of ours can make an error of it. Looked at again with each new version of redb.
const ABORTS: &[u64] = &[7831];

/// Longest that a flipped file may become.
const ROOM_BYTES: u64 = 8 << 20;

type Change<'a> = &'a dyn Fn(&mut redb::Table<'_, &'static [u8; 25], ()>);

fn open(disk: &Disk, check_all: bool) -> Result<RedbStore, rubicon_ledger::store::OpenError> {
    let disk = disk.clone();
    let options = RedbOptions { check_all, cache_bytes: 4 << 20, ..RedbOptions::new([7; 32]) };
    RedbStore::with_backend(options, move |_| Ok(disk.backend()))
}

/// A closed file with a bit of everything in it, its head, and what it shows.
fn filled() -> (Vec<u8>, Head, Shown) {
    let (disk, mut maker) = (Disk::default(), Maker::new(21));
    maker.body_max = 20_000;
    let mut store = open(&disk, false).unwrap();
    for _ in 0..12 {
        store.persist(maker.batch(6)).unwrap();
    }
    store.mark_running(Some(UnixMillis(5))).unwrap();
    let (head, shown) = (store.head(), try_shown(&store).unwrap());
    drop(store);
    (disk.image(), head, shown)
}

#[derive(Debug, Default)]
struct Counts {
    refused: u64,
    broken: u64,
    same: u64,
}

/// What became of one flip.
fn judge(image: Vec<u8>, check_all: bool, head: &Head, was: &Shown, counts: &mut Counts, what: &str) {
    // A length that was flipped must not make a file of gigabytes.
    let disk = Disk::of(image);
    disk.set_room(Some(ROOM_BYTES));
    let Ok(store) = open(&disk, check_all) else {
        counts.refused += 1;
        return;
    };
    let verdict = store.reader().verify(Some(&head.hash));
    if !verdict.as_ref().is_ok_and(|verdict| verdict.ok) {
        counts.broken += 1;
        // And whatever is read of it is an answer or an error.
        let _ = try_shown(&store);
        return;
    }
    let found: Result<Shown, StoreError> = try_shown(&store);
    assert_eq!(found.as_ref(), Ok(was), "{what}");
    assert_eq!(store.secret(), expected_secret(), "{what}");
    counts.same += 1;
}

fn expected_secret() -> [u8; 32] {
    open(&Disk::default(), false).unwrap().secret()
}

#[test]
fn a_flipped_bit_is_refused_found_or_without_effect() {
    let number = |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (from, flips) = (number("RUBICON_FLIPS_FROM", 0), number("RUBICON_FLIPS", FLIPS));
    let (image, head, was) = filled();
    // redb's panics are caught and are no news.
    panic::set_hook(Box::new(|_| {}));
    let threads = 2;
    let run = |of: u64| {
        let mut counts = Counts::default();
        for seed in (from..from + flips).filter(|seed| seed % threads == of) {
            if ABORTS.contains(&seed) {
                counts.refused += 1;
                continue;
            }
            let mut rng = Rng(seed);
            let (at, bit) = (rng.below(image.len() as u64) as usize, rng.below(8));
            let mut flipped = image.clone();
            flipped[at] ^= 1 << bit;
            judge(flipped, rng.one_in(4), &head, &was, &mut counts, &format!("seed {seed}: byte {at}, bit {bit}"));
        }
        counts
    };
    let counts: Vec<Result<Counts, String>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|of| scope.spawn(move || run(of))).collect();
        running.into_iter().map(|thread| thread.join().map_err(|panic| message(&*panic))).collect()
    });
    drop(panic::take_hook());
    let counts: Vec<_> = counts.into_iter().map(|counts| counts.unwrap()).collect();
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
    let (refused, broken, same) = (sum(|c| c.refused), sum(|c| c.broken), sum(|c| c.same));
    println!("{} bytes, {flips} flips: {refused} refused, {broken} broken, {same} without effect", image.len());
    assert_eq!(refused + broken + same, flips);
    assert!(refused > 0 && broken > 0 && same > 0, "each must have been met");
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// The same tables, by someone who knows redb and not our hashes.
fn tampered(image: &[u8], change: impl FnOnce(&Database)) -> Disk {
    let disk = Disk::of(image.to_vec());
    let database = redb::Builder::new().create_with_backend(disk.backend()).unwrap();
    change(&database);
    drop(database);
    disk
}

#[test]
fn a_cut_off_tail_is_found_with_a_kept_head_only() {
    let (image, head, _) = filled();
    const JOURNAL: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("journal");
    let disk = tampered(&image, |database| {
        let transaction = database.begin_write().unwrap();
        for number in head.sequence - 9..=head.sequence {
            transaction.open_table(JOURNAL).unwrap().remove(number).unwrap();
        }
        transaction.commit().unwrap();
    });
    let store = open(&disk, true).unwrap();
    let verdict = store.reader().verify(Some(&head.hash)).unwrap();
    assert!(!verdict.ok && verdict.entries == head.sequence - 10, "{verdict:?}");
}

#[test]
fn the_end_of_a_journal_without_records_is_cut_off() {
    let disk = Disk::default();
    let mut store = open(&disk, false).unwrap();
    let note = |n| rubicon_ledger::store::Write::Note(stores::draft(n, "reload", None));
    store.persist((0..10).map(note).collect()).unwrap();
    let shorter = {
        let (store_head, image) = (store.head(), disk.image());
        store.persist((10..20).map(note).collect()).unwrap();
        assert_ne!(store.head(), store_head);
        image
    };
    let kept = store.head();
    drop(store);
    let store = open(&Disk::of(shorter), false).unwrap();
    let reader = store.reader();
    assert!(reader.verify(None).unwrap().ok, "nothing in it tells");
    let broken = reader.verify(Some(&kept.hash)).unwrap().broken.unwrap();
    assert_eq!((broken.sequence, &*broken.why), (11, "cut_off"));
}

#[test]
fn a_row_that_the_index_lacks_or_has_too_many_of_is_found() {
    let (image, head, _) = filled();
    const INDEX: TableDefinition<'_, &[u8; 25], ()> = TableDefinition::new("index");
    let all: Vec<[u8; 25]> = {
        let database = redb::Builder::new().create_with_backend(Disk::of(image.clone()).backend()).unwrap();
        let table = database.begin_read().unwrap().open_table(INDEX).unwrap();
        redb::ReadableTable::iter(&table).unwrap().map(|row| *row.unwrap().0.value()).collect()
    };
    let verdict_after = |change: Change<'_>| {
        let disk = tampered(&image, |database| {
            let transaction = database.begin_write().unwrap();
            change(&mut transaction.open_table(INDEX).unwrap());
            transaction.commit().unwrap();
        });
        open(&disk, true).unwrap().reader().verify(Some(&head.hash)).unwrap()
    };
    assert!(verdict_after(&|_| ()).ok, "a change of nothing");
    for row in &all {
        let verdict = verdict_after(&|table| drop(table.remove(row).unwrap()));
        assert_eq!(verdict.broken.map(|broken| broken.why.to_string()).as_deref(), Some("index_differs"), "{row:?}");
    }
    for section in *b"kbporsdhx" {
        let mut row = all[0];
        (row[0], row[24]) = (section, 99);
        let verdict = verdict_after(&|table| drop(table.insert(&row, ()).unwrap()));
        assert!(!verdict.ok, "{section}");
    }
}

#[test]
fn something_else_than_a_ledger_is_refused() {
    let other = Database::builder().create_with_backend(InMemoryBackend::new());
    assert!(other.is_ok());
    let disk = Disk::default();
    let database = Database::builder().create_with_backend(disk.backend()).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(TableDefinition::<u64, u64>::new("cats")).unwrap().insert(1, 1).unwrap();
    transaction.commit().unwrap();
    drop(database);
    assert!(open(&disk, false).unwrap_err().to_string().contains("other tables"));
    for image in [vec![0; 4096], b"{}".repeat(5_000), vec![0xff; 100_000]] {
        assert!(open(&Disk::of(image), false).is_err());
    }
}

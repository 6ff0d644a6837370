//! Files: made, in use, gone, looked at while nobody runs them, copied and put back.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy exempts only the test functions themselves")]

use std::fs;
use std::path::{Path, PathBuf};

use rubicon_ledger::store::{
    BackupError, OpenError, RedbOptions, RedbStore, Store, View, backup_offline, keep_head, open_offline, restore,
};

mod stores;
use stores::{Maker, draft, listed, shown};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rubicon-ledger-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Result<RedbStore, OpenError> {
    RedbStore::open(path, RedbOptions::new([7; 32]))
}

#[test]
fn one_process_has_the_file_and_what_it_wrote_is_there_again() {
    let folder = Folder::new("file");
    let path = folder.at("deep/ledger.redb");
    let mut maker = Maker::new(1);
    let mut store = open(&path).unwrap();
    store.persist(maker.batch(20)).unwrap();
    assert!(matches!(open(&path), Err(OpenError::InUse(_))));
    assert!(matches!(open_offline(&path, false), Err(OpenError::InUse(_))));
    let before = shown(&store);
    drop(store);
    assert_eq!(shown(&open(&path).unwrap()), before);
}

#[test]
fn a_ledger_that_lost_what_was_in_it_is_not_begun_anew() {
    let folder = Folder::new("lost");
    let path = folder.at("ledger.redb");
    let mut maker = Maker::new(1);
    let mut store = open(&path).unwrap();
    store.persist(maker.batch(20)).unwrap();
    drop(store);
    fs::copy(&path, folder.at("old")).unwrap();
    let mut store = open(&path).unwrap();
    let head = store.persist(maker.batch(20)).unwrap();
    drop(store);
    keep_head(&path, &head).unwrap();
    drop(open(&path).unwrap());
    fs::copy(folder.at("old"), &path).unwrap();
    assert!(matches!(open(&path), Err(OpenError::Lost { .. })), "an older copy");
    fs::write(&path, b"").unwrap();
    assert!(matches!(open(&path), Err(OpenError::Emptied(_))));
    fs::remove_file(&path).unwrap();
    assert!(matches!(open(&path), Err(OpenError::Lost { .. })), "gone");
    fs::remove_file(folder.at("ledger.head")).unwrap();
    assert_eq!(open(&path).unwrap().next_sequence(), 1, "by hand it may begin anew");
}

#[test]
fn a_stopped_ledger_is_read_and_not_changed() {
    let folder = Folder::new("offline");
    let (path, killed) = (folder.at("ledger.redb"), folder.at("killed.redb"));
    let mut maker = Maker::new(2);
    let mut store = open(&path).unwrap();
    let head = store.persist(maker.batch(20)).unwrap();
    // What `kill -9` leaves: never closed.
    fs::copy(&path, &killed).unwrap();
    drop(store);
    for (file, check_all) in [(&path, false), (&path, true), (&killed, false), (&killed, true)] {
        let before = fs::read(file).unwrap();
        let reader = open_offline(file, check_all).unwrap();
        assert!(reader.verify(Some(&head.hash)).unwrap().ok);
        assert_eq!(listed(&*reader, &Default::default(), 7), maker.records);
        drop(reader);
        assert!(fs::read(file).unwrap() == before, "not a byte of it");
    }
    assert!(matches!(open_offline(&folder.at("none"), false), Err(OpenError::Missing(_))));
}

#[test]
fn a_backup_is_one_moment_and_restoring_it_opens_the_gap() {
    let folder = Folder::new("backup");
    let (path, copy, restored) = (folder.at("ledger.redb"), folder.at("copy.redb"), folder.at("new/ledger.redb"));
    let mut maker = Maker::new(3);
    let mut store = open(&path).unwrap();
    store.persist(maker.batch(30)).unwrap();
    let (head, before) = (store.head(), shown(&store));
    assert_eq!(store.backup()(&copy).unwrap(), head);
    assert!(matches!(store.backup()(&copy), Err(BackupError::Exists(_))));
    store.persist(maker.batch(30)).unwrap();
    drop(store);
    assert!(matches!(restore(&copy, &path, draft(9, "restored", None)), Err(BackupError::Exists(_))));
    let now = restore(&copy, &restored, draft(9, "restored", None)).unwrap();
    assert_eq!(now.sequence, head.sequence + 1);
    let store = open(&restored).unwrap();
    assert!(store.is_gap_open());
    assert_eq!(shown(&store).records, before.records);
    let reader = store.reader();
    assert!(reader.verify(Some(&head.hash)).unwrap().ok && reader.verify(Some(&now.hash)).unwrap().ok);
    assert_eq!(&*reader.entries(now.sequence, 1).unwrap()[0].action, "restored");
    drop((store, reader));
    let again = folder.at("again.redb");
    assert_eq!(backup_offline(&restored, &again).unwrap(), now);
}

//! The file: what it keeps, who may open it, and a disk that fails.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::InMemoryBackend;
use redb::{Database, StorageBackend, TableDefinition};

use super::*;

fn named(folder: &tempfile::TempDir) -> std::path::PathBuf {
    folder.path().join("made/here/rubicon.redb")
}

#[tokio::test]
async fn what_was_decided_is_there_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = named(&folder);
    let tenant = TenantId::new("t");
    {
        let control = Control::open(Some(&path), NOW).expect("made");
        kill(&control, "a").await.expect("killed");
        kill(&control, "b").await.expect("killed");
        restore(&control, "b", 1).await.expect("restored");
        control.change(request(Subject::Failover, true, Precondition::Any)).await.expect("disabled");
        control.issuers().remember(&tenant, [7; 16], "acct", NOW);
    }
    let file = store::control_path(&path);
    assert_eq!(std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    assert!(!path.exists(), "the ledger's file is the ledger's");
    let control = Control::open(Some(&path), NOW).expect("opened");
    let switches = control.switches();
    assert_eq!(switches.killed.keys().map(RouteId::as_str).collect::<Vec<_>>(), ["a"]);
    assert_eq!(switches.failover_off.as_ref().map(|switch| switch.reason.as_str()), Some("drill"));
    assert_eq!(control.known()[&route("b")].record.version, 2);
    assert_eq!(control.issuers().account_of(&tenant, &[7; 16], NOW).as_deref(), Some("acct"));
    assert_eq!(control.issuers().dropped(), 0);
    // The chain goes on where it ended.
    restore(&control, "a", 1).await.expect("restored");
    let verdict = control.verify(None).expect("a verdict");
    assert!(verdict.ok && verdict.entries == 5, "{verdict:?}");
    drop(control);
    let later = UnixMillis(NOW.0 + 25 * 60 * 60 * 1000);
    let control = Control::open(Some(&path), later).expect("opened");
    assert!(control.issuers().is_empty(), "rows are for a day");
}

#[tokio::test]
async fn a_second_owner_is_refused_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = named(&folder);
    let first = Control::open(Some(&path), NOW).expect("made");
    let error = Control::open(Some(&path), NOW).expect_err("in use");
    assert!(matches!(error, OpenError::InUse(_)), "{error}");
    assert!(error.to_string().contains("rubicon-control.redb: another process uses this control store"), "{error}");
    kill(&first, "a").await.expect("the first goes on");
    drop(first);
    Control::open(Some(&path), NOW).expect("free again");
}

/// Somebody emptied it, or a copy went wrong: whatever was killed must not be served in silence.
#[test]
fn an_emptied_store_is_no_new_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rubicon.redb");
    let file = store::control_path(&path);
    drop(Control::open(Some(&path), NOW).expect("made"));
    let names: Vec<_> = std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("one").path()).collect();
    assert_eq!(names, [file.clone()], "nothing is left of its making");
    std::fs::write(&file, "").expect("emptied");
    for _ in 0..2 {
        let error = Control::open(Some(&path), NOW).expect_err("emptied");
        assert!(matches!(error, OpenError::Emptied(_)) && error.to_string().contains("remove the file"), "{error}");
        assert_eq!(std::fs::metadata(&file).expect("there").len(), 0);
    }
    std::fs::remove_file(&file).expect("removed");
    Control::open(Some(&path), NOW).expect("a new one");
    std::fs::remove_file(&file).expect("removed");
    std::fs::create_dir(&file).expect("a folder");
    let error = Control::open(Some(&path), NOW).expect_err("a folder");
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

#[test]
fn files_of_others_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rubicon.redb");
    let file = store::control_path(&path);
    std::fs::write(&file, "no database, whatever its name says").expect("written");
    let error = Control::open(Some(&path), NOW).expect_err("not ours");
    assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
    assert_eq!(std::fs::read(&file).expect("there"), b"no database, whatever its name says");
    std::fs::remove_file(&file).expect("removed");
    {
        let database = Database::create(&file).expect("made");
        let transaction = database.begin_write().expect("begun");
        let meta: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
        transaction.open_table(meta).expect("a table").insert("layout", [9].as_slice()).expect("put");
        transaction.commit().expect("committed");
    }
    let error = Control::open(Some(&path), NOW).expect_err("newer");
    assert!(error.to_string().contains("layout 9 and not 1"), "{error}");
    let error = Control::open(Some(&folder.path().join("rubicon-control.redb/x.redb")), NOW).expect_err("no folder");
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

#[tokio::test]
async fn a_switch_that_was_changed_behind_the_journal_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = named(&folder);
    {
        let control = Control::open(Some(&path), NOW).expect("made");
        kill(&control, "a").await.expect("killed");
    }
    {
        let database = Database::open(store::control_path(&path)).expect("opened");
        let transaction = database.begin_write().expect("begun");
        let switches: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("switches");
        let forged = Record { version: 1, ..Record::default() };
        let forged = record::encode(&forged);
        transaction.open_table(switches).expect("a table").insert("route:a", forged.as_slice()).expect("put");
        transaction.commit().expect("committed");
    }
    let control = Control::open(Some(&path), NOW).expect("opened");
    let broken = control.verify(None).expect("a verdict").broken.expect("found");
    assert_eq!((broken.sequence, broken.why), (1, "switch_differs"));
}

/// A disk that fails from some moment on.
#[derive(Debug)]
struct Failing {
    inner: InMemoryBackend,
    fails: Arc<AtomicBool>,
}

impl Failing {
    fn check(&self) -> std::io::Result<()> {
        if self.fails.load(Ordering::SeqCst) { Err(std::io::Error::other("the disk is full")) } else { Ok(()) }
    }
}

impl StorageBackend for Failing {
    fn len(&self) -> std::io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.check()?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.check()?;
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.check()?;
        self.inner.write(offset, data)
    }
}

fn failing() -> (Control, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let backend = Failing { inner: InMemoryBackend::new(), fails: Arc::clone(&fails) };
    let store = Store::with(backend, Path::new("failing")).expect("made");
    (Control::over(store, Path::new("failing"), NOW, true).expect("opened"), fails)
}

#[tokio::test]
async fn killing_does_not_depend_on_the_disk_and_restoring_does() {
    let (control, fails) = failing();
    kill(&control, "a").await.expect("killed");
    fails.store(true, Ordering::SeqCst);
    assert_eq!(restore(&control, "a", 1).await, Err(Refused::NotSaved { effective: false }));
    assert!(control.switches().killed.contains_key(&RouteId::new("a")), "it stays killed");
    assert!(control.known()[&route("a")].saved);
    assert!(!control.is_writable());
    // Twice: neither the failed write nor the refusal behind it loses the kill.
    for _ in 0..2 {
        assert_eq!(kill(&control, "b").await, Err(Refused::NotSaved { effective: true }));
        assert!(control.switches().killed.contains_key(&RouteId::new("b")));
        assert!(!control.known()[&route("b")].saved);
    }
    // A disk that is well again is no reason to go on: nobody knows what of the last write is on it.
    fails.store(false, Ordering::SeqCst);
    assert_eq!(kill(&control, "c").await, Err(Refused::NotSaved { effective: true }));
    control.issuers().remember(&TenantId::new("t"), [1; 16], "acct", NOW);
    assert_eq!(control.issuers().dropped(), 1);
    assert!(control.issuers().account_of(&TenantId::new("t"), &[1; 16], NOW).is_some(), "memory goes on");
}

#[tokio::test]
async fn a_kill_whose_own_write_fails_counts_all_the_same() {
    let (control, fails) = failing();
    fails.store(true, Ordering::SeqCst);
    assert_eq!(kill(&control, "a").await, Err(Refused::NotSaved { effective: true }));
    assert!(control.switches().killed.contains_key(&RouteId::new("a")));
    assert!(!control.known()[&route("a")].saved);
}

#[test]
fn rows_on_disk_are_swept_by_age_and_number() {
    let store = Store::memory().expect("made");
    let row = |number: u64, at: u64| Issued {
        tenant: TenantId::new("t"),
        digest: u128::from(number).to_be_bytes(),
        account: Arc::from("acct"),
        at: UnixMillis(at),
    };
    let old = (0..10).map(|number| row(number, 1));
    let new = (10..40).map(|number| row(number, NOW.0 + number));
    assert_eq!(store.save_issued(&old.chain(new).collect::<Vec<_>>()).expect("saved"), 40);
    assert!(!store.sweep(NOW, 100).expect("swept"));
    assert_eq!(store.load(UnixMillis(0), Path::new("x")).expect("loaded").issued.len(), 30, "the old are gone");
    assert!(!store.sweep(NOW, 5).expect("swept"));
    let left = store.load(NOW, Path::new("x")).expect("loaded").issued;
    assert_eq!(left.iter().map(|row| row.at.0 - NOW.0).collect::<Vec<_>>(), [35, 36, 37, 38, 39], "the newest stay");
}

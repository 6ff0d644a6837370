//! The file: what it keeps, who may open it, and a disk that fails.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
    assert_eq!(names, std::slice::from_ref(&file), "nothing is left of its making");
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

/// What a disk does.
#[derive(Debug, Default)]
struct Disk {
    inner: InMemoryBackend,
    /// Nothing can be written.
    full: AtomicBool,
    /// What is written gets there, but nobody can be sure of it.
    unsure: AtomicBool,
    /// Times that it was opened.
    opened: AtomicUsize,
}

impl Disk {
    fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::SeqCst);
    }

    fn fails(flag: &AtomicBool) -> std::io::Result<()> {
        if flag.load(Ordering::SeqCst) { Err(std::io::Error::other("the disk is full")) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct Failing(Arc<Disk>);

impl StorageBackend for Failing {
    fn len(&self) -> std::io::Result<u64> {
        self.0.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        Disk::fails(&self.0.full)?;
        self.0.inner.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        Disk::fails(&self.0.full)?;
        Disk::fails(&self.0.unsure)?;
        self.0.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        Disk::fails(&self.0.full)?;
        self.0.inner.write(offset, data)
    }
}

fn over(disk: &Arc<Disk>) -> Control {
    let disk = Arc::clone(disk);
    let store = Store::with(Path::new("failing"), move |_| {
        disk.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Failing(Arc::clone(&disk)))
    });
    Control::over(store.expect("made"), Path::new("failing"), NOW, true).expect("opened")
}

fn failing() -> (Control, Arc<Disk>) {
    let disk = Arc::new(Disk::default());
    (over(&disk), disk)
}

fn is_killed(control: &Control, name: &str) -> bool {
    control.switches().killed.contains_key(&RouteId::new(name))
}

#[tokio::test]
async fn killing_does_not_depend_on_the_disk_and_restoring_does() {
    let (control, disk) = failing();
    kill(&control, "a").await.expect("killed");
    disk.set_full(true);
    assert_eq!(restore(&control, "a", 1).await, Err(Refused::NotSaved { effective: false }));
    assert!(is_killed(&control, "a") && control.known()[&route("a")].saved, "it stays killed");
    assert!(!control.is_writable());
    // Twice: neither the failed write nor the refusal behind it loses the kill.
    for _ in 0..2 {
        assert_eq!(kill(&control, "b").await, Err(Refused::NotSaved { effective: true }));
        assert!(is_killed(&control, "b") && !control.known()[&route("b")].saved);
    }
    control.issuers().remember(&TenantId::new("t"), [1; 16], "acct", NOW);
    assert_eq!(control.issuers().dropped(), 1);
    assert!(control.issuers().account_of(&TenantId::new("t"), &[1; 16], NOW).is_some(), "memory goes on");
}

#[tokio::test]
async fn a_kill_whose_own_write_fails_counts_all_the_same() {
    let (control, disk) = failing();
    disk.set_full(true);
    assert_eq!(kill(&control, "a").await, Err(Refused::NotSaved { effective: true }));
    assert!(is_killed(&control, "a") && !control.known()[&route("a")].saved);
}

#[tokio::test]
async fn a_disk_with_room_again_is_used_with_the_next_change_and_gets_what_it_missed() {
    let (control, disk) = failing();
    kill(&control, "a").await.expect("killed");
    disk.set_full(true);
    for name in ["b", "c"] {
        assert_eq!(kill(&control, name).await, Err(Refused::NotSaved { effective: true }));
    }
    let opened = disk.opened.load(Ordering::SeqCst);
    disk.set_full(false);
    let restored = restore(&control, "a", 1).await.expect("restored");
    assert_eq!((restored.changed, restored.record.version), (true, 2));
    assert!(control.is_writable() && disk.opened.load(Ordering::SeqCst) > opened);
    // The kills stand before it in the queue.
    assert!(["b", "c"].iter().all(|name| control.known()[&route(name)].saved));
    let entries = control.entries(1, 10).expect("a journal");
    let told: Vec<_> = entries.iter().map(|entry| (entry.subject.as_str(), entry.to.as_str())).collect();
    assert_eq!(told, [("route:a", "killed"), ("route:b", "killed"), ("route:c", "killed"), ("route:a", "live")]);
    assert!(control.verify(None).expect("a verdict").ok);
    drop(control);
    let control = over(&disk);
    assert!(!is_killed(&control, "a") && is_killed(&control, "b") && is_killed(&control, "c"), "after a restart");
}

#[tokio::test]
async fn a_kill_that_has_the_store_opened_anew_is_saved_whatever_its_precondition() {
    for precondition in [Precondition::Any, Precondition::Version(2)] {
        let (control, disk) = failing();
        kill(&control, "a").await.expect("killed");
        restore(&control, "a", 1).await.expect("restored");
        disk.set_full(true);
        assert_eq!(kill(&control, "b").await, Err(Refused::NotSaved { effective: true }));
        disk.set_full(false);
        let killed = control.change(request(route("a"), true, precondition)).await.expect("killed");
        assert!(killed.changed && killed.record.stopped && killed.record.version == 3, "{killed:?}");
        assert!(control.known().values().all(|known| known.saved && known.record.stopped));
        assert!(control.verify(None).expect("a verdict").ok);
    }
}

#[tokio::test]
async fn a_restore_that_failed_and_is_on_the_disk_all_the_same_is_undone() {
    let (control, disk) = failing();
    kill(&control, "a").await.expect("killed");
    disk.unsure.store(true, Ordering::SeqCst);
    assert_eq!(restore(&control, "a", 1).await, Err(Refused::NotSaved { effective: false }));
    disk.unsure.store(false, Ordering::SeqCst);
    kill(&control, "b").await.expect("killed");
    assert!(is_killed(&control, "a") && control.known()[&route("a")].saved, "nobody was told that it is live");
    assert!(control.verify(None).expect("a verdict").ok);
    drop(control);
    let control = over(&disk);
    assert!(is_killed(&control, "a") && is_killed(&control, "b"));
}

#[tokio::test]
async fn a_journal_that_has_lost_what_was_saved_is_not_gone_on_with() {
    let empty = Arc::new(Disk::default());
    let (first, second) = (Arc::new(Disk::default()), Arc::clone(&empty));
    let disk = Arc::clone(&first);
    let store =
        Store::with(Path::new("swapped"), move |new| Ok(Failing(Arc::clone(if new { &first } else { &second }))));
    let control = Control::over(store.expect("made"), Path::new("swapped"), NOW, true).expect("opened");
    kill(&control, "a").await.expect("killed");
    disk.set_full(true);
    // Each tries to open the other disk, whose journal is empty.
    for _ in 0..2 {
        assert_eq!(kill(&control, "b").await, Err(Refused::NotSaved { effective: true }));
    }
    assert!(!control.is_writable() && is_killed(&control, "a") && is_killed(&control, "b"));
}

#[test]
fn the_most_cautious_of_memory_and_disk_counts() {
    let record = |stopped, version| Record { stopped, version, by: "ana".to_owned(), ..Record::default() };
    let head = Head { sequence: 7, hash: "h".to_owned() };
    let failover = || Subject::WorkflowFailover(WorkflowId::new("w"));
    let memory = vec![
        (route("both"), record(true, 1)),
        (route("live"), record(false, 2)),
        (route("killed-elsewhere"), record(false, 2)),
        (route("restored-elsewhere"), record(true, 3)),
        (route("unsaved"), record(true, 5)),
        (failover(), record(true, 4)),
    ];
    let disk = vec![
        (route("both"), record(true, 1)),
        (route("live"), record(false, 2)),
        (route("killed-elsewhere"), record(true, 3)),
        (route("restored-elsewhere"), record(false, 4)),
        (route("unknown"), record(true, 1)),
        (Subject::Failover, record(true, 6)),
    ];
    let mut table = Table::new(memory, Head::default());
    let mended = table.mend(disk, head, NOW);
    let written: Vec<_> = mended
        .iter()
        .map(|mended| (mended.subject.to_string(), mended.record.version, mended.entry.sequence))
        .collect();
    let expected = [("route:restored-elsewhere", 5, 8), ("failover:w", 4, 9), ("route:unsaved", 5, 10)];
    assert_eq!(written, expected.map(|(name, version, sequence)| (name.to_owned(), version, sequence)));
    assert_eq!((mended[0].entry.previous.as_str(), mended[0].entry.from.as_str()), ("h", "live"));
    assert_eq!(mended[1].entry.previous, mended[0].entry.hash);
    let killed: Vec<_> = table.switches().killed.keys().map(ToString::to_string).collect();
    assert_eq!(killed, ["both", "killed-elsewhere", "restored-elsewhere", "unknown", "unsaved"]);
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

//! What an answer rests on: no answer before its sync, and one sync for many who wait; told by the storage itself, not by speed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use redb::StorageBackend;
use rubicon_ledger::store::{RedbOptions, RedbStore, View};
use rubicon_ledger::{
    Arguments, Claim, Claimed, Command, Effect, Impact, Ledger, OperationId, Options, Owner, Planning, Projection,
    Reply, RootId, State, TenantId, ToolName, ToolRule, UnixMillis,
};

/// A disk: what is written, and what of it would be there after a power cut.
#[derive(Debug, Default)]
struct Disk {
    written: Vec<u8>,
    durable: Arc<Vec<u8>>,
    syncs: u64,
    /// A sync waits.
    held: bool,
    waiting: u64,
}

#[derive(Debug, Clone, Default)]
struct Backend(Arc<(Mutex<Disk>, Condvar)>);

impl Backend {
    fn with<T>(&self, f: impl FnOnce(&mut Disk) -> T) -> T {
        let out = f(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
        out
    }

    fn until(&self, so: impl Fn(&Disk) -> bool) {
        let guard = self.0.0.lock().unwrap();
        let (_guard, out) = self.0.1.wait_timeout_while(guard, Duration::from_secs(60), |disk| !so(disk)).unwrap();
        assert!(!out.timed_out(), "waited a minute");
    }

    /// A disk with what would be there after a power cut now.
    fn after_a_cut(&self) -> Self {
        let durable = self.with(|disk| Arc::clone(&disk.durable));
        let disk = Disk { written: durable.to_vec(), durable, ..Disk::default() };
        Self(Arc::new((Mutex::new(disk), Condvar::new())))
    }
}

fn range(offset: u64, length: usize) -> std::ops::Range<usize> {
    let from = usize::try_from(offset).unwrap();
    from..from + length
}

impl StorageBackend for Backend {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.with(|disk| disk.written.len() as u64))
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.with(|disk| out.copy_from_slice(&disk.written[range(offset, out.len())]));
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.with(|disk| disk.written.resize(usize::try_from(len).unwrap(), 0));
        Ok(())
    }
    fn sync_data(&self) -> Result<(), io::Error> {
        self.with(|disk| disk.waiting += 1);
        self.until(|disk| !disk.held);
        self.with(|disk| {
            disk.waiting -= 1;
            disk.syncs += 1;
            disk.durable = Arc::new(disk.written.clone());
        });
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.with(|disk| disk.written[range(offset, data.len())].copy_from_slice(data));
        Ok(())
    }
}

fn open(backend: &Backend) -> RedbStore {
    let backend = backend.clone();
    RedbStore::with_backend(RedbOptions::new([9; 32]), move |_| Ok(backend.clone())).unwrap()
}

fn start(backend: &Backend) -> Ledger {
    Ledger::start(Box::new(open(backend)), Options::new(Arc::new(|| UnixMillis(1_000_000)), 7)).unwrap()
}

fn claim(number: u64) -> Command {
    let tool = ToolRule {
        name: ToolName::new("pay").unwrap(),
        effect: Effect::Write,
        impact: Impact::Normal,
        projection: Arc::new(Projection::default()),
        max_runs: 3,
        guard_similar: false,
        approve_before_run: false,
        has_probe: false,
        owner: None,
    };
    Command::Claim(Box::new(Claim {
        tenant: TenantId::new("t").unwrap(),
        root: RootId::new("r").unwrap(),
        operation: Some(OperationId::new("op").unwrap()),
        tool: Arc::new(tool),
        arguments: Arguments::parse(format!(r#"{{"invoice":{number}}}"#).as_bytes()).unwrap(),
        occurrence: None,
        tool_call_id: None,
        claim_id: None,
        owner: Owner::Client,
        lease_ms: 60_000,
        confirm: None,
        planning: Planning::MayBeLost,
        flags: Vec::new(),
        by: "app".into(),
    }))
}

#[test]
fn no_answer_comes_before_its_sync() {
    let disk = Backend::default();
    let ledger = start(&disk);
    let checked = AtomicU64::new(0);
    thread::scope(|scope| {
        for caller in 0..16 {
            let (ledger, disk, checked) = (&ledger, &disk, &checked);
            scope.spawn(move || {
                for one in 0..6 {
                    let reply = ledger.submit_blocking(claim(caller * 100 + one)).unwrap();
                    // The moment that the answer is here, the power goes: is what it says on the disk?
                    let cut = disk.after_a_cut();
                    let Reply::Claimed(Claimed::Execute { record, .. }) = reply else { panic!("{reply:?}") };
                    let there = open(&cut).record(&record.key).unwrap().expect("answered and not on the disk");
                    assert_eq!((there.state, there.version), (State::Started, record.version));
                    checked.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(checked.load(Ordering::SeqCst), 96);
}

#[test]
fn many_who_wait_share_a_sync_and_none_is_answered_while_it_runs() {
    let disk = Backend::default();
    let ledger = start(&disk);
    let begun = disk.with(|disk| {
        disk.held = true;
        disk.syncs
    });
    thread::scope(|scope| {
        let ask = |number: u64| {
            let ledger = &ledger;
            scope.spawn(move || ledger.submit_blocking(claim(number)).unwrap())
        };
        let mut asking = vec![ask(0)];
        disk.until(|disk| disk.waiting == 1);
        asking.extend((1..=300).map(ask));
        while ledger.stats().queued < 300 {
            thread::yield_now();
        }
        assert!(asking.iter().all(|one| !one.is_finished()), "answered before the sync");
        disk.with(|disk| disk.held = false);
        for one in asking {
            one.join().unwrap();
        }
    });
    let stats = ledger.stats();
    assert_eq!((stats.commands, stats.batches, stats.largest_batch), (301, 2, 300));
    // Quick repair is two syncs a commit; growing the file may take a few more.
    let syncs = disk.with(|disk| disk.syncs) - begun;
    assert!((4..=4 * stats.batches).contains(&syncs), "{syncs} syncs for {} batches", stats.batches);
}

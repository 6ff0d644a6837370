//! A store in memory that does what a test tells it: waits, fails before or after it has written, counts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex};

use crate::ids::{Occurrence, RootId, TenantId, ToolName};
use crate::journal::{Entry, Head};
use crate::key::ExecutionKey;
use crate::record::{Evidence, Record, State, UnixMillis};
use crate::store::{CallDigest, Expected, Filter, Page, Reader, Sighting, Store, StoreError, Verdict, View, Write};

/// How the next persist goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It fails and nothing is there.
    Before,
    /// It fails and all is there.
    After,
    /// It panics.
    Panic,
}

#[derive(Default)]
pub(super) struct Inside {
    pub(super) records: BTreeMap<u64, Record>,
    by_key: HashMap<ExecutionKey, u64>,
    calls: HashMap<CallDigest, Occurrence>,
    sightings: HashMap<[u8; 16], Sighting>,
    head: u64,
    pub(super) batches: Vec<usize>,
    pub(super) fault: Option<Fault>,
    pub(super) failed: bool,
    pub(super) reopen_fails: bool,
    pub(super) held: bool,
    pub(super) inside: usize,
    pub(super) running: Option<UnixMillis>,
    /// Cannot be read.
    pub(super) damaged: HashSet<ExecutionKey>,
    /// Cannot be written.
    pub(super) unwritable: HashSet<ExecutionKey>,
    /// So many persists meet a faster writer.
    pub(super) conflicts: u32,
}

/// Its handle for the test; clones are one store.
#[derive(Clone, Default)]
pub(super) struct Shared(pub(super) Arc<(Mutex<Inside>, Condvar)>);

impl Shared {
    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Inside) -> T) -> T {
        let out = f(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
        out
    }
    /// Waits until `so`.
    pub(super) fn until(&self, so: impl Fn(&Inside) -> bool) {
        let guard = self.0.0.lock().unwrap();
        let wait = std::time::Duration::from_secs(30);
        let (_guard, timeout) = self.0.1.wait_timeout_while(guard, wait, |inside| !so(inside)).unwrap();
        assert!(!timeout.timed_out(), "waited 30 s");
    }
    pub(super) fn record(&self, key: &ExecutionKey) -> Option<Record> {
        self.with(|inside| inside.by_key.get(key).map(|at| inside.records[at].clone()))
    }
}

impl Inside {
    fn write(&mut self, batch: &[Write]) -> Result<(), StoreError> {
        for write in batch {
            match write {
                Write::Put(put) => {
                    let there = self.by_key.get(&put.record.key).map(|at| Expected::of(&self.records[at]));
                    if there != put.expected {
                        return Err(StoreError::Conflict);
                    }
                    self.by_key.insert(put.record.key, put.record.sequence);
                    self.records.insert(put.record.sequence, put.record.clone());
                    if let Some(call) = put.call {
                        self.calls.insert(call, put.record.occurrence);
                    }
                    self.head += 1;
                }
                Write::Note(_) | Write::Gap(..) => self.head += 1,
                Write::Sightings(sightings) => {
                    self.sightings.extend(sightings.iter().map(|one| (one.digest, one.clone())));
                }
            }
        }
        Ok(())
    }
}

fn head(sequence: u64) -> Head {
    Head { sequence, hash: format!("{sequence:064x}").into() }
}

impl View for Shared {
    fn record(&self, key: &ExecutionKey) -> Result<Option<Record>, StoreError> {
        if self.with(|inside| inside.damaged.contains(key)) {
            return Err(StoreError::Damaged("a page".to_owned()));
        }
        Ok(Shared::record(self, key))
    }
    fn recent(&self, tenant: &TenantId, root: &RootId, tool: &ToolName, n: usize) -> Result<Vec<Record>, StoreError> {
        let is = |record: &&Record| record.tenant == *tenant && record.root == *root && record.tool == *tool;
        Ok(self.with(|inside| inside.records.values().rev().filter(is).take(n).cloned().collect()))
    }
    fn call(&self, call: &CallDigest) -> Result<Option<Occurrence>, StoreError> {
        Ok(self.with(|inside| inside.calls.get(call).copied()))
    }
    fn next_sequence(&self) -> u64 {
        self.with(|inside| inside.records.keys().last().map_or(1, |last| last + 1))
    }
    fn is_gap_open(&self) -> bool {
        false
    }
}

impl Store for Shared {
    fn persist(&mut self, batch: Vec<Write>) -> Result<Head, StoreError> {
        self.with(|inside| inside.inside += 1);
        self.until(|inside| !inside.held);
        self.with(|inside| {
            inside.inside -= 1;
            if inside.failed {
                return Err(StoreError::Io("not reopened".to_owned()));
            }
            let fault = inside.fault.take();
            if fault.is_some() {
                inside.failed = true;
            }
            if fault == Some(Fault::Before) {
                return Err(StoreError::Io("disk full".to_owned()));
            }
            if inside.conflicts > 0 {
                inside.conflicts -= 1;
                return Err(StoreError::Conflict);
            }
            let is_bad =
                |write: &Write| matches!(write, Write::Put(put) if inside.unwritable.contains(&put.record.key));
            if batch.iter().any(is_bad) {
                inside.failed = true;
                return Err(StoreError::Damaged("a page".to_owned()));
            }
            inside.write(&batch)?;
            inside.batches.push(batch.len());
            match fault {
                Some(Fault::Panic) => {
                    // Not under the lock, which would be poisoned.
                    Ok(None)
                }
                Some(_) => Err(StoreError::Io("disk gone".to_owned())),
                None => Ok(Some(head(inside.head))),
            }
        })
        .map(|head| head.expect("a panic that was asked for"))
    }
    fn reopen(&mut self, saved: &Head) -> Result<(), StoreError> {
        self.with(|inside| {
            assert!(inside.head >= saved.sequence);
            if inside.reopen_fails {
                return Err(StoreError::Io("still".to_owned()));
            }
            inside.failed = false;
            Ok(())
        })
    }
    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.clone())
    }
    fn head(&self) -> Head {
        head(self.with(|inside| inside.head))
    }
    fn secret(&self) -> [u8; 32] {
        [7; 32]
    }
    fn due(&self, now: UnixMillis, limit: usize) -> Result<Vec<(ExecutionKey, u32)>, StoreError> {
        let is = |record: &&Record| {
            record.state == State::Started && record.lease.as_ref().is_some_and(|lease| lease.until <= now)
        };
        Ok(self.with(|inside| {
            inside.records.values().filter(is).take(limit).map(|record| (record.key, record.epoch)).collect()
        }))
    }
    fn open_records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        Ok(self.with(|inside| {
            let open = inside.records.range(after + 1..).map(|(_, record)| record).filter(|r| !r.state.is_terminal());
            open.take(limit).cloned().collect()
        }))
    }
    fn mark_running(&mut self, since: Option<UnixMillis>) -> Result<Option<UnixMillis>, StoreError> {
        Ok(self.with(|inside| std::mem::replace(&mut inside.running, since)))
    }
}

impl Reader for Shared {
    fn record(&self, key: &ExecutionKey) -> Result<Option<Record>, StoreError> {
        Ok(Shared::record(self, key))
    }
    fn history(&self, _: &ExecutionKey, _: usize) -> Result<Vec<Entry>, StoreError> {
        Ok(Vec::new())
    }
    fn evidence(&self, _: &ExecutionKey) -> Result<Vec<Evidence>, StoreError> {
        Ok(Vec::new())
    }
    fn list(&self, _: &Filter, _: usize) -> Result<Page, StoreError> {
        Ok(Page::default())
    }
    fn sighting(&self, digest: &[u8; 16]) -> Result<Option<Sighting>, StoreError> {
        Ok(self.with(|inside| inside.sightings.get(digest).cloned()))
    }
    fn entries(&self, _: u64, _: usize) -> Result<Vec<Entry>, StoreError> {
        Ok(Vec::new())
    }
    fn head(&self) -> Result<Head, StoreError> {
        Ok(Store::head(self))
    }
    fn verify(&self, _: Option<&str>) -> Result<Verdict, StoreError> {
        Err(StoreError::Damaged("no journal here".to_owned()))
    }
}

//! What operators decided and must not be forgotten: routes killed, failover switched off, who did it and why; and, beside it, which
//! account issued which state.
//!
//! In: requests of the admin side, rows from the request's path. Out: [`Switches`] that an attempt reads without a lock, records with
//! their versions, a journal chained by hash. Durable in a redb file of its own ([`store`]), written by one thread that
//! commits for all who wait.
//!
//! **Switching off must not depend on a disk.** A kill counts for new attempts before it is saved; the answer comes when it is saved,
//! and says so when it could not be. Taking a switch off works the other way: saved first, effective then, so that a
//! crash never brings back less caution than somebody was told of. After an IO that failed the store takes nothing more until the
//! process starts anew; what is in memory goes on to count.

pub mod issuers;
pub mod journal;
mod queue;
pub mod record;
pub mod store;
pub mod table;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::clock::UnixMillis;
use crate::gate::Switches;

use issuers::{ISSUERS_MAX, Issued, Issuers};
use journal::{Entry, Head, Verdict};
use queue::{Change, Queue, Work};
use record::{Record, Subject};
use store::{Failed, OpenError, Store};
use table::{Decision, Known, Request, Saving, Table};

/// How long an answer waits to be told that its change is on disk. A disk that takes longer hangs.
const SAVE_WAIT_MAX: Duration = Duration::from_secs(10);

/// The table of who issued what is swept this often, by the time of its rows.
const SWEEP_EVERY: Duration = Duration::from_secs(60 * 60);

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// As it stands now.
    pub record: Record,
    /// Something changed: there is an entry in the journal.
    pub changed: bool,
}

/// Why a change was not made, or not for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `If-Match` names another version than this one.
    Mismatch {
        /// The present one.
        version: u64,
    },
    /// It could not be saved, or it took too long to know.
    NotSaved {
        /// It counts all the same, until the process ends.
        effective: bool,
    },
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    switches: Arc<ArcSwap<Switches>>,
    queue: Arc<Queue>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, table: &Table) {
        self.switches.store(Arc::new(table.switches()));
    }
}

/// The control store.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    store: Store,
    issuers: Issuers,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Control {
    /// Opens the control file that belongs to the ledger's `path`; `None`: nothing is kept. Blocks on the disk.
    ///
    /// # Errors
    /// When the file is in use, cannot be read or is not one of this build.
    pub fn open(path: Option<&Path>, now: UnixMillis) -> Result<Self, OpenError> {
        match path {
            None => Self::over(Store::memory()?, Path::new("memory"), now, false),
            Some(path) => {
                let path = store::control_path(path);
                Self::over(Store::open(&path)?, &path, now, true)
            }
        }
    }

    fn over(store: Store, path: &Path, now: UnixMillis, durable: bool) -> Result<Self, OpenError> {
        let found = store.load(now, path)?;
        let queue = Arc::new(Queue::default());
        let table = Table::new(found.records, found.head);
        let switches = Arc::new(ArcSwap::from_pointee(table.switches()));
        let shared = Arc::new(Shared { table: Mutex::new(table), switches, queue: Arc::clone(&queue) });
        // In memory there is nothing to write behind.
        let issuers = Issuers::new(found.issued, durable.then_some(queue), ISSUERS_MAX);
        let writer = Writer { store: store.clone(), shared: Arc::clone(&shared), swept: Cell::new(now) };
        let writer = std::thread::Builder::new().name("control-store".to_owned()).spawn(move || writer.run());
        let writer = writer.map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        Ok(Self { shared, store, issuers, writer: Mutex::new(Some(writer)) })
    }

    /// What is switched off at this moment.
    pub fn switches(&self) -> Arc<Switches> {
        self.shared.switches.load_full()
    }

    /// The same, for whoever looks at every attempt: always the present one, read without a lock.
    pub fn handle(&self) -> Arc<ArcSwap<Switches>> {
        Arc::clone(&self.shared.switches)
    }

    /// Every switch that was ever touched, as it counts now.
    pub fn known(&self) -> BTreeMap<Subject, Known> {
        self.shared.lock().known()
    }

    /// Who issued what.
    pub fn issuers(&self) -> &Issuers {
        &self.issuers
    }

    /// Whether changes can be saved: no IO has failed.
    pub fn is_writable(&self) -> bool {
        !self.shared.queue.is_broken()
    }

    /// Makes a change. Dropping the future does not take it back.
    ///
    /// # Errors
    /// When the precondition does not hold, or it could not be saved.
    pub async fn change(&self, request: Request) -> Result<Done, Refused> {
        let stop = request.stop;
        let (record, changed, mut saving) = match self.begin(request) {
            Ok(begun) => begun,
            Err(ended) => return ended,
        };
        // A writer that is gone has saved nothing.
        let ended = tokio::time::timeout(SAVE_WAIT_MAX, saving.wait_for(|saving| *saving != Saving::Pending)).await;
        match ended.map(|saved| saved.map(|saved| *saved)) {
            Ok(Ok(Saving::Saved)) => Ok(Done { record, changed }),
            _ => Err(Refused::NotSaved { effective: stop }),
        }
    }

    /// Decides and hands over, without waiting for anything; `Err`: it has ended already.
    fn begin(&self, request: Request) -> Result<(Record, bool, watch::Receiver<Saving>), Result<Done, Refused>> {
        let mut table = self.shared.lock();
        let (record, entry) = match table.decide(&request) {
            Decision::Unchanged(record) => return Err(Ok(Done { record, changed: false })),
            Decision::Mismatch(version) => return Err(Err(Refused::Mismatch { version })),
            Decision::Join(record, saving) => return Ok((record, false, saving)),
            Decision::Change(record, entry) => (record, entry),
        };
        let (sender, saving) = watch::channel(Saving::Pending);
        let subject = request.subject;
        let change = Change { subject: subject.clone(), record: record.clone(), entry: entry.clone(), saving: sender };
        // The table is locked until both know of it, so that the journal's order is the order of the versions.
        if self.shared.queue.change(change) {
            table.begin(&subject, record.clone(), &entry, saving.clone());
        } else if request.stop {
            table.stop_unsaved(&subject, record);
            self.shared.publish(&table);
            tracing::error!(%subject, by = %request.by, "switched off in memory only: the control store takes no changes");
            return Err(Err(Refused::NotSaved { effective: true }));
        } else {
            return Err(Err(Refused::NotSaved { effective: false }));
        }
        if request.stop {
            self.shared.publish(&table);
        }
        Ok((record, true, saving))
    }

    /// The journal's entries from `from` on, at most `limit`. Blocks on the disk.
    ///
    /// # Errors
    /// When an IO failed, now or before.
    pub fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, Failed> {
        self.store.entries(from, limit)
    }

    /// The end of the journal, as far as it is saved. Blocks on the disk.
    ///
    /// # Errors
    /// When an IO failed, now or before.
    pub fn head(&self) -> Result<Head, Failed> {
        self.store.head()
    }

    /// Walks along the journal; `wanted` is a head's hash that was kept elsewhere and must be found. Blocks on the disk.
    ///
    /// # Errors
    /// When an IO failed, now or before.
    pub fn verify(&self, wanted: Option<String>) -> Result<Verdict, Failed> {
        self.store.verify(wanted)
    }
}

impl Control {
    /// Saves what is queued and takes no more. Blocks on the disk; a second call does nothing.
    pub fn close(&self) {
        self.shared.queue.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the control store's writer ended in a panic");
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.close();
    }
}

/// The one that writes.
struct Writer {
    store: Store,
    shared: Arc<Shared>,
    swept: Cell<UnixMillis>,
}

impl Writer {
    fn run(self) {
        let mut sweeping = None;
        loop {
            // A sweep goes on between other work, a part at a time.
            let work = if sweeping.is_some() { self.shared.queue.now() } else { Some(self.shared.queue.next()) };
            let done = match work {
                Some(Work::Over) => return,
                Some(Work::Changes(changes)) => self.save(&changes),
                Some(Work::Issued(rows)) => self.broken(self.save_issued(&rows)).map(|due| sweeping = sweeping.or(due)),
                None => self.broken(self.sweep(sweeping)).map(|more| sweeping = sweeping.filter(|_| more)),
            };
            if let Err(error) = done {
                tracing::error!(%error, "the control store takes no more changes until the relay is started anew");
                sweeping = None;
            }
        }
    }

    fn save(&self, changes: &[Change]) -> Result<(), Failed> {
        let rows = changes.iter().map(|change| (&change.subject, &change.record, &change.entry));
        let saved = self.broken(self.store.save(rows));
        self.end(changes, saved.is_ok());
        saved
    }

    /// After a failed IO nothing more is taken, before anybody is told of it; what waits has failed, too.
    fn broken<T>(&self, result: Result<T, Failed>) -> Result<T, Failed> {
        if result.is_err() {
            self.end(&self.shared.queue.break_down(), false);
        }
        result
    }

    fn sweep(&self, now: Option<UnixMillis>) -> Result<bool, Failed> {
        now.map_or(Ok(false), |now| self.store.sweep(now, ISSUERS_MAX))
    }

    /// Tells everybody how it ended: first what counts, then who waits.
    fn end(&self, changes: &[Change], saved: bool) {
        let mut table = self.shared.lock();
        for change in changes {
            table.end(&change.subject, change.record.version, saved);
        }
        self.shared.publish(&table);
        drop(table);
        for change in changes {
            let (subject, record) = (&change.subject, &change.record);
            if saved {
                let action = subject.action(record.stopped);
                tracing::warn!(%subject, action, by = %record.by, version = record.version, "an operator's switch");
            } else {
                tracing::error!(%subject, by = %record.by, effective = record.stopped, "a switch could not be saved");
            }
            let saving = if saved { Saving::Saved } else { Saving::Lost };
            // Whoever asked may have gone.
            let _ = change.saving.send(saving);
        }
    }

    /// Saves the rows; the time by which a sweep is due.
    fn save_issued(&self, rows: &[Issued]) -> Result<Option<UnixMillis>, Failed> {
        let count = self.store.save_issued(rows)?;
        let Some(now) = rows.iter().map(|row| row.at).max() else { return Ok(None) };
        let over = usize::try_from(count).unwrap_or(usize::MAX) > ISSUERS_MAX;
        let due = u128::from(now.0.saturating_sub(self.swept.get().0)) >= SWEEP_EVERY.as_millis();
        if over || due {
            self.swept.set(now);
            return Ok(Some(now));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;

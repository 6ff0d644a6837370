//! What operators decided and must not be forgotten: routes killed, failover switched off, who did it and why; and, beside it, which
//! account issued which state.
//!
//! In: requests of the admin side, rows from the request's path. Out: [`Switches`] that an attempt reads without a lock, records with
//! their versions, a journal chained by hash. Durable in a redb file of its own ([`store`]), written by one thread that
//! commits for all who wait.
//!
//! **Switching off must not depend on a disk.** A kill counts for new attempts before it is saved; the answer comes when it is saved,
//! and says so when it could not be. Taking a switch off works the other way: saved first, effective then, so that a
//! crash never brings back less caution than somebody was told of.
//!
//! After an IO that failed the database takes nothing more, and what is in memory goes on to count. The file is opened anew with each
//! change that somebody asks for, and every 30 s: its journal must hold, up to the last entry that is known to be saved. Then switches
//! that count and are not on the disk are written, and what of the failed write did get there in spite of all is made to agree
//! with memory, or taken over where it is the more cautious.

mod held;
pub mod issuers;
pub mod journal;
mod queue;
pub mod record;
pub mod store;
pub mod table;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::clock::{Instant, UnixMillis};
use crate::gate::Switches;

use issuers::{ISSUERS_MAX, Issued, Issuers};
use journal::{Entry, Head, Verdict};
use queue::{Change, Queue, Work};
use record::{Record, Subject};
use store::{Failed, OpenError, Store};
use table::{Decision, Known, Mended, Precondition, Request, Saving, Table};

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
    /// Times that the store was opened anew, well or not.
    reopened: watch::Sender<u64>,
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
        let saved = RefCell::new(found.head.clone());
        let table = Table::new(found.records, found.head);
        let switches = Arc::new(ArcSwap::from_pointee(table.switches()));
        let (table, reopened) = (Mutex::new(table), watch::Sender::new(0));
        let shared = Arc::new(Shared { table, switches, queue: Arc::clone(&queue), reopened });
        // In memory there is nothing to write behind.
        let issuers = Issuers::new(found.issued, durable.then_some(queue), ISSUERS_MAX);
        let writer = Writer { store: store.clone(), shared: Arc::clone(&shared), swept: Cell::new(now), saved };
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

    /// Whether changes can be saved: no IO has failed, or the store could be opened anew since.
    pub fn is_writable(&self) -> bool {
        !self.shared.queue.is_broken()
    }

    /// Makes a change. Dropping the future does not take it back.
    ///
    /// # Errors
    /// When the precondition does not hold, or it could not be saved.
    pub async fn change(&self, request: Request) -> Result<Done, Refused> {
        let stop = request.stop;
        let until = Instant::now() + SAVE_WAIT_MAX;
        let mut reopened = self.shared.reopened.subscribe();
        let ended = match self.begin(&request) {
            Ok(begun) => return Self::saved(begun, stop, until).await,
            Err(ended) => ended,
        };
        // Whatever counts does so by now; to save it the store must be opened anew.
        if !matches!(ended, Err(Refused::NotSaved { .. })) {
            return ended;
        }
        // Not broken: somebody else has had it opened in between.
        let asked = self.shared.queue.ask_to_reopen();
        if asked && tokio::time::timeout_at(until, reopened.changed()).await.is_err() || !self.is_writable() {
            return ended;
        }
        // To open it has put this very stop on its way to the disk: it is joined, whatever its version is by now.
        let precondition = if stop { Precondition::Any } else { request.precondition };
        let done = match self.begin(&Request { precondition, ..request }) {
            Ok(begun) => Self::saved(begun, stop, until).await,
            Err(ended) => ended,
        };
        done.map(|done| Done { changed: done.changed || stop, ..done })
    }

    /// Waits for it to be on disk.
    async fn saved(
        (record, changed, mut saving): (Record, bool, watch::Receiver<Saving>),
        stop: bool,
        until: Instant,
    ) -> Result<Done, Refused> {
        // A writer that is gone has saved nothing.
        let ended = tokio::time::timeout_at(until, saving.wait_for(|saving| *saving != Saving::Pending)).await;
        match ended.map(|saved| saved.map(|saved| *saved)) {
            Ok(Ok(Saving::Saved)) => Ok(Done { record, changed }),
            _ => Err(Refused::NotSaved { effective: stop }),
        }
    }

    /// Decides and hands over, without waiting for anything; `Err`: it has ended already.
    fn begin(&self, request: &Request) -> Result<(Record, bool, watch::Receiver<Saving>), Result<Done, Refused>> {
        let mut table = self.shared.lock();
        let (record, entry) = match table.decide(request) {
            Decision::Unchanged(record) => return Err(Ok(Done { record, changed: false })),
            Decision::Mismatch(version) => return Err(Err(Refused::Mismatch { version })),
            Decision::Join(record, saving) => return Ok((record, false, saving)),
            Decision::Change(record, entry) => (record, entry),
        };
        let (sender, saving) = watch::channel(Saving::Pending);
        let subject = request.subject.clone();
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
    /// The last entry that is known to be on disk.
    saved: RefCell<Head>,
}

impl Writer {
    fn run(self) {
        let mut sweeping = None;
        loop {
            // A sweep goes on between other work, a part at a time.
            let work = if sweeping.is_some() { self.shared.queue.now() } else { Some(self.shared.queue.next()) };
            let done = match work {
                Some(Work::Over) => return,
                Some(Work::Reopen) => {
                    self.reopen();
                    Ok(())
                }
                Some(Work::Changes(changes)) => self.save(&changes),
                Some(Work::Issued(rows)) => self.broken(self.save_issued(&rows)).map(|due| sweeping = sweeping.or(due)),
                None => self.broken(self.sweep(sweeping)).map(|more| sweeping = sweeping.filter(|_| more)),
            };
            if let Err(error) = done {
                tracing::error!(%error, "the control store takes no changes until it can be opened anew");
                sweeping = None;
            }
        }
    }

    fn save(&self, changes: &[Change]) -> Result<(), Failed> {
        let rows = changes.iter().map(|change| (&change.subject, &change.record, &change.entry));
        let saved = self.broken(self.store.save(rows));
        if let (true, Some(last)) = (saved.is_ok(), changes.last()) {
            *self.saved.borrow_mut() = Head { sequence: last.entry.sequence, hash: last.entry.hash.clone() };
        }
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

    /// Opens the store anew. What counts and is not in it is written as any change is: next.
    fn reopen(&self) {
        let found = self.store.reopen(&self.saved.borrow().hash);
        match found {
            Err(error) => tracing::warn!(%error, "the control store can still not be written"),
            Ok((records, head)) => {
                tracing::warn!(entries = head.sequence, "the control store is opened anew and takes changes again");
                self.saved.borrow_mut().clone_from(&head);
                let mut table = self.shared.lock();
                let mended = table.mend(records, head, UnixMillis::now());
                let changes = mended.into_iter().map(|Mended { subject, record, entry }| {
                    let (sender, saving) = watch::channel(Saving::Pending);
                    table.begin(&subject, record.clone(), &entry, saving);
                    Change { subject, record, entry, saving: sender }
                });
                let changes = changes.collect();
                self.shared.publish(&table);
                self.shared.queue.mend(changes);
            }
        }
        self.shared.reopened.send_modify(|times| *times += 1);
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

//! What waits for the control store's writer thread: changes first, who-issued-what behind them, both bounded.
//!
//! A blocking queue (a mutex and a condition variable): its one consumer is a thread that blocks on the disk anyway.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::issuers::Issued;
use super::journal::Entry;
use super::record::{Record, Subject};
use super::table::Saving;

/// Changes that wait. People and their scripts make them: more than this means that the disk hangs, and a further one is told so.
pub(super) const CHANGES_MAX: usize = 256;

/// Rows of who issued what that wait; beyond it they are dropped and counted. A few seconds of a busy relay.
pub(super) const ISSUED_MAX: usize = 16_384;

/// Rows written in one transaction.
const ISSUED_BATCH_MAX: usize = 4_096;

/// How long such rows wait for company: one fsync a second at most.
const ISSUED_LINGER: Duration = Duration::from_secs(1);

/// How often a store whose IO failed is opened anew by itself; a change asks for it at once.
const REOPEN_EVERY: Duration = Duration::from_secs(30);

/// A change to be saved.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) subject: Subject,
    pub(super) record: Record,
    pub(super) entry: Entry,
    pub(super) saving: watch::Sender<Saving>,
}

/// What the writer does next.
#[derive(Debug)]
pub(super) enum Work {
    /// Save these in one transaction.
    Changes(Vec<Change>),
    /// And these.
    Issued(Vec<Issued>),
    /// An IO failed: open the store anew.
    Reopen,
    /// Nothing will come any more.
    Over,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: VecDeque<Change>,
    issued: VecDeque<Issued>,
    closed: bool,
    broken: bool,
    /// Somebody waits for it to be opened anew.
    reopen: bool,
}

impl Waiting {
    /// What need not wait for company.
    fn due(&mut self) -> Option<Work> {
        if !self.changes.is_empty() {
            return Some(Work::Changes(self.changes.drain(..).collect()));
        }
        let count = self.issued.len();
        if count >= ISSUED_BATCH_MAX || (self.closed && count > 0) {
            return Some(self.batch());
        }
        self.closed.then_some(Work::Over)
    }

    fn batch(&mut self) -> Work {
        let count = self.issued.len().min(ISSUED_BATCH_MAX);
        Work::Issued(self.issued.drain(..count).collect())
    }
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    woken: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a change behind the others; `false`: there is no room, or the store is broken.
    pub(super) fn change(&self, change: Change) -> bool {
        let mut waiting = self.lock();
        let taken = !waiting.closed && !waiting.broken && waiting.changes.len() < CHANGES_MAX;
        if taken {
            waiting.changes.push_back(change);
            self.woken.notify_one();
        }
        taken
    }

    /// The same for a row of who issued what.
    pub(super) fn issued(&self, issued: Issued) -> bool {
        let mut waiting = self.lock();
        let taken = !waiting.closed && !waiting.broken && waiting.issued.len() < ISSUED_MAX;
        if taken {
            waiting.issued.push_back(issued);
            // The first one starts the wait for company, a full batch ends it.
            if waiting.issued.len() == 1 || waiting.issued.len() == ISSUED_BATCH_MAX {
                self.woken.notify_one();
            }
        }
        taken
    }

    /// Blocks until there is something to do.
    pub(super) fn next(&self) -> Work {
        let mut waiting = self.lock();
        let mut due = false;
        loop {
            if waiting.broken && !waiting.closed {
                if std::mem::take(&mut waiting.reopen) || due {
                    return Work::Reopen;
                }
                let waited = self.woken.wait_timeout(waiting, REOPEN_EVERY).unwrap_or_else(PoisonError::into_inner);
                waiting = waited.0;
                due = waited.1.timed_out();
                continue;
            }
            if let Some(work) = waiting.due() {
                return work;
            }
            if waiting.issued.is_empty() {
                waiting = self.woken.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.woken.wait_timeout(waiting, ISSUED_LINGER).unwrap_or_else(PoisonError::into_inner);
            waiting = waited.0;
            if waited.1.timed_out() && waiting.changes.is_empty() {
                return waiting.batch();
            }
        }
    }

    /// What there is to do at this moment, without waiting.
    pub(super) fn now(&self) -> Option<Work> {
        self.lock().due()
    }

    /// An IO failed: nothing more is taken until [`Queue::mend`]. What waits is given back.
    pub(super) fn break_down(&self) -> Vec<Change> {
        let mut waiting = self.lock();
        waiting.broken = true;
        waiting.issued.clear();
        waiting.changes.drain(..).collect()
    }

    /// Asks for it to be opened anew; `false`: it is not broken.
    pub(super) fn ask_to_reopen(&self) -> bool {
        let mut waiting = self.lock();
        let asked = waiting.broken && !waiting.closed;
        waiting.reopen |= asked;
        self.woken.notify_one();
        asked
    }

    /// It is open again: changes are taken from now on, and first of all these, however many there are.
    pub(super) fn mend(&self, changes: Vec<Change>) {
        let mut waiting = self.lock();
        waiting.broken = false;
        waiting.reopen = false;
        waiting.changes.extend(changes);
    }

    /// Whether an IO failed.
    pub(super) fn is_broken(&self) -> bool {
        self.lock().broken
    }

    /// What waits is still done; nothing more is taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.woken.notify_one();
    }
}

//! The one thread that writes.
//!
//! In: what [`queue`](super::queue) holds. Out: answers, each after its batch is persisted. A turn: take what waits; if the store is failed, try to
//! open it anew or refuse; store outcomes that were kept; decide commands, leases that ran out and a part of what came behind over one
//! [`Overlay`](super::overlay::Overlay); one persist; answer. There is no timer for batches: what comes while a commit runs is the next batch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::batch::{self, Done, Round};
use super::behind::{Backlog, PLANS_ALONE, PLANS_BESIDE};
use super::kept::Kept;
use super::queue::{Job, now};
use super::stats::{number, one};
use super::{Decide, Options, Shared, Unavailable, start};
use crate::command::{Command, Env, Reply};
use crate::failpoint;
use crate::journal::Head;
use crate::store::{Store, StoreError};

/// How often leases that ran out are looked for.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);
/// The same while more of them are left.
const EXPIRE_AGAIN: Duration = Duration::from_millis(20);
/// Leases that are expired at once.
const EXPIRE_PART: usize = 256;
/// A failed store is opened anew for a command at most this often.
const REOPEN_SPACING: Duration = Duration::from_secs(1);
/// And without any command this often.
const REOPEN_IDLE: Duration = Duration::from_secs(5);
/// Times that a batch is decided anew because another writer was faster (only where several share a store).
const CONFLICTS_MAX: u32 = 8;

/// What goes with the commands of a batch.
#[derive(Clone, Copy)]
struct Load {
    plans: usize,
    sightings: bool,
}

impl Load {
    const NONE: Self = Self { plans: 0, sightings: false };
    const BESIDE: Self = Self { plans: PLANS_BESIDE, sightings: true };
    const ALONE: Self = Self { plans: PLANS_ALONE, sightings: true };
}

pub(super) struct Writer {
    store: Box<dyn Store>,
    shared: Arc<Shared>,
    options: Options,
    decide: Decide,
    secret: [u8; 32],
    /// The end of what is known to be persisted.
    head: Head,
    backlog: Backlog,
    kept: Kept,
    /// When a failed store may be opened anew: for a command, and without any.
    failed: Option<(Instant, Instant)>,
    /// This life is marked in the store, and what another one left running is unknown.
    begun: bool,
    expire_at: Instant,
}

/// Tells everybody when the thread ends, in whatever way.
struct Gone(Arc<Shared>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.available.store(false, Ordering::Release);
        self.0.queue.die();
        self.0.waiters.tell_all();
    }
}

impl Writer {
    /// `full`: why the life that begins could not be marked in the store; nothing is taken until it is.
    pub(super) fn new(
        store: Box<dyn Store>,
        shared: Arc<Shared>,
        options: Options,
        decide: Decide,
        full: Option<&str>,
    ) -> Self {
        let (secret, head) = (store.secret(), store.head());
        let mut writer = Self {
            store,
            shared,
            options,
            decide,
            secret,
            head,
            backlog: Backlog::default(),
            kept: Kept::default(),
            failed: None,
            begun: full.is_none(),
            expire_at: now(),
        };
        if let Some(why) = full {
            writer.fail(why);
        }
        writer
    }

    pub(super) fn run(mut self) {
        let _gone = Gone(Arc::clone(&self.shared));
        loop {
            let taken = self.shared.queue.take(self.wake_at());
            self.backlog.take_in(taken.behind);
            self.turn(taken.jobs);
            if taken.closing {
                self.finish();
                return;
            }
        }
    }

    fn wake_at(&self) -> Instant {
        match self.failed {
            Some((_, idle)) => idle,
            None if !self.backlog.is_empty() => now(),
            None => self.expire_at,
        }
    }

    fn turn(&mut self, jobs: Vec<Job>) {
        if !self.is_open(!jobs.is_empty()) {
            return self.refuse(jobs, "it failed and is not open again yet");
        }
        let load = if jobs.is_empty() { Load::ALONE } else { Load::BESIDE };
        let mut jobs = jobs;
        jobs.extend(self.due());
        if self.failed.is_some() {
            return self.refuse(jobs, "it failed while it was read");
        }
        self.batch(jobs, load);
    }

    /// Leases that ran out, as commands.
    fn due(&mut self) -> Vec<Job> {
        let now = now();
        if now < self.expire_at {
            return Vec::new();
        }
        let due = match self.store.due((self.options.clock)(), EXPIRE_PART) {
            Ok(due) => due,
            Err(StoreError::Io(why)) => {
                self.fail(&why);
                return Vec::new();
            }
            // Nothing that would help is known here: `verify` finds it.
            Err(StoreError::Damaged(_) | StoreError::Conflict) => Vec::new(),
        };
        self.expire_at = now + if due.len() < EXPIRE_PART { EXPIRE_EVERY } else { EXPIRE_AGAIN };
        due.into_iter().map(|(key, epoch)| Job::own(Command::Expire { key, epoch })).collect()
    }

    /// Decides, persists and answers one batch.
    fn batch(&mut self, jobs: Vec<Job>, load: Load) {
        let mut tries = 0;
        loop {
            if self.failed.is_some() {
                return self.refuse(jobs, "it failed and is not open again yet");
            }
            let env = Env { now: (self.options.clock)(), boot: self.options.boot, secret: self.secret };
            let mut round = Round::default();
            let decided =
                batch::decide(&mut round, &jobs, &*self.store, self.decide, &env, &mut self.backlog, load.plans);
            if load.sightings {
                round.take_sightings(&mut self.backlog);
            }
            let written = decided.and_then(|()| self.persist(&mut round, &jobs));
            match written {
                Ok(()) => return self.done(jobs, round),
                Err(StoreError::Conflict) if tries < CONFLICTS_MAX => {
                    tries += 1;
                    self.backlog.put_back(round.plans, round.sightings);
                }
                Err(error @ StoreError::Conflict) => return self.singly(jobs, round, &error.to_string()),
                Err(StoreError::Io(why)) => {
                    self.backlog.put_back(round.plans, round.sightings);
                    self.fail(&why);
                    return self.refuse(jobs, &why);
                }
                Err(StoreError::Damaged(why)) => {
                    // A store that could not write takes nothing more before it is open again.
                    self.fail(&why);
                    self.reopen();
                    return self.singly(jobs, round, &why);
                }
            }
        }
    }

    fn persist(&mut self, round: &mut Round, jobs: &[Job]) -> Result<(), StoreError> {
        let writes = std::mem::take(&mut round.writes);
        if writes.is_empty() {
            return Ok(());
        }
        // Points for commands only: a plan or an expiry beside them would make the count of a test a matter of luck.
        let asked = jobs.iter().any(|job| job.answer.is_some());
        if asked {
            failpoint::hit("ledger-before-commit");
        }
        let store = &mut self.store;
        self.head = start::guarded(|| store.persist(writes))?;
        if asked {
            failpoint::hit("ledger-after-commit-before-answer");
        }
        self.shared.set_head(&self.head);
        one(&self.shared.counters.batches);
        Ok(())
    }

    /// Everything of the batch is durable: tell it.
    fn done(&mut self, jobs: Vec<Job>, round: Round) {
        let counters = &self.shared.counters;
        for Done { from, record, entry } in round.done {
            counters.transition(from, record.state);
            self.shared.waiters.tell(&record.key, record.state);
            if let Some(observer) = &self.options.observer {
                let transition = super::Transition { from, record: &record, entry: entry.as_ref() };
                // Whoever watches cannot end the ledger.
                let _ = catch_unwind(AssertUnwindSafe(|| observer(&transition)));
            }
        }
        self.give_back(&round.plans, round.sightings.len());
        counters.plans.fetch_add(number(round.plans.len()).saturating_sub(round.plans_lost), Ordering::Relaxed);
        counters.plans_lost.fetch_add(round.plans_lost, Ordering::Relaxed);
        counters.commands.fetch_add(number(jobs.len()), Ordering::Relaxed);
        counters.largest_batch.fetch_max(number(jobs.len()), Ordering::Relaxed);
        for (job, reply) in jobs.into_iter().zip(round.replies) {
            let reply = reply.map(|reply| match reply {
                Reply::Noted(_) => Reply::Noted(self.head.clone()),
                reply => reply,
            });
            job.answer(reply);
        }
    }

    fn give_back(&self, plans: &[(u64, super::behind::Pending)], sightings: usize) {
        if plans.is_empty() && sightings == 0 {
            return;
        }
        let bytes = plans.iter().map(|(_, pending)| pending.bytes).sum();
        self.shared.queue.behind_done(plans.len() + sightings, bytes);
        self.shared.seen.persisted(sightings);
    }

    /// Something in the batch meets a damaged place or a faster writer: each goes alone, so that only that one suffers.
    fn singly(&mut self, jobs: Vec<Job>, round: Round, why: &str) {
        let (plans, sightings) = (round.plans.len(), round.sightings.len());
        if jobs.len() + plans + usize::from(sightings > 0) <= 1 {
            self.give_back(&round.plans, sightings);
            self.shared.counters.plans_lost.fetch_add(number(plans), Ordering::Relaxed);
            return self.refuse(jobs, why);
        }
        self.backlog.put_back(round.plans, round.sightings);
        for _ in 0..plans {
            self.batch(Vec::new(), Load { plans: 1, sightings: false });
        }
        if sightings > 0 {
            self.batch(Vec::new(), Load { plans: 0, sightings: true });
        }
        for job in jobs {
            self.batch(vec![job], Load::NONE);
        }
    }

    fn refuse(&mut self, jobs: Vec<Job>, why: &str) {
        for Job { command, answer, .. } in jobs {
            if let Some(answer) = answer {
                let _ = answer.send(Err(Unavailable::Store(why.to_owned())));
            }
            // Without a failed store the same would fail again.
            if self.failed.is_some() && !self.kept.keep(command) {
                one(&self.shared.counters.kept_lost);
            }
        }
        self.shared.counters.kept.store(number(self.kept.len()), Ordering::Relaxed);
    }

    /// The store failed: nothing more goes in before it is open again.
    fn fail(&mut self, why: &str) {
        let now = now();
        self.failed = Some((now, now + REOPEN_IDLE));
        self.shared.set_failed(why);
        one(&self.shared.counters.failures);
    }

    /// Whether the store takes writes, after trying to make it so where that is due.
    fn is_open(&mut self, asked: bool) -> bool {
        let Some((for_command, idle)) = self.failed else { return true };
        let now = now();
        if now < idle && !(asked && now >= for_command) {
            return false;
        }
        self.reopen()
    }

    fn reopen(&mut self) -> bool {
        let (store, head) = (&mut self.store, &self.head);
        let (begun, options, decide) = (self.begun, &self.options, self.decide);
        let opened = start::guarded(|| {
            store.reopen(head)?;
            if begun { start::count(&mut **store) } else { Ok(start::begin(&mut **store, options, decide)?.0) }
        });
        let now = now();
        match opened {
            Ok(open) => {
                self.failed = None;
                self.begun = true;
                self.head = self.store.head();
                self.shared.counters.set_open(open);
                self.shared.set_head(&self.head);
                one(&self.shared.counters.reopened);
            }
            Err(why) => {
                self.failed = Some((now + REOPEN_SPACING, now + REOPEN_IDLE));
                self.shared.set_failed(&why.to_string());
                return false;
            }
        }
        // The batch that failed may be there after all.
        self.shared.waiters.tell_all();
        self.store_kept();
        let is_open = self.failed.is_none();
        if is_open {
            self.shared.set_available();
        }
        is_open
    }

    /// Outcomes that memory kept go in before anything else, so that no lease runs out over them.
    fn store_kept(&mut self) {
        while self.failed.is_none() {
            let part = self.kept.part();
            if part.is_empty() {
                break;
            }
            self.batch(part, Load::NONE);
        }
        self.shared.counters.kept.store(number(self.kept.len()), Ordering::Relaxed);
    }

    /// Persists what is left and marks that the end was in order; a store that is failed gets one more try.
    fn finish(&mut self) {
        if self.failed.is_some() && !self.reopen() {
            return;
        }
        while self.failed.is_none() && !self.backlog.is_empty() {
            self.batch(Vec::new(), Load::ALONE);
        }
        if self.failed.is_none() {
            let store = &mut self.store;
            // Without the mark the next life thinks that plans were lost: that is all.
            let _ = start::guarded(|| store.mark_running(None));
        }
    }
}

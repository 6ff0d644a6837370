//! What the writer counts, to be watched without a scan.
//!
//! In: each persisted transition and each batch. Out: [`Stats`], a copy at a moment. Open records are counted once at the start and then by
//! their transitions.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::record::State;

/// Numbers of a ledger at a moment; totals are since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commands that wait.
    pub queued: u64,
    /// Plans and sightings that are not persisted yet.
    pub behind: u64,
    /// Commands that were answered after their batch.
    pub commands: u64,
    /// Batches that were persisted, each one commit.
    pub batches: u64,
    /// Commands of the largest batch.
    pub largest_batch: u64,
    /// Plans that were persisted.
    pub plans: u64,
    /// Plans that could not be decided and are lost.
    pub plans_lost: u64,
    /// Failures of the store.
    pub failures: u64,
    /// Times that it was opened anew.
    pub reopened: u64,
    /// Outcomes in memory that the store could not take yet.
    pub kept: u64,
    /// Outcomes that there was no room to keep: their executions become unknown.
    pub kept_lost: u64,
    /// Records that are `planned`.
    pub planned: u64,
    /// Records that are `started`.
    pub started: u64,
    /// Records that are `unknown`.
    pub unknown: u64,
}

/// The running numbers.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) commands: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) largest_batch: AtomicU64,
    pub(super) plans: AtomicU64,
    pub(super) plans_lost: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) reopened: AtomicU64,
    pub(super) kept: AtomicU64,
    pub(super) kept_lost: AtomicU64,
    planned: AtomicI64,
    started: AtomicI64,
    unknown: AtomicI64,
}

/// How many records are open.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Open {
    planned: i64,
    started: i64,
    unknown: i64,
}

impl Open {
    pub(super) fn count(&mut self, state: State) {
        match state {
            State::Planned => self.planned += 1,
            State::Started => self.started += 1,
            State::Unknown => self.unknown += 1,
            State::Succeeded | State::Failed => {}
        }
    }
}

impl Counters {
    pub(super) fn set_open(&self, open: Open) {
        self.planned.store(open.planned, Ordering::Relaxed);
        self.started.store(open.started, Ordering::Relaxed);
        self.unknown.store(open.unknown, Ordering::Relaxed);
    }

    pub(super) fn transition(&self, from: Option<State>, to: State) {
        if from == Some(to) {
            return;
        }
        if let Some(counter) = from.and_then(|from| self.open(from)) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(counter) = self.open(to) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn open(&self, state: State) -> Option<&AtomicI64> {
        match state {
            State::Planned => Some(&self.planned),
            State::Started => Some(&self.started),
            State::Unknown => Some(&self.unknown),
            State::Succeeded | State::Failed => None,
        }
    }

    pub(super) fn read(&self, (queued, behind): (usize, usize)) -> Stats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let open = |counter: &AtomicI64| u64::try_from(counter.load(Ordering::Relaxed)).unwrap_or(0);
        Stats {
            queued: number(queued),
            behind: number(behind),
            commands: count(&self.commands),
            batches: count(&self.batches),
            largest_batch: count(&self.largest_batch),
            plans: count(&self.plans),
            plans_lost: count(&self.plans_lost),
            failures: count(&self.failures),
            reopened: count(&self.reopened),
            kept: count(&self.kept),
            kept_lost: count(&self.kept_lost),
            planned: open(&self.planned),
            started: open(&self.started),
            unknown: open(&self.unknown),
        }
    }
}

/// A length as a number to count with.
pub(super) fn number(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Adds one.
pub(super) fn one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

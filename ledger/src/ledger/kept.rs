//! Outcomes that the store could not take.
//!
//! In: `complete` commands whose commit failed. Out: the same, in order, once the store is open again. A call that ran and whose outcome only
//! memory knows must not become unknown for a full disk (LEDGER.md 5.5); whoever said it was told that it is not durable, and may say it
//! again: the same settlement twice is no change. Bounded; past that the lease runs out and the execution is unknown.

use std::collections::VecDeque;

use super::queue::{BATCH_BYTES, BATCH_MAX, Job};
use crate::command::{Command, Complete};

/// Most outcomes: as many as one commit takes.
const KEPT_MAX: usize = BATCH_MAX;
/// Most bytes of them: eight of the largest results.
const KEPT_BYTES: usize = 64 * 1024 * 1024;

#[derive(Default)]
pub(super) struct Kept {
    jobs: VecDeque<Job>,
    bytes: usize,
}

impl Kept {
    /// Keeps what is to be kept of a command that failed. False: it should be and there was no room.
    pub(super) fn keep(&mut self, command: Command) -> bool {
        let Command::Complete(complete) = &command else { return true };
        if self.jobs.iter().any(|job| is_same(&job.command, complete)) {
            return true;
        }
        let job = Job::own(command);
        if self.jobs.len() >= KEPT_MAX || self.bytes.saturating_add(job.bytes) > KEPT_BYTES {
            return false;
        }
        self.bytes += job.bytes;
        self.jobs.push_back(job);
        true
    }

    /// Takes out as many as one commit takes, oldest first.
    pub(super) fn part(&mut self) -> Vec<Job> {
        let mut part: Vec<Job> = Vec::new();
        let mut bytes = 0_usize;
        while let Some(job) = self.jobs.pop_front() {
            if !part.is_empty() && bytes.saturating_add(job.bytes) > BATCH_BYTES {
                self.jobs.push_front(job);
                break;
            }
            bytes += job.bytes;
            part.push(job);
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        part
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }
}

fn is_same(command: &Command, complete: &Complete) -> bool {
    let Command::Complete(kept) = command else { return false };
    kept.key == complete.key
        && kept.tenant == complete.tenant
        && kept.lease_token == complete.lease_token
        && kept.outcome == complete.outcome
        && kept.settlement == complete.settlement
}

//! What waits for the writer: commands, and behind them plans and sightings.
//!
//! In: work from any thread, each push one short lock and never a wait. Out: batches for the writer thread. Both queues are bounded by number and
//! by bytes; a full one refuses at once, since a caller that waits in a second queue would only time out later.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::Unavailable;
use crate::command::{Command, Plan, Reply};
use crate::record::{Evidence, Settlement};
use crate::store::Sighting;

/// Most commands in one commit: past this a larger batch gains little and its first caller waits long (LEDGER.md 5.4).
pub(super) const BATCH_MAX: usize = 1024;
/// Most bytes of commands in one commit; one command that is larger goes alone.
pub(super) const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of commands that may wait: results have up to 8 MiB each, so that a number alone bounds no memory.
const QUEUE_BYTES: usize = 128 * 1024 * 1024;
/// Bytes of plans that may wait.
const BEHIND_BYTES: usize = 32 * 1024 * 1024;
/// What a command takes beside its contents, about.
const COMMAND_BYTES: usize = 512;

/// Now, for waits of the writer's thread.
#[expect(clippy::disallowed_methods, reason = "a thread without a runtime has no clock but this one")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Where an answer goes.
pub(super) type Answer = oneshot::Sender<Result<Reply, Unavailable>>;

/// A command that waits.
pub(super) struct Job {
    pub(super) command: Command,
    pub(super) bytes: usize,
    /// None for the writer's own.
    pub(super) answer: Option<Answer>,
}

impl Job {
    pub(super) fn own(command: Command) -> Self {
        Self { bytes: weight(&command), command, answer: None }
    }

    pub(super) fn answer(self, reply: Result<Reply, Unavailable>) {
        if let Some(answer) = self.answer {
            // Whoever asked may be gone: what was decided stands all the same.
            let _ = answer.send(reply);
        }
    }
}

/// What goes behind.
pub(super) enum Behind {
    Plan(Box<Plan>, usize),
    Sightings(Vec<Sighting>),
}

/// What the writer takes at once.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) jobs: Vec<Job>,
    pub(super) behind: VecDeque<Behind>,
    /// No more will come: everything is to be persisted now.
    pub(super) closing: bool,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    job_bytes: usize,
    behind: VecDeque<Behind>,
    /// Plans and sightings here and in the writer's hands.
    behind_count: usize,
    behind_bytes: usize,
    closing: bool,
    /// The writer is gone.
    dead: bool,
}

/// The two queues.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    woken: Condvar,
    queue_max: usize,
    behind_max: usize,
}

impl Queue {
    pub(super) fn new(queue_max: usize, behind_max: usize) -> Self {
        Self { waiting: Mutex::default(), woken: Condvar::new(), queue_max, behind_max }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing in here panics half way; the numbers hold.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a command, or says at once that there is no room.
    pub(super) fn push(&self, command: Command, answer: Answer) -> Result<(), Unavailable> {
        let bytes = weight(&command);
        let mut waiting = self.lock();
        if waiting.closing || waiting.dead {
            return Err(Unavailable::Closed);
        }
        let over = !waiting.jobs.is_empty() && waiting.job_bytes.saturating_add(bytes) > QUEUE_BYTES;
        if waiting.jobs.len() >= self.queue_max || over {
            return Err(Unavailable::Busy);
        }
        waiting.job_bytes = waiting.job_bytes.saturating_add(bytes);
        waiting.jobs.push_back(Job { command, bytes, answer: Some(answer) });
        drop(waiting);
        self.woken.notify_one();
        Ok(())
    }

    /// Takes a plan; false: no room.
    pub(super) fn push_plan(&self, plan: Plan) -> bool {
        let bytes = COMMAND_BYTES.saturating_add(plan.arguments.canonical().as_bytes().len());
        self.push_behind(Behind::Plan(Box::new(plan), bytes), 1, bytes)
    }

    /// Takes sightings, all or none; false: no room.
    pub(super) fn push_sightings(&self, sightings: Vec<Sighting>) -> bool {
        let count = sightings.len();
        self.push_behind(Behind::Sightings(sightings), count, 0)
    }

    fn push_behind(&self, behind: Behind, count: usize, bytes: usize) -> bool {
        let mut waiting = self.lock();
        if waiting.closing
            || waiting.dead
            || waiting.behind_count.saturating_add(count) > self.behind_max
            || waiting.behind_bytes.saturating_add(bytes) > BEHIND_BYTES
        {
            return false;
        }
        waiting.behind_count += count;
        waiting.behind_bytes += bytes;
        waiting.behind.push_back(behind);
        drop(waiting);
        self.woken.notify_one();
        true
    }

    /// Gives back the room of plans and sightings that are persisted or given up.
    pub(super) fn behind_done(&self, count: usize, bytes: usize) {
        let mut waiting = self.lock();
        waiting.behind_count = waiting.behind_count.saturating_sub(count);
        waiting.behind_bytes = waiting.behind_bytes.saturating_sub(bytes);
    }

    /// The next batch of commands and all that came behind; waits for either, at most until `until`.
    pub(super) fn take(&self, until: Instant) -> Taken {
        let mut waiting = self.lock();
        loop {
            let left = until.saturating_duration_since(now());
            if !waiting.jobs.is_empty() || !waiting.behind.is_empty() || waiting.closing || left == Duration::ZERO {
                break;
            }
            waiting = self.woken.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let mut taken = Taken::default();
        let mut bytes = 0_usize;
        while taken.jobs.len() < BATCH_MAX {
            let Some(next) = waiting.jobs.front().map(|job| job.bytes) else { break };
            if !taken.jobs.is_empty() && bytes.saturating_add(next) > BATCH_BYTES {
                break;
            }
            bytes = bytes.saturating_add(next);
            taken.jobs.extend(waiting.jobs.pop_front());
        }
        waiting.job_bytes = waiting.job_bytes.saturating_sub(bytes);
        taken.behind = std::mem::take(&mut waiting.behind);
        taken.closing = waiting.closing && waiting.jobs.is_empty();
        taken
    }

    /// Takes no more; the writer ends once all is persisted.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.woken.notify_one();
    }

    /// The writer is gone: whoever waits learns it by its answer's end.
    pub(super) fn die(&self) {
        let mut waiting = self.lock();
        waiting.dead = true;
        waiting.jobs.clear();
        waiting.behind.clear();
    }

    /// Commands, and plans and sightings, that wait.
    pub(super) fn depths(&self) -> (usize, usize) {
        let waiting = self.lock();
        (waiting.jobs.len(), waiting.behind_count)
    }
}

/// About how many bytes a command brings to a commit.
fn weight(command: &Command) -> usize {
    let contents = match command {
        Command::Plan(plan) => plan.arguments.canonical().as_bytes().len(),
        Command::Claim(claim) => claim.arguments.canonical().as_bytes().len(),
        Command::Complete(complete) => settled(&complete.settlement) + seen(&complete.evidence),
        Command::Observe(observe) => {
            observe.verdict.as_ref().map_or(0, |(_, settlement)| settled(settlement)) + seen(&observe.evidence)
        }
        Command::Change(change) => match &change.verb {
            crate::command::Verb::Resolve { settlement, .. } => settled(settlement) + change.reason.len(),
            _ => change.reason.len(),
        },
        Command::Record(remark) => remark.reason.len(),
        Command::Heartbeat(_)
        | Command::Expire { .. }
        | Command::Orphan { .. }
        | Command::Reported { .. }
        | Command::Erase { .. }
        | Command::Gap { .. } => 0,
    };
    contents.saturating_add(COMMAND_BYTES)
}

fn settled(settlement: &Settlement) -> usize {
    settlement.result.as_ref().map_or(0, |result| result.body.len())
        + settlement.error.as_ref().map_or(0, |error| error.len())
        + settlement.external_reference.as_ref().map_or(0, |reference| reference.len())
}

fn seen(evidence: &[Evidence]) -> usize {
    evidence.iter().map(|one| one.detail.len()).sum()
}

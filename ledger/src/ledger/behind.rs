//! Plans and sightings that are known and not persisted yet.
//!
//! In: what came behind, in order. Out: the plans that concern a command, to be decided just before it; else a bounded part of the oldest
//! for each batch. The writer alone holds the plans; sightings can be read by anybody.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::queue::Behind;
use crate::command::{Command, Plan};
use crate::ids::Occurrence;
use crate::key::ExecutionKey;
use crate::store::{Sighting, first_key};

/// Plans that go with a batch of commands: enough that they are never starved, few beside the commands.
pub(super) const PLANS_BESIDE: usize = 64;
/// Plans of a batch without commands.
pub(super) const PLANS_ALONE: usize = 512;
/// Bytes of plans of one batch.
const PLAN_BYTES: usize = 2 * 1024 * 1024;
/// Sightings of one batch: each is about a hundred bytes.
const SIGHTINGS_MAX: usize = 4096;
/// Sightings that stay readable from memory after they are persisted: those of the last turns, which the next requests ask for.
const SIGHTINGS_REMEMBERED: usize = 16 * 1024;

/// A plan in the writer's hands.
pub(super) struct Pending {
    pub(super) command: Command,
    pub(super) bytes: usize,
    keys: Vec<ExecutionKey>,
}

/// Everything behind, in the writer's hands.
#[derive(Default)]
pub(super) struct Backlog {
    plans: BTreeMap<u64, Pending>,
    /// By the key that a plan foresees and by that of its slot's first occurrence.
    by_key: HashMap<ExecutionKey, BTreeSet<u64>>,
    next: u64,
    sightings: VecDeque<Sighting>,
}

impl Backlog {
    pub(super) fn take_in(&mut self, behind: VecDeque<Behind>) {
        for one in behind {
            match one {
                Behind::Plan(plan, bytes) => {
                    let keys = keys_of_plan(&plan);
                    let id = self.next;
                    self.next += 1;
                    self.insert(id, Pending { command: Command::Plan(plan), bytes, keys });
                }
                Behind::Sightings(sightings) => self.sightings.extend(sightings),
            }
        }
    }

    fn insert(&mut self, id: u64, pending: Pending) {
        for key in &pending.keys {
            self.by_key.entry(*key).or_default().insert(id);
        }
        self.plans.insert(id, pending);
    }

    /// Takes out the plans that concern a command, oldest first.
    pub(super) fn concerning(&mut self, command: &Command) -> Vec<(u64, Pending)> {
        if self.plans.is_empty() {
            return Vec::new();
        }
        let Some(key) = key_of(command) else { return Vec::new() };
        let ids = self.by_key.get(&key).cloned().unwrap_or_default();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    fn remove(&mut self, id: u64) -> Option<(u64, Pending)> {
        let pending = self.plans.remove(&id)?;
        for key in &pending.keys {
            if let Some(ids) = self.by_key.get_mut(key) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        Some((id, pending))
    }

    /// Takes out a part of the oldest plans.
    pub(super) fn part(&mut self, most: usize) -> Vec<(u64, Pending)> {
        let mut part = Vec::new();
        let mut bytes = 0_usize;
        while part.len() < most {
            let Some((id, next)) = self.plans.iter().next().map(|(id, pending)| (*id, pending.bytes)) else { break };
            if !part.is_empty() && bytes.saturating_add(next) > PLAN_BYTES {
                break;
            }
            bytes = bytes.saturating_add(next);
            part.extend(self.remove(id));
        }
        part
    }

    /// Takes out a part of the oldest sightings.
    pub(super) fn some_sightings(&mut self) -> Vec<Sighting> {
        let most = self.sightings.len().min(SIGHTINGS_MAX);
        self.sightings.drain(..most).collect()
    }

    /// Puts back what could not be persisted, where it was.
    pub(super) fn put_back(&mut self, plans: Vec<(u64, Pending)>, sightings: Vec<Sighting>) {
        for (id, pending) in plans {
            self.insert(id, pending);
        }
        for sighting in sightings.into_iter().rev() {
            self.sightings.push_front(sighting);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.plans.is_empty() && self.sightings.is_empty()
    }
}

fn keys_of_plan(plan: &Plan) -> Vec<ExecutionKey> {
    // Without a slot there is no record that a claim could meet; the machine says what becomes of it.
    let Ok(projected) = plan.tool.projection.apply(&plan.arguments) else { return Vec::new() };
    let key = |occurrence| first_key(&plan.tenant, &plan.root, &plan.tool.name, projected.slot, occurrence);
    let mut keys = vec![key(Occurrence::default())];
    if plan.occurrence != Occurrence::default() {
        keys.push(key(plan.occurrence));
    }
    keys
}

/// The key by which a command's plans are found: for a claim that of its slot's first occurrence, since the plan says which one it is.
fn key_of(command: &Command) -> Option<ExecutionKey> {
    match command {
        Command::Claim(claim) => {
            let projected = claim.tool.projection.apply(&claim.arguments).ok()?;
            Some(first_key(&claim.tenant, &claim.root, &claim.tool.name, projected.slot, Occurrence::default()))
        }
        // An earlier plan that waits is decided before a later one that somebody waits for.
        Command::Plan(plan) => keys_of_plan(plan).first().copied(),
        Command::Heartbeat(heartbeat) => Some(heartbeat.key),
        Command::Complete(complete) => Some(complete.key),
        Command::Observe(observe) => Some(observe.key),
        Command::Change(change) => Some(change.key),
        Command::Expire { key, .. } | Command::Orphan { key } | Command::Reported { key } | Command::Erase { key } => {
            Some(*key)
        }
        Command::Record(_) | Command::Gap { .. } => None,
    }
}

/// Sightings that anybody may read at once: all that are not persisted, and the newest of those that are.
#[derive(Default)]
pub(super) struct Seen {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_digest: HashMap<[u8; 16], (u64, Sighting)>,
    /// In the order of coming; the number tells whether an entry still speaks for its digest.
    order: VecDeque<(u64, [u8; 16])>,
    next: u64,
    /// How many of `order`, from its front, are persisted.
    persisted: usize,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes sightings if `push` takes them for the writer.
    pub(super) fn note(&self, sightings: Vec<Sighting>, push: impl FnOnce(Vec<Sighting>) -> bool) -> bool {
        let mut table = self.lock();
        // Under the table's lock, so that the order here is the order in which they are persisted.
        if !push(sightings.clone()) {
            return false;
        }
        for sighting in sightings {
            let number = table.next;
            table.next += 1;
            table.order.push_back((number, sighting.digest));
            table.by_digest.insert(sighting.digest, (number, sighting));
        }
        true
    }

    /// The oldest `count` that were not persisted are now.
    pub(super) fn persisted(&self, count: usize) {
        let mut table = self.lock();
        table.persisted += count;
        while table.persisted > SIGHTINGS_REMEMBERED {
            let Some((number, digest)) = table.order.pop_front() else { break };
            table.persisted -= 1;
            if table.by_digest.get(&digest).is_some_and(|(newest, _)| *newest == number) {
                table.by_digest.remove(&digest);
            }
        }
    }

    pub(super) fn get(&self, digest: &[u8; 16]) -> Option<Sighting> {
        self.lock().by_digest.get(digest).map(|(_, sighting)| sighting.clone())
    }
}

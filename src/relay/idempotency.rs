//! One operation, one outcome: what a second request with the same `Idempotency-Key` gets (SPEC Annex, Idempotency).
//!
//! In memory, per tenant, bounded by number and bytes. A key is *claimed* by the first request; the claim is settled by the
//! driver: with a whole answer or a failure that showed nothing (kept 60 s, replayed), or as *shown* once a byte of a
//! streamed answer went out (this build keeps no transcripts, so the key answers 409 from then on and never generates again).
//! A claim dropped unsettled (the client left, nothing was shown) frees the key.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::clock::Instant;
use crate::ids::{OperationId, TenantId};

use super::emit::Head;

/// How long an outcome is kept.
pub const OUTCOME_KEPT: Duration = Duration::from_secs(60);

/// How long it is remembered that a key's answer was shown.
pub const SHOWN_KEPT: Duration = Duration::from_secs(24 * 3600);

/// Keys remembered. At the bound the oldest settled one is forgotten; if all are running the request is shed.
pub const KEYS_MAX: usize = 50_000;

/// Bytes of outcomes kept in all; over it an outcome goes to those who wait and is then not kept.
pub const OUTCOME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Requests that may wait for one key (SPEC Annex, Bounds).
pub const WAITERS_MAX: usize = 1000;

/// A whole answer or failure.
#[derive(Debug)]
pub struct Stored {
    /// Status and headers.
    pub head: Head,
    /// Body.
    pub body: Bytes,
}

type Key = (TenantId, OperationId);
type Outcome = Option<Arc<Stored>>;

/// The table.
#[derive(Clone, Debug, Default)]
pub struct Idempotency {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Key, Entry>,
    /// Settled entries in the order in which they expire or may be forgotten.
    settled: VecDeque<(Key, u64)>,
    bytes: usize,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    serial: u64,
    fingerprint: [u8; 32],
    state: EntryState,
}

#[derive(Debug)]
enum EntryState {
    Running(Option<Arc<watch::Sender<Outcome>>>),
    Done(Arc<Stored>, Instant),
    NotKept(Instant),
}

/// What a key says.
#[derive(Debug)]
pub enum Claimed {
    /// The first one: run it.
    New(Claim),
    /// Wait for the one that runs.
    Join(watch::Receiver<Outcome>),
    /// It ended: the same answer again.
    Replay(Arc<Stored>),
    /// A streamed one is going on and can't be joined.
    InProgress,
    /// Its answer was shown and not kept.
    NotKept,
    /// Another body came under this key.
    Mismatch,
    /// Too many wait, or too many keys run.
    Full,
}

/// The right and duty to settle a key.
#[derive(Debug)]
pub struct Claim {
    table: Idempotency,
    key: Key,
    serial: u64,
    sender: Option<Arc<watch::Sender<Outcome>>>,
    settled: bool,
}

impl Idempotency {
    /// Claims a key. `joinable`: not streamed, so that others can wait for the whole answer.
    pub fn claim(&self, key: Key, fingerprint: [u8; 32], joinable: bool, now: Instant) -> Claimed {
        let mut table = self.lock();
        table.expire(now);
        table.drop_if_over(&key, now);
        if let Some(entry) = table.entries.get(&key) {
            if entry.fingerprint != fingerprint {
                return Claimed::Mismatch;
            }
            return match &entry.state {
                EntryState::Running(None) => Claimed::InProgress,
                EntryState::Running(Some(sender)) if sender.receiver_count() >= WAITERS_MAX => Claimed::Full,
                EntryState::Running(Some(sender)) => Claimed::Join(sender.subscribe()),
                EntryState::Done(stored, _) => Claimed::Replay(Arc::clone(stored)),
                EntryState::NotKept(_) => Claimed::NotKept,
            };
        }
        if table.entries.len() >= KEYS_MAX && !table.forget_oldest() {
            return Claimed::Full;
        }
        let sender = joinable.then(|| Arc::new(watch::Sender::new(None)));
        let serial = table.next;
        table.next += 1;
        let state = EntryState::Running(sender.clone());
        table.entries.insert(key.clone(), Entry { serial, fingerprint, state });
        Claimed::New(Claim { table: self.clone(), key, serial, sender, settled: false })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// The channel on which the outcome is told, for requests that can be joined.
    pub fn sender(&self) -> Option<Arc<watch::Sender<Outcome>>> {
        self.sender.clone()
    }

    /// The outcome: whoever waits gets it now, whoever comes within `kept` gets it again.
    pub fn settle(&mut self, head: Head, body: Bytes, now: Instant, kept: Duration) {
        let stored = Arc::new(Stored { head, body });
        self.table.lock().settle(&self.key, self.serial, &stored, now + kept);
        self.settled = true;
        if let Some(sender) = &self.sender {
            sender.send_replace(Some(stored));
        }
    }

    /// A refusal before any provider was called: whoever waits gets it, nothing is kept, and the key is free again.
    pub fn tell(&mut self, head: Head, body: Bytes) {
        if let Some(sender) = &self.sender {
            sender.send_replace(Some(Arc::new(Stored { head, body })));
        }
    }

    /// A byte of a streamed answer went out.
    pub fn shown(&mut self, now: Instant) {
        self.table.lock().shown(&self.key, self.serial, now);
        self.settled = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.settled {
            let mut table = self.table.lock();
            if table.entries.get(&self.key).is_some_and(|entry| entry.serial == self.serial) {
                table.entries.remove(&self.key);
            }
        }
    }
}

impl Table {
    fn settle(&mut self, key: &Key, serial: u64, stored: &Arc<Stored>, until: Instant) {
        let fits = self.bytes + stored.body.len() <= OUTCOME_BYTES_MAX;
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.serial == serial) else { return };
        if fits {
            self.bytes += stored.body.len();
            entry.state = EntryState::Done(Arc::clone(stored), until);
        } else {
            entry.state = EntryState::NotKept(until);
        }
        self.settled.push_back((key.clone(), serial));
    }

    fn shown(&mut self, key: &Key, serial: u64, now: Instant) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.serial == serial) else { return };
        entry.state = EntryState::NotKept(now + SHOWN_KEPT);
        self.settled.push_back((key.clone(), serial));
    }

    /// Looks at a few of the oldest settled entries at each claim, so that no claim pays for all.
    fn expire(&mut self, now: Instant) {
        for _ in 0..8 {
            let Some((key, serial)) = self.settled.pop_front() else { return };
            let over = match self.entries.get(&key).filter(|entry| entry.serial == serial).map(|entry| &entry.state) {
                Some(EntryState::Done(_, until) | EntryState::NotKept(until)) => now >= *until,
                Some(EntryState::Running(_)) | None => continue,
            };
            if over {
                self.remove(&key);
            } else {
                // Not yet; later ones may be due all the same (60 s against 24 h).
                self.settled.push_back((key, serial));
            }
        }
    }

    /// An outcome whose time is over counts as absent, wherever it stands in the order.
    fn drop_if_over(&mut self, key: &Key, now: Instant) {
        let over = match self.entries.get(key).map(|entry| &entry.state) {
            Some(EntryState::Done(_, until) | EntryState::NotKept(until)) => now >= *until,
            Some(EntryState::Running(_)) | None => false,
        };
        if over {
            self.remove(key);
        }
    }

    fn forget_oldest(&mut self) -> bool {
        while let Some((key, serial)) = self.settled.pop_front() {
            if self.entries.get(&key).is_some_and(|entry| entry.serial == serial) {
                self.remove(&key);
                return true;
            }
        }
        false
    }

    fn remove(&mut self, key: &Key) {
        if let Some(Entry { state: EntryState::Done(stored, _), .. }) = self.entries.remove(key) {
            self.bytes -= stored.body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};

    use super::*;

    fn key(name: &str) -> Key {
        (TenantId::new("t"), OperationId::new(name))
    }

    fn head() -> Head {
        Head { status: StatusCode::OK, headers: HeaderMap::new() }
    }

    fn new(claimed: Claimed) -> Claim {
        match claimed {
            Claimed::New(claim) => claim,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_answer_is_joined_then_replayed_then_forgotten() {
        let table = Idempotency::default();
        let now = Instant::now();
        let mut claim = new(table.claim(key("a"), [1; 32], true, now));
        let Claimed::Join(mut joined) = table.claim(key("a"), [1; 32], true, now) else { panic!() };
        assert!(matches!(table.claim(key("a"), [2; 32], true, now), Claimed::Mismatch));
        claim.settle(head(), Bytes::from_static(b"x"), now, OUTCOME_KEPT);
        drop(claim);
        let outcome = joined.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        assert_eq!(outcome.body, "x");
        let later = now + OUTCOME_KEPT - Duration::from_millis(1);
        assert!(matches!(table.claim(key("a"), [1; 32], true, later), Claimed::Replay(_)));
        let over = now + OUTCOME_KEPT;
        new(table.claim(key("a"), [2; 32], true, over)).shown(over);
        assert_eq!(table.lock().bytes, 0);
    }

    #[test]
    fn a_streamed_answer_is_in_progress_then_not_kept() {
        let table = Idempotency::default();
        let now = Instant::now();
        let mut claim = new(table.claim(key("a"), [1; 32], false, now));
        assert!(matches!(table.claim(key("a"), [1; 32], false, now), Claimed::InProgress));
        claim.shown(now);
        drop(claim);
        let later = now + SHOWN_KEPT - Duration::from_secs(1);
        assert!(matches!(table.claim(key("a"), [1; 32], false, later), Claimed::NotKept));
    }

    #[test]
    fn an_unsettled_claim_frees_its_key() {
        let table = Idempotency::default();
        let now = Instant::now();
        drop(new(table.claim(key("a"), [1; 32], false, now)));
        drop(new(table.claim(key("a"), [2; 32], false, now)));
        assert!(matches!(
            table.claim((TenantId::new("u"), OperationId::new("a")), [3; 32], false, now),
            Claimed::New(_)
        ));
    }

    #[test]
    fn bounds() {
        let table = Idempotency::default();
        let now = Instant::now();
        let mut kept = Vec::new();
        for n in 0..KEYS_MAX {
            kept.push(new(table.claim(key(&n.to_string()), [1; 32], true, now)));
        }
        assert!(matches!(table.claim(key("more"), [1; 32], true, now), Claimed::Full), "all running");
        kept[7].settle(head(), Bytes::from(vec![0; OUTCOME_BYTES_MAX]), now, OUTCOME_KEPT);
        assert_eq!(table.lock().bytes, OUTCOME_BYTES_MAX);
        kept[8].settle(head(), Bytes::from_static(b"x"), now, OUTCOME_KEPT);
        assert!(matches!(table.claim(key("8"), [1; 32], true, now), Claimed::NotKept), "no room: not kept");
        let extra = new(table.claim(key("more"), [1; 32], true, now));
        assert_eq!(table.lock().bytes, 0, "the oldest settled one gave way");
        let mut waiting = Vec::new();
        for _ in 0..WAITERS_MAX {
            let Claimed::Join(receiver) = table.claim(key("more"), [1; 32], true, now) else { panic!() };
            waiting.push(receiver);
        }
        assert!(matches!(table.claim(key("more"), [1; 32], true, now), Claimed::Full));
        drop(extra);
    }
}

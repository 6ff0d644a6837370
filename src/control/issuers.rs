//! Which account issued a piece of state (a response id, encrypted reasoning …): hashes only, by tenant, for a day.
//!
//! In memory for the request's path, written behind it by the control store's writer. A row that could not be queued is lost after
//! a restart and counted: the state is then unknown, which belongs to the primary and never fails over (SPEC section 3).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::UnixMillis;
use crate::ids::TenantId;

use super::queue::Queue;

/// First 128 bits of a hash of the state; the caller makes it.
pub type PinDigest = [u8; 16];

/// Rows in memory, and about as many on disk. At the bound the oldest is forgotten. About 100 MB at most.
pub const ISSUERS_MAX: usize = 500_000;

/// How long a row counts (SPEC section 3: 24 h).
pub const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// State that is seen again is written again only after this: turns of one conversation bring it each time.
const REFRESH_MS: u64 = 60 * 60 * 1000;

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Issued {
    pub(super) tenant: TenantId,
    pub(super) digest: PinDigest,
    pub(super) account: Arc<str>,
    pub(super) at: UnixMillis,
}

/// Whether a row of `at` still counts.
pub(super) fn counts(at: UnixMillis, now: UnixMillis) -> bool {
    u128::from(now.0.saturating_sub(at.0)) < KEPT.as_millis()
}

type Key = (TenantId, PinDigest);

#[derive(Debug, Default)]
struct Rows {
    by_key: HashMap<Key, (Arc<str>, UnixMillis)>,
    /// In the order of `at`; one that was written again stands here twice, and only its last entry counts.
    order: VecDeque<(Key, UnixMillis)>,
    /// There are few accounts and many rows.
    accounts: HashMap<String, Arc<str>>,
}

impl Rows {
    fn account(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.accounts.get(name) {
            return Arc::clone(known);
        }
        let account: Arc<str> = Arc::from(name);
        self.accounts.insert(name.to_owned(), Arc::clone(&account));
        account
    }

    fn insert(&mut self, key: Key, account: Arc<str>, at: UnixMillis, max: usize) {
        self.order.push_back((key.clone(), at));
        self.by_key.insert(key, (account, at));
        // Each call takes out at most a few more than it puts in.
        for _ in 0..4 {
            let Some((key, entered)) = self.order.front() else { return };
            let stale = self.by_key.get(key).is_none_or(|(_, last)| last != entered);
            let crowded = self.by_key.len() > max || self.order.len() > max.saturating_mul(2);
            if !stale && !crowded && counts(*entered, at) {
                return;
            }
            let Some((key, _)) = self.order.pop_front() else { return };
            if !stale {
                self.by_key.remove(&key);
            }
        }
    }
}

/// Who issued what.
#[derive(Debug)]
pub struct Issuers {
    rows: Mutex<Rows>,
    queue: Option<Arc<Queue>>,
    dropped: AtomicU64,
    max: usize,
}

impl Issuers {
    /// `rows` from the disk, oldest first; `queue` where they are to be written.
    pub(super) fn new(rows: Vec<Issued>, queue: Option<Arc<Queue>>, max: usize) -> Self {
        let mut known = Rows::default();
        let mut tenants: HashMap<TenantId, TenantId> = HashMap::new();
        for row in rows {
            let account = known.account(&row.account);
            let tenant = tenants.entry(row.tenant.clone()).or_insert(row.tenant).clone();
            known.insert((tenant, row.digest), account, row.at, max);
        }
        Self { rows: Mutex::new(known), queue, dropped: AtomicU64::new(0), max }
    }

    /// Notes that `account` issued the state. Never waits for the disk.
    pub fn remember(&self, tenant: &TenantId, digest: PinDigest, account: &str, now: UnixMillis) {
        let key = (tenant.clone(), digest);
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, at)) = rows.by_key.get(&key)
            && **known == *account
            && now.0.saturating_sub(at.0) < REFRESH_MS
        {
            return;
        }
        let account = rows.account(account);
        rows.insert(key, Arc::clone(&account), now, self.max);
        drop(rows);
        let Some(queue) = &self.queue else { return };
        if !queue.issued(Issued { tenant: tenant.clone(), digest, account, at: now }) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The account that issued the state; `None`: not known, or too long ago.
    pub fn account_of(&self, tenant: &TenantId, digest: &PinDigest, now: UnixMillis) -> Option<Arc<str>> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let (account, at) = rows.by_key.get(&(tenant.clone(), *digest))?;
        counts(*at, now).then(|| Arc::clone(account))
    }

    /// Rows that were not queued for the disk since the start: the queue was full, or the store is broken.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Rows in memory.
    pub fn len(&self) -> usize {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).by_key.len()
    }

    #[cfg(test)]
    pub(super) fn ordered(&self) -> usize {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).order.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

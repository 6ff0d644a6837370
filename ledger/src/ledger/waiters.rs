//! Who waits for an execution to leave `started`.
//!
//! In: keys to wait for, and every persisted transition. Out: [`Waiter`]s. A waiter subscribes first and reads the record then, so that
//! nothing falls between. Bounded by key and in all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::Unavailable;
use crate::key::ExecutionKey;
use crate::record::State;

/// Most waiters of one execution (SPEC.md, Bounds).
pub const MAX_WAITERS: usize = 1000;
/// Most executions that are waited for: more than a relay has requests in flight.
const MAX_WAITED_FOR: usize = 65_536;

type Table = HashMap<ExecutionKey, watch::Sender<bool>>;

#[derive(Default)]
pub(super) struct Waiters {
    table: Mutex<Table>,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(self: &Arc<Self>, key: ExecutionKey) -> Result<Waiter, Unavailable> {
        let mut table = self.lock();
        if table.len() >= MAX_WAITED_FOR && !table.contains_key(&key) {
            return Err(Unavailable::Busy);
        }
        let sender = table.entry(key).or_insert_with(|| watch::Sender::new(false));
        if sender.receiver_count() >= MAX_WAITERS {
            return Err(Unavailable::Busy);
        }
        Ok(Waiter { key, receiver: Some(sender.subscribe()), waiters: Arc::clone(self) })
    }

    /// A transition was persisted.
    pub(super) fn tell(&self, key: &ExecutionKey, state: State) {
        if state == State::Started {
            return;
        }
        let sender = self.lock().remove(key);
        if let Some(sender) = sender {
            sender.send_replace(true);
        }
    }

    /// Anything may have changed, or the ledger ends: all look again.
    pub(super) fn tell_all(&self) {
        let table = std::mem::take(&mut *self.lock());
        for sender in table.into_values() {
            sender.send_replace(true);
        }
    }
}

/// One who waits; dropping it leaves.
pub struct Waiter {
    key: ExecutionKey,
    receiver: Option<watch::Receiver<bool>>,
    waiters: Arc<Waiters>,
}

impl Waiter {
    /// Waits until the execution may have left `started`: read the record then. Read it also between subscribing and waiting: what was so
    /// before is not told. Returns as well when the ledger ends or was reopened after a failure. Has no time limit of its own.
    pub async fn moved(mut self) {
        if let Some(receiver) = self.receiver.as_mut() {
            let _ = receiver.wait_for(|moved| *moved).await;
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut table = self.waiters.lock();
        // Under the lock, so that the last one to leave sees that nobody is left.
        self.receiver = None;
        if table.get(&self.key).is_some_and(|sender| sender.receiver_count() == 0) {
            table.remove(&self.key);
        }
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").field("key", &self.key).finish_non_exhaustive()
    }
}

//! The ledger as a program uses it: a handle to the one thread that writes.
//!
//! In: commands from any thread or task. Out: replies, each given after its transition is on disk. What is queued while one commit runs
//! goes into the next: one sync for all who wait. Plans and sightings go behind ([`Ledger::plan`] never waits) and are known at once.

use std::sync::Arc;

use crate::command::{
    Change, Changed, Claim, Claimed, Command, Complete, Denied, Heartbeat, Observe, Plan, Remark, Reply,
};
use crate::journal::Head;
use crate::record::UnixMillis;
use crate::store::{Reader, Sighting, Store, StoreError};

/// Why a command has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The store failed, now or before; nothing of the command counts, unless it says otherwise later ([`Denied`] never does).
    #[error("the ledger is not available: {0}")]
    Store(String),
    /// Too many wait already.
    #[error("the ledger's queue is full")]
    Busy,
    /// It is closed.
    #[error("the ledger is closed")]
    Closed,
}

impl From<StoreError> for Unavailable {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

/// How a ledger is run.
#[derive(Clone)]
pub struct Options {
    /// Reads the wall clock.
    pub clock: Arc<dyn Fn() -> UnixMillis + Send + Sync>,
    /// Random name of this life.
    pub boot: u64,
    /// Commands that may wait.
    pub queue_max: usize,
    /// Plans and sightings that may wait behind them.
    pub behind_max: usize,
}

/// The handle; cheap to clone.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

struct Inner {
    reader: Arc<dyn Reader>,
}

impl Ledger {
    /// Starts the writer over a store. Everything that another life ran itself becomes unknown before the first command is taken.
    ///
    /// # Errors
    /// When the store cannot be read or the thread cannot be made.
    pub fn start(store: Box<dyn Store>, options: Options) -> Result<Self, Unavailable> {
        let _ = options;
        Ok(Self { inner: Arc::new(Inner { reader: store.reader() }) })
    }

    /// Claims a call.
    ///
    /// # Errors
    /// When nothing could be made durable: nothing may run.
    pub async fn claim(&self, claim: Claim) -> Result<Claimed, Unavailable> {
        match self.submit(Command::Claim(Box::new(claim))).await? {
            Reply::Claimed(claimed) => Ok(claimed),
            _ => Err(Unavailable::Closed),
        }
    }

    /// The owner is alive.
    ///
    /// # Errors
    /// When nothing could be made durable.
    pub async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<Result<Changed, Denied>, Unavailable> {
        self.changed(Command::Heartbeat(heartbeat)).await
    }

    /// The owner says how it ended.
    ///
    /// # Errors
    /// When nothing could be made durable.
    pub async fn complete(&self, complete: Complete) -> Result<Result<Changed, Denied>, Unavailable> {
        self.changed(Command::Complete(Box::new(complete))).await
    }

    /// Facts from elsewhere.
    ///
    /// # Errors
    /// When nothing could be made durable.
    pub async fn observe(&self, observe: Observe) -> Result<Result<Changed, Denied>, Unavailable> {
        self.changed(Command::Observe(Box::new(observe))).await
    }

    /// An operator's change.
    ///
    /// # Errors
    /// When nothing could be made durable.
    pub async fn change(&self, change: Change) -> Result<Result<Changed, Denied>, Unavailable> {
        self.changed(Command::Change(Box::new(change))).await
    }

    /// A line in the journal.
    ///
    /// # Errors
    /// When nothing could be made durable.
    pub async fn remark(&self, remark: Remark) -> Result<Head, Unavailable> {
        match self.submit(Command::Record(Box::new(remark))).await? {
            Reply::Noted(head) => Ok(head),
            _ => Err(Unavailable::Closed),
        }
    }

    async fn changed(&self, command: Command) -> Result<Result<Changed, Denied>, Unavailable> {
        match self.submit(command).await? {
            Reply::Changed(changed) => Ok(changed),
            _ => Err(Unavailable::Closed),
        }
    }

    /// Any command. Dropping the future does not take it back.
    ///
    /// # Errors
    /// When nothing could be made durable.
    #[allow(clippy::unused_async, reason = "skeleton")]
    pub async fn submit(&self, command: Command) -> Result<Reply, Unavailable> {
        let _ = command;
        Err(Unavailable::Closed)
    }

    /// Notes a call that a model asked for: known to the next claim at once, persisted behind. False: there was no room and it is lost
    /// (the caller then knows that plans of this operation are incomplete).
    #[must_use]
    pub fn plan(&self, plan: Plan) -> bool {
        let _ = plan;
        false
    }

    /// Notes emitted calls, as [`Ledger::plan`].
    #[must_use]
    pub fn saw(&self, sightings: Vec<Sighting>) -> bool {
        let _ = sightings;
        false
    }

    /// The emitted call with this digest: from memory, else from the store. May block on the disk.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn sighting(&self, digest: &[u8; 16]) -> Result<Option<Sighting>, StoreError> {
        let _ = digest;
        Ok(None)
    }

    /// Reads, from any thread that may block.
    #[must_use]
    pub fn reader(&self) -> Arc<dyn Reader> {
        Arc::clone(&self.inner.reader)
    }

    /// Whether changes can be made durable.
    #[must_use]
    pub fn is_available(&self) -> bool {
        false
    }

    /// Since when plans may have been lost: the last life did not end by [`Ledger::close`]. None: it did.
    #[must_use]
    pub fn unclean_stop(&self) -> Option<UnixMillis> {
        None
    }

    /// Waits until everything that is queued is persisted, and takes no more. Blocks.
    pub fn close(&self) {}
}

//! The ledger as a program uses it: a handle to the one thread that writes.
//!
//! In: commands from any thread or task. Out: replies, each given after its transition is on disk. What is queued while one commit runs
//! goes into the next: one sync for all who wait. Plans and sightings go behind ([`Ledger::plan`] never waits) and are known at once.
//!
//! | file | one line |
//! | --- | --- |
//! | `queue` | what waits: commands, and plans and sightings behind them; bounded |
//! | `writer` | the thread: a turn, a failed store, the end |
//! | `batch` | deciding a batch, each command after the plans that concern it |
//! | `overlay` | what the machine sees meanwhile: the store, and over it this batch |
//! | `behind` | plans in the writer's hands, sightings in everybody's |
//! | `kept` | outcomes that a failed store could not take |
//! | `start` | what another life ran becomes unknown, before the first command |
//! | `waiters` | who waits for an execution to end |
//! | `stats` | numbers without a scan |

mod batch;
mod behind;
mod kept;
mod overlay;
mod queue;
mod start;
mod stats;
#[cfg(test)]
mod tests;
mod waiters;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use self::behind::Seen;
use self::queue::Queue;
pub use self::stats::Stats;
use self::stats::{Counters, Open};
use self::waiters::Waiters;
pub use self::waiters::{MAX_WAITERS, Waiter};
use self::writer::Writer;
use crate::command::{
    Change, Changed, Claim, Claimed, Command, Complete, Denied, Env, Heartbeat, Observe, Plan, Remark, Reply,
};
use crate::journal::{Draft, Head};
use crate::key::ExecutionKey;
use crate::machine::Decision;
use crate::record::{Record, State, UnixMillis};
use crate::store::{Reader, Sighting, Store, StoreError, View};

/// Commands that may wait where nothing else is said: about half a second of a slow disk's work.
pub const QUEUE_MAX: usize = 8192;
/// Plans and sightings that may wait where nothing else is said.
pub const BEHIND_MAX: usize = 16_384;

/// The machine, as an argument for tests of the writer alone.
type Decide = fn(&Command, &dyn View, &Env) -> Result<Decision, StoreError>;

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

/// A transition that was persisted.
#[derive(Debug, Clone, Copy)]
pub struct Transition<'a> {
    /// State before; none: it is new.
    pub from: Option<State>,
    /// The record after.
    pub record: &'a Record,
    /// The journal's line about it; none for the renewal of a lease.
    pub entry: Option<&'a Draft>,
}

/// Sees every transition, on the writer's thread between the commit and its answers: it must be quick and never wait.
pub type Observer = Arc<dyn Fn(&Transition<'_>) + Send + Sync>;

/// How a ledger is run.
#[derive(Clone)]
pub struct Options {
    /// Reads the wall clock.
    pub clock: Arc<dyn Fn() -> UnixMillis + Send + Sync>,
    /// Random name of this life.
    pub boot: u64,
    /// Commands that may wait; one more is [`Unavailable::Busy`].
    pub queue_max: usize,
    /// Plans and sightings that may wait behind them; one more is lost, and said so.
    pub behind_max: usize,
    /// Sees every persisted transition, for alarms and metrics.
    pub observer: Option<Observer>,
}

impl Options {
    /// With the usual bounds and nobody who watches.
    #[must_use]
    pub fn new(clock: Arc<dyn Fn() -> UnixMillis + Send + Sync>, boot: u64) -> Self {
        Self { clock, boot, queue_max: QUEUE_MAX, behind_max: BEHIND_MAX, observer: None }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("boot", &self.boot)
            .field("queue_max", &self.queue_max)
            .field("behind_max", &self.behind_max)
            .finish_non_exhaustive()
    }
}

/// The handle; cheap to clone. The last one that is dropped closes the ledger, which waits for the disk.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

/// What the handles have: dropping it ends the writer.
struct Inner {
    shared: Arc<Shared>,
    reader: Arc<dyn Reader>,
    unclean: Option<UnixMillis>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What handles and writer have in common.
struct Shared {
    queue: Queue,
    seen: Seen,
    waiters: Arc<Waiters>,
    counters: Counters,
    available: AtomicBool,
    failure: Mutex<Option<String>>,
    /// The store was found damaged: no claim is taken any more.
    condemned: OnceLock<String>,
    head: Mutex<Head>,
}

impl Shared {
    fn set_head(&self, head: &Head) {
        *lock(&self.head) = head.clone();
    }

    fn set_failed(&self, why: &str) {
        *lock(&self.failure) = Some(why.to_owned());
        self.available.store(false, Ordering::Release);
    }

    fn set_available(&self) {
        *lock(&self.failure) = None;
        self.available.store(true, Ordering::Release);
    }
}

/// A lock over a plain value: nothing in here panics half way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn close(&self) {
        self.shared.queue.close();
        // Under the lock, so that a second one who closes waits for the end, too.
        let mut thread = lock(&self.thread);
        if let Some(thread) = thread.take() {
            // A writer that panicked has told everybody by its guard.
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Ledger {
    /// Starts the writer over a store. Everything that another life ran itself becomes unknown before the first command is taken. Reads all
    /// open records; blocks. A store that fails here (a full disk) leaves the ledger unavailable until it can be used.
    ///
    /// # Errors
    /// When the store is damaged or the thread cannot be made.
    pub fn start(store: Box<dyn Store>, options: Options) -> Result<Self, Unavailable> {
        Self::start_with(store, options, crate::machine::decide)
    }

    fn start_with(mut store: Box<dyn Store>, options: Options, decide: Decide) -> Result<Self, Unavailable> {
        let (open, unclean, full) = match start::begin(&mut *store, &options, decide) {
            Ok((open, unclean)) => (open, unclean, None),
            // A full disk: whoever has other work than the ledger's goes on, and the writer tries again before it takes anything.
            // What the last life left is not known meanwhile, so plans count as lost.
            Err(StoreError::Io(why)) => (Open::default(), Some((options.clock)()), Some(why)),
            Err(error) => return Err(error.into()),
        };
        let shared = Arc::new(Shared {
            queue: Queue::new(options.queue_max, options.behind_max),
            seen: Seen::default(),
            waiters: Arc::default(),
            counters: Counters::default(),
            available: AtomicBool::new(true),
            failure: Mutex::default(),
            condemned: OnceLock::new(),
            head: Mutex::new(store.head()),
        });
        shared.counters.set_open(open);
        let reader = store.reader();
        let writer = Writer::new(store, Arc::clone(&shared), options, decide, full.as_deref());
        let thread = std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| Unavailable::Store(format!("no thread: {error}")))?;
        Ok(Self { inner: Arc::new(Inner { shared, reader, unclean, thread: Mutex::new(Some(thread)) }) })
    }

    /// Claims a call.
    ///
    /// # Errors
    /// When nothing could be made durable: nothing may run.
    pub async fn claim(&self, claim: Claim) -> Result<Claimed, Unavailable> {
        match self.submit(Command::Claim(Box::new(claim))).await? {
            Reply::Claimed(claimed) => Ok(claimed),
            // Arguments that the tool's projection refuses: callers look first, since only they can say where.
            _ => Err(Unavailable::Store("these arguments have no key".to_owned())),
        }
    }

    /// The owner is alive.
    ///
    /// # Errors
    /// When nothing could be made durable.
    pub async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<Result<Changed, Denied>, Unavailable> {
        self.about(Command::Heartbeat(heartbeat)).await
    }

    /// The owner says how it ended.
    ///
    /// # Errors
    /// When nothing could be made durable.
    pub async fn complete(&self, complete: Complete) -> Result<Result<Changed, Denied>, Unavailable> {
        self.about(Command::Complete(Box::new(complete))).await
    }

    /// Facts from elsewhere.
    ///
    /// # Errors
    /// When nothing could be made durable.
    pub async fn observe(&self, observe: Observe) -> Result<Result<Changed, Denied>, Unavailable> {
        self.about(Command::Observe(Box::new(observe))).await
    }

    /// An operator's change.
    ///
    /// # Errors
    /// When nothing could be made durable.
    pub async fn change(&self, change: Change) -> Result<Result<Changed, Denied>, Unavailable> {
        self.about(Command::Change(Box::new(change))).await
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

    async fn about(&self, command: Command) -> Result<Result<Changed, Denied>, Unavailable> {
        match self.submit(command).await? {
            Reply::Changed(changed) => Ok(changed),
            _ => Err(Unavailable::Closed),
        }
    }

    /// Any command; it is queued when the future is first polled, and dropping the future then does not take it back.
    ///
    /// # Errors
    /// When nothing could be made durable.
    pub async fn submit(&self, command: Command) -> Result<Reply, Unavailable> {
        self.holds(&command)?;
        let (answer, reply) = oneshot::channel();
        self.inner.shared.queue.push(command, answer)?;
        // An answer's end without an answer: the writer is gone.
        reply.await.unwrap_or(Err(Unavailable::Closed))
    }

    /// [`Ledger::submit`] for a thread that may block; not inside an asynchronous runtime, which would panic or stand still.
    ///
    /// # Errors
    /// When nothing could be made durable.
    pub fn submit_blocking(&self, command: Command) -> Result<Reply, Unavailable> {
        self.holds(&command)?;
        let (answer, reply) = oneshot::channel();
        self.inner.shared.queue.push(command, answer)?;
        reply.blocking_recv().unwrap_or(Err(Unavailable::Closed))
    }

    /// Notes a call that a model asked for: known to the next claim at once, persisted behind. False: there was no room and it is lost
    /// (the caller then knows that plans of this operation are incomplete). Never waits.
    #[must_use]
    pub fn plan(&self, plan: Plan) -> bool {
        self.inner.shared.queue.push_plan(plan)
    }

    /// Notes emitted calls, all or none, as [`Ledger::plan`].
    #[must_use]
    pub fn saw(&self, sightings: Vec<Sighting>) -> bool {
        let shared = &self.inner.shared;
        shared.seen.note(sightings, |sightings| shared.queue.push_sightings(sightings))
    }

    /// The emitted call with this digest: from memory, else from the store. May block on the disk.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn sighting(&self, digest: &[u8; 16]) -> Result<Option<Sighting>, StoreError> {
        match self.inner.shared.seen.get(digest) {
            Some(sighting) => Ok(Some(sighting)),
            None => self.inner.reader.sighting(digest),
        }
    }

    /// The emitted call with this digest, if it is in memory. Never waits for the disk.
    #[must_use]
    pub fn sighting_in_memory(&self, digest: &[u8; 16]) -> Option<Sighting> {
        self.inner.shared.seen.get(digest)
    }

    /// Subscribes to an execution's leaving `started`: subscribe, read the record, then wait if it is `started`.
    ///
    /// # Errors
    /// [`Unavailable::Busy`] where [`MAX_WAITERS`] wait for it already.
    pub fn changed(&self, key: &ExecutionKey) -> Result<Waiter, Unavailable> {
        self.inner.shared.waiters.subscribe(*key)
    }

    /// Reads, from any thread that may block.
    #[must_use]
    pub fn reader(&self) -> Arc<dyn Reader> {
        Arc::clone(&self.inner.reader)
    }

    /// Whether changes can be made durable.
    #[must_use]
    pub fn is_available(&self) -> bool {
        self.inner.shared.available.load(Ordering::Acquire) && self.inner.shared.condemned.get().is_none()
    }

    /// Why changes cannot be made durable, while they cannot.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.inner.shared.condemned.get().cloned().or_else(|| lock(&self.inner.shared.failure).clone())
    }

    /// Takes no claim any more, to the end of this life: somebody found the store damaged ([`Reader::verify`]), so a record that is there may
    /// not be found, and what it stands for would run again. Completions and changes are still taken: what is known is better kept.
    pub fn condemn(&self, why: &str) {
        // The first reason is the one to look at.
        let _ = self.inner.shared.condemned.set(format!("the store is damaged: {why}"));
    }

    fn holds(&self, command: &Command) -> Result<(), Unavailable> {
        match (command, self.inner.shared.condemned.get()) {
            (Command::Claim(_), Some(why)) => Err(Unavailable::Store(why.clone())),
            _ => Ok(()),
        }
    }

    /// The journal's end as it is known to be persisted, without a read: to be kept elsewhere, so that a cut-off tail is found.
    #[must_use]
    pub fn head(&self) -> Head {
        lock(&self.inner.shared.head).clone()
    }

    /// Numbers to be watched, without a scan.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.inner.shared;
        shared.counters.read(shared.queue.depths())
    }

    /// Since when plans may have been lost: the start of the last life, where that did not end by [`Ledger::close`]. None: it did.
    #[must_use]
    pub fn unclean_stop(&self) -> Option<UnixMillis> {
        self.inner.unclean
    }

    /// Waits until everything that is queued is persisted, and takes no more. Blocks.
    pub fn close(&self) {
        self.inner.close();
    }
}

//! Where records live: the traits that every store keeps, and that one contract test holds them to.
//!
//! In: writes that the machine decided. Out: what is there. A store has no rules: the machine holds them all. [`View`] is what the machine
//! asks while it decides; [`Store`] persists a batch, all or nothing, each write only if the record is still what the machine saw
//! (compare-and-set on version, epoch and state), which one writer thread gets for free and a database shared by many must check;
//! [`Reader`] answers everybody else, from any thread, without delaying the writer.

mod bytes;
mod memory;
mod redb;

use std::sync::Arc;

use crate::ids::{Occurrence, OperationId, RootId, TenantId, ToolName};
use crate::journal::{Draft, Entry, Head};
use crate::key::{ExecutionKey, Parts, Slot};
use crate::record::{Effect, Evidence, Record, State, UnixMillis};

pub use memory::MemoryStore;
pub use redb::{
    BackupError, CACHE_BYTES, FileLock, OpenError, RedbOptions, RedbStore, backup_offline, head_path, keep_head,
    kept_head, open_offline, restore,
};

/// Sightings that are kept; the oldest go first. At some 150 bytes each these are 30 MiB of a file.
pub const SIGHTINGS_MAX: usize = 200_000;

/// For how long a sighting is kept: an application sends a model's turn back within one run of its own.
pub const SIGHTINGS_MILLIS: u64 = 24 * 60 * 60 * 1000;

/// Records that one page of a list looks at; a rare filter over many records then gives a page with few of them, and where to go on.
pub const SCAN_MAX: usize = 20_000;

/// What stands in the place of an erased detail of evidence.
pub const ERASED: &str = "{}";

/// Why a store did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// An IO failed; the store takes nothing more until it is reopened.
    #[error("the store failed: {0}")]
    Io(String),
    /// A record is not what the machine saw: somebody else wrote. Decide again.
    #[error("another writer was faster")]
    Conflict,
    /// What was read is not what was written.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}

/// Names one call that a model asked for, to find its occurrence again: tenant, root, tool, slot and `tool_call_id` in one digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallDigest(pub [u8; 32]);

impl CallDigest {
    /// The digest of this call.
    #[must_use]
    pub fn of(tenant: &TenantId, root: &RootId, tool: &ToolName, slot: Slot, tool_call_id: &str) -> Self {
        Self(
            Parts::new(CALL_CONTEXT, b"call-v1")
                .bytes(tenant.as_str().as_bytes())
                .bytes(root.as_str().as_bytes())
                .bytes(tool.as_str().as_bytes())
                .bytes(slot.as_bytes())
                .bytes(tool_call_id.as_bytes())
                .finish(),
        )
    }
}

/// Context of [`CallDigest`]s.
const CALL_CONTEXT: &str = "rubicon-ledger 2026-11-30 planned call v1";

/// A call that the relay emitted to a tenant, found again by a digest of whatever a later request shows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Digest of tenant, id, name and arguments (or response id), as the relay makes it.
    pub digest: [u8; 16],
    /// The run that it belongs to.
    pub root: RootId,
    /// The operation that emitted it.
    pub operation: OperationId,
    /// The execution that it foresaw, where the tool is registered.
    pub key: Option<ExecutionKey>,
    /// When.
    pub at: UnixMillis,
}

/// What the machine asks. Answers include what is decided in the present batch and not written yet.
pub trait View {
    /// The record with this key; or, for the key of a read without its run, the newest run.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn record(&self, key: &ExecutionKey) -> Result<Option<Record>, StoreError>;

    /// Records of this tenant, root and tool, newest first, at most `limit`.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn recent(
        &self,
        tenant: &TenantId,
        root: &RootId,
        tool: &ToolName,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// The occurrence of a planned call.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn call(&self, call: &CallDigest) -> Result<Option<Occurrence>, StoreError>;

    /// The sequence number that the next new record gets.
    fn next_sequence(&self) -> u64;

    /// Whether the store is a restored backup whose gap nobody has ended.
    fn is_gap_open(&self) -> bool;
}

/// What must still hold of a record when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Its version.
    pub version: u64,
    /// Its epoch.
    pub epoch: u32,
    /// Its state.
    pub state: State,
}

impl Expected {
    /// That nothing changed since.
    #[must_use]
    pub fn of(record: &Record) -> Self {
        Self { version: record.version, epoch: record.epoch, state: record.state }
    }
}

/// One thing to persist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// A record as it is to be.
    Put(Box<Put>),
    /// A line of the journal that concerns no execution.
    Note(Draft),
    /// The gap of a restored backup opens or ends.
    Gap(bool, Draft),
    /// Calls that were emitted, to be found again.
    Sightings(Vec<Sighting>),
}

/// One persisted transition: new record, journal entry and evidence, in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// What must hold; none: there must be no record with this key.
    pub expected: Option<Expected>,
    /// As it is to be.
    pub record: Record,
    /// The line of the journal; none for the renewal of a lease only.
    pub entry: Option<Draft>,
    /// New evidence.
    pub evidence: Vec<Evidence>,
    /// A planned call that belongs to it.
    pub call: Option<CallDigest>,
}

/// Which executions a list shows; all that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Whose.
    pub tenant: Option<TenantId>,
    /// Of which state. `unknown` and the other open states are found without a scan.
    pub state: Option<State>,
    /// Of which tool.
    pub tool: Option<ToolName>,
    /// Of which operation.
    pub operation: Option<OperationId>,
    /// Of which root.
    pub root: Option<RootId>,
    /// Of the tools of this owner.
    pub owner: Option<Arc<str>>,
    /// Unchanged since before.
    pub changed_before: Option<UnixMillis>,
    /// Sequence to go on after; 0 from the start.
    pub after: u64,
}

/// A page of a list, oldest first. It may have fewer records than asked for, even none, and still a `next` ([`SCAN_MAX`]).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The records.
    pub records: Vec<Record>,
    /// To go on: [`Filter::after`]; none at the end.
    pub next: Option<u64>,
}

/// What a walk along the journal and the records found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Verdict {
    /// Nothing is broken.
    pub ok: bool,
    /// Entries that hold.
    pub entries: u64,
    /// Records that agree with their last entry.
    pub records: u64,
    /// Records whose content was erased, as it may be.
    pub erased: u64,
    /// The last entry that holds.
    pub head: Head,
    /// The first place that does not.
    pub broken: Option<Broken>,
}

/// The first place that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Broken {
    /// The entry.
    pub sequence: u64,
    /// `missing`, `unreadable`, `renumbered`, `changed`, `unlinked`, `cut_off`, `record_differs`, `record_missing`, `index_differs` …
    pub why: Arc<str>,
    /// The execution, where one is concerned.
    pub key: Option<ExecutionKey>,
}

/// The reading side, from any thread. May block on the disk.
pub trait Reader: Send + Sync {
    /// The record with this key; or the newest run of a read.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn record(&self, key: &ExecutionKey) -> Result<Option<Record>, StoreError>;

    /// The journal's lines about an execution, oldest first, at most `limit` of the newest.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn history(&self, key: &ExecutionKey, limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// The evidence of an execution, oldest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn evidence(&self, key: &ExecutionKey) -> Result<Vec<Evidence>, StoreError>;

    /// A page of executions.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn list(&self, filter: &Filter, limit: usize) -> Result<Page, StoreError>;

    /// The emitted call with this digest.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn sighting(&self, digest: &[u8; 16]) -> Result<Option<Sighting>, StoreError>;

    /// Entries of the journal from `from` on, at most `limit`.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// The journal's end, as persisted.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn head(&self) -> Result<Head, StoreError>;

    /// Walks along everything; `wanted` is the hash of a head that was kept elsewhere and must be found.
    ///
    /// # Errors
    /// When the store cannot be read at all.
    fn verify(&self, wanted: Option<&str>) -> Result<Verdict, StoreError>;

    /// Copies all of it, as of one moment, to a new file, while it is written to; the journal's end in the copy. Blocks as long as that
    /// takes.
    ///
    /// # Errors
    /// When it cannot be read, the file is there already or cannot be written; and always for a store that has no form on a disk.
    fn backup(&self, to: &std::path::Path) -> Result<Head, StoreError> {
        let _ = to;
        Err(StoreError::Io("this store is not kept on a disk; there is nothing to copy".to_owned()))
    }
}

/// The writing side: one thread's.
pub trait Store: View + Send {
    /// Persists a batch, all or nothing and durably, chaining its journal entries; the journal's end after it.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] where an expectation does not hold (nothing is written); [`StoreError::Io`]: it may or may not be there,
    /// and the store takes nothing more until [`reopen`](Store::reopen).
    fn persist(&mut self, batch: Vec<Write>) -> Result<Head, StoreError>;

    /// Opens the store anew after a failure. `saved` is the head that is known to be persisted and must be found in it.
    ///
    /// # Errors
    /// When it still cannot be used.
    fn reopen(&mut self, saved: &Head) -> Result<(), StoreError>;

    /// The reading side.
    fn reader(&self) -> Arc<dyn Reader>;

    /// The journal's end.
    fn head(&self) -> Head;

    /// The store's own secret, made with it.
    fn secret(&self) -> [u8; 32];

    /// Leases that end at `now` or before, oldest first, at most `limit`: key and epoch.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn due(&self, now: UnixMillis, limit: usize) -> Result<Vec<(ExecutionKey, u32)>, StoreError>;

    /// All open (planned, started, unknown) records, for the start.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn open_records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError>;

    /// Notes durably that a life began at `since`, or (none) that it ended in order. Tells what was noted before: a life that began then
    /// and did not end in order. A store without a memory of its own has nothing to tell.
    ///
    /// # Errors
    /// When it cannot be made durable.
    fn mark_running(&mut self, since: Option<UnixMillis>) -> Result<Option<UnixMillis>, StoreError> {
        let _ = since;
        Ok(None)
    }
}

impl Filter {
    /// Whether it shows this record, `after` aside.
    #[must_use]
    pub fn shows(&self, record: &Record) -> bool {
        fn is<T: PartialEq>(wanted: Option<&T>, found: Option<&T>) -> bool {
            wanted.is_none_or(|wanted| found == Some(wanted))
        }
        is(self.tenant.as_ref(), Some(&record.tenant))
            && is(self.state.as_ref(), Some(&record.state))
            && is(self.tool.as_ref(), Some(&record.tool))
            && is(self.operation.as_ref(), record.operation.as_ref())
            && is(self.root.as_ref(), Some(&record.root))
            && is(self.owner.as_ref(), record.tool_owner.as_ref())
            && self.changed_before.is_none_or(|before| record.changed_at < before)
    }
}

/// Where the slot of a claim is needed before the machine runs (plans kept in memory): the same key that the machine would make.
#[must_use]
pub fn first_key(
    tenant: &TenantId,
    root: &RootId,
    tool: &ToolName,
    slot: Slot,
    occurrence: Occurrence,
) -> ExecutionKey {
    crate::key::KeyParts { tenant, root, tool, slot, occurrence, run: None }.key()
}

/// Whether a record may have changed the world and is not proven to have ended: what a restart must not run over.
#[must_use]
pub fn is_uncertain(record: &Record) -> bool {
    record.effect == Effect::Write && matches!(record.state, State::Started | State::Unknown)
}

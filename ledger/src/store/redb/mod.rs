//! The embedded store: one redb file, one process (SPEC.md section 8, *One live process*).
//!
//! | file | one line |
//! | --- | --- |
//! | `held` | the file: opened, made, opened anew |
//! | `tables` | the tables, and what is known without looking |
//! | `index` | one table of sorted keys: by key, operation, state, lease … |
//! | `rows` | bytes of a row ⇄ a record and what belongs to it |
//! | `write` | one batch, one transaction |
//! | `read` | lookups, lists |
//! | `verify` | the walk along everything |
//! | `offline` | a ledger that nobody runs, read without a change |
//! | `backup` | copies, and what is made of them |
//! | `head` | the last known end of the journal, in a file beside it |
//!
//! What an index or a rule looks at is small and in the order of creation; hashes go into one sorted table (LEDGER.md 5.4). Blocking:
//! called from the writer's thread, and for reading from threads that may block.

mod backup;
mod head;
mod held;
mod index;
mod offline;
mod read;
mod rows;
mod tables;
mod verify;
mod write;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use redb::StorageBackend;

pub use self::backup::{BackupError, backup_offline, restore};
pub use self::head::{head_path, keep_head, kept_head};
use self::held::Held;
pub use self::held::{FileLock, OpenError};
pub use self::offline::open_offline;
use self::read::{RedbReader, Snapshot, row};
use self::tables::{Known, failed};
use crate::ids::{Occurrence, RootId, TenantId, ToolName};
use crate::journal::{Entry, Head, Verifier};
use crate::key::ExecutionKey;
use crate::record::{Record, UnixMillis};
use crate::store::{CallDigest, Reader, SIGHTINGS_MAX, Store, StoreError, View, Write};

/// Pages that redb may keep in memory: the index of some million records.
pub const CACHE_BYTES: usize = 128 << 20;

/// Entries before the saved head that are walked through after a failed IO; the whole journal would keep claims waiting.
const REOPEN_ENTRIES: u64 = 1_000;

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct RedbOptions {
    /// Random bytes; a new store makes its secret and its salts of them. Not looked at where there is one.
    pub fresh: [u8; 32],
    /// Pages that may be kept in memory, in bytes ([`CACHE_BYTES`]).
    pub cache_bytes: usize,
    /// Sightings that are kept ([`SIGHTINGS_MAX`]).
    pub sightings_max: usize,
    /// Every page is looked at when it is opened; takes as long as reading the file.
    pub check_all: bool,
}

impl RedbOptions {
    /// As usual.
    #[must_use]
    pub fn new(fresh: [u8; 32]) -> Self {
        Self { fresh, cache_bytes: CACHE_BYTES, sightings_max: SIGHTINGS_MAX, check_all: false }
    }
}

/// Runs what reads a file. redb answers some kinds of damage with a panic (its documentation says so of files that another program has
/// written to); one bad page must not take down the process, nor the thread that everybody waits for.
fn guarded<T>(run: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(StoreError::Damaged("the database met something that cannot be".to_owned())))
}

/// The store.
pub struct RedbStore {
    held: Arc<Held>,
    known: Known,
    options: RedbOptions,
    /// The tables as of the last batch, for [`View`]; let go of before the next one, which could not use old pages again otherwise.
    snapshot: RefCell<Option<Arc<Snapshot>>>,
    failed: bool,
}

impl std::fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedbStore")
            .field("head", &self.known.head)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl RedbStore {
    /// Opens or makes the file, and its folder. What `NAME.head` beside it says was there must be there ([`keep_head`]).
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, options: RedbOptions) -> Result<Self, OpenError> {
        let kept = kept_head(path)?;
        if let Some(kept) = kept.clone().filter(|kept| kept.sequence > 0 && !path.exists()) {
            return Err(OpenError::Lost { path: path.to_owned(), kept, found: "the file is gone".to_owned() });
        }
        let store = Self::over(Held::file(path, &options)?, path, options)?;
        if let Some(kept) = kept.filter(|kept| kept.sequence > 0) {
            let found = store.snapshot().and_then(|tables| guarded(|| tables.entry(kept.sequence)));
            let found = match found {
                Ok(Some((_, entry))) if entry.hash == kept.hash => return Ok(store),
                Ok(Some((_, entry))) => format!("has hash {} now", entry.hash),
                Ok(None) => format!("the last one is {} now", store.known.head.sequence),
                Err(error) => return Err(OpenError::not_ours(path, error)),
            };
            return Err(OpenError::Lost { path: path.to_owned(), kept, found });
        }
        Ok(store)
    }

    /// Over any backend, for tests. `make` gives one now and whenever an IO has failed; it is told whether a new store may be made in it.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn with_backend<B: StorageBackend>(
        options: RedbOptions,
        make: impl Fn(bool) -> Result<B, OpenError> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let path = Path::new("backend");
        Self::over(Held::with(path, &options, make)?, path, options)
    }

    fn over(held: Held, path: &Path, options: RedbOptions) -> Result<Self, OpenError> {
        let known = guarded(|| tables::load(&*held.database()?)).map_err(|error| OpenError::not_ours(path, error))?;
        Ok(Self { held: Arc::new(held), known, options, snapshot: RefCell::new(None), failed: false })
    }

    fn snapshot(&self) -> Result<Arc<Snapshot>, StoreError> {
        if let Some(snapshot) = self.snapshot.borrow().as_ref() {
            return Ok(Arc::clone(snapshot));
        }
        let snapshot = guarded(|| Ok(Arc::new(Snapshot::new(&*self.held.database()?)?)))?;
        *self.snapshot.borrow_mut() = Some(Arc::clone(&snapshot));
        Ok(snapshot)
    }

    fn view<T>(&self, read: impl FnOnce(&Snapshot) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let snapshot = self.snapshot()?;
        guarded(|| read(&snapshot))
    }

    /// Writes. The inner error is one that wrote nothing and says nothing of the file; the outer ends its use until it is opened anew.
    fn change(
        &mut self,
        write: impl FnOnce(&redb::Database, &Known, &RedbOptions) -> Result<Result<Known, StoreError>, StoreError>,
    ) -> Result<(), StoreError> {
        if self.failed {
            return Err(StoreError::Io("an IO has failed; it must be opened anew".to_owned()));
        }
        *self.snapshot.borrow_mut() = None;
        let written = guarded(|| write(&*self.held.database()?, &self.known, &self.options));
        self.failed = written.is_err();
        self.known = written??;
        Ok(())
    }
}

impl View for RedbStore {
    fn record(&self, key: &ExecutionKey) -> Result<Option<Record>, StoreError> {
        self.view(|tables| tables.record(key))
    }

    fn recent(
        &self,
        tenant: &TenantId,
        root: &RootId,
        tool: &ToolName,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.view(|tables| tables.recent(tenant, root, tool, limit))
    }

    fn call(&self, call: &CallDigest) -> Result<Option<Occurrence>, StoreError> {
        self.view(|tables| tables.call(call))
    }

    fn next_sequence(&self) -> u64 {
        self.known.next
    }

    fn is_gap_open(&self) -> bool {
        self.known.gap
    }
}

impl Store for RedbStore {
    fn persist(&mut self, batch: Vec<Write>) -> Result<Head, StoreError> {
        self.change(|database, known, options| write::persist(database, known, batch, options.sightings_max))?;
        Ok(self.known.head.clone())
    }

    fn reopen(&mut self, saved: &Head) -> Result<(), StoreError> {
        self.failed = true;
        *self.snapshot.borrow_mut() = None;
        self.held.reopen()?;
        let known = guarded(|| {
            let database = self.held.database()?;
            tail_holds(&Snapshot::new(&database)?, saved)?;
            tables::load(&database)
        })?;
        (self.known, self.failed) = (known, false);
        Ok(())
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(RedbReader(Arc::clone(&self.held)))
    }

    fn head(&self) -> Head {
        self.known.head.clone()
    }

    fn secret(&self) -> [u8; 32] {
        self.known.secret
    }

    fn mark_running(&mut self, since: Option<UnixMillis>) -> Result<Option<UnixMillis>, StoreError> {
        let before = self.known.running;
        self.change(|database, known, _| {
            let transaction = tables::write(database)?;
            let row = tables::running_row(since);
            transaction.open_table(tables::META).map_err(failed)?.insert("running", row.as_slice()).map_err(failed)?;
            transaction.commit().map_err(failed)?;
            Ok(Ok(Known { running: since, ..known.clone() }))
        })?;
        Ok(before)
    }

    fn due(&self, now: UnixMillis, limit: usize) -> Result<Vec<(ExecutionKey, u32)>, StoreError> {
        self.view(|tables| tables.due(now, limit))
    }

    fn open_records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.view(|tables| {
            let open = tables.open(after, limit)?;
            open.into_iter().map(|number| tables.whole(row(&tables.records, number)?)).collect()
        })
    }
}

/// That `saved` is there, and that some entries before it and all after it hang together.
fn tail_holds(tables: &Snapshot, saved: &Head) -> Result<(), StoreError> {
    let start = saved.sequence.saturating_sub(REOPEN_ENTRIES);
    let before = tables.entry(start)?.map(|(_, entry): (u64, Entry)| entry.head()).unwrap_or_default();
    let mut verifier = Verifier::after(before, Some(&saved.hash));
    let rows = redb::ReadableTable::range(&tables.journal, start.saturating_add(1)..).map_err(failed)?;
    for found in rows {
        let (key, row) = found.map_err(failed)?;
        let entry = rows::decode_entry(key.value(), row.value()).ok().map(|(_, entry)| entry);
        if let Err(broken) = verifier.take(key.value(), entry.as_ref()) {
            return Err(StoreError::Damaged(format!(
                "its journal does not hold at entry {} ({})",
                broken.sequence, broken.why
            )));
        }
    }
    match verifier.finish(None).broken {
        None => Ok(()),
        Some(_) => Err(StoreError::Damaged("its journal does not have what was written last".to_owned())),
    }
}

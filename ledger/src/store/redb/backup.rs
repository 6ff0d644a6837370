//! Copies of a ledger: made while it runs, and put in its place.
//!
//! A copy is made row by row in one read transaction, so that it is the ledger of one moment; a copy over several would mix an old journal
//! with newer records. Pages that are rewritten meanwhile are not used again until it ends, so a busy file grows for as long as the copy
//! takes; 18 s were measured for a million records (`examples/million.rs`). A copy of the file's bytes would be none: redb's file is whole only when it is closed.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use redb::{
    Builder, Database, Key, ReadableDatabase as _, ReadableTable as _, TableDefinition, Value, WriteTransaction,
};

use super::held::{Held, OpenError};
use super::tables::{self, failed};
use super::{CACHE_BYTES, RedbOptions, RedbStore, guarded, head_path, keep_head};
use crate::journal::{Draft, Head};
use crate::store::{Reader as _, Store as _, StoreError, Write};

/// Rows that one transaction of the copy writes: what it keeps in memory until then.
const ROWS: usize = 20_000;

/// Why there is no backup, or why it was not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The place is taken; nothing is ever overwritten.
    #[error("{0}: there is something already; nothing is overwritten")]
    Exists(std::path::PathBuf),
    /// Of the file system.
    #[error("{path}: {error}")]
    Io {
        /// Where.
        path: std::path::PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The ledger, or its copy.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// While it was read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It does not hold.
    #[error("the backup is broken at entry {sequence}: {why}")]
    Broken {
        /// The entry.
        sequence: u64,
        /// Why.
        why: std::sync::Arc<str>,
    },
}

fn fresh(path: &Path) -> Result<File, BackupError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let options = File::options().read(true).write(true).create_new(true).mode(0o600).open(path);
    options.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => BackupError::Exists(path.to_owned()),
        _ => BackupError::Io { path: path.to_owned(), error },
    })
}

/// Copies the ledger of this moment into a new file at `to`; the journal's end in it. Where it fails nothing is left at `to`.
pub(super) fn copy(held: &Held, to: &Path) -> Result<Head, BackupError> {
    let file = fresh(to)?;
    let copied = guarded(|| {
        let source = held.database()?;
        let backend = redb::backends::FileBackend::new(file).map_err(failed)?;
        let target = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend).map_err(failed)?;
        all(&source, &target)?;
        Ok(tables::load(&target)?.head)
    });
    if copied.is_err() {
        let _ = fs::remove_file(to);
    }
    Ok(copied?)
}

fn all(source: &Database, target: &Database) -> Result<(), StoreError> {
    let from = source.begin_read().map_err(failed)?;
    for table in [tables::RECORDS, tables::ARGUMENTS, tables::SETTLED, tables::JOURNAL] {
        rows(&from, target, table)?;
    }
    rows(&from, target, tables::BODIES)?;
    rows(&from, target, tables::INDEX)?;
    rows(&from, target, tables::EVIDENCE)?;
    rows(&from, target, tables::CALLS)?;
    rows(&from, target, tables::SIGHTINGS)?;
    rows(&from, target, tables::PLACES)?;
    // Last: a copy that was cut short has no format and is refused.
    rows(&from, target, tables::META)
}

fn rows<K: Key + 'static, V: Value + 'static>(
    from: &redb::ReadTransaction,
    target: &Database,
    table: TableDefinition<'static, K, V>,
) -> Result<(), StoreError> {
    let source = from.open_table(table).map_err(failed)?;
    let mut all = source.iter().map_err(failed)?;
    loop {
        let transaction: WriteTransaction = tables::write(target)?;
        let mut count = 0;
        {
            let mut copy = transaction.open_table(table).map_err(failed)?;
            for row in all.by_ref().take(ROWS) {
                let (key, value) = row.map_err(failed)?;
                copy.insert(key.value(), value.value()).map_err(failed)?;
                count += 1;
            }
        }
        transaction.commit().map_err(failed)?;
        if count < ROWS {
            return Ok(());
        }
    }
}

impl RedbStore {
    /// What copies this ledger while it runs, from any thread that may block: called with the place of the new file.
    pub fn backup(&self) -> impl Fn(&Path) -> Result<Head, BackupError> + Send + Sync + 'static {
        let held = std::sync::Arc::clone(&self.held);
        move |to| copy(&held, to)
    }
}

/// Copies a ledger that nobody runs.
///
/// # Errors
/// [`BackupError`].
pub fn backup_offline(ledger: &Path, to: &Path) -> Result<Head, BackupError> {
    copy(&super::offline::hold(ledger, false)?, to)
}

/// Makes the ledger at `ledger` of a backup, after all of it was verified: what ran since it was made is not known, so the gap is open
/// ([`Store`](crate::store::Store) says so to the machine) and the journal has `draft` (`restored`). A kept head is replaced. There must
/// be no file at `ledger`: whoever restores moves the old one away, and so still has it.
///
/// # Errors
/// [`BackupError`]; then nothing is at `ledger`.
pub fn restore(backup: &Path, ledger: &Path, draft: Draft) -> Result<Head, BackupError> {
    let held = super::offline::hold(backup, true)?;
    let verdict = super::read::RedbReader(std::sync::Arc::new(held)).verify(None)?;
    if let Some(broken) = verdict.broken {
        return Err(BackupError::Broken { sequence: broken.sequence, why: broken.why });
    }
    let io = |error| BackupError::Io { path: ledger.to_owned(), error };
    if ledger.exists() {
        return Err(BackupError::Exists(ledger.to_owned()));
    }
    let folder = ledger.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(io)?;
    let name = ledger.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!(".{name}.{}.restored.redb", std::process::id()));
    let made = (|| {
        copy(&super::offline::hold(backup, false)?, &new)?;
        let mut store = RedbStore::open(&new, RedbOptions::new([0; 32]))?;
        let head = store.persist(vec![Write::Gap(true, draft)])?;
        drop(store);
        // Under its name only now: a restored ledger without its gap would run everything since the backup again.
        fs::hard_link(&new, ledger).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => BackupError::Exists(ledger.to_owned()),
            _ => io(error),
        })?;
        let _ = fs::remove_file(head_path(ledger));
        keep_head(ledger, &head).map_err(io)?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
        Ok(head)
    })();
    let _ = fs::remove_file(&new);
    made
}

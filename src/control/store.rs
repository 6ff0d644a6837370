//! The control file: a redb database of switches, their journal, and who issued which state.
//!
//! A file of its own beside the ledger's: the ledger's one writer belongs to claims, and a slow claim must never delay a kill. In
//! memory it is the same database over a buffer, so that there is one code to trust. Blocking; called from the writer's thread
//! and, to read the journal, from threads that may block.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _,
    StorageBackend, TableDefinition, WriteTransaction,
};

use crate::clock::UnixMillis;
use crate::ids::TenantId;

use super::issuers::{Issued, PinDigest, counts};
use super::journal::{Broken, Entry, Head, Verdict, Verifier};
use super::record::{Record, Subject, decode, encode};

/// Layout of the tables. A file with another one is refused.
const LAYOUT: u8 = 1;

/// Pages that redb may keep in memory: all of a usual control file.
const CACHE_BYTES: usize = 8 << 20;

/// Rows that one transaction of a sweep takes out, so that a change never waits long for it.
const SWEEP_MAX: usize = 10_000;

/// Largest name of an account that is read back; a stored row with a longer one is no row of ours.
const ACCOUNT_BYTES_MAX: usize = 1024;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const SWITCHES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("switches");
const JOURNAL: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("journal");
/// Digest and tenant → time and account.
const ISSUERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("issuers");

/// Why the control store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{0}: another process uses this control store; one relay owns it at a time")]
    InUse(PathBuf),
    /// A store is never empty: whatever was in it is gone, and to begin anew would forget every kill in silence.
    #[error(
        "{0}: the control store is empty (0 bytes): its switches and its journal are lost; put a copy in its place, or remove the \
         file by hand to begin anew with nothing switched off"
    )]
    Emptied(PathBuf),
    /// The file or its folder.
    #[error("{path}: the control store cannot be opened: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not what this build writes.
    #[error("{path}: not a control store of this build ({what}); move it away, or run the build that wrote it")]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// An IO of the store failed; it takes nothing more until it is opened anew.
#[derive(Debug, thiserror::Error)]
#[error("the control store failed: {0}")]
pub struct Failed(String);

impl<E: Into<redb::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into().to_string())
    }
}

/// What was found at the start.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) records: Vec<(Subject, Record)>,
    pub(super) head: Head,
    /// Oldest first.
    pub(super) issued: Vec<Issued>,
}

/// The database.
#[derive(Clone)]
pub(super) struct Store(Arc<Database>);

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

/// `DIR/NAME-control.redb` beside the ledger's `DIR/NAME.redb`.
pub fn control_path(ledger: &Path) -> PathBuf {
    let stem = ledger.file_stem().unwrap_or_default().to_string_lossy();
    ledger.with_file_name(format!("{stem}-control.redb"))
}

impl Store {
    /// Opens or makes the file, and its folder.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let io = |error| OpenError::Io { path: path.to_owned(), error };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(io)?;
        match fs::metadata(path) {
            Ok(found) if !found.is_file() => {
                return Err(OpenError::NotOurs { path: path.to_owned(), what: "it is not a regular file".to_owned() });
            }
            Ok(found) if found.len() == 0 => return Err(OpenError::Emptied(path.to_owned())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(path, folder)?,
            Err(error) => return Err(io(error)),
        }
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.permissions().mode() & 0o077 != 0 {
            file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(io)?;
        }
        let backend = FileBackend::new(file).map_err(|error| opening(path, error))?;
        Self::with(backend, path)
    }

    /// Makes a new one, under its name only when it is whole: a start that is cut short leaves no empty store behind.
    fn make(path: &Path, folder: &Path) -> Result<(), OpenError> {
        let io = |error| OpenError::Io { path: path.to_owned(), error };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let draft = folder.join(format!(".{name}.{}.new", std::process::id()));
        let made = (|| {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&draft);
            drop(Self::with(FileBackend::new(file.map_err(io)?).map_err(|error| opening(path, error))?, path)?);
            // Not a rename: another relay that starts at the same moment must not lose what it has made.
            match fs::hard_link(&draft, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
                // A file system without hard links.
                Err(_) => fs::rename(&draft, path).map_err(io)?,
                Ok(()) => {}
            }
            // A file whose name is not on disk is gone after a power cut, whatever was synced into it.
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
            tracing::info!(path = %path.display(), "a new control store: nothing is switched off, and its journal begins");
            Ok(())
        })();
        let _ = fs::remove_file(&draft);
        made
    }

    /// In memory: nothing survives.
    pub(super) fn memory() -> Result<Self, OpenError> {
        Self::with(InMemoryBackend::new(), Path::new("memory"))
    }

    /// Over any backend.
    pub(super) fn with(backend: impl StorageBackend, path: &Path) -> Result<Self, OpenError> {
        let database = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend);
        let store = Self(Arc::new(database.map_err(|error| opening(path, error))?));
        let layout = store.layout().map_err(|Failed(what)| OpenError::NotOurs { path: path.to_owned(), what })?;
        if layout == LAYOUT {
            return Ok(store);
        }
        Err(OpenError::NotOurs { path: path.to_owned(), what: format!("layout {layout} and not {LAYOUT}") })
    }

    /// The file's layout; makes the tables of a new one.
    fn layout(&self) -> Result<u8, Failed> {
        let transaction = self.write()?;
        let layout = {
            let mut meta = transaction.open_table(META)?;
            let known = meta.get("layout")?.and_then(|value| value.value().first().copied());
            if known.is_none() {
                meta.insert("layout", [LAYOUT].as_slice())?;
            }
            known
        };
        transaction.open_table(SWITCHES)?;
        transaction.open_table(JOURNAL)?;
        transaction.open_table(ISSUERS)?;
        match layout {
            Some(_) => transaction.abort()?,
            None => transaction.commit()?,
        }
        Ok(layout.unwrap_or(LAYOUT))
    }

    fn write(&self) -> Result<WriteTransaction, Failed> {
        let mut transaction = self.0.begin_write()?;
        // After `kill -9` the start does not walk the whole file.
        transaction.set_quick_repair(true);
        Ok(transaction)
    }

    /// Everything that is needed in memory. Rows of state that no longer count are left out; [`Store::sweep`] takes them away.
    pub(super) fn load(&self, now: UnixMillis, path: &Path) -> Result<Found, OpenError> {
        let broken = |what: &str| OpenError::NotOurs { path: path.to_owned(), what: what.to_owned() };
        let transaction = self.0.begin_read().map_err(|error| broken(&error.to_string()))?;
        let read = || -> Result<Found, Failed> {
            let mut found = Found { records: Vec::new(), head: Head::default(), issued: Vec::new() };
            for row in transaction.open_table(SWITCHES)?.iter()? {
                let (key, value) = row?;
                let (subject, record) = (Subject::parse(key.value()), decode(value.value()));
                let both = subject.zip(record).ok_or_else(|| Failed("a switch that cannot be read".to_owned()))?;
                found.records.push(both);
            }
            if let Some((_, value)) = transaction.open_table(JOURNAL)?.last()? {
                let entry: Entry =
                    decode(value.value()).ok_or_else(|| Failed("a journal that cannot be read".to_owned()))?;
                found.head = Head { sequence: entry.sequence, hash: entry.hash };
            }
            for row in transaction.open_table(ISSUERS)?.iter()? {
                let (key, value) = row?;
                found.issued.extend(issued(key.value(), value.value()).filter(|row| counts(row.at, now)));
            }
            found.issued.sort_by_key(|row| row.at);
            Ok(found)
        };
        read().map_err(|Failed(what)| broken(&what))
    }

    /// Saves changes and their journal entries, all or none.
    pub(super) fn save<'a>(
        &self,
        changes: impl Iterator<Item = (&'a Subject, &'a Record, &'a Entry)>,
    ) -> Result<(), Failed> {
        let transaction = self.write()?;
        {
            let (mut switches, mut journal) = (transaction.open_table(SWITCHES)?, transaction.open_table(JOURNAL)?);
            for (subject, record, entry) in changes {
                switches.insert(subject.to_string().as_str(), encode(record).as_slice())?;
                journal.insert(entry.sequence, encode(entry).as_slice())?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    /// Saves rows of who issued what; how many the table has then.
    pub(super) fn save_issued(&self, rows: &[Issued]) -> Result<u64, Failed> {
        let transaction = self.write()?;
        let count = {
            let mut table = transaction.open_table(ISSUERS)?;
            for row in rows {
                let mut value = row.at.0.to_be_bytes().to_vec();
                value.extend_from_slice(row.account.as_bytes());
                let key = [row.digest.as_slice(), row.tenant.as_str().as_bytes()].concat();
                table.insert(key.as_slice(), value.as_slice())?;
            }
            table.len()?
        };
        transaction.commit()?;
        Ok(count)
    }

    /// Takes away some rows that no longer count, and of those over `max` the oldest; `true`: there may be more of them.
    pub(super) fn sweep(&self, now: UnixMillis, max: usize) -> Result<bool, Failed> {
        let mut rows: Vec<(u64, Vec<u8>)> = Vec::new();
        for row in self.0.begin_read()?.open_table(ISSUERS)?.iter()? {
            let (key, value) = row?;
            rows.push((issued(key.value(), value.value()).map_or(0, |row| row.at.0), key.value().to_vec()));
        }
        rows.sort_unstable();
        let over = rows.len().saturating_sub(max);
        let old = rows.partition_point(|(at, _)| !counts(UnixMillis(*at), now));
        let doomed = over.max(old);
        if doomed == 0 {
            return Ok(false);
        }
        let transaction = self.write()?;
        {
            let mut table = transaction.open_table(ISSUERS)?;
            for (_, key) in rows.iter().take(doomed.min(SWEEP_MAX)) {
                table.remove(key.as_slice())?;
            }
        }
        transaction.commit()?;
        Ok(doomed > SWEEP_MAX)
    }

    /// Entries from `from` on, at most `limit`.
    pub(super) fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, Failed> {
        let table = self.0.begin_read()?.open_table(JOURNAL)?;
        let mut entries = Vec::new();
        for row in table.range(from..)?.take(limit) {
            let (key, value) = row?;
            let unreadable = || Failed(format!("the journal's entry {} cannot be read", key.value()));
            entries.push(decode(value.value()).ok_or_else(unreadable)?);
        }
        Ok(entries)
    }

    /// The end of the journal.
    pub(super) fn head(&self) -> Result<Head, Failed> {
        let table = self.0.begin_read()?.open_table(JOURNAL)?;
        let Some((key, value)) = table.last()? else { return Ok(Head::default()) };
        let unreadable = || Failed(format!("the journal's entry {} cannot be read", key.value()));
        let entry: Entry = decode(value.value()).ok_or_else(unreadable)?;
        Ok(Head { sequence: entry.sequence, hash: entry.hash })
    }

    /// Walks along the whole journal, and compares the switches with what it says of them.
    pub(super) fn verify(&self, wanted: Option<String>) -> Result<Verdict, Failed> {
        let transaction = self.0.begin_read()?;
        let mut verifier = Verifier::new(wanted);
        let mut last: std::collections::BTreeMap<String, (u64, u64, String)> = std::collections::BTreeMap::new();
        for row in transaction.open_table(JOURNAL)?.iter()? {
            let (key, value) = row?;
            let entry: Option<Entry> = decode(value.value());
            if let Err(broken) = verifier.take(key.value(), entry.as_ref()) {
                return Ok(verifier.finish(Some(broken)));
            }
            if let Some(entry) = entry {
                last.insert(entry.subject, (entry.sequence, entry.version, entry.to));
            }
        }
        let switches = transaction.open_table(SWITCHES)?;
        for (name, (sequence, version, to)) in &last {
            let known: Option<Record> = switches.get(name.as_str())?.and_then(|value| decode(value.value()));
            let alike = Subject::parse(name).zip(known).is_some_and(|(subject, record)| {
                record.version == *version && subject.state(record.stopped) == to.as_str()
            });
            if !alike {
                return Ok(verifier.finish(Some(Broken { sequence: *sequence, why: "switch_differs" })));
            }
        }
        if switches.len()? > u64::try_from(last.len()).unwrap_or(u64::MAX) {
            return Ok(verifier.finish(Some(Broken { sequence: 0, why: "switch_differs" })));
        }
        Ok(verifier.finish(None))
    }
}

fn opening(path: &Path, error: DatabaseError) -> OpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse(path),
        DatabaseError::Storage(redb::StorageError::Io(error)) if error.kind() != io::ErrorKind::InvalidData => {
            OpenError::Io { path, error }
        }
        other => OpenError::NotOurs { path, what: other.to_string() },
    }
}

/// A stored row; `None`: not one of ours.
fn issued(key: &[u8], value: &[u8]) -> Option<Issued> {
    let (digest, tenant) = key.split_at_checked(size_of::<PinDigest>())?;
    let (at, account) = value.split_at_checked(size_of::<u64>())?;
    if account.len() > ACCOUNT_BYTES_MAX {
        return None;
    }
    Some(Issued {
        tenant: TenantId::new(str::from_utf8(tenant).ok()?),
        digest: digest.try_into().ok()?,
        account: Arc::from(str::from_utf8(account).ok()?),
        at: UnixMillis(u64::from_be_bytes(at.try_into().ok()?)),
    })
}

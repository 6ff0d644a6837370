//! The control file: a redb database of switches, their journal, and who issued which state.
//!
//! A file of its own beside the ledger's: the ledger's one writer belongs to claims, and a slow claim must never delay a kill. In
//! memory it is the same database over a buffer, so that there is one code to trust. Blocking; called from the writer's thread
//! and, to read the journal, from threads that may block.

use std::path::Path;
use std::sync::Arc;

use redb::backends::InMemoryBackend;
use redb::{
    Database, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _, StorageBackend, TableDefinition,
    WriteTransaction,
};

use crate::clock::UnixMillis;
use crate::ids::TenantId;

use super::held::Held;
pub use super::held::{OpenError, control_path};
use super::issuers::{Issued, PinDigest, counts};
use super::journal::{Broken, Entry, Head, Verdict, Verifier};
use super::record::{Record, Subject, decode, encode};

/// Rows that one transaction of a sweep takes out, so that a change never waits long for it.
const SWEEP_MAX: usize = 10_000;

/// Largest name of an account that is read back; a stored row with a longer one is no row of ours.
const ACCOUNT_BYTES_MAX: usize = 1024;

pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
pub(super) const SWITCHES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("switches");
pub(super) const JOURNAL: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("journal");
/// Digest and tenant → time and account.
pub(super) const ISSUERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("issuers");

/// An IO of the store failed; it takes nothing more until it is opened anew ([`Store::reopen`]).
#[derive(Debug, thiserror::Error)]
#[error("the control store failed: {0}")]
pub struct Failed(pub(super) String);

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
pub(super) struct Store(Arc<Held>);

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// Opens or makes the file, and its folder.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        Ok(Self(Arc::new(Held::file(path)?)))
    }

    /// In memory: nothing survives.
    pub(super) fn memory() -> Result<Self, OpenError> {
        Self::with(Path::new("memory"), |_| Ok(InMemoryBackend::new()))
    }

    /// Over any backend; as [`Held::with`].
    pub(super) fn with<B: StorageBackend>(
        path: &Path,
        make: impl Fn(bool) -> Result<B, OpenError> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        Ok(Self(Arc::new(Held::with(path, make)?)))
    }

    fn database(&self) -> Result<Arc<Database>, Failed> {
        self.0.database()
    }

    /// Opens the file anew ([`Held::reopen`]). `saved` is the hash of the last entry that is known to be there. Only the writer calls this.
    ///
    /// # Errors
    /// When it cannot be opened, or its journal does not hold.
    pub(super) fn reopen(&self, saved: &str) -> Result<(Vec<(Subject, Record)>, Head), Failed> {
        self.0.reopen()?;
        if let Some(Broken { sequence, why }) = self.verify(Some(saved.to_owned()))?.broken {
            return Err(Failed(format!("its journal does not hold at entry {sequence} ({why})")));
        }
        self.switches()
    }

    /// All switches, and the end of the journal.
    fn switches(&self) -> Result<(Vec<(Subject, Record)>, Head), Failed> {
        let database = self.database()?;
        let transaction = database.begin_read()?;
        let mut records = Vec::new();
        for row in transaction.open_table(SWITCHES)?.iter()? {
            let (key, value) = row?;
            let (subject, record) = (Subject::parse(key.value()), decode(value.value()));
            let both = subject.zip(record).ok_or_else(|| Failed("a switch that cannot be read".to_owned()))?;
            records.push(both);
        }
        let mut head = Head::default();
        if let Some((_, value)) = transaction.open_table(JOURNAL)?.last()? {
            let entry: Entry =
                decode(value.value()).ok_or_else(|| Failed("a journal that cannot be read".to_owned()))?;
            head = Head { sequence: entry.sequence, hash: entry.hash };
        }
        Ok((records, head))
    }

    /// Everything that is needed in memory. Rows of state that no longer count are left out; [`Store::sweep`] takes them away.
    pub(super) fn load(&self, now: UnixMillis, path: &Path) -> Result<Found, OpenError> {
        let read = || -> Result<Found, Failed> {
            let (records, head) = self.switches()?;
            let mut found = Found { records, head, issued: Vec::new() };
            let database = self.database()?;
            for row in database.begin_read()?.open_table(ISSUERS)?.iter()? {
                let (key, value) = row?;
                found.issued.extend(issued(key.value(), value.value()).filter(|row| counts(row.at, now)));
            }
            found.issued.sort_by_key(|row| row.at);
            Ok(found)
        };
        read().map_err(|Failed(what)| OpenError::NotOurs { path: path.to_owned(), what })
    }

    /// Saves changes and their journal entries, all or none.
    pub(super) fn save<'a>(
        &self,
        changes: impl Iterator<Item = (&'a Subject, &'a Record, &'a Entry)>,
    ) -> Result<(), Failed> {
        let database = self.database()?;
        let transaction = write(&database)?;
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
        let database = self.database()?;
        let transaction = write(&database)?;
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
        let database = self.database()?;
        for row in database.begin_read()?.open_table(ISSUERS)?.iter()? {
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
        let transaction = write(&database)?;
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
        let database = self.database()?;
        let table = database.begin_read()?.open_table(JOURNAL)?;
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
        let database = self.database()?;
        let table = database.begin_read()?.open_table(JOURNAL)?;
        let Some((key, value)) = table.last()? else { return Ok(Head::default()) };
        let unreadable = || Failed(format!("the journal's entry {} cannot be read", key.value()));
        let entry: Entry = decode(value.value()).ok_or_else(unreadable)?;
        Ok(Head { sequence: entry.sequence, hash: entry.hash })
    }

    /// Walks along the whole journal, and compares the switches with what it says of them.
    pub(super) fn verify(&self, wanted: Option<String>) -> Result<Verdict, Failed> {
        let database = self.database()?;
        let transaction = database.begin_read()?;
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

pub(super) fn write(database: &Database) -> Result<WriteTransaction, Failed> {
    let mut transaction = database.begin_write()?;
    // After `kill -9` the start does not walk the whole file.
    transaction.set_quick_repair(true);
    Ok(transaction)
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

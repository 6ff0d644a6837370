//! The tables, and what a store knows without looking: its secret, the journal's end, the next number.
//!
//! Values are our own bytes and keys fixed arrays or `u64`, so that another major version of redb cannot read them as something else
//! (LEDGER.md 5.1).

use redb::{Database, ReadableDatabase as _, ReadableTable, TableDefinition, WriteTransaction};

use super::rows::{self, META as META_NAME};
use crate::content::{Salts, secret_of};
use crate::journal::Head;
use crate::record::UnixMillis;
use crate::store::StoreError;
use crate::store::bytes::{Reader, Writer};

/// Form of tables and rows. A file with another one is refused.
pub(super) const FORMAT: u64 = 1;

pub(super) const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new(rows::RECORDS);
pub(super) const ARGUMENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new(rows::ARGUMENTS);
pub(super) const SETTLED: TableDefinition<'_, u64, &[u8]> = TableDefinition::new(rows::SETTLED);
/// Record and number of the body.
pub(super) const BODIES: TableDefinition<'_, &[u8; 9], &[u8]> = TableDefinition::new(rows::BODY);
pub(super) const INDEX: TableDefinition<'_, &[u8; 25], ()> = TableDefinition::new("index");
/// Record and number of the evidence.
pub(super) const EVIDENCE: TableDefinition<'_, &[u8; 12], &[u8]> = TableDefinition::new(rows::EVIDENCE);
pub(super) const JOURNAL: TableDefinition<'_, u64, &[u8]> = TableDefinition::new(rows::JOURNAL);
pub(super) const CALLS: TableDefinition<'_, &[u8; 32], &[u8]> = TableDefinition::new(rows::CALLS);
pub(super) const SIGHTINGS: TableDefinition<'_, &[u8; 16], &[u8]> = TableDefinition::new(rows::SIGHTINGS);
/// Order of arrival → digest of a sighting: which go first.
pub(super) const PLACES: TableDefinition<'_, u64, &[u8; 16]> = TableDefinition::new("places");
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new(META_NAME);

/// What is known of a store without looking.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) head: Head,
    pub(super) next: u64,
    pub(super) salts: Salts,
    pub(super) secret: [u8; 32],
    pub(super) gap: bool,
    /// A life began then and has not ended in order.
    pub(super) running: Option<UnixMillis>,
}

pub(super) fn failed<E: Into<redb::Error>>(error: E) -> StoreError {
    match error.into() {
        redb::Error::Corrupted(what) => StoreError::Damaged(what),
        other => StoreError::Io(other.to_string()),
    }
}

pub(super) fn write(database: &Database) -> Result<WriteTransaction, StoreError> {
    let mut transaction = database.begin_write().map_err(failed)?;
    // After `kill -9` the start does not walk the whole file; it is also the mode that survives a crash in the repair (LEDGER.md 5.2).
    transaction.set_quick_repair(true);
    Ok(transaction)
}

/// The file's format; makes the tables of a new one, of the random bytes `fresh`. None: it is new, and none was to be made.
pub(super) fn prepare(database: &Database, fresh: Option<&[u8; 32]>) -> Result<Option<u64>, StoreError> {
    let reading = database.begin_read().map_err(failed)?;
    match reading.open_table(META) {
        Ok(meta) => return number(&meta, "format").and_then(|format| format.map(Some).ok_or_else(|| lacks("format"))),
        Err(redb::TableError::TableDoesNotExist(_)) => {}
        Err(error) => return Err(failed(error)),
    }
    if reading.list_tables().map_err(failed)?.next().is_some() {
        return Err(StoreError::Damaged("it has other tables".to_owned()));
    }
    drop(reading);
    let Some(fresh) = fresh else { return Ok(None) };
    let transaction = write(database)?;
    {
        let mut meta = transaction.open_table(META).map_err(failed)?;
        let mut put = |name: &'static str, row: Vec<u8>| meta.insert(name, row.as_slice()).map(drop).map_err(failed);
        put("format", number_row("format", FORMAT))?;
        put("secret", bytes_row("secret", &secret_of(fresh)))?;
        put("salts", bytes_row("salts", &Salts::new(fresh).0))?;
        put("gap", number_row("gap", 0))?;
        put("running", running_row(None))?;
    }
    for table in [RECORDS, ARGUMENTS, SETTLED, JOURNAL] {
        transaction.open_table(table).map_err(failed)?;
    }
    transaction.open_table(BODIES).map_err(failed)?;
    transaction.open_table(INDEX).map_err(failed)?;
    transaction.open_table(EVIDENCE).map_err(failed)?;
    transaction.open_table(CALLS).map_err(failed)?;
    transaction.open_table(SIGHTINGS).map_err(failed)?;
    transaction.open_table(PLACES).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    Ok(Some(FORMAT))
}

/// Reads what is known.
pub(super) fn load(database: &Database) -> Result<Known, StoreError> {
    let transaction = database.begin_read().map_err(failed)?;
    let meta = transaction.open_table(META).map_err(failed)?;
    let journal = transaction.open_table(JOURNAL).map_err(failed)?;
    let records = transaction.open_table(RECORDS).map_err(failed)?;
    let head = match journal.last().map_err(failed)? {
        Some((key, row)) => rows::decode_entry(key.value(), row.value())?.1.head(),
        None => Head::default(),
    };
    let last = records.last().map_err(failed)?.map_or(0, |(key, _)| key.value());
    Ok(Known {
        head,
        next: last.saturating_add(1),
        salts: Salts(bytes(&meta, "salts")?),
        secret: bytes(&meta, "secret")?,
        gap: number(&meta, "gap")?.ok_or_else(|| lacks("gap"))? != 0,
        running: running(&meta)?,
    })
}

fn lacks(name: &str) -> StoreError {
    StoreError::Damaged(format!("`meta` has no row `{name}`"))
}

pub(super) fn number_row(name: &str, number: u64) -> Vec<u8> {
    let mut to = Writer::new(32);
    to.u64(number);
    to.sealed(META_NAME, name.as_bytes())
}

pub(super) fn bytes_row(name: &str, bytes: &[u8; 32]) -> Vec<u8> {
    let mut to = Writer::new(48);
    to.raw(bytes);
    to.sealed(META_NAME, name.as_bytes())
}

pub(super) fn running_row(since: Option<UnixMillis>) -> Vec<u8> {
    let mut to = Writer::new(32);
    to.maybe_u64(since.map(|since| since.0));
    to.sealed(META_NAME, b"running")
}

fn number(
    meta: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &'static str,
) -> Result<Option<u64>, StoreError> {
    let Some(row) = meta.get(name).map_err(failed)? else { return Ok(None) };
    let mut from = Reader::open(META_NAME, name.as_bytes(), row.value())?;
    let number = from.u64()?;
    from.end()?;
    Ok(Some(number))
}

fn bytes(meta: &impl ReadableTable<&'static str, &'static [u8]>, name: &'static str) -> Result<[u8; 32], StoreError> {
    let row = meta.get(name).map_err(failed)?.ok_or_else(|| lacks(name))?;
    let mut from = Reader::open(META_NAME, name.as_bytes(), row.value())?;
    let bytes = from.array()?;
    from.end()?;
    Ok(bytes)
}

fn running(meta: &impl ReadableTable<&'static str, &'static [u8]>) -> Result<Option<UnixMillis>, StoreError> {
    let row = meta.get("running").map_err(failed)?.ok_or_else(|| lacks("running"))?;
    let mut from = Reader::open(META_NAME, b"running", row.value())?;
    let running = from.maybe(Reader::u64)?.map(UnixMillis);
    from.end()?;
    Ok(running)
}

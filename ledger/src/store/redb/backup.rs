//! A copy of the store while it is written to.
//!
//! In: the store as of one moment, a path. Out: a whole store of its own there. Rows are copied and not pages: a file that is being written
//! to has no moment at which its bytes are one. The reading transaction lasts as long as the copying; meanwhile the store cannot use
//! old pages again and grows by what is written (LEDGER.md 5.5), so this is for now and then, not for every minute.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{
    Builder, Database, Key, ReadTransaction, ReadableDatabase as _, ReadableTable as _, TableDefinition, Value,
};
use redb::{ReadOnlyTable, WriteTransaction};

use super::tables::{self, failed};
use super::{guarded, rows};
use crate::journal::Head;
use crate::store::StoreError;

/// Pages in memory while it is copied: rows come in order, so that few are looked at twice.
const CACHE_BYTES: usize = 16 << 20;

/// Copies all of it to a new file at `to`, durably; the journal's end in the copy. What was begun is removed where it fails.
pub(super) fn backup(database: &Database, to: &Path) -> Result<Head, StoreError> {
    let reading = database.begin_read().map_err(failed)?;
    let io = |error: std::io::Error| StoreError::Io(format!("{}: {error}", to.display()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(to).map_err(io)?;
    let copied = guarded(|| {
        let backend = FileBackend::new(file).map_err(failed)?;
        let copy = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend).map_err(failed)?;
        let writing = tables::write(&copy)?;
        all(&reading, &writing)?;
        writing.commit().map_err(failed)?;
        let journal = reading.open_table(tables::JOURNAL).map_err(failed)?;
        let last = journal.last().map_err(failed)?;
        last.map_or(Ok(Head::default()), |(key, row)| Ok(rows::decode_entry(key.value(), row.value())?.1.head()))
    });
    if copied.is_err() {
        // Whoever asked hears of the failure itself.
        let _ = fs::remove_file(to);
    }
    copied
}

fn all(from: &ReadTransaction, to: &WriteTransaction) -> Result<(), StoreError> {
    for table in [tables::RECORDS, tables::ARGUMENTS, tables::SETTLED, tables::JOURNAL] {
        copy(from, to, table)?;
    }
    copy(from, to, tables::BODIES)?;
    copy(from, to, tables::INDEX)?;
    copy(from, to, tables::EVIDENCE)?;
    copy(from, to, tables::CALLS)?;
    copy(from, to, tables::SIGHTINGS)?;
    copy(from, to, tables::PLACES)?;
    copy(from, to, tables::META)
}

fn copy<K: Key + 'static, V: Value + 'static>(
    from: &ReadTransaction,
    to: &WriteTransaction,
    table: TableDefinition<'static, K, V>,
) -> Result<(), StoreError> {
    let source: ReadOnlyTable<K, V> = from.open_table(table).map_err(failed)?;
    let mut target = to.open_table(table).map_err(failed)?;
    for row in source.iter().map_err(failed)? {
        let (key, value) = row.map_err(failed)?;
        target.insert(key.value(), value.value()).map_err(failed)?;
    }
    Ok(())
}

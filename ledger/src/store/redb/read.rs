//! Reading: every call a transaction of its own, or several short ones, so that no reader keeps old pages from being used again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use redb::{Database, ReadOnlyTable, ReadableDatabase as _, ReadableTable};

use super::held::Held;
use super::index::{IndexKey, Under, sequence};
use super::rows::{self, Row};
use super::tables::{self, failed};
use super::{guarded, verify};
use crate::ids::{Occurrence, RootId, TenantId, ToolName};
use crate::journal::{Entry, Head};
use crate::key::ExecutionKey;
use crate::record::{Evidence, Record, UnixMillis};
use crate::store::{CallDigest, Filter, Page, Reader, SCAN_MAX, Sighting, StoreError, Verdict};

/// Rows that one read transaction goes through.
pub(super) const PAGE_ROWS: usize = 500;

/// The row of a record, by its key or, for a read without its run, of the newest run.
pub(super) fn find(
    index: &impl ReadableTable<&'static [u8; 25], ()>,
    records: &impl ReadableTable<u64, &'static [u8]>,
    key: &ExecutionKey,
) -> Result<Option<Row>, StoreError> {
    let by_key = newest(index, records, Under::key(key), |record| record.key == *key)?;
    match by_key {
        Some(row) => Ok(Some(row)),
        None => newest(index, records, Under::base(key), |record| record.base.as_ref() == Some(key)),
    }
}

fn newest(
    index: &impl ReadableTable<&'static [u8; 25], ()>,
    records: &impl ReadableTable<u64, &'static [u8]>,
    under: Under,
    is_it: impl Fn(&Record) -> bool,
) -> Result<Option<Row>, StoreError> {
    for found in index.range::<&[u8; 25]>(&under.at(0)..=&under.at(u64::MAX)).map_err(failed)?.rev() {
        let row = row(records, sequence(found.map_err(failed)?.0.value()))?;
        if is_it(&row.record) {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

/// A row that the index says is there.
pub(super) fn row(records: &impl ReadableTable<u64, &'static [u8]>, sequence: u64) -> Result<Row, StoreError> {
    let found = records.get(sequence).map_err(failed)?;
    let found = found.ok_or_else(|| StoreError::Damaged(format!("record {sequence} is in the index and not there")))?;
    Row::decode(sequence, found.value())
}

/// The tables as they were at one moment.
pub(super) struct Snapshot {
    pub(super) records: ReadOnlyTable<u64, &'static [u8]>,
    pub(super) arguments: ReadOnlyTable<u64, &'static [u8]>,
    pub(super) settled: ReadOnlyTable<u64, &'static [u8]>,
    pub(super) bodies: ReadOnlyTable<&'static [u8; 9], &'static [u8]>,
    pub(super) index: ReadOnlyTable<&'static [u8; 25], ()>,
    pub(super) evidence: ReadOnlyTable<&'static [u8; 12], &'static [u8]>,
    pub(super) journal: ReadOnlyTable<u64, &'static [u8]>,
    pub(super) calls: ReadOnlyTable<&'static [u8; 32], &'static [u8]>,
    pub(super) sightings: ReadOnlyTable<&'static [u8; 16], &'static [u8]>,
    pub(super) places: ReadOnlyTable<u64, &'static [u8; 16]>,
}

impl Snapshot {
    pub(super) fn new(database: &Database) -> Result<Self, StoreError> {
        let transaction = database.begin_read().map_err(failed)?;
        Ok(Self {
            records: transaction.open_table(tables::RECORDS).map_err(failed)?,
            arguments: transaction.open_table(tables::ARGUMENTS).map_err(failed)?,
            settled: transaction.open_table(tables::SETTLED).map_err(failed)?,
            bodies: transaction.open_table(tables::BODIES).map_err(failed)?,
            index: transaction.open_table(tables::INDEX).map_err(failed)?,
            evidence: transaction.open_table(tables::EVIDENCE).map_err(failed)?,
            journal: transaction.open_table(tables::JOURNAL).map_err(failed)?,
            calls: transaction.open_table(tables::CALLS).map_err(failed)?,
            sightings: transaction.open_table(tables::SIGHTINGS).map_err(failed)?,
            places: transaction.open_table(tables::PLACES).map_err(failed)?,
        })
    }

    /// The record of a row, with its content.
    pub(super) fn whole(&self, row: Row) -> Result<Record, StoreError> {
        let Row { mut record, arguments, settled, .. } = row;
        let number = record.sequence;
        let lost = |what: &str| StoreError::Damaged(format!("record {number} has lost its {what}"));
        if let Some(digest) = arguments {
            let found = self.arguments.get(number).map_err(failed)?.ok_or_else(|| lost("arguments"))?;
            record.arguments = rows::decode_arguments(number, found.value())?.1;
            if record.arguments.as_deref().map(|text| rows::digest(text.as_bytes())) != Some(digest) {
                return Err(lost("arguments"));
            }
        }
        if let Some(digest) = settled {
            let found = self.settled.get(number).map_err(failed)?.ok_or_else(|| lost("result"))?;
            if rows::digest(found.value()) != digest {
                return Err(lost("result"));
            }
            let body = |which| {
                let key = rows::body_key(number, which);
                let found = self.bodies.get(&key).map_err(failed)?;
                found.map(|row| rows::decode_body(&key, row.value())).transpose()
            };
            (record.settlement, record.pending) = rows::decode_settled(number, found.value(), &body)?;
        }
        Ok(record)
    }

    pub(super) fn find(&self, key: &ExecutionKey) -> Result<Option<Row>, StoreError> {
        find(&self.index, &self.records, key)
    }

    pub(super) fn record(&self, key: &ExecutionKey) -> Result<Option<Record>, StoreError> {
        self.find(key)?.map(|row| self.whole(row)).transpose()
    }

    pub(super) fn recent(
        &self,
        tenant: &TenantId,
        root: &RootId,
        tool: &ToolName,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let under = Under::place(tenant, root, tool);
        let mut records = Vec::new();
        for found in self.index.range::<&[u8; 25]>(&under.at(0)..=&under.at(u64::MAX)).map_err(failed)?.rev() {
            if records.len() >= limit {
                break;
            }
            let row = row(&self.records, sequence(found.map_err(failed)?.0.value()))?;
            let of = &row.record;
            if (&of.tenant, &of.root, &of.tool) == (tenant, root, tool) {
                records.push(self.whole(row)?);
            }
        }
        Ok(records)
    }

    pub(super) fn call(&self, call: &CallDigest) -> Result<Option<Occurrence>, StoreError> {
        let found = self.calls.get(&call.0).map_err(failed)?;
        found.map(|row| rows::decode_call(&call.0, row.value())).transpose()
    }

    /// Keys and epochs of records whose lease is over.
    pub(super) fn due(&self, now: UnixMillis, limit: usize) -> Result<Vec<(ExecutionKey, u32)>, StoreError> {
        let (from, to) = super::index::due_until(now);
        let rows = self.index.range::<&[u8; 25]>(&from..=&to).map_err(failed)?.take(limit);
        rows.map(|found| {
            let row = row(&self.records, sequence(found.map_err(failed)?.0.value()))?;
            Ok((row.record.key, row.record.epoch))
        })
        .collect()
    }

    /// Sequences of open records after `after`, in order, at most `limit`.
    pub(super) fn open(&self, after: u64, limit: usize) -> Result<Vec<u64>, StoreError> {
        let mut open = BTreeSet::new();
        for under in super::index::OPEN.into_iter().filter_map(Under::state) {
            open.extend(self.under(under, after, limit)?);
        }
        Ok(open.into_iter().take(limit).collect())
    }

    /// Sequences under a word after `after`, in order, at most `limit`.
    pub(super) fn under(&self, under: Under, after: u64, limit: usize) -> Result<Vec<u64>, StoreError> {
        let Some(from) = after.checked_add(1) else { return Ok(Vec::new()) };
        let rows = self.index.range::<&[u8; 25]>(&under.at(from)..=&under.at(u64::MAX)).map_err(failed)?.take(limit);
        rows.map(|found| Ok(sequence(found.map_err(failed)?.0.value()))).collect()
    }

    pub(super) fn entry(&self, number: u64) -> Result<Option<(u64, Entry)>, StoreError> {
        let found = self.journal.get(number).map_err(failed)?;
        found.map(|row| rows::decode_entry(number, row.value())).transpose()
    }
}

/// The reading side.
pub(super) struct RedbReader(pub(super) Arc<Held>);

impl RedbReader {
    /// Reads in one transaction; a panic of the database over damage becomes an error.
    fn read<T>(&self, read: impl FnOnce(&Snapshot) -> Result<T, StoreError>) -> Result<T, StoreError> {
        guarded(|| read(&Snapshot::new(&*self.0.database()?)?))
    }
}

impl Reader for RedbReader {
    fn backup(&self, to: &Path) -> Result<Head, StoreError> {
        super::backup::backup(&*self.0.database()?, to)
    }

    fn record(&self, key: &ExecutionKey) -> Result<Option<Record>, StoreError> {
        self.read(|tables| tables.record(key))
    }

    fn history(&self, key: &ExecutionKey, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.read(|tables| {
            let Some(row) = tables.find(key)? else { return Ok(Vec::new()) };
            let under = Under::history(row.record.sequence);
            let found =
                tables.index.range::<&[u8; 25]>(&under.at(0)..=&under.at(u64::MAX)).map_err(failed)?.rev().take(limit);
            let mut entries = Vec::new();
            for at in found {
                let number = sequence(at.map_err(failed)?.0.value());
                let entry = tables.entry(number)?;
                entries.extend(entry.map(|(_, entry)| entry));
            }
            entries.reverse();
            Ok(entries)
        })
    }

    fn evidence(&self, key: &ExecutionKey) -> Result<Vec<Evidence>, StoreError> {
        self.read(|tables| {
            let Some(row) = tables.find(key)? else { return Ok(Vec::new()) };
            let (from, to) =
                (rows::evidence_key(row.record.sequence, 0), rows::evidence_key(row.record.sequence, u32::MAX));
            let found = tables.evidence.range::<&[u8; 12]>(&from..=&to).map_err(failed)?;
            found
                .map(|row| {
                    let (key, row) = row.map_err(failed)?;
                    rows::decode_evidence(key.value(), row.value()).map(|seen| seen.evidence)
                })
                .collect()
        })
    }

    fn list(&self, filter: &Filter, limit: usize) -> Result<Page, StoreError> {
        let under = (filter.operation.as_ref().map(Under::operation))
            .or_else(|| match (&filter.tenant, &filter.root, &filter.tool) {
                (Some(tenant), Some(root), Some(tool)) => Some(Under::place(tenant, root, tool)),
                (_, root, _) => root.as_ref().map(Under::root),
            })
            .or_else(|| filter.state.and_then(Under::state));
        let (mut page, mut after, mut looked) = (Page::default(), filter.after, 0);
        while page.records.len() < limit && looked < SCAN_MAX {
            let more =
                self.read(|tables| list_some(tables, filter, under, limit, &mut after, &mut looked, &mut page))?;
            if !more {
                return Ok(page);
            }
        }
        page.next = Some(after);
        Ok(page)
    }

    fn sighting(&self, digest: &[u8; 16]) -> Result<Option<Sighting>, StoreError> {
        self.read(|tables| {
            let found = tables.sightings.get(digest).map_err(failed)?;
            Ok(found.map(|row| rows::decode_sighting(digest, row.value())).transpose()?.map(|(_, sighting)| sighting))
        })
    }

    fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let (mut entries, mut from) = (Vec::new(), from);
        while entries.len() < limit {
            let some = (limit - entries.len()).min(PAGE_ROWS);
            let page = self.read(|tables| {
                let rows = tables.journal.range(from..).map_err(failed)?.take(some);
                let decoded = rows.map(|row| {
                    let (key, row) = row.map_err(failed)?;
                    rows::decode_entry(key.value(), row.value()).map(|(_, entry)| entry)
                });
                decoded.collect::<Result<Vec<_>, _>>()
            })?;
            let Some(last) = page.last() else { break };
            from = last.sequence.saturating_add(1);
            entries.extend(page);
        }
        Ok(entries)
    }

    fn head(&self) -> Result<Head, StoreError> {
        self.read(|tables| {
            let Some((key, row)) = tables.journal.last().map_err(failed)? else { return Ok(Head::default()) };
            Ok(rows::decode_entry(key.value(), row.value())?.1.head())
        })
    }

    fn verify(&self, wanted: Option<&str>) -> Result<Verdict, StoreError> {
        // One moment of it: what is written meanwhile would look like damage. Old pages are kept for as long as it takes.
        self.read(|tables| verify::verify(tables, wanted))
    }
}

/// Goes on with a page in one transaction; whether there is more to look at.
fn list_some(
    tables: &Snapshot,
    filter: &Filter,
    under: Option<Under>,
    limit: usize,
    after: &mut u64,
    looked: &mut usize,
    page: &mut Page,
) -> Result<bool, StoreError> {
    let start = *after;
    let mut take = |row: Row| -> Result<bool, StoreError> {
        (*after, *looked) = (row.record.sequence, *looked + 1);
        if filter.shows(&row.record) {
            page.records.push(tables.whole(row)?);
        }
        Ok(page.records.len() >= limit)
    };
    let mut seen = 0;
    if let Some(under) = under {
        for number in tables.under(under, start, PAGE_ROWS)? {
            seen += 1;
            if take(row(&tables.records, number)?)? {
                return Ok(true);
            }
        }
        return Ok(seen == PAGE_ROWS);
    }
    let Some(from) = start.checked_add(1) else { return Ok(false) };
    for found in tables.records.range(from..).map_err(failed)?.take(PAGE_ROWS) {
        let (key, row) = found.map_err(failed)?;
        seen += 1;
        if take(Row::decode(key.value(), row.value())?)? {
            return Ok(true);
        }
    }
    Ok(seen == PAGE_ROWS)
}

/// What a snapshot's index rows look like to a walk.
pub(super) fn is_indexed(tables: &Snapshot, key: &IndexKey) -> Result<bool, StoreError> {
    Ok(tables.index.get(key).map_err(failed)?.is_some())
}

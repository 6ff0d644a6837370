//! One batch, one transaction: expectations are looked at against what the transaction sees, rows are written in the order of their keys.
//!
//! Records and index rows are collected and written once at the end, however often the batch changed them: a claim and what completes it
//! cost one row, and the index, whose keys are hashes, is walked through once from one end to the other (LEDGER.md 5.4).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use redb::{Database, ReadableTable as _, Table, WriteTransaction};

use super::index::{IndexKey, Under, rows_of};
use super::read::find;
use super::rows::{self, Row, Seen};
use super::tables::{self, Known, failed};
use crate::content::{Salt, content};
use crate::journal::Draft;
use crate::key::ExecutionKey;
use crate::record::{Evidence, Record};
use crate::store::{CallDigest, ERASED, Expected, Put, SIGHTINGS_MILLIS, Sighting, StoreError, Write};

/// Old sightings that one batch takes out at least, when there are any: more than come in, so that a backlog ends.
const SWEEP_MIN: usize = 64;

/// A record that the batch changes.
struct Staged {
    row: Row,
    salt: Salt,
    /// Its rows in the index before the batch.
    before: Vec<IndexKey>,
}

/// The tables of the transaction.
struct Tables<'t> {
    records: Table<'t, u64, &'static [u8]>,
    arguments: Table<'t, u64, &'static [u8]>,
    settled: Table<'t, u64, &'static [u8]>,
    bodies: Table<'t, &'static [u8; 9], &'static [u8]>,
    index: Table<'t, &'static [u8; 25], ()>,
    evidence: Table<'t, &'static [u8; 12], &'static [u8]>,
    journal: Table<'t, u64, &'static [u8]>,
    meta: Table<'t, &'static str, &'static [u8]>,
}

struct Batch<'t> {
    transaction: &'t WriteTransaction,
    tables: Tables<'t>,
    known: Known,
    staged: BTreeMap<u64, Staged>,
    keys: HashMap<ExecutionKey, u64>,
    /// New rows of the history.
    history: Vec<IndexKey>,
    calls: BTreeMap<[u8; 32], Vec<u8>>,
    /// Records were made.
    made: bool,
    sightings_max: usize,
}

/// Persists a batch; what is known after it. The inner error is a conflict, or a row that makes no sense: nothing was written, and other
/// records are as good as before.
pub(super) fn persist(
    database: &Database,
    known: &Known,
    batch: Vec<Write>,
    sightings_max: usize,
) -> Result<Result<Known, StoreError>, StoreError> {
    let transaction = tables::write(database)?;
    let transitions = batch.iter().any(|write| matches!(write, Write::Put(put) if put.entry.is_some()));
    let known = {
        let mut open = Batch::open(&transaction, known.clone(), sightings_max)?;
        match batch.into_iter().try_for_each(|write| open.take(write)).and_then(|()| open.finish()) {
            Ok(known) => known,
            Err(error) => {
                let aborted = transaction.abort().map_err(failed);
                // Of two errors the first one says why.
                return if matches!(error, StoreError::Io(_)) { Err(error) } else { aborted.map(|()| Err(error)) };
            }
        }
    };
    crate::failpoint::hit("store_before_commit");
    if transitions {
        crate::failpoint::hit("ledger-in-commit");
    }
    transaction.commit().map_err(failed)?;
    crate::failpoint::hit("store_after_commit");
    Ok(Ok(known))
}

impl<'t> Batch<'t> {
    fn open(transaction: &'t WriteTransaction, known: Known, sightings_max: usize) -> Result<Self, StoreError> {
        let tables = Tables {
            records: transaction.open_table(tables::RECORDS).map_err(failed)?,
            arguments: transaction.open_table(tables::ARGUMENTS).map_err(failed)?,
            settled: transaction.open_table(tables::SETTLED).map_err(failed)?,
            bodies: transaction.open_table(tables::BODIES).map_err(failed)?,
            index: transaction.open_table(tables::INDEX).map_err(failed)?,
            evidence: transaction.open_table(tables::EVIDENCE).map_err(failed)?,
            journal: transaction.open_table(tables::JOURNAL).map_err(failed)?,
            meta: transaction.open_table(tables::META).map_err(failed)?,
        };
        Ok(Self {
            transaction,
            tables,
            known,
            staged: BTreeMap::new(),
            keys: HashMap::new(),
            history: Vec::new(),
            calls: BTreeMap::new(),
            made: false,
            sightings_max,
        })
    }

    fn take(&mut self, write: Write) -> Result<(), StoreError> {
        match write {
            Write::Put(put) => self.put(*put),
            Write::Note(draft) => self.chain(draft, 0, Arc::from("")).map(drop),
            Write::Gap(open, draft) => {
                self.known.gap = open;
                let row = tables::number_row("gap", u64::from(open));
                self.tables.meta.insert("gap", row.as_slice()).map_err(failed)?;
                self.chain(draft, 0, Arc::from("")).map(drop)
            }
            Write::Sightings(sightings) => self.sightings(&sightings),
        }
    }

    /// The record as the batch has it so far.
    fn find(&self, key: &ExecutionKey) -> Result<Option<Staged>, StoreError> {
        if let Some(staged) = self.keys.get(key).and_then(|sequence| self.staged.get(sequence)) {
            return Ok(Some(Staged { row: staged.row.clone(), salt: staged.salt, before: staged.before.clone() }));
        }
        let Some(row) = find(&self.tables.index, &self.tables.records, key)? else { return Ok(None) };
        let sequence = row.record.sequence;
        let salt = match self.tables.arguments.get(sequence).map_err(failed)? {
            Some(found) => rows::decode_arguments(sequence, found.value())?.0,
            None if row.record.erased => Salt::default(),
            None => return Err(StoreError::Damaged(format!("record {sequence} has lost its arguments"))),
        };
        let before = rows_of(&row.record);
        Ok(Some(Staged { row, salt, before }))
    }

    fn put(&mut self, put: Put) -> Result<(), StoreError> {
        let Put { expected, mut record, entry, evidence, call } = put;
        let found = self.find(&record.key)?;
        if found.as_ref().map(|found| Expected::of(&found.row.record)) != expected {
            return Err(StoreError::Conflict);
        }
        let sequence = record.sequence;
        let old = found.as_ref().map(|found| &found.row);
        if sequence != old.map_or(self.known.next, |old| old.record.sequence) {
            return Err(StoreError::Conflict);
        }
        let mut row_entry = old.map_or(0, |old| old.entry);
        let mut row_evidence = old.map_or(0, |old| old.evidence);
        let salt = match &found {
            None => {
                self.made = true;
                self.known.next = sequence.saturating_add(1);
                self.known.salts.salt(sequence)
            }
            Some(found) if record.erased => {
                if !found.row.record.erased {
                    self.erase_evidence(sequence, row_evidence)?;
                }
                Salt::default()
            }
            Some(found) => found.salt,
        };
        if let Some(draft) = entry {
            row_entry = self.chain(draft, sequence, content(&salt, &record, &evidence))?;
        }
        let with = if evidence.is_empty() { 0 } else { row_entry };
        for one in evidence {
            self.evidence(sequence, row_evidence, with, one)?;
            row_evidence = row_evidence.saturating_add(1);
        }
        let arguments = self.arguments(&record, &salt, found.is_none(), old)?;
        let settled = self.settled(&record, old)?;
        if let Some(CallDigest(call)) = call {
            self.calls.insert(call, rows::encode_call(&call, record.occurrence));
        }
        (record.arguments, record.settlement, record.pending) = (None, None, None);
        self.keys.insert(record.key, sequence);
        let row = Row { record, entry: row_entry, evidence: row_evidence, arguments, settled };
        let before = found.map_or_else(Vec::new, |found| found.before);
        self.staged.insert(sequence, Staged { row, salt, before });
        Ok(())
    }

    /// Puts a line behind the journal; its number.
    fn chain(&mut self, draft: Draft, record: u64, content: Arc<str>) -> Result<u64, StoreError> {
        let entry = draft.chained(&self.known.head, content);
        let row = rows::encode_entry(record, &entry)?;
        self.tables.journal.insert(entry.sequence, row.as_slice()).map_err(failed)?;
        if record != 0 {
            self.history.push(Under::history(record).at(entry.sequence));
        }
        self.known.head = entry.head();
        Ok(entry.sequence)
    }

    fn evidence(&mut self, sequence: u64, number: u32, entry: u64, evidence: Evidence) -> Result<(), StoreError> {
        let key = rows::evidence_key(sequence, number);
        let row = rows::encode_evidence(&key, &Seen { entry, erased: false, evidence });
        self.tables.evidence.insert(&key, row.as_slice()).map_err(failed)?;
        Ok(())
    }

    /// Who saw something, when and of which kind stays; what was seen goes.
    fn erase_evidence(&mut self, sequence: u64, count: u32) -> Result<(), StoreError> {
        for number in 0..count {
            let key = rows::evidence_key(sequence, number);
            let found = self.tables.evidence.get(&key).map_err(failed)?;
            let found = found.map(|row| rows::decode_evidence(&key, row.value())).transpose()?;
            let Some(mut seen) = found else { continue };
            (seen.erased, seen.evidence.detail) = (true, Arc::from(ERASED));
            let row = rows::encode_evidence(&key, &seen);
            self.tables.evidence.insert(&key, row.as_slice()).map_err(failed)?;
        }
        Ok(())
    }

    /// Writes the arguments' row where it changes.
    fn arguments(
        &mut self,
        record: &Record,
        salt: &Salt,
        new: bool,
        old: Option<&Row>,
    ) -> Result<Option<rows::Digest>, StoreError> {
        let digest = record.arguments.as_deref().map(|arguments| rows::digest(arguments.as_bytes()));
        let gone = record.erased && digest.is_none();
        if gone {
            if !new {
                self.tables.arguments.remove(record.sequence).map_err(failed)?;
            }
        } else if new || old.is_some_and(|old| old.arguments != digest || old.record.erased != record.erased) {
            let row = rows::encode_arguments(record.sequence, salt, record.arguments.as_deref());
            self.tables.arguments.insert(record.sequence, row.as_slice()).map_err(failed)?;
        }
        Ok(digest)
    }

    /// Writes the settled row, and the bodies apart from it, where they change.
    fn settled(&mut self, record: &Record, old: Option<&Row>) -> Result<Option<rows::Digest>, StoreError> {
        let settled = rows::encode_settled(record);
        let digest = settled.as_ref().map(|settled| settled.digest);
        let before = old.and_then(|old| old.settled);
        if digest == before {
            return Ok(digest);
        }
        if before.is_some() {
            for number in 0..rows::BODIES {
                self.tables.bodies.remove(&rows::body_key(record.sequence, number)).map_err(failed)?;
            }
        }
        match settled {
            None => {
                self.tables.settled.remove(record.sequence).map_err(failed)?;
            }
            Some(settled) => {
                self.tables.settled.insert(record.sequence, settled.row.as_slice()).map_err(failed)?;
                for (number, body) in settled.apart {
                    let key = rows::body_key(record.sequence, number);
                    self.tables.bodies.insert(&key, rows::encode_body(&key, body).as_slice()).map_err(failed)?;
                }
            }
        }
        Ok(digest)
    }

    /// Keeps sightings, and takes out some that are too old or too many.
    fn sightings(&mut self, sightings: &[Sighting]) -> Result<(), StoreError> {
        let mut table = self.transaction.open_table(tables::SIGHTINGS).map_err(failed)?;
        let mut places = self.transaction.open_table(tables::PLACES).map_err(failed)?;
        let mut place = places.last().map_err(failed)?.map_or(0, |(key, _)| key.value());
        let mut count = redb::ReadableTableMetadata::len(&places).map_err(failed)?;
        let mut newest = 0;
        for sighting in sightings {
            place = place.saturating_add(1);
            let row = rows::encode_sighting(place, sighting);
            let replaced = table.insert(&sighting.digest, row.as_slice()).map_err(failed)?;
            let replaced = replaced.map(|row| rows::decode_sighting(&sighting.digest, row.value())).transpose()?;
            places.insert(place, &sighting.digest).map_err(failed)?;
            match replaced {
                Some((at, _)) => drop(places.remove(at).map_err(failed)?),
                None => count = count.saturating_add(1),
            }
            newest = newest.max(sighting.at.0);
        }
        for _ in 0..sightings.len().saturating_mul(2).max(SWEEP_MIN) {
            let Some((at, digest)) = places.first().map_err(failed)?.map(|(at, digest)| (at.value(), *digest.value()))
            else {
                break;
            };
            let row = table.get(&digest).map_err(failed)?.map(|row| rows::decode_sighting(&digest, row.value()));
            let oldest = row.transpose()?.map_or(0, |(_, sighting)| sighting.at.0);
            let over = count > self.sightings_max as u64 || oldest.saturating_add(SIGHTINGS_MILLIS) < newest;
            if !over {
                break;
            }
            places.remove(at).map_err(failed)?;
            table.remove(&digest).map_err(failed)?;
            count = count.saturating_sub(1);
        }
        Ok(())
    }

    /// Writes what was collected.
    fn finish(mut self) -> Result<Known, StoreError> {
        let mut index: BTreeMap<IndexKey, bool> = self.history.into_iter().map(|key| (key, true)).collect();
        for (sequence, staged) in &self.staged {
            let after = rows_of(&staged.row.record);
            let gone = staged.before.iter().filter(|key| !after.contains(key)).map(|key| (*key, false));
            let come = after.iter().filter(|key| !staged.before.contains(key)).map(|key| (*key, true));
            index.extend(gone.chain(come));
            self.tables.records.insert(*sequence, staged.row.encode().as_slice()).map_err(failed)?;
        }
        for (key, is_there) in &index {
            if *is_there {
                self.tables.index.insert(key, ()).map_err(failed)?;
            } else {
                self.tables.index.remove(key).map_err(failed)?;
            }
        }
        if !self.calls.is_empty() {
            let mut calls = self.transaction.open_table(tables::CALLS).map_err(failed)?;
            for (call, row) in &self.calls {
                calls.insert(call, row.as_slice()).map_err(failed)?;
            }
        }
        if self.made {
            self.known.salts = self.known.salts.after(&self.known.head.hash);
            let row = tables::bytes_row("salts", &self.known.salts.0);
            self.tables.meta.insert("salts", row.as_slice()).map_err(failed)?;
        }
        Ok(self.known)
    }
}

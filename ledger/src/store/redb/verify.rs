//! The walk along everything: the chain, each record against its last entry, its evidence against theirs, each row of the index.
//!
//! A row that the index lacks would let a call run twice, so the index is compared both ways: every row that a record must have is there, and
//! there are no others. Nothing is collected: memory does not grow with the store.

use std::sync::Arc;

use redb::ReadableTable as _;

use super::index::{Under, rows_of, sequence};
use super::read::{Snapshot, is_indexed};
use super::rows::{self, Row, Seen};
use super::tables::failed;
use crate::content::{Salt, evidence_hash, facts_hash};
use crate::journal::Verifier;
use crate::key::ExecutionKey;
use crate::record::Evidence;
use crate::store::{Broken, StoreError, Verdict};

/// What must add up in the end.
#[derive(Default)]
struct Sums {
    /// Entries about records.
    entries: u64,
    /// Rows of the history that lead to them.
    history: u64,
    /// Rows of the index that records must have.
    index: u64,
    arguments: u64,
    settled: u64,
    evidence: u64,
    /// The record that was looked at last is erased.
    last_erased: bool,
}

/// What is broken, or why it cannot be read at all.
enum Stop {
    Broken(Broken),
    Failed(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

fn broken(sequence: u64, why: &str, key: Option<ExecutionKey>) -> Stop {
    Stop::Broken(Broken { sequence, why: Arc::from(why), key })
}

/// Walks.
pub(super) fn verify(tables: &Snapshot, wanted: Option<&str>) -> Result<Verdict, StoreError> {
    let mut verifier = Verifier::new(wanted);
    let mut sums = Sums::default();
    let walked = chain(tables, &mut verifier, &mut sums)
        .and_then(|()| records(tables, &mut verifier, &mut sums))
        .and_then(|()| totals(tables, &sums))
        .and_then(|()| relayed(tables));
    match walked {
        Ok(()) => Ok(verifier.finish(None)),
        Err(Stop::Broken(broken)) => Ok(verifier.finish(Some(broken))),
        // Damage is what was looked for; only an IO says nothing.
        Err(Stop::Failed(StoreError::Damaged(what))) => {
            let sequence = verifier.head().sequence.saturating_add(1);
            Ok(verifier.finish(Some(Broken { sequence, why: Arc::from(format!("unreadable: {what}")), key: None })))
        }
        Err(Stop::Failed(error)) => Err(error),
    }
}

fn chain(tables: &Snapshot, verifier: &mut Verifier, sums: &mut Sums) -> Result<(), Stop> {
    for found in tables.journal.iter().map_err(failed)? {
        let (key, row) = found.map_err(failed)?;
        let decoded = rows::decode_entry(key.value(), row.value()).ok();
        verifier.take(key.value(), decoded.as_ref().map(|(_, entry)| entry)).map_err(Stop::Broken)?;
        sums.entries += u64::from(decoded.is_some_and(|(record, _)| record != 0));
    }
    Ok(())
}

fn records(tables: &Snapshot, verifier: &mut Verifier, sums: &mut Sums) -> Result<(), Stop> {
    let mut expected = 0_u64;
    for found in tables.records.iter().map_err(failed)? {
        let (number, row) = found.map_err(failed)?;
        expected += 1;
        if number.value() != expected {
            return Err(broken(0, "record_missing", None));
        }
        let Ok(row) = Row::decode(expected, row.value()) else { return Err(broken(0, "record_differs", None)) };
        record(tables, row, sums)?;
        verifier.records += 1;
        verifier.erased += u64::from(sums.last_erased);
    }
    Ok(())
}

fn record(tables: &Snapshot, row: Row, sums: &mut Sums) -> Result<(), Stop> {
    let (key, number, last) = (row.record.key, row.record.sequence, row.entry);
    let differs = |sequence| broken(sequence, "record_differs", Some(key));
    for index in rows_of(&row.record) {
        if !is_indexed(tables, &index)? {
            return Err(broken(last, "index_differs", Some(key)));
        }
        sums.index += 1;
    }
    let found = tables.arguments.get(number).map_err(failed)?;
    let salt = match found.map(|row| rows::decode_arguments(number, row.value())) {
        Some(Ok((salt, _))) => {
            sums.arguments += 1;
            salt
        }
        None if row.record.erased => Salt::default(),
        _ => return Err(differs(last)),
    };
    sums.settled += u64::from(row.settled.is_some());
    sums.evidence += u64::from(row.evidence);
    let evidence = row.evidence;
    let record = tables.whole(row).map_err(|_| differs(last))?;
    sums.last_erased = record.erased;
    let facts = facts_hash(&salt, &record);
    let mut at_last = false;
    let under = Under::history(number);
    for found in tables.index.range::<&[u8; 25]>(&under.at(0)..=&under.at(u64::MAX)).map_err(failed)? {
        let at = sequence(found.map_err(failed)?.0.value());
        let Some((of, entry)) = tables.entry(at)? else { return Err(broken(at, "index_differs", Some(key))) };
        if of != number || entry.execution() != Some(key) || entry.version > record.version {
            return Err(broken(at, "index_differs", Some(key)));
        }
        sums.history += 1;
        if sums.history > sums.entries {
            return Err(broken(at, "index_differs", Some(key)));
        }
        let (said, seen) = match entry.content.split_once('.') {
            Some((said, seen)) => (said, Some(seen)),
            None => (&*entry.content, None),
        };
        at_last = at == last;
        if at_last && (said != facts || &*entry.to != record.state.name()) {
            return Err(differs(at));
        }
        if !evidence_holds(tables, number, evidence, at, seen, &salt)? {
            return Err(broken(at, "evidence_differs", Some(key)));
        }
    }
    // Its last entry is not in its history.
    if at_last { Ok(()) } else { Err(broken(last, "index_differs", Some(key))) }
}

/// Whether the evidence that came with an entry is what the entry says, or was erased.
fn evidence_holds(
    tables: &Snapshot,
    record: u64,
    count: u32,
    entry: u64,
    said: Option<&str>,
    salt: &Salt,
) -> Result<bool, StoreError> {
    let Some(said) = said else { return Ok(true) };
    let (mut with, mut erased): (Vec<Evidence>, bool) = (Vec::new(), false);
    for number in 0..count {
        let key = rows::evidence_key(record, number);
        let Some(row) = tables.evidence.get(&key).map_err(failed)? else { return Ok(false) };
        let Seen { entry: of, erased: gone, evidence } = rows::decode_evidence(&key, row.value())?;
        if of == entry {
            erased |= gone;
            with.push(evidence);
        }
    }
    Ok(!with.is_empty() && (erased || evidence_hash(salt, &with) == said))
}

/// Counts rows, but not beyond what there may be: pages of a damaged file may lead in a circle.
fn counted<K: redb::Key + 'static, V: redb::Value + 'static>(
    table: &redb::ReadOnlyTable<K, V>,
    most: u64,
) -> Result<u64, StoreError> {
    let mut count = 0_u64;
    for found in table.iter().map_err(failed)? {
        found.map_err(failed)?;
        count += 1;
        if count > most {
            break;
        }
    }
    Ok(count)
}

/// That no table has more than it must have.
fn totals(tables: &Snapshot, sums: &Sums) -> Result<(), Stop> {
    let index = sums.index + sums.history;
    if sums.history != sums.entries || counted(&tables.index, index)? != index {
        return Err(broken(0, "index_differs", None));
    }
    let alike = counted(&tables.arguments, sums.arguments)? == sums.arguments
        && counted(&tables.settled, sums.settled)? == sums.settled
        && counted(&tables.evidence, sums.evidence)? == sums.evidence;
    if alike { Ok(()) } else { Err(broken(0, "record_missing", None)) }
}

/// What the relay noted and no record has: each row is what was written, and sightings and their places agree.
fn relayed(tables: &Snapshot) -> Result<(), Stop> {
    let mut last = None;
    for found in tables.calls.iter().map_err(failed)? {
        let (key, row) = found.map_err(failed)?;
        rows::decode_call(key.value(), row.value())?;
        if last.replace(*key.value()).is_some_and(|last| last >= *key.value()) {
            return Err(broken(0, "index_differs", None));
        }
    }
    let (mut sightings, mut last) = (0_u64, None);
    for found in tables.sightings.iter().map_err(failed)? {
        let (digest, row) = found.map_err(failed)?;
        let (place, _) = rows::decode_sighting(digest.value(), row.value())?;
        let at = tables.places.get(place).map_err(failed)?;
        if at.is_none_or(|at| at.value() != digest.value()) {
            return Err(broken(0, "index_differs", None));
        }
        if last.replace(*digest.value()).is_some_and(|last| last >= *digest.value()) {
            return Err(broken(0, "index_differs", None));
        }
        sightings += 1;
    }
    let places = counted(&tables.places, sightings)?;
    if sightings == places { Ok(()) } else { Err(broken(0, "index_differs", None)) }
}

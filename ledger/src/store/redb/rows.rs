//! Rows ⇄ records, evidence, entries and sightings.
//!
//! A record is taken apart: what lists, leases and rules look at is one slim row that each transition writes anew; arguments and salt, and
//! how it ended, are rows of their own that are written once and read where content is wanted; a large result body is apart from those.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::codes::Code;
use crate::content::Salt;
use crate::ids::{Occurrence, OperationId, RootId, RunNumber, TenantId, ToolName};
use crate::journal::Entry;
use crate::key::{ExecutionKey, Fingerprint, Slot};
use crate::record::{Evidence, Lease, Owner, Pending, Record, Settlement, ToolResult, UnixMillis};
use crate::store::bytes::{Reader, Writer};
use crate::store::{Sighting, StoreError};

/// A result body over this has a row of its own (LEDGER.md 5.5): rewriting what stands beside it in a page would cost as much as it.
pub(super) const APART_BYTES: usize = 16 << 10;

/// Result bodies of one settled row that may stand apart: that of the settlement, and that of the pending verdict.
pub(super) const BODIES: u8 = 2;

pub(super) const RECORDS: &str = "records";
pub(super) const ARGUMENTS: &str = "arguments";
pub(super) const SETTLED: &str = "settled";
pub(super) const BODY: &str = "bodies";
pub(super) const EVIDENCE: &str = "evidence";
pub(super) const JOURNAL: &str = "journal";
pub(super) const CALLS: &str = "calls";
pub(super) const SIGHTINGS: &str = "sightings";
pub(super) const META: &str = "meta";

/// First bytes of a hash: whether a content row is still the one that is wanted.
pub(super) type Digest = [u8; 16];

pub(super) fn digest(bytes: &[u8]) -> Digest {
    let mut digest = Digest::default();
    blake3::Hasher::new().update(bytes).finalize_xof().fill(&mut digest);
    digest
}

/// A slim row: a record without arguments, settlement and pending verdict, and what the store keeps about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// Without its content.
    pub(super) record: Record,
    /// The last entry about it.
    pub(super) entry: u64,
    /// Rows of evidence.
    pub(super) evidence: u32,
    /// Of its arguments.
    pub(super) arguments: Option<Digest>,
    /// Of its settled row; none: it has none.
    pub(super) settled: Option<Digest>,
}

impl Row {
    pub(super) fn encode(&self) -> Vec<u8> {
        let record = &self.record;
        let mut to = Writer::new(512);
        to.u64(self.entry).u32(self.evidence);
        to.maybe(self.arguments, |to, digest| {
            to.raw(&digest);
        });
        to.maybe(self.settled, |to, digest| {
            to.raw(&digest);
        });
        to.raw(record.key.as_bytes());
        maybe_key(&mut to, record.base);
        to.str(record.tenant.as_str()).str(record.root.as_str());
        to.maybe_str(record.operation.as_ref().map(OperationId::as_str));
        to.str(record.tool.as_str()).maybe_str(record.tool_owner.as_deref());
        to.raw(record.slot.as_bytes()).raw(record.fingerprint.as_bytes());
        to.u32(record.occurrence.0).maybe_u64(record.run.map(|run| run.0));
        to.u8(record.effect.code()).u8(record.impact.code()).u8(record.state.code());
        to.u8(record.failure.map_or(0, Code::code)).u8(record.reconciliation.code());
        to.u64(record.version).u32(record.epoch).u32(record.runs);
        to.bool(record.erased).maybe_str(record.tool_call_id.as_deref());
        to.u32(count(record.flags.len()));
        for flag in &record.flags {
            to.u8(flag.code());
        }
        maybe_key(&mut to, record.superseded_by);
        maybe_key(&mut to, record.supersedes);
        to.maybe(record.lease.as_ref(), |to, lease| {
            to.maybe_u64(match lease.owner {
                Owner::Client => None,
                Owner::Own { boot } => Some(boot),
            });
            to.maybe_str(lease.claim_id.as_deref()).u64(lease.until.0);
        });
        to.bool(record.awaits_approval).maybe_str(record.approved_by.as_deref()).bool(record.needs_release);
        to.bool(record.released).bool(record.has_probe);
        to.u32(count(record.let_through.len()));
        for fingerprint in &record.let_through {
            to.raw(fingerprint.as_bytes());
        }
        to.maybe_str(record.assigned_to.as_deref());
        to.maybe_u64(record.reported_at.map(|at| at.0));
        to.u64(record.created_at.0).u64(record.changed_at.0).maybe_u64(record.settled_at.map(|at| at.0));
        to.sealed(RECORDS, &record.sequence.to_be_bytes())
    }

    pub(super) fn decode(sequence: u64, row: &[u8]) -> Result<Self, StoreError> {
        let mut from = Reader::open(RECORDS, &sequence.to_be_bytes(), row)?;
        let (entry, evidence) = (from.u64()?, from.u32()?);
        let (arguments, settled) = (from.maybe(|from| from.array())?, from.maybe(|from| from.array())?);
        let record = Record {
            sequence,
            key: key(&mut from)?,
            base: from.maybe(key)?,
            tenant: name(&mut from, TenantId::new)?,
            root: name(&mut from, RootId::new)?,
            operation: from.maybe(|from| name(from, OperationId::new))?,
            tool: name(&mut from, ToolName::new)?,
            tool_owner: from.maybe(Reader::text)?,
            slot: Slot::from_bytes(from.array()?),
            fingerprint: Fingerprint::from_bytes(from.array()?),
            occurrence: Occurrence(from.u32()?),
            run: from.maybe(Reader::u64)?.map(RunNumber),
            effect: word(&mut from)?,
            impact: word(&mut from)?,
            state: word(&mut from)?,
            failure: match from.u8()? {
                0 => None,
                code => Some(Code::of(code).ok_or_else(|| from.damaged())?),
            },
            reconciliation: word(&mut from)?,
            version: from.u64()?,
            epoch: from.u32()?,
            runs: from.u32()?,
            arguments: None,
            settlement: None,
            erased: from.bool()?,
            tool_call_id: from.maybe(Reader::text)?,
            flags: several(&mut from, word)?.into_iter().collect::<BTreeSet<_>>(),
            superseded_by: from.maybe(key)?,
            supersedes: from.maybe(key)?,
            lease: from.maybe(|from| {
                let owner = from.maybe(Reader::u64)?.map_or(Owner::Client, |boot| Owner::Own { boot });
                Ok(Lease { owner, claim_id: from.maybe(Reader::text)?, until: UnixMillis(from.u64()?) })
            })?,
            pending: None,
            awaits_approval: from.bool()?,
            approved_by: from.maybe(Reader::text)?,
            needs_release: from.bool()?,
            released: from.bool()?,
            has_probe: from.bool()?,
            let_through: several(&mut from, |from| from.array().map(Fingerprint::from_bytes))?,
            assigned_to: from.maybe(Reader::text)?,
            reported_at: from.maybe(Reader::u64)?.map(UnixMillis),
            created_at: UnixMillis(from.u64()?),
            changed_at: UnixMillis(from.u64()?),
            settled_at: from.maybe(Reader::u64)?.map(UnixMillis),
        };
        from.end()?;
        Ok(Self { record, entry, evidence, arguments, settled })
    }
}

/// Arguments with their salt.
pub(super) fn encode_arguments(sequence: u64, salt: &Salt, arguments: Option<&str>) -> Vec<u8> {
    let mut to = Writer::new(64 + arguments.map_or(0, str::len));
    to.raw(salt).maybe_str(arguments);
    to.sealed(ARGUMENTS, &sequence.to_be_bytes())
}

pub(super) fn decode_arguments(sequence: u64, row: &[u8]) -> Result<(Salt, Option<Arc<str>>), StoreError> {
    let mut from = Reader::open(ARGUMENTS, &sequence.to_be_bytes(), row)?;
    let both = (from.array()?, from.maybe(Reader::text)?);
    from.end()?;
    Ok(both)
}

/// The settled row of a record, and the bodies that stand apart from it, each with its number.
pub(super) struct Settled<'a> {
    pub(super) row: Vec<u8>,
    pub(super) apart: Vec<(u8, &'a [u8])>,
    pub(super) digest: Digest,
}

/// None: there is nothing to be kept.
pub(super) fn encode_settled(record: &Record) -> Option<Settled<'_>> {
    if record.settlement.is_none() && record.pending.is_none() {
        return None;
    }
    let mut apart = Vec::new();
    let mut to = Writer::new(256);
    to.maybe(record.settlement.as_ref(), |to, settlement| write_settlement(to, settlement, 0, &mut apart));
    to.maybe(record.pending.as_ref(), |to, pending| {
        to.u8(pending.outcome.code());
        write_settlement(to, &pending.settlement, 1, &mut apart);
        to.str(&pending.by).str(&pending.reason).u64(pending.version);
        to.raw(pending.fingerprint.as_bytes()).u64(pending.at.0);
    });
    let row = to.sealed(SETTLED, &record.sequence.to_be_bytes());
    // A body apart is in the row by its own digest, so that this one tells all.
    Some(Settled { digest: digest(&row), row, apart })
}

fn write_settlement<'a>(to: &mut Writer, settlement: &'a Settlement, number: u8, apart: &mut Vec<(u8, &'a [u8])>) {
    to.maybe(settlement.result.as_ref(), |to, result| {
        to.maybe(result.status, |to, status| {
            to.u32(u32::from(status));
        });
        to.maybe_str(result.content_type.as_deref());
        let large = result.body.len() > APART_BYTES;
        to.bool(large);
        if large {
            to.u64(result.body.len() as u64).raw(&digest(&result.body));
            apart.push((number, &result.body));
        } else {
            to.bytes(&result.body);
        }
    });
    to.maybe_str(settlement.external_reference.as_deref()).maybe_str(settlement.error.as_deref());
}

/// `body` fetches a body that stands apart.
pub(super) fn decode_settled(
    sequence: u64,
    row: &[u8],
    body: &dyn Fn(u8) -> Result<Option<Arc<[u8]>>, StoreError>,
) -> Result<(Option<Settlement>, Option<Pending>), StoreError> {
    let mut from = Reader::open(SETTLED, &sequence.to_be_bytes(), row)?;
    let settlement = from.maybe(|from| read_settlement(from, 0, body))?;
    let pending = from.maybe(|from| {
        Ok(Pending {
            outcome: word(from)?,
            settlement: read_settlement(from, 1, body)?,
            by: from.text()?,
            reason: from.text()?,
            version: from.u64()?,
            fingerprint: Fingerprint::from_bytes(from.array()?),
            at: UnixMillis(from.u64()?),
        })
    })?;
    from.end()?;
    Ok((settlement, pending))
}

fn read_settlement(
    from: &mut Reader<'_>,
    number: u8,
    body: &dyn Fn(u8) -> Result<Option<Arc<[u8]>>, StoreError>,
) -> Result<Settlement, StoreError> {
    let result = from.maybe(|from| {
        let status = from.maybe(|from| u16::try_from(from.u32()?).map_err(|_| from.damaged()))?;
        let content_type = from.maybe(Reader::text)?;
        let body: Arc<[u8]> = if from.bool()? {
            let (length, wanted) = (from.u64()?, from.array::<16>()?);
            let found = body(number)?.ok_or_else(|| from.damaged())?;
            if found.len() as u64 != length || digest(&found) != wanted {
                return Err(from.damaged());
            }
            found
        } else {
            Arc::from(from.bytes()?)
        };
        Ok(ToolResult { status, content_type, body })
    })?;
    Ok(Settlement { result, external_reference: from.maybe(Reader::text)?, error: from.maybe(Reader::text)? })
}

pub(super) fn body_key(sequence: u64, number: u8) -> [u8; 9] {
    let mut key = [number; 9];
    key[..8].copy_from_slice(&sequence.to_be_bytes());
    key
}

pub(super) fn encode_body(key: &[u8; 9], body: &[u8]) -> Vec<u8> {
    let mut to = Writer::new(body.len() + 32);
    to.bytes(body);
    to.sealed(BODY, key)
}

pub(super) fn decode_body(key: &[u8; 9], row: &[u8]) -> Result<Arc<[u8]>, StoreError> {
    let mut from = Reader::open(BODY, key, row)?;
    let body = Arc::from(from.bytes()?);
    from.end()?;
    Ok(body)
}

/// One row of evidence: which entry it came with (0: none), and whether its detail was erased.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) entry: u64,
    pub(super) erased: bool,
    pub(super) evidence: Evidence,
}

pub(super) fn evidence_key(sequence: u64, number: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&sequence.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(super) fn encode_evidence(key: &[u8; 12], seen: &Seen) -> Vec<u8> {
    let one = &seen.evidence;
    let mut to = Writer::new(96 + one.detail.len());
    to.u64(seen.entry).bool(seen.erased).u64(one.at.0).str(&one.kind).u32(one.epoch).str(&one.by).str(&one.detail);
    to.sealed(EVIDENCE, key)
}

pub(super) fn decode_evidence(key: &[u8; 12], row: &[u8]) -> Result<Seen, StoreError> {
    let mut from = Reader::open(EVIDENCE, key, row)?;
    let (entry, erased, at) = (from.u64()?, from.bool()?, UnixMillis(from.u64()?));
    let (kind, epoch) = (from.text()?, from.u32()?);
    let evidence = Evidence { at, kind, epoch, by: from.text()?, detail: from.text()? };
    from.end()?;
    Ok(Seen { entry, erased, evidence })
}

/// An entry, with the sequence of the record that it is about (0: none).
pub(super) fn encode_entry(record: u64, entry: &Entry) -> Result<Vec<u8>, StoreError> {
    let mut to = Writer::new(384);
    to.u64(record).u64(entry.at.0).str(&entry.by).str(&entry.action);
    to.str(&entry.subject).str(&entry.from).str(&entry.to).u64(entry.version).u32(entry.epoch).str(&entry.reason);
    to.str(&entry.content).raw(&unhex(&entry.previous)?).raw(&unhex(&entry.hash)?);
    Ok(to.sealed(JOURNAL, &entry.sequence.to_be_bytes()))
}

pub(super) fn decode_entry(sequence: u64, row: &[u8]) -> Result<(u64, Entry), StoreError> {
    let mut from = Reader::open(JOURNAL, &sequence.to_be_bytes(), row)?;
    let record = from.u64()?;
    let entry = Entry {
        sequence,
        at: UnixMillis(from.u64()?),
        by: from.text()?,
        action: from.text()?,
        subject: from.text()?,
        from: from.text()?,
        to: from.text()?,
        version: from.u64()?,
        epoch: from.u32()?,
        reason: from.text()?,
        content: from.text()?,
        previous: hex(from.array()?),
        hash: hex(from.array()?),
    };
    from.end()?;
    Ok((record, entry))
}

fn hex(bytes: [u8; 32]) -> Arc<str> {
    Arc::from(blake3::Hash::from_bytes(bytes).to_hex().as_str())
}

fn unhex(text: &str) -> Result<[u8; 32], StoreError> {
    let hash = blake3::Hash::from_hex(text);
    hash.map(Into::into).map_err(|_| StoreError::Damaged("a hash that is none".to_owned()))
}

pub(super) fn encode_call(call: &[u8; 32], occurrence: Occurrence) -> Vec<u8> {
    let mut to = Writer::new(16);
    to.u32(occurrence.0);
    to.sealed(CALLS, call)
}

pub(super) fn decode_call(call: &[u8; 32], row: &[u8]) -> Result<Occurrence, StoreError> {
    let mut from = Reader::open(CALLS, call, row)?;
    let occurrence = Occurrence(from.u32()?);
    from.end()?;
    Ok(occurrence)
}

/// A sighting, with its place in the order of arrival.
pub(super) fn encode_sighting(place: u64, sighting: &Sighting) -> Vec<u8> {
    let mut to = Writer::new(160);
    to.u64(place).str(sighting.root.as_str()).str(sighting.operation.as_str());
    maybe_key(&mut to, sighting.key);
    to.u64(sighting.at.0);
    to.sealed(SIGHTINGS, &sighting.digest)
}

pub(super) fn decode_sighting(digest: &[u8; 16], row: &[u8]) -> Result<(u64, Sighting), StoreError> {
    let mut from = Reader::open(SIGHTINGS, digest, row)?;
    let place = from.u64()?;
    let sighting = Sighting {
        digest: *digest,
        root: name(&mut from, RootId::new)?,
        operation: name(&mut from, OperationId::new)?,
        key: from.maybe(key)?,
        at: UnixMillis(from.u64()?),
    };
    from.end()?;
    Ok((place, sighting))
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn several<T>(
    from: &mut Reader<'_>,
    read: impl Fn(&mut Reader<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let length = from.u32()?;
    (0..length).map(|_| read(from)).collect()
}

fn maybe_key(to: &mut Writer, key: Option<ExecutionKey>) {
    to.maybe(key, |to, key| {
        to.raw(key.as_bytes());
    });
}

fn key(from: &mut Reader<'_>) -> Result<ExecutionKey, StoreError> {
    from.array().map(ExecutionKey::from_bytes)
}

fn name<T>(from: &mut Reader<'_>, new: impl Fn(&str) -> Result<T, crate::error::BadName>) -> Result<T, StoreError> {
    let text = from.str()?;
    new(text).map_err(|_| from.damaged())
}

fn word<T: Code>(from: &mut Reader<'_>) -> Result<T, StoreError> {
    T::of(from.u8()?).ok_or_else(|| from.damaged())
}

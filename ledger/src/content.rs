//! What an entry of the journal says of a record's content: salted hashes, and the salts.
//!
//! In: a record and new evidence. Out: [`Entry::content`](crate::Entry::content): in hex the hash of the record's lasting facts, and behind
//! a point that of the evidence which came with the entry, where some did. Both are keyed by the record's own salt, kept beside its
//! arguments: once that row is erased nobody can test a guess, and the chain still holds.
//!
//! A salt must not be made again from what the store still has. So [`Salts`] is a ratchet: the salts of a batch come from its state, and
//! the state then goes one way on. No random source is needed but the one that the store was made with.
//!
//! Lasting facts are all but `version` and `changed_at` (the entry has both), and the lease's end (renewals have no entry). The bytes that
//! are hashed are written here and not taken from a store's rows, so that rows may get another form and old entries still verify.

use std::sync::Arc;

use crate::codes::Code;
use crate::record::{Evidence, Owner, Record, Settlement};

/// Domain of the salts' ratchet.
const SALT_CONTEXT: &str = "rubicon-ledger 2026-11-30 salt ratchet v1";
/// Domain of what the store's secret is made of.
const SECRET_CONTEXT: &str = "rubicon-ledger 2026-11-30 store secret v1";
/// Version of the hashed bytes, the first of them.
const FORMAT: u8 = 1;

/// A record's salt; all zero once it is erased.
pub(crate) type Salt = [u8; 32];

/// The ratchet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salts(pub(crate) [u8; 32]);

impl Salts {
    /// Of a new store, from random bytes that are kept nowhere.
    pub(crate) fn new(fresh: &[u8; 32]) -> Self {
        Self(blake3::derive_key(SALT_CONTEXT, fresh))
    }

    /// The salt of a new record.
    pub(crate) fn salt(&self, sequence: u64) -> Salt {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"salt").update(&sequence.to_le_bytes());
        *hasher.finalize().as_bytes()
    }

    /// The state after a batch that made records; `head` is the hash of the journal's end after it.
    pub(crate) fn after(&self, head: &str) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"next").update(head.as_bytes());
        Self(*hasher.finalize().as_bytes())
    }
}

/// The store's secret, from the random bytes that it is made with.
pub(crate) fn secret_of(fresh: &[u8; 32]) -> [u8; 32] {
    blake3::derive_key(SECRET_CONTEXT, fresh)
}

/// What an entry says of the record as it left it, and of the evidence that came with it.
pub(crate) fn content(salt: &Salt, record: &Record, evidence: &[Evidence]) -> Arc<str> {
    let facts = facts_hash(salt, record);
    match evidence {
        [] => Arc::from(facts.as_str()),
        some => Arc::from(format!("{facts}.{}", evidence_hash(salt, some)).as_str()),
    }
}

/// Hash of the lasting facts, in hex.
pub(crate) fn facts_hash(salt: &Salt, record: &Record) -> String {
    let mut hashed = Hashed(Vec::with_capacity(768));
    hashed.facts(record);
    blake3::keyed_hash(salt, &hashed.0).to_hex().to_string()
}

/// Hash of evidence, in hex.
pub(crate) fn evidence_hash(salt: &Salt, evidence: &[Evidence]) -> String {
    let mut hashed = Hashed(vec![FORMAT]);
    hashed.number(evidence.len() as u64);
    for one in evidence {
        hashed.number(one.at.0);
        hashed.number(u64::from(one.epoch));
        for text in [&one.kind, &one.by, &one.detail] {
            hashed.bytes(text.as_bytes());
        }
    }
    blake3::keyed_hash(salt, &hashed.0).to_hex().to_string()
}

/// Bytes to be hashed: numbers of 8 bytes, texts after their length, an option after its 0 or 1.
struct Hashed(Vec<u8>);

impl Hashed {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn maybe(&mut self, bytes: Option<&[u8]>) {
        self.0.push(u8::from(bytes.is_some()));
        self.bytes(bytes.unwrap_or_default());
    }

    fn maybe_number(&mut self, number: Option<u64>) {
        self.0.push(u8::from(number.is_some()));
        self.number(number.unwrap_or_default());
    }

    fn word(&mut self, word: impl Code) {
        self.0.push(word.code());
    }

    fn settlement(&mut self, settlement: &Settlement) {
        self.0.push(u8::from(settlement.result.is_some()));
        if let Some(result) = &settlement.result {
            self.maybe_number(result.status.map(u64::from));
            self.maybe(result.content_type.as_deref().map(str::as_bytes));
            self.bytes(&result.body);
        }
        self.maybe(settlement.external_reference.as_deref().map(str::as_bytes));
        self.maybe(settlement.error.as_deref().map(str::as_bytes));
    }

    fn facts(&mut self, record: &Record) {
        self.0.push(FORMAT);
        self.number(record.sequence);
        self.bytes(record.key.as_bytes());
        self.maybe(record.base.as_ref().map(|key| key.as_bytes().as_slice()));
        self.bytes(record.tenant.as_str().as_bytes());
        self.bytes(record.root.as_str().as_bytes());
        self.maybe(record.operation.as_ref().map(|name| name.as_str().as_bytes()));
        self.bytes(record.tool.as_str().as_bytes());
        self.maybe(record.tool_owner.as_deref().map(str::as_bytes));
        self.bytes(record.slot.as_bytes());
        self.bytes(record.fingerprint.as_bytes());
        self.number(u64::from(record.occurrence.0));
        self.maybe_number(record.run.map(|run| run.0));
        self.word(record.effect);
        self.word(record.impact);
        self.word(record.state);
        self.0.push(record.failure.map_or(0, Code::code));
        self.word(record.reconciliation);
        self.number(u64::from(record.epoch));
        self.number(u64::from(record.runs));
        self.maybe(record.arguments.as_deref().map(str::as_bytes));
        self.0.push(u8::from(record.settlement.is_some()));
        if let Some(settlement) = &record.settlement {
            self.settlement(settlement);
        }
        self.0.push(u8::from(record.erased));
        self.maybe(record.tool_call_id.as_deref().map(str::as_bytes));
        self.number(record.flags.len() as u64);
        for flag in &record.flags {
            self.word(*flag);
        }
        for key in [&record.superseded_by, &record.supersedes] {
            self.maybe(key.as_ref().map(|key| key.as_bytes().as_slice()));
        }
        self.standing(record);
        for at in [record.reported_at, record.settled_at] {
            self.maybe_number(at.map(|at| at.0));
        }
        self.number(record.created_at.0);
    }

    /// Lease, pending verdict and approvals.
    fn standing(&mut self, record: &Record) {
        self.0.push(u8::from(record.lease.is_some()));
        if let Some(lease) = &record.lease {
            self.maybe_number(match lease.owner {
                Owner::Client => None,
                Owner::Own { boot } => Some(boot),
            });
            self.maybe(lease.claim_id.as_deref().map(str::as_bytes));
        }
        self.0.push(u8::from(record.pending.is_some()));
        if let Some(pending) = &record.pending {
            self.word(pending.outcome);
            self.settlement(&pending.settlement);
            self.bytes(pending.by.as_bytes());
            self.bytes(pending.reason.as_bytes());
            self.number(pending.version);
            self.bytes(pending.fingerprint.as_bytes());
            self.number(pending.at.0);
        }
        self.0.push(u8::from(record.awaits_approval));
        self.maybe(record.approved_by.as_deref().map(str::as_bytes));
        self.0.push(u8::from(record.needs_release));
        self.0.push(u8::from(record.released));
        self.0.push(u8::from(record.has_probe));
        self.number(record.let_through.len() as u64);
        for fingerprint in &record.let_through {
            self.bytes(fingerprint.as_bytes());
        }
        self.maybe(record.assigned_to.as_deref().map(str::as_bytes));
    }
}

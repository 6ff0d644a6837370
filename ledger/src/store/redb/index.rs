//! The index: one table of keys without values, in sections. Each key is a section's letter, 16 bytes and a sequence number, so that a
//! section is a sorted list of records under some word, and two records under the same 16 bytes of a hash stand beside each other: whoever
//! looks one up compares the whole of what is looked for with the record. One table, since each table that a transaction changes costs pages.
//!
//! The rows follow from the record alone ([`rows_of`]): writing is the difference between before and after, verifying is comparing.

use crate::codes::Code as _;
use crate::ids::{OperationId, RootId, TenantId, ToolName};
use crate::key::ExecutionKey;
use crate::record::{Record, State, UnixMillis};

/// A row of the index.
pub(super) type IndexKey = [u8; 25];

/// Section: execution key → its record.
const BY_KEY: u8 = b'k';
/// Section: key of a read without its run → its runs.
const BY_BASE: u8 = b'b';
/// Section: tenant, root and tool.
const BY_PLACE: u8 = b'p';
/// Section: operation.
const BY_OPERATION: u8 = b'o';
/// Section: root.
const BY_ROOT: u8 = b'r';
/// Section: state, of open records only.
const BY_STATE: u8 = b's';
/// Section: end of the lease, of started records.
const DUE: u8 = b'd';
/// Section: record → its entries; the sequence at the end is the entry's.
const HISTORY: u8 = b'h';

/// The states that are never over by themselves.
pub(super) const OPEN: [State; 3] = [State::Planned, State::Started, State::Unknown];

/// Where in the index: a section and the 16 bytes under which records stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Under([u8; 17]);

impl Under {
    fn new(section: u8, word: &[u8]) -> Self {
        let mut under = [0; 17];
        under[0] = section;
        let length = word.len().min(16);
        under[1..=length].copy_from_slice(&word[..length]);
        Self(under)
    }

    fn hashed(section: u8, words: &[&str]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for word in words {
            hasher.update(&(word.len() as u64).to_le_bytes()).update(word.as_bytes());
        }
        Self::new(section, hasher.finalize().as_bytes())
    }

    pub(super) fn key(key: &ExecutionKey) -> Self {
        Self::new(BY_KEY, key.as_bytes())
    }

    pub(super) fn base(key: &ExecutionKey) -> Self {
        Self::new(BY_BASE, key.as_bytes())
    }

    pub(super) fn place(tenant: &TenantId, root: &RootId, tool: &ToolName) -> Self {
        Self::hashed(BY_PLACE, &[tenant.as_str(), root.as_str(), tool.as_str()])
    }

    pub(super) fn operation(operation: &OperationId) -> Self {
        Self::hashed(BY_OPERATION, &[operation.as_str()])
    }

    pub(super) fn root(root: &RootId) -> Self {
        Self::hashed(BY_ROOT, &[root.as_str()])
    }

    /// None for a state that has no section.
    pub(super) fn state(state: State) -> Option<Self> {
        OPEN.contains(&state).then(|| Self::new(BY_STATE, &[state.code()]))
    }

    fn due(at: UnixMillis) -> Self {
        Self::new(DUE, &at.0.to_be_bytes())
    }

    pub(super) fn history(record: u64) -> Self {
        Self::new(HISTORY, &record.to_be_bytes())
    }

    /// The row of this record (or, in a history, entry).
    pub(super) fn at(self, sequence: u64) -> IndexKey {
        let mut key = [0; 25];
        key[..17].copy_from_slice(&self.0);
        key[17..].copy_from_slice(&sequence.to_be_bytes());
        key
    }
}

/// All leases that end at `now` or before.
pub(super) fn due_until(now: UnixMillis) -> (IndexKey, IndexKey) {
    (Under::due(UnixMillis(0)).at(0), Under::due(now).at(u64::MAX))
}

/// The sequence at the end of a row.
pub(super) fn sequence(key: &IndexKey) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&key[17..]);
    u64::from_be_bytes(bytes)
}

/// Every row that a record has in the index, save its history.
pub(super) fn rows_of(record: &Record) -> Vec<IndexKey> {
    let mut under = vec![
        Under::key(&record.key),
        Under::place(&record.tenant, &record.root, &record.tool),
        Under::root(&record.root),
    ];
    under.extend(record.base.as_ref().map(Under::base));
    under.extend(record.operation.as_ref().map(Under::operation));
    under.extend(Under::state(record.state));
    if record.state == State::Started {
        under.extend(record.lease.as_ref().map(|lease| Under::due(lease.until)));
    }
    under.into_iter().map(|under| under.at(record.sequence)).collect()
}

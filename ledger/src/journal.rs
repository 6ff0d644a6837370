//! The journal's entries and their chain.
//!
//! In: drafts of what happened. Out: [`Entry`]s, each with the hash of the one before, so that none can be changed, taken out or put in
//! without all later ones telling; [`Head`], to be kept elsewhere, so that a cut-off tail tells, too. Content (arguments, results,
//! evidence) is in an entry only as salted hashes: it can be erased and the chain still holds.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::key::ExecutionKey;
use crate::record::UnixMillis;

/// `previous` of the first entry.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What happened, before it has its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// When.
    pub at: UnixMillis,
    /// Who: a client's or operator's name, `relay`, `probe`.
    pub by: Arc<str>,
    /// `claim`, `complete`, `expire`, `resolve`, `confirm`, `release`, `plan` … or the action of a [`Remark`](crate::Remark).
    pub action: Arc<str>,
    /// The execution, or the subject of a remark.
    pub subject: Arc<str>,
    /// State before; empty for none.
    pub from: Arc<str>,
    /// State after.
    pub to: Arc<str>,
    /// The record's version after; 0 for a remark.
    pub version: u64,
    /// The record's epoch after; 0 for a remark.
    pub epoch: u32,
    /// Why.
    pub reason: Arc<str>,
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// 1 for the first; no gaps.
    pub sequence: u64,
    /// When.
    pub at: UnixMillis,
    /// Who.
    pub by: Arc<str>,
    /// What was done.
    pub action: Arc<str>,
    /// To what: an execution key or the subject of a remark.
    pub subject: Arc<str>,
    /// State before.
    pub from: Arc<str>,
    /// State after.
    pub to: Arc<str>,
    /// The record's version after.
    pub version: u64,
    /// The record's epoch after.
    pub epoch: u32,
    /// Why.
    pub reason: Arc<str>,
    /// Salted hash of the record as this entry left it, and of its evidence; empty for a remark.
    pub content: Arc<str>,
    /// Hash of the entry before, in hex; [`GENESIS`] for the first.
    pub previous: Arc<str>,
    /// Hash of this entry, in hex.
    pub hash: Arc<str>,
}

/// The end of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Entries so far.
    pub sequence: u64,
    /// Hash of the last one.
    pub hash: Arc<str>,
}

impl Default for Head {
    fn default() -> Self {
        Self { sequence: 0, hash: Arc::from(GENESIS) }
    }
}

/// Whose execution an entry is about, from its subject.
impl Entry {
    /// The execution key, where it is about an execution.
    #[must_use]
    pub fn execution(&self) -> Option<ExecutionKey> {
        self.subject.parse().ok()
    }
}

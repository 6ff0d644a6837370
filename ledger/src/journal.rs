//! The journal's entries and their chain.
//!
//! In: drafts of what happened. Out: [`Entry`]s, each with the hash of the one before, so that none can be changed, taken out or put in
//! without all later ones telling; [`Head`], to be kept elsewhere, so that a cut-off tail tells, too. Content (arguments, results,
//! evidence) is in an entry only as salted hashes: it can be erased and the chain still holds.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::key::ExecutionKey;
use crate::record::UnixMillis;
use crate::store::{Broken, Verdict};

/// `previous` of the first entry.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Domain of the hashes: no other hash of this program can stand for one of them.
const CONTEXT: &str = "rubicon-ledger 2026-11-30 journal entry v1";

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
    /// The record's version after; for a remark that of what it concerns, 0 for none.
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

impl Draft {
    /// Puts it behind `head`; `content` as [`content`](crate::content) makes it, empty for a remark.
    #[must_use]
    pub fn chained(self, head: &Head, content: Arc<str>) -> Entry {
        let mut entry = Entry {
            sequence: head.sequence.saturating_add(1),
            at: self.at,
            by: self.by,
            action: self.action,
            subject: self.subject,
            from: self.from,
            to: self.to,
            version: self.version,
            epoch: self.epoch,
            reason: self.reason,
            content,
            previous: Arc::clone(&head.hash),
            hash: Arc::from(""),
        };
        entry.hash = Arc::from(entry.digest().as_str());
        entry
    }
}

impl Entry {
    /// The execution key, where it is about an execution.
    #[must_use]
    pub fn execution(&self) -> Option<ExecutionKey> {
        self.subject.parse().ok()
    }

    /// What [`Entry::hash`] must be, in hex: blake3 in derive-key mode over all other fields, each text preceded by its length.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        for number in [self.sequence, self.at.0, self.version, u64::from(self.epoch)] {
            hasher.update(&number.to_le_bytes());
        }
        let texts = [&self.by, &self.action, &self.subject, &self.from, &self.to, &self.reason, &self.content];
        for text in texts.into_iter().chain([&self.previous]) {
            hasher.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The chain's end where this is the last one.
    #[must_use]
    pub fn head(&self) -> Head {
        Head { sequence: self.sequence, hash: Arc::clone(&self.hash) }
    }
}

/// Walks along the chain, one entry at a time.
#[derive(Debug, Default)]
pub struct Verifier {
    head: Head,
    wanted: Option<Arc<str>>,
    wanted_seen: bool,
    /// Records that agree with their last entry.
    pub records: u64,
    /// Records whose content was erased.
    pub erased: u64,
}

impl Verifier {
    /// Looks for `wanted`, too: the hash of a head that was kept elsewhere.
    #[must_use]
    pub fn new(wanted: Option<&str>) -> Self {
        Self::after(Head::default(), wanted)
    }

    /// Begins behind `head`, which is taken for granted: a part of a long chain.
    #[must_use]
    pub fn after(head: Head, wanted: Option<&str>) -> Self {
        let seen = wanted.is_none_or(|hash| *hash == *head.hash);
        Self { head, wanted: wanted.map(Arc::from), wanted_seen: seen, ..Self::default() }
    }

    /// The next entry, as it stands under the number `at`; `None`: it could not be read.
    ///
    /// # Errors
    /// What is broken: the walk ends here.
    pub fn take(&mut self, at: u64, entry: Option<&Entry>) -> Result<(), Broken> {
        let expected = self.head.sequence.saturating_add(1);
        let broken =
            |sequence, why| Err(Broken { sequence, why: Arc::from(why), key: entry.and_then(Entry::execution) });
        if at != expected {
            return broken(expected, "missing");
        }
        let Some(entry) = entry else { return broken(at, "unreadable") };
        if entry.sequence != at {
            return broken(at, "renumbered");
        }
        if entry.previous != self.head.hash {
            return broken(at, "unlinked");
        }
        if entry.digest() != *entry.hash {
            return broken(at, "changed");
        }
        self.wanted_seen |= self.wanted.as_ref() == Some(&entry.hash);
        self.head = entry.head();
        Ok(())
    }

    /// The last entry that holds.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The verdict.
    #[must_use]
    pub fn finish(self, broken: Option<Broken>) -> Verdict {
        let cut = || Broken { sequence: self.head.sequence.saturating_add(1), why: Arc::from("cut_off"), key: None };
        let broken = broken.or_else(|| (!self.wanted_seen).then(cut));
        Verdict {
            ok: broken.is_none(),
            entries: self.head.sequence,
            records: self.records,
            erased: self.erased,
            head: self.head,
            broken,
        }
    }
}

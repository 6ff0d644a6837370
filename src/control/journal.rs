//! The journal's entries and their chain: each carries the hash of the one before, so that none can be changed, taken out or
//! put in without all later ones telling. Pure.
//!
//! The chain proves order and content to whoever kept a later hash; it cannot prove that its end was not cut off. For that,
//! compare with a head that was kept elsewhere ([`Verifier::finish`]).

use serde::{Deserialize, Serialize};

use crate::clock::UnixMillis;

/// `previous` of the first entry.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Domain of the hashes: no other hash of this program can stand for one of them.
const CONTEXT: &str = "rubicon 2026 control journal entry, format 1";

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// 1 for the first; no gaps.
    pub sequence: u64,
    /// When.
    pub at: UnixMillis,
    /// The operator's name.
    pub by: String,
    /// `kill`, `restore`, `disable`, `enable`.
    pub action: String,
    /// `route:NAME`, `failover`, `failover:WORKFLOW`.
    pub subject: String,
    /// State before.
    pub from: String,
    /// State after.
    pub to: String,
    /// The record's version after.
    pub version: u64,
    /// The reason given.
    pub reason: String,
    /// Hash of the entry before, in hex; [`GENESIS`] for the first.
    pub previous: String,
    /// Hash of this entry, in hex.
    pub hash: String,
}

impl Entry {
    /// blake3 in derive-key mode over length-prefixed parts, in hex.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        for number in [self.sequence, self.at.0, self.version] {
            hasher.update(&number.to_be_bytes());
        }
        for text in [&self.by, &self.action, &self.subject, &self.from, &self.to, &self.reason, &self.previous] {
            hasher.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// The end of the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Head {
    /// Entries so far.
    pub sequence: u64,
    /// Hash of the last one.
    pub hash: String,
}

impl Default for Head {
    fn default() -> Self {
        Self { sequence: 0, hash: GENESIS.to_owned() }
    }
}

/// The first place where the chain does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// The entry.
    pub sequence: u64,
    /// `missing`, `unreadable`, `renumbered`, `changed` (its content), `unlinked` (from the one before), `cut_off` (the head that was
    /// asked for is not there), `switch_differs` (the table of switches is not what the journal says).
    pub why: &'static str,
}

/// What a walk along the chain found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Nothing is broken.
    pub ok: bool,
    /// Entries that hold.
    pub entries: u64,
    /// The last that holds.
    pub head: Head,
    /// The first that does not.
    pub broken: Option<Broken>,
}

/// Walks along the chain.
#[derive(Debug, Default)]
pub struct Verifier {
    head: Head,
    wanted: Option<String>,
    wanted_seen: bool,
}

impl Verifier {
    /// Looks for `wanted`, too: a head that was kept elsewhere.
    pub fn new(wanted: Option<String>) -> Self {
        let wanted_seen = wanted.as_deref().is_none_or(|hash| hash == GENESIS);
        Self { head: Head::default(), wanted, wanted_seen }
    }

    /// The next entry, as it stands under `key`; `None`: it could not be read.
    ///
    /// # Errors
    /// What is broken: the walk ends here.
    pub fn take(&mut self, key: u64, entry: Option<&Entry>) -> Result<(), Broken> {
        let expected = self.head.sequence + 1;
        let broken = |sequence, why| Err(Broken { sequence, why });
        if key != expected {
            return broken(expected, "missing");
        }
        let Some(entry) = entry else { return broken(key, "unreadable") };
        if entry.sequence != key {
            return broken(key, "renumbered");
        }
        if entry.previous != self.head.hash {
            return broken(key, "unlinked");
        }
        if entry.digest() != entry.hash {
            return broken(key, "changed");
        }
        self.wanted_seen |= self.wanted.as_ref() == Some(&entry.hash);
        self.head = Head { sequence: key, hash: entry.hash.clone() };
        Ok(())
    }

    /// The verdict.
    pub fn finish(self, broken: Option<Broken>) -> Verdict {
        let cut = || Broken { sequence: self.head.sequence + 1, why: "cut_off" };
        let broken = broken.or_else(|| (!self.wanted_seen).then(cut));
        Verdict { ok: broken.is_none(), entries: self.head.sequence, head: self.head, broken }
    }
}

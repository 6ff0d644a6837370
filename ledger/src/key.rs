//! Slots, fingerprints and execution keys.
//!
//! In: canonical documents and names. Out: 32-byte digests, each its own type with its own printed form. All three are
//! `blake3` in derive-key mode: the context string says which kind and version of digest it is, so that no two kinds can
//! ever agree, and every part is preceded by its length, so that no part can borrow bytes from its neighbour
//! (LEDGER.md 4.4, 10.1). Deliberately not in a key: attempt numbers, claim ids and providers' `tool_call_id`s, which
//! would give every repetition a key of its own.
//!
//! The bytes that are hashed: for each part its length in bytes as a 64-bit little-endian number, then the part; numbers
//! are parts of 8 little-endian bytes.
//!
//! | digest | context | parts |
//! | --- | --- | --- |
//! | fingerprint | [`FINGERPRINT_CONTEXT`] | `args-v1`, canonical arguments |
//! | slot of all | [`SLOT_CONTEXT`] | `args-v1`, `all`, canonical arguments |
//! | slot of fields | [`SLOT_CONTEXT`] | `args-v1`, `fields`, their number, then for each pointer in order: pointer, value |
//! | execution key | [`KEY_CONTEXT`] | `key-v1`, tenant, root, tool, slot (32 bytes), occurrence, `once` or `run` and the run's number |

use std::fmt;
use std::str::FromStr;

use crate::canonical::Canonical;
use crate::error::BadDigest;
use crate::ids::{Occurrence, RootId, RunNumber, TenantId, ToolName};

/// Context of [`Fingerprint`]s.
pub const FINGERPRINT_CONTEXT: &str = "rubicon-ledger 2026-11-30 arguments fingerprint v1";
/// Context of [`Slot`]s.
pub const SLOT_CONTEXT: &str = "rubicon-ledger 2026-11-30 intent slot v1";
/// Context of [`ExecutionKey`]s.
pub const KEY_CONTEXT: &str = "rubicon-ledger 2026-11-30 execution key v1";

/// The version of the canonical form; another form of arguments gets another tag and with it other digests.
const ARGUMENTS_VERSION: &[u8] = b"args-v1";
/// The version of the key's composition.
const KEY_VERSION: &[u8] = b"key-v1";

/// Hex digits of a digest of 32 bytes.
const HEX_DIGITS: usize = 64;

macro_rules! digest_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// What the printed form begins with.
            pub const PREFIX: &'static str = $prefix;

            /// The digest's bytes, for a store.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// Takes a digest back from a store.
            #[must_use]
            pub fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Self::PREFIX)?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadDigest;

            /// Reads the printed form back; one spelling only (lower case), so that one key is one path.
            fn from_str(text: &str) -> Result<Self, BadDigest> {
                unprint(text, Self::PREFIX).map(Self).ok_or(BadDigest { prefix: Self::PREFIX })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

digest_type!(
    /// The name of one execution, in the store, in paths and as the `Idempotency-Key` that a tool sees.
    ExecutionKey,
    "ex_"
);
digest_type!(
    /// Which intent within a root and tool: the same slot is the same thing to be done, in whatever words.
    Slot,
    "sl_"
);
digest_type!(
    /// The whole projected arguments: the same slot with another fingerprint is the same thing in other words.
    ///
    /// Not salted: whoever holds a fingerprint can test a guess at the arguments. Keep it where the arguments may be kept.
    Fingerprint,
    "fp_"
);

fn unprint(text: &str, prefix: &str) -> Option<[u8; 32]> {
    let hex = text.strip_prefix(prefix)?.as_bytes();
    if hex.len() != HEX_DIGITS {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Everything that tells one execution from another.
#[derive(Debug, Clone, Copy)]
pub struct KeyParts<'a> {
    /// Whose it is.
    pub tenant: &'a TenantId,
    /// The action or run that it belongs to.
    pub root: &'a RootId,
    /// What is called.
    pub tool: &'a ToolName,
    /// The intent, by the tool's [`Projection`](crate::Projection).
    pub slot: Slot,
    /// Which of several same calls.
    pub occurrence: Occurrence,
    /// For a `read_only` tool the number of this run; none for a write, whose key never changes by running.
    pub run: Option<RunNumber>,
}

impl KeyParts<'_> {
    /// The key of this execution.
    #[must_use]
    pub fn key(&self) -> ExecutionKey {
        let parts = Parts::new(KEY_CONTEXT, KEY_VERSION)
            .bytes(self.tenant.as_str().as_bytes())
            .bytes(self.root.as_str().as_bytes())
            .bytes(self.tool.as_str().as_bytes())
            .bytes(self.slot.as_bytes())
            .number(u64::from(self.occurrence.0));
        let parts = match self.run {
            None => parts.bytes(b"once"),
            Some(run) => parts.bytes(b"run").number(run.0),
        };
        ExecutionKey(parts.finish())
    }
}

impl Slot {
    /// The slot where a tool names no key fields.
    pub(crate) fn of_all(projected: &Canonical) -> Self {
        Self(Parts::new(SLOT_CONTEXT, ARGUMENTS_VERSION).bytes(b"all").bytes(projected.as_bytes()).finish())
    }

    /// The slot made of (pointer, canonical value) pairs, which come sorted by pointer.
    pub(crate) fn of_fields(fields: &[(String, String)]) -> Self {
        let count = u64::try_from(fields.len()).unwrap_or(u64::MAX);
        let parts = Parts::new(SLOT_CONTEXT, ARGUMENTS_VERSION).bytes(b"fields").number(count);
        let parts = fields
            .iter()
            .fold(parts, |parts, (pointer, value)| parts.bytes(pointer.as_bytes()).bytes(value.as_bytes()));
        Self(parts.finish())
    }
}

impl Fingerprint {
    /// The fingerprint of what a projection left.
    pub(crate) fn of(projected: &Canonical) -> Self {
        Self(Parts::new(FINGERPRINT_CONTEXT, ARGUMENTS_VERSION).bytes(projected.as_bytes()).finish())
    }
}

/// Length-prefixed parts on their way into a hash.
pub(crate) struct Parts(blake3::Hasher);

impl Parts {
    pub(crate) fn new(context: &str, version: &[u8]) -> Self {
        Self(blake3::Hasher::new_derive_key(context)).bytes(version)
    }

    /// Under a secret instead of a context: nobody without it can make the digest.
    pub(crate) fn keyed(secret: &[u8; 32], version: &[u8]) -> Self {
        Self(blake3::Hasher::new_keyed(secret)).bytes(version)
    }

    pub(crate) fn bytes(mut self, part: &[u8]) -> Self {
        // usize has at most 64 bits wherever this builds, so the fallback never happens.
        self.0.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        self.0.update(part);
        self
    }

    pub(crate) fn number(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

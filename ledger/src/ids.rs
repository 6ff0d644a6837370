//! Names and numbers that a key is made of, each its own type.
//!
//! In: text that the caller got from authentication, a header or the configuration. Out: [`TenantId`], [`RootId`],
//! [`ToolName`], [`OperationId`], [`Occurrence`], [`RunNumber`]. A type of its own for each makes it impossible to hash a
//! tool where the tenant belongs. Names are taken as they are: no trimming, no case folding, since two spellings that the
//! caller keeps apart must not share a record. A provider's `tool_call_id` has no type here on purpose: it is an attribute
//! and never part of a key (LEDGER.md 10.1).

use std::fmt;
use std::sync::Arc;

use crate::error::BadName;

/// Longest name in bytes. `Idempotency-Key` allows 255 characters and prefixed tool names stay below that; the rest is
/// room. A longer one is refused, never cut: two cut names could meet.
pub const MAX_NAME_BYTES: usize = 512;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the name as it is.
            ///
            /// # Errors
            /// [`BadName`] where it is empty, over [`MAX_NAME_BYTES`] or has control characters.
            pub fn new(name: &str) -> Result<Self, BadName> {
                checked(name).map(Self)
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), &self.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

name_type!(
    /// Whose data it is. From the authenticated client only, never from a header or the body.
    TenantId
);
name_type!(
    /// The user's action or agent run that executions belong to (SPEC.md section 8, *Root*).
    RootId
);
name_type!(
    /// A tool as the configuration names it.
    ToolName
);
name_type!(
    /// One logical request of the application. Not part of a key, save as the root where nothing better is known.
    OperationId
);

impl From<OperationId> for RootId {
    /// The last rule for roots: an operation that belongs to no known run is its own.
    fn from(operation: OperationId) -> Self {
        Self(operation.0)
    }
}

fn checked(name: &str) -> Result<Arc<str>, BadName> {
    if name.is_empty() {
        return Err(BadName::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(BadName::TooLong);
    }
    if name.chars().any(char::is_control) {
        return Err(BadName::ControlCharacter);
    }
    Ok(Arc::from(name))
}

/// Which of several same calls this is: 0, or the number of an identical call inside one model response, or the
/// client's own word for "again, on purpose". Never a count of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Occurrence(pub u32);

impl Occurrence {
    /// The one after this; none after the last number there is, since wrapping would meet the first record again.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

/// Which run of a read-only call this is. It is part of the key, so that a settled read never answers a later claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct RunNumber(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_taken_as_they_are() {
        let longest = "x".repeat(MAX_NAME_BYTES);
        let rows: &[(&str, Option<BadName>)] = &[
            ("a", None),
            (" padded ", None),
            ("Größe/€", None),
            (&longest, None),
            ("", Some(BadName::Empty)),
            (&format!("{longest}x"), Some(BadName::TooLong)),
            ("a\nb", Some(BadName::ControlCharacter)),
            ("a\u{85}b", Some(BadName::ControlCharacter)),
            ("a\0", Some(BadName::ControlCharacter)),
        ];
        for (text, fault) in rows {
            let made = TenantId::new(text);
            assert_eq!(made.as_ref().err(), fault.as_ref(), "{text:?}");
            if let Ok(name) = made {
                assert_eq!(name.as_str(), *text);
            }
        }
    }

    #[test]
    fn occurrences_do_not_wrap() {
        assert_eq!(Occurrence(0).next(), Some(Occurrence(1)));
        assert_eq!(Occurrence(u32::MAX).next(), None);
    }
}

//! Why a document or a configuration is refused.
//!
//! In: nothing. Out: [`Refused`] (a document, with the place as a JSON Pointer), [`BadPointer`], [`BadProjection`],
//! [`BadName`] and [`BadDigest`]. One small enum per question, no catch-all; each kind has a stable word ([`Refusal::code`])
//! that a program may match on. No message quotes a *value* of the arguments, because messages reach logs; a pointer
//! carries member names only. Deliberately not here: HTTP statuses (the relay maps [`Refusal::TooLarge`] to 413 and
//! every other kind to 400, SPEC.md Annex "Executions" and "Bounds").

use crate::pointer::Pointer;

/// A document that has no canonical form within the bounds, or arguments that a projection cannot use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (at pointer \"{pointer}\", byte {offset})")]
pub struct Refused {
    /// What is wrong.
    pub kind: Refusal,
    /// The offending value, or the nearest enclosing one that a pointer can name: a fault inside a member *name* is
    /// reported at its object, and a pointer over [`MAX_POINTER_BYTES`](crate::MAX_POINTER_BYTES) at the nearest
    /// ancestor that fits.
    pub pointer: Pointer,
    /// Where the reader stood when it noticed, in bytes from the start of the input; 0 where the fault is not at
    /// one place of the text (a missing key field, arguments that are no object, a canonical text over the limit).
    pub offset: usize,
}

/// The closed list of reasons to refuse a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// The input, or the canonical form it would have, is over [`MAX_BYTES`](crate::MAX_BYTES).
    #[error("larger than {} bytes", crate::MAX_BYTES)]
    TooLarge,
    /// Arrays and objects nested more than [`MAX_DEPTH`](crate::MAX_DEPTH) deep.
    #[error("nested more than {} deep", crate::MAX_DEPTH)]
    TooDeep,
    /// Not JSON as RFC 8259 defines it.
    #[error("not JSON")]
    Syntax,
    /// JSON that ends before it is complete: what a cut tool call looks like.
    #[error("ends before the JSON text is complete")]
    Truncated,
    /// A complete value, and then something that is not white space.
    #[error("something follows the JSON value")]
    TrailingData,
    /// Bytes that are not UTF-8 (surrogates encoded as bytes and overlong forms among them).
    #[error("not UTF-8")]
    InvalidUtf8,
    /// A `\uD800`–`\uDFFF` escape that is not half of a pair.
    #[error("a lone surrogate")]
    LoneSurrogate,
    /// A backslash before something that RFC 8259 does not list.
    #[error("an escape that JSON does not have")]
    BadEscape,
    /// A raw control character (below U+0020) inside a string.
    #[error("a control character inside a string")]
    ControlCharacter,
    /// The same member name twice in one object, compared after unescaping.
    #[error("a member name that its object already has")]
    DuplicateName,
    /// A number whose leading digit stands beyond [`MAX_EXPONENT`](crate::MAX_EXPONENT).
    #[error("a number outside of 10^±{}", crate::MAX_EXPONENT)]
    NumberOutOfRange,
    /// A number of more than [`MAX_DIGITS`](crate::MAX_DIGITS) significant digits.
    #[error("a number of more than {} significant digits", crate::MAX_DIGITS)]
    NumberTooLong,
    /// Tool arguments whose top level is not an object.
    #[error("arguments that are not an object")]
    NotAnObject,
    /// A field that makes the slot is absent; `null` would be present.
    #[error("a key field that is absent")]
    KeyFieldMissing,
}

impl Refusal {
    /// The stable word for programs and logs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::TooDeep => "too_deep",
            Self::Syntax => "syntax",
            Self::Truncated => "truncated",
            Self::TrailingData => "trailing_data",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::LoneSurrogate => "lone_surrogate",
            Self::BadEscape => "bad_escape",
            Self::ControlCharacter => "control_character",
            Self::DuplicateName => "duplicate_name",
            Self::NumberOutOfRange => "number_out_of_range",
            Self::NumberTooLong => "number_too_long",
            Self::NotAnObject => "not_an_object",
            Self::KeyFieldMissing => "key_field_missing",
        }
    }
}

/// A text that is not a JSON Pointer (RFC 6901, section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPointer {
    /// Neither empty nor begun by `/`.
    #[error("a JSON Pointer is empty or begins with \"/\"")]
    NoLeadingSlash,
    /// A `~` that is neither `~0` nor `~1`.
    #[error("\"~\" in a JSON Pointer is followed by 0 or 1")]
    BadTilde,
    /// Longer than [`MAX_POINTER_BYTES`](crate::MAX_POINTER_BYTES).
    #[error("a JSON Pointer of more than {} bytes", crate::MAX_POINTER_BYTES)]
    TooLong,
}

/// `key_fields` and `ignore_fields` that make no sense together; found when the configuration is loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadProjection {
    /// The empty pointer names everything: as a key field it says nothing, as an ignored one it leaves nothing.
    #[error("the empty pointer names the whole arguments")]
    WholeDocument,
    /// The same pointer twice in one list.
    #[error("\"{0}\" is listed twice")]
    Repeated(Pointer),
    /// A key field that an ignored field contains, so that it could never be found.
    #[error("key field \"{key}\" lies within the ignored field \"{ignored}\"")]
    KeyIgnored {
        /// The key field.
        key: Pointer,
        /// The ignored field that contains it.
        ignored: Pointer,
    },
    /// More than [`MAX_FIELDS`](crate::MAX_FIELDS) pointers in one list.
    #[error("more than {} fields in one list", crate::MAX_FIELDS)]
    TooMany,
}

/// A text that cannot serve as the name of a tenant, root, operation or tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// No text at all.
    #[error("empty")]
    Empty,
    /// Longer than [`MAX_NAME_BYTES`](crate::MAX_NAME_BYTES).
    #[error("longer than {} bytes", crate::MAX_NAME_BYTES)]
    TooLong,
    /// A control character, which would forge lines in logs and tables.
    #[error("a control character in it")]
    ControlCharacter,
}

/// A text that is not the printed form of a key, slot or fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected \"{prefix}\" and 64 lower-case hexadecimal digits")]
pub struct BadDigest {
    /// What the printed form begins with.
    pub prefix: &'static str,
}

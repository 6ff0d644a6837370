//! Canonical documents and tool arguments.
//!
//! In: bytes. Out: [`Canonical`] (any JSON value with its one text) and [`Arguments`] (a canonical object). The form is
//! RFC 8785's, save that numbers keep their exact decimal value (`number.rs`; SPEC.md section 8). The text is what is
//! stored beside the hashes, so that operators and diffs can read it back; reading it back gives the same document,
//! because the size limit holds for the text as well as for the input. Deliberately not here: key and ignored fields
//! (`project.rs`), hashes (`key.rs`), filling in of a schema's defaults (never done: what was not said is not there).

use crate::error::{Refusal, Refused};
use crate::parse::{self, MAX_BYTES};
use crate::pointer::Pointer;
use crate::value::Value;

/// A JSON document in canonical form. Equal values are equal texts and the other way round.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Canonical {
    text: Box<str>,
    value: Value,
}

impl Canonical {
    /// Reads a document of any type.
    ///
    /// # Errors
    /// [`Refused`] with the pointer of what has no canonical form within the bounds.
    pub fn parse(input: &[u8]) -> Result<Self, Refused> {
        Self::of(parse::document(input)?)
    }

    /// Writes a value down; one whose text is over the limit is refused (`1e20` has a text of 21 bytes), since a stored
    /// document must be readable again.
    pub(crate) fn of(value: Value) -> Result<Self, Refused> {
        let text = value.to_canonical();
        if text.len() > MAX_BYTES {
            return Err(Refused { kind: Refusal::TooLarge, pointer: Pointer::root(), offset: 0 });
        }
        Ok(Self { text: text.into(), value })
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The canonical bytes, which are UTF-8.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// The document as a tree.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The value at a pointer, if there is one; `null` is one.
    #[must_use]
    pub fn get(&self, pointer: &Pointer) -> Option<&Value> {
        pointer.find(&self.value)
    }
}

/// Tool arguments: a canonical document whose top level is an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Arguments(Canonical);

impl Arguments {
    /// Reads arguments as a model or a client wrote them.
    ///
    /// # Errors
    /// As [`Canonical::parse`], and [`Refusal::NotAnObject`].
    pub fn parse(input: &[u8]) -> Result<Self, Refused> {
        let canonical = Canonical::parse(input)?;
        match canonical.value() {
            Value::Object(_) => Ok(Self(canonical)),
            _ => Err(Refused { kind: Refusal::NotAnObject, pointer: Pointer::root(), offset: 0 }),
        }
    }

    /// The whole arguments, nothing left out: what the ledger stores.
    #[must_use]
    pub fn canonical(&self) -> &Canonical {
        &self.0
    }
}

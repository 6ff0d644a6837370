//! Which part of the arguments makes the identity.
//!
//! In: a tool's `key_fields` and `ignore_fields` (checked once, when the configuration is loaded) and arguments. Out:
//! [`Projected`]: what is left of the arguments, the slot and the fingerprint. Ignored fields are taken out first and
//! count for nothing; the slot is then made of the key fields where there are any, else of everything that is left; the
//! fingerprint is always of everything that is left (SPEC.md section 8). A missing key field is refused, never skipped:
//! a tool that silently falls back to "no protection" is how payments double (LEDGER.md 1.4).

use crate::canonical::{Arguments, Canonical};
use crate::error::{BadProjection, Refusal, Refused};
use crate::key::{Fingerprint, Slot};
use crate::pointer::Pointer;

/// Most pointers in `key_fields` or in `ignore_fields`; each one costs a walk for every claim.
pub const MAX_FIELDS: usize = 64;

/// A tool's rule for its identity. The default has no fields: slot and fingerprint are both of all arguments.
///
/// Changing a rule changes the keys of later claims, so that they no longer meet the records made under the old one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Projection {
    /// Sorted, so that the order in the configuration does not matter.
    key_fields: Vec<Pointer>,
    ignore_fields: Vec<Pointer>,
}

/// Arguments seen through a [`Projection`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projected {
    /// The arguments without the ignored fields: what [`differs`](crate::differs()) compares.
    pub canonical: Canonical,
    /// Which intent this is.
    pub slot: Slot,
    /// In which words.
    pub fingerprint: Fingerprint,
}

impl Projection {
    /// Checks the two lists against themselves and each other. An ignored field *inside* a key field is allowed (the
    /// slot is then made of the rest of that field).
    ///
    /// # Errors
    /// [`BadProjection`] names the first pointer that makes no sense.
    pub fn new(mut key_fields: Vec<Pointer>, mut ignore_fields: Vec<Pointer>) -> Result<Self, BadProjection> {
        for list in [&mut key_fields, &mut ignore_fields] {
            if list.len() > MAX_FIELDS {
                return Err(BadProjection::TooMany);
            }
            list.sort_unstable();
            if list.iter().any(Pointer::is_root) {
                return Err(BadProjection::WholeDocument);
            }
            if let Some(pair) = list.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(BadProjection::Repeated(pair[0].clone()));
            }
        }
        for key in &key_fields {
            if let Some(ignored) = ignore_fields.iter().find(|ignored| ignored.contains(key)) {
                return Err(BadProjection::KeyIgnored { key: key.clone(), ignored: ignored.clone() });
            }
        }
        Ok(Self { key_fields, ignore_fields })
    }

    /// Whether a key field is named, so that the same slot may come in other words.
    #[must_use]
    pub fn has_key_fields(&self) -> bool {
        !self.key_fields.is_empty()
    }

    /// The pointers that make the slot, sorted.
    #[must_use]
    pub fn key_fields(&self) -> &[Pointer] {
        &self.key_fields
    }

    /// The pointers that are left out, sorted.
    #[must_use]
    pub fn ignore_fields(&self) -> &[Pointer] {
        &self.ignore_fields
    }

    /// Slot and fingerprint of these arguments.
    ///
    /// # Errors
    /// [`Refusal::KeyFieldMissing`] with the pointer of the first absent key field; [`Refusal::TooLarge`] where the
    /// `null`s that stand for ignored array elements would push the text over the limit.
    pub fn apply(&self, arguments: &Arguments) -> Result<Projected, Refused> {
        let whole = arguments.canonical();
        let canonical = if self.ignore_fields.is_empty() {
            whole.clone()
        } else {
            let mut value = whole.value().clone();
            for pointer in &self.ignore_fields {
                value.remove(pointer);
            }
            Canonical::of(value)?
        };
        let slot = if self.key_fields.is_empty() { Slot::of_all(&canonical) } else { self.slot(&canonical)? };
        let fingerprint = Fingerprint::of(&canonical);
        Ok(Projected { canonical, slot, fingerprint })
    }

    fn slot(&self, canonical: &Canonical) -> Result<Slot, Refused> {
        let mut fields = Vec::with_capacity(self.key_fields.len());
        for pointer in &self.key_fields {
            let Some(value) = canonical.get(pointer) else {
                return Err(Refused { kind: Refusal::KeyFieldMissing, pointer: pointer.clone(), offset: 0 });
            };
            fields.push((pointer.to_string(), value.to_canonical()));
        }
        Ok(Slot::of_fields(&fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(texts: &[&str]) -> Vec<Pointer> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        let many: Vec<Pointer> = (0..=MAX_FIELDS).map(|n| format!("/f{n}").parse().unwrap()).collect();
        let pointer = |text: &str| text.parse::<Pointer>().unwrap();
        let rows = [
            (pointers(&[""]), vec![], BadProjection::WholeDocument),
            (vec![], pointers(&["/a", ""]), BadProjection::WholeDocument),
            (pointers(&["/a", "/b", "/a"]), vec![], BadProjection::Repeated(pointer("/a"))),
            (vec![], pointers(&["/a", "/a"]), BadProjection::Repeated(pointer("/a"))),
            (
                pointers(&["/a"]),
                pointers(&["/a"]),
                BadProjection::KeyIgnored { key: pointer("/a"), ignored: pointer("/a") },
            ),
            (
                pointers(&["/b", "/a/b"]),
                pointers(&["/a"]),
                BadProjection::KeyIgnored { key: pointer("/a/b"), ignored: pointer("/a") },
            ),
            (many.clone(), vec![], BadProjection::TooMany),
            (vec![], many, BadProjection::TooMany),
        ];
        for (key_fields, ignore_fields, expected) in rows {
            assert_eq!(Projection::new(key_fields, ignore_fields).unwrap_err(), expected);
        }
        // `/ab` only looks like a part of `/a`; an ignored part of a key field is fine.
        assert!(Projection::new(pointers(&["/ab", "/c"]), pointers(&["/a", "/c/note"])).is_ok());
    }
}

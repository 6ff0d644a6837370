//! The tree of a document and its canonical text.
//!
//! In: what the reader (`parse.rs`) found. Out: [`Value`], whose objects are sorted by UTF-16 code units and free of
//! duplicates by construction, and its text after RFC 8785. `serde_json::Value` is not used: it loses duplicate names
//! and exact numbers, and its member order depends on a feature that any crate in the build may switch on.
//!
//! A node takes 24 bytes and at most one allocation; the dearest documents (`[0],[0],…`) take about 40 times their bytes
//! at the peak (measured), so one at the size limit some 40 MiB.

use std::cmp::Ordering;
use std::mem;

use crate::number::Number;
use crate::pointer::{Pointer, index};

/// One JSON value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// `null`: a value, and not the same as absence.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number by its exact decimal value.
    Number(Number),
    /// A string, unescaped and otherwise as it was: no normalization, no trimming.
    String(Box<str>),
    /// An array, in its own order.
    Array(Box<[Value]>),
    /// An object.
    Object(Object),
}

/// An object's members: sorted by UTF-16 code units of their names (RFC 8785 section 3.2.3), each name once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Object(Box<[Member]>);

/// One member of an [`Object`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) name: Box<str>,
    pub(crate) value: Value,
}

impl Object {
    /// Sorts the members; on a name that occurs twice gives that name back.
    pub(crate) fn new(mut members: Vec<Member>) -> Result<Self, Box<str>> {
        members.sort_unstable_by(|a, b| utf16_order(&a.name, &b.name));
        if let Some(pair) = members.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(pair[1].name.clone());
        }
        Ok(Self(members.into()))
    }

    /// The member's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.position(name).map(|at| &self.0[at].value)
    }

    /// Names and values in canonical order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|member| (member.name.as_ref(), &member.value))
    }

    /// How many members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is `{}`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.binary_search_by(|member| utf16_order(&member.name, name)).ok()
    }
}

impl Value {
    /// Appends the canonical text: no white space, members sorted, minimal escapes.
    pub(crate) fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Number(number) => out.push_str(number.as_str()),
            Self::String(text) => write_string(text, out),
            Self::Array(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    element.write(out);
                }
                out.push(']');
            }
            Self::Object(object) => {
                out.push('{');
                for (at, (name, value)) in object.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    write_string(name, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// The canonical text of this value alone.
    #[must_use]
    pub fn to_canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// Takes out what `pointer` names, if it is there: a member disappears, an array's element becomes `null`. The
    /// element's place stays, so that the other elements keep their pointers and a second removal changes nothing more.
    pub(crate) fn remove(&mut self, pointer: &Pointer) {
        let Some((last, parents)) = pointer.split_last() else { return };
        let mut at = self;
        for token in parents {
            let next = match at {
                Self::Object(object) => object.position(token).map(|position| &mut object.0[position].value),
                Self::Array(elements) => index(token).and_then(|position| elements.get_mut(position)),
                _ => None,
            };
            let Some(next) = next else { return };
            at = next;
        }
        match at {
            Self::Object(object) => {
                if let Some(position) = object.position(last) {
                    let mut members = mem::take(&mut object.0).into_vec();
                    members.remove(position);
                    object.0 = members.into();
                }
            }
            Self::Array(elements) => {
                if let Some(element) = index(last).and_then(|position| elements.get_mut(position)) {
                    *element = Self::Null;
                }
            }
            _ => {}
        }
    }
}

/// The order of two texts as arrays of UTF-16 code units, without encoding them. UTF-8 bytes sort by code point, and
/// that differs only where a character beyond U+FFFF (first byte F0 and up, in UTF-16 a surrogate D800–DFFF) meets one of
/// U+E000–U+FFFF (first byte EE or EF). None of these bytes can be a continuation byte, so looking at the first bytes
/// that differ is enough.
pub(crate) fn utf16_order(a: &str, b: &str) -> Ordering {
    let differing = a.bytes().zip(b.bytes()).find(|(x, y)| x != y);
    match differing {
        None => a.len().cmp(&b.len()),
        Some((0xF0.., 0xEE | 0xEF)) => Ordering::Less,
        Some((0xEE | 0xEF, 0xF0..)) => Ordering::Greater,
        Some((x, y)) => x.cmp(&y),
    }
}

/// RFC 8785 section 3.2.2.2: escapes only for `"`, `\` and the control characters, in their shortest form.
fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut plain_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        // An escaped byte is ASCII, so both edges are character boundaries.
        out.push_str(text.get(plain_from..at).unwrap_or_default());
        plain_from = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x09 => out.push_str("\\t"),
            0x0A => out.push_str("\\n"),
            0x0C => out.push_str("\\f"),
            0x0D => out.push_str("\\r"),
            other => out.push_str(&format!("\\u{other:04x}")),
        }
    }
    out.push_str(text.get(plain_from..).unwrap_or_default());
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf16_order_is_that_of_the_code_units() {
        let names = [
            "",
            "a",
            "ab",
            "b",
            "\u{7f}",
            "\u{80}",
            "é",
            "e\u{301}",
            "€",
            "\u{d7ff}",
            "\u{e000}",
            "\u{fb33}",
            "\u{ffff}",
            "\u{10000}",
            "😀",
            "😂",
            "\u{10ffff}",
            "x\u{e000}",
            "x😀",
            "x😀a",
            "x\u{e000}a",
        ];
        for a in names {
            for b in names {
                let expected = a.encode_utf16().cmp(b.encode_utf16());
                assert_eq!(utf16_order(a, b), expected, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_node_stays_small() {
        assert!(size_of::<Value>() <= 24, "{}", size_of::<Value>());
    }
}

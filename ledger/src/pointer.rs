//! JSON Pointers (RFC 6901): where in the arguments something is.
//!
//! In: configuration text (`key_fields`, `ignore_fields`) or a path that a reader walked. Out: [`Pointer`], which is
//! always valid and prints in the one spelling RFC 6901 has for it, so equal pointers are equal texts. Relative pointers
//! and the `#…` fragment form are deliberately not here: the specification names neither.

use std::fmt;
use std::str::FromStr;

use crate::error::BadPointer;
use crate::value::Value;

/// Longest pointer in bytes, written or reported. Real ones are tens of bytes; the bound keeps an answer that lists
/// pointers small when a member name is itself a megabyte. Configuration beyond it is refused; a report names the
/// nearest ancestor that fits.
pub const MAX_POINTER_BYTES: usize = 4096;

/// A JSON Pointer, as its reference tokens (unescaped). The empty one names the whole document.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pointer(Vec<Box<str>>);

/// One step of a walked path.
#[derive(Clone, Copy)]
pub(crate) enum Step<'a> {
    /// Into an object's member.
    Name(&'a str),
    /// Into an array's element.
    Index(usize),
}

impl Pointer {
    /// The pointer to the whole document.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// The reference tokens, unescaped, outermost first.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// Whether this names the whole document.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `other` is this value or lies within it.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// The value it names, if the document has it. In an array only an index as RFC 6901 writes it (no sign, no leading
    /// zero) names an element; `-` never names an existing one.
    #[must_use]
    pub fn find<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(document, |value, token| match value {
            Value::Object(object) => object.get(token),
            Value::Array(elements) => elements.get(index(token)?),
            _ => None,
        })
    }

    /// The tokens all but the last, and the last; nothing for the root.
    pub(crate) fn split_last(&self) -> Option<(&str, &[Box<str>])> {
        self.0.split_last().map(|(last, parents)| (last.as_ref(), parents))
    }

    /// The pointer of a walked path, or of its longest beginning that fits in `limit_bytes`, with its size in bytes.
    /// An ancestor is still a true answer to "where?", a truncated name would not be.
    pub(crate) fn nearest<'a>(path: impl Iterator<Item = Step<'a>>, limit_bytes: usize) -> (Self, usize) {
        let mut tokens: Vec<Box<str>> = Vec::new();
        let mut used_bytes = 0;
        for step in path {
            let token: Box<str> = match step {
                Step::Name(name) if name.len() > limit_bytes => break,
                Step::Name(name) => name.into(),
                Step::Index(index) => index.to_string().into(),
            };
            let escapes = token.bytes().filter(|byte| matches!(byte, b'~' | b'/')).count();
            let after = used_bytes + 1 + token.len() + escapes;
            if after > limit_bytes {
                break;
            }
            used_bytes = after;
            tokens.push(token);
        }
        (Self(tokens), used_bytes)
    }
}

/// An array index as RFC 6901 section 4 writes it.
pub(crate) fn index(token: &str) -> Option<usize> {
    let canonical = token == "0" || (token.bytes().all(|byte| byte.is_ascii_digit()) && !token.starts_with('0'));
    if canonical { token.parse().ok() } else { None }
}

impl FromStr for Pointer {
    type Err = BadPointer;

    fn from_str(text: &str) -> Result<Self, BadPointer> {
        if text.len() > MAX_POINTER_BYTES {
            return Err(BadPointer::TooLong);
        }
        if text.is_empty() {
            return Ok(Self::root());
        }
        let tokens = text.strip_prefix('/').ok_or(BadPointer::NoLeadingSlash)?;
        tokens.split('/').map(unescape).collect::<Result<_, _>>().map(Self)
    }
}

fn unescape(token: &str) -> Result<Box<str>, BadPointer> {
    let mut out = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                _ => return Err(BadPointer::BadTilde),
            },
            other => other,
        });
    }
    Ok(out.into())
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for token in &self.0 {
            f.write_char('/')?;
            for c in token.chars() {
                match c {
                    '~' => f.write_str("~0")?,
                    '/' => f.write_str("~1")?,
                    other => f.write_char(other)?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl serde::Serialize for Pointer {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Pointer {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints_the_same_text() {
        let rows: &[(&str, &[&str])] = &[
            ("", &[]),
            ("/", &[""]),
            ("/a", &["a"]),
            ("/a/0/b", &["a", "0", "b"]),
            ("/a~1b", &["a/b"]),
            ("/m~0n", &["m~n"]),
            ("/~01", &["~1"]),
            ("//", &["", ""]),
            ("/ ", &[" "]),
            ("/é%41\"\\", &["é%41\"\\"]),
        ];
        for (text, tokens) in rows {
            let pointer: Pointer = text.parse().unwrap();
            assert_eq!(pointer.tokens().collect::<Vec<_>>(), *tokens, "{text}");
            assert_eq!(pointer.to_string(), *text);
        }
    }

    #[test]
    fn refuses_what_is_no_pointer() {
        let long = format!("/{}", "a".repeat(MAX_POINTER_BYTES));
        let rows = [
            ("a", BadPointer::NoLeadingSlash),
            ("#/a", BadPointer::NoLeadingSlash),
            ("$.a", BadPointer::NoLeadingSlash),
            ("/~", BadPointer::BadTilde),
            ("/~2", BadPointer::BadTilde),
            ("/a~/b", BadPointer::BadTilde),
            (&long, BadPointer::TooLong),
        ];
        for (text, expected) in rows {
            assert_eq!(text.parse::<Pointer>().unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn only_canonical_indices_name_elements() {
        let rows = [("0", Some(0)), ("7", Some(7)), ("10", Some(10)), ("00", None), ("01", None), ("-", None)];
        for (token, expected) in rows {
            assert_eq!(index(token), expected, "{token}");
        }
        for token in ["", "-1", "+1", "1.0", "1e0", "99999999999999999999999", "١"] {
            assert_eq!(index(token), None, "{token}");
        }
    }

    #[test]
    fn a_report_stops_at_the_nearest_ancestor_that_fits() {
        let long = "n".repeat(20);
        let path = [Step::Name("a/b"), Step::Index(3), Step::Name(&long)];
        assert_eq!(Pointer::nearest(path.into_iter(), 100).0.to_string(), format!("/a~1b/3/{long}"));
        let (short, bytes) = Pointer::nearest(path.into_iter(), 10);
        assert_eq!((short.to_string().as_str(), bytes), ("/a~1b/3", 7));
        assert_eq!(Pointer::nearest(path.into_iter(), 0), (Pointer::root(), 0));
    }
}

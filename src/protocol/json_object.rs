//! The top level of a request body: its members in order, each with the bytes where its value stands.
//!
//! In: a body. Out: [`Object`]. Why not a `serde_json::Value`: the relay sends the body on byte for byte and edits one member in
//! place, so it needs positions, members in order, and both of a doubled name (a map keeps one and says nothing). Values stay
//! raw: nothing is unescaped, so a lone surrogate that a JavaScript client sent inside a prompt is the provider's affair. Deliberately
//! not here: what any member means (the dialects' `request.rs`), and looking deeper (`json_walk.rs`).

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::request::RequestError;

/// Members at the top level. The largest official request type has about forty; a body of 32 MiB could hold millions,
/// each some dozen bytes of ours. Over it the body is refused (`invalid_json`).
pub const MEMBERS_MAX: usize = 1024;

/// One member of the top-level object.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The name, unescaped.
    pub name: Cow<'a, str>,
    /// The value as written, without the white space around it.
    pub value: &'a RawValue,
    /// Where the value stands in the body (of a string: its quotes included).
    pub range: Range<usize>,
}

/// A body's top-level object.
#[derive(Clone, Debug, Default)]
pub struct Object<'a> {
    /// Members in the order of the body, doubled names kept.
    pub members: Vec<Member<'a>>,
    /// Just after the opening brace: where a member can be inserted (with a comma behind it unless the object is empty).
    pub insert_at: usize,
}

impl<'a> Object<'a> {
    /// Every value under `name`, in order.
    pub fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Member<'a>> {
        self.members.iter().filter(move |member| member.name == name)
    }

    /// The value that counts under `name`: the last one, as in the JSON parsers of Python, Go and JavaScript (RFC 8259 section 4
    /// leaves it open).
    pub fn last(&self, name: &str) -> Option<&Member<'a>> {
        self.members.iter().rev().find(|member| member.name == name)
    }
}

/// Reads the top level of `body`.
///
/// # Errors
/// `invalid_json` when the body is not exactly one JSON object in UTF-8 or has more than [`MEMBERS_MAX`] members. The message
/// names a line and a column, never content.
pub fn members(body: &[u8]) -> Result<Object<'_>, RequestError> {
    let parsed: Parsed<'_> = serde_json::from_slice(body).map_err(|error| refuse(body, &error))?;
    let start = body.as_ptr().addr();
    let members = parsed.0.into_iter().map(|(name, value)| {
        // The raw values borrow from `body` (serde_json's slice reader never copies them), so this subtraction is the offset.
        let from = value.get().as_ptr().addr().saturating_sub(start);
        Member { name: name.0, value, range: from..from + value.get().len() }
    });
    Ok(Object { members: members.collect(), insert_at: body.iter().position(|&b| b == b'{').map_or(0, |at| at + 1) })
}

fn refuse(body: &[u8], error: &serde_json::Error) -> RequestError {
    let message = match body.iter().find(|b| !b.is_ascii_whitespace()) {
        None => "the request body is empty; it must be one JSON object".to_owned(),
        Some(b'{') if error.is_data() => {
            format!("the request body has more than {MEMBERS_MAX} members or is not valid UTF-8")
        }
        Some(b'{') => format!(
            "the request body is not valid JSON (line {}, column {}); it must be one JSON object",
            error.line(),
            error.column()
        ),
        Some(_) => "the request body must be one JSON object".to_owned(),
    };
    RequestError { code: "invalid_json", message, param: None }
}

/// A member's name: borrowed where it has no escapes (serde's own `Cow` always copies).
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(v))
            }

            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(v.to_owned()))
            }
        }
        deserializer.deserialize_str(NameVisitor).map(Name)
    }
}

struct Parsed<'a>(Vec<(Name<'a>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Parsed<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Vec<(Name<'de>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    if members.len() == MEMBERS_MAX {
                        return Err(A::Error::custom("too many members"));
                    }
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(ObjectVisitor).map(Parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_order_with_their_bytes_and_doubled_names() {
        let body = " \n{ \"a\" : \"x\\ud800y\" ,\"b\":{\"a\":[1, 2]},\"\\u0061\":null,\"č\": 1.50 }\t";
        let object = members(body.as_bytes()).unwrap();
        let names: Vec<_> = object.members.iter().map(|m| m.name.as_ref()).collect();
        assert_eq!(names, ["a", "b", "a", "č"]);
        for member in &object.members {
            assert_eq!(body.get(member.range.clone()), Some(member.value.get()));
        }
        let values: Vec<_> = object.members.iter().map(|m| m.value.get()).collect();
        assert_eq!(values, ["\"x\\ud800y\"", "{\"a\":[1, 2]}", "null", "1.50"]);
        assert_eq!(object.insert_at, 3);
        assert_eq!(object.last("a").map(|m| m.value.get()), Some("null"));
        assert_eq!(object.all("a").count(), 2);
        assert!(object.last("c").is_none());
        assert!(matches!(object.members.first().map(|m| &m.name), Some(Cow::Borrowed(_))), "no copy without escapes");
    }

    #[test]
    fn an_empty_object_has_no_members() {
        let object = members(b"\r\n{\t}").unwrap();
        assert!(object.members.is_empty());
        assert_eq!(object.insert_at, 3);
    }

    #[test]
    fn whatever_is_not_one_object_is_refused_without_its_content() {
        let secret = "hunter2";
        for body in [
            "",
            " \n",
            "[1]",
            "\"hunter2\"",
            "null",
            "{\"hunter2\":}",
            "{\"hunter2\":1",
            "{\"a\":hunter2}",
            "{\"a\":1} {\"b\":2}",
            "{\"a\":1}hunter2",
            "{\"a\":1,}",
            "{'a':1}",
            "\u{feff}{\"a\":1}",
            "{\"a\":NaN}",
            "{\"a\":\"line\nbreak hunter2\"}",
            "{\"a\":01}",
        ] {
            let error = members(body.as_bytes()).unwrap_err();
            assert_eq!(error.code, "invalid_json", "{body}");
            assert!(!error.message.contains(secret), "{body}: {}", error.message);
        }
        for body in [&b"{\"a\":\"\xff\"}"[..], b"{\"\xff\":1}", b"{\"a\":\"\xed\xa0\x80\"}"] {
            assert_eq!(members(body).unwrap_err().code, "invalid_json", "{body:?}");
        }
    }

    #[test]
    fn the_bound_on_members_holds() {
        let body = |n: usize| format!("{{{}}}", (0..n).map(|i| format!("\"m{i}\":0")).collect::<Vec<_>>().join(","));
        assert_eq!(members(body(MEMBERS_MAX).as_bytes()).unwrap().members.len(), MEMBERS_MAX);
        assert_eq!(members(body(MEMBERS_MAX + 1).as_bytes()).unwrap_err().code, "invalid_json");
    }

    #[test]
    fn depth_does_not_matter_at_the_top() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(members(deep.as_bytes()).unwrap().members.len(), 1);
    }
}

//! A small JSON object of a caller: its members, each once.
//!
//! In: a body. Out: its members. Stricter than serde, which takes a sequence for a struct and the last of two members of one name: who
//! reads along and takes the first would see another request.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

/// Why it is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoMembers {
    /// Not one JSON object.
    NotAnObject,
    /// A member of this name stands in it twice; bounded.
    Twice(String),
}

/// Longest part of a member's name that is told back.
const SHOWN_CHARS_MAX: usize = 64;

struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Pairs, M::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Reads it.
///
/// # Errors
/// When it is not one object, or a member stands in it twice. Objects inside are not looked at: no member here takes one.
pub fn members(body: &[u8]) -> Result<Map<String, Value>, NoMembers> {
    let Pairs(pairs) = serde_json::from_slice(body).map_err(|_| NoMembers::NotAnObject)?;
    let mut members = Map::new();
    for (name, value) in pairs {
        if members.contains_key(&name) {
            return Err(NoMembers::Twice(name.chars().take(SHOWN_CHARS_MAX).collect()));
        }
        members.insert(name, value);
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_each_member_once() {
        assert_eq!(members(b" {\"a\": 1, \"b\": [2]} ").unwrap().len(), 2);
        assert!(members(b"{}").unwrap().is_empty());
        for bad in ["", "[]", "[\"x\", null]", "null", "\"x\"", "{}{}", "{\"a\":1", "7"] {
            assert_eq!(members(bad.as_bytes()), Err(NoMembers::NotAnObject), "{bad}");
        }
        for twice in ["{\"a\":1,\"a\":1}", "{\"a\":1,\"b\":2,\"\\u0061\":null}"] {
            assert_eq!(members(twice.as_bytes()), Err(NoMembers::Twice("a".to_owned())), "{twice}");
        }
    }
}

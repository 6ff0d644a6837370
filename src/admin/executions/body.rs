//! The bodies of changes: small objects of known members, each once; a result is kept byte for byte.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::super::answer::Problem;

/// Members of one object, as written.
#[derive(Debug)]
pub(super) struct Members(BTreeMap<String, Box<RawValue>>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Members, M::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    // Who reads along and takes the first of two would see another request.
                    if members.insert(name, value).is_some() {
                        return Err(M::Error::custom("a member stands in it twice"));
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl Members {
    /// Reads them; any other than the `known` ones is refused, so that a misspelt one never changes what is done.
    pub(super) fn read(body: &[u8], known: &[&str]) -> Result<Self, Problem> {
        let names = || known.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let invalid = |message: String| Problem::new(400, "invalid_body", message);
        let members: Self = if body.is_empty() {
            Self(BTreeMap::new())
        } else {
            serde_json::from_slice(body).map_err(|_| {
                invalid(format!("The body must be one JSON object, each member once; it may have {}.", names()))
            })?
        };
        if members.0.keys().any(|name| !known.contains(&name.as_str())) {
            return Err(invalid(format!("The body may have {}; nothing else.", names())));
        }
        Ok(members)
    }

    /// A text; `null` counts as absent.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Problem> {
        self.value(name, "a text")
    }

    /// `true` or `false`; absent: false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Problem> {
        Ok(self.value(name, "true or false")?.unwrap_or_default())
    }

    /// A number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.value(name, "a number")
    }

    /// Any JSON.
    pub(super) fn json(&self, name: &str) -> Result<Option<serde_json::Value>, Problem> {
        self.value(name, "JSON")
    }

    /// Any JSON as written; `null` is JSON.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.get())
    }

    fn value<'m, T: Deserialize<'m>>(&'m self, name: &str, is: &str) -> Result<Option<T>, Problem> {
        let Some(raw) = self.0.get(name) else { return Ok(None) };
        let wrong = |_| Problem::new(400, "invalid_body", format!("The member {name:?} must be {is}."));
        serde_json::from_str(raw.get()).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_kept_byte_for_byte() {
        let body = br#" {"reason":"seen", "result": { "b" : 1.10, "a":[9007199254740993] } ,"outcome":"succeeded"}"#;
        let members = Members::read(body, &["reason", "result", "outcome"]).expect("members");
        assert_eq!(members.raw("result"), Some(r#"{ "b" : 1.10, "a":[9007199254740993] }"#));
        assert_eq!(members.text("reason").expect("a text").as_deref(), Some("seen"));
        assert_eq!(members.raw("outcome"), Some("\"succeeded\""));
        assert_eq!(Members::read(b"{\"result\":null}", &["result"]).expect("read").raw("result"), Some("null"));
    }

    #[test]
    fn other_bodies_are_refused() {
        for bad in ["[]", "x", "{\"a\":1,\"a\":1}", "{\"b\":1}", "{\"a\":1} {}", "\"a\""] {
            assert!(Members::read(bad.as_bytes(), &["a"]).is_err(), "{bad}");
        }
        let members = Members::read(b"{\"a\":1}", &["a"]).expect("members");
        assert!(members.text("a").is_err() && members.flag("a").is_err());
        assert_eq!((members.number("a").expect("read"), members.text("x").expect("none")), (Some(1), None));
        assert!(Members::read(b"", &["a"]).expect("an empty body").text("a").expect("none").is_none());
    }
}

//! The body of a ledger's call: one strict JSON object.
//!
//! In: bytes. Out: its members by name, each once, none unknown, values raw: arguments and results are kept byte for byte. Stricter than
//! serde on purpose: a misspelt `occurrence` that is ignored would be a run that nobody meant.

use std::sync::Arc;

use rubicon_ledger::MAX_NAME_BYTES;
use serde_json::value::RawValue;

use crate::protocol::json_object;

use super::answer::{Problem, sentence};

/// Longest text of a caller's own that is kept beside a record (`external_reference`, `claim_id`, tokens).
pub(super) const TEXT_BYTES_MAX: usize = MAX_NAME_BYTES;

/// Longest part of a member's name that is told back.
const SHOWN_CHARS_MAX: usize = 64;

/// The members of a body.
#[derive(Debug)]
pub(super) struct Body<'b>(json_object::Object<'b>);

impl<'b> Body<'b> {
    /// Reads it; `known` are the members that there may be.
    pub(super) fn read(bytes: &'b [u8], known: &[&str]) -> Result<Self, Problem> {
        let object =
            json_object::members(bytes).map_err(|error| Problem::new(400, error.code, sentence(&error.message)))?;
        for (at, member) in object.members.iter().enumerate() {
            let name: String = member.name.chars().take(SHOWN_CHARS_MAX).collect();
            if !known.contains(&member.name.as_ref()) {
                let message = format!("There is no member {name:?}; there are {}.", known.join(", "));
                return Err(Problem::new(400, "unknown_member", message).param(&name));
            }
            if object.members.iter().take(at).any(|before| before.name == member.name) {
                return Err(invalid(&name, "stands in the body twice"));
            }
        }
        Ok(Self(object))
    }

    /// A value as written, whatever it is.
    pub(super) fn written(&self, name: &str) -> Option<&'b RawValue> {
        self.0.last(name).map(|member| member.value)
    }

    /// A value as written; null is none.
    pub(super) fn raw(&self, name: &str) -> Option<&'b RawValue> {
        self.written(name).filter(|value| value.get() != "null")
    }

    /// A text of at most [`TEXT_BYTES_MAX`], with something in it and no control characters.
    pub(super) fn text(&self, name: &str) -> Result<Option<Arc<str>>, Problem> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let text: String = serde_json::from_str(raw.get()).map_err(|_| invalid(name, "must be a text"))?;
        if text.is_empty() || text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
            let wrong = format!("must have 1 to {TEXT_BYTES_MAX} bytes and no control characters");
            return Err(invalid(name, &wrong));
        }
        Ok(Some(Arc::from(text)))
    }

    /// A text that must be there.
    pub(super) fn needed(&self, name: &str) -> Result<Arc<str>, Problem> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    /// A whole number within bounds.
    pub(super) fn number(&self, name: &str, from: u64, to: u64) -> Result<Option<u64>, Problem> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let number = raw.get().parse().ok().filter(|number| (from..=to).contains(number));
        number.map(Some).ok_or_else(|| invalid(name, &format!("must be a whole number from {from} to {to}")))
    }
}

/// A member that cannot be used.
pub(super) fn invalid(name: &str, wrong: &str) -> Problem {
    Problem::new(400, "invalid_member", format!("The member {name:?} {wrong}.")).param(name)
}

/// A member that must be there.
pub(super) fn missing(name: &str) -> Problem {
    Problem::new(400, "missing_member", format!("The member {name:?} is missing.")).param(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &str) -> String {
        format!("{:?}", Body::read(bytes.as_bytes(), &["a", "n"]).err())
    }

    #[test]
    fn each_member_once_and_none_unknown() {
        assert_eq!(code("{\"a\":1,\"n\":null}"), "None");
        assert!(code("{\"a\":1,\"b\":2}").contains("unknown_member"));
        assert!(code("{\"a\":1,\"\\u0061\":1}").contains("twice"));
        for bad in ["", "[]", "{}{}", "{\"a\":1", "null"] {
            assert!(code(bad).contains("invalid_json"), "{bad}");
        }
    }

    #[test]
    fn values_are_what_they_must_be() {
        let body = Body::read(b"{\"a\":\"x\",\"n\":7}", &["a", "n"]).unwrap();
        assert_eq!(body.text("a").unwrap().as_deref(), Some("x"));
        assert_eq!(body.number("n", 0, 7).unwrap(), Some(7));
        assert!(body.number("n", 8, 9).is_err());
        assert!(body.text("n").is_err());
        for text in ["\"\"", "7", "[]", "\"a\\u0000b\"", "\"\\ud800\"", "true"] {
            let bytes = format!("{{\"a\":{text}}}");
            assert!(Body::read(bytes.as_bytes(), &["a"]).unwrap().text("a").is_err(), "{text}");
        }
        for number in ["-1", "1.0", "1e3", "\"1\"", "99999999999999999999", "true"] {
            let bytes = format!("{{\"n\":{number}}}");
            assert!(Body::read(bytes.as_bytes(), &["n"]).unwrap().number("n", 0, u64::MAX).is_err(), "{number}");
        }
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(TEXT_BYTES_MAX + 1));
        assert!(Body::read(long.as_bytes(), &["a"]).unwrap().text("a").is_err());
    }
}

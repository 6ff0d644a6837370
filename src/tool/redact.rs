//! Documents without what operators must not see: the values at a tool's `redact` pointers give way to `"…"`.
//!
//! In: arguments (canonical JSON) or a result (bytes), and the pointers. Out: JSON, or [`Shown`]. What is not known to be clean is not
//! shown: a result that is no JSON, of a tool that redacts, has no pointers to go by. Numbers keep their exact digits.

use rubicon_ledger::{Canonical, Pointer, Value};

/// What stands where something was taken out.
pub const HIDDEN: &str = "…";

/// A document as operators may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// JSON, canonical.
    Json(String),
    /// Not JSON, and nothing is to be hidden: the bytes may be shown.
    AsIs,
    /// Not JSON, of a tool that hides something: nothing of it is shown.
    Withheld,
}

/// A document's JSON with the values at `pointers` replaced.
#[must_use]
pub fn value(document: &Value, pointers: &[Pointer]) -> String {
    let paths: Vec<Vec<&str>> = pointers.iter().map(|pointer| pointer.tokens().collect()).collect();
    let mut out = String::new();
    write(document, &paths.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut out);
    out
}

/// Bytes of a document: arguments as they are stored, or what a tool answered.
#[must_use]
pub fn bytes(document: &[u8], pointers: &[Pointer]) -> Shown {
    match Canonical::parse(document) {
        Ok(canonical) => Shown::Json(value(canonical.value(), pointers)),
        Err(_) if pointers.is_empty() => Shown::AsIs,
        Err(_) => Shown::Withheld,
    }
}

/// As deep as the document, which the reader bounds by 64.
fn write(value: &Value, paths: &[&[&str]], out: &mut String) {
    if paths.iter().any(|path| path.is_empty()) {
        quoted(HIDDEN, out);
        return;
    }
    let below = |name: &str| -> Vec<&[&str]> {
        paths
            .iter()
            .filter_map(|path| path.split_first().filter(|(first, _)| **first == name).map(|(_, rest)| rest))
            .collect()
    };
    match value {
        _ if paths.is_empty() => out.push_str(&value.to_canonical()),
        Value::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(element, &below(&at.to_string()), out);
            }
            out.push(']');
        }
        Value::Object(object) => {
            out.push('{');
            for (at, (name, member)) in object.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                quoted(name, out);
                out.push(':');
                write(member, &below(name), out);
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_canonical()),
    }
}

fn quoted(text: &str, out: &mut String) {
    out.push_str(&Value::String(text.into()).to_canonical());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pointed_at_is_hidden_and_nothing_else() {
        let document = r#"{"card":{"number":"4111","cvc":1},"amount":123456789012345678901.50,"list":[{"pin":1},{"pin":2}],"a/b":"x"}"#;
        for (pointers, expected) in [
            (
                vec![],
                r#"{"a/b":"x","amount":123456789012345678901.5,"card":{"cvc":1,"number":"4111"},"list":[{"pin":1},{"pin":2}]}"#,
            ),
            (
                vec!["/card/number", "/a~1b", "/nothing", "/amount/deeper"],
                r#"{"a/b":"…","amount":123456789012345678901.5,"card":{"cvc":1,"number":"…"},"list":[{"pin":1},{"pin":2}]}"#,
            ),
            (
                vec!["/card", "/card/cvc", "/list/1/pin"],
                r#"{"a/b":"x","amount":123456789012345678901.5,"card":"…","list":[{"pin":1},{"pin":"…"}]}"#,
            ),
            (vec![""], "\"…\""),
        ] {
            let pointers: Vec<Pointer> = pointers.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(bytes(document.as_bytes(), &pointers), Shown::Json(expected.to_owned()), "{pointers:?}");
        }
    }

    #[test]
    fn what_is_no_json_is_withheld_where_something_is_to_be_hidden() {
        let pointers = ["/card".parse().unwrap()];
        for document in [&b"card=4111"[..], b"{\"card\":\"4111\"", b"{\"card\":1,\"card\":2}", b"\xff"] {
            assert_eq!(bytes(document, &pointers), Shown::Withheld);
            assert_eq!(bytes(document, &[]), Shown::AsIs);
        }
    }
}

//! Are these arguments of this tool? Asked before anything is claimed, so that what is refused was never recorded and never ran.
//!
//! In: the tool's settings, arguments as a model or a client wrote them. Out: [`Arguments`] that have a canonical form, fit the tool's
//! schema and have all its key fields; or [`BadArguments`]: a stable word and the place, as a JSON Pointer that starts at the arguments.
//!
//! The schema judges numbers as doubles (its own rule); identity keeps them exact. What is beyond every double counts as the largest one, so
//! that a `maximum` still holds. Arguments too large to be judged by a large schema are refused: unlike an answer of a provider, nobody else
//! has checked them.

use std::borrow::Cow;

use rubicon_ledger::{Arguments, MAX_POINTER_BYTES, Pointer, Refusal, Refused, Value};

use crate::accept::schema::{Judged, Misfit};
use crate::config::settings::ToolSettings;

/// Why arguments are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadArguments {
    /// A stable word: those of [`Refusal::code`], `too_large_for_schema`, or `schema:` and the keyword that is broken.
    pub reason: Cow<'static, str>,
    /// Where, within the arguments.
    pub pointer: Pointer,
    /// For people. Quotes member names and never values.
    pub message: String,
    /// Only their size is wrong: 413, else 400.
    pub too_large: bool,
}

/// Reads arguments and holds them against the tool.
///
/// # Errors
/// The first thing that is wrong with them.
pub fn read(tool: &ToolSettings, bytes: &[u8]) -> Result<Arguments, BadArguments> {
    let arguments = Arguments::parse(bytes).map_err(refused)?;
    check(tool, &arguments)?;
    Ok(arguments)
}

/// Holds arguments against the tool's schema and its key fields.
///
/// # Errors
/// The first thing that is wrong with them.
pub fn check(tool: &ToolSettings, arguments: &Arguments) -> Result<(), BadArguments> {
    if let Some(schema) = &tool.checker {
        match schema.judge(&to_json(arguments.canonical().value())) {
            Judged::Fits => {}
            Judged::Unfit(misfit) => return Err(unfit(misfit)),
            Judged::TooLarge => {
                return Err(BadArguments {
                    reason: "too_large_for_schema".into(),
                    pointer: Pointer::root(),
                    message: "the arguments are too large to be checked against the tool's schema".to_owned(),
                    too_large: true,
                });
            }
        }
    }
    tool.rule.projection.apply(arguments).map(drop).map_err(refused)
}

fn refused(refused: Refused) -> BadArguments {
    let place = if refused.pointer.is_root() { String::new() } else { format!(" at {}", visible(&refused.pointer)) };
    BadArguments {
        reason: refused.kind.code().into(),
        message: format!("the arguments are refused{place}: {}", refused.kind),
        too_large: refused.kind == Refusal::TooLarge,
        pointer: refused.pointer,
    }
}

fn unfit(misfit: Misfit) -> BadArguments {
    let pointer = pointer(&misfit.at);
    let place = if pointer.is_root() { String::new() } else { format!(" at {}", visible(&pointer)) };
    BadArguments {
        message: format!("the arguments do not fit the tool's schema{place}: `{}`", misfit.keyword),
        reason: format!("schema:{}", misfit.keyword).into(),
        pointer,
        too_large: false,
    }
}

/// A pointer's text, or the nearest ancestor that is short enough to be told.
fn pointer(text: &str) -> Pointer {
    let mut text = text;
    while text.len() > MAX_POINTER_BYTES {
        text = text.rsplit_once('/').map_or("", |(above, _)| above);
    }
    text.parse().unwrap_or_default()
}

/// A pointer in a sentence: its names come from whoever wrote the arguments.
fn visible(pointer: &Pointer) -> String {
    super::summary::plain(&pointer.to_string(), super::summary::FIELD_CHARS_MAX)
}

/// The same document for whoever takes numbers as doubles or 64-bit integers.
fn to_json(value: &Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::String(text) => Json::String(text.to_string()),
        Value::Array(elements) => Json::Array(elements.iter().map(to_json).collect()),
        Value::Object(object) => {
            Json::Object(object.iter().map(|(name, value)| (name.to_owned(), to_json(value))).collect())
        }
        Value::Number(number) => Json::Number(to_number(number.as_str())),
    }
}

fn to_number(text: &str) -> serde_json::Number {
    if let Ok(int) = text.parse::<i64>() {
        return int.into();
    }
    if let Ok(int) = text.parse::<u64>() {
        return int.into();
    }
    // The canonical text of a number is always one that Rust reads; `clamp` takes what is beyond every double back to the last one.
    let float = text.parse::<f64>().unwrap_or_default().clamp(f64::MIN, f64::MAX);
    serde_json::Number::from_f64(float).unwrap_or_else(|| 0.into())
}

#[cfg(test)]
mod tests {
    use rubicon_ledger::ToolName;

    use super::*;
    use crate::config::testing::settings;

    fn tool(lines: &str) -> std::sync::Arc<ToolSettings> {
        let text = format!(
            "[provider.p]\nkind = \"openai\"\napi_key = \"env:K\"\n[route.r]\nprovider = \"p\"\n[workflow.w]\nprimary = \"r\"\n[tool.t]\n{lines}\n"
        );
        settings(&text).tools[&ToolName::new("t").unwrap()].clone()
    }

    const SCHEMA: &str = r#"schema = { type = "object", additionalProperties = false, required = ["id"], properties = { id = { type = "string" }, amount = { type = "integer", maximum = 1000 }, "a/b" = { type = "array", items = { enum = ["x"] } }, ratio = { type = "number", minimum = 0 } } }
key_fields = ["/id"]"#;

    #[test]
    fn each_is_refused_with_its_word_and_place() {
        let tool = tool(SCHEMA);
        for (arguments, reason, pointer) in [
            (r#"{"id":"1","amount":5}"#, "", ""),
            (r#"{"id":"1","amount":5.0,"ratio":1e-400}"#, "", ""),
            (r#"{"amount":5}"#, "schema:required", "/id"),
            (r#"{"id":1}"#, "schema:type", "/id"),
            (r#"{"id":"1","amount":5.5}"#, "schema:type", "/amount"),
            (r#"{"id":"1","amount":1e400}"#, "schema:maximum", "/amount"),
            (r#"{"id":"1","amount":123456789012345678901234567890}"#, "schema:maximum", "/amount"),
            (r#"{"id":"1","a/b":["x","y"]}"#, "schema:enum", "/a~1b/1"),
            (r#"{"id":"1","secrit":5}"#, "schema:additionalProperties", "/secrit"),
            (r#"{"id":"1","id":"2"}"#, "duplicate_name", "/id"),
            (r#"{"id":"\ud800"}"#, "lone_surrogate", "/id"),
            (r#"{"id":"1""#, "truncated", ""),
            ("[]", "not_an_object", ""),
        ] {
            let found = read(&tool, arguments.as_bytes()).err();
            assert_eq!(found.as_ref().map_or("", |bad| &bad.reason), reason, "{arguments}: {found:?}");
            assert_eq!(found.map_or(String::new(), |bad| bad.pointer.to_string()), pointer, "{arguments}");
        }
    }

    #[test]
    fn without_a_schema_key_fields_must_still_be_there() {
        let tool = tool("key_fields = [\"/order/id\"]");
        assert!(read(&tool, br#"{"order":{"id":null}}"#).is_ok());
        let bad = read(&tool, br#"{"order":{}}"#).unwrap_err();
        assert_eq!((bad.reason.as_ref(), bad.pointer.to_string().as_str()), ("key_field_missing", "/order/id"));
        assert!(!bad.too_large);
    }

    #[test]
    fn no_message_quotes_a_value() {
        let tool = tool(SCHEMA);
        for arguments in
            [r#"{"id":"SECRET","amount":"SECRET"}"#, r#"{"id":["SECRET"]}"#, r#"{"id":"SECRET","id":"SECRET"}"#]
        {
            assert!(!format!("{:?}", read(&tool, arguments.as_bytes()).unwrap_err()).contains("SECRET"), "{arguments}");
        }
    }

    #[test]
    fn what_cannot_be_judged_is_refused() {
        let names: String = (0..2000).map(|n| format!("p{n} = {{ type = \"string\" }}, ")).collect();
        let tool = tool(&format!("schema = {{ type = \"object\", properties = {{ {names} last = {{}} }} }}"));
        let many = format!("{{\"last\":[{}0]}}", "0,".repeat(100_000));
        let bad = read(&tool, many.as_bytes()).unwrap_err();
        assert_eq!((bad.reason.as_ref(), bad.too_large), ("too_large_for_schema", true));
    }
}

//! Error objects of the many servers that speak chat-completions.
//!
//! In: a whole JSON body, or an event that the table calls a fault. Out: a [`Fault`] with the provider's own words. Shapes (STREAMS.md
//! 1.3 and the recordings): `{"error": {…}}` (OpenAI, most), `{"error": "text"}` (TGI with `error_type`, Fireworks, Hugging Face),
//! flat `{"object": "error", "message", …}` (vLLM, Mistral), flat `{"message", …}` (Bedrock, Cerebras, Cohere, Novita), `{"detail"}`
//! (FastAPI, Mistral), `{"errors": […]}` (Cloudflare), any of them inside an array (Gemini's compatible endpoint), and an error of
//! another provider as text in `error.metadata.raw` (OpenRouter). Everything taken over is cut at a bound. Deliberately not here:
//! what class of failure it is (`classify`).

use crate::protocol::json_walk::{elements, is_empty, member, text, valid};
use crate::protocol::signal::Fault;

/// Bytes of a provider's `type` or `code` that are kept: the longest recorded one has 30. The rest is cut off.
const WORD_BYTES_MAX: usize = 128;

/// Bytes of a provider's message that are kept. A caller's SDK shows a line or two; validation errors list every field.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

/// The error object in a whole JSON body, whatever its status was. An answer of the dialect, and anything with a shape of its own
/// (`object` other than `error`), is none.
pub fn of_body(body: &[u8]) -> Option<Fault> {
    of_json(valid(body)?)
}

/// As [`of_body`], of text that is valid JSON.
pub(in crate::protocol) fn of_json(json: &str) -> Option<Fault> {
    if json.starts_with('[') {
        return elements(json).next().filter(|first| first.starts_with('{')).and_then(of_json);
    }
    if let Some(error) = member(json, "error").filter(|error| !is_empty(error) && *error != "false") {
        return Some(of_error(error, json));
    }
    let choices = member(json, "choices").filter(|choices| *choices != "null");
    if let Some(choices) = choices {
        return elements(choices).find_map(of_choice);
    }
    let object = member(json, "object").and_then(text);
    let is_error = object.as_deref() == Some("error") || member(json, "type") == Some("\"error\"");
    if !is_error && object.is_some() {
        return None;
    }
    if let Some(first) = member(json, "errors").and_then(|errors| elements(errors).next()) {
        return Some(of_error(first, json));
    }
    let says = |name: &str| member(json, name).is_some_and(|value| value.starts_with('"') && !is_empty(value));
    let detail = member(json, "detail").is_some_and(|value| !is_empty(value));
    (is_error || says("message") || detail).then(|| of_error(json, json))
}

/// The error of one choice: an object of its own, or `finish_reason: "error"` and no word why (both OpenRouter's).
pub(super) fn of_choice(choice: &str) -> Option<Fault> {
    if let Some(error) = member(choice, "error").filter(|error| !is_empty(error)) {
        return Some(of_error(error, choice));
    }
    (member(choice, "finish_reason") == Some("\"error\""))
        .then(|| Fault { code: Some("error".to_owned()), ..Fault::default() })
}

/// An event that is a fault by its `event:` line or a row of the table: in a shape that is known, or as far as it is understood.
pub(in crate::protocol) fn of_event(data: &[u8]) -> Fault {
    match valid(data) {
        Some(json) => of_json(json).unwrap_or_else(|| of_error(json, json)),
        None => Fault { message: Some(cut(&String::from_utf8_lossy(data), MESSAGE_BYTES_MAX)), ..Fault::default() },
    }
}

/// Reads an error value (text, object, or the first of an array) that stands in `around`.
pub(in crate::protocol) fn of_error(error: &str, around: &str) -> Fault {
    let error = if error.starts_with('[') { elements(error).next().unwrap_or(error) } else { error };
    let mut fault = Fault {
        kind: word(around, &["error_type"]),
        status: status(around, &["status", "status_code"]),
        ..Fault::default()
    };
    if let Some(message) = text(error) {
        fault.message = Some(cut(&message, MESSAGE_BYTES_MAX));
        return fault;
    }
    let message = member(error, "message").or_else(|| member(error, "msg")).or_else(|| member(error, "detail"));
    fault.message = message.filter(|m| !is_empty(m)).map(|m| cut(&text(m).unwrap_or(m.into()), MESSAGE_BYTES_MAX));
    fault.code = word(error, &["code"]);
    fault.status = status(error, &["status", "status_code", "http_code", "code"]).or(fault.status);
    fault.kind = word(error, &["type", "error_type", "reason"]).or(fault.kind).filter(|kind| kind != "error");
    let metadata = member(error, "metadata").unwrap_or_default();
    if fault.kind.is_none() {
        // Another provider's error as text: one level only, its own `raw` is not looked into.
        let raw = member(metadata, "raw").and_then(text).unwrap_or_default();
        let inner = valid(raw.as_bytes()).map(|raw| member(raw, "error").unwrap_or(raw)).unwrap_or_default();
        fault.kind = word(inner, &["type"]).or_else(|| word(metadata, &["error_type"]));
        fault.code = fault.code.or_else(|| word(inner, &["code"]));
    }
    if fault.kind.is_none() {
        fault.kind = word(error, &["status"]).filter(|status| status.parse::<u16>().is_err());
    }
    fault
}

/// The first of `names` whose value is a non-empty text or a number.
fn word(json: &str, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| {
        let value = member(json, name)?;
        let word = match text(value) {
            Some(text) => text,
            None if value.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => value.into(),
            None => return None,
        };
        (!word.is_empty()).then(|| cut(&word, WORD_BYTES_MAX))
    })
}

/// The first of `names` that is an HTTP error status, as a number or as text of digits.
fn status(json: &str, names: &[&str]) -> Option<u16> {
    let is_status = |name: &&str| text(member(json, name)?).map_or(member(json, name)?.parse(), |t| t.parse()).ok();
    names.iter().filter_map(is_status).find(|status| (400..600).contains(status))
}

/// `text` without what is over `bytes_max`, at a character's end.
fn cut(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (body, type, code, message, status)
    type Case = (&'static str, Option<&'static str>, Option<&'static str>, Option<&'static str>, Option<u16>);

    const FAULTS: &[Case] = &[
        (
            r#"{"error":{"message":"m","type":"server_error","param":null,"code":null}}"#,
            Some("server_error"),
            None,
            Some("m"),
            None,
        ),
        (
            r#" [ {"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}} ] "#,
            Some("RESOURCE_EXHAUSTED"),
            Some("429"),
            Some("m"),
            Some(429),
        ),
        (
            r#"{"error":{"message":"m","type":"t","code":"tool_use_failed","status_code":400}}"#,
            Some("t"),
            Some("tool_use_failed"),
            Some("m"),
            Some(400),
        ),
        (r#"{"error":"m","error_type":"validation"}"#, Some("validation"), None, Some("m"), None),
        (r#"{"error":"unauthorized"}"#, None, None, Some("unauthorized"), None),
        (r#"{"error":["first","second"]}"#, None, None, Some("first"), None),
        (
            r#"{"object":"error","message":"m","type":"rate_limited","param":null,"code":"1300"}"#,
            Some("rate_limited"),
            Some("1300"),
            Some("m"),
            None,
        ),
        (
            r#"{"object":"error","message":"m","type":"BadRequestError","code":400}"#,
            Some("BadRequestError"),
            Some("400"),
            Some("m"),
            Some(400),
        ),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
            Some("overloaded_error"),
            None,
            Some("m"),
            None,
        ),
        (r#"{"type":"error","message":"m","code":"server_error"}"#, None, Some("server_error"), Some("m"), None),
        (r#"{"message":"m"}"#, None, None, Some("m"), None),
        (
            r#"{"code":401,"reason":"FAILED_TO_AUTH","message":"m","metadata":{}}"#,
            Some("FAILED_TO_AUTH"),
            Some("401"),
            Some("m"),
            Some(401),
        ),
        (r#"{"error_type":"TOO_MANY_TOKENS","id":"i","message":"m"}"#, Some("TOO_MANY_TOKENS"), None, Some("m"), None),
        (r#"{"detail":"m"}"#, None, None, Some("m"), None),
        (
            r#"{"detail":[{"type":"string_type","msg":"m"}]}"#,
            None,
            None,
            Some(r#"[{"type":"string_type","msg":"m"}]"#),
            None,
        ),
        (r#"{"success":false,"errors":[{"message":"m","code":7003}]}"#, None, Some("7003"), Some("m"), None),
        (
            r#"{"id":"g","error":{"code":502,"message":"m"},"choices":[{"delta":{"content":"x"},"finish_reason":"error"}]}"#,
            None,
            Some("502"),
            Some("m"),
            Some(502),
        ),
        (r#"{"choices":[{"message":{"content":""},"finish_reason":"error"}]}"#, None, Some("error"), None, None),
        (r#"{"choices":[{"error":{"code":"502","message":"m"}}]}"#, None, Some("502"), Some("m"), Some(502)),
        (
            r#"{"error":{"message":"p","code":403,"metadata":{"raw":"{\"error\":{\"code\":\"c\",\"type\":\"request_forbidden\"}}"}}}"#,
            Some("request_forbidden"),
            Some("403"),
            Some("p"),
            Some(403),
        ),
        ("\n\n   {\"error\":{\"message\":\"m\\ud800\",\"code\":\"\"}}", None, None, Some("m\\ud800"), None),
        (
            r#"{"error":{"code":1e999,"type":{"a":1},"message":{"a":"b"}}}"#,
            None,
            Some("1e999"),
            Some(r#"{"a":"b"}"#),
            None,
        ),
        (r#"{"error":true}"#, None, None, None, None),
    ];

    #[test]
    fn every_shape_of_an_error() {
        for (body, kind, code, message, status) in FAULTS {
            let fault = of_body(body.as_bytes()).unwrap_or_else(|| panic!("no fault in {body}"));
            let found = (fault.kind.as_deref(), fault.code.as_deref(), fault.message.as_deref(), fault.status);
            assert_eq!(found, (*kind, *code, *message, *status), "{body}");
        }
    }

    #[test]
    fn what_is_no_error() {
        for body in [
            "",
            "  ",
            "{}",
            "[]",
            "[1]",
            "null",
            "\"error\"",
            "not JSON",
            "<html>error</html>",
            r#"{"error":null,"choices":[{"message":{"content":"x"}}]}"#,
            r#"{"error":{},"choices":[]}"#,
            r#"{"error":"","choices":null}"#,
            r#"{"error":false}"#,
            r#"{"choices":[{"message":{"content":"{\"error\":1}"},"finish_reason":"stop"}],"message":"m"}"#,
            r#"{"object":"list","data":[],"message":"m"}"#,
            r#"{"message":{"role":"assistant","content":"hi"},"done":true}"#,
            r#"{"errors":[],"success":true}"#,
        ] {
            assert_eq!(of_body(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn an_error_event_is_a_fault_even_if_nobody_understands_it() {
        assert_eq!(of_event(b"upstream broke").message.as_deref(), Some("upstream broke"));
        assert_eq!(of_event(b"\"text\"").message.as_deref(), Some("text"));
        assert_eq!(of_event(br#"{"a":1}"#), Fault::default());
        assert_eq!(of_event(br#"{"message":"m","type":"t","object":"x"}"#).kind.as_deref(), Some("t"));
        assert_eq!(of_event(b"\xff").message.as_deref(), Some("\u{fffd}"));
    }

    #[test]
    fn the_bounds_cut_at_a_character() {
        let body = format!(r#"{{"error":{{"message":"{}","type":"{}"}}}}"#, "é".repeat(100_000), "a€".repeat(1000));
        let fault = of_body(body.as_bytes()).unwrap();
        assert_eq!(fault.message.map(|m| m.len()), Some(MESSAGE_BYTES_MAX));
        assert_eq!(fault.kind.map(|k| k.len()), Some(WORD_BYTES_MAX));
    }
}

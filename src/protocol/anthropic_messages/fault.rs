//! Error objects, in every shape that Messages providers and the gateways before them use.
//!
//! In: a whole JSON body, or the data of one event. Out: a [`Fault`] with the provider's own words, if it is an error at all.
//! What it means is `classify`'s judgement. Deliberately not here: statuses of the HTTP answer and headers.
//!
//! Shapes: `{"type":"error","error":{"type","message","details"?}}` (Anthropic, Vertex AI, Bedrock mantle), a bare `{"error":{…}}`
//! (gateways, Google with a numeric `code` and a `status` word), that in an array of one (Google), `{"error":"…"}`,
//! `{"type":"overloaded_error","message"}` and AWS's `{"__type","message"}` (flat), `{"detail":…}` (FastAPI), `{"message":…}`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::fields::{Raw, count, cut, each, filled, object, word};
use crate::protocol::signal::Fault;

/// Bytes kept of a `type` or `code`; official ones are under 60. A longer one is cut.
const WORD_BYTES_MAX: usize = 256;
/// Bytes kept of a message; the longest recorded one has 700. A longer one is cut: some quote the whole request.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

#[derive(Default, Deserialize)]
struct Top<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, rename = "__type")]
    aws_type: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
    #[serde(borrow)]
    code: Raw<'a>,
    #[serde(borrow)]
    status: Raw<'a>,
    #[serde(borrow, alias = "Message")]
    message: Raw<'a>,
    #[serde(borrow)]
    detail: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
}

#[derive(Default, Deserialize)]
struct Inner<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    code: Raw<'a>,
    #[serde(borrow)]
    status: Raw<'a>,
    #[serde(borrow)]
    message: Raw<'a>,
    #[serde(borrow)]
    details: Raw<'a>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    error_code: Raw<'a>,
}

/// The error that `body` is. `None` for answers, for other JSON and for what is not JSON.
pub fn of_body(body: &[u8]) -> Option<Fault> {
    let raw: &RawValue = serde_json::from_slice(body).ok()?;
    if raw.get().starts_with('[') {
        // Google answers a streaming call that failed with an array of one.
        let (only,): (&RawValue,) = serde_json::from_str(raw.get()).ok()?;
        return of_top(&object(only)?);
    }
    of_top(&object(raw)?)
}

/// The error that an event is already known to be: like [`of_body`], and where the data has no known shape, as much as can
/// be said.
pub(super) fn of_event(data: &[u8]) -> Fault {
    of_body(data).unwrap_or_else(|| {
        let is_json = serde_json::from_slice::<&RawValue>(data).is_ok();
        let text = String::from_utf8_lossy(data.get(..MESSAGE_BYTES_MAX).unwrap_or(data));
        let text = cut(text.trim(), MESSAGE_BYTES_MAX);
        Fault { message: (!is_json && !text.is_empty()).then(|| text.to_owned()), ..Fault::default() }
    })
}

/// Whether a member `error` says that there is one: not null, not empty, not `false`.
pub(super) fn is_error(error: Raw<'_>) -> bool {
    filled(error) && error.is_some_and(|error| error.get() != "false")
}

fn of_top(top: &Top<'_>) -> Option<Fault> {
    let kind = word(top.kind);
    let kind = kind.as_deref().unwrap_or_default();
    if let Some(error) = top.error.filter(|error| is_error(Some(error))) {
        return Some(match object::<Inner<'_>>(error) {
            Some(inner) => of_inner(&inner, top),
            None => of_word(error, top),
        });
    }
    let flat = |kind: Option<&str>| Fault {
        kind: kind.filter(|kind| !kind.is_empty()).map(|kind| cut(kind, WORD_BYTES_MAX).to_owned()),
        code: code(top.code),
        message: message(top.message).or_else(|| message(top.detail)),
        status: status(top.status).or_else(|| status(top.code)),
    };
    if kind == "error" {
        return Some(flat(None));
    }
    if kind.ends_with("_error") {
        return Some(flat(Some(kind)));
    }
    if filled(top.aws_type) {
        // "com.amazon…#ThrottlingException": the part that names it.
        let aws = word(top.aws_type).unwrap_or_default();
        return Some(flat(aws.rsplit('#').next()));
    }
    // Nothing says "error"; a message and nothing of an answer is one all the same.
    if !kind.is_empty() || top.content.is_some() {
        return None;
    }
    let said = message(top.message).or_else(|| detail(top.detail))?;
    Some(Fault { message: Some(said), ..flat(None) })
}

/// `error` is an object.
fn of_inner(inner: &Inner<'_>, top: &Top<'_>) -> Fault {
    let details = inner.details.and_then(object::<Details<'_>>);
    Fault {
        // Google has no `type`; its `status` is a word (`RESOURCE_EXHAUSTED`).
        kind: short(inner.kind).or_else(|| short(inner.status)),
        code: code(inner.code).or_else(|| details.and_then(|details| code(details.error_code))),
        message: message(inner.message).or_else(|| message(top.message)),
        status: status(inner.status).or_else(|| status(inner.code)).or_else(|| status(top.status)),
    }
}

/// `error` is a word, a number or `true`; the rest stands around it.
fn of_word(error: &RawValue, top: &Top<'_>) -> Fault {
    let said = message(top.message).or_else(|| detail(top.detail));
    let name = short(Some(error));
    Fault {
        kind: if said.is_some() { name } else { None },
        code: code(top.code),
        message: said.or_else(|| message(Some(error))),
        status: status(top.status).or_else(|| status(top.code)).or_else(|| status(Some(error))),
    }
}

/// FastAPI's `detail`: a sentence, or a list of `{"msg"}`.
fn detail(raw: Raw<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow)]
        msg: Raw<'a>,
    }
    if let Some(text) = message(raw) {
        return Some(text);
    }
    let mut first = None;
    // The first item says enough; the visitor stops there.
    let _ = each(raw?, |item| {
        first = object::<Item<'_>>(item).and_then(|item| message(item.msg));
        Err(())
    });
    first
}

fn short(raw: Raw<'_>) -> Option<String> {
    bounded(word(raw), WORD_BYTES_MAX)
}

fn message(raw: Raw<'_>) -> Option<String> {
    bounded(word(raw), MESSAGE_BYTES_MAX)
}

fn bounded(text: Option<Cow<'_, str>>, bytes_max: usize) -> Option<String> {
    text.filter(|text| !text.is_empty()).map(|text| cut(&text, bytes_max).to_owned())
}

/// A code as text: numbers are printed, other types are no code.
fn code(raw: Raw<'_>) -> Option<String> {
    let number = || raw.filter(|raw| raw.get().starts_with(|c: char| c == '-' || c.is_ascii_digit()));
    short(raw).or_else(|| number().map(|raw| cut(raw.get(), WORD_BYTES_MAX).to_owned()))
}

/// A number that is an HTTP error status.
fn status(raw: Raw<'_>) -> Option<u16> {
    count(raw).and_then(|n| u16::try_from(n).ok()).filter(|n| (400..=599).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(kind: &str, code: &str, message: &str, status: u16) -> Option<Fault> {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let status = Some(status).filter(|status| *status != 0);
        Some(Fault { kind: text(kind), code: text(code), message: text(message), status })
    }

    #[test]
    fn shapes() {
        for (body, expected) in [
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}"#,
                fault("overloaded_error", "", "Overloaded", 0),
            ),
            (
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"contract_spend_limit_reached"}}}"#,
                fault("rate_limit_error", "contract_spend_limit_reached", "m", 0),
            ),
            (
                r#"{"type":"error","error":{"details":null,"type":"api_error","message":"m","code":"c"}}"#,
                fault("api_error", "c", "m", 0),
            ),
            (r#"{"error":{"message":"no","code":401}}"#, fault("", "401", "no", 401)),
            (
                r#"[{"error":{"code":429,"message":"Quota","status":"RESOURCE_EXHAUSTED"}}]"#,
                fault("RESOURCE_EXHAUSTED", "429", "Quota", 429),
            ),
            (r#"{"error":"model not found"}"#, fault("", "", "model not found", 0)),
            (r#"{"error":"Unauthorized","message":"bad key","status":401}"#, fault("Unauthorized", "", "bad key", 401)),
            (r#"{"error":true,"message":"bad"}"#, fault("", "", "bad", 0)),
            (r#"{"error":503}"#, fault("", "", "", 503)),
            (r#"{"type":"error","message":"flat","code":7}"#, fault("", "7", "flat", 0)),
            (r#"{"type":"error"}"#, fault("", "", "", 0)),
            (r#"{"type":"overloaded_error","message":"busy"}"#, fault("overloaded_error", "", "busy", 0)),
            (
                r#"{"__type":"com.amazon.coral#ThrottlingException","message":"Too many"}"#,
                fault("ThrottlingException", "", "Too many", 0),
            ),
            (r#"{"Message":"Forbidden"}"#, fault("", "", "Forbidden", 0)),
            (r#"{"detail":"Not authenticated"}"#, fault("", "", "Not authenticated", 0)),
            (r#"{"detail":[{"loc":["body"],"msg":"field required"},{"msg":"x"}]}"#, fault("", "", "field required", 0)),
            (r#"{"message":"gone","status":410}"#, fault("", "", "gone", 410)),
            // An answer with an error beside it is an error.
            (r#"{"type":"message","content":[],"error":{"message":"late"}}"#, fault("", "", "late", 0)),
            // No errors.
            (r#"{"type":"message","content":[],"error":null,"message":"x"}"#, None),
            (r#"{"type":"message","content":[],"error":false}"#, None),
            (r#"{"type":"message","content":[],"error":{}}"#, None),
            (r#"{"input_tokens":14}"#, None),
            (r#"{"message":{"content":[]}}"#, None),
            (r#"{"detail":[]}"#, None),
            (r#"[{"type":"message"}]"#, None),
            (r#"[1,2]"#, None),
            ("[]", None),
            ("{}", None),
            ("7", None),
            ("", None),
            ("upstream connect error", None),
        ] {
            assert_eq!(of_body(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn an_event_named_error_is_one_whatever_it_holds() {
        assert_eq!(of_event(b" Overloaded \xff"), fault("", "", "Overloaded \u{fffd}", 0).unwrap());
        assert_eq!(of_event(b"{\"odd\":1}"), Fault::default());
        assert_eq!(of_event(b""), Fault::default());
        assert_eq!(of_event(b"{\"error\":\"x\"}"), fault("", "", "x", 0).unwrap());
    }

    #[test]
    fn words_are_bounded() {
        let long = "é".repeat(MESSAGE_BYTES_MAX);
        let body = format!(r#"{{"error":{{"type":"{long}","code":"{long}","message":"{long}"}}}}"#);
        let fault = of_body(body.as_bytes()).unwrap();
        assert_eq!(fault.kind.unwrap().len(), WORD_BYTES_MAX);
        assert_eq!(fault.code.unwrap().len(), WORD_BYTES_MAX);
        assert_eq!(fault.message.unwrap().len(), MESSAGE_BYTES_MAX);
        let plain = of_event(long.as_bytes()).message.unwrap();
        assert!(plain.len() <= MESSAGE_BYTES_MAX);
    }
}

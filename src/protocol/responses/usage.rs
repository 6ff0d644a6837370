//! Token counts, and the whole (not streamed) answer.
//!
//! In: a `usage` object, or a whole body. Out: [`Usage`], [`Answer`]. `output_tokens` has the reasoning in it (FIELD_CASES F84: told
//! by `response.incomplete` and `.failed`, too). Deliberately not here: prices, and counting tokens that nobody reported.

use super::{fault, output, pins};
use crate::protocol::Answer;
use crate::protocol::json_walk::{elements, member, members, text, valid};
use crate::protocol::pin::Pins;
use crate::protocol::signal::Usage;

/// Bytes of a model's, an id's or a reason's name that are kept; a longer one is ignored. Official ones are under 100.
const NAME_BYTES_MAX: usize = 256;

/// Takes over what the object `json` says; what it does not say stays.
pub(super) fn merge(usage: &mut Usage, json: &str) {
    for (name, value) in members(json) {
        match name {
            "input_tokens" => usage.input_tokens = count(value).or(usage.input_tokens),
            "output_tokens" => usage.output_tokens = count(value).or(usage.output_tokens),
            "input_tokens_details" => {
                let cached = member(value, "cached_tokens").and_then(count);
                usage.cached_input_tokens = cached.or(usage.cached_input_tokens);
            }
            _ => {}
        }
    }
}

/// A count; whatever is not a whole number from 0 does not exist.
pub(super) fn count(json: &str) -> Option<u64> {
    json.parse().ok()
}

/// A non-empty name within its bound.
pub(super) fn name(json: &str) -> Option<String> {
    text(json).filter(|text| !text.is_empty() && text.len() <= NAME_BYTES_MAX).map(|text| text.into_owned())
}

/// Why a response ended: the reason of an incomplete one, else its status (`completed`).
pub(super) fn finish_of(response: &str) -> Option<String> {
    let reason = member(response, "incomplete_details").and_then(|details| member(details, "reason"));
    reason.and_then(name).or_else(|| member(response, "status").and_then(name))
}

/// Reads a whole answer. It is valid when `output` is an array, the status says that it has ended (`completed`, `incomplete`; or says
/// nothing where there is some output) and there is no error: an empty 200 is never a success (FIELD_CASES F30), nor is
/// one that goes on in the background.
pub fn of_answer(body: &[u8]) -> Answer {
    let Some(json) = valid(body) else { return Answer::default() };
    let items = member(json, "output").filter(|items| items.starts_with('['));
    let status = member(json, "status").and_then(text);
    let ended = match status.as_deref() {
        Some(status) => matches!(status, "completed" | "incomplete"),
        None => items.is_some_and(|items| elements(items).next().is_some()),
    };
    let mut usage = Usage::default();
    merge(&mut usage, member(json, "usage").unwrap_or_default());
    let mut issued = Pins::default();
    pins::of_response(json, &mut issued);
    Answer {
        valid: items.is_some() && ended && fault::of_json(json).is_none(),
        usage,
        finish_reason: finish_of(json),
        served_model: member(json, "model").and_then(name),
        issued: issued.issued().to_vec(),
        acted: output::tells_of_acting(json),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let mut usage = Usage::default();
        for (json, expected) in [
            ("null", (None, None, None)),
            (
                r#"{"input_tokens":11,"input_tokens_details":{"cached_tokens":3},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":18}"#,
                (Some(11), Some(3), Some(7)),
            ),
            (r#"{"output_tokens":9,"input_tokens":null,"input_tokens_details":null}"#, (Some(11), Some(3), Some(9))),
            (r#"{"output_tokens":-1,"input_tokens":"x"}"#, (Some(11), Some(3), Some(9))),
        ] {
            merge(&mut usage, json);
            assert_eq!((usage.input_tokens, usage.cached_input_tokens, usage.output_tokens), expected, "{json}");
        }
    }

    #[test]
    fn answers() {
        for (body, valid, finish) in [
            (r#"{"object":"response","status":"completed","output":[]}"#, true, Some("completed")),
            (
                r#"{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}"#,
                true,
                Some("max_output_tokens"),
            ),
            (r#"{"output":[{"type":"message"}]}"#, true, None),
            (r#"{"output":[]}"#, false, None),
            (r#"{"status":"completed"}"#, false, Some("completed")),
            (r#"{"status":"completed","output":"x"}"#, false, Some("completed")),
            (r#"{"status":"in_progress","output":[{"type":"message"}]}"#, false, Some("in_progress")),
            (r#"{"status":"queued","output":[]}"#, false, Some("queued")),
            (r#"{"object":"response","status":"failed","output":[],"error":{"code":"c"}}"#, false, Some("failed")),
            (
                r#"{"object":"response","status":"completed","output":[],"error":{"code":"c"}}"#,
                false,
                Some("completed"),
            ),
            (r#"{"choices":[]}"#, false, None),
            ("[]", false, None),
            ("", false, None),
            ("<html>", false, None),
        ] {
            let answer = of_answer(body.as_bytes());
            assert_eq!((answer.valid, answer.finish_reason.as_deref()), (valid, finish), "{body}");
        }
    }
}

//! Token counts and whole answers.
//!
//! In: a `usage` object, or the body of an answer that was not streamed. Out: [`Usage`] in the relay's words, and what the
//! answer says of itself. Rules (anthropic-python 2.14.0 `Usage`, `MessageDeltaUsage`): the input is the sum of `input_tokens`,
//! `cache_creation_input_tokens` and `cache_read_input_tokens`; counts in a stream are totals, so a later one replaces an earlier
//! one; `output_tokens` has thinking in it. Tokens of a server-side compaction are outside these totals and not counted here.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::fault::is_error;
use super::fields::{Raw, count, cut, is_array, object, word};
use super::pins;
use crate::protocol::Answer;
use crate::protocol::pin::Pins;
use crate::protocol::signal::Usage;

/// Bytes kept of a model's name or a stop reason; a longer one is cut. Official ones are under 80.
pub(super) const NAME_BYTES_MAX: usize = 256;

/// The provider's own four counts, as last told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tokens {
    input: Option<u64>,
    cache_written: Option<u64>,
    cache_read: Option<u64>,
    output: Option<u64>,
}

#[derive(Deserialize)]
struct Counts<'a> {
    #[serde(borrow)]
    input_tokens: Raw<'a>,
    #[serde(borrow)]
    cache_creation_input_tokens: Raw<'a>,
    #[serde(borrow)]
    cache_read_input_tokens: Raw<'a>,
    #[serde(borrow)]
    output_tokens: Raw<'a>,
}

impl Tokens {
    /// Takes a `usage` object: counts that it has replace those known. A zero does not replace a count: totals never
    /// shrink, and gateways fill members they do not know with 0.
    pub(super) fn update(&mut self, usage: Raw<'_>) {
        let Some(counts) = usage.and_then(object::<Counts<'_>>) else { return };
        for (known, told) in [
            (&mut self.input, counts.input_tokens),
            (&mut self.cache_written, counts.cache_creation_input_tokens),
            (&mut self.cache_read, counts.cache_read_input_tokens),
            (&mut self.output, counts.output_tokens),
        ] {
            match count(told) {
                Some(0) => *known = known.or(Some(0)),
                Some(n) => *known = Some(n),
                None => {}
            }
        }
    }

    /// In the relay's words.
    pub(super) fn usage(self) -> Usage {
        let parts = [self.input, self.cache_written, self.cache_read];
        let input = parts.iter().flatten().copied().reduce(u64::saturating_add);
        Usage { input_tokens: input, cached_input_tokens: self.cache_read, output_tokens: self.output }
    }
}

/// A non-empty name, bounded.
pub(super) fn name(raw: Raw<'_>) -> Option<String> {
    word(raw).filter(|name| !name.is_empty()).map(|name| cut(&name, NAME_BYTES_MAX).to_owned())
}

#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    stop_reason: Raw<'a>,
    #[serde(borrow)]
    model: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
    #[serde(borrow)]
    input_tokens: Raw<'a>,
}

/// Reads an answer of `/v1/messages` (valid: `type` is `message`, `content` an array, a stop reason, no error) or of
/// `count_tokens` (valid: `input_tokens` is a number; its count is the answer, not a usage, so none is reported).
pub fn of_answer(body: &[u8]) -> Answer {
    let Ok(raw) = serde_json::from_slice::<&RawValue>(body) else { return Answer::default() };
    let Some(whole) = object::<Whole<'_>>(raw) else { return Answer::default() };
    let failed = is_error(whole.error);
    let finish_reason = name(whole.stop_reason);
    if whole.kind.is_none() && whole.content.is_none() && count(whole.input_tokens).is_some() {
        return Answer { valid: !failed, ..Answer::default() };
    }
    let mut tokens = Tokens::default();
    tokens.update(whole.usage);
    let mut issued = Pins::default();
    pins::of_message(raw, &mut issued);
    let is_message = word(whole.kind).as_deref() == Some("message") && is_array(whole.content);
    Answer {
        valid: is_message && finish_reason.is_some() && !failed,
        usage: tokens.usage(),
        finish_reason,
        served_model: name(whole.model),
        issued: issued.issued().to_vec(),
        acted: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::pin::{Kind, Pin};

    fn usage(input: impl Into<Option<u64>>, cached: impl Into<Option<u64>>, output: impl Into<Option<u64>>) -> Usage {
        Usage { input_tokens: input.into(), cached_input_tokens: cached.into(), output_tokens: output.into() }
    }

    #[test]
    fn counts_are_totals_and_replace() {
        let mut tokens = Tokens::default();
        assert_eq!(tokens.usage(), Usage::default());
        for (told, now) in [
            (r#"{"input_tokens":10,"output_tokens":1}"#, usage(10, None, 1)),
            (r#"{"cache_creation_input_tokens":5,"cache_read_input_tokens":300}"#, usage(315, 300, 1)),
            (r#"{"output_tokens":40}"#, usage(315, 300, 40)),
            (r#"{"input_tokens":20,"output_tokens":41,"cache_read_input_tokens":null}"#, usage(325, 300, 41)),
            (r#"{"input_tokens":0,"output_tokens":0}"#, usage(325, 300, 41)),
            (r#"{"output_tokens":42.0}"#, usage(325, 300, 42)),
            (r#"{"output_tokens":"43"}"#, usage(325, 300, 42)),
            (r#"[1,2,3,4]"#, usage(325, 300, 42)),
            (r#""none""#, usage(325, 300, 42)),
            (r#"{"input_tokens":18446744073709551615}"#, usage(u64::MAX, 300, 42)),
        ] {
            let raw = serde_json::value::RawValue::from_string(told.to_owned()).unwrap();
            tokens.update(Some(&raw));
            assert_eq!(tokens.usage(), now, "{told}");
        }
        tokens.update(None);
        assert_eq!(tokens.usage().output_tokens, Some(42));
    }

    #[test]
    fn answers() {
        let whole = r#"{"type":"message","id":"m","model":"claude-x","content":[],"stop_reason":"end_turn",
            "usage":{"input_tokens":3,"cache_creation_input_tokens":4,"cache_read_input_tokens":5,"output_tokens":6}}"#;
        let answer = of_answer(whole.as_bytes());
        assert_eq!(
            answer,
            Answer {
                valid: true,
                usage: usage(12, 5, 6),
                finish_reason: Some("end_turn".to_owned()),
                served_model: Some("claude-x".to_owned()),
                issued: vec![Pin::new(Kind::Response, "m")],
                acted: false,
            }
        );
        for (body, valid) in [
            (r#"{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"max_tokens"}"#, true),
            (r#"{"type":"message","content":[],"stop_reason":null}"#, false),
            (r#"{"type":"message","content":[],"stop_reason":""}"#, false),
            (r#"{"type":"message","content":[]}"#, false),
            (r#"{"type":"message","content":"x","stop_reason":"end_turn"}"#, false),
            (r#"{"type":"message","stop_reason":"end_turn"}"#, false),
            (r#"{"content":[],"stop_reason":"end_turn"}"#, false),
            (r#"{"type":"message","content":[],"stop_reason":"end_turn","error":{"message":"m"}}"#, false),
            (r#"{"type":"message","content":[],"stop_reason":"end_turn","error":null}"#, true),
            (r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#, false),
            (r#"{"input_tokens":14}"#, true),
            (r#"{"input_tokens":0,"context_management":{"original_input_tokens":9}}"#, true),
            (r#"{"input_tokens":14,"error":{"message":"m"}}"#, false),
            (r#"{"input_tokens":"14"}"#, false),
            (r#"{"input_tokens":-1}"#, false),
            (r#"{"choices":[]}"#, false),
            ("[]", false),
            ("{}", false),
            ("", false),
            ("<html>", false),
        ] {
            assert_eq!(of_answer(body.as_bytes()).valid, valid, "{body}");
        }
        assert_eq!(of_answer(br#"{"input_tokens":14}"#).usage, Usage::default());
    }

    #[test]
    fn usage_is_told_even_of_an_answer_that_is_not_valid() {
        let answer =
            of_answer(br#"{"type":"message","stop_reason":null,"usage":{"input_tokens":3,"output_tokens":6}}"#);
        assert!(!answer.valid);
        assert_eq!(answer.usage, usage(3, None, 6));
    }
}

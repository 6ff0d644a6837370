//! Token counts, and the whole (not streamed) answer.
//!
//! In: a `usage` object as any provider writes it, or a whole body. Out: [`Usage`], [`Answer`]. Why a merge and not a sum: servers
//! repeat usage in every chunk as a running total (Perplexity, DeepSeek, xAI) or twice in the last ones (Groq), so the latest
//! total replaces the one before, member by member (FIELD_CASES F84). Deliberately not here: prices, and counting tokens that nobody
//! reported.

use super::stream::{choice_says, finish_of};
use super::{fault, pins};
use crate::protocol::Answer;
use crate::protocol::json_walk::{elements, is_empty, member, members, text, valid};
use crate::protocol::pin::Pins;
use crate::protocol::signal::{Show, Usage};

/// Takes over what the object `json` says; what it does not say stays.
pub(super) fn merge(usage: &mut Usage, json: &str) {
    let (mut input, mut output, mut total, mut reasoning, mut cached) = (None, None, None, None, None);
    for (name, value) in members(json) {
        match name {
            "prompt_tokens" => input = count(value),
            "completion_tokens" => output = count(value),
            "total_tokens" => total = count(value),
            "prompt_tokens_details" => cached = member(value, "cached_tokens").and_then(count).or(cached),
            "completion_tokens_details" => reasoning = member(value, "reasoning_tokens").and_then(count),
            // DeepSeek before it had the details; the details win.
            "prompt_cache_hit_tokens" => cached = cached.or_else(|| count(value)),
            _ => {}
        }
    }
    // xAI leaves reasoning out of `completion_tokens`; its total gives that away.
    if let (Some(i), Some(o), Some(t), Some(r)) = (input, output, total, reasoning)
        && r > 0
        && i.saturating_add(o).saturating_add(r) == t
    {
        output = Some(o + r);
    }
    usage.input_tokens = input.or(usage.input_tokens);
    usage.output_tokens = output.or(usage.output_tokens);
    usage.cached_input_tokens = cached.or(usage.cached_input_tokens);
}

/// A count of tokens; whatever is not a whole number from 0 does not exist.
fn count(json: &str) -> Option<u64> {
    json.parse().ok()
}

/// Reads a whole answer. It is valid when `choices` is an array with at least one choice, every choice has output or a finish
/// reason (Azure's filtered answer has the second only), and there is no error object: an empty 200 is never a success
/// (FIELD_CASES F30). Leading white space, OpenRouter's keep-alive of whole answers, is skipped.
///
/// A finish reason is not asked of an answer with output where *no* choice has one: here, unlike in a stream, the closing brace says
/// that the answer is whole, and compatible servers (Ollama: pydantic/pydantic-ai#2996) write `null` or nothing into answers
/// with all their text and usage; to refuse those would shut such a server out. Where one choice has a reason, the server knows
/// them, and a choice without was cut short: that answer is not valid.
pub fn of_answer(body: &[u8]) -> Answer {
    let mut answer = Answer::default();
    let Some(json) = valid(body) else { return answer };
    let mut issued = Pins::default();
    for (name, value) in members(json) {
        match name {
            "usage" => merge(&mut answer.usage, value),
            "model" => answer.served_model = text(value).filter(|model| !model.is_empty()).map(|m| m.into_owned()),
            "choices" => {
                answer.finish_reason = elements(value).filter_map(finish_of).last().map(|reason| reason.into_owned());
                let messages = elements(value).filter_map(|choice| member(choice, "message"));
                messages.for_each(|message| pins::of_message(message, &mut issued));
                let finished = |choice| finish_of(choice).is_some();
                let even = elements(value).all(finished) || !elements(value).any(finished);
                answer.valid =
                    value.starts_with('[') && !is_empty(value) && even && elements(value).all(says_something);
            }
            _ => {}
        }
    }
    if let Some(usage) = member(json, "x_groq").and_then(|x| member(x, "usage")) {
        merge(&mut answer.usage, usage);
    }
    answer.valid = answer.valid && fault::of_json(json).is_none();
    answer.issued = issued.issued().to_vec();
    answer
}

fn says_something(choice: &str) -> bool {
    let said = choice_says(choice);
    choice.starts_with('{') && !said.fault && (finish_of(choice).is_some() || said.show != Show::Preamble)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_total_replaces_member_by_member() {
        let mut usage = Usage::default();
        for (json, expected) in [
            ("null", (None, None, None)),
            (r#"{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}"#, (Some(5), None, Some(1))),
            (r#"{"completion_tokens":3}"#, (Some(5), None, Some(3))),
            (r#"{"prompt_tokens":5,"completion_tokens":4,"prompt_cache_hit_tokens":2}"#, (Some(5), Some(2), Some(4))),
            (
                r#"{"prompt_cache_hit_tokens":9,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens":"x"}"#,
                (Some(5), Some(3), Some(4)),
            ),
            (
                r#"{"prompt_tokens":-1,"completion_tokens":1.5,"prompt_tokens_details":null}"#,
                (Some(5), Some(3), Some(4)),
            ),
            // xAI: reasoning beside completion.
            (
                r#"{"prompt_tokens":432,"completion_tokens":68,"total_tokens":636,"completion_tokens_details":{"reasoning_tokens":136}}"#,
                (Some(432), Some(3), Some(204)),
            ),
            // Everybody else: reasoning inside.
            (
                r#"{"prompt_tokens":14,"completion_tokens":50,"total_tokens":64,"completion_tokens_details":{"reasoning_tokens":50}}"#,
                (Some(14), Some(3), Some(50)),
            ),
        ] {
            merge(&mut usage, json);
            let (input_tokens, cached_input_tokens, output_tokens) = expected;
            assert_eq!(usage, Usage { input_tokens, cached_input_tokens, output_tokens }, "{json}");
        }
    }

    #[test]
    fn whole_answers() {
        for (body, valid, finish) in [
            (
                r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"4"},"finish_reason":"stop"}]}"#,
                true,
                Some("stop"),
            ),
            ("\n   \n {\"choices\":[{\"message\":{\"content\":\"4\"}}]}\n", true, None),
            (r#"{"choices":[{"finish_reason":"content_filter","index":0}]}"#, true, Some("content_filter")),
            (
                r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c"}]},"finish_reason":null}]}"#,
                true,
                None,
            ),
            (r#"{"choices":[{"text":"x","finish_reason":"length"}]}"#, true, Some("length")),
            (r#"{"choices":[{"message":{"content":"4"},"finish_reason":null}]}"#, true, None),
            (
                r#"{"choices":[{"message":{"content":"4"}},{"message":{"content":"5"},"finish_reason":null}]}"#,
                true,
                None,
            ),
            // One choice of two was cut short.
            (
                r#"{"choices":[{"message":{"content":"4"},"finish_reason":"stop"},{"message":{"content":"5"},"finish_reason":null}]}"#,
                false,
                Some("stop"),
            ),
            (
                r#"{"choices":[{"message":{"content":"4"}},{"message":{"content":"5"},"finish_reason":"stop"}]}"#,
                false,
                Some("stop"),
            ),
            (r#"{"choices":[{"message":{"role":"assistant","content":""},"finish_reason":null}]}"#, false, None),
            (r#"{"choices":[{"message":{"content":"4"}},{"message":{"content":""}}]}"#, false, None),
            (r#"{"choices":[{"message":{"content":""},"finish_reason":"error"}]}"#, false, None),
            (
                r#"{"choices":[{"message":{"content":"4"},"finish_reason":"stop"}],"error":{"code":502}}"#,
                false,
                Some("stop"),
            ),
            (
                r#"{"choices":[{"message":{"content":"4"},"finish_reason":"stop","error":{"code":502}}]}"#,
                false,
                Some("stop"),
            ),
            (r#"{"choices":[],"usage":{"prompt_tokens":1}}"#, false, None),
            (r#"{"choices":["x"]}"#, false, None),
            (r#"{"choices":null}"#, false, None),
            (r#"{"choices":{"message":{"content":"4"}}}"#, false, None),
            (r#"{"error":{"message":"m"}}"#, false, None),
            ("{}", false, None),
            ("[]", false, None),
            ("", false, None),
            ("   ", false, None),
            ("<html>", false, None),
            (r#"{"choices":[{"message":{"content":"4"},"finish_reason":"stop"}]"#, false, None),
        ] {
            let answer = of_answer(body.as_bytes());
            assert_eq!((answer.valid, answer.finish_reason.as_deref()), (valid, finish), "{body}");
        }
    }

    #[test]
    fn an_answer_tells_model_and_usage() {
        let body = br#"{"model":"m-1","choices":[{"message":{"content":"4"},"finish_reason":"stop"}],
            "usage":{"prompt_tokens":13,"completion_tokens":9}}"#;
        let answer = of_answer(body);
        assert_eq!(answer.served_model.as_deref(), Some("m-1"));
        assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (Some(13), Some(9)));
    }
}

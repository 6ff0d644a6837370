//! Which limit a throttle hit: requests, tokens, a day's allowance, or money (SPEC section 11, `limit_dimension`).
//!
//! In: a provider's response headers and its own words. Out: the dimension, or nothing where it did not say. It decides nothing:
//! the class does. It tells an operator whether to ask for more requests, more tokens, or more money. Pure.
//!
//! Words go before headers, because they are about this refusal; a header that says how much is left may be of a window that has
//! moved on. Within the words the rarer thing wins: "requests per day" is a day's limit, not a limit of requests.

use http::HeaderMap;
use serde::Serialize;

use super::Said;

/// What ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitDimension {
    /// Requests a minute or second, or at once.
    Requests,
    /// Tokens a minute.
    Tokens,
    /// Whatever is counted, a day of it.
    Day,
    /// Credits, budget, billing.
    Spend,
}

impl LimitDimension {
    /// The word in lines and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Day => "day",
            Self::Spend => "spend",
        }
    }
}

use LimitDimension::{Day, Requests, Spend, Tokens};

/// Phrases, the first that fits wins. Lower case. OpenAI: "Rate limit reached for … on tokens per min (TPM)", "requests per day
/// (RPD)", `insufficient_quota`; Anthropic: "… input tokens per minute", "Your credit balance is too low"; Gemini:
/// `GenerateRequestsPerDayPerProjectPerModel`, `generate_content_free_tier_requests`; Azure: "token rate limit"; Groq: "on
/// tokens per day (TPD)"; Bedrock: "Too many tokens, please wait", "Too many requests".
const WORDS: &[(&str, LimitDimension)] = &[
    ("insufficient_quota", Spend),
    ("billing", Spend),
    ("credit balance", Spend),
    ("insufficient credits", Spend),
    ("insufficient balance", Spend),
    ("out of credits", Spend),
    ("spend limit", Spend),
    ("spending limit", Spend),
    ("budget", Spend),
    ("usage limits", Spend),
    ("exceeded your current quota, please check your plan", Spend),
    ("per day", Day),
    ("perday", Day),
    ("per_day", Day),
    ("(rpd)", Day),
    ("(tpd)", Day),
    ("daily", Day),
    ("tokens per min", Tokens),
    ("token rate limit", Tokens),
    ("tokens per second", Tokens),
    ("tokensperminute", Tokens),
    ("tokens_per_minute", Tokens),
    ("input_token", Tokens),
    ("too many tokens", Tokens),
    ("(tpm)", Tokens),
    ("tokens", Tokens),
    ("requests per", Requests),
    ("request rate", Requests),
    ("requestsperminute", Requests),
    ("requests_per_minute", Requests),
    ("(rpm)", Requests),
    ("too many requests", Requests),
    ("concurren", Requests),
    ("requests", Requests),
];

/// Headers that say `0` once their limit is hit.
const REMAINING: &[(&str, LimitDimension)] = &[
    ("x-ratelimit-remaining-requests-day", Day),
    ("x-ratelimit-remaining-tokens-day", Day),
    ("x-ratelimit-remaining-tokens", Tokens),
    ("x-ratelimit-remaining-tokens-minute", Tokens),
    ("anthropic-ratelimit-tokens-remaining", Tokens),
    ("anthropic-ratelimit-input-tokens-remaining", Tokens),
    ("anthropic-ratelimit-output-tokens-remaining", Tokens),
    ("x-ratelimit-remaining-requests", Requests),
    ("x-ratelimit-remaining-requests-minute", Requests),
    ("anthropic-ratelimit-requests-remaining", Requests),
];

/// Bytes of a message that are looked at: limits are named in its first lines.
const LOOKED_AT_BYTES_MAX: usize = 2048;

/// The dimension of a throttle or of a used-up quota; only to be asked of those.
#[must_use]
pub fn limit_dimension(headers: &HeaderMap, said: &Said) -> Option<LimitDimension> {
    let code = said.code.as_ref().and_then(serde_json::Value::as_str);
    let texts = [said.kind.as_deref(), code, said.message.as_deref()];
    let words: String = texts
        .into_iter()
        .flatten()
        .map(|text| {
            let cut = text.floor_char_boundary(LOOKED_AT_BYTES_MAX);
            format!("{}\n", text.get(..cut).unwrap_or_default().to_ascii_lowercase())
        })
        .collect();
    let named = WORDS.iter().find(|(phrase, _)| words.contains(phrase)).map(|(_, dimension)| *dimension);
    named.or_else(|| {
        let spent = |name: &str| headers.get(name).is_some_and(|value| value.as_bytes().trim_ascii() == b"0");
        REMAINING.iter().find(|(name, _)| spent(name)).map(|(_, dimension)| *dimension)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(
        headers: &[(&'static str, &'static str)],
        kind: &str,
        code: &str,
        message: &str,
    ) -> Option<LimitDimension> {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let said = Said { kind: text(kind), code: text(code).map(Into::into), message: text(message), param: None };
        limit_dimension(&headers, &said)
    }

    #[test]
    fn words() {
        for (kind, code, message, dimension) in [
            (
                "tokens",
                "rate_limit_exceeded",
                "Rate limit reached for m in org on tokens per min (TPM): Limit 1, Used 1",
                Some(Tokens),
            ),
            (
                "requests",
                "rate_limit_exceeded",
                "Rate limit reached for m on requests per min (RPM): Limit 3",
                Some(Requests),
            ),
            (
                "requests",
                "rate_limit_exceeded",
                "Rate limit reached for m on requests per day (RPD): Limit 200",
                Some(Day),
            ),
            (
                "insufficient_quota",
                "insufficient_quota",
                "You exceeded your current quota, please check your plan",
                Some(Spend),
            ),
            (
                "rate_limit_error",
                "",
                "This would exceed your rate limit of 40,000 input tokens per minute",
                Some(Tokens),
            ),
            ("invalid_request_error", "", "Your credit balance is too low to access the API", Some(Spend)),
            ("rate_limit_error", "", "Number of concurrent connections has exceeded your rate limit", Some(Requests)),
            ("", "", "Quota exceeded for quota metric 'GenerateRequestsPerDayPerProjectPerModel-FreeTier'", Some(Day)),
            ("", "429", "Requests to this operation have exceeded token rate limit of your pricing tier", Some(Tokens)),
            ("", "", "Rate limit reached on tokens per day (TPD): Limit 100000", Some(Day)),
            ("ThrottlingException", "", "Too many tokens, please wait before trying again.", Some(Tokens)),
            ("ThrottlingException", "", "Too many requests, please wait before trying again.", Some(Requests)),
            ("", "", "You have reached your workspace spend limit", Some(Spend)),
            ("rate_limit_error", "", "Slow down", None),
            ("", "", "", None),
        ] {
            assert_eq!(found(&[], kind, code, message), dimension, "{kind} {code} {message}");
        }
    }

    #[test]
    fn headers_speak_where_words_do_not() {
        for (headers, dimension) in [
            (&[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-remaining-tokens", "900")][..], Some(Requests)),
            (&[("x-ratelimit-remaining-requests", "7"), ("x-ratelimit-remaining-tokens", "0")], Some(Tokens)),
            (&[("anthropic-ratelimit-input-tokens-remaining", "0")], Some(Tokens)),
            (&[("anthropic-ratelimit-requests-remaining", " 0 ")], Some(Requests)),
            (&[("x-ratelimit-remaining-requests-day", "0")], Some(Day)),
            (&[("x-ratelimit-remaining-requests", "10")], None),
            (&[], None),
        ] {
            assert_eq!(found(headers, "", "", "Slow down"), dimension, "{headers:?}");
        }
        let said = "requests per day exceeded";
        assert_eq!(found(&[("x-ratelimit-remaining-tokens", "0")], "", "", said), Some(Day), "words go first");
    }

    #[test]
    fn phrases_are_lower_case_and_reachable() {
        for (at, (phrase, dimension)) in WORDS.iter().enumerate() {
            assert_eq!(*phrase, phrase.to_ascii_lowercase());
            let earlier = WORDS[..at].iter().find(|(earlier, _)| phrase.contains(earlier));
            assert!(earlier.is_none(), "{phrase} is hidden by {earlier:?}");
            assert_eq!(found(&[], "", "", phrase), Some(*dimension));
        }
    }
}

//! How long a provider asks to wait, from whichever of five places it says so.
//!
//! In: response headers, error body, wall time. Out: a duration, or nothing where nothing valid was said. Order (SPEC
//! Annex, Routing): `retry-after-ms`, `retry-after`, Google's `RetryInfo` in the body, rate-limit reset headers. A value
//! that does not parse "does not exist": the next place is asked. A date that has passed does not exist either: it is a
//! skewed clock or a copy from a cache, and backoff is safer than at once. A zero that was sent is a zero.
//! Pure: `now` is an argument. Not here: whether the wait is obeyed (deadline, other routes), which is the controller's;
//! hints inside messages for people ("try again in 20s"), which no provider promises.

use std::time::Duration;

use http::HeaderMap;
use serde_json::Value;

use crate::clock::UnixMillis;

/// The longest wait that is reported; longer ones become this. 24 h: longer than any deadline, so the decision is the
/// same, and a breaker that believes it is not shut for a month (FIELD_CASES F91: "clamp").
pub const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Above this a number is not a wait but something else (an epoch in the wrong field): it does not exist. A year covers
/// the monthly and yearly quotas that some accounts have.
pub const WAIT_CREDIBLE_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Header values longer than this are not looked at; the longest valid form is an HTTP date of 33 bytes.
const VALUE_BYTES_MAX: usize = 64;

/// Body bytes that are looked at for `RetryInfo`: as much as classification reads of an error.
const BODY_BYTES_MAX: usize = super::ERROR_BODY_BYTES_MAX;

/// How often JSON text inside JSON text is unwrapped (a gateway below quotes the provider's body; two gateways quote twice).
const NESTING_MAX: u32 = 2;

/// Reset headers and the header that says whether that dimension is used up. Sources: OpenAI and Anthropic rate-limit
/// pages, Groq and Cerebras rate-limit pages, recordings openrouter-429-free-tier (plain `x-ratelimit-reset`, epoch in
/// ms) and replicate-402 (`ratelimit-reset`, seconds).
const RESETS: &[(&str, &str)] = &[
    ("x-ratelimit-reset-requests", "x-ratelimit-remaining-requests"),
    ("x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"),
    ("x-ratelimit-reset-requests-day", "x-ratelimit-remaining-requests-day"),
    ("x-ratelimit-reset-tokens-minute", "x-ratelimit-remaining-tokens-minute"),
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
    ("ratelimit-reset", "ratelimit-remaining"),
    ("anthropic-ratelimit-requests-reset", "anthropic-ratelimit-requests-remaining"),
    ("anthropic-ratelimit-tokens-reset", "anthropic-ratelimit-tokens-remaining"),
    ("anthropic-ratelimit-input-tokens-reset", "anthropic-ratelimit-input-tokens-remaining"),
    ("anthropic-ratelimit-output-tokens-reset", "anthropic-ratelimit-output-tokens-remaining"),
];

/// Everything a 429 can say about waiting. For other statuses take [`asked_wait`]: providers send reset headers with
/// successes and server errors too, where they mean nothing for this failure.
#[must_use]
pub fn wait_hint(headers: &HeaderMap, body: &[u8], now: UnixMillis) -> Option<Duration> {
    asked_wait(headers, body, now).or_else(|| reset_wait(headers, now))
}

/// What the provider asks in so many words: `retry-after-ms`, `retry-after` (seconds, also with decimals, or a date), or
/// `RetryInfo` in the body.
#[must_use]
pub fn asked_wait(headers: &HeaderMap, body: &[u8], now: UnixMillis) -> Option<Duration> {
    let millis = || text(headers, "retry-after-ms").and_then(decimal).and_then(|d| credible(d / 1000));
    let after =
        || text(headers, "retry-after").and_then(|v| decimal(v).and_then(credible).or_else(|| http_date(v, now)));
    millis().or_else(after).or_else(|| body_wait(body))
}

/// Reset headers: the longest among the dimensions that are used up (all of them must refill); where no header says what
/// is left, the longest of those that name no remainder. A dimension with something left is not why this request failed.
fn reset_wait(headers: &HeaderMap, now: UnixMillis) -> Option<Duration> {
    let (mut used_up, mut unknown) = (None, None);
    for (reset, remaining) in RESETS {
        let Some(wait) = text(headers, reset).and_then(|value| reset_value(value, now)) else { continue };
        match text(headers, remaining).map(decimal) {
            Some(Some(Duration::ZERO)) => used_up = used_up.max(Some(wait)),
            None => unknown = unknown.max(Some(wait)),
            Some(_) => {}
        }
    }
    used_up.or(unknown)
}

/// One reset value: a Go duration, seconds, an epoch in seconds or milliseconds, or an RFC 3339 date.
fn reset_value(value: &str, now: UnixMillis) -> Option<Duration> {
    /// From here a bare number is an epoch in seconds (2001) …
    const EPOCH_SECONDS: u64 = 1_000_000_000;
    /// … and from here one in milliseconds (2001).
    const EPOCH_MILLIS: u64 = 1_000_000_000_000;
    if let Some(number) = decimal(value) {
        return match number.as_secs() {
            EPOCH_MILLIS.. => until(number.as_secs(), now),
            EPOCH_SECONDS.. => until(number.as_secs().saturating_mul(1000), now),
            _ => credible(number),
        };
    }
    if let Some(wait) = go_duration(value) {
        return credible(wait);
    }
    let at: jiff::Timestamp = value.parse().ok()?;
    until(u64::try_from(at.as_millisecond()).ok()?, now)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    // Not `to_str`, which knows no `µs`.
    let value = std::str::from_utf8(headers.get(name)?.as_bytes()).ok()?.trim();
    (value.len() <= VALUE_BYTES_MAX).then_some(value)
}

/// A non-negative decimal number of seconds: digits, perhaps a point and digits. No sign, exponent, `inf` or `NaN`.
fn decimal(value: &str) -> Option<Duration> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let nanos =
        fraction.bytes().chain(std::iter::repeat(b'0')).take(9).fold(0_u32, |n, b| n * 10 + u32::from(b - b'0'));
    Some(Duration::new(whole.parse().ok()?, nanos))
}

/// A duration as Go prints it and OpenAI sends it: `1s`, `6m0s`, `20ms`, `1h2m3.5s`.
fn go_duration(value: &str) -> Option<Duration> {
    let mut rest = value;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_end);
        let number = decimal(number)?;
        let part = match unit {
            "d" => number.checked_mul(24 * 3600)?,
            "h" => number.checked_mul(3600)?,
            "m" => number.checked_mul(60)?,
            "s" => number,
            "ms" => number / 1_000,
            "us" | "µs" | "μs" => number / 1_000_000,
            "ns" => number / 1_000_000_000,
            _ => return None,
        };
        total = total.checked_add(part)?;
        rest = next;
    }
    Some(total)
}

fn http_date(value: &str, now: UnixMillis) -> Option<Duration> {
    let at = httpdate::parse_http_date(value).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    until(u64::try_from(at.as_millis()).ok()?, now)
}

/// From now to a date. Dates are whole seconds: one within the running second is "now", an earlier one has passed.
fn until(at_ms: u64, now: UnixMillis) -> Option<Duration> {
    if at_ms.saturating_add(1000) <= now.0 {
        return None;
    }
    credible(Duration::from_millis(at_ms.saturating_sub(now.0)))
}

fn credible(wait: Duration) -> Option<Duration> {
    (wait <= WAIT_CREDIBLE_MAX).then(|| wait.min(WAIT_MAX))
}

/// Google's `RetryInfo` (`google.rpc`, in `error.details`): `"retryDelay": "34.07s"`, a protobuf duration in JSON.
fn body_wait(body: &[u8]) -> Option<Duration> {
    let body = body.get(..BODY_BYTES_MAX).unwrap_or(body);
    memchr::memmem::find(body, b"retryDelay")?;
    retry_info(&serde_json::from_slice(body).ok()?, NESTING_MAX)
}

fn retry_info(value: &Value, nesting: u32) -> Option<Duration> {
    let value = value.as_array().and_then(|items| items.first()).unwrap_or(value);
    let error = value.get("error")?;
    let details = error.get("details").and_then(Value::as_array);
    let found = details.into_iter().flatten().find_map(|detail| match detail.get("retryDelay")? {
        Value::String(text) => text.trim().strip_suffix('s').and_then(decimal).and_then(credible),
        Value::Object(parts) => credible(Duration::from_secs(parts.get("seconds")?.as_u64()?)),
        _ => None,
    });
    // A gateway below may quote the provider's body as text (OpenRouter: `metadata.raw`; others: `message`).
    let quoted = [error.pointer("/metadata/raw"), error.get("message")];
    found.or_else(|| {
        let nesting = nesting.checked_sub(1)?;
        let texts = quoted.into_iter().flatten().filter_map(Value::as_str).filter(|text| text.starts_with(['{', '[']));
        texts.filter_map(|text| serde_json::from_str(text).ok()).find_map(|inner: Value| retry_info(&inner, nesting))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{HeaderName, HeaderValue};

    /// 2026-03-03T11:55:00Z.
    const NOW: UnixMillis = UnixMillis(1_772_538_900_000);

    type Pairs = &'static [(&'static str, &'static str)];

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_str(v).unwrap())).collect()
    }

    fn ms(n: u64) -> Option<Duration> {
        Some(Duration::from_millis(n))
    }

    #[test]
    fn retry_after_forms() {
        let rows: &[(&str, &str, Option<Duration>)] = &[
            ("retry-after", "7", ms(7_000)),
            ("retry-after", " 7 ", ms(7_000)),
            ("retry-after", "0", ms(0)),
            ("retry-after", "1.5", ms(1_500)),
            ("retry-after", "0.0000000019", Some(Duration::from_nanos(1))),
            ("retry-after", "Tue, 03 Mar 2026 11:55:20 GMT", ms(20_000)),
            ("retry-after", "Tuesday, 03-Mar-26 11:55:20 GMT", ms(20_000)),
            ("retry-after", "Tue Mar  3 11:55:20 2026", ms(20_000)),
            ("retry-after", "Tue, 03 Mar 2026 11:55:00 GMT", ms(0)),
            ("retry-after", "Tue, 03 Mar 2026 11:54:00 GMT", None),
            ("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT", None),
            ("retry-after", "-1", None),
            ("retry-after", "+1", None),
            ("retry-after", "1e3", None),
            ("retry-after", "NaN", None),
            ("retry-after", "inf", None),
            ("retry-after", ".5", None),
            ("retry-after", "5.", None),
            ("retry-after", "5s", None),
            ("retry-after", "", None),
            ("retry-after", "soon", None),
            ("retry-after", "99999999999999999999999", None),
            ("retry-after", "1772538960", None),
            ("retry-after", "86400", Some(WAIT_MAX)),
            ("retry-after", "2592000", Some(WAIT_MAX)),
            ("retry-after-ms", "660", ms(660)),
            ("retry-after-ms", "0", ms(0)),
            ("retry-after-ms", "20.5", Some(Duration::from_micros(20_500))),
            ("retry-after-ms", "-5", None),
            ("retry-after-ms", "x", None),
        ];
        for (name, value, want) in rows {
            assert_eq!(wait_hint(&headers(&[(name, value)]), b"", NOW), *want, "{name}: {value}");
        }
        let long = format!("1.{}", "0".repeat(VALUE_BYTES_MAX));
        assert_eq!(wait_hint(&headers(&[("retry-after", &long)]), b"", NOW), None);
    }

    #[test]
    fn order_and_invalid_ones_do_not_exist() {
        let info = br#"{"error":{"details":[{"retryDelay":"9s"}]}}"#;
        let rows: &[(Pairs, &[u8], Option<Duration>)] = &[
            (&[("retry-after", "20"), ("retry-after-ms", "19000")], info, ms(19_000)),
            (&[("retry-after", "1"), ("retry-after-ms", "0")], info, ms(0)),
            (&[("retry-after", "20"), ("retry-after-ms", "-1")], info, ms(20_000)),
            (&[("retry-after", "x"), ("retry-after-ms", "y")], info, ms(9_000)),
            (&[("retry-after", "x"), ("x-ratelimit-reset", "3")], b"", ms(3_000)),
            (&[("x-ratelimit-reset", "3")], info, ms(9_000)),
            (&[], b"", None),
        ];
        for (pairs, body, want) in rows {
            assert_eq!(wait_hint(&headers(pairs), body, NOW), *want, "{pairs:?}");
        }
        assert_eq!(asked_wait(&headers(&[("x-ratelimit-reset", "3")]), b"", NOW), None);
    }

    #[test]
    fn retry_info_in_the_body() {
        let rows: &[(&str, Option<Duration>)] = &[
            (r#"{"error":{"details":[{"@type":"x"},{"retryDelay":"34.07s"}]}}"#, ms(34_070)),
            (r#"[{"error":{"details":[{"retryDelay":"34s"}]}}]"#, ms(34_000)),
            (r#"{"error":{"details":[{"retryDelay":{"seconds":5}}]}}"#, ms(5_000)),
            (r#"{"error":{"metadata":{"raw":"{\"error\":{\"details\":[{\"retryDelay\":\"4s\"}]}}"}}}"#, ms(4_000)),
            (r#"{"error":{"message":"{\"error\":{\"details\":[{\"retryDelay\":\"4s\"}]}}"}}"#, ms(4_000)),
            (r#"{"error":{"details":[{"retryDelay":"-4s"}]}}"#, None),
            (r#"{"error":{"details":[{"retryDelay":"4"}]}}"#, None),
            (r#"{"error":{"details":[{"retryDelay":4}]}}"#, None),
            (r#"{"error":{"details":"retryDelay"}}"#, None),
            (r#"{"message":"retryDelay 4s"}"#, None),
            ("retryDelay: 4s", None),
        ];
        for (body, want) in rows {
            assert_eq!(wait_hint(&HeaderMap::new(), body.as_bytes(), NOW), *want, "{body}");
        }
    }

    #[test]
    fn reset_values() {
        let rows: &[(&str, Option<Duration>)] = &[
            ("1s", ms(1_000)),
            ("6m0s", ms(360_000)),
            ("20ms", ms(20)),
            ("21m36.001s", ms(1_296_001)),
            ("1h2m3.5s", ms(3_723_500)),
            ("1d", Some(WAIT_MAX)),
            ("15µs", Some(Duration::from_micros(15))),
            ("60", ms(60_000)),
            ("1.25", ms(1_250)),
            ("1772538960", ms(60_000)),
            ("1772538960000", ms(60_000)),
            ("2026-03-03T11:55:15Z", ms(15_000)),
            ("2026-03-03T12:55:15+01:00", ms(15_000)),
            ("1970-01-01T00:00:00Z", None),
            ("1754667660000", None),
            ("1s2", None),
            ("s", None),
            ("1x", None),
            ("-1s", None),
            ("", None),
            ("9999999999999999999d", None),
        ];
        for (value, want) in rows {
            assert_eq!(wait_hint(&headers(&[("x-ratelimit-reset-tokens", value)]), b"", NOW), *want, "{value}");
        }
    }

    #[test]
    fn which_reset_header_counts() {
        let rows: &[(&str, Pairs, Option<Duration>)] = &[
            (
                "the one that is used up, not the longer one",
                &[
                    ("x-ratelimit-reset-requests", "2s"),
                    ("x-ratelimit-remaining-requests", "0"),
                    ("x-ratelimit-reset-tokens", "21m"),
                    ("x-ratelimit-remaining-tokens", "39923"),
                ],
                ms(2_000),
            ),
            (
                "both used up: both must refill",
                &[
                    ("anthropic-ratelimit-requests-reset", "2026-03-03T11:55:07Z"),
                    ("anthropic-ratelimit-requests-remaining", "0"),
                    ("anthropic-ratelimit-tokens-reset", "2026-03-03T11:55:03Z"),
                    ("anthropic-ratelimit-tokens-remaining", "0"),
                ],
                ms(7_000),
            ),
            (
                "nothing used up: they say nothing of this failure (openai-429-overloaded)",
                &[
                    ("x-ratelimit-reset-requests", "17ms"),
                    ("x-ratelimit-remaining-requests", "3499"),
                    ("x-ratelimit-reset-tokens", "358ms"),
                    ("x-ratelimit-remaining-tokens", "89461"),
                ],
                None,
            ),
            (
                "no remainder told",
                &[("x-ratelimit-reset-requests", "2s"), ("x-ratelimit-reset-tokens", "3s")],
                ms(3_000),
            ),
            (
                "a told remainder of zero wins over an untold one",
                &[("x-ratelimit-reset", "2"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-tokens", "3s")],
                ms(2_000),
            ),
            (
                "a remainder that is no number hides the value",
                &[("x-ratelimit-reset", "2"), ("x-ratelimit-remaining", "?")],
                None,
            ),
        ];
        for (what, pairs, want) in rows {
            assert_eq!(wait_hint(&headers(pairs), b"", NOW), *want, "{what}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics_and_is_bounded(value in "[ -~µ]{0,40}", body in ".{0,80}", now: u64) {
            for name in ["retry-after", "retry-after-ms", "x-ratelimit-reset", "anthropic-ratelimit-tokens-reset"] {
                let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else { continue };
                let map: HeaderMap = [(HeaderName::from_static(name), value)].into_iter().collect();
                let body = format!("{body}{{\"error\":{{\"details\":[{{\"retryDelay\":{body:?}}}]}}}}");
                proptest::prop_assert!(wait_hint(&map, body.as_bytes(), UnixMillis(now)).is_none_or(|wait| wait <= WAIT_MAX));
            }
        }
    }
}

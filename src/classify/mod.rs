//! One class for each failure, from everything the provider said and not from its status alone (SPEC section 6).
//!
//! In: [`Evidence`] of how an attempt failed. Out: a [`Verdict`]. Pure: status codes, provider words and timers stop here; who
//! reads a verdict never asks for a status again. `words` brings every shape of error into one form, `rules` says what the
//! words mean, this file adds what needs no words (transport, silence, ends), what may have run, and how long to wait.
//! Not here: what is done about a class (the controller), the classes that depend on how far the attempt had come
//! (`deadline_exhausted`, `partial_output`, `side_effect_uncertain`: the controller and the relay), and HTTP of any kind.

#[cfg(test)]
mod examples;
pub mod mask;
#[cfg(test)]
mod recorded;
mod rules;
mod words;

use std::time::Duration;

use http::HeaderMap;
use serde::Serialize;

use crate::attempt::retry_after::{asked_wait, wait_hint};
use crate::clock::UnixMillis;
use crate::protocol::Dialect;
use crate::protocol::signal::Fault;
use words::Words;

/// SPEC section 6's classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Refused, reset, DNS, timeout before output, body cut before output, empty 200, 408, 425.
    TransportTransient,
    /// 429 known to be temporary.
    RateLimited,
    /// 503 overload or slow-down, 529, in-stream overload error.
    ProviderOverloaded,
    /// 500, 502, 504, 520–526, in-stream server error.
    ProviderServerError,
    /// This model is out, unknown there or lacks capacity; the provider is not down.
    ModelUnavailable,
    /// The answer came and breaks the contract.
    ContractFailure,
    /// Quota, credits, billing or spending limit, whatever status it arrives under.
    QuotaExhausted,
    /// A 429 that says nothing usable.
    #[serde(rename = "ambiguous_429")]
    Ambiguous429,
    /// 401, 403.
    AuthenticationOrPermission,
    /// 400, other 404, 413, 422; context too long.
    InvalidRequest,
    /// Safety rejection, content filter.
    Refusal,
    /// No time for another attempt.
    DeadlineExhausted,
    /// Failed after visible output.
    PartialOutput,
    /// Failed after a hosted tool or execution may have acted.
    SideEffectUncertain,
    /// Everything else; a bad certificate, with an alarm.
    Unclassified,
}

/// What happened to an attempt that failed.
#[derive(Clone, Debug)]
pub enum Evidence<'a> {
    /// No usable HTTP head came.
    Transport(TransportFault),
    /// A head with a status other than 2xx, and its body as far as it was read (bounded).
    Http {
        /// Status code.
        status: u16,
        /// Response headers.
        headers: &'a HeaderMap,
        /// Body, at most [`ERROR_BODY_BYTES_MAX`].
        body: &'a [u8],
    },
    /// An error event in the stream, or an error object in a 200 body; with the response's headers.
    Fault {
        /// What the event said.
        fault: &'a Fault,
        /// Response headers.
        headers: &'a HeaderMap,
    },
    /// The body ended without the terminal event. `events` counts whole events with data before it.
    Truncated {
        /// Whole events seen.
        events: u64,
    },
    /// The body broke off with a transport error.
    BodyCut,
    /// One of the attempt's own timers ran out.
    Silence(Timer),
    /// A line or event over its limit, or bytes that cannot be the announced format.
    BadFraming,
    /// A 2xx whose body is not the dialect's answer (wrong content type, not JSON, wrong shape).
    BadAnswer,
}

/// What of an error body is read and looked at. 64 KiB: the largest recorded one is a 19 KB HTML page.
pub const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// Transport errors, as the upstream client tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportFault {
    /// Name resolution failed.
    Dns,
    /// Connection refused or unreachable.
    Refused,
    /// The connect timer ran out.
    ConnectTimeout,
    /// TLS handshake failed for another reason than the certificate.
    Tls,
    /// The certificate is not acceptable: an alarm, never retried elsewhere in silence.
    Certificate,
    /// Reset or closed before a whole head. `sent` is true unless it is proved that no byte of the request left.
    Reset {
        /// Whether any byte of the request was handed to the kernel.
        sent: bool,
    },
    /// The head is not HTTP, or over its limit.
    BadHead,
}

/// Which timer of an attempt ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    /// `first_output_ms`: nothing visible in time.
    FirstOutput,
    /// `idle_ms`: no byte after the boundary.
    Idle,
    /// `answer_ms`: a whole answer did not come in time.
    Answer,
    /// Cut early so that an eligible fallback still has time, or the operation's deadline.
    Deadline,
    /// `stream_ms`: the stream as a whole took too long.
    Stream,
}

/// What classification depends on besides the evidence.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The dialect of the attempt.
    pub dialect: Dialect,
    /// `[provider.X] ambiguous_429 = "rate_limited"`.
    pub ambiguous_429_is_rate_limit: bool,
    /// Wall time, for dates in `Retry-After`.
    pub now: UnixMillis,
}

/// The judgement.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The class.
    pub class: Class,
    /// False only with proof that the provider did not process the request ("Sent, and no answer", SPEC section 6).
    pub may_have_run: bool,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// The provider's HTTP status, if a head came.
    pub provider_status: Option<u16>,
    /// The provider's error type, code, message and param as sent (keys masked in the message).
    pub said: Said,
    /// Somebody should be woken: a bad certificate.
    pub alarm: bool,
}

/// The provider's own words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// `type`.
    pub kind: Option<String>,
    /// `code`, unchanged (text or number).
    pub code: Option<serde_json::Value>,
    /// `message`.
    pub message: Option<String>,
    /// `param`.
    pub param: Option<serde_json::Value>,
}

/// Judges a failed attempt as one before the boundary; how far it had come is for the caller to add.
///
/// Never fails: what nothing fits is [`Class::Unclassified`]. Takes time linear in the evidence, which is bounded.
#[must_use]
pub fn classify(evidence: &Evidence<'_>, context: &Context) -> Verdict {
    match evidence {
        Evidence::Transport(fault) => of_transport(*fault),
        Evidence::Http { status, headers, body } => of_answer(*status, headers, body, context),
        Evidence::Fault { fault, headers } => of_fault(fault, headers, context),
        // An empty 200 (`events` = 0) and a body cut before output are one class; both may have been paid for.
        Evidence::Truncated { .. } | Evidence::BodyCut => plain(Class::TransportTransient, true, Some(200)),
        // All of them: timeout before output. That a deadline is used up is for the controller to see.
        Evidence::Silence(_) => plain(Class::TransportTransient, true, None),
        // "The answer came and breaks the contract": what breaks framing or shape once does so again at this provider, so
        // another provider's turn, not this one's.
        Evidence::BadFraming | Evidence::BadAnswer => plain(Class::ContractFailure, true, Some(200)),
    }
}

/// A verdict without words of the provider.
fn plain(class: Class, may_have_run: bool, provider_status: Option<u16>) -> Verdict {
    Verdict { class, may_have_run, retry_after: None, provider_status, said: Said::default(), alarm: false }
}

fn of_transport(fault: TransportFault) -> Verdict {
    match fault {
        // No connection, no request: proof.
        TransportFault::Dns | TransportFault::Refused | TransportFault::ConnectTimeout | TransportFault::Tls => {
            plain(Class::TransportTransient, false, None)
        }
        // Somebody else may be answering in the provider's name. No second call anywhere, and somebody is woken.
        TransportFault::Certificate => Verdict { alarm: true, ..plain(Class::Unclassified, false, None) },
        TransportFault::Reset { sent } => plain(Class::TransportTransient, sent, None),
        // Something answered and it was no HTTP: the same reasoning as for a body that is no answer.
        TransportFault::BadHead => plain(Class::ContractFailure, true, None),
    }
}

/// An HTTP answer with a status of its own.
fn of_answer(status: u16, headers: &HeaderMap, body: &[u8], context: &Context) -> Verdict {
    let words = Words::of_body(headers, body);
    if let Some(class) = rules::fixed(status) {
        // 408 is unanswered (SPEC Annex), 3xx and below prove nothing; 409 and 425 are refusals to process.
        let may_have_run = !matches!(status, 409 | 425);
        let retry_after = asked_wait(headers, body, context.now).filter(|_| waiting_helps(class));
        return Verdict { retry_after, said: words.said, ..plain(class, may_have_run, Some(status)) };
    }
    if (200..300).contains(&status) {
        // Callers classify a 2xx as a fault, a truncation or a bad answer; this is for one that does not.
        return match rules::find(&words, None) {
            Some(_) => settle(None, &words, asked_wait(headers, body, context.now), context),
            None => Verdict { said: words.said, ..plain(Class::ContractFailure, true, Some(status)) },
        };
    }
    // Reset headers come with successes and server errors too; only in a 429 are they about this failure.
    let hint = if status == 429 { wait_hint } else { asked_wait };
    settle(Some(status), &words, hint(headers, body, context.now), context)
}

/// An error inside a 200.
fn of_fault(fault: &Fault, headers: &HeaderMap, context: &Context) -> Verdict {
    let words = Words::of_fault(fault, headers);
    // Gateways put the status they would have sent into `code` (recording chat-completions/openrouter-error-chunk).
    let named = fault.status.or_else(|| fault.code.as_deref()?.parse().ok());
    let status = named.filter(|status| (400..600).contains(status));
    let verdict = settle(status, &words, asked_wait(headers, b"", context.now), context);
    // "`invalid_request` and `refusal` inside a 200 count as 400" (SPEC Annex, Streams); else the head's status is the truth.
    let counts_as_400 = matches!(verdict.class, Class::InvalidRequest | Class::Refusal);
    Verdict { provider_status: Some(if counts_as_400 { 400 } else { 200 }), ..verdict }
}

/// Words and status to a verdict. `status` is absent for an in-stream error that names none.
fn settle(status: Option<u16>, words: &Words, wait: Option<Duration>, context: &Context) -> Verdict {
    let row = match status.and_then(rules::fixed) {
        Some(_) => None,
        None => rules::find(words, status),
    };
    let class = match (row.map(|row| row.class), status) {
        (Some(class), _) => class,
        // "One with a valid Retry-After and no word of quota is `rate_limited`": words of quota have rows.
        (None, Some(429)) if wait.is_some() => Class::RateLimited,
        (None, Some(status)) => rules::fixed(status).unwrap_or_else(|| rules::by_status(status)),
        (None, None) => Class::ProviderServerError,
    };
    let class = match class {
        Class::Ambiguous429 if context.ambiguous_429_is_rate_limit => Class::RateLimited,
        class => class,
    };
    let may_have_run = may_have_run(status, class, row.is_some_and(|row| row.proof));
    let retry_after = wait.filter(|_| waiting_helps(class));
    Verdict { retry_after, said: words.said.clone(), ..plain(class, may_have_run, status) }
}

/// "Sent, and no answer" (SPEC section 6): 429 and other 4xx, and 503 and 529 with a word of overload, are proof that the
/// provider did not process the request. Other 5xx, 408 and an in-stream server error are not.
fn may_have_run(status: Option<u16>, class: Class, proof: bool) -> bool {
    // The model answered, and the answer was thrown away (Groq's `tool_use_failed`), whatever the status.
    if class == Class::ContractFailure {
        return true;
    }
    match status {
        Some(408) => true,
        Some(400..500) => false,
        Some(503 | 529) => !proof,
        Some(_) => true,
        None => match class {
            Class::ProviderServerError | Class::TransportTransient | Class::Unclassified => true,
            Class::ProviderOverloaded => !proof,
            _ => false,
        },
    }
}

/// Whether a wait means anything for a class. A 400 with `retry-after: 2` (recording together-400-image) is not cured by
/// waiting, and a wait that is reported might be obeyed or passed on.
fn waiting_helps(class: Class) -> bool {
    matches!(
        class,
        Class::TransportTransient
            | Class::RateLimited
            | Class::ProviderOverloaded
            | Class::ProviderServerError
            | Class::ModelUnavailable
            | Class::Ambiguous429
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const CONTEXT: Context = Context {
        dialect: Dialect::ChatCompletions,
        ambiguous_429_is_rate_limit: false,
        now: UnixMillis(1_772_538_900_000),
    };

    fn http(status: u16, headers: &[(&'static str, &str)], body: &str) -> Verdict {
        let headers = headers
            .iter()
            .map(|(k, v)| (http::HeaderName::from_static(k), http::HeaderValue::from_str(v).unwrap()))
            .collect();
        classify(&Evidence::Http { status, headers: &headers, body: body.as_bytes() }, &CONTEXT)
    }

    #[test]
    fn what_needs_no_words() {
        use Class::*;
        let rows = [
            (Evidence::Transport(TransportFault::Dns), TransportTransient, false, None),
            (Evidence::Transport(TransportFault::Refused), TransportTransient, false, None),
            (Evidence::Transport(TransportFault::ConnectTimeout), TransportTransient, false, None),
            (Evidence::Transport(TransportFault::Tls), TransportTransient, false, None),
            (Evidence::Transport(TransportFault::Certificate), Unclassified, false, None),
            (Evidence::Transport(TransportFault::Reset { sent: false }), TransportTransient, false, None),
            (Evidence::Transport(TransportFault::Reset { sent: true }), TransportTransient, true, None),
            (Evidence::Transport(TransportFault::BadHead), ContractFailure, true, None),
            (Evidence::Truncated { events: 0 }, TransportTransient, true, Some(200)),
            (Evidence::Truncated { events: 3 }, TransportTransient, true, Some(200)),
            (Evidence::BodyCut, TransportTransient, true, Some(200)),
            (Evidence::Silence(Timer::FirstOutput), TransportTransient, true, None),
            (Evidence::Silence(Timer::Idle), TransportTransient, true, None),
            (Evidence::Silence(Timer::Answer), TransportTransient, true, None),
            (Evidence::Silence(Timer::Deadline), TransportTransient, true, None),
            (Evidence::Silence(Timer::Stream), TransportTransient, true, None),
            (Evidence::BadFraming, ContractFailure, true, Some(200)),
            (Evidence::BadAnswer, ContractFailure, true, Some(200)),
        ];
        for (evidence, class, may_have_run, status) in rows {
            let verdict = classify(&evidence, &CONTEXT);
            let alarm = matches!(evidence, Evidence::Transport(TransportFault::Certificate));
            assert_eq!(verdict, Verdict { alarm, ..plain(class, may_have_run, status) }, "{evidence:?}");
        }
    }

    #[test]
    fn every_status_without_a_word() {
        use Class::*;
        for status in 0..=1_000_u16 {
            let class = match status {
                408 | 425 => TransportTransient,
                200..300 => ContractFailure,
                402 => QuotaExhausted,
                401 | 403 => AuthenticationOrPermission,
                400 | 404 | 413 | 422 => InvalidRequest,
                429 => Ambiguous429,
                500 | 502 | 504 | 520 | 521 | 522 | 523 | 524 | 525 | 526 => ProviderServerError,
                503 | 529 => ProviderOverloaded,
                _ => Unclassified,
            };
            let may_have_run = !(400..500).contains(&status) || status == 408;
            assert_eq!(http(status, &[], ""), plain(class, may_have_run, Some(status)), "{status}");
        }
    }

    #[test]
    fn statuses_that_no_word_changes() {
        let body = r#"{"error":{"message":"Overloaded, rate limit, quota exceeded","type":"insufficient_quota"}}"#;
        for (status, class) in [
            (302, Class::Unclassified),
            (307, Class::Unclassified),
            (409, Class::Unclassified),
            (408, Class::TransportTransient),
            (425, Class::TransportTransient),
        ] {
            let verdict = http(status, &[], body);
            assert_eq!((verdict.class, verdict.said.kind.as_deref()), (class, Some("insufficient_quota")), "{status}");
        }
        // The same from inside a stream.
        let fault = Fault { status: Some(408), ..Fault::default() };
        let verdict = classify(&Evidence::Fault { fault: &fault, headers: &HeaderMap::new() }, &CONTEXT);
        assert_eq!((verdict.class, verdict.may_have_run), (Class::TransportTransient, true));
    }

    #[test]
    fn a_429_and_its_wait() {
        use Class::*;
        let s = |n| Some(Duration::from_secs(n));
        let none: &[(&'static str, &str)] = &[];
        let used_up: &[(&'static str, &str)] =
            &[("x-ratelimit-reset-requests", "9s"), ("x-ratelimit-remaining-requests", "0")];
        let left: &[(&'static str, &str)] =
            &[("x-ratelimit-reset-requests", "9s"), ("x-ratelimit-remaining-requests", "1")];
        let rows = [
            (none, "", Ambiguous429, None),
            (none, "<html><title>429 Too Many Requests</title></html>", Ambiguous429, None),
            (&[("retry-after", "3")], "", RateLimited, s(3)),
            (&[("retry-after-ms", "3000")], "", RateLimited, s(3)),
            (&[("retry-after", "-3")], "", Ambiguous429, None),
            (&[("retry-after", "3")], "You have no quota left", QuotaExhausted, None),
            (&[("retry-after", "3")], r#"{"error":{"message":"See billing"}}"#, QuotaExhausted, None),
            (used_up, "", RateLimited, s(9)),
            (left, "", Ambiguous429, None),
            (&[("retry-after", "3")], "The engine is overloaded", ProviderOverloaded, s(3)),
            (none, r#"{"error":{"details":[{"retryDelay":"9s"}]}}"#, RateLimited, s(9)),
            (
                &[("retry-after", "3")],
                r#"{"error":{"type":"rate_limit_error","code":"insufficient_quota"}}"#,
                QuotaExhausted,
                None,
            ),
        ];
        for (headers, body, class, retry_after) in rows {
            let verdict = http(429, headers, body);
            assert_eq!(
                (verdict.class, verdict.retry_after, verdict.may_have_run),
                (class, retry_after, false),
                "{headers:?} {body}"
            );
        }
        let lenient = Context { ambiguous_429_is_rate_limit: true, ..CONTEXT };
        let headers = HeaderMap::new();
        for (body, class) in [("", RateLimited), ("billing", QuotaExhausted)] {
            let evidence = Evidence::Http { status: 429, headers: &headers, body: body.as_bytes() };
            assert_eq!(classify(&evidence, &lenient).class, class, "{body}");
        }
    }

    #[test]
    fn reset_headers_matter_for_a_429_only() {
        let headers: &[(&'static str, &str)] =
            &[("x-ratelimit-reset-requests", "9s"), ("x-ratelimit-remaining-requests", "0")];
        for status in [500, 503, 529, 404] {
            assert_eq!(http(status, headers, "").retry_after, None, "{status}");
        }
        for (status, wait) in [(500, Some(2)), (503, Some(2)), (408, Some(2)), (400, None), (403, None), (302, None)] {
            assert_eq!(
                http(status, &[("retry-after", "2")], "").retry_after,
                wait.map(Duration::from_secs),
                "{status}"
            );
        }
    }

    #[test]
    fn what_may_have_run() {
        let overloaded = r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        let loading = r#"{"error":"Model x is currently loading"}"#;
        let rows = [
            (503, overloaded, false),
            (529, overloaded, false),
            (429, overloaded, false),
            (500, overloaded, true),
            (502, overloaded, true),
            (503, "", true),
            (529, "", true),
            (503, "upstream connect error or disconnect/reset before headers", true),
            (503, loading, false),
            (500, "", true),
            (408, "", true),
            (400, "", false),
            (499, "", false),
            (400, r#"{"error":{"code":"tool_use_failed"}}"#, true),
        ];
        for (status, body, want) in rows {
            assert_eq!(http(status, &[], body).may_have_run, want, "{status} {body}");
        }
    }

    #[test]
    fn no_planted_key_comes_out() {
        let planted = format!("sk-{}", "proj-a1B2c3D4".repeat(3));
        let bodies = [
            format!(
                r#"{{"error":{{"message":"Incorrect API key provided: {planted}.","type":"{planted}","code":"{planted}","param":"{planted}"}}}}"#
            ),
            format!(r#"{{"error":{{"message":"m","param":{{"k":"{planted}"}},"code":["{planted}"]}}}}"#),
            format!(r#"{{"error":"{planted}"}}"#),
            format!(r#"{{"detail":[{{"msg":"{planted}","input":"{planted}"}}]}}"#),
            format!(r#"{{"error":{{"message":"m","metadata":{{"raw":"{planted}"}}}}}}"#),
            format!("Unauthorized: {planted}"),
            format!("<html><title>{planted}</title>{planted}</html>"),
            format!("data: {{\"error\":{{\"message\":\"{planted}\"}}}}\n\n"),
            format!("\"{planted}\""),
            format!("{{\"error\":{{\"message\":\"cut {planted}"),
            format!("{}{planted}", "x".repeat(190) + " "),
        ];
        for body in bodies {
            for status in [200, 302, 400, 401, 409, 429, 500, 503] {
                let printed = format!("{:?}", http(status, &[("x-amzn-errortype", &planted)], &body));
                assert!(!printed.contains("a1B2c3D4"), "{status} {body}: {printed}");
            }
        }
        let fault = Fault {
            kind: Some(planted.clone()),
            code: Some(planted.clone()),
            message: Some(format!("Bearer {planted}")),
            status: None,
        };
        let printed =
            format!("{:?}", classify(&Evidence::Fault { fault: &fault, headers: &HeaderMap::new() }, &CONTEXT));
        assert!(!printed.contains("a1B2c3D4"), "{printed}");
    }

    /// Bodies built to make a scanner go back and forth. 1 MiB each, of which 64 KiB are read; a quadratic pass over
    /// 64 KiB takes minutes in a debug build, a linear one milliseconds, so the limit can be wide.
    #[test]
    fn hostile_bodies_take_linear_time() {
        let began = crate::clock::Instant::now();
        http(429, &[], &format!("<script>{}", "<".repeat(1 << 20)));
        for unit in [
            "<",
            "<script>",
            "<a ",
            "[",
            "{\"error\":",
            "http",
            "http://",
            "sk-",
            "=",
            "key: ",
            "/",
            "data:",
            "\n",
            "\u{0}",
            "ü",
        ] {
            let body = unit.repeat((1 << 20) / unit.len());
            for text in [body.clone(), serde_json::json!({ "error": { "message": body } }).to_string()] {
                let fault = Fault { message: Some(body.clone()), ..Fault::default() };
                http(429, &[], &text);
                classify(&Evidence::Fault { fault: &fault, headers: &HeaderMap::new() }, &CONTEXT);
            }
        }
        assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
    }

    proptest::proptest! {
        #[test]
        fn never_panics(status: u16, body in proptest::collection::vec(proptest::num::u8::ANY, 0..200), text in ".{0,100}") {
            let headers: HeaderMap =
                [(http::header::RETRY_AFTER, http::HeaderValue::from_bytes(&body).unwrap_or(http::HeaderValue::from_static("1")))]
                    .into_iter()
                    .collect();
            let json = serde_json::json!({ "error": { "message": text, "code": text, "details": [text] } }).to_string();
            for body in [body.as_slice(), text.as_bytes(), json.as_bytes()] {
                let verdict = classify(&Evidence::Http { status, headers: &headers, body }, &CONTEXT);
                proptest::prop_assert_eq!(verdict.provider_status.is_some(), true);
            }
            let fault = Fault { kind: Some(text.clone()), code: Some(text.clone()), message: Some(text), status: Some(status) };
            classify(&Evidence::Fault { fault: &fault, headers: &headers }, &CONTEXT);
        }
    }
}

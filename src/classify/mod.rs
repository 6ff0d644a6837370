//! One class for each failure, from everything the provider said and not from its status alone (SPEC section 6).
//!
//! In: [`Evidence`] of how an attempt failed. Out: a [`Verdict`]. Pure: status codes, provider words and timers stop here; who
//! reads a verdict never asks for a status again. `words` brings every shape of error into one form, `rules` says what the
//! words mean, `retry_after` how long to wait; this file adds what needs no words (transport, silence, ends) and what may have run.
//! Not here: what is done about a class (the controller), the classes that depend on how far the attempt had come
//! (`deadline_exhausted`, `partial_output`, `side_effect_uncertain`: the controller and the relay), and HTTP of any kind.

#[cfg(test)]
mod doc;
#[cfg(test)]
mod examples;
pub mod limit;
pub mod mask;
mod openai;
#[cfg(test)]
mod recorded;
pub mod retry_after;
mod rules;
#[cfg(test)]
mod tests;
mod words;

use std::time::Duration;

use http::HeaderMap;

pub use crate::class::Class;
use crate::clock::UnixMillis;
use crate::protocol::Dialect;
use crate::protocol::signal::Fault;
use limit::{LimitDimension, limit_dimension};
use retry_after::{asked_wait, wait_hint};
use words::Words;

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
    /// Of a throttle or a used-up quota: which limit it was, where the provider said.
    pub limit: Option<LimitDimension>,
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

impl Said {
    /// Takes a known key out, however little it looks like one: a provider may quote what it was sent.
    pub fn mask_exactly(&mut self, key: &str) {
        if key.is_empty() {
            return;
        }
        let texts = [&mut self.code, &mut self.param].into_iter().filter_map(|value| match value {
            Some(serde_json::Value::String(text)) => Some(text),
            _ => None,
        });
        for text in texts.chain(&mut self.kind).chain(&mut self.message) {
            if text.contains(key) {
                *text = text.replace(key, mask::MASK);
            }
        }
    }
}

/// Judges a failed attempt as one before the boundary; how far it had come is for the caller to add.
///
/// Never fails: what nothing fits is [`Class::Unclassified`]. Takes time linear in the evidence, which is bounded.
#[must_use]
pub fn classify(evidence: &Evidence<'_>, context: &Context) -> Verdict {
    match evidence {
        Evidence::Transport(fault) => of_transport(*fault),
        Evidence::Http { status, headers, body } => with_limit(of_answer(*status, headers, body, context), headers),
        Evidence::Fault { fault, headers } => with_limit(of_fault(fault, headers, context), headers),
        // An empty 200 (`events` = 0) and a body cut before output are one class; both may have been paid for.
        Evidence::Truncated { .. } | Evidence::BodyCut => plain(Class::TransportTransient, true, Some(200)),
        // All of them: timeout before output. That a deadline is used up is for the controller to see.
        Evidence::Silence(_) => plain(Class::TransportTransient, true, None),
        // "The answer came and breaks the contract": what breaks framing or shape once does so again at this provider, so
        // another provider's turn, not this one's.
        Evidence::BadFraming | Evidence::BadAnswer => plain(Class::ContractFailure, true, Some(200)),
    }
}

/// Which limit it was, where a limit it was.
fn with_limit(verdict: Verdict, headers: &HeaderMap) -> Verdict {
    let limited = matches!(verdict.class, Class::RateLimited | Class::QuotaExhausted | Class::Ambiguous429);
    let limit = if limited { limit_dimension(headers, &verdict.said) } else { None };
    Verdict { limit, ..verdict }
}

/// A verdict without words of the provider.
fn plain(class: Class, may_have_run: bool, provider_status: Option<u16>) -> Verdict {
    Verdict {
        class,
        may_have_run,
        retry_after: None,
        provider_status,
        said: Said::default(),
        alarm: false,
        limit: None,
    }
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
        (Some(class), _) => rules::overruled(status, class),
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

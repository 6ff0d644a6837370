//! What all changes have in common: a small body with a reason, a precondition, the control store, and what its refusals are
//! called over HTTP.

use std::time::Duration;

use axum::body::Body;
use http::header::IF_MATCH;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Deserialize;
use tokio::time::timeout;

use crate::clock::UnixMillis;
use crate::control::record::Subject;
use crate::control::table::{self, Precondition};
use crate::control::{Done, Refused};
use crate::relay::app::App;
use crate::relay::transport::Transport;

use super::answer::Problem;
use super::auth::Operator;

/// A body of the admin side: a reason and a name.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// How long it may take to come.
const BODY_MAX: Duration = Duration::from_secs(10);

/// A reason is for people who read the journal.
const REASON_CHARS_MAX: usize = 500;

/// The body of a change. Unknown members are refused: with `workflow` misspelt, failover of all would be switched.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    reason: Option<String>,
    workflow: Option<String>,
}

/// A change that somebody asks for, read and checked.
#[derive(Debug)]
pub(super) struct Asked {
    by: String,
    reason: String,
    pub(super) workflow: Option<String>,
    stop: bool,
    precondition: Precondition,
}

impl Asked {
    /// Reads it; `stop`: to switch off, which may be done whatever the version.
    pub(super) async fn read(request: Request<Body>, stop: bool) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let operator = parts.extensions.get::<Operator>().cloned();
        // The guard puts it there.
        let operator = operator.ok_or_else(|| Problem::new(401, "missing_token", "No operator."))?;
        let body = read_body(body, parts.extensions.get(), BODY_BYTES_MAX).await?;
        let precondition = precondition(&parts.headers, stop)?;
        let said: Said = serde_json::from_slice(&body).map_err(|error| {
            let message = format!("The body must be a JSON object with a \"reason\": {error}.");
            Problem::new(400, "invalid_body", message)
        })?;
        let reason = reason(said.reason.as_deref().unwrap_or_default())?;
        Ok(Self { by: operator.name, reason, workflow: said.workflow, stop, precondition })
    }

    /// Does it.
    pub(super) async fn make(self, app: &App, subject: Subject) -> Result<Done, Problem> {
        let request = table::Request {
            subject,
            stop: self.stop,
            by: self.by,
            reason: self.reason,
            precondition: self.precondition,
            now: UnixMillis::now(),
        };
        app.control.change(request).await.map_err(|refused| match refused {
            Refused::Mismatch { version } => {
                let message = format!("Somebody was faster: the version is {version}. Look again before you decide.");
                Problem::new(412, "version_mismatch", message).version(version)
            }
            Refused::NotSaved { effective } => {
                let message = if effective {
                    "It counts from now on, but could not be saved yet: if the relay restarts before it can be, it is forgotten."
                } else {
                    "It could not be saved, so nothing was switched on. If the disk only hangs, it may still come into effect."
                };
                Problem::store_unavailable(message).with("effective", effective)
            }
        })
    }
}

/// The whole body, of at most `max` bytes.
pub(super) async fn read_body(body: Body, transport: Option<&Transport>, max: usize) -> Result<bytes::Bytes, Problem> {
    match timeout(BODY_MAX, Limited::new(body, max).collect()).await {
        Err(_) => Err(Problem::new(408, "request_timeout", "The request body stopped coming.")),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Problem::new(413, "request_too_large", format!("The request body is over {max} bytes.")))
        }
        Ok(Err(_)) => Err(Problem::new(400, "body_broken", "The request body broke off.")),
        Ok(Ok(body)) => {
            if let Some(transport) = transport {
                transport.body_read();
            }
            Ok(body.to_bytes())
        }
    }
}

/// `If-Match`: a version, quoted or not; `*` where switching off must not fail for having looked too long ago.
fn precondition(headers: &HeaderMap, stop: bool) -> Result<Precondition, Problem> {
    let mut values = headers.get_all(IF_MATCH).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        let star = if stop { ", or `*` for whatever version" } else { "" };
        let message = format!("Send If-Match once, with the version that you saw (its ETag){star}.");
        return Err(Problem::new(428, "precondition_required", message));
    };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        let message = "`*` is for kill and disable; to switch on again, send the version that you saw.";
        let refused = || Problem::new(428, "precondition_required", message);
        return stop.then_some(Precondition::Any).ok_or_else(refused);
    }
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let number = bare.bytes().all(|byte| byte.is_ascii_digit()).then(|| bare.parse().ok()).flatten();
    let refused =
        || Problem::new(412, "version_mismatch", "If-Match is no version of this: send the number in its ETag.");
    number.map(Precondition::Version).ok_or_else(refused)
}

fn reason(text: &str) -> Result<String, Problem> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Problem::new(400, "reason_missing", "Say why: the journal keeps it. {\"reason\": \"…\"}"));
    }
    if text.chars().count() > REASON_CHARS_MAX {
        let message = format!("A reason is at most {REASON_CHARS_MAX} characters.");
        return Err(Problem::new(400, "reason_invalid", message));
    }
    if text.chars().any(char::is_control) {
        return Err(Problem::new(400, "reason_invalid", "A reason is one line, without control characters."));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preconditions() {
        let read = |values: &[&'static str], stop| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IF_MATCH, http::HeaderValue::from_static(value));
            }
            precondition(&headers, stop)
        };
        for stop in [true, false] {
            for text in ["\"3\"", "3", " 3 "] {
                assert_eq!(read(&[text], stop).expect(text), Precondition::Version(3));
            }
            for bad in ["", "W/\"3\"", "\"3", "x", "-1", "+3", "99999999999999999999", "\"3\", \"4\""] {
                assert!(read(&[bad], stop).is_err(), "{bad}");
            }
            assert!(read(&[], stop).is_err() && read(&["3", "4"], stop).is_err());
        }
        assert_eq!(read(&["*"], true).expect("any"), Precondition::Any);
        assert!(read(&["*"], false).is_err());
    }

    #[test]
    fn reasons_are_one_bounded_line() {
        assert_eq!(reason("  why  ").expect("good"), "why");
        assert!(reason(&"é".repeat(500)).is_ok());
        for bad in ["", "   ", "a\nb", "a\u{1b}[31m", &"x".repeat(501)] {
            assert!(reason(bad).is_err(), "{bad:?}");
        }
    }
}

//! What all changes have in common: a small body with a reason, a precondition, the control store, and what its refusals are
//! called over HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::header::IF_MATCH;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::Value;
use tokio::time::timeout;

use crate::clock::UnixMillis;
use crate::control::record::Subject;
use crate::control::table::{self, Precondition};
use crate::control::{Done, Refused};
use crate::relay::app::App;
use crate::relay::members::{NoMembers, members};
use crate::relay::secrets::masked;
use crate::relay::transport::Transport;

use super::answer::Problem;
use super::auth::Operator;
use super::mirror::Mirror;

/// A body of the admin side: a reason and a name.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// How long it may take to come.
const BODY_MAX: Duration = Duration::from_secs(10);

/// A reason is for people who read the journal.
const REASON_CHARS_MAX: usize = 500;

/// A change that somebody asks for, read and checked.
#[derive(Debug)]
pub(super) struct Asked {
    by: String,
    reason: String,
    pub(super) workflow: Option<String>,
    stop: bool,
    precondition: Precondition,
    mirror: Option<Mirror>,
}

impl Asked {
    /// Reads it; `stop`: to switch off, which may be done whatever the version.
    pub(super) async fn read(request: Request<Body>, stop: bool, app: &App) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let operator = parts.extensions.get::<Operator>().cloned();
        // The guard puts it there.
        let operator = operator.ok_or_else(|| Problem::new(401, "missing_token", "No operator."))?;
        let body = read_body(body, parts.extensions.get(), BODY_BYTES_MAX).await?;
        let precondition = precondition(&parts.headers, stop)?;
        let (said, workflow) = said(&body)?;
        // The journal keeps it for ever, and everybody who may look reads it.
        let reason = masked(&app.current().settings, &reason(&said)?);
        let mirror = parts.extensions.get::<Mirror>().cloned();
        Ok(Self { by: operator.name, reason, workflow, stop, precondition, mirror })
    }

    /// Does it; the ledger's journal hears of it when it is done.
    pub(super) async fn make(self, app: &Arc<App>, subject: Subject) -> Result<Done, Problem> {
        let request = table::Request {
            subject,
            stop: self.stop,
            by: self.by,
            reason: self.reason,
            precondition: self.precondition,
            now: UnixMillis::now(),
        };
        let done = app.control.change(request).await;
        if let (Some(mirror), true) = (&self.mirror, done.as_ref().is_ok_and(|done| done.changed)) {
            mirror.follow(app).await;
        }
        done.map_err(|refused| match refused {
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

/// Reason and workflow of a body. Unknown members are refused: with `workflow` misspelt, failover of all would be switched.
fn said(body: &[u8]) -> Result<(String, Option<String>), Problem> {
    let invalid = |message: String| Problem::new(400, "invalid_body", message);
    let members = members(body).map_err(|no| match no {
        NoMembers::NotAnObject => invalid("The body must be one JSON object: {\"reason\": \"…\"}.".to_owned()),
        NoMembers::Twice(name) => invalid(format!("The member {name:?} stands in the body twice.")),
    })?;
    let (mut reason, mut workflow) = (None, None);
    for (name, value) in members {
        let place = match name.as_str() {
            "reason" => &mut reason,
            "workflow" => &mut workflow,
            _ => {
                return Err(invalid(
                    "The body has a \"reason\" and, for failover, a \"workflow\"; nothing else.".to_owned(),
                ));
            }
        };
        *place = match value {
            Value::Null => None,
            Value::String(text) => Some(text),
            _ => return Err(invalid(format!("The member {name:?} must be a text."))),
        };
    }
    Ok((reason.unwrap_or_default(), workflow))
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
        let message = "`*` is for kill and disable only; here send the version that you saw.";
        let refused = || Problem::new(428, "precondition_required", message);
        return stop.then_some(Precondition::Any).ok_or_else(refused);
    }
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    // One spelling only: an ETag is compared, not calculated with.
    let number = bare.parse().ok().filter(|number: &u64| number.to_string() == bare);
    let refused =
        || Problem::new(412, "version_mismatch", "If-Match is no version of this: send the number in its ETag.");
    number.map(Precondition::Version).ok_or_else(refused)
}

/// `If-Match` of an execution: the version that was seen, and nothing else.
pub(super) fn version(headers: &HeaderMap) -> Result<u64, Problem> {
    match precondition(headers, false)? {
        Precondition::Version(version) => Ok(version),
        Precondition::Any => Err(Problem::new(428, "precondition_required", "Send the version that you saw.")),
    }
}

/// Why somebody does it.
pub(super) fn reason(text: &str) -> Result<String, Problem> {
    if text.trim().is_empty() {
        return Err(Problem::new(400, "reason_missing", "Say why: the journal keeps it. {\"reason\": \"…\"}"));
    }
    line(text, "invalid_reason")
}

/// One line for people, bounded.
pub(super) fn line(text: &str, code: &'static str) -> Result<String, Problem> {
    let text = text.trim();
    let invalid = |message: String| Problem::new(400, code, message);
    if text.chars().count() > REASON_CHARS_MAX {
        return Err(invalid(format!("It is at most {REASON_CHARS_MAX} characters.")));
    }
    if text.chars().any(turns_or_breaks) {
        return Err(invalid("It is one line, without control characters and marks of direction.".to_owned()));
    }
    if text.chars().all(is_unseen) {
        return Err(invalid("It is something that can be seen.".to_owned()));
    }
    Ok(text.to_owned())
}

/// Breaks a line, or makes what follows look like something else: controls, line and paragraph separators, marks of direction.
fn turns_or_breaks(c: char) -> bool {
    let bidi = ['\u{61c}', '\u{200e}', '\u{200f}'];
    c.is_control()
        || bidi.contains(&c)
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Shows nothing: spaces, and what has no width of its own or only looks empty.
fn is_unseen(c: char) -> bool {
    let blank =
        ['\u{ad}', '\u{34f}', '\u{115f}', '\u{1160}', '\u{180e}', '\u{2800}', '\u{3164}', '\u{feff}', '\u{ffa0}'];
    c.is_whitespace()
        || blank.contains(&c)
        || matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{fe00}'..='\u{fe0f}')
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
        assert!(reason("نمی\u{200c}خواهم").is_ok(), "a joiner between letters is spelling");
        let bad =
            ["", "   ", "a\nb", "a\u{1b}[31m", &"x".repeat(501), "\u{200b}\u{200d}", "\u{feff}", "\u{2800} \u{3164}"];
        for bad in
            bad.into_iter().chain(["a\u{202e}b", "a\u{2066}b", "a\u{200f}", "a\u{2028}b", "\u{e0041}x", "a\u{85}b"])
        {
            assert!(reason(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn bodies_are_one_object_of_known_members_each_once() {
        assert_eq!(
            said(b"{\"reason\":\"x\",\"workflow\":\"w\"}").expect("good"),
            ("x".to_owned(), Some("w".to_owned()))
        );
        assert_eq!(said(b"{\"reason\":null}").expect("none"), (String::new(), None));
        for bad in ["[\"x\",null]", "{\"reason\":\"x\",\"reason\":\"y\"}", "{\"reason\":[]}", "{\"x\":1}", "\"x\"", ""]
        {
            let message = format!("{:?}", said(bad.as_bytes()).expect_err(bad));
            assert!(!message.contains("struct") && !message.contains("Said"), "{message}");
        }
    }
}

//! What the scripted provider answers: the types of a script and their JSON form.
//!
//! In goes a JSON document (or values made in Rust by [`canned`](super::canned)), out comes a [`Script`]. A script is a list
//! of rules; the first rule that fits a request answers it with its next answer, and an answer is a list of small steps.
//! Steps and not named faults, because the interesting failures are combinations: a status, half an event, then silence.
//!
//! Unknown members are refused: a misspelt step would otherwise be a test that proves nothing. Values that can be judged
//! alone (a status, a header, a count) are judged here while parsing, so that serde_json knows their line; what needs more
//! than one value, or a file, is judged in [`prepare`](super::prepare).
//!
//! Not here: files and sockets.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Most repetitions of one `repeat`: at ten bytes an event that is already 10 MB; a mistyped count shall not fill a disk.
pub const REPEAT_TIMES_MAX: u32 = 1_000_000;

/// Everything one mock provider does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Where to listen; port 0 lets the system choose. Default `127.0.0.1:0`.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// In order; the first that fits a request answers it.
    pub rules: Vec<Rule>,
    /// What relative paths in `file` and `recording` are relative to; empty: the working directory.
    #[serde(skip)]
    pub base_dir: PathBuf,
    /// The text this was parsed from, to find lines for problems that are seen after parsing.
    #[serde(skip)]
    pub(super) source: Option<Source>,
}

/// The script's text and the name to report it under.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) file: String,
    pub(super) text: String,
}

/// Which requests, and what they get.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name in the counters; unique.
    pub name: String,
    /// The request's path without its query, exactly; absent: any.
    #[serde(default)]
    pub path: Option<String>,
    /// The top-level `model` of the request's JSON body; absent: any.
    #[serde(default)]
    pub model: Option<String>,
    /// The k-th call gets the k-th; the last repeats. At least one.
    pub answers: Vec<Answer>,
}

/// One answer: steps, carried out in order. Falling off the end ends the body properly and keeps the connection.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Answer {
    /// The steps.
    pub steps: Vec<Step>,
}

/// One step of an answer: in JSON an object with one member.
///
/// A step that writes body bytes before any head sends `200` with `content-type: text/event-stream`, chunked, first
/// (`json`: `application/json` with a content-length).
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Status line and headers.
    Head(Head),
    /// One SSE event.
    Event(Event),
    /// These bytes as they are.
    Text(String),
    /// A whole JSON body, compact, members in the order of the script.
    Json(JsonText),
    /// The bytes of a file.
    File(PathBuf),
    /// Status, headers and body of a recording: status line, header lines and an empty line, all with LF, then the body.
    Recording(PathBuf),
    /// A complete answer in a provider's format, streaming or not as the request's own `stream` member asks.
    Auto(Auto),
    /// A pause in milliseconds.
    DelayMs(u64),
    /// What follows is written in pieces of so many body bytes, each its own write (and chunk); 0 ends that.
    Split(usize),
    /// Waits until this gate is opened by one permit.
    Gate(String),
    /// Silence on an open connection until the peer leaves.
    #[serde(deserialize_with = "only_true")]
    Hang,
    /// Ends the connection here.
    Abort(Abort),
    /// Steps again and again.
    Repeat(Repeat),
    /// Closes the connection without a byte of an answer.
    #[serde(deserialize_with = "only_true")]
    CloseBeforeHead,
    /// Half a response head. Later body steps write raw bytes behind it; the end of the answer closes the connection.
    #[serde(deserialize_with = "only_true")]
    HalfHead,
}

/// A response head. An informational status (100–199) is sent as it is; the real head is still to come.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// 100–999; default 200.
    #[serde(default = "default_status", deserialize_with = "status")]
    pub status: u16,
    /// Sent in this order, as written.
    #[serde(default)]
    pub headers: Headers,
    /// Sends `content-length` in place of chunks: bytes. A body that turns out shorter or longer is sent as it is, and the
    /// connection is closed after it.
    #[serde(default)]
    pub length: Option<u64>,
    /// Neither chunks nor a length: the body ends with the connection (as HTTP/1.0 did).
    #[serde(default)]
    pub until_close: bool,
    /// The reason phrase; `None`: the usual one. Recordings keep theirs.
    #[serde(skip)]
    pub reason: Option<String>,
}

/// Header lines in order; a name may come more than once.
#[derive(Clone, Debug, Default)]
pub struct Headers(pub Vec<(String, String)>);

/// One SSE event.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The `event:` line, if any.
    #[serde(default)]
    pub name: Option<String>,
    /// A string is sent as it is (a `data:` line for each of its lines), any other JSON compact.
    #[serde(deserialize_with = "event_data")]
    pub data: String,
}

/// JSON as text: compact, its members in the order they were written (a `serde_json::Value` would sort them).
#[derive(Clone, Debug)]
pub struct JsonText(pub String);

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Abort {
    /// A close in order, but without the body's end (no final chunk).
    Fin,
    /// A reset; bytes that the kernel has not delivered yet may be lost with it.
    Rst,
}

/// Steps again and again.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// How often, up to [`REPEAT_TIMES_MAX`].
    #[serde(deserialize_with = "times")]
    pub times: u32,
    /// What.
    pub steps: Vec<Step>,
}

/// A complete answer in a provider's format.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auto {
    /// Whose format.
    pub dialect: AutoDialect,
    /// Pieces of text, one delta each.
    #[serde(default)]
    pub text: Vec<String>,
    /// A tool call after the text.
    #[serde(default)]
    pub tool: Option<AutoTool>,
    /// A pause before each piece of a streaming answer, in milliseconds.
    #[serde(default)]
    pub pace_ms: u64,
}

/// A tool call of an [`Auto`] answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoTool {
    /// The tool's name.
    pub name: String,
    /// Its JSON arguments in pieces, one delta each.
    pub arguments: Vec<String>,
}

/// The format of an [`Auto`] answer. The short names are for scripts written by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AutoDialect {
    /// `chat-completions` or `chat`.
    #[serde(alias = "chat")]
    ChatCompletions,
    /// `anthropic-messages` or `anthropic`.
    #[serde(alias = "anthropic")]
    AnthropicMessages,
    /// `responses`.
    Responses,
}

impl Default for Script {
    fn default() -> Self {
        Self { listen: default_listen(), rules: Vec::new(), base_dir: PathBuf::new(), source: None }
    }
}

impl Default for Head {
    fn default() -> Self {
        Self { status: 200, headers: Headers::default(), length: None, until_close: false, reason: None }
    }
}

impl JsonText {
    /// Takes JSON text and drops the white space between its tokens.
    pub(super) fn compact(json: &str) -> Self {
        let mut out = String::with_capacity(json.len());
        let (mut in_string, mut escaped) = (false, false);
        for c in json.chars() {
            if in_string {
                in_string = escaped || c != '"';
                escaped = !escaped && c == '\\';
            } else if c.is_ascii_whitespace() {
                continue;
            } else {
                in_string = c == '"';
            }
            out.push(c);
        }
        Self(out)
    }
}

impl From<serde_json::Value> for JsonText {
    fn from(value: serde_json::Value) -> Self {
        Self(value.to_string())
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Self::compact(Box::<RawValue>::deserialize(d)?.get()))
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of header names and string values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut lines = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    check_header(&name, &value).map_err(de::Error::custom)?;
                    lines.push((name, value));
                }
                Ok(Headers(lines))
            }
        }

        d.deserialize_map(InOrder)
    }
}

/// A header line that can be sent, and that does not contradict the framing the mock chooses.
pub(super) fn check_header(name: &str, value: &str) -> Result<(), String> {
    if name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding") {
        return Err(format!("`{name}` is set by the mock; use `length` or `until_close` of the head"));
    }
    if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        return Err(format!("`{name}` is not a header name"));
    }
    if http::HeaderValue::from_bytes(value.as_bytes()).is_err() {
        return Err(format!("the value of header `{name}` holds a control character"));
    }
    Ok(())
}

fn default_listen() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn default_status() -> u16 {
    200
}

fn status<'de, D: Deserializer<'de>>(d: D) -> Result<u16, D::Error> {
    let status = u16::deserialize(d)?;
    if (100..=999).contains(&status) && status != 101 {
        Ok(status)
    } else {
        Err(de::Error::custom(format!("status {status} is not one of 100–999 without 101")))
    }
}

fn times<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    let times = u32::deserialize(d)?;
    if times <= REPEAT_TIMES_MAX {
        Ok(times)
    } else {
        Err(de::Error::custom(format!("`times` is {times}; at most {REPEAT_TIMES_MAX}")))
    }
}

fn only_true<'de, D: Deserializer<'de>>(d: D) -> Result<(), D::Error> {
    if bool::deserialize(d)? {
        Ok(())
    } else {
        Err(de::Error::custom("only `true` makes sense here; leave the step out"))
    }
}

fn event_data<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    let raw = Box::<RawValue>::deserialize(d)?;
    if raw.get().starts_with('"') {
        serde_json::from_str(raw.get()).map_err(de::Error::custom)
    } else {
        Ok(JsonText::compact(raw.get()).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(json: &str) -> Result<Vec<Step>, String> {
        serde_json::from_str::<Answer>(json).map(|a| a.steps).map_err(|e| e.to_string())
    }

    #[test]
    fn json_keeps_its_member_order_and_loses_its_white_space() {
        for (given, kept) in [
            (r#"{ "z" : 1, "a" : [ 1 , 2 ] }"#, r#"{"z":1,"a":[1,2]}"#),
            (r#""a \" b \\" "#, r#""a \" b \\""#),
            (r#"{"a\\": " x "}"#, r#"{"a\\":" x "}"#),
            ("{\n  \"t\": \"ä \u{2028}\"\n}", "{\"t\":\"ä \u{2028}\"}"),
        ] {
            assert_eq!(JsonText::compact(given).0, kept, "{given}");
        }
    }

    #[test]
    fn an_events_data_is_text_or_json() {
        let parsed = steps(r#"[{"event": {"data": "[DONE]"}}, {"event": {"name": "n", "data": {"b": 1, "a": "x"}}}]"#);
        let parsed = parsed.expect("both forms are legal");
        let Step::Event(done) = &parsed[0] else { panic!("{parsed:?}") };
        let Step::Event(named) = &parsed[1] else { panic!("{parsed:?}") };
        assert_eq!((done.name.as_deref(), done.data.as_str()), (None, "[DONE]"));
        assert_eq!((named.name.as_deref(), named.data.as_str()), (Some("n"), r#"{"b":1,"a":"x"}"#));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_place() {
        for (json, says) in [
            (r#"[{"delay": 1}]"#, "unknown variant `delay`"),
            (r#"[{"head": {"stat": 200}}]"#, "unknown field `stat`"),
            (r#"[{"head": {"status": 99}}]"#, "status 99"),
            (r#"[{"head": {"status": 101}}]"#, "status 101"),
            (r#"[{"head": {"headers": {"a b": "c"}}}]"#, "`a b` is not a header name"),
            (r#"[{"head": {"headers": {"a": "c\r\nd"}}}]"#, "control character"),
            (r#"[{"head": {"headers": {"Content-Length": "3"}}}]"#, "use `length`"),
            (r#"[{"hang": false}]"#, "only `true`"),
            (r#"[{"abort": "syn"}]"#, "unknown variant `syn`"),
            (r#"[{"repeat": {"times": 1000001, "steps": []}}]"#, "at most 1000000"),
            (r#"[{"auto": {"dialect": "gemini"}}]"#, "unknown variant `gemini`"),
            (r#"[{"delay_ms": 1, "text": "x"}]"#, "line 1 column"),
            (r#"[{"event": {"name": "x"}}]"#, "missing field `data`"),
        ] {
            let error = steps(json).expect_err(json);
            assert!(error.contains(says) && error.contains("line 1"), "{json}: {error}");
        }
    }
}

//! What the operators' subcommands share: where the admin side is, the token, one request and its answer, and how both are
//! told.
//!
//! The relay's own HTTP client: no redirects, no hidden repetition. A token goes in clear to loopback only.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, HeaderValue, IF_MATCH};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::{Value, json};

use crate::config::outside;
use crate::config::secret::Secret;
use crate::relay::auth::is_loopback_name;
use crate::upstream::{Upstream, connect};

/// How long connecting may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long the whole answer may take: the relay itself waits 10 s for its disk.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// How long an answer may take for which the relay walks along its whole ledger: a million records take some seconds.
const SLOW_MAX: Duration = Duration::from_secs(600);

/// The largest answer that is read: an execution's result may have 8 MiB, twice that as base64 beside its evidence; a page of 1000
/// entries is far below.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Exit code of wrong usage, as clap's.
const USAGE: u8 = 2;

/// What `--help` of each says at its end.
pub(super) const CODES: &str = "\
The token is an operator's ([[operator]] in the config). It is sent over plain http to loopback only.

Exit codes: 0 done (or it stood so already), 1 the relay refused, could not save it or was not
reached, 2 wrong usage.";

/// Where and as whom.
#[derive(Debug, Args)]
pub struct Connect {
    /// The admin side [default: what --config says, else http://127.0.0.1:8081]
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub url: Option<String>,
    /// The relay's config file, for the admin side's address
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The operator's token: env:NAME or file:PATH
    #[arg(long, value_name = "REF", default_value = "env:RUBICON_TOKEN")]
    pub token: String,
    /// Print the relay's JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was called wrongly.
    Usage(String),
    /// It was tried.
    Problem {
        /// For people.
        message: String,
        /// The relay's answer, if there is one.
        answer: Option<Value>,
    },
}

impl Failure {
    pub(super) fn problem(message: impl Into<String>) -> Self {
        Self::Problem { message: message.into(), answer: None }
    }
}

/// An answer of 200.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) body: Value,
    pub(super) etag: Option<HeaderValue>,
}

/// A client of one admin side.
#[derive(Debug)]
pub(super) struct Client {
    base: Uri,
    token: Secret,
    upstream: Upstream,
}

impl Client {
    /// Reads where and as whom.
    pub(super) fn new(connect: &Connect) -> Result<Self, Failure> {
        let base = base(connect)?;
        let token = outside::secret(&connect.token, &super::environment);
        let token = token.map_err(|why| Failure::Usage(format!("--token: {why}")))?;
        let tls = connect::tls_config().map_err(Failure::problem)?;
        Ok(Self { base, token, upstream: Upstream::new(&tls, CONNECT_MAX) })
    }

    /// Asks.
    pub(super) async fn get(&self, path: &str) -> Result<Answered, Failure> {
        self.send(Method::GET, path, None, Bytes::new()).await
    }

    /// Asks for what takes its time.
    pub(super) async fn get_slow(&self, path: &str) -> Result<Answered, Failure> {
        self.send_within(Method::GET, path, None, Bytes::new(), SLOW_MAX).await
    }

    /// Asks with a body.
    pub(super) async fn get_with(&self, path: &str, body: Bytes) -> Result<Answered, Failure> {
        self.send(Method::GET, path, None, body).await
    }

    /// Changes something.
    pub(super) async fn post(&self, path: &str, matches: HeaderValue, body: &Value) -> Result<Answered, Failure> {
        self.post_raw(path, matches, body.to_string()).await
    }

    /// The same with a body as it is.
    pub(super) async fn post_raw(&self, path: &str, matches: HeaderValue, body: String) -> Result<Answered, Failure> {
        self.send(Method::POST, path, Some(matches), Bytes::from(body)).await
    }

    /// Changes what has no version.
    pub(super) async fn post_unversioned(&self, path: &str, body: String) -> Result<Answered, Failure> {
        self.send(Method::POST, path, None, Bytes::from(body)).await
    }

    /// Asks for bytes of any length; the answer's head is there, its body is read by whoever asked.
    pub(super) async fn download(&self, path: &str) -> Result<http::Response<hyper::body::Incoming>, Failure> {
        let at = self.base.to_string();
        let request = self.request(Method::GET, path, None, Bytes::new())?;
        let slow = || Failure::problem(format!("{at} did not answer within {} s", SLOW_MAX.as_secs()));
        let response = tokio::time::timeout(SLOW_MAX, self.reached(&at, request)).await.map_err(|_| slow())??;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(match read(&at, response).await {
            Ok(_) => Failure::problem(format!("{at} answered something else")),
            Err(failure) => failure,
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        matches: Option<HeaderValue>,
        body: Bytes,
    ) -> Result<Answered, Failure> {
        self.send_within(method, path, matches, body, ANSWER_MAX).await
    }

    async fn send_within(
        &self,
        method: Method,
        path: &str,
        matches: Option<HeaderValue>,
        body: Bytes,
        max: Duration,
    ) -> Result<Answered, Failure> {
        let at = self.base.to_string();
        let request = self.request(method, path, matches, body)?;
        let slow = || Failure::problem(format!("{at} did not answer within {} s", max.as_secs()));
        let answer = async { read(&at, self.reached(&at, request).await?).await };
        tokio::time::timeout(max, answer).await.map_err(|_| slow())?
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        matches: Option<HeaderValue>,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let at = self.base.to_string();
        let uri = format!("{}{path}", at.trim_end_matches('/'));
        let host = self.base.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(HOST, host)
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, format!("Bearer {}", self.token.expose()));
        if let Some(matches) = matches {
            request = request.header(IF_MATCH, matches);
        }
        // Not the error's own words: they may show what was in a header.
        let built = request.body(Full::new(body));
        built.map_err(|_| Failure::Usage("this makes no HTTP request".to_owned()))
    }

    async fn reached(
        &self,
        at: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<http::Response<hyper::body::Incoming>, Failure> {
        self.upstream.send(request).await.map_err(|fault| {
            Failure::problem(format!("{at} was not reached ({fault:?}): is the relay running, with an [[operator]]?"))
        })
    }
}

/// The whole answer; one that is no success is a failure with the relay's words.
async fn read(at: &str, response: http::Response<hyper::body::Incoming>) -> Result<Answered, Failure> {
    let (head, body) = response.into_parts();
    let read = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let bytes = read.map_err(|_| Failure::problem(format!("{at} broke off its answer")))?.to_bytes();
    let not_ours = || Failure::problem(format!("{at} answered {} without JSON: no admin side", head.status));
    let body: Value = serde_json::from_slice(&bytes).map_err(|_| not_ours())?;
    if head.status.is_success() {
        return Ok(Answered { body, etag: head.headers.get(ETAG).cloned() });
    }
    let error = body.get("error");
    let part = |name| error.and_then(|error| error.get(name)).and_then(Value::as_str).unwrap_or("?");
    let message = format!("{} [{}]", part("message"), part("code"));
    Err(Failure::Problem { message, answer: Some(body) })
}

fn base(connect: &Connect) -> Result<Uri, Failure> {
    let text = match (&connect.url, &connect.config) {
        (Some(url), _) => url.clone(),
        (None, Some(config)) => format!("http://{}", outside::admin_listen(config).map_err(Failure::problem)?),
        (None, None) => "http://127.0.0.1:8081".to_owned(),
    };
    let wrong = || Failure::Usage("--url: expects http://HOST:PORT or https://HOST".to_owned());
    let base: Uri = text.parse().map_err(|_| wrong())?;
    let (scheme, authority) = (base.scheme_str(), base.authority());
    let Some(authority) = authority.filter(|authority| !authority.as_str().contains('@')) else { return Err(wrong()) };
    match scheme {
        Some("https") => Ok(base),
        Some("http") if is_loopback_name(authority.host()) => Ok(base),
        Some("http") => {
            let message = "--url: a token is not sent over plain http beyond loopback; put TLS in front (https://…)";
            Err(Failure::Usage(message.to_owned()))
        }
        _ => Err(wrong()),
    }
}

/// Prints the outcome and gives the exit code. `human` writes an answer for people.
pub(super) fn told(
    command: &str,
    as_json: bool,
    outcome: Result<Value, Failure>,
    human: impl FnOnce(&Value) -> String,
) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let (code, written) = match outcome {
        Ok(body) if as_json => (ExitCode::SUCCESS, writeln!(out, "{body}")),
        Ok(body) => (ExitCode::SUCCESS, write!(out, "{}", human(&body))),
        Err(Failure::Usage(message)) => {
            crate::telemetry::say(&format!("rubicon {command}: {}", printable(&message)));
            (ExitCode::from(USAGE), Ok(()))
        }
        Err(Failure::Problem { message, answer }) => {
            crate::telemetry::say(&format!("rubicon {command}: {}", printable(&message)));
            let answer = answer.unwrap_or_else(|| json!({ "error": { "code": "not_reached", "message": message } }));
            (ExitCode::FAILURE, if as_json { writeln!(out, "{answer}") } else { Ok(()) })
        }
    };
    match written.and_then(|()| out.flush()) {
        Ok(()) => code,
        // A reader that went away changes nothing about what was done.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => code,
        Err(error) => {
            crate::telemetry::say(&format!("rubicon {command}: the output could not be written: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// A message with names and paths of others in it, fit for a terminal.
fn printable(message: &str) -> String {
    let one = |c: char| if c.is_control() && c != '\n' { c.escape_unicode().to_string() } else { c.to_string() };
    message.chars().map(one).collect()
}

/// Text of a member; empty when it is null or absent.
pub(super) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a member is `true`.
pub(super) fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or_default()
}

/// A member's milliseconds as a date with its time, UTC; empty when it is null.
pub(super) fn since(value: &Value) -> String {
    let Some(millis) = value.get("since").and_then(Value::as_i64) else { return String::new() };
    jiff::Timestamp::from_millisecond(millis / 1000 * 1000).map(|at| at.to_string()).unwrap_or_default()
}

/// ` by ana since 2026-11-30T10:00:00Z: reason`, as far as it is known, and a warning where it would not survive a restart.
pub(super) fn who(value: &Value) -> String {
    let mut line = String::new();
    if !text(value, "by").is_empty() {
        line = format!(" by {} since {}: {}", text(value, "by"), since(value), text(value, "reason"));
    }
    if value.get("saved").and_then(Value::as_bool) == Some(false) {
        line.push_str(" (NOT SAVED: forgotten at a restart)");
    }
    line
}

/// Columns side by side, as wide as they must be; the last one as it is.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut lines = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        lines.push_str(line.trim_end());
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(url: &str) -> Connect {
        Connect { url: Some(url.to_owned()), config: None, token: String::new(), json: false }
    }

    #[test]
    fn a_token_goes_in_clear_to_loopback_only() {
        for good in ["http://127.0.0.1:8081", "http://localhost:1", "http://[::1]:8081", "https://admin.example.test"] {
            assert!(base(&connect(good)).is_ok(), "{good}");
        }
        for bad in [
            "http://admin.example.test",
            "http://10.0.0.1:8081",
            "127.0.0.1:8081",
            "ftp://localhost",
            "http://a@localhost",
        ] {
            assert!(matches!(base(&connect(bad)), Err(Failure::Usage(_))), "{bad}");
        }
    }

    #[test]
    fn tables_are_aligned() {
        let rows = [vec!["ROUTE".to_owned(), "STATE".to_owned()], vec!["a".to_owned(), "killed".to_owned()]];
        assert_eq!(table(&rows), "ROUTE  STATE\na      killed\n");
    }
}

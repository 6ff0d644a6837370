//! `[tool.NAME]`: what the ledger and the relay know of a tool.

use std::sync::Arc;
use std::time::Duration;

use rubicon_ledger::{Outcome, Pointer, ToolRule};

use crate::accept::schema::Schema;

use super::super::secret::Secret;

/// `[tool.NAME]`.
#[derive(Debug)]
pub struct ToolSettings {
    /// Name, effect, impact, `key_fields`, `ignore_fields`, `max_runs`, `similar`, `approval`, owner: what the ledger decides by.
    pub rule: Arc<ToolRule>,
    /// `schema`: arguments are checked against it before anything is claimed.
    pub schema: Option<Arc<serde_json::Value>>,
    /// The same, compiled when the config was loaded.
    pub checker: Option<Arc<Schema>>,
    /// `endpoint`: the relay may run it itself.
    pub endpoint: Option<ToolEndpoint>,
    /// `timeout_ms`: from the connect to the last byte of the answer.
    pub timeout: Duration,
    /// `result_rules`: what an answer means where its status alone would mislead; the first that matches.
    pub result_rules: Vec<ResultRule>,
    /// `probe`.
    pub probe: Option<ProbeSettings>,
    /// `summary`: a template for people, with JSON Pointers in braces; [`super::Template::parse`] takes it.
    pub summary: Option<String>,
    /// `retention_days`: content of what has ended is erased after it.
    pub retention: Option<Duration>,
    /// `redact`: never shown to operators.
    pub redact: Vec<Pointer>,
}

/// `endpoint = { url, method, headers }`.
#[derive(Debug)]
pub struct ToolEndpoint {
    /// Where.
    pub url: http::Uri,
    /// `POST` by default.
    pub method: http::Method,
    /// Sent as they are; values may be secrets.
    pub headers: Vec<(http::HeaderName, Secret)>,
}

/// `{ pointer, equals, outcome }` or `{ status, outcome }`.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultRule {
    /// Where to look in the answer's JSON.
    pub pointer: Option<Pointer>,
    /// What must be there.
    pub equals: Option<serde_json::Value>,
    /// The answer's status.
    pub status: Option<u16>,
    /// What it means then.
    pub outcome: Outcome,
}

/// `probe = { url, rules, absent_after_ms, agree }`.
#[derive(Debug)]
pub struct ProbeSettings {
    /// A template of a URL with `{key}` in its path or query; good once the key stands there.
    pub url: String,
    /// Sent as they are; values may be secrets.
    pub headers: Vec<(http::HeaderName, Secret)>,
    /// What its answer means; the first that matches.
    pub rules: Vec<ResultRule>,
    /// `absent_after_ms`: how long after the run "absent" begins to count. Stated, a 404 that no rule matches is "absent" as well; not
    /// stated, such a 404 is no word, since a URL that is merely wrong answers it too.
    pub absent_after: Option<Duration>,
    /// How many answers in a row must agree.
    pub agree: u32,
}

impl ProbeSettings {
    /// How long after the run "absent" begins to count where nothing is stated (a rule said so). One minute: most systems know by then of
    /// what they have taken.
    pub const ABSENT_AFTER: Duration = Duration::from_secs(60);

    /// How long after the run "absent" begins to count.
    #[must_use]
    pub fn absence_delay(&self) -> Duration {
        self.absent_after.unwrap_or(Self::ABSENT_AFTER)
    }
}

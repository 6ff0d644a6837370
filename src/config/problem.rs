//! What is wrong with a configuration, and where: [`Problem`], its [`Severity`], the closed list of [`Code`]s, and the
//! collector that turns byte offsets into files, lines and columns.
//!
//! Problems are collected, never thrown: whoever edits a config wants all of them at once. No problem carries a value of
//! the file unless [`shown`] lets it pass, because a key pasted into the wrong place is still a key.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

/// Problems kept of one config. A config with more is not going to be mended from a list; the last entry says that it was cut.
pub const PROBLEMS_MAX: usize = 500;

/// How bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// `serve` does not start (load problems), or a failover can never act (`check` findings).
    Error,
    /// Works, but probably not as meant.
    Warning,
    /// Worth knowing; nothing to mend.
    Info,
}

impl Severity {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// One problem and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad.
    pub severity: Severity,
    /// The file as the user named it.
    pub file: String,
    /// Line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// Column in characters, from 1; 0 where the whole file is meant.
    pub column: usize,
    /// The key, dotted (`route.main.timeouts.connect_ms`, `client[0].keys`); empty for syntax errors.
    pub key: String,
    /// Stable code for programs.
    pub code: Code,
    /// A sentence for people.
    pub message: String,
}

macro_rules! codes {
    ($($variant:ident $name:literal $meaning:literal)*) => {
        /// What kind of problem: a closed list, documented in `KEYS.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $meaning] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word in JSON and in brackets.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// One line of documentation.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),* }
            }
        }
    };
}

codes! {
    ConfigUnreadable "config_unreadable" "The config or a file that it includes cannot be read, is no regular file (a pipe, a device), is not UTF-8 or is over 1 MiB; or too much is included."
    IncludeEmpty "include_empty" "An `include` pattern that no file matches."
    NotAllowedHere "not_allowed_here" "An included file has a table that its `include` does not allow."
    Syntax "syntax" "Not TOML. Other findings on the same line, and those that need the whole file, are left out."
    UnknownKey "unknown_key" "No such key here."
    NotBuiltYet "not_built_yet" "A key or value of the specification that this build does not act on."
    WrongType "wrong_type" "Another TOML type is expected."
    OutOfRange "out_of_range" "A number outside its range."
    InvalidValue "invalid_value" "The right type, but not a value that this key takes."
    InvalidName "invalid_name" "A name that is not 1–64 of `A-Z a-z 0-9 _ - .`."
    MissingKey "missing_key" "A required key is absent."
    Duplicate "duplicate" "The same thing twice."
    Unresolved "unresolved" "A name of a provider, route or workflow that does not exist."
    SecretInline "secret_inline" "A secret that is not `env:NAME` or `file:PATH` (`entra_token`: `file:PATH`)."
    SecretMissing "secret_missing" "The environment variable is not set."
    SecretUnreadable "secret_unreadable" "The secret's file cannot be read, is no regular file (a pipe, a device) or is over 64 KiB."
    SecretEmpty "secret_empty" "The variable or file is there and empty."
    SecretInvalid "secret_invalid" "The secret has characters that no header can carry (spaces, line ends, non-ASCII)."
    SecretTooShort "secret_too_short" "An operator's token of fewer than 16 characters."
    KeyShared "key_shared" "Two clients, two operators, or a client and an operator have the same key."
    ListenNotLoopback "listen_not_loopback" "Listening beyond loopback without any `[[client]]`."
    ListenShared "listen_shared" "`listen` and `admin_listen` are the same address, or one of them all addresses of that port."
    AdminNotLoopback "admin_not_loopback" "The admin side beyond loopback, in clear."
    BaseUrlInvalid "base_url_invalid" "A `base_url` that is not scheme, host and path."
    BaseUrlUnversioned "base_url_unversioned" "A `base_url` without a path where `/v1` is usual."
    CorsNotServed "cors_not_served" "An origin beyond loopback in `cors_origins`, and no `[[client]]`: its pages get 403."
    TracesInClear "traces_in_clear" "Traces go over plain `http://` beyond loopback."
    PlainHttp "plain_http" "Plain `http://` beyond loopback without `allow_plain_http`."
    HeaderNotAllowed "header_not_allowed" "A header that is never forwarded: credentials, cookies, hop-by-hop, the relay's own."
    DialectNotSpoken "dialect_not_spoken" "The provider's kind does not speak that dialect."
    PassthroughShadows "passthrough_shadows" "A `passthrough` path that would take requests which the relay serves itself."
    SchemaInvalid "schema_invalid" "A tool's `schema` that is no JSON Schema, refers elsewhere or back to itself, is over a bound, or takes no object."
    FieldNotInSchema "field_not_in_schema" "A JSON Pointer of a tool that is no property of its `schema`: an error in `key_fields`, else a warning."
    KeyFieldOptional "key_field_optional" "A key field that the tool's `schema` does not require: calls without it are refused."
    CredentialTwice "credential_twice" "`api_key` and `entra_token` at one provider."
    ModelClaimedTwice "model_claimed_twice" "Two workflows claim one model for one client."
    PrimaryRepeated "primary_repeated" "A workflow's primary, or a member of its planned split, is also its equivalent or alternate."
    DatesReversed "dates_reversed" "`until` lies before `on`."
    VerifiedInFuture "verified_in_future" "`verified.on` lies in the future."
    ApprovalUnused "approval_unused" "The approved route is not one of that workflow's for that purpose."
    StatusIsRetried "status_is_retried" "`exhausted_status` is one that SDKs retry by themselves."
    FailoverWithoutCandidates "failover_without_candidates" "Failover is enabled and there is no route it may go to."
    FailoverNeverActs "failover_never_acts" "Failover is enabled and every candidate is refused for every request."
    FailoverRouteStatesNothing "failover_route_states_nothing" "A failover route without `capabilities`: it would be refused for everything."
    CandidateIneligible "candidate_ineligible" "One failover route is refused for every request, for the reason in the message."
    ApprovalNotPublic "approval_not_public" "Recovery over public HTTPS and the approval does not say `network = \"public\"`."
    NetworkNotStated "network_not_stated" "A failover route's provider does not say whether its network is private or public."
    TooFewAttempts "too_few_attempts" "Failover is enabled and `max_attempts` is 1."
    DeadlineTooShort "deadline_too_short" "No second attempt fits into the deadline."
    AddedLatencyTooShort "added_latency_too_short" "No failed attempt, or no hanging one, fits into `max_added_latency_ms`."
    FailoverDisabled "failover_disabled" "Failover routes are configured and switched off."
    CrossModelWithoutAlternates "cross_model_without_alternates" "`failover.cross_model = true` and no `alternates` to go to."
    ApprovalExpiresSoon "approval_expires_soon" "An approval that is in use ends within 30 days."
    VerificationExpiresSoon "verification_expires_soon" "A verification that is in use ends within 30 days."
    SharedDomain "shared_domain" "A failover route shares provider, account, host or a `depends_on` domain with its primary."
    SplitMemberRefused "split_member_refused" "A further member of a planned split gets no share, for the reason in the message."
    ContextNotCompared "context_not_compared" "A failover route does not state `context_tokens`: whether a request fits there is not compared."
    SharedProvider "shared_provider" "Every failover route is at the primary's provider: its outage takes them all."
    ModelClassDiffers "model_class_differs" "An equivalent states another model class than the primary."
    CostWithoutPrice "cost_without_price" "`max_cost_usd` on a route without `price`: its cost is not counted."
    StoreUnusable "store_unusable" "`check` sees that the control store or the ledger cannot be opened or made there."
    EventsUnusable "events_unusable" "`check` sees that event lines cannot be written there."
    ClientWithoutWorkflows "client_without_workflows" "A client that may call nothing."
    WorkflowUnreachable "workflow_unreachable" "A workflow that no client may call."
    ToolUnreachable "tool_unreachable" "A tool that no client may use."
    ToolWithoutOperator "tool_without_operator" "The persons are missing that a tool's rules need: to resolve what is unknown, as the second of two, to approve a run."
    ToolWithoutKeyFields "tool_without_key_fields" "A write tool without `key_fields`: the same intent in other words is another one."
    ToolWithoutSchema "tool_without_schema" "A write tool without `schema`: arguments are not checked."
    ToolWithoutProbe "tool_without_probe" "A write tool without `probe`: what is unknown goes to a person."
    ToolProbeWithoutAbsence "tool_probe_without_absence" "A write tool's probe that never finds *absent*: no `absent_after_ms`, no rule that says `not_executed`."
    LedgerInMemory "ledger_in_memory" "A write tool, and `server.store` is `memory`: a restart forgets what ran."
    CredentialsNotTried "credentials_not_tried" "Outstanding live check: nobody asked the provider whether key and model are good."
    DigestNotCompared "digest_not_compared" "An approval or verification carries no `route_digest`: whether the route is still the one that was looked at is not compared."
    NeedsRestart "needs_restart" "A reload found another value of a key that only a restart changes; the old one stays."
    TooManyProblems "too_many_problems" "Over 500 problems; the rest is not listed."
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Collects the problems of the config and the files that it includes.
///
/// Places are byte offsets into all texts laid end to end, in the order in which they were [added](Self::add): whoever reports
/// needs no notion of files, and the order of problems is that of the files.
pub(super) struct Problems<'a> {
    texts: Vec<Text<'a>>,
    list: Vec<(usize, Problem)>,
}

/// One file's text.
struct Text<'a> {
    file: String,
    text: Cow<'a, str>,
    /// Offset of its first byte.
    base: usize,
    line_starts: Vec<usize>,
}

impl<'a> Text<'a> {
    fn new(file: String, text: Cow<'a, str>, base: usize) -> Self {
        let after_newline = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(after_newline).collect();
        Self { file, text, base, line_starts }
    }

    /// Line and column, from 1, of an offset in it.
    fn place(&self, offset: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count());
        (line, column + 1)
    }
}

impl<'a> Problems<'a> {
    pub(super) fn new(file: &str, text: &'a str) -> Self {
        Self { texts: vec![Text::new(file.to_owned(), Cow::Borrowed(text), 0)], list: Vec::new() }
    }

    /// Adds the text of an included file. Returns its base, which is to be added to every offset in it.
    pub(super) fn add(&mut self, file: String, text: String) -> usize {
        let base = self.texts.last().map_or(0, |last| last.base + last.text.len() + 1);
        self.texts.push(Text::new(file, Cow::Owned(text), base));
        base
    }

    /// Which file (0: the config itself), line and column, from 1, an offset lies in.
    pub(super) fn place(&self, offset: usize) -> (usize, usize, usize) {
        let at = self.texts.partition_point(|text| text.base <= offset).saturating_sub(1);
        let (line, column) = self.texts.get(at).map_or((0, 0), |text| text.place(offset.saturating_sub(text.base)));
        (at, line, column)
    }

    /// `file:line` of an offset, for messages that name a second place.
    pub(super) fn written_place(&self, offset: usize) -> String {
        let (file, line, _) = self.place(offset);
        format!("{}:{line}", self.texts.get(file).map_or("", |text| text.file.as_str()))
    }

    /// The files, in the order of their texts.
    pub(super) fn files(&self) -> Vec<String> {
        self.texts.iter().map(|text| text.file.clone()).collect()
    }

    pub(super) fn error(&mut self, code: Code, offset: usize, key: &str, message: impl Into<String>) {
        self.push(Severity::Error, code, offset, key, message.into());
    }

    pub(super) fn warning(&mut self, code: Code, offset: usize, key: &str, message: impl Into<String>) {
        self.push(Severity::Warning, code, offset, key, message.into());
    }

    fn push(&mut self, severity: Severity, code: Code, offset: usize, key: &str, message: String) {
        let (at, line, column) = self.place(offset);
        let file = self.texts.get(at).map(|text| text.file.clone()).unwrap_or_default();
        let problem = if self.list.len() < PROBLEMS_MAX {
            Problem { severity, file, line, column, key: key.to_owned(), code, message }
        } else if self.list.len() == PROBLEMS_MAX {
            let message = format!("more than {PROBLEMS_MAX} problems; the rest is not listed");
            let (severity, code, key) = (Severity::Error, Code::TooManyProblems, String::new());
            Problem { severity, file, line, column, key, code, message }
        } else {
            return;
        };
        self.list.push((at, problem));
    }

    /// Where what follows a syntax error can't be trusted: file, first and last line. After a broken table header the keys below it are read
    /// as those of another table, up to the next header; after anything else it is the line itself.
    pub(super) fn broken(&self) -> Vec<(String, usize, usize)> {
        let errors = self.list.iter().filter(|(_, problem)| problem.code == Code::Syntax);
        errors.map(|(at, problem)| (problem.file.clone(), problem.line, self.last_line(*at, problem.line))).collect()
    }

    fn last_line(&self, at: usize, line: usize) -> usize {
        let is_header = |line: &&str| line.trim_start().starts_with('[');
        let mut lines = self.texts.get(at).map_or("", |text| text.text.as_ref()).lines().skip(line.saturating_sub(1));
        if !lines.next().as_ref().is_some_and(is_header) {
            return line;
        }
        line + lines.take_while(|line| !is_header(&line.trim_start())).count()
    }

    /// All of them, in the order of the files.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        self.list
            .sort_by_key(|(at, problem)| (problem.code == Code::TooManyProblems, *at, problem.line, problem.column));
        self.list.into_iter().map(|(_, problem)| problem).collect()
    }
}

/// Where each key stands, for findings that are made after parsing.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The config itself.
    pub(super) file: String,
    /// It and the files that it includes.
    pub(super) files: Vec<String>,
    /// File (an index into `files`), line and column.
    pub(super) by_key: BTreeMap<String, (usize, usize, usize)>,
}

impl Places {
    /// Line and column of a key; of the nearest key above it when it is not written down; (0, 0) for the file.
    pub(super) fn of(&self, key: &str) -> (usize, usize) {
        self.find(key).map_or((0, 0), |(_, line, column)| (line, column))
    }

    /// The file that a key, or the nearest key above it, stands in.
    pub(super) fn file_of(&self, key: &str) -> &str {
        self.find(key).and_then(|(at, ..)| self.files.get(at)).unwrap_or(&self.file)
    }

    fn find(&self, key: &str) -> Option<(usize, usize, usize)> {
        let mut key = key;
        loop {
            if let Some(place) = self.by_key.get(key) {
                return Some(*place);
            }
            key = key.get(..key.rfind(['.', '['])?).unwrap_or_default();
        }
    }
}

impl fmt::Display for Problem {
    /// `file:line: severity: key: message [code]`, the form that editors jump to. Parts that are absent are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}: ", self.severity.name())?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{} [{}]", self.message, self.code.name())
    }
}

/// A piece of the user's text for a message: in backquotes when it is short, plain and does not look like a credential,
/// else words that stand for it.
pub(crate) fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 64;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/*".contains(&byte);
    if !text.is_empty() && text.len() <= SHOWN_MAX && text.bytes().all(plain) && !looks_secret(text) {
        format!("`{text}`")
    } else {
        "(a value not shown here)".to_owned()
    }
}

/// Long runs of mixed letters and digits are keys far more often than names; vendors' prefixes too.
pub(super) fn looks_secret(text: &str) -> bool {
    const RUN: usize = 20;
    let prefixed = ["sk-", "sk_", "pk-", "xoxb-", "ghp_", "AKIA", "AIza", "Bearer"].iter().any(|p| text.starts_with(p));
    prefixed
        || text.split(|c: char| !c.is_ascii_alphanumeric()).any(|run| {
            let (mut digit, mut letter) = (false, false);
            for byte in run.bytes() {
                digit |= byte.is_ascii_digit();
                letter |= byte.is_ascii_alphabetic();
            }
            run.len() >= RUN && digit && letter
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_become_lines_and_columns() {
        let mut problems = Problems::new("f", "ab\né=1\n\nz");
        let base = problems.add("g".into(), "x\ny".into());
        for (offset, place) in [
            (0, (0, 1, 1)),
            (1, (0, 1, 2)),
            (3, (0, 2, 1)),
            (5, (0, 2, 2)),
            (9, (0, 4, 1)),
            (10, (0, 4, 2)),
            (base, (1, 1, 1)),
            (base + 2, (1, 2, 1)),
            (base + 3, (1, 2, 2)),
        ] {
            assert_eq!(problems.place(offset), place, "{offset}");
        }
        assert_eq!(problems.written_place(base + 2), "g:2");
    }

    #[test]
    fn the_list_is_bounded_and_says_so() {
        let mut problems = Problems::new("f", "a\nb");
        for _ in 0..PROBLEMS_MAX + 50 {
            problems.error(Code::UnknownKey, 0, "a", "unknown");
        }
        let list = problems.finish();
        assert_eq!(list.len(), PROBLEMS_MAX + 1);
        assert_eq!(list.last().map(|p| p.code), Some(Code::TooManyProblems));
    }

    #[test]
    fn names_are_shown_and_credentials_are_not() {
        for (text, hidden) in [
            ("claude-sonnet-4-5-20250929", false),
            ("anthropic/claude-3.7", false),
            ("sk-short", true),
            (&"a1".repeat(12), true),
            ("has space", true),
            ("", true),
            ("\u{1b}[31m", true),
        ] {
            assert_eq!(!shown(text).starts_with('`'), hidden, "{text:?}");
        }
    }

    #[test]
    fn codes_are_unique_snake_case_words() {
        let names: std::collections::BTreeSet<_> = Code::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for name in names {
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        }
    }
}

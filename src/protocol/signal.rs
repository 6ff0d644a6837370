//! What one event means: *the* definition of "visible".
//!
//! In: one whole event of a provider's stream (already framed by `wire`). Out: a [`Reading`]: what it shows, whether it
//! ends something, whether it is a fault, what it says of usage. The boundary and the relay see only this, never a
//! provider's JSON. What a reader does not know counts as visible: a wrong guess in that direction costs a failover, in
//! the other one it doubles output.

use serde::Serialize;

use super::pin::Pin;

/// What a visible event shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VisibleKind {
    /// Answer text.
    Text,
    /// Refusal text.
    Refusal,
    /// Reasoning or thinking text (may be declared not visible: `reasoning = "hold"`).
    Reasoning,
    /// Any part of a call of a tool that the application runs.
    ToolCall,
    /// Audio or its transcript.
    Audio,
    /// An image or a part of one.
    Image,
    /// Citations and annotations.
    Citation,
    /// The result of a tool that the provider runs.
    HostedResult,
    /// Not known to this build, so counted as visible.
    Unknown,
    /// The event's data is not JSON, so counted as visible.
    NotJson,
}

/// What one event shows, the boundary's question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Show {
    /// Lifecycle, role, empty delta, usage: nothing a client could act on.
    Preamble,
    /// The provider's keep-alive in event form: as preamble, and not counted by the hold.
    Ping,
    /// Something a client can show, store or act on.
    Visible(VisibleKind),
    /// A tool that the provider runs has started: crosses before any text. `may_act` tells tools that may change the
    /// world (mcp, code, computer, shell) from look-ups (web search).
    Effect {
        /// Whether a failure from here on is `side_effect_uncertain` rather than `partial_output`.
        may_act: bool,
    },
}

/// An error event inside a stream (or an error object in a 200 body).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The provider's `type`, as sent.
    pub kind: Option<String>,
    /// The provider's `code`, as text (numbers are printed).
    pub code: Option<String>,
    /// The provider's text for people. Never logged.
    pub message: Option<String>,
    /// An HTTP status the provider names inside the event.
    pub status: Option<u16>,
}

/// Tokens of one attempt, as far as the provider has told. Counts are totals, never increments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// All input tokens, cached ones included.
    pub input_tokens: Option<u64>,
    /// Input tokens that came from the provider's cache.
    pub cached_input_tokens: Option<u64>,
    /// Output tokens, reasoning included.
    pub output_tokens: Option<u64>,
}

/// What one event means. `Default` is a preamble event that says nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it shows.
    pub show: Show,
    /// It is the provider's error event. `show` says then only whether what it tells of has acted (`Effect { may_act: true }`).
    pub fault: Option<Fault>,
    /// It is the dialect's terminal event by its form. Whether it really ends the stream ([`StreamReader::ending`]) is another
    /// question: one that came too early must not reach a client, which would take the stream for whole.
    pub terminal: bool,
}

impl Reading {
    /// An event that shows `show` and is no fault.
    pub fn of(show: Show) -> Self {
        Self { show, fault: None, terminal: false }
    }

    /// The dialect's terminal event.
    pub fn terminal(show: Show) -> Self {
        Self { show, fault: None, terminal: true }
    }

    /// The provider's error event.
    pub fn fault(show: Show, fault: Fault) -> Self {
        Self { show, fault: Some(fault), terminal: false }
    }
}

/// How far a stream has come towards its end, asked when its body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The dialect's own terminal event was seen (after whatever it demands, e.g. a finish reason for every choice).
    Terminal,
    /// A finish reason was seen for every choice, the terminal event was not: an end for `terminal = "lenient"` only.
    Finished,
    /// Neither: the stream is truncated.
    Open,
}

/// Reads the events of one attempt, in order. Implemented once a dialect; pure, bounded state.
pub trait StreamReader: Send + Sync {
    /// Reads one event. `name` is the value of its `event:` line (empty if none), `data` its data lines joined by LF.
    /// Called for events that have data only; comments and empty blocks show nothing in any dialect.
    fn read(&mut self, name: &[u8], data: &[u8]) -> Reading;

    /// How far the stream has come; monotonic.
    fn ending(&self) -> Ending;

    /// Usage as known so far, also of a stream that was cut.
    fn usage(&self) -> Usage;

    /// The finish reason as the provider wrote it (the last one seen).
    fn finish_reason(&self) -> Option<&str>;

    /// The model that the provider says it served.
    fn served_model(&self) -> Option<&str>;

    /// State of the account's own that the stream has given out so far (ids, encrypted reasoning, signatures …), at most
    /// [`PINS_MAX`](super::pin::PINS_MAX): whoever presents it again must come back to this account.
    fn issued(&self) -> &[Pin];

    /// Where the relay's own last words stand in the stream. Only the responses dialect numbers its events.
    fn place(&self) -> Place {
        Place::default()
    }
}

/// Where a stream stands, as far as the relay's own last words in it must say so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The number of the next event: one more than that of the last one read that is no fault; 0 at the start.
    pub sequence: u64,
    /// The answer's id, where it was told.
    pub id: Option<String>,
    /// The answer's model, where it was told.
    pub model: Option<String>,
    /// When the answer was begun, in seconds since 1970, by the provider's clock; 0 where it was not told.
    pub created_at: u64,
}

/// One row of the first-visible-output table: an event or delta kind and what it shows. The readers decide by these
/// rows, the documentation is printed from them, and CI compares them with the types that the official SDKs declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The event type, or for chat-completions the place of the member: `delta.content`, `chunk.usage` …
    pub event: &'static str,
    /// The sub-kind (content block type, delta type …); empty where the event has none.
    pub sub: &'static str,
    /// When the row applies, in words: "non-empty", "always" …
    pub when: &'static str,
    /// What it shows.
    pub show: Show,
}

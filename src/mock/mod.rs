//! The scripted provider: an HTTP/1.1 server that answers as a script says, faults included. The demo, the drill, the tests
//! and `rubicon mock` use it; the relay never does.
//!
//! In reading order: [`script`](Script) what can be said · `prepare` is it sound, are its files there · `recording` real answers
//! kept as files · `canned` builders and whole streams of all dialects · `http` requests in, heads and chunks out · `play`
//! steps to socket · `stats` what happened · `admin` the same over HTTP · `provider` the running thing.
//!
//! Deliberately not here: TLS, HTTP/2, authentication, and any logging of what passes through.

mod admin;
mod canned;
mod http;
mod play;
mod prepare;
mod provider;
mod recording;
mod script;
mod stats;
#[cfg(test)]
mod tests;

pub use canned::anthropic::{self, anthropic_text, anthropic_tool_use, anthropic_whole_text, anthropic_whole_tool_use};
pub use canned::chat::{self, chat_text, chat_tool_call, chat_whole_text, chat_whole_tool_call};
pub use canned::responses::{
    self, responses_text, responses_tool_call, responses_whole_text, responses_whole_tool_call,
};
pub use canned::{INPUT_TOKENS, MODEL};
pub use prepare::{FILE_BYTES_MAX, Problem, SCRIPT_BYTES_MAX, ScriptProblems};
pub use provider::MockProvider;
pub use script::{
    Abort, Answer, Auto, AutoDialect, AutoTool, Event, Head, Headers, JsonText, REPEAT_TIMES_MAX, Repeat, Rule, Script,
    Step,
};
pub use stats::{SEEN_BYTES_MAX, SEEN_MAX, Seen, Stats};

/// A script that shows what scripts can do; `rubicon mock --example` prints it.
pub const EXAMPLE: &str = include_str!("example.json");

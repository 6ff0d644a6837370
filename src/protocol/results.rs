//! Results of tool calls that a request carries *after its last user turn*: by them it belongs to the run that emitted the calls (SPEC
//! section 8, Root).
//!
//! In: a request's body. Out: [`Returned`], the newest first, at most [`RESULTS_MAX`]. Each dialect's `results.rs` knows where
//! turns end and where the call of a result stands. A result whose call is not shown, and is not named by the response that it was in,
//! says nothing of its run: an id alone comes again in other turns (LEDGER.md 10.1). Bodies without such results cost one search for
//! a word.

use memchr::memmem;

use super::json_walk::{member, text, valid};
use super::words::{Returned, Shown, Words};
use super::{Dialect, anthropic_messages, chat_completions, responses};

/// Results that are looked at, the newest: each costs a look into the store. A run's results are all of one root, so that the rest of a
/// longer run says the same.
pub const RESULTS_MAX: usize = 256;

/// Whether there may be results in a body: they are not without a word that stands for them.
pub(super) fn may_have(dialect: Dialect, body: &[u8]) -> bool {
    let word: &[u8] = match dialect {
        Dialect::ChatCompletions => b"tool_call_id",
        Dialect::AnthropicMessages => b"tool_use_id",
        Dialect::Responses => b"call_output",
    };
    memmem::find(body, word).is_some()
}

pub(super) fn of_request(dialect: Dialect, body: &[u8]) -> Vec<Returned> {
    if !may_have(dialect, body) {
        return Vec::new();
    }
    let Some(json) = valid(body) else { return Vec::new() };
    match dialect {
        Dialect::ChatCompletions => chat_completions::results::of_request(json),
        Dialect::AnthropicMessages => anthropic_messages::results::of_request(json),
        Dialect::Responses => responses::results::of_request(json),
    }
}

/// A member that is a text with something in it.
pub(super) fn told(json: &str, name: &str) -> Option<String> {
    member(json, name).and_then(text).filter(|text| !text.is_empty()).map(std::borrow::Cow::into_owned)
}

/// A result whose call is shown.
pub(super) fn shown(id: String, name: String, words: Words) -> Returned {
    Returned { id, shown: Shown::Call { name, words } }
}

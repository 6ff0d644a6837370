//! Does the answer keep the contract? Calls of the application's tools that are whole, parse and fit; text in the declared form.
//!
//! In: the request's body, once ([`wanted::Wanted`]); then the events of one attempt or a whole answer, in order ([`guard::Guard`]).
//! Out: whether an event may go out, must wait, or breaks the contract ([`guard::Stand`]). Only where a workflow's `commit` is
//! `tool_call_complete` or `validated`; nothing here is touched otherwise. Pure. Deliberately not here: what is held and released
//! (`boundary`), which classes follow from a breach (`classify`), and the JSON of any dialect (`protocol`'s `calls.rs`).

pub mod guard;
pub mod schema;
#[cfg(test)]
mod tests;
pub mod wanted;

/// How an answer breaks the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A tool call was cut off.
    CallCut,
    /// A call's arguments are not JSON.
    CallNotJson,
    /// A call's arguments do not fit the declared schema.
    CallUnfit,
    /// A call's arguments are over [`guard::ARGUMENTS_BYTES_MAX`], or more calls than [`guard::CALLS_MAX`] are open.
    CallTooLarge,
    /// More is held than may be.
    TooLarge,
    /// There is no text where a format was asked for.
    NoText,
    /// The text is not the JSON that was asked for.
    TextNotJson,
    /// The text does not fit the declared schema.
    TextUnfit,
    /// The finish reason says that the answer failed.
    Failed,
    /// The finish reason is a refusal or a content filter: nobody else is asked.
    Refused,
}

impl Broken {
    /// What happened, a short phrase: for the log and the interruption's message. Nothing of the answer is in it.
    pub fn what(self) -> &'static str {
        match self {
            Self::CallCut => "the provider cut off a tool call",
            Self::CallNotJson => "the arguments of a tool call are not JSON",
            Self::CallUnfit => "the arguments of a tool call do not fit the declared schema",
            Self::CallTooLarge => "a tool call is over its size limit",
            Self::TooLarge => "the answer is larger than may be held",
            Self::NoText => "the answer has no text in the declared format",
            Self::TextNotJson => "the answer is not the JSON that was asked for",
            Self::TextUnfit => "the answer does not fit the declared schema",
            Self::Failed => "the provider gave up its answer",
            Self::Refused => "the provider filtered or refused its answer",
        }
    }
}

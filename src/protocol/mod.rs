//! Frames to meaning: one folder a dialect, the same files in each (`request.rs` what the request asks for and how it is
//! edited in place, `stream.rs` events to [`signal::Reading`]s, `fault.rs` error objects, `usage.rs` token counts, `table.rs` the
//! first-visible-output rows, `calls.rs` what of an answer can be judged, `results.rs` results of tools that a request carries, `reply.rs` errors and keep-alives in that dialect). A further dialect is a folder and an
//! arm in [`Dialect`]'s methods.

pub mod anthropic_messages;
pub mod chat_completions;
#[cfg(test)]
mod doc;
pub mod emitted;
pub mod features;
pub mod json_object;
pub mod json_walk;
pub mod parts;
pub mod pin;
pub mod request;
pub mod responses;
pub mod results;
pub mod signal;
pub mod words;

use bytes::Bytes;
use serde::Serialize;

use crate::reply::Outward;
use parts::{Declared, Part};
use pin::Pin;
use request::{RequestError, RequestFacts};
use signal::{Fault, Place, Row, StreamReader, Usage};
use words::Returned;

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// OpenAI Chat Completions and everything that speaks it.
    ChatCompletions,
    /// Anthropic Messages.
    AnthropicMessages,
    /// OpenAI Responses.
    Responses,
}

impl Dialect {
    /// Every dialect of this build.
    pub const ALL: [Self; 3] = [Self::ChatCompletions, Self::AnthropicMessages, Self::Responses];

    /// The name used in the configuration and the events.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat-completions",
            Self::AnthropicMessages => "anthropic-messages",
            Self::Responses => "responses",
        }
    }

    /// The first-visible-output table.
    pub fn table(self) -> &'static [Row] {
        match self {
            Self::ChatCompletions => chat_completions::table::ROWS,
            Self::AnthropicMessages => anthropic_messages::table::ROWS,
            Self::Responses => responses::table::ROWS,
        }
    }

    /// What a request body asks for.
    ///
    /// # Errors
    /// When the body is not one JSON object, names `model` twice, or a member the relay must read has the wrong type.
    pub fn read_request(self, body: &Bytes) -> Result<RequestFacts, RequestError> {
        match self {
            Self::ChatCompletions => chat_completions::request::read(body),
            Self::AnthropicMessages => anthropic_messages::request::read(body),
            Self::Responses => responses::request::read(body),
        }
    }

    /// A reader for one attempt's stream. `choices` is the request's `n` (1 where the dialect has none).
    pub fn stream_reader(self, choices: u32) -> Box<dyn StreamReader> {
        match self {
            Self::ChatCompletions => Box::new(chat_completions::stream::Reader::new(choices)),
            Self::AnthropicMessages => Box::new(anthropic_messages::stream::Reader::new()),
            Self::Responses => Box::new(responses::stream::Reader::new()),
        }
    }

    /// The error object in a whole JSON body (of any status), if it is one in any shape this dialect's providers use.
    pub fn body_fault(self, body: &[u8]) -> Option<Fault> {
        match self {
            Self::ChatCompletions => chat_completions::fault::of_body(body),
            Self::AnthropicMessages => anthropic_messages::fault::of_body(body),
            Self::Responses => responses::fault::of_body(body),
        }
    }

    /// Reads a whole answer (not streamed).
    pub fn read_answer(self, body: &[u8]) -> Answer {
        match self {
            Self::ChatCompletions => chat_completions::usage::of_answer(body),
            Self::AnthropicMessages => anthropic_messages::usage::of_answer(body),
            Self::Responses => responses::usage::of_answer(body),
        }
    }

    /// What a request declares of its answer: tools and format. Nothing where the body is not JSON.
    pub fn declared(self, body: &[u8]) -> Declared<'_> {
        match self {
            Self::ChatCompletions => chat_completions::calls::declared(body),
            Self::AnthropicMessages => anthropic_messages::calls::declared(body),
            Self::Responses => responses::calls::declared(body),
        }
    }

    /// Tells `each` the parts of one event (`name` and `data` as for [`StreamReader::read`]) that can be judged, in order.
    pub fn parts<'a>(self, name: &'a [u8], data: &'a [u8], each: &mut dyn FnMut(Part<'a>)) {
        match self {
            Self::ChatCompletions => chat_completions::calls::of_event(data, each),
            Self::AnthropicMessages => anthropic_messages::calls::of_event(name, data, each),
            Self::Responses => responses::calls::of_event(name, data, each),
        }
    }

    /// Tells `each` the parts of a whole answer that can be judged, in order.
    pub fn parts_of_answer<'a>(self, body: &'a [u8], each: &mut dyn FnMut(Part<'a>)) {
        match self {
            Self::ChatCompletions => chat_completions::calls::of_answer(body, each),
            Self::AnthropicMessages => anthropic_messages::calls::of_answer(body, each),
            Self::Responses => responses::calls::of_answer(body, each),
        }
    }

    /// Whether a request may carry results of tool calls; costs one search.
    #[must_use]
    pub fn may_have_results(self, body: &[u8]) -> bool {
        results::may_have(self, body)
    }

    /// The id of a whole answer, where a later request may name it in place of what was in it.
    #[must_use]
    pub fn response_id(self, body: &[u8]) -> Option<String> {
        json_walk::valid(body).filter(|_| self == Self::Responses).and_then(|json| results::told(json, "id"))
    }

    /// The results of tool calls that a request carries after its last user turn, the newest first.
    #[must_use]
    pub fn results(self, body: &[u8]) -> Vec<Returned> {
        results::of_request(self, body)
    }

    /// The JSON body of an error answer, in the shape that this dialect's SDKs parse, with the member `rubicon` at top level.
    pub fn error_body(self, failure: &Outward) -> Bytes {
        match self {
            Self::ChatCompletions => chat_completions::reply::error_body(failure),
            Self::AnthropicMessages => anthropic_messages::reply::error_body(failure),
            Self::Responses => responses::reply::error_body(failure),
        }
    }

    /// The in-stream error frame that every official SDK of the dialect raises (STREAMS.md 2.2; responses has a second one behind
    /// it), ready to send. `place` is where the stream stands ([`StreamReader::place`]); its default where nothing was sent.
    pub fn error_frame(self, failure: &Outward, place: &Place) -> Bytes {
        match self {
            Self::ChatCompletions => chat_completions::reply::error_frame(failure),
            Self::AnthropicMessages => anthropic_messages::reply::error_frame(failure),
            Self::Responses => responses::reply::error_frame(failure, place),
        }
    }

    /// A keep-alive that clients of the dialect take without noticing. `ids` is true when the client asked for `id:` fields
    /// (then openai-python needs a bare comment line without a blank line, STREAMS.md 2.1), `official_sdk` when it is one of the vendor's own
    /// SDKs, whose helpers want to hear of a response before anything else.
    pub fn keepalive(self, ids: bool, official_sdk: bool) -> Bytes {
        match self {
            Self::ChatCompletions => chat_completions::reply::keepalive(ids),
            Self::AnthropicMessages => anthropic_messages::reply::keepalive(),
            Self::Responses => responses::reply::keepalive(official_sdk),
        }
    }
}

/// What a whole answer says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// It is JSON of the dialect's answer shape (`choices` / `type: message` / `output`), complete and without an error object.
    pub valid: bool,
    /// Tokens.
    pub usage: Usage,
    /// The finish reason as the provider wrote it.
    pub finish_reason: Option<String>,
    /// The model that the provider says it served.
    pub served_model: Option<String>,
    /// State of the account's own that it gives out, sorted, without doubles.
    pub issued: Vec<Pin>,
    /// It tells of a tool that the provider ran and that may have acted: matters where the answer is none.
    pub acted: bool,
}

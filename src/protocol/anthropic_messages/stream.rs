//! Events of a Messages stream to [`Reading`]s.
//!
//! In: one event's name and data at a time. Out: what it shows, by the rows of [`table`](super::table::ROWS) and nothing else; whether it
//! is a fault; how far the stream has come; usage, stop reason, model. Why no generic JSON value: this runs for every event; members
//! are borrowed slices and only the small ones are looked into. State is four counts, two bounded names and an [`Ending`].
//! `message_stop` is the end only after a stop reason in a `message_delta` (STREAMS.md 1.2): servers in between send it when the
//! provider was cut, too. One without is marked as the terminal event and ends nothing.
//! Deliberately not here: which blocks are open. The table needs no memory, so a stream that breaks the order can't confuse it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::fault::{self, is_error};
use super::fields::{Raw, filled, object, word};
use super::pins::{self, Signature};
use super::table::{self, CITED, EMPTY, FILLED, Seen};
use super::usage::{Tokens, name};
use crate::protocol::pin::{Pin, Pins};
use crate::protocol::signal::{Ending, Fault, Reading, Show, StreamReader, Usage};

/// The dialect's terminal event.
const MESSAGE_STOP: &str = "message_stop";

/// The reader of one attempt.
#[derive(Debug)]
pub struct Reader {
    ending: Ending,
    tokens: Tokens,
    stop_reason: Option<String>,
    model: Option<String>,
    issued: Pins,
    /// Of the block that is open.
    signature: Signature,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    message: Raw<'a>,
    #[serde(borrow)]
    content_block: Raw<'a>,
    #[serde(borrow)]
    delta: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
    // Of the legacy `completion` event.
    #[serde(borrow)]
    completion: Raw<'a>,
    #[serde(borrow)]
    stop_reason: Raw<'a>,
    #[serde(borrow)]
    model: Raw<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    model: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    stop_reason: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
}

/// A content block as it starts.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    citations: Raw<'a>,
    #[serde(borrow)]
    thinking: Raw<'a>,
    #[serde(borrow)]
    signature: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    encrypted_content: Raw<'a>,
    #[serde(borrow)]
    to: Raw<'a>,
}

/// `delta` of a `content_block_delta` or a `message_delta`.
#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    thinking: Raw<'a>,
    #[serde(borrow)]
    partial_json: Raw<'a>,
    #[serde(borrow)]
    citation: Raw<'a>,
    #[serde(borrow)]
    signature: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    encrypted_content: Raw<'a>,
    #[serde(borrow)]
    stop_reason: Raw<'a>,
    #[serde(borrow)]
    stop_details: Raw<'a>,
    #[serde(borrow)]
    container: Raw<'a>,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// A reader for a stream of which nothing has come.
    pub fn new() -> Self {
        Self {
            ending: Ending::Open,
            tokens: Tokens::default(),
            stop_reason: None,
            model: None,
            issued: Pins::default(),
            signature: Signature::default(),
        }
    }

    fn read_event(&mut self, kind: &str, event: &Event<'_>) -> Show {
        match kind {
            "content_block_delta" => self.read_delta(event.delta),
            "content_block_start" => self.read_block(event.content_block),
            "content_block_stop" => {
                self.signature.end(&mut self.issued);
                table::show(kind, "", Seen::Is(EMPTY))
            }
            "message_start" => self.read_start(event.message),
            "message_delta" => self.read_message_delta(event),
            MESSAGE_STOP => {
                if self.ending == Ending::Finished {
                    self.ending = Ending::Terminal;
                }
                table::show(kind, "", Seen::Is(EMPTY))
            }
            "completion" => {
                self.note(event.stop_reason, event.model);
                self.finish(event.stop_reason);
                table::show(kind, "", any(&[event.completion]))
            }
            _ => table::show(kind, "", Seen::Is(EMPTY)),
        }
    }

    fn read_start(&mut self, message: Raw<'_>) -> Show {
        if let Some(message) = message {
            pins::of_message(message, &mut self.issued);
        }
        let Some(message) = message.and_then(object::<Message<'_>>) else {
            return table::show("message_start", "", any(&[message]));
        };
        self.note(message.stop_reason, message.model);
        self.tokens.update(message.usage);
        table::show("message_start", "", any(&[message.content]))
    }

    fn read_message_delta(&mut self, event: &Event<'_>) -> Show {
        #[derive(Deserialize)]
        struct StopDetails<'a> {
            #[serde(borrow)]
            explanation: Raw<'a>,
        }
        self.tokens.update(event.usage);
        let delta = event.delta.and_then(object::<Delta<'_>>);
        let details = delta.as_ref().and_then(|delta| delta.stop_details).and_then(object::<StopDetails<'_>>);
        if let Some(delta) = delta {
            self.note(delta.stop_reason, None);
            self.finish(delta.stop_reason);
            pins::of_container(delta.container, &mut self.issued);
        }
        table::show("message_delta", "", any(&[details.and_then(|details| details.explanation)]))
    }

    fn read_block(&mut self, block: Raw<'_>) -> Show {
        #[derive(Deserialize)]
        struct Hop<'a> {
            #[serde(borrow)]
            model: Raw<'a>,
        }
        self.signature.end(&mut self.issued);
        if let Some(block) = block {
            pins::of_block(block.get(), &mut self.issued);
        }
        let Some(block) = block.and_then(object::<Block<'_>>) else {
            return table::show("content_block_start", "", Seen::Is(FILLED));
        };
        let kind = word(block.kind).unwrap_or_default();
        let tool = word(block.name).unwrap_or_default();
        let seen = match &*kind {
            "text" if filled(block.text) => Seen::Is(FILLED),
            "text" if filled(block.citations) => Seen::Is(CITED),
            "thinking" => any(&[block.thinking, block.signature]),
            "compaction" => any(&[block.content, block.encrypted_content, block.signature]),
            "server_tool_use" => Seen::Named(&tool),
            "fallback" => {
                let to = block.to.and_then(object::<Hop<'_>>);
                self.note(None, to.and_then(|to| to.model));
                Seen::Is(EMPTY)
            }
            _ => Seen::Is(EMPTY),
        };
        table::show("content_block_start", &kind, seen)
    }

    fn read_delta(&mut self, raw: Raw<'_>) -> Show {
        let Some(delta) = raw.and_then(object::<Delta<'_>>) else {
            return table::show("content_block_delta", "", Seen::Is(FILLED));
        };
        let kind = word(delta.kind).unwrap_or_default();
        let seen = match &*kind {
            "text_delta" => any(&[delta.text]),
            "thinking_delta" => any(&[delta.thinking]),
            "input_json_delta" => any(&[delta.partial_json]),
            "citations_delta" => any(&[delta.citation]),
            "signature_delta" => any(&[delta.signature]),
            "compaction_delta" => any(&[delta.content, delta.encrypted_content]),
            _ => Seen::Is(FILLED),
        };
        match (&*kind, raw) {
            ("signature_delta", _) => {
                self.signature.delta(&word(delta.signature).unwrap_or_default(), &mut self.issued);
            }
            ("citations_delta" | "compaction_delta", Some(raw)) => pins::of_block(raw.get(), &mut self.issued),
            _ => {}
        }
        table::show("content_block_delta", &kind, seen)
    }

    /// A stop reason where the answer's end is told. One in `message_start` is no end: nothing was said yet.
    fn finish(&mut self, stop_reason: Raw<'_>) {
        if self.ending == Ending::Open && name(stop_reason).is_some() {
            self.ending = Ending::Finished;
        }
    }

    /// Notes a stop reason and a model, where told.
    fn note(&mut self, stop_reason: Raw<'_>, model: Raw<'_>) {
        if let Some(reason) = name(stop_reason) {
            self.stop_reason = Some(reason);
        }
        if let Some(model) = name(model) {
            self.model = Some(model);
        }
    }
}

impl StreamReader for Reader {
    fn read(&mut self, name: &[u8], data: &[u8]) -> Reading {
        if name == b"error" {
            // The SDKs raise on the name alone.
            return faulty(fault::of_event(data));
        }
        let data = data.trim_ascii();
        let name = std::str::from_utf8(name).unwrap_or_default();
        match data {
            b"" if name == "ping" => return Reading::of(table::show("ping", "", Seen::Is(EMPTY))),
            b"" => return Reading::of(table::show("no data", "", Seen::Is(EMPTY))),
            // No end of this dialect, but some gateways send it after `message_stop`, and clients of theirs may stop at it.
            b"[DONE]" => return Reading::terminal(table::show("[DONE]", "", Seen::Is(EMPTY))),
            _ => {}
        }
        let Ok(raw) = serde_json::from_slice::<&RawValue>(data) else {
            return Reading::of(table::show("not JSON", "", Seen::Is(FILLED)));
        };
        let Some(event) = object::<Event<'_>>(raw) else {
            return Reading::of(table::show("*", "", Seen::Is(FILLED)));
        };
        let kind = word(event.kind).filter(|kind| !kind.is_empty());
        let is_nameless = kind.is_none() && name.is_empty();
        let kind = kind.unwrap_or(Cow::Borrowed(name));
        if is_error(event.error) || kind == "error" || kind.ends_with("_error") {
            return faulty(fault::of_event(data));
        }
        if is_nameless && let Some(fault) = fault::of_body(data) {
            // `{"message":…}`, `{"detail":…}`: a gateway's error, with nothing around it.
            return faulty(fault);
        }
        let show = self.read_event(&kind, &event);
        if kind == MESSAGE_STOP { Reading::terminal(show) } else { Reading::of(show) }
    }

    fn ending(&self) -> Ending {
        self.ending
    }

    fn usage(&self) -> Usage {
        self.tokens.usage()
    }

    fn finish_reason(&self) -> Option<&str> {
        self.stop_reason.as_deref()
    }

    fn served_model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn issued(&self) -> &[Pin] {
        self.issued.issued()
    }
}

fn faulty(fault: Fault) -> Reading {
    Reading::fault(table::show("error", "", Seen::Is(EMPTY)), fault)
}

fn any(parts: &[Raw<'_>]) -> Seen<'static> {
    Seen::Is(if parts.iter().any(|part| filled(*part)) { FILLED } else { EMPTY })
}

#[cfg(test)]
pub(super) mod tests;

//! Events of a Responses stream to [`Reading`]s.
//!
//! In: one event's name and data at a time. Out: what it shows, by the rows of [`table`](super::table::ROWS) and nothing else; whether it
//! is a fault; how far the stream has come; usage, reason, model, what was issued, and where the relay's own last words
//! would stand. Why it decodes so little: this runs for every event; each is checked to be JSON once and looked at in place
//! (`json_walk`), and the delta of a long answer costs one pass over its members. State is bounded: a few short names and the
//! pins. Deliberately not here: which items are open; the table needs no memory, so a stream that breaks the order can't confuse it.

use std::borrow::Cow;

use super::output::{self, is_part_filled, item, kind_of};
use super::table::{self, EMPTY, FILLED};
use super::usage::{count, finish_of, merge, name as short};
use super::{fault, pins};
use crate::protocol::json_walk::{is_empty, member, members, text, valid};
use crate::protocol::pin::{Pin, Pins};
use crate::protocol::signal::{Ending, Fault, Place, Reading, Show, StreamReader, Usage};

/// Members in which an event carries its content, whatever its type.
const CONTENT: &[&str] = &[
    "delta",
    "text",
    "refusal",
    "arguments",
    "input",
    "code",
    "command",
    "diff",
    "output",
    "annotation",
    "partial_image_b64",
];

/// The reader of one attempt.
#[derive(Debug, Default)]
pub struct Reader {
    ended: bool,
    usage: Usage,
    finish_reason: Option<String>,
    place: Place,
    issued: Pins,
}

/// What is looked at of an event.
#[derive(Default)]
struct Event<'a> {
    kind: Option<Cow<'a, str>>,
    item: &'a str,
    part: &'a str,
    response: &'a str,
    error: &'a str,
    number: Option<u64>,
    filled: bool,
}

impl<'a> Event<'a> {
    fn of(json: &'a str) -> Self {
        let mut event = Self::default();
        for (name, value) in members(json) {
            match name {
                "type" => event.kind = text(value).filter(|kind| !kind.is_empty()),
                "item" => event.item = value,
                "part" => event.part = value,
                "response" => event.response = value,
                "error" => event.error = value,
                "sequence_number" => event.number = count(value),
                _ if CONTENT.contains(&name) => event.filled |= !is_empty(value),
                _ => {}
            }
        }
        event
    }

    /// `"error": null` and `false` are none.
    fn has_error(&self) -> bool {
        !is_empty(self.error) && self.error != "false"
    }
}

impl Reader {
    /// A reader for a stream of which nothing has come.
    pub fn new() -> Self {
        Self::default()
    }

    /// An event that is no fault: what it shows, and what is to be noted of it.
    fn read_event(&mut self, kind: &str, event: &Event<'_>) -> Show {
        let number = event.number.unwrap_or_default().max(self.place.sequence);
        self.place.sequence = number.saturating_add(1);
        if event.response.starts_with('{') {
            self.note(event.response);
        }
        let (sub, filled) = match kind {
            "response.output_item.added" | "response.output_item.done" => {
                pins::of_output_item(event.item, &mut self.issued);
                item(event.item)
            }
            "response.content_part.added"
            | "response.content_part.done"
            | "response.reasoning_summary_part.added"
            | "response.reasoning_summary_part.done" => (kind_of(event.part), is_part_filled(event.part)),
            "response.completed" | "response.incomplete" => {
                self.ended = true;
                self.finish_reason = finish_of(event.response).or_else(|| kind.rsplit('.').next().map(str::to_owned));
                (Cow::Borrowed(""), false)
            }
            // What it holds already was never announced, so it counts as if it were now.
            "response.created" | "response.queued" | "response.in_progress" => match output::shown(event.response) {
                Show::Preamble => (Cow::Borrowed(""), event.filled),
                shown => return shown,
            },
            _ => (Cow::Borrowed(""), event.filled),
        };
        table::show(kind, &sub, if filled { FILLED } else { EMPTY })
    }

    /// What a lifecycle event tells of the response.
    fn note(&mut self, response: &str) {
        for (name, value) in members(response) {
            match name {
                "id" => self.place.id = short(value).or(self.place.id.take()),
                "model" => self.place.model = short(value).or(self.place.model.take()),
                "created_at" => self.place.created_at = whole(value).unwrap_or(self.place.created_at),
                "usage" => merge(&mut self.usage, value),
                _ => {}
            }
        }
        pins::of_response(response, &mut self.issued);
    }
}

impl StreamReader for Reader {
    fn read(&mut self, name: &[u8], data: &[u8]) -> Reading {
        if name == b"error" {
            // SDKs raise on the name alone.
            return faulty(data, fault::of_event(data));
        }
        let data = data.trim_ascii();
        match data {
            b"" => return Reading::of(table::show("no data", "", EMPTY)),
            // No end of this dialect, but OpenRouter sends it after `response.completed`.
            b"[DONE]" => return Reading::terminal(table::show("[DONE]", "", EMPTY)),
            _ => {}
        }
        let Some(json) = valid(data) else { return Reading::of(table::show("not JSON", "", FILLED)) };
        if !json.starts_with('{') {
            return Reading::of(table::show("*", "", FILLED));
        }
        let event = Event::of(json);
        let name = std::str::from_utf8(name).unwrap_or_default();
        let kind: &str = event.kind.as_deref().unwrap_or(name);
        if event.has_error() || matches!(kind, "error" | "response.failed" | "response.cancelled") {
            if event.response.starts_with('{') {
                // What it cost is told there, too.
                merge(&mut self.usage, member(event.response, "usage").unwrap_or_default());
            }
            return faulty(data, fault::of_event(data));
        }
        let terminal = matches!(kind, "response.completed" | "response.incomplete");
        let failed = if terminal { fault::of_response(event.response) } else { None };
        if let Some(fault) = failed.or_else(|| if kind.is_empty() { fault::of_json(json) } else { None }) {
            return faulty(data, fault);
        }
        let show = self.read_event(kind, &event);
        if terminal { Reading::terminal(show) } else { Reading::of(show) }
    }

    fn ending(&self) -> Ending {
        if self.ended { Ending::Terminal } else { Ending::Open }
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn finish_reason(&self) -> Option<&str> {
        self.finish_reason.as_deref()
    }

    fn served_model(&self) -> Option<&str> {
        self.place.model.as_deref()
    }

    fn issued(&self) -> &[Pin] {
        self.issued.issued()
    }

    fn place(&self) -> Place {
        self.place.clone()
    }
}

/// A failure, and what ran before it as far as it tells.
fn faulty(data: &[u8], fault: Fault) -> Reading {
    let acted = valid(data).is_some_and(output::tells_of_acting);
    let show = if acted { Show::Effect { may_act: true } } else { table::show("error", "", EMPTY) };
    Reading::fault(show, fault)
}

/// A whole number of seconds; some servers write a fraction.
fn whole(json: &str) -> Option<u64> {
    count(json.split('.').next().unwrap_or_default())
}

#[cfg(test)]
mod tests;

//! An event stream that passes through in a dialect the relay knows: was its end an end?
//!
//! In: the pieces of a body, as they go by. Out: whether the dialect's own end was among them, and the last frame where it was not. A
//! provider's gateway ends a body cleanly whatever became of the answer behind it, and a client takes a clean end for a whole answer
//! (invariant 2 of the code map). No byte is changed or held back; what is kept is one unfinished event, within `max_event_bytes`. What
//! can't be read (another encoding, an event over the bound) is passed on unjudged. Deliberately not here: a boundary, and what the
//! events show.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::protocol::Dialect;
use crate::protocol::signal::{Ending, Place, StreamReader};
use crate::relay::read::is_event_stream;
use crate::wire::sse::{BlockKind, SseLimits, SseSplitter};

use super::RESPONSES;

/// What has been seen of a stream.
pub(super) struct Watched {
    splitter: SseSplitter,
    reader: Box<dyn StreamReader>,
    /// The dialect's end, or the provider's own error, was seen.
    ended: bool,
    /// It can't be read any further.
    lost: bool,
    events: u64,
}

/// How a stream stands when its body ends or breaks off.
#[derive(Debug)]
pub(super) enum Standing {
    /// It has had its end, or nobody can tell.
    Ended,
    /// It has not; the last event is whole, so a frame may follow it. With the events so far, and where the frame stands.
    Open(u64, Box<Place>),
    /// It has not, and stands in the middle of an event.
    Torn,
}

impl Watched {
    /// For an answer whose dialect is known: responses that are made in the background, and those that are fetched by their id.
    pub(super) fn of(path: &str, headers: &HeaderMap, event_bytes_max: usize) -> Option<Self> {
        let below = path.strip_prefix(RESPONSES)?;
        let is_one = below.is_empty() || below.strip_prefix('/').is_some_and(|id| !id.contains('/'));
        let labelled = headers.contains_key(CONTENT_TYPE) && is_event_stream(headers);
        let plain = headers.get(CONTENT_ENCODING).is_none_or(|coding| coding == "identity");
        (is_one && labelled && plain).then(|| Self {
            splitter: SseSplitter::new(SseLimits { line_bytes_max: event_bytes_max, event_bytes_max }),
            reader: Dialect::Responses.stream_reader(1),
            ended: false,
            lost: false,
            events: 0,
        })
    }

    /// Reads a piece that goes by.
    pub(super) fn see(&mut self, data: &Bytes) {
        if self.ended || self.lost {
            return;
        }
        self.splitter.push(data.clone());
        loop {
            match self.splitter.next_block() {
                Ok(None) => return,
                Ok(Some(block)) if block.kind == BlockKind::Event => {
                    let reading = self.reader.read(block.event_name(), &block.data());
                    self.events += 1;
                    self.ended |= reading.fault.is_some() || self.reader.ending() == Ending::Terminal;
                }
                Ok(Some(_)) => {}
                Err(_) => self.lost = true,
            }
            if self.ended || self.lost {
                return;
            }
        }
    }

    /// How it stands.
    pub(super) fn standing(&self) -> Standing {
        if self.ended || self.lost {
            Standing::Ended
        } else if self.splitter.pending_bytes() > 0 {
            Standing::Torn
        } else {
            Standing::Open(self.events, Box::new(self.reader.place()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    const SSE: (&str, &str) = ("content-type", "text/event-stream; charset=utf-8");

    #[test]
    fn which_answers_are_watched() {
        for (path, lines, watched) in [
            ("/v1/responses", &[SSE][..], true),
            ("/v1/responses/resp_1", &[SSE, ("content-encoding", "identity")], true),
            ("/v1/responses/resp_1", &[SSE, ("content-encoding", "gzip")], false),
            ("/v1/responses/resp_1/input_items", &[SSE], false),
            ("/v1/responses_other", &[SSE], false),
            ("/v1/chat/completions", &[SSE], false),
            ("/v1/responses", &[("content-type", "application/json")], false),
            ("/v1/responses", &[], false),
        ] {
            assert_eq!(Watched::of(path, &headers(lines), 1000).is_some(), watched, "{path} {lines:?}");
        }
    }

    #[test]
    fn how_a_stream_stands() {
        const CREATED: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\"}}\n\n";
        const DONE: &str = "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n";
        const FAILED: &str = "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\"}}\n\n";
        let long = format!("data: {}", "x".repeat(2_000));
        for (text, stands) in [
            ("", "Open"),
            (CREATED, "Open"),
            (": comment\n\n", "Open"),
            ("data: {\"ty", "Torn"),
            (DONE, "Ended"),
            (FAILED, "Ended"),
            ("event: error\ndata: {}\n\n", "Ended"),
            ("data: [DONE]\n\n", "Open"),
            (long.as_str(), "Ended"),
        ] {
            for step in [1, 7, 5_000] {
                let mut watched = Watched::of("/v1/responses", &headers(&[SSE]), 1_000).unwrap();
                for piece in text.as_bytes().chunks(step) {
                    watched.see(&Bytes::copy_from_slice(piece));
                }
                let found = format!("{:?}", watched.standing());
                assert!(found.starts_with(stands), "{text} by {step}: {found}");
            }
        }
    }
}

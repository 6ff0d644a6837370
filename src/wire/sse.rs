//! The SSE splitter: socket reads in, whole event blocks out, each with its exact bytes.
//!
//! A *block* is everything up to and with its blank line: one event, or comments, or fields without data. The relay
//! forwards blocks, never reads: an upstream that dies in the middle of a line must not leave half an event at the
//! client (STREAMS.md 0.3). The framing is WHATWG HTML 9.2.5: lines end with LF, CR or CRLF, one leading BOM is not
//! part of the stream.
//!
//! *Bytes stay what they are.* The concatenation of all [`SseBlock::raw`] and of the
//! [pending](SseSplitter::pending_bytes) bytes is the input without its BOM, at any chunking. Nothing is decoded as
//! UTF-8 here: bad bytes pass, and a character split over two reads can't be damaged. A block that lies in one read
//! is a slice of it (no copy); only a block that spans reads is copied into a carry.
//!
//! *A CR at the end of a read.* It ends its line at once, for waiting would hold a finished event until the next one
//! is sent. If the blank line's CR is the last byte of a read and the next read starts with LF, that LF comes out
//! alone and at once, as a [`Comment`](BlockKind::Comment) block whose `raw` is one LF (see
//! [`SseBlock::is_lone_lf`]). It belongs to the block before: who forwarded that one should forward this too, also
//! where comments are dropped, for clients that look for the four bytes CR LF CR LF. It is not put in front of the
//! next block, because there is none after the last event. So blocks are the same at any chunking but for this LF.
//!
//! *Bounds.* One line and one block are limited, see [`SseLimits`]; a limit is noticed when the byte over it is read,
//! not at the end of the line. Held are the carry, whose capacity is never over `event_bytes_max`, and one read. Work
//! is linear at any chunking: every byte is searched once (`resume` is where the search goes on), and the carry
//! doubles, so a byte is moved three times at most on average.
//!
//! Deliberately not here: `id`, `retry` and reconnecting (a relay has no use for them), JSON, and what any event means.

mod block;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod readers;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use bytes::{Buf, Bytes};
use memchr::memchr2;

pub use block::{BlockKind, Field, Fields, SseBlock};

const LF: u8 = b'\n';
const CR: u8 = b'\r';
/// U+FEFF in UTF-8: stripped once, at the start of the stream (WHATWG HTML 9.2.5).
const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// Bounds of one splitter.
#[derive(Clone, Copy, Debug)]
pub struct SseLimits {
    /// Bytes of one line without its end.
    pub line_bytes_max: usize,
    /// Bytes of one event, ends included. (A blank CRLF whose CR is the last byte allowed is not over: its LF comes
    /// as a lone LF.)
    pub event_bytes_max: usize,
}

/// Why a stream can't be split further. Sticky: after an error nothing more comes out.
///
/// Which one it is does not depend on the chunking: the limit that is passed first, byte by byte; the line's, if both
/// at the same byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line is over `line_bytes_max`.
    #[error("a line is longer than {limit} bytes")]
    LineTooLong {
        /// The limit.
        limit: usize,
    },
    /// An event is over `event_bytes_max`.
    #[error("an event is longer than {limit} bytes")]
    EventTooLong {
        /// The limit.
        limit: usize,
    },
}

/// The splitter: one for each stream.
///
/// Offsets named `line_start`, `content_end` and `end` count from the start of the unfinished block, which is `carry`
/// and then the first `resume` bytes of `chunk`.
#[derive(Debug)]
pub struct SseSplitter {
    limits: SseLimits,
    error: Option<SseError>,
    /// While it is open whether the stream starts with a BOM: how many of its bytes came (and were taken from `chunk`).
    bom: Option<usize>,
    /// The unfinished block's bytes of earlier reads, all of them searched. At most `event_bytes_max`.
    carry: Vec<u8>,
    /// What is left of the current read. Empty whenever `next_block` gave `None`.
    chunk: Bytes,
    /// Bytes of `chunk` that were searched and belong to the unfinished block.
    resume: usize,
    line_start: usize,
    has_data: bool,
    has_field: bool,
    /// The byte before the resume position is a CR that ended a line of this block: a LF there belongs to it.
    after_cr: bool,
    /// Bytes searched or moved, for the tests of linear time.
    #[cfg(test)]
    work: usize,
}

impl SseSplitter {
    /// An empty splitter.
    pub fn new(limits: SseLimits) -> Self {
        Self {
            limits,
            error: None,
            bom: Some(0),
            carry: Vec::new(),
            chunk: Bytes::new(),
            resume: 0,
            line_start: 0,
            has_data: false,
            has_field: false,
            after_cr: false,
            #[cfg(test)]
            work: 0,
        }
    }

    /// Takes one read of the socket. Call [`next_block`](Self::next_block) until it gives `None` before the next push.
    ///
    /// (Who pushes earlier loses no byte, but pays with a copy of what is left and holds more than one read.) After
    /// an error the bytes are dropped.
    pub fn push(&mut self, chunk: Bytes) {
        if self.error.is_some() {
            return;
        }
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else if !chunk.is_empty() {
            self.chunk = [self.chunk.as_ref(), chunk.as_ref()].concat().into();
        }
    }

    /// The next whole block, if there is one.
    ///
    /// A block inside one read shares that read's memory: who keeps a small block for long keeps the whole read
    /// alive, and should copy.
    ///
    /// # Errors
    /// At a limit; see [`SseError`]. Blocks before the one that is too long come out first.
    pub fn next_block(&mut self) -> Result<Option<SseBlock>, SseError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if !self.pass_bom() {
            return Ok(None);
        }
        loop {
            let Some(&first) = self.chunk.get(self.resume) else {
                self.stash();
                return Ok(None);
            };
            if std::mem::take(&mut self.after_cr) && first == LF {
                self.resume += 1;
                self.line_start += 1;
                self.check(self.line_start, self.line_start)?;
                continue;
            }
            let Some(at) = self.find_line_end(first) else {
                self.resume = self.chunk.len();
                self.check(self.block_len(), self.block_len())?;
                continue;
            };
            let content_end = self.block_len() + at;
            self.check(content_end, content_end + 1)?;
            let ends_in_cr = self.chunk.get(self.resume + at) == Some(&CR);
            if content_end == self.line_start {
                return Ok(Some(self.end_block(content_end + 1, ends_in_cr)));
            }
            self.note_line(content_end);
            self.resume += at + 1;
            self.line_start = content_end + 1;
            self.after_cr = ends_in_cr;
        }
    }

    /// Bytes of an unfinished block (at the end of the body these are dropped: WHATWG HTML 9.2.6). 0 after an error.
    ///
    /// Before `next_block` gave `None` it also counts what that has not looked at yet.
    pub fn pending_bytes(&self) -> usize {
        self.bom.unwrap_or(0) + self.carry.len() + self.chunk.len()
    }

    fn block_len(&self) -> usize {
        self.carry.len() + self.resume
    }

    /// Whether the start of the stream is decided; takes the BOM's bytes. What only began like a BOM goes back, as
    /// content.
    fn pass_bom(&mut self) -> bool {
        while let Some(matched) = self.bom {
            let Some(first) = self.chunk.first() else {
                return false;
            };
            match BOM.get(matched) {
                Some(expected) if first == expected => {
                    self.chunk.advance(1);
                    self.bom = if matched + 1 == BOM.len() { None } else { Some(matched + 1) };
                }
                _ => {
                    self.append(BOM.get(..matched).unwrap_or_default());
                    self.bom = None;
                }
            }
        }
        true
    }

    /// Where the current line ends, counted from the resume position.
    fn find_line_end(&mut self, first: u8) -> Option<usize> {
        // A blank line follows nearly every line of an LLM's stream: worth a look before the call.
        if first == LF || first == CR {
            return Some(0);
        }
        let rest = self.chunk.get(self.resume..).unwrap_or_default();
        let found = memchr2(LF, CR, rest);
        #[cfg(test)]
        {
            self.work += found.map_or(rest.len(), |at| at + 1);
        }
        found
    }

    /// Refuses a line whose content goes up to `content_end`, or a block that goes up to `end`, if over a limit. Lets
    /// go of all memory then.
    fn check(&mut self, content_end: usize, end: usize) -> Result<(), SseError> {
        let SseLimits { line_bytes_max, event_bytes_max } = self.limits;
        // The offset of the first byte that is too much for the line; for the block it is `event_bytes_max`.
        let line_over = self.line_start.saturating_add(line_bytes_max);
        let event_too_long = end > event_bytes_max;
        let error = if content_end > line_over && (!event_too_long || line_over <= event_bytes_max) {
            SseError::LineTooLong { limit: line_bytes_max }
        } else if event_too_long {
            SseError::EventTooLong { limit: event_bytes_max }
        } else {
            return Ok(());
        };
        self.error = Some(error);
        self.carry = Vec::new();
        self.chunk = Bytes::new();
        self.resume = 0;
        Err(error)
    }

    /// Remembers what the non-empty line from `line_start` to `content_end` is. Five bytes tell, wherever the reads
    /// were cut.
    fn note_line(&mut self, content_end: usize) {
        let border = self.carry.len();
        let len = (content_end - self.line_start).min(5);
        let mut head = [0; 5];
        let line = if let Some(start) = self.line_start.checked_sub(border) {
            self.chunk.get(start..start + len).unwrap_or_default()
        } else {
            let bytes = self.carry.iter().chain(self.chunk.iter()).skip(self.line_start).take(len);
            head.iter_mut().zip(bytes).for_each(|(slot, &byte)| *slot = byte);
            head.get(..len).unwrap_or_default()
        };
        match line {
            [b':', ..] => {}
            b"data" | b"data:" => self.has_data = true,
            _ => self.has_field = true,
        }
    }

    /// Gives the block that ends with a blank line, whose (first) end byte is the last of the block's `end` bytes.
    fn end_block(&mut self, end: usize, ends_in_cr: bool) -> SseBlock {
        // At the limit the LF is left for later, as if the read ended here: no chunking is refused that another is not.
        // A late LF needs no state: it reads as a blank line.
        let has_lf = ends_in_cr && self.chunk.get(self.resume + 1) == Some(&LF);
        let len = if has_lf && end < self.limits.event_bytes_max { self.resume + 2 } else { self.resume + 1 };
        self.give(len)
    }

    /// Gives `carry` and the first `len` bytes of `chunk` as a block.
    fn give(&mut self, len: usize) -> SseBlock {
        let piece = self.chunk.split_to(len);
        let raw = if self.carry.is_empty() {
            piece
        } else {
            self.append(&piece);
            std::mem::take(&mut self.carry).into()
        };
        let kind = match (self.has_data, self.has_field) {
            (true, _) => BlockKind::Event,
            (false, true) => BlockKind::NoData,
            (false, false) => BlockKind::Comment,
        };
        self.resume = 0;
        self.line_start = 0;
        self.has_data = false;
        self.has_field = false;
        SseBlock { kind, raw }
    }

    /// Keeps what was read of an unfinished block, so that the read's memory can go.
    fn stash(&mut self) {
        let piece = std::mem::take(&mut self.chunk);
        self.append(&piece);
        self.resume = 0;
    }

    /// Appends to the carry; its capacity doubles, but never goes over the limit (the checks before saw to it that
    /// the bytes fit).
    fn append(&mut self, piece: &[u8]) {
        let needed = self.carry.len() + piece.len();
        let capacity = self.carry.capacity();
        #[cfg(test)]
        {
            self.work += piece.len() + if needed > capacity { self.carry.len() } else { 0 };
        }
        if needed > capacity {
            let wanted = capacity.saturating_mul(2).min(self.limits.event_bytes_max).max(needed);
            self.carry.reserve_exact(wanted - self.carry.len());
        }
        self.carry.extend_from_slice(piece);
    }
}

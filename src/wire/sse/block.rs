//! One whole SSE block and its reading: kind, event name, data, fields.
//!
//! In: the exact bytes of a block. Out: borrowed fields, or slices that share the block's memory. Reading is done on
//! demand, because most blocks only pass through: a block carries no offsets and costs nothing until it is asked.
//! Rules: WHATWG HTML 9.2.6.
//!
//! Deliberately not here: `id` and `retry` have no accessor of their own ([`SseBlock::fields`] shows them), and no
//! UTF-8 decoding.

use bytes::Bytes;
use memchr::{memchr, memchr2};

use super::{CR, LF};

/// What a block (up to and with its blank line) is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Has at least one `data` line: a reader would dispatch it.
    Event,
    /// Comment lines and nothing else (or an extra blank line).
    Comment,
    /// Fields (`event`, `id`, `retry`, unknown), but no data: a reader dispatches nothing.
    NoData,
}

/// One whole block, with its exact bytes.
#[derive(Clone, Debug)]
pub struct SseBlock {
    /// What it is.
    pub kind: BlockKind,
    /// The exact bytes, its blank line included (a leading BOM of the stream is not).
    pub raw: Bytes,
}

impl SseBlock {
    /// The value of the last `event` field; empty if none.
    pub fn event_name(&self) -> &[u8] {
        self.fields().filter(|field| field.name == b"event").last().map_or(&[], |field| field.value)
    }

    /// The data lines joined with LF: a slice of `raw` where there is one line only.
    pub fn data(&self) -> Bytes {
        let mut values = self.fields().filter(|field| field.name == b"data").map(|field| field.value);
        let Some(first) = values.next() else {
            return Bytes::new();
        };
        let Some(second) = values.next() else {
            return self.raw.slice_ref(first);
        };
        // The field names alone make room for the joining LFs.
        let mut joined = Vec::with_capacity(self.raw.len());
        joined.extend_from_slice(first);
        for value in std::iter::once(second).chain(values) {
            joined.push(LF);
            joined.extend_from_slice(value);
        }
        joined.into()
    }

    /// The block's fields in their order; comments and the blank line are left out.
    pub fn fields(&self) -> Fields<'_> {
        Fields { rest: &self.raw }
    }

    /// Whether this is one LF and nothing else: an extra blank line, or, if the block before ended in CR, the late
    /// second half of that block's last line end (see the [module](super)), which should go where that block went.
    pub fn is_lone_lf(&self) -> bool {
        self.raw.as_ref() == [LF]
    }
}

/// One field: name and value as the standard reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Up to the first colon, or the whole line. Case and leading spaces count.
    pub name: &'a [u8],
    /// After the colon and at most one space; empty without a colon.
    pub value: &'a [u8],
}

/// The fields of a block; see [`SseBlock::fields`].
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The next line without its end. A block always ends with a line end; bytes without one are taken as a line all
    /// the same.
    fn next_line(&mut self) -> Option<&'a [u8]> {
        let (line, tail) = match memchr2(LF, CR, self.rest) {
            Some(at) => self.rest.split_at_checked(at)?,
            None if self.rest.is_empty() => return None,
            None => (self.rest, &[][..]),
        };
        // The LF of a CRLF is left: it reads as an empty line, which says nothing.
        self.rest = tail.get(1..).unwrap_or_default();
        Some(line)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        loop {
            let line = self.next_line()?;
            match memchr(b':', line) {
                Some(0) => {}
                None if line.is_empty() => {}
                None => return Some(Field { name: line, value: &[] }),
                Some(at) => {
                    let (name, value) = line.split_at_checked(at)?;
                    let value = value.strip_prefix(b":").unwrap_or(value);
                    return Some(Field { name, value: value.strip_prefix(b" ").unwrap_or(value) });
                }
            }
        }
    }
}

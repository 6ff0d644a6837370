//! The SSE splitter (skeleton; the signatures are the contract with the relay).

use bytes::Bytes;

/// Bounds of one splitter.
#[derive(Clone, Copy, Debug)]
pub struct SseLimits {
    /// Bytes of one line without its end.
    pub line_bytes_max: usize,
    /// Bytes of one event, ends included.
    pub event_bytes_max: usize,
}

/// Why a stream can't be split further. Sticky: after an error nothing more comes out.
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
        &[]
    }

    /// The data lines joined with LF: a slice of `raw` where there is one line only.
    pub fn data(&self) -> Bytes {
        Bytes::new()
    }
}

/// The splitter.
#[derive(Debug)]
pub struct SseSplitter {}

impl SseSplitter {
    /// An empty splitter.
    pub fn new(_limits: SseLimits) -> Self {
        Self {}
    }

    /// Takes one read of the socket. Call [`next_block`](Self::next_block) until it gives `None` before the next push.
    pub fn push(&mut self, _chunk: Bytes) {}

    /// The next whole block, if there is one.
    ///
    /// # Errors
    /// At a limit; see [`SseError`].
    pub fn next_block(&mut self) -> Result<Option<SseBlock>, SseError> {
        Ok(None)
    }

    /// Bytes of an unfinished block (at the end of the body these are dropped: WHATWG HTML 9.2.6).
    pub fn pending_bytes(&self) -> usize {
        0
    }
}

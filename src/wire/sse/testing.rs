//! Test tools: a naive reference splitter, a driver that feeds ours in any chunking, and a small seeded random source.
//!
//! The reference is written to be read next to WHATWG HTML 9.2.5–9.2.6, byte by byte, over the whole input at once,
//! and shares no code with the splitter. A result is *normalised*: a late LF is put back to the block whose CR it
//! follows, so that results compare at any chunking.

use bytes::Bytes;

use super::{BOM, BlockKind, SseError, SseLimits, SseSplitter};

/// Limits that no test input here reaches.
pub(super) const WIDE: SseLimits = SseLimits { line_bytes_max: 64 << 20, event_bytes_max: 64 << 20 };

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) kind: BlockKind,
    pub(super) name: Vec<u8>,
    pub(super) data: Vec<u8>,
    pub(super) raw: Vec<u8>,
}

/// What a splitter made of some input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) blocks: Vec<Seen>,
    pub(super) pending: usize,
    pub(super) error: Option<SseError>,
}

impl Split {
    /// The events as an independent reader would report them.
    pub(super) fn events(&self) -> Vec<(String, String)> {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let events = self.blocks.iter().filter(|block| block.kind == BlockKind::Event);
        events.map(|block| (text(&block.name), text(&block.data))).collect()
    }
}

pub(super) fn without_bom(input: &[u8]) -> &[u8] {
    input.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(input)
}

/// The naive splitter. An LF behind the CR of a blank line counts for no limit.
pub(super) fn reference(input: &[u8], limits: SseLimits) -> Split {
    let mut split = Split::default();
    if b"\xEF\xBB\xBF".starts_with(input) && input.len() < 3 {
        split.pending = input.len();
        return split;
    }
    let input = without_bom(input);
    let (mut lines, mut line, mut raw) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = 0;
    while at < input.len() {
        let byte = input[at];
        at += 1;
        raw.push(byte);
        let ends_line = byte == b'\r' || byte == b'\n';
        if !ends_line {
            line.push(byte);
            if line.len() > limits.line_bytes_max {
                split.error = Some(SseError::LineTooLong { limit: limits.line_bytes_max });
                return split;
            }
        }
        let is_blank = ends_line && line.is_empty();
        let too_long = raw.len() > limits.event_bytes_max;
        let has_lf = byte == b'\r' && input.get(at) == Some(&b'\n');
        if too_long || (has_lf && !is_blank && raw.len() + 1 > limits.event_bytes_max) {
            split.error = Some(SseError::EventTooLong { limit: limits.event_bytes_max });
            return split;
        }
        if has_lf {
            raw.push(b'\n');
            at += 1;
        }
        if is_blank {
            split.blocks.push(interpret(&std::mem::take(&mut lines), std::mem::take(&mut raw)));
        } else if ends_line {
            lines.push(std::mem::take(&mut line));
        }
    }
    split.pending = raw.len();
    split
}

fn interpret(lines: &[Vec<u8>], raw: Vec<u8>) -> Seen {
    let (mut name, mut data, mut fields) = (Vec::new(), Vec::new(), 0);
    for line in lines.iter().filter(|line| line[0] != b':') {
        fields += 1;
        let colon = line.iter().position(|&byte| byte == b':');
        let field = &line[..colon.unwrap_or(line.len())];
        let mut value = colon.map_or(&[][..], |colon| &line[colon + 1..]);
        if value.first() == Some(&b' ') {
            value = &value[1..];
        }
        match field {
            b"event" => name = value.to_vec(),
            b"data" => {
                data.extend_from_slice(value);
                data.push(b'\n');
            }
            _ => {}
        }
    }
    let kind = match (data.pop(), fields) {
        (Some(_), _) => BlockKind::Event,
        (None, 0) => BlockKind::Comment,
        (None, _) => BlockKind::NoData,
    };
    Seen { kind, name, data, raw }
}

/// Our splitter with a record of what it gave; keeps the invariants in sight after every push.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) splitter: SseSplitter,
    pub(super) split: Split,
    limits: SseLimits,
}

impl Driver {
    pub(super) fn new(limits: SseLimits) -> Self {
        Self { splitter: SseSplitter::new(limits), split: Split::default(), limits }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.splitter.push(Bytes::copy_from_slice(chunk));
        self.drain();
    }

    pub(super) fn drain(&mut self) {
        loop {
            match self.splitter.next_block() {
                Ok(None) => break,
                Err(error) => {
                    self.split.error = Some(error);
                    assert_eq!(self.splitter.next_block().unwrap_err(), error, "an error is sticky");
                    assert_eq!(
                        self.splitter.carry.capacity() + self.splitter.chunk.len(),
                        0,
                        "an error lets go of memory"
                    );
                    break;
                }
                Ok(Some(block)) => match self.split.blocks.last_mut() {
                    Some(before) if block.is_lone_lf() && before.raw.ends_with(b"\r") => {
                        assert_eq!(block.kind, BlockKind::Comment);
                        before.raw.push(b'\n');
                    }
                    _ => {
                        assert!(block.raw.len() <= self.limits.event_bytes_max, "a block is never over the limit");
                        self.split.blocks.push(Seen {
                            kind: block.kind,
                            name: block.event_name().to_vec(),
                            data: block.data().to_vec(),
                            raw: block.raw.to_vec(),
                        });
                    }
                },
            }
        }
        assert!(self.splitter.chunk.is_empty(), "a read is let go when it is used up");
        assert!(
            self.splitter.carry.capacity() <= self.limits.event_bytes_max.max(BOM.len() - 1),
            "the carry is bounded"
        );
        self.split.pending = self.splitter.pending_bytes();
    }
}

/// What ours makes of these chunks.
pub(super) fn drive<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, limits: SseLimits) -> Split {
    let mut driver = Driver::new(limits);
    chunks.into_iter().for_each(|chunk| driver.push(chunk));
    driver.split
}

/// Feeds `chunks` and compares with the reference *after every chunk*: not only the end must be right, but nothing
/// may come late.
pub(super) fn assert_prompt<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, limits: SseLimits) {
    let mut driver = Driver::new(limits);
    let mut input = Vec::new();
    for chunk in chunks {
        input.extend_from_slice(chunk);
        driver.push(chunk);
        let expected = reference(&input, limits);
        assert_eq!(driver.split, expected, "after {:?}, last chunk {:?}", show(&input), show(chunk));
        assert_bytes_kept(&input, &driver.split);
    }
}

/// All `raw`s and what is pending are the input without its BOM, byte by byte.
pub(super) fn assert_bytes_kept(input: &[u8], split: &Split) {
    let mut raws = Vec::with_capacity(input.len());
    split.blocks.iter().for_each(|block| raws.extend_from_slice(&block.raw));
    let body = if split.blocks.is_empty() && input.len() < 3 { input } else { without_bom(input) };
    assert!(body.starts_with(&raws), "the bytes are changed");
    if split.error.is_none() {
        assert_eq!(raws.len() + split.pending, body.len(), "bytes are lost or made up");
    }
}

pub(super) fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// SplitMix64: deterministic, good enough to cut streams.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub(super) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Cuts `input` into chunks of 0 to `longest` bytes.
    pub(super) fn cut<'a>(&mut self, input: &'a [u8], longest: usize) -> Vec<&'a [u8]> {
        let (mut chunks, mut rest) = (Vec::new(), input);
        while !rest.is_empty() {
            let (chunk, tail) = rest.split_at(self.below(longest + 1).min(rest.len()));
            chunks.push(chunk);
            rest = tail;
        }
        chunks
    }
}

//! Writing SSE: one event or one comment of our own, as one block.
//!
//! In: an event name and bytes of data, or a comment's text. Out: the block's bytes, with LF line ends and its blank
//! line. For the relay's own frames (error, keep-alive) and the scripted provider; a provider's events pass as they
//! came and never go through here.
//!
//! Nothing that is put in can end a line early and so smuggle in a field or an event: line ends in data and comments
//! start a new line of the same kind, an event name stops at its first line end. Deliberately not here: `id` and
//! `retry`, and any check of UTF-8 (a reader replaces what is not, and the relay's own text is).

use bytes::Bytes;
use memchr::memchr2;

const LF: u8 = b'\n';
const CR: u8 = b'\r';

/// One event. Each line of `data` (ended by LF, CR or CRLF) becomes a `data` line, so a reader gets it with LFs; no
/// `name` means `message`.
///
/// Empty data is an event with empty data (`data: ` and a blank line), as WHATWG HTML 9.2.6 dispatches it.
pub fn frame(name: Option<&str>, data: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(data.len() + name.map_or(0, str::len) + 32);
    if let Some(name) = name {
        let name = name.split(['\n', '\r']).next().unwrap_or_default();
        put_line(&mut out, b"event: ", name.as_bytes());
    }
    put_lines(&mut out, b"data: ", data);
    out.push(LF);
    out.into()
}

/// One comment block, which no reader shows: a keep-alive. Several lines of text are several comment lines.
pub fn comment(text: &str) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + 8);
    put_lines(&mut out, b": ", text.as_bytes());
    out.push(LF);
    out.into()
}

fn put_line(out: &mut Vec<u8>, start: &[u8], line: &[u8]) {
    out.extend_from_slice(start);
    out.extend_from_slice(line);
    out.push(LF);
}

/// Every line of `text` behind `start`; what follows the last line end is a line too, even if empty, so that a reader
/// gets the text back.
fn put_lines(out: &mut Vec<u8>, start: &[u8], text: &[u8]) {
    let mut rest = text;
    while let Some((line, tail)) = memchr2(LF, CR, rest).and_then(|at| rest.split_at_checked(at)) {
        put_line(out, start, line);
        rest = tail.strip_prefix(b"\r\n").or_else(|| tail.get(1..)).unwrap_or_default();
    }
    put_line(out, start, rest);
}

#[cfg(test)]
mod tests {
    use super::{comment, frame};
    use crate::wire::sse::{BlockKind, SseBlock, SseLimits, SseSplitter};

    fn blocks(bytes: bytes::Bytes) -> Vec<SseBlock> {
        let mut splitter = SseSplitter::new(SseLimits { line_bytes_max: 1 << 20, event_bytes_max: 1 << 20 });
        splitter.push(bytes);
        let blocks = std::iter::from_fn(|| splitter.next_block().unwrap()).collect();
        assert_eq!(splitter.pending_bytes(), 0);
        blocks
    }

    #[test]
    fn frames_are_written_to_the_letter() {
        let rows: [(Option<&str>, &[u8], &[u8]); 9] = [
            (None, b"[DONE]", b"data: [DONE]\n\n"),
            (Some("error"), b"{}", b"event: error\ndata: {}\n\n"),
            (None, b"", b"data: \n\n"),
            (Some(""), b"x", b"event: \ndata: x\n\n"),
            (None, b"a\nb\r\nc\rd", b"data: a\ndata: b\ndata: c\ndata: d\n\n"),
            (None, b"a\n", b"data: a\ndata: \n\n"),
            (None, b"\n\r", b"data: \ndata: \ndata: \n\n"),
            (None, b" two  spaces", b"data:  two  spaces\n\n"),
            (Some("a\ndata: smuggled"), b"x", b"event: a\ndata: x\n\n"),
        ];
        for (name, data, expected) in rows {
            assert_eq!(frame(name, data).as_ref(), expected, "{name:?} {data:?}");
        }
    }

    #[test]
    fn what_is_written_reads_back_as_one_event() {
        for data in ["", " ", "x", "a\nb", "\n", "\n\n", "a\n\nb\n", ": c", "event: x", "data", "\u{feff}\0é"] {
            let read = blocks(frame(Some("n"), data.as_bytes()));
            assert_eq!(read.len(), 1, "{data:?}");
            assert_eq!(read[0].kind, BlockKind::Event);
            assert_eq!(read[0].event_name(), b"n");
            assert_eq!(read[0].data(), data.as_bytes(), "{data:?}");
        }
    }

    #[test]
    fn a_comment_is_one_comment_block_whatever_it_says() {
        for (text, expected) in [("ka", ": ka\n\n"), ("", ": \n\n"), ("a\r\n\r\ndata: x", ": a\n: \n: data: x\n\n")] {
            let bytes = comment(text);
            assert_eq!(bytes, expected.as_bytes());
            let read = blocks(bytes);
            assert_eq!((read.len(), read[0].kind), (1, BlockKind::Comment), "{text:?}");
        }
    }
}

//! The splitter against recorded streams of real providers and against two independent readers.
//!
//! `sse-stream` and `eventsource-stream` read the same bytes; where they are right, our events must be theirs. Where
//! they are wrong by the standard (WHATWG HTML 9.2), [`where_the_readers_differ`] pins how, so that an update of them
//! is noticed.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use eventsource_stream::Eventsource;
use futures_util::{FutureExt, StreamExt, stream};
use sse_stream::SseByteStream;

use super::testing::{Random, WIDE, assert_bytes_kept, drive, reference, show};

type Events = Vec<(String, String)>;

fn source(chunks: &[&[u8]]) -> impl stream::Stream<Item = Result<Bytes, Infallible>> + Unpin + use<> {
    stream::iter(chunks.iter().map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect::<Vec<_>>())
}

/// The events (name, data) that sse-stream gives, up to its first error; blocks without data are not events.
fn by_sse_stream(chunks: &[&[u8]]) -> Events {
    let read = SseByteStream::new(source(chunks)).collect::<Vec<_>>().now_or_never().unwrap();
    let events = read.into_iter().map_while(Result::ok);
    events.filter_map(|sse| Some((sse.event.unwrap_or_default(), sse.data?))).collect()
}

/// The events that eventsource-stream gives, up to its first error. It names what has no name "message".
fn by_eventsource_stream(chunks: &[&[u8]]) -> Events {
    let read = source(chunks).eventsource().collect::<Vec<_>>().now_or_never().unwrap();
    let events = read.into_iter().map_while(Result::ok);
    events.map(|event| (if event.event == "message" { String::new() } else { event.event }, event.data)).collect()
}

#[test]
fn the_readers_agree_on_streams_within_their_reach() {
    let inputs: [&[u8]; 9] = [
        b"data: a\n\nevent: x\ndata: b\n\n",
        b"data: a\r\n\r\n: c\r\n\r\nevent: x\r\ndata\r\n\r\n",
        b"data: a\rdata: b\r\rdata: c\r\r\n\n",
        b"data:a\ndata\ndata:  b\n\nevent: y\n\ndata: z\n\nid: 1\n\n",
        b": only\n\n: comments\n\n",
        b"event: a\nevent: b\ndata: x\nevent\n\n",
        b"data: a\0b\nDATA: no\n data: no\ndata : no\n\n",
        "data: 日本語\u{2028}🙂\n\ndata: Zażółć\u{85}\n\n".as_bytes(),
        b"data: cut",
    ];
    for input in inputs {
        let ours = drive([input], WIDE).events();
        for read in 1..=input.len() {
            let chunks: Vec<&[u8]> = input.chunks(read).collect();
            assert_eq!(drive(chunks.iter().copied(), WIDE).events(), ours, "{}", show(input));
            assert_eq!(by_sse_stream(&chunks), ours, "sse-stream: {} in {read}", show(input));
            assert_eq!(by_eventsource_stream(&chunks), ours, "eventsource-stream: {} in {read}", show(input));
        }
    }
}

fn event(data: &str) -> (String, String) {
    (String::new(), data.to_owned())
}

#[test]
fn where_the_readers_differ() {
    // A BOM: the standard strips it. eventsource-stream cuts one byte of the three and panics.
    let bom: &[&[u8]] = &[b"\xEF\xBB\xBFdata: a\n\n"];
    assert_eq!(drive(bom.iter().copied(), WIDE).events(), [event("a")]);
    assert_eq!(by_sse_stream(bom), [event("a")]);
    assert!(std::panic::catch_unwind(|| by_eventsource_stream(bom)).is_err());

    // Bytes that are no UTF-8, in data: the standard replaces them and goes on. sse-stream stops there;
    // eventsource-stream shows nothing from the bad byte on.
    let bad_data: &[&[u8]] = &[b"data: a\n\n", b"data: \xFF\n\ndata: b\n\n"];
    assert_eq!(drive(bad_data.iter().copied(), WIDE).events(), [event("a"), event("\u{FFFD}"), event("b")]);
    assert_eq!(by_sse_stream(bad_data), [event("a")]);
    assert_eq!(by_eventsource_stream(bad_data), [event("a")]);

    // The same in a comment, where no reader should care.
    let bad_comment: &[&[u8]] = &[b": \xFF\n\ndata: b\n\n"];
    assert_eq!(drive(bad_comment.iter().copied(), WIDE).events(), [event("b")]);
    assert_eq!(by_sse_stream(bad_comment), [event("b")]);
    assert_eq!(by_eventsource_stream(bad_comment), []);

    // A CR that ends the stream ends its line. eventsource-stream waits for what follows it, for ever.
    let cr_end: &[&[u8]] = &[b"data: a\r\r"];
    assert_eq!(drive(cr_end.iter().copied(), WIDE).events(), [event("a")]);
    assert_eq!(by_sse_stream(cr_end), [event("a")]);
    assert_eq!(by_eventsource_stream(cr_end), []);
}

/// The bodies of all recordings with SSE in them, by path; `None` (said aloud) where the checkout has no recordings
/// beside it.
fn recordings() -> Option<Vec<(PathBuf, Vec<u8>)>> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/recordings"));
    if !root.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "no recordings beside the checkout");
        // Past the test harness, which shows nothing of a test that passes.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: no recordings beside the checkout\n");
        return None;
    }
    let mut found = Vec::new();
    for api in ["chat-completions", "anthropic-messages", "responses", "gemini"] {
        let files = fs::read_dir(root.join(api)).unwrap().map(|entry| entry.unwrap().path());
        for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "http")) {
            let bytes = fs::read(&path).unwrap();
            let head = bytes.windows(2).position(|pair| pair == b"\n\n").unwrap();
            found.push((path, bytes[head + 2..].to_vec()));
        }
    }
    found.sort();
    Some(found)
}

#[test]
fn recordings_split_alike_at_any_chunking_and_as_other_readers_split_them() {
    let Some(recordings) = recordings() else { return };
    let (mut files, mut events) = (0, 0);
    for (path, body) in &recordings {
        let expected = reference(body, WIDE);
        assert_bytes_kept(body, &expected);
        let mut random = Random(body.len() as u64);
        let mut chunkings: Vec<Vec<&[u8]>> = vec![
            vec![body],
            body.chunks(8192).collect(),
            body.chunks(1369).collect(),
            body.chunks(61).collect(),
            random.cut(body, 40),
            random.cut(body, 4000),
        ];
        // Byte by byte, and cut at each end of a block: only where a debug build has the time.
        if body.len() <= 32 << 10 {
            chunkings.push(body.chunks(1).collect());
        }
        for chunks in chunkings {
            let split = drive(chunks, WIDE);
            assert!(split == expected, "{} splits in another way", path.display());
        }
        let ours = expected.events();
        let reads: Vec<&[u8]> = random.cut(body, 3000);
        assert!(by_sse_stream(&reads) == ours, "{}: sse-stream reads something else", path.display());
        assert!(by_eventsource_stream(&reads) == ours, "{}: eventsource-stream reads something else", path.display());
        files += usize::from(!ours.is_empty());
        events += ours.len();
    }
    println!("{files} recordings with {events} events");
    assert!(files > 100 && events > 5000, "the recordings are not what they were: {files} files, {events} events");
}

#[test]
fn small_recordings_survive_a_cut_at_every_byte() {
    let Some(recordings) = recordings() else { return };
    let small: Vec<_> = recordings.iter().filter(|(_, body)| body.len() <= 2500).collect();
    assert!(!small.is_empty());
    for (path, body) in small {
        let expected = reference(body, WIDE);
        for at in 0..=body.len() {
            assert!(drive([&body[..at], &body[at..]], WIDE) == expected, "{} cut at {at}", path.display());
        }
    }
}

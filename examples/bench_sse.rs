//! Speed of the SSE splitter beside sse-stream, eventsource-stream and a bare newline scan, in one run.
//!
//! `cargo run --release --example bench_sse`. Each row is one input in one chunking; a figure is the best of several
//! runs, as ns per event and as a multiple of ours. The splitter is timed as the relay uses it: every block split off,
//! and (column `+read`) name and data read. The two readers also check UTF-8 and copy into strings, ours does neither.
//! Only ratios of one run on one quiet machine mean anything. No statistics: that is what this is not.
//!
//! eventsource-stream is quadratic: it is left out (`-`) where a run takes seconds.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use eventsource_stream::Eventsource;
use futures_util::{FutureExt, StreamExt, stream};
use rubicon::wire::sse::{SseLimits, SseSplitter};
use sse_stream::SseByteStream;

const LIMITS: SseLimits = SseLimits { line_bytes_max: 64 << 20, event_bytes_max: 64 << 20 };
/// About the size of a chat chunk without obfuscation.
const EVENT: &str = "data: {\"id\":\"chatcmpl-0000000000\",\"object\":\"chat.completion.chunk\",\"created\":1767225600,\
    \"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n";

struct Input {
    what: &'static str,
    reads: Vec<Bytes>,
    events: usize,
    /// Whether eventsource-stream gets through in reasonable time.
    is_short: bool,
}

fn reads(body: &[u8], size: usize) -> Vec<Bytes> {
    // Each read has memory of its own, as from a socket.
    body.chunks(size).map(Bytes::copy_from_slice).collect()
}

fn inputs() -> Vec<Input> {
    let events = |count: usize| EVENT.repeat(count).into_bytes();
    let line = |mib: usize| format!("data: {}\n\n", "A".repeat(mib << 20)).into_bytes();
    let many =
        |what, count, size, is_short| Input { what, reads: reads(&events(count), size), events: count, is_short };
    let one = |what, mib, is_short| Input { what, reads: reads(&line(mib), 8192), events: 1, is_short };
    vec![
        many("1,000 events, one read", 1000, usize::MAX, true),
        many("16,000 events, one read", 16_000, usize::MAX, false),
        many("16,000 events, one per read", 16_000, EVENT.len(), true),
        many("16,000 events, 8 KiB reads", 16_000, 8192, true),
        many("16,000 events, 100 byte reads", 16_000, 100, true),
        one("1 MiB line, 8 KiB reads", 1, true),
        one("16 MiB line, 8 KiB reads", 16, false),
    ]
}

fn ours(reads: &[Bytes], is_read: bool) -> usize {
    let mut splitter = SseSplitter::new(LIMITS);
    let mut events = 0;
    for read in reads {
        splitter.push(read.clone());
        while let Ok(Some(block)) = splitter.next_block() {
            if is_read {
                black_box((block.event_name().len(), block.data()));
            }
            events += 1;
            black_box(&block);
        }
    }
    events
}

fn source(reads: &[Bytes]) -> impl stream::Stream<Item = Result<Bytes, Infallible>> + Unpin {
    stream::iter(reads.iter().cloned().map(Ok))
}

fn by_sse_stream(reads: &[Bytes]) -> usize {
    SseByteStream::new(source(reads)).map(black_box).count().now_or_never().unwrap_or(0)
}

fn by_eventsource_stream(reads: &[Bytes]) -> usize {
    source(reads).eventsource().map(black_box).count().now_or_never().unwrap_or(0)
}

fn newline_scan(reads: &[Bytes]) -> usize {
    reads.iter().map(|read| memchr::memchr_iter(b'\n', read).count()).sum::<usize>() / 2
}

/// The best of seven runs, or of as many as fit into two seconds; `None` if not all events were found.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn best(expected: usize, run: impl Fn() -> usize) -> Option<Duration> {
    let start = Instant::now();
    let mut best = None;
    for _ in 0..7 {
        let before = Instant::now();
        if black_box(run()) != expected {
            return None;
        }
        let took = before.elapsed();
        best = Some(best.map_or(took, |best: Duration| best.min(took)));
        if start.elapsed() > Duration::from_secs(2) {
            break;
        }
    }
    best
}

fn cell(time: Option<Duration>, events: usize, unit: Option<Duration>) -> String {
    let (Some(time), Some(unit)) = (time, unit) else { return "-".to_owned() };
    format!("{:.0} ({:.2}x)", time.as_nanos() as f64 / events as f64, time.as_secs_f64() / unit.as_secs_f64())
}

fn main() {
    println!("ns per event (multiple of ours)");
    println!(
        "{:<30} {:>18} {:>18} {:>18} {:>20} {:>18}",
        "input", "ours", "+read", "sse-stream", "eventsource-stream", "memchr alone"
    );
    for Input { what, reads, events, is_short } in inputs() {
        let unit = best(events, || ours(&reads, false));
        let eventsource = if is_short { best(events, || by_eventsource_stream(&reads)) } else { None };
        let cells = [
            unit,
            best(events, || ours(&reads, true)),
            best(events, || by_sse_stream(&reads)),
            eventsource,
            best(events, || newline_scan(&reads)),
        ]
        .map(|time| cell(time, events, unit));
        println!("{what:<30} {:>18} {:>18} {:>18} {:>20} {:>18}", cells[0], cells[1], cells[2], cells[3], cells[4]);
    }
}

//! The splitter's rules as tables, its limits at the byte, its memory and its work.

use bytes::Bytes;
use proptest::prelude::*;

use super::testing::{Driver, Random, Seen, WIDE, assert_bytes_kept, assert_prompt, drive, reference, show};
use super::{BlockKind, SseBlock, SseError, SseLimits, SseSplitter};

use BlockKind::{Comment, Event, NoData};

/// Kind, event name, data, raw.
type Row = (BlockKind, &'static [u8], &'static [u8], &'static [u8]);

/// Input, its blocks, the bytes that stay pending.
const RULES: &[(&[u8], &[Row], usize)] = &[
    // Line ends.
    (b"data: a\n\n", &[(Event, b"", b"a", b"data: a\n\n")], 0),
    (b"data: a\r\n\r\n", &[(Event, b"", b"a", b"data: a\r\n\r\n")], 0),
    (b"data: a\r\r", &[(Event, b"", b"a", b"data: a\r\r")], 0),
    (b"data: a\r\n\r", &[(Event, b"", b"a", b"data: a\r\n\r")], 0),
    (b"data: a\n\r\ndata: b\r\n\n", &[(Event, b"", b"a", b"data: a\n\r\n"), (Event, b"", b"b", b"data: b\r\n\n")], 0),
    (b"data: a\rdata: b\n\r", &[(Event, b"", b"a\nb", b"data: a\rdata: b\n\r")], 0),
    (b"data: a\r\n\r\n\n", &[(Event, b"", b"a", b"data: a\r\n\r\n"), (Comment, b"", b"", b"\n")], 0),
    (b"\n\r", &[(Comment, b"", b"", b"\n"), (Comment, b"", b"", b"\r")], 0),
    (b"\r\r\n", &[(Comment, b"", b"", b"\r"), (Comment, b"", b"", b"\r\n")], 0),
    // Fields.
    (b"data:a\n\n", &[(Event, b"", b"a", b"data:a\n\n")], 0),
    (b"data:  a \n\n", &[(Event, b"", b" a ", b"data:  a \n\n")], 0),
    (b"data:\ta\n\n", &[(Event, b"", b"\ta", b"data:\ta\n\n")], 0),
    (b"data: a: b:c\n\n", &[(Event, b"", b"a: b:c", b"data: a: b:c\n\n")], 0),
    (b"data::\n\n", &[(Event, b"", b":", b"data::\n\n")], 0),
    (b"data\n\n", &[(Event, b"", b"", b"data\n\n")], 0),
    (b"data:\n\n", &[(Event, b"", b"", b"data:\n\n")], 0),
    (b"data: \n\n", &[(Event, b"", b"", b"data: \n\n")], 0),
    (b"data\ndata\n\n", &[(Event, b"", b"\n", b"data\ndata\n\n")], 0),
    (b"data: a\ndata\ndata: b\n\n", &[(Event, b"", b"a\n\nb", b"data: a\ndata\ndata: b\n\n")], 0),
    (b"event: x\ndata: a\nevent:y\n\n", &[(Event, b"y", b"a", b"event: x\ndata: a\nevent:y\n\n")], 0),
    (b"event: x\nevent\ndata\n\n", &[(Event, b"", b"", b"event: x\nevent\ndata\n\n")], 0),
    (b"event: x\n\ndata: a\n\n", &[(NoData, b"x", b"", b"event: x\n\n"), (Event, b"", b"a", b"data: a\n\n")], 0),
    (b"id: 1\n\n", &[(NoData, b"", b"", b"id: 1\n\n")], 0),
    (b"retry: 9\n\n", &[(NoData, b"", b"", b"retry: 9\n\n")], 0),
    (b"id: 1\ndata: a\n\n", &[(Event, b"", b"a", b"id: 1\ndata: a\n\n")], 0),
    // Names that are nearly `data`.
    (b"Data: a\n\n", &[(NoData, b"", b"", b"Data: a\n\n")], 0),
    (b" data: a\n\n", &[(NoData, b"", b"", b" data: a\n\n")], 0),
    (b"data : a\n\n", &[(NoData, b"", b"", b"data : a\n\n")], 0),
    (b"dat\n\n", &[(NoData, b"", b"", b"dat\n\n")], 0),
    (b"datax\n\n", &[(NoData, b"", b"", b"datax\n\n")], 0),
    (b"{\"error\":{}}\n\n", &[(NoData, b"", b"", b"{\"error\":{}}\n\n")], 0),
    // Comments: blocks of their own, or part of the event's bytes.
    (b": ka\n\n", &[(Comment, b"", b"", b": ka\n\n")], 0),
    (b":\n\n", &[(Comment, b"", b"", b":\n\n")], 0),
    (b":data: a\n: b\n\n", &[(Comment, b"", b"", b":data: a\n: b\n\n")], 0),
    (b": c\ndata: a\n:d\n\n", &[(Event, b"", b"a", b": c\ndata: a\n:d\n\n")], 0),
    (b":c\nevent: x\n\n", &[(NoData, b"x", b"", b":c\nevent: x\n\n")], 0),
    // The BOM: one, at the start of the stream only.
    (b"\xEF\xBB\xBFdata: a\n\n", &[(Event, b"", b"a", b"data: a\n\n")], 0),
    (b"\xEF\xBB\xBF\n", &[(Comment, b"", b"", b"\n")], 0),
    (b"\xEF\xBB\xBF", &[], 0),
    (b"\xEF\xBB", &[], 2),
    (b"\xEF\xBBdata: a\n\n", &[(NoData, b"", b"", b"\xEF\xBBdata: a\n\n")], 0),
    (b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\n", &[(NoData, b"", b"", b"\xEF\xBB\xBFdata: a\n\n")], 0),
    (b"\n\xEF\xBB\xBFdata: a\n\n", &[(Comment, b"", b"", b"\n"), (NoData, b"", b"", b"\xEF\xBB\xBFdata: a\n\n")], 0),
    // Bytes that are no text.
    (b"data: a\0b\n\n", &[(Event, b"", b"a\0b", b"data: a\0b\n\n")], 0),
    (b"data: \xFF\xC3\n\n", &[(Event, b"", b"\xFF\xC3", b"data: \xFF\xC3\n\n")], 0),
    (b": \xFF\ndata: a\n\n", &[(Event, b"", b"a", b": \xFF\ndata: a\n\n")], 0),
    (b"\xFF\n\n", &[(NoData, b"", b"", b"\xFF\n\n")], 0),
    // U+2028 and U+0085 end no line.
    (
        b"data: a\xE2\x80\xA8b\xC2\x85c\n\n",
        &[(Event, b"", b"a\xE2\x80\xA8b\xC2\x85c", b"data: a\xE2\x80\xA8b\xC2\x85c\n\n")],
        0,
    ),
    // The end of the body comes too early.
    (b"", &[], 0),
    (b"data: a", &[], 7),
    (b"data: a\n", &[], 8),
    (b"data: a\r\n", &[], 9),
    (b"data: a\n\ndata: b\n", &[(Event, b"", b"a", b"data: a\n\n")], 8),
];

fn rows(rows: &[Row]) -> Vec<Seen> {
    let seen = |&(kind, name, data, raw): &Row| Seen { kind, name: name.into(), data: data.into(), raw: raw.into() };
    rows.iter().map(seen).collect()
}

#[test]
fn the_rules_hold_for_the_splitter_and_for_the_reference() {
    for &(input, expected, pending) in RULES {
        let ours = drive([input], WIDE);
        assert_eq!(ours.blocks, rows(expected), "{}", show(input));
        assert_eq!((ours.pending, ours.error), (pending, None), "{}", show(input));
        assert_eq!(ours, reference(input, WIDE), "{}", show(input));
    }
}

#[test]
fn any_two_cuts_of_any_rule_change_nothing_and_delay_nothing() {
    for &(input, ..) in RULES {
        for first in 0..=input.len() {
            for second in first..=input.len() {
                assert_prompt([&input[..first], &input[first..second], &input[second..]], WIDE);
            }
        }
        assert_prompt(input.chunks(1), WIDE);
    }
}

#[test]
fn a_late_lf_is_a_block_of_its_own_and_comes_at_once() {
    let mut splitter = SseSplitter::new(WIDE);
    let mut next = |chunk: &'static [u8]| {
        splitter.push(Bytes::from_static(chunk));
        std::iter::from_fn(|| splitter.next_block().unwrap()).map(|block| (block.kind, block.raw)).collect::<Vec<_>>()
    };
    assert_eq!(next(b"data: a\r\n\r"), [(Event, Bytes::from_static(b"data: a\r\n\r"))]);
    assert_eq!(next(b""), []);
    assert_eq!(next(b"\n"), [(Comment, Bytes::from_static(b"\n"))]);
    assert_eq!(next(b"data: b\r"), []);
    // Inside a block the LF is late too, but nothing was given out yet.
    assert_eq!(next(b"\n\r\nd"), [(Event, Bytes::from_static(b"data: b\r\n\r\n"))]);
}

#[test]
fn early_pushes_lose_nothing() {
    let input = b"\xEF\xBB\xBFdata: a\r\n\r\nevent: x\ndata: b\n\n: c\n\ndata: tail";
    let mut driver = Driver::new(WIDE);
    input.chunks(3).for_each(|chunk| driver.splitter.push(Bytes::copy_from_slice(chunk)));
    assert_eq!(driver.splitter.pending_bytes(), input.len(), "nothing was looked at yet, not even the BOM");
    driver.drain();
    assert_eq!(driver.split, reference(input, WIDE));
}

#[test]
fn blocks_and_data_inside_a_read_are_slices_of_it() {
    let chunk = Bytes::from(b"data: a\n\nevent: x\ndata: b\n\ndata: c\ndata: d\n\ndata: ta".to_vec());
    let memory = chunk.as_ptr_range();
    let mut splitter = SseSplitter::new(WIDE);
    splitter.push(chunk.clone());
    let blocks: Vec<SseBlock> = std::iter::from_fn(|| splitter.next_block().unwrap()).collect();
    assert_eq!(blocks.len(), 3);
    for block in &blocks {
        assert!(memory.contains(&block.raw.as_ptr()), "{block:?}");
    }
    for block in &blocks[..2] {
        assert!(memory.contains(&block.data().as_ptr()), "{block:?}");
    }
    assert!(!memory.contains(&blocks[2].data().as_ptr()), "joined data is new memory");
    drop(blocks);
    assert!(chunk.is_unique(), "an unfinished block doesn't keep the read alive");
    splitter.push(Bytes::from_static(b"il\n\n"));
    let spanning = splitter.next_block().unwrap().unwrap();
    assert_eq!(
        spanning.data().as_ptr(),
        spanning.raw[6..].as_ptr(),
        "the data of a carried block is a slice of its raw"
    );
}

/// Limits (line, event), input, blocks before the end, error.
type LimitRow = (usize, usize, &'static [u8], usize, Option<SseError>);

#[test]
fn limits_hold_to_the_byte_at_any_cut() {
    let line = |limit| Some(SseError::LineTooLong { limit });
    let event = |limit| Some(SseError::EventTooLong { limit });
    let table: &[LimitRow] = &[
        (7, 100, b"data: a\n\n", 1, None),
        (6, 100, b"data: a\n\n", 0, line(6)),
        (7, 100, b"data: a", 0, None),
        (6, 100, b"data: a", 0, line(6)),
        (7, 100, b"data: a\r\n\r\n", 1, None),
        (7, 100, b"data: a\r\r", 1, None),
        (7, 100, b"data: a\n\ndata: bc\n\n", 1, line(7)),
        (7, 100, b": 34567\n: 345678\n\n", 0, line(7)),
        (7, 100, b"\xEF\xBB\xBFdata: a\n\n", 1, None),
        (2, 100, b"\xEF\xBBx\n\n", 0, line(2)),
        (0, 100, b"\n\r\n\r", 3, None),
        (0, 100, b"a", 0, line(0)),
        (100, 9, b"data: a\n\n", 1, None),
        (100, 8, b"data: a\n\n", 0, event(8)),
        (100, 8, b"data: a\n", 0, None),
        (100, 7, b"data: a\n", 0, event(7)),
        (100, 7, b"data: a", 0, None),
        (100, 6, b"data: a", 0, event(6)),
        (100, 11, b"data: a\r\n\r\n", 1, None),
        // The blank line's LF is not counted: it would come as a lone LF if the read had ended at the CR.
        (100, 10, b"data: a\r\n\r\n", 1, None),
        (100, 10, b"data: a\r\n\r\ndata: b\n\n", 2, None),
        (100, 9, b"data: a\r\n\r\n", 0, event(9)),
        (100, 8, b"data: a\r\n\r\n", 0, event(8)),
        (100, 9, b"data: a\r\r", 1, None),
        (100, 9, b"data: a\n\ndata: bc\n\n", 1, event(9)),
        (100, 20, b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk", 0, event(20)),
        (100, 1, b"\n\r\r\n\n", 4, None),
        (100, 0, b"\n", 0, event(0)),
        (100, 0, b"", 0, None),
        // Which limit is passed first decides; at the same byte it is the line's.
        (3, 5, b"abcdefgh\n\n", 0, line(3)),
        (5, 3, b"abcdefgh\n\n", 0, event(3)),
        (4, 4, b"abcdefgh\n\n", 0, line(4)),
        (4, 6, b"a\nbcdefgh", 0, line(4)),
        (4, 5, b"a\nbcdefgh", 0, event(5)),
        (usize::MAX, usize::MAX, b"data: a\n\n", 1, None),
    ];
    for &(line_bytes_max, event_bytes_max, input, blocks, error) in table {
        let limits = SseLimits { line_bytes_max, event_bytes_max };
        let whole = drive([input], limits);
        assert_eq!((whole.blocks.len(), whole.error), (blocks, error), "{limits:?} {}", show(input));
        for at in 0..=input.len() {
            assert_prompt([&input[..at], &input[at..]], limits);
        }
        assert_prompt(input.chunks(1), limits);
    }
}

#[test]
fn a_line_without_an_end_is_refused_at_the_limit_and_not_after_gigabytes() {
    let limits = SseLimits { line_bytes_max: 100_000, event_bytes_max: 120_000 };
    let mut driver = Driver::new(limits);
    let mut pushed = 0;
    while driver.split.error.is_none() {
        driver.push(&[b'x'; 8192]);
        pushed += 8192;
        assert!(pushed <= 100_000 + 8192, "noticed with the read that goes over");
    }
    assert_eq!(driver.split.error, Some(SseError::LineTooLong { limit: 100_000 }));
    driver.push(b"\n\ndata: a\n\n");
    assert_eq!(
        (driver.split.blocks.len(), driver.splitter.pending_bytes()),
        (0, 0),
        "nothing more comes out, nothing is kept"
    );
}

/// Feeds `input` in reads of `read` bytes; gives the number of blocks and the bytes of work.
fn work_of(input: &[u8], read: usize) -> (usize, usize) {
    let mut splitter = SseSplitter::new(WIDE);
    let mut blocks = 0;
    let mut chunk = Bytes::copy_from_slice(input);
    while !chunk.is_empty() {
        splitter.push(chunk.split_to(read.min(chunk.len())));
        while splitter.next_block().unwrap().is_some() {
            blocks += 1;
        }
    }
    (blocks, splitter.work)
}

#[test]
fn work_is_linear_at_any_chunking() {
    const MIB: usize = 1 << 20;
    let long_line = |len: usize| [b"data: ", vec![b'x'; len].as_slice(), b"\n\n"].concat();
    let events = b"event: x\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\r\n\r\n".repeat(16_000);
    let blank = vec![b'\n'; MIB];
    let comments = b": ka\n".repeat(100_000);
    let rows: [(&str, &[u8], usize, usize); 9] = [
        ("16 MiB line in 1 byte reads", &long_line(16 * MIB), 1, 1),
        ("16 MiB line in 8 KiB reads", &long_line(16 * MIB), 8192, 1),
        ("16 MiB line in one read", &long_line(16 * MIB), usize::MAX, 1),
        ("16,000 events in one read", &events, usize::MAX, 16_000),
        ("16,000 events in 8 KiB reads", &events, 8192, 16_000),
        ("16,000 events in 1 byte reads", &events, 1, 16_000),
        ("blank lines in one read", &blank, usize::MAX, MIB),
        ("blank lines in 1 byte reads", &blank, 1, MIB),
        ("a block of 100,000 lines that never ends", &comments, 100, 0),
    ];
    for (what, input, read, expected) in rows {
        let (blocks, work) = work_of(input, read);
        // A byte is searched once and copied once; the doublings of the carry move it up to two times more.
        assert!(work <= 4 * input.len() + 64, "{what}: {work} for {} bytes", input.len());
        // A late LF (1 byte reads of CRLF) is one block more.
        let late = if read == 1 && input.contains(&b'\r') { expected } else { 0 };
        assert_eq!(blocks, expected + late, "{what}");
    }
}

#[test]
fn work_inside_one_read_is_one_search_and_no_copy() {
    let input = b"data: {\"choices\":[]}\n\n".repeat(10_000);
    let (blocks, work) = work_of(&input, usize::MAX);
    assert_eq!((blocks, work), (10_000, input.len() - 10_000), "a blank line needs no search");
}

#[test]
fn the_carry_grows_up_to_the_limit_and_no_further() {
    let limits = SseLimits { line_bytes_max: 1000, event_bytes_max: 1002 };
    let mut driver = Driver::new(limits);
    let input = [b"data: ", [b'x'; 994].as_slice(), b"\n\n"].concat();
    let mut most = 0;
    for chunk in input.chunks(7) {
        driver.push(chunk);
        most = most.max(driver.splitter.carry.capacity());
    }
    assert_eq!((driver.split.blocks.len(), driver.split.error), (1, None));
    assert!(most > 900 && most <= 1002, "{most}");
}

#[test]
fn a_small_stream_survives_every_set_of_cuts() {
    // All 2^14 ways to cut these 15 bytes.
    let input = b":c\r\ndata:a\r\n\r\n\r";
    for cuts in 0_u32..1 << (input.len() - 1) {
        let mut chunks = Vec::new();
        let mut start = 0;
        for at in 1..input.len() {
            if cuts >> (at - 1) & 1 == 1 {
                chunks.push(&input[start..at]);
                start = at;
            }
        }
        chunks.push(&input[start..]);
        assert_eq!(drive(chunks, WIDE), reference(input, WIDE), "{cuts:b}");
    }
}

#[test]
fn fields_are_read_as_the_standard_says() {
    let raw = Bytes::from_static(b"id: 7\r\n:c\r\nretry:1\rdata\ndata:  x\n: \nodd name : v\n\r");
    let block = SseBlock { kind: Event, raw };
    let fields: Vec<(&[u8], &[u8])> = block.fields().map(|field| (field.name, field.value)).collect();
    let expected: [(&[u8], &[u8]); 5] =
        [(b"id", b"7"), (b"retry", b"1"), (b"data", b""), (b"data", b" x"), (b"odd name ", b"v")];
    assert_eq!(fields, expected);
    // A block made by hand may lack its last line end.
    let block = SseBlock { kind: Event, raw: Bytes::from_static(b"data: a") };
    assert_eq!(block.data(), b"a".as_slice());
}

proptest! {
    #[test]
    fn any_bytes_at_any_chunking_give_what_the_reference_gives(
        input in proptest::collection::vec(
            prop_oneof![
                6 => prop_oneof![Just(b'\n'), Just(b'\r')],
                6 => prop_oneof![Just(b':'), Just(b' '), Just(b'd'), Just(b'a'), Just(b't'), Just(b'x')],
                1 => prop_oneof![Just(0xEF), Just(0xBB), Just(0xBF), Just(0_u8)],
                1 => any::<u8>(),
            ],
            0..80,
        ),
        words in proptest::collection::vec(
            prop_oneof![Just("data:"), Just("data"), Just("event: e\r\n"), Just("\r\n\r\n")],
            0..4,
        ),
        seed in any::<u64>(),
        line_bytes_max in prop_oneof![3 => Just(1000_usize), 1 => 0..20_usize],
        event_bytes_max in prop_oneof![3 => Just(1000_usize), 1 => 0..40_usize],
    ) {
        let mut random = Random(seed);
        let mut input = input;
        for word in words {
            let at = random.below(input.len() + 1);
            input.splice(at..at, word.bytes());
        }
        let limits = SseLimits { line_bytes_max, event_bytes_max };
        assert_prompt(random.cut(&input, 5), limits);
        let split = drive(random.cut(&input, 40), limits);
        prop_assert_eq!(&split, &reference(&input, limits));
        assert_bytes_kept(&input, &split);
    }
}

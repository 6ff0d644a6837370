//! A seeded fuzz loop: streams built from the format's own parts, broken a little, against the naive reference.
//!
//! `RUBICON_FUZZ_ITERS` sets the number of streams (default 2,000, half a second in a debug build),
//! `RUBICON_FUZZ_SEED` the first seed. A failure names the seed of its stream; run it alone with that seed and one
//! iteration. (cargo-fuzz would need a nightly compiler.)

use super::SseLimits;
use super::testing::{Random, WIDE, assert_bytes_kept, assert_prompt, drive, reference, show};

const ENDS: &[&[u8]] = &[b"\n", b"\r\n", b"\r"];
const NAMES: &[&[u8]] = &[
    b"data",
    b"data",
    b"data",
    b"event",
    b"id",
    b"retry",
    b"",
    b"dat",
    b"datax",
    b"Data",
    b" data",
    b"data ",
    b"\xEF\xBB\xBFdata",
];
const COLONS: &[&[u8]] = &[b": ", b":", b"", b":  ", b"::", b" :"];
const VALUES: &[&[u8]] = &[
    b"",
    b"x",
    b"[DONE]",
    b"{\"a\":\"data: \\n\"}",
    "日本語 🙂".as_bytes(),
    b"\0",
    b"\xFF\xFE",
    b"\xF0\x9F\x99",
    b"\xEF\xBB\xBF",
    b" ",
];
const NOISE: &[u8] = b"\r\n: datevn\0\xEF\xBB\xBF\xFF";

/// A stream of up to `parts` lines, blank lines and noise.
fn stream(random: &mut Random, parts: usize) -> Vec<u8> {
    let mut out = Vec::new();
    if random.below(4) == 0 {
        out.extend_from_slice(&b"\xEF\xBB\xBF"[..=random.below(3)]);
    }
    // Most streams keep to one line end, as real ones do.
    let usual_end = random.pick(ENDS);
    for _ in 0..random.below(parts + 1) {
        match random.below(10) {
            0..=4 => {
                out.extend_from_slice(random.pick(NAMES));
                out.extend_from_slice(random.pick(COLONS));
                out.extend_from_slice(random.pick(VALUES));
                if random.below(8) == 0 {
                    out.resize(out.len() + random.below(300), b'a');
                }
            }
            5..=7 => {}
            8 => {
                out.push(b':');
                out.extend_from_slice(random.pick(VALUES));
            }
            _ => (0..random.below(6)).for_each(|_| out.push(NOISE[random.below(NOISE.len())])),
        }
        let runs = if random.below(12) == 0 { random.below(9) } else { 1 };
        for _ in 0..runs {
            out.extend_from_slice(if random.below(6) == 0 { random.pick(ENDS) } else { usual_end });
        }
    }
    out.truncate(out.len() - random.below(4).min(out.len()));
    out
}

fn limits(random: &mut Random, len: usize) -> SseLimits {
    match random.below(3) {
        0 => SseLimits { line_bytes_max: random.below(40), event_bytes_max: random.below(80) },
        1 => SseLimits { line_bytes_max: random.below(len + 2), event_bytes_max: random.below(len + 2) },
        _ => WIDE,
    }
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

#[test]
fn built_and_broken_streams_give_what_the_reference_gives() {
    let first = from_env("RUBICON_FUZZ_SEED", 1);
    let iterations = from_env("RUBICON_FUZZ_ITERS", 2000);
    let (mut blocks, mut errors) = (0, 0);
    for seed in first..first.saturating_add(iterations) {
        let mut random = Random(seed);
        let input = stream(&mut random, 24);
        let limits = limits(&mut random, input.len());
        let expected = reference(&input, limits);
        for longest in [1, 3, 16, 200, 4096] {
            let split = drive(random.cut(&input, longest), limits);
            assert_eq!(split, expected, "RUBICON_FUZZ_SEED={seed} {limits:?} chunks up to {longest}: {}", show(&input));
            assert_bytes_kept(&input, &split);
        }
        if seed % 8 == 0 {
            assert_prompt(random.cut(&input, 12), limits);
        }
        blocks += expected.blocks.len();
        errors += usize::from(expected.error.is_some());
    }
    if iterations >= 1000 {
        // The generator must not go blind: there are many blocks, and errors in a good part of the streams.
        assert!(blocks as u64 > 2 * iterations, "{blocks}");
        assert!((errors as u64) > iterations / 10 && (errors as u64) < iterations * 9 / 10, "{errors}");
    }
}

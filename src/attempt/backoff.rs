//! How long to wait before another try when nobody said how long (SPEC section 6: "full-jitter exponential backoff within
//! bounds").
//!
//! In: which try it is and one random number. Out: a duration. Pure: the random source is the caller's, so that tests can
//! choose. Full jitter (anywhere between nothing and the exponential bound) and not "bound plus a little": clients that
//! failed together must not come back together, and the lower half of the range costs the waiting user least.
//! Not here: whether there is time or budget for another try at all.

use std::time::Duration;

/// The bound of the first wait. 250 ms: an eighth of the 2 s that a route without data is taken to need for its first output.
pub const BACKOFF_BASE: Duration = Duration::from_millis(250);

/// What no wait exceeds. 8 s: under a third of the default 30 s deadline, so that a capped wait still leaves an attempt.
pub const BACKOFF_CAP: Duration = Duration::from_secs(8);

/// A wait between zero and `min(cap, base × 2^attempt)`, both ends possible.
///
/// `attempt` counts failed tries from 0; `random` is uniform over all of `u64` and alone decides where in the range the
/// wait falls. Whatever overflows is the cap; a `base` over the cap is the cap.
#[must_use]
pub fn full_jitter(attempt: u32, random: u64, base: Duration, cap: Duration) -> Duration {
    let doubled = 1_u128.checked_shl(attempt).and_then(|factor| base.as_nanos().checked_mul(factor));
    let bound = doubled.map_or(cap.as_nanos(), |nanos| nanos.min(cap.as_nanos()));
    // random / 2^64 of (bound + 1): `cap` is under 2^94 ns, so the product can overflow 128 bits only for caps of centuries.
    let nanos = u128::from(random).checked_mul(bound + 1).map_or(bound, |product| product >> 64);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges() {
        let (base, cap) = (BACKOFF_BASE, BACKOFF_CAP);
        let half = 1_u64 << 63;
        let rows = [
            ("least random is no wait", 0, 0, base, cap, Duration::ZERO),
            ("most random is the whole bound", 0, u64::MAX, base, cap, base),
            ("half way, first try", 0, half, base, cap, Duration::from_millis(125)),
            ("second try doubles", 1, u64::MAX, base, cap, Duration::from_millis(500)),
            ("fifth try", 4, u64::MAX, base, cap, Duration::from_secs(4)),
            ("sixth reaches the cap", 5, u64::MAX, base, cap, cap),
            ("and stays", 6, u64::MAX, base, cap, cap),
            ("shift of the whole width", 128, u64::MAX, base, cap, cap),
            ("the last attempt there is", u32::MAX, u64::MAX, base, cap, cap),
            ("no base, no wait", 9, u64::MAX, Duration::ZERO, cap, Duration::ZERO),
            ("no cap, no wait", 9, u64::MAX, base, Duration::ZERO, Duration::ZERO),
            ("base over the cap", 0, u64::MAX, cap * 2, cap, cap),
        ];
        for (what, attempt, random, base, cap, want) in rows {
            assert_eq!(full_jitter(attempt, random, base, cap), want, "{what}");
        }
        assert!(full_jitter(u32::MAX, u64::MAX, Duration::MAX, Duration::MAX) <= Duration::MAX);
    }

    proptest::proptest! {
        #[test]
        fn within_bounds_and_monotonic_in_the_random_number(attempt in 0_u32..200, a: u64, b: u64, base in 0_u64..10_000, cap in 0_u64..60_000) {
            let (base, cap) = (Duration::from_millis(base), Duration::from_millis(cap));
            let (low, high) = (full_jitter(attempt, a.min(b), base, cap), full_jitter(attempt, a.max(b), base, cap));
            proptest::prop_assert!(low <= high && high <= cap);
            proptest::prop_assert!(attempt > 0 || high <= base);
        }
    }
}

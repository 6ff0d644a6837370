//! The budget of attempts after the first that all operations of a route share. Pure.
//!
//! Retries help while few fail and kill when all do: in any 10 s further attempts are at most a share of the operations that were
//! begun, or a small fixed number where there are few. The route is the one that was asked first: it is its failures that are paid for.

use std::time::Duration;

use crate::clock::Instant;
use crate::config::settings::RetryShare;

use super::window::Window;

/// The window of [`RetryShare`].
pub const SPAN: Duration = Duration::from_secs(10);

/// In so many slots: a quarter of a second each.
const SLOTS: u32 = 40;

/// What a caller is told to wait who met a spent budget: some of it is free again with the next slots, and new operations add to it.
pub const SPENT_HINT: Duration = Duration::from_secs(1);

/// One route's budget.
#[derive(Debug)]
pub struct RetryBudget {
    operations: Window,
    further: Window,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { operations: Window::new(SPAN, SLOTS), further: Window::new(SPAN, SLOTS) }
    }
}

impl RetryBudget {
    /// An operation asks this route first.
    pub fn operation(&mut self, now: Instant) {
        self.operations.add(1, now);
    }

    /// Whether a further attempt is left.
    pub fn allows(&mut self, share: &RetryShare, now: Instant) -> bool {
        self.further.at_least_span(now) < self.most(share, now)
    }

    /// Takes a further attempt, if one is left.
    pub fn take(&mut self, share: &RetryShare, now: Instant) -> bool {
        let allowed = self.allows(share, now);
        if allowed {
            self.further.add(1, now);
        }
        allowed
    }

    fn most(&mut self, share: &RetryShare, now: Instant) -> u64 {
        #[allow(clippy::cast_precision_loss, reason = "operations of ten seconds are far below 2^53")]
        let operations = self.operations.within_span(now) as f64;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and neither is negative"
        )]
        let by_share = (share.share.max(0.0) * operations) as u64;
        by_share.max(u64::from(share.min_per_second).saturating_mul(SPAN.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(budget: &mut RetryBudget, share: &RetryShare, now: Instant) -> u32 {
        (0..1000).map(|_| u32::from(budget.take(share, now))).sum()
    }

    #[test]
    fn a_share_of_the_operations_or_the_fixed_number() {
        for (share, min, operations, further) in [
            (0.2, 5, 0, 50),
            (0.2, 5, 100, 50),
            (0.2, 5, 500, 100),
            (0.2, 0, 0, 0),
            (0.2, 0, 4, 0),
            (0.2, 0, 5, 1),
            (0.2, 0, 14, 2),
            (0.0, 0, 500, 0),
            (2.0, 0, 100, 200),
            (-1.0, 0, 100, 0),
        ] {
            let now = Instant::now();
            let mut budget = RetryBudget::default();
            for _ in 0..operations {
                budget.operation(now);
            }
            let share = RetryShare { share, min_per_second: min };
            assert_eq!(budget.allows(&share, now), further > 0);
            assert_eq!(taken(&mut budget, &share, now), further, "{share:?} of {operations}");
        }
    }

    #[test]
    fn it_comes_back_with_time_and_goes_with_the_operations() {
        let now = Instant::now();
        let share = RetryShare { share: 0.1, min_per_second: 0 };
        let mut budget = RetryBudget::default();
        (0..100).for_each(|_| budget.operation(now));
        assert_eq!(taken(&mut budget, &share, now), 10);
        (0..100).for_each(|_| budget.operation(now + SPAN / 2));
        assert_eq!(taken(&mut budget, &share, now + SPAN / 2), 10);
        // The first hundred are gone, and what they paid for a moment later.
        assert_eq!(taken(&mut budget, &share, now + SPAN), 0);
        assert_eq!(taken(&mut budget, &share, now + SPAN * 2), 0);
    }

    proptest::proptest! {
        /// The promise that an outage is measured by, whatever the order of things: attempts ≤ (1 + share) × operations.
        #[test]
        fn further_attempts_are_never_above_the_share_of_all(steps: Vec<(u16, u8, u8)>) {
            let share = RetryShare { share: 0.2, min_per_second: 0 };
            let (mut now, mut budget) = (Instant::now(), RetryBudget::default());
            let (mut operations, mut further) = (0_u32, 0_u32);
            for (ms, begun, wanted) in steps {
                now += Duration::from_millis(u64::from(ms % 4000));
                (0..begun).for_each(|_| budget.operation(now));
                operations += u32::from(begun);
                further += (0..wanted).map(|_| u32::from(budget.take(&share, now))).sum::<u32>();
                proptest::prop_assert!(f64::from(further) <= 0.2 * f64::from(operations));
            }
        }
    }
}

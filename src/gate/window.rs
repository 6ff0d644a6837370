//! How much happened in the last minute, second, ten seconds: a sliding window in a fixed number of slots. Pure.
//!
//! Time is cut into slots; one slot more than the span has is kept. So [`Window::at_least_span`] never counts less than any true
//! window of the span (for limits, which must not be passed), and [`Window::within_span`] never more (for a budget that grows with
//! what is counted). Memory is the slots', whatever the traffic.

use std::time::Duration;

use crate::clock::Instant;

/// Which slot something was counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u64);

/// A sliding count.
#[derive(Clone, Debug)]
pub struct Window {
    slot: Duration,
    counts: Vec<u64>,
    /// The first moment that was seen, and the number of the newest slot since.
    began: Option<Instant>,
    newest: u64,
    total: u64,
}

impl Window {
    /// A window over `span` in `slots` (both at least one, a nanosecond).
    pub fn new(span: Duration, slots: u32) -> Self {
        let slots = slots.max(1);
        let slot = (span / slots).max(Duration::from_nanos(1));
        let kept = usize::try_from(slots).unwrap_or(1).saturating_add(1);
        Self { slot, counts: vec![0; kept], began: None, newest: 0, total: 0 }
    }

    /// What happened in the last span and up to one slot before it.
    pub fn at_least_span(&mut self, now: Instant) -> u64 {
        self.go_to(now);
        self.total
    }

    /// What happened in the last span, less up to one slot of it.
    pub fn within_span(&mut self, now: Instant) -> u64 {
        self.go_to(now);
        self.total.saturating_sub(self.count(self.newest.wrapping_add(1)))
    }

    /// Counts `n` more.
    pub fn add(&mut self, n: u64, now: Instant) -> Slot {
        self.go_to(now);
        let newest = self.newest;
        let room = u64::MAX - self.total;
        self.set(newest, self.count(newest) + n.min(room));
        self.total += n.min(room);
        Slot(newest)
    }

    /// Takes back up to `n` of what was counted there; what has left the window already is not counted any more.
    pub fn take_back(&mut self, slot: Slot, n: u64, now: Instant) {
        self.go_to(now);
        let kept = u64::try_from(self.counts.len()).unwrap_or(u64::MAX);
        if self.newest.saturating_sub(slot.0) < kept {
            let taken = n.min(self.count(slot.0));
            self.set(slot.0, self.count(slot.0) - taken);
            self.total -= taken;
        }
    }

    /// How long until `n` more stay within `max`, if nothing else is counted.
    pub fn room_in(&mut self, n: u64, max: u64, now: Instant) -> Duration {
        self.go_to(now);
        let mut left = self.total;
        let kept = u64::try_from(self.counts.len()).unwrap_or(u64::MAX);
        // The oldest first; the slot behind the newest, in the ring, is the oldest.
        for age in 0..kept {
            if left.saturating_add(n) <= max {
                return self.leaves_in(age, now);
            }
            left = left.saturating_sub(self.count(self.newest.wrapping_add(1).wrapping_add(age)));
        }
        self.leaves_in(kept, now)
    }

    /// When the `age` oldest slots have left.
    fn leaves_in(&self, age: u64, now: Instant) -> Duration {
        let Some(began) = self.began.filter(|_| age > 0) else { return Duration::ZERO };
        let slots = u32::try_from(self.newest.saturating_add(age)).unwrap_or(u32::MAX);
        (began + self.slot.saturating_mul(slots)).saturating_duration_since(now)
    }

    /// Moments may come a little out of order (each caller reads the clock before it takes the lock): an earlier one is the newest.
    fn go_to(&mut self, now: Instant) {
        let began = *self.began.get_or_insert(now);
        let since = now.saturating_duration_since(began).as_nanos() / self.slot.as_nanos().max(1);
        let number = u64::try_from(since).unwrap_or(u64::MAX);
        if number <= self.newest {
            return;
        }
        let kept = u64::try_from(self.counts.len()).unwrap_or(u64::MAX);
        if number - self.newest >= kept {
            self.counts.fill(0);
            self.total = 0;
        } else {
            for passed in self.newest + 1..=number {
                self.total -= self.count(passed);
                self.set(passed, 0);
            }
        }
        self.newest = number;
    }

    fn place(&self, number: u64) -> usize {
        let kept = u64::try_from(self.counts.len()).unwrap_or(u64::MAX).max(1);
        usize::try_from(number % kept).unwrap_or(0)
    }

    fn count(&self, number: u64) -> u64 {
        self.counts.get(self.place(number)).copied().unwrap_or(0)
    }

    fn set(&mut self, number: u64, count: u64) {
        let place = self.place(number);
        if let Some(kept) = self.counts.get_mut(place) {
            *kept = count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_window_slides() {
        let now = Instant::now();
        let mut window = Window::new(Duration::from_secs(1), 10);
        window.add(3, now);
        window.add(2, now + 550 * MS);
        for (ms, at_least, within) in
            [(550, 5, 5), (999, 5, 5), (1000, 5, 2), (1099, 5, 2), (1100, 2, 2), (1550, 2, 0), (1700, 0, 0)]
        {
            let at = now + ms * MS;
            assert_eq!((window.at_least_span(at), window.within_span(at)), (at_least, within), "{ms}");
        }
        // A moment that is a little late is counted as the newest.
        let slot = window.add(1, now);
        assert_eq!(window.at_least_span(now + 1700 * MS), 1);
        window.take_back(slot, 5, now + 1700 * MS);
        assert_eq!(window.at_least_span(now + 1700 * MS), 0);
        assert_eq!(window.at_least_span(now + Duration::from_secs(1_000_000)), 0);
    }

    #[test]
    fn when_there_is_room_again() {
        let now = Instant::now();
        let mut window = Window::new(Duration::from_secs(1), 10);
        window.add(3, now);
        window.add(2, now + 550 * MS);
        let at = now + 600 * MS;
        for (n, max, ms) in [(1, 6, 0), (1, 5, 500), (3, 5, 500), (4, 5, 1000), (9, 5, 1100)] {
            assert_eq!(window.room_in(n, max, at), ms * MS, "{n} of {max}");
        }
        assert!(window.at_least_span(now + 1100 * MS) == 2 && window.room_in(3, 5, now + 1100 * MS).is_zero());
    }

    proptest::proptest! {
        /// Against every event kept with its moment.
        #[test]
        fn never_less_than_a_true_window_and_never_more(steps: Vec<(u16, u8)>) {
            let span = Duration::from_millis(1000);
            let mut window = Window::new(span, 10);
            let mut now = Instant::now();
            let mut all: Vec<(Instant, u64)> = Vec::new();
            for (ms, n) in steps {
                now += Duration::from_millis(u64::from(ms % 700));
                window.add(u64::from(n), now);
                all.push((now, u64::from(n)));
                let last = |span: Duration| -> u64 {
                    all.iter().filter(|(at, _)| now.duration_since(*at) < span).map(|(_, n)| n).sum()
                };
                let (at_least, within) = (window.at_least_span(now), window.within_span(now));
                proptest::prop_assert!(at_least >= last(span) && at_least <= last(span + span / 10));
                proptest::prop_assert!(within <= last(span) && within >= last(span - span / 10));
                let room = window.room_in(1, 50, now);
                proptest::prop_assert!(window.clone().at_least_span(now + room) < 50);
            }
        }
    }
}

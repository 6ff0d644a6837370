//! How much of a route is in use: attempts at once, requests and tokens a minute, and what recovery traffic adds. Pure.
//!
//! In: the configured limits and who wants in. Out: whether it fits, and when it may. Attempts are held to the end of their streams;
//! tokens are estimated when an attempt begins and corrected when the provider tells. A limit that is absent limits nothing, but
//! everything is counted all the same, so that a limit that a reload brings counts from the moment before.

use std::time::Duration;

use crate::clock::Instant;
use crate::config::settings::{FailoverLimits, Limits};

use super::Closed;
use super::window::{Slot, Window};

/// A minute in so many slots: a limit may be kept a second too long.
const MINUTE_SLOTS: u32 = 60;

/// A second in so many.
const SECOND_SLOTS: u32 = 20;

/// Nobody knows when an attempt that is going on will end: this is what is told.
pub const CONCURRENCY_HINT: Duration = Duration::from_secs(1);

/// What is in use of one route.
#[derive(Debug)]
pub struct InUse {
    attempts: u32,
    recovering: u32,
    requests: Window,
    tokens: Window,
    recoveries: Window,
}

/// Who wants in.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Another route should have served.
    pub recovery: bool,
    /// Estimated input and output.
    pub tokens: u64,
}

/// Tokens that were counted for an attempt, and where.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    tokens: u64,
    slot: Slot,
}

impl Default for InUse {
    fn default() -> Self {
        let minute = || Window::new(Duration::from_secs(60), MINUTE_SLOTS);
        let recoveries = Window::new(Duration::from_secs(1), SECOND_SLOTS);
        Self { attempts: 0, recovering: 0, requests: minute(), tokens: minute(), recoveries }
    }
}

impl InUse {
    /// Attempts going on.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Those of them that are recovery traffic.
    pub fn recovering(&self) -> u32 {
        self.recovering
    }

    /// Which limit does not allow it now, and when it may.
    pub fn closed(
        &mut self,
        limits: &Limits,
        failover: &FailoverLimits,
        want: Want,
        now: Instant,
    ) -> Option<(Closed, Duration)> {
        if limits.concurrency.is_some_and(|max| self.attempts >= max) {
            return Some((Closed::Capacity, CONCURRENCY_HINT));
        }
        if let Some(max) = limits.requests_per_minute
            && self.requests.at_least_span(now).saturating_add(1) > max
        {
            return Some((Closed::Capacity, self.requests.room_in(1, max, now)));
        }
        if let Some(max) = limits.tokens_per_minute {
            // One that is estimated above the whole limit goes when it is alone, or it would never go.
            let tokens = want.tokens.min(max);
            if self.tokens.at_least_span(now).saturating_add(tokens) > max {
                return Some((Closed::Capacity, self.tokens.room_in(tokens, max, now)));
            }
        }
        if !want.recovery {
            return None;
        }
        if failover.concurrency.is_some_and(|max| self.recovering >= max) {
            return Some((Closed::FailoverLimit, CONCURRENCY_HINT));
        }
        let max = u64::from(failover.requests_per_second?);
        let full = self.recoveries.at_least_span(now).saturating_add(1) > max;
        full.then(|| (Closed::FailoverLimit, self.recoveries.room_in(1, max, now)))
    }

    /// Takes what the attempt needs; nothing is asked any more.
    pub fn take(&mut self, want: Want, now: Instant) -> Counted {
        self.attempts = self.attempts.saturating_add(1);
        self.requests.add(1, now);
        if want.recovery {
            self.recovering = self.recovering.saturating_add(1);
            self.recoveries.add(1, now);
        }
        Counted { tokens: want.tokens, slot: self.tokens.add(want.tokens, now) }
    }

    /// The attempt is over, its stream included.
    pub fn leave(&mut self, recovery: bool) {
        self.attempts = self.attempts.saturating_sub(1);
        if recovery {
            self.recovering = self.recovering.saturating_sub(1);
        }
    }

    /// What the attempt did use, in place of what was counted for it.
    pub fn correct(&mut self, counted: &mut Counted, tokens: u64, now: Instant) {
        if tokens > counted.tokens {
            // They were used up to now.
            self.tokens.add(tokens - counted.tokens, now);
        } else {
            self.tokens.take_back(counted.slot, counted.tokens - tokens, now);
        }
        counted.tokens = tokens;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: FailoverLimits = FailoverLimits { concurrency: None, requests_per_second: None };
    const FREE: Limits = Limits { concurrency: None, requests_per_minute: None, tokens_per_minute: None };

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn want(recovery: bool, tokens: u64) -> Want {
        Want { recovery, tokens }
    }

    #[test]
    fn attempts_at_once() {
        let now = Instant::now();
        let limits = Limits { concurrency: Some(3), ..FREE };
        let failover = FailoverLimits { concurrency: Some(1), ..NONE };
        let mut used = InUse::default();
        assert_eq!(used.closed(&limits, &failover, want(true, 0), now), None);
        used.take(want(true, 0), now);
        let refused = used.closed(&limits, &failover, want(true, 0), now);
        assert_eq!(refused, Some((Closed::FailoverLimit, CONCURRENCY_HINT)), "its share is in use");
        assert_eq!(used.closed(&limits, &failover, want(false, 0), now), None, "the route's own traffic goes on");
        used.take(want(false, 0), now);
        used.take(want(false, 0), now);
        assert_eq!(used.closed(&limits, &failover, want(false, 0), now), Some((Closed::Capacity, CONCURRENCY_HINT)));
        used.leave(true);
        assert_eq!(used.closed(&limits, &failover, want(true, 0), now), None);
        assert_eq!((used.attempts(), used.recovering()), (2, 0));
        for _ in 0..5 {
            used.leave(true);
        }
        assert_eq!((used.attempts(), used.recovering()), (0, 0));
    }

    #[test]
    fn requests_and_recoveries_by_time() {
        let now = Instant::now();
        let limits = Limits { requests_per_minute: Some(2), ..FREE };
        let mut used = InUse::default();
        used.take(want(false, 0), now);
        used.take(want(false, 0), now + s(30));
        let at = now + s(40);
        assert_eq!(used.closed(&limits, &NONE, want(false, 0), at), Some((Closed::Capacity, s(21))));
        assert_eq!(used.closed(&limits, &NONE, want(false, 0), at + s(21)), None);
        let failover = FailoverLimits { requests_per_second: Some(1), ..NONE };
        let later = now + s(300);
        used.take(want(true, 0), later);
        let refused = used.closed(&FREE, &failover, want(true, 0), later);
        assert_eq!(refused, Some((Closed::FailoverLimit, Duration::from_millis(1050))));
        assert_eq!(used.closed(&FREE, &failover, want(false, 0), later), None);
        assert_eq!(used.closed(&FREE, &failover, want(true, 0), later + s(2)), None);
    }

    #[test]
    fn tokens_are_estimated_and_corrected() {
        let now = Instant::now();
        let limits = Limits { tokens_per_minute: Some(100), ..FREE };
        let fits = |used: &mut InUse, tokens, at| used.closed(&limits, &NONE, want(false, tokens), at).is_none();
        let mut used = InUse::default();
        assert!(fits(&mut used, 5000, now), "alone, one above the limit may go");
        let mut first = used.take(want(false, 60), now);
        assert!(fits(&mut used, 40, now) && !fits(&mut used, 41, now) && !fits(&mut used, 5000, now));
        used.correct(&mut first, 10, now + s(1));
        assert!(fits(&mut used, 90, now + s(1)) && !fits(&mut used, 91, now + s(1)), "it used less");
        used.correct(&mut first, 80, now + s(30));
        assert!(fits(&mut used, 20, now + s(30)) && !fits(&mut used, 21, now + s(30)), "it used more");
        assert!(fits(&mut used, 30, now + s(61)), "its first ten have left");
        assert!(!fits(&mut used, 31, now + s(61)));
        // Told when the estimate has left the window already: nothing goes below nothing.
        let mut second = used.take(want(false, 50), now + s(200));
        used.correct(&mut second, 0, now + s(300));
        assert!(fits(&mut used, 100, now + s(300)));
    }
}

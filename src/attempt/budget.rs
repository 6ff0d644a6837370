//! What an operation may still spend: attempts, time, added latency, money. All compared on one screen.

use std::time::Duration;

use crate::clock::Instant;
use crate::config::settings::Envelope;

/// The time an attempt is assumed to need while nothing was observed of its route (SPEC section 6).
pub const NEED_WITHOUT_DATA: Duration = Duration::from_secs(2);

/// The budget of one operation.
#[derive(Clone, Debug)]
pub struct Budget {
    /// When the operation was admitted.
    pub admitted: Instant,
    /// When it must have crossed the boundary (or be answered whole).
    pub deadline: Instant,
    /// The envelope, tightened by the request.
    pub envelope: Envelope,
    /// Attempts of layers above, and those that gateways below reported.
    pub attempts_elsewhere: u32,
    /// Attempts this relay has begun.
    pub attempts: u32,
    /// Dollars spent or reserved so far.
    pub spent_usd: f64,
}

/// Why the budget does not allow another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// `max_attempts`.
    Attempts,
    /// The deadline is too near.
    Deadline,
    /// `max_added_latency_ms`.
    AddedLatency,
    /// `max_cost_usd`.
    Cost,
}

impl Budget {
    /// The budget of an operation admitted at `admitted` with `deadline` to go.
    pub fn new(admitted: Instant, deadline: Duration, envelope: Envelope, attempts_used: u32) -> Self {
        Self {
            admitted,
            deadline: admitted + deadline,
            envelope,
            attempts_elsewhere: attempts_used,
            attempts: 0,
            spent_usd: 0.0,
        }
    }

    /// Whether any attempt is left.
    pub fn attempts_left(&self) -> bool {
        self.attempts.saturating_add(self.attempts_elsewhere) < self.envelope.max_attempts
    }

    /// Whether the estimate of the first attempt fits the cost limit. Nothing else bounds the first attempt.
    pub fn affords(&self, estimate_usd: f64) -> bool {
        // Sums of a few prices: the tolerance keeps 0.1 + 0.2 within 0.3.
        self.envelope.max_cost_usd.is_none_or(|max| self.spent_usd + estimate_usd <= max + 1e-9)
    }

    /// Checks everything that limits an attempt after the first, begun at `start` (now plus a wait).
    ///
    /// # Errors
    /// The first budget that does not allow it.
    pub fn check(&self, start: Instant, need: Duration, estimate_usd: f64) -> Result<(), Exhausted> {
        if !self.attempts_left() {
            return Err(Exhausted::Attempts);
        }
        if start + need > self.deadline {
            return Err(Exhausted::Deadline);
        }
        // Time since admission that is not spent in the accepted attempt: all of it, up to this attempt's start.
        if self.envelope.max_added_latency.is_some_and(|max| start.duration_since(self.admitted) > max) {
            return Err(Exhausted::AddedLatency);
        }
        if !self.affords(estimate_usd) {
            return Err(Exhausted::Cost);
        }
        Ok(())
    }

    /// Begins an attempt: counts it and reserves its estimate.
    pub fn begin(&mut self, estimate_usd: f64) {
        self.attempts += 1;
        self.spent_usd += estimate_usd;
    }

    /// Settles an attempt: its reserve is replaced by what it did cost. `None`: not known, it counts as its estimate.
    pub fn settle(&mut self, estimate_usd: f64, actual_usd: Option<f64>) {
        if let Some(actual) = actual_usd {
            self.spent_usd += actual - estimate_usd;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::SideEffects;

    fn budget(change: impl FnOnce(&mut Envelope)) -> Budget {
        let second = Duration::from_secs(1);
        let mut envelope = Envelope {
            deadline: second,
            deadline_reasoning: second,
            answer_deadline: second,
            stream: None,
            max_attempts: 3,
            max_added_latency: None,
            max_cost_usd: None,
            side_effects: SideEffects::ReadOnly,
            repeat_unanswered: true,
        };
        change(&mut envelope);
        Budget::new(Instant::now(), Duration::from_secs(10), envelope, 0)
    }

    const NOTHING: Duration = Duration::ZERO;

    #[test]
    fn attempts_of_all_layers_count() {
        for (own, elsewhere, left) in [
            (0, 0, true),
            (2, 0, true),
            (3, 0, false),
            (1, 1, true),
            (1, 2, false),
            (0, 3, false),
            (1, u32::MAX, false),
        ] {
            let budget = Budget { attempts: own, attempts_elsewhere: elsewhere, ..budget(|_| {}) };
            assert_eq!(budget.attempts_left(), left, "{own} {elsewhere}");
            let refused = budget.check(budget.admitted, NOTHING, 0.0).err();
            assert_eq!(refused, (!left).then_some(Exhausted::Attempts), "{own} {elsewhere}");
        }
    }

    #[test]
    fn time_is_for_the_start_and_the_need() {
        let budget = budget(|envelope| envelope.max_added_latency = Some(Duration::from_secs(4)));
        let s = Duration::from_secs;
        let ms = Duration::from_millis;
        for (start, need, refused) in [
            (s(0), s(10), None),
            (s(0), s(10) + ms(1), Some(Exhausted::Deadline)),
            (s(4), s(6), None),
            // What is too late and added too much is too late first.
            (s(9), s(2), Some(Exhausted::Deadline)),
            (s(4) + ms(1), s(1), Some(Exhausted::AddedLatency)),
        ] {
            assert_eq!(budget.check(budget.admitted + start, need, 0.0).err(), refused, "{start:?} {need:?}");
        }
    }

    #[test]
    fn money_is_reserved_and_settled() {
        let mut budget = budget(|envelope| envelope.max_cost_usd = Some(0.3));
        budget.begin(0.2);
        assert_eq!((budget.affords(0.1), budget.affords(0.11)), (true, false), "0.2 is reserved");
        budget.settle(0.2, None);
        assert!(!budget.affords(0.11), "not known: it counts as its estimate");
        budget.begin(0.1);
        budget.settle(0.1, Some(0.02));
        assert_eq!((budget.affords(0.08), budget.affords(0.09)), (true, false), "0.2 and 0.02 are spent");
        budget.settle(0.2, Some(0.0));
        assert_eq!((budget.affords(0.28), budget.affords(0.29)), (true, false), "proved not to have run");
        assert_eq!(budget.check(budget.admitted, NOTHING, 0.29), Err(Exhausted::Cost));
        // Dearer than estimated: the next one feels it.
        budget.settle(0.0, Some(1.0));
        assert!(!budget.affords(0.0));
        assert!(self::budget(|_| {}).affords(1e12), "no limit");
    }
}

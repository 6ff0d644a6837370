//! Counts what is held before the boundary, so that it has a bound; the frames themselves lie with the driver.
//!
//! Lifecycle events count against the workflow's `hold` limits. Pings do not (SPEC section 5), but their number and bytes have
//! bounds of their own past which they are dropped: a provider that pings for ever holds nothing. Reasoning that is declared not visible has
//! its own, larger limit.

/// 8 MiB of reasoning text may be held where `reasoning = "hold"` (SPEC section 5); the longest recorded one is 1.6 MB.
pub const REASONING_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// 8 MiB of an answer may be held where `commit = "validated"`: some 100,000 tokens as they come in events.
pub const ANSWER_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// 16 MiB of events may be held from the first of a tool call on where `commit = "tool_call_complete"`: an event of 100 to 250 bytes
/// carries a token of a call's arguments, which have a bound of their own (1 MiB a call).
pub const CALL_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Pings held for one attempt: at one in 15 s this is 17 hours, far past any `first_output_ms`.
pub const PINGS_MAX: u64 = 4096;

/// Bytes of pings held for one attempt: one has 40 bytes, but a provider may say what it likes.
pub const PING_BYTES_MAX: u64 = 1024 * 1024;

/// `hold = { max_events, max_bytes }`.
#[derive(Clone, Copy, Debug)]
pub struct HoldLimits {
    /// Events that may be held.
    pub events_max: u64,
    /// Bytes that may be held.
    pub bytes_max: u64,
}

/// What is to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// An event with data.
    Event,
    /// A block without data: bytes count, events do not.
    Block,
    /// A ping.
    Ping,
    /// Reasoning that the workflow declares not visible.
    Reasoning,
    /// An event of an answer that is judged as a whole.
    Answer,
    /// An event from the first of a tool call on, until it is whole.
    Call,
}

/// Whether it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It is counted: hold it.
    Held,
    /// It may be dropped without harm (a ping too many).
    Surplus,
    /// It does not fit and was not counted.
    Full,
}

/// The counts of one attempt.
#[derive(Debug)]
pub struct Hold {
    limits: HoldLimits,
    events: u64,
    bytes: u64,
    pings: u64,
    ping_bytes: u64,
    reasoning_bytes: u64,
    answer_bytes: u64,
    call_bytes: u64,
}

impl Hold {
    /// Nothing held.
    pub fn new(limits: HoldLimits) -> Self {
        Self {
            limits,
            events: 0,
            bytes: 0,
            pings: 0,
            ping_bytes: 0,
            reasoning_bytes: 0,
            answer_bytes: 0,
            call_bytes: 0,
        }
    }

    /// Starts anew.
    pub fn clear(&mut self) {
        *self = Self::new(self.limits);
    }

    /// Whether reasoning is among what is held.
    pub fn has_reasoning(&self) -> bool {
        self.reasoning_bytes > 0
    }

    /// What was held of a tool call has gone out: the next one counts anew.
    pub fn call_released(&mut self) {
        self.call_bytes = 0;
    }

    /// Counts one frame of `bytes` bytes.
    pub fn count(&mut self, kept: Kept, bytes: usize) -> Fit {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        match kept {
            Kept::Ping => {
                let total = self.ping_bytes.saturating_add(bytes);
                if self.pings >= PINGS_MAX || total > PING_BYTES_MAX {
                    return Fit::Surplus;
                }
                self.pings += 1;
                self.ping_bytes = total;
                Fit::Held
            }
            Kept::Reasoning => {
                let total = self.reasoning_bytes.saturating_add(bytes);
                if total > REASONING_BYTES_MAX {
                    // Even the first one, over the limit by itself, must not be shown.
                    self.reasoning_bytes = self.reasoning_bytes.max(1);
                    return Fit::Full;
                }
                self.reasoning_bytes = total;
                Fit::Held
            }
            Kept::Answer => add(&mut self.answer_bytes, bytes, ANSWER_BYTES_MAX),
            Kept::Call => add(&mut self.call_bytes, bytes, CALL_BYTES_MAX),
            Kept::Event | Kept::Block => {
                let events = self.events + u64::from(kept == Kept::Event);
                let total = self.bytes.saturating_add(bytes);
                if events > self.limits.events_max || total > self.limits.bytes_max {
                    return Fit::Full;
                }
                (self.events, self.bytes) = (events, total);
                Fit::Held
            }
        }
    }
}

/// Adds to a sum unless it would be over `max`.
fn add(sum: &mut u64, bytes: u64, max: u64) -> Fit {
    let total = sum.saturating_add(bytes);
    if total > max {
        return Fit::Full;
    }
    *sum = total;
    Fit::Held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_past_their_bound_are_dropped() {
        let mut hold = Hold::new(HoldLimits { events_max: 1, bytes_max: 10 });
        for _ in 0..PINGS_MAX {
            assert_eq!(hold.count(Kept::Ping, 40), Fit::Held);
        }
        assert_eq!(hold.count(Kept::Ping, 1), Fit::Surplus);
        assert_eq!(hold.count(Kept::Event, 10), Fit::Held, "pings took nothing of the events' room");
    }

    #[test]
    fn large_pings_are_dropped_too() {
        let mut hold = Hold::new(HoldLimits { events_max: 1, bytes_max: 10 });
        assert_eq!(hold.count(Kept::Ping, usize::MAX), Fit::Surplus);
        let half = usize::try_from(PING_BYTES_MAX / 2).unwrap();
        assert_eq!([(); 3].map(|()| hold.count(Kept::Ping, half)), [Fit::Held, Fit::Held, Fit::Surplus]);
    }

    #[test]
    fn blocks_without_data_count_bytes_only() {
        let mut hold = Hold::new(HoldLimits { events_max: 0, bytes_max: 10 });
        assert_eq!(hold.count(Kept::Block, 10), Fit::Held);
        assert_eq!(hold.count(Kept::Block, 1), Fit::Full);
    }

    #[test]
    fn one_reasoning_event_over_the_limit_is_full_and_remembered() {
        let mut hold = Hold::new(HoldLimits { events_max: 9, bytes_max: 10 });
        assert_eq!(hold.count(Kept::Reasoning, usize::MAX), Fit::Full);
        assert!(hold.has_reasoning());
    }
}

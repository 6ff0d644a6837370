//! May we still change our mind? The state machine of one operation's stream, pure.
//!
//! In: [`Input`]s, one a frame of the upstream, a timer or an end. Out: one [`Effect`], which the driver must carry out; the
//! one irreversible act (to let a client see something) is a value here and never a side effect. The phase only ever goes
//! forward: `Holding → HeadSent → Committed → Closed`, and may skip. What is held lies in [`hold::Hold`]; the machine counts
//! it and says when it is released or dropped.
//!
//! Two walls: in `HeadSent` the status code is spent, but another route may still answer; in `Committed` nothing may.

pub mod hold;

use crate::protocol::signal::{Show, VisibleKind};
use hold::{Hold, HoldLimits, Kept};

/// When the boundary is crossed: `commit` of a workflow (SPEC section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CommitPolicy {
    /// At the first visible output or possible side effect.
    #[default]
    FirstVisible,
    /// The same; but a tool call crosses, as a whole, when it is whole and good.
    ToolCallComplete,
    /// When the whole answer is there and good.
    Validated,
}

/// Where the stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing went out.
    Holding,
    /// The response head and keep-alives went out, nothing of a provider did.
    HeadSent,
    /// Bytes of one attempt went out: no other attempt may ever answer.
    Committed,
    /// Over.
    Closed,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// An event with data, its size in bytes.
    Event(Show, usize),
    /// An event that waits: a tool call is open, or the answer is judged as a whole ([`CommitPolicy`]). Its size in bytes.
    Waits(usize),
    /// An event with which all that waited is whole and good: a tool call's last one, or the answer's. Its size in bytes.
    Whole(usize),
    /// A block with fields but no data (`id:`, `retry:` alone), its size in bytes.
    NoData(usize),
    /// A comment block.
    Comment,
    /// The keep-alive timer ran out.
    KeepaliveDue,
    /// The attempt failed: transport, fault event, timer, framing.
    Failure,
    /// The body ended, or stays silent after its end was seen; `complete`: with what `terminal` demands.
    UpstreamEnded {
        /// The terminal event (or what lenient takes for one) was seen.
        complete: bool,
    },
    /// Somebody stopped the operation, or a shutdown cuts it.
    Stop,
}

/// What the driver must do with the frame or the situation at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Keep the frame back.
    Hold,
    /// Drop the frame.
    Drop,
    /// Send everything held, then the frame: from here on this attempt is the answer.
    Commit(Why),
    /// Send the frame.
    Forward,
    /// Send everything held, then the frame: a tool call behind the boundary is whole.
    Release,
    /// Drop what waits, over its limit: with nothing shown the attempt fails, else the stream is interrupted.
    Overflow,
    /// Send a keep-alive (and the response head first, if it is not out yet).
    Keepalive,
    /// Drop what is held; the attempt failed with nothing shown: ask the controller.
    AskControl,
    /// As `AskControl`, because held reasoning outgrew its limit: the attempt fails rather than show what it hides.
    ReasoningOverflow,
    /// Send the error frame, then abort.
    Interrupt,
    /// Send everything held (a complete answer that shows nothing), then end cleanly.
    ReleaseAndEnd,
    /// End cleanly.
    End,
    /// Nothing was shown: answer with an error.
    Refuse,
    /// Nothing to do.
    Nothing,
}

/// Why an attempt was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Visible output.
    Visible(VisibleKind),
    /// A hosted tool started.
    Effect {
        /// It may change the world.
        may_act: bool,
    },
    /// The hold was full.
    HoldLimit,
    /// The whole answer was judged, and is good.
    Validated,
}

/// The machine of one operation. The hold is counted anew for each attempt ([`Boundary::next_attempt`]).
#[derive(Debug)]
pub struct Boundary {
    phase: Phase,
    policy: CommitPolicy,
    reasoning_held: bool,
    hold: Hold,
}

impl Boundary {
    /// A stream of which nothing went out.
    pub fn new(policy: CommitPolicy, reasoning_held: bool, limits: HoldLimits) -> Self {
        Self { phase: Phase::Holding, policy, reasoning_held, hold: Hold::new(limits) }
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Forgets what a failed attempt had held.
    pub fn next_attempt(&mut self) {
        self.hold.clear();
    }

    /// Judges one input. The caller carries out the effect before the next call.
    pub fn take(&mut self, input: Input) -> Effect {
        match (self.phase, input) {
            (Phase::Closed, _) => Effect::Nothing,
            (Phase::Holding | Phase::HeadSent, Input::Event(show, bytes)) => self.before(show, bytes),
            (Phase::Holding | Phase::HeadSent | Phase::Committed, Input::Waits(bytes)) => self.wait(bytes),
            (Phase::Holding | Phase::HeadSent, Input::Whole(_)) => match self.policy {
                CommitPolicy::Validated => self.commit(Why::Validated),
                _ => self.commit(Why::Visible(VisibleKind::ToolCall)),
            },
            (Phase::Committed, Input::Whole(_)) => {
                self.hold.call_released();
                Effect::Release
            }
            (Phase::Holding | Phase::HeadSent, Input::NoData(bytes)) => self.keep(Kept::Block, bytes),
            (Phase::Holding | Phase::HeadSent, Input::Comment) => Effect::Drop,
            (Phase::Holding | Phase::HeadSent, Input::KeepaliveDue) => {
                self.phase = Phase::HeadSent;
                Effect::Keepalive
            }
            (Phase::Holding | Phase::HeadSent, Input::Failure | Input::UpstreamEnded { complete: false }) => {
                self.hold.clear();
                Effect::AskControl
            }
            (Phase::Holding | Phase::HeadSent, Input::UpstreamEnded { complete: true }) => {
                self.phase = Phase::Closed;
                Effect::ReleaseAndEnd
            }
            (Phase::Holding | Phase::HeadSent, Input::Stop) => {
                self.hold.clear();
                self.phase = Phase::Closed;
                Effect::Refuse
            }
            (Phase::Committed, Input::Event(..) | Input::NoData(_) | Input::Comment) => Effect::Forward,
            (Phase::Committed, Input::KeepaliveDue) => Effect::Nothing,
            (Phase::Committed, Input::Failure | Input::UpstreamEnded { complete: false } | Input::Stop) => {
                self.phase = Phase::Closed;
                Effect::Interrupt
            }
            (Phase::Committed, Input::UpstreamEnded { complete: true }) => {
                self.phase = Phase::Closed;
                Effect::End
            }
        }
    }

    fn before(&mut self, show: Show, bytes: usize) -> Effect {
        match show {
            Show::Preamble => self.keep(Kept::Event, bytes),
            Show::Ping => self.keep(Kept::Ping, bytes),
            Show::Visible(VisibleKind::Reasoning) if self.reasoning_held => self.keep(Kept::Reasoning, bytes),
            Show::Visible(kind) => self.commit(Why::Visible(kind)),
            Show::Effect { may_act } => self.commit(Why::Effect { may_act }),
        }
    }

    /// Nothing of what waits is ever shown by a limit.
    fn wait(&mut self, bytes: usize) -> Effect {
        let kept = if self.policy == CommitPolicy::Validated { Kept::Answer } else { Kept::Call };
        if self.hold.count(kept, bytes) != hold::Fit::Full {
            return Effect::Hold;
        }
        self.hold.clear();
        if self.phase == Phase::Committed {
            self.phase = Phase::Closed;
        }
        Effect::Overflow
    }

    fn keep(&mut self, kept: Kept, bytes: usize) -> Effect {
        match self.hold.count(kept, bytes) {
            hold::Fit::Held => Effect::Hold,
            hold::Fit::Surplus => Effect::Drop,
            hold::Fit::Full if self.hold.has_reasoning() => {
                self.hold.clear();
                Effect::ReasoningOverflow
            }
            hold::Fit::Full => self.commit(Why::HoldLimit),
        }
    }

    fn commit(&mut self, why: Why) -> Effect {
        self.hold.call_released();
        self.phase = Phase::Committed;
        Effect::Commit(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HoldLimits = HoldLimits { events_max: 3, bytes_max: 100 };
    const TEXT: Show = Show::Visible(VisibleKind::Text);
    const REASONING: Show = Show::Visible(VisibleKind::Reasoning);

    fn machine(phase: Phase) -> Boundary {
        let mut boundary = Boundary::new(CommitPolicy::FirstVisible, false, LIMITS);
        match phase {
            Phase::Holding => {}
            Phase::HeadSent => {
                boundary.take(Input::KeepaliveDue);
            }
            Phase::Committed => {
                boundary.take(Input::Event(TEXT, 1));
            }
            Phase::Closed => {
                boundary.take(Input::Stop);
            }
        }
        assert_eq!(boundary.phase(), phase);
        boundary
    }

    /// DESIGN.md section 3, one row a cell (client gone is the driver being dropped: no input).
    #[test]
    fn every_cell() {
        use Phase::{Closed, Committed, HeadSent, Holding};
        let visible = Effect::Commit(Why::Visible(VisibleKind::Text));
        let effect = Effect::Commit(Why::Effect { may_act: true });
        let rows: &[(Phase, Input, Effect, Phase)] = &[
            (Holding, Input::Event(Show::Preamble, 9), Effect::Hold, Holding),
            (HeadSent, Input::Event(Show::Preamble, 9), Effect::Hold, HeadSent),
            (Committed, Input::Event(Show::Preamble, 9), Effect::Forward, Committed),
            (Closed, Input::Event(Show::Preamble, 9), Effect::Nothing, Closed),
            (Holding, Input::Event(Show::Ping, 9), Effect::Hold, Holding),
            (HeadSent, Input::Event(Show::Ping, 9), Effect::Hold, HeadSent),
            (Committed, Input::Event(Show::Ping, 9), Effect::Forward, Committed),
            (Closed, Input::Event(Show::Ping, 9), Effect::Nothing, Closed),
            (Holding, Input::Event(TEXT, 9), visible, Committed),
            (HeadSent, Input::Event(TEXT, 9), visible, Committed),
            (Committed, Input::Event(TEXT, 9), Effect::Forward, Committed),
            (Closed, Input::Event(TEXT, 9), Effect::Nothing, Closed),
            (Holding, Input::Event(REASONING, 9), Effect::Commit(Why::Visible(VisibleKind::Reasoning)), Committed),
            (Holding, Input::Event(Show::Effect { may_act: true }, 9), effect, Committed),
            (HeadSent, Input::Event(Show::Effect { may_act: true }, 9), effect, Committed),
            (Committed, Input::Event(Show::Effect { may_act: true }, 9), Effect::Forward, Committed),
            (Closed, Input::Event(Show::Effect { may_act: true }, 9), Effect::Nothing, Closed),
            (Holding, Input::NoData(5), Effect::Hold, Holding),
            (HeadSent, Input::NoData(5), Effect::Hold, HeadSent),
            (Committed, Input::NoData(5), Effect::Forward, Committed),
            (Closed, Input::NoData(5), Effect::Nothing, Closed),
            (Holding, Input::Comment, Effect::Drop, Holding),
            (HeadSent, Input::Comment, Effect::Drop, HeadSent),
            (Committed, Input::Comment, Effect::Forward, Committed),
            (Closed, Input::Comment, Effect::Nothing, Closed),
            (Holding, Input::KeepaliveDue, Effect::Keepalive, HeadSent),
            (HeadSent, Input::KeepaliveDue, Effect::Keepalive, HeadSent),
            (Committed, Input::KeepaliveDue, Effect::Nothing, Committed),
            (Closed, Input::KeepaliveDue, Effect::Nothing, Closed),
            (Holding, Input::Failure, Effect::AskControl, Holding),
            (HeadSent, Input::Failure, Effect::AskControl, HeadSent),
            (Committed, Input::Failure, Effect::Interrupt, Closed),
            (Closed, Input::Failure, Effect::Nothing, Closed),
            (Holding, Input::UpstreamEnded { complete: true }, Effect::ReleaseAndEnd, Closed),
            (HeadSent, Input::UpstreamEnded { complete: true }, Effect::ReleaseAndEnd, Closed),
            (Committed, Input::UpstreamEnded { complete: true }, Effect::End, Closed),
            (Closed, Input::UpstreamEnded { complete: true }, Effect::Nothing, Closed),
            (Holding, Input::UpstreamEnded { complete: false }, Effect::AskControl, Holding),
            (HeadSent, Input::UpstreamEnded { complete: false }, Effect::AskControl, HeadSent),
            (Committed, Input::UpstreamEnded { complete: false }, Effect::Interrupt, Closed),
            (Closed, Input::UpstreamEnded { complete: false }, Effect::Nothing, Closed),
            (Holding, Input::Stop, Effect::Refuse, Closed),
            (HeadSent, Input::Stop, Effect::Refuse, Closed),
            (Committed, Input::Stop, Effect::Interrupt, Closed),
            (Closed, Input::Stop, Effect::Nothing, Closed),
        ];
        for (phase, input, effect, then) in rows {
            let mut boundary = machine(*phase);
            assert_eq!(boundary.take(*input), *effect, "{phase:?} {input:?}");
            assert_eq!(boundary.phase(), *then, "{phase:?} {input:?}");
        }
    }

    #[test]
    fn the_hold_limit_commits() {
        for (input, fits) in [(Input::Event(Show::Preamble, 1), 3), (Input::Event(Show::Preamble, 50), 2)] {
            let mut boundary = machine(Phase::Holding);
            for _ in 0..fits {
                assert_eq!(boundary.take(input), Effect::Hold);
            }
            assert_eq!(boundary.take(input), Effect::Commit(Why::HoldLimit));
            assert_eq!(boundary.phase(), Phase::Committed);
        }
    }

    #[test]
    fn each_attempt_counts_its_hold_anew() {
        let mut boundary = machine(Phase::Holding);
        for _ in 0..10 {
            for _ in 0..3 {
                assert_eq!(boundary.take(Input::Event(Show::Preamble, 1)), Effect::Hold);
            }
            assert_eq!(boundary.take(Input::Failure), Effect::AskControl);
            boundary.next_attempt();
        }
    }

    #[test]
    fn held_reasoning_is_not_shown_by_any_limit() {
        let mut boundary = Boundary::new(CommitPolicy::FirstVisible, true, LIMITS);
        assert_eq!(boundary.take(Input::Event(REASONING, 1000)), Effect::Hold, "over max_bytes, its own limit counts");
        for _ in 0..3 {
            assert_eq!(boundary.take(Input::Event(Show::Preamble, 1)), Effect::Hold);
        }
        assert_eq!(boundary.take(Input::Event(Show::Preamble, 1)), Effect::ReasoningOverflow);
        assert_eq!(boundary.phase(), Phase::Holding);

        let mut boundary = Boundary::new(CommitPolicy::FirstVisible, true, LIMITS);
        let quarter = usize::try_from(hold::REASONING_BYTES_MAX / 4).unwrap();
        for _ in 0..4 {
            assert_eq!(boundary.take(Input::Event(REASONING, quarter)), Effect::Hold);
        }
        assert_eq!(boundary.take(Input::Event(REASONING, 1)), Effect::ReasoningOverflow);
        assert_eq!(boundary.take(Input::Event(TEXT, 1)), Effect::Commit(Why::Visible(VisibleKind::Text)));
    }

    #[test]
    fn a_tool_call_waits_and_crosses_as_a_whole() {
        use Phase::{Closed, Committed, HeadSent, Holding};
        let complete = |phase| {
            let mut boundary = machine(phase);
            boundary.policy = CommitPolicy::ToolCallComplete;
            boundary
        };
        let crosses = Effect::Commit(Why::Visible(VisibleKind::ToolCall));
        for (phase, then, effect) in
            [(Holding, Committed, crosses), (HeadSent, Committed, crosses), (Committed, Committed, Effect::Release)]
        {
            let mut boundary = complete(phase);
            for _ in 0..10 {
                assert_eq!(boundary.take(Input::Waits(1000)), Effect::Hold, "{phase:?}: no limit of `hold` counts");
            }
            assert_eq!((boundary.phase(), boundary.take(Input::Whole(9))), (phase, effect));
            assert_eq!(boundary.phase(), then);
        }
        let quarter = usize::try_from(hold::CALL_BYTES_MAX / 4).unwrap();
        for (phase, then) in [(Holding, Holding), (HeadSent, HeadSent), (Committed, Closed)] {
            let mut boundary = complete(phase);
            for _ in 0..2 {
                for _ in 0..4 {
                    assert_eq!(boundary.take(Input::Waits(quarter)), Effect::Hold);
                }
                if phase != Committed {
                    break;
                }
                assert_eq!(boundary.take(Input::Whole(9)), Effect::Release, "the next call counts anew");
            }
            for _ in 0..4 {
                if phase == Committed {
                    assert_eq!(boundary.take(Input::Waits(quarter)), Effect::Hold);
                }
            }
            assert_eq!(boundary.take(Input::Waits(1)), Effect::Overflow, "{phase:?}");
            assert_eq!(boundary.phase(), then);
        }
        let mut boundary = complete(Holding);
        assert_eq!(boundary.take(Input::Event(TEXT, 1)), Effect::Commit(Why::Visible(VisibleKind::Text)));
        assert_eq!(boundary.take(Input::Waits(1)), Effect::Hold);
        assert_eq!(boundary.take(Input::Failure), Effect::Interrupt);
    }

    #[test]
    fn a_validated_answer_waits_for_its_end() {
        let mut boundary = Boundary::new(CommitPolicy::Validated, false, LIMITS);
        for _ in 0..300 {
            assert_eq!(boundary.take(Input::Waits(1000)), Effect::Hold);
        }
        assert_eq!(boundary.take(Input::KeepaliveDue), Effect::Keepalive);
        assert_eq!(boundary.take(Input::Whole(9)), Effect::Commit(Why::Validated));
        assert_eq!(boundary.phase(), Phase::Committed);

        let mut boundary = Boundary::new(CommitPolicy::Validated, false, LIMITS);
        let half = usize::try_from(hold::ANSWER_BYTES_MAX / 2).unwrap();
        let effects = [(); 3].map(|()| boundary.take(Input::Waits(half)));
        assert_eq!(effects, [Effect::Hold, Effect::Hold, Effect::Overflow]);
        boundary.next_attempt();
        assert_eq!(boundary.take(Input::Waits(half)), Effect::Hold, "each attempt counts anew");
    }

    proptest::proptest! {
        /// The phase never goes back, and after a commit nothing asks the controller again.
        #[test]
        fn forward_only(codes in proptest::collection::vec(0u8..9, 0..60), held in proptest::bool::ANY) {
            let mut boundary = Boundary::new(CommitPolicy::FirstVisible, held, LIMITS);
            let mut last = boundary.phase();
            for code in codes {
                let effect = boundary.take(match code {
                    0 => Input::Event(Show::Preamble, 20),
                    1 => Input::Event(Show::Ping, 20),
                    2 => Input::Event(TEXT, 20),
                    3 => Input::Event(REASONING, 20),
                    4 => Input::Comment,
                    5 => Input::KeepaliveDue,
                    6 => Input::Failure,
                    7 => Input::UpstreamEnded { complete: code % 2 == 0 },
                    _ => Input::NoData(3),
                });
                proptest::prop_assert!(boundary.phase() >= last);
                if last >= Phase::Committed {
                    proptest::prop_assert!(!matches!(effect, Effect::AskControl | Effect::Commit(_) | Effect::Hold));
                }
                last = boundary.phase();
            }
        }
    }
}

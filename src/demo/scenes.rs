//! The scenes: what each stub does, what the client must see, and how many calls each stub may get.
//!
//! Every scene can be broken on purpose (`--break`): its rule no longer holds then, and the demo must notice. A broken scene
//! changes what happens (the stubs, the configuration, or the client's manners), never what is expected.

use serde_json::{Value, json};

use crate::mock::{Answer, Rule, anthropic, anthropic_text, chat, chat_text, responses, responses_text};

use super::client::{Ended, Seen};

/// One scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    Clean,
    Failover503,
    ErrorBeforeOutput,
    CutAfterOutput,
    ToolCall,
    Quota,
    Deadline,
    NextTurn,
    KillSwitch,
}

/// What must have happened.
pub(super) struct Outcome<'a> {
    pub(super) seen: &'a Seen,
    /// Calls of the primary's and the secondary's stub, by their own counters.
    pub(super) calls: (u64, u64),
}

const ANSWER: [&str; 4] = ["Your refund", " of $12.50", " is on", " its way."];
const WHOLE: &str = "Your refund of $12.50 is on its way.";

impl Scene {
    pub(super) const ALL: [Self; 9] = [
        Self::Clean,
        Self::Failover503,
        Self::ErrorBeforeOutput,
        Self::CutAfterOutput,
        Self::ToolCall,
        Self::Quota,
        Self::Deadline,
        Self::NextTurn,
        Self::KillSwitch,
    ];

    /// The name for `--break`, which is also the model's name in the lines to try.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Failover503 => "failover-503",
            Self::ErrorBeforeOutput => "error-before-output",
            Self::CutAfterOutput => "cut-after-output",
            Self::ToolCall => "tool-call",
            Self::Quota => "quota",
            Self::Deadline => "deadline",
            Self::NextTurn => "next-turn",
            Self::KillSwitch => "kill-switch",
        }
    }

    /// One line for the narration.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Clean => "A clean stream passes through byte for byte",
            Self::Failover503 => "The primary answers 503: the equivalent takes over in silence",
            Self::ErrorBeforeOutput => "The primary says 200, then fails before any output: still silent",
            Self::CutAfterOutput => "The primary is cut after output: an error frame, an abort, no second call",
            Self::ToolCall => "A tool call was delivered, then the stream is cut: it is never replayed",
            Self::Quota => "The primary's quota is used up (429): stop, and no second call",
            Self::Deadline => "The primary says nothing: the deadline ends it, and leaves no time for a second call",
            Self::NextTurn => "Turn one failed over: turn two goes back to the secondary, which holds its state",
            Self::KillSwitch => "An operator killed the primary's route: it gets no call, and nobody notices",
        }
    }

    /// The path it is asked at.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::ToolCall => "/v1/messages",
            Self::NextTurn => "/v1/responses",
            _ => "/v1/chat/completions",
        }
    }

    /// The request.
    pub(super) fn request(self) -> Value {
        let messages = json!([{ "role": "user", "content": "Where is my refund?" }]);
        match self {
            Self::ToolCall => json!({
                "model": self.name(), "max_tokens": 256, "stream": true, "messages": messages,
                "tools": [{ "name": "refund_order", "description": "Refunds an order",
                    "input_schema": { "type": "object", "properties": { "order": { "type": "string" } } } }],
            }),
            Self::NextTurn => json!({ "model": self.name(), "stream": true, "input": "Where is my refund?" }),
            _ => json!({ "model": self.name(), "stream": true, "messages": messages }),
        }
    }

    /// The next turn of the conversation, where the scene has one: it names the answer that it goes on from.
    pub(super) fn next_turn(self, broken: bool) -> Option<Value> {
        let state = if broken { Value::Null } else { responses::ID.into() };
        (self == Self::NextTurn).then(
            || json!({ "model": self.name(), "stream": true, "input": "And when?", "previous_response_id": state }),
        )
    }

    /// Whether an operator kills the primary's route for the scene.
    pub(super) fn kills(self, broken: bool) -> bool {
        self == Self::KillSwitch && !broken
    }

    /// What the scene's workflow sets beside the demo's common configuration.
    pub(super) fn envelope(self) -> &'static str {
        if self == Self::Deadline { "deadline_ms = 1500" } else { "deadline_ms = 10000" }
    }

    /// Whether its workflow may fail over. Where the deadline is to end everything it may not: the controller would cut the silent
    /// attempt just early enough for the quick secondary.
    pub(super) fn failover(self, broken: bool) -> bool {
        self != Self::Deadline && !(broken && self == Self::Failover503)
    }

    /// Whether the client sends the request again when it sees an interruption, as no client of Rubicon should.
    pub(super) fn client_repeats(self, broken: bool) -> bool {
        broken && matches!(self, Self::CutAfterOutput | Self::ToolCall)
    }

    /// What the primary's stub does.
    pub(super) fn primary(self, broken: bool) -> Rule {
        let answer = match self {
            Self::Clean if broken => half_text(),
            Self::Clean => chat_text(&ANSWER),
            Self::Failover503 => overloaded(),
            Self::ErrorBeforeOutput if broken => half_text().step(server_error()),
            Self::ErrorBeforeOutput => Answer::sse().step(chat::role()).step(server_error()),
            Self::CutAfterOutput => half_text().abort_rst(),
            Self::ToolCall => Answer::sse()
                .step(anthropic::message_start())
                .step(anthropic::tool_start(0, "refund_order"))
                .step(anthropic::input_delta(0, "{\"order\":"))
                .step(anthropic::input_delta(0, "\"A-1042\"}"))
                .step(anthropic::block_stop(0))
                .delay_ms(100)
                .abort_rst(),
            Self::Quota if broken => overloaded(),
            Self::Quota => Answer::json_error(
                429,
                json!({ "error": { "message": "You exceeded your current quota.", "type": "insufficient_quota",
                    "param": null, "code": "insufficient_quota" } }),
            ),
            Self::Deadline if broken => chat_text(&ANSWER),
            Self::Deadline => Answer::sse().step(chat::role()).hang(),
            Self::NextTurn => {
                let well = Rule::new(self.name()).model(self.name()).answer(overloaded());
                return well.answer(responses_text(&["I do not know this conversation."]));
            }
            Self::KillSwitch => half_text().abort_rst(),
        };
        Rule::new(self.name()).model(self.name()).answer(answer)
    }

    /// What the secondary's stub does, if it is asked.
    pub(super) fn secondary(self) -> Rule {
        let answer = match self {
            Self::ToolCall => anthropic_text(&ANSWER),
            Self::NextTurn => responses_text(&ANSWER),
            _ => chat_text(&ANSWER),
        };
        Rule::new(self.name()).model(self.name()).answer(answer)
    }

    /// What must have happened: the first thing that is not so.
    pub(super) fn check(self, outcome: &Outcome<'_>) -> Result<(), String> {
        let seen = outcome.seen;
        let expect = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
        let whole = || {
            expect(seen.status == 200 && seen.error.is_none(), "a 200 and no error")?;
            expect(seen.text == WHOLE, "the whole answer, once")?;
            expect(seen.ended == Ended::Clean, "a clean end")
        };
        let interrupted = || {
            expect(seen.rubicon("status") == "interrupted", "one error frame that says interrupted")?;
            expect(seen.ended == Ended::Aborted, "an abort after it")
        };
        match self {
            Self::Clean => {
                whole()?;
                expect(outcome.calls == (1, 0), "one call")
            }
            Self::Failover503 | Self::ErrorBeforeOutput => {
                whole()?;
                expect(seen.recovery == "equivalent_failover", "Rubicon-Recovery: equivalent_failover")?;
                expect(outcome.calls == (1, 1), "one call each")
            }
            Self::CutAfterOutput => {
                expect(!seen.text.is_empty() && WHOLE.starts_with(&seen.text), "what the primary had said")?;
                interrupted()?;
                expect(outcome.calls == (1, 0), "no second call")
            }
            Self::ToolCall => {
                expect(seen.arguments == "{\"order\":\"A-1042\"}", "the tool call, once")?;
                interrupted()?;
                expect(outcome.calls == (1, 0), "no second call")
            }
            Self::Quota => {
                expect(seen.status == 424, "424, which no SDK retries")?;
                expect(seen.rubicon("class") == "quota_exhausted", "the class quota_exhausted")?;
                expect(outcome.calls == (1, 0), "no second call")
            }
            Self::NextTurn => {
                whole()?;
                expect(seen.recovery == "none", "Rubicon-Recovery: none")?;
                expect(outcome.calls == (1, 2), "one call of the primary, two of the secondary")
            }
            Self::KillSwitch => {
                whole()?;
                expect(seen.attempts == "1", "one attempt")?;
                expect(outcome.calls == (0, 1), "no call of the primary")
            }
            Self::Deadline => {
                expect(seen.status == 424, "424, which no SDK retries")?;
                expect(seen.rubicon("reason") == "deadline_exhausted", "the reason deadline_exhausted")?;
                expect(outcome.calls == (1, 0), "no second call")
            }
        }
    }
}

fn half_text() -> Answer {
    // Half the answer, and a moment for it to travel: then whatever the scene does.
    Answer::sse().step(chat::role()).step(chat::delta(ANSWER[0])).step(chat::delta(ANSWER[1])).delay_ms(100)
}

fn overloaded() -> Answer {
    Answer::json_error(
        503,
        json!({ "error": { "message": "The engine is overloaded.", "type": "server_error", "code": "overloaded" } }),
    )
}

fn server_error() -> crate::mock::Step {
    chat::error("server_error", "server_error", "The server had an error.")
}

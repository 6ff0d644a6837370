//! What one request demands, taken from its head and body once; nobody re-reads headers or JSON after it. Pure.
//!
//! In: the dialect's [`RequestFacts`] and the request headers. Out: a [`Contract`] that the plan and the controller read.
//! Every attempt is built from the original request and this.

pub mod headers;

use crate::config::settings::{Envelope, SideEffects};
use crate::protocol::Dialect;
use crate::protocol::request::RequestFacts;
use headers::Asked;

/// Which call of the data plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `POST /v1/chat/completions`.
    ChatCompletions,
    /// `POST /v1/messages`.
    Messages,
    /// `POST /v1/messages/count_tokens`: costs nothing, never streams.
    CountTokens,
    /// `POST /v1/responses`.
    Responses,
}

impl Endpoint {
    /// The call that generates an answer in a dialect.
    pub fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::ChatCompletions => Self::ChatCompletions,
            Dialect::AnthropicMessages => Self::Messages,
            Dialect::Responses => Self::Responses,
        }
    }

    /// The dialect it speaks.
    pub fn dialect(self) -> Dialect {
        match self {
            Self::ChatCompletions => Dialect::ChatCompletions,
            Self::Messages | Self::CountTokens => Dialect::AnthropicMessages,
            Self::Responses => Dialect::Responses,
        }
    }
}

/// What one request demands.
#[derive(Clone, Debug)]
pub struct Contract {
    /// The call.
    pub endpoint: Endpoint,
    /// The body, as far as the relay must know it.
    pub facts: RequestFacts,
    /// Values of `anthropic-beta` and `openai-beta`, each a capability `beta:<value>`.
    pub betas: Vec<String>,
    /// The envelope of the workflow, tightened by the request's headers.
    pub envelope: Envelope,
    /// Attempts that layers above already spent.
    pub attempts_used: u32,
    /// The caller is an official SDK; its helpers decide in which form it can be kept waiting.
    pub official_sdk: bool,
}

impl Contract {
    /// Puts a request's demands together. `envelope` is the workflow's.
    pub fn new(endpoint: Endpoint, facts: RequestFacts, envelope: Envelope, asked: &Asked) -> Self {
        let mut envelope = envelope;
        if let Some(deadline) = asked.deadline {
            envelope.deadline = envelope.deadline.min(deadline);
            envelope.deadline_reasoning = envelope.deadline_reasoning.min(deadline);
            envelope.answer_deadline = envelope.answer_deadline.min(deadline);
        }
        if let Some(max) = asked.max_attempts {
            envelope.max_attempts = envelope.max_attempts.min(max);
        }
        if let Some(side_effects) = asked.side_effects {
            envelope.side_effects = envelope.side_effects.min(side_effects);
        }
        Self {
            endpoint,
            facts,
            betas: asked.betas.clone(),
            envelope,
            attempts_used: asked.attempts_used,
            official_sdk: asked.official_sdk,
        }
    }

    /// Every capability that the request uses, by name.
    pub fn capabilities(&self) -> impl Iterator<Item = String> + '_ {
        self.facts.capabilities.iter().cloned().chain(self.betas.iter().map(|beta| format!("beta:{beta}")))
    }

    /// A hosted tool that the envelope does not allow, if the request declares one.
    pub fn forbidden_tool(&self) -> Option<&str> {
        self.facts
            .hosted_tools
            .iter()
            .find(|tool| match self.envelope.side_effects {
                SideEffects::None => true,
                SideEffects::ReadOnly => tool.may_act,
                SideEffects::WritePossible => false,
            })
            .map(|tool| tool.name.as_str())
    }

    /// Whether a hosted tool that the request declares may change the world: then an unanswered attempt is never repeated.
    pub fn hosted_may_act(&self) -> bool {
        self.facts.hosted_tools.iter().any(|tool| tool.may_act)
    }

    /// The time the whole operation has to the boundary (streaming) or to the whole answer.
    pub fn deadline(&self) -> std::time::Duration {
        match (self.facts.stream, self.facts.reasoning) {
            (false, _) => self.envelope.answer_deadline,
            (true, true) => self.envelope.deadline_reasoning,
            (true, false) => self.envelope.deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::request::HostedTool;

    pub(crate) fn envelope() -> Envelope {
        Envelope {
            deadline: Duration::from_secs(30),
            deadline_reasoning: Duration::from_secs(60),
            answer_deadline: Duration::from_secs(90),
            stream: None,
            max_attempts: 3,
            max_added_latency: None,
            max_cost_usd: None,
            side_effects: SideEffects::ReadOnly,
            repeat_unanswered: true,
        }
    }

    fn facts(tools: &[(&str, bool)]) -> RequestFacts {
        let hosted_tools =
            tools.iter().map(|(name, may_act)| HostedTool { name: (*name).to_owned(), may_act: *may_act }).collect();
        RequestFacts { hosted_tools, choices: 1, ..RequestFacts::default() }
    }

    #[test]
    fn headers_only_tighten() {
        let loose = Asked {
            deadline: Some(Duration::from_secs(3600)),
            max_attempts: Some(50),
            side_effects: Some(SideEffects::WritePossible),
            ..Asked::default()
        };
        let contract = Contract::new(Endpoint::ChatCompletions, facts(&[]), envelope(), &loose);
        assert_eq!(contract.envelope.deadline, Duration::from_secs(30));
        assert_eq!(contract.envelope.max_attempts, 3);
        assert_eq!(contract.envelope.side_effects, SideEffects::ReadOnly);

        let tight = Asked {
            deadline: Some(Duration::from_millis(5)),
            max_attempts: Some(1),
            side_effects: Some(SideEffects::None),
            ..Asked::default()
        };
        let contract = Contract::new(Endpoint::ChatCompletions, facts(&[]), envelope(), &tight);
        assert_eq!(contract.deadline(), Duration::from_millis(5));
        assert_eq!(contract.envelope.deadline_reasoning, Duration::from_millis(5));
        assert_eq!(contract.envelope.max_attempts, 1);
        assert_eq!(contract.envelope.side_effects, SideEffects::None);
    }

    #[test]
    fn side_effects_decide_which_hosted_tools_pass() {
        let rows = [
            (SideEffects::None, vec![("web_search", false)], Some("web_search")),
            (SideEffects::None, vec![], None),
            (SideEffects::ReadOnly, vec![("web_search", false)], None),
            (SideEffects::ReadOnly, vec![("web_search", false), ("mcp", true)], Some("mcp")),
            (SideEffects::WritePossible, vec![("mcp", true)], None),
        ];
        for (side_effects, tools, forbidden) in rows {
            let envelope = Envelope { side_effects, ..envelope() };
            let contract = Contract::new(Endpoint::Messages, facts(&tools), envelope, &Asked::default());
            assert_eq!(contract.forbidden_tool(), forbidden, "{side_effects:?} {tools:?}");
        }
    }
}

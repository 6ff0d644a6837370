//! Words of event lines and labels that come from closed lists, each with its one spelling.

use serde::Serialize;

/// Which call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// A generating call.
    #[default]
    Chat,
    /// `POST /v1/messages/count_tokens`.
    CountTokens,
    /// A path that goes to the primary as it is.
    Passthrough,
}

impl Call {
    /// `gen_ai.operation.name`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::CountTokens => "count_tokens",
            Self::Passthrough => "passthrough",
        }
    }
}

/// What an attempt is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The first, at the primary.
    First,
    /// The same route again, or back at the primary.
    Retry,
    /// At an equivalent.
    EquivalentFailover,
    /// At an alternate.
    CrossModelFallback,
}

impl Kind {
    /// The word in lines and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Retry => "retry",
            Self::EquivalentFailover => "equivalent_failover",
            Self::CrossModelFallback => "cross_model_fallback",
        }
    }

    /// The word as `recovery.workflow`: a first attempt recovers nothing.
    pub fn recovery(self) -> &'static str {
        if self == Self::First { super::names::NONE } else { self.name() }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptResult {
    /// Its answer came whole.
    Accepted,
    /// Nothing was shown of it.
    Failed,
    /// It was cut after something was shown.
    Interrupted,
    /// Its client left, or it was stopped.
    Unfinished,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestState {
    /// With the provider's own end.
    Completed,
    /// Cut after output, or left by its client.
    Interrupted,
    /// With an error and no output.
    Failed,
    /// Somebody stopped it.
    Stopped,
    /// Before any operation began.
    Refused,
    /// Answered from another request with the same key.
    Replayed,
}

impl RequestState {
    /// The word in lines and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Refused => "refused",
            Self::Replayed => "replayed",
        }
    }
}

/// The application's word on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The task succeeded.
    Accepted,
    /// It did not.
    Rejected,
}

impl Outcome {
    /// The word in requests, lines and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }
}

/// What somebody should be woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmKind {
    /// A provider's certificate is not acceptable: somebody else may be answering in its name.
    BadCertificate,
    /// The journal of switches does not hold together: somebody changed the store, or the disk did.
    JournalBroken,
    /// An older run of a tool reported an effect after a newer one was allowed: look at the tool's own system.
    DoubleEffectSuspected,
    /// The ledger cannot make executions durable: they are refused.
    LedgerUnavailable,
}

impl AlarmKind {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::BadCertificate, Self::JournalBroken, Self::DoubleEffectSuspected, Self::LedgerUnavailable];

    /// The word in lines and labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::BadCertificate => "bad_certificate",
            Self::JournalBroken => "journal_broken",
            Self::DoubleEffectSuspected => "double_effect_suspected",
            Self::LedgerUnavailable => "ledger_unavailable",
        }
    }
}

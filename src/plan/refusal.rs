//! Why a route may not serve: the closed list of SPEC's Annex "Routing", with what each name means and what to do about it.
//!
//! One list for everything that prints a refusal: `rubicon.refused`, `explain`, `check`, logs and `refusals.md`. A test holds the enum,
//! the list, SPEC's names and the document equal.

use std::fmt;

/// Why a route may not serve. The printed names are a closed list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// `failover.enabled` is false, or `failover.equivalent` is, or an operator switched failover off.
    FailoverDisabled,
    /// `failover.cross_model` is false.
    CrossModelDisabled,
    /// No approval for this workflow, route and purpose.
    ApprovalMissing,
    /// All such approvals have expired.
    ApprovalExpired,
    /// The approval is of another host, model, account, region or network.
    ApprovalStale,
    /// The route is not verified.
    VerificationMissing,
    /// Its verification has expired.
    VerificationExpired,
    /// The verification is of another host, model, account, region or network.
    VerificationStale,
    /// Its region is not allowed or not stated.
    Region,
    /// Its network is not the required one, or it is public and no approval says so.
    Network,
    /// Its provider may not see the data class.
    DataClass,
    /// Its provider's legal entity is not allowed.
    LegalEntity,
    /// Its model class is not allowed.
    ModelClass,
    /// Its safety profile is not the required one.
    SafetyProfile,
    /// It is not stated to be good at a required language.
    Language,
    /// It is not stated to keep a required schema.
    Schema,
    /// It does not speak the dialect.
    Dialect,
    /// It lacks a capability that the workflow requires or the request uses.
    Capability(String),
    /// The request does not fit its context, or it states less than required.
    ContextTooLarge,
    /// The request carries state that only another account holds.
    Pinned(&'static str),
    /// An operator killed it.
    Killed,
    /// Its breaker has tripped.
    Tripped,
    /// Its limits are reached.
    Capacity,
    /// Its limits for recovery traffic are reached.
    FailoverLimit,
    /// The class of the failure does not allow it.
    ClassBlocked,
    /// A tool of the provider may have acted, and must not twice.
    SideEffects,
    /// The operation has no time left for it.
    Time,
    /// The operation's cost budget does not allow it.
    Cost,
}

/// A name of the list, or a family of them (`capability`, `pinned`), and what is said of it everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name, of a family what stands before the colon.
    pub name: &'static str,
    /// When it is found.
    pub when: When,
    /// What it means: one sentence about the route.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// When a refusal is found, and so how long it may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In the configuration and the date: it stands for every request.
    Config,
    /// In the request: others may pass.
    Request,
    /// In the moment: what operators, breakers and limits say now.
    Moment,
    /// By the controller, after a failure.
    Failure,
}

impl When {
    /// As printed in the document.
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Request => "request",
            Self::Moment => "moment",
            Self::Failure => "failure",
        }
    }
}

const fn name(name: &'static str, when: When, meaning: &'static str, remedy: &'static str) -> Name {
    Name { name, when, meaning, remedy }
}

/// The closed list, in the order in which the reasons against one route are told.
pub const NAMES: [Name; 28] = [
    name(
        "failover_disabled",
        When::Config,
        "Failover of this workflow is off: `failover.enabled` or `failover.equivalent` is false, or an operator switched it off.",
        "Set `failover.enabled = true`, or ask the operator who switched it off.",
    ),
    name(
        "cross_model_disabled",
        When::Config,
        "The route is another model, and `failover.cross_model` is false.",
        "Set `failover.cross_model = true` where another model's answer will do.",
    ),
    name(
        "approval_missing",
        When::Config,
        "Nobody approved the route for this workflow and purpose.",
        "Have it approved: an [[approval]] with this workflow, route and purpose.",
    ),
    name(
        "approval_expired",
        When::Config,
        "Its approval has run out.",
        "Have it approved again, with a later `until`.",
    ),
    name(
        "approval_stale",
        When::Config,
        "It was approved with another host, model, account, region or network.",
        "Have the route approved as it is now, with the `route_digest` that `check` prints.",
    ),
    name(
        "verification_missing",
        When::Config,
        "Nobody verified the route.",
        "Try it for this use and state `verified`.",
    ),
    name(
        "verification_expired",
        When::Config,
        "Its verification has run out.",
        "Try it again and state the new date in `verified`.",
    ),
    name(
        "verification_stale",
        When::Config,
        "It was verified with another host, model, account, region or network.",
        "Try the route as it is now, and state the `route_digest` that `check` prints in `verified`.",
    ),
    name(
        "region",
        When::Config,
        "Its region is not among `requires.regions`, or not stated.",
        "State the route's `region`, or use a route in an allowed one.",
    ),
    name(
        "network",
        When::Config,
        "Its network is not the required one, or it is public and no live approval says `network = \"public\"`.",
        "State the provider's `network`, or have recovery over the public network approved.",
    ),
    name(
        "data_class",
        When::Config,
        "Its provider does not state that it may see `requires.data_class`.",
        "Add the class to the provider's `data_classes`, once that is agreed.",
    ),
    name(
        "legal_entity",
        When::Config,
        "Its provider's legal entity is not among `requires.legal_entities`, or not stated.",
        "State the provider's `legal_entity`, or use another provider.",
    ),
    name(
        "model_class",
        When::Config,
        "Its model class is not among `requires.model_classes`, or not stated.",
        "State the route's `model_class`, or use another model.",
    ),
    name(
        "safety_profile",
        When::Config,
        "Its safety profile is not `requires.safety_profile`, or not stated.",
        "State the route's `safety_profile`, or use a route that has it.",
    ),
    name(
        "language",
        When::Config,
        "It does not state every language of `requires.languages`.",
        "Add to the route's `languages` what was tried.",
    ),
    name(
        "schema",
        When::Config,
        "It does not state every schema of `requires.schemas`.",
        "Add to the route's `schemas` what was tried.",
    ),
    name(
        "dialect",
        When::Request,
        "It does not speak the request's dialect.",
        "Add the dialect to the route's `dialects` if its provider speaks it, or call it in another.",
    ),
    name(
        "capability",
        When::Request,
        "It does not state a capability that the workflow requires or the request uses; `capability:model` is that neither request nor route names a model.",
        "Add it to the route's `capabilities` if it has it; nothing is dropped from a request to make a route fit.",
    ),
    name(
        "context_too_large",
        When::Request,
        "The request's estimated input and output do not fit its `context_tokens`, or these are under `requires.min_context_tokens`.",
        "Shorten the conversation or the output limit, or use a route with a larger context.",
    ),
    name(
        "pinned",
        When::Request,
        "The request carries state that only another account holds.",
        "Send the conversation itself instead of a reference to it, where failover matters.",
    ),
    name("killed", When::Moment, "An operator killed it.", "Ask the operator; an approver restores it."),
    name(
        "tripped",
        When::Moment,
        "Its breaker has tripped: it failed too often in a row.",
        "Nothing: probes find out when it works again.",
    ),
    name(
        "capacity",
        When::Moment,
        "Its `limits` are reached.",
        "Try later, or raise the limits if the account allows it.",
    ),
    name(
        "failover_limit",
        When::Moment,
        "What recovery may add to it (`failover_limits`) is reached.",
        "Try later, or raise the limits if the account allows it.",
    ),
    name(
        "class_blocked",
        When::Failure,
        "The class of the failure does not allow it.",
        "See the class: an owner must act, or the request must change.",
    ),
    name(
        "side_effects",
        When::Failure,
        "The failed attempt may have run and must not run twice: a tool run by the provider may have acted, or the workflow says `repeat_unanswered = false`.",
        "Find out what happened before the request is sent again.",
    ),
    name(
        "time",
        When::Failure,
        "No time was left for an attempt there.",
        "Give the workflow a longer deadline, or the routes shorter timeouts.",
    ),
    name(
        "cost",
        When::Failure,
        "Its estimated cost did not fit the rest of `max_cost_usd`.",
        "Raise `max_cost_usd`, or use a cheaper route.",
    ),
];

impl Refusal {
    /// The name, of a family what stands before the colon.
    pub fn family(&self) -> &'static str {
        match self {
            Self::FailoverDisabled => "failover_disabled",
            Self::CrossModelDisabled => "cross_model_disabled",
            Self::ApprovalMissing => "approval_missing",
            Self::ApprovalExpired => "approval_expired",
            Self::ApprovalStale => "approval_stale",
            Self::VerificationMissing => "verification_missing",
            Self::VerificationExpired => "verification_expired",
            Self::VerificationStale => "verification_stale",
            Self::Region => "region",
            Self::Network => "network",
            Self::DataClass => "data_class",
            Self::LegalEntity => "legal_entity",
            Self::ModelClass => "model_class",
            Self::SafetyProfile => "safety_profile",
            Self::Language => "language",
            Self::Schema => "schema",
            Self::Dialect => "dialect",
            Self::Capability(_) => "capability",
            Self::ContextTooLarge => "context_too_large",
            Self::Pinned(_) => "pinned",
            Self::Killed => "killed",
            Self::Tripped => "tripped",
            Self::Capacity => "capacity",
            Self::FailoverLimit => "failover_limit",
            Self::ClassBlocked => "class_blocked",
            Self::SideEffects => "side_effects",
            Self::Time => "time",
            Self::Cost => "cost",
        }
    }

    /// Its entry in the list.
    pub fn entry(&self) -> &'static Name {
        let family = self.family();
        // A test holds list and enum equal; the first entry would be wrong, not absent.
        NAMES.iter().find(|entry| entry.name == family).unwrap_or(&NAMES[0])
    }

    /// It stands for the moment only (limits, breaker): the route is the right one, and may serve in a while. A kill switch is not
    /// of this kind: somebody decided.
    pub fn is_momentary(&self) -> bool {
        matches!(self, Self::Tripped | Self::Capacity | Self::FailoverLimit)
    }

    /// It is the gate's word, a kill switch included: nothing of the configuration or the request stands against the route, so the same
    /// request may be served later without a change of either.
    pub fn is_by_gate(&self) -> bool {
        *self == Self::Killed || self.is_momentary()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capability(name) => write!(f, "capability:{name}"),
            Self::Pinned(field) => write!(f, "pinned:{field}"),
            other => f.write_str(other.family()),
        }
    }
}

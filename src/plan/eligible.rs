//! One predicate a reason: may this route take over for this operation? (SPEC section 3, "eligible"; names from its Annex.)
//!
//! Reasons that depend on the moment (breaker, kill switch, capacity, failover limits) come with the rooms that know them;
//! cost and time are the controller's.

use std::fmt;

use crate::clock::UnixMillis;
use crate::config::settings::{Approval, Network, Purpose, RouteSettings, WorkflowSettings};
use crate::contract::Contract;

use super::Role;

/// Why a route may not serve. The printed names are a closed list, the same in `rubicon.refused`, logs and docs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// `failover.enabled` is false, or `failover.equivalent` is.
    FailoverDisabled,
    /// `failover.cross_model` is false.
    CrossModelDisabled,
    /// No approval for this workflow, route and purpose.
    ApprovalMissing,
    /// All such approvals have expired.
    ApprovalExpired,
    /// The route is not verified.
    VerificationMissing,
    /// Its verification has expired.
    VerificationExpired,
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
    /// It does not speak the dialect.
    Dialect,
    /// It lacks a capability that the workflow requires or the request uses.
    Capability(String),
    /// The request does not fit its context, or it states less than required.
    ContextTooLarge,
    /// The request carries state that only another account holds.
    Pinned(&'static str),
    /// The approval is of another host, model, account, region or network.
    ApprovalStale,
    /// The verification is of another host, model, account, region or network.
    VerificationStale,
    /// Its safety profile is not the required one.
    SafetyProfile,
    /// It is not stated to be good at a required language.
    Language,
    /// It is not stated to keep a required schema.
    Schema,
    /// An operator killed it.
    Killed,
    /// Its breaker has tripped.
    Tripped,
    /// Its limits are reached.
    Capacity,
    /// Its limits for recovery traffic are reached.
    FailoverLimit,
    /// The operation's cost budget does not allow it.
    Cost,
    /// The operation has no time left for it.
    Time,
    /// The class of the failure does not allow it.
    ClassBlocked,
    /// A tool of the provider may have acted, and must not twice.
    SideEffects,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FailoverDisabled => f.write_str("failover_disabled"),
            Self::CrossModelDisabled => f.write_str("cross_model_disabled"),
            Self::ApprovalMissing => f.write_str("approval_missing"),
            Self::ApprovalExpired => f.write_str("approval_expired"),
            Self::VerificationMissing => f.write_str("verification_missing"),
            Self::VerificationExpired => f.write_str("verification_expired"),
            Self::Region => f.write_str("region"),
            Self::Network => f.write_str("network"),
            Self::DataClass => f.write_str("data_class"),
            Self::LegalEntity => f.write_str("legal_entity"),
            Self::ModelClass => f.write_str("model_class"),
            Self::Dialect => f.write_str("dialect"),
            Self::Capability(name) => write!(f, "capability:{name}"),
            Self::ContextTooLarge => f.write_str("context_too_large"),
            Self::Pinned(field) => write!(f, "pinned:{field}"),
            Self::ApprovalStale => f.write_str("approval_stale"),
            Self::VerificationStale => f.write_str("verification_stale"),
            Self::SafetyProfile => f.write_str("safety_profile"),
            Self::Language => f.write_str("language"),
            Self::Schema => f.write_str("schema"),
            Self::Killed => f.write_str("killed"),
            Self::Tripped => f.write_str("tripped"),
            Self::Capacity => f.write_str("capacity"),
            Self::FailoverLimit => f.write_str("failover_limit"),
            Self::Cost => f.write_str("cost"),
            Self::Time => f.write_str("time"),
            Self::ClassBlocked => f.write_str("class_blocked"),
            Self::SideEffects => f.write_str("side_effects"),
        }
    }
}

/// What is asked of one route.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The workflow.
    pub workflow: &'a WorkflowSettings,
    /// All approvals.
    pub approvals: &'a [Approval],
    /// The request.
    pub contract: &'a Contract,
    /// The route.
    pub route: &'a RouteSettings,
    /// What it is to the workflow (never the primary).
    pub role: Role,
    /// Wall time.
    pub now: UnixMillis,
}

/// Every reason against the route; none: it is eligible.
pub fn refusals(question: &Question<'_>) -> Vec<Refusal> {
    let mut reasons = Vec::new();
    reasons.extend(switched_off(question));
    reasons.extend(approval(question));
    reasons.extend(verification(question));
    reasons.extend(place(question));
    reasons.extend(abilities(question));
    reasons.extend(context(question));
    reasons.extend(pinned(question));
    reasons
}

fn switched_off(q: &Question<'_>) -> Option<Refusal> {
    let failover = &q.workflow.failover;
    match q.role {
        _ if !failover.enabled => Some(Refusal::FailoverDisabled),
        Role::Equivalent if !failover.equivalent => Some(Refusal::FailoverDisabled),
        Role::Alternate if !failover.cross_model => Some(Refusal::CrossModelDisabled),
        _ => None,
    }
}

fn live(until: Option<UnixMillis>, now: UnixMillis) -> bool {
    until.is_none_or(|until| now <= until)
}

fn approvals_of<'a>(q: &Question<'a>) -> impl Iterator<Item = &'a Approval> {
    let purpose = if q.role == Role::Alternate { Purpose::CrossModel } else { Purpose::Failover };
    let (workflow, route) = (q.workflow, q.route);
    q.approvals.iter().filter(move |approval| {
        approval.workflow == workflow.name && approval.route == route.name && approval.purpose == purpose
    })
}

fn approval(q: &Question<'_>) -> Option<Refusal> {
    if approvals_of(q).any(|approval| live(approval.until, q.now)) {
        return None;
    }
    Some(if approvals_of(q).next().is_some() { Refusal::ApprovalExpired } else { Refusal::ApprovalMissing })
}

fn verification(q: &Question<'_>) -> Option<Refusal> {
    match &q.route.verified {
        None => Some(Refusal::VerificationMissing),
        Some(verified) if !live(verified.until, q.now) => Some(Refusal::VerificationExpired),
        Some(_) => None,
    }
}

/// Region, network, data class, legal entity, model class: what is required must be stated and fit.
fn place(q: &Question<'_>) -> Vec<Refusal> {
    let (requires, route, provider) = (&q.workflow.requires, q.route, &q.route.provider);
    let among = |allowed: &[String], stated: &Option<String>| {
        allowed.is_empty() || stated.as_ref().is_some_and(|stated| allowed.contains(stated))
    };
    let mut reasons = Vec::new();
    if !among(&requires.regions, &route.region) {
        reasons.push(Refusal::Region);
    }
    // Recovery over a public network needs an approval that says so (SPEC section 3).
    let public_approved =
        || approvals_of(q).any(|approval| live(approval.until, q.now) && approval.network == Some(Network::Public));
    // A required public network restricts nothing; a private one must be stated.
    let misplaced = requires.network == Some(Network::Private) && provider.network != Some(Network::Private);
    if misplaced || (provider.network == Some(Network::Public) && !public_approved()) {
        reasons.push(Refusal::Network);
    }
    if let Some(class) = &requires.data_class
        && !provider.data_classes.as_ref().is_some_and(|classes| classes.contains(class))
    {
        reasons.push(Refusal::DataClass);
    }
    if !among(&requires.legal_entities, &provider.legal_entity) {
        reasons.push(Refusal::LegalEntity);
    }
    if !among(&requires.model_classes, &route.model_class) {
        reasons.push(Refusal::ModelClass);
    }
    reasons
}

/// Dialect and capabilities: a route that states none has none (SPEC: "a failover route must state what it can do").
fn abilities(q: &Question<'_>) -> Vec<Refusal> {
    let mut reasons = Vec::new();
    if !q.route.dialects.contains(&q.contract.endpoint.dialect()) {
        reasons.push(Refusal::Dialect);
    }
    let stated = q.route.capabilities.as_deref().unwrap_or_default();
    let mut needed: Vec<String> =
        q.workflow.requires.capabilities.iter().cloned().chain(q.contract.capabilities()).collect();
    needed.sort();
    needed.dedup();
    reasons.extend(needed.into_iter().filter(|name| !stated.contains(name)).map(Refusal::Capability));
    reasons
}

fn context(q: &Question<'_>) -> Option<Refusal> {
    let facts = &q.contract.facts;
    let estimate = (facts.text_bytes / 4).saturating_add(facts.max_output_tokens.unwrap_or(0));
    let too_small = q.route.context_tokens.is_some_and(|tokens| estimate > tokens);
    let under_minimum = q
        .workflow
        .requires
        .min_context_tokens
        .is_some_and(|minimum| q.route.context_tokens.is_none_or(|tokens| tokens < minimum));
    (too_small || under_minimum).then_some(Refusal::ContextTooLarge)
}

/// State that an account holds. Who issued it is not remembered yet, so it belongs to the primary's account (SPEC:
/// "unknown state belongs to the primary and never fails over").
fn pinned(q: &Question<'_>) -> Vec<Refusal> {
    if q.route.provider.account == q.workflow.primary.provider.account {
        return Vec::new();
    }
    q.contract.facts.pins.iter().map(|field| Refusal::Pinned(field)).collect()
}

#[cfg(test)]
mod tests;

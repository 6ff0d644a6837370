//! One predicate a reason: may this route serve this operation? (SPEC section 3, "eligible"; names from its Annex.)
//!
//! In: a [`Question`]. Out: every reason that stands, in the order of [`NAMES`](super::refusal::NAMES). Here are the reasons of the
//! configuration and of the request; what depends on the moment is [`order`](super::order)'s, cost and time are the controller's.
//! [`standing`] has those that stand for every request, so that `check` says the same as a request would hear.

use crate::clock::UnixMillis;
use crate::config::settings::{Approval, Network, Purpose, RouteSettings, WorkflowSettings};
use crate::contract::Contract;

use super::pins::{Held, not_held_by};
use super::{Refusal, Role};

/// What is asked of one route, whatever the request.
#[derive(Clone, Copy)]
pub struct Standing<'a> {
    /// The workflow.
    pub workflow: &'a WorkflowSettings,
    /// All approvals.
    pub approvals: &'a [Approval],
    /// The route.
    pub route: &'a RouteSettings,
    /// What it would serve as.
    pub role: Role,
    /// Wall time.
    pub now: UnixMillis,
    /// An operator switched failover off.
    pub failover_off: bool,
}

/// What is asked of one route for one request.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// Whatever the request.
    pub standing: Standing<'a>,
    /// The request.
    pub contract: &'a Contract,
    /// Who holds the state in it.
    pub held: &'a [Held],
}

impl Standing<'_> {
    /// The first member, or the only one: SPEC asks nothing of it ("the primary route needs no approval", and what it does not list
    /// is not checked).
    fn is_primary(&self) -> bool {
        self.route.name == self.workflow.primary.name
    }

    /// The approval that it needs: as the chosen member of a split, as an equivalent (which the other members stand in for), or
    /// as an alternate.
    pub fn purpose(&self) -> Purpose {
        match self.role {
            Role::Primary => Purpose::Planned,
            Role::Planned | Role::Equivalent => Purpose::Failover,
            Role::Alternate => Purpose::CrossModel,
        }
    }
}

/// Every reason of the configuration and the request against the route; none: it is eligible but for the moment.
pub fn refusals(q: &Question<'_>) -> Vec<Refusal> {
    let mut reasons = by_config(&q.standing);
    reasons.extend(dialect(q));
    if q.standing.route.model.is_none() && q.contract.facts.model.is_none() {
        reasons.push(Refusal::Capability(MODEL.to_owned()));
    }
    if !q.standing.is_primary() {
        reasons.extend(lacking(&q.standing, q.contract.capabilities()));
        reasons.extend(minimum(&q.standing).or_else(|| context(q)));
    }
    reasons.extend(pinned(q));
    reasons
}

/// Every reason that stands for each request.
pub fn standing(s: &Standing<'_>) -> Vec<Refusal> {
    let mut reasons = by_config(s);
    if !s.is_primary() {
        let primary = &s.workflow.primary.dialects;
        reasons.extend((!s.route.dialects.iter().any(|own| primary.contains(own))).then_some(Refusal::Dialect));
        reasons.extend(lacking(s, std::iter::empty()));
        reasons.extend(minimum(s));
    }
    reasons
}

fn by_config(s: &Standing<'_>) -> Vec<Refusal> {
    let mut reasons = Vec::new();
    reasons.extend(switched_off(s));
    if !s.is_primary() {
        reasons.extend(approval(s));
        reasons.extend(verification(s));
        reasons.extend(place(s));
        reasons.extend(promises(s));
    }
    reasons
}

fn switched_off(s: &Standing<'_>) -> Option<Refusal> {
    let failover = &s.workflow.failover;
    match s.role {
        // The first choice is no failover.
        Role::Primary => None,
        _ if s.failover_off || !failover.enabled => Some(Refusal::FailoverDisabled),
        Role::Planned | Role::Equivalent if !failover.equivalent => Some(Refusal::FailoverDisabled),
        Role::Alternate if !failover.cross_model => Some(Refusal::CrossModelDisabled),
        _ => None,
    }
}

fn live(until: Option<UnixMillis>, now: UnixMillis) -> bool {
    until.is_none_or(|until| now <= until)
}

/// Without a digest nothing is compared.
fn of_this(digest: Option<&String>, route: &RouteSettings) -> bool {
    digest.is_none_or(|digest| *digest == super::digest::route_digest(route))
}

fn approvals_of<'a>(s: &Standing<'a>) -> impl Iterator<Item = &'a Approval> {
    let (workflow, route, purpose) = (s.workflow, s.route, s.purpose());
    s.approvals.iter().filter(move |approval| {
        approval.workflow == workflow.name && approval.route == route.name && approval.purpose == purpose
    })
}

/// What is wrong with the approval that it needs.
pub(super) fn approval(s: &Standing<'_>) -> Option<Refusal> {
    let is_good = |approval: &Approval| live(approval.until, s.now) && of_this(approval.route_digest.as_ref(), s.route);
    if approvals_of(s).any(is_good) {
        return None;
    }
    Some(if approvals_of(s).any(|approval| live(approval.until, s.now)) {
        Refusal::ApprovalStale
    } else if approvals_of(s).next().is_some() {
        Refusal::ApprovalExpired
    } else {
        Refusal::ApprovalMissing
    })
}

fn verification(s: &Standing<'_>) -> Option<Refusal> {
    match &s.route.verified {
        None => Some(Refusal::VerificationMissing),
        Some(verified) if !live(verified.until, s.now) => Some(Refusal::VerificationExpired),
        Some(verified) if !of_this(verified.route_digest.as_ref(), s.route) => Some(Refusal::VerificationStale),
        Some(_) => None,
    }
}

/// Region, network, data class, legal entity, model class: what is required must be stated and fit.
fn place(s: &Standing<'_>) -> Vec<Refusal> {
    let (requires, route, provider) = (&s.workflow.requires, s.route, &s.route.provider);
    let among = |allowed: &[String], stated: &Option<String>| {
        allowed.is_empty() || stated.as_ref().is_some_and(|stated| allowed.contains(stated))
    };
    let mut reasons = Vec::new();
    if !among(&requires.regions, &route.region) {
        reasons.push(Refusal::Region);
    }
    // Recovery over a public network needs an approval that says so (SPEC section 3); the planned share of a split is no recovery.
    // A stale one has said so all the same: that it is stale is told by its own name.
    let says_public = |approval: &Approval| live(approval.until, s.now) && approval.network == Some(Network::Public);
    let public_approved = || s.role == Role::Primary || approvals_of(s).any(says_public);
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

/// Safety profile, languages, schemas: what is required must be stated.
fn promises(s: &Standing<'_>) -> Vec<Refusal> {
    let (requires, route) = (&s.workflow.requires, s.route);
    let covers = |required: &[String], stated: &Option<Vec<String>>| {
        required.iter().all(|name| stated.as_ref().is_some_and(|stated| stated.contains(name)))
    };
    let mut reasons = Vec::new();
    if requires.safety_profile.is_some() && requires.safety_profile != route.safety_profile {
        reasons.push(Refusal::SafetyProfile);
    }
    if !covers(&requires.languages, &route.languages) {
        reasons.push(Refusal::Language);
    }
    if !covers(&requires.schemas, &route.schemas) {
        reasons.push(Refusal::Schema);
    }
    reasons
}

fn minimum(s: &Standing<'_>) -> Option<Refusal> {
    let minimum = s.workflow.requires.min_context_tokens?;
    s.route.context_tokens.is_none_or(|tokens| tokens < minimum).then_some(Refusal::ContextTooLarge)
}

fn dialect(q: &Question<'_>) -> Option<Refusal> {
    (!q.standing.route.dialects.contains(&q.contract.endpoint.dialect())).then_some(Refusal::Dialect)
}

/// The capability of naming the model: a route without `model` needs it from the request.
const MODEL: &str = "model";

/// What the workflow requires and the request uses; a route that states none has none (SPEC: "a failover route must state what it
/// can do").
fn lacking(s: &Standing<'_>, used: impl Iterator<Item = String>) -> Vec<Refusal> {
    let stated = s.route.capabilities.as_deref().unwrap_or_default();
    let mut needed: Vec<String> = s.workflow.requires.capabilities.iter().cloned().chain(used).collect();
    needed.sort();
    needed.dedup();
    needed.into_iter().filter(|name| !stated.contains(name)).map(Refusal::Capability).collect()
}

/// A route that does not state its context is not compared, which `check` says.
fn context(q: &Question<'_>) -> Option<Refusal> {
    let (facts, route) = (&q.contract.facts, q.standing.route);
    let estimate = facts.input_tokens().saturating_add(facts.output_tokens(route.max_output_tokens));
    route.context_tokens.is_some_and(|tokens| estimate > tokens).then_some(Refusal::ContextTooLarge)
}

/// State that another account holds: nobody else can go on with it, not even the primary.
fn pinned(q: &Question<'_>) -> Vec<Refusal> {
    not_held_by(q.held, &q.standing.route.provider.account).map(Refusal::Pinned).collect()
}

#[cfg(test)]
mod tests;

//! The plan in words: which routes, in what order, and why not the others. `rubicon explain` and `GET /admin/v1/explain` print this
//! one [`Explanation`], the first with nothing closed, the second with what is closed in the living process.
//!
//! In: settings, an [`Ask`] (workflow, dialect, request headers and body), the [`World`] and what an attempt needs. Out: an explanation, or
//! why there is none ([`AskError`]). No prompt or output is in it: names, numbers and reasons only.

mod ask;
mod text;

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::settings::{Network, RouteSettings, Settings, SideEffects, WorkflowSettings};
use crate::contract::Contract;
use crate::ids::RouteId;

use super::eligible::{Standing, approval};
use super::refusal::Refusal;
use super::{Member, Plan, Role, World, digest, plan};

pub use ask::{Ask, AskError};

/// What an attempt on a route needs: time, and its estimated cost in US dollars.
pub type Figures<'a> = &'a dyn Fn(&RouteSettings, &Contract) -> (Duration, f64);

/// Why no call would be made though the plan has candidates, and those of them that a reason of their own keeps out.
#[derive(Clone, Debug, PartialEq)]
pub struct NoCall {
    /// `rubicon.reason`: `attempts_exhausted`, `cost_exhausted`.
    pub reason: &'static str,
    /// Candidates, each with its reason.
    pub refused: Vec<(usize, Refusal)>,
}

/// Judges whether the first attempt may be made: plan, workflow, contract, and what an attempt on each candidate needs.
pub type MayBegin<'a> = &'a dyn Fn(&Plan, &WorkflowSettings, &Contract, &[(Duration, f64)]) -> Option<NoCall>;

/// What other rooms judge: this one knows neither medians nor budgets.
#[derive(Clone, Copy)]
pub struct Judges<'a> {
    /// What an attempt needs.
    pub figures: Figures<'a>,
    /// Whether one is made at all.
    pub no_call: MayBegin<'a>,
}

/// A word of this program's own; owned where it was read from another process's answer.
type Word = Cow<'static, str>;

/// The plan for one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: u64,
    /// The request's dialect.
    pub dialect: Word,
    /// A route may serve.
    pub eligible: bool,
    /// Why the relay would answer 400 before any plan, if it would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// Why no provider would be called though routes may serve: what the envelope allows is used up before the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_call: Option<Unaffordable>,
    /// What the request uses.
    pub request: Uses,
    /// What it may spend, after its headers.
    pub envelope: Spend,
    /// What is switched on.
    pub failover: Switched,
    /// The planned split; empty where the primary is one route.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<Share>,
    /// Routes that may serve, in the order in which they are tried.
    pub candidates: Vec<Listed>,
    /// Every reason against the others, one entry each.
    pub refused: Vec<Reason>,
    /// Where nothing may serve now, when the first tripped route may be asked again, in milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// A request that is refused whatever the routes say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    /// The code of the 400.
    pub code: Word,
    /// A sentence.
    pub message: String,
}

/// A request for which nothing is left to spend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unaffordable {
    /// The status of the answer (`server.exhausted_status`).
    pub status: u16,
    /// `rubicon.reason`: `attempts_exhausted`, `cost_exhausted`.
    pub reason: Word,
    /// The sentence of the answer.
    pub message: String,
}

/// What the request uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Uses {
    /// The model it names.
    pub model: Option<String>,
    /// It is to be streamed.
    pub stream: bool,
    /// It asks for reasoning.
    pub reasoning: bool,
    /// Capabilities that it uses.
    pub capabilities: Vec<String>,
    /// Capabilities that the workflow requires beside.
    pub required: Vec<String>,
    /// Tools that the provider would run.
    pub hosted_tools: Vec<String>,
    /// State that only one account holds.
    pub pins: Vec<String>,
    /// Estimated input tokens.
    pub input_tokens: u64,
    /// Output tokens of its own maximum.
    pub max_output_tokens: Option<u64>,
}

/// The envelope of the workflow, tightened by the request's headers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spend {
    /// The deadline that applies to this request, in milliseconds.
    pub deadline_ms: u64,
    /// Attempts in all layers.
    pub max_attempts: u32,
    /// Attempts that layers above spent.
    pub attempts_used: u32,
    /// Milliseconds that recovery may add; absent: only the deadline.
    pub max_added_latency_ms: Option<u64>,
    /// US dollars; absent: not limited.
    pub max_cost_usd: Option<f64>,
    /// Hosted tools that may be declared.
    pub side_effects: Word,
    /// What was sent and gave no answer may be sent again.
    pub repeat_unanswered: bool,
}

/// Failover as switched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Switched {
    /// `failover.enabled`, unless an operator switched it off.
    pub enabled: bool,
    /// `failover.equivalent`.
    pub equivalent: bool,
    /// `failover.cross_model`.
    pub cross_model: bool,
    /// An operator switched failover off.
    pub off_by_operator: bool,
}

/// A member of the planned split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The route.
    pub route: String,
    /// Its weight.
    pub weight: u32,
    /// Its share of this request's choice, from 0 to 1.
    pub share: f64,
    /// Why it has none.
    pub why: Vec<String>,
}

/// A candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// The route.
    pub route: String,
    /// What it is to the workflow.
    pub role: Word,
    /// Its provider.
    pub provider: String,
    /// The model sent upstream; absent: the request's own.
    pub model: Option<String>,
    /// Its region.
    pub region: Option<String>,
    /// Its account.
    pub account: String,
    /// Its network.
    pub network: Option<Word>,
    /// Of host, model, account, region, network.
    pub route_digest: String,
    /// What an attempt there would cost, estimated; 0 without a price.
    pub estimated_cost_usd: f64,
    /// The time that an attempt there needs, in milliseconds.
    pub needs_ms: u64,
}

/// One reason against one route, in the shape of `rubicon.refused`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The route.
    pub route: String,
    /// What it is to the workflow.
    pub role: Word,
    /// The refusal's name.
    pub why: String,
    /// What it means.
    pub means: Word,
    /// What to do about it.
    pub remedy: Word,
}

/// Explains.
///
/// # Errors
/// When workflow, dialect, headers or request cannot be read.
pub fn explain(settings: &Settings, ask: &Ask, world: &World<'_>, judges: Judges<'_>) -> Result<Explanation, AskError> {
    let (workflow, contract) = ask.read(settings)?;
    let plan = plan(workflow, &contract, world);
    let rejected = rejected(workflow, &contract);
    let figures = judges.figures;
    let needs: Vec<_> = plan.candidates.iter().map(|candidate| figures(&candidate.route, &contract)).collect();
    let no_call = (judges.no_call)(&plan, workflow, &contract, &needs).filter(|_| rejected.is_none());
    let mut refused = reasons(workflow, &plan, world);
    for (index, why) in no_call.iter().flat_map(|no_call| &no_call.refused) {
        let candidate = plan.candidates.get(*index);
        refused.extend(candidate.map(|candidate| reason(&candidate.route.name, candidate.role, why, &[])));
    }
    let off_by_operator = world.gate.failover_off(&workflow.name);
    Ok(Explanation {
        workflow: workflow.name.to_string(),
        version: workflow.version,
        dialect: contract.endpoint.dialect().name().into(),
        eligible: rejected.is_none() && no_call.is_none() && !plan.candidates.is_empty(),
        rejected,
        no_call: no_call.map(|no_call| Unaffordable {
            status: settings.server.exhausted_status,
            reason: no_call.reason.into(),
            message: format!("No attempt was made: {}.", no_call.reason),
        }),
        request: uses(workflow, &contract),
        envelope: spend(&contract),
        failover: Switched {
            enabled: workflow.failover.enabled && !off_by_operator,
            equivalent: workflow.failover.equivalent,
            cross_model: workflow.failover.cross_model,
            off_by_operator,
        },
        split: shares(&plan.split),
        candidates: plan.candidates.iter().map(|one| listed(&one.route, one.role, &contract, figures)).collect(),
        refused,
        retry_after_ms: plan
            .ready_at
            .filter(|_| plan.candidates.is_empty())
            .map(|at| millis(at.saturating_duration_since(world.at))),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What the relay refuses before it plans (`relay::handler`), in its words.
fn rejected(workflow: &WorkflowSettings, contract: &Contract) -> Option<Rejected> {
    if contract.facts.model.is_none() && workflow.primary.model.is_none() {
        let message = "The request names no model, and neither does the route.".to_owned();
        return Some(Rejected { code: "model_missing".into(), message });
    }
    if let Some(tool) = contract.forbidden_tool() {
        let message =
            format!("The tool {tool} is run by the provider and is not allowed by this workflow's side_effects.");
        return Some(Rejected { code: "side_effects_not_allowed".into(), message });
    }
    let dialect = contract.endpoint.dialect();
    (!workflow.primary.dialects.contains(&dialect)).then(|| Rejected {
        code: "dialect_not_supported".into(),
        message: format!("The workflow {} does not speak {}.", workflow.name, dialect.name()),
    })
}

fn uses(workflow: &WorkflowSettings, contract: &Contract) -> Uses {
    let facts = &contract.facts;
    let mut capabilities: Vec<String> = contract.capabilities().collect();
    capabilities.sort();
    let mut pins: Vec<String> = facts.pins.iter().map(|pin| pin.field.to_owned()).collect();
    pins.sort();
    pins.dedup();
    let required = &workflow.requires.capabilities;
    Uses {
        model: facts.model.as_ref().map(|(name, _)| name.clone()),
        stream: facts.stream,
        reasoning: facts.reasoning,
        required: required.iter().filter(|name| !capabilities.contains(name)).cloned().collect(),
        capabilities,
        hosted_tools: facts.hosted_tools.iter().map(|tool| tool.name.clone()).collect(),
        pins,
        input_tokens: facts.input_tokens(),
        max_output_tokens: facts.max_output_tokens,
    }
}

fn spend(contract: &Contract) -> Spend {
    let envelope = &contract.envelope;
    Spend {
        deadline_ms: millis(contract.deadline()),
        max_attempts: envelope.max_attempts,
        attempts_used: contract.attempts_used,
        max_added_latency_ms: envelope.max_added_latency.map(millis),
        max_cost_usd: envelope.max_cost_usd,
        side_effects: match envelope.side_effects {
            SideEffects::None => "none",
            SideEffects::ReadOnly => "read_only",
            SideEffects::WritePossible => "write_possible",
        }
        .into(),
        repeat_unanswered: envelope.repeat_unanswered,
    }
}

fn shares(members: &[Member]) -> Vec<Share> {
    let sum: u64 = members.iter().filter(|member| member.why.is_empty()).map(|member| u64::from(member.weight)).sum();
    let share = |member: &Member| {
        #[allow(clippy::cast_precision_loss, reason = "sums of weights are far below 2^53")]
        let sum = sum as f64;
        if member.why.is_empty() { f64::from(member.weight) / sum } else { 0.0 }
    };
    members
        .iter()
        .map(|member| Share {
            route: member.route.name.to_string(),
            weight: member.weight,
            share: share(member),
            why: member.why.iter().map(Refusal::to_string).collect(),
        })
        .collect()
}

fn listed(route: &RouteSettings, role: Role, contract: &Contract, figures: Figures<'_>) -> Listed {
    let (needs, estimated_cost_usd) = figures(route, contract);
    Listed {
        route: route.name.to_string(),
        role: role.name().into(),
        provider: route.provider.name.to_string(),
        model: route.model.clone(),
        region: route.region.clone(),
        account: route.provider.account.clone(),
        network: route.provider.network.map(|network| match network {
            Network::Private => "private".into(),
            Network::Public => "public".into(),
        }),
        route_digest: digest::route_digest(route),
        estimated_cost_usd,
        needs_ms: millis(needs),
    }
}

fn reasons(workflow: &WorkflowSettings, plan: &Plan, world: &World<'_>) -> Vec<Reason> {
    let of = |route: &RouteId| {
        if workflow.equivalents.iter().any(|other| other.name == *route) {
            Role::Equivalent
        } else if workflow.alternates.iter().any(|other| other.name == *route) {
            Role::Alternate
        } else if workflow.primary.name == *route {
            Role::Primary
        } else {
            Role::Planned
        }
    };
    let all = plan.refused.iter().flat_map(|(route, reasons)| reasons.iter().map(move |reason| (route, reason)));
    all.map(|(route, why)| {
        let role = of(route);
        reason(route, role, why, &purposes(workflow, world, route, role, why))
    })
    .collect()
}

fn reason(route: &RouteId, role: Role, why: &Refusal, purposes: &[&'static str]) -> Reason {
    let entry = why.entry();
    let remedy = if purposes.is_empty() {
        entry.remedy.into()
    } else {
        let purposes: Vec<_> = purposes.iter().map(|purpose| format!("purpose = \"{purpose}\"")).collect();
        format!("{} Here: {}.", entry.remedy, purposes.join(" and ")).into()
    };
    Reason {
        route: route.to_string(),
        role: role.name().into(),
        why: why.to_string(),
        means: entry.meaning.into(),
        remedy,
    }
}

/// For which purposes the approval lacks that `why` speaks of. A member of a split may need two: one for its share, one to stand in for
/// another.
fn purposes(
    workflow: &WorkflowSettings,
    world: &World<'_>,
    route: &RouteId,
    role: Role,
    why: &Refusal,
) -> Vec<&'static str> {
    let of_splits = workflow.splits.iter().map(|split| &split.route);
    let mut known = of_splits.chain(&workflow.equivalents).chain(&workflow.alternates);
    let Some(route) = known.find(|known| known.name == *route) else { return Vec::new() };
    let roles = if role == Role::Planned { &[Role::Primary, Role::Planned][..] } else { &[role] };
    let standing = |role: &Role| Standing {
        workflow,
        approvals: world.approvals,
        route,
        role: *role,
        now: world.now,
        failover_off: false,
    };
    roles
        .iter()
        .map(standing)
        .filter(|one| approval(one).as_ref() == Some(why))
        .map(|one| one.purpose().name())
        .collect()
}

#[cfg(test)]
mod tests;

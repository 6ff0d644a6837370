//! The plan in words: which routes, in what order, and why not the others. `rubicon explain` and `GET /admin/v1/explain` print this
//! one [`Explanation`], the first with nothing closed, the second with what is closed in the living process.
//!
//! In: settings, an [`Ask`] (workflow, dialect, request headers and body), the [`World`] and what an attempt needs. Out: an explanation, or
//! why there is none ([`AskError`]). No prompt or output is in it: names, numbers and reasons only.

mod ask;
mod text;

use std::time::Duration;

use serde::Serialize;

use crate::config::settings::{Network, RouteSettings, Settings, SideEffects, WorkflowSettings};
use crate::contract::Contract;
use crate::ids::{RouteId, WorkflowId};

use super::refusal::Refusal;
use super::{Member, Plan, Role, World, digest, plan};

pub use ask::{Ask, AskError};

/// What an attempt on a route needs: time, and its estimated cost in US dollars.
pub type Figures<'a> = &'a dyn Fn(&RouteSettings, &Contract) -> (Duration, f64);

/// The plan for one request.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The workflow.
    pub workflow: WorkflowId,
    /// Its version.
    pub version: u64,
    /// The request's dialect.
    pub dialect: &'static str,
    /// A route may serve.
    pub eligible: bool,
    /// Why the relay would answer 400 before any plan, if it would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// What the request uses.
    pub request: Uses,
    /// What it may spend, after its headers.
    pub envelope: Spend,
    /// What is switched on.
    pub failover: Switched,
    /// The planned split; empty where the primary is one route.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub split: Vec<Share>,
    /// Routes that may serve, in the order in which they are tried.
    pub candidates: Vec<Listed>,
    /// Every reason against the others, one entry each.
    pub refused: Vec<Reason>,
    /// Where nothing may serve now, when the first tripped route may be asked again, in milliseconds from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// A request that is refused whatever the routes say.
#[derive(Clone, Debug, Serialize)]
pub struct Rejected {
    /// The code of the 400.
    pub code: &'static str,
    /// A sentence.
    pub message: String,
}

/// What the request uses.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
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
    pub side_effects: &'static str,
    /// What was sent and gave no answer may be sent again.
    pub repeat_unanswered: bool,
}

/// Failover as switched.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// The route.
    pub route: RouteId,
    /// Its weight.
    pub weight: u32,
    /// Its share of this request's choice, from 0 to 1.
    pub share: f64,
    /// Why it has none.
    pub why: Vec<String>,
}

/// A candidate.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// The route.
    pub route: RouteId,
    /// What it is to the workflow.
    pub role: &'static str,
    /// Its provider.
    pub provider: String,
    /// The model sent upstream; absent: the request's own.
    pub model: Option<String>,
    /// Its region.
    pub region: Option<String>,
    /// Its account.
    pub account: String,
    /// Its network.
    pub network: Option<&'static str>,
    /// Of host, model, account, region, network.
    pub route_digest: String,
    /// What an attempt there would cost, estimated; 0 without a price.
    pub estimated_cost_usd: f64,
    /// The time that an attempt there needs, in milliseconds.
    pub needs_ms: u64,
}

/// One reason against one route, in the shape of `rubicon.refused`.
#[derive(Clone, Debug, Serialize)]
pub struct Reason {
    /// The route.
    pub route: RouteId,
    /// What it is to the workflow.
    pub role: &'static str,
    /// The refusal's name.
    pub why: String,
    /// What it means.
    pub means: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// Explains.
///
/// # Errors
/// When workflow, dialect, headers or request cannot be read.
pub fn explain(
    settings: &Settings,
    ask: &Ask,
    world: &World<'_>,
    figures: Figures<'_>,
) -> Result<Explanation, AskError> {
    let (workflow, contract) = ask.read(settings)?;
    let plan = plan(workflow, &contract, world);
    let rejected = rejected(workflow, &contract);
    let off_by_operator = world.gate.failover_off(&workflow.name);
    Ok(Explanation {
        workflow: workflow.name.clone(),
        version: workflow.version,
        dialect: contract.endpoint.dialect().name(),
        eligible: rejected.is_none() && !plan.candidates.is_empty(),
        rejected,
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
        refused: reasons(workflow, &plan),
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
        return Some(Rejected { code: "model_missing", message });
    }
    if let Some(tool) = contract.forbidden_tool() {
        let message =
            format!("The tool {tool} is run by the provider and is not allowed by this workflow's side_effects.");
        return Some(Rejected { code: "side_effects_not_allowed", message });
    }
    let dialect = contract.endpoint.dialect();
    (!workflow.primary.dialects.contains(&dialect)).then(|| Rejected {
        code: "dialect_not_supported",
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
        },
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
            route: member.route.name.clone(),
            weight: member.weight,
            share: share(member),
            why: member.why.iter().map(Refusal::to_string).collect(),
        })
        .collect()
}

fn listed(route: &RouteSettings, role: Role, contract: &Contract, figures: Figures<'_>) -> Listed {
    let (needs, estimated_cost_usd) = figures(route, contract);
    Listed {
        route: route.name.clone(),
        role: role.name(),
        provider: route.provider.name.to_string(),
        model: route.model.clone(),
        region: route.region.clone(),
        account: route.provider.account.clone(),
        network: route.provider.network.map(|network| match network {
            Network::Private => "private",
            Network::Public => "public",
        }),
        route_digest: digest::route_digest(route),
        estimated_cost_usd,
        needs_ms: millis(needs),
    }
}

fn reasons(workflow: &WorkflowSettings, plan: &Plan) -> Vec<Reason> {
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
    all.map(|(route, reason)| Reason {
        route: route.clone(),
        role: of(route).name(),
        why: reason.to_string(),
        means: reason.entry().meaning,
        remedy: reason.entry().remedy,
    })
    .collect()
}

#[cfg(test)]
mod tests;

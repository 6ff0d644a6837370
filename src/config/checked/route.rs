//! `[route.NAME]`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::UnixMillis;
use crate::ids::{ProviderId, RouteId};
use crate::protocol::Dialect;

use super::super::node::Node;
use super::super::problem::{Code, Problems};
use super::super::settings::{
    BreakerSettings, FailoverLimits, Limits, Price, ProviderKind, ProviderSettings, RouteSettings, Timeouts, Verified,
};
use super::{no_doubles, resolves};

/// A day less one millisecond: from a day's start to its end.
const TO_END_OF_DAY_MS: u64 = 86_400_000 - 1;

/// The dialects a kind may be declared to speak. Gateways that speak Chat Completions often serve Messages or Responses beside it,
/// and Anthropic serves Chat Completions beside Messages; OpenAI and Azure serve OpenAI's own two, Bedrock what is behind the address.
fn speakable(provider: &ProviderSettings) -> &'static [Dialect] {
    match provider.kind {
        ProviderKind::OpenAi | ProviderKind::AzureOpenAi => &[Dialect::ChatCompletions, Dialect::Responses],
        ProviderKind::Bedrock if is_anthropic(&provider.base_url) => &[Dialect::AnthropicMessages],
        ProviderKind::Bedrock => &[Dialect::ChatCompletions, Dialect::Responses],
        ProviderKind::OpenAiCompatible => &Dialect::ALL,
        ProviderKind::Anthropic => &[Dialect::ChatCompletions, Dialect::AnthropicMessages],
    }
}

/// What a route speaks that says nothing: its kind's native dialects. Of compatible servers and Bedrock only Chat Completions: many
/// models have no Responses there, and a route that is taken to speak it would be asked in a failover and answer 404.
fn native(provider: &ProviderSettings) -> &'static [Dialect] {
    match provider.kind {
        ProviderKind::OpenAi | ProviderKind::AzureOpenAi => &[Dialect::ChatCompletions, Dialect::Responses],
        ProviderKind::Anthropic => &[Dialect::AnthropicMessages],
        ProviderKind::Bedrock if is_anthropic(&provider.base_url) => &[Dialect::AnthropicMessages],
        ProviderKind::Bedrock | ProviderKind::OpenAiCompatible => &[Dialect::ChatCompletions],
    }
}

/// Bedrock keeps its Anthropic-compatible endpoint below a path of its own, on the same host as the other one (STREAMS.md 1.8).
fn is_anthropic(base: &http::Uri) -> bool {
    base.path().ends_with("/anthropic/v1")
}

/// All routes that could be built.
pub(super) fn all(
    root: &Node,
    providers: &BTreeMap<ProviderId, Arc<ProviderSettings>>,
    problems: &mut Problems<'_>,
    now: UnixMillis,
) -> BTreeMap<RouteId, Arc<RouteSettings>> {
    let mut all = BTreeMap::new();
    for (name, node) in root.named("route") {
        if let Some(route) = one(root, name, node, providers, problems, now) {
            all.insert(route.name.clone(), Arc::new(route));
        }
    }
    all
}

fn one(
    root: &Node,
    name: &str,
    node: &Node,
    providers: &BTreeMap<ProviderId, Arc<ProviderSettings>>,
    problems: &mut Problems<'_>,
    now: UnixMillis,
) -> Option<RouteSettings> {
    let verified = node.table("verified").and_then(|table| verified(table, problems, now));
    no_doubles(node.items("capabilities").unwrap_or_default(), &node.key_of("capabilities"), problems);
    let provider = node.text("provider").and_then(|provider| {
        resolves(root, "provider", provider, node.at_of("provider"), &node.key_of("provider"), problems);
        providers.get(&ProviderId::new(provider)).cloned()
    });
    let provider = provider?;
    let dialects = dialects(node, &provider, problems);
    Some(RouteSettings {
        name: RouteId::new(name),
        provider,
        model: node.owned("model"),
        model_class: node.owned("model_class"),
        region: node.owned("region"),
        dialects,
        capabilities: node.texts("capabilities"),
        context_tokens: node.opt_int("context_tokens"),
        max_output_tokens: node.opt_int("max_output_tokens"),
        price: node.table("price").and_then(price),
        timeouts: timeouts(node.table("timeouts")?),
        verified,
        limits: limits(node.table("limits")?),
        failover_limits: failover_limits(node.table("failover_limits")?),
        breaker: breaker(node.table("breaker")?),
        oncall: node.owned("oncall"),
        schemas: node.texts("schemas"),
        languages: node.texts("languages"),
        safety_profile: node.owned("safety_profile"),
    })
}

fn dialects(node: &Node, provider: &ProviderSettings, problems: &mut Problems<'_>) -> Vec<Dialect> {
    let spoken = speakable(provider);
    let Some(items) = node.items("dialects") else { return native(provider).to_vec() };
    let key = node.key_of("dialects");
    no_doubles(items, &key, problems);
    if items.is_empty() {
        problems.error(Code::InvalidValue, node.at_of("dialects"), &key, "a route without a dialect serves nothing");
    }
    let mut dialects = Vec::new();
    for item in items {
        match Dialect::ALL.into_iter().find(|dialect| dialect.name() == item.text) {
            Some(dialect) if spoken.contains(&dialect) => dialects.push(dialect),
            _ => {
                let names: Vec<_> = spoken.iter().map(|dialect| dialect.name()).collect();
                let message = format!("`{}` is of a kind that speaks {} only", provider.name, names.join(", "));
                problems.error(Code::DialectNotSpoken, item.at, &key, message);
            }
        }
    }
    dialects
}

fn price(table: &Node) -> Option<Price> {
    let (input, output) = (table.number("input")?, table.number("output")?);
    Some(Price { input, cached_input: table.number("cached_input").unwrap_or(input), output })
}

fn timeouts(table: &Node) -> Timeouts {
    Timeouts {
        connect: table.millis("connect_ms"),
        first_output: table.millis("first_output_ms"),
        first_output_reasoning: table.millis("first_output_reasoning_ms"),
        idle: table.millis("idle_ms"),
        answer: table.millis("answer_ms"),
    }
}

fn verified(table: &Node, problems: &mut Problems<'_>, now: UnixMillis) -> Option<Verified> {
    let (on, until) = (table.date("on")?, end_of(table, "until"));
    if on > now {
        problems.warning(Code::VerifiedInFuture, table.at_of("on"), &table.key_of("on"), "lies in the future");
    }
    if until.is_some_and(|until| until < on) {
        problems.error(Code::DatesReversed, table.at_of("until"), &table.key_of("until"), "lies before `on`");
    }
    let (by, evidence, route_digest) = (table.owned("by"), table.owned("evidence"), table.owned("route_digest"));
    Some(Verified { on, until, by, evidence, route_digest })
}

fn limits(table: &Node) -> Limits {
    Limits {
        concurrency: table.opt_int("concurrency").and_then(|limit| u32::try_from(limit).ok()),
        requests_per_minute: table.opt_int("requests_per_minute"),
        tokens_per_minute: table.opt_int("tokens_per_minute"),
    }
}

fn failover_limits(table: &Node) -> FailoverLimits {
    let limit = |name: &str| table.opt_int(name).and_then(|limit| u32::try_from(limit).ok());
    FailoverLimits { concurrency: limit("concurrency"), requests_per_second: limit("requests_per_second") }
}

fn breaker(table: &Node) -> BreakerSettings {
    BreakerSettings {
        failures: u32::try_from(table.int("failures")).unwrap_or(u32::MAX),
        cooldown: table.millis("cooldown_ms"),
    }
}

/// The last millisecond of a day.
pub(super) fn end_of(table: &Node, name: &str) -> Option<UnixMillis> {
    table.date(name).map(|start| UnixMillis(start.0.saturating_add(TO_END_OF_DAY_MS)))
}

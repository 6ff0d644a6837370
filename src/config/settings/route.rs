//! `[route.NAME]`: a model at a provider, what it can do, what it costs, and how much of it may be used.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::UnixMillis;
use crate::ids::RouteId;
use crate::protocol::Dialect;

use super::ProviderSettings;

/// `[route.NAME]`.
#[derive(Debug)]
pub struct RouteSettings {
    /// The name.
    pub name: RouteId,
    /// `provider`.
    pub provider: Arc<ProviderSettings>,
    /// `model` sent upstream; absent: the request's own passes through.
    pub model: Option<String>,
    /// `model_class`.
    pub model_class: Option<String>,
    /// `region`.
    pub region: Option<String>,
    /// `dialects` (default: what the provider's kind speaks natively).
    pub dialects: Vec<Dialect>,
    /// `capabilities`; absent: not stated (a primary is not checked, a failover route is refused for what a request uses).
    pub capabilities: Option<Vec<String>>,
    /// `context_tokens`.
    pub context_tokens: Option<u64>,
    /// `max_output_tokens`: for cost estimates where the request has none (4096).
    pub max_output_tokens: Option<u64>,
    /// `price`.
    pub price: Option<Price>,
    /// `timeouts`.
    pub timeouts: Timeouts,
    /// `verified`.
    pub verified: Option<Verified>,
    /// `limits`.
    pub limits: Limits,
    /// `failover_limits`.
    pub failover_limits: FailoverLimits,
    /// `breaker`.
    pub breaker: BreakerSettings,
    /// `oncall`: whom to call, shown to operators.
    pub oncall: Option<String>,
    /// `schemas` it keeps; absent: not stated.
    pub schemas: Option<Vec<String>>,
    /// `languages`; absent: not stated.
    pub languages: Option<Vec<String>>,
    /// `safety_profile`; absent: not stated.
    pub safety_profile: Option<String>,
}

/// `[route.X] limits`; what is absent is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct Limits {
    /// `concurrency`: attempts at once, each held to its stream's end.
    pub concurrency: Option<u32>,
    /// `requests_per_minute`.
    pub requests_per_minute: Option<u64>,
    /// `tokens_per_minute`: estimated input and output when admitted, corrected when told.
    pub tokens_per_minute: Option<u64>,
}

/// `[route.X] failover_limits`: what recovery traffic (attempts that another route should have served) may add.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct FailoverLimits {
    /// `concurrency`.
    pub concurrency: Option<u32>,
    /// `requests_per_second`.
    pub requests_per_second: Option<u32>,
}

/// `[route.X] breaker`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// `failures` (10) in a row that trip it; 0: never.
    pub failures: u32,
    /// `cooldown_ms` (5000) until the first probe; doubled after each failed probe, up to twelve times this.
    pub cooldown: Duration,
}

/// `price`, US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// `input`.
    pub input: f64,
    /// `cached_input` (default: `input`).
    pub cached_input: f64,
    /// `output`.
    pub output: f64,
}

/// `timeouts` of a route.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// `connect_ms` (5000).
    pub connect: Duration,
    /// `first_output_ms` (60000), from the attempt's start to the first visible output.
    pub first_output: Duration,
    /// `first_output_reasoning_ms` (300000), the same where the request asks for reasoning.
    pub first_output_reasoning: Duration,
    /// `idle_ms` (60000) without a byte of the provider, after the boundary.
    pub idle: Duration,
    /// `answer_ms` (600000), an attempt without streaming, to the whole answer.
    pub answer: Duration,
}

/// `verified`.
#[derive(Debug, Clone)]
pub struct Verified {
    /// `on`, start of that day (UTC).
    pub on: UnixMillis,
    /// `until`, end of that day (UTC); absent: does not expire.
    pub until: Option<UnixMillis>,
    /// `by`.
    pub by: Option<String>,
    /// `evidence`.
    pub evidence: Option<String>,
    /// `route_digest` of what was verified; absent: not compared.
    pub route_digest: Option<String>,
}

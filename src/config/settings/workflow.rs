//! `[workflow.NAME]`: which routes serve a request, in which order, within which bounds.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::WorkflowId;

use super::super::passthrough::Pattern;
use super::{Network, RouteSettings};

/// `[workflow.NAME]`.
#[derive(Debug)]
pub struct WorkflowSettings {
    /// The name.
    pub name: WorkflowId,
    /// `version` (1).
    pub version: u64,
    /// `models` that belong to it.
    pub models: Vec<String>,
    /// `owner`.
    pub owner: Option<String>,
    /// `primary`; of a planned split, the first member.
    pub primary: Arc<RouteSettings>,
    /// All members of a planned split, the first included; empty where `primary` is one route.
    pub splits: Vec<Split>,
    /// `equivalents`, in order.
    pub equivalents: Vec<Arc<RouteSettings>>,
    /// `alternates`, in order.
    pub alternates: Vec<Arc<RouteSettings>>,
    /// `commit`.
    pub commit: Commit,
    /// `reasoning`: `visible` (default) or `hold`.
    pub reasoning_held: bool,
    /// `hold`.
    pub hold: HoldSettings,
    /// `[workflow.X.envelope]`.
    pub envelope: Envelope,
    /// `[workflow.X.failover]`.
    pub failover: Failover,
    /// `[workflow.X.requires]`.
    pub requires: Requires,
    /// `passthrough`: paths that go to the primary with no recovery.
    pub passthrough: Vec<Pattern>,
}

/// A member of a planned split.
#[derive(Debug, Clone)]
pub struct Split {
    /// The route.
    pub route: Arc<RouteSettings>,
    /// Its share of the sum of weights, at least 1.
    pub weight: u32,
}

/// `hold`.
#[derive(Debug, Clone, Copy)]
pub struct HoldSettings {
    /// `max_events` (256).
    pub max_events: u64,
    /// `max_bytes` (262144).
    pub max_bytes: u64,
    /// `keepalive_after_ms` (15000); absent (0 in the file): never.
    pub keepalive_after: Option<Duration>,
}

/// `commit`: when an attempt is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Commit {
    /// `first_visible`.
    #[default]
    FirstVisible,
    /// `tool_call_complete`.
    ToolCallComplete,
    /// `validated`.
    Validated,
}

/// `[workflow.X.envelope]`.
#[derive(Debug, Clone, Copy)]
pub struct Envelope {
    /// `deadline_ms` (120000): streaming, to the boundary.
    pub deadline: Duration,
    /// `deadline_reasoning_ms` (600000): the same where the request asks for reasoning.
    pub deadline_reasoning: Duration,
    /// `answer_deadline_ms` (600000): without streaming, to the whole answer.
    pub answer_deadline: Duration,
    /// `stream_ms`: to the end of the stream; absent: only `idle_ms` ends it.
    pub stream: Option<Duration>,
    /// `max_attempts` (3).
    pub max_attempts: u32,
    /// `max_added_latency_ms`; absent: only the deadline.
    pub max_added_latency: Option<Duration>,
    /// `max_cost_usd`; absent: not limited.
    pub max_cost_usd: Option<f64>,
    /// `side_effects` (read_only).
    pub side_effects: SideEffects,
    /// `repeat_unanswered` (true).
    pub repeat_unanswered: bool,
}

/// `side_effects`: hosted tools that a request may declare. Ordered from tight to loose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SideEffects {
    /// None at all.
    None,
    /// Those that only read.
    ReadOnly,
    /// All.
    WritePossible,
}

/// `[workflow.X.failover]`.
#[derive(Debug, Clone, Copy)]
pub struct Failover {
    /// `enabled` (false).
    pub enabled: bool,
    /// `equivalent` (true).
    pub equivalent: bool,
    /// `cross_model` (false).
    pub cross_model: bool,
    /// `wait_first_ms` (1000): a `Retry-After` under this is waited for before failing over.
    pub wait_first: Duration,
}

/// `[workflow.X.requires]`: what every route of the workflow but the primary must state.
#[derive(Debug, Clone, Default)]
pub struct Requires {
    /// `capabilities`.
    pub capabilities: Vec<String>,
    /// `regions`; empty: any.
    pub regions: Vec<String>,
    /// `network`.
    pub network: Option<Network>,
    /// `data_class`.
    pub data_class: Option<String>,
    /// `legal_entities`; empty: any.
    pub legal_entities: Vec<String>,
    /// `model_classes`; empty: any.
    pub model_classes: Vec<String>,
    /// `min_context_tokens`.
    pub min_context_tokens: Option<u64>,
    /// `schemas` that a route must keep.
    pub schemas: Vec<String>,
    /// `languages` that a route must be good at.
    pub languages: Vec<String>,
    /// `safety_profile` that a route must have.
    pub safety_profile: Option<String>,
}

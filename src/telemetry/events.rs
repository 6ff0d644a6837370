//! Event lines as types. Whoever sees something end fills one of these and gives it to [`Telemetry`](super::Telemetry), which writes
//! the line, counts the metrics and closes the span from the same value: they can't disagree.
//!
//! No prompt, output, argument or key has a field here. What is not from a closed list or the configuration (model names, the
//! application's reason) goes through [`said`]: bounded, and what looks like a key masked.

use rubicon_ledger::{ExecutionKey, ToolName};
use serde::Serialize;

use crate::class::Class;
use crate::classify::limit::LimitDimension;
use crate::classify::mask::mask;
use crate::clock::UnixMillis;
use crate::ids::{ClientId, OperationId, ProviderId, RouteId, TenantId, WorkflowId};
use crate::protocol::Dialect;
use crate::reply::Refused;

pub use super::words::{AlarmKind, AttemptResult, Call, Kind, Outcome, RequestState};

/// Bytes of somebody's words (a model name) that an event shows. The longest model names of the field are under 100.
pub const SAID_BYTES_MAX: usize = 128;

/// Somebody's words, fit to be logged.
pub fn said(text: &str) -> String {
    bounded(text, SAID_BYTES_MAX)
}

/// The first bytes of a text, at a character's border, with what looks like a key masked (before the cut, which could make half a
/// key look like none).
pub fn bounded(text: &str, bytes_max: usize) -> String {
    // Whoever sends megabytes shall not have all of them masked.
    let near = text.get(..text.floor_char_boundary(bytes_max.saturating_mul(2))).unwrap_or_default();
    let masked = mask(near);
    masked.get(..masked.floor_char_boundary(bytes_max)).unwrap_or_default().to_owned()
}

/// Milliseconds since 1970 as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub UnixMillis);

impl Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = i64::try_from(self.0.0).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        serializer.collect_str(&format_args!("{time:.3}"))
    }
}

/// Three successes that are easily taken for one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Success {
    /// A 2xx came whole; `None` where that was not up to the provider.
    pub transport: Option<bool>,
    /// What came whole is an answer that keeps the contract; `None` where nothing whole came.
    pub contract: Option<bool>,
    /// The application's word, which comes later.
    pub task: Option<bool>,
}

impl Success {
    /// Of an attempt that ended as `result`. `whole`: a 2xx came, and what was wrong with it was its content (a fault in it, a shape
    /// that is no answer).
    pub fn of(result: AttemptResult, whole: bool) -> Self {
        let (transport, contract) = match result {
            AttemptResult::Accepted => (Some(true), Some(true)),
            AttemptResult::Unfinished => (None, None),
            AttemptResult::Failed | AttemptResult::Interrupted if whole => (Some(true), Some(false)),
            AttemptResult::Failed | AttemptResult::Interrupted => (Some(false), None),
        };
        Self { transport, contract, task: None }
    }
}

/// What attempts and requests share.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Whose {
    /// Operation; absent where none was begun.
    pub operation: Option<OperationId>,
    /// The operation that this one replaces.
    pub restart_of: Option<OperationId>,
    /// Who called.
    pub client: Option<ClientId>,
    /// Whose data it is.
    pub tenant: Option<TenantId>,
    /// The workflow.
    pub workflow: Option<WorkflowId>,
    /// Its `version`.
    pub workflow_version: Option<u64>,
    /// The dialect.
    pub dialect: Option<Dialect>,
    /// Which call.
    pub call: Call,
    /// Streamed or not.
    pub stream: Option<bool>,
    /// The caller's `model`, through [`said`].
    pub requested_model: Option<String>,
}

/// Tokens, as far as they were told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tokens {
    /// All input tokens.
    pub input_tokens: Option<u64>,
    /// Those from the provider's cache.
    pub cached_input_tokens: Option<u64>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
}

/// One attempt that has ended.
#[derive(Clone, Debug, Serialize)]
pub struct AttemptEvent {
    /// `attempt`.
    pub event: &'static str,
    /// When it ended.
    pub time: Time,
    /// Whose it is.
    #[serde(flatten)]
    pub whose: Whose,
    /// 1 for the first.
    pub attempt: u32,
    /// What it is for.
    pub kind: Kind,
    /// The route.
    pub route: RouteId,
    /// Its provider.
    pub provider: ProviderId,
    /// The model sent upstream, through [`said`].
    pub sent_model: Option<String>,
    /// The model that the provider says it served, through [`said`].
    pub served_model: Option<String>,
    /// How it ended.
    pub result: AttemptResult,
    /// Its failure class.
    pub class: Option<Class>,
    /// The provider's status.
    pub status: Option<u16>,
    /// From its start.
    pub duration_ms: u64,
    /// From the response head to the boundary.
    pub hold_ms: Option<u64>,
    /// From its start to the first visible output, where it is streamed.
    pub first_output_ms: Option<u64>,
    /// Tokens.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// US dollars.
    pub cost_usd: Option<f64>,
    /// Usage is not known: `cost_usd` is the estimate.
    pub cost_estimated: bool,
    /// The route's breaker at its start.
    pub circuit: &'static str,
    /// Of a throttle.
    pub limit_dimension: Option<LimitDimension>,
    /// The wait that the provider asked for.
    pub retry_after_ms: Option<u64>,
    /// Transport, contract, task.
    pub success: Success,
    /// `gen_ai.provider.name`; no field of the line.
    #[serde(skip)]
    pub provider_kind: &'static str,
}

/// Attempts by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ByKind {
    /// [`Kind::First`].
    pub first: u32,
    /// [`Kind::Retry`].
    pub retry: u32,
    /// [`Kind::EquivalentFailover`].
    pub equivalent_failover: u32,
    /// [`Kind::CrossModelFallback`].
    pub cross_model_fallback: u32,
}

impl ByKind {
    /// One more.
    pub fn count(&mut self, kind: Kind) {
        match kind {
            Kind::First => self.first += 1,
            Kind::Retry => self.retry += 1,
            Kind::EquivalentFailover => self.equivalent_failover += 1,
            Kind::CrossModelFallback => self.cross_model_fallback += 1,
        }
    }
}

/// The recovery object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Recovery {
    /// What the accepted (else the last) attempt was, or `none`.
    pub workflow: &'static str,
    /// Attempts by kind.
    pub attempts: ByKind,
    /// An attempt that was not the primary's first was accepted.
    pub recovered: bool,
    /// The failure that recovery answered.
    pub reason: Option<Class>,
    /// From admission to the start of the accepted attempt.
    pub added_latency_ms: Option<u64>,
}

impl Default for Recovery {
    fn default() -> Self {
        let workflow = super::names::NONE;
        Self { workflow, attempts: ByKind::default(), recovered: false, reason: None, added_latency_ms: None }
    }
}

/// One request that has ended.
#[derive(Clone, Debug, Serialize)]
pub struct RequestEvent {
    /// `request`.
    pub event: &'static str,
    /// When it ended.
    pub time: Time,
    /// Whose it is.
    #[serde(flatten)]
    pub whose: Whose,
    /// How it ended.
    pub state: RequestState,
    /// As the caller gets it.
    pub reason: Option<String>,
    /// Failure class.
    pub class: Option<Class>,
    /// What the caller got; `None` where it left before any.
    pub status: Option<u16>,
    /// `joined` or `replayed`.
    pub replay: Option<&'static str>,
    /// The route whose answer was accepted, else the last one tried.
    pub route: Option<RouteId>,
    /// The model that the provider says it served, through [`said`].
    pub served_model: Option<String>,
    /// Attempts made.
    pub attempts: u32,
    /// The accepted one.
    pub accepted_attempt: Option<u32>,
    /// From admission.
    pub duration_ms: u64,
    /// Of the accepted attempt.
    pub hold_ms: Option<u64>,
    /// From admission.
    pub first_output_ms: Option<u64>,
    /// What crossed the boundary.
    pub boundary: Option<crate::boundary::Why>,
    /// Events of the accepted attempt that were sent.
    pub events: u64,
    /// Tokens of the accepted attempt.
    #[serde(flatten)]
    pub tokens: Tokens,
    /// Of the accepted answer.
    pub cost_usd: Option<f64>,
    /// Of the attempts that became no whole answer.
    pub lost_cost_usd: Option<f64>,
    /// Not known whether they acted.
    pub unresolved_executions: u32,
    /// The recovery object.
    pub recovery: Recovery,
    /// The route's breaker at the start of the accepted (else the last) attempt.
    pub circuit: Option<&'static str>,
    /// Routes that did not serve and why, once the request has ended.
    pub refused: Vec<Refused>,
    /// Of the last throttle.
    pub limit_dimension: Option<LimitDimension>,
    /// Transport, contract, task.
    pub success: Success,
}

impl RequestEvent {
    /// A request that ended without any attempt: refused, joined, replayed. The rest is for the caller to fill in.
    pub fn without_attempt(whose: Whose, state: RequestState, time: UnixMillis, duration_ms: u64) -> Self {
        Self {
            event: "request",
            time: Time(time),
            whose,
            state,
            reason: None,
            class: None,
            status: None,
            replay: None,
            route: None,
            served_model: None,
            attempts: 0,
            accepted_attempt: None,
            duration_ms,
            hold_ms: None,
            first_output_ms: None,
            boundary: None,
            events: 0,
            tokens: Tokens::default(),
            cost_usd: None,
            lost_cost_usd: None,
            unresolved_executions: 0,
            recovery: Recovery::default(),
            circuit: None,
            refused: Vec::new(),
            limit_dimension: None,
            success: Success::default(),
        }
    }
}

/// `POST /v1/operations/{id}/outcome`.
#[derive(Clone, Debug, Serialize)]
pub struct TaskEvent {
    /// `task`.
    pub event: &'static str,
    /// When.
    pub time: Time,
    /// Which operation.
    pub operation: OperationId,
    /// Who says so.
    pub client: ClientId,
    /// Whose data it is.
    pub tenant: TenantId,
    /// The workflow.
    pub workflow: WorkflowId,
    /// Its `version`.
    pub workflow_version: Option<u64>,
    /// The route whose answer was accepted.
    pub route: Option<RouteId>,
    /// The word.
    pub outcome: Outcome,
    /// Why, bounded and masked by whoever fills this in.
    pub reason: Option<String>,
    /// Transport and contract are not repeated here.
    pub success: TaskSuccess,
}

/// `success` of a [`TaskEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TaskSuccess {
    /// Whether the task succeeded.
    pub task: bool,
}

/// An alarm's line.
#[derive(Clone, Debug, Serialize)]
pub struct AlarmEvent {
    /// `alarm`.
    pub event: &'static str,
    /// When.
    pub time: Time,
    /// What happened.
    pub kind: AlarmKind,
    /// The operation it concerns.
    pub operation: Option<OperationId>,
    /// The route it concerns.
    pub route: Option<RouteId>,
    /// The execution it concerns.
    pub execution: Option<ExecutionKey>,
    /// Its tool.
    pub tool: Option<ToolName>,
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::sample;

//! The checked configuration: what the rest of the program reads. Every value is complete (defaults applied) and consistent
//! (names resolve, secrets are read); nothing here can be half set. Built only by `checked.rs`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::UnixMillis;
use crate::ids::{ClientId, ProviderId, RouteId, TenantId, WorkflowId};
use crate::protocol::Dialect;

use super::passthrough::Pattern;
use super::secret::Secret;
use super::token_file::TokenFile;

/// Everything.
#[derive(Debug)]
pub struct Settings {
    /// `[server]`.
    pub server: ServerSettings,
    /// `[log]`.
    pub log: LogSettings,
    /// `[[client]]`; empty: loopback only, no key needed.
    pub clients: Vec<Arc<ClientSettings>>,
    /// `[provider.NAME]`.
    pub providers: BTreeMap<ProviderId, Arc<ProviderSettings>>,
    /// `[route.NAME]`.
    pub routes: BTreeMap<RouteId, Arc<RouteSettings>>,
    /// `[workflow.NAME]`.
    pub workflows: BTreeMap<WorkflowId, Arc<WorkflowSettings>>,
    /// `[[approval]]`.
    pub approvals: Vec<Approval>,
    /// `[[operator]]`; empty: the admin side is off.
    pub operators: Vec<Arc<OperatorSettings>>,
    /// `[telemetry]`.
    pub telemetry: TelemetrySettings,
}

/// `[server]`.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// `listen` (127.0.0.1:8080).
    pub listen: SocketAddr,
    /// `shutdown_grace_ms` (30000).
    pub shutdown_grace: Duration,
    /// `max_body_bytes` (33554432).
    pub max_body_bytes: usize,
    /// `max_header_bytes` (65536).
    pub max_header_bytes: usize,
    /// `max_event_bytes` (16777216): a provider's line and event.
    pub max_event_bytes: usize,
    /// `max_in_flight` (10000) requests; more are shed with 503.
    pub max_in_flight: usize,
    /// `exhausted_status` (424): what a caller gets when a provider's failure could not be recovered.
    pub exhausted_status: u16,
    /// `admin_listen` (127.0.0.1:8081 where there is an operator or `metrics_open`); absent: no admin side.
    pub admin_listen: Option<SocketAddr>,
    /// `store`.
    pub store: StoreSettings,
    /// `memory_bytes`; absent: half the machine's or the cgroup's.
    pub memory_bytes: Option<u64>,
    /// `metrics_open` (false): `/metrics` without a token.
    pub metrics_open: bool,
    /// `cors_origins`: origins that get CORS headers; empty: none.
    pub cors_origins: Vec<String>,
    /// `retry`: what attempts after the first may add to the traffic.
    pub retry: RetryShare,
}

/// `[server] retry`: the shared budget of attempts after the first. Within any [`window`](RetryShare) of 10 s a route's operations
/// may make `max(min_per_second × 10, share × operations)` further attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryShare {
    /// `share` (0.2) of the operations of the last 10 s.
    pub share: f64,
    /// `min_per_second` (5): what little traffic may always add.
    pub min_per_second: u32,
}

/// `[server] store`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreSettings {
    /// Nothing survives a restart.
    Memory,
    /// `redb:PATH`, the path resolved against the config's folder.
    Redb(PathBuf),
}

/// `[[operator]]`.
#[derive(Debug)]
pub struct OperatorSettings {
    /// `name`, as journaled.
    pub name: String,
    /// `token`.
    pub token: Secret,
    /// `role`.
    pub role: OperatorRole,
}

/// `[[operator]] role`, from less to more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorRole {
    /// Reads.
    Viewer,
    /// Kills and disables, too.
    Operator,
    /// Restores and enables, too.
    Approver,
}

/// `[telemetry]`.
#[derive(Debug, Clone, Default)]
pub struct TelemetrySettings {
    /// `otlp_endpoint` with `/v1/traces`, else what OpenTelemetry's environment variables say; absent: no traces.
    pub otlp_traces_url: Option<String>,
}

/// `[log]`.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// `format`: `text` (default on a terminal) or `json`.
    pub format: LogFormat,
    /// `level` (info): error, warn, info, debug or trace.
    pub level: String,
    /// `events` (stdout): where the event lines go.
    pub events: EventsTo,
}

/// `[log] events`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventsTo {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// `file:PATH`, appended to.
    File(PathBuf),
}

/// `[log] format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// JSON lines.
    Json,
}

/// `[[client]]`.
#[derive(Debug)]
pub struct ClientSettings {
    /// `name`.
    pub name: ClientId,
    /// `tenant` (default: the name).
    pub tenant: TenantId,
    /// `keys`.
    pub keys: Vec<Secret>,
    /// `workflows` it may call (default none).
    pub workflows: Vec<WorkflowId>,
    /// `show_routes` (false).
    pub show_routes: bool,
}

/// `[provider.X] kind` of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    /// OpenAI itself: `Authorization: Bearer`.
    OpenAi,
    /// Azure OpenAI and Microsoft Foundry, their v1 endpoint: `api-key`, or a bearer token of Entra.
    AzureOpenAi,
    /// Anthropic itself: `x-api-key`, and `anthropic-version` where the caller sent none.
    Anthropic,
    /// Amazon Bedrock's OpenAI- and Anthropic-compatible endpoints: `Authorization: Bearer` on both.
    Bedrock,
    /// Anything that speaks Chat Completions: `Authorization: Bearer`.
    OpenAiCompatible,
}

/// `[provider.NAME]`.
#[derive(Debug)]
pub struct ProviderSettings {
    /// The name.
    pub name: ProviderId,
    /// `kind`.
    pub kind: ProviderKind,
    /// `base_url` (the vendor's own by default), scheme and authority and path, no trailing slash. For openai kinds it ends
    /// where `/chat/completions` follows (usually `/v1`); for anthropic `/v1` is cut off when given, `/v1/messages` follows.
    /// Of azure-openai and bedrock it always ends in `/v1`.
    pub base_url: http::Uri,
    /// `api_key`; absent: no credential is sent (local servers).
    pub api_key: Option<Secret>,
    /// `entra_token` (azure-openai), instead of `api_key`.
    pub entra_token: Option<Arc<TokenFile>>,
    /// `account` (default: the provider's name): who holds pinned state.
    pub account: String,
    /// `legal_entity`.
    pub legal_entity: Option<String>,
    /// `data_classes` the provider may see; absent: not stated.
    pub data_classes: Option<Vec<String>>,
    /// `network`; absent: not stated.
    pub network: Option<Network>,
    /// `terminal` (strict; lenient for openai-compatible and bedrock): whether a finish reason and the end of the body are an end.
    pub terminal: Terminal,
    /// `forward_headers`: request headers that go upstream besides the fixed list, in lower case.
    pub forward_headers: Vec<http::HeaderName>,
    /// `ambiguous_429 = "rate_limited"`.
    pub ambiguous_429_is_rate_limit: bool,
    /// `attempts_header`: a response header in which a gateway below reports the attempts it spent.
    pub attempts_header: Option<http::HeaderName>,
    /// `idempotency_header`: request header that carries a key of this attempt, where the provider supports one.
    pub idempotency_header: Option<http::HeaderName>,
    /// `depends_on`: failure domains that it shares with others.
    pub depends_on: Vec<String>,
}

impl ProviderSettings {
    /// The key or token of this moment.
    pub fn credential(&self) -> Option<Secret> {
        self.api_key.clone().or_else(|| self.entra_token.as_ref().map(|token| token.last_good()))
    }
}

/// `network`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Private link or VPC.
    Private,
    /// Public HTTPS.
    Public,
}

/// `terminal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// Only the dialect's own terminal event ends a stream.
    Strict,
    /// A finish reason followed by the end of the body does too.
    Lenient,
}

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
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// `concurrency`: attempts at once, each held to its stream's end.
    pub concurrency: Option<u32>,
    /// `requests_per_minute`.
    pub requests_per_minute: Option<u64>,
    /// `tokens_per_minute`: estimated input and output when admitted, corrected when told.
    pub tokens_per_minute: Option<u64>,
}

/// `[route.X] failover_limits`: what recovery traffic (attempts that another route should have served) may add.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
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

/// A member of a planned split.
#[derive(Debug, Clone)]
pub struct Split {
    /// The route.
    pub route: Arc<RouteSettings>,
    /// Its share of the sum of weights, at least 1.
    pub weight: u32,
}

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

/// `[[approval]]`.
#[derive(Debug, Clone)]
pub struct Approval {
    /// `workflow`.
    pub workflow: WorkflowId,
    /// `route`.
    pub route: RouteId,
    /// `purpose`.
    pub purpose: Purpose,
    /// `until`, end of that day (UTC); absent: does not expire.
    pub until: Option<UnixMillis>,
    /// `network`; recovery over public HTTPS needs `public`.
    pub network: Option<Network>,
    /// `by`.
    pub by: Option<String>,
    /// `evidence`.
    pub evidence: Option<String>,
    /// `route_digest` of what was approved; absent: not compared.
    pub route_digest: Option<String>,
}

/// `[[approval]] purpose`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To an equivalent.
    Failover,
    /// To an alternate.
    CrossModel,
    /// A further member of a planned split.
    Planned,
}

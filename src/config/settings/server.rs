//! The process itself: `[server]`, `[log]` and `[telemetry]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

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

/// `[telemetry]`.
#[derive(Debug, Clone, Default)]
pub struct TelemetrySettings {
    /// `otlp_endpoint` with `/v1/traces`, else what OpenTelemetry's environment variables say; absent: no traces.
    pub otlp_traces_url: Option<String>,
}

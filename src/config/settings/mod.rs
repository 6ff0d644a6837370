//! The checked configuration: what the rest of the program reads. Every value is complete (defaults applied) and consistent
//! (names resolve, secrets are read); nothing here can be half set. Built only by `checked`.
//!
//! A file a section of the config file. All are named from here: which file a type stands in is nobody's business.

use std::collections::BTreeMap;
use std::sync::Arc;

use rubicon_ledger::ToolName;

use crate::ids::{ProviderId, RouteId, WorkflowId};

mod approval;
mod people;
mod provider;
mod route;
mod server;
mod template;
mod tool;
mod workflow;

pub use approval::{Approval, Purpose};
pub use people::{ClientSettings, OperatorRole, OperatorSettings};
pub use provider::{Network, ProviderKind, ProviderSettings, Terminal};
pub use route::{BreakerSettings, FailoverLimits, Limits, Price, RouteSettings, Timeouts, Verified};
pub use server::{EventsTo, LogFormat, LogSettings, RetryShare, ServerSettings, StoreSettings, TelemetrySettings};
pub use template::{BadTemplate, Part, TEMPLATE_BYTES_MAX, TEMPLATE_FIELDS_MAX, Template};
pub use tool::{ProbeSettings, ResultRule, ToolEndpoint, ToolSettings};
pub use workflow::{Commit, Envelope, Failover, HoldSettings, Requires, SideEffects, Split, WorkflowSettings};

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
    /// `[tool.NAME]`.
    pub tools: BTreeMap<ToolName, Arc<ToolSettings>>,
    /// `[telemetry]`.
    pub telemetry: TelemetrySettings,
}

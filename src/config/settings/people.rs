//! Who may call: `[[client]]` the relay, `[[operator]]` the admin side.

use rubicon_ledger::ToolName;

use crate::ids::{ClientId, TenantId, WorkflowId};

use super::super::secret::Secret;

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
    /// `tools` it may claim or run (default none).
    pub tools: Vec<ToolName>,
    /// `show_routes` (false).
    pub show_routes: bool,
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

//! What operators switched off: routes killed, failover disabled. Plain data; the control store keeps it, the gate reads it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::{Instant, UnixMillis};
use crate::ids::{RouteId, WorkflowId};

use super::{Closed, Gate};

/// Who did it, when and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The operator's name.
    pub by: String,
    /// The reason given.
    pub reason: String,
    /// Since when.
    pub since: UnixMillis,
}

/// Everything that is switched off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Routes that get no new attempt.
    pub killed: BTreeMap<RouteId, Switch>,
    /// No failover at all.
    pub failover_off: Option<Switch>,
    /// No failover of these workflows.
    pub workflow_failover_off: BTreeMap<WorkflowId, Switch>,
}

impl Gate for Switches {
    fn closed(&self, route: &RouteId, _: bool, _: Instant) -> Option<Closed> {
        self.killed.contains_key(route).then_some(Closed::Killed)
    }

    fn failover_off(&self, workflow: &WorkflowId) -> bool {
        self.failover_off.is_some() || self.workflow_failover_off.contains_key(workflow)
    }
}

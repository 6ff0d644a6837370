//! `[[approval]]`: which route may stand in for a workflow, and for what.

use crate::clock::UnixMillis;
use crate::ids::{RouteId, WorkflowId};

use super::Network;

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

impl Purpose {
    /// As written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failover => "failover",
            Self::CrossModel => "cross_model",
            Self::Planned => "planned",
        }
    }
}

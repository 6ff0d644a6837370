//! What is known of each operation, for `GET /v1/operations/{id}` and `DELETE`.
//!
//! In memory, bounded by number and age; the ids are the tenant's (another tenant's id is unknown here). An operation is
//! updated by its driver as it goes, and by the driver's drop when the client left.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rubicon_ledger::{Planning, RootId};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::boundary::Why;
use crate::classify::Class;
use crate::clock::{Instant, UnixMillis};
use crate::ids::{OperationId, RouteId, TenantId, WorkflowId};
use crate::protocol::Dialect;
use crate::protocol::signal::Usage;
use crate::reply::Refused;
use crate::telemetry::events::Outcome;
use crate::tool::object::Short;

use super::roots::Root;

/// Operations remembered, running ones included. At the bound the oldest ended one is forgotten.
pub const OPERATIONS_MAX: usize = 20_000;

/// How long an ended operation is remembered.
pub const KEPT: Duration = Duration::from_secs(15 * 60);

/// `state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Going on.
    Running,
    /// Ended with the provider's own end.
    Completed,
    /// Cut after output, or left by its client.
    Interrupted,
    /// Ended with an error and no output.
    Failed,
    /// Stopped by `DELETE`.
    Stopped,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Running, Self::Completed, Self::Interrupted, Self::Failed, Self::Stopped];

    /// The name in JSON and log lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// One attempt, as shown.
#[derive(Clone, Debug, Serialize)]
pub struct AttemptView {
    /// 1 for the first.
    pub number: u32,
    /// Taken out for clients that are not configured to see routes ([`View::without_routes`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteId>,
    /// Milliseconds from admission.
    pub started_ms: u64,
    /// Milliseconds from admission; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// `accepted`, or absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    /// How it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The provider's status, if a head came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_status: Option<u16>,
}

/// The boundary, as shown.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BoundaryView {
    /// Milliseconds from admission.
    pub at_ms: u64,
    /// What crossed.
    pub why: Why,
    /// The attempt that was committed.
    pub attempt: u32,
}

/// All that is known of an operation.
#[derive(Clone, Debug, Serialize)]
pub struct View {
    /// The id.
    pub operation_id: OperationId,
    /// The user's action or agent run that it belongs to: its executions are keyed by it.
    pub root: RootId,
    /// Plans of tool calls may have been lost: a claim without one is flagged `plan_incomplete` and not `unplanned`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plans_incomplete: bool,
    /// The interrupted operation that this one replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_of: Option<OperationId>,
    /// The operation that replaces this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarted_as: Option<OperationId>,
    /// The state.
    pub state: State,
    /// What may be done now.
    pub actions: Vec<&'static str>,
    /// Why it ended so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The class of its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The workflow.
    pub workflow: WorkflowId,
    /// The dialect.
    pub dialect: Dialect,
    /// Streaming or not.
    pub stream: bool,
    /// Admission.
    pub created_at: UnixMillis,
    /// The end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<UnixMillis>,
    /// Attempts.
    pub attempts: Vec<AttemptView>,
    /// Routes that did not serve and why, once it has ended; only for clients that may see routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// The boundary, null before it.
    pub boundary: Option<BoundaryView>,
    /// Events of the accepted attempt that were sent.
    pub after: u64,
    /// The provider's finish reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// Tokens of the accepted attempt, as far as told.
    pub usage: Usage,
    /// Tool executions that it asked for first, without their content; filled in where it is shown.
    pub executions: Vec<Short>,
    /// Hosted tools that may have acted and whose outcome is not known; where it is shown, with the executions that are uncertain.
    pub unresolved_executions: u32,
    /// The application's word on the answer, once it gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeView>,
    /// The workflow's version at admission, for events.
    #[serde(skip)]
    pub workflow_version: u64,
    /// The route whose answer was accepted, for events: clients may not see routes.
    #[serde(skip)]
    pub served_route: Option<RouteId>,
}

/// The application's word, as shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutcomeView {
    /// The word.
    pub outcome: Outcome,
    /// Why, as the application put it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it said so.
    pub at: UnixMillis,
}

impl View {
    /// The same without the names of routes.
    #[must_use]
    pub fn without_routes(mut self) -> Self {
        self.attempts.iter_mut().for_each(|attempt| attempt.route = None);
        self.refused.clear();
        self
    }
}

/// One operation.
#[derive(Debug)]
pub struct Operation {
    /// The id.
    pub id: OperationId,
    /// The owner.
    pub tenant: TenantId,
    /// The run that it belongs to.
    pub root: Root,
    /// When it was admitted.
    pub admitted: Instant,
    /// Cancelled by `DELETE` and by the end of a shutdown's grace.
    pub stop: CancellationToken,
    names: Names,
    stopped: AtomicBool,
    view: Mutex<View>,
}

/// The ledger's own names of an operation.
#[derive(Clone, Debug)]
pub struct Names {
    /// Whose.
    pub tenant: rubicon_ledger::TenantId,
    /// Which.
    pub operation: rubicon_ledger::OperationId,
}

impl Operation {
    /// A running operation; `stop` is its own token, a child of the relay's.
    pub fn new(view: View, names: Names, root: Root, admitted: Instant, stop: CancellationToken) -> Self {
        Self {
            id: view.operation_id.clone(),
            tenant: TenantId::new(names.tenant.as_str()),
            names,
            root,
            admitted,
            stop,
            stopped: AtomicBool::new(false),
            view: Mutex::new(view),
        }
    }

    /// What the ledger calls it.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// A plan, or a call that should have become one, found no room.
    pub fn plans_lost(&self) {
        self.update(|known| known.plans_incomplete = true);
    }

    /// Whether a claim for this operation ought to find a plan.
    pub fn planning(&self) -> Planning {
        let lost = self.view.lock().unwrap_or_else(PoisonError::into_inner).plans_incomplete;
        if lost { Planning::MayBeLost } else { Planning::Complete }
    }

    /// Changes what is known.
    pub fn update(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.view.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// A copy of what is known.
    pub fn view(&self) -> View {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it has no end yet.
    pub fn is_running(&self) -> bool {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).state == State::Running
    }

    /// Whether somebody stopped it (and not the relay's shutdown).
    pub fn was_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct Operations {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<(TenantId, OperationId), Arc<Operation>>,
    /// In order of admission, for expiry; long ones are put back to the end.
    order: VecDeque<Entered>,
    /// Operations so far.
    count: u64,
}

#[derive(Debug)]
struct Entered {
    key: (TenantId, OperationId),
    admitted: Instant,
    /// 1 for the first since the start.
    number: u64,
}

impl Operations {
    /// Remembers an operation. One with the same id (a key that runs again) is replaced.
    pub fn insert(&self, operation: &Arc<Operation>, now: Instant) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.expire(now);
        table.count += 1;
        let key = (operation.tenant.clone(), operation.id.clone());
        let entered = Entered { key: key.clone(), admitted: operation.admitted, number: table.count };
        table.order.push_back(entered);
        table.by_id.insert(key, Arc::clone(operation));
    }

    /// Finds one of a tenant.
    pub fn get(&self, tenant: &TenantId, id: &OperationId) -> Option<Arc<Operation>> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.by_id.get(&(tenant.clone(), id.clone())).cloned()
    }

    /// All that were admitted after the one of that number (0: all), oldest first, each with its number.
    pub fn after(&self, number: u64) -> Vec<(u64, Arc<Operation>)> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let entered = table.order.iter().filter(|entered| entered.number > number);
        let mut found: Vec<(u64, Arc<Operation>)> = entered
            .filter_map(|entered| {
                let operation = table.by_id.get(&entered.key)?;
                // Where the key ran again, a later entry stands for it.
                (operation.admitted == entered.admitted).then(|| (entered.number, Arc::clone(operation)))
            })
            .collect();
        drop(table);
        found.sort_unstable_by_key(|(number, _)| *number);
        found
    }

    /// Those of this id, whose ever they are, in order of their tenants.
    pub fn of_all_tenants(&self, id: &OperationId) -> Vec<Arc<Operation>> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<_> = table.by_id.values().filter(|operation| operation.id == *id).cloned().collect();
        drop(table);
        found.sort_by(|a, b| a.tenant.cmp(&b.tenant));
        found
    }

    /// Stops one: true if it was running.
    pub fn stop(operation: &Operation) -> bool {
        let running = operation.is_running();
        if running {
            operation.stopped.store(true, Ordering::Relaxed);
            operation.stop.cancel();
        }
        running
    }
}

impl Table {
    /// Forgets what is too old or too many; each call does at most a few steps more than there was inserted.
    fn expire(&mut self, now: Instant) {
        for _ in 0..4 {
            let Some(first) = self.order.front() else { return };
            let old = now.saturating_duration_since(first.admitted) > KEPT;
            if !old && self.order.len() < OPERATIONS_MAX {
                return;
            }
            let Some(entered) = self.order.pop_front() else { return };
            let Some(operation) = self.by_id.get(&entered.key) else { continue };
            if operation.admitted != entered.admitted {
                continue; // The key ran again: a later entry of the order stands for it.
            }
            if operation.is_running() {
                // A long stream: it stays, and is looked at again later.
                self.order.push_back(entered);
            } else {
                self.by_id.remove(&entered.key);
            }
        }
    }
}

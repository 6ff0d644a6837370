//! The executions of an operation, as its view shows them, and what follows from them.
//!
//! In: an operation, or an id that only the ledger knows. Out: [`Shown`]. The ledger is asked when somebody looks and not when something
//! happens, so that a view is never behind it. While one execution is uncertain (started or unknown, and it may write), a restart would be
//! refused: `reconcile` stands in its place.

use rubicon_ledger::store::{Filter, is_uncertain};
use rubicon_ledger::{Record, State as ExecutionState};
use serde::Serialize;

use crate::ids::{OperationId, TenantId};
use crate::tool::object::Short;

use super::app::App;
use super::operations::{Operation, State, View};

/// Executions that a view shows, the oldest; an agent's step has a handful.
pub const EXECUTIONS_MAX: usize = 100;

/// An operation, as shown to its tenant.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Shown {
    /// One that this process knows.
    Known(Box<Known>),
    /// One that is known from its executions only: a restart, or time, made the rest forgotten; or the operation was not the relay's.
    Remembered(Remembered),
}

/// One that this process knows.
#[derive(Debug, Serialize)]
pub struct Known {
    #[serde(flatten)]
    view: View,
    /// `unavailable`: its executions could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger: Option<&'static str>,
}

/// One that is known from its executions only.
#[derive(Debug, Serialize)]
pub struct Remembered {
    operation_id: OperationId,
    state: &'static str,
    actions: Vec<&'static str>,
    executions: Vec<Short>,
    unresolved_executions: u32,
}

/// The executions that an operation asked for first, oldest first; `None`: the store could not be read.
async fn of(app: &App, tenant: &TenantId, id: &OperationId) -> Option<Vec<Record>> {
    // A name that the ledger would not take has no executions.
    let tenant = rubicon_ledger::TenantId::new(tenant.as_str()).ok();
    let operation = rubicon_ledger::OperationId::new(id.as_str()).ok();
    let (Some(tenant), Some(operation)) = (tenant, operation) else { return Some(Vec::new()) };
    let reader = app.ledger.reader();
    let filter = Filter { tenant: Some(tenant), operation: Some(operation), ..Filter::default() };
    let read = tokio::task::spawn_blocking(move || reader.list(&filter, EXECUTIONS_MAX)).await;
    match read {
        Ok(Ok(page)) => Some(page.records),
        Ok(Err(error)) => {
            tracing::warn!(%error, "executions of an operation could not be read");
            None
        }
        Err(_) => None,
    }
}

/// An operation that this process knows, with its executions.
pub async fn known(app: &App, operation: &Operation, show_routes: bool) -> Shown {
    let found = of(app, &operation.tenant, &operation.id).await;
    let view = operation.view();
    let mut view = if show_routes { view } else { view.without_routes() };
    let ledger = found.is_none().then_some("unavailable");
    match &found {
        Some(records) => fill(&mut view, records),
        // Whether a restart would be refused is not known: nobody is told that it would not.
        None => swap_restart(&mut view.actions),
    }
    Shown::Known(Box::new(Known { view, ledger }))
}

/// The ledger cannot be read: whether it knows an operation is not known.
#[derive(Debug)]
pub struct Unreadable;

/// An operation that only the ledger may know. `None`: it does not.
///
/// # Errors
///
/// Where it cannot be read: an operation that has executions must not look as if it had never been.
pub async fn remembered(app: &App, tenant: &TenantId, id: &OperationId) -> Result<Option<Shown>, Unreadable> {
    let records = of(app, tenant, id).await.ok_or(Unreadable)?;
    if records.is_empty() {
        return Ok(None);
    }
    let action = if records.iter().any(is_unknown) { "reconcile" } else { "none" };
    Ok(Some(Shown::Remembered(Remembered {
        operation_id: id.clone(),
        state: "none",
        actions: vec![action],
        executions: records.iter().map(Short::new).collect(),
        unresolved_executions: uncertain(&records),
    })))
}

/// Puts executions, and what follows from them, into a view.
pub fn fill(view: &mut View, records: &[Record]) {
    view.executions = records.iter().map(Short::new).collect();
    let uncertain = uncertain(records);
    view.unresolved_executions = view.unresolved_executions.saturating_add(uncertain);
    if uncertain > 0 {
        swap_restart(&mut view.actions);
    }
    if view.state != State::Running && records.iter().any(is_unknown) && !view.actions.contains(&"reconcile") {
        view.actions.retain(|action| *action != "none");
        view.actions.push("reconcile");
    }
}

fn swap_restart(actions: &mut [&'static str]) {
    actions.iter_mut().filter(|action| **action == "restart").for_each(|action| *action = "reconcile");
}

fn uncertain(records: &[Record]) -> u32 {
    u32::try_from(records.iter().filter(|record| is_uncertain(record)).count()).unwrap_or(u32::MAX)
}

fn is_unknown(record: &Record) -> bool {
    is_uncertain(record) && record.state == ExecutionState::Unknown
}

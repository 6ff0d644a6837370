//! The executions of one operation, for its view.

use rubicon_ledger::store::Filter;
use rubicon_ledger::{OperationId, Record, TenantId};

use crate::relay::app::App;
use crate::relay::executions::EXECUTIONS_MAX;

use super::super::ledger;
use super::Problem;

/// The operation's executions, the oldest; of all tenants where none is named.
pub(in super::super) async fn of_operation(app: &App, tenant: Option<&str>, id: &str) -> Result<Vec<Record>, Problem> {
    // What is no name was never one of an execution.
    let Ok(operation) = OperationId::new(id) else { return Ok(Vec::new()) };
    let Ok(tenant) = tenant.map(TenantId::new).transpose() else { return Ok(Vec::new()) };
    let filter = Filter { tenant, operation: Some(operation), ..Filter::default() };
    Ok(ledger::read(app, move |reader| reader.list(&filter, EXECUTIONS_MAX)).await?.records)
}

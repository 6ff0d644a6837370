//! The gate before a restart: a new operation may replace an interrupted one, unless something that the old one began may still act or
//! may have acted and nobody has looked into it (SPEC section 7).
//!
//! In: who asks, and for which operation. Out: the root that the new one keeps, or the refusal. Tools that the provider ran are known
//! from the operation itself, executions from the ledger, where operations of before the relay's own start are known, too. A ledger that
//! cannot be read refuses (503 `ledger_unavailable`): a restart that nobody could check is how an effect doubles.

use std::time::Duration;

use rubicon_ledger::store::{Filter, Reader, StoreError, is_uncertain};
use rubicon_ledger::{Ledger, Record, RootId, State};

use crate::ids::{OperationId, TenantId};
use crate::reply::Uncertain;

use super::app::App;
use super::intake::Refusal;
use super::operation::Run;
use super::operations;
use super::roots;
use super::seat;

/// Executions that are named; one that is enough to refuse.
const NAMED_MAX: usize = 100;

/// How long the ledger is asked; over it, it counts as unreadable.
const ASK_WAIT: Duration = Duration::from_secs(5);

/// Whether `old` may be restarted, and the root that its successor keeps.
pub(super) async fn may_restart(app: &App, tenant: &TenantId, old: &OperationId) -> Result<RootId, Refusal> {
    let known = app.operations.get(tenant, old);
    let view = known.as_ref().map(|known| known.view());
    if view.as_ref().is_some_and(|view| view.state == operations::State::Running) {
        return Err(Refusal::new(409, "still_running", "The operation to be restarted is still running.").of(old));
    }
    let asked = ask(&app.ledger, tenant, old, known.is_none()).await.map_err(|error| {
        tracing::warn!(%error, operation = %old, "restart refused: the ledger cannot be read");
        let message =
            "Whether the operation to be restarted has executions of unknown outcome cannot be found out now.";
        Refusal::new(503, "ledger_unavailable", message).of(old)
    })?;
    let root = known.map(|known| known.root.id.clone()).or(asked.root);
    let Some(root) = root else {
        return Err(Refusal::new(404, "operation_not_found", "Rubicon-Restart-Of names no operation that is known."));
    };
    let hosted = view.map_or(0, |view| view.unresolved_executions);
    let executions = asked.uncertain;
    let count = hosted.saturating_add(u32::try_from(executions.len()).unwrap_or(u32::MAX));
    if count == 0 {
        return Ok(root);
    }
    let message = "A tool of the operation to be restarted may have acted: find out first.";
    let mut refusal = Refusal::new(409, "side_effect_uncertain", message).of(old);
    let rubicon = &mut refusal.failure.rubicon;
    rubicon.unresolved_executions = Some(count);
    rubicon.actions = Some(vec!["reconcile"]);
    rubicon.executions = executions;
    Err(refusal)
}

/// The same, while the client of an interrupted stream waits for its last words.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(500);

/// What the ledger says of an operation.
#[derive(Debug, Default)]
struct Asked {
    /// Executions that may have acted or may act, at most [`NAMED_MAX`] of each state.
    uncertain: Vec<Uncertain>,
    /// The root of its executions, where it was asked for.
    root: Option<RootId>,
}

impl Run {
    /// Executions of this operation that may have acted or may act, for its last words; none where the ledger does not say in time: the
    /// gate asks again.
    pub(super) async fn unresolved_executions(&self) -> u32 {
        let Some(ledger) = seat::ledger(&self.job.app, &self.job.current.settings) else { return 0 };
        let operation = &self.job.operation;
        let asked = ask(ledger, &operation.tenant, &operation.id, false);
        match tokio::time::timeout(LAST_WORDS_WAIT, asked).await {
            Ok(Ok(asked)) => u32::try_from(asked.uncertain.len()).unwrap_or(u32::MAX),
            _ => 0,
        }
    }
}

async fn ask(ledger: &Ledger, tenant: &TenantId, old: &OperationId, root: bool) -> Result<Asked, StoreError> {
    let reader = ledger.reader();
    let (ledger, tenant, old) = (ledger.clone(), tenant.clone(), old.clone());
    let read = tokio::task::spawn_blocking(move || {
        let kept = if root { roots::kept(&ledger, &tenant, &old)? } else { None };
        look(&*reader, &tenant, &old).map(|uncertain| Asked { uncertain, root: kept })
    });
    match tokio::time::timeout(ASK_WAIT, read).await {
        Ok(Ok(asked)) => asked,
        _ => Err(StoreError::Io("it does not answer".to_owned())),
    }
}

fn look(reader: &dyn Reader, tenant: &TenantId, old: &OperationId) -> Result<Vec<Uncertain>, StoreError> {
    let Some(filter) = roots::of_operation(tenant, old) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for state in [State::Started, State::Unknown] {
        found.extend(uncertain(reader, Filter { state: Some(state), ..filter.clone() })?);
    }
    Ok(found)
}

/// Goes on past what is read only, so that many of those hide nothing.
fn uncertain(reader: &dyn Reader, mut filter: Filter) -> Result<Vec<Uncertain>, StoreError> {
    let mut found = Vec::new();
    loop {
        let page = reader.list(&filter, NAMED_MAX)?;
        found.extend(page.records.iter().filter(|record| is_uncertain(record)).map(short));
        match page.next {
            // Each page goes on after the one before, so the turns are bounded by the operation's own executions.
            Some(next) if found.is_empty() && next > filter.after => filter.after = next,
            _ => return Ok(found),
        }
    }
}

fn short(record: &Record) -> Uncertain {
    Uncertain { key: record.key.to_string(), tool: record.tool.as_str().to_owned(), state: record.state.name() }
}

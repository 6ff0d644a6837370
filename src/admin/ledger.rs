//! The ledger behind the admin side: its reading side, on threads that may block, and what its refusals are called over HTTP.

use std::sync::Arc;

use rubicon_ledger::store::{Reader, StoreError};
use rubicon_ledger::{Denied, Ledger, Unavailable};
use tokio::task::spawn_blocking;

use crate::relay::app::App;

use super::answer::Problem;

/// The ledger.
pub(super) fn of(app: &App) -> &Ledger {
    &app.ledger
}

/// Reads, on a thread that may block.
pub(super) async fn read<T: Send + 'static>(
    app: &App,
    read: impl FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Problem> {
    let reader: Arc<dyn Reader> = of(app).reader();
    match spawn_blocking(move || read(&*reader)).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            tracing::error!(%error, "the ledger cannot be read");
            Err(Problem::store_unavailable("The ledger cannot be read; the log says why."))
        }
        Err(_) => Err(Problem::store_unavailable("The ledger could not be read.")),
    }
}

/// Nothing could be made durable, so nothing was changed.
pub(super) fn unavailable(error: &Unavailable) -> Problem {
    tracing::warn!(%error, "an operator's change of an execution was not taken");
    Problem::new(503, "ledger_unavailable", format!("Nothing was changed: {error}."))
}

/// A change that the rules do not allow.
pub(super) fn denied(denied: &Denied) -> Problem {
    let (status, code, record) = match denied {
        Denied::NotFound => return not_found(),
        Denied::ForeignLease => (409, "foreign_lease", None),
        Denied::StaleLease(record) => (409, "stale_lease", Some(record)),
        Denied::LeaseOver(record) => (409, "lease_over", Some(record)),
        Denied::AlreadySettled(record) => (409, "already_settled", Some(record)),
        Denied::VersionMismatch(record) => {
            let version = record.version;
            let message = format!("Somebody was faster: the version is {version}. Look again before you decide.");
            return Problem::new(412, "version_mismatch", message).version(version).with("state", record.state.name());
        }
        Denied::NotNow { code, record, .. } => (409, *code, Some(record)),
    };
    let mut words = denied.to_string();
    if let Some(first) = words.get(..1).map(str::to_ascii_uppercase) {
        words.replace_range(..1, &first);
    }
    let problem = Problem::new(status, code, format!("{words}."));
    match record {
        None => problem,
        Some(record) => problem.version(record.version).with("state", record.state.name()),
    }
}

/// No tenant has it.
pub(super) fn not_found() -> Problem {
    Problem::new(404, "execution_not_found", "There is no such execution.")
}

//! What is kept is verified once at every start: the journal of switches, and the ledger.
//!
//! *Switches*: beside what is served; a journal that does not hold is for people to look at: an error in the log and an alarm, and the relay
//! serves on with the switches as they are stored. *The ledger*: a record that cannot be found any more would let its call run again, so
//! a damaged one takes no claims (503, `/readyz` says so) until a start finds it whole. A small one is verified before anything is served;
//! one of a million executions takes its time and is verified beside it.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::clock::UnixMillis;
use crate::config::settings::StoreSettings;
use crate::relay::app::App;
use crate::telemetry::words::AlarmKind;

/// Ledgers up to this many bytes are verified before the first claim: a fraction of a second.
const SMALL_BYTES: u64 = 16 * 1024 * 1024;

/// Begins it, and ends it for a small ledger; nothing to do where nothing is kept.
pub(super) async fn verify(app: &Arc<App>) {
    let StoreSettings::Redb(path) = &app.current().settings.server.store else { return };
    let verified = Arc::clone(app);
    app.tasks.spawn_blocking(move || switches(&verified));
    let verified = Arc::clone(app);
    if std::fs::metadata(path).is_ok_and(|file| file.len() <= SMALL_BYTES) {
        // It cannot panic, and a start that is given up waits for nobody.
        let _ = spawn_blocking(move || ledger(&verified)).await;
    } else {
        app.tasks.spawn_blocking(move || ledger(&verified));
    }
}

fn switches(app: &App) {
    let broken = match app.control.verify(None) {
        Ok(verdict) => match verdict.broken {
            None => return tracing::debug!(entries = verdict.entries, "the journal of switches holds"),
            Some(broken) => format!("entry {} is {}", broken.sequence, broken.why),
        },
        Err(error) => error.to_string(),
    };
    tracing::error!(
        broken,
        "ALARM: the journal of switches does not hold: look at GET /admin/v1/journal/verify; the switches stay as they are stored"
    );
    app.telemetry.alarm(AlarmKind::JournalBroken, None, None, UnixMillis::now());
}

fn ledger(app: &App) {
    // One that cannot be used now (a full disk) says so by itself, and is no damaged one.
    if !app.ledger.is_available() {
        return;
    }
    let broken = match app.ledger.reader().verify(None) {
        Ok(verdict) => match verdict.broken {
            None => return tracing::debug!(entries = verdict.entries, records = verdict.records, "the ledger holds"),
            Some(broken) => format!("entry {} is {}", broken.sequence, broken.why),
        },
        Err(rubicon_ledger::store::StoreError::Damaged(why)) => why,
        Err(error) => return tracing::warn!(%error, "the ledger could not be verified"),
    };
    app.ledger.condemn(&broken);
    tracing::error!(
        broken,
        "ALARM: the ledger is damaged and takes no claims: look at `rubicon ledger verify`, and restore a backup of it"
    );
    app.telemetry.alarm(AlarmKind::JournalBroken, None, None, UnixMillis::now());
}

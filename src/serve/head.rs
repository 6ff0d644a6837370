//! The end of the ledger's journal, every minute, in the log and beside the store: kept elsewhere, it tells a tail that was cut off
//! (`rubicon ledger verify --head H`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::config::settings::StoreSettings;
use crate::relay::app::App;
use crate::relay::ledger::keep_head;

/// How often (SPEC section 8).
const EVERY: Duration = Duration::from_secs(60);

/// The file of the ledger; none where nothing is kept.
pub(super) fn store(app: &App) -> Option<PathBuf> {
    match &app.current().settings.server.store {
        StoreSettings::Memory => None,
        StoreSettings::Redb(path) => Some(path.clone()),
    }
}

/// Keeps it, the first time at once, until it is dropped.
pub(super) async fn keep(app: Arc<App>) {
    let Some(store) = store(&app) else { return };
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let (ledger, store) = (app.ledger.clone(), store.clone());
        // A disk that hangs keeps this task waiting, and nobody else.
        let _ = tokio::task::spawn_blocking(move || keep_head(&ledger, &store)).await;
    }
}

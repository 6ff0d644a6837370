//! What the ledger does without being asked, for as long as the relay serves: unknown outcomes are asked about, content is erased after
//! its retention, an alarm tells when nothing can be made durable, and the end of the journal is kept every minute, in the log and beside
//! the store: kept elsewhere, it tells a tail that was cut off (`rubicon ledger verify --head H`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use crate::clock::UnixMillis;
use crate::config::settings::StoreSettings;
use crate::relay::app::App;
use crate::relay::ledger::keep_head;
use crate::tool::retention;

/// How often the head is kept (SPEC section 8).
const HEAD_EVERY: Duration = Duration::from_secs(60);

/// How often it is looked whether the ledger can write.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The file of the ledger; none where nothing is kept.
pub(super) fn store(app: &App) -> Option<PathBuf> {
    match &app.current().settings.server.store {
        StoreSettings::Memory => None,
        StoreSettings::Redb(path) => Some(path.clone()),
    }
}

/// Begins all of it.
pub(super) fn tasks(app: &Arc<App>) -> Vec<AbortOnDropHandle<()>> {
    let (erased, ledger) = (Arc::clone(app), app.ledger.clone());
    let rules = move || retention::rules(&erased.current().settings);
    let erasing = retention::keep(ledger, rules, || rubicon_ledger::UnixMillis(UnixMillis::now().0));
    let own = AbortOnDropHandle::new;
    vec![
        own(tokio::spawn(app.reconciler().run())),
        own(tokio::spawn(erasing)),
        own(tokio::spawn(heads(Arc::clone(app)))),
        own(tokio::spawn(watch(Arc::clone(app)))),
    ]
}

/// Keeps the head, the first time at once.
async fn heads(app: Arc<App>) {
    let Some(store) = store(&app) else { return };
    let mut every = interval(HEAD_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let (ledger, store) = (app.ledger.clone(), store.clone());
        // A disk that hangs keeps this task waiting, and nobody else.
        let _ = tokio::task::spawn_blocking(move || keep_head(&ledger, &store)).await;
    }
}

/// Tells when the ledger can no longer write.
async fn watch(app: Arc<App>) {
    let mut every = interval(LOOK_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        app.telemetry.ledger_is(app.ledger.is_available(), UnixMillis::now());
    }
}

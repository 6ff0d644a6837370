//! The journal of switches is verified once at every start.
//!
//! Whole, and beside what is served: a long one takes its time and keeps nobody waiting. A journal that does not hold is for people to
//! look at: an error in the log and an alarm, and the relay serves on with the switches as they are stored.

use std::sync::Arc;

use crate::clock::UnixMillis;
use crate::config::settings::StoreSettings;
use crate::relay::app::App;
use crate::telemetry::words::AlarmKind;

/// Begins it; nothing to do where nothing is kept.
pub(super) fn verify(app: &Arc<App>) {
    if matches!(app.current().settings.server.store, StoreSettings::Memory) {
        return;
    }
    let verified = Arc::clone(app);
    app.tasks.spawn_blocking(move || {
        let broken = match verified.control.verify(None) {
            Ok(verdict) => match verdict.broken {
                None => return tracing::debug!(entries = verdict.entries, "the journal holds"),
                Some(broken) => format!("entry {} is {}", broken.sequence, broken.why),
            },
            Err(error) => error.to_string(),
        };
        tracing::error!(
            broken,
            "ALARM: the journal of switches does not hold: look at GET /admin/v1/journal/verify; the switches stay as they are stored"
        );
        verified.telemetry.alarm(AlarmKind::JournalBroken, None, None, UnixMillis::now());
    });
}

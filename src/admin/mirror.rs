//! Operators' switches are in one journal with everything else: each entry of the control store's own journal is repeated in the
//! ledger's, as a remark.
//!
//! The control store comes first and never waits: a kill counts, is saved and journaled there, before this room hears of it. What could
//! not be repeated then (the ledger was not available, the process died in between) is repeated later: with the next change, when
//! somebody reads the journal, at the next start. Subject and version say which entry a remark repeats, so none is repeated twice; who
//! asks waits a second at most.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rubicon_ledger::store::Reader;
use rubicon_ledger::{Remark, Unavailable};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::control::journal::Entry;
use crate::relay::app::App;

use super::ledger;

/// How long who asks waits for it. Repeating goes on behind.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Entries that are read and repeated at once.
const AT_ONCE: usize = 100;

/// The newest entries of the ledger's journal that a start looks through for what was repeated already. A start reads them in a
/// fraction of a second; switches that the ledger refused for longer than that stay in the control store's own journal only.
const LOOKED_THROUGH: u64 = 10_000;

/// What is known of it in this life.
#[derive(Debug, Default)]
struct State {
    /// Read, and to be repeated.
    waiting: VecDeque<Entry>,
    /// The next entry of the control journal that was not read yet; none: nothing was looked up in this life.
    next: Option<u64>,
}

/// Repeats entries, one at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct Mirror(Arc<Mutex<State>>);

impl Mirror {
    /// Repeats what is to be repeated; comes back when that is done, has failed, or takes too long.
    pub(super) async fn follow(&self, app: &Arc<App>) {
        let (mirror, app) = (self.clone(), Arc::clone(app));
        let tasks = app.tasks.clone();
        let going = tasks.spawn(async move {
            // Who comes while it goes on waits for its end: their entry is behind.
            let mut state = mirror.0.lock().await;
            if let Err(error) = state.follow(&app).await {
                tracing::warn!(%error, "operators' switches are not in the ledger's journal yet; the control store has them");
            }
        });
        if timeout(WAIT_MAX, going).await.is_err() {
            tracing::warn!("operators' switches reach the ledger's journal slowly; the control store has them");
        }
    }
}

impl State {
    async fn follow(&mut self, app: &Arc<App>) -> Result<(), String> {
        loop {
            self.read(app).await?;
            if self.waiting.is_empty() {
                return Ok(());
            }
            while let Some(entry) = self.waiting.front() {
                let told = ledger::of(app).remark(remark(entry)).await;
                told.map_err(|error: Unavailable| error.to_string())?;
                self.waiting.pop_front();
            }
        }
    }

    /// Reads what came since; at first also what was there and was not repeated.
    async fn read(&mut self, app: &Arc<App>) -> Result<(), String> {
        if !self.waiting.is_empty() {
            return Ok(());
        }
        let (reader, app, next) = (ledger::of(app).reader(), Arc::clone(app), self.next);
        let read = spawn_blocking(move || {
            let Some(next) = next else { return missing(&*reader, &app) };
            let entries = app.control.entries(next, AT_ONCE).map_err(|error| error.to_string())?;
            let next = entries.last().map_or(next, |last| last.sequence + 1);
            Ok((entries, next))
        });
        let (entries, next) = read.await.map_err(|_| "the journals could not be read".to_owned())??;
        self.waiting.extend(entries);
        self.next = Some(next);
        Ok(())
    }
}

/// Entries of the control journal that the ledger's does not have, and the sequence to go on with.
fn missing(reader: &dyn Reader, app: &App) -> Result<(Vec<Entry>, u64), String> {
    let control = app.control.head().map_err(|error| error.to_string())?;
    let from = control.sequence.saturating_sub(u64::try_from(AT_ONCE).unwrap_or(u64::MAX)) + 1;
    let entries = app.control.entries(from, AT_ONCE).map_err(|error| error.to_string())?;
    let next = control.sequence + 1;
    if entries.is_empty() {
        return Ok((entries, next));
    }
    let head = reader.head().map_err(|error| error.to_string())?.sequence;
    let mut at = head.saturating_sub(LOOKED_THROUGH) + 1;
    let whole = at == 1;
    let (mut repeated, mut oldest) = (BTreeSet::new(), None);
    loop {
        let page = reader.entries(at, 1000).map_err(|error| error.to_string())?;
        let Some(last) = page.last() else { break };
        at = last.sequence + 1;
        for entry in page {
            oldest.get_or_insert(entry.at.0);
            if entry.version > 0 && entry.execution().is_none() {
                repeated.insert((entry.subject.to_string(), entry.version));
            }
        }
    }
    // What is older than all that was looked through was repeated in its time.
    let since = if whole { 0 } else { oldest.unwrap_or_default() };
    let entries = entries
        .into_iter()
        .filter(|entry| entry.at.0 >= since && !repeated.contains(&(entry.subject.clone(), entry.version)));
    Ok((entries.collect(), next))
}

fn remark(entry: &Entry) -> Remark {
    Remark {
        subject: Arc::from(&*entry.subject),
        action: Arc::from(&*entry.action),
        from: Arc::from(&*entry.from),
        to: Arc::from(&*entry.to),
        version: entry.version,
        by: Arc::from(&*entry.by),
        reason: Arc::from(&*entry.reason),
    }
}

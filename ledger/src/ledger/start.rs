//! Before the first command: what another life ran itself becomes unknown, and open records are counted.
//!
//! In: a store as it was found. Out: the same, in order for the writer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::stats::Open;
use super::{Decide, Options};
use crate::command::{Command, Env};
use crate::record::{Owner, Record, State, UnixMillis};
use crate::store::{Store, StoreError};

use super::overlay::Overlay;

/// Open records that are read, and orphans that are persisted, at once.
const PAGE: usize = 500;

/// Counts open records; `each` sees every page.
fn walk(
    store: &mut dyn Store,
    mut each: impl FnMut(&mut dyn Store, &[Record]) -> Result<(), StoreError>,
) -> Result<Open, StoreError> {
    let mut open = Open::default();
    let mut after = 0;
    loop {
        let page = store.open_records(after, PAGE)?;
        let Some(last) = page.last().map(|record| record.sequence).filter(|last| *last > after) else { break };
        after = last;
        for record in &page {
            open.count(record.state);
        }
        each(store, &page)?;
    }
    Ok(open)
}

/// Counts open records.
pub(super) fn count(store: &mut dyn Store) -> Result<Open, StoreError> {
    walk(store, |_, _| Ok(()))
}

/// Open records, and when the last life began where it did not end in order.
type Begun = (Open, Option<UnixMillis>);

/// Makes unknown what another life ran itself, counts, and marks that this life runs.
pub(super) fn begin(store: &mut dyn Store, options: &Options, decide: Decide) -> Result<Begun, StoreError> {
    guarded(|| {
        let open = make_orphans(store, options, decide)?;
        Ok((open, store.mark_running(Some((options.clock)()))?))
    })
}

/// A store may panic over a damaged page: that is an answer, too.
pub(super) fn guarded<T>(f: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err(StoreError::Io("it panicked".to_owned())))
}

fn make_orphans(store: &mut dyn Store, options: &Options, decide: Decide) -> Result<Open, StoreError> {
    let env = Env { now: (options.clock)(), boot: options.boot, secret: store.secret() };
    walk(store, |store, page| {
        let lost = page.iter().filter(|record| is_lost(record, options.boot));
        let mut writes = Vec::new();
        {
            let mut view = Overlay::over(&*store);
            for record in lost {
                let decision = decide(&Command::Orphan { key: record.key }, &view, &env)?;
                view.apply(&decision.writes);
                writes.extend(decision.writes);
            }
        }
        if !writes.is_empty() {
            store.persist(writes)?;
        }
        Ok(())
    })?;
    count(store)
}

fn is_lost(record: &Record, boot: u64) -> bool {
    record.state == State::Started
        && record.lease.as_ref().is_some_and(|lease| matches!(lease.owner, Owner::Own { boot: of } if of != boot))
}

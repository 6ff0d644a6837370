//! When is content of an execution erased? `retention_days` after it ended; its key stays and never runs again.
//!
//! In: each tool's retention, the ledger, a clock. Out: [`Command::Erase`]s. The decision is [`is_due`]; the rest is a walk in small parts
//! ([`PAGE`] records a look, [`TOGETHER`] erasures a commit, a pause between looks), so that it never stands in the way of claims. What
//! has not ended is never erased: somebody still has to find out about it. A pass that the store breaks off is made up for by the next.
//!
//! Every hour records are looked at that nobody touched since their retention began; once a day, and at start, all: a note on an old
//! record delays its erasure by a day at most.

use std::time::Duration;

use futures_util::future::join_all;
use rubicon_ledger::store::Filter;
use rubicon_ledger::{Command, ExecutionKey, Ledger, Record, Reply, ToolName, UnixMillis};
use tokio::time::MissedTickBehavior;

/// Between two passes.
pub const EVERY: Duration = Duration::from_secs(3600);

/// Every so manieth pass looks at all records, the first included.
const WHOLE_EVERY: u64 = 24;

/// Records of one look.
const PAGE: usize = 256;

/// Erasures that are asked for together, so that they share a commit, and few enough to leave the ledger's queue to claims.
const TOGETHER: usize = 64;

/// Between two looks: a store of a million records is walked in minutes, on a small part of one core.
const PAUSE: Duration = Duration::from_millis(20);

/// How long a tool's content is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Which tool's.
    pub tool: ToolName,
    /// From the end of the execution.
    pub keep: Duration,
}

impl Retention {
    fn millis(&self) -> u64 {
        u64::try_from(self.keep.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Whether a record's content is to be erased now.
#[must_use]
pub fn is_due(record: &Record, keep_ms: u64, now: UnixMillis) -> bool {
    let ended = record.settled_at.unwrap_or(record.changed_at);
    record.state.is_terminal() && !record.erased && ended.plus(keep_ms) <= now
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Records whose content is gone.
    pub erased: u64,
    /// It came to the end; false: the store or the ledger broke it off.
    pub whole: bool,
}

/// One pass over the records of every tool that has a retention. `all`: those that were touched since, too.
pub async fn pass(ledger: &Ledger, rules: &[Retention], all: bool, now: UnixMillis) -> Pass {
    let mut pass = Pass::default();
    for rule in rules {
        let before = UnixMillis(now.0.saturating_sub(rule.millis()).saturating_add(1));
        let mut filter =
            Filter { tool: Some(rule.tool.clone()), changed_before: (!all).then_some(before), ..Filter::default() };
        loop {
            let Some((due, next)) = look(ledger, &filter, rule.millis(), now).await else { return pass };
            for some in due.chunks(TOGETHER) {
                match erase(ledger, some).await {
                    Some(erased) => pass.erased += erased,
                    None => return pass,
                }
            }
            let Some(next) = next else { break };
            filter.after = next;
            tokio::time::sleep(PAUSE).await;
        }
    }
    pass.whole = true;
    pass
}

/// Keys of one page that are due, and where the next begins. None: the store did not answer.
async fn look(
    ledger: &Ledger,
    filter: &Filter,
    keep_ms: u64,
    now: UnixMillis,
) -> Option<(Vec<ExecutionKey>, Option<u64>)> {
    let (reader, filter) = (ledger.reader(), filter.clone());
    let page = tokio::task::spawn_blocking(move || reader.list(&filter, PAGE)).await.ok()?;
    match page {
        Ok(page) => {
            let due = page.records.iter().filter(|record| is_due(record, keep_ms, now)).map(|record| record.key);
            Some((due.collect(), page.next))
        }
        Err(error) => {
            tracing::warn!(%error, "retention: the ledger cannot be read; what is due is erased by a later pass");
            None
        }
    }
}

/// How many of them were erased. None: the ledger takes nothing now.
async fn erase(ledger: &Ledger, keys: &[ExecutionKey]) -> Option<u64> {
    let asked = join_all(keys.iter().map(|key| ledger.submit(Command::Erase { key: *key }))).await;
    let mut erased = 0;
    for reply in asked {
        match reply {
            Ok(Reply::Changed(Ok(changed))) if changed.changed => erased += 1,
            // Somebody was faster, or it runs again after all.
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "retention: nothing can be erased now; what is due is erased by a later pass");
                return None;
            }
        }
    }
    Some(erased)
}

/// Passes for ever, the first at once; `rules` and `now` are asked before each. Ends when it is dropped.
pub async fn keep(ledger: Ledger, rules: impl Fn() -> Vec<Retention> + Send, now: impl Fn() -> UnixMillis + Send) {
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        every.tick().await;
        let rules = rules();
        if rules.is_empty() {
            continue;
        }
        let Pass { erased, whole } = pass(&ledger, &rules, number % WHOLE_EVERY == 0, now()).await;
        if erased > 0 {
            tracing::info!(erased, whole, "retention: content of executions was erased, their keys stay");
        }
    }
}

/// The rules of a configuration.
#[must_use]
pub fn rules(settings: &crate::config::settings::Settings) -> Vec<Retention> {
    let all = settings.tools.iter();
    all.filter_map(|(tool, settings)| Some(Retention { tool: tool.clone(), keep: settings.retention? })).collect()
}

#[cfg(test)]
mod tests;

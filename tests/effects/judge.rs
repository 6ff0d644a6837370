//! Compares what agents were told with what the oracle did.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::agent::{End, World, again};
use crate::oracle::effects;
use crate::relay::{TOKEN, Up};

/// Most acknowledged intents that are asked for once more: each costs a connection.
const REPLAYS_MAX: usize = 400;

/// The figures of one run.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) kills: u64,
    pub(crate) faults: u64,
    pub(crate) intents: u64,
    pub(crate) effects: u64,
    pub(crate) acknowledged: u64,
    pub(crate) unknowns: u64,
    pub(crate) failed: u64,
    /// Acknowledged, and nothing was done.
    pub(crate) lost: u64,
    /// Done more than once.
    pub(crate) doubled: u64,
    /// Said not to have run, and it did.
    pub(crate) denied: u64,
    pub(crate) replays: u64,
}

impl Figures {
    /// Counts; problems are told in words.
    pub(crate) fn of(world: &World, log: &Path, kills: u64) -> (Self, Vec<String>) {
        let mut by_intent: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for effect in effects(log) {
            by_intent.entry(effect.intent).or_default().push(effect.key);
        }
        let ends = world.ends.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let load = |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::SeqCst);
        let mut figures = Self {
            kills,
            faults: load(&world.lost) + load(&world.misbehaved),
            intents: u64::try_from(ends.len()).unwrap_or(u64::MAX),
            effects: by_intent.values().map(|keys| u64::try_from(keys.len()).unwrap_or(u64::MAX)).sum(),
            ..Self::default()
        };
        let mut problems = Vec::new();
        for (intent, end) in ends.iter() {
            let done = by_intent.get(intent).map_or(0, Vec::len);
            if done > 1 {
                figures.doubled += 1;
                problems.push(format!("{intent} was done {done} times: {end:?}"));
            }
            match end {
                End::Done { key, .. } => {
                    figures.acknowledged += 1;
                    if done == 0 {
                        figures.lost += 1;
                        problems.push(format!("{intent} ({key}) was acknowledged and nothing was done"));
                    }
                }
                End::Unknown { .. } => figures.unknowns += 1,
                End::Failed => {
                    figures.failed += 1;
                    if done > 0 {
                        figures.denied += 1;
                        problems.push(format!("{intent} was said not to have run, and was done {done} times"));
                    }
                }
                End::GaveUp(last) => problems.push(format!("{intent} never got an answer; the last: {last}")),
            }
        }
        (figures, problems)
    }

    /// One line of the table.
    pub(crate) fn row(&self, name: &str) -> String {
        format!(
            "{name:<26} {:>6} {:>7} {:>8} {:>8} {:>13} {:>9} {:>7} {:>5} {:>8} {:>8}",
            self.kills,
            self.faults,
            self.intents,
            self.effects,
            self.acknowledged,
            self.unknowns,
            self.failed,
            self.lost,
            self.doubled,
            self.replays
        )
    }
}

/// The table's head.
pub(crate) const HEAD: &str = "run                         kills  faults  intents  effects  acknowledged  unknowns  failed  lost  doubled  replays";

/// Everything acknowledged answers again with the same bytes, from the record.
pub(crate) async fn replays(world: &World) -> (u64, Vec<String>) {
    let ends: Vec<(String, End)> = {
        let ends = world.ends.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        ends.iter().map(|(intent, end)| (intent.clone(), end.clone())).collect()
    };
    let done = ends.into_iter().filter_map(|(intent, end)| match end {
        End::Done { tool, body, .. } => Some((intent, tool, body)),
        _ => None,
    });
    let done: Vec<_> = done.collect();
    let every = done.len().div_ceil(REPLAYS_MAX).max(1);
    let (mut asked, mut problems) = (0, Vec::new());
    for (intent, tool, body) in done.into_iter().step_by(every) {
        asked += 1;
        let (status, replayed, bytes) = again(world, tool, &intent).await;
        if status != 200 || !replayed || bytes != body {
            problems.push(format!("{intent} by {tool}: {status}, replayed {replayed}, same bytes {}", bytes == body));
        }
    }
    (asked, problems)
}

/// One page of executions as an operator sees them.
pub(crate) async fn listed(world: &World, up: &Up, query: &str) -> Value {
    let url = format!("{}/admin/v1/executions?{query}", up.admin.trim_end_matches('/'));
    let response = world.http.get(url).bearer_auth(TOKEN).send().await.expect("an answer");
    assert_eq!(response.status(), 200, "{query}");
    response.json().await.expect("JSON")
}

//! The ledger's part of the metrics: counted by its transitions, claims and probes, and read off its numbers at each scrape.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use rubicon_ledger::{State, ToolName};

use crate::config::settings::Settings;
use crate::telemetry::executions::{LedgerGauges, from_name};
use crate::telemetry::{ledger_names, names};

use super::{ADDED_BUCKETS, Labels, Metrics, Text, histogram, labels, owned, put};

type Source = Box<dyn Fn() -> LedgerGauges + Send + Sync>;

/// Metrics of executions and of the ledger that keeps them.
pub(super) struct LedgerMetrics {
    tools: ArcSwap<BTreeSet<ToolName>>,
    source: OnceLock<Source>,
    claims: Family<Labels, Counter>,
    claim_duration: Family<Labels, Histogram, fn() -> Histogram>,
    transitions: Family<Labels, Counter>,
    probes: Family<Labels, Counter>,
    open: Family<Labels, Gauge>,
    available: Family<Labels, Gauge>,
    queued: Family<Labels, Gauge>,
    commands: Counter,
    batches: Counter,
    failures: Counter,
    plans: Counter,
    plans_lost: Counter,
    outcomes_lost: Counter,
}

impl LedgerMetrics {
    pub(super) fn new(r: &mut Registry) -> Self {
        Self {
            tools: ArcSwap::default(),
            source: OnceLock::new(),
            claims: put(r, &ledger_names::CLAIMS, Family::default()),
            claim_duration: histogram(r, &ledger_names::CLAIM_DURATION, || Histogram::new(ADDED_BUCKETS)),
            transitions: put(r, &ledger_names::TRANSITIONS, Family::default()),
            probes: put(r, &ledger_names::PROBES, Family::default()),
            open: put(r, &ledger_names::OPEN, Family::default()),
            available: put(r, &ledger_names::AVAILABLE, Family::default()),
            queued: put(r, &ledger_names::QUEUED, Family::default()),
            commands: put(r, &ledger_names::COMMANDS, Counter::default()),
            batches: put(r, &ledger_names::BATCHES, Counter::default()),
            failures: put(r, &ledger_names::FAILURES, Counter::default()),
            plans: put(r, &ledger_names::PLANS, Counter::default()),
            plans_lost: put(r, &ledger_names::PLANS_LOST, Counter::default()),
            outcomes_lost: put(r, &ledger_names::OUTCOMES_LOST, Counter::default()),
        }
    }

    /// Its tools are the ones that labels may name.
    pub(super) fn config_taken(&self, settings: &Settings) {
        self.tools.store(std::sync::Arc::new(settings.tools.keys().cloned().collect()));
    }

    /// Reads the ledger's numbers, where there is one.
    pub(super) fn scrape(&self) {
        let Some(LedgerGauges { available, stats }) = self.source.get().map(|source| source()) else { return };
        let level = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.available.get_or_create(&labels(&ledger_names::AVAILABLE, [])).set(i64::from(available));
        for (phase, count) in [("planned", stats.planned), ("started", stats.started), ("unknown", stats.unknown)] {
            self.open.get_or_create(&labels(&ledger_names::OPEN, [Cow::Borrowed(phase)])).set(level(count));
        }
        for (queue, count) in [("commands", stats.queued), ("behind", stats.behind)] {
            self.queued.get_or_create(&labels(&ledger_names::QUEUED, [Cow::Borrowed(queue)])).set(level(count));
        }
        for (counter, total) in [
            (&self.commands, stats.commands),
            (&self.batches, stats.batches),
            (&self.failures, stats.failures),
            (&self.plans, stats.plans),
            (&self.plans_lost, stats.plans_lost),
            (&self.outcomes_lost, stats.kept_lost),
        ] {
            counter.inner().store(total, Ordering::Relaxed);
        }
    }

    fn tool(&self, tool: &ToolName) -> Text {
        if self.tools.load().contains(tool) { owned(tool) } else { Cow::Borrowed(names::OTHER) }
    }
}

impl Metrics {
    /// Says how to find how the ledger stands, asked at each scrape. The first call counts.
    pub fn ledger_from(&self, source: impl Fn() -> LedgerGauges + Send + Sync + 'static) {
        let _ = self.ledger.source.set(Box::new(source));
    }

    pub(in crate::telemetry) fn transition(&self, tool: &ToolName, from: Option<State>, to: State) {
        let values = [self.ledger.tool(tool), from_name(from), Cow::Borrowed(to.name())];
        self.ledger.transitions.get_or_create(&labels(&ledger_names::TRANSITIONS, values)).inc();
    }

    pub(in crate::telemetry) fn claimed(&self, tool: &ToolName, decision: &'static str, took: Option<Duration>) {
        let values = [self.ledger.tool(tool), Cow::Borrowed(decision)];
        self.ledger.claims.get_or_create(&labels(&ledger_names::CLAIMS, values)).inc();
        if let Some(took) = took {
            let duration = self.ledger.claim_duration.get_or_create_owned(&labels(&ledger_names::CLAIM_DURATION, []));
            duration.observe(took.as_secs_f64());
        }
    }

    pub(in crate::telemetry) fn probed(&self, tool: &ToolName, result: &'static str) {
        let values = [self.ledger.tool(tool), Cow::Borrowed(result)];
        self.ledger.probes.get_or_create(&labels(&ledger_names::PROBES, values)).inc();
    }
}

//! The metrics of one relay, and their text for `GET /metrics`.
//!
//! A registry a relay and no globals: tests run many relays in one process. The methods take plain values, so that whoever counts
//! something needs to know neither the library nor the names, which are in [`names`]. What ends (an attempt, a request) is counted
//! from its event and not here by hand ([`Telemetry`](super::Telemetry)).
//!
//! A few look-ups of label sets a request, under a read lock each, none an event of a stream. The label sets are bounded by the
//! configuration and closed lists: [`Metrics::config_taken`] says which models it names, any other is `other`.

mod counted;
mod ledger;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric as Registered, Registry};

use crate::clock::UnixMillis;
use crate::config::settings::{Purpose, Settings};
use crate::ids::{RouteId, WorkflowId};

use super::events::{AlarmKind, Outcome};
use super::names::{self, Metric};

/// `Content-Type` of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// States of a route's circuit.
pub const CIRCUIT_STATES: [&str; 3] = ["healthy", "tripped", "probing"];

/// Seconds, as OpenTelemetry advises for `gen_ai.client.operation.duration`, with two more for reasoning models.
const DURATION_BUCKETS: [f64; 16] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68];

/// Seconds, as it advises for the time to first chunk, with more for reasoning models.
const FIRST_BUCKETS: [f64; 18] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0];

/// Tokens, as it advises.
const TOKEN_BUCKETS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// Seconds that the relay itself adds: fine near nothing, where they mostly are.
const ADDED_BUCKETS: [f64; 14] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

type Text = Cow<'static, str>;
type Labels = Vec<(&'static str, Text)>;
type Dollars = Counter<f64, AtomicU64>;
type Seconds = Gauge<f64, AtomicU64>;

fn labels<const N: usize>(metric: &Metric, values: [Text; N]) -> Labels {
    debug_assert_eq!(metric.labels.len(), N, "{}", metric.name);
    metric.labels.iter().copied().zip(values).collect()
}

fn owned(name: impl fmt::Display) -> Text {
    Cow::Owned(name.to_string())
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

fn at(time: UnixMillis) -> f64 {
    seconds(time.0)
}

/// What is asked at each scrape.
type InFlight = Box<dyn Fn() -> usize + Send + Sync>;
type Routes = Box<dyn Fn() -> Vec<RouteGauges> + Send + Sync>;

/// How a route of the configuration in force stands at a scrape.
#[derive(Clone, Debug)]
pub struct RouteGauges {
    /// Which.
    pub route: RouteId,
    /// Its breaker's state, one of [`CIRCUIT_STATES`].
    pub circuit: &'static str,
    /// Attempts that hold one of its concurrency slots.
    pub in_use: u32,
    /// An operator killed it.
    pub killed: bool,
}

/// The metrics of one relay.
pub struct Metrics {
    registry: Registry,
    models: ArcSwap<BTreeSet<String>>,
    /// One scrape at a time: gauges of routes are made anew at each.
    scrape: Mutex<()>,
    in_flight_source: OnceLock<InFlight>,
    routes_source: OnceLock<Routes>,
    duration: Family<Labels, Histogram, fn() -> Histogram>,
    tokens: Family<Labels, Histogram, fn() -> Histogram>,
    first_chunk: Family<Labels, Histogram, fn() -> Histogram>,
    requests: Family<Labels, Counter>,
    attempts: Family<Labels, Counter>,
    recoveries: Family<Labels, Counter>,
    added_latency: Family<Labels, Histogram, fn() -> Histogram>,
    hold: Family<Labels, Histogram, fn() -> Histogram>,
    interruptions: Family<Labels, Counter>,
    hold_limit: Family<Labels, Counter>,
    in_flight: Gauge,
    shed: Family<Labels, Counter>,
    retry_budget_refused: Counter,
    circuit: Family<Labels, Gauge>,
    in_use: Family<Labels, Gauge>,
    killed: Family<Labels, Gauge>,
    cost: Family<Labels, Dollars>,
    lost_cost: Family<Labels, Dollars>,
    throttles: Family<Labels, Counter>,
    outcomes: Family<Labels, Counter>,
    alarms: Family<Labels, Counter>,
    events_dropped: Counter,
    spans_dropped: Counter,
    /// Of the process: there is one standard error.
    #[allow(dead_code, reason = "the log counts by itself")]
    log_dropped: Counter,
    generation: Gauge,
    reload_success: Gauge,
    reload_time: Seconds,
    approval_expiry: Family<Labels, Seconds>,
    verification_expiry: Family<Labels, Seconds>,
    store_writable: Gauge,
    failover_disabled: Gauge,
    issuers_dropped: Counter,
    ledger: ledger::LedgerMetrics,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

fn put<M: Registered + Clone>(registry: &mut Registry, named: &Metric, metric: M) -> M {
    // The library adds `_total` and `_info`.
    let name = named.name.trim_end_matches("_total").trim_end_matches("_info");
    registry.register(name, named.help, metric.clone());
    metric
}

fn histogram(
    registry: &mut Registry,
    named: &Metric,
    make: fn() -> Histogram,
) -> Family<Labels, Histogram, fn() -> Histogram> {
    put(registry, named, Family::new_with_constructor(make))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        let new = Self {
            models: ArcSwap::default(),
            scrape: Mutex::default(),
            in_flight_source: OnceLock::new(),
            routes_source: OnceLock::new(),
            duration: histogram(r, &names::DURATION, || Histogram::new(DURATION_BUCKETS)),
            tokens: histogram(r, &names::TOKENS, || Histogram::new(TOKEN_BUCKETS)),
            first_chunk: histogram(r, &names::FIRST_CHUNK, || Histogram::new(FIRST_BUCKETS)),
            requests: put(r, &names::REQUESTS, Family::default()),
            attempts: put(r, &names::ATTEMPTS, Family::default()),
            recoveries: put(r, &names::RECOVERIES, Family::default()),
            added_latency: histogram(r, &names::ADDED_LATENCY, || Histogram::new(ADDED_BUCKETS)),
            hold: histogram(r, &names::HOLD, || Histogram::new(ADDED_BUCKETS)),
            interruptions: put(r, &names::INTERRUPTIONS, Family::default()),
            hold_limit: put(r, &names::HOLD_LIMIT, Family::default()),
            in_flight: put(r, &names::IN_FLIGHT, Gauge::default()),
            shed: put(r, &names::SHED, Family::default()),
            retry_budget_refused: put(r, &names::RETRY_BUDGET_REFUSED, Counter::default()),
            circuit: put(r, &names::CIRCUIT, Family::default()),
            in_use: put(r, &names::IN_USE, Family::default()),
            killed: put(r, &names::KILLED, Family::default()),
            cost: put(r, &names::COST, Family::default()),
            lost_cost: put(r, &names::LOST_COST, Family::default()),
            throttles: put(r, &names::THROTTLES, Family::default()),
            outcomes: put(r, &names::OUTCOMES, Family::default()),
            alarms: put(r, &names::ALARMS, Family::default()),
            events_dropped: put(r, &names::EVENTS_DROPPED, Counter::default()),
            spans_dropped: put(r, &names::SPANS_DROPPED, Counter::default()),
            log_dropped: put(r, &names::LOG_DROPPED, super::log::dropped()),
            generation: put(r, &names::CONFIG_GENERATION, Gauge::default()),
            reload_success: put(r, &names::RELOAD_SUCCESS, Gauge::default()),
            reload_time: put(r, &names::RELOAD_TIME, Seconds::default()),
            approval_expiry: put(r, &names::APPROVAL_EXPIRY, Family::default()),
            verification_expiry: put(r, &names::VERIFICATION_EXPIRY, Family::default()),
            store_writable: put(r, &names::STORE_WRITABLE, Gauge::default()),
            failover_disabled: put(r, &names::FAILOVER_DISABLED, Gauge::default()),
            issuers_dropped: put(r, &names::ISSUERS_DROPPED, Counter::default()),
            ledger: ledger::LedgerMetrics::new(r),
            registry: Registry::default(),
        };
        let version = labels(&names::BUILD, [Cow::Borrowed(env!("CARGO_PKG_VERSION"))]);
        registry.register(names::BUILD.name.trim_end_matches("_info"), names::BUILD.help, Info::new(version));
        // What is there from the start can be seen to grow: an alert would miss the first of a series that begins at 1.
        for kind in AlarmKind::ALL {
            drop(new.alarms.get_or_create(&labels(&names::ALARMS, [Cow::Borrowed(kind.name())])));
        }
        Self { registry, ..new }
    }
}

impl Metrics {
    /// The text of `GET /metrics`, in OpenMetrics ([`CONTENT_TYPE`]).
    pub fn render(&self) -> String {
        let _alone = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = self.routes_source.get() {
            self.routes(&source());
        }
        if let Some(source) = self.in_flight_source.get() {
            self.in_flight.set(i64::try_from(source()).unwrap_or(i64::MAX));
        }
        self.ledger.scrape();
        let mut text = String::new();
        // Writing to a string can't fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }

    /// Says how to find the requests in flight, asked at each scrape. The first call counts.
    pub fn in_flight_from(&self, source: impl Fn() -> usize + Send + Sync + 'static) {
        let _ = self.in_flight_source.set(Box::new(source));
    }

    /// Says how to find how the routes stand, asked at each scrape: a route that is not among them has no gauge. The first call counts.
    pub fn routes_from(&self, source: impl Fn() -> Vec<RouteGauges> + Send + Sync + 'static) {
        let _ = self.routes_source.set(Box::new(source));
    }

    /// A request that the relay itself turned away before any call, to be sent again later: `overloaded`, `memory`,
    /// `too_many_waiters` at its own door; at the routes' the nearest of `failover_limit`, `capacity`, `tripped`, `killed`. Once a
    /// request.
    pub fn shed(&self, reason: &'static str) {
        self.shed.get_or_create(&labels(&names::SHED, [Cow::Borrowed(reason)])).inc();
    }

    /// A further attempt that the shared retry budget did not allow.
    pub fn retry_budget_refused(&self) {
        self.retry_budget_refused.inc();
    }

    /// What the control store says at a scrape: whether it can be written, whether failover is switched off for all workflows, and how
    /// many rows of issuers were not written so far.
    pub fn control(&self, writable: bool, failover_disabled: bool, issuers_dropped: u64) {
        self.store_writable.set(i64::from(writable));
        self.failover_disabled.set(i64::from(failover_disabled));
        self.issuers_dropped.inner().store(issuers_dropped, Ordering::Relaxed);
    }

    /// The hold was full, so an attempt was committed before anything was visible.
    pub fn hold_limit(&self, workflow: &WorkflowId) {
        self.hold_limit.get_or_create(&labels(&names::HOLD_LIMIT, [owned(workflow)])).inc();
    }

    /// A configuration is in force: 1 at start. Its models are the ones that labels may name, and its approvals and verifications
    /// say when they run out.
    pub fn config_taken(&self, settings: &Settings, generation: u64, now: UnixMillis) {
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        self.load_taken(now);
        self.models.store(Arc::new(models(settings)));
        self.expiries(settings);
        self.ledger.config_taken(settings);
    }

    /// A load was taken, whether it changed anything or not.
    pub fn load_taken(&self, now: UnixMillis) {
        self.reload_success.set(1);
        self.reload_time.set(at(now));
    }

    /// A new configuration was refused; the old one stays.
    pub fn config_refused(&self) {
        self.reload_success.set(0);
    }

    fn expiries(&self, settings: &Settings) {
        self.approval_expiry.clear();
        for approval in &settings.approvals {
            let purpose = match approval.purpose {
                Purpose::Failover => "failover",
                Purpose::CrossModel => "cross_model",
                Purpose::Planned => "planned",
            };
            let values = [owned(&approval.workflow), owned(&approval.route), Cow::Borrowed(purpose)];
            if let Some(until) = approval.until {
                // Of several for one purpose the last to run out counts.
                let gauge = self.approval_expiry.get_or_create_owned(&labels(&names::APPROVAL_EXPIRY, values));
                gauge.set(gauge.get().max(at(until)));
            }
        }
        self.verification_expiry.clear();
        for route in settings.routes.values() {
            if let Some(until) = route.verified.as_ref().and_then(|verified| verified.until) {
                let labels = labels(&names::VERIFICATION_EXPIRY, [owned(&route.name)]);
                self.verification_expiry.get_or_create(&labels).set(at(until));
            }
        }
    }

    fn routes(&self, routes: &[RouteGauges]) {
        self.circuit.clear();
        self.in_use.clear();
        self.killed.clear();
        for RouteGauges { route, circuit, in_use, killed } in routes {
            for state in CIRCUIT_STATES {
                let labels = labels(&names::CIRCUIT, [owned(route), Cow::Borrowed(state)]);
                self.circuit.get_or_create(&labels).set(i64::from(state == *circuit));
            }
            self.in_use.get_or_create(&labels(&names::IN_USE, [owned(route)])).set(i64::from(*in_use));
            self.killed.get_or_create(&labels(&names::KILLED, [owned(route)])).set(i64::from(*killed));
        }
    }

    /// A model as a label: only what the configuration names.
    fn model(&self, model: Option<&str>) -> Text {
        match model {
            Some(model) if self.models.load().contains(model) => owned(model),
            Some(_) => Cow::Borrowed(names::OTHER),
            None => Cow::Borrowed(names::NONE),
        }
    }

    pub(super) fn outcome(&self, workflow: &WorkflowId, outcome: Outcome) {
        let values = [owned(workflow), Cow::Borrowed(outcome.name())];
        self.outcomes.get_or_create(&labels(&names::OUTCOMES, values)).inc();
    }

    pub(super) fn alarm(&self, kind: AlarmKind) {
        self.alarms.get_or_create(&labels(&names::ALARMS, [Cow::Borrowed(kind.name())])).inc();
    }

    pub(super) fn events_dropped(&self) -> Counter {
        self.events_dropped.clone()
    }

    pub(super) fn spans_dropped(&self) -> Counter {
        self.spans_dropped.clone()
    }
}

/// Names of models that the configuration has: what routes send and what callers may ask for.
fn models(settings: &Settings) -> BTreeSet<String> {
    let sent = settings.routes.values().filter_map(|route| route.model.clone());
    let asked = settings.workflows.values().flat_map(|workflow| workflow.models.iter().cloned());
    sent.chain(asked).collect()
}

#[cfg(test)]
mod tests;

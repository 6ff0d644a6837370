//! The one shared object: what is known of every route at this moment, by name. It outlives a reload.
//!
//! In: who wants to begin an attempt, and how attempts ended. Out: a [`Pass`], or why not. A pass is what an attempt holds: dropped,
//! it gives back its place and, if it was a probe that said nothing, the right to probe. Each route has a lock of its own, held for
//! a handful of additions and never across a wait; the map of routes and the switches are read without a lock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::classify::Class;
use crate::clock::Instant;
use crate::config::settings::{BreakerSettings, FailoverLimits, Limits, RetryShare, RouteSettings};
use crate::ids::{RouteId, WorkflowId};

use super::breaker::{Breaker, BreakerState, Change, Sign, Ticket, sign};
use super::limits::{Counted, InUse, Want};
use super::retry_budget::RetryBudget;
use super::{Closed, Gate, Switches};

/// When a killed route opens is up to an operator: this is what is told.
pub const KILLED_HINT: Duration = Duration::from_secs(10);

/// All routes.
#[derive(Debug, Default)]
pub struct Board {
    routes: ArcSwap<BTreeMap<RouteId, Arc<Mutex<Route>>>>,
    /// The control store's own: one truth, in force for every attempt that begins from now on.
    switches: Arc<ArcSwap<Switches>>,
}

/// What is known of one route. The limits are those of the configuration in force: the plan asks by name.
#[derive(Debug)]
struct Route {
    limits: Limits,
    failover: FailoverLimits,
    breaker_settings: BreakerSettings,
    breaker: Breaker,
    used: InUse,
    retries: RetryBudget,
    /// The configuration in force has it; else a request of before a reload still uses it.
    configured: bool,
}

/// An attempt that wants to begin.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Where; its limits are those that the request was admitted under.
    pub route: &'a RouteSettings,
    /// Another route should have served.
    pub recovery: bool,
    /// There is no other route: a tripped breaker does not keep it out.
    pub even_if_tripped: bool,
    /// Estimated input and output tokens.
    pub tokens: u64,
}

/// What operators and metrics see of a route.
#[derive(Clone, Debug)]
pub struct RouteView {
    /// Which.
    pub route: RouteId,
    /// Its breaker.
    pub breaker: BreakerState,
    /// Failures in a row, while healthy.
    pub failures: u32,
    /// When the next probe may go, where it is tripped.
    pub opens_in: Option<Duration>,
    /// Attempts going on.
    pub attempts: u32,
    /// Those of them that are recovery traffic.
    pub recovering: u32,
    /// An operator killed it.
    pub killed: bool,
}

impl Board {
    /// A board without routes that reads these switches.
    pub fn new(switches: Arc<ArcSwap<Switches>>) -> Self {
        Self { routes: ArcSwap::default(), switches }
    }

    /// Takes the routes of a configuration: known ones keep their state and get the new limits, others are forgotten (what still
    /// runs there holds its own).
    pub fn configure<'a>(&self, routes: impl IntoIterator<Item = &'a Arc<RouteSettings>>) {
        let known = self.routes.load_full();
        let mut next = BTreeMap::new();
        for settings in routes {
            let entry =
                known.get(&settings.name).cloned().unwrap_or_else(|| Arc::new(Mutex::new(Route::new(settings))));
            lock(&entry).set(settings);
            next.insert(settings.name.clone(), entry);
        }
        self.routes.store(Arc::new(next));
    }

    /// Puts other switches in force, until the store that they are shared with says otherwise.
    pub fn set_switches(&self, switches: Switches) {
        self.switches.store(Arc::new(switches));
    }

    /// Begins an attempt.
    ///
    /// # Errors
    /// Why the route is not open for it now.
    pub fn enter(&self, asking: &Asking<'_>, now: Instant) -> Result<Pass, Closed> {
        let name = &asking.route.name;
        if self.switches.load().killed.contains_key(name) {
            return Err(Closed::Killed);
        }
        let entry = self.entry(asking.route);
        let want = Want { recovery: asking.recovery, tokens: asking.tokens };
        let (ticket, counted) = {
            let mut route = lock(&entry);
            let breaker = asking.route.breaker;
            if let (false, Some(until)) = (asking.even_if_tripped, route.breaker.closed_until(&breaker, now)) {
                return Err(Closed::Tripped { until });
            }
            // Before the breaker: who does not fit must not be the probe.
            let limits = (&asking.route.limits, &asking.route.failover_limits);
            if let Some((closed, _)) = route.used.closed(limits.0, limits.1, want, now) {
                return Err(closed);
            }
            let ticket = route.breaker.admit(&breaker, asking.even_if_tripped, now);
            let ticket = ticket.map_err(|until| Closed::Tripped { until })?;
            ((ticket, route.breaker.state()), route.used.take(want, now))
        };
        let (ticket, circuit) = ticket;
        let (breaker, recovery) = (asking.route.breaker, asking.recovery);
        Ok(Pass { entry, breaker, ticket: Some(ticket), circuit, recovery, counted })
    }

    /// How long the route stays closed for an attempt of so many tokens, as far as is known; `None`: it is open.
    pub fn opens_in(&self, route: &RouteId, recovery: bool, tokens: u64, now: Instant) -> Option<Duration> {
        if self.switches.load().killed.contains_key(route) {
            return Some(KILLED_HINT);
        }
        let entry = self.routes.load().get(route).cloned()?;
        let mut route = lock(&entry);
        let (closed, wait) = route.closed(Want { recovery, tokens }, now)?;
        Some(match closed {
            Closed::Tripped { until } => until.saturating_duration_since(now),
            Closed::Killed | Closed::Capacity | Closed::FailoverLimit => wait,
        })
    }

    /// An operation asks this route first: its share of further attempts is this route's.
    pub fn operation(&self, first: &RouteId, now: Instant) {
        if let Some(entry) = self.routes.load().get(first) {
            lock(entry).retries.operation(now);
        }
    }

    /// Whether an operation that asked `first` may make a further attempt anywhere, by the shared budget. It takes nothing.
    pub fn allows_further(&self, first: &RouteId, share: &RetryShare, now: Instant) -> bool {
        self.routes.load().get(first).is_none_or(|entry| lock(entry).retries.allows(share, now))
    }

    /// Takes one further attempt of an operation that asked `first` from the shared budget; false: it is spent.
    pub fn take_further(&self, first: &RouteId, share: &RetryShare, now: Instant) -> bool {
        self.routes.load().get(first).is_none_or(|entry| lock(entry).retries.take(share, now))
    }

    /// Every route of the configuration in force, by name.
    pub fn view(&self, now: Instant) -> Vec<RouteView> {
        let (routes, switches) = (self.routes.load_full(), self.switches.load_full());
        let view = |(name, entry): (&RouteId, &Arc<Mutex<Route>>)| {
            let route = lock(entry);
            let until = route.breaker.closed_until(&route.breaker_settings, now);
            route.configured.then(|| RouteView {
                route: name.clone(),
                breaker: route.breaker.state(),
                failures: route.breaker.failures(),
                opens_in: until.map(|until| until.saturating_duration_since(now)),
                attempts: route.used.attempts(),
                recovering: route.used.recovering(),
                killed: switches.killed.contains_key(name),
            })
        };
        routes.iter().filter_map(view).collect()
    }

    /// The route's entry. A request may still use one that a reload took out: it is known again until the next reload.
    fn entry(&self, settings: &RouteSettings) -> Arc<Mutex<Route>> {
        if let Some(entry) = self.routes.load().get(&settings.name) {
            return Arc::clone(entry);
        }
        let made = Arc::new(Mutex::new(Route::new(settings)));
        self.routes.rcu(|routes| {
            let mut routes = BTreeMap::clone(routes);
            routes.entry(settings.name.clone()).or_insert_with(|| Arc::clone(&made));
            routes
        });
        self.routes.load().get(&settings.name).cloned().unwrap_or(made)
    }
}

impl Gate for Board {
    fn closed(&self, route: &RouteId, recovery: bool, now: Instant) -> Option<Closed> {
        if self.switches.load().killed.contains_key(route) {
            return Some(Closed::Killed);
        }
        let entry = self.routes.load().get(route).cloned()?;
        let closed = lock(&entry).closed(Want { recovery, tokens: 1 }, now);
        closed.map(|(closed, _)| closed)
    }

    fn failover_off(&self, workflow: &WorkflowId) -> bool {
        Gate::failover_off(&**self.switches.load(), workflow)
    }
}

impl Route {
    fn new(settings: &RouteSettings) -> Self {
        Self {
            limits: settings.limits,
            failover: settings.failover_limits,
            breaker_settings: settings.breaker,
            breaker: Breaker::default(),
            used: InUse::default(),
            retries: RetryBudget::default(),
            configured: false,
        }
    }

    fn set(&mut self, settings: &RouteSettings) {
        self.limits = settings.limits;
        self.failover = settings.failover_limits;
        self.breaker_settings = settings.breaker;
        self.configured = true;
    }

    /// Whether such an attempt could not begin now, and for how long.
    fn closed(&mut self, want: Want, now: Instant) -> Option<(Closed, Duration)> {
        if let Some(until) = self.breaker.closed_until(&self.breaker_settings, now) {
            return Some((Closed::Tripped { until }, until.saturating_duration_since(now)));
        }
        self.used.closed(&self.limits, &self.failover, want, now)
    }
}

/// The right to make one attempt, held to the end of its stream. Dropped, it gives back everything it holds.
#[derive(Debug)]
pub struct Pass {
    entry: Arc<Mutex<Route>>,
    breaker: BreakerSettings,
    /// Gone once the attempt was reported.
    ticket: Option<Ticket>,
    circuit: BreakerState,
    recovery: bool,
    counted: Counted,
}

impl Pass {
    /// Whether it is the one probe of a tripped route.
    pub fn is_probe(&self) -> bool {
        self.ticket.is_some_and(Ticket::is_probe)
    }

    /// What the breaker was when the attempt began; the probe itself makes it `probing`.
    pub fn circuit(&self) -> BreakerState {
        self.circuit
    }

    /// The attempt crossed the boundary, or its whole answer was accepted. Only the first report of an attempt counts.
    pub fn succeeded(&mut self) -> Option<Change> {
        let ticket = self.ticket.take()?;
        lock(&self.entry).breaker.succeeded(ticket)
    }

    /// The attempt failed and showed nothing. Only the first report of an attempt counts.
    pub fn failed(&mut self, class: Class, retry_after: Option<Duration>, now: Instant) -> Option<Change> {
        if sign(class) == Sign::Nothing {
            self.says_nothing();
            return None;
        }
        let ticket = self.ticket.take()?;
        let mut route = lock(&self.entry);
        match sign(class) {
            Sign::Fails => route.breaker.failed(ticket, &self.breaker, retry_after, now),
            Sign::Lives | Sign::Nothing => route.breaker.succeeded(ticket),
        }
    }

    /// How the attempt ended says nothing of its route.
    pub fn says_nothing(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            lock(&self.entry).breaker.given_back(ticket);
        }
    }

    /// What it did use, in place of the estimate.
    pub fn tokens(&mut self, actual: u64, now: Instant) {
        lock(&self.entry).used.correct(&mut self.counted, actual, now);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.says_nothing();
        lock(&self.entry).used.leave(self.recovery);
    }
}

/// Nothing under these locks can panic half way, so a poisoned one is as good as another.
fn lock(entry: &Mutex<Route>) -> MutexGuard<'_, Route> {
    entry.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

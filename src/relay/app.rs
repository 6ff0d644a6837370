//! What all requests share: settings, clients of the providers, tables with their bounds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use rubicon_ledger::Ledger;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{Instant, UnixMillis};
use crate::config::settings::{Settings, StoreSettings};
use crate::control::Control;
use crate::gate::{Board, RouteView};
use crate::ids::RouteId;
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::RouteGauges;
use crate::tool::reconcile::Reconciler;
use crate::tool::run::{Parts, Runner};
use crate::upstream::{Upstream, connect};

use super::admission::Admission;
use super::auth::Clients;
use super::idempotency::Idempotency;
use super::ledger::{self, Opened};
use super::observe::Observations;
use super::operations::Operations;
use super::reloads::ReloadStatus;

/// What the configuration made: replaced as a whole by a reload. A request takes it once and keeps it to its end.
#[derive(Debug)]
pub struct Current {
    /// The configuration.
    pub settings: Arc<Settings>,
    /// One HTTP client a route.
    pub upstreams: BTreeMap<RouteId, Upstream>,
    /// Who may call.
    pub clients: Clients,
    /// 1 for the configuration of the start, one more after each reload.
    pub generation: u64,
    /// When it came into force.
    pub loaded_at: UnixMillis,
}

/// The relay.
#[derive(Debug)]
pub struct App {
    current: ArcSwap<Current>,
    tls: rustls::ClientConfig,
    /// Events, metrics, traces.
    pub telemetry: Arc<Telemetry>,
    /// What operators switched off, and who issued which state.
    pub control: Control,
    /// What tools were called, and what came of it.
    pub ledger: Ledger,
    /// The random name of this life: the relay's own runs are under it.
    pub boot: u64,
    /// Runs tools.
    pub runner: Runner,
    /// To be told when something becomes unknown: the probe loop looks at once.
    pub unknown: Arc<Notify>,
    /// Times to first output.
    pub observed: Observations,
    /// Operations by id.
    pub operations: Operations,
    /// Outcomes by idempotency key.
    pub idempotency: Idempotency,
    /// Who may come in: `max_in_flight` requests, each until its last byte, and none while memory is short.
    pub admission: Arc<Admission>,
    /// Which routes are open now: switches, breakers, limits, the shared budgets. A reload changes its limits and keeps its state.
    pub board: Arc<Board>,
    /// When this process began to serve.
    pub started_at: UnixMillis,
    /// Cancelled when the grace of a shutdown is over: streams end as interrupted.
    pub cut: CancellationToken,
    /// Tasks that outlive a request's connection (keyed answers, lingering closes); a shutdown waits for them.
    pub tasks: TaskTracker,
    draining: AtomicBool,
    reloads: Mutex<ReloadStatus>,
}

impl App {
    /// Builds the shared state.
    ///
    /// # Errors
    /// When TLS can't be set up at all, the control store or the ledger can't be opened, or event lines and spans can't go where the settings say.
    pub fn new(settings: Arc<Settings>) -> Result<Self, String> {
        let tls = connect::tls_config()?;
        let store = match &settings.server.store {
            StoreSettings::Memory => None,
            StoreSettings::Redb(path) => Some(path.as_path()),
        };
        let loaded_at = UnixMillis::now();
        let control = Control::open(store, loaded_at).map_err(|error| error.to_string())?;
        let telemetry = Arc::new(Telemetry::start(&settings, &tls, loaded_at)?);
        let Opened { ledger, boot } = ledger::open(&settings.server.store, telemetry.observer())?;
        telemetry.watch(&ledger);
        let admission = Arc::new(Admission::default());
        let watched = Arc::clone(&admission);
        telemetry.metrics().in_flight_from(move || watched.in_flight());
        let upstreams = settings
            .routes
            .values()
            .map(|route| (route.name.clone(), Upstream::new(&tls, route.timeouts.connect)))
            .collect();
        let clients = Clients::new(&settings);
        let board = Arc::new(Board::new(control.handle()));
        board.configure(settings.routes.values());
        let seen = Arc::clone(&board);
        telemetry.metrics().routes_from(move || seen.view(Instant::now()).into_iter().map(gauges).collect());
        let (cut, tasks, unknown) = (CancellationToken::new(), TaskTracker::new(), Arc::new(Notify::new()));
        let runner = Runner::new(Parts {
            ledger: ledger.clone(),
            tls: tls.clone(),
            boot,
            tasks: tasks.clone(),
            cut: cut.clone(),
            unknown: Arc::clone(&unknown),
        });
        Ok(Self {
            current: ArcSwap::from_pointee(Current { settings, upstreams, clients, generation: 1, loaded_at }),
            tls,
            telemetry,
            control,
            ledger,
            boot,
            runner,
            unknown,
            observed: Observations::default(),
            operations: Operations::default(),
            idempotency: Idempotency::default(),
            admission,
            board,
            started_at: loaded_at,
            cut,
            tasks,
            draining: AtomicBool::new(false),
            reloads: Mutex::new(ReloadStatus::new(UnixMillis::now())),
        })
    }

    /// The configuration of this moment. Taken once a request, so that no request sees two.
    pub fn current(&self) -> Arc<Current> {
        self.current.load_full()
    }

    /// Puts another configuration in force for new requests; running ones keep theirs. Routes that still connect alike keep their
    /// connections. Called by one task at a time.
    pub fn replace(&self, settings: Arc<Settings>) {
        let old = self.current();
        let upstreams = settings
            .routes
            .values()
            .map(|route| {
                let alike = old.settings.routes.get(&route.name).filter(|known| {
                    known.timeouts.connect == route.timeouts.connect && known.provider.name == route.provider.name
                });
                let kept = alike.and_then(|_| old.upstreams.get(&route.name).cloned());
                let upstream = kept.unwrap_or_else(|| Upstream::new(&self.tls, route.timeouts.connect));
                (route.name.clone(), upstream)
            })
            .collect();
        let clients = Clients::new(&settings);
        self.board.configure(settings.routes.values());
        let generation = old.generation + 1;
        self.observed.keep(|route| settings.routes.contains_key(route));
        let loaded_at = UnixMillis::now();
        if let Err(error) = self.telemetry.reloaded(&settings, generation, loaded_at) {
            tracing::error!(%error, "event lines go on to where they went");
        }
        self.current.store(Arc::new(Current { settings, upstreams, clients, generation, loaded_at }));
    }

    /// The probe loop, to be run once beside the relay.
    pub fn reconciler(self: &Arc<Self>) -> Reconciler {
        let app = Arc::downgrade(self);
        Reconciler {
            ledger: self.ledger.clone(),
            tls: self.tls.clone(),
            // While the relay goes away nothing is asked, and nothing is given up.
            tools: Box::new(move |name| Some(app.upgrade()?.current().settings.tools.get(name).cloned())),
            random: random_u64,
            unknown: Arc::clone(&self.unknown),
            stop: self.cut.clone(),
        }
    }

    /// How the loads of the configuration went.
    pub fn reload_status(&self) -> ReloadStatus {
        self.reloads().clone()
    }

    /// Notes that a reload put the current configuration in force; `needs_restart` are keys whose new values wait.
    pub fn reload_taken(&self, at: UnixMillis, needs_restart: Vec<String>) {
        let generation = self.current().generation;
        self.telemetry.metrics().load_taken(at);
        self.reloads().loaded(generation, at, needs_restart);
    }

    /// Notes a reload of a bad file: one line a problem.
    pub fn reload_failed(&self, at: UnixMillis, problems: Vec<String>) {
        self.telemetry.metrics().config_refused();
        self.reloads().failed(at, problems);
    }

    fn reloads(&self) -> MutexGuard<'_, ReloadStatus> {
        self.reloads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// New requests get 503 from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Whether a shutdown has begun.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }
}

fn gauges(view: RouteView) -> RouteGauges {
    let RouteView { route, breaker, attempts, killed, .. } = view;
    RouteGauges { route, circuit: breaker.name(), in_use: attempts, killed }
}

/// Random bits from the operating system; zero where it has none (jitter then is none, ids are made by [`random_id`]).
pub fn random_u64() -> u64 {
    getrandom::u64().unwrap_or_default()
}

/// 128 random bits for an id.
///
/// # Errors
/// When the operating system has no randomness: no guessable id is ever made.
pub fn random_id() -> Result<u128, getrandom::Error> {
    let (high, low) = (getrandom::u64()?, getrandom::u64()?);
    Ok((u128::from(high) << 64) | u128::from(low))
}

//! What all requests share: settings, clients of the providers, tables with their bounds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::settings::Settings;
use crate::ids::RouteId;
use crate::upstream::{Upstream, connect};

use super::auth::Clients;
use super::idempotency::Idempotency;
use super::observe::Observations;
use super::operations::Operations;

/// The relay.
#[derive(Debug)]
pub struct App {
    /// The configuration.
    pub settings: Arc<Settings>,
    /// One HTTP client a route.
    pub upstreams: BTreeMap<RouteId, Upstream>,
    /// Who may call.
    pub clients: Clients,
    /// Times to first output.
    pub observed: Observations,
    /// Operations by id.
    pub operations: Operations,
    /// Outcomes by idempotency key.
    pub idempotency: Idempotency,
    /// `max_in_flight` permits, one a request until its last byte.
    pub in_flight: Arc<Semaphore>,
    /// Cancelled when the grace of a shutdown is over: streams end as interrupted.
    pub cut: CancellationToken,
    /// Tasks that outlive a request's connection (keyed answers, lingering closes); a shutdown waits for them.
    pub tasks: TaskTracker,
    draining: AtomicBool,
}

impl App {
    /// Builds the shared state.
    ///
    /// # Errors
    /// When TLS can't be set up at all.
    pub fn new(settings: Arc<Settings>) -> Result<Self, String> {
        let tls = connect::tls_config()?;
        let upstreams = settings
            .routes
            .values()
            .map(|route| (route.name.clone(), Upstream::new(&tls, route.timeouts.connect)))
            .collect();
        Ok(Self {
            upstreams,
            clients: Clients::new(&settings),
            observed: Observations::default(),
            operations: Operations::default(),
            idempotency: Idempotency::default(),
            in_flight: Arc::new(Semaphore::new(settings.server.max_in_flight.min(Semaphore::MAX_PERMITS))),
            cut: CancellationToken::new(),
            tasks: TaskTracker::new(),
            draining: AtomicBool::new(false),
            settings,
        })
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

//! The composition root: builds every room, binds the listeners, and takes it all down in numbered phases.

mod cors;
mod head;
mod journal;
mod listener;
pub mod reload;
pub mod run;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{any, get, post};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::admin;
use crate::clock::UnixMillis;
use crate::config::settings::Settings;
use crate::executions;
use crate::relay::app::App;
use crate::relay::ledger::keep_head;
use crate::relay::{endpoints, handler, memory, outcome, passthrough};
use crate::tool::retention;

use listener::Acceptor;

/// After the grace limit, what was cut still has this long to bring its error frame out.
const CUT_MAX: Duration = Duration::from_secs(6);

/// How long the stores may take to save their last rows: a disk that hangs must not keep the process.
const STORE_MAX: Duration = Duration::from_secs(5);

/// How long connections have to end in order once nothing runs on them.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// A running relay.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    admin: Option<SocketAddr>,
    app: Arc<App>,
    connections: TaskTracker,
    accepting: CancellationToken,
    closing: CancellationToken,
    accept: Vec<JoinHandle<()>>,
    /// Ends with the server.
    memory: AbortOnDropHandle<()>,
    /// The ledger's alarm, and retention.
    keeping: [AbortOnDropHandle<()>; 2],
    /// Ends with the server.
    head: AbortOnDropHandle<()>,
    /// Ends with the server.
    probes: AbortOnDropHandle<()>,
}

/// The routes of the data plane.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(handler::chat_completions))
        .route("/v1/messages", post(handler::messages))
        .route("/v1/messages/count_tokens", post(handler::count_tokens))
        .route("/v1/models", get(endpoints::models))
        .route("/v1/operations/{id}", get(endpoints::operation).delete(endpoints::stop))
        .route("/v1/operations/{id}/stream", any(endpoints::not_built))
        .route("/v1/operations/{id}/outcome", post(outcome::outcome))
        .route("/v1/responses", post(handler::responses))
        .route("/v1/responses/{*rest}", any(passthrough::or_not_built))
        .route("/v1beta/{*rest}", any(endpoints::not_built))
        .merge(executions::routes())
        .route("/v1/jobs", any(endpoints::not_built))
        .route("/v1/jobs/{*rest}", any(endpoints::not_built))
        .route("/healthz", get(endpoints::healthz))
        .route("/readyz", get(endpoints::readyz))
        .fallback(passthrough::other)
        .method_not_allowed_fallback(endpoints::method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), cors::answer))
        .with_state(app)
}

/// Watches the ledger for its alarm, and erases what is older than its tool's `retention_days`.
fn keeping(app: &Arc<App>) -> [AbortOnDropHandle<()>; 2] {
    let watch = Arc::clone(&app.telemetry).keep_watch(app.ledger.clone());
    let settings = Arc::clone(app);
    let rules = move || retention::rules(&settings.current().settings);
    let erase = retention::keep(app.ledger.clone(), rules, || rubicon_ledger::UnixMillis(UnixMillis::now().0));
    [AbortOnDropHandle::new(tokio::spawn(watch)), AbortOnDropHandle::new(tokio::spawn(erase))]
}

impl Server {
    /// Binds and serves. Port 0 takes any free port; see [`Server::address`].
    ///
    /// # Errors
    /// When an address can't be bound, the store can't be opened, or TLS can't be set up.
    pub async fn start(settings: Settings) -> io::Result<Self> {
        let listener = bind(settings.server.listen).await?;
        let address = listener.local_addr()?;
        let admin_listener = match settings.server.admin_listen {
            Some(listen) => Some(bind(listen).await?),
            None => None,
        };
        let admin = admin_listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let app = Arc::new(App::new(Arc::new(settings)).map_err(io::Error::other)?);
        journal::verify(&app).await;
        let connections = TaskTracker::new();
        let (accepting, closing) = (CancellationToken::new(), CancellationToken::new());
        let serve = |router, listener| {
            let acceptor =
                Acceptor { router, app: Arc::clone(&app), connections: connections.clone(), closing: closing.clone() };
            tokio::spawn(acceptor.run(listener, accepting.clone()))
        };
        let mut accept = vec![serve(router(Arc::clone(&app)), listener)];
        // It ends with the data plane and not before: an operator may want to look while a shutdown takes its time.
        accept.extend(admin_listener.map(|listener| serve(admin::router(Arc::clone(&app)), listener)));
        let memory = AbortOnDropHandle::new(tokio::spawn(memory::watch(Arc::clone(&app))));
        let head = AbortOnDropHandle::new(tokio::spawn(head::keep(Arc::clone(&app))));
        let probes = AbortOnDropHandle::new(tokio::spawn(app.reconciler().run()));
        let keeping = keeping(&app);
        Ok(Self { address, admin, app, connections, accepting, closing, accept, memory, keeping, head, probes })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the admin side listens, if it does.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The shared state, for tests and the demo.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Takes it down: (1) `/readyz` and new requests say 503, (2) what runs goes on to the grace limit, (3) what is left is
    /// interrupted, (4) connections end, (5) the listeners close, (6) the last event lines and spans go out, (7) the control store
    /// and the ledger save their last rows. The admin side answers until (4).
    pub async fn shutdown(self) {
        let grace = self.app.current().settings.server.shutdown_grace;
        // 1
        self.app.drain();
        self.app.tasks.close();
        self.connections.close();
        tracing::info!(in_flight = self.app.admission.in_flight(), grace_ms = grace.as_millis(), "shutting down");
        // 2
        // A tool runs on after its client has left.
        let idle = || async { tokio::join!(self.app.admission.idle(), self.app.runner.idle()) };
        if timeout(grace, idle()).await.is_err() {
            // 3
            tracing::warn!(
                in_flight = self.app.admission.in_flight(),
                tools = self.app.runner.running(),
                "the grace limit is over: what still runs is interrupted"
            );
            self.app.cut.cancel();
            let _ = timeout(CUT_MAX, idle()).await;
        }
        // 4
        self.closing.cancel();
        self.accepting.cancel();
        let _ = timeout(CLOSE_MAX, async { tokio::join!(self.connections.wait(), self.app.tasks.wait()) }).await;
        // 5
        for accept in self.accept {
            let _ = accept.await;
        }
        self.memory.abort();
        self.keeping.iter().for_each(|task| task.abort());
        self.head.abort();
        self.probes.abort();
        // 6
        self.app.telemetry.flush().await;
        // 7
        let (app, ledger, store) = (Arc::clone(&self.app), self.app.ledger.clone(), head::store(&self.app));
        let control = timeout(STORE_MAX, tokio::task::spawn_blocking(move || app.control.close()));
        let close = move || {
            ledger.close();
            if let Some(store) = store {
                keep_head(&ledger, &store);
            }
        };
        let ledger = timeout(STORE_MAX, tokio::task::spawn_blocking(close));
        let (control, ledger) = tokio::join!(control, ledger);
        if control.is_err() {
            tracing::error!("the control store did not save its last rows in time");
        }
        if ledger.is_err() {
            tracing::error!("the ledger did not save its last plans in time: at the next start they count as lost");
        }
        tracing::info!(left = self.connections.len(), "stopped");
    }
}

/// Binds, and says which address it was that did not work.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    TcpListener::bind(address).await.map_err(named)
}

//! The composition root: builds every room, binds the listener, and takes it all down in numbered phases.

pub mod run;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{any, get, post};
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Version};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use crate::config::settings::Settings;
use crate::relay::app::App;
use crate::relay::client_io::ClientIo;
use crate::relay::transport::Transport;
use crate::relay::{endpoints, handler, outcome};

/// After the grace limit, what was cut still has this long to bring its error frame out.
const CUT_MAX: Duration = Duration::from_secs(6);

/// How long connections have to end in order once nothing runs on them.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// A pause after an accept that failed for want of descriptors or memory: trying at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes that the kernel may hold unsent for one client. Left to itself it takes megabytes from a slow reader's stream, and then
/// nothing until a third of that is gone: memory that nobody bounds, and an abort that takes a slow reader for a dead one.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 32 * 1024;

/// HTTP/2 streams one client connection may have open.
const H2_STREAMS_MAX: u32 = 1000;

/// A running relay.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    app: Arc<App>,
    connections: TaskTracker,
    accepting: CancellationToken,
    closing: CancellationToken,
    accept: JoinHandle<()>,
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
        .route("/v1/responses", any(endpoints::not_built))
        .route("/v1/responses/{*rest}", any(endpoints::not_built))
        .route("/v1beta/{*rest}", any(endpoints::not_built))
        .route("/v1/executions", any(endpoints::not_built))
        .route("/v1/executions/{*rest}", any(endpoints::not_built))
        .route("/v1/tools/{tool}", any(endpoints::not_built))
        .route("/v1/jobs", any(endpoints::not_built))
        .route("/v1/jobs/{*rest}", any(endpoints::not_built))
        .route("/healthz", get(endpoints::healthz))
        .route("/readyz", get(endpoints::readyz))
        .fallback(endpoints::not_found)
        .method_not_allowed_fallback(endpoints::method_not_allowed)
        .with_state(app)
}

impl Server {
    /// Binds and serves. Port 0 takes any free port; see [`Server::address`].
    ///
    /// # Errors
    /// When the address can't be bound or TLS can't be set up.
    pub async fn start(settings: Settings) -> io::Result<Self> {
        let listener = TcpListener::bind(settings.server.listen).await?;
        let address = listener.local_addr()?;
        let header_bytes = settings.server.max_header_bytes;
        let app = Arc::new(App::new(Arc::new(settings)).map_err(io::Error::other)?);
        let connections = TaskTracker::new();
        let (accepting, closing) = (CancellationToken::new(), CancellationToken::new());
        let acceptor = Acceptor {
            router: router(Arc::clone(&app)),
            builder: builder(header_bytes),
            app: Arc::clone(&app),
            connections: connections.clone(),
            closing: closing.clone(),
        };
        let accept = tokio::spawn(acceptor.run(listener, accepting.clone()));
        Ok(Self { address, app, connections, accepting, closing, accept })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The shared state, for tests and the demo.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Takes it down: (1) `/readyz` and new requests say 503, (2) what runs goes on to the grace limit, (3) what is left is
    /// interrupted, (4) connections end, (5) the listener closes, (6) the last event lines and spans go out.
    pub async fn shutdown(self) {
        let grace = self.app.current().settings.server.shutdown_grace;
        // 1
        self.app.drain();
        self.app.tasks.close();
        self.connections.close();
        tracing::info!(in_flight = self.in_flight(), grace_ms = grace.as_millis(), "shutting down");
        // 2
        if timeout(grace, self.idle()).await.is_err() {
            // 3
            tracing::warn!(in_flight = self.in_flight(), "the grace limit is over: what still runs is interrupted");
            self.app.cut.cancel();
            let _ = timeout(CUT_MAX, self.idle()).await;
        }
        // 4
        self.closing.cancel();
        self.accepting.cancel();
        let _ = timeout(CLOSE_MAX, async { tokio::join!(self.connections.wait(), self.app.tasks.wait()) }).await;
        // 5
        let _ = self.accept.await;
        // 6
        self.app.telemetry.flush().await;
        tracing::info!(left = self.connections.len(), "stopped");
    }

    fn in_flight(&self) -> usize {
        self.app.current().settings.server.max_in_flight.saturating_sub(self.app.in_flight.available_permits())
    }

    /// Waits until no request is in flight: all permits are back.
    async fn idle(&self) {
        let all = u32::try_from(self.app.current().settings.server.max_in_flight).unwrap_or(u32::MAX);
        let _ = self.app.in_flight.acquire_many(all).await;
    }
}

fn builder(header_bytes: usize) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Head and idle timers are ClientIo's: hyper's own head timer would also close idle connections after 30 s.
    // A head somewhat over the limit is answered by the handler, in the caller's dialect; one far over it by hyper, with a bare 431.
    let header_bytes = header_bytes.saturating_mul(2);
    builder.http1().max_buf_size(header_bytes.max(8192)).timer(TokioTimer::new()).header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS_MAX)
        .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
        // A peer that vanished without a word is found out.
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

struct Acceptor {
    router: Router,
    builder: auto::Builder<TokioExecutor>,
    app: Arc<App>,
    connections: TaskTracker,
    closing: CancellationToken,
}

impl Acceptor {
    async fn run(self, listener: TcpListener, accepting: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                () = accepting.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.connection(stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn connection(&self, stream: TcpStream) {
        if stream.set_nodelay(true).is_err() {
            return; // It is gone already.
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Err(error) = socket2::SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX) {
            tracing::debug!(%error, "the kernel's buffer stays as it is");
        }
        let transport = Transport::default();
        let io = TokioIo::new(ClientIo::new(stream, transport.clone(), self.app.tasks.clone()));
        let router = self.router.clone();
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(transport.clone());
            // Every request counts, whatever it is for: the connection of who only asks for health is no idle one.
            transport.expect_body(!request.body().is_end_stream());
            let going_on = transport.begin(request.version() == Version::HTTP_2);
            let (mut router, transport) = (router.clone(), transport.clone());
            async move {
                let _going_on = going_on;
                let response = router.call(request.map(axum::body::Body::new)).await;
                let mut response = response.map_err(|never: Infallible| match never {});
                // A refusal is often made before the request's body was read: hyper closes after it, which the client must know
                // (or it sends its next request into the close), and the answer must not be lost in the close.
                if let Ok(response) = &mut response
                    && transport.is_body_unread()
                {
                    transport.linger();
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
        });
        let (builder, closing) = (self.builder.clone(), self.closing.clone());
        self.connections.spawn(async move {
            let connection = builder.serve_connection(io, service);
            let mut connection = std::pin::pin!(connection);
            let result = tokio::select! {
                result = connection.as_mut() => result,
                () = closing.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = result {
                // A client that left or an interruption on purpose: nothing to do, and nothing of it is worth a warning.
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
}

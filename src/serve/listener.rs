//! A listener and its connections, the same for the data plane and the admin side: head and idle timers, bounds of HTTP/1.1 and
//! HTTP/2, a close that loses no answer.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Version};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use crate::relay::client_io::ClientIo;
use crate::relay::transport::Transport;

/// A pause after an accept that failed for want of descriptors or memory: trying at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bytes that the kernel may hold unsent for one client. Left to itself it takes megabytes from a slow reader's stream, and then
/// nothing until a third of that is gone: memory that nobody bounds, and an abort that takes a slow reader for a dead one.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 32 * 1024;

/// HTTP/2 streams one client connection may have open.
const H2_STREAMS_MAX: u32 = 1000;

/// How connections are spoken to; heads of up to `header_bytes`.
pub(super) fn builder(header_bytes: usize) -> auto::Builder<TokioExecutor> {
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

/// What serves the connections of one listener.
pub(super) struct Acceptor {
    /// What answers.
    pub(super) router: Router,
    /// From [`builder`].
    pub(super) builder: auto::Builder<TokioExecutor>,
    /// Owns lingering closes.
    pub(super) tasks: TaskTracker,
    /// Owns connections.
    pub(super) connections: TaskTracker,
    /// Cancelled: connections end in order.
    pub(super) closing: CancellationToken,
}

impl Acceptor {
    /// Accepts until `accepting` is cancelled.
    pub(super) async fn run(self, listener: TcpListener, accepting: CancellationToken) {
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
        let io = TokioIo::new(ClientIo::new(stream, transport.clone(), self.tasks.clone()));
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

//! The only HTTP client of the relay.
//!
//! hyper-util's client with everything that could hide a second send switched off: no retry of cancelled requests, no
//! redirects, HTTP/1.1 only (one request a connection at a time, so that a long stream never queues behind others). A
//! counting wrapper around each socket proves, when a request fails, that no byte of it left ([`counted`]). reqwest is not
//! used here because it can show neither (DESIGN.md section 4).

pub mod connect;
pub mod counted;
pub mod request;
pub mod token;

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::classify::TransportFault;
use connect::{ConnectError, Connector};
use counted::Sent;

/// Idle connections a route keeps. More are closed after their answer: a burst must not pin sockets for ever.
const IDLE_CONNECTIONS_MAX: usize = 256;

/// An idle connection is closed after this, before the usual 60 s of servers and balancers, so that a request rarely meets
/// one that is just being closed from the other side.
const IDLE_CONNECTION_KEPT: Duration = Duration::from_secs(45);

/// A provider's response head (SPEC Annex, Bounds: 256 KiB).
const RESPONSE_HEAD_BYTES_MAX: usize = 256 * 1024;

/// A client for one route: its connections and its connect timer are its own.
#[derive(Clone)]
pub struct Upstream {
    client: Client<Connector, Full<Bytes>>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Upstream")
    }
}

impl Upstream {
    /// A client that gives up connecting (name, TCP, TLS together) after `connect_timeout`.
    pub fn new(tls: &rustls::ClientConfig, connect_timeout: Duration) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .retry_canceled_requests(false)
            .pool_idle_timeout(IDLE_CONNECTION_KEPT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(RESPONSE_HEAD_BYTES_MAX)
            .build(Connector::new(tls, connect_timeout));
        Self { client }
    }

    /// Sends one request and waits for the response head. Dropping the future closes the connection.
    ///
    /// # Errors
    /// The transport's fault. A request of which no byte left on a kept connection that turned out to be dead is tried
    /// once more on another connection; this is no resend, nothing had been sent.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, TransportFault> {
        let mut again = Some(request.clone());
        let mut request = request;
        loop {
            let connection = capture_connection(&mut request);
            let error = match self.client.request(request).await {
                // hyper's bound is that of a buffer that grows in steps: a head may be some way over it.
                Ok(response) if head_bytes(response.headers()) > RESPONSE_HEAD_BYTES_MAX => {
                    return Err(TransportFault::BadHead);
                }
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let fault = fault_of(&error, &connection);
            match (fault, again.take()) {
                (TransportFault::Reset { sent: false }, Some(copy)) => request = copy,
                _ => return Err(fault),
            }
        }
    }
}

/// The provider's own name of a request, which its support asks for: OpenAI's, Anthropic's, Azure's gateway's, AWS's.
pub fn request_id(headers: &http::HeaderMap) -> Option<&http::HeaderValue> {
    ["x-request-id", "request-id", "apim-request-id", "x-amzn-requestid"].into_iter().find_map(|name| headers.get(name))
}

/// Bytes of header lines.
fn head_bytes(headers: &http::HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum()
}

/// Finds what went wrong in the chain of causes.
fn fault_of(error: &hyper_util::client::legacy::Error, connection: &CaptureConnection) -> TransportFault {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut never_taken = false;
    while let Some(current) = cause {
        if let Some(connect) = current.downcast_ref::<ConnectError>() {
            return connect.fault();
        }
        if let Some(http) = current.downcast_ref::<hyper::Error>() {
            if http.is_parse() || http.is_parse_too_large() || http.is_parse_status() {
                return TransportFault::BadHead;
            }
            never_taken |= http.is_canceled();
        }
        cause = current.source();
    }
    // Two witnesses: hyper gave the request back without taking it up, and the socket took nothing since the last answer. The
    // socket alone is none: half a head or an interim answer that was read after the request would wipe its count.
    let sent = !never_taken || Sent::of(connection).is_none_or(|sent| sent.since_last_read() > 0);
    TransportFault::Reset { sent }
}

#[cfg(test)]
mod tests;

//! Name, TCP, TLS: how a connection to a provider is made, under one timer, with typed faults.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::classify::TransportFault;

use super::counted::Counted;

/// Why no connection came to be.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Name resolution failed.
    #[error("name resolution failed")]
    Dns(#[source] io::Error),
    /// Refused, unreachable, or reset while connecting.
    #[error("connection refused or unreachable")]
    Refused(#[source] io::Error),
    /// The connect timer ran out.
    #[error("connecting took too long")]
    Timeout,
    /// The TLS handshake failed.
    #[error("TLS handshake failed")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The certificate is not acceptable.
    #[error("certificate not acceptable")]
    Certificate(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl ConnectError {
    /// In the words of classification.
    pub fn fault(&self) -> TransportFault {
        match self {
            Self::Dns(_) => TransportFault::Dns,
            Self::Refused(_) => TransportFault::Refused,
            Self::Timeout => TransportFault::ConnectTimeout,
            Self::Tls(_) => TransportFault::Tls,
            Self::Certificate(_) => TransportFault::Certificate,
        }
    }
}

/// TCP only.
#[derive(Clone, Debug)]
struct Tcp;

impl Service<Uri> for Tcp {
    type Response = TokioIo<Counted>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
            let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
            let addresses = tokio::net::lookup_host((host.as_str(), port)).await.map_err(ConnectError::Dns)?;
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in addresses {
                match TcpStream::connect(address).await {
                    Ok(stream) => {
                        // Small frames must not wait for a full packet (FIELD_CASES F59).
                        stream.set_nodelay(true).map_err(ConnectError::Refused)?;
                        return Ok(TokioIo::new(Counted::new(stream)));
                    }
                    Err(error) => last = error,
                }
            }
            Err(ConnectError::Refused(last))
        })
    }
}

/// TCP and TLS under one timer.
#[derive(Clone)]
pub struct Connector {
    inner: HttpsConnector<Tcp>,
    timeout: Duration,
}

impl Connector {
    /// A connector that gives up after `timeout`.
    pub fn new(tls: &rustls::ClientConfig, timeout: Duration) -> Self {
        let inner = HttpsConnectorBuilder::new()
            .with_tls_config(tls.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(Tcp);
        Self { inner, timeout }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<Counted>>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(typed)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let timeout = self.timeout;
        Box::pin(async move {
            tokio::time::timeout(timeout, connecting).await.map_err(|_| ConnectError::Timeout)?.map_err(typed)
        })
    }
}

/// hyper-rustls boxes everything; this finds our own error or rustls' in the chain.
fn typed(error: Box<dyn std::error::Error + Send + Sync>) -> ConnectError {
    let error = match error.downcast::<ConnectError>() {
        Ok(ours) => return *ours,
        Err(error) => error,
    };
    let mut certificate = false;
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*error);
    while let Some(current) = cause {
        certificate |= matches!(current.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)));
        // An io::Error's `source` is that of the error it wraps, which itself is passed over; and hyper-rustls wraps twice.
        let wrapped = current.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = wrapped.map(|wrapped| wrapped as _).or_else(|| current.source());
    }
    if certificate { ConnectError::Certificate(error) } else { ConnectError::Tls(error) }
}

/// The TLS settings all routes share: the system's roots.
///
/// # Errors
/// When the platform offers no usable crypto or not a single root certificate.
pub fn tls_config() -> Result<rustls::ClientConfig, String> {
    use hyper_rustls::ConfigBuilderExt as _;
    let builder = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    match builder.clone().with_native_roots() {
        Ok(builder) => Ok(builder.with_no_client_auth()),
        // A machine without roots may still relay to plain http on loopback: every certificate is refused there.
        Err(error) => {
            tracing::warn!(%error, "no root certificates found: every https provider will be refused");
            Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
        }
    }
}

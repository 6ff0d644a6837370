//! A socket that counts what was written to it since the last byte was read from it.
//!
//! On HTTP/1.1 requests and answers alternate, so on a kept connection this count is zero until a byte of the next request is
//! handed to the kernel: the evidence that tells "never sent" from "sent, and no answer". Over TLS the handshake's own
//! last bytes may count; the error is on the safe side.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use hyper_util::client::legacy::connect::{CaptureConnection, Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The count of one connection.
#[derive(Clone, Debug, Default)]
pub struct Sent(Arc<AtomicU64>);

impl Sent {
    /// Bytes written since the last byte was read.
    pub fn since_last_read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The count of the connection that a request was given, if it was given one.
    pub fn of(connection: &CaptureConnection) -> Option<Self> {
        let mut extensions = http::Extensions::new();
        connection.connection_metadata().as_ref()?.get_extras(&mut extensions);
        extensions.remove::<Self>()
    }
}

/// The socket.
#[derive(Debug)]
pub struct Counted {
    io: TcpStream,
    sent: Sent,
}

impl Counted {
    /// Wraps a connected socket.
    pub fn new(stream: TcpStream) -> Self {
        Self { io: stream, sent: Sent::default() }
    }

    /// Whom it is connected to.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.io.peer_addr().ok()
    }

    /// Closing it throws away what the kernel took and has not sent yet, instead of sending it later.
    pub fn discard_when_closed(&self) {
        let _ = self.io.set_zero_linger();
    }
}

impl Connection for Counted {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.sent.clone())
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.sent.0.store(0, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, buf))?;
        self.sent.0.fetch_add(u64::try_from(written).unwrap_or(u64::MAX), Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, bufs))?;
        self.sent.0.fetch_add(u64::try_from(written).unwrap_or(u64::MAX), Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

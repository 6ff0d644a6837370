//! A connection that notes what goes over it, in the bytes of HTTP (below TLS they would be others).
//!
//! In: a connected stream. Out: [`Progress`], readable at any moment, also after the exchange was dropped half way: how many bytes of the
//! request the socket (or TLS) took, how many of the answer came, and when. "None taken" is the proof that nothing ran.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use rubicon_ledger::failpoint;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::Instant;
use crate::upstream::counted::Counted;

/// The stream below: TCP, or TLS over it.
pub type Stream = MaybeHttpsStream<TokioIo<Counted>>;

/// What went over a connection, and when, in milliseconds from the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// The connection was there.
    pub connect_ms: Option<u64>,
    /// Bytes of the request that were taken.
    pub bytes_sent: u64,
    /// The first of them.
    pub first_sent_ms: Option<u64>,
    /// The last of them.
    pub last_sent_ms: Option<u64>,
    /// Bytes of the answer that came, its head included.
    pub bytes_received: u64,
    /// The first of them.
    pub first_byte_ms: Option<u64>,
}

/// Shared between the connection and whoever asks how far it came.
#[derive(Debug, Clone)]
pub struct Progress {
    start: Instant,
    /// Bytes of the whole request.
    total: u64,
    counts: Arc<Mutex<Counts>>,
    whole: Arc<AtomicBool>,
}

impl Progress {
    /// Nothing yet. `total`: bytes of the request, head and body.
    #[must_use]
    pub fn new(start: Instant, total: u64) -> Self {
        Self { start, total, counts: Arc::default(), whole: Arc::default() }
    }

    /// What is known now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.lock()
    }

    /// Whether the whole request was taken.
    #[must_use]
    pub fn is_request_complete(&self) -> bool {
        self.lock().bytes_sent >= self.total
    }

    /// Milliseconds since the start.
    #[must_use]
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The connection is there.
    pub fn connected(&self) {
        self.lock().connect_ms = Some(self.elapsed_ms());
    }

    /// The answer is whole: the connection may end in order.
    pub fn answered(&self) {
        self.whole.store(true, Ordering::Relaxed);
    }

    fn sent(&self, bytes: usize) {
        let now = self.elapsed_ms();
        let complete = {
            let mut counts = self.lock();
            counts.bytes_sent += u64::try_from(bytes).unwrap_or(u64::MAX);
            counts.first_sent_ms.get_or_insert(now);
            counts.last_sent_ms = Some(now);
            counts.bytes_sent >= self.total
        };
        failpoint::hit(if complete { "tool-all-sent" } else { "tool-half-sent" });
    }

    fn received(&self, bytes: usize) {
        let now = self.elapsed_ms();
        let mut counts = self.lock();
        counts.bytes_received += u64::try_from(bytes).unwrap_or(u64::MAX);
        counts.first_byte_ms.get_or_insert(now);
    }

    /// Tests that kill the process half way need a half: builds without the feature write as much as the socket takes.
    fn most(&self) -> usize {
        let half = self.total / 2;
        let sent = self.lock().bytes_sent;
        if cfg!(feature = "testing") && sent < half {
            return usize::try_from(half - sent).unwrap_or(usize::MAX);
        }
        usize::MAX
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection. Dropped before its exchange was whole, it throws away what the kernel still holds: nothing is sent after the deadline.
pub struct Watched {
    io: TokioIo<Stream>,
    progress: Progress,
}

impl Watched {
    /// Watches a stream.
    #[must_use]
    pub fn new(io: Stream, progress: Progress) -> Self {
        Self { io: TokioIo::new(io), progress }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.progress.whole.load(Ordering::Relaxed) {
            socket(self.io.inner()).discard_when_closed();
        }
    }
}

/// The socket below.
#[must_use]
pub fn socket(stream: &Stream) -> &Counted {
    match stream {
        MaybeHttpsStream::Http(tcp) => tcp.inner(),
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let bytes = buf.filled().len() - before;
        if bytes > 0 {
            self.progress.received(bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let part = buf.get(..self.progress.most()).unwrap_or(buf);
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, part))?;
        if written > 0 {
            self.progress.sent(written);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

//! The client's connection, as far as a response body must know it: has what I wrote left the process?
//!
//! hyper's HTTP/1 writer drops what it has buffered when a body ends in an error, and h2 drops a stream's queued data on a
//! reset. So the error frame of an interruption would be lost at random. [`ClientIo`] wraps each accepted socket and counts
//! completed flushes (both writers flush the socket only when their own buffer is empty); [`Transport::drained`] waits for
//! one. It also bounds what hyper leaves unbounded: a head that never ends, an idle connection, a peer that never reads.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep, sleep_until};
use tokio_util::task::TaskTracker;

use crate::clock::Instant;

/// How long an abort waits without a byte leaving before it gives up on its frame (DESIGN.md section 4).
const DRAIN_STALL_MAX: Duration = Duration::from_secs(5);

/// How long an abort waits in all, for a reader that takes a byte now and then.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// An HTTP/2 connection may be flushing other streams' data; after the flush that may have been another's, this much
/// quiet says that ours is out too.
const H2_QUIET: Duration = Duration::from_millis(50);

/// A request head must be whole within this (SPEC Annex, Bounds).
const HEAD_MAX: Duration = Duration::from_secs(30);

/// An idle connection is closed after this: longer than the pools of the usual clients (undici 4 s, httpx 5 s, Go 90 s), so
/// that they never reuse a dead one (STREAMS.md 2.3).
const IDLE_MAX: Duration = Duration::from_secs(300);

/// A peer that takes no byte at all for this long while there is something to write has stopped reading.
const WRITE_STALL_MAX: Duration = Duration::from_secs(300);

/// What a lingering close reads and throws away.
const LINGER_BYTES_MAX: u64 = 1024 * 1024;

/// How long a lingering close waits for the peer.
const LINGER_MAX: Duration = Duration::from_secs(5);

/// What a body and its connection share.
#[derive(Clone, Debug, Default)]
pub struct Transport(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    flushes: AtomicU64,
    written: AtomicU64,
    waiting: AtomicUsize,
    progress: Notify,
    requests: AtomicUsize,
    seen: AtomicBool,
    h2: AtomicBool,
    linger: AtomicBool,
}

/// Marks a request as going on, until dropped.
#[derive(Debug)]
pub struct InRequest(Transport);

impl Drop for InRequest {
    fn drop(&mut self) {
        self.0.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Transport {
    /// A request arrived.
    pub fn begin(&self, h2: bool) -> InRequest {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        self.0.seen.store(true, Ordering::Relaxed);
        if h2 {
            self.0.h2.store(true, Ordering::Relaxed);
        }
        InRequest(self.clone())
    }

    /// Completed flushes so far; take it when the frame is handed to hyper.
    pub fn flushes(&self) -> u64 {
        self.0.flushes.load(Ordering::Acquire)
    }

    /// Waits until what was handed to hyper when `flushes` was taken is on the wire, or the peer takes nothing any more.
    pub async fn drained(self, flushes: u64) {
        self.0.linger.store(true, Ordering::Relaxed);
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let result = tokio::time::timeout(DRAIN_MAX, self.wait(flushes)).await;
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        if result.is_err() {
            tracing::debug!("a client took too long to take its last frame");
        }
    }

    async fn wait(&self, flushes: u64) {
        let h2 = self.0.h2.load(Ordering::Relaxed);
        loop {
            let progress = self.0.progress.notified();
            let ticks = self.flushes().saturating_sub(flushes);
            let patience = match (h2, ticks) {
                (false, 1..) | (true, 2..) => return,
                (true, 1) => H2_QUIET,
                _ => DRAIN_STALL_MAX,
            };
            let written = self.0.written.load(Ordering::Relaxed);
            let quiet = tokio::time::timeout(patience, progress).await.is_err();
            // A wake-up may be missed between the reads above and the wait: only real quiet ends it.
            let still =
                self.0.written.load(Ordering::Relaxed) == written && self.flushes().saturating_sub(flushes) == ticks;
            if quiet && still {
                return;
            }
        }
    }

    fn note(&self) {
        if self.0.waiting.load(Ordering::Relaxed) > 0 {
            self.0.progress.notify_waiters();
        }
    }
}

/// An accepted socket.
#[derive(Debug)]
pub struct ClientIo {
    /// `None` only while being dropped.
    stream: Option<TcpStream>,
    transport: Transport,
    tasks: TaskTracker,
    opened: Instant,
    /// Bytes came since the last request began.
    partial: bool,
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<Pin<Box<Sleep>>>,
    farewell: &'static [u8],
}

impl ClientIo {
    /// Wraps a socket; `tasks` owns its lingering close.
    pub fn new(stream: TcpStream, transport: Transport, tasks: TaskTracker) -> Self {
        Self {
            stream: Some(stream),
            transport,
            tasks,
            opened: Instant::now(),
            partial: false,
            reading: None,
            writing: None,
            farewell: b"",
        }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Nothing to read: is this a wait that has a bound?
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = &self.transport.0;
        if shared.requests.load(Ordering::Relaxed) > 0 {
            self.reading = None;
            self.partial = false;
            return Poll::Pending;
        }
        let h2 = shared.h2.load(Ordering::Relaxed);
        let first = !shared.seen.load(Ordering::Relaxed);
        let head = first || (self.partial && !h2);
        let opened = self.opened;
        let timer = self.reading.get_or_insert_with(|| {
            let until = if first { opened + HEAD_MAX } else { Instant::now() + if head { HEAD_MAX } else { IDLE_MAX } };
            Box::pin(sleep_until(until))
        });
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if head && self.partial && !h2 {
            self.farewell = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn wrote(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match result {
            Poll::Ready(Ok(count)) => {
                self.writing = None;
                self.transport.0.written.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
                self.transport.note();
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let stall = self.writing.get_or_insert_with(|| Box::pin(sleep(WRITE_STALL_MAX)));
                stall.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        match this.stream()?.poll_read(cx, buf) {
            Poll::Ready(result) => {
                let idle = this.transport.0.requests.load(Ordering::Relaxed) == 0;
                if idle && buf.filled().len() > before {
                    if !this.partial && this.transport.0.seen.load(Ordering::Relaxed) {
                        this.reading = None; // From idle to the first byte of a head: another bound.
                    }
                    this.partial = true;
                }
                Poll::Ready(result)
            }
            Poll::Pending => this.poll_waiting(cx),
        }
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = this.stream()?.poll_write(cx, buf);
        this.wrote(cx, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = this.stream()?.poll_write_vectored(cx, bufs);
        this.wrote(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = this.stream()?.poll_flush(cx);
        if matches!(result, Poll::Ready(Ok(()))) {
            this.transport.0.flushes.fetch_add(1, Ordering::Release);
            this.transport.note();
        }
        result
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_shutdown(cx)
    }
}

impl Drop for ClientIo {
    /// After an abort the socket must not be reset while data is queued: bytes of the client that nobody read would make the
    /// kernel do just that. So: end our side, read away what still comes, bounded, then close.
    fn drop(&mut self) {
        let linger = self.transport.0.linger.load(Ordering::Relaxed) || !self.farewell.is_empty();
        let Some(stream) = self.stream.take().filter(|_| linger) else { return };
        if tokio::runtime::Handle::try_current().is_err() {
            return; // The runtime is gone, the process ends.
        }
        let farewell = self.farewell;
        self.tasks.spawn(async move {
            let mut stream = stream;
            let close = async {
                stream.write_all(farewell).await?;
                stream.shutdown().await?;
                tokio::io::copy(&mut stream.take(LINGER_BYTES_MAX), &mut tokio::io::sink()).await
            };
            // Whatever comes of it, the socket is closed after this.
            let _ = tokio::time::timeout(LINGER_MAX, close).await;
        });
    }
}

//! The client's connection, as far as a response body must know it: has what I wrote left the process?
//!
//! hyper's HTTP/1 writer drops what it has buffered when a body ends in an error, and h2 drops a stream's queued data on a
//! reset. So the error frame of an interruption would be lost at random. The frame is therefore handed over as [`LastWords`],
//! whose memory tells when it is let go: HTTP/1 does that when the socket took the whole chunk, h2 when the frame stands
//! in the connection's own buffer, which a reset no longer touches and comes after. Both keep a body's order, so all that
//! was sent before is out too. (Counting the socket's flushes would not do: an HTTP/2 connection flushes for every other
//! stream, while a slow reader's window keeps this one's data back.) [`Transport::drained`] waits for that.
//!
//! [`ClientIo`] wraps each accepted socket. It also bounds what hyper leaves unbounded: a head that never ends, an idle
//! connection, a peer that never reads.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Instant;

/// How long an abort waits without a byte leaving before it gives up on its frame (DESIGN.md section 4).
const DRAIN_STALL_MAX: Duration = Duration::from_secs(5);

/// How long an abort waits in all, for a reader that takes a byte now and then.
const DRAIN_MAX: Duration = Duration::from_secs(60);

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
    /// Bytes that the socket took.
    written: AtomicU64,
    requests: AtomicUsize,
    seen: AtomicBool,
    h2: AtomicBool,
    linger: AtomicBool,
    given_up: CancellationToken,
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

    /// Bytes that the peer's socket took so far.
    pub fn written(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }

    /// A stream's reader reads no more: an HTTP/1.1 connection, which carries nothing else, ends at its next blocked write. One
    /// of HTTP/2 goes on for its other streams.
    pub fn give_up(&self) {
        if !self.0.h2.load(Ordering::Relaxed) {
            self.0.given_up.cancel();
        }
    }

    /// Waits until the last words are on their way, or the peer takes nothing any more.
    pub async fn drained(self, mut said: Said) {
        self.0.linger.store(true, Ordering::Relaxed);
        let wait = async {
            loop {
                let written = self.0.written.load(Ordering::Relaxed);
                // It ends in an error when the words are let go, which is what is waited for.
                if tokio::time::timeout(DRAIN_STALL_MAX, &mut said.0).await.is_ok() {
                    return true;
                }
                if self.0.written.load(Ordering::Relaxed) == written {
                    return false;
                }
            }
        };
        if !matches!(tokio::time::timeout(DRAIN_MAX, wait).await, Ok(true)) {
            tracing::debug!("a client took too long to take its last frame");
        }
    }
}

/// The last bytes of a body; their memory is let go when the connection no longer needs it.
struct LastWords {
    bytes: Bytes,
    _let_go: oneshot::Sender<std::convert::Infallible>,
}

impl AsRef<[u8]> for LastWords {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Ends when the connection has let go of its [`last_words`].
#[derive(Debug)]
pub struct Said(oneshot::Receiver<std::convert::Infallible>);

/// Bytes that can be waited for; they must be handed on as they are, never copied.
pub fn last_words(bytes: Bytes) -> (Bytes, Said) {
    let (let_go, said) = oneshot::channel();
    (Bytes::from_owner(LastWords { bytes, _let_go: let_go }), Said(said))
}

/// An accepted socket.
pub struct ClientIo {
    /// `None` only while being dropped.
    stream: Option<TcpStream>,
    transport: Transport,
    tasks: TaskTracker,
    opened: Instant,
    /// Bytes came since the last request began.
    partial: bool,
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    farewell: &'static [u8],
}

impl std::fmt::Debug for ClientIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientIo").field("transport", &self.transport).finish_non_exhaustive()
    }
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
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let given_up = &self.transport.0.given_up;
                let stall = self.writing.get_or_insert_with(|| {
                    let given_up = given_up.clone();
                    Box::pin(async move {
                        tokio::select! {
                            () = given_up.cancelled_owned() => {}
                            () = sleep(WRITE_STALL_MAX) => {}
                        }
                    })
                });
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
        self.get_mut().stream()?.poll_flush(cx)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn words_are_waited_for_as_long_as_something_moves() {
        let transport = Transport::default();
        let (bytes, said) = last_words(Bytes::from_static(b"x"));
        let began = Instant::now();
        let moving = transport.clone();
        let writer = tokio::spawn(async move {
            for _ in 0..5 {
                sleep(DRAIN_STALL_MAX - Duration::from_millis(1)).await;
                moving.0.written.fetch_add(1, Ordering::Relaxed);
            }
            drop(bytes);
        });
        transport.drained(said).await;
        assert!(writer.is_finished());
        assert!(began.elapsed() > 4 * DRAIN_STALL_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (_bytes, said) = last_words(Bytes::from_static(b"x"));
        let began = Instant::now();
        Transport::default().drained(said).await;
        assert!(began.elapsed() >= DRAIN_STALL_MAX && began.elapsed() < 2 * DRAIN_STALL_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_byte_now_and_then_is_given_up_too() {
        let transport = Transport::default();
        let (_bytes, said) = last_words(Bytes::from_static(b"x"));
        let moving = transport.clone();
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_secs(1)).await;
                moving.0.written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let began = Instant::now();
        transport.drained(said).await;
        assert!(began.elapsed() >= DRAIN_MAX && began.elapsed() < 2 * DRAIN_MAX);
    }
}

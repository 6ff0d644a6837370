//! The client's connection, as far as a response body must know it: has what I wrote left the process?
//!
//! hyper's HTTP/1 writer drops what it has buffered when a body ends in an error, and h2 drops a stream's queued data on a
//! reset. So the error frame of an interruption would be lost at random. [`ClientIo`](super::client_io::ClientIo) wraps each accepted socket and counts
//! completed flushes (both writers flush the socket only when their own buffer is empty); [`Transport::drained`] waits for
//! one. The other question it answers is whether the peer is still there ([`Transport::poll_left`]).

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::Notify;

/// How long an abort waits without a byte leaving before it gives up on its frame (DESIGN.md section 4).
const DRAIN_STALL_MAX: Duration = Duration::from_secs(5);

/// How long an abort waits in all, for a reader that takes a byte now and then.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// An HTTP/2 connection may be flushing other streams' data; after the flush that may have been another's, this much
/// quiet says that ours is out too.
const H2_QUIET: Duration = Duration::from_millis(50);

/// What a body and its connection share.
#[derive(Clone, Debug, Default)]
pub struct Transport(pub(super) Arc<Shared>);

#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) flushes: AtomicU64,
    pub(super) written: AtomicU64,
    waiting: AtomicUsize,
    progress: Notify,
    pub(super) requests: AtomicUsize,
    /// Bytes came since the last request began.
    pub(super) partial: AtomicBool,
    /// A request came.
    pub(super) seen: AtomicBool,
    pub(super) h2: AtomicBool,
    /// The running request (HTTP/1.1: there is one) has a body that was not read to its end.
    unread: AtomicBool,
    /// What was written may still lie in the kernel when the connection ends, and bytes of the peer may come all the same.
    pub(super) linger: AtomicBool,
    peer: OnceLock<Weak<dyn Peer>>,
}

/// The reading side of a connection.
pub(super) trait Peer: std::fmt::Debug + Send + Sync {
    /// Ready when the peer has ended its side.
    fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()>;
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
        self.0.partial.store(false, Ordering::Relaxed);
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
        self.linger();
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

    /// Before the socket is closed what was written must have time to arrive, whatever the peer still sends: after an abort, and
    /// after a refusal whose request body nobody read.
    pub fn linger(&self) {
        self.0.linger.store(true, Ordering::Relaxed);
    }

    /// A request over HTTP/1.1 came; `has_body` unless it is already at its end.
    pub fn expect_body(&self, has_body: bool) {
        self.0.unread.store(has_body, Ordering::Relaxed);
    }

    /// Its body was read to the end.
    pub fn body_read(&self) {
        self.0.unread.store(false, Ordering::Relaxed);
    }

    /// Whether some of it is still to come. The connection can't be used again after the answer then, and the answer must say so.
    pub fn is_body_unread(&self) -> bool {
        self.0.unread.load(Ordering::Relaxed) && !self.0.h2.load(Ordering::Relaxed)
    }

    /// Ready when the client has left. hyper sees that by itself unless bytes behind the request (a pipelined one, a stray line
    /// end) lie in its buffer: it reads no further then. Over HTTP/2 it always reads, and this stays pending.
    pub fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.h2.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        self.0.peer.get().and_then(Weak::upgrade).map_or(Poll::Pending, |peer| peer.poll_left(cx))
    }

    /// Runs `future` to its end; `None`: the client left before.
    pub async fn while_there<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => self.poll_left(cx).map(|()| None),
        })
        .await
    }

    pub(super) fn watch(&self, peer: Weak<dyn Peer>) {
        // Only one socket is ever wrapped with a transport.
        let _ = self.0.peer.set(peer);
    }

    pub(super) fn note(&self) {
        if self.0.waiting.load(Ordering::Relaxed) > 0 {
            self.0.progress.notify_waiters();
        }
    }
}

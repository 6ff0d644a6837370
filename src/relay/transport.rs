//! The client's connection, as far as a response body must know it: has what I wrote left the process, and is the client
//! still there?
//!
//! hyper's HTTP/1 writer drops what it has buffered when a body ends in an error, and h2 drops a stream's queued data on a
//! reset. So the error frame of an interruption would be lost at random. The frame is therefore handed over as [`LastWords`],
//! whose memory tells when it is let go: HTTP/1 does that when the socket took the whole chunk, h2 when the frame stands
//! in the connection's own buffer, which a reset no longer touches and comes after. Both keep a body's order, so all that
//! was sent before is out too. (Counting the socket's flushes would not do: an HTTP/2 connection flushes for every other
//! stream, while a slow reader's window keeps this one's data back.) [`Transport::drained`] waits for that.
//!
//! The socket's side of it is [`ClientIo`](super::client_io::ClientIo).

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONNECTION;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How long an abort waits without a byte leaving before it gives up on its frame (DESIGN.md section 4).
const DRAIN_STALL_MAX: Duration = Duration::from_secs(5);

/// How long an abort waits in all, for a reader that takes a byte now and then.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// What a body and its connection share.
#[derive(Clone, Debug, Default)]
pub struct Transport(pub(super) Arc<Shared>);

#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Bytes that the socket took.
    pub(super) written: AtomicU64,
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
    /// The next response head must not say `connection: close`.
    pub(super) hide_close: AtomicBool,
    /// A stream's reader reads no more.
    pub(super) given_up: CancellationToken,
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

    /// A stream never carries `connection: close` (SPEC section 4): with it, the fetch of Node 20 takes any end of the body for a proper
    /// one (STREAMS.md 2.3). hyper adds the header by itself where the client asked to close, and can't be told not to.
    pub fn hide_close(&self, request: &HeaderMap) {
        let asks = request.get_all(CONNECTION).iter().any(|value| {
            value.as_bytes().split(|byte| *byte == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
        });
        if asks {
            self.0.hide_close.store(true, Ordering::Relaxed);
        }
    }

    /// HTTP/2, where many streams share the connection.
    pub fn is_h2(&self) -> bool {
        self.0.h2.load(Ordering::Relaxed)
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
        self.linger();
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

//! What a client reads: the driver's output as an HTTP body. An abort is an error of the body, raised only when what went
//! before it is on the wire ([`super::transport`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::Instant;

use super::emit::{Driven, Out};
use super::transport::{InRequest, Transport, last_words};

/// The body's only error: the stream is cut on purpose, so that no client takes it for whole, or the client has left.
#[derive(Debug, thiserror::Error)]
#[error("the stream was interrupted")]
pub struct Aborted;

/// A driven response body.
///
/// It is shared with its [`watch`]: a driver runs only while its client asks for data, so what must end a stream without the
/// client (a stop, `stream_ms`, a reader that reads no more) can't come from the driver itself.
pub struct ClientBody {
    shared: Arc<Shared>,
    transport: Transport,
    aborting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    ended: bool,
    /// Ends the watch with the body.
    _gone: DropGuard,
}

struct Shared {
    held: Mutex<Option<Held>>,
    /// Times that the client's side asked.
    asked: AtomicU64,
    /// Data was handed over and nothing was asked since.
    handed: AtomicBool,
}

/// What a body holds on to: freed with its last byte, not at the head (FIELD_CASES F89).
struct Held {
    driven: Driven,
    _permit: OwnedSemaphorePermit,
    _in_request: Option<InRequest>,
}

/// What may end a stream without its client.
#[derive(Debug)]
pub struct Limits {
    /// `DELETE`, or the end of a shutdown's grace.
    pub stop: CancellationToken,
    /// `stream_ms`.
    pub until: Option<Instant>,
}

impl std::fmt::Debug for ClientBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBody").finish_non_exhaustive()
    }
}

impl ClientBody {
    /// A body that reads what is left of `driven` after its head, and the watch over it, which the caller must run.
    pub fn new(
        driven: Driven,
        transport: Option<Transport>,
        permit: OwnedSemaphorePermit,
        in_request: Option<InRequest>,
        limits: Limits,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let transport = transport.unwrap_or_default();
        let held = Mutex::new(Some(Held { driven, _permit: permit, _in_request: in_request }));
        let shared = Arc::new(Shared { held, asked: AtomicU64::new(0), handed: AtomicBool::new(false) });
        let gone = CancellationToken::new();
        let watch = watch(Arc::clone(&shared), transport.clone(), limits, gone.clone());
        (Self { shared, transport, aborting: None, ended: false, _gone: gone.drop_guard() }, watch)
    }
}

impl Drop for ClientBody {
    /// The client left, or has it all: the upstream ends now, and not when the watch comes round to it.
    fn drop(&mut self) {
        drop(self.shared.held().take());
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.shared.asked.fetch_add(1, Ordering::Relaxed);
        self.shared.handed.store(false, Ordering::Relaxed);
        loop {
            if let Some(aborting) = &mut self.aborting {
                ready!(aborting.as_mut().poll(cx));
                self.ended = true;
                return Poll::Ready(Some(Err(Aborted)));
            }
            let polled = match self.shared.held().as_mut() {
                Some(held) => held.driven.poll_next(cx),
                // The watch took it away.
                None => Poll::Ready(Some(Out::Abort(Bytes::new()))),
            };
            let Poll::Ready(next) = polled else {
                ready!(self.transport.poll_left(cx));
                self.ended = true;
                return Poll::Ready(Some(Err(Aborted)));
            };
            match next {
                Some(Out::Data(data)) if data.is_empty() => {}
                Some(Out::Data(data)) => {
                    self.shared.handed.store(true, Ordering::Relaxed);
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Out::Abort(frame)) if frame.is_empty() => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(Aborted)));
                }
                Some(Out::Abort(frame)) => {
                    let (frame, said) = last_words(frame);
                    self.aborting = Some(Box::pin(self.transport.clone().drained(said)));
                    self.shared.handed.store(true, Ordering::Relaxed);
                    return Poll::Ready(Some(Ok(Frame::data(frame))));
                }
                // A second head can't be sent; the driver makes one only.
                Some(Out::Head(_)) => {}
                None => {
                    self.ended = true;
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// A reader that takes nothing at all for this long while there is something for it has stopped reading.
pub const READER_STALL_MAX: Duration = Duration::from_secs(120);

/// How often the watch looks; a stall is noticed at most this much late.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Once a stream must end, its driver brings the error frame out as long as the reader takes something this often …
const LAST_STALL_MAX: Duration = Duration::from_secs(4);

/// … and in all within this.
const LAST_MAX: Duration = Duration::from_secs(60);

/// Ends a stream whose client does not: dropping the driver cancels the upstream and frees the permit, and the connection is
/// closed (HTTP/1.1) or the stream reset as soon as its reader asks again (HTTP/2).
async fn watch(shared: Arc<Shared>, transport: Transport, limits: Limits, gone: CancellationToken) {
    let progress = || (shared.asked.load(Ordering::Relaxed), transport.written());
    let mut before = progress();
    let mut stalled_since = Instant::now();
    let over = async {
        match limits.until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    let mut over = std::pin::pin!(over);
    loop {
        tokio::select! {
            () = gone.cancelled() => return,
            () = limits.stop.cancelled() => break,
            () = &mut over => break,
            () = sleep(LOOK_EVERY) => {}
        }
        let now = progress();
        if now != before || !shared.handed.load(Ordering::Relaxed) {
            (before, stalled_since) = (now, Instant::now());
        } else if stalled_since.elapsed() >= READER_STALL_MAX {
            break;
        }
    }
    let until = Instant::now() + LAST_MAX;
    while Instant::now() < until {
        let before = progress();
        tokio::select! {
            () = gone.cancelled() => return,
            () = sleep(LAST_STALL_MAX) => {}
        }
        if progress() == before {
            break;
        }
    }
    tracing::info!("a client that reads no more was left");
    drop(shared.held().take());
    transport.give_up();
}

/// A whole answer that keeps its request's permit until its last byte.
#[derive(Debug)]
pub struct WholeBody {
    whole: Option<Bytes>,
    _permit: OwnedSemaphorePermit,
    _in_request: Option<InRequest>,
}

impl WholeBody {
    /// A body of `whole`.
    pub fn new(whole: Bytes, permit: OwnedSemaphorePermit, in_request: Option<InRequest>) -> Self {
        Self { whole: Some(whole).filter(|whole| !whole.is_empty()), _permit: permit, _in_request: in_request }
    }
}

impl Body for WholeBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.whole.take().map(|whole| Ok(Frame::data(whole))))
    }

    fn is_end_stream(&self) -> bool {
        self.whole.is_none()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.whole.as_ref().map_or(0, |whole| u64::try_from(whole.len()).unwrap_or(0)))
    }
}

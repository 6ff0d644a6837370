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
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::clock::Instant;

use super::admission::Permit;
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
    /// What is left of data that is handed over in pieces.
    rest: Option<Bytes>,
    aborting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    ended: bool,
    /// Ends the watch with the body.
    _gone: DropGuard,
}

struct Shared {
    held: Mutex<Option<Held>>,
    /// Times that the client's side asked.
    asked: AtomicU64,
    /// The client's side asked last and is still waiting: there is nothing for it. Else it has data to take first, or (HTTP/2,
    /// where a body is not asked while its stream has no window) was never ready for any.
    waiting: AtomicBool,
}

/// What a body holds on to: freed with its last byte, not at the head (FIELD_CASES F89).
struct Held {
    driven: Driven,
    _permit: Permit,
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
        permit: Permit,
        in_request: Option<InRequest>,
        limits: Limits,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let transport = transport.unwrap_or_default();
        let held = Mutex::new(Some(Held { driven, _permit: permit, _in_request: in_request }));
        let shared = Arc::new(Shared { held, asked: AtomicU64::new(0), waiting: AtomicBool::new(false) });
        let gone = CancellationToken::new();
        let watch = watch(Arc::clone(&shared), transport.clone(), limits, gone.clone());
        (Self { shared, transport, rest: None, aborting: None, ended: false, _gone: gone.drop_guard() }, watch)
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
        self.shared.waiting.store(false, Ordering::Relaxed);
        if let Some(rest) = &mut self.rest {
            let piece = rest.split_to(rest.len().min(H2_PIECE_BYTES));
            self.rest.take_if(|rest| rest.is_empty());
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
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
                self.shared.waiting.store(true, Ordering::Relaxed);
                ready!(self.transport.poll_left(cx));
                self.ended = true;
                return Poll::Ready(Some(Err(Aborted)));
            };
            match next {
                Some(Out::Data(data)) if data.is_empty() => {}
                Some(Out::Data(mut data)) => {
                    if data.len() > H2_PIECE_BYTES && self.transport.is_h2() {
                        self.rest = Some(data.split_off(H2_PIECE_BYTES));
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Out::Abort(frame)) if frame.is_empty() => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(Aborted)));
                }
                Some(Out::Abort(frame)) => {
                    let (frame, said) = last_words(frame);
                    self.aborting = Some(Box::pin(self.transport.clone().drained(said)));
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

/// HTTP/2 tells of one stream's progress only that its next piece is asked for, so pieces are small: a reader that takes less than
/// one in [`READER_STALL_MAX`] (34 bytes a second) has stopped. Larger than nearly all events, so few are cut in two.
const H2_PIECE_BYTES: usize = 4096;

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
    let progress = || {
        // An HTTP/2 connection writes for its other streams too, and its own pings.
        let written = if transport.is_h2() { 0 } else { transport.written() };
        (shared.asked.load(Ordering::Relaxed), written)
    };
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
        if now != before || shared.waiting.load(Ordering::Relaxed) {
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
    _permit: Permit,
    _in_request: Option<InRequest>,
}

impl WholeBody {
    /// A body of `whole`.
    pub fn new(whole: Bytes, permit: Permit, in_request: Option<InRequest>) -> Self {
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

#[cfg(test)]
mod tests {
    use crate::relay::admission::Admission;

    use super::*;

    /// A body of 64 KiB pieces without end, watched; and what tells that its permit is back.
    struct Watched {
        body: Pin<Box<ClientBody>>,
        permits: Arc<Admission>,
        transport: Transport,
        stop: CancellationToken,
        began: Instant,
        _request: InRequest,
    }

    impl Watched {
        fn new(h2: bool, until: Option<Duration>, out: Option<usize>) -> Self {
            let (permits, transport, stop) =
                (Arc::new(Admission::default()), Transport::default(), CancellationToken::new());
            let driven = Driven::new(|emitter| async move {
                while let Some(bytes) = out {
                    emitter.emit(Out::Data(vec![b'x'; bytes].into())).await;
                }
                std::future::pending().await
            });
            let permit = permits.enter(1).unwrap();
            let limits = Limits { stop: stop.clone(), until: until.map(|until| Instant::now() + until) };
            let request = transport.begin(h2);
            let (body, watch) = ClientBody::new(driven, Some(transport.clone()), permit, None, limits);
            tokio::spawn(watch);
            Self { body: Box::pin(body), permits, transport, stop, began: Instant::now(), _request: request }
        }

        /// Asks once: the bytes that came, or none.
        fn ask(&mut self) -> Option<usize> {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            match self.body.as_mut().poll_frame(&mut cx) {
                Poll::Ready(Some(Ok(frame))) => frame.into_data().ok().map(|data| data.len()),
                _ => None,
            }
        }

        /// Seconds from the beginning until the permit was back, within `patience`.
        async fn freed(&self, patience: Duration) -> Option<u64> {
            let permit = tokio::time::timeout(patience, self.permits.idle()).await;
            permit.is_ok().then(|| self.began.elapsed().as_secs())
        }
    }

    const LONG: Duration = Duration::from_secs(100_000);
    const PIECE: Option<usize> = Some(64 * 1024);

    fn about(seconds: Option<u64>, least: Duration, late: Duration) {
        let (least, seconds) = (least.as_secs(), seconds.expect("the permit never came back"));
        assert!((least..=least + late.as_secs()).contains(&seconds), "{seconds} s for {least}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_nothing_any_more_is_left() {
        // HTTP/2 does not ask a body whose stream has no window, not even once.
        for (h2, asks) in [(false, 1), (true, 1), (true, 0), (false, 0)] {
            let mut watched = Watched::new(h2, None, PIECE);
            for _ in 0..asks {
                assert!(watched.ask().is_some());
            }
            about(watched.freed(LONG).await, READER_STALL_MAX, 2 * LOOK_EVERY);
            assert_eq!(watched.transport.0.given_up.is_cancelled(), !h2, "a connection with other streams goes on");
            // Whoever asks now finds the stream cut and never ended.
            while watched.ask().is_some() {}
            let mut cx = Context::from_waker(std::task::Waker::noop());
            assert!(watched.body.ended && matches!(watched.body.as_mut().poll_frame(&mut cx), Poll::Ready(None)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pings_and_other_streams_of_a_connection_are_no_progress_of_a_stream() {
        for (h2, freed) in [(true, true), (false, false)] {
            let mut watched = Watched::new(h2, None, PIECE);
            watched.ask();
            let transport = watched.transport.clone();
            let busy = tokio::spawn(async move {
                loop {
                    sleep(Duration::from_secs(1)).await;
                    transport.0.written.fetch_add(17, Ordering::Relaxed);
                }
            });
            assert_eq!(watched.freed(Duration::from_secs(1000)).await.is_some(), freed, "h2 {h2}");
            busy.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_waits_or_takes_a_little_is_not() {
        for h2 in [false, true] {
            let mut waits = Watched::new(h2, None, None);
            assert_eq!(waits.ask(), None, "nothing to be had");
            assert_eq!(waits.freed(LONG).await, None, "however long the provider takes");

            let mut slow = Watched::new(h2, None, PIECE);
            for _ in 0..50 {
                let piece = slow.ask().expect("more");
                assert!(piece <= if h2 { H2_PIECE_BYTES } else { 64 * 1024 }, "{piece}");
                assert_eq!(slow.freed(Duration::from_secs(100)).await, None);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_and_the_end_of_the_time_do_not_wait_for_the_reader() {
        for h2 in [false, true] {
            for asks in [0, 1] {
                for stops in [true, false] {
                    let after = Duration::from_secs(20);
                    let mut watched = Watched::new(h2, (!stops).then_some(after), PIECE);
                    for _ in 0..asks {
                        watched.ask();
                    }
                    sleep(after).await;
                    if stops {
                        watched.stop.cancel();
                    }
                    about(watched.freed(LONG).await, after, 2 * LAST_STALL_MAX);
                }
            }
            // One that reads has time for what is on its way, but not for ever.
            let mut reads = Watched::new(h2, None, PIECE);
            reads.stop.cancel();
            while reads.began.elapsed() < LONG && reads.ask().is_some() {
                sleep(Duration::from_secs(1)).await;
            }
            about(Some(reads.began.elapsed().as_secs()), LAST_MAX, 2 * LAST_STALL_MAX);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pieces_are_the_bytes() {
        for bytes in [1, H2_PIECE_BYTES - 1, H2_PIECE_BYTES, H2_PIECE_BYTES + 1, 3 * H2_PIECE_BYTES] {
            let mut watched = Watched::new(true, None, Some(bytes));
            let mut came = 0;
            while came < bytes {
                came += watched.ask().expect("more");
            }
            assert_eq!(came, bytes, "pieces end where the data does");
        }
    }
}

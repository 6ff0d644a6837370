//! The waits of a committed stream: for data, for a stop, for the two timers that may end it.

use std::future::Future as _;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use tokio::time::sleep_until;

use crate::clock::Instant;

/// What a wait after the boundary gave.
pub(super) enum Read {
    Chunk(Bytes),
    Ended,
    Broken,
    Silent,
    TotalOver,
    Stopped,
}

/// The waits of a committed stream, made once and not once an event: one idle timer that is re-armed only when it fires.
pub(super) struct Waits {
    stopped: std::pin::Pin<Box<tokio_util::sync::WaitForCancellationFutureOwned>>,
    total: Option<std::pin::Pin<Box<tokio::time::Sleep>>>,
    idle: std::pin::Pin<Box<tokio::time::Sleep>>,
}

impl Waits {
    pub(super) fn new(stop: tokio_util::sync::CancellationToken, total: Option<(Instant, Duration)>) -> Self {
        Self {
            stopped: Box::pin(stop.cancelled_owned()),
            total: total.map(|(at, _)| Box::pin(sleep_until(at))),
            idle: Box::pin(sleep_until(Instant::now())),
        }
    }

    /// Waits for data, at most `silence`. Data that is there wins over any timer: a reader that was away longer than
    /// `silence` must not find its stream cut.
    pub(super) async fn chunk(&mut self, body: &mut Incoming, silence: Duration) -> Read {
        let mut body = pin!(body);
        let mut deadline = None;
        std::future::poll_fn(|cx| {
            if self.stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Read::Stopped);
            }
            if self.total.as_mut().is_some_and(|total| total.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(Read::TotalOver);
            }
            loop {
                match body.as_mut().poll_frame(cx) {
                    Poll::Ready(None) => return Poll::Ready(Read::Ended),
                    Poll::Ready(Some(Err(_))) => return Poll::Ready(Read::Broken),
                    Poll::Ready(Some(Ok(frame))) => {
                        if let Ok(data) = frame.into_data() {
                            return Poll::Ready(Read::Chunk(data));
                        }
                    }
                    Poll::Pending => break,
                }
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + silence);
            // The armed moment may belong to an earlier event, or (after the end was seen) be later than this one's.
            if self.idle.deadline() > deadline {
                self.idle.as_mut().reset(deadline);
            }
            while self.idle.as_mut().poll(cx).is_ready() {
                if Instant::now() >= deadline {
                    return Poll::Ready(Read::Silent);
                }
                self.idle.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

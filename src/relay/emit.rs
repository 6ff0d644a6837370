//! A driver that is polled by its reader: no task and no channel per event.
//!
//! The driver is one `async fn` that calls [`Emitter::emit`] for everything the client is to get; [`Driven`] polls it when
//! hyper polls the response body, and hands out what was emitted. Backpressure is natural (a body that is not polled does not
//! read its upstream), and dropping the body drops the driver, which cancels the upstream.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// What the client is to get, in order: one head, then data, then the end or an abort with its frame.
#[derive(Debug)]
pub enum Out {
    /// The response head.
    Head(Head),
    /// Body bytes: whole events, or a whole JSON body.
    Data(Bytes),
    /// The last words, a whole error frame; once it is on the wire the body is aborted (never ended cleanly).
    Abort(Bytes),
}

/// A response head.
#[derive(Clone, Debug)]
pub struct Head {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
}

/// The driver's end. One item fits; the next waits until the reader took it.
#[derive(Clone, Debug, Default)]
pub struct Emitter {
    slot: Arc<Mutex<Option<Out>>>,
}

impl Emitter {
    /// Hands one item to the reader; returns when it was taken.
    pub async fn emit(&self, out: Out) {
        *self.lock() = Some(out);
        // No waker is needed: the driver runs only inside the reader's poll, which takes the item before it polls again.
        std::future::poll_fn(|_| if self.lock().is_none() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Out>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reader's end: a driver and what it emitted last.
pub struct Driven {
    driver: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    emitter: Emitter,
}

impl std::fmt::Debug for Driven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driven").field("ended", &self.driver.is_none()).finish()
    }
}

impl Driven {
    /// Makes the driver with its emitter; nothing runs before the first poll.
    pub fn new<F>(make: impl FnOnce(Emitter) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let emitter = Emitter::default();
        Self { driver: Some(Box::pin(make(emitter.clone()))), emitter }
    }

    /// The next item; `None` when the driver has returned.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Out>> {
        let Some(driver) = &mut self.driver else { return Poll::Ready(None) };
        let ended = driver.as_mut().poll(cx).is_ready();
        if ended {
            self.driver = None;
        }
        match self.emitter.lock().take() {
            Some(out) => Poll::Ready(Some(out)),
            None if ended => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    /// The next item, as a future.
    pub async fn next(&mut self) -> Option<Out> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn items_come_in_order_and_the_end_is_told() {
        let mut driven = Driven::new(|emitter| async move {
            for n in 0u8..3 {
                emitter.emit(Out::Data(Bytes::copy_from_slice(&[n]))).await;
                tokio::task::yield_now().await;
            }
            emitter.emit(Out::Abort(Bytes::new())).await;
        });
        for n in 0u8..3 {
            assert!(matches!(driven.next().await, Some(Out::Data(data)) if data[..] == [n]));
        }
        assert!(matches!(driven.next().await, Some(Out::Abort(_))));
        assert!(driven.next().await.is_none());
        assert!(driven.next().await.is_none());
    }

    #[tokio::test]
    async fn dropping_the_reader_drops_the_driver() {
        let (tx, rx) = tokio::sync::oneshot::channel::<()>();
        let mut driven = Driven::new(|emitter| async move {
            let _held = tx;
            emitter.emit(Out::Abort(Bytes::new())).await;
            std::future::pending::<()>().await;
        });
        assert!(driven.next().await.is_some());
        drop(driven);
        assert!(rx.await.is_err());
    }
}

//! What a client reads: the driver's output as an HTTP body. An abort is an error of the body, raised only when what went
//! before it is on the wire ([`super::transport`]).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::OwnedSemaphorePermit;

use super::emit::{Driven, Out};
use super::transport::{InRequest, Transport};

/// The body's only error: the stream is cut on purpose, so that no client takes it for whole, or the client has left.
#[derive(Debug, thiserror::Error)]
#[error("the stream was interrupted")]
pub struct Aborted;

/// A driven response body.
pub struct ClientBody {
    driven: Driven,
    transport: Option<Transport>,
    flushes: u64,
    aborting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    ended: bool,
    /// Freed with the body: at the last byte, not at the head (FIELD_CASES F89).
    _permit: Option<OwnedSemaphorePermit>,
    _in_request: Option<InRequest>,
}

impl std::fmt::Debug for ClientBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBody").finish_non_exhaustive()
    }
}

impl ClientBody {
    /// A body that reads what is left of `driven` after its head.
    pub fn new(
        driven: Driven,
        transport: Option<Transport>,
        permit: Option<OwnedSemaphorePermit>,
        in_request: Option<InRequest>,
    ) -> Self {
        Self { driven, transport, flushes: 0, aborting: None, ended: false, _permit: permit, _in_request: in_request }
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        loop {
            if let Some(aborting) = &mut self.aborting {
                std::task::ready!(aborting.as_mut().poll(cx));
                self.ended = true;
                return Poll::Ready(Some(Err(Aborted)));
            }
            let Poll::Ready(out) = self.driven.poll_next(cx) else {
                let left = self.transport.as_ref().is_some_and(|transport| transport.poll_left(cx).is_ready());
                self.ended = left;
                return if left { Poll::Ready(Some(Err(Aborted))) } else { Poll::Pending };
            };
            match out {
                Some(Out::Data(data)) if data.is_empty() => {}
                Some(Out::Data(data)) => {
                    if let Some(transport) = &self.transport {
                        self.flushes = transport.flushes();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Out::Abort) => {
                    let flushes = self.flushes;
                    self.aborting = match &self.transport {
                        Some(transport) => Some(Box::pin(transport.clone().drained(flushes))),
                        None => Some(Box::pin(std::future::ready(()))),
                    };
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

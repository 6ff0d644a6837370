//! A stored answer on its way to the client, in two halves so that a test can end the process between them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use rubicon_ledger::failpoint;

/// The bytes of a stored answer. Whole in builds without the feature `testing`.
#[derive(Debug)]
pub struct Stored {
    left: Bytes,
    half: usize,
}

impl Stored {
    /// Of these bytes.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        let half = if cfg!(feature = "testing") { bytes.len() / 2 } else { 0 };
        Self { left: bytes, half }
    }
}

impl Body for Stored {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let half = std::mem::take(&mut self.half);
        if half > 0 {
            let first = self.left.split_to(half);
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        failpoint::hit("client-half-sent");
        let rest = std::mem::take(&mut self.left);
        Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.left.len()).unwrap_or(u64::MAX))
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if self.left.is_empty() {
            failpoint::hit("client-all-sent");
        }
    }
}

//! The answer of what passes through: piece after piece to its client, and its one line when that is over.

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::classify::Class;

use super::super::emit::{Emitter, Out};
use super::super::read::next_chunk;
use super::super::told::{CLIENT_GONE, Told};

/// Piece after piece, the next when the last was taken; `idle_ms` without one, a break and the end of a shutdown's grace cut it.
pub(super) async fn pump(mut body: Incoming, emitter: Emitter, idle: std::time::Duration, mut shown: Shown) {
    loop {
        let next = tokio::select! {
            biased;
            () = shown.stop.cancelled() => {
                drop(shown);
                break;
            }
            next = timeout(idle, next_chunk(&mut body)) => next,
        };
        match next {
            Ok(None) => return shown.whole(),
            Ok(Some(Ok(data))) => {
                if body.is_end_stream() {
                    // Of a known length: who has it all need not ask again.
                    shown.whole();
                }
                emitter.emit(Out::Data(data)).await;
            }
            Ok(Some(Err(_))) | Err(_) => {
                shown.broken_off();
                break;
            }
        }
    }
    emitter.emit(Out::Abort(Bytes::new())).await;
}

/// The line of an answer that is being passed on: told once, at its end. Dropped before that, nobody is there to read it any more, or
/// the grace of a shutdown is over.
pub(super) struct Shown {
    told: Option<Told>,
    status: StatusCode,
    stop: CancellationToken,
}

impl Shown {
    /// Takes over from `told`.
    pub(super) fn new(told: &mut Told, status: StatusCode, stop: CancellationToken) -> Self {
        Self { told: Some(told.showing(status)), status, stop }
    }

    /// Its last byte is on its way.
    pub(super) fn whole(&mut self) {
        if let Some(told) = self.told.take() {
            told.answered(self.status);
        }
    }

    /// By the provider, with whatever was shown of it.
    fn broken_off(mut self) {
        if let Some(told) = self.told.take() {
            told.cut(Class::PartialOutput.name(), Some(Class::PartialOutput));
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            told.cut(if self.stop.is_cancelled() { "shutting_down" } else { CLIENT_GONE }, None);
        }
    }
}

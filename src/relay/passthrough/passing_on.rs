//! The answer of what passes through: piece after piece to its client, and its one line when that is over.

use bytes::Bytes;
use http::StatusCode;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::classify::Class;
use crate::ids::OperationId;
use crate::protocol::Dialect;
use crate::protocol::signal::Place;

use super::super::emit::{Emitter, Out};
use super::super::outward::{self, Facts};
use super::super::read::next_chunk;
use super::super::told::{CLIENT_GONE, Told};
use super::watched::{Standing, Watched};

/// Piece after piece, the next when the last was taken; `idle_ms` without one, a break and the end of a shutdown's grace cut it, and so
/// does an end that is none in the dialect.
pub(super) async fn pump(
    mut body: Incoming,
    emitter: Emitter,
    idle: std::time::Duration,
    mut shown: Shown,
    (mut watched, exhausted_status): (Option<Watched>, u16),
) {
    let what = loop {
        let next = tokio::select! {
            biased;
            () = shown.stop.cancelled() => {
                drop(shown);
                break "the relay is shutting down";
            }
            next = timeout(idle, next_chunk(&mut body)) => next,
        };
        let what = match next {
            Ok(None) if is_whole(watched.as_ref()) => return shown.whole(),
            Ok(None) => "the provider ended its stream without its end marker",
            Ok(Some(Ok(data))) => {
                if let Some(watched) = &mut watched {
                    watched.see(&data);
                }
                if body.is_end_stream() && is_whole(watched.as_ref()) {
                    // Of a known length: who has it all need not ask again.
                    shown.whole();
                }
                emitter.emit(Out::Data(data)).await;
                continue;
            }
            Ok(Some(Err(_))) => "the provider's connection broke",
            Err(_) => "the provider sent nothing for too long",
        };
        shown.broken_off();
        break what;
    };
    let frame = match watched.as_ref().map(Watched::standing) {
        Some(Standing::Open(after, place)) => last_frame(after, &place, what, exhausted_status),
        _ => Bytes::new(),
    };
    emitter.emit(Out::Abort(frame)).await;
}

fn is_whole(watched: Option<&Watched>) -> bool {
    watched.is_none_or(|watched| matches!(watched.standing(), Standing::Ended))
}

/// The frame of a stream of responses that was cut. The response itself may go on at the provider: it is asked for by its id.
fn last_frame(after: u64, place: &Place, what: &str, exhausted_status: u16) -> Bytes {
    let nobody = OperationId::new("");
    let facts = Facts { operation: &nobody, attempts: 1, exhausted_status, plan: None, left_out: &[] };
    let interruption = outward::Interruption { after, acted: false, what, verdict: None };
    let mut failure = outward::interrupted(&facts, &interruption);
    failure.rubicon.operation_id = None;
    failure.rubicon.actions = Some(vec!["resume"]);
    Dialect::Responses.error_frame(&failure, place)
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

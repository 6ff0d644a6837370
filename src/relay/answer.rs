//! One attempt without streaming: the whole answer is read, within a bound, and accepted before its first byte goes out.

use bytes::Bytes;

use crate::classify::{Evidence, Timer};
use crate::protocol::signal::Usage;

use super::emit::Out;
use super::operation::{AttemptEnd, Run, Waited};
use super::operations::State;
use super::read::read_bounded;

/// A whole answer. Larger than any text answer by far; base64 images and audio of one answer fit.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

impl Run {
    /// One attempt at a whole answer.
    pub(super) async fn answer_attempt(&mut self, candidate: usize) -> AttemptEnd {
        let Some(route) = self.job.plan.candidates.get(candidate).map(|candidate| candidate.route.clone()) else {
            return AttemptEnd::Stopped;
        };
        let bound = self.bound(candidate, route.timeouts.answer, Timer::Answer);
        let response = match self.open(candidate, bound).await {
            Ok(response) => response,
            Err(end) => return end,
        };
        let (head, body) = response.into_parts();
        let read = match self.wait_held(read_bounded(body, ANSWER_BYTES_MAX), bound.until).await {
            Waited::Stopped => return AttemptEnd::Stopped,
            Waited::TimedOut => {
                return self.failed(candidate, &Evidence::Silence(bound.timer), Usage::default(), bound);
            }
            Waited::Ready(read) => read,
        };
        let answer = self.dialect.read_answer(&read.bytes);
        let fault = self.dialect.body_fault(&read.bytes);
        let whole = answer.valid && fault.is_none() && !read.broken && !read.over;
        let judged = if whole { self.judge_answer(&read.bytes, answer.finish_reason.as_deref()) } else { Ok(()) };
        let fault = fault.or_else(|| judged.err().and_then(Self::broken_evidence));
        let evidence = match &fault {
            Some(fault) => Evidence::Fault { fault, headers: &head.headers },
            None if read.broken => Evidence::BodyCut,
            None if read.over => Evidence::BadFraming,
            None if read.bytes.iter().all(u8::is_ascii_whitespace) => Evidence::Truncated { events: 0 },
            None if !answer.valid || judged.is_err() => Evidence::BadAnswer,
            None => {
                self.accept(candidate, &head, read.bytes, answer).await;
                return AttemptEnd::Over;
            }
        };
        self.acted |= answer.acted;
        self.failed(candidate, &evidence, answer.usage, bound)
    }

    async fn accept(
        &mut self,
        candidate: usize,
        head: &http::response::Parts,
        body: Bytes,
        answer: crate::protocol::Answer,
    ) {
        if let Some(mut seat) = self.seat() {
            seat.read_answer(&body);
            self.note_calls(&mut seat, || self.dialect.response_id(&body));
        }
        self.route_lives(candidate);
        self.leave(&answer.usage);
        self.remember(&self.route(candidate).provider, &answer.issued);
        self.model_served(answer.served_model.as_deref());
        self.attempt_accepted();
        self.job.operation.update(|known| {
            known.usage = answer.usage;
            known.finish_reason = answer.finish_reason;
            if let Some(attempt) = known.attempts.last_mut() {
                attempt.outcome = Some("accepted");
            }
        });
        self.ended(State::Completed, "", None, vec!["none"]);
        let head = self.answer_head(head.status, Some((&head.headers, candidate)));
        self.settle(&head, &body);
        self.emit.emit(Out::Head(head)).await;
        self.emit.emit(Out::Data(body)).await;
    }
}

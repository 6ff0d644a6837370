//! A streamed attempt whose answer is watched over (`commit = "tool_call_complete"` or `"validated"`): what its events mean, what
//! waits behind the boundary, and how a breach ends it. Before the boundary what waits lies with everything else that is held.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::emit::Out;
use super::super::operation::{AttemptEnd, Job, Run};
use super::super::waits::{Read, Waits};
use super::cut::Cut;
use super::{Bound, Upstream, compact};
use crate::accept::Broken;
use crate::accept::guard::{Guard, Stand};
use crate::accept::wanted::Wanted;
use crate::boundary::{CommitPolicy, Effect, Input};
use crate::classify::Evidence;
use crate::clock::Instant;
use crate::config::settings::Commit;
use crate::contract::Endpoint;
use crate::protocol::signal::{Ending, Fault};
use crate::wire::sse::{BlockKind, SseBlock};

/// When an operation's attempts are committed, and what is asked of its answer.
pub(in crate::relay) fn policy(job: &Job) -> (CommitPolicy, Option<Arc<Wanted>>) {
    let policy = match job.workflow.commit {
        Commit::FirstVisible => CommitPolicy::FirstVisible,
        Commit::ToolCallComplete => CommitPolicy::ToolCallComplete,
        Commit::Validated => CommitPolicy::Validated,
    };
    if policy == CommitPolicy::FirstVisible || job.contract.endpoint == Endpoint::CountTokens {
        return (CommitPolicy::FirstVisible, None);
    }
    let dialect = job.contract.endpoint.dialect();
    (policy, Some(Arc::new(Wanted::of(dialect, policy == CommitPolicy::Validated, &job.body))))
}

impl Upstream {
    /// Events that the client has been sent, or is about to be.
    pub(super) fn shown(&self) -> u64 {
        self.events.saturating_sub(self.waiting.1)
    }

    /// Calls that were read go out next, unless something waits: they wait with it.
    pub(super) fn ripen(&mut self) {
        if let Some(seat) = self.seat.as_mut().filter(|_| self.waiting.0.is_empty()) {
            seat.ripen();
        }
    }

    /// What an event that was just read means for what waits.
    pub(super) fn stand(&mut self, block: &SseBlock) -> Stand {
        let Some(guard) = &mut self.guard else { return Stand::Free };
        let over = self.reader.ending() == Ending::Terminal;
        guard.read(block.event_name(), &block.data(), over, self.reader.finish_reason())
    }

    /// The answer has ended, be it with the terminal event or without. What was judged with that event is not judged again.
    pub(super) fn judge_end(&mut self) -> Result<(), Broken> {
        match &mut self.guard {
            Some(guard) => guard.finish(self.reader.finish_reason()),
            None => Ok(()),
        }
    }
}

impl Run {
    /// The evidence that a broken contract is: the provider's finish reason where that says it, else a bad answer.
    pub(in crate::relay) fn broken_evidence(broken: Broken) -> Option<Fault> {
        // As the providers themselves say it where they say it with a status.
        (broken == Broken::Refused).then(|| Fault {
            code: Some("content_filter".to_owned()),
            message: Some("The provider filtered or refused its answer.".to_owned()),
            status: Some(400),
            ..Fault::default()
        })
    }

    /// The attempt's answer breaks the contract, and nothing of it was shown.
    pub(super) fn breaks(&mut self, candidate: usize, upstream: &Upstream, broken: Broken, bound: Bound) -> AttemptEnd {
        tracing::info!(operation = %self.job.operation.id, what = broken.what(), "answer not accepted");
        match &Self::broken_evidence(broken) {
            Some(fault) => {
                self.lost(candidate, upstream, &Evidence::Fault { fault, headers: &upstream.headers }, bound)
            }
            None => self.lost(candidate, upstream, &Evidence::BadAnswer, bound),
        }
    }

    /// Behind the boundary: a block that is ready, or waits for a call, or releases all that wait.
    pub(super) fn forward_guarded(
        &mut self,
        upstream: &mut Upstream,
        input: Input,
        block: SseBlock,
        ready: &mut VecDeque<Bytes>,
    ) -> Result<(), Cut> {
        let is_event = block.kind == BlockKind::Event;
        let is_waiting = !upstream.waiting.0.is_empty();
        // A comment passes by what waits; what belongs to a block that waits does not.
        let passes = block.kind == BlockKind::Comment && !block.is_lone_lf();
        let input = if is_waiting && !is_event && !passes { Input::Waits(block.raw.len()) } else { input };
        match self.boundary.take(input) {
            Effect::Hold => {
                upstream.waiting.0.push(compact(block.raw));
                upstream.waiting.1 += u64::from(is_event);
            }
            Effect::Release => {
                ready.extend(upstream.waiting.0.drain(..));
                upstream.waiting.1 = 0;
                ready.push_back(block.raw);
            }
            Effect::Overflow => {
                upstream.waiting.1 += u64::from(is_event);
                return Err(Cut::Call(Broken::TooLarge));
            }
            _ => ready.push_back(block.raw),
        }
        Ok(())
    }

    /// Waits for data behind the boundary. While a call waits and the client hears nothing, keep-alives go out as before it.
    pub(super) async fn forward_wait(&mut self, waits: &mut Waits, upstream: &mut Upstream, silence: Duration) -> Read {
        let every = self.job.workflow.hold.keepalive_after;
        let Some(every) = every.filter(|_| !upstream.waiting.0.is_empty()) else {
            return waits.chunk(&mut upstream.body, silence).await;
        };
        let until = Instant::now() + silence;
        loop {
            let due = self.keepalive_due(every);
            let now = Instant::now();
            match waits.chunk(&mut upstream.body, due.min(until).saturating_duration_since(now)).await {
                Read::Silent if Instant::now() < until => self.keepalive_between().await,
                read => return read,
            }
        }
    }

    /// A keep-alive between two events of a committed stream: it commits nothing and counts for nothing.
    async fn keepalive_between(&mut self) {
        let every = self.job.workflow.hold.keepalive_after;
        self.keepalive_at = every.map(|every| Instant::now() + every);
        self.emit.emit(Out::Data(self.dialect.keepalive(false, self.job.contract.official_sdk))).await;
    }

    /// When the next one is due; the first of a wait a whole pause after its beginning.
    fn keepalive_due(&mut self, every: Duration) -> Instant {
        let now = Instant::now();
        *self.keepalive_at.insert(self.keepalive_at.filter(|at| *at > now).unwrap_or(now + every))
    }
}

impl Run {
    /// Judges a whole answer, where the workflow's `commit` asks for it.
    pub(in crate::relay) fn judge_answer(&self, body: &[u8], finish: Option<&str>) -> Result<(), Broken> {
        let Some(wanted) = self.wanted.clone() else { return Ok(()) };
        let judged = Guard::judge_answer(wanted, body, finish);
        if let Err(broken) = judged {
            tracing::info!(operation = %self.job.operation.id, what = broken.what(), "answer not accepted");
        }
        judged
    }
}

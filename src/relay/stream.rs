//! One streamed attempt: held until the boundary, forwarded event by event after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;

use crate::accept::Broken;
use crate::accept::guard::{Guard, Stand};
use crate::attempt::control;
use crate::boundary::{Effect, Input, Phase, Why};
use crate::classify::{ERROR_BODY_BYTES_MAX, Evidence, Timer};
use crate::clock::Instant;
use crate::config::settings::{Commit, ProviderSettings, Terminal};
use crate::protocol::request::with_model;
use crate::protocol::signal::{Ending, Fault, Show, StreamReader, Usage};
use crate::upstream::{request, token};
use crate::wire::sse::{BlockKind, SseBlock, SseLimits, SseSplitter};

use super::emit::Out;
use super::operation::{AttemptEnd, Failed, Run, Waited};
use super::operations::State;
use super::read::{ReadBody, is_event_stream, looks_like_sse, next_chunk, read_bounded, read_on};
use super::seat::Seat;
use super::waits::{Read, Waits};
use cut::Cut;

mod cut;
mod guarded;
pub(super) use guarded::policy;

/// A lenient stream whose finish was seen and whose socket stays open ends after this much silence (SPEC Annex, Streams).
const TRAILING_SILENCE: Duration = Duration::from_secs(2);

/// After the dialect's own terminal event only the body's end is waited for (so that the connection can be used again), and a
/// gateway's tail; nobody needs either, so not for long.
const TERMINAL_LINGER: Duration = Duration::from_millis(250);

/// How long the rest of an error answer is waited for: its status is known, its words only help, and a fallback waits.
pub(super) const ERROR_BODY_WAIT: Duration = Duration::from_secs(2);

/// The timer that bounds an attempt while nothing is shown.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) until: Instant,
    pub(super) timer: Timer,
    /// The timer is a cut for a fallback's sake, not the deadline itself.
    pub(super) early: bool,
}

/// A stream being read.
struct Upstream {
    body: Incoming,
    headers: HeaderMap,
    status: StatusCode,
    splitter: SseSplitter,
    reader: Box<dyn StreamReader>,
    lenient: bool,
    /// Whole events with data, seen.
    events: u64,
    /// A hosted tool that may act has started.
    acted: bool,
    /// Something was shown after a finish reason, so that this one was none.
    unsettled: bool,
    /// Whose it is.
    provider: Arc<ProviderSettings>,
    /// How much of what it issued is remembered.
    noted: usize,
    /// Watches over its answer, where the workflow's `commit` asks for it.
    guard: Option<Guard>,
    /// Collects its tool calls, where there is a ledger to note them.
    seat: Option<Seat>,
    /// What waits for a tool call behind the boundary, and the events among it.
    waiting: (Vec<Bytes>, u64),
}

impl Upstream {
    /// Whether what was seen is an end by the provider's `terminal`.
    fn complete(&self) -> bool {
        self.linger().is_some()
    }

    /// Whether the dialect's own terminal event has come: nothing can make the answer less whole.
    fn ended(&self) -> bool {
        self.reader.ending() == Ending::Terminal
    }

    /// Whether the body's end is an end by what was seen. After a finish reason only (lenient), it must be its proper end: a broken
    /// connection says that more was to come.
    fn complete_at_end(&self, proper: bool) -> bool {
        match self.reader.ending() {
            Ending::Terminal => true,
            Ending::Finished | Ending::Open => proper && self.complete(),
        }
    }

    /// How long to wait on once the end was seen; `None` before it.
    fn linger(&self) -> Option<Duration> {
        match self.reader.ending() {
            Ending::Terminal => Some(TERMINAL_LINGER),
            Ending::Finished if self.lenient && !self.unsettled => Some(TRAILING_SILENCE),
            Ending::Finished | Ending::Open => None,
        }
    }

    /// What a failed attempt cost, if that is known: counts told before its end (Anthropic's `message_start` has one output token)
    /// are of an answer that went on, so they settle nothing.
    fn spent(&self) -> Usage {
        if self.reader.ending() == Ending::Open { Usage::default() } else { self.reader.usage() }
    }
}

/// What one block is.
enum Judged {
    /// For the boundary.
    Input(Input),
    /// The provider's own error event: replaced by the relay's frame, so not counted.
    Fault(Fault),
    /// A terminal event that came too early: a client that saw it would take the stream for whole.
    EarlyEnd,
    /// An event after the end, which belongs to no answer: what was sent is whole, and nothing more is.
    PastTheEnd,
    /// The answer breaks the contract.
    Broken(Broken),
}

impl Run {
    /// How long an attempt that begins now may show nothing.
    pub(super) fn bound(&self, candidate: usize, own: Duration, timer: Timer) -> Bound {
        let now = Instant::now();
        let cut = control::cut_at(&self.job.plan, &self.tried, &self.needs(), &self.budget, candidate, now);
        if now + own <= cut {
            Bound { until: now + own, timer, early: false }
        } else {
            Bound { until: cut, timer: Timer::Deadline, early: cut < self.budget.deadline }
        }
    }

    pub(super) fn failed(&self, candidate: usize, evidence: &Evidence<'_>, usage: Usage, bound: Bound) -> AttemptEnd {
        let verdict = self.classify(candidate, evidence);
        let cut_early = bound.early && matches!(evidence, Evidence::Silence(Timer::Deadline));
        let by_deadline = matches!(evidence, Evidence::Silence(Timer::Deadline));
        AttemptEnd::Failed(Failed { verdict, usage, cut_early, by_deadline })
    }

    /// Sends the request and waits for a head; a status other than 2xx, or a body that can't be read as sent, is a failure.
    pub(super) async fn open(&mut self, candidate: usize, bound: Bound) -> Result<Response<Incoming>, AttemptEnd> {
        let route = self.job.plan.candidates.get(candidate).map(|candidate| candidate.route.clone());
        let Some((route, upstream)) =
            route.and_then(|route| Some((route.clone(), self.job.current.upstreams.get(&route.name)?.clone())))
        else {
            return Err(self.failed(candidate, &Evidence::BadAnswer, Usage::default(), bound));
        };
        // Where the route names no model the request's own passes through.
        let body = match &route.model {
            Some(model) => with_model(&self.job.body, &self.job.contract.facts, model),
            None => self.job.body.clone(),
        };
        token::refresh(&route.provider).await;
        let key = format!("{}-{}", self.job.operation.id, self.budget.attempts);
        let query = self.job.query.as_deref();
        let request = request::build(&route, self.job.contract.endpoint, query, &self.job.headers, body, &key);
        let request = match request {
            Ok(mut request) => {
                self.put_traceparent(request.headers_mut());
                request
            }
            Err(error) => {
                tracing::error!(%error, "attempt not sent");
                return Err(self.failed(candidate, &Evidence::BadAnswer, Usage::default(), bound));
            }
        };
        let nothing = Usage::default();
        let response = match self.wait_held(upstream.send(request), bound.until).await {
            Waited::Stopped => return Err(AttemptEnd::Stopped),
            Waited::TimedOut => return Err(self.failed(candidate, &Evidence::Silence(bound.timer), nothing, bound)),
            Waited::Ready(Err(fault)) => {
                return Err(self.failed(candidate, &Evidence::Transport(fault), nothing, bound));
            }
            Waited::Ready(Ok(response)) => response,
        };
        self.head_came(response.status().as_u16());
        if let Some(name) = &route.provider.attempts_header {
            let spent = response.headers().get(name).and_then(|value| value.to_str().ok()?.trim().parse::<u32>().ok());
            // The gateway below counts the attempt that we count too.
            self.budget.attempts_elsewhere =
                self.budget.attempts_elsewhere.saturating_add(spent.unwrap_or(1).saturating_sub(1));
        }
        if response.status().is_success() {
            let encoded = response.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
            if encoded {
                return Err(self.failed(candidate, &Evidence::BadAnswer, nothing, bound));
            }
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let until = bound.until.min(Instant::now() + ERROR_BODY_WAIT);
        let body = match self.wait_held(read_bounded(body, ERROR_BODY_BYTES_MAX), until).await {
            Waited::Stopped => return Err(AttemptEnd::Stopped),
            // The status alone is evidence enough.
            Waited::TimedOut => Bytes::new(),
            Waited::Ready(read) => read.bytes,
        };
        self.acted |= self.dialect.read_answer(&body).acted;
        let evidence = Evidence::Http { status: head.status.as_u16(), headers: &head.headers, body: &body };
        Err(self.failed(candidate, &evidence, nothing, bound))
    }

    /// One attempt at a streamed answer.
    pub(super) async fn stream_attempt(&mut self, candidate: usize) -> AttemptEnd {
        let began = Instant::now();
        let Some(route) = self.job.plan.candidates.get(candidate).map(|candidate| candidate.route.clone()) else {
            return AttemptEnd::Stopped;
        };
        let timeouts = route.timeouts;
        let own =
            if self.job.contract.facts.reasoning { timeouts.first_output_reasoning } else { timeouts.first_output };
        let bound = self.bound(candidate, own, Timer::FirstOutput);
        let response = match self.open(candidate, bound).await {
            Ok(response) => response,
            Err(end) => return end,
        };
        let max = self.job.current.settings.server.max_event_bytes;
        let (head, mut body) = response.into_parts();
        let mut splitter = SseSplitter::new(SseLimits { line_bytes_max: max, event_bytes_max: max });
        if !is_event_stream(&head.headers) {
            match self.wait_held(looks_like_sse(&mut body), bound.until).await {
                Waited::Stopped => return AttemptEnd::Stopped,
                Waited::TimedOut => {
                    return self.failed(candidate, &Evidence::Silence(bound.timer), Usage::default(), bound);
                }
                Waited::Ready((begun, true)) => splitter.push(begun.bytes),
                Waited::Ready((begun, false)) => return self.not_a_stream(candidate, &head, begun, body, bound).await,
            }
        }
        let upstream = Upstream {
            body,
            headers: head.headers,
            status: head.status,
            splitter,
            reader: self.dialect.stream_reader(self.job.contract.facts.choices),
            lenient: route.provider.terminal == Terminal::Lenient,
            events: 0,
            acted: false,
            unsettled: false,
            provider: Arc::clone(&route.provider),
            noted: 0,
            guard: self.wanted.clone().map(Guard::new),
            seat: self.seat(),
            waiting: (Vec::new(), 0),
        };
        self.hold(candidate, upstream, bound, began).await
    }

    /// A 2xx that is no event stream though one was asked for: an error object, or a broken contract.
    async fn not_a_stream(
        &mut self,
        candidate: usize,
        head: &http::response::Parts,
        begun: ReadBody,
        body: Incoming,
        bound: Bound,
    ) -> AttemptEnd {
        let read = match self.wait_held(read_on(begun, body, ERROR_BODY_BYTES_MAX), bound.until).await {
            Waited::Stopped => return AttemptEnd::Stopped,
            Waited::TimedOut => {
                return self.failed(candidate, &Evidence::Silence(bound.timer), Usage::default(), bound);
            }
            Waited::Ready(read) => read,
        };
        self.acted |= self.dialect.read_answer(&read.bytes).acted;
        let fault = self.dialect.body_fault(&read.bytes);
        let evidence = match &fault {
            Some(fault) => Evidence::Fault { fault, headers: &head.headers },
            None if read.broken => Evidence::BodyCut,
            None if read.bytes.iter().all(u8::is_ascii_whitespace) => Evidence::Truncated { events: 0 },
            None => Evidence::BadAnswer,
        };
        self.failed(candidate, &evidence, Usage::default(), bound)
    }

    /// Before the boundary.
    async fn hold(&mut self, candidate: usize, mut upstream: Upstream, bound: Bound, began: Instant) -> AttemptEnd {
        let mut held: Vec<Bytes> = Vec::new();
        let mut ends_at: Option<Instant> = None;
        loop {
            let events = upstream.events;
            loop {
                let block = match upstream.splitter.next_block() {
                    Ok(Some(block)) => block,
                    Ok(None) => break,
                    // After the end not even that matters.
                    Err(_) if upstream.ended() => return self.shown_nothing(candidate, &mut upstream, held).await,
                    Err(_) => return self.lost(candidate, &upstream, &Evidence::BadFraming, bound),
                };
                let judged = judge_block(&mut upstream, &block);
                self.acted |= upstream.acted;
                let input = match judged {
                    Judged::Input(input) => input,
                    Judged::Fault(fault) => {
                        let evidence = Evidence::Fault { fault: &fault, headers: &upstream.headers };
                        return self.lost(candidate, &upstream, &evidence, bound);
                    }
                    Judged::EarlyEnd => {
                        let events = upstream.events;
                        return self.lost(candidate, &upstream, &Evidence::Truncated { events }, bound);
                    }
                    Judged::PastTheEnd => return self.shown_nothing(candidate, &mut upstream, held).await,
                    Judged::Broken(broken) => return self.breaks(candidate, &upstream, broken, bound),
                };
                let before = self.boundary.phase();
                match self.boundary.take(input) {
                    Effect::Hold => held.push(compact(block.raw)),
                    // The second half of a CRLF that two reads tore apart belongs to the block before it.
                    Effect::Drop if block.is_lone_lf() && held.last().is_some_and(|last| last.ends_with(b"\r")) => {
                        held.push(block.raw);
                    }
                    Effect::Commit(why) => {
                        self.committed(candidate, why, began.elapsed());
                        self.route_lives(candidate);
                        held.push(block.raw);
                        self.note_due(&mut upstream);
                        self.release(candidate, &upstream, before, held).await;
                        upstream.noted = upstream.reader.issued().len();
                        return self.forward(candidate, upstream).await;
                    }
                    Effect::ReasoningOverflow => {
                        return self.failed(candidate, &Evidence::BadAnswer, upstream.spent(), bound);
                    }
                    Effect::Overflow => return self.breaks(candidate, &upstream, Broken::TooLarge, bound),
                    _ => {}
                }
            }
            // An answer may end without ever showing anything; its socket may stay open all the same. The terminal event ends it
            // sooner than its finish reason did.
            if ends_at.is_none() || upstream.events > events {
                ends_at = upstream.linger().map(|linger| Instant::now() + linger);
            }
            let until = ends_at.map_or(bound.until, |ends_at| bound.until.min(ends_at));
            let read = match self.wait_held(next_chunk(&mut upstream.body), until).await {
                Waited::Stopped => return AttemptEnd::Stopped,
                Waited::Ready(read) => read,
                Waited::TimedOut if upstream.complete_at_end(true) => None,
                Waited::TimedOut => {
                    return self.lost(candidate, &upstream, &Evidence::Silence(bound.timer), bound);
                }
            };
            match read {
                Some(Ok(chunk)) => upstream.splitter.push(chunk),
                read if upstream.complete_at_end(read.is_none()) => {
                    if let Err(broken) = upstream.judge_end() {
                        return self.breaks(candidate, &upstream, broken, bound);
                    }
                    return self.shown_nothing(candidate, &mut upstream, held).await;
                }
                Some(Err(_)) => return self.lost(candidate, &upstream, &Evidence::BodyCut, bound),
                None => {
                    let events = upstream.events;
                    return self.lost(candidate, &upstream, &Evidence::Truncated { events }, bound);
                }
            }
        }
    }

    /// A whole answer that shows nothing: released, and ended cleanly.
    async fn shown_nothing(&mut self, candidate: usize, upstream: &mut Upstream, held: Vec<Bytes>) -> AttemptEnd {
        let before = self.boundary.phase();
        self.boundary.take(Input::UpstreamEnded { complete: true });
        self.key_shown();
        if self.job.workflow.commit == Commit::Validated {
            self.committed(candidate, Why::Validated, self.attempt_at.elapsed());
        }
        self.accepted_in_silence(upstream);
        self.route_lives(candidate);
        self.note_due(upstream);
        self.release(candidate, upstream, before, held).await;
        self.completed(upstream);
        AttemptEnd::Over
    }

    /// The attempt failed with nothing shown.
    fn lost(&mut self, candidate: usize, upstream: &Upstream, evidence: &Evidence<'_>, bound: Bound) -> AttemptEnd {
        self.boundary.take(Input::Failure);
        let mut end = self.failed(candidate, evidence, upstream.spent(), bound);
        if let AttemptEnd::Failed(failed) = &mut end {
            // Whatever it says of itself, an answer that had begun is no proof that nothing was done.
            failed.verdict.may_have_run |= upstream.events > 0;
        }
        end
    }

    /// Remembers what was issued since the last time.
    fn note_issued(&self, upstream: &mut Upstream) {
        let issued = upstream.reader.issued();
        if issued.len() > upstream.noted {
            self.remember(&upstream.provider, issued.get(upstream.noted..).unwrap_or_default());
            upstream.noted = issued.len();
        }
    }

    /// Notes the tool calls of events that go out now.
    fn note_due(&self, upstream: &mut Upstream) {
        upstream.ripen();
        if let Some(seat) = &mut upstream.seat {
            self.note_calls(seat, || upstream.reader.place().id);
        }
    }

    async fn release(&mut self, candidate: usize, upstream: &Upstream, before: Phase, held: Vec<Bytes>) {
        self.remember(&upstream.provider, upstream.reader.issued());
        let head = self.stream_head(upstream.status, Some((&upstream.headers, candidate)));
        self.head(before, head).await;
        for raw in held {
            self.emit.emit(Out::Data(raw)).await;
        }
    }

    /// After the boundary: bytes of this attempt only, until its end, an interruption, or the client leaves.
    async fn forward(&mut self, candidate: usize, mut upstream: Upstream) -> AttemptEnd {
        let idle = self.job.plan.candidates.get(candidate).map_or(TRAILING_SILENCE, |c| c.route.timeouts.idle);
        let total = self.job.contract.envelope.stream.map(|stream| (self.job.operation.admitted + stream, stream));
        let mut waits = Waits::new(self.job.operation.stop.clone(), total);
        let mut ends_at: Option<Instant> = None;
        let cut = loop {
            let events = upstream.events;
            match self.forward_blocks(&mut upstream).await {
                Ok(Flow::More) => {}
                Ok(Flow::Over) => return self.over(candidate, &mut upstream).await,
                Err(cut) => break cut,
            }
            // Only events put the end off (usage after a finish reason), never comments or pings of a socket that stays open.
            if ends_at.is_none() || upstream.events > events {
                ends_at = upstream.linger().map(|linger| Instant::now() + linger);
            } else if ends_at.is_some_and(|ends_at| ends_at <= Instant::now()) {
                // Data that is there wins over the timer, so comments that always are there would put the end off for ever.
                return self.over(candidate, &mut upstream).await;
            }
            let silence = ends_at.map_or(idle, |ends_at| ends_at.saturating_duration_since(Instant::now()));
            match self.forward_wait(&mut waits, &mut upstream, silence).await {
                Read::Chunk(chunk) => upstream.splitter.push(chunk),
                // What comes after the end was seen can only be its tail.
                Read::Ended | Read::Silent if upstream.complete_at_end(true) => {
                    return self.over(candidate, &mut upstream).await;
                }
                Read::Broken if upstream.complete_at_end(false) => return self.over(candidate, &mut upstream).await,
                Read::Ended => break Cut::Truncated,
                Read::Broken => break Cut::Transport,
                Read::Silent => break Cut::Idle(idle),
                Read::TotalOver => break Cut::Total(total.map(|(_, stream)| stream).unwrap_or_default()),
                Read::Stopped => break Cut::Stopped,
            }
        };
        self.interrupt(candidate, &upstream, cut).await;
        AttemptEnd::Over
    }

    /// A clean end after the provider's own.
    async fn over(&mut self, candidate: usize, upstream: &mut Upstream) -> AttemptEnd {
        if let Err(broken) = upstream.judge_end() {
            self.interrupt(candidate, upstream, Cut::Call(broken)).await;
            return AttemptEnd::Over;
        }
        self.boundary.take(Input::UpstreamEnded { complete: true });
        self.completed(upstream);
        AttemptEnd::Over
    }

    /// Sends every whole block that has come.
    async fn forward_blocks(&mut self, upstream: &mut Upstream) -> Result<Flow, Cut> {
        let mut ready: VecDeque<Bytes> = VecDeque::new();
        let result = loop {
            match upstream.splitter.next_block() {
                Ok(None) => break Ok(Flow::More),
                Err(_) if upstream.ended() => break Ok(Flow::Over),
                Err(_) => break Err(Cut::Framing),
                Ok(Some(block)) => match judge_block(upstream, &block) {
                    Judged::Input(_) if upstream.guard.is_none() => ready.push_back(block.raw),
                    Judged::Input(input) => {
                        if let Err(cut) = self.forward_guarded(upstream, input, block, &mut ready) {
                            break Err(cut);
                        }
                        upstream.ripen();
                    }
                    Judged::Broken(broken) => break Err(Cut::Call(broken)),
                    Judged::Fault(fault) => break Err(Cut::Evidence(fault)),
                    Judged::EarlyEnd => break Err(Cut::Truncated),
                    Judged::PastTheEnd => break Ok(Flow::Over),
                },
            }
        };
        self.acted |= upstream.acted;
        self.note_issued(upstream);
        self.note_due(upstream);
        let after = upstream.shown();
        self.job.operation.update(|known| known.after = after);
        for raw in ready {
            self.emit.emit(Out::Data(raw)).await;
        }
        result
    }

    fn note_usage(&mut self, upstream: &Upstream) {
        self.model_served(upstream.reader.served_model());
        let (usage, after) = (upstream.reader.usage(), upstream.shown());
        let finish = upstream.reader.finish_reason().map(str::to_owned);
        self.job.operation.update(|known| {
            known.usage = usage;
            known.after = after;
            known.finish_reason = finish;
        });
    }

    fn accepted_in_silence(&mut self, upstream: &Upstream) {
        self.note_usage(upstream);
        self.attempt_accepted();
        self.job.operation.update(|known| {
            if let Some(attempt) = known.attempts.last_mut() {
                attempt.outcome = Some("accepted");
            }
        });
    }

    fn completed(&mut self, upstream: &Upstream) {
        self.note_usage(upstream);
        self.leave(&upstream.reader.usage());
        self.ended(State::Completed, "", None, vec!["none"]);
    }
}

/// A small slice keeps the whole read of the socket alive; while it is held that would count for more than the hold knows.
fn compact(raw: Bytes) -> Bytes {
    const SMALL: usize = 4096;
    if raw.len() <= SMALL { Bytes::copy_from_slice(&raw) } else { raw }
}

/// Reads one block.
fn judge_block(upstream: &mut Upstream, block: &SseBlock) -> Judged {
    match block.kind {
        BlockKind::Comment => return Judged::Input(Input::Comment),
        BlockKind::NoData => return Judged::Input(Input::NoData(block.raw.len())),
        BlockKind::Event => {}
    }
    let (over, finished) = match upstream.reader.ending() {
        Ending::Terminal => (true, true),
        Ending::Finished => (false, true),
        Ending::Open => (false, false),
    };
    let reading = upstream.reader.read(block.event_name(), &block.data());
    if over && !reading.terminal {
        return Judged::PastTheEnd;
    }
    upstream.acted |= matches!(reading.show, Show::Effect { may_act: true });
    if let Some(fault) = reading.fault {
        return Judged::Fault(fault);
    }
    if reading.terminal && !upstream.complete() {
        return Judged::EarlyEnd;
    }
    upstream.events += 1;
    if let Some(seat) = &mut upstream.seat {
        seat.read(&block.raw, block.event_name(), || block.data());
    }
    upstream.unsettled |= finished && matches!(reading.show, Show::Visible(_) | Show::Effect { .. });
    let size = block.raw.len();
    match upstream.stand(block) {
        Stand::Free => Judged::Input(Input::Event(reading.show, size)),
        Stand::Open => Judged::Input(Input::Waits(size)),
        Stand::Whole => Judged::Input(Input::Whole(size)),
        Stand::Broken(broken) => {
            // Seen, and never sent.
            upstream.waiting.1 += 1;
            Judged::Broken(broken)
        }
    }
}

/// Whether a committed stream goes on.
enum Flow {
    More,
    Over,
}

//! One operation: attempts one after another until one is accepted or the controller stops.
//!
//! The driver is an `async fn` polled by the response body ([`super::emit`]). Every wait before the boundary goes through
//! [`Run::wait_held`], which also sends keep-alives when they are due and hears a stop.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use tokio::time::sleep_until;

use crate::accept::wanted::Wanted;
use crate::attempt::budget::Budget;
use crate::attempt::control::{self, Next, Situation, Stop, Tried};
use crate::attempt::{cost, left_out};
use crate::boundary::hold::HoldLimits;
use crate::boundary::{Boundary, Effect, Input, Phase};
use crate::classify::{self, Class, Context, Evidence, Verdict};
use crate::clock::{Instant, UnixMillis};
use crate::config::settings::{RouteSettings, WorkflowSettings};
use crate::contract::Contract;
use crate::gate::Pass;
use crate::ids::RouteId;
use crate::plan::{self, Plan, Role};
use crate::protocol::Dialect;
use crate::protocol::signal::Usage;
use crate::telemetry::events::Whose;
use crate::telemetry::trace_context::Trace;

use super::app::{App, Current};
use super::auth::Caller;
use super::emit::{Emitter, Head, Out};
use super::idempotency::Claim;
use super::issued;
use super::operations::{Operation, State};
use super::outward;
use super::passage::Entered;
use super::report::Report;
pub use unanswered::error_headers;

mod unanswered;

/// Everything that one operation is made of.
pub struct Job {
    /// The relay.
    pub app: Arc<App>,
    /// The configuration at its admission.
    pub current: Arc<Current>,
    /// Who asks.
    pub caller: Arc<Caller>,
    /// Its record.
    pub operation: Arc<Operation>,
    /// Its workflow.
    pub workflow: Arc<WorkflowSettings>,
    /// What it demands.
    pub contract: Contract,
    /// Who may serve it.
    pub plan: Plan,
    /// The request's body, headers and query as the caller sent them.
    pub body: Bytes,
    /// Headers.
    pub headers: HeaderMap,
    /// Query string.
    pub query: Option<String>,
    /// The client may see routes.
    pub show_routes: bool,
    /// The right and duty to settle its idempotency key, where the caller chose one.
    pub claim: Option<Claim>,
    /// Whose it is, for events.
    pub whose: Whose,
    /// Its place in the caller's trace, where spans are made.
    pub trace: Option<Trace>,
}

/// How an attempt ended.
pub(super) enum AttemptEnd {
    /// The client has its answer, or its interruption: the operation is over.
    Over,
    /// It failed and showed nothing.
    Failed(Failed),
    /// The operation was stopped while nothing was shown.
    Stopped,
}

/// A failed attempt.
pub(super) struct Failed {
    pub(super) verdict: Verdict,
    pub(super) usage: Usage,
    /// It was cut early for a fallback's sake.
    pub(super) cut_early: bool,
    /// The provider was silent until a deadline, its own timers not yet over.
    pub(super) by_deadline: bool,
}

/// What a held wait gave.
pub(super) enum Waited<T> {
    Ready(T),
    TimedOut,
    Stopped,
}

/// A running operation.
pub(super) struct Run {
    pub(super) job: Job,
    pub(super) emit: Emitter,
    pub(super) boundary: Boundary,
    pub(super) wanted: Option<Arc<Wanted>>,
    pub(super) budget: Budget,
    pub(super) tried: Vec<Tried>,
    pub(super) dialect: Dialect,
    /// Candidates that were not asked, and why; known once the controller has stopped.
    pub(super) left_out: Vec<(RouteId, plan::Refusal)>,
    /// A hosted tool that may change the world has started, in whatever attempt.
    pub(super) acted: bool,
    /// An attempt is going on: its request may be on its way, and its provider may go on when nobody listens any more.
    in_attempt: bool,
    /// The right to make the attempt that is going on, held to the end of its stream.
    pub(super) pass: Option<Pass>,
    /// The route of the first attempt, whose shared budget pays for all further ones.
    pub(super) first_route: Option<RouteId>,
    /// When the attempt that is going on began.
    pub(super) attempt_at: Instant,
    /// When the last failure was judged, from which its waits count.
    judged_at: Instant,
    /// When the next keep-alive is due; `None`: never.
    pub(super) keepalive_at: Option<Instant>,
    /// What is told of it.
    pub(super) report: Report,
}

/// Runs an operation to its end. Dropping the future (the client left) cancels whatever is going on; also one that was never polled
/// tells of its end.
pub fn run(job: Job, emit: Emitter) -> impl Future<Output = ()> + Send {
    let contract = &job.contract;
    let admitted = job.operation.admitted;
    let budget = Budget::new(admitted, contract.deadline(), contract.envelope, contract.attempts_used);
    let hold = job.workflow.hold;
    let limits = HoldLimits { events_max: hold.max_events, bytes_max: hold.max_bytes };
    let keepalive_at = hold.keepalive_after.filter(|_| contract.facts.stream).map(|after| admitted + after);
    let (policy, wanted) = super::stream::policy(&job);
    let mut run = Run {
        wanted,
        boundary: Boundary::new(policy, job.workflow.reasoning_held, limits),
        tried: vec![Tried::default(); job.plan.candidates.len()],
        dialect: contract.endpoint.dialect(),
        budget,
        keepalive_at,
        job,
        emit,
        left_out: Vec::new(),
        acted: false,
        in_attempt: false,
        pass: None,
        first_route: None,
        attempt_at: admitted,
        judged_at: admitted,
        report: Report::default(),
    };
    async move { run.drive().await }
}

impl Drop for Run {
    fn drop(&mut self) {
        // A driver whose last word was an abort is dropped too: what it said of its end stands.
        if !self.job.operation.is_running() {
            return;
        }
        // The body was dropped before its end: the client left, or took nothing any more while it was stopped. Everything this
        // owned (the upstream too) goes with it.
        let (state, reason) = if self.job.operation.was_stopped() {
            (State::Stopped, "stopped")
        } else if self.job.operation.stop.is_cancelled() {
            (State::Interrupted, "shutting_down")
        } else {
            (State::Interrupted, "client_gone")
        };
        self.settle_unseen(reason);
        self.ended_unfinished(state, reason);
    }
}

impl Run {
    async fn drive(&mut self) {
        let mut last: Option<(usize, Failed)> = None;
        while let Some(candidate) = self.next(last.as_ref()).await {
            let (_, estimate) = self.needs_of(candidate);
            self.budget.begin(estimate);
            self.boundary.next_attempt();
            if let Some(tried) = self.tried.get_mut(candidate) {
                tried.attempts += 1;
            }
            self.attempt_began(candidate, estimate);
            self.in_attempt = true;
            let streaming = self.job.contract.facts.stream;
            let end =
                if streaming { self.stream_attempt(candidate).await } else { self.answer_attempt(candidate).await };
            let failed = match end {
                AttemptEnd::Over => return,
                // It was cut short: what it asked for may have been done.
                AttemptEnd::Stopped => return self.stopped().await,
                AttemptEnd::Failed(failed) => failed,
            };
            // It has an end of its own, which the controller judges.
            self.in_attempt = false;
            self.settle_attempt(candidate, estimate, &failed);
            last = Some((candidate, failed));
        }
    }

    /// The candidate of the next attempt, let in by the gate. `None`: there is none, and the caller was told.
    async fn next(&mut self, last: Option<&(usize, Failed)>) -> Option<usize> {
        // Each turn that the gate refuses shuts a candidate, so the turns are bounded.
        loop {
            let next = match last {
                None => self.first(),
                Some((candidate, failed)) => self.decide(*candidate, failed),
            };
            let (candidate, wait) = match (next, last) {
                (Next::Attempt { candidate, wait }, _) => (candidate, wait),
                (Next::Stop { reason, class }, Some((_, failed))) => {
                    self.refuse(reason, class, &failed.verdict).await;
                    return None;
                }
                (Next::Stop { reason, class }, None) => {
                    if reason == Stop::CostExhausted {
                        self.leave_out(&left_out::unaffordable(&self.budget, &self.needs()));
                    }
                    self.refuse_without_call(reason, class).await;
                    return None;
                }
            };
            if !wait.is_zero() {
                let until = Instant::now() + wait;
                if matches!(self.wait_held(std::future::pending::<()>(), until).await, Waited::Stopped) {
                    self.stopped().await;
                    return None;
                }
            }
            if self.enter(candidate) == Entered::In {
                return Some(candidate);
            }
        }
    }

    /// The first attempt, or why there is none.
    fn first(&self) -> Next {
        let (plan, primary) = (&self.job.plan, &self.job.workflow.primary.name);
        match control::begin(plan, &self.tried, primary, &self.budget, &self.needs()) {
            Ok(candidate) => Next::Attempt { candidate, wait: Duration::ZERO },
            Err(reason) => Next::Stop { reason, class: Class::Unclassified },
        }
    }

    pub(super) fn route(&self, candidate: usize) -> Arc<RouteSettings> {
        self.job.plan.candidates.get(candidate).map_or_else(
            || Arc::clone(&self.job.workflow.primary), // an index of the plan always is one of it
            |candidate| Arc::clone(&candidate.route),
        )
    }

    fn needs_of(&self, candidate: usize) -> (Duration, f64) {
        let route = self.route(candidate);
        (self.job.app.observed.need(&route.name), cost::estimate(&route, &self.job.contract.facts))
    }

    pub(super) fn needs(&self) -> Vec<(Duration, f64)> {
        (0..self.job.plan.candidates.len()).map(|index| self.needs_of(index)).collect()
    }

    /// Settles a failed attempt: what it cost, and what it says of its route.
    fn settle_attempt(&mut self, candidate: usize, estimate: f64, failed: &Failed) {
        let now = Instant::now();
        self.judged_at = now;
        let route = self.route(candidate);
        let verdict = &failed.verdict;
        // Proof of not having been processed is proof of not being billed.
        let actual = cost::actual(&route, &failed.usage).or((!verdict.may_have_run).then_some(0.0));
        self.budget.settle(estimate, actual);
        if let Some(tried) = self.tried.get_mut(candidate) {
            tried.class = Some(verdict.class);
            tried.ready_at = verdict.retry_after.map(|wait| now + wait);
        }
        self.route_failed(candidate, failed, now);
        self.attempt_failed(verdict, failed.usage, actual);
    }

    /// Asks the controller, and whether the shared budget allows what it wants.
    fn decide(&mut self, candidate: usize, failed: &Failed) -> Next {
        let now = Instant::now();
        let needs = self.needs();
        let situation = Situation {
            plan: &self.job.plan,
            tried: &self.tried,
            failed: candidate,
            verdict: &failed.verdict,
            budget: &self.budget,
            needs: &needs,
            cut_early: failed.cut_early,
            hosted_may_act: self.job.contract.hosted_may_act(),
            acted: self.acted,
            wait_first: self.job.workflow.failover.wait_first,
            now,
            random: super::app::random_u64(),
        };
        let next = match control::decide(&situation) {
            Next::Attempt { .. } if !self.may_try_further(now) => {
                self.job.app.telemetry.metrics().retry_budget_refused();
                Next::Stop { reason: Stop::RetryBudgetExhausted, class: failed.verdict.class }
            }
            next => next,
        };
        let left = if matches!(next, Next::Stop { .. }) { left_out::left_out(&situation) } else { Vec::new() };
        self.leave_out(&left);
        next
    }

    fn leave_out(&mut self, left: &[(usize, plan::Refusal)]) {
        let named = left.iter().map(|(index, reason)| (self.route(*index).name.clone(), reason.clone()));
        self.left_out = named.collect();
    }

    /// Waits for `future`, at most until `until`, while nothing is shown: keep-alives go out when due, a stop is heard.
    pub(super) async fn wait_held<F: Future>(&mut self, future: F, until: Instant) -> Waited<F::Output> {
        let stop = self.job.operation.stop.clone();
        let mut future = std::pin::pin!(future);
        let mut stopped = std::pin::pin!(stop.cancelled());
        loop {
            let tick = self.keepalive_at;
            tokio::select! {
                biased;
                () = &mut stopped => return Waited::Stopped,
                output = &mut future => return Waited::Ready(output),
                () = sleep_until(until) => return Waited::TimedOut,
                () = sleep_until(tick.unwrap_or(until)), if tick.is_some() => self.keepalive().await,
            }
        }
    }

    async fn keepalive(&mut self) {
        let every = self.job.workflow.hold.keepalive_after;
        self.keepalive_at = every.map(|every| Instant::now() + every);
        let first = self.boundary.phase() == Phase::Holding;
        if self.boundary.take(Input::KeepaliveDue) == Effect::Keepalive {
            if first {
                let mut head = self.stream_head(StatusCode::OK, None);
                // What will have been needed is not known yet.
                head.headers.remove("rubicon-attempts");
                head.headers.remove("rubicon-recovery");
                head.headers.remove("rubicon-served-route");
                self.emit.emit(Out::Head(head)).await;
            }
            self.emit.emit(Out::Data(self.dialect.keepalive(false, self.job.contract.official_sdk))).await;
        }
    }

    /// Sends the head unless keep-alives have sent one already.
    pub(super) async fn head(&mut self, phase_before: Phase, head: Head) {
        if phase_before == Phase::Holding {
            self.emit.emit(Out::Head(head)).await;
        }
    }

    /// The head of a streamed answer.
    pub(super) fn stream_head(&self, status: StatusCode, upstream: Option<(&HeaderMap, usize)>) -> Head {
        let mut head = self.answer_head(status, upstream);
        // A provider that labels its stream otherwise is understood all the same, but not passed on.
        let labelled =
            head.headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
        if !labelled {
            let value = HeaderValue::from_static("text/event-stream; charset=utf-8");
            head.headers.insert(CONTENT_TYPE, value);
        }
        head.headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
        head
    }

    /// The head of any accepted answer: the provider's content type and request id, and the relay's own headers.
    pub(super) fn answer_head(&self, status: StatusCode, upstream: Option<(&HeaderMap, usize)>) -> Head {
        let mut headers = self.own_headers();
        if let Some((from, candidate)) = upstream {
            if let Some(value) = from.get(CONTENT_TYPE) {
                headers.insert(CONTENT_TYPE, value.clone());
            }
            if let Some(value) = super::secrets::request_id(&self.job.current.settings, from) {
                headers.insert(HeaderName::from_static("rubicon-provider-request-id"), value);
            }
            headers.insert(
                HeaderName::from_static("rubicon-recovery"),
                HeaderValue::from_static(self.recovery(candidate)),
            );
            if self.job.show_routes {
                let name = self.route(candidate).name.clone();
                if let Ok(value) = HeaderValue::from_str(name.as_str()) {
                    headers.insert(HeaderName::from_static("rubicon-served-route"), value);
                }
            }
        }
        // Only standard status codes go out (FIELD_CASES F38).
        let status = if matches!(status.as_u16(), 200..=206) { status } else { StatusCode::OK };
        Head { status, headers }
    }

    fn own_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::from_str(self.job.operation.id.as_str()) {
            headers.insert(HeaderName::from_static("rubicon-operation-id"), value);
        }
        headers.insert(HeaderName::from_static("rubicon-attempts"), self.budget.attempts.into());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers
    }

    /// The field of state by which the request goes on with what another account than the primary's began.
    fn begun_elsewhere(&self) -> Option<&'static str> {
        issued::begun_elsewhere(&self.job.plan, &self.job.workflow.primary.name)
    }

    /// `Rubicon-Recovery`.
    pub(super) fn recovery(&self, candidate: usize) -> &'static str {
        match self.job.plan.candidates.get(candidate).map(|candidate| candidate.role) {
            // It goes on where its state is: nothing was to be recovered.
            Some(_) if self.budget.attempts <= 1 && self.begun_elsewhere().is_some() => "none",
            Some(Role::Planned | Role::Equivalent) => "equivalent_failover",
            Some(Role::Alternate) => "cross_model_fallback",
            _ if self.budget.attempts > 1 => "retry",
            _ => "none",
        }
    }

    pub(super) fn classify(&self, candidate: usize, evidence: &Evidence<'_>) -> Verdict {
        let context = Context {
            dialect: self.dialect,
            ambiguous_429_is_rate_limit: self.route(candidate).provider.ambiguous_429_is_rate_limit,
            now: UnixMillis::now(),
        };
        let mut verdict = classify::classify(evidence, &context);
        if let Some(key) = self.route(candidate).provider.credential() {
            verdict.said.mask_exactly(key.expose());
        }
        verdict
    }

    pub(super) fn facts(&self) -> outward::Facts<'_> {
        outward::Facts {
            operation: &self.job.operation.id,
            attempts: self.budget.attempts,
            exhausted_status: self.job.current.settings.server.exhausted_status,
            plan: self.job.show_routes.then_some(&self.job.plan),
            left_out: &self.left_out,
        }
    }

    /// Whether a tool that the provider runs may have changed the world, and nobody knows: one has started, or one is declared and
    /// an attempt was cut short.
    pub(super) fn uncertain(&self) -> bool {
        self.acted || (self.in_attempt && self.job.contract.hosted_may_act())
    }

    /// Notes an end that is neither the provider's nor a failure's: stopped, left, shut down.
    pub(super) fn ended_unfinished(&mut self, state: State, reason: &str) {
        let uncertain = self.uncertain();
        self.job.operation.update(|known| known.unresolved_executions = u32::from(uncertain));
        let class = uncertain.then_some(Class::SideEffectUncertain);
        self.ended(state, reason, class, vec![if uncertain { "reconcile" } else { "restart" }]);
    }
}

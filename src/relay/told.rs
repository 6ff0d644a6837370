//! The one event of a request that came to no driver of its own: refused before any call, joined to or replayed from another request
//! with the same key, left by its client meanwhile. Passthrough calls, which have no operation, tell of themselves with it, too.
//!
//! A [`Told`] is made when a request arrives and filled in as more is known. Whoever forgets it (the connection broke, and the
//! handler's future was dropped) has told that the client left. Once an operation's driver exists ([`Told::hand_over`]), the driver
//! tells.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use crate::classify::Class;
use crate::clock::{Instant, UnixMillis};
use crate::config::settings::WorkflowSettings;
use crate::contract::{Contract, Endpoint};
use crate::ids::RouteId;
use crate::protocol::Dialect;
use crate::reply::Outward;
use crate::telemetry::Telemetry;
use crate::telemetry::events::{Call, RequestEvent, RequestState, Whose, said};
use crate::telemetry::trace_context::Trace;

use super::app::random_u64;
use super::auth::Caller;

/// What there is to tell of a request so far.
#[derive(Debug)]
pub struct Told {
    telemetry: Arc<Telemetry>,
    began: Instant,
    /// Whose request it is, as far as it is known.
    pub whose: Whose,
    /// Its place in the caller's trace.
    pub trace: Option<Trace>,
    /// The route it went to, where there is no attempt to tell.
    pub route: Option<RouteId>,
    replay: Option<&'static str>,
    /// The status of an answer whose head is on its way: the request ends with its body.
    shown: Option<StatusCode>,
    done: bool,
}

/// Which call an endpoint is.
pub fn call_of(endpoint: Endpoint) -> Call {
    if endpoint == Endpoint::CountTokens { Call::CountTokens } else { Call::Chat }
}

impl Told {
    /// A request has come.
    pub fn new(telemetry: &Arc<Telemetry>, call: Call, dialect: Dialect, headers: &HeaderMap) -> Self {
        let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
        Self {
            telemetry: Arc::clone(telemetry),
            began: Instant::now(),
            whose: Whose { call, dialect: Some(dialect), ..Whose::default() },
            trace: telemetry.trace(traceparent, random_u64),
            route: None,
            replay: None,
            shown: None,
            done: false,
        }
    }

    /// Its caller is known.
    pub fn caller(&mut self, caller: &Caller) {
        self.whose.client = Some(caller.client.clone());
        self.whose.tenant = Some(caller.tenant.clone());
    }

    /// What it asks for is known.
    pub fn contract(&mut self, workflow: &WorkflowSettings, contract: &Contract) {
        self.workflow(workflow);
        self.whose.stream = Some(contract.facts.stream);
        self.whose.requested_model = contract.facts.model.as_ref().map(|(name, _)| said(name));
    }

    /// It passes through to its workflow's primary, with no attempt of its own. Its line is written at the end of the answer's
    /// body.
    pub fn passing(&mut self, workflow: &WorkflowSettings) {
        self.workflow(workflow);
        self.whose.call = Call::Passthrough;
        self.route = Some(workflow.primary.name.clone());
    }

    fn workflow(&mut self, workflow: &WorkflowSettings) {
        self.whose.workflow = Some(workflow.name.clone());
        self.whose.workflow_version = Some(workflow.version);
    }

    /// It gets the answer of another request with the same key: `joined` or `replayed`.
    pub fn replay(&mut self, how: &'static str) {
        self.replay = Some(how);
    }

    /// An operation's driver tells from now on.
    pub fn hand_over(&mut self) {
        self.done = true;
    }

    /// The answer's head is there: whoever makes the body tells how it ended, and this one nothing more.
    pub fn showing(&mut self, status: StatusCode) -> Self {
        let done = Self {
            telemetry: Arc::clone(&self.telemetry),
            began: self.began,
            whose: Whose::default(),
            trace: None,
            route: None,
            replay: None,
            shown: None,
            done: true,
        };
        let mut told = std::mem::replace(self, done);
        told.shown = Some(status);
        told
    }

    /// What was being shown ended before its end.
    pub fn cut(mut self, reason: &str, class: Option<Class>) {
        let status = self.shown.map(|status| status.as_u16());
        self.tell(RequestState::Interrupted, Some(reason.to_owned()), class, status);
    }

    /// The relay refused it.
    pub fn refused(mut self, failure: &Outward) {
        let gone = failure.rubicon.reason == CLIENT_GONE;
        let status = (!gone).then_some(failure.status);
        self.tell(RequestState::Refused, Some(failure.rubicon.reason.clone()), failure.rubicon.class, status);
    }

    /// It was answered.
    pub fn answered(mut self, status: StatusCode) {
        let state = if self.replay.is_some() { RequestState::Replayed } else { RequestState::Completed };
        self.tell(state, None, None, Some(status.as_u16()));
    }

    fn tell(&mut self, state: RequestState, reason: Option<String>, class: Option<Class>, status: Option<u16>) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        let took = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let whose = std::mem::take(&mut self.whose);
        let event = RequestEvent::without_attempt(whose, state, UnixMillis::now(), took);
        let event = RequestEvent { reason, class, status, replay: self.replay, route: self.route.take(), ..event };
        self.telemetry.request(&event, self.trace.as_ref());
    }
}

/// Why a request without a client is over.
pub const CLIENT_GONE: &str = "client_gone";

impl Drop for Told {
    fn drop(&mut self) {
        let state = if self.shown.is_some() { RequestState::Interrupted } else { RequestState::Refused };
        let status = self.shown.map(|status| status.as_u16());
        self.tell(state, Some(CLIENT_GONE.to_owned()), None, status);
    }
}

//! What every call of the ledger goes through first: who it is, whether there is room, its body; and the permit that it holds until the
//! last byte of its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request};
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::relay::admission::Permit;
use crate::relay::app::{App, Current};
use crate::relay::auth::Caller;
use crate::relay::intake::{self, Answer};
use crate::relay::transport::Transport;

use super::answer::Problem;

/// A request, let in and read.
#[derive(Debug)]
pub(super) struct Asked {
    /// The configuration of its moment.
    pub(super) current: Arc<Current>,
    /// Whose it is.
    pub(super) caller: Arc<Caller>,
    /// Its headers.
    pub(super) headers: HeaderMap,
    /// Its body, whole.
    pub(super) body: Bytes,
    /// The client's connection.
    pub(super) transport: Option<Transport>,
    permit: Permit,
}

impl Asked {
    /// New work: none is taken once a shutdown has begun.
    pub(super) async fn new(app: &App, request: Request<Body>, body_max: usize) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let current = app.current();
        let (caller, permit) = intake::enter(app, &current, &parts)?;
        Self::read(current, caller, permit, parts, body, body_max).await
    }

    /// A word about a run that goes on: taken during a shutdown too, since what happened is better known than not.
    pub(super) async fn about_a_run(app: &App, request: Request<Body>, body_max: usize) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let current = app.current();
        let (caller, permit) = intake::enter_draining(app, &current, &parts)?;
        Self::read(current, caller, permit, parts, body, body_max).await
    }

    async fn read(
        current: Arc<Current>,
        caller: Arc<Caller>,
        permit: Permit,
        parts: Parts,
        body: Body,
        body_max: usize,
    ) -> Result<Self, Problem> {
        intake::check_content(&parts.headers)?;
        let body = intake::read_body(body, body_max.min(current.settings.server.max_body_bytes)).await?;
        let transport = parts.extensions.get::<Transport>().cloned();
        if let Some(transport) = &transport {
            transport.body_read();
        }
        Ok(Self { current, caller, headers: parts.headers, body, transport, permit })
    }

    /// The answer keeps the permit.
    pub(super) fn hold(self, answer: Answer) -> Answer {
        answer.map(|body| Body::new(Held { body, _permit: self.permit }))
    }
}

pin_project! {
    struct Held {
        #[pin]
        body: Body,
        _permit: Permit,
    }
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

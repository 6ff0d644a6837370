//! A committed stream that is cut: why, and the last words that its client gets.

use std::time::Duration;

use super::super::emit::Out;
use super::super::operation::Run;
use super::super::operations::State;
use super::super::outward::{self, Interruption};
use super::Upstream;
use crate::accept::Broken;
use crate::boundary::Input;
use crate::classify::{Class, Evidence, Verdict};
use crate::protocol::signal::Fault;

/// Why a committed stream is cut.
pub(super) enum Cut {
    Evidence(Fault),
    Transport,
    Truncated,
    Framing,
    Idle(Duration),
    Total(Duration),
    Stopped,
    /// A tool call that must not be shown, which others began before it.
    Call(Broken),
}

impl Run {
    /// The last frame of a committed stream, and the abort.
    pub(super) async fn interrupt(&mut self, candidate: usize, upstream: &Upstream, cut: Cut) {
        self.boundary.take(Input::Failure);
        self.used(&upstream.spent());
        let failure = if matches!(cut, Cut::Stopped) {
            let by_shutdown = !self.job.operation.was_stopped();
            let failure = outward::stopped(&self.facts(), by_shutdown, Some(upstream.shown()), self.uncertain());
            self.note_usage(upstream);
            let state = if by_shutdown { State::Interrupted } else { State::Stopped };
            self.ended_unfinished(state, &failure.rubicon.reason.clone());
            failure
        } else {
            if matches!(cut, Cut::Evidence(_) | Cut::Framing | Cut::Call(_)) {
                self.answer_spoilt();
            }
            let (what, verdict) = self.describe(candidate, upstream, &cut);
            let verdict = verdict.as_ref();
            let interruption = Interruption { after: upstream.shown(), acted: self.acted, what: &what, verdict };
            let failure = outward::interrupted(&self.facts(), &interruption);
            self.note_usage(upstream);
            let unresolved = u32::from(self.acted);
            self.job.operation.update(|known| known.unresolved_executions = unresolved);
            let class = failure.rubicon.class.unwrap_or(Class::PartialOutput);
            let actions = failure.rubicon.actions.clone().unwrap_or_default();
            tracing::info!(operation = %self.job.operation.id, what, "stream interrupted");
            self.ended(State::Interrupted, &failure.rubicon.reason.clone(), Some(class), actions);
            failure
        };
        let failure = outward::with_executions(failure, self.unresolved_executions().await);
        self.emit.emit(Out::Abort(self.dialect.error_frame(&failure, &upstream.reader.place()))).await;
    }

    fn describe(&self, candidate: usize, upstream: &Upstream, cut: &Cut) -> (String, Option<Verdict>) {
        let judged = |evidence: &Evidence<'_>| Some(self.classify(candidate, evidence));
        match cut {
            Cut::Evidence(fault) => (
                "the provider reported an error".to_owned(),
                judged(&Evidence::Fault { fault, headers: &upstream.headers }),
            ),
            Cut::Transport => ("the provider's connection broke".to_owned(), None),
            Cut::Truncated => ("the provider ended its stream without its end marker".to_owned(), None),
            Cut::Framing => ("the provider sent an event over the size limit".to_owned(), None),
            Cut::Idle(idle) => (format!("the provider sent nothing for {} ms", idle.as_millis()), None),
            Cut::Total(total) => (format!("the stream took longer than {} ms", total.as_millis()), None),
            Cut::Stopped => ("stopped".to_owned(), None),
            Cut::Call(broken) => (broken.what().to_owned(), None),
        }
    }
}

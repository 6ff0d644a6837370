//! What can be watched (SPEC section 11): log lines, event lines, metrics, traces.
//!
//! `names.rs`, `ledger_names.rs`, `span_names.rs` and `fields.rs` have every name, `words.rs` the closed lists; `events.rs` what is told of an attempt, a request, an
//! outcome, an alarm, `executions.rs` what is told of executions and their ledger; [`Telemetry`] takes such an
//! event once and makes of it the line (`writer.rs`, `lines.rs`), the counts (`metrics.rs`) and the span (`traces.rs`, `trace_context.rs`). `log.rs` is
//! the log for people, on standard error, which is another thing than the event lines. `TELEMETRY.md` lists it all.
//!
//! Nothing here blocks a request or fails one: queues are bounded, what does not fit is dropped and counted.

#[cfg(test)]
mod doc;
pub mod events;
pub mod executions;
pub mod fields;
pub mod ledger_names;
pub mod lines;
pub mod log;
pub mod metrics;
pub mod names;
pub mod span_names;
pub mod trace_context;
pub mod traces;
pub mod words;
pub mod writer;

use std::sync::atomic::AtomicBool;

use crate::clock::UnixMillis;
use crate::config::settings::Settings;
use crate::ids::{OperationId, RouteId};

use events::{AlarmEvent, AlarmKind, AttemptEvent, RequestEvent, TaskEvent, Time};
use metrics::Metrics;
use trace_context::Trace;
use traces::Traces;
use writer::EventWriter;

pub use log::{init, say};

/// Everything that one relay tells of itself.
#[derive(Debug)]
pub struct Telemetry {
    metrics: Metrics,
    writer: EventWriter,
    traces: Option<Traces>,
    /// The ledger was seen unavailable: one alarm each time it becomes so.
    ledger_down: AtomicBool,
}

impl Telemetry {
    /// Starts writing events and exporting spans as the settings say. `tls` is for a collector over HTTPS.
    ///
    /// # Errors
    /// When the events' file can't be opened or the exporter can't be built; the message names the key.
    pub fn start(settings: &Settings, tls: &rustls::ClientConfig, now: UnixMillis) -> Result<Self, String> {
        let metrics = Metrics::default();
        metrics.config_taken(settings, 1, now);
        let writer = EventWriter::start(&settings.log.events, metrics.events_dropped())?;
        let url = settings.telemetry.otlp_traces_url.as_deref();
        let traces = url.map(|url| Traces::start(url, tls, metrics.spans_dropped())).transpose()?;
        Ok(Self { metrics, writer, traces, ledger_down: AtomicBool::new(false) })
    }

    /// A new configuration is in force: event lines go where it says (a file is opened anew), gauges follow. The collector stays the
    /// one of the start.
    ///
    /// # Errors
    /// When the events' file can't be opened: events go on to where they went.
    pub fn reloaded(&self, settings: &Settings, generation: u64, now: UnixMillis) -> Result<(), String> {
        self.metrics.config_taken(settings, generation, now);
        self.writer.direct(&settings.log.events)
    }

    /// What is counted otherwise than by an event: gauges, sheds, the retry budget, reloads.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The text of `GET /metrics`; its content type is [`metrics::CONTENT_TYPE`].
    pub fn render_metrics(&self) -> String {
        self.metrics.render()
    }

    /// The place of an operation in its caller's trace; `None` where no span is wanted. `random` draws 64 bits.
    pub fn trace(&self, traceparent: Option<&str>, random: impl FnMut() -> u64) -> Option<Trace> {
        self.traces.as_ref().and_then(|_| Trace::of(traceparent, random))
    }

    /// An attempt has ended. `span`: its operation's trace and its own span id.
    pub fn attempt(&self, event: &AttemptEvent, span: Option<(&Trace, u64)>) {
        self.metrics.attempt(event);
        self.line(event);
        if let (Some(traces), Some((trace, span_id))) = (&self.traces, span) {
            traces.attempt(event, trace, span_id);
        }
    }

    /// A request has ended. Exactly one a request of the data plane, whatever became of it.
    pub fn request(&self, event: &RequestEvent, trace: Option<&Trace>) {
        self.metrics.request(event);
        self.line(event);
        if let (Some(traces), Some(trace)) = (&self.traces, trace) {
            traces.request(event, trace);
        }
    }

    /// The application gave its word.
    pub fn task(&self, event: &TaskEvent) {
        self.metrics.outcome(&event.workflow, event.outcome);
        self.line(event);
    }

    /// Somebody should be woken.
    pub fn alarm(&self, kind: AlarmKind, operation: Option<&OperationId>, route: Option<&RouteId>, now: UnixMillis) {
        self.metrics.alarm(kind);
        let (operation, route) = (operation.cloned(), route.cloned());
        let (execution, tool) = (None, None);
        self.line(&AlarmEvent { event: "alarm", time: Time(now), kind, operation, route, execution, tool });
    }

    /// Writes out what is queued, within bounds ([`lines::FLUSH_MAX`], [`traces::FLUSH_MAX`]).
    pub async fn flush(&self) {
        if !self.writer.flush().await {
            tracing::warn!("the last event lines were not written in time");
        }
        if let Some(traces) = &self.traces {
            traces.flush().await;
        }
    }

    fn line(&self, event: &impl serde::Serialize) {
        if self.writer.is_on()
            && let Ok(line) = serde_json::to_vec(event)
        {
            self.writer.line(line);
        }
    }
}

//! Spans, and their way to a collector over OTLP/HTTP (protobuf), where one is configured; unset: off and free.
//!
//! A span an operation (`chat {model}`, kind server) with a child an attempt (kind client), made from the same events as lines and
//! metrics when they end. A task takes them off a bounded queue and exports them in batches; a request never waits, a full queue or
//! a collector that fails costs spans, which are counted. The SDK's own batch processor is not used: its thread can't drive an async
//! HTTP client, and what it drops is not counted where we could show it.
//!
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` do what OpenTelemetry says.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::clock::UnixMillis;

use super::events::{AttemptEvent, AttemptResult, RequestEvent, RequestState, Time, Tokens};
use super::names::{self, span};
use super::trace_context::Trace;

/// Spans that may wait: OpenTelemetry's default. A span is about a kilobyte.
pub const QUEUE_SPANS_MAX: usize = 2048;

/// Spans a batch at most: OpenTelemetry's default.
const BATCH_SPANS_MAX: usize = 512;

/// How long the first span of a batch waits for more.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// How long one export may take, its repetitions included. Spans that come meanwhile queue.
const EXPORT_MAX: Duration = Duration::from_secs(10);

/// How long a shutdown waits for the last export.
pub const FLUSH_MAX: Duration = Duration::from_secs(2);

enum Item {
    Span(Box<SpanData>),
    Flush(oneshot::Sender<()>),
}

/// The exporter of one relay.
#[derive(Debug)]
pub struct Traces {
    sender: mpsc::Sender<Item>,
    dropped: Counter,
    scope: InstrumentationScope,
}

impl Traces {
    /// Starts exporting to `url` (`…/v1/traces`). Ends with the value. Must be called within a runtime.
    ///
    /// # Errors
    /// When the URL or one of OpenTelemetry's environment variables can't be used.
    pub fn start(url: &str, tls: &rustls::ClientConfig, dropped: Counter) -> Result<Self, String> {
        let fail = |error: &dyn std::fmt::Display| format!("telemetry.otlp_endpoint: {error}");
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls.clone())
            .https_or_http()
            .enable_http1()
            .build();
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(HyperClient::new(connector, EXPORT_MAX, None))
            .with_endpoint(url)
            .with_protocol(Protocol::HttpBinary)
            .build()
            .map_err(|error| fail(&error))?;
        exporter.set_resource(&resource());
        let (sender, receiver) = mpsc::channel(QUEUE_SPANS_MAX);
        let runtime = tokio::runtime::Handle::try_current().map_err(|error| fail(&error))?;
        runtime.spawn(export_all(receiver, exporter, dropped.clone()));
        let scope = InstrumentationScope::builder(names::SCOPE).with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Self { sender, dropped, scope })
    }

    /// Waits until everything queued so far was exported, or failed to be, at most [`FLUSH_MAX`].
    pub async fn flush(&self) {
        let (done, exported) = oneshot::channel();
        let flush = async {
            if self.sender.send(Item::Flush(done)).await.is_ok() {
                let _ = exported.await;
            }
        };
        if timeout(FLUSH_MAX, flush).await.is_err() {
            tracing::warn!("the last spans were not exported in time");
        }
    }

    pub(super) fn request(&self, event: &RequestEvent, trace: &Trace) {
        let whose = &event.whose;
        let error = match event.state {
            RequestState::Completed | RequestState::Replayed => None,
            _ => event.class.map(|class| class.name().to_owned()).or_else(|| event.reason.clone()),
        };
        let mut attributes = Attributes::default();
        attributes.text(span::OPERATION_NAME, Some(whose.call.name()));
        attributes.text(span::REQUEST_MODEL, whose.requested_model.as_deref());
        attributes.text(span::RESPONSE_MODEL, event.served_model.as_deref());
        attributes.tokens(&event.tokens);
        attributes.text(span::ERROR_TYPE, error.as_deref());
        attributes.number(span::STATUS, event.status.map(u64::from));
        attributes.text(span::OPERATION_ID, whose.operation.as_ref().map(crate::ids::OperationId::as_str));
        attributes.text(span::WORKFLOW, whose.workflow.as_ref().map(crate::ids::WorkflowId::as_str));
        attributes.number(span::WORKFLOW_VERSION, whose.workflow_version);
        attributes.text(span::ROUTE, event.route.as_ref().map(crate::ids::RouteId::as_str));
        attributes.text(span::STATE, Some(event.state.name()));
        attributes.text(span::CLASS, event.class.map(crate::class::Class::name));
        attributes.text(span::REASON, event.reason.as_deref());
        attributes.text(span::RECOVERY, Some(event.recovery.workflow));
        attributes.number(span::FIRST_OUTPUT_MS, event.first_output_ms);
        let name = span_name(whose.call.name(), whose.requested_model.as_deref());
        let ids = Ids { trace, span_id: trace.span_id, parent: trace.parent, remote: true };
        self.send(&ids, name, SpanKind::Server, (event.time, event.duration_ms), attributes, error);
    }

    pub(super) fn attempt(&self, event: &AttemptEvent, trace: &Trace, span_id: u64) {
        let whose = &event.whose;
        let error = (event.result != AttemptResult::Accepted)
            .then(|| event.class.map_or_else(|| "unfinished".to_owned(), |class| class.name().to_owned()));
        let mut attributes = Attributes::default();
        attributes.text(span::OPERATION_NAME, Some(whose.call.name()));
        attributes.text(span::PROVIDER_NAME, Some(event.provider_kind));
        attributes.text(span::REQUEST_MODEL, event.sent_model.as_deref());
        attributes.text(span::RESPONSE_MODEL, event.served_model.as_deref());
        attributes.tokens(&event.tokens);
        attributes.text(span::ERROR_TYPE, error.as_deref());
        attributes.number(span::STATUS, event.status.map(u64::from));
        attributes.text(span::OPERATION_ID, whose.operation.as_ref().map(crate::ids::OperationId::as_str));
        attributes.text(span::WORKFLOW, whose.workflow.as_ref().map(crate::ids::WorkflowId::as_str));
        attributes.number(span::ATTEMPT, Some(u64::from(event.attempt)));
        attributes.text(span::KIND, Some(event.kind.name()));
        attributes.text(span::ROUTE, Some(event.route.as_str()));
        attributes.text(span::CLASS, event.class.map(crate::class::Class::name));
        attributes.number(span::FIRST_OUTPUT_MS, event.first_output_ms);
        let name = span_name(whose.call.name(), event.sent_model.as_deref());
        let ids = Ids { trace, span_id, parent: trace.span_id, remote: false };
        self.send(&ids, name, SpanKind::Client, (event.time, event.duration_ms), attributes, error);
    }

    fn send(
        &self,
        ids: &Ids<'_>,
        name: String,
        span_kind: SpanKind,
        (time, took_ms): (Time, u64),
        attributes: Attributes,
        error: Option<String>,
    ) {
        let context = SpanContext::new(
            TraceId::from(ids.trace.trace_id),
            SpanId::from(ids.span_id),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        );
        let data = SpanData {
            span_context: context,
            parent_span_id: SpanId::from(ids.parent),
            parent_span_is_remote: ids.remote && ids.parent != 0,
            span_kind,
            name: Cow::Owned(name),
            start_time: system_time(time.0.0.saturating_sub(took_ms)),
            end_time: system_time(time.0.0),
            attributes: attributes.0,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: error.map_or(Status::Unset, Status::error),
            instrumentation_scope: self.scope.clone(),
        };
        if self.sender.try_send(Item::Span(Box::new(data))).is_err() {
            self.dropped.inc();
        }
    }
}

struct Ids<'a> {
    trace: &'a Trace,
    span_id: u64,
    parent: u64,
    remote: bool,
}

#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn text(&mut self, key: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.0.push(KeyValue::new(key, value.to_owned()));
        }
    }

    fn number(&mut self, key: &'static str, value: Option<u64>) {
        if let Some(value) = value {
            self.0.push(KeyValue::new(key, Value::I64(i64::try_from(value).unwrap_or(i64::MAX))));
        }
    }

    fn tokens(&mut self, tokens: &Tokens) {
        self.number(span::INPUT_TOKENS, tokens.input_tokens);
        self.number(span::OUTPUT_TOKENS, tokens.output_tokens);
    }
}

fn span_name(operation: &str, model: Option<&str>) -> String {
    model.map_or_else(|| operation.to_owned(), |model| format!("{operation} {model}"))
}

fn system_time(millis: u64) -> SystemTime {
    let since = Duration::from_millis(UnixMillis(millis).0);
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

/// Who we are: `rubicon`, unless OpenTelemetry's environment variables say otherwise.
fn resource() -> Resource {
    let told = Resource::builder().build();
    let key = opentelemetry::Key::from_static_str("service.name");
    let named = told.get(&key).is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder().with_attribute(version);
    if named { builder.build() } else { builder.with_service_name(names::SCOPE).build() }
}

async fn export_all(mut receiver: mpsc::Receiver<Item>, exporter: SpanExporter, dropped: Counter) {
    let mut failing = false;
    while let Some(first) = receiver.recv().await {
        let (batch, waiting) = batch(first, &mut receiver).await;
        let count = batch.len();
        if count > 0 {
            let exported = timeout(EXPORT_MAX, exporter.export(batch)).await;
            let error = match exported {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the collector took too long".to_owned()),
            };
            if let Some(error) = &error {
                dropped.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
                if !failing {
                    tracing::warn!(%error, "spans can't be exported");
                }
            }
            failing = error.is_some();
        }
        for done in waiting {
            let _ = done.send(());
        }
    }
}

/// What comes within [`BATCH_WAIT`], at most [`BATCH_SPANS_MAX`]; a flush ends the wait.
async fn batch(first: Item, receiver: &mut mpsc::Receiver<Item>) -> (Vec<SpanData>, Vec<oneshot::Sender<()>>) {
    let (mut spans, mut waiting) = (Vec::new(), Vec::new());
    let mut next = Some(first);
    let until = crate::clock::Instant::now() + BATCH_WAIT;
    loop {
        match next {
            Some(Item::Span(data)) => spans.push(*data),
            Some(Item::Flush(done)) => waiting.push(done),
            None => break,
        }
        if !waiting.is_empty() || spans.len() >= BATCH_SPANS_MAX {
            break;
        }
        next = tokio::time::timeout_at(until, receiver.recv()).await.ok().flatten();
    }
    (spans, waiting)
}

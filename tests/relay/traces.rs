//! Spans over OTLP: an operation and its attempts, in the caller's trace, with OpenTelemetry's GenAI names; a collector that fails, or
//! none at all, harms nobody.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use http::HeaderMap;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use rubicon::mock::{Rule, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use rubicon::telemetry::names::span;

use crate::harness::{Answered, Http, client, path, provider, relay, request, send, url};
use crate::setup::{Setup, always, overloaded};
use crate::watched::sum;

const CHAT: Dialect = Dialect::ChatCompletions;
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Exported = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// A collector that answers everything with `status`.
async fn collector(status: u16) -> (String, Exported) {
    let exported = Exported::default();
    let take = async move |State(exported): State<Exported>, headers: HeaderMap, body: Bytes| {
        exported.lock().unwrap().push((headers, body));
        http::StatusCode::from_u16(status).unwrap()
    };
    let router = Router::new().route("/v1/traces", axum::routing::post(take)).with_state(Arc::clone(&exported));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let service = hyper_util::service::TowerToHyperService::new(router);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service.clone();
            let io = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(async move { hyper::server::conn::http1::Builder::new().serve_connection(io, service).await });
        }
    });
    (base, exported)
}

fn traced(setup: Setup, base: &str) -> String {
    setup.tables(&format!("[telemetry]\notlp_endpoint = \"{base}\"\n")).text()
}

async fn ask(relay: &Server, traceparent: Option<&str>) -> Answered {
    let request = client(Http::One).post(url(relay, path(CHAT))).header("content-type", "application/json");
    let request = match traceparent {
        Some(traceparent) => request.header("traceparent", traceparent),
        None => request,
    };
    send(request.body(self::request(CHAT, true))).await
}

/// All spans so far, in order of their ends.
async fn spans(relay: &Server, exported: &Exported) -> Vec<Span> {
    relay.app().telemetry.flush().await;
    let mut spans = Vec::new();
    for (headers, body) in exported.lock().unwrap().iter() {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let request = ExportTraceServiceRequest::decode(body.clone()).expect("OTLP");
        for of_resource in request.resource_spans {
            let resource = of_resource.resource.expect("a resource");
            let named = resource.attributes.iter().any(|attribute| attribute.key == "service.name");
            assert!(named, "{resource:?}");
            for of_scope in of_resource.scope_spans {
                assert_eq!(of_scope.scope.expect("a scope").name, "rubicon");
                spans.extend(of_scope.spans);
            }
        }
    }
    spans
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn attribute(of: &Span, name: &str) -> String {
    let found = of.attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Any::StringValue(text)) => text.clone(),
        Some(Any::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn an_operation_and_its_attempts_in_the_callers_trace() {
    let (base, exported) = collector(200).await;
    let (a, b) = (always(overloaded()).await, always(chat_text(&["from b"])).await);
    let setup = Setup::primary(a.base_url()).equivalent("b", &b).with_route("model = \"sent-to-b\"");
    let relay = relay(&traced(setup, &base)).await;
    let answered = ask(&relay, Some(PARENT)).await;
    let spans = spans(&relay, &exported).await;
    assert_eq!(spans.len(), 3);
    let [first, second, operation] = &spans[..] else { panic!() };
    for one in &spans {
        assert_eq!(hex(&one.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(one.end_time_unix_nano >= one.start_time_unix_nano && one.start_time_unix_nano > 0);
        assert_eq!(attribute(one, span::OPERATION_ID), answered.header("rubicon-operation-id"));
        assert_eq!(attribute(one, span::OPERATION_NAME), "chat");
        for known in &one.attributes {
            assert!(span::ALL.iter().any(|(name, _)| *name == known.key), "{}", known.key);
        }
    }
    assert_eq!(hex(&operation.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(operation.name, "chat m");
    assert_eq!(
        (attribute(operation, span::STATE), attribute(operation, span::STATUS)),
        ("completed".into(), "200".into())
    );
    assert_eq!(attribute(operation, span::RECOVERY), "equivalent_failover");
    assert_eq!(attribute(operation, span::RESPONSE_MODEL), "mock-model");
    assert_eq!(attribute(operation, span::INPUT_TOKENS), "7");
    assert_eq!(attribute(operation, span::ROUTE), "b");
    for (attempt, number, route, name) in [(first, "1", "a", "chat m"), (second, "2", "b", "chat sent-to-b")] {
        assert_eq!(attempt.parent_span_id, operation.span_id);
        assert_eq!(attempt.name, name);
        assert_eq!((attribute(attempt, span::ATTEMPT), attribute(attempt, span::ROUTE)), (number.into(), route.into()));
        assert_eq!(attribute(attempt, span::PROVIDER_NAME), "openai_compatible");
    }
    assert_eq!(attribute(first, span::ERROR_TYPE), "provider_overloaded");
    let error = |of: &Span| of.status.as_ref().map_or(0, |status| status.code);
    assert_eq!((error(first), error(second), error(operation)), (2, 0, 0), "an error is the attempt's alone");
    // The provider sees the attempt's span, each its own.
    for (mock, attempt) in [(&a, first), (&b, second)] {
        let sent = mock.requests()[0].header("traceparent").expect("a traceparent").to_owned();
        assert_eq!(sent, format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", hex(&attempt.span_id)));
    }
    assert_eq!(sum(&relay, "rubicon_spans_dropped_total", &[]), 0.0);
}

#[tokio::test]
async fn without_a_callers_trace_one_begins_and_one_that_is_not_sampled_is_let_be() {
    let (base, exported) = collector(200).await;
    let a = always(chat_text(&["fine"])).await;
    let relay = relay(&traced(Setup::primary(a.base_url()), &base)).await;
    let not_sampled = PARENT.replace("-01", "-00");
    ask(&relay, Some(&not_sampled)).await;
    assert_eq!(a.requests()[0].header("traceparent"), Some(not_sampled.as_str()));
    ask(&relay, None).await;
    let spans = spans(&relay, &exported).await;
    assert_eq!(spans.len(), 2, "none for the first");
    let operation = spans.iter().find(|one| one.parent_span_id.is_empty()).expect("a root");
    assert!(spans.iter().all(|one| one.trace_id == operation.trace_id && one.trace_id != [0; 16]));
}

#[tokio::test]
async fn a_refusal_is_a_span_without_attempts() {
    let (base, exported) = collector(200).await;
    let a = always(chat_text(&["never"])).await;
    let relay = relay(&traced(Setup::primary(a.base_url()), &base)).await;
    let request = client(Http::One).post(url(&relay, path(CHAT))).header("content-type", "application/json");
    send(request.header("traceparent", PARENT).body("{")).await;
    let spans = spans(&relay, &exported).await;
    assert_eq!(spans.len(), 1);
    assert_eq!(
        (attribute(&spans[0], span::ERROR_TYPE), attribute(&spans[0], span::STATUS)),
        ("invalid_json".into(), "400".into())
    );
}

#[tokio::test]
async fn a_collector_that_fails_costs_spans_only() {
    // One that refuses, and one that nobody listens for.
    let (refusing, _) = collector(400).await;
    for base in [refusing, crate::setup::refused_base().await] {
        let a = provider(Rule::new("a").answer(chat_text(&["fine"]))).await;
        let relay = relay(&traced(Setup::primary(a.base_url()), &base)).await;
        for _ in 0..3 {
            assert_eq!(ask(&relay, Some(PARENT)).await.status, 200);
        }
        for _ in 0..40 {
            relay.app().telemetry.flush().await;
            if sum(&relay, "rubicon_spans_dropped_total", &[]) > 0.0 {
                break;
            }
        }
        assert_eq!(sum(&relay, "rubicon_spans_dropped_total", &[]), 6.0, "{base}");
    }
}

#[tokio::test]
async fn without_a_collector_the_callers_header_goes_up_as_it_came() {
    let a = always(chat_text(&["fine"])).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    ask(&relay, Some(PARENT)).await;
    ask(&relay, None).await;
    assert_eq!(a.requests()[0].header("traceparent"), Some(PARENT));
    assert_eq!(a.requests()[1].header("traceparent"), None);
}

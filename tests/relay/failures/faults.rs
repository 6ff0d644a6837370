//! Ways to fail that are no error answer: connections, silence, bodies that are no answer, in-stream errors. One row each.

use std::time::Duration;

use rubicon::classify::Class;
use rubicon::mock::{Answer, Rule, anthropic, chat, chat_text};
use rubicon::protocol::Dialect;
use serde_json::json;

use super::{
    Then, ask, assert_interrupted, assert_recovered, assert_refused, auto, begun, between, by_model, direct, then,
};
use crate::harness::{Http, client, path, post, provider, relay, request, undaunted};
use crate::setup::{Setup, always, error, overloaded, refused_base};

const CHAT: Dialect = Dialect::ChatCompletions;
const MESSAGES: Dialect = Dialect::AnthropicMessages;

/// A short first-output and answer timer for rows that are silent.
const SILENCE: &str = "timeouts = { first_output_ms = 300, answer_ms = 300 }";

/// The streams and whole bodies below are of both kinds of request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Both,
    Streamed,
    Whole,
}
use Kind::{Both, Streamed, Whole};

fn gzip_like() -> Answer {
    // Whatever is inside: the relay asked for identity, and can't forward events it can't read.
    Answer::sse().header("content-encoding", "gzip").text("\u{1f}\u{8}not readable")
}

fn html(status: u16) -> Answer {
    Answer::new().head(status, &[("content-type", "text/html")]).text("<html><title>Welcome</title></html>")
}

fn json_200(body: serde_json::Value) -> Answer {
    Answer::json(200, body)
}

fn redirect(status: u16) -> Answer {
    Answer::new().head(status, &[("location", "/v1/elsewhere"), ("content-type", "text/plain")]).text("moved")
}

/// (what, kind of request, answer of a, class). Everything before the boundary.
fn chat_rows() -> Vec<(&'static str, Kind, Answer, Class)> {
    use Class::*;
    let preamble = || Answer::sse().step(chat::role()).text(": waiting\n\n");
    let overload = || error("The server is overloaded", "overloaded_error", json!(null));
    let quota = || error("You exceeded your current quota", "insufficient_quota", json!("insufficient_quota"));
    let filter = || error("blocked by content management policy", "invalid_request_error", json!("content_filter"));
    let key = || error("Incorrect API key", "invalid_request_error", json!("invalid_api_key"));
    let in_stream = |body: serde_json::Value| preamble().text(&format!("data: {body}\n\n")).text("data: [DONE]\n\n");
    let mut closing = Answer::new();
    closing.steps.push(rubicon::mock::Step::CloseBeforeHead);
    let mut half_head = Answer::new();
    half_head.steps.push(rubicon::mock::Step::HalfHead);
    let mut rows = vec![
        ("closed before the head", Both, closing, TransportTransient),
        ("half a head", Both, half_head, TransportTransient),
        ("reset before the head", Both, Answer::new().abort_rst(), TransportTransient),
        ("silent before the head", Both, Answer::new().hang(), TransportTransient),
        ("an interim head, then closed", Both, Answer::new().head(103, &[]).abort_fin(), TransportTransient),
        ("silent after the head", Streamed, Answer::sse().text(": hi\n\n").hang(), TransportTransient),
        ("silent after the preamble", Streamed, preamble().hang(), TransportTransient),
        (
            "pings and nothing else",
            Streamed,
            preamble().repeat(100, Answer::new().delay_ms(50).text(": p\n\n")),
            TransportTransient,
        ),
        ("half a body", Whole, Answer::new().text("{\"id\":\"x\",\"choices\":[").hang(), TransportTransient),
        ("preamble, then a clean end", Streamed, preamble(), TransportTransient),
        ("preamble, then closed", Streamed, preamble().abort_fin(), TransportTransient),
        ("preamble, then reset", Streamed, preamble().delay_ms(30).abort_rst(), TransportTransient),
        (
            "half an event, then closed",
            Streamed,
            preamble().text("data: {\"choices\":[{\"del").abort_fin(),
            TransportTransient,
        ),
        ("[DONE] and no finish reason", Streamed, preamble().step(chat::done()), TransportTransient),
        ("an empty stream", Streamed, Answer::sse(), TransportTransient),
        ("an empty body", Both, Answer::new().head(200, &[("content-type", "application/json")]), TransportTransient),
        (
            "white space only",
            Both,
            Answer::new().head(200, &[("content-type", "application/json")]).text(" \n "),
            TransportTransient,
        ),
        ("204", Both, Answer::new().head(204, &[]), TransportTransient),
        (
            "a body that breaks off",
            Whole,
            Answer::new().text("{\"choices\":").delay_ms(30).abort_rst(),
            TransportTransient,
        ),
        ("200 with an error object: overload", Both, json_200(overload()), ProviderOverloaded),
        (
            "200 with an error object: server",
            Both,
            json_200(error("oops", "server_error", json!(null))),
            ProviderServerError,
        ),
        ("200 with an error object: quota", Both, json_200(quota()), QuotaExhausted),
        ("200 with an error object: key", Both, json_200(key()), AuthenticationOrPermission),
        ("200 with an error object: filter", Both, json_200(filter()), Refusal),
        ("200 with a web page", Both, html(200), ContractFailure),
        ("200 compressed", Both, gzip_like(), ContractFailure),
        (
            "200 with JSON of another shape",
            Both,
            json_200(json!({ "id": "x", "object": "list", "data": [] })),
            ContractFailure,
        ),
        (
            "an answer that is not JSON",
            Whole,
            Answer::new().head(200, &[("content-type", "application/json")]).text("{\"choices\": [}"),
            ContractFailure,
        ),
        (
            "a whole answer where a stream was asked for",
            Streamed,
            rubicon::mock::chat_whole_text("whole"),
            ContractFailure,
        ),
        ("in-stream overload", Streamed, in_stream(overload()), ProviderOverloaded),
        (
            "in-stream server error",
            Streamed,
            in_stream(error("oops", "server_error", json!("server_error"))),
            ProviderServerError,
        ),
        (
            "in-stream rate limit",
            Streamed,
            in_stream(error("Slow down", "rate_limit_error", json!("rate_limit_exceeded"))),
            RateLimited,
        ),
        ("in-stream quota", Streamed, in_stream(quota()), QuotaExhausted),
        ("in-stream filter", Streamed, in_stream(filter()), Refusal),
        (
            "an event over its limit",
            Streamed,
            preamble().text("data: ").repeat(80, Answer::new().text(&"x".repeat(1000))).hang(),
            ContractFailure,
        ),
        ("a conflict", Both, Answer::json_error(409, error("conflict", "conflict", json!(null))), Unclassified),
        ("unanswered", Both, Answer::json_error(408, error("timed out", "timeout", json!(null))), TransportTransient),
        ("too early", Both, Answer::json_error(425, error("too early", "early", json!(null))), TransportTransient),
        ("a 429 that says nothing", Both, Answer::json_error(429, json!({})), Ambiguous429),
        ("an unknown 404", Both, html(404), InvalidRequest),
        ("a 418", Both, html(418), Unclassified),
    ];
    for status in [500, 502, 504, 520, 521, 522, 523, 524, 525, 526] {
        rows.push(("a web page of a balancer", Both, html(status), ProviderServerError));
    }
    for status in [300, 301, 302, 303, 304, 307, 308] {
        rows.push(("a redirect", Both, redirect(status), Unclassified));
    }
    rows
}

fn messages_rows() -> Vec<(&'static str, Kind, Answer, Class)> {
    use Class::*;
    let start = || Answer::sse().step(anthropic::message_start()).step(anthropic::ping());
    let event = |kind: &str| start().step(anthropic::error(kind, "said"));
    vec![
        (
            "overloaded first",
            Streamed,
            Answer::sse().step(anthropic::error("overloaded_error", "Overloaded")),
            ProviderOverloaded,
        ),
        ("overloaded after the start", Streamed, event("overloaded_error"), ProviderOverloaded),
        ("api_error", Streamed, event("api_error"), ProviderServerError),
        ("rate_limit_error", Streamed, event("rate_limit_error"), RateLimited),
        ("authentication_error", Streamed, event("authentication_error"), AuthenticationOrPermission),
        ("invalid_request_error", Streamed, event("invalid_request_error"), InvalidRequest),
        ("start and clean end", Streamed, start(), TransportTransient),
        ("start and reset", Streamed, start().delay_ms(30).abort_rst(), TransportTransient),
        (
            "a whole error",
            Whole,
            json_200(json!({"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}})),
            ProviderOverloaded,
        ),
        (
            "a message without its end",
            Whole,
            json_200(json!({"type":"message","content":[],"stop_reason":null})),
            ContractFailure,
        ),
    ]
}

#[tokio::test]
async fn every_fault_before_the_boundary() {
    for (dialect, rows) in [(CHAT, chat_rows()), (MESSAGES, messages_rows())] {
        let named = || rows.iter().enumerate().map(|(n, row)| (format!("row{n}"), row));
        let a = by_model(named().map(|(name, row)| (name, row.2.clone()))).await;
        let b = by_model(named().map(|(name, _)| (name, auto(dialect)))).await;
        let reference = by_model(named().map(|(name, _)| (name, auto(dialect)))).await;
        let setup = Setup::primary(a.base_url())
            .with_route(SILENCE)
            .equivalent("b", &b)
            .server("max_event_bytes = 65536")
            .failover("enabled = true, wait_first_ms = 0");
        let relay = relay(&undaunted(&setup.text())).await;
        let client = client(Http::One);
        for (name, (what, kind, _, class)) in named() {
            for stream in [true, false] {
                if *kind != Both && (*kind == Streamed) != stream {
                    continue;
                }
                let what = format!("{what} ({name}, stream={stream})");
                let before = (a.calls_of(&name), b.calls_of(&name));
                let answered = ask(&client, &relay, dialect, stream, &name).await;
                let calls = (a.calls_of(&name) - before.0, b.calls_of(&name) - before.1);
                match then(*class) {
                    Then::Elsewhere => {
                        assert_eq!(calls, (1, 1), "{what}: {}", answered.text());
                        assert_recovered(&answered, &direct(&reference, dialect, stream, &name).await, &what);
                    }
                    Then::Stop => {
                        assert_eq!(calls, (1, 0), "{what}: {}", answered.text());
                        assert_refused(&answered, *class, 1, &what);
                        let rejected = matches!(class, Class::InvalidRequest | Class::Refusal);
                        assert_eq!(answered.status == 424, !rejected, "{what}: {}", answered.status);
                        assert_eq!(answered.header("location"), "", "{what}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_provider_that_nobody_can_reach() {
    let b = always(chat_text(&["from b"])).await;
    // A port without a listener, and a name that does not exist (RFC 6761).
    for base in [refused_base().await, "http://nobody.invalid:1".to_owned()] {
        let setup = Setup::primary(base).with_provider("allow_plain_http = true").equivalent("b", &b);
        let relay = relay(&setup.text()).await;
        let answered = post(&client(Http::One), &relay, path(CHAT), request(CHAT, true)).await;
        assert!(answered.clean && answered.text().contains("from b"), "{}", answered.text());
        assert_eq!(answered.header("rubicon-recovery"), "equivalent_failover");
    }
    assert_eq!(b.calls(), 2);
    // Alone, it is tried again and then given up, with no provider status to tell.
    let relay = relay(&Setup::primary(refused_base().await).workflow("envelope = { max_attempts = 2 }").text()).await;
    let answered = post(&client(Http::One), &relay, path(CHAT), request(CHAT, false)).await;
    assert_refused(&answered, Class::TransportTransient, 2, "refused");
    assert_eq!(answered.json()["rubicon"]["reason"], "attempts_exhausted");
    assert_eq!(answered.json()["rubicon"].get("provider_status"), None);
}

/// (what, the rest of a stream that has crossed, what the frame's message says)
fn after_rows(dialect: Dialect) -> Vec<(&'static str, Answer, &'static str)> {
    let begun = || begun(dialect).0;
    vec![
        ("closed in order", begun(), "without its end marker"),
        ("closed without the body's end", begun().abort_fin(), "connection broke"),
        ("reset", begun().delay_ms(50).abort_rst(), "connection broke"),
        ("half an event", begun().text("data: {\"id\":").abort_fin(), "connection broke"),
        ("silent", begun().hang(), "sent nothing for 300 ms"),
        (
            "over the limit",
            begun().text("data: ").repeat(80, Answer::new().text(&"x".repeat(1000))).hang(),
            "size limit",
        ),
        ("[DONE] and no finish reason", begun().step(chat::done()), "without its end marker"),
    ]
}

#[tokio::test]
async fn every_fault_after_the_boundary() {
    for dialect in [CHAT, MESSAGES] {
        let mut rows = after_rows(dialect);
        if dialect == MESSAGES {
            rows.pop();
        }
        let (_, events) = begun(dialect);
        let named = || rows.iter().enumerate().map(|(n, row)| (format!("row{n}"), row));
        let a = by_model(named().map(|(name, row)| (name, row.1.clone()))).await;
        let b = by_model(named().map(|(name, _)| (name, auto(dialect)))).await;
        let setup = Setup::primary(a.base_url())
            .with_route("timeouts = { idle_ms = 300 }")
            .equivalent("b", &b)
            .server("max_event_bytes = 65536");
        let relay = relay(&setup.text()).await;
        for (http, client) in [(Http::One, client(Http::One)), (Http::Two, client(Http::Two))] {
            for (name, (what, _, says)) in named() {
                let what = format!("{what} {http:?}");
                let before = a.calls_of(&name);
                let answered = ask(&client, &relay, dialect, true, &name).await;
                // `[DONE]` is an event that went out like any other before it was known to be no end.
                let passed = u64::from(answered.text().contains("[DONE]"));
                let text = String::from_utf8(answered.body.clone()).unwrap().replace("data: [DONE]\n\n", "");
                let answered = crate::harness::Answered { body: text.into_bytes(), ..answered };
                let frame = assert_interrupted(&answered, dialect, events + passed, &what);
                assert!(frame["error"]["message"].as_str().unwrap().contains(says), "{what}: {frame}");
                assert_eq!((a.calls_of(&name) - before, b.calls_of(&name)), (1, 0), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn late_bytes_of_a_lost_attempt_reach_nobody() {
    let late = Answer::sse().step(chat::role()).gate("late").step(chat::delta("LATE")).step(chat::done());
    let a = always(late).await;
    let b = always(chat_text(&["from b"])).await;
    let setup = Setup::primary(a.base_url()).with_route("timeouts = { first_output_ms = 200 }").equivalent("b", &b);
    let relay = relay(&setup.text()).await;
    let answered = post(&client(Http::One), &relay, path(CHAT), request(CHAT, true)).await;
    assert!(answered.clean && answered.text().contains("from b"));
    // The lost attempt is not only ignored: its connection is gone, so the provider stops working.
    a.wait_for(|stats| stats.disconnects == 1).await;
    a.open_gate("late", 1);
    assert!(!answered.text().contains("LATE"));
    assert_eq!((a.calls(), b.calls()), (1, 1));
}

#[tokio::test]
async fn an_error_whose_body_never_ends_is_judged_by_its_status() {
    let endless = Answer::new().head(503, &[("content-type", "application/json")]).text("{\"error\":").hang();
    let a = always(endless).await;
    let b = always(chat_text(&["from b"])).await;
    // All timers at their defaults of a minute and more.
    let relay = between(&a, &b).await;
    let answered = tokio::time::timeout(
        Duration::from_secs(20),
        post(&client(Http::One), &relay, path(CHAT), request(CHAT, true)),
    )
    .await
    .expect("not a minute for the rest of an error that is known");
    assert!(answered.text().contains("from b"));
}

#[tokio::test]
async fn a_bad_certificate_is_hard_and_wakes_somebody() {
    let key = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let tls = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let handshakes = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = std::sync::Arc::clone(&handshakes);
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(tls));
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            assert!(acceptor.accept(stream).await.is_err(), "the relay took a certificate that nobody vouches for");
        }
    });
    let b = always(chat_text(&["from b"])).await;
    let relay = relay(&Setup::primary(base).equivalent("b", &b).text()).await;
    let log = Log::default();
    let subscriber = || tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    // While there is one subscriber only, another test's thread that is the first to come by a log line has that line switched off
    // for everybody; with two, each line is asked of both.
    let _second = tracing::Dispatch::new(subscriber());
    let answered = {
        let _guard = tracing::subscriber::set_default(subscriber());
        post(&client(Http::One), &relay, path(CHAT), request(CHAT, true)).await
    };
    assert_refused(&answered, Class::Unclassified, 1, "self-signed");
    assert_eq!((answered.status, handshakes.load(std::sync::atomic::Ordering::SeqCst), b.calls()), (424, 1, 0));
    assert!(log.text().contains("\"alarm\":true"), "{}", log.text());
    server.abort();
}

/// Log lines of one test.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn a_model_that_is_out_is_looked_for_at_another_provider_only() {
    let gone = || {
        Answer::json_error(
            404,
            error("The model `m` does not exist", "invalid_request_error", json!("model_not_found")),
        )
    };
    let broken = || html(200);
    for (what, class, failing) in [
        ("model_unavailable", Class::ModelUnavailable, gone as fn() -> Answer),
        ("contract_failure", Class::ContractFailure, broken),
    ] {
        // `a2` is another route at a's provider: never asked for this.
        let a = always(failing()).await;
        let b = provider(Rule::new("b").answer(chat_text(&["from b"])).answer(failing()).answer(failing())).await;
        let x = always(chat_text(&["from x"])).await;
        let setup = |failover: &str| {
            Setup::primary(a.base_url())
                .equivalent_of("a2", "a")
                .equivalent("b", &b)
                .alternate("x", &x)
                .failover(failover)
                .text()
        };
        let relay_all = relay(&setup("enabled = true, cross_model = true")).await;
        let ask = async |relay| post(&client(Http::One), relay, path(CHAT), request(CHAT, true)).await;
        let answered = ask(&relay_all).await;
        assert!(answered.text().contains("from b"), "{what}: {}", answered.text());
        assert_eq!((a.calls(), b.calls(), x.calls()), (1, 1, 0), "{what}: a's provider was asked once");
        let answered = ask(&relay_all).await;
        assert!(answered.text().contains("from x"), "{what}: {}", answered.text());
        assert_eq!(answered.header("rubicon-recovery"), "cross_model_fallback", "{what}");
        assert_eq!((a.calls(), b.calls(), x.calls()), (2, 2, 1), "{what}");
        // Without cross-model fallback that is the end.
        let relay_same = relay(&setup("enabled = true")).await;
        let answered = ask(&relay_same).await;
        assert_refused(&answered, class, 2, what);
        assert_eq!(answered.json()["rubicon"]["reason"], "no_eligible_fallback", "{what}");
        assert_eq!((a.calls(), b.calls(), x.calls()), (3, 3, 1), "{what}");
    }
}

#[tokio::test]
async fn an_alternate_is_not_for_a_provider_that_is_down() {
    let a = always(overloaded()).await;
    let x = always(chat_text(&["from x"])).await;
    let setup = Setup::primary(a.base_url()).alternate("x", &x).workflow("envelope = { max_attempts = 2 }");
    let relay = relay(&setup.text()).await;
    let answered = post(&client(Http::One), &relay, path(CHAT), request(CHAT, true)).await;
    assert_refused(&answered, Class::ProviderOverloaded, 2, "equivalent, else retry");
    assert_eq!((a.calls(), x.calls()), (2, 0));
}

#[tokio::test]
async fn a_failed_alternate_does_not_open_the_way_back_to_the_provider_without_the_model() {
    let gone = Answer::json_error(404, error("The model `m` does not exist", "e", json!("model_not_found")));
    let a = always(gone).await;
    let x = always(overloaded()).await;
    let setup = Setup::primary(a.base_url()).equivalent_of("a2", "a").alternate("x", &x);
    let relay = relay(&setup.workflow("envelope = { max_attempts = 3 }").text()).await;
    let answered = post(&client(Http::One), &relay, path(CHAT), request(CHAT, true)).await;
    assert_eq!(answered.status, 424, "{}", answered.text());
    assert_eq!((a.calls(), x.calls()), (1, 2), "x again, and never a2");
}

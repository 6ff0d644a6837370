//! SPEC section 6: a class each failure, and what is done about it, proved by counting calls. Every recorded error of `errors/`
//! and every way in which a connection or a body can go wrong: before the boundary, with and without streaming, and again after it.

mod faults;
mod outward;

use http::{HeaderMap, HeaderName, HeaderValue};
use rubicon::classify::{Class, Context, Evidence, classify};
use rubicon::clock::UnixMillis;
use rubicon::mock::{Answer, AutoDialect, MockProvider, Rule, Script, anthropic, chat, responses};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;

use crate::harness::{Answered, Http, Recording, client, path, post, recordings, relay, request, undaunted};
use crate::setup::Setup;

/// What SPEC section 6 lets the relay do before the boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Another provider is asked.
    Elsewhere,
    /// Nobody is asked again.
    Stop,
}

/// The decision column, written down once more and on purpose not read from the relay.
fn then(class: Class) -> Then {
    match class {
        Class::TransportTransient
        | Class::RateLimited
        | Class::ProviderOverloaded
        | Class::ProviderServerError
        | Class::ModelUnavailable
        | Class::ContractFailure => Then::Elsewhere,
        _ => Then::Stop,
    }
}

/// The class's name as printed.
fn name_of(class: Class) -> String {
    serde_json::to_value(class).unwrap().as_str().unwrap().to_owned()
}

/// Recorded errors with their class. The class of each is judged in a table of its own beside `rubicon::classify`.
fn recorded_errors() -> Vec<(Recording, Class)> {
    let mut errors = Vec::new();
    for recording in recordings("errors").into_iter().filter(|recording| recording.status >= 300) {
        let file = std::fs::read(&recording.path).unwrap();
        let head = String::from_utf8_lossy(&file[..file.len() - recording.body.len()]).into_owned();
        let headers: HeaderMap = head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .map(|(k, v)| (k.parse::<HeaderName>().unwrap(), HeaderValue::from_str(v.trim()).unwrap()))
            .collect();
        let evidence = Evidence::Http { status: recording.status, headers: &headers, body: &recording.body };
        let context =
            Context { dialect: Dialect::ChatCompletions, ambiguous_429_is_rate_limit: false, now: UnixMillis::now() };
        let class = classify(&evidence, &context).class;
        errors.push((recording, class));
    }
    errors
}

fn auto(dialect: Dialect) -> Answer {
    let dialect = match dialect {
        Dialect::ChatCompletions => AutoDialect::ChatCompletions,
        Dialect::AnthropicMessages => AutoDialect::AnthropicMessages,
        Dialect::Responses => AutoDialect::Responses,
    };
    Answer::auto(dialect, &["from ", "b"])
}

/// A provider that answers each model by a rule of its name, so that one relay serves a whole table and counts are per row.
async fn by_model(rows: impl IntoIterator<Item = (String, Answer)>) -> MockProvider {
    let script = rows
        .into_iter()
        .fold(Script::default(), |script, (name, answer)| script.rule(Rule::new(&name).model(&name).answer(answer)));
    MockProvider::start(script).await.unwrap()
}

/// A relay between `a` and `b` that changes provider at once instead of obeying short waits first.
async fn between(a: &MockProvider, b: &MockProvider) -> Server {
    let setup = Setup::primary(a.base_url()).equivalent("b", b).failover("enabled = true, wait_first_ms = 0");
    relay(&undaunted(&setup.text())).await
}

async fn ask(client: &reqwest::Client, relay: &Server, dialect: Dialect, stream: bool, model: &str) -> Answered {
    post(client, relay, path(dialect), request(dialect, stream).replace("\"m\"", &format!("\"{model}\""))).await
}

/// What `b` says to this request when it is asked directly.
async fn direct(b: &MockProvider, dialect: Dialect, stream: bool, model: &str) -> Vec<u8> {
    let body = request(dialect, stream).replace("\"m\"", &format!("\"{model}\""));
    let url = format!("{}{}", b.base_url(), path(dialect));
    let answer = client(Http::One).post(url).header("content-type", "application/json").body(body).send().await;
    answer.unwrap().bytes().await.unwrap().to_vec()
}

/// Only `b`'s bytes reached the client, after one call of each.
fn assert_recovered(answered: &Answered, b_bytes: &[u8], what: &str) {
    assert_eq!((answered.status, answered.clean), (200, true), "{what}: {}", answered.text());
    assert!(answered.body == b_bytes, "{what}: not exactly what b sent: {}", answered.text());
    assert_eq!(answered.header("rubicon-recovery"), "equivalent_failover", "{what}");
    assert_eq!(answered.header("rubicon-attempts"), "2", "{what}");
}

/// A failure that showed nothing, with the members that each must have.
fn assert_refused(answered: &Answered, class: Class, attempts: u64, what: &str) {
    let json = answered.json();
    let rubicon = &json["rubicon"];
    assert_eq!(rubicon["class"], name_of(class), "{what}: {json}");
    assert_eq!(rubicon["attempts"], attempts, "{what}: {json}");
    assert_eq!(answered.header("rubicon-attempts"), attempts.to_string(), "{what}");
    assert_eq!(rubicon["operation_id"], answered.header("rubicon-operation-id"), "{what}");
    assert!(answered.header("rubicon-operation-id").starts_with("op_"), "{what}");
    assert_eq!(answered.header("x-should-retry"), "false", "{what}");
    assert_eq!(answered.header("content-type"), "application/json", "{what}");
    assert_eq!(answered.header("cache-control"), "no-store", "{what}");
    assert!(answered.clean, "{what}");
    assert!(json["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{what}: {json}");
    assert!(json["error"]["type"].as_str().is_some_and(|kind| !kind.is_empty()), "{what}: {json}");
}

#[tokio::test]
async fn every_recorded_error_before_the_boundary() {
    let errors = recorded_errors();
    for dialect in Dialect::ALL {
        let rows = || errors.iter().map(|(recording, _)| recording);
        let a = by_model(rows().map(|r| (r.name.clone(), Answer::new().recording(&r.path)))).await;
        let b = by_model(rows().map(|r| (r.name.clone(), auto(dialect)))).await;
        let reference = by_model(rows().map(|r| (r.name.clone(), auto(dialect)))).await;
        let relay = between(&a, &b).await;
        let client = client(Http::One);
        for (n, (recording, class)) in errors.iter().enumerate() {
            // Both ways in each dialect would prove the same four times; the dialects take turns.
            let stream = (n % 2 == 0) == (dialect == Dialect::ChatCompletions);
            let what = format!("{} {class:?} stream={stream}", recording.name);
            let answered = ask(&client, &relay, dialect, stream, &recording.name).await;
            let calls = (a.calls_of(&recording.name), b.calls_of(&recording.name));
            match then(*class) {
                Then::Elsewhere => {
                    assert_eq!(calls, (1, 1), "{what}: {}", answered.text());
                    assert_recovered(&answered, &direct(&reference, dialect, stream, &recording.name).await, &what);
                }
                Then::Stop => {
                    assert_eq!(calls, (1, 0), "{what}");
                    assert_refused(&answered, *class, 1, &what);
                    assert_stopped(&answered, *class, recording, &what);
                }
            }
        }
    }
}

/// Of a blocked class: whose status and words.
fn assert_stopped(answered: &Answered, class: Class, recording: &Recording, what: &str) {
    let json = answered.json();
    let rubicon = &json["rubicon"];
    assert_eq!(rubicon["provider_status"], recording.status, "{what}: {json}");
    assert_eq!(rubicon["retryable"], false, "{what}");
    assert_eq!(rubicon["reason"], name_of(class), "{what}");
    assert_eq!((answered.header("retry-after"), &rubicon["retry_after_ms"]), ("", &serde_json::Value::Null), "{what}");
    if matches!(class, Class::InvalidRequest | Class::Refusal) {
        // The provider's own status, but never one that SDKs retry by themselves.
        let expected = if recording.status == 429 { 400 } else { recording.status };
        assert_eq!((answered.status, &rubicon["status"]), (expected, &serde_json::json!("rejected")), "{what}: {json}");
        // Its words: the message of the usual shape passes as it is.
        let said: serde_json::Value = serde_json::from_slice(&recording.body).unwrap_or_default();
        for member in ["message", "param"] {
            if let Some(text) = said["error"][member].as_str() {
                assert_eq!(json["error"][member], text, "{what}");
            }
        }
    } else {
        assert_eq!((answered.status, &rubicon["status"]), (424, &serde_json::json!("unavailable")), "{what}: {json}");
    }
}

/// The interruption that every dialect's clients raise, and no second call.
fn assert_interrupted(answered: &Answered, dialect: Dialect, after: u64, what: &str) -> serde_json::Value {
    assert_eq!(answered.status, 200, "{what}: {}", answered.text());
    assert!(!answered.clean, "{what}: never a clean end: {}", answered.text());
    let mut frame = answered.last_event();
    if dialect == Dialect::Responses {
        frame = frame["response"].take();
    }
    let rubicon = if dialect == Dialect::AnthropicMessages { &frame["rubicon"] } else { &frame["error"]["rubicon"] };
    assert_eq!(rubicon["status"], "interrupted", "{what}: {frame}");
    assert_eq!(rubicon["reason"], "partial_output", "{what}: {frame}");
    assert_eq!(rubicon["class"], "partial_output", "{what}: {frame}");
    assert_eq!(rubicon["after"], after, "{what}: {frame}");
    assert_eq!(rubicon["actions"], serde_json::json!(["restart"]), "{what}: {frame}");
    assert_eq!(rubicon["unresolved_executions"], 0, "{what}: {frame}");
    assert_eq!(rubicon["retryable"], false, "{what}: {frame}");
    assert_eq!(rubicon["operation_id"], answered.header("rubicon-operation-id"), "{what}");
    assert!(!answered.text().contains("[DONE]") && !answered.text().contains("message_stop"), "{what}");
    frame
}

/// A beginning of a stream that has crossed the boundary, and how many events it has.
fn begun(dialect: Dialect) -> (Answer, u64) {
    match dialect {
        Dialect::ChatCompletions => (Answer::sse().step(chat::role()).step(chat::delta("Hel")), 2),
        Dialect::AnthropicMessages => {
            let steps = [anthropic::message_start(), anthropic::text_start(0), anthropic::text_delta(0, "Hel")];
            (steps.into_iter().fold(Answer::sse(), Answer::step), 3)
        }
        Dialect::Responses => {
            let steps = [responses::created(0), responses::message_added(1, 0), responses::text_delta(2, 0, "Hel")];
            (steps.into_iter().fold(Answer::sse(), Answer::step), 3)
        }
    }
}

#[tokio::test]
async fn every_recorded_error_after_the_boundary() {
    let errors = recorded_errors();
    for dialect in Dialect::ALL {
        let (_, after) = begun(dialect);
        // The same words as an error event behind output: whatever their class is, nothing is asked again.
        let as_event = |recording: &Recording| {
            let body = String::from_utf8_lossy(&recording.body).replace(['\r', '\n'], " ");
            begun(dialect).0.text(&format!("event: error\ndata: {body}\n\n")).text("data: {}\n\n").hang()
        };
        let a = by_model(errors.iter().map(|(r, _)| (r.name.clone(), as_event(r)))).await;
        let b = by_model(errors.iter().map(|(r, _)| (r.name.clone(), auto(dialect)))).await;
        let relay = between(&a, &b).await;
        let client = client(Http::One);
        for (recording, class) in &errors {
            let what = format!("{} {class:?}", recording.name);
            let answered = ask(&client, &relay, dialect, true, &recording.name).await;
            let frame = assert_interrupted(&answered, dialect, after, &what);
            // The provider's own event is replaced, its words are in the frame's message.
            assert_eq!(
                answered.text().matches("event: error").count(),
                usize::from(dialect != Dialect::ChatCompletions)
            );
            let said: serde_json::Value = serde_json::from_slice(&recording.body).unwrap_or_default();
            if let Some(text) = said["error"]["message"].as_str().filter(|_| !frame.to_string().contains("[masked]")) {
                let start: String = text.chars().take(30).collect();
                assert!(frame["error"]["message"].as_str().unwrap().contains(&start), "{what}: {frame}");
            }
            assert_eq!((a.calls_of(&recording.name), b.calls_of(&recording.name)), (1, 0), "{what}");
        }
    }
}

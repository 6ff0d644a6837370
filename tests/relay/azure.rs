//! Azure OpenAI: its v1 endpoint, its two credentials, what its content filter says, and its errors.

use std::path::Path;
use std::time::Duration;

use rubicon::clock::UnixMillis;
use rubicon::config;
use rubicon::mock::{Answer, AutoDialect, MockProvider, Rule, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, PATIENCE, client, path, post, provider, relay_with, request, send, url};
use crate::setup::{Setup, always, overloaded};

const CHAT: Dialect = Dialect::ChatCompletions;
const KEY: &str = "azure-key-of-the-test";

/// A primary at Azure.
fn azure(at: &MockProvider) -> Setup {
    Setup::primary(at.base_url())
        .kind("azure-openai", "")
        .with_provider("api_key = \"env:AZURE\"")
        .with_route("model = \"eu-deployment\"")
}

async fn start(setup: &Setup) -> Server {
    relay_with(&setup.text(), &[("AZURE", KEY)].into()).await
}

async fn ask(relay: &Server, stream: bool) -> Answered {
    post(&client(Http::One), relay, path(CHAT), request(CHAT, stream)).await
}

async fn operation(relay: &Server, answered: &Answered) -> Value {
    let path = format!("/v1/operations/{}", answered.header("rubicon-operation-id"));
    send(client(Http::One).get(url(relay, &path))).await.json()
}

#[tokio::test]
async fn the_v1_path_the_key_and_the_deployment() {
    let answer = Answer::auto(AutoDialect::ChatCompletions, &["hello"]);
    let a = always(answer).await;
    for base in ["", "/", "/openai", "/openai/v1"] {
        let relay = start(&azure(&a).kind("azure-openai", base)).await;
        for stream in [true, false] {
            a.reset();
            let asked = client(Http::One)
                .post(url(&relay, "/v1/chat/completions?api-version=preview"))
                .header("content-type", "application/json")
                .header("authorization", "Bearer callers-own")
                .header("api-key", "callers-own")
                .body(request(CHAT, stream));
            let answered = send(asked).await;
            assert_eq!(answered.status, 200, "{}", answered.text());
            let seen = a.requests().pop().expect("a call");
            assert_eq!(
                (seen.path.as_str(), seen.query.as_str()),
                ("/openai/v1/chat/completions", "api-version=preview")
            );
            assert_eq!(seen.header("api-key"), Some(KEY));
            assert_eq!(seen.header("authorization"), None);
            assert_eq!(seen.json()["model"], "eu-deployment");
        }
    }
}

#[tokio::test]
async fn the_gateways_name_of_a_request_comes_down() {
    for (headers, told) in [
        (&[("apim-request-id", "apim-1")][..], "apim-1"),
        (&[("apim-request-id", "apim-1"), ("x-request-id", "req-1")], "req-1"),
        (&[("x-ms-region", "West Europe")], ""),
    ] {
        let mut answer = Answer::sse();
        for (name, value) in headers {
            answer = answer.header(name, value);
        }
        for step in chat_text(&["hello"]).steps.into_iter().skip(1) {
            answer = answer.step(step);
        }
        let a = always(answer).await;
        let answered = ask(&start(&azure(&a)).await, true).await;
        assert_eq!((answered.status, answered.header("rubicon-provider-request-id")), (200, told));
        assert!(!answered.headers.contains_key("x-ms-region"), "the account's");
    }
}

const PROMPT: &str = r#"{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}}}]}"#;
const ROLE: &str = r#"{"choices":[{"content_filter_results":{},"delta":{"content":"","refusal":null,"role":"assistant"},"finish_reason":null,"index":0,"logprobs":null}],"id":"c","model":"gpt","object":"chat.completion.chunk"}"#;
const NOTED: &str = r#"{"choices":[{"content_filter_offsets":{"check_offset":0,"start_offset":0,"end_offset":44},"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},"finish_reason":null,"index":0}],"id":"","model":"","object":""}"#;
const NOTED_DELTA: &str = r#"{"choices":[{"content_filter_offsets":{"check_offset":0,"start_offset":0,"end_offset":44},"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},"delta":{},"finish_reason":null,"index":0}],"id":"","model":"","object":""}"#;
const TEXT: &str = r#"{"choices":[{"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},"delta":{"content":"Why"},"finish_reason":null,"index":0,"logprobs":null}],"id":"c","model":"gpt","object":"chat.completion.chunk"}"#;
const FILTERED: &str = r#"{"choices":[{"content_filter_results":{"hate":{"filtered":true,"severity":"high"}},"delta":{},"finish_reason":"content_filter","index":0,"logprobs":null}],"id":"c","model":"gpt","object":"chat.completion.chunk"}"#;
const STOPPED: &str = r#"{"choices":[{"content_filter_results":{},"delta":{},"finish_reason":"stop","index":0,"logprobs":null}],"id":"c","model":"gpt","object":"chat.completion.chunk"}"#;

fn events(data: &[&str]) -> Answer {
    data.iter().fold(Answer::sse(), |answer, data| answer.data(data))
}

fn bytes(data: &[&str]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

#[tokio::test]
async fn what_the_filter_says_shows_nothing_and_passes_unchanged() {
    let preamble = [PROMPT, ROLE, NOTED, NOTED_DELTA];
    let b = always(chat_text(&["from ", "b"])).await;
    let direct = post(&client(Http::One), &start(&azure(&b)).await, path(CHAT), request(CHAT, true)).await;
    b.reset();
    // Whatever comes after filter results alone, the other route answers in silence.
    let fault = r#"{"error":{"message":"The server had an error","type":"server_error","code":"server_error"}}"#;
    for failing in [events(&preamble).data(fault), events(&preamble).abort_rst(), events(&preamble)] {
        let a = always(failing).await;
        let relay = start(&azure(&a).equivalent("b", &b)).await;
        let answered = ask(&relay, true).await;
        assert!(answered.status == 200 && answered.clean, "{}", answered.text());
        assert_eq!(answered.text(), direct.text(), "only b's bytes");
        assert_eq!(answered.header("rubicon-recovery"), "equivalent_failover");
        assert_eq!((a.calls(), b.calls()), (1, 1));
        b.reset();
    }
    // And with text they go down as they came.
    let whole = [PROMPT, ROLE, NOTED, TEXT, NOTED, NOTED_DELTA, STOPPED, "[DONE]"];
    let a = always(events(&whole)).await;
    let answered = ask(&start(&azure(&a).equivalent("b", &b)).await, true).await;
    assert!(answered.clean && answered.text() == bytes(&whole), "{}", answered.text());
    assert_eq!((a.calls(), b.calls()), (1, 0));
}

#[tokio::test]
async fn a_filtered_answer_is_an_outcome_and_no_failure() {
    let b = always(chat_text(&["from b"])).await;
    let at_once = [PROMPT, ROLE, FILTERED, "[DONE]"];
    let late = [PROMPT, ROLE, TEXT, TEXT, NOTED, FILTERED, "[DONE]"];
    for data in [&at_once[..], &late] {
        let a = always(events(data)).await;
        let relay = start(&azure(&a).equivalent("b", &b)).await;
        let answered = ask(&relay, true).await;
        assert!(answered.status == 200 && answered.clean, "{}", answered.text());
        assert_eq!(answered.text(), bytes(data));
        let known = operation(&relay, &answered).await;
        assert_eq!((&known["state"], &known["finish_reason"]), (&json!("completed"), &json!("content_filter")));
        assert_eq!((a.calls(), b.calls()), (1, 0));
    }
    // As Azure sends it whole: a choice without a message.
    let whole = json!({ "choices": [{ "content_filter_results": { "hate": { "filtered": true, "severity": "high" } },
        "finish_reason": "content_filter", "index": 0, "logprobs": null }], "created": 1, "id": "c", "model": "gpt",
        "object": "chat.completion", "usage": { "completion_tokens": 19, "prompt_tokens": 15, "total_tokens": 34 } });
    let a = always(Answer::json(200, whole.clone())).await;
    let relay = start(&azure(&a).equivalent("b", &b)).await;
    let answered = ask(&relay, false).await;
    assert_eq!((answered.status, answered.json()), (200, whole));
    let known = operation(&relay, &answered).await;
    assert_eq!((&known["state"], &known["finish_reason"]), (&json!("completed"), &json!("content_filter")));
    assert_eq!((a.calls(), b.calls()), (1, 0));
}

/// Azure's shape: `{"error": {code, message}}`.
fn error(status: u16, code: &str, message: &str) -> Answer {
    Answer::json_error(status, json!({ "error": { "code": code, "message": message } }))
}

/// (what, answer, status for the caller, class, calls of the other route).
fn rows() -> Vec<(&'static str, Answer, u16, &'static str, u64)> {
    const RATE: &str = "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-10-21 have exceeded \
        token rate limit of your current OpenAI S0 pricing tier. Please retry after 7 seconds. To increase your default rate \
        limit/quota visit: https://aka.ms/oai/quotaincrease.";
    let filtered = json!({ "error": { "message": "The response was filtered due to the prompt triggering Azure OpenAI's content \
        management policy.", "type": null, "param": "prompt", "code": "content_filter", "status": 400, "innererror": {
        "code": "ResponsibleAIPolicyViolation", "content_filter_result": { "hate": { "filtered": true, "severity": "high" } } } } });
    let only_inner = json!({ "error": { "message": "Blocked", "code": "BadRequest", "innererror": {
        "code": "ResponsibleAIPolicyViolation" } } });
    vec![
        ("a filtered prompt", Answer::json_error(400, filtered), 400, "refusal", 0),
        ("a filtered prompt, told inside", Answer::json_error(400, only_inner), 400, "refusal", 0),
        ("no such deployment", error(404, "DeploymentNotFound", "It does not exist."), 424, "model_unavailable", 1),
        ("a deployment in the making", error(503, "DeploymentNotReady", "Wait."), 424, "model_unavailable", 1),
        (
            "no capacity",
            error(429, "no_capacity", "The system is currently experiencing high demand"),
            424,
            "model_unavailable",
            1,
        ),
        (
            "a wrong key",
            error(401, "401", "Access denied due to invalid subscription key or wrong API endpoint."),
            424,
            "authentication_or_permission",
            0,
        ),
        (
            "a wrong role",
            error(401, "PermissionDenied", "The principal lacks the required data action."),
            424,
            "authentication_or_permission",
            0,
        ),
        (
            "an old token",
            Answer::json_error(
                401,
                json!({ "statusCode": 401, "message": "Unauthorized. Access token is missing, invalid, audience is incorrect, or have expired." }),
            ),
            424,
            "authentication_or_permission",
            0,
        ),
        (
            "a closed network",
            error(403, "AccessDenied", "Access denied due to Virtual Network/Firewall rules."),
            424,
            "authentication_or_permission",
            0,
        ),
        ("a rate", error(429, "429", RATE).header("retry-after", "7"), 424, "rate_limited", 1),
        (
            "a rate, in milliseconds",
            error(429, "RateLimitReached", RATE).header("retry-after-ms", "7000").header("retry-after", "7"),
            424,
            "rate_limited",
            1,
        ),
        ("a rate without a wait", error(429, "429", RATE), 424, "rate_limited", 1),
        (
            "peak load",
            error(429, "429", "The system is currently experiencing high demand and cannot process your request."),
            424,
            "provider_overloaded",
            1,
        ),
        (
            "a real quota",
            error(429, "insufficient_quota", "You exceeded your current quota"),
            424,
            "quota_exhausted",
            0,
        ),
        (
            "the gateway's quota",
            Answer::json_error(
                403,
                json!({ "statusCode": 403, "message": "Out of call volume quota. Quota will be replenished in 00:12:34." }),
            ),
            424,
            "quota_exhausted",
            0,
        ),
        ("a server error", error(500, "InternalServerError", "Try again."), 424, "provider_server_error", 1),
        ("a wrong parameter", error(400, "BadRequest", "Unsupported parameter"), 400, "invalid_request", 0),
    ]
}

#[tokio::test]
async fn errors_and_what_follows_them() {
    for (what, answer, status, class, others) in rows() {
        let a = always(answer).await;
        let b = always(overloaded()).await;
        let relay = start(&azure(&a).workflow("envelope = { max_attempts = 1 }")).await;
        for stream in [true, false] {
            let answered = ask(&relay, stream).await;
            let found = answered.json();
            assert_eq!((answered.status, &found["rubicon"]["class"]), (status, &json!(class)), "{what}: {found}");
        }
        a.reset();
        let relay = start(&azure(&a).equivalent("b", &b).workflow("envelope = { max_attempts = 2 }")).await;
        let answered = ask(&relay, true).await;
        assert!(answered.status >= 400, "{what}");
        assert_eq!((a.calls(), b.calls()), (1, others), "{what}");
    }
}

#[tokio::test]
async fn from_openai_to_azure_in_silence() {
    let answer = || Answer::auto(AutoDialect::ChatCompletions, &["from ", "azure"]);
    let a = always(overloaded()).await;
    let b = provider(Rule::new("b").answer(answer())).await;
    let setup = Setup::primary(a.base_url())
        .kind("openai", "/v1")
        .with_provider("api_key = \"env:OPENAI\"")
        .with_route("model = \"gpt\"")
        .equivalent("b", &b)
        .kind("azure-openai", "")
        .with_provider("api_key = \"env:AZURE\"")
        .with_route("model = \"eu-deployment\"");
    let relay = relay_with(&setup.text(), &[("AZURE", KEY), ("OPENAI", "openai-key")].into()).await;
    for stream in [true, false] {
        a.reset();
        b.reset();
        let answered = ask(&relay, stream).await;
        assert!(answered.status == 200 && answered.clean, "{}", answered.text());
        assert_eq!(
            (answered.header("rubicon-recovery"), answered.header("rubicon-attempts")),
            ("equivalent_failover", "2")
        );
        assert!(answered.text().contains("azure") && !answered.text().contains("overloaded"));
        let (first, second) = (a.requests().pop().expect("a call"), b.requests().pop().expect("a call"));
        assert_eq!((a.calls(), b.calls()), (1, 1));
        assert_eq!(
            (first.path.as_str(), first.header("authorization")),
            ("/v1/chat/completions", Some("Bearer openai-key"))
        );
        assert_eq!((second.path.as_str(), second.header("api-key")), ("/openai/v1/chat/completions", Some(KEY)));
        assert_eq!((&first.json()["model"], &second.json()["model"]), (&json!("gpt"), &json!("eu-deployment")));
        assert_eq!(second.header("authorization"), None, "no key of the first goes to the second");
    }
}

/// Asks until the provider was shown the token.
async fn shown(relay: &Server, a: &MockProvider, token: &str) {
    let want = format!("Bearer {token}");
    let seen = async {
        loop {
            a.reset();
            let answered = ask(relay, false).await;
            assert_eq!(answered.status, 200, "{}", answered.text());
            let seen = a.requests().pop().expect("a call");
            assert_eq!(seen.header("api-key"), None);
            if seen.header("authorization") == Some(&want) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.expect("the token of the file");
}

fn write(path: &Path, token: &str) {
    std::fs::write(path, token).expect("a file");
}

/// Else they would stand between the test runner's own lines.
const EVENTS_OFF: &str = "[log]\nevents = \"off\"\n";

#[tokio::test]
async fn a_token_that_is_renewed_is_sent_without_a_restart_or_a_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let (token, file) = (folder.path().join("token"), folder.path().join("rubicon.toml"));
    let a = always(Answer::auto(AutoDialect::ChatCompletions, &["hello"])).await;
    let text =
        Setup::primary(a.base_url()).kind("azure-openai", "").with_provider("entra_token = \"file:token\"").text()
            + EVENTS_OFF;
    std::fs::write(&file, text).expect("a file");
    write(&token, "first-token\n");
    let loaded = config::load(&file, &|_| None, UnixMillis::now()).unwrap_or_else(|found| panic!("{found:#?}"));
    let relay = Server::start(loaded.settings).await.expect("a relay");
    shown(&relay, &a, "first-token").await;
    write(&token, "other-token\n");
    shown(&relay, &a, "other-token").await;
    // Another file in its place, as Kubernetes does it.
    let next = folder.path().join("next");
    write(&next, "third-token");
    std::fs::rename(&next, &token).expect("renamed");
    shown(&relay, &a, "third-token").await;
    // Half written, gone: the last good one goes on. Each time is looked at for longer than a token is taken for current.
    for broken in [Some(""), Some("two words"), None] {
        match broken {
            Some(text) => write(&token, text),
            None => std::fs::remove_file(&token).expect("removed"),
        }
        let until = tokio::time::Instant::now() + Duration::from_millis(1_200);
        while tokio::time::Instant::now() < until {
            a.reset();
            assert_eq!(ask(&relay, false).await.status, 200);
            let seen = a.requests().pop().expect("a call");
            assert_eq!(seen.header("authorization"), Some("Bearer third-token"), "{broken:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    write(&token, "fourth-token");
    shown(&relay, &a, "fourth-token").await;
}

#[tokio::test]
async fn a_token_that_the_provider_quotes_is_not_passed_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rubicon.toml");
    write(&folder.path().join("token"), "zebra-walrus");
    let a = always(error(400, "BadRequest", "what is zebra-walrus?")).await;
    let text =
        Setup::primary(a.base_url()).kind("azure-openai", "").with_provider("entra_token = \"file:token\"").text()
            + EVENTS_OFF;
    std::fs::write(&file, text).expect("a file");
    let loaded = config::load(&file, &|_| None, UnixMillis::now()).unwrap_or_else(|found| panic!("{found:#?}"));
    let relay = Server::start(loaded.settings).await.expect("a relay");
    let answered = ask(&relay, false).await;
    assert_eq!(answered.status, 400);
    assert!(!answered.text().contains("zebra") && answered.text().contains("what is"), "{}", answered.text());
}

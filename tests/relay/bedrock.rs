//! Bedrock's compatible endpoints: their paths, the bearer on both, AWS's error names, and an end without a terminal event.

use rubicon::mock::{Answer, AutoDialect, MockProvider, anthropic, anthropic_text, chat, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::json;

use crate::harness::{Answered, Http, client, path, post, relay_with, request};
use crate::setup::{Setup, always, overloaded};

const CHAT: Dialect = Dialect::ChatCompletions;
const MESSAGES: Dialect = Dialect::AnthropicMessages;
const KEY: &str = "bedrock-key-of-the-test";

/// The path of a base URL that speaks a dialect.
fn base(dialect: Dialect) -> &'static str {
    if dialect == MESSAGES { "/anthropic" } else { "/openai/v1" }
}

fn bedrock(at: &MockProvider, base: &'static str) -> Setup {
    Setup::primary(at.base_url())
        .kind("bedrock", base)
        .with_provider("api_key = \"env:AWS\"")
        .with_route("model = \"vendor.model\"")
}

async fn start(setup: &Setup) -> Server {
    relay_with(&setup.text(), &[("AWS", KEY), ("ANTHROPIC", "anthropic-key")].into()).await
}

async fn ask(relay: &Server, dialect: Dialect, stream: bool) -> Answered {
    post(&client(Http::One), relay, path(dialect), request(dialect, stream)).await
}

#[tokio::test]
async fn paths_and_the_bearer_on_both_endpoints() {
    for (base, dialect, path) in [
        ("/openai/v1", CHAT, "/openai/v1/chat/completions"),
        ("/openai", CHAT, "/openai/v1/chat/completions"),
        ("/v1", CHAT, "/v1/chat/completions"),
        ("/anthropic", MESSAGES, "/anthropic/v1/messages"),
        ("/anthropic/v1", MESSAGES, "/anthropic/v1/messages"),
    ] {
        let format = if dialect == MESSAGES { AutoDialect::AnthropicMessages } else { AutoDialect::ChatCompletions };
        let a = always(Answer::auto(format, &["hello"])).await;
        let relay = start(&bedrock(&a, base)).await;
        for stream in [true, false] {
            a.reset();
            let answered = ask(&relay, dialect, stream).await;
            assert!(answered.status == 200 && answered.clean, "{}", answered.text());
            let seen = a.requests().pop().expect("a call");
            assert_eq!(seen.path, path);
            assert_eq!(seen.header("authorization"), Some(&*format!("Bearer {KEY}")));
            assert_eq!(seen.header("x-api-key"), None);
            assert_eq!(seen.header("anthropic-version").is_some(), dialect == MESSAGES);
            assert_eq!(seen.json()["model"], "vendor.model");
        }
        // The other dialect is not spoken there.
        let other = if dialect == MESSAGES { CHAT } else { MESSAGES };
        let refused = ask(&relay, other, true).await;
        assert_eq!((refused.status, a.calls()), (400, 1), "{}", refused.text());
    }
    let a = always(Answer::json(200, json!({ "input_tokens": 7 })).header("x-amzn-requestid", "aws-1")).await;
    let relay = start(&bedrock(&a, "/anthropic")).await;
    let counted = post(&client(Http::One), &relay, "/v1/messages/count_tokens", request(MESSAGES, false)).await;
    assert_eq!((counted.status, counted.header("rubicon-provider-request-id")), (200, "aws-1"));
    assert_eq!(a.requests().pop().expect("a call").path, "/anthropic/v1/messages/count_tokens");
}

/// AWS's shape: a message, and the name in a header.
fn aws(status: u16, name: &str, message: &str) -> Answer {
    let kind = format!("{name}:http://internal.amazon.com/coral/com.amazon.bedrock/");
    Answer::json_error(status, json!({ "message": message })).header("x-amzn-errortype", &kind)
}

/// (status, name, message, status for the caller, class, calls of the other route).
const ROWS: &[(u16, &str, &str, u16, &str, u64)] = &[
    (429, "ThrottlingException", "Too many requests, please wait before trying again.", 424, "rate_limited", 1),
    (429, "ThrottlingException", "Too many tokens, please wait before trying again.", 424, "rate_limited", 1),
    (400, "ThrottlingException", "Rate exceeded", 424, "rate_limited", 1),
    (503, "ServiceUnavailableException", "Bedrock is unable to process your request.", 424, "provider_overloaded", 1),
    (429, "ModelNotReadyException", "The model is not ready.", 424, "model_unavailable", 1),
    (408, "ModelTimeoutException", "The request took too long to process.", 424, "transport_transient", 1),
    (424, "ModelErrorException", "The request failed due to an error.", 424, "provider_server_error", 1),
    (500, "InternalServerException", "An internal server error occurred.", 424, "provider_server_error", 1),
    (403, "AccessDeniedException", "You don't have access to the model.", 424, "authentication_or_permission", 0),
    (403, "ExpiredTokenException", "The security token is expired.", 424, "authentication_or_permission", 0),
    (400, "ValidationException", "Malformed input request: 2 schema violations found", 400, "invalid_request", 0),
    (400, "ValidationException", "The provided model identifier is invalid.", 424, "model_unavailable", 1),
    (
        400,
        "ValidationException",
        "Invocation of model ID m with on-demand throughput isn’t supported. Retry your request with the ID or ARN of an inference profile that contains this model.",
        424,
        "model_unavailable",
        1,
    ),
    (404, "ResourceNotFoundException", "The specified resource was not found.", 424, "model_unavailable", 1),
    (400, "ServiceQuotaExceededException", "Your request exceeds the service quota.", 424, "quota_exhausted", 0),
];

#[tokio::test]
async fn errors_by_aws_names_and_what_follows_them() {
    for (status, name, message, for_caller, class, others) in ROWS {
        let b = always(overloaded()).await;
        // The name in the header, in the body, and in the shapes of the two dialects beside the header.
        let body = |body: serde_json::Value| Answer::json_error(*status, body);
        let kind = *name;
        let shapes = [
            (CHAT, aws(*status, name, message)),
            (MESSAGES, aws(*status, name, message)),
            (CHAT, body(json!({ "__type": format!("com.amazon.coral.service#{name}"), "message": message }))),
            (
                CHAT,
                body(json!({ "error": { "message": message, "type": "invalid_request_error", "param": null, "code": null } }))
                    .header("x-amzn-errortype", kind),
            ),
            (
                MESSAGES,
                body(json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } }))
                    .header("x-amzn-errortype", kind),
            ),
        ];
        for (dialect, answer) in shapes {
            let a = always(answer).await;
            let alone = start(&bedrock(&a, base(dialect)).workflow("envelope = { max_attempts = 1 }")).await;
            let answered = ask(&alone, dialect, true).await;
            let found = answered.json();
            assert_eq!((answered.status, &found["rubicon"]["class"]), (*for_caller, &json!(class)), "{name}: {found}");
            a.reset();
            b.reset();
            let setup = bedrock(&a, base(dialect)).equivalent("b", &b).workflow("envelope = { max_attempts = 2 }");
            ask(&start(&setup).await, dialect, false).await;
            assert_eq!((a.calls(), b.calls()), (1, *others), "{name}");
        }
    }
}

#[tokio::test]
async fn an_end_without_a_terminal_event_is_one_unless_strict() {
    let begun = Answer::sse()
        .step(anthropic::message_start())
        .step(anthropic::text_start(0))
        .step(anthropic::text_delta(0, "shown"))
        .step(anthropic::block_stop(0));
    let rows = [
        (MESSAGES, begun.clone().step(anthropic::message_delta("end_turn", 1)), true),
        (MESSAGES, begun, false),
        (CHAT, Answer::sse().step(chat::role()).step(chat::delta("shown")).step(chat::finish("stop")), true),
        (CHAT, Answer::sse().step(chat::role()).step(chat::delta("shown")), false),
    ];
    for (dialect, answer, finished) in rows {
        let a = always(answer).await;
        for (line, lenient) in [("", true), ("terminal = \"strict\"", false)] {
            let relay = start(&bedrock(&a, base(dialect)).with_provider(line)).await;
            let answered = ask(&relay, dialect, true).await;
            assert_eq!(answered.status, 200);
            assert_eq!(answered.clean, finished && lenient, "{}", answered.text());
            assert_eq!(answered.text().contains("\"interrupted\""), !answered.clean, "{}", answered.text());
        }
    }
}

#[tokio::test]
async fn from_anthropic_to_bedrock_in_silence() {
    let error = |kind, message| json!({ "type": "error", "error": { "type": kind, "message": message } });
    let b = always(Answer::auto(AutoDialect::AnthropicMessages, &["from ", "bedrock"])).await;
    // Another model only where this one is not to be had.
    for (alternate, status, said, recovery) in [
        (false, 529, error("overloaded_error", "Overloaded"), "equivalent_failover"),
        (true, 404, error("not_found_error", "model: claude"), "cross_model_fallback"),
    ] {
        let a = always(Answer::json_error(status, said)).await;
        let primary = Setup::primary(a.base_url())
            .kind("anthropic", "")
            .with_provider("api_key = \"env:ANTHROPIC\"")
            .with_route("model = \"claude\"");
        let both = if alternate { primary.alternate("b", &b) } else { primary.equivalent("b", &b) };
        let setup = both
            .kind("bedrock", "/anthropic")
            .with_provider("api_key = \"env:AWS\"")
            .with_route("model = \"anthropic.claude\"");
        let relay = start(&setup).await;
        for stream in [true, false] {
            a.reset();
            b.reset();
            let answered = ask(&relay, MESSAGES, stream).await;
            assert!(answered.status == 200 && answered.clean, "{}", answered.text());
            assert_eq!(answered.header("rubicon-recovery"), recovery);
            assert!(answered.text().contains("bedrock") && !answered.text().contains("error"));
            let (first, second) = (a.requests().pop().expect("a call"), b.requests().pop().expect("a call"));
            assert_eq!((a.calls(), b.calls()), (1, 1));
            assert_eq!((first.path.as_str(), first.header("x-api-key")), ("/v1/messages", Some("anthropic-key")));
            assert_eq!(second.header("authorization"), Some(&*format!("Bearer {KEY}")));
            assert_eq!((second.path.as_str(), second.header("x-api-key")), ("/anthropic/v1/messages", None));
            assert_eq!(second.json()["model"], "anthropic.claude");
        }
    }
    // The streams themselves are what a direct caller of b gets.
    let direct = always(anthropic_text(&["x"])).await;
    assert!(ask(&start(&bedrock(&direct, "/anthropic")).await, MESSAGES, true).await.text().contains("message_stop"));
    let direct = always(chat_text(&["x"])).await;
    assert!(ask(&start(&bedrock(&direct, "/v1")).await, CHAT, true).await.text().ends_with("data: [DONE]\n\n"));
}

//! Every recorded error, and what it is: the table is the specification's, applied to what providers really sent. A
//! recording without a row fails, and so does a row without its recording. Test only.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::tests::CONTEXT;
use super::words::Words;
use super::{Class, Class::*, Evidence, Said, classify};
use crate::protocol::signal::Fault;

/// (recording without `-01.http`, class, may have run, wait in ms). Class `None`: a 2xx, so no evidence of this kind.
type Row = (&'static str, Option<Class>, bool, Option<u64>);

const ROWS: &[Row] = &[
    ("anthropic-400-prompt-too-long", Some(InvalidRequest), false, None),
    ("anthropic-400-wrong-api", Some(InvalidRequest), false, None),
    ("anthropic-401-invalid-key", Some(AuthenticationOrPermission), false, None),
    ("anthropic-404-model", Some(ModelUnavailable), false, None),
    ("anthropic-429-input-tokens", Some(RateLimited), false, Some(65_000)),
    ("anthropic-429-no-retry", Some(InvalidRequest), false, None),
    ("anthropic-429-rpm", Some(RateLimited), false, Some(7_000)),
    ("anthropic-500-api-error", Some(ProviderServerError), true, None),
    ("anthropic-503-envoy", Some(ProviderServerError), true, None),
    ("anthropic-529-overloaded", Some(ProviderOverloaded), false, None),
    ("azure-200-content-filter", None, false, None),
    ("azure-401", Some(AuthenticationOrPermission), false, None),
    ("azure-404-deployment", Some(ModelUnavailable), false, None),
    ("azure-408-upstream-timeout", Some(TransportTransient), true, None),
    ("azure-413-body-too-large", Some(InvalidRequest), false, None),
    ("azure-429-retry-after", Some(RateLimited), false, Some(60_000)),
    ("azure-429-retry-after-ms-zero", Some(RateLimited), false, Some(0)),
    ("azure-500-foundry", Some(ProviderServerError), true, None),
    ("bedrock-400-invalid-model", Some(ModelUnavailable), false, None),
    ("bedrock-400-too-many-tokens", Some(InvalidRequest), false, None),
    ("bedrock-403-invalid-token", Some(AuthenticationOrPermission), false, None),
    ("bedrock-429-throttling", Some(RateLimited), false, None),
    ("bedrock-500-internal", Some(ProviderServerError), true, None),
    ("bedrock-503-capacity", Some(ProviderOverloaded), false, None),
    ("cerebras-429", Some(RateLimited), false, Some(660)),
    ("chatgpt-401-detail", Some(AuthenticationOrPermission), false, None),
    ("cohere-400-too-many-tokens", Some(InvalidRequest), false, None),
    ("cohere-401", Some(AuthenticationOrPermission), false, None),
    ("deepseek-400-context-length", Some(InvalidRequest), false, None),
    ("deepseek-422-plain", Some(InvalidRequest), false, None),
    ("fireworks-403", Some(AuthenticationOrPermission), false, None),
    ("gemini-400-api-key", Some(AuthenticationOrPermission), false, None),
    ("gemini-403-unregistered", Some(AuthenticationOrPermission), false, None),
    ("gemini-404-model", Some(ModelUnavailable), false, None),
    ("gemini-404-model-sse", Some(ModelUnavailable), false, None),
    ("gemini-429-no-details", Some(RateLimited), false, None),
    ("gemini-429-retry-info", Some(RateLimited), false, Some(48_000)),
    ("gemini-500-internal", Some(ProviderServerError), true, None),
    ("gemini-503-high-demand", Some(ProviderOverloaded), false, None),
    ("github-models-429", Some(RateLimited), false, Some(44_000)),
    ("groq-400-tool-use-failed", Some(ContractFailure), true, None),
    ("groq-401-invalid-key", Some(AuthenticationOrPermission), false, None),
    ("groq-429-tpm", Some(RateLimited), false, Some(3_000)),
    ("hf-401-html", Some(AuthenticationOrPermission), false, None),
    ("hf-422-plain", Some(InvalidRequest), false, None),
    ("hf-429", Some(RateLimited), false, None),
    ("hf-503-loading", Some(ModelUnavailable), false, None),
    ("hyperbolic-400", Some(ModelUnavailable), false, None),
    ("llamacpp-400-context", Some(InvalidRequest), false, None),
    ("mistral-401", Some(AuthenticationOrPermission), false, None),
    ("mistral-422", Some(InvalidRequest), false, None),
    ("mistral-429", Some(RateLimited), false, None),
    ("mistral-500", Some(ProviderServerError), true, None),
    ("novita-401", Some(AuthenticationOrPermission), false, None),
    ("ollama-400-context", Some(InvalidRequest), false, None),
    ("openai-400-context-length", Some(InvalidRequest), false, None),
    ("openai-400-image-download", Some(InvalidRequest), false, None),
    ("openai-400-invalid-schema", Some(InvalidRequest), false, None),
    ("openai-400-unsupported-parameter", Some(InvalidRequest), false, None),
    ("openai-400-unsupported-stop", Some(InvalidRequest), false, None),
    ("openai-401-invalid-key", Some(AuthenticationOrPermission), false, None),
    ("openai-403-not-allowed", Some(AuthenticationOrPermission), false, None),
    ("openai-404-model", Some(ModelUnavailable), false, None),
    ("openai-404-not-chat-model", Some(InvalidRequest), false, None),
    ("openai-429-fine-tune-limit", Some(RateLimited), false, None),
    ("openai-429-insufficient-quota", Some(QuotaExhausted), false, None),
    ("openai-429-overloaded", Some(ProviderOverloaded), false, None),
    ("openai-429-request-too-large", Some(InvalidRequest), false, None),
    ("openai-429-rpm", Some(RateLimited), false, Some(20_000)),
    ("openai-500-server-error", Some(ProviderServerError), true, None),
    ("openai-503-envoy-timeout", Some(ProviderServerError), true, None),
    ("openrouter-200-json-keepalive", None, false, None),
    ("openrouter-400-context-length", Some(InvalidRequest), false, None),
    ("openrouter-401", Some(AuthenticationOrPermission), false, None),
    ("openrouter-403-nested-raw", Some(AuthenticationOrPermission), false, None),
    // 20 s before its reset (`NOW_OF` below).
    ("openrouter-429-free-tier", Some(RateLimited), false, Some(20_000)),
    ("openrouter-429-provider", Some(RateLimited), false, None),
    ("perplexity-401-html", Some(AuthenticationOrPermission), false, None),
    ("replicate-402-billing", Some(QuotaExhausted), false, None),
    ("sambanova-401-plain", Some(AuthenticationOrPermission), false, None),
    ("together-400-image", Some(InvalidRequest), false, None),
    ("together-401", Some(AuthenticationOrPermission), false, None),
    ("together-500-via-hf", Some(ProviderServerError), true, Some(1_000)),
    ("venice-404-string", Some(ModelUnavailable), false, None),
    ("vertex-400-token-count", Some(InvalidRequest), false, None),
    ("vertex-404-html", Some(InvalidRequest), false, None),
    ("xai-400-invalid-key", Some(AuthenticationOrPermission), false, None),
    ("xai-503-capacity", Some(ProviderOverloaded), false, None),
    ("zai-429-overloaded", Some(ProviderOverloaded), false, None),
];

/// A clock for the recording whose only hint is a date: its reset is 1754667660000.
const NOW_OF: (&str, u64) = ("openrouter-429-free-tier", 1_754_667_640_000);

/// Errors inside a 200: (recording, fault, class, may have run, status that is told).
fn in_stream() -> Vec<(&'static str, Fault, Class, bool, u16)> {
    let fault = |kind: Option<&str>, code: Option<&str>, message: &str| Fault {
        kind: kind.map(str::to_owned),
        code: code.map(str::to_owned),
        message: Some(message.to_owned()),
        status: None,
    };
    vec![
        (
            "anthropic-messages/anthropic-error-first",
            fault(Some("overloaded_error"), None, "Overloaded"),
            ProviderOverloaded,
            false,
            200,
        ),
        (
            "chat-completions/groq-error-event",
            fault(
                Some("invalid_request_error"),
                Some("tool_use_failed"),
                "Tool call validation failed: tool call validation failed: parameters for tool get_something_by_name did not match schema",
            ),
            ContractFailure,
            true,
            200,
        ),
        (
            "chat-completions/openrouter-error-chunk",
            fault(None, Some("400"), "Token limit reached"),
            InvalidRequest,
            false,
            400,
        ),
        (
            "chat-completions/tgi-error-first",
            fault(
                Some("validation"),
                None,
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096.",
            ),
            InvalidRequest,
            false,
            400,
        ),
        (
            "chat-completions/openai-error-midstream-model",
            fault(
                Some("model_error"),
                None,
                "The model produced invalid content. Consider modifying your prompt if you are seeing this error persistently.",
            ),
            ProviderServerError,
            true,
            200,
        ),
        (
            "responses/openai-error-rate-limit",
            fault(
                Some("tokens"),
                Some("rate_limit_exceeded"),
                "Request too large for gpt-4o in project proj_0 organization org-0 on tokens per min (TPM): Limit 1, Requested 30.",
            ),
            InvalidRequest,
            false,
            400,
        ),
    ]
}

/// The folder of recordings, if it stands beside the checkout; in CI it must.
fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/recordings"));
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(std::env::var_os("CI").is_none(), "no recordings beside the checkout");
    // Past the test harness, which shows nothing of a test that passes.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: no recordings beside the checkout\n");
    None
}

/// Status, headers and body of a recording: split at the first LF LF (recordings' README).
fn read(path: &PathBuf) -> (u16, HeaderMap, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    let split = memchr::memmem::find(&bytes, b"\n\n").unwrap();
    let head = std::str::from_utf8(&bytes[..split]).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(k, v)| (k.parse::<HeaderName>().unwrap(), HeaderValue::from_str(v.trim()).unwrap()))
        .collect();
    (status, headers, bytes[split + 2..].to_vec())
}

#[test]
fn the_table_is_the_folder() {
    let Some(folder) = folder() else { return };
    let found: BTreeSet<String> = std::fs::read_dir(folder.join("errors"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str().unwrap().strip_suffix(".http").map(str::to_owned))
        .collect();
    let listed: BTreeSet<String> = ROWS.iter().map(|row| format!("{}-01", row.0)).collect();
    assert_eq!(listed.len(), ROWS.len(), "a recording is listed twice");
    assert_eq!(found, listed);
}

#[test]
fn every_recorded_error() {
    let Some(folder) = folder() else { return };
    let mut wrong = Vec::new();
    for (name, class, may_have_run, wait) in ROWS {
        let (status, headers, body) = read(&folder.join(format!("errors/{name}-01.http")));
        let Some(class) = class else {
            assert!((200..300).contains(&status), "{name}");
            assert_eq!(Words::of_body(&headers, &body).said, Said::default(), "{name} holds no error");
            continue;
        };
        let mut context = CONTEXT;
        if *name == NOW_OF.0 {
            context.now.0 = NOW_OF.1;
        }
        let verdict = classify(&Evidence::Http { status, headers: &headers, body: &body }, &context);
        let got = (verdict.class, verdict.may_have_run, verdict.retry_after.map(|wait| wait.as_millis()));
        if got != (*class, *may_have_run, wait.map(|wait| Duration::from_millis(wait).as_millis())) {
            wrong.push(format!("{name}: {got:?}, not {class:?} {may_have_run} {wait:?}"));
        }
        assert_eq!(verdict.provider_status, Some(status), "{name}");
        assert!(!verdict.alarm, "{name}");
        assert!(verdict.said.message.is_some(), "{name}: {:?}", verdict.said);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_recorded_error_inside_a_200() {
    for (name, fault, class, may_have_run, status) in in_stream() {
        let verdict = classify(&Evidence::Fault { fault: &fault, headers: &HeaderMap::new() }, &CONTEXT);
        assert_eq!(
            (verdict.class, verdict.may_have_run, verdict.provider_status),
            (class, may_have_run, Some(status)),
            "{name}"
        );
        assert_eq!(verdict.said.message, fault.message, "{name}");
        let Some(folder) = folder() else { continue };
        let recorded = std::fs::read(folder.join(format!("{name}-01.http"))).unwrap();
        for said in [&fault.kind, &fault.code].into_iter().flatten() {
            assert!(memchr::memmem::find(&recorded, said.as_bytes()).is_some(), "{name} does not say {said}");
        }
        let start: String = fault.message.unwrap_or_default().chars().take(40).collect();
        assert!(memchr::memmem::find(&recorded, start.as_bytes()).is_some(), "{name} does not say {start}");
    }
}

#[test]
fn messages_pass_as_sent() {
    let Some(folder) = folder() else { return };
    // (recording, type, message): shapes that are easily lost.
    let rows = [
        ("gemini-404-model-sse", Some("NOT_FOUND"), "models/does-not-exist is not found"),
        (
            "bedrock-403-invalid-token",
            Some("UnrecognizedClientException"),
            "The security token included in the request is invalid.",
        ),
        ("novita-401", Some("FAILED_TO_AUTH"), "failed to authentiacte API-Key"),
        ("cohere-400-too-many-tokens", Some("TOO_MANY_TOKENS"), "too many tokens: size limit"),
        ("mistral-422", None, "Input should be a valid string"),
        ("replicate-402-billing", None, "You need to set up billing"),
        ("openai-401-invalid-key", Some("invalid_request_error"), "Incorrect API key provided: [masked] You can find"),
        ("openai-500-server-error", Some("server_error"), "An error occurred while processing your request."),
        ("openrouter-403-nested-raw", None, "Provider returned error"),
        ("perplexity-401-html", None, "401 Authorization Required"),
        ("hyperbolic-400", None, "Only Qwen/Qwen2.5-72B-Instruct && "),
        ("sambanova-401-plain", None, "Unauthorized: Invalid API key!"),
    ];
    for (name, kind, message) in rows {
        let (_, headers, body) = read(&folder.join(format!("errors/{name}-01.http")));
        let said = Words::of_body(&headers, &body).said;
        assert_eq!(said.kind.as_deref(), kind, "{name}");
        assert!(said.message.as_deref().is_some_and(|said| said.starts_with(message)), "{name}: {said:?}");
    }
}

/// Masking must not eat what is no key: of all recorded messages these alone change.
#[test]
fn masking_leaves_recorded_messages_alone() {
    let Some(folder) = folder() else { return };
    let masked: Vec<&str> = ROWS
        .iter()
        .map(|row| row.0)
        .filter(|name| {
            let (_, headers, body) = read(&folder.join(format!("errors/{name}-01.http")));
            Words::of_body(&headers, &body).said.message.is_some_and(|said| said.contains(super::mask::MASK))
        })
        .collect();
    assert_eq!(masked, ["cohere-401", "openai-401-invalid-key"]);
}

//! The allow-list, credentials, paths and hosts of what goes up: one row each.

use super::*;
use crate::config::testing::settings;

fn route(kind: &str, base: &str, lines: &str) -> std::sync::Arc<RouteSettings> {
    let text = format!(
        "[provider.p]\nkind = \"{kind}\"\nbase_url = \"{base}\"\napi_key = \"env:KEY\"\n{lines}\n\
         [route.a]\nprovider = \"p\"\n[workflow.w]\nprimary = \"a\"\n"
    );
    settings(&text).routes.into_values().next().unwrap()
}

fn sent(
    route: &RouteSettings,
    endpoint: Endpoint,
    query: Option<&str>,
    caller: &[(&str, &str)],
) -> Request<Full<Bytes>> {
    let mut headers = HeaderMap::new();
    for (name, value) in caller {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    build(route, endpoint, query, &headers, Bytes::from_static(b"{}"), "op_1-2").unwrap()
}

fn names(request: &Request<Full<Bytes>>) -> Vec<&str> {
    let mut names: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

const OPENAI: &str = "https://api.example.test/v1";

#[test]
fn only_what_is_listed_goes_up() {
    let route = route("openai", OPENAI, "forward_headers = [\"x-team\"]");
    let listed = [
        ("accept", "text/event-stream"),
        ("user-agent", "app/1"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "a"),
        ("anthropic-beta", "b"),
        ("openai-beta", "c"),
        ("traceparent", "00-0-0-00"),
        ("x-team", "red"),
    ];
    let not_listed = [
        ("authorization", "Bearer caller"),
        ("x-api-key", "caller"),
        ("api-key", "caller"),
        ("x-goog-api-key", "caller"),
        ("cookie", "a=b"),
        ("set-cookie", "a=b"),
        ("proxy-authorization", "caller"),
        ("host", "evil.example.test"),
        ("connection", "keep-alive, x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "1"),
        ("te", "trailers"),
        ("trailer", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("content-length", "99"),
        ("expect", "100-continue"),
        ("forwarded", "for=1"),
        ("x-forwarded-for", "10.0.0.1"),
        ("openai-organization", "org"),
        ("idempotency-key", "k"),
        ("rubicon-workflow", "w"),
        ("x-stainless-retry-count", "1"),
        ("accept-encoding", "gzip, br"),
        ("content-type", "application/vnd.other+json"),
    ];
    let caller: Vec<_> = listed.iter().chain(&not_listed).copied().collect();
    let request = sent(&route, Endpoint::ChatCompletions, None, &caller);
    let mut expected: Vec<_> = listed.iter().map(|(name, _)| *name).collect();
    expected.dedup();
    expected.extend(["accept-encoding", "authorization", "content-type"]);
    expected.sort_unstable();
    assert_eq!(names(&request), expected);
    let header = |name: &str| request.headers().get_all(name).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(header("anthropic-beta"), ["a", "b"]);
    assert_eq!(header("accept-encoding"), ["identity"]);
    assert_eq!(header("content-type"), ["application/json"]);
    assert!(header("authorization")[0].starts_with("Bearer secret-of-KEY"));
    assert_eq!(request.uri().host(), Some("api.example.test"));
    // Without the config line it stays down.
    let plain = self::route("openai", OPENAI, "");
    assert!(!names(&sent(&plain, Endpoint::ChatCompletions, None, &caller)).contains(&"x-team"));
}

#[test]
fn credentials_paths_and_versions_by_kind() {
    const BEARER: &str = "authorization";
    const AZURE: &str = "https://r.openai.azure.com";
    const RUNTIME: &str = "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1";
    const MANTLE: &str = "https://bedrock-mantle.eu-west-1.api.aws";
    let mantle = |path: &str| format!("{MANTLE}{path}").leak() as &str;
    let rows = [
        ("openai", OPENAI, Endpoint::ChatCompletions, "/v1/chat/completions", BEARER),
        (
            "openai-compatible",
            "http://127.0.0.1:1/api/v1/",
            Endpoint::ChatCompletions,
            "/api/v1/chat/completions",
            BEARER,
        ),
        ("openai", OPENAI, Endpoint::Responses, "/v1/responses", BEARER),
        ("openai-compatible", "http://127.0.0.1:1/v1", Endpoint::Responses, "/v1/responses", BEARER),
        ("openai-compatible", "http://127.0.0.1:1/v1", Endpoint::Messages, "/v1/messages", BEARER),
        ("openai-compatible", "http://127.0.0.1:1/v1", Endpoint::CountTokens, "/v1/messages/count_tokens", BEARER),
        ("anthropic", "https://a.example.test", Endpoint::Messages, "/v1/messages", "x-api-key"),
        ("anthropic", "https://a.example.test/v1", Endpoint::CountTokens, "/v1/messages/count_tokens", "x-api-key"),
        ("anthropic", "https://a.example.test", Endpoint::ChatCompletions, "/v1/chat/completions", BEARER),
        ("azure-openai", AZURE, Endpoint::ChatCompletions, "/openai/v1/chat/completions", "api-key"),
        (
            "azure-openai",
            "https://r.services.ai.azure.com/openai/v1/",
            Endpoint::ChatCompletions,
            "/openai/v1/chat/completions",
            "api-key",
        ),
        ("bedrock", RUNTIME, Endpoint::ChatCompletions, "/openai/v1/chat/completions", BEARER),
        ("bedrock", mantle("/v1"), Endpoint::ChatCompletions, "/v1/chat/completions", BEARER),
        ("bedrock", mantle("/anthropic"), Endpoint::Messages, "/anthropic/v1/messages", BEARER),
        ("bedrock", mantle("/anthropic/v1"), Endpoint::Messages, "/anthropic/v1/messages", BEARER),
        ("bedrock", mantle("/anthropic"), Endpoint::CountTokens, "/anthropic/v1/messages/count_tokens", BEARER),
    ];
    for (kind, base, endpoint, path, credential) in rows {
        let request = sent(&route(kind, base, ""), endpoint, None, &[]);
        assert_eq!((request.uri().path(), request.method()), (path, &Method::POST), "{kind} {base}");
        let secret = format!("{}secret-of-KEY{}", if credential == BEARER { "Bearer " } else { "" }, "-".repeat(32));
        assert_eq!(request.headers()[credential], secret, "{kind}");
        assert!(request.headers()[credential].is_sensitive(), "never printed");
        for other in [BEARER, "x-api-key", "api-key"].into_iter().filter(|other| *other != credential) {
            assert!(!request.headers().contains_key(other), "{kind} {other}");
        }
        let version = request.headers().get("anthropic-version");
        assert_eq!(
            version.is_some(),
            matches!(endpoint, Endpoint::Messages | Endpoint::CountTokens),
            "{kind} {endpoint:?}"
        );
    }
    // The caller's own version wins.
    let anthropic = route("anthropic", "https://a.example.test", "");
    let request = sent(&anthropic, Endpoint::Messages, None, &[("anthropic-version", "2099-01-01")]);
    assert_eq!(request.headers()["anthropic-version"], "2099-01-01");
}

#[test]
fn queries_pass_and_can_not_choose_a_host() {
    let route = route("openai", OPENAI, "");
    for query in ["api-version=2024-10-21&x=%20", "//evil.example.test/", "@evil.example.test", "a=b?c=d"] {
        let request = sent(&route, Endpoint::ChatCompletions, Some(query), &[]);
        assert_eq!(request.uri().to_string(), format!("{OPENAI}/chat/completions?{query}"));
        assert_eq!(request.uri().host(), Some("api.example.test"));
    }
}

#[test]
fn an_attempts_own_key_where_the_provider_takes_one() {
    let with = route("openai", OPENAI, "idempotency_header = \"idempotency-key\"");
    let request = sent(&with, Endpoint::ChatCompletions, None, &[("idempotency-key", "the caller's")]);
    assert_eq!(request.headers()["idempotency-key"], "op_1-2");
}

/// A route whose provider has a token file.
fn entra() -> RouteSettings {
    let mut route = std::sync::Arc::into_inner(route("azure-openai", "https://r.openai.azure.com", "")).unwrap();
    let mut provider = std::sync::Arc::into_inner(route.provider).unwrap();
    provider.api_key = None;
    let token = crate::config::secret::Secret::new("entra-token".into());
    provider.entra_token =
        Some(std::sync::Arc::new(crate::config::token_file::TokenFile::new("nowhere".into(), token)));
    route.provider = std::sync::Arc::new(provider);
    route
}

#[test]
fn a_token_of_entra_is_a_bearer() {
    let request = sent(&entra(), Endpoint::ChatCompletions, Some("api-version=preview"), &[("api-key", "caller")]);
    assert_eq!(request.headers()["authorization"], "Bearer entra-token");
    assert!(request.headers()["authorization"].is_sensitive() && !request.headers().contains_key("api-key"));
    assert_eq!(request.uri(), "https://r.openai.azure.com/openai/v1/chat/completions?api-version=preview");
}

#[test]
fn what_passes_through_goes_below_the_base() {
    let caller: HeaderMap = [
        ("content-type", "multipart/form-data; boundary=x"),
        ("authorization", "Bearer caller"),
        ("cookie", "a=b"),
        ("connection", "keep-alive"),
        ("openai-beta", "assistants=v2"),
    ]
    .into_iter()
    .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
    .collect();
    let rows = [
        ("openai", OPENAI, "/v1/files/f%2Fg", "https://api.example.test/v1/files/f%2Fg?limit=2"),
        (
            "openai-compatible",
            "http://127.0.0.1:1/api/v1",
            "/v1/embeddings",
            "http://127.0.0.1:1/api/v1/embeddings?limit=2",
        ),
        ("openai-compatible", "http://127.0.0.1:1", "/v1/embeddings", "http://127.0.0.1:1/embeddings?limit=2"),
        (
            "azure-openai",
            "https://r.openai.azure.com",
            "/v1/responses/resp_1/cancel",
            "https://r.openai.azure.com/openai/v1/responses/resp_1/cancel?limit=2",
        ),
        (
            "bedrock",
            "https://bedrock-mantle.eu-west-1.api.aws/v1",
            "/v1/responses/resp_1",
            "https://bedrock-mantle.eu-west-1.api.aws/v1/responses/resp_1?limit=2",
        ),
        (
            "anthropic",
            "https://a.example.test",
            "/v1/messages/batches",
            "https://a.example.test/v1/messages/batches?limit=2",
        ),
    ];
    for (kind, base, path, uri) in rows {
        let dialect = if kind == "anthropic" { Dialect::AnthropicMessages } else { Dialect::ChatCompletions };
        let route = route(kind, base, "");
        let body = Bytes::from_static(b"--x--");
        let request = pass(&route, dialect, Method::DELETE, path, Some("limit=2"), &caller, body).unwrap();
        assert_eq!((request.uri().to_string().as_str(), request.method()), (uri, &Method::DELETE));
        let credential = match kind {
            "anthropic" => "x-api-key",
            "azure-openai" => "api-key",
            _ => "authorization",
        };
        let mut expected = vec!["accept-encoding", "content-type", "openai-beta", credential];
        if kind == "anthropic" {
            expected.push("anthropic-version");
        }
        expected.sort_unstable();
        assert_eq!(names(&request), expected, "{kind}");
        assert_eq!(request.headers()["content-type"], "multipart/form-data; boundary=x");
        assert!(!request.headers()[credential].to_str().unwrap().contains("caller"));
    }
}

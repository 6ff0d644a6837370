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
    ];
    for (kind, base, endpoint, path, credential) in rows {
        let request = sent(&route(kind, base, ""), endpoint, None, &[]);
        assert_eq!((request.uri().path(), request.method()), (path, &Method::POST), "{kind} {base}");
        let other = if credential == BEARER { "x-api-key" } else { BEARER };
        assert!(request.headers()[credential].is_sensitive(), "never printed");
        assert!(!request.headers().contains_key(other), "{kind}");
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

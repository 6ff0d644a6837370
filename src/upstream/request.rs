//! The request that goes to a provider: built anew for each attempt from the caller's own, never from an earlier attempt.
//!
//! Only allow-listed headers go up (SPEC Annex, Requests): no cookies, no credentials of the caller, nothing hop-by-hop.
//! `accept-encoding: identity`, because a compressed stream can't be forwarded event by event (FIELD_CASES F53).

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Full;

use crate::config::settings::{ProviderKind, RouteSettings};
use crate::contract::Endpoint;
use crate::protocol::Dialect;

/// What always may go up, besides the provider's `forward_headers`.
pub const FORWARDED: [HeaderName; 6] = [
    HeaderName::from_static("accept"),
    HeaderName::from_static("user-agent"),
    HeaderName::from_static("anthropic-version"),
    HeaderName::from_static("anthropic-beta"),
    HeaderName::from_static("openai-beta"),
    HeaderName::from_static("traceparent"),
];

/// Anthropic demands a version; this is the one its SDKs send.
const ANTHROPIC_VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Why no request could be built: only a key with bytes that no header may carry, or a path that is no URI.
#[derive(Debug, thiserror::Error)]
#[error("the request to {route} can't be built: {what}")]
pub struct BuildError {
    route: String,
    what: String,
}

/// Builds it. `query` is the caller's, `idempotency` a key for this attempt where the provider takes one.
///
/// # Errors
/// See [`BuildError`].
pub fn build(
    route: &RouteSettings,
    endpoint: Endpoint,
    query: Option<&str>,
    caller: &HeaderMap,
    body: Bytes,
    idempotency: &str,
) -> Result<Request<Full<Bytes>>, BuildError> {
    let provider = &route.provider;
    let fail = |what: &dyn std::fmt::Display| BuildError { route: route.name.to_string(), what: what.to_string() };
    let mut headers = HeaderMap::new();
    for name in FORWARDED.iter().chain(&provider.forward_headers) {
        for value in caller.get_all(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    // Anthropic's own dialect wants its own header; its OpenAI-compatible endpoint and everybody else take a bearer.
    let native = provider.kind == ProviderKind::Anthropic && endpoint.dialect() == Dialect::AnthropicMessages;
    if let Some(key) = &provider.api_key {
        let secret = |text: String| {
            HeaderValue::from_str(&text).map(sensitive).map_err(|_| fail(&"its api_key has bytes no header may carry"))
        };
        if native {
            headers.insert(HeaderName::from_static("x-api-key"), secret(key.expose().to_owned())?);
        } else {
            headers.insert(AUTHORIZATION, secret(format!("Bearer {}", key.expose()))?);
        }
    }
    if endpoint.dialect() == Dialect::AnthropicMessages {
        headers.entry(HeaderName::from_static("anthropic-version")).or_insert(ANTHROPIC_VERSION);
    }
    if let Some(name) = &provider.idempotency_header {
        headers.insert(name.clone(), HeaderValue::from_str(idempotency).map_err(|error| fail(&error))?);
    }
    let uri = uri(&provider.base_url, path(provider.kind, endpoint), query).map_err(|error| fail(&error))?;
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(request)
}

/// What follows the base URL: Anthropic's is given without `/v1`, everybody else's with it, as their SDKs take them.
fn path(kind: ProviderKind, endpoint: Endpoint) -> &'static str {
    match (kind, endpoint) {
        (ProviderKind::Anthropic, Endpoint::ChatCompletions) => "/v1/chat/completions",
        (ProviderKind::Anthropic, Endpoint::Messages) => "/v1/messages",
        (ProviderKind::Anthropic, Endpoint::CountTokens) => "/v1/messages/count_tokens",
        (ProviderKind::Anthropic, Endpoint::Responses) => "/v1/responses",
        (_, Endpoint::ChatCompletions) => "/chat/completions",
        (_, Endpoint::Messages) => "/messages",
        (_, Endpoint::CountTokens) => "/messages/count_tokens",
        (_, Endpoint::Responses) => "/responses",
    }
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// No caller can choose a host: scheme and authority are the provider's, only the query is the caller's.
fn uri(base: &Uri, path: &str, query: Option<&str>) -> Result<Uri, http::Error> {
    let mut full = format!("{}{path}", base.path().trim_end_matches('/'));
    if let Some(query) = query {
        full.push('?');
        full.push_str(query);
    }
    Uri::builder()
        .scheme(base.scheme_str().unwrap_or("https"))
        .authority(base.authority().map_or("", http::uri::Authority::as_str))
        .path_and_query(full)
        .build()
}

#[cfg(test)]
mod tests;

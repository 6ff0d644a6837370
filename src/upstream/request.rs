//! The request that goes to a provider: built anew for each attempt from the caller's own, never from an earlier attempt.
//!
//! Only allow-listed headers go up (SPEC Annex, Requests): no cookies, no credentials of the caller, nothing hop-by-hop.
//! `accept-encoding: identity`, because a compressed stream can't be forwarded event by event (FIELD_CASES F53).

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Full;

use crate::config::settings::{ProviderKind, ProviderSettings, RouteSettings};
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
    let mut headers = headers(route, endpoint.dialect(), caller)?;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(name) = &provider.idempotency_header {
        headers.insert(name.clone(), HeaderValue::from_str(idempotency).map_err(|error| failed(route, &error))?);
    }
    let path = path(provider.kind, endpoint);
    let uri = uri(&provider.base_url, path, query).map_err(|error| failed(route, &error))?;
    Ok(request(Method::POST, uri, headers, body))
}

/// Builds one that passes through: the caller's method, content type and body, to the same path below the provider's base URL. `path`
/// begins with `/v1/` and is as the caller wrote it; `dialect` is whose errors and credentials the path has.
///
/// # Errors
/// See [`BuildError`].
pub fn pass(
    route: &RouteSettings,
    dialect: Dialect,
    method: Method,
    path: &str,
    query: Option<&str>,
    caller: &HeaderMap,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, BuildError> {
    let mut headers = headers(route, dialect, caller)?;
    if let Some(kind) = caller.get(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, kind.clone());
    }
    // Every base but Anthropic's ends where `/v1` does.
    let below = match route.provider.kind {
        ProviderKind::Anthropic => path,
        _ => path.strip_prefix("/v1").unwrap_or(path),
    };
    let uri = uri(&route.provider.base_url, below, query).map_err(|error| failed(route, &error))?;
    Ok(request(method, uri, headers, body))
}

fn failed(route: &RouteSettings, what: &dyn std::fmt::Display) -> BuildError {
    BuildError { route: route.name.to_string(), what: what.to_string() }
}

fn request(method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    request
}

/// What may go up of the caller's, and the provider's own credential.
fn headers(route: &RouteSettings, dialect: Dialect, caller: &HeaderMap) -> Result<HeaderMap, BuildError> {
    let provider = &route.provider;
    let mut headers = HeaderMap::new();
    for name in FORWARDED.iter().chain(&provider.forward_headers) {
        for value in caller.get_all(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(secret) = provider.credential() {
        let (name, value) = credential(provider, dialect, secret.expose());
        let value = HeaderValue::from_str(&value).map(sensitive);
        headers.insert(name, value.map_err(|_| failed(route, &"its api_key has bytes no header may carry"))?);
    }
    if dialect == Dialect::AnthropicMessages {
        headers.entry(HeaderName::from_static("anthropic-version")).or_insert(ANTHROPIC_VERSION);
    }
    Ok(headers)
}

/// How a kind takes its credential. Anthropic's own dialect wants its own header; its OpenAI-compatible endpoint takes a bearer, as does
/// Bedrock's Anthropic-compatible one (a Bedrock API key; so does Anthropic's client for it). Azure has a header for keys, and takes
/// Entra's tokens as a bearer.
fn credential(provider: &ProviderSettings, dialect: Dialect, secret: &str) -> (HeaderName, String) {
    match provider.kind {
        ProviderKind::Anthropic if dialect == Dialect::AnthropicMessages => {
            (HeaderName::from_static("x-api-key"), secret.to_owned())
        }
        ProviderKind::AzureOpenAi if provider.api_key.is_some() => {
            (HeaderName::from_static("api-key"), secret.to_owned())
        }
        ProviderKind::OpenAi
        | ProviderKind::AzureOpenAi
        | ProviderKind::Anthropic
        | ProviderKind::Bedrock
        | ProviderKind::OpenAiCompatible => (AUTHORIZATION, format!("Bearer {secret}")),
    }
}

/// What follows the base URL: Anthropic's is given without `/v1`, everybody else's with it, as their SDKs take them (Bedrock's for
/// Anthropic's dialect too, once it is checked).
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

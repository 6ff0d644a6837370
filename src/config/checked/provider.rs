//! `[provider.NAME]`.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderName;

use crate::ids::ProviderId;

use super::super::Sources;
use super::super::node::Node;
use super::super::problem::{Code, Problems};
use super::super::settings::{Network, ProviderKind, ProviderSettings, Terminal};
use super::super::token_file::TokenFile;
use super::{no_doubles, secrets, url};

/// The vendor's own addresses, as its SDK takes them.
fn default_base_url(kind: ProviderKind) -> Option<&'static str> {
    match kind {
        ProviderKind::OpenAi => Some("https://api.openai.com/v1"),
        ProviderKind::Anthropic => Some("https://api.anthropic.com"),
        ProviderKind::AzureOpenAi | ProviderKind::Bedrock | ProviderKind::OpenAiCompatible => None,
    }
}

/// Headers that never go upstream from a caller, beside [`FRAMING`]: credentials and cookies.
const NEVER_FORWARDED: &[&str] = &[
    "authorization",
    "proxy-authorization",
    "proxy-authenticate",
    "x-api-key",
    "x-goog-api-key",
    "api-key",
    "cookie",
    "set-cookie",
];

/// Headers of a message that this program sends: its own HTTP client makes them, or they would change what is sent or how the answer is
/// read (RFC 9110 section 7.6.1 and the codings).
pub(super) const FRAMING: &[&str] = &[
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "accept-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

/// All providers that could be built.
pub(super) fn all(
    root: &Node,
    problems: &mut Problems<'_>,
    sources: &Sources<'_>,
) -> BTreeMap<ProviderId, Arc<ProviderSettings>> {
    let mut all = BTreeMap::new();
    for (name, node) in root.named("provider") {
        if let Some(provider) = one(name, node, problems, sources) {
            all.insert(provider.name.clone(), Arc::new(provider));
        }
    }
    all
}

fn one(name: &str, node: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> Option<ProviderSettings> {
    let kind = match node.text("kind") {
        Some("openai") => Some(ProviderKind::OpenAi),
        Some("azure-openai") => Some(ProviderKind::AzureOpenAi),
        Some("bedrock") => Some(ProviderKind::Bedrock),
        Some("anthropic") => Some(ProviderKind::Anthropic),
        Some("openai-compatible") => Some(ProviderKind::OpenAiCompatible),
        _ => None,
    };
    let base_url = kind.and_then(|kind| base_url(kind, node, problems));
    let api_key = node.text("api_key").and_then(|reference| {
        secrets::read(reference, node.at_of("api_key"), &node.key_of("api_key"), problems, sources)
    });
    let entra_token = entra_token(kind, node, problems, sources);
    let by_default = kind.is_some_and(|kind| default_base_url(kind).is_some()) && !node.has("base_url");
    let vendors_own = by_default || base_url.as_ref().is_some_and(url::is_vendors_own);
    if vendors_own && !node.has("api_key") && !node.has("entra_token") {
        let message = match kind {
            Some(ProviderKind::AzureOpenAi) => "`api_key` or `entra_token` is required at the vendor's own address",
            _ => "`api_key` is required at the vendor's own address",
        };
        problems.error(Code::MissingKey, node.at, &node.key_of("api_key"), message);
    }
    let forward_headers = forward_headers(node, problems);
    let attempts_header = header(node, "attempts_header", problems);
    let idempotency_header = header(node, "idempotency_header", problems);
    if let Some(header) = &idempotency_header {
        never_forwarded(header, node.at_of("idempotency_header"), &node.key_of("idempotency_header"), problems);
    }
    no_doubles(node.items("depends_on").unwrap_or_default(), &node.key_of("depends_on"), problems);
    let kind = kind?;
    let lenient = match node.text("terminal") {
        Some(word) => word == "lenient",
        None => matches!(kind, ProviderKind::OpenAiCompatible | ProviderKind::Bedrock),
    };
    Some(ProviderSettings {
        name: ProviderId::new(name),
        kind,
        base_url: base_url?,
        api_key,
        entra_token,
        account: node.owned("account").unwrap_or_else(|| name.to_owned()),
        legal_entity: node.owned("legal_entity"),
        data_classes: node.texts("data_classes"),
        network: network(node),
        terminal: if lenient { Terminal::Lenient } else { Terminal::Strict },
        forward_headers,
        ambiguous_429_is_rate_limit: node.text("ambiguous_429") == Some("rate_limited"),
        attempts_header,
        idempotency_header,
        depends_on: node.texts("depends_on").unwrap_or_default(),
    })
}

/// A token that is renewed while the relay runs, so it can only be a file.
fn entra_token(
    kind: Option<ProviderKind>,
    node: &Node,
    problems: &mut Problems<'_>,
    sources: &Sources<'_>,
) -> Option<Arc<TokenFile>> {
    let reference = node.text("entra_token")?;
    let (at, key) = (node.at_of("entra_token"), node.key_of("entra_token"));
    if kind.is_some_and(|kind| kind != ProviderKind::AzureOpenAi) {
        problems.error(Code::InvalidValue, at, &key, "only providers of kind azure-openai take a token of Entra");
        return None;
    }
    if node.has("api_key") {
        let message = "there is an `api_key`, too: one of both";
        problems.error(Code::CredentialTwice, at, &key, message);
    }
    let Some(path) = reference.strip_prefix("file:").filter(|path| !path.is_empty()) else {
        let message = "tokens expire within the hour and are renewed: use \"file:PATH\"";
        problems.error(Code::SecretInline, at, &key, message);
        return None;
    };
    let first = secrets::read(reference, at, &key, problems, sources)?;
    Some(Arc::new(TokenFile::new(sources.folder.join(path), first)))
}

/// `network` of a provider, approval or requirement.
pub(super) fn network(node: &Node) -> Option<Network> {
    match node.text("network") {
        Some("private") => Some(Network::Private),
        Some("public") => Some(Network::Public),
        _ => None,
    }
}

fn base_url(kind: ProviderKind, node: &Node, problems: &mut Problems<'_>) -> Option<http::Uri> {
    let (at, key) = (node.at_of("base_url"), node.key_of("base_url"));
    let text = match (node.text("base_url"), default_base_url(kind)) {
        (Some(text), _) => text,
        (None, _) if node.has("base_url") => return None,
        (None, Some(text)) => text,
        (None, None) => {
            let message = format!("`base_url` is required for kind {}", node.text("kind").unwrap_or_default());
            problems.error(Code::MissingKey, node.at, &key, message);
            return None;
        }
    };
    let uri = match url::base(kind, text) {
        Ok(uri) => uri,
        Err(refusal) => {
            problems.error(Code::BaseUrlInvalid, at, &key, refusal.0);
            return None;
        }
    };
    if uri.scheme_str() == Some("http") && !url::is_loopback(&uri) && !node.flag("allow_plain_http") {
        let message = "plain http sends keys and prompts in the clear; use https, or say `allow_plain_http = true`";
        problems.error(Code::PlainHttp, at, &key, message);
    }
    if kind != ProviderKind::Anthropic && uri.path() == "/" {
        let message = "has no path; `/chat/completions` follows it directly, usually it ends in /v1";
        problems.warning(Code::BaseUrlUnversioned, at, &key, message);
    }
    Some(uri)
}

fn forward_headers(node: &Node, problems: &mut Problems<'_>) -> Vec<HeaderName> {
    let key = node.key_of("forward_headers");
    let mut headers = Vec::new();
    for item in node.items("forward_headers").unwrap_or_default() {
        match HeaderName::from_bytes(item.text.as_bytes()) {
            Ok(header) if headers.contains(&header) => {
                problems.error(Code::Duplicate, item.at, &key, "this header stands here twice");
            }
            Ok(header) => {
                never_forwarded(&header, item.at, &key, problems);
                headers.push(header);
            }
            Err(_) => problems.error(Code::InvalidValue, item.at, &key, "is not a header's name"),
        }
    }
    headers
}

fn header(node: &Node, name: &str, problems: &mut Problems<'_>) -> Option<HeaderName> {
    let text = node.text(name)?;
    let header = HeaderName::from_bytes(text.as_bytes()).ok();
    if header.is_none() {
        problems.error(Code::InvalidValue, node.at_of(name), &node.key_of(name), "is not a header's name");
    }
    header
}

fn never_forwarded(header: &HeaderName, at: usize, key: &str, problems: &mut Problems<'_>) {
    let never = |list: &[&str]| list.contains(&header.as_str());
    if never(NEVER_FORWARDED) || never(FRAMING) || header.as_str().starts_with("rubicon-") {
        let why = "credentials, cookies, connection headers, the body's own and rubicon-* are never forwarded";
        problems.error(Code::HeaderNotAllowed, at, key, why);
    }
}

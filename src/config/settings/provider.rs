//! `[provider.NAME]`: whom to call, with which credential, and what is known of them.

use std::sync::Arc;

use crate::ids::ProviderId;

use super::super::secret::Secret;
use super::super::token_file::TokenFile;

/// `[provider.X] kind` of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    /// OpenAI itself: `Authorization: Bearer`.
    OpenAi,
    /// Azure OpenAI and Microsoft Foundry, their v1 endpoint: `api-key`, or a bearer token of Entra.
    AzureOpenAi,
    /// Anthropic itself: `x-api-key`, and `anthropic-version` where the caller sent none.
    Anthropic,
    /// Amazon Bedrock's OpenAI- and Anthropic-compatible endpoints: `Authorization: Bearer` on both.
    Bedrock,
    /// Anything that speaks Chat Completions: `Authorization: Bearer`.
    OpenAiCompatible,
}

/// `[provider.NAME]`.
#[derive(Debug)]
pub struct ProviderSettings {
    /// The name.
    pub name: ProviderId,
    /// `kind`.
    pub kind: ProviderKind,
    /// `base_url` (the vendor's own by default), scheme and authority and path, no trailing slash. For openai kinds it ends
    /// where `/chat/completions` follows (usually `/v1`); for anthropic `/v1` is cut off when given, `/v1/messages` follows.
    /// Of azure-openai and bedrock it always ends in `/v1`.
    pub base_url: http::Uri,
    /// `api_key`; absent: no credential is sent (local servers).
    pub api_key: Option<Secret>,
    /// `entra_token` (azure-openai), instead of `api_key`.
    pub entra_token: Option<Arc<TokenFile>>,
    /// `account` (default: the provider's name): who holds pinned state.
    pub account: String,
    /// `legal_entity`.
    pub legal_entity: Option<String>,
    /// `data_classes` the provider may see; absent: not stated.
    pub data_classes: Option<Vec<String>>,
    /// `network`; absent: not stated.
    pub network: Option<Network>,
    /// `terminal` (strict; lenient for openai-compatible and bedrock): whether a finish reason and the end of the body are an end.
    pub terminal: Terminal,
    /// `forward_headers`: request headers that go upstream besides the fixed list, in lower case.
    pub forward_headers: Vec<http::HeaderName>,
    /// `ambiguous_429 = "rate_limited"`.
    pub ambiguous_429_is_rate_limit: bool,
    /// `attempts_header`: a response header in which a gateway below reports the attempts it spent.
    pub attempts_header: Option<http::HeaderName>,
    /// `idempotency_header`: request header that carries a key of this attempt, where the provider supports one.
    pub idempotency_header: Option<http::HeaderName>,
    /// `depends_on`: failure domains that it shares with others.
    pub depends_on: Vec<String>,
}

impl ProviderSettings {
    /// The key or token of this moment.
    pub fn credential(&self) -> Option<Secret> {
        self.api_key.clone().or_else(|| self.entra_token.as_ref().map(|token| token.last_good()))
    }
}

/// `network`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Private link or VPC.
    Private,
    /// Public HTTPS.
    Public,
}

/// `terminal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// Only the dialect's own terminal event ends a stream.
    Strict,
    /// A finish reason followed by the end of the body does too.
    Lenient,
}

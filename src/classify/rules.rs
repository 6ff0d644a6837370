//! The rules: which words, under which status, mean which class. Data, not code: the first row that fits decides, and
//! every row names where it was seen.
//!
//! In: [`Words`] and a status. Out: the row. The order of the tables is the judgement: what names the account's money
//! comes before what names a rate, a rate before overload, anything precise before the provider's general type, because
//! providers put a precise sentence under a general type and a wrong status (an exhausted account as 429, 400 or 403; a
//! wrong key as 400). Where no row fits, the status alone decides ([`by_status`], SPEC section 6's table).
//! `source`: a recording's name (`recordings/errors` unless a folder is given), the provider's own page, a public report
//! (owner/repository and number), STREAMS, or a number of FIELD_CASES. `examples.rs` has an example for every row, `doc.rs`
//! prints them all.

use super::Class::{self, *};
use super::openai;
use super::words::Words;

/// A word to look for, in lower case.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    /// Exactly a type, code, status or reason.
    Code(&'static str),
    /// Within a type, code, status or reason: a family of them.
    Part(&'static str),
    /// Anywhere in a message.
    Text(&'static str),
}
use Word::{Code, Text};

/// Under which status a row applies. An in-stream error that names no status meets every row.
#[derive(Clone, Copy, Debug)]
pub(super) enum On {
    /// Any status ("whatever status it arrives under").
    Any,
    /// These.
    Only(&'static [u16]),
    /// These, and said by the status itself: for words so common that in a stream, without a status, they prove nothing
    /// ("an error occurred, please try again").
    Exactly(&'static [u16]),
    /// 4xx without 429: the request's or the account's fault.
    Client,
    /// 4xx without those that say by themselves what they are (401, 402, 403, 429): a general type adds nothing there.
    Vague,
    /// Anything but 429: words on sizes, which throttles of tokens use too.
    NotThrottle,
    /// 429, 498 (Groq's flex tier) and 5xx.
    Busy,
    /// 5xx and 424 (AWS: the model failed).
    Server,
}

impl On {
    fn fits(self, status: Option<u16>) -> bool {
        let Some(status) = status else { return !matches!(self, Self::Exactly(_)) };
        match self {
            Self::Any => true,
            Self::Only(list) | Self::Exactly(list) => list.contains(&status),
            Self::Client => (400..500).contains(&status) && status != 429,
            Self::Vague => (400..500).contains(&status) && !matches!(status, 401..=403 | 429),
            Self::NotThrottle => status != 429,
            Self::Busy => matches!(status, 429 | 498 | 500..),
            Self::Server => matches!(status, 424 | 500..),
        }
    }
}

/// One rule.
#[derive(Debug)]
pub(super) struct Row {
    /// All of these must have been said.
    pub(super) all: &'static [Word],
    /// Under these statuses.
    pub(super) on: On,
    /// Then it is this.
    pub(super) class: Class,
    /// The words themselves are proof that the request was not processed (a word of overload; a model that is not there).
    pub(super) proof: bool,
    /// Where it was seen.
    #[cfg_attr(not(test), allow(dead_code, reason = "for people: `doc.rs` prints it"))]
    pub(super) source: &'static str,
}

pub(super) const fn row(all: &'static [Word], on: On, class: Class, source: &'static str) -> Row {
    Row { all, on, class, proof: matches!(class, ProviderOverloaded | ModelUnavailable), source }
}

/// As [`row`], for words that do not prove that the request was not processed.
const fn unproved(all: &'static [Word], on: On, class: Class, source: &'static str) -> Row {
    Row { all, on, class, proof: false, source }
}

impl Row {
    fn fits(&self, words: &Words, status: Option<u16>) -> bool {
        let said = |word: &Word| match word {
            Code(code) => words.has_code(code),
            Word::Part(part) => words.has_code_with(part),
            Text(text) => words.has_text(text),
        };
        self.on.fits(status) && self.all.iter().all(said)
    }
}

const THROTTLE: On = On::Only(&[429]);
const EXACTLY_429: On = On::Exactly(&[429]);

/// Money: words that leave no doubt, under any status.
static QUOTA: &[Row] = &[
    row(&[Code("insufficient_quota")], On::Any, QuotaExhausted, "openai-429-insufficient-quota; FIELD_CASES F92"),
    row(&[Code("billing_hard_limit_reached")], On::Any, QuotaExhausted, "OpenAI: code of the next row's message"),
    row(&[Text("billing hard limit")], On::Any, QuotaExhausted, "OpenAI 400: bajrangCoder/acode-plugin-chatgpt#19"),
    row(&[Code("billing_not_active")], On::Any, QuotaExhausted, "OpenAI 429: lifan0127/ai-research-assistant#174"),
    row(&[Code("billing_error")], On::Any, QuotaExhausted, "Anthropic errors page (402); STREAMS 1.5"),
    row(&[Text("credit balance is too low")], On::Any, QuotaExhausted, "Anthropic 400: anthropics/claude-code#66314"),
    row(
        &[Text("specified api usage limits")],
        On::Any,
        QuotaExhausted,
        "Anthropic errors page (400, spend limit reached)",
    ),
    row(
        &[Text("spending limit")],
        On::Any,
        QuotaExhausted,
        "xAI 429 and 403: continuedev/continue#10373, Anantys-oss/koan#2412",
    ),
    row(&[Text("run out of credits")], On::Any, QuotaExhausted, "xAI 403: tetsuo-ai/agenc-core#2483"),
    row(
        &[Text("insufficient balance")],
        On::Any,
        QuotaExhausted,
        "DeepSeek error codes page (402); Z.ai 429: zai-org/feedback#789",
    ),
    row(&[Text("余额不足")], On::Any, QuotaExhausted, "Zhipu 429: continuedev/continue#11823"),
    row(&[Text("requires more credits")], On::Any, QuotaExhausted, "OpenRouter errors page (402)"),
    row(
        &[Text("key limit exceeded")],
        On::Any,
        QuotaExhausted,
        "OpenRouter limits page: a key's own spending limit (403)",
    ),
    row(&[Code("billing_disabled")], On::Any, QuotaExhausted, "Google ErrorReason (403)"),
    row(&[Code("usage_limit_reached")], On::Any, QuotaExhausted, "ChatGPT plans 429: can1357/oh-my-pi#4913"),
    row(
        &[Code("usage_not_included")],
        On::Any,
        QuotaExhausted,
        "ChatGPT plans, final for Codex (STREAMS 2.5): this plan has no such usage",
    ),
    row(&[Text("usage limit reached")], On::Any, QuotaExhausted, "Z.ai error codes page (1308, under 429)"),
    row(&[Code("servicequotaexceededexception")], On::Any, QuotaExhausted, "Bedrock InvokeModel reference (400)"),
    row(&[Code("arrearage")], On::Any, QuotaExhausted, "DashScope error codes page (400)"),
];

/// 429s in which a word of quota means a rate, or one of rate means something else. Before the general words.
static THROTTLES: &[Row] = &[
    row(
        &[Text("request too large")],
        On::Only(&[413, 429]),
        InvalidRequest,
        "openai-429-request-too-large, responses/openai-error-rate-limit: this request alone is over the limit; Groq sends it as 413",
    ),
    row(
        &[Code("x-should-retry=false"), Code("rate_limit_error"), Text("reduce the prompt length")],
        THROTTLE,
        InvalidRequest,
        "anthropic-429-no-retry: this request alone is over the limit, nothing is used up",
    ),
    row(
        &[Text("no capacity available for model")],
        On::Busy,
        ModelUnavailable,
        "Google 429 and 503: google-gemini/gemini-cli#23520, #27548",
    ),
    row(&[Code("model_capacity_exhausted")], On::Busy, ModelUnavailable, "Google 503: google-gemini/gemini-cli#23520"),
    row(
        &[Text("service tier capacity exceeded for this model")],
        On::Any,
        ModelUnavailable,
        "Mistral 429: continuedev/continue#6185",
    ),
    row(
        &[Code("quotafailure"), Text("perday")],
        THROTTLE,
        QuotaExhausted,
        "Google: a day's quota, langgenius/dify#19838",
    ),
    row(
        &[Code("resource_exhausted"), Text("limit: 0,")],
        THROTTLE,
        QuotaExhausted,
        "Google: no quota at all, continuedev/continue#9570",
    ),
    row(
        &[Code("ratelimitreached")],
        THROTTLE,
        RateLimited,
        "azure-429-retry-after, azure-429-retry-after-ms-zero: the message goes on about raising a quota",
    ),
    row(
        &[Text("rate limit"), Text("pricing tier")],
        THROTTLE,
        RateLimited,
        "Azure 429 (code 429): langchain-ai/langchain#12986, jasonacox/TinyLLM#17",
    ),
    row(&[Text("perminute")], THROTTLE, RateLimited, "gemini-429-retry-info (quotaId)"),
    row(&[Text("per_minute")], THROTTLE, RateLimited, "Vertex: felixbinder/introspection_self_prediction#66"),
    row(&[Text("per minute")], EXACTLY_429, RateLimited, "anthropic-429-input-tokens, groq-429-tpm"),
    row(&[Text("per min (")], THROTTLE, RateLimited, "openai-429-rpm"),
    row(&[Text("per second")], EXACTLY_429, RateLimited, "cerebras-429 (code request_quota_exceeded)"),
    row(
        &[Text("free-models-per-day")],
        THROTTLE,
        RateLimited,
        "OpenRouter limits page: resets at midnight; names credits as a way out",
    ),
    row(
        &[Text("e.g. check quota")],
        THROTTLE,
        Ambiguous429,
        "Google sends it to accounts that are under their quota: googleapis/python-genai#2065",
    ),
    row(
        &[Text("exceeded your current quota")],
        On::Any,
        QuotaExhausted,
        "openai-429-insufficient-quota (message alone)",
    ),
    row(&[Text("quota exceeded")], On::Any, QuotaExhausted, "Google: wording of QuotaFailure (429, 403)"),
    row(&[Text("quota")], MONEY, QuotaExhausted, "SPEC section 6: a word of quota"),
    row(&[Text("billing")], MONEY, QuotaExhausted, "SPEC section 6: a word of billing; replicate-402-billing"),
    row(&[Text("credits")], MONEY, QuotaExhausted, "SPEC section 6: a word of credits"),
    row(&[Text("spend limit")], MONEY, QuotaExhausted, "SPEC section 6: a word of a spending limit"),
    row(&[Text("monthly")], EXACTLY_429, QuotaExhausted, "SPEC section 6: a month's limit is a quota, no rate"),
];

/// Where a bare word of money is about the account. Elsewhere it may be quoted from the request (a tool named `get_billing`).
const MONEY: On = On::Exactly(&[402, 403, 429]);

/// The provider will not answer this.
static REFUSALS: &[Row] = &[
    row(&[Code("content_filter")], On::Client, Refusal, "Azure 400: compl-ai/compl-ai#20"),
    row(&[Code("responsibleaipolicyviolation")], On::Client, Refusal, "Azure 400 (innererror): Oaklight/argo-proxy#91"),
    row(&[Text("content management policy")], On::Client, Refusal, "Azure 400 (message): openai/openai-python#331"),
    row(&[Code("content_policy_violation")], On::Client, Refusal, "OpenAI images guide (400)"),
    row(&[Code("moderation_blocked")], On::Client, Refusal, "OpenAI images guide (400)"),
    row(
        &[Text("safety system")],
        On::Client,
        Refusal,
        "OpenAI images guide: 'rejected as a result of our safety system'",
    ),
    row(&[Text("violating our usage policy")], On::Client, Refusal, "OpenAI reasoning guide (invalid_prompt, 400)"),
    row(
        &[Code("cyber_policy")],
        On::Client,
        Refusal,
        "OpenAI responses: codex-api/src/sse/responses.rs of openai/codex",
    ),
    row(
        &[Text("content filtering policy")],
        On::Client,
        Refusal,
        "Anthropic 400: 'Output blocked by content filtering policy'",
    ),
    row(&[Text("content exists risk")], On::Client, Refusal, "DeepSeek 400"),
    row(&[Code("data_inspection_failed")], On::Client, Refusal, "DashScope error codes page (compatible mode, 400)"),
    row(&[Code("datainspectionfailed")], On::Client, Refusal, "DashScope error codes page (400)"),
    row(&[Text("requires moderation"), Text("flagged")], On::Client, Refusal, "OpenRouter errors page (403)"),
    row(&[Code("prohibited_content")], On::Client, Refusal, "Gemini API reference, BlockReason"),
];

/// Keys and permissions under another status than 401 and 403, and in streams.
static AUTHENTICATION: &[Row] = &[
    row(
        &[Code("invalid_api_key")],
        On::Client,
        AuthenticationOrPermission,
        "openai-401-invalid-key, groq-401-invalid-key",
    ),
    row(&[Code("api_key_invalid")], On::Client, AuthenticationOrPermission, "gemini-400-api-key (ErrorInfo)"),
    row(&[Text("api key not valid")], On::Client, AuthenticationOrPermission, "gemini-400-api-key (message)"),
    row(&[Text("api key expired")], On::Client, AuthenticationOrPermission, "Gemini troubleshooting page (400)"),
    row(&[Text("incorrect api key")], On::Client, AuthenticationOrPermission, "xai-400-invalid-key, cohere-401"),
    row(&[Text("invalid api key")], On::Client, AuthenticationOrPermission, "together-401, sambanova-401-plain"),
    row(
        &[Code("authentication_error")],
        On::Client,
        AuthenticationOrPermission,
        "anthropic-401-invalid-key; STREAMS 1.5",
    ),
    row(&[Code("permission_error")], On::Client, AuthenticationOrPermission, "Anthropic errors page; STREAMS 1.5"),
    row(&[Code("unauthenticated")], On::Client, AuthenticationOrPermission, "google.rpc.Code (401)"),
    row(&[Code("permission_denied")], On::Client, AuthenticationOrPermission, "gemini-403-unregistered"),
    row(&[Code("unrecognizedclientexception")], On::Client, AuthenticationOrPermission, "bedrock-403-invalid-token"),
    row(&[Code("accessdeniedexception")], On::Client, AuthenticationOrPermission, "Bedrock InvokeModel reference"),
    row(&[Code("expiredtokenexception")], On::Client, AuthenticationOrPermission, "AWS common errors page"),
    row(
        &[Code("unsupported_country_region_territory")],
        On::Client,
        AuthenticationOrPermission,
        "openrouter-403-nested-raw",
    ),
    row(
        &[Text("user location is not supported")],
        On::Client,
        AuthenticationOrPermission,
        "Gemini troubleshooting page (400)",
    ),
];

/// Where a missing model is the model's fault. Not 401 and 403: there it is a permission.
const MODEL: On = On::Only(&[400, 404, 410, 422, 429, 500, 502, 503]);

/// The model is not there, or not now; the provider is.
static MODELS: &[Row] = &[
    row(
        &[Text("not a chat model")],
        On::Client,
        InvalidRequest,
        "openai-404-not-chat-model: the model is there, the endpoint is wrong",
    ),
    row(&[Code("model_not_found")], MODEL, ModelUnavailable, "openai-404-model"),
    row(&[Code("deploymentnotfound")], MODEL, ModelUnavailable, "azure-404-deployment"),
    row(
        &[Text("api deployment for this resource does not exist")],
        MODEL,
        ModelUnavailable,
        "azure-404-deployment (message)",
    ),
    row(&[Code("deploymentnotready")], MODEL, ModelUnavailable, "Azure; not recorded: a deployment that is being made"),
    row(&[Code("no_capacity")], On::Busy, ModelUnavailable, "Azure; not recorded: no capacity for this model"),
    row(&[Code("resourcenotfoundexception")], MODEL, ModelUnavailable, "Bedrock InvokeModel reference (404)"),
    row(
        &[Text("on-demand throughput isn"), Text("inference profile")],
        MODEL,
        ModelUnavailable,
        "Bedrock 400: langchain-ai/langchain-aws#1019, cline/cline#2482",
    ),
    row(&[Code("not_found_error"), Text("model: ")], MODEL, ModelUnavailable, "anthropic-404-model"),
    row(
        &[Text("models/"), Text("is not found for api version")],
        MODEL,
        ModelUnavailable,
        "gemini-404-model, gemini-404-model-sse",
    ),
    row(&[Text("publisher model"), Text("not found")], MODEL, ModelUnavailable, "Vertex troubleshooting page (404)"),
    row(&[Text("model not found")], MODEL, ModelUnavailable, "venice-404-string; Fireworks 404"),
    row(
        &[Text("the model "), Text("does not exist")],
        MODEL,
        ModelUnavailable,
        "vLLM and xAI 404, as openai-404-model without code",
    ),
    row(&[Text("model not exist")], MODEL, ModelUnavailable, "DeepSeek 400"),
    row(&[Text("model"), Text("not found, try pulling it")], MODEL, ModelUnavailable, "Ollama 404"),
    row(&[Text("correct model id")], MODEL, ModelUnavailable, "Cohere 404"),
    row(&[Code("invalid_model")], MODEL, ModelUnavailable, "Mistral 400 (code 1500)"),
    row(&[Text("model identifier is invalid")], MODEL, ModelUnavailable, "bedrock-400-invalid-model"),
    row(&[Text("allowed now, your model")], MODEL, ModelUnavailable, "hyperbolic-400"),
    row(&[Text("is not a valid model id")], MODEL, ModelUnavailable, "OpenRouter 400: maxnowack/anthropic-proxy#4"),
    row(
        &[Text("no endpoints found for")],
        MODEL,
        ModelUnavailable,
        "OpenRouter 404: vyancharuk/nodejs-api-boilerplate#16",
    ),
    row(&[Text("no available model provider")], MODEL, ModelUnavailable, "OpenRouter errors page (503)"),
    row(&[Code("model_decommissioned")], MODEL, ModelUnavailable, "Groq deprecations page (400)"),
    row(&[Text("reached the end of its life")], MODEL, ModelUnavailable, "Bedrock 404 for retired model versions"),
    row(&[Code("modelnotreadyexception")], MODEL, ModelUnavailable, "Bedrock InvokeModel reference (429)"),
    row(&[Text("model "), Text("is currently loading")], MODEL, ModelUnavailable, "hf-503-loading"),
];

/// The request cannot be answered as it is, whatever status says so; and what the model itself got wrong.
static REQUESTS: &[Row] = &[
    row(
        &[Code("tool_use_failed")],
        On::Client,
        ContractFailure,
        "groq-400-tool-use-failed, chat-completions/groq-error-event: the model's own call broke the tool's schema",
    ),
    row(&[Code("context_length_exceeded")], On::Any, InvalidRequest, "openai-400-context-length"),
    row(
        &[Text("maximum context length")],
        On::Any,
        InvalidRequest,
        "deepseek-400-context-length, openrouter-400-context-length",
    ),
    row(&[Text("context window")], On::NotThrottle, InvalidRequest, "openai-400-context-length (message)"),
    row(&[Text("prompt is too long")], On::NotThrottle, InvalidRequest, "anthropic-400-prompt-too-long"),
    row(&[Text("prompt too long")], On::NotThrottle, InvalidRequest, "ollama-400-context"),
    row(
        &[Text("too many tokens")],
        On::NotThrottle,
        InvalidRequest,
        "cohere-400-too-many-tokens (Bedrock throttles with it under 429)",
    ),
    row(&[Text("input tokens exceeded")], On::NotThrottle, InvalidRequest, "bedrock-400-too-many-tokens"),
    row(&[Text("input token count")], On::NotThrottle, InvalidRequest, "vertex-400-token-count"),
    row(&[Code("exceed_context_size_error")], On::Any, InvalidRequest, "llamacpp-400-context"),
    row(&[Text("token limit reached")], On::NotThrottle, InvalidRequest, "chat-completions/openrouter-error-chunk"),
    row(&[Text("input validation error")], On::NotThrottle, InvalidRequest, "chat-completions/tgi-error-first"),
    row(&[Code("request_too_large")], On::NotThrottle, InvalidRequest, "Anthropic errors page (413)"),
];

/// A rate, and nothing worse. 429, and AWS's throttle under any status.
static RATES: &[Row] = &[
    row(&[Code("throttlingexception")], On::Any, RateLimited, "bedrock-429-throttling; STREAMS 1.8 (in-stream)"),
    row(&[Code("rate_limit_error")], THROTTLE, RateLimited, "anthropic-429-rpm; STREAMS 1.5 (in-stream)"),
    row(&[Code("rate_limit_exceeded")], THROTTLE, RateLimited, "openai-429-rpm, openai-429-fine-tune-limit"),
    row(&[Code("rate_limited")], THROTTLE, RateLimited, "mistral-429"),
    row(&[Code("too_many_requests_error")], THROTTLE, RateLimited, "cerebras-429 (type)"),
    row(&[Text("rate limit")], THROTTLE, RateLimited, "hf-429, openrouter-429-free-tier"),
    row(&[Text("rate-limit")], THROTTLE, RateLimited, "openrouter-429-provider (metadata.raw)"),
    row(&[Text("throttl")], THROTTLE, RateLimited, "bedrock-429-throttling (as text)"),
    row(&[Text("reduce concurrency")], THROTTLE, RateLimited, "Z.ai 429 (1302): kaitranntt/ccs#402"),
];

/// Overload: a word of it is proof that the request was turned away.
static OVERLOADS: &[Row] = &[
    row(
        &[Code("overloaded_error")],
        On::Busy,
        ProviderOverloaded,
        "anthropic-529-overloaded, anthropic-messages/anthropic-error-first; F7",
    ),
    row(
        &[Code("server_is_overloaded")],
        On::Busy,
        ProviderOverloaded,
        "OpenAI responses, in-stream: Soju06/codex-lb#1313",
    ),
    row(
        &[Code("slow_down")],
        On::Busy,
        ProviderOverloaded,
        "OpenAI error codes page (503 Slow Down); openai/codex#11388",
    ),
    row(
        &[Code("model_overloaded")],
        On::Busy,
        ProviderOverloaded,
        "F7; not recorded: the spelling of gateways for overloaded_error",
    ),
    row(&[Code("capacity_exceeded")], On::Busy, ProviderOverloaded, "Groq flex processing page (498)"),
    row(&[Text("overloaded")], On::Busy, ProviderOverloaded, "openai-429-overloaded, zai-429-overloaded"),
    row(&[Text("at capacity")], On::Busy, ProviderOverloaded, "xai-503-capacity; F5: 'at capacity' is overload"),
    row(&[Text("capacity limit")], On::Busy, ProviderOverloaded, "bedrock-503-capacity"),
    row(&[Text("high demand")], On::Busy, ProviderOverloaded, "gemini-503-high-demand"),
    row(&[Text("slow down")], On::Busy, ProviderOverloaded, "OpenAI error codes page (503 Slow Down)"),
    row(
        &[Text("reset reason: overflow")],
        On::Busy,
        ProviderOverloaded,
        "Envoy response flags (UO), as anthropic-503-envoy",
    ),
    unproved(
        &[Code("service_unavailable_error")],
        On::Busy,
        ProviderOverloaded,
        "OpenAI in-stream type: tontinton/maki#897",
    ),
    unproved(&[Code("unavailable")], On::Busy, ProviderOverloaded, "gemini-503-high-demand (status), STREAMS 1.2"),
    unproved(
        &[Code("serviceunavailableexception")],
        On::Busy,
        ProviderOverloaded,
        "Bedrock InvokeModel reference (503); STREAMS 1.8",
    ),
];

/// The general words, last: they only help where the status does not say (in streams, odd statuses).
static GENERAL: &[Row] = &[
    row(&[Text("try again")], EXACTLY_429, RateLimited, "gemini-429-no-details: temporary by its own words"),
    row(&[Text("please wait")], EXACTLY_429, RateLimited, "bedrock-429-throttling (message)"),
    row(
        &[Text("retry shortly")],
        EXACTLY_429,
        RateLimited,
        "openrouter-429-free-tier, openrouter-429-provider (message)",
    ),
    row(
        &[Text("upstream connect error")],
        On::Server,
        ProviderServerError,
        "anthropic-503-envoy, openai-503-envoy-timeout: no word of overload",
    ),
    row(
        &[Text("no healthy upstream")],
        On::Server,
        ProviderServerError,
        "Envoy response flags (UH), as anthropic-503-envoy",
    ),
    row(&[Code("server_error")], On::Server, ProviderServerError, "openai-500-server-error, together-500-via-hf"),
    row(&[Code("api_error")], On::Server, ProviderServerError, "anthropic-500-api-error; STREAMS 1.5"),
    row(&[Code("internal_server_error")], On::Server, ProviderServerError, "mistral-500"),
    row(&[Code("internal")], On::Server, ProviderServerError, "gemini-500-internal"),
    row(
        &[Code("internalserverexception")],
        On::Server,
        ProviderServerError,
        "Bedrock InvokeModel reference (500); STREAMS 1.8",
    ),
    row(
        &[Code("modeltimeoutexception")],
        On::Server,
        TransportTransient,
        "Bedrock InvokeModel reference (408, which decides by itself); in-stream as STREAMS 1.8",
    ),
    row(&[Code("modelerrorexception")], On::Server, ProviderServerError, "Bedrock InvokeModel reference (424)"),
    row(&[Code("modelstreamerrorexception")], On::Server, ProviderServerError, "STREAMS 1.8 (424)"),
    row(&[Code("timeout_error")], On::Server, ProviderServerError, "Anthropic errors page (504); STREAMS 1.5"),
    row(
        &[Code("invalid_request_error")],
        On::Vague,
        InvalidRequest,
        "anthropic-400-wrong-api; Anthropic: 'other 4XX status codes'",
    ),
    row(&[Code("invalid_argument")], On::Vague, InvalidRequest, "vertex-400-token-count (status)"),
    row(
        &[Code("validationexception")],
        On::Vague,
        InvalidRequest,
        "bedrock-400-too-many-tokens; STREAMS 1.8 (in-stream)",
    ),
    row(&[Code("badrequesterror")], On::Vague, InvalidRequest, "vLLM's type, STREAMS 1.3"),
    row(&[Code("validation")], On::Vague, InvalidRequest, "chat-completions/tgi-error-first (error_type)"),
    row(&[Code("not_found_error")], On::Vague, InvalidRequest, "STREAMS 1.5: another thing than a model is missing"),
];

/// The tables in the order in which they are asked.
pub(super) static TABLES: &[&[Row]] = &[
    QUOTA,
    THROTTLES,
    REFUSALS,
    openai::REFUSALS,
    AUTHENTICATION,
    openai::ACCOUNT,
    MODELS,
    REQUESTS,
    openai::REQUESTS,
    RATES,
    OVERLOADS,
    openai::SERVER,
    GENERAL,
];

/// The first row that fits. `status` is absent for an in-stream error that names none.
pub(super) fn find(words: &Words, status: Option<u16>) -> Option<&'static Row> {
    TABLES.iter().copied().flatten().find(|row| row.fits(words, status))
}

/// What a status is whatever the body says: SPEC Annex ("A 3xx of a provider is `unclassified` … 409 likewise", "A
/// provider's 408 is unanswered") and section 6's table (425). From 600 on it is no status of HTTP (RFC 9110, section 15):
/// what sends it is not what it seems, and its words prove nothing either.
pub(super) fn fixed(status: u16) -> Option<Class> {
    match status {
        408 | 425 => Some(TransportTransient),
        409 | ..200 | 300..400 | 600.. => Some(Unclassified),
        _ => None,
    }
}

/// What a status makes of what the words say: "529" is overload (SPEC section 6's table), whatever an edge or a gateway writes beside it;
/// only a used-up account is told through any status.
pub(super) fn overruled(status: Option<u16>, said: Class) -> Class {
    match (status, said) {
        (Some(529), QuotaExhausted) => QuotaExhausted,
        (Some(529), _) => ProviderOverloaded,
        _ => said,
    }
}

/// What a status is where no words decide: SPEC section 6's table, which names the server errors one by one. The other 5xx say
/// that this server can't or won't (501, 505–508, 510, 511) or are somebody's own invention (527, 530–599): nothing that
/// says a second call elsewhere would do better. 429 is decided by the caller, who knows of a wait.
pub(super) fn by_status(status: u16) -> Class {
    match status {
        402 => QuotaExhausted,
        401 | 403 => AuthenticationOrPermission,
        400 | 404 | 413 | 422 => InvalidRequest,
        429 => Ambiguous429,
        500 | 502 | 504 | 520..=526 => ProviderServerError,
        // A 503 without a word is "temporary overload or maintenance" (RFC 9110, 15.6.4); 529 is nothing else.
        503 | 529 => ProviderOverloaded,
        _ => Unclassified,
    }
}

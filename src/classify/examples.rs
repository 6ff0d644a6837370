//! An example for every rule, in the provider's own shape, and the proof that each rule has one. Test only.
//!
//! The recordings prove what was recorded; these prove the rows whose source is a page or a report, and that no row is
//! shadowed by an earlier one.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::rules::{self, Row, TABLES, Word};
use super::tests::CONTEXT;
use super::words::Words;
use super::{Class, Class::*, Evidence, classify};

/// (status, body, class). The row that decides is found by running it; [`every_row_decides_an_example`] counts them.
const EXAMPLES: &[(u16, &str, Class)] = &[
    // Money, whatever the status and the type say.
    (
        429,
        r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        QuotaExhausted,
    ),
    (200, r#"{"error":{"type":"insufficient_quota","message":"x"}}"#, QuotaExhausted),
    (
        400,
        r#"{"error":{"message":"Limit","type":"invalid_request_error","code":"billing_hard_limit_reached"}}"#,
        QuotaExhausted,
    ),
    (
        400,
        r#"{"error":{"message":"Billing hard limit has been reached","type":"invalid_request_error"}}"#,
        QuotaExhausted,
    ),
    (
        429,
        r#"{"error":{"message":"Your account is not active","type":"billing_not_active","code":"billing_not_active"}}"#,
        QuotaExhausted,
    ),
    (402, r#"{"type":"error","error":{"type":"billing_error","message":"Payment"}}"#, QuotaExhausted),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}"#,
        QuotaExhausted,
    ),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2027-01-01 at 00:00 UTC."}}"#,
        QuotaExhausted,
    ),
    (
        403,
        r#"{"code":"permission-denied","error":"Your team has either used all available credits or reached its monthly spending limit."}"#,
        QuotaExhausted,
    ),
    (
        403,
        r#"{"code":"personal-team-blocked:spending-limit","error":"You have run out of credits or need a subscription."}"#,
        QuotaExhausted,
    ),
    (
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","code":"1113","message":"Insufficient balance or no resource package. Please recharge."}}"#,
        QuotaExhausted,
    ),
    (429, "余额不足或无可用资源包,请充值。", QuotaExhausted),
    (
        402,
        r#"{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402}}"#,
        QuotaExhausted,
    ),
    (403, r#"{"error":{"message":"Key limit exceeded (total limit).","code":403}}"#, QuotaExhausted),
    (
        403,
        r#"{"error":{"code":403,"status":"PERMISSION_DENIED","details":[{"reason":"BILLING_DISABLED"}]}}"#,
        QuotaExhausted,
    ),
    (
        429,
        r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_in_seconds":9000}}"#,
        QuotaExhausted,
    ),
    (
        429,
        r#"{"error":{"code":"1308","message":"Usage limit reached for 5 hour. Your limit will reset at 18:00"}}"#,
        QuotaExhausted,
    ),
    (400, r#"{"__type":"com.amazon.coral#ServiceQuotaExceededException","message":"Too many"}"#, QuotaExhausted),
    (
        400,
        r#"{"code":"Arrearage","message":"Access denied, please make sure your account is in good standing."}"#,
        QuotaExhausted,
    ),
    // Throttles and what only looks like one.
    (
        413,
        r#"{"error":{"message":"Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 8000","type":"tokens","code":"rate_limit_exceeded"}}"#,
        InvalidRequest,
    ),
    (
        429,
        r#"{"error":{"code":429,"message":"No capacity available for model gemini-x on the server","errors":[{"reason":"rateLimitExceeded"}],"status":"RESOURCE_EXHAUSTED"}}"#,
        ModelUnavailable,
    ),
    (
        503,
        r#"{"error":{"code":503,"message":"Busy","status":"UNAVAILABLE","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"MODEL_CAPACITY_EXHAUSTED"}]}}"#,
        ModelUnavailable,
    ),
    (
        429,
        r#"{"object":"error","message":"Service tier capacity exceeded for this model.","type":"invalid_request_error","code":null}"#,
        ModelUnavailable,
    ),
    (
        429,
        r#"{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"},{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},{"retryDelay":"34s"}]}}"#,
        QuotaExhausted,
    ),
    (
        429,
        r#"{"error":{"code":429,"message":"You exceeded your current quota\n* Quota exceeded for metric: generate_content_free_tier_requests, limit: 0, model: gemini-3-pro\nPlease retry in 45s.","status":"RESOURCE_EXHAUSTED"}}"#,
        QuotaExhausted,
    ),
    (
        429,
        r#"{"error":{"code":429,"message":"You exceeded your current quota","details":[{"violations":[{"quotaId":"TokensPerModelPerMinute"}]}]}}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"error":{"code":429,"message":"Quota exceeded for aiplatform.googleapis.com/generate_content_requests_per_minute_per_project_per_base_model. Please submit a quota increase request."}}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"error":{"code":429,"message":"Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'"}}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"error":{"message":"Rate limit reached on requests per min (RPM): Limit 3. You can increase it by adding a payment method, see billing","type":"requests","code":"rate_limit_exceeded"}}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"code":"request_quota_exceeded","message":"Requests per second limit exceeded","type":"too_many_requests_error"}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"error":{"message":"Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day","code":429}}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"error":{"code":429,"message":"Resource has been exhausted (e.g. check quota).","status":"RESOURCE_EXHAUSTED"}}"#,
        Ambiguous429,
    ),
    (400, r#"{"error":{"message":"You exceeded your current quota, please check your plan"}}"#, QuotaExhausted),
    (403, r#"{"error":{"message":"Quota exceeded for metric x","status":"PERMISSION_DENIED"}}"#, QuotaExhausted),
    (429, r#"{"error":{"message":"Your token quota is used up","type":"rate_limit_error"}}"#, QuotaExhausted),
    (403, r#"{"error":{"message":"Please enable billing for this project"}}"#, QuotaExhausted),
    (429, r#"{"error":{"message":"No credits left. Rate limit applies."}}"#, QuotaExhausted),
    (429, r#"{"error":{"message":"Your organization's spend limit is reached"}}"#, QuotaExhausted),
    (429, r#"{"error":{"message":"Monthly limit reached, try again next month"}}"#, QuotaExhausted),
    // Refusals.
    (
        400,
        r#"{"error":{"message":"Filtered","type":null,"param":"prompt","code":"content_filter","status":400}}"#,
        Refusal,
    ),
    (
        400,
        r#"{"error":{"message":"Bad request","code":"400","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
        Refusal,
    ),
    (
        400,
        r#"{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy."}}"#,
        Refusal,
    ),
    (
        400,
        r#"{"error":{"message":"Rejected","type":"invalid_request_error","code":"content_policy_violation"}}"#,
        Refusal,
    ),
    (400, r#"{"error":{"message":"Rejected","type":"user_error","code":"moderation_blocked"}}"#, Refusal),
    (400, r#"{"error":{"message":"Your request was rejected as a result of our safety system."}}"#, Refusal),
    (
        400,
        r#"{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy.","type":"invalid_request_error","code":"invalid_prompt"}}"#,
        Refusal,
    ),
    (400, r#"{"error":{"message":"Not allowed","code":"cyber_policy"}}"#, Refusal),
    (
        400,
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}"#,
        Refusal,
    ),
    (400, r#"{"error":{"message":"Content Exists Risk","type":"invalid_request_error"}}"#, Refusal),
    (
        400,
        r#"{"error":{"message":"Input data may contain inappropriate content.","code":"data_inspection_failed"}}"#,
        Refusal,
    ),
    (400, r#"{"code":"DataInspectionFailed","message":"Input data may contain inappropriate content."}"#, Refusal),
    (
        403,
        r#"{"error":{"code":403,"message":"m requires moderation on P. Your input was flagged for \"violence\"."}}"#,
        Refusal,
    ),
    (400, r#"{"error":{"code":400,"message":"blocked","status":"PROHIBITED_CONTENT"}}"#, Refusal),
    // Keys and permissions under other statuses.
    (400, r#"{"error":{"message":"Wrong","code":"invalid_api_key"}}"#, AuthenticationOrPermission),
    (
        400,
        r#"{"error":{"code":400,"message":"Bad","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
        AuthenticationOrPermission,
    ),
    (
        400,
        r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}"#,
        AuthenticationOrPermission,
    ),
    (
        400,
        r#"{"error":{"code":400,"message":"API key expired. Please renew the API key.","status":"INVALID_ARGUMENT"}}"#,
        AuthenticationOrPermission,
    ),
    (400, r#"{"code":"invalid-argument","error":"Incorrect API key provided."}"#, AuthenticationOrPermission),
    (404, "Unauthorized: Invalid API key!", AuthenticationOrPermission),
    (200, r#"{"type":"error","error":{"type":"authentication_error","message":"x"}}"#, AuthenticationOrPermission),
    (200, r#"{"type":"error","error":{"type":"permission_error","message":"x"}}"#, AuthenticationOrPermission),
    (200, r#"{"error":{"message":"x","status":"UNAUTHENTICATED"}}"#, AuthenticationOrPermission),
    (200, r#"{"error":{"message":"x","status":"PERMISSION_DENIED"}}"#, AuthenticationOrPermission),
    (400, r#"{"__type":"UnrecognizedClientException","message":"x"}"#, AuthenticationOrPermission),
    (400, r#"{"__type":"AccessDeniedException","message":"x"}"#, AuthenticationOrPermission),
    (400, r#"{"__type":"ExpiredTokenException","message":"x"}"#, AuthenticationOrPermission),
    (
        400,
        r#"{"error":{"code":"unsupported_country_region_territory","type":"request_forbidden","message":"x"}}"#,
        AuthenticationOrPermission,
    ),
    (
        400,
        r#"{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}"#,
        AuthenticationOrPermission,
    ),
    // The model.
    (
        404,
        r#"{"error":{"message":"This is not a chat model and thus not supported","type":"invalid_request_error","code":null}}"#,
        InvalidRequest,
    ),
    (404, r#"{"error":{"message":"gone","code":"model_not_found"}}"#, ModelUnavailable),
    (
        403,
        r#"{"error":{"message":"Project does not have access to model m","code":"model_not_found"}}"#,
        AuthenticationOrPermission,
    ),
    (404, r#"{"error":{"code":"DeploymentNotFound","message":"x"}}"#, ModelUnavailable),
    (
        404,
        r#"{"error":{"code":"404","message":"The API deployment for this resource does not exist."}}"#,
        ModelUnavailable,
    ),
    (503, r#"{"error":{"code":"DeploymentNotReady","message":"x"}}"#, ModelUnavailable),
    (
        429,
        r#"{"error":{"code":"no_capacity","message":"The system is currently experiencing high demand"}}"#,
        ModelUnavailable,
    ),
    (404, r#"{"__type":"ResourceNotFoundException","message":"x"}"#, ModelUnavailable),
    (
        400,
        r#"{"message":"Invocation of model ID m with on-demand throughput isn’t supported. Retry your request with the ID or ARN of an inference profile that contains this model."}"#,
        ModelUnavailable,
    ),
    (404, r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-0"}}"#, ModelUnavailable),
    (404, r#"{"type":"error","error":{"type":"not_found_error","message":"file file_1 not found"}}"#, InvalidRequest),
    (
        404,
        r#"{"error":{"code":404,"message":"models/x is not found for API version v1beta, or is not supported","status":"NOT_FOUND"}}"#,
        ModelUnavailable,
    ),
    (
        404,
        r#"{"error":{"code":404,"message":"Publisher Model `projects/p/models/x` was not found or your project does not have access to it."}}"#,
        ModelUnavailable,
    ),
    (404, r#"{"error":"Specified model not found: x."}"#, ModelUnavailable),
    (
        404,
        r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","code":404}"#,
        ModelUnavailable,
    ),
    (400, r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}"#, ModelUnavailable),
    (
        404,
        r#"{"error":{"message":"model \"x\" not found, try pulling it first","type":"api_error"}}"#,
        ModelUnavailable,
    ),
    (
        404,
        r#"{"message":"model 'x' not found, make sure the correct model ID was used and that you have access to the model."}"#,
        ModelUnavailable,
    ),
    (400, r#"{"object":"error","message":"Invalid model: x","type":"invalid_model","code":"1500"}"#, ModelUnavailable),
    (400, r#"{"message":"The provided model identifier is invalid."}"#, ModelUnavailable),
    (400, r#"{"object":"error","message":"Only a && b allowed now, your model c","code":40301}"#, ModelUnavailable),
    (400, r#"{"error":{"message":"x is not a valid model ID","code":400}}"#, ModelUnavailable),
    (404, r#"{"error":{"message":"No endpoints found for x:free.","code":404}}"#, ModelUnavailable),
    (404, r#"{"error":{"message":"No endpoints found that support tool use.","code":404}}"#, InvalidRequest),
    (
        503,
        r#"{"error":{"message":"There is no available model provider that meets your routing requirements","code":503}}"#,
        ModelUnavailable,
    ),
    (
        400,
        r#"{"error":{"message":"The model has been decommissioned","type":"invalid_request_error","code":"model_decommissioned"}}"#,
        ModelUnavailable,
    ),
    (
        404,
        r#"{"message":"This model version has reached the end of its life. Please refer to the documentation."}"#,
        ModelUnavailable,
    ),
    (429, r#"{"__type":"ModelNotReadyException","message":"not ready"}"#, ModelUnavailable),
    (503, r#"{"error":"Model x is currently loading","estimated_time":53.3}"#, ModelUnavailable),
    // The request.
    (
        400,
        r#"{"error":{"message":"Tool call validation failed","type":"invalid_request_error","code":"tool_use_failed"}}"#,
        ContractFailure,
    ),
    (500, r#"{"error":{"message":"x","type":"server_error","code":"context_length_exceeded"}}"#, InvalidRequest),
    (500, r#"{"error":{"message":"This model's maximum context length is 4096 tokens."}}"#, InvalidRequest),
    (400, r#"{"error":{"message":"Your input exceeds the context window of this model."}}"#, InvalidRequest),
    (400, r#"{"error":{"message":"prompt is too long: 3 tokens > 2 maximum"}}"#, InvalidRequest),
    (500, r#"{"error":{"message":"prompt too long; exceeded max context length"}}"#, InvalidRequest),
    (400, r#"{"message":"too many tokens: size limit exceeded"}"#, InvalidRequest),
    (429, r#"{"message":"Too many tokens, please wait before trying again."}"#, RateLimited),
    (400, r#"{"message":"Input Tokens Exceeded: Number of input tokens exceeds maximum length."}"#, InvalidRequest),
    (
        400,
        r#"{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8)."}}"#,
        InvalidRequest,
    ),
    (500, r#"{"error":{"code":500,"message":"x","type":"exceed_context_size_error"}}"#, InvalidRequest),
    (200, r#"{"error":{"message":"Token limit reached"}}"#, InvalidRequest),
    (200, r#"{"error":"Input validation error: too long"}"#, InvalidRequest),
    (
        413,
        r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
        InvalidRequest,
    ),
    // Rates.
    (400, r#"{"__type":"ThrottlingException","message":"Rate exceeded"}"#, RateLimited),
    (
        429,
        r#"{"type":"error","error":{"type":"rate_limit_error","message":"Number of requests exceeded"}}"#,
        RateLimited,
    ),
    (429, r#"{"error":{"message":"x","type":"invalid_request_error","code":"rate_limit_exceeded"}}"#, RateLimited),
    (429, r#"{"object":"error","message":"x","type":"rate_limited","code":"1300"}"#, RateLimited),
    (
        429,
        r#"{"error":{"code":"RateLimitReached","message":"To increase your limit, visit: https://aka.ms/oai/quotaincrease."}}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"error":{"code":"RateLimitReached","message":"To increase your default rate limit/quota visit the portal."}}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"error":{"code":"429","message":"Requests to the Embeddings_Create Operation under Azure OpenAI API version 2023-07-01-preview have exceeded call rate limit of your current OpenAI S0 pricing tier. Please retry after 1 second. To increase your default rate limit/quota visit: https://aka.ms/oai/quotaincrease."}}"#,
        RateLimited,
    ),
    (
        429,
        r#"{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2023-05-15 have exceeded token rate limit of your current AIServices S0 pricing tier. Please retry after 86400 seconds. Please contact Azure support service if you would like to further increase the default rate limit."}}"#,
        RateLimited,
    ),
    (429, r#"{"error":{"code":"429","message":"Rate limit is exceeded. Try again in 2 seconds."}}"#, RateLimited),
    // What is really used up stays so: Azure's gateway in front of a subscription.
    (
        403,
        r#"{"statusCode":403,"message":"Out of call volume quota. Quota will be replenished in 00:12:34."}"#,
        QuotaExhausted,
    ),
    (429, r#"{"message":"x","type":"too_many_requests_error"}"#, RateLimited),
    (429, r#"{"error":"Rate limit reached. Please log in or use a HF access token"}"#, RateLimited),
    (
        429,
        r#"{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"m is temporarily rate-limited upstream."}}}"#,
        RateLimited,
    ),
    (429, r#"{"message":"Request was throttled."}"#, RateLimited),
    (
        429,
        r#"{"error":{"code":"1302","message":"High concurrency usage of this API, please reduce concurrency"}}"#,
        RateLimited,
    ),
    // Overload.
    (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Try later"}}"#, ProviderOverloaded),
    // 529 says so by itself, save of an empty account.
    (529, r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#, ProviderOverloaded),
    (529, r#"{"error":{"type":"server_error","message":"x"}}"#, ProviderOverloaded),
    (529, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, ProviderOverloaded),
    (529, "no healthy upstream", ProviderOverloaded),
    (529, r#"{"error":{"code":"insufficient_quota","message":"x"}}"#, QuotaExhausted),
    (529, r#"{"error":{"message":"You exceeded your current quota"}}"#, QuotaExhausted),
    (
        200,
        r#"{"type":"error","error":{"type":"service_unavailable_error","code":"server_is_overloaded","message":"x"}}"#,
        ProviderOverloaded,
    ),
    (503, r#"{"error":{"code":"slow_down","message":"x"}}"#, ProviderOverloaded),
    (503, r#"{"error":{"code":"model_overloaded","message":"x"}}"#, ProviderOverloaded),
    (498, r#"{"error":{"code":"capacity_exceeded","message":"x"}}"#, ProviderOverloaded),
    (
        500,
        r#"{"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error"}}"#,
        ProviderOverloaded,
    ),
    (
        200,
        r#"{"error":{"message":"Selected model is at capacity. Please try a different model."}}"#,
        ProviderOverloaded,
    ),
    (503, r#"{"message":"Service capacity limit has been reached. Please try again later."}"#, ProviderOverloaded),
    (503, r#"{"error":{"message":"This model is currently experiencing high demand."}}"#, ProviderOverloaded),
    (
        429,
        r#"{"error":{"code":"429","message":"The system is currently experiencing high demand and cannot process your request. Your request exceeds the maximum usage size allowed during peak load. Please retry after 20 seconds."}}"#,
        ProviderOverloaded,
    ),
    (503, r#"{"error":{"message":"Slow Down"}}"#, ProviderOverloaded),
    (503, "upstream connect error or disconnect/reset before headers. reset reason: overflow", ProviderOverloaded),
    (200, r#"{"error":{"type":"service_unavailable_error","message":"x"}}"#, ProviderOverloaded),
    (200, r#"{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}"#, ProviderOverloaded),
    (503, r#"{"__type":"ServiceUnavailableException","message":"x"}"#, ProviderOverloaded),
    // General words.
    (
        429,
        r#"{"error":{"code":429,"message":"Resource exhausted. Please try again later.","status":"RESOURCE_EXHAUSTED"}}"#,
        RateLimited,
    ),
    (429, "Busy. Please retry shortly.", RateLimited),
    (
        503,
        "upstream connect error or disconnect/reset before headers. reset reason: connection termination",
        ProviderServerError,
    ),
    (503, "no healthy upstream", ProviderServerError),
    (501, r#"{"error":{"type":"server_error","message":"x"}}"#, ProviderServerError),
    (200, r#"{"type":"error","error":{"type":"api_error","message":"Internal server error"}}"#, ProviderServerError),
    (599, r#"{"object":"error","type":"internal_server_error","message":"x"}"#, ProviderServerError),
    (200, r#"{"error":{"code":500,"message":"x","status":"INTERNAL"}}"#, ProviderServerError),
    (200, r#"{"__type":"internalServerException","message":"x"}"#, ProviderServerError),
    (408, r#"{"__type":"ModelTimeoutException","message":"x"}"#, TransportTransient),
    (200, r#"{"__type":"modelTimeoutException","message":"x"}"#, TransportTransient),
    (424, r#"{"__type":"ModelErrorException","message":"x"}"#, ProviderServerError),
    (424, r#"{"__type":"ModelStreamErrorException","message":"x"}"#, ProviderServerError),
    (200, r#"{"type":"error","error":{"type":"timeout_error","message":"x"}}"#, ProviderServerError),
    (415, r#"{"type":"error","error":{"type":"invalid_request_error","message":"x"}}"#, InvalidRequest),
    (200, r#"{"error":{"message":"x","status":"INVALID_ARGUMENT"}}"#, InvalidRequest),
    (200, r#"{"__type":"ValidationException","message":"x"}"#, InvalidRequest),
    (200, r#"{"error":{"message":"x","type":"BadRequestError"}}"#, InvalidRequest),
    (200, r#"{"error":"x","error_type":"validation"}"#, InvalidRequest),
    (200, r#"{"type":"error","error":{"type":"not_found_error","message":"x"}}"#, InvalidRequest),
    // Words where they mean nothing: a request's own, under a status that is clear.
    (
        400,
        r#"{"error":{"message":"Invalid schema for function 'get_billing_quota': 'credits' is required","type":"invalid_request_error"}}"#,
        InvalidRequest,
    ),
    (500, r#"{"error":{"message":"x"}}"#, ProviderServerError),
    (429, "Too Many Requests", Ambiguous429),
    (
        200,
        r#"{"error":{"message":"The server had an error, please try again, 3 per minute, billing","type":"server_error"}}"#,
        ProviderServerError,
    ),
];

/// The one example that needs a header.
const UNCURABLE: &str = r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your rate limit of 450,000 input tokens per minute. Please reduce the prompt length."}}"#;

#[test]
fn every_example() {
    let headers = HeaderMap::new();
    for (status, body, class) in EXAMPLES {
        let verdict = classify(&Evidence::Http { status: *status, headers: &headers, body: body.as_bytes() }, &CONTEXT);
        assert_eq!(verdict.class, *class, "{status} {body}");
    }
}

fn uncurable_headers() -> HeaderMap {
    [(HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"))].into_iter().collect()
}

#[test]
fn a_429_that_says_that_it_cannot_be_cured() {
    for (headers, class) in [(uncurable_headers(), InvalidRequest), (HeaderMap::new(), RateLimited)] {
        let verdict =
            classify(&Evidence::Http { status: 429, headers: &headers, body: UNCURABLE.as_bytes() }, &CONTEXT);
        assert_eq!(verdict.class, class);
    }
}

#[test]
fn every_row_decides_an_example() {
    let found = |status: u16, headers: &HeaderMap, body: &str| {
        let status = Some(status).filter(|status| !(200..300).contains(status));
        rules::find(&Words::of_body(headers, body.as_bytes()), status).map(std::ptr::from_ref)
    };
    let headers = HeaderMap::new();
    let mut hit: BTreeSet<*const Row> =
        EXAMPLES.iter().filter_map(|(status, body, _)| found(*status, &headers, body)).collect();
    hit.extend(found(429, &uncurable_headers(), UNCURABLE));
    let code = |code: &str| found(200, &headers, &format!(r#"{{"error":{{"code":"{code}","message":"m"}}}}"#));
    hit.extend(super::openai::tests::CODES.iter().filter_map(|(name, _)| code(name)));
    let missed: Vec<&Row> =
        TABLES.iter().copied().flatten().filter(|row| !hit.contains(&std::ptr::from_ref(*row))).collect();
    assert!(missed.is_empty(), "no example decides by {missed:#?}");
}

#[test]
fn rows_are_well_formed() {
    for row in TABLES.iter().copied().flatten() {
        assert!(!row.all.is_empty() && row.source.len() >= 8, "{row:?}");
        for word in row.all {
            let (Word::Code(text) | Word::Part(text) | Word::Text(text)) = word;
            assert!(
                !text.is_empty() && *text == text.to_ascii_lowercase(),
                "{row:?}: words are compared in lower case"
            );
        }
        assert!(
            !matches!(row.class, DeadlineExhausted | PartialOutput | SideEffectUncertain),
            "{row:?}: not ours to say"
        );
    }
}

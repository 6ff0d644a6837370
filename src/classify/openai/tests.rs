//! Every code, in every shape in which a provider sends one.

use http::HeaderMap;
use serde_json::json;

use crate::classify::tests::CONTEXT;
use crate::classify::{Class, Class::*, Evidence, classify};
use crate::protocol::Dialect;

/// Codes of `ResponseError`, those that Codex takes for final (STREAMS 2.5), and those of OpenAI's checks.
pub(in crate::classify) const CODES: &[(&str, Class)] = &[
    ("server_error", ProviderServerError),
    ("rate_limit_exceeded", RateLimited),
    ("invalid_prompt", InvalidRequest),
    ("data_residency_mismatch", AuthenticationOrPermission),
    ("bio_policy", Refusal),
    ("misalignment_policy_violation", Refusal),
    ("vector_store_timeout", ProviderServerError),
    ("invalid_image", InvalidRequest),
    ("invalid_image_format", InvalidRequest),
    ("invalid_base64_image", InvalidRequest),
    ("invalid_image_url", InvalidRequest),
    ("image_too_large", InvalidRequest),
    ("image_too_small", InvalidRequest),
    ("image_parse_error", InvalidRequest),
    ("image_content_policy_violation", Refusal),
    ("invalid_image_mode", InvalidRequest),
    ("image_file_too_large", InvalidRequest),
    ("unsupported_image_media_type", InvalidRequest),
    ("empty_image_file", InvalidRequest),
    ("failed_to_download_image", InvalidRequest),
    ("image_file_not_found", InvalidRequest),
    ("cyber_policy", Refusal),
    ("context_length_exceeded", InvalidRequest),
    ("insufficient_quota", QuotaExhausted),
    ("usage_not_included", QuotaExhausted),
    ("server_is_overloaded", ProviderOverloaded),
    ("slow_down", ProviderOverloaded),
    ("content_policy_violation", Refusal),
    ("audio_policy_violation", Refusal),
    ("string_above_max_length", InvalidRequest),
    ("array_above_max_length", InvalidRequest),
    ("integer_above_max_value", InvalidRequest),
    ("integer_below_min_value", InvalidRequest),
    ("invalid_value", InvalidRequest),
    ("invalid_type", InvalidRequest),
    ("missing_required_parameter", InvalidRequest),
    ("unknown_parameter", InvalidRequest),
    ("unsupported_parameter", InvalidRequest),
    ("unsupported_value", InvalidRequest),
    ("invalid_function_parameters", InvalidRequest),
    ("invalid_json_schema", InvalidRequest),
    ("previous_response_not_found", InvalidRequest),
];

fn class_of_fault(dialect: Dialect, body: &serde_json::Value) -> (Class, Option<u16>) {
    let fault = dialect.body_fault(body.to_string().as_bytes()).expect("a fault");
    let verdict = classify(&Evidence::Fault { fault: &fault, headers: &HeaderMap::new() }, &CONTEXT);
    (verdict.class, verdict.provider_status)
}

#[test]
fn every_code_in_every_shape_of_a_stream() {
    for (code, class) in CODES {
        let status = Some(if matches!(class, InvalidRequest | Refusal) { 400 } else { 200 });
        let failed = json!({ "status": "failed", "object": "response", "error": { "code": code, "message": "m" } });
        for body in [
            json!({ "type": "response.failed", "response": failed }),
            json!({ "type": "response.failed", "response": { "error": { "code": code, "message": "m", "type": null, "param": null } } }),
            json!({ "type": "error", "code": code, "message": "m", "param": null }),
            json!({ "type": "error", "error": { "type": null, "code": code, "message": "m", "param": null } }),
            json!({ "type": "error", "error": { "type": "server_error", "code": code, "message": "m" } }),
            failed,
        ] {
            assert_eq!(class_of_fault(Dialect::Responses, &body), (*class, status), "{body}");
        }
        let chat = json!({ "error": { "message": "m", "type": null, "code": code } });
        assert_eq!(class_of_fault(Dialect::ChatCompletions, &chat), (*class, status), "{chat}");
    }
}

#[test]
fn what_is_the_requests_or_a_refusal_is_so_under_400_too() {
    for (code, class) in CODES.iter().filter(|(_, class)| matches!(class, InvalidRequest | Refusal)) {
        for kind in [json!("invalid_request_error"), json!("image_generation_user_error"), json!(null)] {
            let body = json!({ "error": { "message": "m", "type": kind, "code": code } }).to_string();
            let evidence = Evidence::Http { status: 400, headers: &HeaderMap::new(), body: body.as_bytes() };
            assert_eq!(classify(&evidence, &CONTEXT).class, *class, "{body}");
        }
    }
}

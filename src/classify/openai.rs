//! The error codes of OpenAI's `ResponseError` and of its parameter checks: who is at fault.
//!
//! In: nothing. Out: rows for [`rules`](super::rules), which asks them in between its own tables. They have a file of their own because
//! a `response.failed` or a flat `error` event has nothing but such a code: no status, no type, so a code without a row would be a server
//! error, and a picture that no provider can read would be sent to all of them. Every code that the official SDK declares has a row;
//! `tests/clients/sdk_types.py` fails at one that has none.
//!
//! Families (`*_policy_violation`, `*_above_max_*` …) stand behind the codes that are known, for those that come next.

use super::Class::*;
use super::rules::Word::{Code, Part};
use super::rules::{On, Row, row};

/// The SDK's enum: `types/responses/response_error.py` of openai-python 3.57.0.
const ENUM: &str = "openai-python ResponseError";
/// `error.code` of its 400s, which a stream may repeat without their type.
const CHECKS: &str = "OpenAI 400: the code of its checks of a request";

/// It will not answer this.
pub(super) static REFUSALS: &[Row] = &[
    row(&[Code("bio_policy")], On::Client, Refusal, ENUM),
    row(&[Code("misalignment_policy_violation")], On::Client, Refusal, ENUM),
    row(&[Code("image_content_policy_violation")], On::Client, Refusal, ENUM),
    row(&[Part("_policy_violation")], On::Client, Refusal, "family of the codes above"),
];

/// The account's: the project's residency is not that of the endpoint that was asked. Not the request's fault, since no caller can
/// mend it, and no other route may be asked instead, since where data may go is just what was refused.
pub(super) static ACCOUNT: &[Row] =
    &[row(&[Code("data_residency_mismatch")], On::Client, AuthenticationOrPermission, ENUM)];

/// The request's.
pub(super) static REQUESTS: &[Row] = &[
    row(&[Code("invalid_prompt")], On::Client, InvalidRequest, ENUM),
    row(&[Code("invalid_image")], On::Client, InvalidRequest, ENUM),
    row(&[Code("invalid_image_format")], On::Client, InvalidRequest, ENUM),
    row(&[Code("invalid_base64_image")], On::Client, InvalidRequest, ENUM),
    row(&[Code("invalid_image_url")], On::Client, InvalidRequest, ENUM),
    row(&[Code("invalid_image_mode")], On::Client, InvalidRequest, ENUM),
    row(&[Code("image_too_large")], On::Client, InvalidRequest, ENUM),
    row(&[Code("image_too_small")], On::Client, InvalidRequest, ENUM),
    row(&[Code("image_parse_error")], On::Client, InvalidRequest, ENUM),
    row(&[Code("image_file_too_large")], On::Client, InvalidRequest, ENUM),
    row(&[Code("unsupported_image_media_type")], On::Client, InvalidRequest, ENUM),
    row(&[Code("empty_image_file")], On::Client, InvalidRequest, ENUM),
    row(&[Code("failed_to_download_image")], On::Client, InvalidRequest, ENUM),
    row(&[Code("image_file_not_found")], On::Client, InvalidRequest, ENUM),
    row(&[Part("_above_max_")], On::Client, InvalidRequest, "OpenAI 400: string_above_max_length and its family"),
    row(&[Part("_below_min_")], On::Client, InvalidRequest, "OpenAI 400: integer_below_min_value and its family"),
    row(&[Code("invalid_value")], On::Client, InvalidRequest, CHECKS),
    row(&[Code("invalid_type")], On::Client, InvalidRequest, CHECKS),
    row(&[Code("missing_required_parameter")], On::Client, InvalidRequest, CHECKS),
    row(&[Code("unknown_parameter")], On::Client, InvalidRequest, CHECKS),
    row(&[Code("unsupported_parameter")], On::Client, InvalidRequest, CHECKS),
    row(&[Code("unsupported_value")], On::Client, InvalidRequest, CHECKS),
    row(&[Code("invalid_function_parameters")], On::Client, InvalidRequest, CHECKS),
    row(&[Code("invalid_json_schema")], On::Client, InvalidRequest, CHECKS),
    row(&[Code("previous_response_not_found")], On::Client, InvalidRequest, CHECKS),
];

/// The provider's.
pub(super) static SERVER: &[Row] = &[row(&[Code("vector_store_timeout")], On::Server, ProviderServerError, ENUM)];

#[cfg(test)]
pub(super) mod tests;

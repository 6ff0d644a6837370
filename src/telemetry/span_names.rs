//! Attributes of spans, the part of [`names`](super::names) about traces.

/// `chat`.
pub const OPERATION_NAME: &str = "gen_ai.operation.name";
/// OpenTelemetry's name of the provider's kind.
pub const PROVIDER_NAME: &str = "gen_ai.provider.name";
/// Of the operation: the caller's; of an attempt: the one sent upstream.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// The model that the provider says it served.
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
/// Input tokens.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Output tokens.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Failure class.
pub const ERROR_TYPE: &str = "error.type";
/// HTTP status.
pub const STATUS: &str = "http.response.status_code";
/// Operation id.
pub const OPERATION_ID: &str = "rubicon.operation_id";
/// Workflow.
pub const WORKFLOW: &str = "rubicon.workflow";
/// Its version.
pub const WORKFLOW_VERSION: &str = "rubicon.workflow_version";
/// Route.
pub const ROUTE: &str = "rubicon.route";
/// Attempt number.
pub const ATTEMPT: &str = "rubicon.attempt";
/// What the attempt was for.
pub const KIND: &str = "rubicon.kind";
/// How the operation ended.
pub const STATE: &str = "rubicon.state";
/// Failure class.
pub const CLASS: &str = "rubicon.class";
/// Why it ended so.
pub const REASON: &str = "rubicon.reason";
/// What recovery was at work.
pub const RECOVERY: &str = "rubicon.recovery";
/// Time to first output.
pub const FIRST_OUTPUT_MS: &str = "rubicon.first_output_ms";

/// All of them, and what they say.
pub const ALL: &[(&str, &str)] = &[
    (OPERATION_NAME, "`chat` or `count_tokens`; with the model it is the span's name"),
    (PROVIDER_NAME, "OpenTelemetry's name for the provider's kind"),
    (REQUEST_MODEL, "of the operation: the caller's model; of an attempt: the one sent upstream"),
    (RESPONSE_MODEL, "the model that the provider says it served"),
    (INPUT_TOKENS, "input tokens"),
    (OUTPUT_TOKENS, "output tokens"),
    (ERROR_TYPE, "failure class, else reason; its presence makes the span's status an error"),
    (STATUS, "of the operation: what the caller got; of an attempt: the provider's"),
    (OPERATION_ID, "operation id"),
    (WORKFLOW, "the workflow"),
    (WORKFLOW_VERSION, "its `version`"),
    (ROUTE, "the route"),
    (ATTEMPT, "number of the attempt"),
    (KIND, "what the attempt was for"),
    (STATE, "how the operation ended"),
    (CLASS, "failure class"),
    (REASON, "why it ended so"),
    (RECOVERY, "`recovery.workflow` of the event"),
    (FIRST_OUTPUT_MS, "time to first visible output"),
];

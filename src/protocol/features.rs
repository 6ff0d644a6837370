//! What a request uses beside text, where its absence would go unnoticed: top-level members and kinds of content that are
//! capabilities under their own name, and the names by which anything is judged at all, however they are spelt.
//!
//! In: names and values of a request, of any dialect. Out: capability names. Why: "a feature is never dropped silently" (SPEC
//! section 3). Many servers ignore a member they do not know and answer all the same, in another kind: free text instead of one of
//! four labels, no document looked at. So a request with such a member goes on failover only to a route that states the name:
//!
//! - `prediction` (a draft to be edited), `suffix` (text is filled in before it), `continue_final_message` (the answer goes on
//!   where the last message stops), `translation_options`: what is answered at all;
//! - `documents`, `data_sources`: input that lies beside the messages;
//! - `logit_bias` (classifiers force their labels with it), `guided_json`, `guided_regex`, `guided_choice`, `guided_grammar`,
//!   `structured_outputs`, `grammar`, `ebnf`, `regex`, `json_schema`: what the answer may consist of;
//! - `context_management`: what of the conversation the model sees.
//!
//! The dialects add those that have a meaning of their own: modalities and `audio`, tools and functions, searches, formats,
//! `logprobs`, reasoning, citations, skills; and each kind of content part that they do not know, by its type.
//! Deliberately not here: what shapes an answer and leaves it the same kind (`temperature`, `top_p`, penalties, `seed`, `stop`, lengths,
//! `verbosity`), what concerns the account (`metadata`, `store`, `service_tier`, cache keys), and `n`, whose choices the reader counts.

use super::json_walk::{is_empty, spelt_as};

/// Members that are capabilities under their own name unless they are `null`, `false` or empty.
const FEATURES: &[&str] = &[
    "prediction",
    "suffix",
    "continue_final_message",
    "translation_options",
    "documents",
    "data_sources",
    "logit_bias",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "grammar",
    "ebnf",
    "regex",
    "json_schema",
    "context_management",
];

/// Every name, at any depth, by which a request is judged. A server written in Go takes `"Type"` and `"TYPE"` for `type` (its
/// `encoding/json` folds case), so these count in any letters. `model`, `stream` and `n` are not among them: those say
/// how the answer comes, and a server that folds them can deceive only whoever wrote them so.
pub const JUDGED: &[&str] = &[
    "type",
    "name",
    "function",
    "functions",
    "tools",
    "tool",
    "tool_changes",
    "definition",
    "mcp_servers",
    "plugins",
    "id",
    "enabled",
    "messages",
    "input",
    "output",
    "result",
    "role",
    "tool_calls",
    "function_call",
    "text",
    "prompt",
    "include",
    "background",
    "approval_request_id",
    "skill_id",
    "fingerprint",
    "system",
    "content",
    "source",
    "citations",
    "web_search_options",
    "search_parameters",
    "enable_search",
    "response_format",
    "output_format",
    "output_config",
    "format",
    "modalities",
    "audio",
    "prediction",
    "suffix",
    "continue_final_message",
    "translation_options",
    "documents",
    "data_sources",
    "logit_bias",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "grammar",
    "ebnf",
    "regex",
    "json_schema",
    "context_management",
    "container",
    "container_id",
    "skills",
    "thread",
    "diagnostics",
    "previous_message_id",
    "previous_response_id",
    "conversation",
    "conversation_id",
    "file_id",
    "file_ids",
    "vector_store_ids",
    "data",
    "signature",
    "thought_signature",
    "thoughtSignature",
    "encrypted_content",
    "encrypted_index",
    "encrypted_stdout",
    "reasoning_opaque",
    "reasoning_details",
    "thinking_blocks",
    "fallback_credit_token",
];

/// Capabilities kept of one request; about forty are known. What comes on top is kept as [`UNKNOWN`], which no route states,
/// so that nothing is lost but the name.
pub const CAPABILITIES_MAX: usize = 128;

/// The capability of what has no name.
pub const UNKNOWN: &str = "unknown";

/// Characters kept of a name out of a request: it is printed in refusals.
const NAME_CHARS_MAX: usize = 64;

/// The capability that a top-level member is, if it is one under its own name and something is in it.
pub fn of_member(name: &str, value: &str) -> Option<&'static str> {
    FEATURES.iter().copied().find(|feature| *feature == name).filter(|_| value != "false" && !is_empty(value))
}

/// A member's name as it is judged: the one in [`JUDGED`] that it spells in other letters, else itself.
pub fn judged(name: &str) -> &str {
    JUDGED.iter().copied().find(|known| spelt_as(known, name)).unwrap_or(name)
}

/// A type out of a request as a capability's name: bounded, and of characters that can be printed anywhere.
pub fn named(kind: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' };
    let name: String = kind.chars().take(NAME_CHARS_MAX).map(plain).collect();
    if name.is_empty() { UNKNOWN.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_with_something_in_them() {
        for (name, value, feature) in [
            ("prediction", r#"{"type":"content","content":"x"}"#, Some("prediction")),
            ("prediction", "null", None),
            ("logit_bias", "{}", None),
            ("logit_bias", r#"{"50256":-100}"#, Some("logit_bias")),
            ("continue_final_message", "false", None),
            ("continue_final_message", "true", Some("continue_final_message")),
            ("guided_choice", r#"["yes","no"]"#, Some("guided_choice")),
            ("temperature", "1", None),
            ("seed", "7", None),
        ] {
            assert_eq!(of_member(name, value), feature, "{name}: {value}");
        }
        assert!(FEATURES.iter().all(|feature| JUDGED.contains(feature)));
    }

    #[test]
    fn names_in_other_letters_and_names_to_print() {
        for (name, meant) in [
            ("Tools", "tools"),
            ("TYPE", "type"),
            ("too\u{17f}", "too\u{17f}"),
            ("tool\u{17f}", "tools"),
            ("Model", "Model"),
        ] {
            assert_eq!(judged(name), meant);
        }
        assert_eq!(named("zork"), "zork");
        assert_eq!(named("a b\n\u{1b}"), "a_b__");
        assert_eq!(named(""), UNKNOWN);
        assert_eq!(named(&"x".repeat(1000)).len(), NAME_CHARS_MAX);
    }
}

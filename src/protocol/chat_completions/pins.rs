//! State of one account's in messages: what a request hands back, and what an answer issued.
//!
//! In: a message, or a delta of one. Out: [`Pins`]. Why one file for both directions: what is issued must be known again when it
//! is presented, so the places are the same. A provider sends each such value whole in one chunk (OpenRouter, Copilot, Gemini's
//! compatible endpoint in the recordings); one in pieces would be remembered by its pieces and not be known again.
//! Deliberately not here: ids at a request's top level and in tools (`request.rs`).

use crate::protocol::json_walk::{ELEMENT, elements, is_empty, member, members, text, walk};
use crate::protocol::pin::{Kind, Pin, Pins};

/// Members, anywhere in a message, that hold what only one account can read or use.
const HELD: &[(&str, Kind)] = &[
    ("file_id", Kind::File),
    ("encrypted_content", Kind::Encrypted),
    ("reasoning_opaque", Kind::Encrypted),  // GitHub Copilot
    ("signature", Kind::Signature),         // reasoning_details, thinking blocks
    ("thought_signature", Kind::Signature), // Gemini's compatible endpoint
    ("thoughtSignature", Kind::Signature),
];

/// Members of a delta that never hold any: nearly all deltas have no others, and are not walked.
const PLAIN: &[&str] = &["role", "refusal", "reasoning", "reasoning_content", "reasoning_text", "function_call"];

/// What a whole message, or a delta of one, holds.
pub(super) fn of_message(json: &str, pins: &mut Pins) {
    let plain = |(name, value): (&str, &str)| PLAIN.contains(&name) || (name == "content" && !value.starts_with('['));
    if members(json).all(plain) {
        return;
    }
    redacted(json, pins);
    walk(json, |path, leaf| of_leaf(path, leaf, pins));
}

/// What a leaf at `path` (from the message on) is.
pub(super) fn of_leaf(path: &[&str], leaf: &str, pins: &mut Pins) {
    if is_empty(leaf) || !leaf.starts_with('"') {
        return;
    }
    let kind = match path {
        // Encrypted reasoning that OpenRouter hands out and takes back as details.
        ["reasoning_details", ELEMENT, "data"] => Some(Kind::Encrypted),
        // An earlier spoken answer, kept by the account under an id as a file is.
        ["audio", "id"] => Some(Kind::File),
        _ => {
            let name = path.iter().rev().find(|step| **step != ELEMENT).copied().unwrap_or_default();
            HELD.iter().find(|(member, _)| *member == name).map(|(_, kind)| *kind)
        }
    };
    if let (Some(kind), Some(value)) = (kind, text(leaf)) {
        pins.add(kind, &value);
    }
}

/// Redacted thinking among the content or beside it.
pub(super) fn redacted(message: &str, pins: &mut Pins) {
    for block in ["content", "thinking_blocks"].iter().filter_map(|name| member(message, name)).flat_map(elements) {
        if member(block, "type").and_then(text).as_deref() != Some("redacted_thinking") {
            continue;
        }
        match member(block, "data").and_then(text).filter(|data| !data.is_empty()) {
            Some(data) => pins.add(Kind::Encrypted, &data),
            None => pins.insert(Pin::nameless(Kind::Encrypted)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_issued_is_known_when_it_comes_back() {
        for (message, expected) in [
            (
                r#"{"role":"assistant","content":"x","audio":{"id":"audio_1","data":"AA"}}"#,
                vec![(Kind::File, "audio_1")],
            ),
            (
                r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"A"},{"type":"reasoning.text","signature":"S"}]}"#,
                vec![(Kind::Encrypted, "A"), (Kind::Signature, "S")],
            ),
            (r#"{"reasoning_opaque":"O"}"#, vec![(Kind::Encrypted, "O")]),
            (
                r#"{"tool_calls":[{"index":0,"extra_content":{"google":{"thought_signature":"T"}}}]}"#,
                vec![(Kind::Signature, "T")],
            ),
            (
                r#"{"thinking_blocks":[{"type":"redacted_thinking","data":"R"},{"type":"thinking","signature":"S"}]}"#,
                vec![(Kind::Encrypted, "R"), (Kind::Signature, "S")],
            ),
            (r#"{"content":"{\"signature\":\"x\"}","reasoning":"signature"}"#, vec![]),
            (r#"{"content":[{"type":"redacted_thinking","data":"R"}]}"#, vec![(Kind::Encrypted, "R")]),
        ] {
            let (mut issued, mut wanted) = (Pins::default(), Pins::default());
            of_message(message, &mut issued);
            expected.into_iter().for_each(|(kind, value)| wanted.add(kind, value));
            assert_eq!(issued, wanted, "{message}");
            let body = bytes::Bytes::from(format!(r#"{{"messages":[{message}]}}"#));
            let presented = crate::protocol::chat_completions::request::read(&body).unwrap().pins;
            assert_eq!(presented, wanted.presented(), "{message}");
        }
    }
}

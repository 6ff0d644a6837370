//! State that an answer issues and only its account can read: what a later request hands back as a pin (`blocks`, `request`).
//!
//! In: a message, a content block, or what a stream tells of one. Out: [`Pins`], by the same members by which a request's are
//! found, so that what was issued is known again. A signature may come in several deltas: some clients put them together and the
//! official SDKs keep the last one, so both are remembered ([`Signature`]).

use serde_json::value::RawValue;

use super::fields::Raw;
use crate::protocol::json_walk::{ELEMENT, elements, member, text, walk};
use crate::protocol::pin::{Kind, PinDigest, Pins};

/// Members, anywhere in a block, that hold such state.
const HELD: &[(&str, Kind)] = &[
    ("signature", Kind::Signature),
    ("encrypted_content", Kind::Encrypted),
    ("encrypted_index", Kind::Encrypted),
    ("encrypted_stdout", Kind::Encrypted),
    ("file_id", Kind::File),
];

/// A message, whole or as it starts: its id, its container, its blocks.
pub(super) fn of_message(message: &RawValue, pins: &mut Pins) {
    let json = message.get();
    for (name, kind) in [("id", Kind::Response), ("container", Kind::Container)] {
        if let Some(value) = member(json, name) {
            pins.present(kind, value);
        }
    }
    member(json, "content").into_iter().flat_map(elements).for_each(|block| of_block(block, pins));
}

/// A container, by its `id`.
pub(super) fn of_container(container: Raw<'_>, pins: &mut Pins) {
    if let Some(container) = container {
        pins.present(Kind::Container, container.get());
    }
}

/// A content block, a citation, a delta: whatever holds such members. What the model says to a tool is not looked into.
pub(super) fn of_block(json: &str, pins: &mut Pins) {
    if member(json, "type").and_then(text).as_deref() == Some("redacted_thinking") {
        member(json, "data").into_iter().for_each(|data| pins.present(Kind::Signature, data));
    }
    walk(json, |path, leaf| {
        let name = path.iter().rev().find(|step| **step != ELEMENT).copied().unwrap_or_default();
        if let Some((_, kind)) = HELD.iter().find(|(held, _)| *held == name)
            && path.first() != Some(&"input")
            && let Some(value) = text(leaf)
        {
            pins.add(*kind, &value);
        }
    });
}

/// The signature of the block that is open, as its deltas come.
#[derive(Debug, Default)]
pub(super) struct Signature {
    all: Option<(PinDigest, u32)>,
}

impl Signature {
    /// A `signature_delta`.
    pub(super) fn delta(&mut self, piece: &str, pins: &mut Pins) {
        pins.add(Kind::Signature, piece);
        let (digest, pieces) = self.all.get_or_insert_with(|| (PinDigest::new(Kind::Signature), 0));
        digest.update(piece);
        *pieces = pieces.saturating_add(1);
    }

    /// The block ends, or another one starts.
    pub(super) fn end(&mut self, pins: &mut Pins) {
        if let Some((digest, 2..)) = self.all.take() {
            pins.insert(digest.pin());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Dialect;
    use crate::protocol::pin::Pin;

    fn wanted(pins: &[(Kind, &str)]) -> Vec<Pin> {
        let mut all = Pins::default();
        pins.iter().for_each(|(kind, value)| all.add(*kind, value));
        all.presented()
    }

    const BLOCKS: &str = r#"[{"type":"thinking","thinking":"x","signature":"S"},{"type":"redacted_thinking","data":"R"},
        {"type":"tool_use","id":"t","name":"f","input":{"file_id":"not this"}},
        {"type":"web_search_tool_result","content":[{"type":"web_search_result","encrypted_content":"E"}]},
        {"type":"code_execution_tool_result","content":{"type":"code_execution_result","content":[{"file_id":"file_1"}]}}]"#;
    const HELD_IN_BLOCKS: &[(Kind, &str)] =
        &[(Kind::Signature, "S"), (Kind::Signature, "R"), (Kind::Encrypted, "E"), (Kind::File, "file_1")];

    #[test]
    fn what_a_whole_answer_issues_is_known_when_it_comes_back() {
        let answer = format!(
            r#"{{"type":"message","id":"msg_1","container":{{"id":"c_1"}},"content":{BLOCKS},"stop_reason":"end_turn"}}"#
        );
        let issued = Dialect::AnthropicMessages.read_answer(answer.as_bytes()).issued;
        let mut all = HELD_IN_BLOCKS.to_vec();
        all.extend([(Kind::Response, "msg_1"), (Kind::Container, "c_1")]);
        assert_eq!(issued, wanted(&all));
        let request = format!(
            r#"{{"container":"c_1","diagnostics":{{"previous_message_id":"msg_1"}},"messages":[{{"role":"assistant","content":{BLOCKS}}}]}}"#
        );
        let presented = Dialect::AnthropicMessages.read_request(&bytes::Bytes::from(request)).unwrap().pins;
        assert_eq!(presented, issued);
    }

    #[test]
    fn what_a_stream_issues() {
        let mut reader = Dialect::AnthropicMessages.stream_reader(1);
        for data in [
            r#"{"type":"message_start","message":{"id":"msg_1","content":[],"container":{"id":"c_1"}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"One"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":""}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"Tw"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"o"}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"R"}}"#,
            r#"{"type":"content_block_delta","index":3,"delta":{"type":"citations_delta","citation":{"encrypted_index":"I"}}}"#,
            r#"{"type":"content_block_delta","index":4,"delta":{"type":"compaction_delta","encrypted_content":"E"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","container":{"id":"c_2"}}}"#,
        ] {
            reader.read(b"", data.as_bytes());
        }
        let all = [
            (Kind::Response, "msg_1"),
            (Kind::Container, "c_1"),
            (Kind::Container, "c_2"),
            (Kind::Signature, "One"),
            (Kind::Signature, "Tw"),
            (Kind::Signature, "o"),
            (Kind::Signature, "Two"),
            (Kind::Signature, "R"),
            (Kind::Encrypted, "I"),
            (Kind::Encrypted, "E"),
        ];
        assert_eq!(reader.issued(), wanted(&all));
    }
}

//! State of one account's in responses: what an answer issues, and what a request hands back.
//!
//! In: a response object, an output item, an input item. Out: [`Pins`]. One file for both directions, because what is issued must be
//! known again when it is presented. An item that is handed back with all its content is the caller's; one that stands for content
//! which only the account has (a reference, reasoning by its id, a picture by its id, an approval) is the account's.

use crate::protocol::json_walk::{ELEMENT, is_empty, member, text, walk};
use crate::protocol::pin::{Kind, Pins};

/// Members, anywhere in an item, a tool or a prompt, that hold what only one account can read or use.
const HELD: &[(&str, Kind)] = &[
    ("encrypted_content", Kind::Encrypted),
    ("container_id", Kind::Container),
    ("file_id", Kind::File),
    ("file_ids", Kind::File),
    ("vector_store_ids", Kind::File),
    ("skill_id", Kind::Container),    // a shell's container is made of it
    ("fingerprint", Kind::Signature), // of a program that was run
    ("signature", Kind::Signature),   // gateways in front of other vendors' reasoning
];

/// A response object, in an event or by itself: its id, its conversation, its items.
pub(super) fn of_response(response: &str, pins: &mut Pins) {
    for (name, kind) in [("id", Kind::Response), ("conversation", Kind::Conversation)] {
        if let Some(value) = member(response, name) {
            pins.present(kind, value);
        }
    }
    let output = member(response, "output").unwrap_or_default();
    crate::protocol::json_walk::elements(output).for_each(|item| of_output_item(item, pins));
}

/// An item of an answer: it may come back by its id, and what it holds may come back.
pub(super) fn of_output_item(item: &str, pins: &mut Pins) {
    if let Some(id) = member(item, "id") {
        pins.present(Kind::Item, id);
    }
    of_members(item, pins);
}

/// An item of a request.
pub(super) fn of_input_item(kind: &str, item: &str, pins: &mut Pins) {
    let is_absent = |name: &str| member(item, name).is_none_or(is_empty);
    let stands_for = match kind {
        "item_reference" => Some("id"),
        // Its summary is not what it reasoned; some servers send that in clear (`content`).
        "reasoning" if is_absent("encrypted_content") && is_absent("content") => Some("id"),
        "image_generation_call" if is_absent("result") => Some("id"),
        "mcp_approval_response" => Some("approval_request_id"),
        // No type, no role, no content: a reference, whose type may be left out.
        "" if is_absent("role") && is_absent("content") => Some("id"),
        _ => None,
    };
    if let Some(id) = stands_for.and_then(|name| member(item, name)) {
        pins.present(Kind::Item, id);
    }
    of_members(item, pins);
}

/// Whatever holds such members: an item, an annotation, a tool, a prompt.
pub(super) fn of_members(json: &str, pins: &mut Pins) {
    walk(json, |path, leaf| {
        let name = path.iter().rev().find(|step| **step != ELEMENT).copied().unwrap_or_default();
        if let Some((_, kind)) = HELD.iter().find(|(held, _)| *held == name)
            && let Some(value) = text(leaf)
        {
            pins.add(*kind, &value);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Dialect;
    use crate::protocol::pin::Pin;
    use bytes::Bytes;

    fn wanted(pins: &[(Kind, &str)]) -> Vec<Pin> {
        let mut all = Pins::default();
        pins.iter().for_each(|(kind, value)| all.add(*kind, value));
        all.presented()
    }

    fn presented(body: String) -> Vec<Pin> {
        Dialect::Responses.read_request(&Bytes::from(body)).unwrap().pins
    }

    const ANSWER: &str = r#"{"id":"resp_1","object":"response","status":"completed","conversation":{"id":"conv_1"},"output":[
        {"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E"},
        {"type":"code_interpreter_call","id":"ci_1","code":"x","container_id":"cntr_1","outputs":null},
        {"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"hi","annotations":[
            {"type":"container_file_citation","container_id":"cntr_1","file_id":"cfile_1"}]}]}]}"#;
    const ISSUED: &[(Kind, &str)] = &[
        (Kind::Response, "resp_1"),
        (Kind::Conversation, "conv_1"),
        (Kind::Item, "rs_1"),
        (Kind::Item, "ci_1"),
        (Kind::Item, "msg_1"),
        (Kind::Encrypted, "E"),
        (Kind::Container, "cntr_1"),
        (Kind::File, "cfile_1"),
    ];

    #[test]
    fn what_an_answer_issues_whole_or_streamed() {
        assert_eq!(Dialect::Responses.read_answer(ANSWER.as_bytes()).issued, wanted(ISSUED));
        let mut reader = Dialect::Responses.stream_reader(1);
        let items: Vec<&str> = crate::protocol::json_walk::elements(member(ANSWER, "output").unwrap()).collect();
        reader.read(b"", br#"{"type":"response.created","response":{"id":"resp_1","output":[]}}"#);
        for item in items {
            reader.read(b"", format!(r#"{{"type":"response.output_item.done","item":{item}}}"#).as_bytes());
        }
        let without: Vec<_> = ISSUED.iter().filter(|(kind, _)| *kind != Kind::Conversation).copied().collect();
        assert_eq!(reader.issued(), wanted(&without), "known before the end, for a stream may be cut");
        reader.read(b"", format!(r#"{{"type":"response.completed","response":{ANSWER}}}"#).as_bytes());
        assert_eq!(reader.issued(), wanted(ISSUED));
    }

    #[test]
    fn everything_that_was_issued_is_known_when_it_comes_back() {
        let issued = wanted(ISSUED);
        for body in [
            r#"{"previous_response_id":"resp_1"}"#,
            r#"{"conversation":"conv_1"}"#,
            r#"{"conversation":{"id":"conv_1"}}"#,
            r#"{"input":[{"type":"item_reference","id":"msg_1"}]}"#,
            r#"{"input":[{"id":"msg_1"}]}"#,
            r#"{"input":[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}]}]}"#,
            r#"{"input":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E"}]}"#,
            r#"{"input":[{"role":"user","content":[{"type":"input_file","file_id":"cfile_1"}]}]}"#,
            r#"{"tools":[{"type":"code_interpreter","container":"cntr_1"}]}"#,
            r#"{"tools":[{"type":"shell","environment":{"type":"container_reference","container_id":"cntr_1"}}]}"#,
        ] {
            let pins = presented(body.to_owned());
            assert_eq!(pins.len(), 1, "{body}");
            assert!(pins.iter().all(|pin| issued.contains(pin)), "{body}");
        }
    }

    #[test]
    fn what_is_the_callers_own_is_no_pin() {
        for body in [
            r#"{"input":"hi"}"#,
            r#"{"input":[{"role":"user","content":"hi"}]}"#,
            r#"{"input":[{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"x"}]}]}"#,
            r#"{"input":[{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{\"file_id\":\"x\"}"}]}"#,
            r#"{"input":[{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}]}"#,
            r#"{"input":[{"type":"image_generation_call","id":"ig_1","result":"AAAA"}]}"#,
            r#"{"previous_response_id":null,"conversation":null,"metadata":{"file_id":"x"}}"#,
            r#"{"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]}"#,
        ] {
            assert_eq!(presented(body.to_owned()), [], "{body}");
        }
    }

    #[test]
    fn references_of_every_kind() {
        for (body, expected) in [
            (r#"{"input":[{"type":"image_generation_call","id":"ig_1","result":null}]}"#, (Kind::Item, "ig_1")),
            (
                r#"{"input":[{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}]}"#,
                (Kind::Item, "mcpr_1"),
            ),
            (r#"{"input":[{"type":"compaction","id":"cmp_1","encrypted_content":"E"}]}"#, (Kind::Encrypted, "E")),
            (r#"{"tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}"#, (Kind::File, "vs_1")),
            (
                r#"{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["f_1"]}}]}"#,
                (Kind::File, "f_1"),
            ),
            (
                r#"{"prompt":{"id":"pmpt_1","variables":{"x":{"type":"input_file","file_id":"f_1"}}}}"#,
                (Kind::File, "f_1"),
            ),
        ] {
            assert_eq!(presented(body.to_owned()), wanted(&[expected]), "{body}");
        }
    }
}

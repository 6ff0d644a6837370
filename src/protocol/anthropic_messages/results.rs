//! Results of tools in a Messages request.
//!
//! In: the request. Out: [`Returned`]. A result is a `tool_result` block of a user message, its call the nearest `tool_use` block before
//! it with its id. Here results *are* user messages, so the last user turn is the last one without any result; one that mixes results
//! and new text still names the run of its results (SPEC Annex, Roots and slots).

use crate::protocol::json_walk::{elements, member, text};
use crate::protocol::results::{RESULTS_MAX, shown, told};
use crate::protocol::words::{Returned, Words};

/// The results after the last user turn, the newest first.
pub(in crate::protocol) fn of_request(json: &str) -> Vec<Returned> {
    let messages: Vec<&str> = elements(member(json, "messages").unwrap_or_default()).collect();
    let mut found = Vec::new();
    for (at, message) in messages.iter().enumerate().rev() {
        if member(message, "role").and_then(text).as_deref() != Some("user") {
            continue;
        }
        let mut results: Vec<&str> = blocks(message, "tool_result").collect();
        if results.is_empty() {
            break;
        }
        results.reverse();
        for result in results {
            if found.len() == RESULTS_MAX {
                return found;
            }
            let before = messages.get(..at).unwrap_or_default();
            found.extend(told(result, "tool_use_id").and_then(|id| call_of(before, id)));
        }
    }
    found
}

fn blocks<'a>(message: &'a str, kind: &'a str) -> impl Iterator<Item = &'a str> {
    elements(member(message, "content").unwrap_or_default())
        .filter(move |block| member(block, "type").and_then(text).as_deref() == Some(kind))
}

fn call_of(before: &[&str], id: String) -> Option<Returned> {
    let mut calls = before.iter().rev().flat_map(|message| blocks(message, "tool_use"));
    let call = calls.find(|call| member(call, "id").and_then(text).as_deref() == Some(&*id))?;
    Some(shown(id, told(call, "name")?, Words::of_member(member(call, "input").unwrap_or("null"))))
}

#[cfg(test)]
mod tests {
    use crate::protocol::Dialect;
    use crate::protocol::words::{Returned, Shown, Words};

    const CALL: &str = r#"{"type":"tool_use","id":"t1","name":"pay","input":{"a": 1.0}}"#;
    const RESULT: &str = r#"{"type":"tool_result","tool_use_id":"t1","content":"ok"}"#;
    const TEXT: &str = r#"{"type":"text","text":"and now? tool_use_id"}"#;

    fn results(messages: &[(&str, &[&str])]) -> Vec<Returned> {
        let of = |(role, blocks): &(&str, &[&str])| format!(r#"{{"role":"{role}","content":[{}]}}"#, blocks.join(","));
        let messages: Vec<String> = messages.iter().map(of).collect();
        Dialect::AnthropicMessages.results(format!(r#"{{"messages":[{}]}}"#, messages.join(",")).as_bytes())
    }

    fn told(id: &str, arguments: &str) -> Returned {
        let shown = Shown::Call { name: "pay".to_owned(), words: Words::of_text(arguments) };
        Returned { id: id.to_owned(), shown }
    }

    #[test]
    fn a_result_names_its_run_also_beside_new_text() {
        let one = [told("t1", "{\"a\":1}")];
        let start: &[(&str, &[&str])] = &[("user", &[TEXT]), ("assistant", &[TEXT, CALL])];
        for last in [&[RESULT][..], &[RESULT, TEXT], &[TEXT, RESULT]] {
            assert_eq!(results(&[start, &[("user", last)]].concat()), one, "{last:?}");
        }
        let whole = [start, &[("user", &[RESULT])]].concat();
        let second = CALL.replace("t1", "t2").replace("1.0", "2");
        let result = RESULT.replace("t1", "t2");
        let (calls, mixed) = ([&*second], [&*result, TEXT]);
        let further = [&whole[..], &[("assistant", &calls), ("user", &mixed)]].concat();
        assert_eq!(results(&further), [told("t2", "{\"a\":2}"), told("t1", "{\"a\":1}")]);
        assert_eq!(results(&[&further[..], &[("user", &[TEXT])]].concat()), [], "a new wish");
        assert_eq!(results(&[&whole[..], &[("assistant", &["{\"type\":\"text\",\"text\":\"{\"}"])]].concat()), one);
    }

    #[test]
    fn what_shows_no_call_says_nothing() {
        assert_eq!(results(&[("user", &[RESULT])]), []);
        assert_eq!(results(&[("user", &[RESULT]), ("assistant", &[CALL])]), []);
        assert_eq!(results(&[("assistant", &[&CALL.replace("t1", "t2")]), ("user", &[RESULT])]), []);
        assert_eq!(results(&[("assistant", &[&CALL.replace("tool_use", "server_tool_use")]), ("user", &[RESULT])]), []);
        let text = r#"{"messages":[{"role":"user","content":"tool_use_id"}]}"#;
        assert_eq!(Dialect::AnthropicMessages.results(text.as_bytes()), []);
    }
}

//! Results of tools in a chat-completions request.
//!
//! In: the request. Out: [`Returned`]. A result is a `role: tool` message after the last `role: user`; its call stands in the nearest
//! assistant message before it that has its id, since ids come again in later turns with some models. The older `role: function` has no
//! id and names no run.

use crate::protocol::json_walk::{elements, member, text};
use crate::protocol::results::{RESULTS_MAX, shown, told};
use crate::protocol::words::{Returned, Words};

/// The results after the last user turn, the newest first.
pub(in crate::protocol) fn of_request(json: &str) -> Vec<Returned> {
    let messages: Vec<&str> = elements(member(json, "messages").unwrap_or_default()).collect();
    let mut found = Vec::new();
    for (at, message) in messages.iter().enumerate().rev() {
        match member(message, "role").and_then(text).as_deref() {
            Some("user") => break,
            Some("tool") if found.len() < RESULTS_MAX => {
                let before = messages.get(..at).unwrap_or_default();
                found.extend(told(message, "tool_call_id").and_then(|id| call_of(before, id)));
            }
            _ => {}
        }
    }
    found
}

fn call_of(before: &[&str], id: String) -> Option<Returned> {
    let calls = before.iter().rev().flat_map(|message| elements(member(message, "tool_calls").unwrap_or_default()));
    let call = { calls }.find(|call| member(call, "id").and_then(text).as_deref() == Some(&*id))?;
    if let Some(custom) = member(call, "custom") {
        let input = member(custom, "input").and_then(text).unwrap_or_default().into_owned();
        return Some(shown(id, told(custom, "name")?, Words::Raw(input)));
    }
    let function = member(call, "function")?;
    Some(shown(id, told(function, "name")?, Words::of_member(member(function, "arguments").unwrap_or("null"))))
}

#[cfg(test)]
mod tests {
    use crate::protocol::Dialect;
    use crate::protocol::words::{Returned, Shown, Words};

    fn call(id: &str, name: &str, arguments: &str) -> String {
        let arguments = serde_json::Value::from(arguments);
        format!(r#"{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":{arguments}}}}}"#)
    }

    fn results(messages: &[String]) -> Vec<Returned> {
        let body = format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","));
        Dialect::ChatCompletions.results(body.as_bytes())
    }

    fn user(text: &str) -> String {
        format!(r#"{{"role":"user","content":"{text}"}}"#)
    }

    fn assistant(calls: &[String]) -> String {
        format!(r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, calls.join(","))
    }

    fn tool(id: &str) -> String {
        format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"ok"}}"#)
    }

    fn told(id: &str, name: &str, arguments: &str) -> Returned {
        let shown = Shown::Call { name: name.to_owned(), words: Words::of_text(arguments) };
        Returned { id: id.to_owned(), shown }
    }

    #[test]
    fn results_after_the_last_user_turn_the_newest_first() {
        let (a, b) = (call("c1", "pay", "{\"a\": 1}"), call("c2", "look", ""));
        let run = [user("pay"), assistant(&[a.clone(), b]), tool("c1"), tool("c2")];
        assert_eq!(results(&run), [told("c2", "look", "{}"), told("c1", "pay", "{\"a\":1}")]);

        let mut next = run.to_vec();
        next.extend([assistant(&[call("c3", "pay", "{}")]), tool("c3")]);
        assert_eq!(results(&next).len(), 3, "all steps of one run");
        next.push(user("and now?"));
        assert_eq!(results(&next), [], "a new wish");
        next.extend([assistant(&[call("c4", "look", "{}")]), tool("c4")]);
        assert_eq!(results(&next), [told("c4", "look", "{}")]);
    }

    #[test]
    fn an_id_that_comes_again_is_that_of_the_nearest_call_before() {
        let run = [
            assistant(&[call("c1", "pay", "{\"a\":1}")]),
            tool("c1"),
            assistant(&[call("c1", "pay", "{\"a\":2}")]),
            tool("c1"),
        ];
        assert_eq!(results(&run), [told("c1", "pay", "{\"a\":2}"), told("c1", "pay", "{\"a\":1}")]);
    }

    #[test]
    fn what_shows_no_call_says_nothing() {
        for messages in [
            vec![tool("c1")],
            vec![tool("c1"), assistant(&[call("c1", "pay", "{}")])],
            vec![assistant(&[call("c2", "pay", "{}")]), tool("c1")],
            vec![assistant(&[call("c1", "", "{}")]), tool("c1")],
            vec![assistant(&[call("", "pay", "{}")]), tool("")],
            vec![r#"{"role":"user","content":"tool_call_id"}"#.to_owned()],
            vec!["7".to_owned(), tool("c1")],
        ] {
            assert_eq!(results(&messages), [], "{messages:?}");
        }
        assert_eq!(Dialect::ChatCompletions.results(b"{\"messages\":\"tool_call_id"), []);
    }

    #[test]
    fn custom_tools_are_compared_as_written() {
        let custom = r#"{"id":"c1","type":"custom","custom":{"name":"sh","input":"ls \n"}}"#.to_owned();
        let expected = Shown::Call { name: "sh".to_owned(), words: Words::Raw("ls \n".to_owned()) };
        assert_eq!(results(&[assistant(&[custom]), tool("c1")])[0].shown, expected);
    }
}

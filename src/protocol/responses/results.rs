//! Results of tools in a Responses request.
//!
//! In: the request. Out: [`Returned`]. A result is an item `function_call_output` or `custom_tool_call_output` after the last user
//! message; its call is the nearest item before it with its `call_id`. With `previous_response_id` the account keeps the calls: a result
//! whose call is not among the items is looked for within that response (SPEC Annex, Roots and slots).

use crate::protocol::json_walk::{elements, member, text};
use crate::protocol::results::{RESULTS_MAX, shown, told};
use crate::protocol::words::{Returned, Shown, Words};

/// The results after the last user turn, the newest first.
pub(in crate::protocol) fn of_request(json: &str) -> Vec<Returned> {
    let items: Vec<&str> = elements(member(json, "input").unwrap_or_default()).collect();
    let previous = told(json, "previous_response_id");
    let mut found = Vec::new();
    for (at, item) in items.iter().enumerate().rev() {
        match member(item, "type").and_then(text).as_deref() {
            Some("function_call_output" | "custom_tool_call_output") if found.len() < RESULTS_MAX => {
                let Some(id) = told(item, "call_id") else { continue };
                let call = call_of(items.get(..at).unwrap_or_default(), &id);
                found.extend(call.or_else(|| {
                    let shown = Shown::Response(previous.clone()?);
                    Some(Returned { id, shown })
                }));
            }
            // A message may leave its type out.
            Some("message") | None if member(item, "role").and_then(text).as_deref() == Some("user") => break,
            _ => {}
        }
    }
    found
}

fn call_of(before: &[&str], id: &str) -> Option<Returned> {
    before.iter().rev().find_map(|item| {
        let kind = member(item, "type").and_then(text)?;
        if !matches!(&*kind, "function_call" | "custom_tool_call")
            || member(item, "call_id").and_then(text).as_deref() != Some(id)
        {
            return None;
        }
        let words = if kind == "function_call" {
            Words::of_member(member(item, "arguments").unwrap_or("null"))
        } else {
            Words::Raw(member(item, "input").and_then(text).unwrap_or_default().into_owned())
        };
        Some(shown(id.to_owned(), told(item, "name")?, words))
    })
}

#[cfg(test)]
mod tests {
    use crate::protocol::Dialect;
    use crate::protocol::words::{Returned, Shown, Words};

    const USER: &str = r#"{"role":"user","content":"pay"}"#;
    const CALL: &str = r#"{"type":"function_call","id":"fc_1","call_id":"c1","name":"pay","arguments":"{\"a\":1}"}"#;
    const OUTPUT: &str = r#"{"type":"function_call_output","call_id":"c1","output":"ok"}"#;

    fn results(items: &[&str], previous: &str) -> Vec<Returned> {
        let body = format!(r#"{{"input":[{}]{previous}}}"#, items.join(","));
        Dialect::Responses.results(body.as_bytes())
    }

    fn call(id: &str, arguments: &str) -> Returned {
        let shown = Shown::Call { name: "pay".to_owned(), words: Words::of_text(arguments) };
        Returned { id: id.to_owned(), shown }
    }

    #[test]
    fn results_after_the_last_user_message() {
        assert_eq!(results(&[USER, CALL, OUTPUT], ""), [call("c1", "{\"a\":1}")]);
        assert_eq!(results(&[USER, CALL, OUTPUT, USER], ""), [], "a new wish");
        let (second, output) = (CALL.replace("c1", "c2"), OUTPUT.replace("c1", "c2"));
        let run = [USER, CALL, &second, &output, OUTPUT];
        assert_eq!(results(&run, ""), [call("c1", "{\"a\":1}"), call("c2", "{\"a\":1}")]);
        let message = USER.replace('{', r#"{"type":"message","#);
        assert_eq!(results(&[CALL, OUTPUT, &message], ""), []);
    }

    #[test]
    fn what_the_account_keeps_is_named_by_its_response() {
        const PREVIOUS: &str = r#","previous_response_id":"resp_1""#;
        let kept = [Returned { id: "c1".to_owned(), shown: Shown::Response("resp_1".to_owned()) }];
        assert_eq!(results(&[OUTPUT], PREVIOUS), kept);
        assert_eq!(results(&[CALL, OUTPUT], PREVIOUS), [call("c1", "{\"a\":1}")], "what is shown counts");
        assert_eq!(results(&[OUTPUT], ""), []);
        assert_eq!(results(&[OUTPUT, USER], PREVIOUS), []);
        assert_eq!(results(&[OUTPUT], r#","previous_response_id":null"#), []);
        assert_eq!(Dialect::Responses.results(br#"{"input":"function_call_output"}"#), []);
    }

    #[test]
    fn custom_tools_are_compared_as_written() {
        let call = r#"{"type":"custom_tool_call","call_id":"c1","name":"sh","input":"ls"}"#;
        let output = OUTPUT.replace("function_call", "custom_tool_call");
        let expected = Shown::Call { name: "sh".to_owned(), words: Words::Raw("ls".to_owned()) };
        assert_eq!(results(&[call, &output], "")[0].shown, expected);
    }
}

//! What a request asks for, in words that all dialects share. Read once, by the dialect's `request.rs`; nobody re-reads the
//! JSON after it. The body itself stays as the caller sent it: [`with_model`] edits the one member that may change.

use std::ops::Range;

use bytes::Bytes;

use super::pin::Pin;

/// What the relay must know of a request body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestFacts {
    /// The requested model and where its JSON string (quotes included) stands in the body.
    pub model: Option<(String, Range<usize>)>,
    /// Where a member can be inserted when `model` is absent: just after the opening brace, and whether members follow.
    pub insert_at: usize,
    /// The object has no members at all (so an inserted one needs no comma).
    pub empty: bool,
    /// The answer is to be streamed.
    pub stream: bool,
    /// The request asks for reasoning (`reasoning`, `reasoning_effort` other than "none", `thinking` enabled or adaptive).
    pub reasoning: bool,
    /// `n`; 1 where absent.
    pub choices: u32,
    /// The request's own output limit in tokens.
    pub max_output_tokens: Option<u64>,
    /// Bytes of text in messages, system prompt and tools; input tokens are estimated as a quarter of it.
    pub text_bytes: u64,
    /// Tools that the provider itself would run, as declared.
    pub hosted_tools: Vec<HostedTool>,
    /// Capabilities that the request uses, by SPEC name, sorted, without doubles: `text`, `image`, `audio`, `file`,
    /// `tools`, `parallel_tools`, `json_schema`, `reasoning`, `logprobs`, and hosted tools by type (`web_search`, `mcp` …).
    pub capabilities: Vec<String>,
    /// State in the request that only one account holds, sorted, without doubles.
    pub pins: Vec<Pin>,
}

impl RequestFacts {
    /// The fields of [`RequestFacts::pins`] by SPEC name (`file_id`, `encrypted_content`, `signature`, `container`,
    /// `conversation`, `previous_response_id`), sorted, each once.
    pub fn pin_fields(&self) -> Vec<&'static str> {
        let mut fields: Vec<_> = self.pins.iter().map(|pin| pin.field).collect();
        fields.dedup();
        fields
    }
}

/// Output tokens assumed where neither request nor route says (SPEC Annex, Routing).
pub const OUTPUT_TOKENS_ASSUMED: u64 = 4096;

/// Bytes of text a token, for estimates (SPEC Annex, Routing).
pub const BYTES_A_TOKEN: u64 = 4;

impl RequestFacts {
    /// Input tokens, estimated.
    pub fn input_tokens(&self) -> u64 {
        self.text_bytes / BYTES_A_TOKEN
    }

    /// Output tokens of one choice, estimated: the request's own maximum, else the route's, else 4096.
    pub fn output_tokens(&self, route_max: Option<u64>) -> u64 {
        self.max_output_tokens.or(route_max).unwrap_or(OUTPUT_TOKENS_ASSUMED)
    }
}

/// A tool that the provider runs by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedTool {
    /// Its type without a date: `web_search`, `code_interpreter`, `mcp` …
    pub name: String,
    /// Whether it may change the world (mcp, code, computer, shell, and whatever is not known).
    pub may_act: bool,
}

/// Why a request body is refused before any provider is asked. All are 400 in the caller's dialect; `code` is stable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// Stable code: `invalid_json`, `model_twice`, `invalid_type`.
    pub code: &'static str,
    /// A sentence for people, without any content of the body.
    pub message: String,
    /// The offending member.
    pub param: Option<&'static str>,
}

/// The body with the model set to `name`, every other byte as it was. Without a model in the body it is inserted first.
pub fn with_model(body: &Bytes, facts: &RequestFacts, name: &str) -> Bytes {
    let quoted = serde_json::Value::from(name).to_string();
    let (cut, head, tail) = match &facts.model {
        Some((current, _)) if current == name => return body.clone(),
        Some((_, range)) => (range.clone(), quoted, ""),
        None => (facts.insert_at..facts.insert_at, format!("\"model\":{quoted}"), if facts.empty { "" } else { "," }),
    };
    let mut edited = Vec::with_capacity(body.len() + head.len() + tail.len());
    edited.extend_from_slice(body.get(..cut.start).unwrap_or_default());
    edited.extend_from_slice(head.as_bytes());
    edited.extend_from_slice(tail.as_bytes());
    edited.extend_from_slice(body.get(cut.end..).unwrap_or_default());
    Bytes::from(edited)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::protocol::Dialect;

    fn edited(body: &str, name: &str) -> String {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let facts = Dialect::ChatCompletions.read_request(&body).unwrap();
        String::from_utf8(with_model(&body, &facts, name).to_vec()).unwrap()
    }

    #[test]
    fn only_the_model_changes() {
        for (body, name, expected) in [
            (r#"{"model":"a","x":1}"#, "b", r#"{"model":"b","x":1}"#),
            (
                " {\n\t\"x\": 1.50 ,\r\n \"model\" :  \"a\"\n} \n",
                "b",
                " {\n\t\"x\": 1.50 ,\r\n \"model\" :  \"b\"\n} \n",
            ),
            (r#"{"model":"g\u0070t\/5","x":"\ud800"}"#, "b", r#"{"model":"b","x":"\ud800"}"#),
            (r#"{"mod\u0065l":"a"}"#, "b", r#"{"mod\u0065l":"b"}"#),
            (
                r#"{"x":{"model":"a"},"y":"\"model\":\"a\"","model":"a"}"#,
                "b",
                r#"{"x":{"model":"a"},"y":"\"model\":\"a\"","model":"b"}"#,
            ),
            (r#"{"model":"a"}"#, "q\"uo\\te é", r#"{"model":"q\"uo\\te é"}"#),
            (r#"{"model":""}"#, "b", r#"{"model":"b"}"#),
            ("{}", "b", r#"{"model":"b"}"#),
            ("\n{ \t}\n", "b", "\n{\"model\":\"b\" \t}\n"),
            (r#"  {  "x":1}"#, "b", r#"  {"model":"b",  "x":1}"#),
            (r#"{"x":1,"x":2,"é":"{"}"#, "b", r#"{"model":"b","x":1,"x":2,"é":"{"}"#),
        ] {
            assert_eq!(edited(body, name), expected, "{body}");
        }
    }

    #[test]
    fn the_same_name_leaves_the_same_bytes() {
        for body in [r#"{"model":"gpt-5"}"#, r#"{"model":"gpt\u002d5" }"#] {
            assert_eq!(edited(body, "gpt-5"), body, "written with escapes or not");
        }
    }

    proptest! {
        /// Whatever else is in the body: the result is the body with one range replaced, and reads back with the new model.
        #[test]
        fn every_other_byte_stays(
            before in prop::collection::vec(("[a-l]{0,3}", "[\\PC]{0,8}"), 0..4),
            after in prop::collection::vec(("[a-l]{0,3}", "[\\PC]{0,8}"), 0..4),
            model in prop::option::of("[\\PC]{0,8}"),
            name in "[\\PC]{1,8}",
            gap in "[ \t\r\n]{0,3}",
        ) {
            let write = |(key, value): &(String, String)| format!("{}{gap}:{gap}{}", Value::from(key.as_str()), Value::from(value.as_str()));
            let mut parts: Vec<_> = before.iter().map(write).collect();
            if let Some(model) = &model {
                parts.push(write(&("model".to_owned(), model.clone())));
            }
            parts.extend(after.iter().map(write));
            let body = format!("{gap}{{{gap}{}{gap}}}{gap}", parts.join(&format!("{gap},{gap}")));
            let out = edited(&body, &name);

            let facts = Dialect::ChatCompletions.read_request(&Bytes::from(out.clone())).unwrap();
            prop_assert_eq!(facts.model.as_ref().map(|(model, _)| model.as_str()), Some(name.as_str()));
            let quoted = Value::from(name.as_str()).to_string();
            match &model {
                Some(old) => {
                    let old = write(&("model".to_owned(), old.clone()));
                    let new = write(&("model".to_owned(), name.clone()));
                    let at = gap.len() * 2 + 1 + before.iter().map(|p| write(p).len() + 1 + 2 * gap.len()).sum::<usize>();
                    prop_assert_eq!(out, format!("{}{new}{}", &body[..at], &body[at + old.len()..]));
                }
                None => {
                    let comma = if parts.is_empty() { "" } else { "," };
                    let (head, tail) = body.split_at(gap.len() + 1);
                    prop_assert_eq!(out, format!("{head}\"model\":{quoted}{comma}{tail}"));
                }
            }
        }
    }
}

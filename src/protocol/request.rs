//! What a request asks for, in words that all dialects share. Read once, by the dialect's `request.rs`; nobody re-reads the
//! JSON after it. The body itself stays as the caller sent it: [`with_model`] edits the one member that may change.

use std::ops::Range;

use bytes::Bytes;

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
    /// State in the request that only one account holds, by SPEC name (`file_id`, `encrypted_content`, `signature`,
    /// `container`, `conversation`, `previous_response_id`), sorted, without doubles.
    pub pins: Vec<&'static str>,
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

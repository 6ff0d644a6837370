//! Ready-made answers for tests and the demo: builders over the steps of a [`script`](super::script), and whole streams of
//! all dialects. Pure: text in, steps out.
//!
//! Members come in the order the providers send them and not sorted, since the relay's fast path looks at bytes. What a
//! model would have to invent (ids, times, token counts) is fixed, so that two runs are equal to the byte.

pub mod anthropic;
pub mod chat;
pub mod responses;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::Value;

use super::script::{
    Abort, Answer, Auto, AutoDialect, AutoTool, Event, Head, Headers, JsonText, Repeat, Rule, Script, Step,
};

/// The `model` of a canned answer that does not know its request.
pub const MODEL: &str = "mock-model";

/// Input tokens every canned answer claims.
pub const INPUT_TOKENS: u64 = 7;

/// What of the request shapes an `auto` answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// Its top-level `model`.
    pub(super) model: Option<String>,
    /// Its `stream`.
    pub(super) stream: bool,
    /// Its `stream_options.include_usage`.
    pub(super) include_usage: bool,
}

impl Script {
    /// A script of one rule, called `any`, that answers every request so.
    pub fn one(answer: Answer) -> Self {
        Self::default().rule(Rule::new("any").answer(answer))
    }

    /// Adds a rule; earlier ones go first.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Listens there and not on a free loopback port.
    #[must_use]
    pub fn listen(mut self, listen: SocketAddr) -> Self {
        self.listen = listen;
        self
    }
}

impl Rule {
    /// A rule for every request, still without an answer.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), path: None, model: None, answers: Vec::new() }
    }

    /// Only for this path.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Only for this model.
    #[must_use]
    pub fn model(mut self, model: &str) -> Self {
        self.model = Some(model.to_owned());
        self
    }

    /// The next call's answer; the last one added repeats.
    #[must_use]
    pub fn answer(mut self, answer: Answer) -> Self {
        self.answers.push(answer);
        self
    }
}

impl Answer {
    /// No step yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// `200` with `content-type: text/event-stream`.
    pub fn sse() -> Self {
        Self::new().head(200, &[("content-type", "text/event-stream")])
    }

    /// A whole JSON answer with a content-length.
    pub fn json(status: u16, body: Value) -> Self {
        Self::json_text(status, JsonText::from(body))
    }

    /// The same; reads better where the status is an error's.
    pub fn json_error(status: u16, body: Value) -> Self {
        Self::json(status, body)
    }

    /// A complete answer in a provider's format, streaming or not as the request asks.
    pub fn auto(dialect: AutoDialect, text: &[&str]) -> Self {
        let text = text.iter().map(|&piece| piece.to_owned()).collect();
        Self::new().step(Step::Auto(Auto { dialect, text, tool: None, pace_ms: 0 }))
    }

    fn json_text(status: u16, body: JsonText) -> Self {
        let headers = Headers(vec![("content-type".to_owned(), "application/json".to_owned())]);
        let length = Some(body.0.len() as u64);
        Self { steps: vec![Step::Head(Head { status, headers, length, ..Head::default() }), Step::Json(body)] }
    }

    /// Any step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// All steps of another answer.
    #[must_use]
    pub fn then(mut self, more: Answer) -> Self {
        self.steps.extend(more.steps);
        self
    }

    /// A head; its body is chunked.
    #[must_use]
    pub fn head(self, status: u16, headers: &[(&str, &str)]) -> Self {
        let headers = headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        self.step(Step::Head(Head { status, headers: Headers(headers), ..Head::default() }))
    }

    /// A header more on the last head so far; without one, a `200` head with it.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let last = self.steps.iter_mut().rev().find_map(|step| if let Step::Head(h) = step { Some(h) } else { None });
        match last {
            Some(head) => head.headers.0.push((name.to_owned(), value.to_owned())),
            None => return self.head(200, &[(name, value)]),
        }
        self
    }

    /// An event with a name.
    #[must_use]
    pub fn event(self, name: &str, data: Value) -> Self {
        self.step(Step::Event(Event { name: Some(name.to_owned()), data: data.to_string() }))
    }

    /// An event without a name; its data as it is.
    #[must_use]
    pub fn data(self, data: &str) -> Self {
        self.step(Step::Event(Event { name: None, data: data.to_owned() }))
    }

    /// Bytes as they are.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        self.step(Step::Text(text.to_owned()))
    }

    /// A file's bytes.
    #[must_use]
    pub fn file(self, path: impl Into<PathBuf>) -> Self {
        self.step(Step::File(path.into()))
    }

    /// A recording.
    #[must_use]
    pub fn recording(self, path: impl Into<PathBuf>) -> Self {
        self.step(Step::Recording(path.into()))
    }

    /// A pause.
    #[must_use]
    pub fn delay_ms(self, ms: u64) -> Self {
        self.step(Step::DelayMs(ms))
    }

    /// Pieces of so many bytes from here on; 0 ends that.
    #[must_use]
    pub fn split(self, bytes: usize) -> Self {
        self.step(Step::Split(bytes))
    }

    /// Waits for one permit of this gate.
    #[must_use]
    pub fn gate(self, name: &str) -> Self {
        self.step(Step::Gate(name.to_owned()))
    }

    /// Silence until the peer leaves.
    #[must_use]
    pub fn hang(self) -> Self {
        self.step(Step::Hang)
    }

    /// A close without the body's end.
    #[must_use]
    pub fn abort_fin(self) -> Self {
        self.step(Step::Abort(Abort::Fin))
    }

    /// A reset.
    #[must_use]
    pub fn abort_rst(self) -> Self {
        self.step(Step::Abort(Abort::Rst))
    }

    /// The steps of `what` so many times.
    #[must_use]
    pub fn repeat(self, times: u32, what: Answer) -> Self {
        self.step(Step::Repeat(Repeat { times, steps: what.steps }))
    }
}

/// The steps of an `auto` answer for one request.
pub(super) fn auto(auto: &Auto, asked: &Asked) -> Answer {
    let model = asked.model.as_deref().unwrap_or(MODEL);
    match (auto.dialect, asked.stream) {
        (AutoDialect::ChatCompletions, true) => chat::stream(model, auto, asked.include_usage),
        (AutoDialect::ChatCompletions, false) => Answer::json_text(200, chat::whole(model, auto)),
        (AutoDialect::AnthropicMessages, true) => anthropic::stream(model, auto),
        (AutoDialect::AnthropicMessages, false) => Answer::json_text(200, anthropic::whole(model, auto)),
        (AutoDialect::Responses, true) => responses::stream(model, auto),
        (AutoDialect::Responses, false) => Answer::json_text(200, responses::whole(model, auto)),
    }
}

fn spec(dialect: AutoDialect, text: &[&str], tool: Option<(&str, &[&str])>) -> Auto {
    let owned = |pieces: &[&str]| pieces.iter().map(|&piece| piece.to_owned()).collect();
    let tool = tool.map(|(name, arguments)| AutoTool { name: name.to_owned(), arguments: owned(arguments) });
    Auto { dialect, text: owned(text), tool, pace_ms: 0 }
}

/// Output tokens a canned answer claims: one a piece.
fn output_tokens(auto: &Auto) -> u64 {
    (auto.text.len() + auto.tool.as_ref().map_or(0, |tool| tool.arguments.len())) as u64
}

/// A pause and then the piece, or the piece alone.
fn paced(answer: Answer, pace_ms: u64, step: Step) -> Answer {
    if pace_ms == 0 { answer.step(step) } else { answer.delay_ms(pace_ms).step(step) }
}

/// Text as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of every event; all must be JSON or `[DONE]`.
    fn data(answer: &Answer) -> Vec<Value> {
        let events = answer.steps.iter().filter_map(|step| if let Step::Event(e) = step { Some(e) } else { None });
        events.filter(|e| e.data != "[DONE]").map(|e| serde_json::from_str(&e.data).expect(&e.data)).collect()
    }

    fn with_tool(dialect: AutoDialect) -> Auto {
        spec(dialect, &["Hel", "lo \"you\"\n"], Some(("pay", &[r#"{"a":"#, "1}"])))
    }

    #[test]
    fn a_chat_stream_says_what_it_was_given_and_ends() {
        let answer = chat::stream("m", &with_tool(AutoDialect::ChatCompletions), true);
        let events = data(&answer);
        let pick = |path: &str| -> String { events.iter().filter_map(|e| e.pointer(path)?.as_str()).collect() };
        assert_eq!(pick("/choices/0/delta/content"), "Hello \"you\"\n");
        assert_eq!(pick("/choices/0/delta/tool_calls/0/function/name"), "pay");
        assert_eq!(pick("/choices/0/delta/tool_calls/0/function/arguments"), r#"{"a":1}"#);
        assert_eq!(pick("/choices/0/finish_reason"), "tool_calls");
        assert_eq!(events.last().and_then(|e| e.pointer("/usage/total_tokens")), Some(&Value::from(11)));
        assert!(matches!(answer.steps.last(), Some(Step::Event(e)) if e.data == "[DONE]"));
        assert!(events.iter().all(|e| e["model"] == "m"));
    }

    #[test]
    fn usage_comes_only_when_asked_for() {
        let spec = with_tool(AutoDialect::ChatCompletions);
        let has_usage = |include_usage| {
            let asked = Asked { model: None, stream: true, include_usage };
            data(&auto(&spec, &asked)).iter().any(|e| e["usage"].is_object())
        };
        assert_eq!((has_usage(true), has_usage(false)), (true, false));
    }

    #[test]
    fn an_anthropic_stream_says_what_it_was_given_and_ends() {
        let answer = anthropic::stream("m", &with_tool(AutoDialect::AnthropicMessages));
        let events = data(&answer);
        let pick = |path: &str| -> String { events.iter().filter_map(|e| e.pointer(path)?.as_str()).collect() };
        assert_eq!(pick("/delta/text"), "Hello \"you\"\n");
        assert_eq!(pick("/content_block/name"), "pay");
        assert_eq!(pick("/delta/partial_json"), r#"{"a":1}"#);
        assert_eq!(pick("/delta/stop_reason"), "tool_use");
        let kinds: Vec<_> = events.iter().filter_map(|e| e["type"].as_str()).collect();
        assert_eq!((kinds.first(), kinds.last()), (Some(&"message_start"), Some(&"message_stop")));
        for (step, kind) in answer.steps.iter().skip(1).zip(kinds) {
            assert!(matches!(step, Step::Event(e) if e.name.as_deref() == Some(kind)), "{step:?}");
        }
    }

    #[test]
    fn a_responses_stream_says_what_it_was_given_and_ends() {
        let answer = responses::stream("m", &with_tool(AutoDialect::Responses));
        let events = data(&answer);
        let of = |kind: &str| -> String {
            events.iter().filter(|e| e["type"] == kind).filter_map(|e| e["delta"].as_str()).collect()
        };
        assert_eq!(of("response.output_text.delta"), "Hello \"you\"\n");
        assert_eq!(of("response.function_call_arguments.delta"), r#"{"a":1}"#);
        let last = events.last().expect("an end");
        assert_eq!((&last["type"], &last["response"]["status"]), (&"response.completed".into(), &"completed".into()));
        assert_eq!(last["response"]["output"][1]["arguments"], r#"{"a":1}"#);
        for (number, event) in events.iter().enumerate() {
            assert_eq!(event["sequence_number"], number);
        }
        for (step, event) in answer.steps.iter().skip(1).zip(&events) {
            assert!(matches!(step, Step::Event(e) if e.name.as_deref() == event["type"].as_str()), "{step:?}");
        }
    }

    #[test]
    fn whole_answers_hold_the_same() {
        let chat: Value =
            serde_json::from_str(&chat::whole("m", &with_tool(AutoDialect::ChatCompletions)).0).expect("JSON");
        assert_eq!(chat["choices"][0]["message"]["content"], "Hello \"you\"\n");
        assert_eq!(chat["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], r#"{"a":1}"#);
        assert_eq!(chat["choices"][0]["finish_reason"], "tool_calls");
        let anthropic: Value =
            serde_json::from_str(&anthropic::whole("m", &with_tool(AutoDialect::AnthropicMessages)).0).expect("JSON");
        assert_eq!(anthropic["content"][0]["text"], "Hello \"you\"\n");
        assert_eq!(anthropic["content"][1]["input"]["a"], 1);
        assert_eq!(anthropic["stop_reason"], "tool_use");
        let responses: Value =
            serde_json::from_str(&responses::whole("m", &with_tool(AutoDialect::Responses)).0).expect("JSON");
        assert_eq!(responses["output"][0]["content"][0]["text"], "Hello \"you\"\n");
        assert_eq!(responses["output"][1]["arguments"], r#"{"a":1}"#);
        assert_eq!((&responses["object"], &responses["status"]), (&"response".into(), &"completed".into()));
    }

    #[test]
    fn a_header_lands_on_the_head() {
        let answer = Answer::json_error(429, serde_json::json!({"error": {}})).header("retry-after", "1");
        assert!(
            matches!(&answer.steps[0], Step::Head(h) if h.headers.0.iter().any(|(n, v)| n == "retry-after" && v == "1"))
        );
        assert!(matches!(&Answer::new().header("a", "b").steps[0], Step::Head(h) if h.status == 200));
    }
}

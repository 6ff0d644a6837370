//! Events of a chat-completions stream to [`Reading`]s.
//!
//! In: the events of one attempt, in order. Out: what each shows (by the rows of `table.rs`, and by nothing else), whether it is a
//! fault, and, over the whole stream, how far it has come, its usage, finish reason and model. Why it decodes so little: a
//! stream has thousands of events; each is checked to be JSON once and then looked at in place (`json_walk`), no text is
//! unescaped and nothing is allocated once finish reason and model are known. State is bounded: two bit sets for the choices and
//! two short texts. Deliberately not here: commit policies, and the text itself.

use std::borrow::Cow;

use super::table::{FAULT, member as row_of, whole};
use super::{fault, pins, usage};
use crate::protocol::json_walk::{elements, is_empty, member, members, text, valid};
use crate::protocol::pin::{Pin, Pins};
use crate::protocol::signal::{Ending, Reading, Show, StreamReader, Usage, VisibleKind};

/// Choices that are told apart: the most that OpenAI takes for `n`. A stream with an index at or over it is never complete.
pub const CHOICES_MAX: u32 = 128;

/// Bytes of a model's or finish reason's name that are kept; a longer one is ignored (a longer finish reason still counts as one).
const NAME_BYTES_MAX: usize = 256;

/// Reads one attempt's stream.
#[derive(Debug)]
pub struct Reader {
    /// Bit i: the request asked for choice i.
    wanted: u128,
    /// Bit i: choice i was seen.
    seen: u128,
    /// Bit i: choice i has a finish reason.
    finished: u128,
    /// An index at or over [`CHOICES_MAX`] was seen.
    beyond: bool,
    /// A fault was seen: nothing after it brings the stream nearer to its end.
    failed: bool,
    ending: Ending,
    usage: Usage,
    finish_reason: Option<String>,
    model: Option<String>,
    issued: Pins,
}

impl Reader {
    /// A reader for an answer with `choices` choices (the request's `n`; 0 reads as 1, and at most [`CHOICES_MAX`] are waited for).
    pub fn new(choices: u32) -> Self {
        Self {
            wanted: u128::MAX >> (CHOICES_MAX - choices.clamp(1, CHOICES_MAX)),
            seen: 0,
            finished: 0,
            beyond: false,
            failed: false,
            ending: Ending::Open,
            usage: Usage::default(),
            finish_reason: None,
            model: None,
            issued: Pins::default(),
        }
    }

    /// `[DONE]`: the end if every choice that was seen has its finish reason, and there was one. A provider that takes no notice of
    /// `n` ends so with fewer choices than were asked for. Without any finish reason it is nothing (SPEC Annex, Streams).
    fn done(&mut self) {
        if !self.failed && !self.beyond && self.finished != 0 && self.seen == self.finished {
            self.ending = Ending::Terminal;
        }
    }

    fn chunk(&mut self, json: &str) -> Said {
        let mut said = Said::default();
        for (name, value) in members(json) {
            match name {
                "choices" if value.starts_with('[') => {
                    for (position, choice) in elements(value).enumerate() {
                        said.add(self.choice(position, choice));
                    }
                    continue;
                }
                "usage" => usage::merge(&mut self.usage, value),
                "x_groq" => {
                    if let Some(value) = member(value, "usage") {
                        usage::merge(&mut self.usage, value);
                    }
                }
                "model" if self.model.is_none() => self.model = short(value),
                _ => {}
            }
            let sub = match name {
                "choices" => "not an array",
                "type" | "object" => word(value),
                _ => "",
            };
            said.row("chunk", name, sub, value);
        }
        said
    }

    fn choice(&mut self, position: usize, choice: &str) -> Said {
        if !choice.starts_with('{') {
            let mut said = Said::default();
            said.row("chunk", "choices", "not an object inside", choice);
            return said;
        }
        // Some servers leave the index out where there is one choice.
        let index = member(choice, "index").and_then(|index| index.parse().ok()).unwrap_or(position);
        let bit = u32::try_from(index).ok().and_then(|index| 1_u128.checked_shl(index));
        self.seen |= bit.unwrap_or(0);
        self.beyond |= bit.is_none();
        if let Some(reason) = finish_of(choice) {
            self.finished |= bit.unwrap_or(0);
            if self.finish_reason.as_deref() != Some(&*reason) && reason.len() <= NAME_BYTES_MAX {
                self.finish_reason = Some(reason.into_owned());
            }
        }
        for (name, value) in members(choice) {
            if matches!(name, "delta" | "message") {
                pins::of_message(value, &mut self.issued);
            }
        }
        choice_says(choice)
    }
}

impl StreamReader for Reader {
    fn read(&mut self, name: &[u8], data: &[u8]) -> Reading {
        let data = data.trim_ascii();
        let says = |sub| Reading::of(whole("data", sub).map_or(Show::Visible(VisibleKind::Unknown), |row| row.show));
        if data == b"[DONE]" {
            // The whole payload, never a part of it: tool arguments may hold the word (FIELD_CASES F33).
            self.done();
            return Reading::terminal(says("[DONE]").show);
        }
        let named = whole("event", std::str::from_utf8(name).unwrap_or_default()).is_some_and(|row| row.when == FAULT);
        let json = valid(data);
        let (show, is_fault) = match json {
            Some(json) if json.starts_with('{') => {
                let said = self.chunk(json);
                (said.show, named || said.fault)
            }
            _ if named => (Show::Preamble, true),
            Some(_) => return says("not an object"),
            None if data.is_empty() => return says("blank"),
            None => return says("not JSON"),
        };
        if is_fault {
            self.failed = true;
            return Reading::fault(show, fault::of_event(data));
        }
        let complete = self.finished & self.wanted == self.wanted && self.seen == self.finished && !self.beyond;
        if complete && !self.failed && self.ending == Ending::Open {
            self.ending = Ending::Finished;
        }
        Reading::of(show)
    }

    fn ending(&self) -> Ending {
        self.ending
    }

    fn usage(&self) -> Usage {
        self.usage
    }

    fn finish_reason(&self) -> Option<&str> {
        self.finish_reason.as_deref()
    }

    fn served_model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn issued(&self) -> &[Pin] {
        self.issued.issued()
    }
}

/// What an event, or a part of it, says: the strongest show of its rows, and whether one of them is a fault.
pub(super) struct Said {
    /// The strongest show.
    pub(super) show: Show,
    /// It is a fault.
    pub(super) fault: bool,
}

impl Default for Said {
    fn default() -> Self {
        Self { show: Show::Preamble, fault: false }
    }
}

impl Said {
    fn row(&mut self, place: &str, name: &str, sub: &str, value: &str) {
        // `"error": false` is how some servers say that there is none; the SDKs read it so.
        let row = row_of(place, name, sub, is_empty(value) || (name == "error" && value == "false"));
        self.add(Self { show: row.show, fault: row.when == FAULT });
    }

    fn add(&mut self, other: Self) {
        self.fault |= other.fault;
        if rank(other.show) > rank(self.show) {
            self.show = other.show;
        }
    }
}

/// Of several members, which one speaks for the event: whatever may have acted; then what is visible even where reasoning is held; then
/// reasoning. The first one of equals.
fn rank(show: Show) -> u8 {
    match show {
        Show::Preamble => 0,
        Show::Ping => 1,
        Show::Visible(VisibleKind::Reasoning) => 2,
        Show::Visible(_) => 3,
        Show::Effect { may_act: false } => 4,
        Show::Effect { may_act: true } => 5,
    }
}

/// What one choice (of a chunk or of a whole answer) says.
pub(super) fn choice_says(choice: &str) -> Said {
    let mut said = Said::default();
    for (name, value) in members(choice) {
        match name {
            "delta" | "message" if value.starts_with('{') => {
                for (name, value) in members(value) {
                    said.row("delta", name, if is_thinking(name, value) { "thinking" } else { "" }, value);
                }
            }
            "delta" | "message" => said.row("choice", name, "not an object", value),
            "finish_reason" => said.row("choice", name, word(value), value),
            _ => said.row("choice", name, "", value),
        }
    }
    said
}

/// Whether it is content in parts, all of them thinking (Mistral's reasoning models).
fn is_thinking(name: &str, value: &str) -> bool {
    let mut parts = elements(value).peekable();
    name == "content" && parts.peek().is_some() && parts.all(|part| member(part, "type").map(word) == Some("thinking"))
}

/// The finish reason of a choice. `""` and `"null"`, which some servers write into every chunk, are none; nor is `"error"`, which is
/// a fault.
pub(super) fn finish_of(choice: &str) -> Option<Cow<'_, str>> {
    text(member(choice, "finish_reason")?).filter(|reason| !matches!(&**reason, "" | "null" | "error"))
}

/// A string's content as written; empty for any other value.
fn word(json: &str) -> &str {
    json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default()
}

fn short(json: &str) -> Option<String> {
    text(json).filter(|text| !text.is_empty() && text.len() <= NAME_BYTES_MAX).map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    const FINISH_1: &str = r#"{"choices":[{"index":1,"delta":{},"finish_reason":"length"}]}"#;
    const TEXT: &str = r#"{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}"#;
    const TEXT_1: &str = r#"{"choices":[{"index":1,"delta":{"content":"x"}}]}"#;
    const ERROR: &str = r#"{"error":{"message":"m","type":"server_error"}}"#;
    const DONE: &str = "[DONE]";

    fn ending(choices: u32, events: &[&str]) -> Ending {
        let mut reader = Reader::new(choices);
        for event in events {
            reader.read(b"", event.as_bytes());
        }
        reader.ending()
    }

    #[test]
    fn how_far_a_stream_has_come() {
        use Ending::{Finished, Open, Terminal};
        let beyond = TEXT.replace("\"index\":0", "\"index\":128");
        let negative = TEXT.replace("\"index\":0", "\"index\":-1");
        let no_index = FINISH.replace("\"index\":0,", "");
        for (choices, events, expected) in [
            (1, &[][..], Open),
            (1, &[TEXT], Open),
            (1, &[DONE], Open),
            (1, &[TEXT, DONE], Open),
            (1, &[TEXT, DONE, FINISH], Finished),
            (1, &[TEXT, FINISH], Finished),
            (1, &[TEXT, FINISH, DONE], Terminal),
            (1, &[FINISH, " [DONE]\n"], Terminal),
            (1, &[FINISH, "[DONE] "], Terminal),
            (1, &[FINISH, "[DONE]x"], Finished),
            (1, &[FINISH, r#""[DONE]""#], Finished),
            (1, &[FINISH, r#"{"choices":[{"index":0,"delta":{"content":"[DONE]"}}]}"#], Finished),
            (1, &[&no_index, DONE], Terminal),
            (2, &[TEXT, TEXT_1, FINISH], Open),
            (2, &[TEXT, TEXT_1, FINISH, DONE], Open),
            (2, &[FINISH, FINISH_1], Finished),
            (2, &[FINISH_1, FINISH, DONE], Terminal),
            (2, &[FINISH], Open),
            (2, &[FINISH, DONE], Terminal),
            (1, &[FINISH, TEXT_1, DONE], Finished),
            (1, &[&beyond, FINISH, DONE], Open),
            (1, &[&negative, FINISH, DONE], Terminal),
            (1, &[TEXT, ERROR, FINISH, DONE], Open),
            (1, &[TEXT, FINISH, ERROR, DONE], Finished),
            (0, &[FINISH, DONE], Terminal),
            (128, &[FINISH], Open),
            (u32::MAX, &[FINISH, DONE], Terminal),
            (1, &[r#"{"choices":[{"index":0,"delta":{},"finish_reason":""}]}"#, DONE], Open),
            (1, &[r#"{"choices":[{"index":0,"delta":{},"finish_reason":"null"}]}"#, DONE], Open),
            (1, &[r#"{"choices":[{"index":0,"delta":{},"finish_reason":7}]}"#, DONE], Open),
            (1, &[r#"{"choices":[{"index":0,"delta":{},"finish_reason":"eos_token"}]}"#, DONE], Terminal),
            (2, &[r#"{"choices":[{"finish_reason":"stop"},{"finish_reason":"stop"}]}"#, DONE], Terminal),
        ] {
            assert_eq!(ending(choices, events), expected, "n = {choices}: {events:?}");
        }
    }

    #[test]
    fn the_bound_on_choices_holds() {
        let finish = |index: u32| FINISH.replace("\"index\":0", &format!("\"index\":{index}"));
        let mut reader = Reader::new(CHOICES_MAX);
        for index in 0..CHOICES_MAX {
            assert_eq!(reader.ending(), Ending::Open);
            reader.read(b"", finish(index).as_bytes());
        }
        assert_eq!(reader.ending(), Ending::Finished);
        reader.read(b"", finish(CHOICES_MAX).as_bytes());
        reader.read(b"", DONE.as_bytes());
        assert_eq!(reader.ending(), Ending::Finished, "an index over the bound is never complete");
    }

    #[test]
    fn faults_in_events() {
        for (name, data, kind, code, status) in [
            ("", ERROR, Some("server_error"), None, None),
            (
                "error",
                r#"{"error":{"message":"m","type":"t","code":"c","status_code":400}}"#,
                Some("t"),
                Some("c"),
                Some(400),
            ),
            ("error", r#"{"type":"error","message":"m"}"#, None, None, None),
            ("error", "not JSON", None, None, None),
            ("error", "", None, None, None),
            ("", r#"{"error":"Input validation error","error_type":"validation"}"#, Some("validation"), None, None),
            (
                "",
                r#"{"object":"error","message":"m","type":"BadRequestError","code":400}"#,
                Some("BadRequestError"),
                Some("400"),
                Some(400),
            ),
            (
                "",
                r#"{"id":"g","error":{"code":502,"message":"m"},"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"error"}]}"#,
                None,
                Some("502"),
                Some(502),
            ),
            (
                "",
                r#"{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"error"}]}"#,
                None,
                Some("error"),
                None,
            ),
            (
                "",
                r#"{"choices":[{"index":0,"delta":{}},{"index":1,"error":{"code":429}}]}"#,
                None,
                Some("429"),
                Some(429),
            ),
        ] {
            let fault = Reader::new(1).read(name.as_bytes(), data.as_bytes()).fault.unwrap_or_else(|| panic!("{data}"));
            assert_eq!((fault.kind.as_deref(), fault.code.as_deref(), fault.status), (kind, code, status), "{data}");
        }
        for data in [
            r#"{"error":null,"choices":[]}"#,
            r#"{"error":{},"choices":[]}"#,
            r#"{"error":"","choices":[]}"#,
            r#"{"error":false,"choices":[]}"#,
            r#"{"choices":[{"delta":{"content":"{\"error\":{\"message\":\"m\"}}"},"error":null}]}"#,
            TEXT,
            DONE,
        ] {
            assert_eq!(Reader::new(1).read(b"", data.as_bytes()).fault, None, "{data}");
        }
    }

    #[test]
    fn the_strongest_member_speaks_for_the_event() {
        let show =
            |delta: &str| Reader::new(1).read(b"", format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#).as_bytes()).show;
        for (delta, expected) in [
            (r#"{"reasoning":"hm","content":"x"}"#, Show::Visible(VisibleKind::Text)),
            (r#"{"content":"x","reasoning":"hm"}"#, Show::Visible(VisibleKind::Text)),
            (
                r#"{"content":"","reasoning":"hm","reasoning_details":[{"text":"hm"}]}"#,
                Show::Visible(VisibleKind::Reasoning),
            ),
            (r#"{"reasoning":"hm","something_new":1}"#, Show::Visible(VisibleKind::Unknown)),
            (r#"{"content":"x","tool_calls":[{"index":0}]}"#, Show::Visible(VisibleKind::Text)),
            (r#"{"content":[{"type":"thinking"},{"type":"text","text":"x"}]}"#, Show::Visible(VisibleKind::Text)),
            (r#"{"content":[]}"#, Show::Preamble),
            (r#"{"tool_calls":[],"function_call":{"name":"","arguments":""},"audio":null}"#, Show::Preamble),
        ] {
            assert_eq!(show(delta), expected, "{delta}");
        }
        let two = r#"{"choices":[{"index":0,"delta":{"reasoning":"hm"}},{"index":1,"delta":{"refusal":"no"}}]}"#;
        assert_eq!(
            Reader::new(2).read(b"", two.as_bytes()).show,
            Show::Visible(VisibleKind::Refusal),
            "over choices too"
        );
    }

    #[test]
    fn usage_model_and_reason_stand_after_the_stream() {
        let mut reader = Reader::new(1);
        for event in [
            r#"{"model":"","choices":[]}"#,
            r#"{"model":"m-1","choices":[{"index":0,"delta":{"content":"x"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}"#,
            r#"{"model":"m-2","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"x_groq":{"usage":{"completion_tokens":2}}}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}"#,
            r#"{"choices":[],"usage":{"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":3}}}"#,
        ] {
            reader.read(b"", event.as_bytes());
        }
        let usage = Usage { input_tokens: Some(7), cached_input_tokens: Some(3), output_tokens: Some(5) };
        assert_eq!((reader.usage(), reader.served_model(), reader.finish_reason()), (usage, Some("m-1"), Some("stop")));
        let long =
            format!(r#"{{"model":"{0}","choices":[{{"finish_reason":"{0}"}}]}}"#, "m".repeat(NAME_BYTES_MAX + 1));
        let mut reader = Reader::new(1);
        reader.read(b"", long.as_bytes());
        assert_eq!((reader.served_model(), reader.finish_reason(), reader.ending()), (None, None, Ending::Finished));
    }

    fn order(ending: Ending) -> u8 {
        match ending {
            Ending::Open => 0,
            Ending::Finished => 1,
            Ending::Terminal => 2,
        }
    }

    proptest! {
        /// Any events, cut and bent anywhere: no panic, and the ending never goes back.
        #[test]
        fn the_ending_is_monotonic(
            choices in 0_u32..4,
            events in prop::collection::vec((prop::sample::select(&[FINISH, FINISH_1, TEXT, TEXT_1, ERROR, DONE][..]),
                prop::option::of((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()))), 0..12),
        ) {
            let mut reader = Reader::new(choices);
            let mut before = reader.ending();
            for (event, bend) in events {
                let mut bytes = event.as_bytes().to_vec();
                if let Some((at, byte, cut)) = bend {
                    let at = at.index(bytes.len());
                    if cut { bytes.truncate(at) } else { bytes[at] = byte }
                }
                reader.read(if bytes.len() % 7 == 0 { b"error" } else { b"" }, &bytes);
                prop_assert!(order(reader.ending()) >= order(before));
                before = reader.ending();
            }
        }
    }
}

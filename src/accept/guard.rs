//! Watches over one answer: puts its calls (and, for `validated`, its text) together and judges them when they are whole.
//!
//! In: events in order, or a whole answer. Out: a [`Stand`] for each event. State is bounded: open calls and their bytes; text is
//! bounded by whoever holds the events ([`crate::boundary::hold::ANSWER_BYTES_MAX`] bytes of them).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Broken;
use super::wanted::Wanted;
use crate::protocol::Dialect;
use crate::protocol::parts::{At, Part};

/// Arguments of one call (SPEC Annex, Bounds); over it the answer breaks the contract.
pub const ARGUMENTS_BYTES_MAX: usize = 1024 * 1024;

/// Calls that may be open at once, and places that are told apart; an answer with more breaks the contract.
pub const CALLS_MAX: usize = 128;

/// Finish reasons of answers that somebody filtered or refused to give, of any provider, in small letters.
const REFUSED: &[&str] = &[
    "content_filter",
    "content-filter",
    "refusal",
    "safety",
    "sensitive", // Zhipu
    "recitation",
    "prohibited_content",
    "blocklist",
    "spii",
];

/// Finish reasons of answers that the provider gave up, of any provider, in small letters.
const FAILED: &[&str] = &[
    "abort", // vLLM
    "error",
    "insufficient_system_resource", // DeepSeek
    "malformed_function_call",      // Gemini
    "malformed_response",
    "network_error", // Zhipu
];

/// What an event means for what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// No call is open: as without a guard.
    Free,
    /// It waits, with all that follow.
    Open,
    /// It and all that wait may go out.
    Whole,
    /// It and all that wait must not.
    Broken(Broken),
}

#[derive(Debug, Default)]
struct Call {
    id: Option<String>,
    name: Option<String>,
    freeform: bool,
    /// Arguments as the inside of a JSON string, as written.
    pieces: String,
    /// The same, told once more.
    whole: Option<String>,
    /// The same, as JSON.
    json: Option<String>,
}

impl Call {
    fn bytes(&self) -> usize {
        let told = [&self.whole, &self.json].into_iter().flatten().map(String::len).max();
        self.pieces.len().max(told.unwrap_or(0))
    }
}

/// Watches over one answer.
#[derive(Debug)]
pub struct Guard {
    wanted: Arc<Wanted>,
    open: BTreeMap<At, Call>,
    /// Calls came to an end since the last event that left none open.
    ended: bool,
    /// Choices that call tools.
    calling: BTreeSet<u64>,
    /// Choices that refuse in words.
    refusing: BTreeSet<u64>,
    texts: BTreeMap<At, String>,
    broken: Option<Broken>,
    /// The end was judged.
    over: bool,
}

impl Guard {
    /// For one answer to a request.
    pub fn new(wanted: Arc<Wanted>) -> Self {
        Self {
            wanted,
            open: BTreeMap::new(),
            ended: false,
            calling: BTreeSet::new(),
            refusing: BTreeSet::new(),
            texts: BTreeMap::new(),
            broken: None,
            over: false,
        }
    }

    /// Takes one event. `over`: with it the stream has the dialect's own end; `finish` is the finish reason known by then.
    pub fn read(&mut self, name: &[u8], data: &[u8], over: bool, finish: Option<&str>) -> Stand {
        let was_open = !self.open.is_empty();
        let dialect = self.wanted.dialect;
        dialect.parts(name, data.trim_ascii(), &mut |part| self.take(part));
        if over {
            self.end(finish);
        }
        let held = std::mem::take(&mut self.ended) || was_open;
        match self.broken {
            Some(broken) => Stand::Broken(broken),
            None if self.wanted.whole => {
                if over {
                    Stand::Whole
                } else {
                    Stand::Open
                }
            }
            None if !self.open.is_empty() => Stand::Open,
            None if held => Stand::Whole,
            None => Stand::Free,
        }
    }

    /// The stream has ended, by whatever its provider's `terminal` takes for an end.
    ///
    /// # Errors
    /// How the answer breaks the contract.
    pub fn finish(&mut self, finish: Option<&str>) -> Result<(), Broken> {
        self.end(finish);
        self.broken.map_or(Ok(()), Err)
    }

    /// Judges a whole answer.
    ///
    /// # Errors
    /// How it breaks the contract.
    pub fn judge_answer(wanted: Arc<Wanted>, body: &[u8], finish: Option<&str>) -> Result<(), Broken> {
        let mut guard = Self::new(wanted);
        let dialect = guard.wanted.dialect;
        dialect.parts_of_answer(body, &mut |part| guard.take(part));
        guard.finish(finish)
    }

    /// The first breach counts.
    fn breaks(&mut self, judged: Result<(), Broken>) {
        if let (Err(broken), None) = (judged, self.broken) {
            self.broken = Some(broken);
        }
    }

    fn take(&mut self, part: Part<'_>) {
        match part {
            Part::Call { at, id, name, freeform } => self.call(at, id, name, freeform),
            Part::Piece { at, inner } => self.add(at, |call| call.pieces.push_str(inner)),
            Part::Whole { at, inner } => self.add(at, |call| call.whole = Some(inner.to_owned())),
            Part::Input { at, json } => self.add(at, |call| call.json = Some(json.to_owned())),
            Part::Ends { at, cut } => self.close(at, cut),
            Part::ChoiceEnds(choice) => {
                let places: Vec<At> = self.open.keys().filter(|at| at.choice == choice).copied().collect();
                places.into_iter().for_each(|at| self.close(at, false));
            }
            Part::Text { at, inner, whole } if self.wanted.has_form() => {
                if self.texts.len() >= CALLS_MAX && !self.texts.contains_key(&at) {
                    return self.breaks(Err(Broken::TooLarge));
                }
                let text = self.texts.entry(at).or_default();
                if whole {
                    text.clear();
                }
                text.push_str(inner);
            }
            Part::Refusal(choice) if self.refusing.len() < CALLS_MAX => {
                self.refusing.insert(choice);
            }
            Part::Text { .. } | Part::Refusal(_) => {}
        }
    }

    fn call(&mut self, at: At, id: Option<Cow<'_, str>>, name: Option<Cow<'_, str>>, freeform: bool) {
        // Some servers give every call the same number (of items of a response each has its own).
        let numbered = self.wanted.dialect == Dialect::Responses;
        let other = |call: &Call| !numbered && matches!((&call.id, &id), (Some(old), Some(new)) if old != new);
        if self.open.get(&at).is_some_and(other) {
            self.close(at, false);
        }
        if self.open.len() >= CALLS_MAX && !self.open.contains_key(&at) {
            return self.breaks(Err(Broken::CallTooLarge));
        }
        if self.calling.len() < CALLS_MAX {
            self.calling.insert(at.choice);
        }
        let call = self.open.entry(at).or_default();
        call.freeform |= freeform;
        if call.id.is_none() {
            call.id = id.map(Cow::into_owned);
        }
        if call.name.is_none() {
            call.name = name.map(Cow::into_owned);
        }
    }

    /// What belongs to no open call belongs to none of the application's.
    fn add(&mut self, at: At, add: impl FnOnce(&mut Call)) {
        if self.broken.is_some() {
            return;
        }
        let Some(call) = self.open.get_mut(&at) else { return };
        add(call);
        if call.bytes() > ARGUMENTS_BYTES_MAX {
            self.breaks(Err(Broken::CallTooLarge));
        }
    }

    fn close(&mut self, at: At, cut: bool) {
        let Some(call) = self.open.remove(&at) else { return };
        self.ended = true;
        let judged = if cut { Err(Broken::CallCut) } else { self.judge(&call) };
        self.breaks(judged);
    }

    /// Every form in which the arguments were told must do: nobody knows which one a client reads.
    fn judge(&self, call: &Call) -> Result<(), Broken> {
        if call.freeform {
            return Ok(());
        }
        let name = call.name.as_deref();
        let mut told = false;
        for raw in [Some(&call.pieces).filter(|pieces| !pieces.is_empty()), call.whole.as_ref()].into_iter().flatten() {
            told = true;
            self.wanted.judge_call(name, &unescaped(raw).ok_or(Broken::CallNotJson)?)?;
        }
        match &call.json {
            // Anthropic's `{}` at the start stands for what is to come.
            Some(json) if !(told && json.as_str() == "{}") => self.wanted.judge_call(name, json),
            None if !told => self.wanted.judge_call(name, ""),
            _ => Ok(()),
        }
    }

    fn end(&mut self, finish: Option<&str>) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        if !self.open.is_empty() {
            self.breaks(Err(Broken::CallCut));
        }
        if self.wanted.whole && self.broken.is_none() {
            let judged = judge_finish(finish).and_then(|()| self.judge_texts());
            self.breaks(judged);
        }
    }

    /// Text in a declared form; where a choice calls tools or refuses its text is no such answer.
    fn judge_texts(&self) -> Result<(), Broken> {
        if !self.wanted.has_form() {
            return Ok(());
        }
        let excused = |choice: &u64| self.calling.contains(choice) || self.refusing.contains(choice);
        let choices: BTreeSet<u64> = self.texts.keys().map(|at| at.choice).chain([0]).collect();
        for choice in choices.iter().filter(|choice| !excused(choice)) {
            let mut told = false;
            for (_, raw) in self.texts.iter().filter(|(at, _)| at.choice == *choice) {
                let text = unescaped(raw).ok_or(Broken::TextNotJson)?;
                if !text.trim_ascii().is_empty() {
                    told = true;
                    self.wanted.judge_text(&text)?;
                }
            }
            if !told {
                return Err(Broken::NoText);
            }
        }
        Ok(())
    }
}

fn judge_finish(finish: Option<&str>) -> Result<(), Broken> {
    let finish = finish.unwrap_or_default().to_ascii_lowercase();
    if REFUSED.contains(&finish.as_str()) {
        Err(Broken::Refused)
    } else if FAILED.contains(&finish.as_str()) {
        Err(Broken::Failed)
    } else {
        Ok(())
    }
}

/// What the inside of a JSON string means.
fn unescaped(inner: &str) -> Option<Cow<'_, str>> {
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(&format!("\"{inner}\"")).ok().map(Cow::Owned)
}

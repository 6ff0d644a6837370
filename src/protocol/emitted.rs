//! Collects the whole calls of the application's tools that an answer emits.
//!
//! In: events in order, or a whole answer. Out: [`Emitted`] calls, each once, at the event with which a client could first act on it:
//! when the arguments' object closes, which may be events before the dialect says that the call is whole, because clients exist that do not
//! wait for that. Unlike `accept`'s guard it judges and holds nothing; bounded, and what does not fit the bounds is told
//! ([`Collector::lost`]). An event costs a search for two words until the first that may tell of a call, so that a stream without
//! tools pays next to nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::Dialect;
use super::parts::{At, Part};
use super::words::{Emitted, Words};

/// Arguments of one call (SPEC Annex, Bounds): a larger one is refused by the ledger, too.
pub const ARGUMENTS_BYTES_MAX: usize = rubicon_ledger::MAX_BYTES;

/// Calls that may be open at once, as in `accept`.
pub const OPEN_MAX: usize = 128;

/// Calls of one answer; models are known to emit tens.
pub const CALLS_MAX: usize = 512;

/// Bytes of an id or a name that are kept; real ones are tens.
const NAME_BYTES_MAX: usize = rubicon_ledger::MAX_NAME_BYTES;

/// What the data of an event has in it that may tell of a call: `tool_calls`, `tool_use`, `custom_tool_call`; `function_call`.
static WORDS: LazyLock<[Finder<'static>; 2]> = LazyLock::new(|| [Finder::new("tool_"), Finder::new("function_call")]);

/// Follows JSON that comes in pieces to the end of its object.
#[derive(Debug, Default)]
struct Nesting {
    depth: u32,
    in_string: bool,
    escaped: bool,
    closed: bool,
}

impl Nesting {
    /// The next piece, as the inside of a JSON string.
    fn follow(&mut self, inner: &str) {
        let mut bytes = inner.bytes();
        while let Some(byte) = bytes.next() {
            let meant = if byte == b'\\' {
                match bytes.next() {
                    Some(b'u') => {
                        let mut unit = 0_u32;
                        for digit in bytes.by_ref().take(4) {
                            unit = (unit << 4) | char::from(digit).to_digit(16).unwrap_or_default();
                        }
                        u8::try_from(unit).ok().filter(u8::is_ascii).unwrap_or(b'x')
                    }
                    Some(plain @ (b'"' | b'\\')) => plain,
                    _ => b' ',
                }
            } else {
                byte
            };
            self.step(meant);
        }
    }

    fn step(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.closed |= self.depth == 0;
            }
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct Call {
    id: Option<String>,
    name: Option<String>,
    freeform: bool,
    /// Arguments as the inside of a JSON string, as written.
    pieces: String,
    nesting: Nesting,
    /// Arguments as JSON (Anthropic tells `{}` at the start, for what is to come).
    json: Option<String>,
    /// It was told, or is too large to be: the rest of it is no news.
    done: bool,
}

/// Collects the calls of one answer.
#[derive(Debug)]
pub struct Collector {
    dialect: Dialect,
    /// An event was seen that may tell of a call.
    armed: bool,
    open: BTreeMap<At, Call>,
    /// Places whose call has ended, where the dialect tells its calls again at the end.
    ended: BTreeSet<At>,
    whole: Vec<Emitted>,
    told: usize,
    lost: bool,
}

impl Collector {
    /// For one answer.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            armed: false,
            open: BTreeMap::new(),
            ended: BTreeSet::new(),
            whole: Vec::new(),
            told: 0,
            lost: false,
        }
    }

    /// Whether an event must be read; `raw` are its bytes, or some that have all of its data in them.
    pub fn wants(&mut self, raw: &[u8]) -> bool {
        self.armed = self.armed || WORDS.iter().any(|word| word.find(raw).is_some());
        self.armed
    }

    /// Takes one event that it [wants](Self::wants).
    pub fn read(&mut self, name: &[u8], data: &[u8]) {
        self.dialect.parts(name, data.trim_ascii(), &mut |part| self.part(part));
    }

    /// Takes a whole answer.
    pub fn read_answer(&mut self, body: &[u8]) {
        if self.wants(body) {
            self.dialect.parts_of_answer(body, &mut |part| self.part(part));
        }
    }

    /// The calls that have become whole since the last time.
    pub fn take(&mut self) -> Vec<Emitted> {
        std::mem::take(&mut self.whole)
    }

    /// Whether there was a call that did not fit the bounds, and so was not told.
    #[must_use]
    pub fn lost(&self) -> bool {
        self.lost
    }

    fn part(&mut self, part: Part<'_>) {
        match part {
            Part::Call { at, id, name, freeform } => self.call(at, id, name, freeform),
            Part::Piece { at, inner } => self.piece(at, inner),
            Part::Whole { at, inner } => {
                let Some(call) = self.open.get_mut(&at).filter(|call| !call.done) else { return };
                call.pieces.clear();
                if self.fits(at, inner) {
                    self.tell(at);
                }
            }
            Part::Input { at, json } => {
                let Some(call) = self.open.get_mut(&at).filter(|call| !call.done) else { return };
                if json.len() > ARGUMENTS_BYTES_MAX {
                    call.done = true;
                    self.lost = true;
                    return;
                }
                call.json = Some(json.to_owned());
                if self.dialect != Dialect::AnthropicMessages || json != "{}" {
                    self.tell(at);
                }
            }
            Part::Ends { at, cut } => self.close(at, cut),
            Part::ChoiceEnds(choice) => {
                let places: Vec<At> = self.open.keys().filter(|at| at.choice == choice).copied().collect();
                places.into_iter().for_each(|at| self.close(at, false));
            }
            Part::Text { .. } | Part::Refusal(_) => {}
        }
    }

    fn call(&mut self, at: At, id: Option<Cow<'_, str>>, name: Option<Cow<'_, str>>, freeform: bool) {
        if self.ended.contains(&at) {
            return;
        }
        if self.dialect == Dialect::ChatCompletions {
            // Some servers give every call the same number.
            let other = |call: &Call| matches!((&call.id, &id), (Some(old), Some(new)) if old != new);
            if self.open.get(&at).is_some_and(other) {
                self.close(at, false);
            }
        }
        if self.open.len() >= OPEN_MAX && !self.open.contains_key(&at) {
            self.lost = true;
            return;
        }
        let call = self.open.entry(at).or_default();
        call.freeform |= freeform;
        let long = |text: &Cow<'_, str>| text.len() > NAME_BYTES_MAX;
        if id.as_ref().is_some_and(long) || name.as_ref().is_some_and(long) {
            call.done = true;
            self.lost = true;
            return;
        }
        call.id = call.id.take().or_else(|| id.map(Cow::into_owned));
        call.name = call.name.take().or_else(|| name.map(Cow::into_owned));
    }

    fn piece(&mut self, at: At, inner: &str) {
        // What belongs to no open call belongs to none of the application's.
        if self.open.get(&at).is_none_or(|call| call.done) || !self.fits(at, inner) {
            return;
        }
        let Some(call) = self.open.get_mut(&at) else { return };
        if !call.freeform {
            call.nesting.follow(inner);
            if call.nesting.closed && call.name.is_some() {
                self.tell(at);
            }
        }
    }

    /// Adds to a call's arguments, within their bound.
    fn fits(&mut self, at: At, inner: &str) -> bool {
        let Some(call) = self.open.get_mut(&at) else { return false };
        if call.pieces.len() + inner.len() > ARGUMENTS_BYTES_MAX {
            (call.done, call.pieces) = (true, String::new());
            self.lost = true;
            return false;
        }
        call.pieces.push_str(inner);
        true
    }

    fn close(&mut self, at: At, cut: bool) {
        if !cut {
            self.tell(at);
        }
        if self.open.remove(&at).is_some() && self.dialect == Dialect::Responses && self.ended.len() < CALLS_MAX {
            self.ended.insert(at);
        }
    }

    fn tell(&mut self, at: At) {
        let Some(call) = self.open.get_mut(&at).filter(|call| !call.done) else { return };
        // Nothing could be asked for by a call without a name; it may come yet.
        let Some(name) = call.name.clone() else { return };
        call.done = true;
        if self.told >= CALLS_MAX {
            self.lost = true;
            return;
        }
        self.told += 1;
        let pieces = std::mem::take(&mut call.pieces);
        let text = if pieces.is_empty() {
            Cow::Borrowed(call.json.as_deref().unwrap_or_default())
        } else {
            unescaped(&pieces)
        };
        let words = if call.freeform { Words::Raw(text.into_owned()) } else { Words::of_text(&text) };
        self.whole.push(Emitted { choice: at.choice, id: call.id.clone(), name, words });
    }
}

/// What the inside of a JSON string means; as written where half a character stands in it.
fn unescaped(inner: &str) -> Cow<'_, str> {
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    serde_json::from_str(&format!("\"{inner}\"")).map_or(Cow::Borrowed(inner), Cow::Owned)
}

#[cfg(test)]
mod tests;

//! The strict reader: bytes to [`Value`], or the reason and the place.
//!
//! In: a document's bytes. Out: the tree. One pass, each byte looked at a bounded number of times (sorting members adds a
//! logarithm); recursion ends at [`MAX_DEPTH`]; nothing is repaired. Own code rather than `serde_json`, because what must
//! be refused here (duplicate names, lone surrogates) and kept (exact numbers) must not depend on features.
//! Deliberately not here: what arguments mean (`canonical.rs`, `project.rs`).

use crate::error::{Refusal, Refused};
use crate::number;
use crate::pointer::{MAX_POINTER_BYTES, Pointer, Step};
use crate::value::{Member, Object, Value};

/// Largest document, read or written, in bytes (SPEC.md Annex "Bounds": tool arguments 1 MiB).
pub const MAX_BYTES: usize = 1 << 20;

/// Deepest nesting of arrays and objects; the outermost counts one (SPEC.md section 8).
pub const MAX_DEPTH: usize = 64;

/// A fault on its way out: each enclosing value adds its own step, so that reading well costs nothing for paths.
struct Fault {
    kind: Refusal,
    offset: usize,
    /// Innermost first.
    path: Vec<OwnedStep>,
}

enum OwnedStep {
    Name(Box<str>),
    Index(usize),
}

type Read<T> = Result<T, Box<Fault>>;

impl Fault {
    fn within(mut self: Box<Self>, step: OwnedStep) -> Box<Self> {
        self.path.push(step);
        self
    }

    fn refused(self) -> Refused {
        let steps = self.path.iter().rev().map(|step| match step {
            OwnedStep::Name(name) => Step::Name(name),
            OwnedStep::Index(index) => Step::Index(*index),
        });
        let (pointer, _) = Pointer::nearest(steps, MAX_POINTER_BYTES);
        Refused { kind: self.kind, pointer, offset: self.offset }
    }
}

/// Reads one whole document of any type.
pub(crate) fn document(input: &[u8]) -> Result<Value, Refused> {
    if input.len() > MAX_BYTES {
        return Err(Refused { kind: Refusal::TooLarge, pointer: Pointer::root(), offset: MAX_BYTES });
    }
    Reader { input, at: 0 }.document().map_err(|fault| fault.refused())
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn document(&mut self) -> Read<Value> {
        self.skip_space();
        let value = self.value(0)?;
        self.skip_space();
        match self.peek() {
            None => Ok(value),
            Some(_) => Err(self.fault(Refusal::TrailingData)),
        }
    }

    fn value(&mut self, depth: usize) -> Read<Value> {
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(Value::String),
            Some(b't') => self.word(b"true", Value::Bool(true)),
            Some(b'f') => self.word(b"false", Value::Bool(false)),
            Some(b'n') => self.word(b"null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected()),
        }
    }

    fn object(&mut self, depth: usize) -> Read<Value> {
        self.enter(depth)?;
        let mut members = Vec::new();
        self.skip_space();
        if self.eat(b'}') {
            return Ok(Value::Object(Object::default()));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected());
            }
            let name = self.string()?;
            self.skip_space();
            if !self.eat(b':') {
                return Err(self.unexpected());
            }
            self.skip_space();
            match self.value(depth) {
                Ok(value) => members.push(Member { name, value }),
                Err(fault) => return Err(fault.within(OwnedStep::Name(name))),
            }
            self.skip_space();
            if self.eat(b'}') {
                break;
            }
            if !self.eat(b',') {
                return Err(self.unexpected());
            }
        }
        Object::new(members)
            .map(Value::Object)
            .map_err(|name| self.fault(Refusal::DuplicateName).within(OwnedStep::Name(name)))
    }

    fn array(&mut self, depth: usize) -> Read<Value> {
        self.enter(depth)?;
        let mut elements = Vec::new();
        self.skip_space();
        if self.eat(b']') {
            return Ok(Value::Array(Box::default()));
        }
        loop {
            self.skip_space();
            match self.value(depth) {
                Ok(value) => elements.push(value),
                Err(fault) => return Err(fault.within(OwnedStep::Index(elements.len()))),
            }
            self.skip_space();
            if self.eat(b']') {
                return Ok(Value::Array(elements.into()));
            }
            if !self.eat(b',') {
                return Err(self.unexpected());
            }
        }
    }

    /// Steps over the opening bracket.
    fn enter(&mut self, depth: usize) -> Read<()> {
        if depth > MAX_DEPTH {
            return Err(self.fault(Refusal::TooDeep));
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &[u8], value: Value) -> Read<Value> {
        for &byte in word {
            if !self.eat(byte) {
                return Err(self.unexpected());
            }
        }
        Ok(value)
    }

    fn number(&mut self) -> Read<Value> {
        match number::read(&self.input[self.at..]) {
            Ok((number, length)) => {
                self.at += length;
                Ok(Value::Number(number))
            }
            Err((refusal, noticed)) => {
                self.at += noticed;
                Err(if refusal == Refusal::Syntax { self.unexpected() } else { self.fault(refusal) })
            }
        }
    }

    /// The string that begins here, unescaped.
    fn string(&mut self) -> Read<Box<str>> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.input[self.at..];
            let special = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
            let plain = rest.iter().position(special).unwrap_or(rest.len());
            match std::str::from_utf8(&rest[..plain]) {
                Ok(chunk) => text.push_str(chunk),
                Err(error) => {
                    let cut = error.error_len().is_none() && plain == rest.len();
                    self.at += error.valid_up_to();
                    return Err(self.fault(if cut { Refusal::Truncated } else { Refusal::InvalidUtf8 }));
                }
            }
            self.at += plain;
            match self.peek() {
                None => return Err(self.fault(Refusal::Truncated)),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text.into());
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => return Err(self.fault(Refusal::ControlCharacter)),
            }
        }
    }

    /// The character that the escape here stands for.
    fn escape(&mut self) -> Read<char> {
        let start = self.at;
        self.at += 1;
        let simple = match self.peek() {
            None => return Err(self.fault(Refusal::Truncated)),
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape(start);
            }
            Some(_) => return Err(self.fault(Refusal::BadEscape)),
        };
        self.at += 1;
        Ok(simple)
    }

    /// After `\u`: one code unit, or two that are a pair.
    fn unicode_escape(&mut self, start: usize) -> Read<char> {
        let first = self.code_unit()?;
        let rest = &self.input[self.at..];
        let second = if !(0xD800..0xDC00).contains(&first) {
            None
        } else if rest.starts_with(b"\\u") {
            self.at += 2;
            Some(self.code_unit()?)
        } else if b"\\u".starts_with(rest) {
            self.at = self.input.len(); // cut before the other half: the text is incomplete, not wrong
            return Err(self.fault(Refusal::Truncated));
        } else {
            None
        };
        let units = [Some(first), second];
        let mut decoded = char::decode_utf16(units.into_iter().flatten());
        if let (Some(Ok(character)), None) = (decoded.next(), decoded.next()) {
            return Ok(character);
        }
        self.at = start;
        Err(self.fault(Refusal::LoneSurrogate))
    }

    fn code_unit(&mut self) -> Read<u16> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = match self.peek() {
                Some(byte @ b'0'..=b'9') => byte - b'0',
                Some(byte @ b'a'..=b'f') => byte - b'a' + 10,
                Some(byte @ b'A'..=b'F') => byte - b'A' + 10,
                Some(_) => return Err(self.fault(Refusal::BadEscape)),
                None => return Err(self.fault(Refusal::Truncated)),
            };
            unit = unit << 4 | u16::from(digit);
            self.at += 1;
        }
        Ok(unit)
    }

    fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The fault for whatever stands here where something else should.
    fn unexpected(&self) -> Box<Fault> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let kind = match rest.first() {
            None => Refusal::Truncated,
            // Four bytes are enough to see whether a character begins here.
            Some(0x80..) if rest[..rest.len().min(4)].utf8_chunks().next().is_none_or(|c| c.valid().is_empty()) => {
                Refusal::InvalidUtf8
            }
            Some(_) => Refusal::Syntax,
        };
        self.fault(kind)
    }

    fn fault(&self, kind: Refusal) -> Box<Fault> {
        Box::new(Fault { kind, offset: self.at, path: Vec::new() })
    }
}

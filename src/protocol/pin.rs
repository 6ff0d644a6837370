//! State that only the account which issued it can read, named by a digest, so that the relay can remember who issued it.
//!
//! In: such state as a request presents it or an answer issues it. Out: [`Pin`]s: the field by which a refusal is named
//! (`pinned:<field>`) and a digest of what it is and its value. Why a digest: the relay must know the state again for a day, and
//! must neither keep nor show it. It is one and the same whether the state was issued or presented, in whatever dialect
//! and whole or in pieces ([`PinDigest`]), so compare digests and never fields: one message id may come back as
//! `previous_response_id` and as `conversation`. Deliberately not here: who issued what, and for how long that is remembered.

use super::json_walk::{is_empty, member, text};

/// Pins kept of one request or one answer. The longest conversations present some hundreds (each turn's encrypted reasoning or
/// signature); each pin takes 32 bytes. Over it, a request has one more pin, which is never known ([`Pin::is_nameless`]), so that it
/// stays with the primary; of an answer no more are remembered, which comes to the same.
pub const PINS_MAX: usize = 2048;

/// What the state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An answer's id, by which a later request takes up all that came before.
    Response,
    /// An answer's id, presented as the place in a thread where a conversation goes on.
    Thread,
    /// An item of an answer, presented by its id alone. Its field is `previous_response_id`, the closest of SPEC's closed list:
    /// it stands for a part of an earlier answer.
    Item,
    /// A conversation kept by the account.
    Conversation,
    /// A file, a vector store or a spoken answer, by its id.
    File,
    /// A container of the code tool, by its id.
    Container,
    /// Reasoning, results or a compacted history that the account encrypted.
    Encrypted,
    /// The signature of thinking or of a program, which only its account accepts.
    Signature,
}

impl Kind {
    /// The field that names it in a refusal (SPEC Annex, Names: a closed list).
    pub fn field(self) -> &'static str {
        match self {
            Self::Response | Self::Item => "previous_response_id",
            Self::Thread | Self::Conversation => "conversation",
            Self::File => "file_id",
            Self::Container => "container",
            Self::Encrypted => "encrypted_content",
            Self::Signature => "signature",
        }
    }

    /// What goes into the digest. A thread's place is an answer's id.
    fn tag(self) -> &'static str {
        match self {
            Self::Response | Self::Thread => "response",
            Self::Item => "item",
            Self::Conversation => "conversation",
            Self::File => "file",
            Self::Container => "container",
            Self::Encrypted => "encrypted",
            Self::Signature => "signature",
        }
    }
}

/// One piece of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin {
    /// The field by which a refusal names it: `file_id`, `encrypted_content`, `signature`, `container`, `conversation`,
    /// `previous_response_id`.
    pub field: &'static str,
    /// The digest by which it is known again.
    pub digest: [u8; 16],
}

impl Pin {
    /// State of which the value is known: the text itself, not as JSON writes it.
    pub fn new(kind: Kind, value: &str) -> Self {
        let mut digest = PinDigest::new(kind);
        digest.update(value);
        digest.pin()
    }

    /// State that is there and can't be told from any other, so that nobody is ever known to have issued it.
    pub fn nameless(kind: Kind) -> Self {
        Self { field: kind.field(), digest: [0; 16] }
    }

    /// Whether it is [`Pin::nameless`]: such a pin is never to be looked up nor remembered.
    pub fn is_nameless(&self) -> bool {
        self.digest == [0; 16]
    }
}

/// A digest whose value comes in pieces (a signature in several deltas).
#[derive(Clone, Debug)]
pub struct PinDigest {
    kind: Kind,
    hasher: blake3::Hasher,
}

impl PinDigest {
    /// Of a value of which nothing has come.
    pub fn new(kind: Kind) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("rubicon 2026-11-30 account-bound state v1");
        hasher.update(kind.tag().as_bytes());
        // Ends the tag; none has it inside.
        hasher.update(b"\0");
        Self { kind, hasher }
    }

    /// The next piece.
    pub fn update(&mut self, piece: &str) {
        self.hasher.update(piece.as_bytes());
    }

    /// The pin of all pieces so far.
    pub fn pin(&self) -> Pin {
        let mut digest = [0; 16];
        self.hasher.finalize_xof().fill(&mut digest);
        Pin { field: self.kind.field(), digest }
    }
}

/// Pins found so far, at most [`PINS_MAX`], sorted, none twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    list: Vec<Pin>,
    over: Option<Pin>,
}

impl Pins {
    /// Adds state of which the value is known; an empty value is no state.
    pub fn add(&mut self, kind: Kind, value: &str) {
        if !value.is_empty() {
            self.insert(Pin::new(kind, value));
        }
    }

    /// Adds what a member of a request names, as JSON: a text, or an object with an `id`. What is there and is neither is nameless.
    pub fn present(&mut self, kind: Kind, json: &str) {
        let id = if json.starts_with('{') { member(json, "id") } else { Some(json) };
        match id.and_then(text) {
            Some(id) => self.add(kind, &id),
            None if is_empty(json) => {}
            None => self.insert(Pin::nameless(kind)),
        }
    }

    /// Adds one pin.
    pub fn insert(&mut self, pin: Pin) {
        let Err(at) = self.list.binary_search(&pin) else { return };
        if self.list.len() < PINS_MAX {
            self.list.insert(at, pin);
        } else {
            self.over = Some(Pin { digest: [0; 16], ..pin });
        }
    }

    /// What an answer issued.
    pub fn issued(&self) -> &[Pin] {
        &self.list
    }

    /// What a request presents: with a nameless one where there was more than the bound.
    pub fn presented(mut self) -> Vec<Pin> {
        self.list.extend(self.over.take());
        self.list.sort_unstable();
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_state_has_one_digest_in_pieces_or_whole_and_by_whatever_field() {
        let whole = Pin::new(Kind::Signature, "EqQB\u{e9}");
        let mut pieces = PinDigest::new(Kind::Signature);
        for piece in ["Eq", "", "QB\u{e9}"] {
            pieces.update(piece);
        }
        assert_eq!(pieces.pin(), whole);
        let (response, thread) = (Pin::new(Kind::Response, "msg_1"), Pin::new(Kind::Thread, "msg_1"));
        assert_eq!(response.digest, thread.digest);
        assert_eq!((response.field, thread.field), ("previous_response_id", "conversation"));
    }

    #[test]
    fn other_kinds_and_values_have_other_digests() {
        use Kind::{Container, Conversation, Encrypted, File, Item, Response, Signature};
        let mut digests = std::collections::HashSet::new();
        for kind in [Response, Item, Conversation, File, Container, Encrypted, Signature] {
            for value in ["a", "b", "ab", "a\0b"] {
                let pin = Pin::new(kind, value);
                assert!(digests.insert(pin.digest), "{kind:?} {value}");
                assert!(!pin.is_nameless());
            }
        }
        assert!(Pin::nameless(File).is_nameless());
    }

    #[test]
    fn the_digest_is_the_same_in_every_version() {
        // What one version stored, the next must know: change the tag, and all that is remembered is forgotten.
        let pin = Pin::new(Kind::Response, "resp_1");
        let hex: String = pin.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "0c90b6fa6d9c1b28dbf2bdc44e722f78");
    }

    #[test]
    fn members_of_requests() {
        for (json, expected) in [
            (r#""conv_1""#, Some(Pin::new(Kind::Conversation, "conv_1"))),
            (r#""conv\u005f1""#, Some(Pin::new(Kind::Conversation, "conv_1"))),
            (r#"{"id":"conv_1"}"#, Some(Pin::new(Kind::Conversation, "conv_1"))),
            (r#"{"name":"x"}"#, Some(Pin::nameless(Kind::Conversation))),
            ("7", Some(Pin::nameless(Kind::Conversation))),
            ("null", None),
            ("\"\"", None),
            (r#"{"id":null}"#, None),
        ] {
            let mut pins = Pins::default();
            pins.present(Kind::Conversation, json);
            assert_eq!(pins.presented().first().copied(), expected, "{json}");
        }
    }

    #[test]
    fn the_bound_holds_and_says_that_there_was_more() {
        let mut pins = Pins::default();
        for n in 0..PINS_MAX {
            pins.add(Kind::File, &n.to_string());
            pins.add(Kind::File, &n.to_string());
        }
        pins.add(Kind::File, "");
        assert_eq!(pins.issued().len(), PINS_MAX);
        assert!(!pins.clone().presented().iter().any(Pin::is_nameless));
        pins.add(Kind::Signature, "one more");
        pins.add(Kind::Signature, "and one more");
        assert_eq!(pins.issued().len(), PINS_MAX, "an answer's are not remembered");
        let presented = pins.presented();
        assert_eq!((presented.len(), presented.iter().filter(|pin| pin.is_nameless()).count()), (PINS_MAX + 1, 1));
        assert!(presented.is_sorted());
    }
}

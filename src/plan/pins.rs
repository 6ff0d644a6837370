//! State in a request that only one account holds (a response id, encrypted reasoning, a signature …), and whose it is.
//!
//! In: the request's [`Pin`]s and what is remembered of earlier answers ([`Issuers`]). Out: the account that holds each field. SPEC
//! section 3: known state makes every other account ineligible, the primary too; unknown state belongs to the primary and never
//! fails over. Why unknown state is the primary's: it is what answers when nothing goes wrong, so it is the likeliest to have issued
//! it; and an answer that starts anew somewhere else without that state would be another answer.

use std::fmt;
use std::sync::Arc;

use crate::protocol::pin::Pin;

/// Who issued what, as far as is remembered of one tenant's answers.
pub trait Issuers: fmt::Debug {
    /// The account that issued the state; `None`: not known.
    fn account_of(&self, pin: &Pin) -> Option<Arc<str>>;
}

/// Nothing is remembered: the offline `explain`, and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NobodyKnown;

impl Issuers for NobodyKnown {
    fn account_of(&self, _: &Pin) -> Option<Arc<str>> {
        None
    }
}

/// A field of the request and the account that holds what it names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// The pin's field.
    pub field: &'static str,
    /// The account.
    pub account: Arc<str>,
}

/// Who holds the state in a request, without doubles. `primary` is the account of the workflow's primary.
pub fn holders(pins: &[Pin], issuers: &dyn Issuers, primary: &str) -> Vec<Held> {
    let mut held: Vec<Held> = Vec::new();
    for pin in pins {
        let known = if pin.is_nameless() { None } else { issuers.account_of(pin) };
        let account = known.unwrap_or_else(|| Arc::from(primary));
        if !held.iter().any(|other| other.field == pin.field && other.account == account) {
            held.push(Held { field: pin.field, account });
        }
    }
    held.sort();
    held
}

/// The fields that an account does not hold.
pub fn not_held_by<'a>(held: &'a [Held], account: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    let mut last = "";
    held.iter().filter(move |held| *held.account != *account).filter_map(move |held| {
        // Sorted by field, so that doubles stand together.
        let first = held.field != last;
        last = held.field;
        first.then_some(held.field)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::pin::Kind;

    #[derive(Debug)]
    struct Known(Vec<(Pin, &'static str)>);

    impl Issuers for Known {
        fn account_of(&self, pin: &Pin) -> Option<Arc<str>> {
            self.0.iter().find(|(known, _)| known.digest == pin.digest).map(|(_, account)| Arc::from(*account))
        }
    }

    #[test]
    fn known_state_is_its_issuers_and_unknown_state_the_primarys() {
        let (one, two) = (Pin::new(Kind::Response, "resp_1"), Pin::new(Kind::Encrypted, "x"));
        let known = Known(vec![(one, "azure")]);
        let fields =
            |pins: &[Pin], account: &str| not_held_by(&holders(pins, &known, "openai"), account).collect::<Vec<_>>();
        for (pins, account, missing) in [
            (vec![], "azure", vec![]),
            (vec![one], "azure", vec![]),
            (vec![one], "openai", vec!["previous_response_id"]),
            (vec![two], "azure", vec!["encrypted_content"]),
            (vec![two], "openai", vec![]),
            // Of two accounts: nobody can serve it.
            (vec![one, two], "azure", vec!["encrypted_content"]),
            (vec![one, two], "openai", vec!["previous_response_id"]),
            (vec![one, two], "third", vec!["encrypted_content", "previous_response_id"]),
            // One field, both known and unknown: named once.
            (vec![one, Pin::new(Kind::Response, "resp_9")], "third", vec!["previous_response_id"]),
            // What can't be named is never known.
            (vec![Pin::nameless(Kind::File)], "azure", vec!["file_id"]),
            (vec![Pin::nameless(Kind::File)], "openai", vec![]),
        ] {
            assert_eq!(fields(&pins, account), missing, "{pins:?} {account}");
        }
    }
}

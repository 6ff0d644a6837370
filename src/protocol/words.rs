//! A call of one of the application's tools, in the words in which it was emitted and in which a later request shows it again; and the
//! digests by which the two are found to be the same.
//!
//! In: ids, names, arguments as an answer or a request writes them. Out: [`Words`], [`Emitted`], [`Returned`] and their digests of
//! 16 bytes. One file for both directions, because what was emitted must be known again when it is presented: clients parse arguments and
//! write them anew, so the canonical form is what is compared (SPEC section 8, Root). Deliberately not here: which root a call
//! belongs to, and where that is remembered (`relay`).

use rubicon_ledger::Arguments;

use super::json_walk::text;

/// What the digests are digests of. Another context makes every emitted call of before unknown.
const CONTEXT: &str = "rubicon 2026-11-30 emitted call v1";

/// Arguments, as far as they can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Words {
    /// A JSON object in canonical form.
    Json(Arguments),
    /// Free text (custom tools), or what has no canonical form: compared as it is written, and never planned.
    Raw(String),
}

impl Words {
    /// Of arguments as text. Nothing at all is how several providers write "no arguments".
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        let written = if text.trim_ascii().is_empty() { "{}" } else { text };
        Arguments::parse(written.as_bytes()).map_or_else(|_| Self::Raw(text.to_owned()), Self::Json)
    }

    /// Of a member of JSON that holds them: text with JSON in it, or the object itself.
    #[must_use]
    pub fn of_member(json: &str) -> Self {
        match text(json) {
            Some(text) => Self::of_text(&text),
            None if json == "null" => Self::of_text(""),
            None => Self::of_text(json),
        }
    }
}

/// A whole call of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// The choice it stands in; 0 in dialects that have none.
    pub choice: u64,
    /// The provider's id, where it gave one.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub words: Words,
}

/// A tool's result that a request carries, by what it shows of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The call's id.
    pub id: String,
    /// What else is shown of it.
    pub shown: Shown,
}

/// What a request shows of a call beside its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The call itself.
    Call {
        /// The tool.
        name: String,
        /// Its arguments.
        words: Words,
    },
    /// The response that the account keeps it in (`previous_response_id`).
    Response(String),
}

impl Emitted {
    /// The digest by which a request that shows the call finds it; none without an id.
    #[must_use]
    pub fn digest(&self, tenant: &str) -> Option<[u8; 16]> {
        Some(of_call(tenant, self.id.as_deref()?, &self.name, &self.words))
    }

    /// The digest by which a request finds it that names only the response it was in.
    #[must_use]
    pub fn digest_in(&self, tenant: &str, response: &str) -> Option<[u8; 16]> {
        Some(of_response(tenant, response, self.id.as_deref()?))
    }
}

impl Returned {
    /// The digest to look for.
    #[must_use]
    pub fn digest(&self, tenant: &str) -> [u8; 16] {
        match &self.shown {
            Shown::Call { name, words } => of_call(tenant, &self.id, name, words),
            Shown::Response(response) => of_response(tenant, response, &self.id),
        }
    }
}

fn of_call(tenant: &str, id: &str, name: &str, words: &Words) -> [u8; 16] {
    let (form, words) = match words {
        Words::Json(arguments) => ("json", arguments.canonical().as_str()),
        Words::Raw(text) => ("raw", text.as_str()),
    };
    digest(&["call", tenant, id, name, form, words])
}

fn of_response(tenant: &str, response: &str, id: &str) -> [u8; 16] {
    digest(&["response", tenant, response, id])
}

/// The digest under which the root of an operation that emitted calls is kept.
#[must_use]
pub fn of_operation(tenant: &str, operation: &str) -> [u8; 16] {
    digest(&["operation", tenant, operation])
}

/// Each part is preceded by its length, so that none can borrow from its neighbour.
fn digest(parts: &[&str]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    for part in parts {
        hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let mut digest = [0; 16];
    hasher.finalize_xof().fill(&mut digest);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(id: &str, name: &str, arguments: &str) -> Emitted {
        Emitted { choice: 0, id: Some(id.to_owned()), name: name.to_owned(), words: Words::of_text(arguments) }
    }

    fn returned(id: &str, name: &str, json: &str) -> Returned {
        let shown = Shown::Call { name: name.to_owned(), words: Words::of_member(json) };
        Returned { id: id.to_owned(), shown }
    }

    #[test]
    fn a_call_is_known_again_in_whatever_spelling() {
        let call = emitted("c1", "pay", "{\"amount\": 12.0, \"to\": \"é\"}").digest("t");
        for json in [
            r#"{"to":"\u00e9","amount":12}"#,
            r#""{\"amount\":12.0,\"to\":\"é\"}""#,
            r#""{ \"to\":\"\\u00e9\" ,\"amount\":1.2e1}""#,
        ] {
            assert_eq!(Some(returned("c1", "pay", json).digest("t")), call, "{json}");
        }
        for nothing in ["\"\"", "{}", "null", "\" \"", "\"{}\""] {
            assert_eq!(Some(returned("c1", "pay", nothing).digest("t")), emitted("c1", "pay", "").digest("t"));
        }
        assert_eq!(
            Some(returned("c1", "sh", "\"ls -l\\n\"").digest("t")),
            emitted("c1", "sh", "ls -l\n").digest("t"),
            "free text"
        );
    }

    #[test]
    fn anything_else_is_another_call() {
        let base = emitted("c1", "pay", "{\"a\":1}");
        let others = [
            emitted("c2", "pay", "{\"a\":1}").digest("t"),
            emitted("c1", "paya", "{\"a\":1}").digest("t"),
            emitted("c1", "pay", "{\"a\":2}").digest("t"),
            emitted("c1", "pay", "[1]").digest("t"),
            base.digest("t2"),
            base.digest_in("t", "pay"),
            emitted("c1p", "ay", "{\"a\":1}").digest("t"),
            Emitted { id: None, ..base.clone() }.digest("t"),
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(*other, base.digest("t"), "{at}");
        }
        let by_response = Returned { id: "c1".to_owned(), shown: Shown::Response("resp_1".to_owned()) };
        assert_eq!(base.digest_in("t", "resp_1"), Some(by_response.digest("t")));
        assert_ne!(base.digest_in("t", "resp_2"), Some(by_response.digest("t")));
        assert_ne!(base.digest_in("t2", "resp_1"), Some(by_response.digest("t")));
    }

    #[test]
    fn the_digest_is_the_same_in_every_version() {
        // What one version stored, the next must know.
        let hex = |digest: [u8; 16]| digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let call = emitted("c1", "pay", "{\"a\":1}");
        assert_eq!(call.digest("t").map(hex).unwrap(), "cb15765151ded1ac54fafcbb370aa0ff");
        assert_eq!(call.digest_in("t", "resp_1").map(hex).unwrap(), "30c61beb188c13103a47bdd92eb0dbd1");
    }
}

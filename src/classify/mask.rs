//! Takes keys out of what a provider says.
//!
//! In: a provider's text. Out: the same text with every run of characters that looks like a credential replaced by
//! `[masked]`. Providers quote the key that was refused ("Incorrect API key provided: …"), and their messages go to
//! callers and logs (SPEC section 12: no secret in a log, an error or a page). Three nets, because one is not enough:
//! known prefixes, what follows a word like "key:" or "Bearer", and long runs of mixed letters and digits. A wrong hit
//! costs a word of a message, a miss costs a key. One pass, linear. Not here: the relay's own configured keys, which the
//! caller knows and replaces exactly ([`super::Said::mask_exactly`]).

use std::borrow::Cow;

/// What a key is replaced by.
pub const MASK: &str = "[masked]";

/// Beginnings of keys and the fewest bytes of a run that is then one. Vendors' own formats: OpenAI, Anthropic,
/// OpenRouter, DeepSeek (`sk-`), Stripe-like (`sk_`, `pk_`, `rk_`), xAI, Groq, Hugging Face, Google (`AIza`, `ya29.`), AWS
/// (`AKIA`, `ASIA`), Replicate, NVIDIA, Perplexity, Fireworks, Together, Cerebras, GitHub, GitLab, Slack, and JWTs (`eyJ`).
const PREFIXES: &[(&str, usize)] = &[
    ("sk-", 7),
    ("sk_", 7),
    ("pk_", 10),
    ("rk_", 10),
    ("xai-", 10),
    ("gsk_", 10),
    ("hf_", 10),
    ("AIza", 12),
    ("ya29.", 12),
    ("AKIA", 12),
    ("ASIA", 12),
    ("r8_", 10),
    ("nvapi-", 10),
    ("pplx-", 10),
    ("fw_", 10),
    ("tgp_", 10),
    ("csk-", 10),
    ("ghp_", 10),
    ("gho_", 10),
    ("ghs_", 10),
    ("github_pat_", 15),
    ("glpat-", 10),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("eyJ", 20),
];

/// Identifiers that are long and mixed but no secrets; support asks for them.
const IDENTIFIERS: &[&str] =
    &["req_", "req-", "resp_", "msg_", "chatcmpl-", "gen-", "call_", "toolu_", "org-", "proj_", "user_"];

/// From here a run of letters and digits, with both, is taken for a key (Azure's 32 hex digits, Mistral's 32, Cohere's 40).
const OPAQUE_MIN: usize = 32;

/// From here a run after a bare `key:` or `token:` is taken for one although it has no digit.
const WORDLIKE_MIN: usize = 32;

/// Replaces what looks like a credential.
#[must_use]
pub fn mask(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    for (start, end) in (Runs { text, at: 0 }) {
        let run = text.get(start..end).unwrap_or_default();
        let before = text.get(..start).unwrap_or_default();
        if let Some(offset) = secret_at(before, run) {
            out.push_str(text.get(copied..start + offset).unwrap_or_default());
            out.push_str(MASK);
            copied = end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

/// Runs of the characters that keys are made of (base64, base64url, dots of JWTs, stars of keys that were half hidden).
struct Runs<'a> {
    text: &'a str,
    at: usize,
}

fn in_key(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.+/~*=".contains(&byte)
}

impl Iterator for Runs<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let start = self.at + rest.iter().position(|&b| in_key(b))?;
        let tail = self.text.as_bytes().get(start..)?;
        let end = start + tail.iter().position(|&b| !in_key(b)).unwrap_or(tail.len());
        self.at = end;
        Some((start, end))
    }
}

/// Where in `run` a secret begins, if it is or holds one.
fn secret_at(before: &str, run: &str) -> Option<usize> {
    // `key=sk-…`, `a/sk-…`: a key may begin inside a run, after a joining character.
    let joins = run.bytes().enumerate().filter(|(_, b)| b"=/*+~".contains(b)).map(|(i, _)| i + 1);
    let begins = std::iter::once(0).chain(joins);
    for begin in begins {
        let part = run.get(begin..).unwrap_or_default();
        if PREFIXES.iter().any(|(prefix, least)| part.len() >= *least && part.starts_with(prefix)) {
            return Some(begin);
        }
    }
    if let Some((name, value)) = run.split_once('=')
        && after_label(name, true).is_some_and(|label| label.convicts(value))
    {
        return Some(name.len() + 1);
    }
    if after_label(before, false).is_some_and(|label| label.convicts(run)) || opaque(before, run) {
        return Some(0);
    }
    None
}

/// How strongly the words before a run say that it is a credential.
#[derive(Clone, Copy)]
enum Label {
    /// "API key:", "secret:", "Incorrect API key provided:".
    Certain,
    /// A bare "key:" or "token:", which may also name a member of a JSON object; "Bearer", which may also be prose.
    Perhaps,
}

impl Label {
    fn convicts(self, run: &str) -> bool {
        let run = run.trim_end_matches(['.', '=']);
        match self {
            Self::Certain => run.len() >= 4,
            Self::Perhaps => run.len() >= 8 && (run.bytes().any(|b| b.is_ascii_digit()) || run.len() >= WORDLIKE_MIN),
        }
    }
}

/// What the end of `before` says about the run that follows. `joined`: `before` ends right at the separator.
fn after_label(before: &str, joined: bool) -> Option<Label> {
    /// How far back is looked; the longest label is "subscription key provided is: ".
    const LOOK_BACK: usize = 48;
    let from = before.len().saturating_sub(LOOK_BACK);
    let bytes = before.as_bytes().get(from..).unwrap_or_default();
    let words = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let trimmed = words.trim_end_matches([' ', '"', '\'', '`', '\\']);
    if trimmed.ends_with("bearer") || trimmed.ends_with("basic") {
        return Some(Label::Perhaps);
    }
    let labelled = if joined { trimmed } else { trimmed.strip_suffix([':', '='])? };
    let labelled = labelled.trim_end_matches([' ', '"', '\'', '`', '\\']);
    let labelled = labelled.strip_suffix(" is").unwrap_or(labelled);
    let labelled = labelled.strip_suffix(" provided").unwrap_or(labelled);
    const CERTAIN: &[&str] = &[
        "api key",
        "api-key",
        "api_key",
        "apikey",
        "access key",
        "access_key",
        "accesskey",
        "secret",
        "secret key",
        "secret_key",
        "access token",
        "access_token",
        "auth token",
        "auth_token",
        "subscription key",
        "subscription-key",
        "security token",
        "password",
        "authorization",
    ];
    if CERTAIN.iter().any(|label| labelled.ends_with(label)) {
        return Some(Label::Certain);
    }
    ["key", "token"].iter().any(|label| labelled.ends_with(label)).then_some(Label::Perhaps)
}

/// A long run of letters and digits, with both, that is no identifier: a key without a known prefix.
fn opaque(before: &str, run: &str) -> bool {
    if IDENTIFIERS.iter().any(|prefix| run.starts_with(prefix)) {
        return false;
    }
    let long = run.split(|c: char| !c.is_ascii_alphanumeric()).any(|part| {
        part.len() >= OPAQUE_MIN
            && part.bytes().any(|b| b.is_ascii_digit())
            && part.bytes().any(|b| b.is_ascii_alphabetic())
    });
    let tail = before.trim_end_matches([' ', ':', '"', '\'', '`']);
    let names_an_id = [" id", " ID", "_id", "-id", " Id"].iter().any(|id| tail.ends_with(id));
    long && !names_an_id
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Put together here so that no secret-looking literal is in the repository.
    fn key(prefix: &str) -> String {
        format!("{prefix}{}", "a1B2c3D4e5F6".repeat(3))
    }

    #[test]
    fn every_known_prefix_is_masked_anywhere() {
        for (prefix, least) in PREFIXES {
            for planted in [key(prefix), format!("{prefix}{}", "x1".repeat(20))] {
                assert!(planted.len() >= *least);
                for (left, right) in
                    [("", ""), ("Wrong: ", ", sorry"), ("(\"", "\")"), ("?key=", "&x=1"), ("ключ ", "."), ("a/", " b")]
                {
                    let text = format!("{left}{planted}{right}");
                    let masked = mask(&text);
                    assert!(!masked.contains(&planted) && masked.contains(MASK), "{text} became {masked}");
                    assert!(!masked.contains("c3D4"), "{text} became {masked}");
                }
            }
        }
    }

    #[test]
    fn labels_and_opaque_runs() {
        let hex = "0f1e2d3c".repeat(4);
        let rows: &[(String, String)] = &[
            (
                "Incorrect API key provided: invalid-key. You can".into(),
                "Incorrect API key provided: [masked] You can".into(),
            ),
            ("api_key=hunter2&x=1".into(), "api_key=[masked]&x=1".into()),
            ("x-api-key: \"hunter2\"".into(), "x-api-key: \"[masked]\"".into()),
            ("Authorization: Bearer abcd1234efgh".into(), "Authorization: [masked] [masked]".into()),
            ("token: abcd1234efgh".into(), "token: [masked]".into()),
            (format!("The key {hex} is unknown"), "The key [masked] is unknown".into()),
        ];
        for (text, want) in rows {
            assert_eq!(mask(text), want.as_str(), "{text}");
        }
    }

    #[test]
    fn ordinary_words_pass_unchanged() {
        let hex = "aada021e".repeat(4);
        let rows: &[String] = &[
            String::new(),
            "invalid x-api-key".into(),
            "Please use a Bearer token".into(),
            "missing key: additionalProperties".into(),
            "max_tokens: 4096 is too many; token: 12".into(),
            "Please include the request ID req_630c2c7cf0cdc55830bd88fee6ac4495 in your message.".into(),
            format!("(Please include the request ID {hex} in your message.)"),
            "see https://platform.openai.com/docs/guides/error-codes/api-errors.".into(),
            "The model `gpt-4.1-nano-wrong` does not exist".into(),
            "生成内容可能包含不安全或敏感内容".into(),
        ];
        for text in rows {
            assert_eq!(mask(text), text.as_str());
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics_and_leaves_no_planted_key(left in ".{0,40}", right in ".{0,40}") {
            let planted = key("sk-");
            let masked = mask(&format!("{left} {planted} {right}")).into_owned();
            proptest::prop_assert!(!masked.contains(&planted));
        }
    }
}

//! Secrets that this relay knows, kept out of what it stores and passes on.
//!
//! In: text that a person or a provider wrote. Out: the same without any client key, provider credential or operator token, and without
//! what looks like a key (`classify::mask`). Credentials are the ones of this moment: a token file's last good one, too.

use http::{HeaderMap, HeaderValue};

use crate::classify::mask::{MASK, mask};
use crate::config::settings::Settings;
use crate::upstream;

/// A shorter "secret" stands in ordinary words by chance, and to mask it there would tell it.
const SECRET_BYTES_MIN: usize = 6;

/// A provider's name of a request is some tens of characters.
const REQUEST_ID_BYTES_MAX: usize = 256;

/// Shows every known secret to `look`, until it says true.
fn any(settings: &Settings, mut look: impl FnMut(&str) -> bool) -> bool {
    let mut look = |secret: &str| secret.len() >= SECRET_BYTES_MIN && look(secret);
    settings.clients.iter().flat_map(|client| &client.keys).any(|key| look(key.expose()))
        || settings.operators.iter().any(|operator| look(operator.token.expose()))
        || settings.providers.values().filter_map(|provider| provider.credential()).any(|key| look(key.expose()))
}

/// The text with every known secret, and whatever looks like one, masked.
pub fn masked(settings: &Settings, text: &str) -> String {
    let mut found: Vec<String> = Vec::new();
    any(settings, |secret| {
        if text.contains(secret) {
            found.push(secret.to_owned());
        }
        false
    });
    // One may hold another: the longer first, or its rest would stay.
    found.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let exact = found.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), MASK));
    mask(&exact).into_owned()
}

/// The provider's name of a request, as far as it may be passed on: bounded, visible ASCII, and nothing that we sent in secret.
pub(super) fn request_id(settings: &Settings, headers: &HeaderMap) -> Option<HeaderValue> {
    let value = upstream::request_id(headers)?;
    let text = value.to_str().ok()?;
    let fits = text.len() <= REQUEST_ID_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
    (fits && !any(settings, |secret| text.contains(secret))).then(|| value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::UnixMillis;

    fn settings() -> Settings {
        let text = "[provider.p]\nkind = \"openai\"\napi_key = \"env:P\"\n[route.r]\nprovider = \"p\"\n[workflow.w]\nprimary = \"r\"\n\
             [[client]]\nname = \"c\"\nkeys = [\"env:C\"]\nworkflows = [\"w\"]\n\
             [[operator]]\nname = \"o\"\ntoken = \"env:O\"\nrole = \"viewer\"\n[server]\nstore = \"memory\"\n";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rubicon.toml");
        std::fs::write(&path, text).unwrap();
        let env = |name: &str| match name {
            "P" => Some("provider-words".to_owned()),
            "C" => Some("client-words-of-mine".to_owned()),
            "O" => Some("client-words-of-mine-and-more".to_owned()),
            _ => None,
        };
        crate::config::load(&path, &env, UnixMillis(1_796_083_200_000)).unwrap().settings
    }

    #[test]
    fn known_secrets_and_what_looks_like_one() {
        let settings = settings();
        for (text, want) in [
            ("a drill", "a drill"),
            ("leaked provider-words", "leaked [masked]"),
            ("client-words-of-mine-and-more client-words-of-mine!", "[masked] [masked]!"),
            ("key sk-abcdefghijkl", "key [masked]"),
        ] {
            assert_eq!(masked(&settings, text), want);
        }
    }

    #[test]
    fn a_request_id_is_short_visible_and_no_secret() {
        let settings = settings();
        let told = |value: &str| {
            let headers =
                [(http::HeaderName::from_static("x-request-id"), HeaderValue::from_bytes(value.as_bytes()).unwrap())];
            request_id(&settings, &headers.into_iter().collect()).is_some()
        };
        assert!(told("req_011CSHoEeqs5C35K2UUqR7Fy") && told(&"x".repeat(256)));
        for bad in ["", "a b", "é", &"x".repeat(257), "x-client-words-of-mine-x"] {
            assert!(!told(bad) || bad.is_empty(), "{bad}");
        }
    }
}

//! The digest of a route as it was approved or verified: host, model, account, region, network (SPEC section 3).
//!
//! In: a route. Out: `rd1:` and 32 hexadecimal digits. What is approved is where a request goes and who answers it; timeouts, prices,
//! keys and names may change without anybody having to look again. `rd1` names this recipe: a later one gets another prefix, and
//! a digest of the old one is stale then, which is the safe side.

use std::fmt::Write as _;

use crate::config::settings::{Network, RouteSettings};

/// Keeps these digests apart from all others of the relay.
const CONTEXT: &str = "rubicon 2026-12-01 route digest v1";

/// Bytes kept of the hash: nobody searches for collisions between their own routes.
const BYTES: usize = 16;

/// The digest.
pub fn route_digest(route: &RouteSettings) -> String {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    let host = host(route);
    let network = route.provider.network.map(network);
    let parts = [
        Some(host.as_str()),
        route.model.as_deref(),
        Some(route.provider.account.as_str()),
        route.region.as_deref(),
        network,
    ];
    for part in parts {
        // One more than the length, so that what is absent (0) differs from what is empty (1).
        let length = part.map_or(0, |part| u64::try_from(part.len()).unwrap_or(u64::MAX).saturating_add(1));
        hasher.update(&length.to_le_bytes());
        hasher.update(part.unwrap_or_default().as_bytes());
    }
    let mut text = String::from("rd1:");
    for byte in hasher.finalize().as_bytes().iter().take(BYTES) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// What the digest covers, for people: whoever approves a digest must see what of.
pub fn covers(route: &RouteSettings) -> String {
    format!(
        "host {}, model {}, account {}, region {}, network {}",
        host(route),
        route.model.as_deref().unwrap_or("(the request's own)"),
        route.provider.account,
        route.region.as_deref().unwrap_or("(not stated)"),
        route.provider.network.map_or("(not stated)", network),
    )
}

/// Scheme, authority and path of the base URL; the first two in one spelling.
fn host(route: &RouteSettings) -> String {
    let uri = &route.provider.base_url;
    let scheme = uri.scheme_str().unwrap_or_default().to_ascii_lowercase();
    let authority = uri.authority().map(|authority| authority.as_str().to_ascii_lowercase()).unwrap_or_default();
    format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/'))
}

fn network(network: Network) -> &'static str {
    match network {
        Network::Private => "private",
        Network::Public => "public",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::testing::settings;

    const ROUTE: &str = r#"[provider.p]
kind = "openai-compatible"
base_url = "https://llm.example.test/v1"
account = "acct"
network = "private"
[route.r]
provider = "p"
model = "m-1"
region = "eu"
[workflow.w]
primary = "r"
"#;

    fn digest(text: &str) -> String {
        route_digest(settings(text).routes.values().next().unwrap())
    }

    #[test]
    fn it_is_what_it_was() {
        // Golden: digests stand in configs and approvals, so the recipe must not change under its name.
        assert_eq!(digest(ROUTE), "rd1:c5d94327856f8f06bec431eb7d22ce7e");
    }

    #[test]
    fn five_things_change_it() {
        let changes = [
            ("https://llm.example.test/v1", "https://other.example.test/v1"),
            ("https://llm.example.test/v1", "https://llm.example.test:8443/v1"),
            ("https://llm.example.test/v1", "https://llm.example.test/eu/v1"),
            ("model = \"m-1\"\n", "model = \"m-2\"\n"),
            ("model = \"m-1\"\n", ""),
            ("account = \"acct\"\n", "account = \"other\"\n"),
            ("account = \"acct\"\n", ""),
            ("region = \"eu\"\n", "region = \"us\"\n"),
            ("region = \"eu\"\n", ""),
            ("network = \"private\"\n", "network = \"public\"\n"),
            ("network = \"private\"\n", ""),
            // Nothing flows over from one part to the next.
            ("model = \"m-1\"\nregion = \"eu\"\n", "region = \"m-1\"\nmodel = \"eu\"\n"),
        ];
        let mut seen = BTreeSet::from([digest(ROUTE)]);
        for (from, to) in changes {
            assert!(ROUTE.contains(from), "{from}");
            assert!(seen.insert(digest(&ROUTE.replace(from, to))), "{from} → {to} changes nothing");
        }
    }

    #[test]
    fn nothing_else_changes_it() {
        let changes = [
            (
                "account = \"acct\"\n",
                "account = \"acct\"\napi_key = \"env:K\"\nlegal_entity = \"BV\"\nterminal = \"strict\"\n",
            ),
            (
                "model = \"m-1\"\n",
                "model = \"m-1\"\ncapabilities = [\"text\"]\ncontext_tokens = 9\nmodel_class = \"c\"\n\
                 price = { input = 1.0, output = 2.0 }\ntimeouts = { connect_ms = 10 }\nverified = { on = 2026-01-01 }\n",
            ),
            ("[provider.p]", "[provider.q]"),
            ("[route.r]", "[route.s]"),
            ("https://llm.example.test/v1", "https://LLM.Example.test/v1/"),
        ];
        for (from, to) in changes {
            assert!(ROUTE.contains(from), "{from}");
            let mut text = ROUTE.replace(from, to);
            if to == "[provider.q]" {
                text = text.replace("provider = \"p\"", "provider = \"q\"");
            }
            if to == "[route.s]" {
                text = text.replace("primary = \"r\"", "primary = \"s\"");
            }
            assert_eq!(digest(&text), digest(ROUTE), "{from} → {to}");
        }
    }

    #[test]
    fn what_it_covers_is_said() {
        let told = covers(settings(ROUTE).routes.values().next().unwrap());
        let expected = "host https://llm.example.test/v1, model m-1, account acct, region eu, network private";
        assert_eq!(told, expected);
        let bare = ROUTE.replace("model = \"m-1\"\nregion = \"eu\"\n", "").replace("network = \"private\"\n", "");
        let told = covers(settings(&bare).routes.values().next().unwrap());
        assert!(
            told.ends_with("model (the request's own), account acct, region (not stated), network (not stated)"),
            "{told}"
        );
    }
}

//! Who calls: a client key, or, where no client is configured, loopback only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, Uri};
use rubicon_ledger::ToolName;

use crate::config::settings::{ClientSettings, Settings, ToolSettings, WorkflowSettings};
use crate::ids::{ClientId, TenantId};

/// The caller, once known.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its name.
    pub client: ClientId,
    /// Whose data it is.
    pub tenant: TenantId,
    /// It may see route names.
    pub show_routes: bool,
    /// What it may call, in the order of the configuration.
    pub workflows: Vec<Arc<WorkflowSettings>>,
    /// Tools it may claim or run.
    pub tools: BTreeMap<ToolName, Arc<ToolSettings>>,
}

/// Why a caller is turned away: status, stable code, message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// 401 or 403.
    pub status: u16,
    /// Stable code.
    pub code: &'static str,
    /// For people.
    pub message: &'static str,
}

const NO_KEY: Denied = Denied {
    status: 401,
    code: "missing_api_key",
    message: "No API key: send one of this relay's client keys as Authorization: Bearer, x-api-key or x-goog-api-key.",
};

const WRONG_KEY: Denied =
    Denied { status: 401, code: "invalid_api_key", message: "The API key is not one of this relay's client keys." };

const NOT_LOOPBACK: Denied = Denied {
    status: 403,
    code: "host_not_allowed",
    message: "Without configured clients this relay answers to loopback names only.",
};

/// Client and tenant where no client is configured.
pub(super) const NOBODY_IN_PARTICULAR: &str = "local";

/// Keys by their hash: a look-up compares hashes, so its time tells nothing of a key.
#[derive(Debug)]
pub struct Clients {
    by_key: HashMap<blake3::Hash, Arc<Caller>>,
    anyone: Option<Arc<Caller>>,
}

impl Clients {
    /// Reads the settings once.
    pub fn new(settings: &Settings) -> Self {
        let mut by_key = HashMap::new();
        for client in &settings.clients {
            let caller = Arc::new(caller(settings, client));
            for key in &client.keys {
                by_key.insert(blake3::hash(key.expose().as_bytes()), Arc::clone(&caller));
            }
        }
        let anyone = settings.clients.is_empty().then(|| {
            Arc::new(Caller {
                client: ClientId::new(NOBODY_IN_PARTICULAR),
                tenant: TenantId::new(NOBODY_IN_PARTICULAR),
                show_routes: false,
                workflows: settings.workflows.values().cloned().collect(),
                tools: settings.tools.clone(),
            })
        });
        Self { by_key, anyone }
    }

    /// Finds the caller.
    ///
    /// # Errors
    /// When the key is missing or wrong, or the host is not loopback where no clients are configured.
    pub fn find(&self, headers: &HeaderMap, uri: &Uri) -> Result<Arc<Caller>, Denied> {
        if let Some(anyone) = &self.anyone {
            // A key that an SDK sends all the same is ignored.
            return if is_loopback(headers, uri) { Ok(Arc::clone(anyone)) } else { Err(NOT_LOOPBACK) };
        }
        let mut presented = presented(headers).peekable();
        if presented.peek().is_none() {
            return Err(NO_KEY);
        }
        let found = presented.find_map(|key| self.by_key.get(&blake3::hash(key.as_bytes())));
        found.cloned().ok_or(WRONG_KEY)
    }
}

fn caller(settings: &Settings, client: &ClientSettings) -> Caller {
    Caller {
        client: client.name.clone(),
        tenant: client.tenant.clone(),
        show_routes: client.show_routes,
        workflows: client.workflows.iter().filter_map(|name| settings.workflows.get(name).cloned()).collect(),
        tools: client
            .tools
            .iter()
            .filter_map(|name| Some((name.clone(), Arc::clone(settings.tools.get(name)?))))
            .collect(),
    }
}

/// Keys as the SDKs send them.
fn presented(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|text| {
        let (scheme, key) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    let named = ["x-api-key", "x-goog-api-key"].into_iter().filter_map(|name| headers.get(name)?.to_str().ok());
    bearer.into_iter().chain(named).filter(|key| !key.is_empty())
}

/// A page in a browser must not reach a keyless relay by rebinding a name or by its own origin (SPEC Annex, Requests).
pub fn is_loopback(headers: &HeaderMap, uri: &Uri) -> bool {
    let host = match headers.get(HOST) {
        Some(_) if headers.get_all(HOST).iter().nth(1).is_some() => None, // Two names are none.
        Some(value) => value.to_str().ok(),
        None => uri.authority().map(http::uri::Authority::as_str),
    };
    let origin_fits = match headers.get(ORIGIN) {
        None => true,
        Some(value) => value
            .to_str()
            .ok()
            .and_then(|text| text.parse::<Uri>().ok())
            .is_some_and(|origin| origin.host().is_some_and(is_loopback_name)),
    };
    origin_fits
        && host.and_then(|host| host.parse::<http::uri::Authority>().ok()).is_some_and(|a| is_loopback_name(a.host()))
}

/// `localhost`, 127.0.0.0/8, `[::1]`.
pub fn is_loopback_name(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn loopback_names() {
        let rows = [
            (vec![("host", "localhost:8080")], true),
            (vec![("host", "127.0.0.1")], true),
            (vec![("host", "127.9.9.9:1")], true),
            (vec![("host", "[::1]:8080")], true),
            (vec![("host", "localhost.evil.test")], false),
            (vec![("host", "evil.test")], false),
            (vec![("host", "10.0.0.1")], false),
            (vec![("host", "0.0.0.0")], false),
            (vec![], false),
            (vec![("host", "localhost"), ("host", "evil.test")], false),
            (vec![("host", "localhost"), ("origin", "http://localhost:3000")], true),
            (vec![("host", "localhost"), ("origin", "https://evil.test")], false),
            (vec![("host", "localhost"), ("origin", "null")], false),
        ];
        for (headers, fits) in rows {
            assert_eq!(is_loopback(&map(&headers), &Uri::from_static("/v1/models")), fits, "{headers:?}");
        }
        assert!(is_loopback(&HeaderMap::new(), &Uri::from_static("http://localhost:8080/v1/models")), "h2 :authority");
    }

    #[test]
    fn keys_in_every_sdk_form() {
        for (name, value) in [
            ("authorization", "Bearer k1"),
            ("authorization", "bearer k1"),
            ("x-api-key", "k1"),
            ("x-goog-api-key", "k1"),
        ] {
            assert_eq!(presented(&map(&[(name, value)])).collect::<Vec<_>>(), ["k1"]);
        }
        assert_eq!(presented(&map(&[("authorization", "Basic k1")])).count(), 0);
        assert_eq!(presented(&map(&[("authorization", "Bearer ")])).count(), 0);
    }
}

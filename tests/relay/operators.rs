//! A relay with operators of every role, and requests to its admin side as one of them.

use std::collections::BTreeMap;

use http::Method;
use rubicon::serve::Server;
use serde_json::Value;

use crate::harness::{Answered, Http, client, relay_with, send};
use crate::setup::Setup;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Nobody,
    Stranger,
    Viewer,
    Operator,
    Approver,
}

pub(crate) const EVERYBODY: [Who; 5] = [Who::Nobody, Who::Stranger, Who::Viewer, Who::Operator, Who::Approver];

/// One operator a role: `vic`, `oli`, `ana`.
pub(crate) const OPERATORS: &str = "[[operator]]\nname = \"vic\"\ntoken = \"env:VIC\"\nrole = \"viewer\"\n\
     [[operator]]\nname = \"oli\"\ntoken = \"env:OLI\"\nrole = \"operator\"\n\
     [[operator]]\nname = \"ana\"\ntoken = \"env:ANA\"\nrole = \"approver\"\n";

/// What the config reads.
pub(crate) const ENV: [(&str, &str); 3] =
    [("VIC", "viewer-token-0001"), ("OLI", "operator-token-0002"), ("ANA", "approver-token-0003")];

impl Who {
    pub(crate) fn token(self) -> Option<&'static str> {
        match self {
            Self::Nobody => None,
            Self::Stranger => Some("stranger-token-0000"),
            Self::Viewer => Some(ENV[0].1),
            Self::Operator => Some(ENV[1].1),
            Self::Approver => Some(ENV[2].1),
        }
    }
}

/// A relay whose admin side listens on a free port; nothing is kept on disk.
pub(crate) async fn with_operators(setup: Setup) -> Server {
    let env: BTreeMap<&str, &str> = ENV.into_iter().collect();
    let text = setup.server("admin_listen = \"127.0.0.1:0\"\nstore = \"memory\"").tables(OPERATORS).text();
    relay_with(&text, &env).await
}

/// The admin side's base URL.
pub(crate) fn admin(relay: &Server) -> String {
    format!("http://{}", relay.admin_address().expect("an admin side"))
}

/// A request to the admin side.
pub(crate) fn request(base: &str, method: Method, path: &str, who: Who) -> reqwest::RequestBuilder {
    let request = client(Http::One).request(method, format!("{base}{path}"));
    match who.token() {
        None => request,
        Some(token) => request.bearer_auth(token),
    }
}

/// Reads something.
pub(crate) async fn get(base: &str, path: &str, who: Who) -> Answered {
    send(request(base, Method::GET, path, who)).await
}

/// Changes something.
pub(crate) async fn change(base: &str, path: &str, who: Who, if_match: &str, body: Value) -> Answered {
    let request = request(base, Method::POST, path, who).header("if-match", if_match);
    send(request.header("content-type", "application/json").body(body.to_string())).await
}

/// The status, and the error's code if it is one.
pub(crate) fn told(answered: &Answered) -> (u16, String) {
    let code = answered.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
    (answered.status, code)
}

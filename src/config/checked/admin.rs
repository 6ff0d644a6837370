//! `[[operator]]`, and the keys of `[server]` that the admin side needs.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use super::super::Sources;
use super::super::node::Node;
use super::super::problem::{Code, Problems};
use super::super::settings::{ClientSettings, OperatorRole, OperatorSettings, StoreSettings};
use super::secrets;

/// Where the admin side listens when the file does not say.
pub(in super::super) const ADMIN_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8081);

/// Where the store is when the file does not say and there are operators or tools.
pub(in super::super) const STORE_FILE: &str = "data/rubicon.redb";

/// Characters of an operator's token: 16 random letters and digits are beyond guessing.
const TOKEN_LEAST: usize = 16;

/// All operators that could be built.
pub(super) fn operators(
    root: &Node,
    clients: &[Arc<ClientSettings>],
    problems: &mut Problems<'_>,
    sources: &Sources<'_>,
) -> Vec<Arc<OperatorSettings>> {
    let mut all: Vec<Arc<OperatorSettings>> = Vec::new();
    let mut names = BTreeSet::new();
    let mut tokens = BTreeSet::new();
    for node in root.tables("operator") {
        let (at, key) = (node.at_of("token"), node.key_of("token"));
        let token = node.text("token").and_then(|text| secrets::read(text, at, &key, problems, sources));
        let (Some(name), Some(token)) = (node.text("name"), token) else { continue };
        if !names.insert(name.to_owned()) {
            let message = "another operator has this name: the journal could not tell them apart";
            problems.error(Code::Duplicate, node.at_of("name"), &node.key_of("name"), message);
        }
        if !tokens.insert(*blake3::hash(token.expose().as_bytes()).as_bytes()) {
            let message = "another operator has the same token: they could not be told apart";
            problems.error(Code::KeyShared, at, &key, message);
        }
        if token.expose().len() < TOKEN_LEAST {
            let message = format!("under {TOKEN_LEAST} characters: a token that stops all traffic must not be guessed");
            problems.error(Code::SecretTooShort, at, &key, message);
        }
        if clients.iter().any(|client| client.keys.contains(&token)) {
            let message = "a client has the same key: whoever may call could stop everything";
            problems.error(Code::KeyShared, at, &key, message);
        }
        let role = match node.text("role") {
            Some("approver") => OperatorRole::Approver,
            Some("operator") => OperatorRole::Operator,
            _ => OperatorRole::Viewer,
        };
        all.push(Arc::new(OperatorSettings { name: name.to_owned(), token, role }));
    }
    all
}

/// `server.admin_listen`: loopback only, because the admin side speaks in clear and its tokens may stop all traffic.
pub(super) fn listen(root: &Node, server: &Node, problems: &mut Problems<'_>) -> Option<SocketAddr> {
    let (at, key) = (server.at_of("admin_listen"), server.key_of("admin_listen"));
    let wanted = !root.tables("operator").is_empty() || server.flag("metrics_open");
    let Some(text) = server.text("admin_listen") else { return wanted.then_some(ADMIN_LISTEN) };
    match text.parse::<SocketAddr>() {
        Err(_) => {
            let message = "expects an IP address and a port, such as 127.0.0.1:8081 or [::1]:8081";
            problems.error(Code::InvalidValue, at, &key, message);
            None
        }
        Ok(listen) if !listen.ip().to_canonical().is_loopback() => {
            let message = "the admin side speaks in clear, so it listens on loopback only; put TLS in front of it";
            problems.error(Code::AdminNotLoopback, at, &key, message);
            None
        }
        Ok(listen) => wanted.then_some(listen),
    }
}

/// `server.store`.
pub(super) fn store(root: &Node, server: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> StoreSettings {
    let redb = |path: &str| StoreSettings::Redb(sources.folder.join(path));
    match server.text("store") {
        None if root.tables("operator").is_empty() && root.named("tool").next().is_none() => StoreSettings::Memory,
        None => redb(STORE_FILE),
        Some("memory") => StoreSettings::Memory,
        Some(text) => match text.strip_prefix("redb:").filter(|path| !path.is_empty()) {
            Some(path) => redb(path),
            None => {
                let message = if text.starts_with("postgres:") || text.starts_with("postgresql:") {
                    "a postgres store is not built yet; `redb:PATH` or `memory`"
                } else {
                    "expects `redb:PATH` or `memory`"
                };
                problems.error(Code::InvalidValue, server.at_of("store"), &server.key_of("store"), message);
                StoreSettings::Memory
            }
        },
    }
}

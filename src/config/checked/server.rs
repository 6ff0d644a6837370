//! `[server]`, `[log]` and `[[client]]`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use rubicon_ledger::ToolName;

use crate::ids::{ClientId, TenantId, WorkflowId};

use super::super::Sources;
use super::super::node::Node;
use super::super::problem::{Code, Problems};
use super::super::raw::is_name;
use super::super::settings::{ClientSettings, EventsTo, LogFormat, LogSettings, RetryShare, ServerSettings};
use super::{admin, no_doubles, origin, resolves, secrets};

/// `[server]`.
pub(super) fn server(root: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> Option<ServerSettings> {
    let node = root.table("server")?;
    let (at, key) = (node.at_of("listen"), node.key_of("listen"));
    let listen = node.text("listen").and_then(|text| text.parse::<SocketAddr>().ok());
    match listen {
        None if node.text("listen").is_some() => {
            let message = "expects an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080";
            problems.error(Code::InvalidValue, at, &key, message);
        }
        Some(listen) if root.tables("client").is_empty() && !listen.ip().to_canonical().is_loopback() => {
            let message = "without any [[client]] the relay needs no key, so it listens on loopback only";
            problems.error(Code::ListenNotLoopback, at, &key, message);
        }
        _ => {}
    }
    let status = node.int("exhausted_status");
    // STREAMS.md 2.4: the OpenAI and Anthropic SDKs and the AI SDK repeat these by themselves.
    if matches!(status, 408 | 409 | 429 | 500..) {
        let message =
            format!("SDKs repeat a {status} by themselves, on top of the relay's attempts; 424 is not repeated");
        problems.warning(
            Code::StatusIsRetried,
            node.at_of("exhausted_status"),
            &node.key_of("exhausted_status"),
            message,
        );
    }
    let admin_listen = admin::listen(root, node, problems);
    if let (Some(listen), Some(admin)) = (listen, admin_listen)
        && overlap(listen, admin)
    {
        let (at, key) = if node.has("admin_listen") {
            (node.at_of("admin_listen"), node.key_of("admin_listen"))
        } else {
            (at, key)
        };
        let message = format!("`listen` ({listen}) and `admin_listen` ({admin}) take the same port of one address");
        problems.error(Code::ListenShared, at, &key, message);
    }
    Some(ServerSettings {
        listen: listen?,
        shutdown_grace: node.millis("shutdown_grace_ms"),
        max_body_bytes: node.size("max_body_bytes"),
        max_header_bytes: node.size("max_header_bytes"),
        max_event_bytes: node.size("max_event_bytes"),
        max_in_flight: node.size("max_in_flight"),
        exhausted_status: u16::try_from(status).ok()?,
        admin_listen,
        store: admin::store(root, node, problems, sources),
        memory_bytes: node.opt_int("memory_bytes"),
        metrics_open: node.flag("metrics_open"),
        cors_origins: origin::all(root, node, problems),
        retry: retry(node.table("retry")?),
    })
}

/// Whether two listeners want the same port of one address. Port 0 is any free one; `0.0.0.0` is every IPv4 address, and `[::]` every
/// address (Linux takes both kinds with it).
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    let covers = |all: std::net::IpAddr, ip: std::net::IpAddr| all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
    one.port() != 0 && one.port() == other.port() && (a == b || covers(a, b) || covers(b, a))
}

/// `retry`.
fn retry(table: &Node) -> RetryShare {
    const SHARE: f64 = 0.2;
    RetryShare {
        share: table.number("share").unwrap_or(SHARE),
        min_per_second: u32::try_from(table.int("min_per_second")).unwrap_or(u32::MAX),
    }
}

/// `[log]`.
pub(super) fn log(root: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> Option<LogSettings> {
    let node = root.table("log")?;
    let format = match node.text("format") {
        Some("json") => LogFormat::Json,
        Some(_) => LogFormat::Text,
        None if sources.terminal => LogFormat::Text,
        None => LogFormat::Json,
    };
    let events = match node.text("events")? {
        "stdout" => EventsTo::Stdout,
        "stderr" => EventsTo::Stderr,
        "off" => EventsTo::Off,
        other => match other.strip_prefix("file:").filter(|path| !path.is_empty()) {
            Some(path) => EventsTo::File(sources.folder.join(path)),
            None => {
                let message = "expects `stdout`, `stderr`, `off` or `file:PATH`";
                problems.error(Code::InvalidValue, node.at_of("events"), &node.key_of("events"), message);
                EventsTo::Off
            }
        },
    };
    Some(LogSettings { format, level: node.owned("level")?, events })
}

/// `[[client]]`.
pub(super) fn clients(root: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> Vec<Arc<ClientSettings>> {
    let mut clients = Vec::new();
    let mut names = BTreeSet::new();
    // Hash of each key → the client that has it; a hash, so that nothing here holds a key longer than needed.
    let mut owners: BTreeMap<[u8; 32], usize> = BTreeMap::new();
    for (index, node) in root.tables("client").iter().enumerate() {
        let key = node.key_of("keys");
        let mut keys = Vec::new();
        for item in node.items("keys").unwrap_or_default() {
            let Some(secret) = secrets::read(&item.text, item.at, &key, problems, sources) else { continue };
            let hash = *blake3::hash(secret.expose().as_bytes()).as_bytes();
            match owners.insert(hash, index) {
                Some(owner) if owner == index => {
                    problems.error(Code::Duplicate, item.at, &key, "this client has the same key twice");
                }
                Some(owner) => {
                    let message = format!("client[{owner}] has the same key: a caller could not be told apart");
                    problems.error(Code::KeyShared, item.at, &key, message);
                }
                None => keys.push(secret),
            }
        }
        if node.items("keys").is_some_and(<[_]>::is_empty) {
            problems.error(Code::MissingKey, node.at_of("keys"), &key, "a client needs at least one key");
        }
        let workflows = node.items("workflows").unwrap_or_default();
        no_doubles(workflows, &node.key_of("workflows"), problems);
        for item in workflows {
            resolves(root, "workflow", &item.text, item.at, &node.key_of("workflows"), problems);
        }
        let tools = node.items("tools").unwrap_or_default();
        no_doubles(tools, &node.key_of("tools"), problems);
        for item in tools {
            resolves(root, "tool", &item.text, item.at, &node.key_of("tools"), problems);
        }
        let Some(name) = node.text("name") else { continue };
        let tenant = node.text("tenant").unwrap_or(name);
        for (field, text) in [("name", Some(name)), ("tenant", node.text("tenant"))] {
            if text.is_some_and(|text| !is_name(text)) {
                let message = "a name is 1–64 of A-Z a-z 0-9 _ - .";
                problems.error(Code::InvalidName, node.at_of(field), &node.key_of(field), message);
            }
        }
        if !names.insert(name.to_owned()) {
            problems.error(Code::Duplicate, node.at_of("name"), &node.key_of("name"), "another client has this name");
        }
        clients.push(Arc::new(ClientSettings {
            name: ClientId::new(name),
            tenant: TenantId::new(tenant),
            keys,
            workflows: workflows.iter().map(|item| WorkflowId::new(&item.text)).collect(),
            tools: tools.iter().filter_map(|item| ToolName::new(&item.text).ok()).collect(),
            show_routes: node.flag("show_routes"),
        }));
    }
    clients
}

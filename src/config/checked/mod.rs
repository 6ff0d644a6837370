//! From single good values to a consistent whole: names resolve, secrets are read, values agree with each other.
//!
//! One file a section. Each reports what it finds and goes on; a section that could not be built is left out and nobody
//! reports again that it is missing, because names are resolved against what is *written*, not against what was built.

mod admin;
mod approval;
mod origin;
mod provider;
mod route;
pub(super) mod secrets;
mod server;
mod split;
mod telemetry;
mod tool;
mod tool_fields;
mod tool_http;
mod url;
mod workflow;

use std::collections::BTreeSet;

pub(super) use admin::{ADMIN_LISTEN, STORE_FILE};

use super::Sources;
use super::nearest;
use super::node::{Item, Node};
use super::problem::{Code, Problems, shown};
use super::settings::Settings;

/// Builds the settings, or `None` where a part that is always needed could not be read. The caller has to look at the problems, too.
pub(super) fn build(root: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> Option<Settings> {
    let providers = provider::all(root, problems, sources);
    let routes = route::all(root, &providers, problems, sources.now);
    let workflows = workflow::all(root, &routes, problems);
    let clients = server::clients(root, problems, sources);
    workflow::claims(root, problems);
    let approvals = approval::all(root, problems);
    let operators = admin::operators(root, &clients, problems, sources);
    let tools = tool::all(root, problems, sources);
    let server = server::server(root, problems, sources);
    let log = server::log(root, problems, sources);
    let telemetry = telemetry::telemetry(root, problems, sources);
    Some(Settings {
        server: server?,
        log: log?,
        clients,
        providers,
        routes,
        workflows,
        approvals,
        operators,
        tools,
        telemetry,
    })
}

/// Whether `name` is one of the tables `[section.NAME]`; reports it if not.
fn resolves(root: &Node, section: &str, name: &str, at: usize, key: &str, problems: &mut Problems<'_>) -> bool {
    if root.named(section).any(|(known, _)| known == name) {
        return true;
    }
    let hint = nearest::hint(name, root.named(section).map(|(known, _)| known));
    problems.error(Code::Unresolved, at, key, format!("there is no [{section}.NAME] called {}{hint}", shown(name)));
    false
}

/// Reports entries that stand in a list twice.
fn no_doubles(items: &[Item], key: &str, problems: &mut Problems<'_>) {
    let mut seen = BTreeSet::new();
    for item in items {
        if !seen.insert(item.text.as_str()) {
            problems.error(Code::Duplicate, item.at, key, format!("{} stands here twice", shown(&item.text)));
        }
    }
}

/// `route_digest` of a verification or an approval.
fn digest(node: &Node, problems: &mut Problems<'_>) -> Option<String> {
    let text = node.text("route_digest")?;
    let hex = |digits: &str| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    if !text.strip_prefix("rd1:").is_some_and(hex) {
        // Not an error: it is the digest of no route, so what carries it is stale, and traffic must not stop for that.
        let message = "is no digest as `rubicon check` prints it (`rd1:` and hexadecimal digits), so it fits no route";
        problems.warning(Code::InvalidValue, node.at_of("route_digest"), &node.key_of("route_digest"), message);
    }
    Some(text.to_owned())
}

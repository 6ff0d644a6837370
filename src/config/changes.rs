//! What differs between two loads of a config, for whoever reloads: names for the log, and the keys that only a restart can change.
//!
//! Settings are compared by what they print, so that no field can be forgotten; secrets print nothing, so their values' hashes are
//! compared besides. A route prints its provider, a workflow its routes: a changed provider changes them, too, which is true.

use std::collections::BTreeMap;
use std::fmt::Debug;

use super::Loaded;
use super::problem::{Code, Problem, Severity};
use super::settings::Settings;

/// Names listed; a change of more is told by their number.
const NAMES_MAX: usize = 40;

/// What differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// `route.main`, `client.web`, `server` …, those that went and came included; at most 40, then `… and N more`.
    pub names: Vec<String>,
}

impl Changes {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// What differs in `new` from the settings in force and their [`Loaded::secrets`]; what was kept of them (see
/// [`keep_what_needs_a_restart`]) does not.
pub fn changes(old: &Settings, old_secrets: Option<blake3::Hash>, new: &Loaded) -> Changes {
    let (before, after) = (printed(old), printed(&new.settings));
    let changed = after.iter().filter(|(name, text)| before.get(*name) != Some(text)).map(|(name, _)| name);
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    let mut names: Vec<String> = changed.chain(gone).cloned().collect();
    names.sort();
    if old_secrets != new.secrets {
        names.push("secrets".to_owned());
    }
    if names.len() > NAMES_MAX {
        let more = names.len() - NAMES_MAX;
        names.truncate(NAMES_MAX);
        names.push(format!("… and {more} more"));
    }
    Changes { names }
}

fn printed(settings: &Settings) -> BTreeMap<String, String> {
    fn print(value: &dyn Debug) -> String {
        format!("{value:?}")
    }
    let mut all = BTreeMap::new();
    let Settings { server, log, clients, providers, routes, workflows, approvals, operators, tools, telemetry } =
        settings;
    all.insert("server".to_owned(), print(server));
    all.insert("log".to_owned(), print(log));
    all.insert("telemetry".to_owned(), print(telemetry));
    all.extend(clients.iter().map(|client| (format!("client.{}", client.name), print(client))));
    all.extend(operators.iter().map(|operator| (format!("operator.{}", operator.name), print(operator))));
    all.extend(providers.iter().map(|(name, provider)| (format!("provider.{name}"), print(provider))));
    all.extend(routes.iter().map(|(name, route)| (format!("route.{name}"), print(route))));
    all.extend(workflows.iter().map(|(name, workflow)| (format!("workflow.{name}"), print(workflow))));
    all.extend(tools.iter().map(|(name, tool)| (format!("tool.{name}"), print(tool))));
    all.insert("approval".to_owned(), print(approvals));
    all
}

/// Keeps what only a restart can change as it is in the running settings, and says so with a warning a key. Everything else of the
/// new settings stays.
///
/// # Errors
/// When the new file is good on its own, and not at the address that the relay keeps: without any client it would be open to whoever
/// reaches it.
pub fn keep_what_needs_a_restart(running: &Settings, new: &mut Loaded) -> Result<Vec<Problem>, Problem> {
    let mut kept = Vec::new();
    let mut keep = |key: &str| kept.push(key.to_owned());
    let (old, server) = (&running.server, &mut new.settings.server);
    if old.listen != server.listen {
        keep("server.listen");
        server.listen = old.listen;
    }
    if old.admin_listen != server.admin_listen {
        keep("server.admin_listen");
        server.admin_listen = old.admin_listen;
    }
    if old.store != server.store {
        keep("server.store");
        server.store = old.store.clone();
    }
    let (old, log) = (&running.log, &mut new.settings.log);
    if old.format != log.format {
        keep("log.format");
        log.format = old.format;
    }
    if old.level != log.level {
        keep("log.level");
        log.level.clone_from(&old.level);
    }
    if old.events != log.events {
        keep("log.events");
        log.events = old.events.clone();
    }
    if running.telemetry.otlp_traces_url != new.settings.telemetry.otlp_traces_url {
        keep("telemetry.otlp_endpoint");
        new.settings.telemetry.otlp_traces_url.clone_from(&running.telemetry.otlp_traces_url);
    }
    if new.settings.clients.is_empty() && !new.settings.server.listen.ip().to_canonical().is_loopback() {
        let message =
            "the relay listens beyond loopback until its next start: without any [[client]] anybody could use it";
        return Err(at_key(new, "client", Severity::Error, Code::ListenNotLoopback, message));
    }
    let message = "only a restart changes this: what the relay started with stays, the rest of the file takes effect";
    let warn = |key: &String| at_key(new, key, Severity::Warning, Code::NeedsRestart, message);
    Ok(kept.iter().map(warn).collect())
}

fn at_key(loaded: &Loaded, key: &str, severity: Severity, code: Code, message: &str) -> Problem {
    let (line, column) = loaded.places.of(key);
    let file = loaded.places.file_of(key).to_owned();
    Problem { severity, file, line, column, key: key.to_owned(), code, message: message.to_owned() }
}

#[cfg(test)]
mod tests;

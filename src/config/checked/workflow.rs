//! `[workflow.NAME]`, and who may claim which model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{RouteId, WorkflowId};

use super::super::node::{Item, Node};
use super::super::passthrough::Pattern;
use super::super::problem::{Code, Problems, shown};
use super::super::settings::{
    Commit, Envelope, Failover, HoldSettings, Requires, RouteSettings, SideEffects, WorkflowSettings,
};
use super::{no_doubles, provider, resolves, split};

pub(super) type Routes = BTreeMap<RouteId, Arc<RouteSettings>>;

/// All workflows that could be built.
pub(super) fn all(
    root: &Node,
    routes: &Routes,
    problems: &mut Problems<'_>,
) -> BTreeMap<WorkflowId, Arc<WorkflowSettings>> {
    let mut all = BTreeMap::new();
    for (name, node) in root.named("workflow") {
        if let Some(workflow) = one(root, name, node, routes, problems) {
            all.insert(workflow.name.clone(), Arc::new(workflow));
        }
    }
    if root.has("workflow") && root.named("workflow").next().is_none() {
        problems.error(
            Code::MissingKey,
            root.at_of("workflow"),
            "workflow",
            "at least one [workflow.NAME] is required",
        );
    }
    all
}

fn one(root: &Node, name: &str, node: &Node, routes: &Routes, problems: &mut Problems<'_>) -> Option<WorkflowSettings> {
    no_doubles(node.items("models").unwrap_or_default(), &node.key_of("models"), problems);
    let splits = split::members(root, node, routes, problems);
    let primary = match node.text("primary") {
        None => splits.first().map(|first| Arc::clone(&first.route)),
        Some(primary) => {
            resolves(root, "route", primary, node.at_of("primary"), &node.key_of("primary"), problems);
            routes.get(&RouteId::new(primary)).cloned()
        }
    };
    let equivalents = fallbacks(root, node, "equivalents", routes, problems);
    let alternates = fallbacks(root, node, "alternates", routes, problems);
    for item in node.items("alternates").unwrap_or_default() {
        if node.items("equivalents").unwrap_or_default().iter().any(|other| other.text == item.text) {
            let message = format!("{} is an equivalent, too", shown(&item.text));
            problems.error(Code::Duplicate, item.at, &node.key_of("alternates"), message);
        }
    }
    let hold = node.table("hold")?;
    let keepalive_after = hold.millis("keepalive_after_ms");
    let failover = node.table("failover")?;
    let requires = node.table("requires")?;
    let envelope = envelope(node.table("envelope")?);
    Some(WorkflowSettings {
        name: WorkflowId::new(name),
        version: node.int("version"),
        models: node.texts("models").unwrap_or_default(),
        owner: node.owned("owner"),
        primary: primary?,
        splits,
        equivalents,
        alternates,
        commit: match node.text("commit") {
            Some("tool_call_complete") => Commit::ToolCallComplete,
            Some("validated") => Commit::Validated,
            _ => Commit::FirstVisible,
        },
        reasoning_held: node.text("reasoning") == Some("hold"),
        hold: HoldSettings {
            max_events: hold.int("max_events"),
            max_bytes: hold.int("max_bytes"),
            keepalive_after: (!keepalive_after.is_zero()).then_some(keepalive_after),
        },
        envelope,
        failover: Failover {
            enabled: failover.flag("enabled"),
            equivalent: failover.flag("equivalent"),
            cross_model: failover.flag("cross_model"),
            wait_first: failover.millis("wait_first_ms"),
        },
        requires: Requires {
            capabilities: requires.texts("capabilities").unwrap_or_default(),
            regions: requires.texts("regions").unwrap_or_default(),
            network: provider::network(requires),
            data_class: requires.owned("data_class"),
            legal_entities: requires.texts("legal_entities").unwrap_or_default(),
            model_classes: requires.texts("model_classes").unwrap_or_default(),
            min_context_tokens: requires.opt_int("min_context_tokens"),
            schemas: requires.texts("schemas").unwrap_or_default(),
            languages: requires.texts("languages").unwrap_or_default(),
            safety_profile: requires.owned("safety_profile"),
        },
        passthrough: passthrough(node, problems),
    })
}

fn passthrough(node: &Node, problems: &mut Problems<'_>) -> Vec<Pattern> {
    let items = node.items("passthrough").unwrap_or_default();
    let key = node.key_of("passthrough");
    no_doubles(items, &key, problems);
    let mut patterns = Vec::new();
    for item in items {
        match Pattern::parse(&item.text) {
            Ok(pattern) => match pattern.shadows() {
                None => patterns.push(pattern),
                Some(own) => {
                    let message = format!("`{}` would take {own}, which the relay serves itself", pattern.as_str());
                    problems.error(Code::PassthroughShadows, item.at, &key, message);
                }
            },
            Err(why) => problems.error(Code::InvalidValue, item.at, &key, why),
        }
    }
    patterns
}

fn envelope(table: &Node) -> Envelope {
    Envelope {
        deadline: table.millis("deadline_ms"),
        deadline_reasoning: table.millis("deadline_reasoning_ms"),
        answer_deadline: table.millis("answer_deadline_ms"),
        stream: table.opt_millis("stream_ms"),
        max_attempts: u32::try_from(table.int("max_attempts")).unwrap_or(1),
        max_added_latency: table.opt_millis("max_added_latency_ms"),
        max_cost_usd: table.number("max_cost_usd"),
        side_effects: match table.text("side_effects") {
            Some("none") => SideEffects::None,
            Some("write_possible") => SideEffects::WritePossible,
            _ => SideEffects::ReadOnly,
        },
        repeat_unanswered: table.flag("repeat_unanswered"),
    }
}

fn fallbacks(
    root: &Node,
    node: &Node,
    name: &str,
    routes: &Routes,
    problems: &mut Problems<'_>,
) -> Vec<Arc<RouteSettings>> {
    let items = node.items(name).unwrap_or_default();
    let key = node.key_of(name);
    no_doubles(items, &key, problems);
    let mut found = Vec::new();
    for item in items {
        resolves(root, "route", &item.text, item.at, &key, problems);
        let is_member = |member: &Node| member.text("route") == Some(item.text.as_str());
        if node.text("primary") == Some(item.text.as_str()) {
            let message = format!("{} is the primary: it cannot stand in for itself", shown(&item.text));
            problems.error(Code::PrimaryRepeated, item.at, &key, message);
        } else if node.tables("primary").iter().any(is_member) {
            let message = format!("{} is a member of the split, which stands in anyway", shown(&item.text));
            problems.error(Code::PrimaryRepeated, item.at, &key, message);
        }
        found.extend(routes.get(&RouteId::new(&item.text)).cloned());
    }
    found
}

/// Reports models that two workflows claim for one client (without clients: at all): a request could not be told apart.
pub(super) fn claims(root: &Node, problems: &mut Problems<'_>) {
    let mut reported = BTreeSet::new();
    let clients = root.tables("client");
    if clients.is_empty() {
        claims_of(root, &|_| true, "", &mut reported, problems);
    }
    for client in clients {
        let allowed = client.items("workflows").unwrap_or_default();
        let may = |name: &str| allowed.iter().any(|item| item.text == name);
        let whose = client.text("name").map(|name| format!(" for client {}", shown(name))).unwrap_or_default();
        claims_of(root, &may, &whose, &mut reported, problems);
    }
}

fn claims_of<'n>(
    root: &'n Node,
    may: &dyn Fn(&str) -> bool,
    whose: &str,
    reported: &mut BTreeSet<usize>,
    problems: &mut Problems<'_>,
) {
    let mut owners: BTreeMap<&'n str, &'n str> = BTreeMap::new();
    for (workflow, node) in root.named("workflow").filter(|(name, _)| may(name)) {
        let models: &[Item] = node.items("models").unwrap_or_default();
        for model in models {
            let owner = owners.entry(&model.text).or_insert(workflow);
            if *owner != workflow && reported.insert(model.at) {
                let message = format!("{} is claimed by workflow {}, too{whose}", shown(&model.text), shown(owner));
                problems.error(Code::ModelClaimedTwice, model.at, &node.key_of("models"), message);
            }
        }
    }
}

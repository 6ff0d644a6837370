//! `[[approval]]`.

use std::collections::BTreeSet;

use crate::ids::{RouteId, WorkflowId};

use super::super::node::Node;
use super::super::problem::{Code, Problems, shown};
use super::super::settings::{Approval, Purpose};
use super::{digest, provider, resolves, route};

/// All approvals that could be built.
pub(super) fn all(root: &Node, problems: &mut Problems<'_>) -> Vec<Approval> {
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    for node in root.tables("approval") {
        let mut resolved = true;
        for section in ["workflow", "route"] {
            if let Some(name) = node.text(section) {
                resolved &= resolves(root, section, name, node.at_of(section), &node.key_of(section), problems);
            }
        }
        let purpose = match node.text("purpose") {
            Some("planned") => Purpose::Planned,
            Some("failover") => Purpose::Failover,
            Some("cross_model") => Purpose::CrossModel,
            _ => continue,
        };
        let (Some(workflow), Some(route)) = (node.text("workflow"), node.text("route")) else { continue };
        if resolved {
            is_used(root, node, workflow, route, purpose, problems);
        }
        // One that is about to end is renewed by a second one beside it: any that is live is enough.
        let terms = (node.date("until"), node.text("network"), node.text("route_digest"));
        if !seen.insert((workflow, route, node.text("purpose"), terms)) {
            let message = "stands above with the same terms";
            problems.error(Code::Duplicate, node.at, &node.key, message);
        }
        all.push(Approval {
            workflow: WorkflowId::new(workflow),
            route: RouteId::new(route),
            purpose,
            until: route::end_of(node, "until"),
            network: provider::network(node),
            by: node.owned("by"),
            evidence: node.owned("evidence"),
            route_digest: digest(node, problems),
        });
    }
    all
}

fn is_used(root: &Node, node: &Node, workflow: &str, route: &str, purpose: Purpose, problems: &mut Problems<'_>) {
    let Some((_, table)) = root.named("workflow").find(|(name, _)| *name == workflow) else { return };
    let listed = |list: &str| table.items(list).unwrap_or_default().iter().any(|item| item.text == route);
    // The first member of a split is the primary, which needs no approval; the others also stand in for each other.
    let mut members = table.tables("primary").iter().map(|member| member.text("route") == Some(route));
    let (used, of) = match purpose {
        Purpose::Failover => (listed("equivalents") || members.any(|is| is), "`equivalents` or the split"),
        Purpose::CrossModel => (listed("alternates"), "`alternates`"),
        Purpose::Planned => (members.skip(1).any(|is| is), "the further members of a split"),
    };
    if !used {
        let message =
            format!("{} is not in {of} of workflow {}, so this approves nothing", shown(route), shown(workflow));
        problems.warning(Code::ApprovalUnused, node.at, &node.key, message);
    }
}

//! `primary = [{ route = "a", weight = 90 }, …]`: a planned split of a workflow's traffic.
//!
//! A split of one member is refused: its weight would mean nothing, and the plain name says the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::RouteId;

use super::super::node::Node;
use super::super::problem::{Code, Problems, shown};
use super::super::settings::Split;
use super::resolves;
use super::workflow::Routes;

/// Members of one split: far more than a rollout has stages.
const MEMBERS_MAX: usize = 32;

/// The members, in the order of the file; empty where `primary` is one route.
pub(super) fn members(root: &Node, node: &Node, routes: &Routes, problems: &mut Problems<'_>) -> Vec<Split> {
    let all = node.tables("primary");
    if node.is_tables("primary") && all.len() < 2 {
        let message = "a split has two members or more; of one, write the name alone";
        problems.error(Code::InvalidValue, node.at_of("primary"), &node.key_of("primary"), message);
    }
    if all.len() > MEMBERS_MAX {
        let message = format!("must have {MEMBERS_MAX} members at most");
        problems.error(Code::OutOfRange, node.at_of("primary"), &node.key_of("primary"), message);
    }
    let mut seen = BTreeSet::new();
    let mut members = Vec::new();
    for member in all {
        let Some(route) = member.text("route") else { continue };
        let (at, key) = (member.at_of("route"), member.key_of("route"));
        if !seen.insert(route) {
            problems.error(Code::Duplicate, at, &key, format!("{} stands here twice", shown(route)));
        }
        resolves(root, "route", route, at, &key, problems);
        let weight = member.opt_int("weight").and_then(|weight| u32::try_from(weight).ok());
        if let (Some(route), Some(weight)) = (routes.get(&RouteId::new(route)), weight) {
            members.push(Split { route: Arc::clone(route), weight });
        }
    }
    members
}

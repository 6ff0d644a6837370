//! Splits by weight, the order of seats, and the rules of the moment, from config texts.

use std::collections::BTreeMap;

use super::*;
use crate::config::settings::{Commit, Settings, Split};
use crate::config::testing::{TODAY, settings};
use crate::contract::Endpoint;
use crate::contract::headers::Asked;
use crate::gate::{AllOpen, Gate};
use crate::ids::{RouteId, WorkflowId};
use crate::plan::{NobodyKnown, Plan, plan};
use crate::protocol::Dialect;

/// What is closed, by route.
#[derive(Debug, Default)]
struct Shut(BTreeMap<&'static str, Closed>);

impl Gate for Shut {
    fn closed(&self, route: &RouteId, _: bool, _: Instant) -> Option<Closed> {
        self.0.get(route.as_str()).copied()
    }

    fn failover_off(&self, _: &WorkflowId) -> bool {
        false
    }
}

/// Routes `a` to `d` and an alternate `x`, all fit; `b` and `c` approved as `approvals` says.
fn config(workflow: &str, approvals: &[(&str, &str)]) -> Settings {
    let mut text = String::new();
    for (n, name) in ["a", "b", "c", "d", "x"].iter().enumerate() {
        text += &format!(
            "[provider.{name}]\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:{}/v1\"\n\
             [route.{name}]\nprovider = \"{name}\"\ncapabilities = [\"text\"]\nverified = {{ on = 2026-01-01 }}\n",
            n + 1
        );
    }
    text +=
        &format!("[workflow.w]\nprimary = \"a\"\nfailover = {{ enabled = true, cross_model = true }}\n{workflow}\n");
    for (route, purpose) in approvals {
        text += &format!("[[approval]]\nworkflow = \"w\"\nroute = \"{route}\"\npurpose = \"{purpose}\"\n");
    }
    settings(&text)
}

const BODY: &[u8] = br#"{"model":"m","messages":[]}"#;

fn planned(settings: &Settings, weights: &[(&str, u32)], gate: &dyn Gate, draw: u64, body: &'static [u8]) -> Plan {
    let workflow = settings.workflows.values().next().unwrap();
    let route = |name: &str| Arc::clone(&settings.routes[&RouteId::new(name)]);
    let splits = weights.iter().map(|(name, weight)| Split { route: route(name), weight: *weight }).collect();
    let workflow = WorkflowSettings {
        name: workflow.name.clone(),
        version: 1,
        models: Vec::new(),
        owner: None,
        primary: Arc::clone(&workflow.primary),
        splits,
        passthrough: Default::default(),
        equivalents: workflow.equivalents.clone(),
        alternates: workflow.alternates.clone(),
        commit: Commit::FirstVisible,
        reasoning_held: false,
        hold: workflow.hold,
        envelope: workflow.envelope,
        failover: workflow.failover,
        requires: workflow.requires.clone(),
    };
    let facts = Dialect::ChatCompletions.read_request(&bytes::Bytes::from_static(body)).unwrap();
    let contract = Contract::new(Endpoint::ChatCompletions, facts, workflow.envelope, &Asked::default());
    let world =
        World { approvals: &settings.approvals, gate, now: TODAY, at: Instant::now(), draw, issuers: &NobodyKnown };
    plan(&workflow, &contract, &world)
}

fn order(plan: &Plan) -> Vec<String> {
    plan.candidates.iter().map(|one| format!("{} {}", one.route.name, one.role.name())).collect()
}

fn refused(plan: &Plan) -> Vec<String> {
    let names = |reasons: &[Refusal]| reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    plan.refused.iter().map(|(route, reasons)| format!("{route}: {}", names(reasons))).collect()
}

const ALL: &[(&str, &str)] = &[
    ("b", "planned"),
    ("b", "failover"),
    ("c", "planned"),
    ("c", "failover"),
    ("d", "failover"),
    ("x", "cross_model"),
];
const OTHERS: &str = "equivalents = [\"d\"]\nalternates = [\"x\"]";

#[test]
fn shares_are_exact_over_all_draws() {
    let settings = config(OTHERS, ALL);
    let weights = [("a", 90), ("b", 7), ("c", 3)];
    let mut seen = BTreeMap::new();
    for draw in 0..100 {
        let plan = planned(&settings, &weights, &AllOpen, draw, BODY);
        *seen.entry(plan.candidates[0].route.name.to_string()).or_insert(0) += 1;
        // The same draw, the same choice; a draw beyond the sum wraps.
        let again = planned(&settings, &weights, &AllOpen, draw + 100 * 1_000_003, BODY);
        assert_eq!(order(&again), order(&plan));
    }
    assert_eq!(seen, BTreeMap::from([("a".to_owned(), 90), ("b".to_owned(), 7), ("c".to_owned(), 3)]));
}

#[test]
fn members_come_before_equivalents_and_these_before_alternates() {
    let settings = config(OTHERS, ALL);
    let weights = [("a", 1), ("b", 1), ("c", 1)];
    for (draw, expected) in [
        (0, ["a primary", "b planned", "c planned", "d equivalent", "x alternate"]),
        (1, ["b primary", "a planned", "c planned", "d equivalent", "x alternate"]),
        (2, ["c primary", "a planned", "b planned", "d equivalent", "x alternate"]),
    ] {
        assert_eq!(order(&planned(&settings, &weights, &AllOpen, draw, BODY)), expected);
    }
}

#[test]
fn a_share_needs_an_approval_and_standing_in_another() {
    let weights = [("a", 1), ("b", 1), ("c", 1)];
    // b may have a share and not stand in; c may stand in and has no share.
    let settings = config("", &[("b", "planned"), ("c", "failover")]);
    let plan = planned(&settings, &weights, &AllOpen, 0, BODY);
    assert_eq!(order(&plan), ["a primary", "c planned"]);
    assert_eq!(refused(&plan), ["b: approval_missing"]);
    let plan = planned(&settings, &weights, &AllOpen, 1, BODY);
    assert_eq!(order(&plan), ["b primary", "a planned", "c planned"]);
    assert_eq!(order(&planned(&settings, &weights, &AllOpen, 2, BODY))[0], "a primary", "c's share is the others'");
    let shares: Vec<_> = plan.split.iter().map(|member| (member.route.name.as_str(), member.why.len())).collect();
    assert_eq!(shares, [("a", 0), ("b", 0), ("c", 1)]);
    // The first member needs none for either.
    let plan = planned(&config("", &[]), &weights, &AllOpen, 2, BODY);
    assert_eq!(order(&plan), ["a primary"]);
    assert_eq!(refused(&plan), ["b: approval_missing", "c: approval_missing"]);
}

#[test]
fn a_share_goes_only_where_the_request_fits() {
    const IMAGE: &[u8] =
        br#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}"#;
    let settings = config("", &[("b", "planned"), ("b", "failover")]);
    for draw in 0..2 {
        let plan = planned(&settings, &[("a", 1), ("b", 1)], &AllOpen, draw, IMAGE);
        assert_eq!(order(&plan), ["a primary"], "what the first member does not list is not checked");
        assert_eq!(refused(&plan), ["b: capability:image"]);
    }
}

#[test]
fn a_killed_member_has_no_share_and_a_killed_primary_is_refused() {
    let settings = config(OTHERS, ALL);
    let gate = Shut(BTreeMap::from([("a", Closed::Killed)]));
    for draw in 0..9 {
        let plan = planned(&settings, &[("a", 8), ("b", 1)], &gate, draw, BODY);
        assert_eq!(order(&plan), ["b primary", "d equivalent", "x alternate"]);
        assert_eq!(refused(&plan), ["a: killed"]);
    }
    let plan = planned(&settings, &[], &gate, 0, BODY);
    assert_eq!(
        (order(&plan), refused(&plan)),
        (vec!["d equivalent".into(), "x alternate".into()], vec!["a: killed".into()])
    );
    assert!(plan.split.is_empty());
}

#[test]
fn what_is_closed_for_the_moment() {
    let until = Instant::now();
    let (killed, tripped, capacity, limit) =
        (Closed::Killed, Closed::Tripped { until }, Closed::Capacity, Closed::FailoverLimit);
    type Row = (
        &'static str,
        &'static [(&'static str, &'static str)],
        Vec<(&'static str, Closed)>,
        &'static [&'static str],
        &'static [&'static str],
    );
    let rows: Vec<Row> = vec![
        // A breaker moves traffic …
        (OTHERS, ALL, vec![("a", tripped)], &["d equivalent", "x alternate"], &["a: tripped"]),
        // … and does not refuse what has nowhere else to go; an alternate is no such place.
        ("", &[], vec![("a", tripped)], &["a primary"], &[]),
        ("alternates = [\"x\"]", ALL, vec![("a", tripped)], &["a primary", "x alternate"], &[]),
        ("equivalents = [\"d\"]", &[], vec![("a", tripped)], &["a primary"], &["d: approval_missing"]),
        ("equivalents = [\"d\"]", ALL, vec![("a", tripped), ("d", killed)], &["a primary"], &["d: killed"]),
        // There is somewhere to go, only not now: nobody is asked, the alternate neither.
        (
            OTHERS,
            ALL,
            vec![("a", tripped), ("d", limit)],
            &[],
            &["a: tripped", "d: failover_limit", "x: class_blocked"],
        ),
        (OTHERS, ALL, vec![("a", tripped), ("d", tripped)], &[], &["a: tripped", "d: tripped", "x: class_blocked"]),
        (OTHERS, ALL, vec![("a", capacity)], &["d equivalent", "x alternate"], &["a: capacity"]),
        ("", &[], vec![("a", capacity)], &[], &["a: capacity"]),
        (OTHERS, ALL, vec![("d", tripped)], &["a primary", "x alternate"], &["d: tripped"]),
        // Killed by hand: the other model stands in, where that is approved.
        ("alternates = [\"x\"]", ALL, vec![("a", killed)], &["x alternate"], &["a: killed"]),
        ("", &[], vec![("a", killed)], &[], &["a: killed"]),
        (OTHERS, ALL, vec![("a", killed), ("d", limit)], &[], &["a: killed", "d: failover_limit", "x: class_blocked"]),
    ];
    for (workflow, approvals, shut, candidates, reasons) in rows {
        let what = format!("{workflow} {shut:?}");
        let for_now = candidates.is_empty() && shut.iter().any(|(_, closed)| *closed != killed);
        let gate = Shut(shut.into_iter().collect());
        let plan = planned(&config(workflow, approvals), &[], &gate, 0, BODY);
        assert_eq!(order(&plan), candidates, "{what}");
        assert_eq!(refused(&plan), reasons, "{what}");
        assert_eq!(plan.is_closed_for_now(), for_now, "{what}");
        let is_refused_as_tripped = reasons.iter().any(|reason| reason.contains("tripped"));
        assert_eq!(plan.ready_at, is_refused_as_tripped.then_some(until), "{what}");
    }
}

//! One row a refusal: a configuration in which exactly that reason stands against the route, and the smallest change that
//! takes it away. Read from config texts, so that a row is what somebody would write.

use std::collections::BTreeSet;

use super::*;
use crate::clock::Instant;
use crate::config::testing::{TODAY, settings};
use crate::contract::Endpoint;
use crate::contract::headers::Asked;
use crate::gate::{AllOpen, Closed, Gate};
use crate::ids::{RouteId, WorkflowId};
use crate::plan::refusal::{NAMES, When};
use crate::plan::{NobodyKnown, Plan, World, digest, plan};
use crate::protocol::Dialect;

/// SPEC Annex, Routing: "Names of refusals are a closed, documented list". `capability` and `pinned` stand for their families.
const SPEC_NAMES: [&str; 28] = [
    "approval_missing",
    "approval_expired",
    "verification_missing",
    "verification_expired",
    "region",
    "network",
    "data_class",
    "legal_entity",
    "dialect",
    "capability",
    "context_too_large",
    "pinned",
    "killed",
    "tripped",
    "capacity",
    "failover_limit",
    "cost",
    "time",
    "failover_disabled",
    "cross_model_disabled",
    "class_blocked",
    "side_effects",
    "approval_stale",
    "verification_stale",
    "model_class",
    "safety_profile",
    "language",
    "schema",
];

/// Every refusal. The match makes a new one a compile error here.
fn all() -> Vec<Refusal> {
    use Refusal::*;
    let all = vec![
        FailoverDisabled,
        CrossModelDisabled,
        ApprovalMissing,
        ApprovalExpired,
        ApprovalStale,
        VerificationMissing,
        VerificationExpired,
        VerificationStale,
        Region,
        Network,
        DataClass,
        LegalEntity,
        ModelClass,
        SafetyProfile,
        Language,
        Schema,
        Dialect,
        Capability("tools".to_owned()),
        ContextTooLarge,
        Pinned("signature"),
        Killed,
        Tripped,
        Capacity,
        FailoverLimit,
        ClassBlocked,
        SideEffects,
        Time,
        Cost,
    ];
    for refusal in &all {
        match refusal {
            FailoverDisabled | CrossModelDisabled | ApprovalMissing | ApprovalExpired | VerificationMissing
            | VerificationExpired | Region | Network | DataClass | LegalEntity | ModelClass | Dialect
            | Capability(_) | ContextTooLarge | Pinned(_) | ApprovalStale | VerificationStale | SafetyProfile
            | Language | Schema | Killed | Tripped | Capacity | FailoverLimit | Cost | Time | ClassBlocked
            | SideEffects => {}
        }
    }
    all
}

#[test]
fn code_list_and_spec_have_the_same_names() {
    let names: Vec<&str> = all().iter().map(Refusal::family).collect();
    let listed: Vec<&str> = NAMES.iter().map(|entry| entry.name).collect();
    assert_eq!(names, listed, "the enum, in its order, is the list");
    let sorted: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(sorted, SPEC_NAMES.into_iter().collect());
    assert_eq!(sorted.len(), NAMES.len(), "two refusals share a name");
    for refusal in all() {
        let shown = refusal.to_string();
        assert_eq!(shown.contains(':'), matches!(refusal.family(), "capability" | "pinned"), "{shown}");
        assert_eq!(refusal.entry().name, refusal.family());
    }
}

/// Parts of the config that a row replaces.
#[derive(Clone)]
struct Parts {
    provider: &'static str,
    route: &'static str,
    verified: &'static str,
    failover: &'static str,
    requires: &'static str,
    approval: &'static str,
    body: &'static str,
    betas: &'static [&'static str],
}

/// An equivalent `b` that nothing stands against.
const FINE: Parts = Parts {
    provider: "",
    route: "capabilities = [\"text\"]",
    verified: "{ on = 2026-01-01 }",
    failover: "enabled = true",
    requires: "",
    approval: "purpose = \"failover\"",
    body: r#"{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}"#,
    betas: &[],
};

/// Says one thing of route `b`, or that failover is off.
#[derive(Debug)]
struct Moment(Option<Closed>, bool);

impl Gate for Moment {
    fn closed(&self, route: &RouteId, _: bool, _: Instant) -> Option<Closed> {
        self.0.filter(|_| route.as_str() == "b")
    }

    fn failover_off(&self, _: &WorkflowId) -> bool {
        self.1
    }
}

fn world(approvals: &[Approval]) -> World<'_> {
    World { approvals, gate: &AllOpen, now: TODAY, at: Instant::now(), draw: 0, issuers: &NobodyKnown }
}

/// The plan; `older` are approvals beside the one of `parts` (a file may hold one of a kind; the predicate does not rely on it).
fn plan_of(parts: &Parts, alternate: bool, older: &[Approval]) -> Plan {
    plan_at(parts, alternate, older, &AllOpen)
}

fn plan_at(parts: &Parts, alternate: bool, older: &[Approval], gate: &dyn Gate) -> Plan {
    let list = if alternate { "alternates" } else { "equivalents" };
    let verified = if parts.verified.is_empty() { String::new() } else { format!("verified = {}", parts.verified) };
    let text = format!(
        "[provider.p]\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         [provider.q]\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:2/v1\"\n{}\n\
         [route.a]\nprovider = \"p\"\n[route.b]\nprovider = \"q\"\n{}\n{verified}\n\
         [workflow.w]\nprimary = \"a\"\n{list} = [\"b\"]\nfailover = {{ {} }}\nrequires = {{ {} }}\n{}",
        parts.provider,
        parts.route,
        parts.failover,
        parts.requires,
        if parts.approval.is_empty() {
            String::new()
        } else {
            format!("[[approval]]\nworkflow = \"w\"\nroute = \"b\"\n{}\n", parts.approval)
        },
    );
    let current = digest::route_digest(&settings(&text).routes[&RouteId::new("b")]);
    let settings = settings(&text.replace("rd1:ffffffffffffffffffffffffffffffff", &current));
    let workflow = settings.workflows.values().next().unwrap();
    let body = bytes::Bytes::from_static(parts.body.as_bytes());
    let facts = Dialect::ChatCompletions.read_request(&body).unwrap();
    let asked = Asked { betas: parts.betas.iter().map(|&beta| beta.to_owned()).collect(), ..Asked::default() };
    let contract = Contract::new(Endpoint::ChatCompletions, facts, workflow.envelope, &asked);
    let approvals: Vec<Approval> = older.iter().chain(&settings.approvals).cloned().collect();
    plan(workflow, &contract, &World { gate, ..world(&approvals) })
}

fn reasons(parts: &Parts, alternate: bool) -> Vec<String> {
    let plan = plan_of(parts, alternate, &[]);
    assert_eq!(plan.candidates[0].route.name.as_str(), "a", "the primary needs nothing of all this");
    match plan.refused.as_slice() {
        [] => {
            assert_eq!(plan.candidates.len(), 2);
            let role = if alternate { Role::Alternate } else { Role::Equivalent };
            assert_eq!((plan.candidates[1].route.name.as_str(), plan.candidates[1].role), ("b", role));
            Vec::new()
        }
        [(route, reasons)] => {
            assert_eq!((route.as_str(), plan.candidates.len()), ("b", 1));
            reasons.iter().map(ToString::to_string).collect()
        }
        more => panic!("{more:?}"),
    }
}

const IMAGE: &str = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}"#;
const TOOLS: &str =
    r#"{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]}"#;
const SCHEMA: &str =
    r#"{"model":"m","messages":[],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{}}}}"#;
const SEARCH: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"web_search_options":{}}"#;
const LONG: &str = r#"{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hi"}]}"#;
const FILE: &str =
    r#"{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"file-1"}}]}]}"#;

/// `rd1:ffffffffffffffffffffffffffffffff` stands for the digest of route `b` as the row configures it.
const DIGEST_APPROVED: &str = "purpose = \"failover\"\nroute_digest = \"rd1:ffffffffffffffffffffffffffffffff\"";
const DIGEST_VERIFIED: &str = "{ on = 2026-01-01, route_digest = \"rd1:ffffffffffffffffffffffffffffffff\" }";

#[test]
fn one_row_a_refusal() {
    let fine = || FINE;
    // (name, alternate, refused, eligible): `None`: everything as in FINE is eligible.
    let rows: Vec<(&str, bool, Parts, Option<Parts>)> = vec![
        ("failover_disabled", false, Parts { failover: "", ..fine() }, None),
        ("failover_disabled", false, Parts { failover: "enabled = false", ..fine() }, None),
        ("failover_disabled", false, Parts { failover: "enabled = true, equivalent = false", ..fine() }, None),
        (
            "failover_disabled",
            true,
            Parts { failover: "cross_model = true", approval: "purpose = \"cross_model\"", ..fine() },
            Some(Parts {
                failover: "enabled = true, cross_model = true",
                approval: "purpose = \"cross_model\"",
                ..fine()
            }),
        ),
        (
            "cross_model_disabled",
            true,
            Parts { approval: "purpose = \"cross_model\"", ..fine() },
            Some(Parts {
                failover: "enabled = true, cross_model = true, equivalent = false",
                approval: "purpose = \"cross_model\"",
                ..fine()
            }),
        ),
        ("approval_missing", false, Parts { approval: "", ..fine() }, None),
        ("approval_missing", false, Parts { approval: "purpose = \"cross_model\"", ..fine() }, None),
        (
            "approval_missing",
            true,
            Parts { failover: "enabled = true, cross_model = true", ..fine() },
            Some(Parts {
                failover: "enabled = true, cross_model = true",
                approval: "purpose = \"cross_model\"",
                ..fine()
            }),
        ),
        (
            "approval_expired",
            false,
            Parts { approval: "purpose = \"failover\"\nuntil = 2026-06-14", ..fine() },
            // Through the whole of its last day.
            Some(Parts { approval: "purpose = \"failover\"\nuntil = 2026-06-15", ..fine() }),
        ),
        (
            "approval_stale",
            false,
            Parts {
                approval: "purpose = \"failover\"\nroute_digest = \"rd1:00000000000000000000000000000000\"",
                ..fine()
            },
            Some(Parts { approval: DIGEST_APPROVED, ..fine() }),
        ),
        ("verification_missing", false, Parts { verified: "", ..fine() }, None),
        (
            "verification_stale",
            false,
            Parts {
                verified: "{ on = 2026-01-01, route_digest = \"rd1:00000000000000000000000000000000\" }",
                ..fine()
            },
            Some(Parts { verified: DIGEST_VERIFIED, ..fine() }),
        ),
        (
            "safety_profile",
            false,
            Parts {
                requires: "safety_profile = \"strict\"",
                route: "capabilities = [\"text\"]\nsafety_profile = \"lax\"",
                ..fine()
            },
            Some(Parts {
                requires: "safety_profile = \"strict\"",
                route: "capabilities = [\"text\"]\nsafety_profile = \"strict\"",
                ..fine()
            }),
        ),
        ("safety_profile", false, Parts { requires: "safety_profile = \"strict\"", ..fine() }, None),
        (
            "language",
            false,
            Parts {
                requires: "languages = [\"nl\", \"de\"]",
                route: "capabilities = [\"text\"]\nlanguages = [\"nl\"]",
                ..fine()
            },
            Some(Parts {
                requires: "languages = [\"nl\", \"de\"]",
                route: "capabilities = [\"text\"]\nlanguages = [\"de\", \"nl\", \"fr\"]",
                ..fine()
            }),
        ),
        (
            "schema",
            false,
            Parts { requires: "schemas = [\"order-v2\"]", ..fine() },
            Some(Parts {
                requires: "schemas = [\"order-v2\"]",
                route: "capabilities = [\"text\"]\nschemas = [\"order-v2\"]",
                ..fine()
            }),
        ),
        (
            "verification_expired",
            false,
            Parts { verified: "{ on = 2026-01-01, until = 2026-06-14 }", ..fine() },
            Some(Parts { verified: "{ on = 2026-01-01, until = 2026-06-15 }", ..fine() }),
        ),
        (
            "region",
            false,
            Parts {
                requires: "regions = [\"eu\", \"ch\"]",
                route: "capabilities = [\"text\"]\nregion = \"us\"",
                ..fine()
            },
            Some(Parts {
                requires: "regions = [\"eu\", \"ch\"]",
                route: "capabilities = [\"text\"]\nregion = \"ch\"",
                ..fine()
            }),
        ),
        ("region", false, Parts { requires: "regions = [\"eu\"]", ..fine() }, None),
        (
            "network",
            false,
            Parts { requires: "network = \"private\"", ..fine() },
            Some(Parts { requires: "network = \"private\"", provider: "network = \"private\"", ..fine() }),
        ),
        (
            "network",
            false,
            Parts { provider: "network = \"public\"", ..fine() },
            Some(Parts {
                provider: "network = \"public\"",
                approval: "purpose = \"failover\"\nnetwork = \"public\"",
                ..fine()
            }),
        ),
        (
            "data_class",
            false,
            Parts { requires: "data_class = \"pii\"", provider: "data_classes = [\"public\"]", ..fine() },
            Some(Parts {
                requires: "data_class = \"pii\"",
                provider: "data_classes = [\"public\", \"pii\"]",
                ..fine()
            }),
        ),
        ("data_class", false, Parts { requires: "data_class = \"pii\"", ..fine() }, None),
        (
            "legal_entity",
            false,
            Parts { requires: "legal_entities = [\"Example BV\"]", provider: "legal_entity = \"Other Inc\"", ..fine() },
            Some(Parts {
                requires: "legal_entities = [\"Example BV\"]",
                provider: "legal_entity = \"Example BV\"",
                ..fine()
            }),
        ),
        (
            "model_class",
            false,
            Parts { requires: "model_classes = [\"frontier\"]", ..fine() },
            Some(Parts {
                requires: "model_classes = [\"frontier\"]",
                route: "capabilities = [\"text\"]\nmodel_class = \"frontier\"",
                ..fine()
            }),
        ),
        (
            "dialect",
            false,
            Parts { route: "capabilities = [\"text\"]\ndialects = [\"anthropic-messages\"]", ..fine() },
            None,
        ),
        (
            "capability:vision_of_the_workflow",
            false,
            Parts { requires: "capabilities = [\"vision_of_the_workflow\"]", ..fine() },
            Some(Parts {
                requires: "capabilities = [\"vision_of_the_workflow\"]",
                route: "capabilities = [\"text\", \"vision_of_the_workflow\"]",
                ..fine()
            }),
        ),
        // A failover route must state what it can do.
        ("capability:text", false, Parts { route: "", ..fine() }, None),
        (
            "capability:image",
            false,
            Parts { body: IMAGE, ..fine() },
            Some(Parts { body: IMAGE, route: "capabilities = [\"text\", \"image\"]", ..fine() }),
        ),
        (
            "capability:json_schema",
            false,
            Parts { body: SCHEMA, ..fine() },
            Some(Parts { body: SCHEMA, route: "capabilities = [\"text\", \"json_schema\"]", ..fine() }),
        ),
        (
            "capability:tools",
            false,
            Parts { body: TOOLS, ..fine() },
            Some(Parts { body: TOOLS, route: "capabilities = [\"text\", \"tools\"]", ..fine() }),
        ),
        (
            "capability:web_search",
            false,
            Parts { body: SEARCH, ..fine() },
            Some(Parts { body: SEARCH, route: "capabilities = [\"text\", \"web_search\"]", ..fine() }),
        ),
        (
            "capability:beta:x-2026",
            false,
            Parts { betas: &["x-2026"], ..fine() },
            Some(Parts { betas: &["x-2026"], route: "capabilities = [\"text\", \"beta:x-2026\"]", ..fine() }),
        ),
        (
            "context_too_large",
            false,
            Parts { body: LONG, route: "capabilities = [\"text\"]\ncontext_tokens = 99", ..fine() },
            Some(Parts { body: LONG, route: "capabilities = [\"text\"]\ncontext_tokens = 101", ..fine() }),
        ),
        (
            "context_too_large",
            false,
            Parts { requires: "min_context_tokens = 1000", ..fine() },
            Some(Parts {
                requires: "min_context_tokens = 1000",
                route: "capabilities = [\"text\"]\ncontext_tokens = 1000",
                ..fine()
            }),
        ),
        (
            "pinned:file_id",
            false,
            Parts { body: FILE, route: "capabilities = [\"text\", \"file\"]", ..fine() },
            // The same account under another provider's name holds the same state.
            Some(Parts {
                body: FILE,
                route: "capabilities = [\"text\", \"file\"]",
                provider: "account = \"p\"",
                ..fine()
            }),
        ),
    ];
    let mut seen = BTreeSet::new();
    for (name, alternate, refused, eligible) in rows {
        assert_eq!(reasons(&refused, alternate), [name], "exactly this reason");
        let eligible = eligible.unwrap_or(FINE);
        assert_eq!(reasons(&eligible, alternate), [""; 0], "{name}: and nothing once it is taken away");
        seen.insert(name.split(':').next().unwrap().to_owned());
    }
    // Those of the moment have their test below, those of a failure in `attempt::left_out`.
    let of_rows = NAMES.iter().filter(|entry| matches!(entry.when, When::Config | When::Request));
    let families = of_rows.map(|entry| entry.name.to_owned()).collect();
    assert_eq!(seen, families, "a refusal without a row");
}

#[test]
fn one_row_a_reason_of_the_moment() {
    let until = Instant::now();
    for (moment, name) in [
        (Moment(Some(Closed::Killed), false), "killed"),
        (Moment(Some(Closed::Tripped { until }), false), "tripped"),
        (Moment(Some(Closed::Capacity), false), "capacity"),
        (Moment(Some(Closed::FailoverLimit), false), "failover_limit"),
        (Moment(None, true), "failover_disabled"),
    ] {
        let plan = plan_at(&FINE, false, &[], &moment);
        let (route, reasons) = &plan.refused[0];
        assert_eq!((route.as_str(), reasons.len(), reasons[0].to_string().as_str()), ("b", 1, name));
        assert_eq!(plan.candidates.len(), 1, "{name}");
    }
}

#[test]
fn of_several_approvals_one_that_fits_is_enough() {
    let stale =
        Parts { approval: "purpose = \"failover\"\nroute_digest = \"rd1:00000000000000000000000000000000\"", ..FINE };
    assert_eq!(reasons(&stale, false), ["approval_stale"]);
    let route = plan_of(&FINE, false, &[]).candidates[1].route.clone();
    let good = Approval {
        workflow: WorkflowId::new("w"),
        route: RouteId::new("b"),
        purpose: Purpose::Failover,
        until: None,
        network: None,
        by: None,
        evidence: None,
        route_digest: Some(digest::route_digest(&route)),
    };
    assert_eq!(plan_of(&stale, false, std::slice::from_ref(&good)).refused, []);
    // Expired and of another route: it is the live one that tells the reason.
    let expired = Approval { until: Some(UnixMillis(1)), ..good };
    assert_eq!(plan_of(&stale, false, &[expired]).refused[0].1, [Refusal::ApprovalStale]);
}

#[test]
fn a_route_without_a_model_cannot_serve_a_request_without_one() {
    let body = r#"{"max_tokens":10,"messages":[{"role":"user","content":"hi"}]}"#;
    let plan = plan_of(&Parts { body, ..FINE }, false, &[]);
    let refused: Vec<_> = plan.refused.iter().map(|(route, why)| (route.as_str(), why[0].to_string())).collect();
    assert_eq!(refused, [("a", "capability:model".to_owned()), ("b", "capability:model".to_owned())]);
    let named = Parts { body, route: "capabilities = [\"text\"]\nmodel = \"m\"", ..FINE };
    assert_eq!(plan_of(&named, false, &[]).candidates[0].role, Role::Equivalent);
}

#[test]
fn all_reasons_are_told_and_not_only_the_first() {
    let parts = Parts {
        failover: "",
        approval: "",
        verified: "",
        requires: "regions = [\"eu\"], data_class = \"pii\"",
        route: "",
        body: IMAGE,
        ..FINE
    };
    let expected =
        ["failover_disabled", "approval_missing", "verification_missing", "region", "data_class", "capability:image"];
    let found = reasons(&parts, false);
    for reason in expected {
        assert!(found.iter().any(|found| found == reason), "{reason}: {found:?}");
    }
}

#[test]
fn one_live_approval_of_several_is_enough_and_each_is_for_its_own_route_and_workflow() {
    let expired = Approval {
        workflow: crate::ids::WorkflowId::new("w"),
        route: crate::ids::RouteId::new("b"),
        purpose: Purpose::Failover,
        until: Some(UnixMillis(1)),
        network: Some(Network::Public),
        by: None,
        evidence: None,
        route_digest: None,
    };
    let refused = |older: Approval, parts: &Parts| plan_of(parts, false, &[older]).refused;
    assert_eq!(refused(expired.clone(), &FINE), []);
    // The live one does not say `public`; the one that does has expired.
    let public = Parts { provider: "network = \"public\"", ..FINE };
    assert_eq!(refused(expired.clone(), &public)[0].1, [Refusal::Network]);
    assert_eq!(refused(Approval { until: None, ..expired.clone() }, &public), []);
    // Of others it proves nothing.
    let none = Parts { approval: "", ..FINE };
    let live = Approval { until: None, ..expired };
    let other_route = Approval { route: crate::ids::RouteId::new("c"), ..live.clone() };
    let other_workflow = Approval { workflow: crate::ids::WorkflowId::new("v"), ..live };
    for other in [other_route, other_workflow] {
        assert_eq!(refused(other, &none)[0].1, [Refusal::ApprovalMissing]);
    }
}

#[test]
fn candidates_come_in_the_order_of_the_config_equivalents_first() {
    let mut text = String::from("[workflow.w]\nprimary = \"a\"\nequivalents = [\"c\", \"b\"]\nalternates = [\"x\"]\n");
    text += "failover = { enabled = true, cross_model = true }\n";
    for (n, name) in ["a", "b", "c", "x"].iter().enumerate() {
        let purpose = if *name == "x" { "cross_model" } else { "failover" };
        text += &format!(
            "[provider.{name}]\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:{}/v1\"\n\
             [route.{name}]\nprovider = \"{name}\"\ncapabilities = [\"text\"]\nverified = {{ on = 2026-01-01 }}\n",
            n + 1
        );
        if *name != "a" {
            text += &format!("[[approval]]\nworkflow = \"w\"\nroute = \"{name}\"\npurpose = \"{purpose}\"\n");
        }
    }
    let settings = settings(&text);
    let workflow = settings.workflows.values().next().unwrap();
    let facts = Dialect::ChatCompletions.read_request(&bytes::Bytes::from_static(FINE.body.as_bytes())).unwrap();
    let contract = Contract::new(Endpoint::ChatCompletions, facts, workflow.envelope, &Asked::default());
    let plan = plan(workflow, &contract, &world(&settings.approvals));
    let order: Vec<_> = plan.candidates.iter().map(|c| (c.route.name.as_str(), c.role)).collect();
    assert_eq!(order, [("a", Role::Primary), ("c", Role::Equivalent), ("b", Role::Equivalent), ("x", Role::Alternate)]);
}

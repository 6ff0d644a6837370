//! One row a class and one a reason: status, words, and where a retry makes sense.

use serde_json::{Value, json};

use super::*;
use crate::ids::RouteId;
use crate::plan::Refusal;

const CLASSES: [Class; 15] = [
    Class::TransportTransient,
    Class::RateLimited,
    Class::ProviderOverloaded,
    Class::ProviderServerError,
    Class::ModelUnavailable,
    Class::ContractFailure,
    Class::QuotaExhausted,
    Class::Ambiguous429,
    Class::AuthenticationOrPermission,
    Class::InvalidRequest,
    Class::Refusal,
    Class::DeadlineExhausted,
    Class::PartialOutput,
    Class::SideEffectUncertain,
    Class::Unclassified,
];

fn facts<'a>(operation: &'a OperationId, plan: Option<&'a Plan>) -> Facts<'a> {
    Facts { operation, attempts: 2, exhausted_status: 424, plan, left_out: &[] }
}

fn verdict(class: Class, status: u16) -> Verdict {
    Verdict {
        class,
        may_have_run: false,
        retry_after: Some(Duration::from_millis(1500)),
        provider_status: Some(status),
        said: Said {
            kind: Some("their_type".to_owned()),
            code: Some(json!(17)),
            message: Some("their message".to_owned()),
            param: Some(json!("their.param")),
        },
        alarm: false,
    }
}

#[test]
fn names_are_those_of_the_member_class() {
    for class in CLASSES {
        assert_eq!(serde_json::to_value(class).unwrap(), class.name());
    }
}

#[test]
fn every_class_that_showed_nothing() {
    let operation = OperationId::new("op_1");
    for class in CLASSES {
        let failure = refused(&facts(&operation, None), Stop::Blocked, class, Some(&verdict(class, 403)));
        let rubicon = serde_json::to_value(&failure.rubicon).unwrap();
        assert_eq!((&rubicon["class"], &rubicon["attempts"]), (&json!(class.name()), &json!(2)));
        assert_eq!((&rubicon["operation_id"], &rubicon["provider_status"]), (&json!("op_1"), &json!(403)));
        assert_eq!(rubicon["provider_error"], json!({ "type": "their_type", "code": "17" }));
        assert_eq!(rubicon["reason"], class.name());
        if matches!(class, Class::InvalidRequest | Class::Refusal) {
            assert_eq!((failure.status, failure.message.as_str()), (403, "their message"), "{class:?}");
            assert_eq!((failure.code, failure.param), (Some(json!(17)), Some(json!("their.param"))));
            assert_eq!((failure.kind.as_deref(), &rubicon["status"]), (Some("their_type"), &json!("rejected")));
        } else {
            // Their words stay inside, only names of types and codes come out.
            assert_eq!((failure.status, failure.kind, failure.param), (424, None, None), "{class:?}");
            assert_eq!((failure.code, &rubicon["status"]), (Some(json!(class.name())), &json!("unavailable")));
            assert!(!failure.message.contains("their message"), "{}", failure.message);
        }
        let worth = matches!(
            class,
            Class::TransportTransient
                | Class::RateLimited
                | Class::ProviderOverloaded
                | Class::ProviderServerError
                | Class::ModelUnavailable
                | Class::DeadlineExhausted
        );
        assert_eq!(rubicon["retryable"], worth, "{class:?}");
        assert_eq!(rubicon.get("retry_after_ms"), worth.then_some(&json!(1500)), "{class:?}");
        let uncertain = class == Class::SideEffectUncertain;
        assert_eq!(rubicon.get("actions"), uncertain.then_some(&json!(["reconcile"])));
        assert_eq!(rubicon.get("unresolved_executions"), uncertain.then_some(&json!(1)));
    }
}

#[test]
fn every_reason() {
    let operation = OperationId::new("op_1");
    for (stop, reason) in [
        (Stop::Blocked, "provider_overloaded"),
        (Stop::NoEligibleFallback, "no_eligible_fallback"),
        (Stop::AttemptsExhausted, "attempts_exhausted"),
        (Stop::DeadlineExhausted, "deadline_exhausted"),
        (Stop::AddedLatencyExhausted, "added_latency_exhausted"),
        (Stop::CostExhausted, "cost_exhausted"),
        (Stop::RetryBudgetExhausted, "retry_budget_exhausted"),
        (Stop::SideEffectUncertain, "side_effect_uncertain"),
    ] {
        let failure = refused(&facts(&operation, None), stop, Class::ProviderOverloaded, None);
        assert_eq!((failure.rubicon.reason.as_str(), failure.code), (reason, Some(json!(reason))));
        assert_eq!(failure.rubicon.retryable, stop != Stop::SideEffectUncertain);
    }
}

#[test]
fn statuses_of_rejections_are_never_ones_that_sdks_retry() {
    let operation = OperationId::new("op_1");
    for (theirs, ours) in [
        (400, 400),
        (404, 404),
        (413, 413),
        (422, 422),
        (451, 451),
        (408, 400),
        (409, 400),
        (425, 400),
        (429, 400),
        (200, 400),
        (500, 400),
        (302, 400),
    ] {
        let verdict = verdict(Class::InvalidRequest, theirs);
        let failure = refused(&facts(&operation, None), Stop::Blocked, Class::InvalidRequest, Some(&verdict));
        assert_eq!((failure.status, failure.rubicon.provider_status), (ours, Some(theirs)));
    }
    let wordless = Verdict { said: Said::default(), ..verdict(Class::Refusal, 400) };
    let failure = refused(&facts(&operation, None), Stop::Blocked, Class::Refusal, Some(&wordless));
    assert_eq!((failure.message.as_str(), failure.rubicon.provider_error), ("The provider refused the request.", None));
}

#[test]
fn refusals_are_told_one_a_reason_where_they_may_be_seen() {
    let operation = OperationId::new("op_1");
    let plan = Plan {
        candidates: Vec::new(),
        refused: vec![
            (RouteId::new("b"), vec![Refusal::ApprovalExpired, Refusal::Capability("tools".into())]),
            (RouteId::new("c"), vec![Refusal::Pinned("signature")]),
        ],
        ..Plan::default()
    };
    let failure = refused(&facts(&operation, Some(&plan)), Stop::NoEligibleFallback, Class::ProviderOverloaded, None);
    assert_eq!(
        serde_json::to_value(&failure.rubicon).unwrap()["refused"],
        json!([
            { "route": "b", "why": "approval_expired" },
            { "route": "b", "why": "capability:tools" },
            { "route": "c", "why": "pinned:signature" }
        ])
    );
    let interruption = Interruption { after: 1, acted: false, what: "x", verdict: None };
    assert!(interrupted(&facts(&operation, Some(&plan)), &interruption).rubicon.refused.is_empty());
}

#[test]
fn interruptions() {
    let operation = OperationId::new("op_1");
    for (acted, class, action, unresolved) in
        [(false, "partial_output", "restart", 0), (true, "side_effect_uncertain", "reconcile", 1)]
    {
        for said in [false, true] {
            let verdict = verdict(Class::ProviderOverloaded, 200);
            let interruption =
                Interruption { after: 57, acted, what: "the line broke", verdict: said.then_some(&verdict) };
            let failure = interrupted(&facts(&operation, None), &interruption);
            let rubicon = serde_json::to_value(&failure.rubicon).unwrap();
            assert_eq!((&rubicon["class"], &rubicon["reason"]), (&json!(class), &json!(class)));
            assert_eq!((&rubicon["status"], &rubicon["after"]), (&json!("interrupted"), &json!(57)));
            assert_eq!(
                (&rubicon["actions"], &rubicon["unresolved_executions"]),
                (&json!([action]), &json!(unresolved))
            );
            assert_eq!((&rubicon["retryable"], rubicon.get("retry_after_ms")), (&json!(false), None));
            assert_eq!(
                failure.code,
                Some(json!("rubicon_interrupted")),
                "never a code that a client acts on by itself"
            );
            assert!(failure.message.contains(if said { "their message" } else { "the line broke." }));
            let error = if said { json!({ "type": "their_type", "code": "17" }) } else { Value::Null };
            assert_eq!(rubicon.get("provider_error").cloned().unwrap_or_default(), error);
        }
    }
}

#[test]
fn stopped_by_somebody_or_by_the_shutdown() {
    let operation = OperationId::new("op_1");
    for (by_shutdown, after, http, status, code, retryable) in [
        (false, None, 409, "stopped", "stopped", false),
        (false, Some(3), 409, "stopped", "stopped", false),
        (true, None, 503, "unavailable", "shutting_down", true),
        (true, Some(3), 503, "interrupted", "shutting_down", false),
    ] {
        let failure = stopped(&facts(&operation, None), by_shutdown, after, false);
        let rubicon = serde_json::to_value(&failure.rubicon).unwrap();
        assert_eq!((failure.status, failure.code), (http, Some(json!(code))));
        assert_eq!((&rubicon["status"], &rubicon["retryable"]), (&json!(status), &json!(retryable)));
        assert_eq!(rubicon.get("after"), after.map(|n| json!(n)).as_ref());
        assert_eq!(rubicon.get("actions"), after.map(|_| json!(["restart"])).as_ref());

        // A 503 would be sent again by every SDK.
        let failure = stopped(&facts(&operation, None), by_shutdown, after, true);
        assert_eq!(failure.status, if by_shutdown { 424 } else { 409 });
        let rubicon = serde_json::to_value(&failure.rubicon).unwrap();
        assert_eq!((&rubicon["actions"], &rubicon["retryable"]), (&json!(["reconcile"]), &json!(false)));
        assert_eq!(
            (&rubicon["class"], &rubicon["unresolved_executions"]),
            (&json!("side_effect_uncertain"), &json!(1))
        );
    }
}

#[test]
fn the_relays_own_refusals() {
    for (status, kind, wait) in [
        (400, "rejected", None),
        (401, "rejected", None),
        (413, "rejected", None),
        (501, "unavailable", None),
        (429, "unavailable", Some(1000)),
        (503, "unavailable", Some(1000)),
    ] {
        let failure = own(status, "some_code", "Because.".to_owned(), None);
        let rubicon = serde_json::to_value(&failure.rubicon).unwrap();
        assert_eq!((failure.status, failure.code), (status, Some(json!("some_code"))));
        assert_eq!((&rubicon["status"], &rubicon["attempts"]), (&json!(kind), &json!(0)), "{status}");
        assert_eq!(rubicon["retryable"], wait.is_some(), "{status}");
        assert_eq!(rubicon.get("retry_after_ms"), wait.map(|ms| json!(ms)).as_ref(), "{status}");
    }
}

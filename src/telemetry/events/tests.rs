//! What lines look like; every field of `names.rs` is there and no other.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::names::{self, Field};
use super::*;

fn attempt() -> AttemptEvent {
    sample()
}

pub(crate) fn sample() -> AttemptEvent {
    AttemptEvent {
        event: "attempt",
        time: Time(UnixMillis(1_781_524_800_123)),
        whose: Whose::default(),
        attempt: 1,
        kind: Kind::First,
        route: RouteId::new("a"),
        provider: ProviderId::new("p"),
        sent_model: None,
        served_model: None,
        result: AttemptResult::Failed,
        class: Some(Class::RateLimited),
        status: Some(429),
        duration_ms: 1,
        hold_ms: None,
        first_output_ms: None,
        tokens: Tokens::default(),
        cost_usd: None,
        cost_estimated: false,
        circuit: "healthy",
        limit_dimension: Some(LimitDimension::Tokens),
        retry_after_ms: None,
        success: Success::of(AttemptResult::Failed, false),
        provider_kind: "openai",
    }
}

/// Names of all members that are no objects, with dots.
fn leaves(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().expect("an object") {
        let name = format!("{prefix}{key}");
        if value.is_object() {
            leaves(value, &format!("{name}."), found);
        } else {
            assert!(found.insert(name), "twice: {prefix}{key}");
        }
    }
}

fn same(event: &impl Serialize, fields: &[&[Field]]) {
    let mut found = BTreeSet::new();
    leaves(&serde_json::to_value(event).unwrap(), "", &mut found);
    let named: BTreeSet<String> = fields.iter().flat_map(|fields| fields.iter()).map(|f| f.0.to_owned()).collect();
    assert_eq!(found, named);
}

#[test]
fn lines_have_the_fields_that_names_rs_lists() {
    same(&attempt(), &[names::SHARED_FIELDS, names::ATTEMPT_FIELDS]);
    let whose = Whose::default();
    let request = RequestEvent::without_attempt(whose, RequestState::Refused, UnixMillis(0), 0);
    same(&request, &[names::SHARED_FIELDS, names::REQUEST_FIELDS]);
    let task = TaskEvent {
        event: "task",
        time: Time(UnixMillis(0)),
        operation: OperationId::new("o"),
        client: ClientId::new("c"),
        tenant: TenantId::new("t"),
        workflow: WorkflowId::new("w"),
        workflow_version: Some(1),
        route: None,
        outcome: Outcome::Accepted,
        reason: None,
        success: TaskSuccess { task: true },
    };
    same(&task, &[names::TASK_FIELDS]);
    for kind in AlarmKind::ALL {
        let alarm = AlarmEvent {
            event: "alarm",
            time: Time(UnixMillis(0)),
            kind,
            operation: None,
            route: None,
            execution: None,
            tool: None,
        };
        same(&alarm, &[names::ALARM_FIELDS]);
        assert_eq!(serde_json::json!(kind), kind.name());
    }
}

#[test]
fn time_is_rfc_3339_with_milliseconds() {
    let line = serde_json::to_value(attempt()).unwrap();
    assert_eq!(line["time"], "2026-06-15T12:00:00.123Z");
    assert_eq!(line["limit_dimension"], "tokens");
    let whole = serde_json::to_value(Time(UnixMillis(1_781_524_800_000))).unwrap();
    assert_eq!(whole, "2026-06-15T12:00:00.000Z");
    assert!(serde_json::to_value(Time(UnixMillis(u64::MAX))).is_ok(), "a broken clock breaks no line");
}

#[test]
fn words_have_one_form() {
    for kind in [Kind::First, Kind::Retry, Kind::EquivalentFailover, Kind::CrossModelFallback] {
        assert_eq!(serde_json::json!(kind), kind.name());
        let mut by_kind = ByKind::default();
        by_kind.count(kind);
        assert_eq!(serde_json::to_value(by_kind).unwrap()[kind.name()], 1);
    }
    use RequestState::{Completed, Failed, Interrupted, Refused, Replayed, Stopped};
    for state in [Completed, Interrupted, Failed, Stopped, Refused, Replayed] {
        assert_eq!(serde_json::json!(state), state.name());
    }
    for outcome in [Outcome::Accepted, Outcome::Rejected] {
        assert_eq!(serde_json::json!(outcome), outcome.name());
    }
}

#[test]
fn what_somebody_said_is_bounded_and_masked() {
    assert_eq!(said("gpt-5.2"), "gpt-5.2");
    assert_eq!(said(&"x".repeat(1000)).len(), SAID_BYTES_MAX);
    assert_eq!(said(&"é".repeat(1000)).len(), SAID_BYTES_MAX);
    // Put together here, so that no key is in the repository.
    let key = format!("sk-{}", "proj-0123456789abcdefghijklmnop");
    assert!(!said(&key).contains("0123456789"));
    let late = format!("{} {key}", "x".repeat(SAID_BYTES_MAX - 12));
    assert!(!said(&late).contains("0123"), "a key that the cut halves is masked first");
}

#[test]
fn three_successes() {
    use AttemptResult::{Accepted, Failed, Interrupted, Unfinished};
    for (result, whole, transport, contract) in [
        (Accepted, true, Some(true), Some(true)),
        (Failed, false, Some(false), None),
        (Failed, true, Some(true), Some(false)),
        (Interrupted, false, Some(false), None),
        (Interrupted, true, Some(true), Some(false)),
        (Unfinished, true, None, None),
    ] {
        let success = Success::of(result, whole);
        assert_eq!((success.transport, success.contract, success.task), (transport, contract, None), "{result:?}");
    }
}

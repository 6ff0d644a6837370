//! What is due.

use rubicon_ledger::{Arguments, KeyParts, Occurrence, Projection, RootId, State, TenantId};

use super::*;

const DAY: u64 = 86_400_000;
const NOW: UnixMillis = UnixMillis(1_781_524_800_000);

fn record(number: u32, tool: &str, state: State, ended: Option<UnixMillis>) -> Record {
    let (tenant, root) = (TenantId::new("acme").unwrap(), RootId::new("run").unwrap());
    let tool = ToolName::new(tool).unwrap();
    let arguments = Arguments::parse(format!("{{\"id\":{number}}}").as_bytes()).unwrap();
    let projected = Projection::default().apply(&arguments).unwrap();
    let occurrence = Occurrence(0);
    let parts = KeyParts { tenant: &tenant, root: &root, tool: &tool, slot: projected.slot, occurrence, run: None };
    let settled =
        state.is_terminal().then(|| serde_json::json!({"result": null, "external_reference": "re_1", "error": null}));
    let json = serde_json::json!({
        "sequence": number + 1, "key": parts.key(), "base": null, "tenant": tenant, "root": root, "operation": null,
        "tool": tool, "tool_owner": null, "slot": projected.slot, "fingerprint": projected.fingerprint, "occurrence": 0,
        "run": null, "effect": "write", "impact": "normal", "has_probe": false, "state": state,
        "failure": (state == State::Failed).then_some("executed_error"), "reconciliation": "none", "version": 1,
        "epoch": 1, "runs": 1, "released": false, "arguments": arguments.canonical().as_str(), "settlement": settled,
        "erased": false, "tool_call_id": null, "flags": [], "superseded_by": null, "supersedes": null, "lease": null,
        "pending": null, "awaits_approval": false, "approved_by": null, "needs_release": false, "let_through": [],
        "assigned_to": null, "reported_at": null, "created_at": 0, "changed_at": ended.unwrap_or(UnixMillis(0)),
        "settled_at": ended,
    });
    serde_json::from_value(json).unwrap()
}

fn ago(days: u64) -> Option<UnixMillis> {
    Some(UnixMillis(NOW.0 - days * DAY))
}

#[test]
fn only_what_ended_long_ago_is_due() {
    for (state, ended, due) in [
        (State::Succeeded, ago(3), true),
        (State::Succeeded, ago(2), true),
        (State::Succeeded, Some(UnixMillis(NOW.0 - 2 * DAY + 1)), false),
        (State::Failed, ago(3), true),
        (State::Unknown, None, false),
        (State::Started, None, false),
        (State::Planned, None, false),
    ] {
        assert_eq!(is_due(&record(0, "refund", state, ended), 2 * DAY, NOW), due, "{state:?} {ended:?}");
    }
    let erased = Record { erased: true, ..record(0, "refund", State::Succeeded, ago(3)) };
    assert!(!is_due(&erased, 2 * DAY, NOW));
    assert!(!is_due(&record(0, "refund", State::Succeeded, ago(3)), u64::MAX, NOW));
}

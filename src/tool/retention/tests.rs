//! What is due, and that a pass erases that and nothing else.

use std::sync::Arc;

use rubicon_ledger::store::{MemoryStore, Put, Store as _, Write};
use rubicon_ledger::{Arguments, Draft, KeyParts, Occurrence, Options, Projection, RootId, State, TenantId};

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

fn put(record: &Record) -> Write {
    let entry = Draft {
        at: record.changed_at,
        by: "worker".into(),
        action: "complete".into(),
        subject: record.key.to_string().into(),
        from: "".into(),
        to: record.state.name().into(),
        version: record.version,
        epoch: record.epoch,
        reason: "".into(),
    };
    Write::Put(Box::new(Put {
        expected: None,
        record: record.clone(),
        entry: Some(entry),
        evidence: Vec::new(),
        call: None,
    }))
}

/// More than a look and more than a commit's share, of three tools; one has no retention.
#[tokio::test(start_paused = true)]
async fn a_pass_erases_what_is_due_and_nothing_else() {
    let mut store = MemoryStore::new([7; 32]);
    let mut records: Vec<Record> = (0..600).map(|n| record(n, "refund", State::Succeeded, ago(5))).collect();
    records.push(record(600, "refund", State::Unknown, None));
    records.push(record(601, "refund", State::Succeeded, ago(1)));
    records.push(record(602, "mail", State::Failed, ago(5)));
    records.push(record(603, "other", State::Succeeded, ago(500)));
    // Noted since, so that only a pass over all sees it.
    records.push(Record { changed_at: NOW, ..record(604, "mail", State::Succeeded, ago(9)) });
    store.persist(records.iter().map(put).collect()).unwrap();
    let ledger = Ledger::start(Box::new(store), Options::new(Arc::new(|| NOW), 1)).unwrap();
    let rule = |tool: &str, days: u64| Retention {
        tool: ToolName::new(tool).unwrap(),
        keep: Duration::from_millis(days * DAY),
    };
    let rules = [rule("refund", 2), rule("mail", 4)];
    assert_eq!(pass(&ledger, &rules, false, NOW).await, Pass { erased: 601, whole: true });
    assert_eq!(pass(&ledger, &rules, true, NOW).await, Pass { erased: 1, whole: true });
    assert_eq!(pass(&ledger, &rules, true, NOW).await, Pass { erased: 0, whole: true });
    for before in &records {
        let after = ledger.reader().record(&before.key).unwrap().unwrap();
        let erased = !matches!(before.sequence, 601 | 602 | 604);
        assert_eq!((after.erased, after.arguments.is_none()), (erased, erased), "{}", before.sequence);
        assert_eq!(after.settlement.is_none(), erased || before.sequence == 601);
        assert_eq!(after.state, before.state);
    }
    ledger.close();
    assert_eq!(pass(&ledger, &[rule("other", 1)], true, NOW).await, Pass { erased: 0, whole: false });
}

//! What an unknown execution most likely came to, from what was seen of it. Pure; advice to a person, never a decision.

use rubicon_ledger::{Evidence, Record, State};
use serde::Serialize;
use serde_json::Value;

/// A verdict that a person might give, and what speaks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Suggested {
    /// `succeeded`, `not_executed`, `executed_error`.
    outcome: &'static str,
    /// `high`: what was seen is proof of its kind. `low`: it points that way.
    confidence: &'static str,
    /// For people.
    reason: String,
}

/// The verdict that the evidence of the present run speaks for; none where it says nothing, or there is nothing to decide.
pub(super) fn suggested(record: &Record, evidence: &[Evidence]) -> Option<Suggested> {
    if record.state != State::Unknown {
        return None;
    }
    let of_this_run = || evidence.iter().rev().filter(|seen| seen.epoch == record.epoch);
    // Whoever ran it, and said so too late or with a token that no longer counted, knows best.
    let late = of_this_run().find_map(|seen| Some((seen, said(seen, &["late_owner"])?)));
    if let Some((seen, outcome)) = late {
        let reason = format!("its owner {} said so after its time was over", seen.by);
        return Some(Suggested { outcome, confidence: "high", reason });
    }
    let probed = of_this_run().filter(|seen| &*seen.kind == "probe").find_map(|seen| said(seen, &["probe"]));
    if let Some(outcome) = probed {
        let reason = "the newest probe with a clear answer says so".to_owned();
        return Some(Suggested { outcome, confidence: "low", reason });
    }
    let answered = of_this_run().find_map(status);
    if let Some(status) = answered {
        let outcome = match status {
            // 202 only says that it will be done.
            200 | 201 | 203..=299 => "succeeded",
            400..=499 => "executed_error",
            _ => return None,
        };
        let reason = format!("the tool began to answer with status {status}, but the answer was not proof");
        return Some(Suggested { outcome, confidence: "low", reason });
    }
    let sent: Option<u64> = of_this_run().filter_map(bytes_sent).max();
    (sent == Some(0)).then(|| Suggested {
        outcome: "not_executed",
        confidence: "high",
        reason: "no byte of the call left the relay".to_owned(),
    })
}

fn detail(seen: &Evidence) -> Option<Value> {
    serde_json::from_str(&seen.detail).ok()
}

/// The outcome that evidence of these kinds names.
fn said(seen: &Evidence, kinds: &[&str]) -> Option<&'static str> {
    if !kinds.contains(&&*seen.kind) {
        return None;
    }
    let detail = detail(seen)?;
    ["succeeded", "not_executed", "executed_error"]
        .into_iter()
        .find(|known| detail.get("outcome").and_then(Value::as_str) == Some(known))
}

/// The status of an answer, where one came.
fn status(seen: &Evidence) -> Option<u64> {
    matches!(&*seen.kind, "sending" | "answer").then(|| detail(seen)?.get("status")?.as_u64())?
}

/// Bytes of the call that were written to the socket, where somebody counted.
fn bytes_sent(seen: &Evidence) -> Option<u64> {
    (&*seen.kind == "sending").then(|| detail(seen)?.get("bytes_sent")?.as_u64())?
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rubicon_ledger::UnixMillis;
    use serde_json::json;

    use super::*;

    fn record(state: &str) -> Record {
        let digest = "0".repeat(64);
        let record = json!({
            "sequence": 1, "key": format!("ex_{digest}"), "base": null, "tenant": "t", "root": "r", "operation": null,
            "tool": "pay", "tool_owner": null, "slot": format!("sl_{digest}"), "fingerprint": format!("fp_{digest}"),
            "occurrence": 0, "run": null, "effect": "write", "impact": "normal", "state": state, "failure": null,
            "reconciliation": "needs_operator", "version": 3, "epoch": 2, "runs": 2, "arguments": "{}",
            "settlement": null, "erased": false, "tool_call_id": null, "flags": [], "superseded_by": null,
            "supersedes": null, "lease": null, "pending": null, "awaits_approval": false, "approved_by": null,
            "needs_release": false, "let_through": [], "assigned_to": null, "reported_at": null,
            "created_at": 1, "changed_at": 2, "settled_at": null,
        });
        serde_json::from_value(record).expect("a record")
    }

    fn seen(kind: &str, epoch: u32, detail: Value) -> Evidence {
        Evidence {
            at: UnixMillis(1),
            kind: Arc::from(kind),
            epoch,
            by: Arc::from("relay"),
            detail: Arc::from(detail.to_string()),
        }
    }

    fn said(evidence: &[Evidence]) -> Option<(&'static str, &'static str)> {
        suggested(&record("unknown"), evidence).map(|found| (found.outcome, found.confidence))
    }

    #[test]
    fn what_was_seen_speaks_for_a_verdict() {
        let sending =
            |bytes: u64, status: Option<u16>| seen("sending", 2, json!({ "bytes_sent": bytes, "status": status }));
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[sending(0, None)]), Some(("not_executed", "high")));
        assert_eq!(said(&[sending(0, None), sending(9, None)]), None, "something was sent");
        assert_eq!(said(&[sending(9, Some(200))]), Some(("succeeded", "low")), "an answer that was cut");
        assert_eq!(said(&[sending(9, Some(202))]), None);
        assert_eq!(said(&[sending(9, Some(503))]), None);
        assert_eq!(said(&[sending(9, Some(409))]), Some(("executed_error", "low")));
        let probe = |outcome: &str| seen("probe", 2, json!({ "outcome": outcome }));
        assert_eq!(said(&[probe("not_executed"), probe("succeeded")]), Some(("succeeded", "low")), "the newest");
        assert_eq!(said(&[probe("succeeded"), probe("unknown")]), Some(("succeeded", "low")));
        let late = seen("late_owner", 2, json!({ "outcome": "succeeded" }));
        assert_eq!(said(&[late, probe("not_executed")]), Some(("succeeded", "high")));
        assert_eq!(said(&[seen("late_owner", 2, json!({ "outcome": "unknown" }))]), None);
    }

    #[test]
    fn other_runs_and_settled_records_suggest_nothing() {
        let old = seen("sending", 1, json!({ "bytes_sent": 0 }));
        assert_eq!(said(std::slice::from_ref(&old)), None);
        let now = seen("sending", 2, json!({ "bytes_sent": 0 }));
        assert_eq!(suggested(&record("succeeded"), &[now]), None);
        assert_eq!(said(&[seen("sending", 2, json!("no object"))]), None);
    }
}

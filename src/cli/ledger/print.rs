//! Answers for people.

use serde_json::Value;

use super::super::operator::{flag, text};
use super::screen::{Screen, age, date};

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn array<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A value as text: a string without its quotes, nothing for null.
fn plain(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// `unknown`, `failed (not_executed)`, `unknown, pending_second`.
fn state(value: &Value) -> String {
    let mut state = text(value, "state").to_owned();
    if !text(value, "failure").is_empty() {
        state.push_str(&format!(" ({})", text(value, "failure")));
    }
    if !matches!(text(value, "reconciliation"), "" | "none" | "resolved") {
        state.push_str(&format!(", {}", text(value, "reconciliation")));
    }
    if flag(value, "awaits_approval") {
        state.push_str(", awaits approval");
    }
    if flag(value, "needs_release") {
        state.push_str(", needs release");
    }
    state
}

fn stands_out(value: &Value) -> bool {
    text(value, "state") == "unknown"
}

/// A page of a list.
pub(super) fn list(screen: Screen, body: &Value) -> String {
    let rows = array(body, "executions");
    if rows.is_empty() {
        return "no executions\n".to_owned();
    }
    let line = |row: &Value| {
        let cells = vec![
            text(row, "key").to_owned(),
            state(row),
            // A file has no clock, and so no ages.
            row.get("age_ms").and_then(Value::as_u64).map(age).unwrap_or_default(),
            text(row, "tool").to_owned(),
            text(row, "tenant").to_owned(),
            text(row, "assigned_to").to_owned(),
            text(row, "summary").to_owned(),
        ];
        (cells, stands_out(row))
    };
    let head = ["KEY", "STATE", "AGE", "TOOL", "TENANT", "ASSIGNED", "SUMMARY"];
    let mut out = screen.table(&head, rows.iter().map(line).collect());
    if let Some(next) = body.get("next_cursor").and_then(Value::as_str) {
        out.push_str(&screen.line(&format!("more: --cursor {next}")));
    }
    out
}

/// Everything of one execution.
pub(super) fn whole(screen: Screen, body: &Value) -> String {
    let mut out = top(screen, body);
    for (name, member) in [("arguments", "arguments"), ("result", "result"), ("error", "error")] {
        out.push_str(&screen.field(name, &plain(body.get(member))));
    }
    if let Some(hidden) = body.get("redacted").and_then(Value::as_array).filter(|hidden| !hidden.is_empty()) {
        let hidden: Vec<String> = hidden.iter().map(|pointer| plain(Some(pointer))).collect();
        out.push_str(&screen.field("not shown", &hidden.join(" ")));
    }
    if let Some(suggested) = body.get("suggested").filter(|suggested| suggested.is_object()) {
        out.push_str(&screen.heading("SUGGESTED"));
        let confidence = text(suggested, "confidence");
        out.push_str(&screen.line(&format!(
            "{} (confidence {confidence}): {}",
            text(suggested, "outcome"),
            text(suggested, "reason")
        )));
    }
    out.push_str(&timeline(screen, body));
    let evidence = array(body, "evidence");
    if !evidence.is_empty() {
        let line = |seen: &Value| {
            let cells = vec![
                date(number(seen, "at")),
                text(seen, "kind").to_owned(),
                number(seen, "epoch").to_string(),
                text(seen, "by").to_owned(),
                plain(seen.get("detail")),
            ];
            (cells, false)
        };
        out.push_str(&screen.heading("EVIDENCE"));
        out.push_str(&screen.table(&["AT", "KIND", "EPOCH", "BY", "DETAIL"], evidence.iter().map(line).collect()));
    }
    let similar = array(body, "similar");
    if !similar.is_empty() {
        let line = |other: &Value| {
            let differs: Vec<String> = array(other, "differs").iter().map(|pointer| plain(Some(pointer))).collect();
            let summary = text(other, "summary").to_owned();
            (vec![text(other, "key").to_owned(), state(other), differs.join(" "), summary], stands_out(other))
        };
        out.push_str(&screen.heading("SAME ROOT AND TOOL"));
        out.push_str(&screen.table(&["KEY", "STATE", "DIFFERS IN", "SUMMARY"], similar.iter().map(line).collect()));
    }
    out
}

fn top(screen: Screen, body: &Value) -> String {
    let mut out = screen.line(text(body, "key"));
    let pending = body
        .get("pending")
        .filter(|pending| pending.is_object())
        .map(|pending| format!("{} by {}: {}", text(pending, "outcome"), text(pending, "by"), text(pending, "reason")));
    let flags: Vec<String> = array(body, "flags").iter().map(|flag| plain(Some(flag))).collect();
    let lease = body.get("lease_until").and_then(Value::as_u64).map(date);
    let effect = match text(body, "impact") {
        "high" => format!("{}, high impact", text(body, "effect")),
        _ => text(body, "effect").to_owned(),
    };
    for (name, value) in [
        ("what", text(body, "summary").to_owned()),
        ("state", state(body)),
        ("waits for", pending.map(|pending| format!("a second person to confirm: {pending}")).unwrap_or_default()),
        ("tool", text(body, "tool").to_owned()),
        ("effect", effect),
        ("owner", text(body, "owner").to_owned()),
        ("assigned to", text(body, "assigned_to").to_owned()),
        ("tenant", text(body, "tenant").to_owned()),
        ("operation", text(body, "operation_id").to_owned()),
        ("root", text(body, "root").to_owned()),
        ("flags", flags.join(", ")),
        ("version", number(body, "version").to_string()),
        ("created", date(number(body, "created_at"))),
        ("unchanged for", body.get("age_ms").and_then(Value::as_u64).map(age).unwrap_or_default()),
        ("lease until", lease.unwrap_or_default()),
        ("reference", text(body, "external_reference").to_owned()),
    ] {
        out.push_str(&screen.field(name, &value));
    }
    out
}

fn timeline(screen: Screen, body: &Value) -> String {
    let history = array(body, "history");
    if history.is_empty() {
        return String::new();
    }
    format!("{}{}", screen.heading("TIMELINE"), entries(screen, history, false))
}

fn entries(screen: Screen, entries: &[Value], with_subject: bool) -> String {
    let line = |entry: &Value| {
        let mut cells = vec![
            number(entry, "sequence").to_string(),
            date(number(entry, "at")),
            text(entry, "by").to_owned(),
            text(entry, "action").to_owned(),
            format!("{} → {}", text(entry, "from"), text(entry, "to")),
        ];
        if with_subject {
            cells.push(text(entry, "subject").to_owned());
        }
        cells.push(text(entry, "reason").to_owned());
        (cells, false)
    };
    let head: &[&str] = if with_subject {
        &["ENTRY", "AT", "BY", "ACTION", "STATE", "SUBJECT", "REASON"]
    } else {
        &["ENTRY", "AT", "BY", "ACTION", "STATE", "REASON"]
    };
    screen.table(head, entries.iter().map(line).collect())
}

/// An execution after a change.
pub(super) fn changed(screen: Screen, body: &Value) -> String {
    let already = if flag(body, "changed") { "" } else { " already" };
    let mut line = format!("{} is {}{already}, version {}", text(body, "key"), state(body), number(body, "version"));
    if body.get("pending").is_some_and(Value::is_object) {
        line.push_str("; a second person must confirm");
    }
    screen.line(&line)
}

/// Whether all holds.
pub(super) fn verdict(screen: Screen, body: &Value) -> String {
    let head = body.get("head").unwrap_or(&Value::Null);
    let mut out = String::new();
    if flag(body, "ok") {
        out.push_str(&screen.line(&format!(
            "the ledger holds: {} entries, {} records, {} of them erased",
            number(body, "entries"),
            number(body, "records"),
            number(body, "erased")
        )));
    } else {
        out.push_str(&screen.line("BROKEN"));
        let control = body.get("control").and_then(|control| control.get("broken"));
        for (name, broken) in [("the ledger", body.get("broken")), ("the journal of switches", control)] {
            let Some(broken) = broken.filter(|broken| broken.is_object()) else { continue };
            let about = plain(broken.get("key"));
            let about = if about.is_empty() { String::new() } else { format!(", about {about}") };
            let (sequence, why) = (number(broken, "sequence"), text(broken, "why"));
            out.push_str(&screen.line(&format!("{name}: entry {sequence} is {why}{about}")));
        }
    }
    out.push_str(&screen.line(&format!("head {} {}", number(head, "sequence"), text(head, "hash"))));
    out
}

/// The journal's end.
pub(super) fn head(screen: Screen, body: &Value) -> String {
    screen.line(&format!("{} {}", number(body, "sequence"), text(body, "hash")))
}

/// Entries of the journal.
pub(super) fn journal(screen: Screen, body: &Value) -> String {
    let found = array(body, "entries");
    if found.is_empty() {
        return "no entries\n".to_owned();
    }
    let mut out = entries(screen, found, true);
    if let Some(next) = body.get("next_cursor").and_then(Value::as_str) {
        out.push_str(&screen.line(&format!("more: --from {next}")));
    }
    out
}

/// A backup that was made.
pub(super) fn backup(screen: Screen, body: &Value) -> String {
    let head = body.get("head").unwrap_or(&Value::Null);
    screen.line(&format!(
        "{}: {} bytes, {} entries, holds; head {}",
        text(body, "file"),
        number(body, "bytes"),
        number(body, "entries"),
        text(head, "hash")
    ))
}

/// A backup that was put in place.
pub(super) fn restored(screen: Screen, body: &Value) -> String {
    let mut out = screen.line(&format!("{} is in place", text(body, "file")));
    if !text(body, "replaced").is_empty() {
        out.push_str(&screen.line(&format!("what was there is {}", text(body, "replaced"))));
    }
    out.push_str(&screen.line(
        "write claims get 409 confirm (restored_gap) until an approver says that what ran since the backup is known:",
    ));
    out.push_str(&screen.line("  rubicon ledger end-gap --reason \"…\""));
    out
}

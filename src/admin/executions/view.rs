//! An execution as operators see it: the object of the data plane, and beside it whose it is, what it is in a sentence, and what waits.
//!
//! What a tool's `redact` names is taken out of everything that shows content. A tool that is in the configuration no more has no such
//! list: its content is not shown at all, since nobody can say what of it may be.

use std::sync::Arc;

use rubicon_ledger::{
    Effect, Entry, Evidence, ExecutionKey, Fingerprint, Impact, Outcome, Pending, Record, Settlement, TenantId,
    UnixMillis,
};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use crate::config::settings::{Settings, ToolSettings};
use crate::tool::object::{Execution, Short};
use crate::tool::redact::{self, HIDDEN};
use crate::tool::summary;

use super::suggest::{Suggested, suggested};

/// Said in place of content whose tool is not configured any more.
const NOT_CONFIGURED: &str = "\"[not shown: the tool is not in the configuration]\"";

/// What operators see beside the object; in lists, too.
#[derive(Debug, Serialize)]
struct Beside<'r> {
    tenant: &'r TenantId,
    /// The tool's owner when it was claimed.
    owner: Option<&'r str>,
    effect: Effect,
    impact: Impact,
    /// The tool's `summary`, rendered.
    summary: Option<String>,
    /// Since it last changed.
    age_ms: u64,
    changed_at: UnixMillis,
    runs: u32,
    assigned_to: Option<&'r str>,
    awaits_approval: bool,
    approved_by: Option<&'r str>,
    needs_release: bool,
    pending: Option<Waiting<'r>>,
}

/// A verdict that waits for a second person.
#[derive(Debug, Serialize)]
struct Waiting<'r> {
    outcome: Outcome,
    by: &'r str,
    reason: &'r str,
    at: UnixMillis,
    version: u64,
    fingerprint: Fingerprint,
    external_reference: Option<&'r str>,
}

impl<'r> Waiting<'r> {
    fn new(pending: &'r Pending) -> Self {
        Self {
            outcome: pending.outcome,
            by: &pending.by,
            reason: &pending.reason,
            at: pending.at,
            version: pending.version,
            fingerprint: pending.fingerprint,
            external_reference: pending.settlement.external_reference.as_deref(),
        }
    }
}

impl<'r> Beside<'r> {
    fn new(record: &'r Record, tool: Option<&ToolSettings>, now: UnixMillis) -> Self {
        Self {
            tenant: &record.tenant,
            owner: record.tool_owner.as_deref(),
            effect: record.effect,
            impact: record.impact,
            summary: tool.map(|tool| summary::line(tool, record.arguments.as_deref())),
            age_ms: now.0.saturating_sub(record.changed_at.0),
            changed_at: record.changed_at,
            runs: record.runs,
            assigned_to: record.assigned_to.as_deref(),
            awaits_approval: record.awaits_approval,
            approved_by: record.approved_by.as_deref(),
            needs_release: record.needs_release,
            pending: record.pending.as_ref().map(Waiting::new),
        }
    }
}

fn tool<'s>(record: &Record, settings: &'s Settings) -> Option<&'s ToolSettings> {
    settings.tools.get(&record.tool).map(|tool| &**tool)
}

/// A document as it may be shown; what is not known to be clean is not.
fn hidden(document: &[u8], tool: Option<&ToolSettings>) -> Vec<u8> {
    let Some(tool) = tool else { return NOT_CONFIGURED.as_bytes().to_vec() };
    match redact::bytes(document, &tool.redact) {
        redact::Shown::Json(json) => json.into_bytes(),
        redact::Shown::AsIs => document.to_vec(),
        redact::Shown::Withheld => format!("\"{HIDDEN}\"").into_bytes(),
    }
}

fn hidden_text(text: &str, tool: Option<&ToolSettings>) -> Arc<str> {
    Arc::from(String::from_utf8_lossy(&hidden(text.as_bytes(), tool)))
}

/// A row of a list: without content.
pub(super) fn row(record: &Record, settings: &Settings, now: UnixMillis) -> Map<String, Value> {
    let short = serde_json::to_value(Short::new(record)).unwrap_or_default();
    let beside = serde_json::to_value(Beside::new(record, tool(record, settings), now)).unwrap_or_default();
    let (Value::Object(mut row), Value::Object(beside)) = (short, beside) else { return Map::new() };
    row.extend(beside);
    let reference = record.settlement.as_ref().and_then(|settled| settled.external_reference.as_deref());
    row.insert("external_reference".to_owned(), reference.into());
    row.insert("erased".to_owned(), record.erased.into());
    row
}

/// What of a record and its evidence may be shown.
#[derive(Debug)]
pub(super) struct Shown {
    record: Record,
    evidence: Vec<Evidence>,
    redacted: Vec<String>,
}

impl Shown {
    pub(super) fn new(mut record: Record, mut evidence: Vec<Evidence>, settings: &Settings) -> Self {
        let tool = tool(&record, settings);
        // Where nothing is hidden all stays as it was kept, byte for byte.
        if tool.is_none_or(|tool| !tool.redact.is_empty()) {
            let settlement = record.settlement.as_mut().into_iter();
            for settlement in settlement.chain(record.pending.as_mut().map(|pending| &mut pending.settlement)) {
                hide(settlement, tool);
            }
            record.arguments = record.arguments.as_deref().map(|text| hidden_text(text, tool));
            // Parts of an answer in evidence have no place that a pointer could name.
            for seen in &mut evidence {
                seen.detail = Arc::from(without_bodies(&seen.detail));
            }
        }
        let redacted =
            tool.map_or_else(|| vec![String::new()], |tool| tool.redact.iter().map(ToString::to_string).collect());
        Self { record, evidence, redacted }
    }
}

fn hide(settlement: &mut Settlement, tool: Option<&ToolSettings>) {
    settlement.error = settlement.error.as_deref().map(|text| hidden_text(text, tool));
    if let Some(result) = &mut settlement.result {
        result.body = Arc::from(hidden(&result.body, tool));
    }
}

/// Evidence without what a tool answered.
fn without_bodies(detail: &str) -> String {
    let Ok(Value::Object(mut members)) = serde_json::from_str(detail) else { return format!("\"{HIDDEN}\"") };
    for (name, value) in &mut members {
        let plain = matches!(value, Value::Number(_) | Value::Bool(_) | Value::Null);
        let word = ["outcome", "why", "kind", "fault", "rule", "content_type"].contains(&name.as_str());
        if !plain && !word {
            *value = Value::from(HIDDEN);
        }
    }
    Value::Object(members).to_string()
}

/// Another execution of the same root and tool.
#[derive(Debug, Serialize)]
pub(super) struct Similar {
    #[serde(flatten)]
    pub(super) row: Map<String, Value>,
    /// Where its arguments differ from those of this one; null where one of them is erased.
    pub(super) differs: Option<Vec<String>>,
}

/// An execution as shown.
#[derive(Debug, Serialize)]
pub(super) struct Whole<'r> {
    #[serde(flatten)]
    execution: Execution<'r>,
    #[serde(flatten)]
    beside: Beside<'r>,
    /// Pointers of what is not shown; the empty one is all.
    redacted: &'r [String],
    suggested: Option<Suggested>,
    #[serde(skip_serializing_if = "Option::is_none")]
    similar: Option<Vec<Similar>>,
    /// In the answer to a change: whether it made one.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
}

/// The JSON of an execution; `history`, `similar` and `changed` where they are told.
pub(super) fn whole(
    shown: &Shown,
    history: Option<&[Entry]>,
    similar: Option<Vec<Similar>>,
    changed: Option<bool>,
    settings: &Settings,
    now: UnixMillis,
) -> Box<RawValue> {
    let record = &shown.record;
    let evidence = history.map(|_| shown.evidence.as_slice());
    // The summary is of what may be shown, and of nothing else: it is rendered from the same arguments.
    let whole = Whole {
        execution: Execution::new(record, history, evidence),
        beside: Beside::new(record, tool(record, settings), now),
        redacted: &shown.redacted,
        suggested: suggested(record, &shown.evidence),
        similar,
        changed,
    };
    to_raw_value(&whole).unwrap_or_default()
}

/// The key that a path names; one spelling only.
pub(super) fn key(text: &str) -> Option<ExecutionKey> {
    text.parse().ok()
}

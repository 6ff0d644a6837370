//! The ledger of a relay that does not run, by its file. While it is open no relay can start over it.
//!
//! It knows no configuration, so it cannot tell what operators must not see: content is shown only where somebody asks for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rubicon_ledger::store::{Filter, OpenError, Page, Reader, RedbOptions, RedbStore, Store as _, StoreError};
use rubicon_ledger::{OperationId, RootId, State, TenantId, ToolName};
use serde_json::{Value, json};

use super::super::operator::Failure;
use super::args::{JournalArgs, ListArgs, Place, ShowArgs};
use crate::config::outside;
use crate::tool::object::{Execution, HISTORY_MAX, Short};

/// Records in memory at once: each may hold a result of 8 MiB.
const AT_ONCE: usize = 32;

/// Where a command looks.
pub(super) enum Where {
    /// At a running relay.
    Relay,
    /// Into a file that no relay holds.
    File(Box<Opened>),
}

/// A store that nobody else has.
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) store: RedbStore,
}

impl Opened {
    pub(super) fn reader(&self) -> Arc<dyn Reader> {
        self.store.reader()
    }
}

/// Opens the file. One that is not there is not made.
pub(super) fn open(path: &Path) -> Result<Opened, OpenError> {
    if !path.exists() {
        return Err(OpenError::Missing(path.to_owned()));
    }
    rubicon_ledger::failpoint::hit("ledger-file-open");
    // Nothing is made, so nothing random is needed.
    let store = RedbStore::open(path, RedbOptions::new([0; 32]))?;
    Ok(Opened { path: path.to_owned(), store })
}

pub(super) fn cannot_open(error: &OpenError) -> Failure {
    let message = error.to_string();
    let code = match error {
        OpenError::InUse(_) => "in_use",
        OpenError::Missing(_) => "missing",
        OpenError::Io { .. } => "not_opened",
        _ => "broken",
    };
    let answer = json!({ "ok": false, "error": { "code": code, "message": message } });
    Failure::Problem { message, answer: Some(answer) }
}

pub(super) fn cannot_read(error: &StoreError) -> Failure {
    Failure::problem(error.to_string())
}

/// `--file`: that file. `--config`: its relay's file if no relay holds it, else the relay. Neither: a relay.
pub(super) fn place(place: &Place) -> Result<Where, Failure> {
    if let Some(file) = &place.file {
        return open(file).map(Box::new).map(Where::File).map_err(|error| cannot_open(&error));
    }
    let Some(config) = place.connect.config.as_deref().filter(|_| place.connect.url.is_none()) else {
        return Ok(Where::Relay);
    };
    let Some(file) = outside::store_file(config).map_err(Failure::problem)? else { return Ok(Where::Relay) };
    match open(&file) {
        Ok(opened) => Ok(Where::File(Box::new(opened))),
        Err(OpenError::InUse(_)) => Ok(Where::Relay),
        Err(error) => Err(cannot_open(&error)),
    }
}

/// `list`.
pub(super) fn list(opened: &Opened, list: &ListArgs) -> Result<Value, Failure> {
    if list.older_than.is_some() {
        return Err(Failure::Usage("--older-than is for a running relay: a file has no clock".to_owned()));
    }
    fn name<T, E: std::fmt::Display>(
        text: Option<&String>,
        option: &str,
        make: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Failure> {
        text.map(|text| make(text)).transpose().map_err(|why| Failure::Usage(format!("--{option}: {why}")))
    }
    const STATES: [State; 5] = [State::Planned, State::Started, State::Succeeded, State::Failed, State::Unknown];
    let mut filter = Filter {
        tenant: name(list.tenant.as_ref(), "tenant", TenantId::new)?,
        state: list.state.as_deref().and_then(|text| STATES.into_iter().find(|state| state.name() == text)),
        tool: name(list.tool.as_ref(), "tool", ToolName::new)?,
        operation: name(list.operation.as_ref(), "operation", OperationId::new)?,
        root: name(list.root.as_ref(), "root", RootId::new)?,
        owner: list.owner.as_deref().map(Arc::from),
        changed_before: None,
        after: list.cursor.unwrap_or_default(),
    };
    let (reader, limit) = (opened.reader(), usize::from(list.limit));
    let mut rows: Vec<Value> = Vec::new();
    let next = loop {
        let Page { records, next } =
            reader.list(&filter, AT_ONCE.min(limit - rows.len())).map_err(|error| cannot_read(&error))?;
        for record in &records {
            let mut row = serde_json::to_value(Short::new(record)).unwrap_or_default();
            row["tenant"] = Value::from(record.tenant.as_str());
            row["owner"] = Value::from(record.tool_owner.as_deref());
            row["assigned_to"] = Value::from(record.assigned_to.as_deref());
            row["summary"] = Value::from(record.erased.then_some("(erased)"));
            rows.push(row);
        }
        match next {
            Some(after) if rows.len() < limit => filter.after = after,
            next => break next,
        }
    };
    Ok(json!({ "executions": rows, "next_cursor": next.map(|next| next.to_string()) }))
}

/// `show`.
pub(super) fn show(opened: &Opened, show: &ShowArgs) -> Result<Value, Failure> {
    let wrong = |_| Failure::Usage("KEY: an execution's key is ex_ and 64 hex digits".to_owned());
    let key: rubicon_ledger::ExecutionKey = show.key.parse().map_err(wrong)?;
    let reader = opened.reader();
    let failed = |error: StoreError| cannot_read(&error);
    let Some(mut record) = reader.record(&key).map_err(failed)? else {
        let message = "There is no such execution. [execution_not_found]";
        let answer = json!({ "error": { "code": "execution_not_found", "message": "There is no such execution." } });
        return Err(Failure::Problem { message: message.to_owned(), answer: Some(answer) });
    };
    let history = reader.history(&key, HISTORY_MAX).map_err(failed)?;
    let evidence = reader.evidence(&key).map_err(failed)?;
    if !show.content {
        record.arguments = None;
        if let Some(settlement) = &mut record.settlement {
            (settlement.result, settlement.error) = (None, None);
        }
    }
    let evidence = show.content.then_some(evidence);
    let execution = Execution::new(&record, Some(&history), evidence.as_deref());
    let mut shown = serde_json::to_value(execution).unwrap_or_default();
    shown["tenant"] = Value::from(record.tenant.as_str());
    shown["owner"] = Value::from(record.tool_owner.as_deref());
    shown["assigned_to"] = Value::from(record.assigned_to.as_deref());
    shown["effect"] = serde_json::to_value(record.effect).unwrap_or_default();
    shown["impact"] = serde_json::to_value(record.impact).unwrap_or_default();
    if !show.content {
        shown["redacted"] = json!([""]);
    }
    Ok(shown)
}

/// `verify`.
pub(super) fn verify(opened: &Opened, head: Option<&str>) -> Result<Value, Failure> {
    let verdict = opened.reader().verify(head).map_err(|error| {
        let message = error.to_string();
        let answer = json!({ "ok": false, "error": { "code": "broken", "message": message } });
        Failure::Problem { message, answer: Some(answer) }
    })?;
    Ok(serde_json::to_value(verdict).unwrap_or_default())
}

/// `journal`.
pub(super) fn journal(opened: &Opened, journal: &JournalArgs) -> Result<Value, Failure> {
    let limit = usize::from(journal.limit);
    let entries = opened.reader().entries(journal.from.max(1), limit + 1).map_err(|error| cannot_read(&error))?;
    let next = entries.get(limit).map(|entry| entry.sequence.to_string());
    let shown = entries.get(..limit).unwrap_or(&entries);
    Ok(json!({ "entries": shown, "next_cursor": next }))
}

/// `head`.
pub(super) fn head(opened: &Opened) -> Result<Value, Failure> {
    Ok(serde_json::to_value(opened.store.head()).unwrap_or_default())
}

//! The JSON of an execution (SPEC Annex, Executions): one shape for the data plane, the admin side and an operation's view.
//!
//! In: a record, and what stands beside it in the store. Out: [`Execution`], the whole object, or [`Short`], without content. Neither
//! ever holds a lease token, a claim id or a store's own numbers. Times are milliseconds since 1970, as in the rest of our JSON.
//!
//! Content goes in as it was kept, byte for byte: arguments as their canonical text, a result as the tool wrote it where it is one JSON
//! value; else as a string where it is UTF-8; else as `{"base64": "…"}`. A result that is a JSON string and a result that is
//! the same text without quotes look alike here: who must tell them apart asks for the tool's answer itself (`POST /v1/tools/{tool}`).

use std::collections::BTreeSet;

use rubicon_ledger::{
    Entry, Evidence, ExecutionKey, Failure, Fingerprint, Flag, Occurrence, OperationId, Reconciliation, Record, RootId,
    State, ToolName, ToolResult, UnixMillis,
};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::base64;

/// Lines of the journal that an object shows, the newest. A run has a handful; notes and leases that were lost may be many.
pub const HISTORY_MAX: usize = 100;

/// An execution, whole.
#[derive(Debug, Serialize)]
pub struct Execution<'r> {
    /// Its name.
    pub key: ExecutionKey,
    /// The operation that asked first, if one is known.
    pub operation_id: Option<&'r OperationId>,
    /// The action or run that it belongs to.
    pub root: &'r RootId,
    /// What is called.
    pub tool: &'r ToolName,
    /// Which of several same calls.
    pub occurrence: Occurrence,
    /// Where it stands.
    pub state: State,
    /// How it failed.
    pub failure: Option<Failure>,
    /// What is done about an unknown outcome.
    pub reconciliation: Reconciliation,
    /// One more with each change.
    pub version: u64,
    /// One more with each right to run.
    pub epoch: u32,
    /// The words.
    pub fingerprint: Fingerprint,
    /// The arguments; null once erased.
    pub arguments: Option<Content<'r>>,
    /// What it answered; null where there is nothing, or once erased.
    pub result: Option<Content<'r>>,
    /// The other system's name for what was done.
    pub external_reference: Option<&'r str>,
    /// How it failed, in its owner's words.
    pub error: Option<Content<'r>>,
    /// The provider's id of the call.
    pub tool_call_id: Option<&'r str>,
    /// What is odd.
    pub flags: &'r BTreeSet<Flag>,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it ended.
    pub settled_at: Option<UnixMillis>,
    /// Until when its owner has the right to run it; null unless it is started.
    pub lease_until: Option<UnixMillis>,
    /// True once content was erased.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub erased: bool,
    /// The words that this took the place of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<ExecutionKey>,
    /// The words that took this one's place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<ExecutionKey>,
    /// When a later request carried its result to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<UnixMillis>,
    /// Its lines of the journal, oldest first; null where the store could not be read.
    pub history: Option<Vec<Line<'r>>>,
    /// What was seen of its runs; absent where it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Vec<Seen<'r>>>,
}

/// A line of the journal.
#[derive(Debug, Serialize)]
pub struct Line<'r> {
    /// Its place in the journal.
    pub sequence: u64,
    /// When.
    pub at: UnixMillis,
    /// Who.
    pub by: &'r str,
    /// What was done.
    pub action: &'r str,
    /// State before; null for none.
    pub from: Option<&'r str>,
    /// State after.
    pub to: &'r str,
    /// The record's version after.
    pub version: u64,
    /// The record's epoch after.
    pub epoch: u32,
    /// Why.
    pub reason: &'r str,
}

/// A fact that somebody observed.
#[derive(Debug, Serialize)]
pub struct Seen<'r> {
    /// When.
    pub at: UnixMillis,
    /// Of what kind.
    pub kind: &'r str,
    /// Of which epoch.
    pub epoch: u32,
    /// Who says so.
    pub by: &'r str,
    /// What was seen.
    pub detail: Content<'r>,
}

impl<'r> Execution<'r> {
    /// The object of a record; `history` and `evidence` where they are shown. Of the history only what the record has lived through
    /// already: it may have been read a moment later.
    #[must_use]
    pub fn new(record: &'r Record, history: Option<&'r [Entry]>, evidence: Option<&'r [Evidence]>) -> Self {
        let settlement = record.settlement.as_ref();
        let lease = record.lease.as_ref().filter(|_| record.state == State::Started);
        Self {
            key: record.key,
            operation_id: record.operation.as_ref(),
            root: &record.root,
            tool: &record.tool,
            occurrence: record.occurrence,
            state: record.state,
            failure: record.failure,
            reconciliation: record.reconciliation,
            version: record.version,
            epoch: record.epoch,
            fingerprint: record.fingerprint,
            arguments: record.arguments.as_deref().map(Content::of_text),
            result: settlement.and_then(|settled| settled.result.as_ref()).map(Content::of_result),
            external_reference: settlement.and_then(|settled| settled.external_reference.as_deref()),
            error: settlement.and_then(|settled| settled.error.as_deref()).map(Content::of_text),
            tool_call_id: record.tool_call_id.as_deref(),
            flags: &record.flags,
            created_at: record.created_at,
            settled_at: record.settled_at,
            lease_until: lease.map(|lease| lease.until),
            erased: record.erased,
            supersedes: record.supersedes,
            superseded_by: record.superseded_by,
            reported_at: record.reported_at,
            history: history
                .map(|entries| entries.iter().filter(|entry| entry.version <= record.version).map(Line::new).collect()),
            evidence: evidence.map(|evidence| evidence.iter().map(Seen::new).collect()),
        }
    }
}

impl<'r> Line<'r> {
    /// A line as shown.
    #[must_use]
    pub fn new(entry: &'r Entry) -> Self {
        Self {
            sequence: entry.sequence,
            at: entry.at,
            by: &entry.by,
            action: &entry.action,
            from: Some(&*entry.from).filter(|from| !from.is_empty()),
            to: &entry.to,
            version: entry.version,
            epoch: entry.epoch,
            reason: &entry.reason,
        }
    }
}

impl<'r> Seen<'r> {
    /// A fact as shown.
    #[must_use]
    pub fn new(evidence: &'r Evidence) -> Self {
        Self {
            at: evidence.at,
            kind: &evidence.kind,
            epoch: evidence.epoch,
            by: &evidence.by,
            detail: Content::of_text(&evidence.detail),
        }
    }
}

/// An execution without its content, for lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Short {
    /// Its name.
    pub key: ExecutionKey,
    /// The operation that asked first, if one is known.
    pub operation_id: Option<OperationId>,
    /// The action or run that it belongs to.
    pub root: RootId,
    /// What is called.
    pub tool: ToolName,
    /// Which of several same calls.
    pub occurrence: Occurrence,
    /// Where it stands.
    pub state: State,
    /// How it failed.
    pub failure: Option<Failure>,
    /// What is done about an unknown outcome.
    pub reconciliation: Reconciliation,
    /// One more with each change.
    pub version: u64,
    /// One more with each right to run.
    pub epoch: u32,
    /// The words.
    pub fingerprint: Fingerprint,
    /// The provider's id of the call.
    pub tool_call_id: Option<std::sync::Arc<str>>,
    /// What is odd.
    pub flags: BTreeSet<Flag>,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it ended.
    pub settled_at: Option<UnixMillis>,
}

impl Short {
    /// The short form of a record.
    #[must_use]
    pub fn new(record: &Record) -> Self {
        Self {
            key: record.key,
            operation_id: record.operation.clone(),
            root: record.root.clone(),
            tool: record.tool.clone(),
            occurrence: record.occurrence,
            state: record.state,
            failure: record.failure,
            reconciliation: record.reconciliation,
            version: record.version,
            epoch: record.epoch,
            fingerprint: record.fingerprint,
            tool_call_id: record.tool_call_id.clone(),
            flags: record.flags.clone(),
            created_at: record.created_at,
            settled_at: record.settled_at,
        }
    }
}

/// Content as it goes into JSON.
#[derive(Debug)]
pub enum Content<'r> {
    /// One JSON value, byte for byte.
    Json(&'r RawValue),
    /// Text that is no JSON.
    Text(&'r str),
    /// Neither.
    Bytes(&'r [u8]),
}

impl<'r> Content<'r> {
    /// A text that is JSON as a rule.
    #[must_use]
    pub fn of_text(text: &'r str) -> Self {
        serde_json::from_str(text).map_or(Self::Text(text), Self::Json)
    }

    /// Any bytes.
    #[must_use]
    pub fn of_bytes(bytes: &'r [u8]) -> Self {
        std::str::from_utf8(bytes).map_or(Self::Bytes(bytes), Self::of_text)
    }

    /// A tool's answer.
    #[must_use]
    pub fn of_result(result: &'r ToolResult) -> Self {
        Self::of_bytes(&result.body)
    }
}

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json(raw) => raw.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => {
                use serde::ser::SerializeMap as _;
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("base64", &base64::encode(bytes))?;
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> String {
        serde_json::to_string(&Content::of_bytes(bytes)).unwrap()
    }

    #[test]
    fn json_goes_in_byte_for_byte_and_the_rest_stays_readable() {
        for json in ["{\"a\": 1.0,\n \"a\":1e400}", "12345678901234567890.10", "null", "\"\\ud800\""] {
            assert_eq!(shown(json.as_bytes()), json);
        }
        assert_eq!(shown(b"done, no. 7"), "\"done, no. 7\"");
        assert_eq!(shown(b""), "\"\"");
        assert_eq!(shown(b"{}{}"), "\"{}{}\"");
        assert_eq!(shown(&[0xff, 0xfe, 0xfd, 0x00]), "{\"base64\":\"//79AA==\"}");
        let deep = [b"[".repeat(5000), b"]".repeat(5000)].concat();
        assert_eq!(shown(&deep).as_bytes(), deep, "depth costs no stack");
    }
}

//! What is kept of one execution.
//!
//! In: nothing. Out: [`Record`] and the words in it. A record is data: the rules of its life are in `machine`, its bytes on a disk are
//! the store's. Once its state is terminal ([`State::is_terminal`]) state, failure, settlement, arguments and fingerprint never change; flags,
//! notes and the erasure of content may follow.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{Occurrence, OperationId, RootId, RunNumber, TenantId, ToolName};
use crate::key::{ExecutionKey, Fingerprint, Slot};

/// Wall time in milliseconds since 1970-01-01T00:00:00Z. Told by the caller: nothing in this crate reads a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// So many milliseconds later; the last moment there is where that would be beyond it.
    #[must_use]
    pub fn plus(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

/// Where an execution stands (SPEC.md section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Foreseen or waiting for an approval; nothing may run yet.
    Planned,
    /// Somebody holds the right to run it.
    Started,
    /// It ran, and its result is kept.
    Succeeded,
    /// It did not run ([`Failure::NotExecuted`]), or ran and ended in an error.
    Failed,
    /// It was started and its outcome is not proven.
    Unknown,
}

impl State {
    /// The word in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Started => "started",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }

    /// Whether it never changes again by itself ([`Failure::NotExecuted`] may run again within limits).
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// How it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Proved: no effect. May run again within limits.
    NotExecuted,
    /// The tool ran and said that it failed. Final.
    ExecutedError,
}

/// The second axis: what is being done about an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reconciliation {
    /// Nothing to reconcile.
    #[default]
    None,
    /// A probe asks.
    Probing,
    /// Nobody asks by itself: a person must.
    NeedsOperator,
    /// A verdict waits for a second person.
    PendingSecond,
    /// It was reconciled.
    Resolved,
}

/// What a tool may do to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing: it may run again.
    ReadOnly,
    /// Something: it runs once an intent.
    Write,
}

/// How much a wrong verdict costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Impact {
    /// One person decides.
    #[default]
    Normal,
    /// Two persons decide.
    High,
}

/// What is odd about an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// No model was seen to ask for it.
    Unplanned,
    /// A model asked for it in other words.
    ChangedArguments,
    /// No plan is known, and plans of its operation may have been lost.
    PlanIncomplete,
    /// Its request carried results of several roots.
    RootAmbiguous,
    /// Other words took its place.
    Superseded,
    /// An older run reported an effect after a newer one was allowed.
    DoubleEffectSuspected,
}

/// Who runs a started execution.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A client with a lease token; its lease lives on when the ledger restarts.
    Client,
    /// The ledger's own process, by the random name of its life: another life means that the run is lost.
    Own {
        /// Which life.
        boot: u64,
    },
}

/// The right to run, for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who holds it.
    pub owner: Owner,
    /// The claim that got it: the same one gets it again while it lasts.
    pub claim_id: Option<Arc<str>>,
    /// When it runs out.
    pub until: UnixMillis,
}

/// What a tool answered, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// HTTP status, where HTTP was spoken.
    pub status: Option<u16>,
    /// Its `Content-Type`, as sent.
    pub content_type: Option<Arc<str>>,
    /// The bytes.
    pub body: Arc<[u8]>,
}

/// How it ended, as its owner, a probe or a person said. The same settlement again is no change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settlement {
    /// The result, if there is one.
    pub result: Option<ToolResult>,
    /// The other system's name for what was done.
    pub external_reference: Option<Arc<str>>,
    /// The error, canonical JSON.
    pub error: Option<Arc<str>>,
}

/// A verdict that waits for a second person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The verdict.
    pub outcome: Outcome,
    /// With what.
    pub settlement: Settlement,
    /// The first person.
    pub by: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
    /// The record's version that it was given for.
    pub version: u64,
    /// The words that it was given for.
    pub fingerprint: Fingerprint,
    /// When.
    pub at: UnixMillis,
}

/// A verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran.
    Succeeded,
    /// It did not run.
    NotExecuted,
    /// It ran and failed.
    ExecutedError,
    /// Nobody can tell.
    Unknown,
}

/// One execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its place in the store, from 1, in the order of creation.
    pub sequence: u64,
    /// Its name.
    pub key: ExecutionKey,
    /// For a `read_only` tool the key without the run's number, under which the newest run is found.
    pub base: Option<ExecutionKey>,
    /// Whose it is.
    pub tenant: TenantId,
    /// The action or run that it belongs to.
    pub root: RootId,
    /// The operation that asked first, if one is known.
    pub operation: Option<OperationId>,
    /// What is called.
    pub tool: ToolName,
    /// The tool's owner at the time, for lists.
    pub tool_owner: Option<Arc<str>>,
    /// The intent.
    pub slot: Slot,
    /// The words.
    pub fingerprint: Fingerprint,
    /// Which of several same calls.
    pub occurrence: Occurrence,
    /// Which run of a read.
    pub run: Option<RunNumber>,
    /// What the tool may do.
    pub effect: Effect,
    /// What a wrong verdict costs.
    pub impact: Impact,
    /// Where it stands.
    pub state: State,
    /// How it failed.
    pub failure: Option<Failure>,
    /// What is done about it.
    pub reconciliation: Reconciliation,
    /// One more with each change; the `ETag`.
    pub version: u64,
    /// One more with each right to run. Writes of an older one are evidence only.
    pub epoch: u32,
    /// Runs of this intent so far, those in superseded words included.
    pub runs: u32,
    /// The whole canonical arguments; none once erased.
    pub arguments: Option<Arc<str>>,
    /// How it ended; none while it has not, and once erased.
    pub settlement: Option<Settlement>,
    /// Content was erased: the key answers that it ran, and nothing more. A store that puts such a record erases the details of its
    /// evidence as well.
    pub erased: bool,
    /// The provider's id of the call, the newest that is known.
    pub tool_call_id: Option<Arc<str>>,
    /// What is odd.
    pub flags: BTreeSet<Flag>,
    /// The words that took this one's place.
    pub superseded_by: Option<ExecutionKey>,
    /// The words whose place this took.
    pub supersedes: Option<ExecutionKey>,
    /// The right to run, the last one that was given.
    pub lease: Option<Lease>,
    /// A verdict that waits for a second person.
    pub pending: Option<Pending>,
    /// It waits for an approval before its first run.
    pub awaits_approval: bool,
    /// Approved before its run, by whom.
    pub approved_by: Option<Arc<str>>,
    /// An operator said *not executed*: it runs again only after a release.
    pub needs_release: bool,
    /// An approver released it: one more run, beyond the most runs if need be.
    #[serde(default)]
    pub released: bool,
    /// A probe was configured when it was claimed: an unknown is asked about by itself.
    #[serde(default)]
    pub has_probe: bool,
    /// Near-duplicates of this one that an approver let through, each once.
    pub let_through: Vec<Fingerprint>,
    /// Who looks after it.
    pub assigned_to: Option<Arc<str>>,
    /// A later request of the model's conversation carried its result.
    pub reported_at: Option<UnixMillis>,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it became what it is.
    pub changed_at: UnixMillis,
    /// When it ended for good.
    pub settled_at: Option<UnixMillis>,
}

/// One fact about a run that somebody observed, kept beside the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// When.
    pub at: UnixMillis,
    /// `sending`, `answer`, `probe`, `late_owner`, `operator`, `lease_expired`, `restarted` …
    pub kind: Arc<str>,
    /// Of which epoch.
    pub epoch: u32,
    /// Who says so: a client's or operator's name, `relay`, `probe`.
    pub by: Arc<str>,
    /// What was seen: canonical JSON (bytes that were sent, a status, a partial answer in base64 …).
    pub detail: Arc<str>,
}

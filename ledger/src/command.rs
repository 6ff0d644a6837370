//! What may be asked of the ledger, and what it answers.
//!
//! In: words of the other files. Out: a command type for each question and its reply. Commands are complete: time, names of persons,
//! and everything random are in them or in [`Env`], so that the machine decides by arguments alone.

use std::sync::Arc;

use crate::canonical::Arguments;
use crate::differs::Differences;
use crate::ids::{Occurrence, OperationId, RootId, TenantId, ToolName};
use crate::journal::Head;
use crate::key::{ExecutionKey, Fingerprint};
use crate::project::Projection;
use crate::record::{Effect, Evidence, Flag, Impact, Outcome, Owner, Record, Settlement, UnixMillis};

/// What the machine is told beside the command.
#[derive(Debug, Clone, Copy)]
pub struct Env {
    /// Now.
    pub now: UnixMillis,
    /// This process's life.
    pub boot: u64,
    /// The store's own secret: lease and confirm tokens are made of it, so that they survive a crash and nobody can make one up.
    pub secret: [u8; 32],
}

/// A tool's rules, as far as the ledger needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRule {
    /// Its name.
    pub name: ToolName,
    /// What it may do.
    pub effect: Effect,
    /// What a wrong verdict costs.
    pub impact: Impact,
    /// Which arguments make the intent.
    pub projection: Arc<Projection>,
    /// Most runs of one intent.
    pub max_runs: u32,
    /// Near-duplicates are held (`similar = "confirm"`).
    pub guard_similar: bool,
    /// Each run waits for an approval (`approval = "before_run"`).
    pub approve_before_run: bool,
    /// A probe exists: an unknown is asked about by itself.
    pub has_probe: bool,
    /// Who owns it.
    pub owner: Option<Arc<str>>,
}

/// Whether a plan ought to be there for a claim of this operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planning {
    /// Every tool call of it was seen and noted: a claim without a plan is `unplanned`.
    Complete,
    /// Plans may have been lost: a claim without one is `plan_incomplete`.
    MayBeLost,
}

/// A model asked for a call.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Whose.
    pub tenant: TenantId,
    /// Of which run.
    pub root: RootId,
    /// By which operation.
    pub operation: OperationId,
    /// Of which tool.
    pub tool: Arc<ToolRule>,
    /// In which words.
    pub arguments: Arguments,
    /// Which of several calls of this slot inside one response.
    pub occurrence: Occurrence,
    /// The provider's id.
    pub tool_call_id: Option<Arc<str>>,
    /// Flags to carry (`root_ambiguous`).
    pub flags: Vec<Flag>,
}

/// Somebody wants to run a call.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Whose.
    pub tenant: TenantId,
    /// Of which run.
    pub root: RootId,
    /// By which operation, where one was named.
    pub operation: Option<OperationId>,
    /// Which tool.
    pub tool: Arc<ToolRule>,
    /// In which words.
    pub arguments: Arguments,
    /// The client's own word; none: that of the plan with this `tool_call_id`, else 0.
    pub occurrence: Option<Occurrence>,
    /// The provider's id.
    pub tool_call_id: Option<Arc<str>>,
    /// The client's name for this claim: the same one gets the same lease while it lasts.
    pub claim_id: Option<Arc<str>>,
    /// Who would run it.
    pub owner: Owner,
    /// For how long, in milliseconds.
    pub lease_ms: u64,
    /// A confirm token that an earlier answer gave.
    pub confirm: Option<Arc<str>>,
    /// Whether a plan ought to be there.
    pub planning: Planning,
    /// Flags to carry (`root_ambiguous`).
    pub flags: Vec<Flag>,
    /// The caller's name, for the journal.
    pub by: Arc<str>,
}

/// Why a claim must be confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyConfirm {
    /// A near-duplicate of one that is unknown, running or just succeeded.
    Similar,
    /// The same intent in other words ended in an error.
    AfterError,
    /// The store is a restored backup and what ran since is not known.
    RestoredGap,
}

impl WhyConfirm {
    /// The word in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Similar => "similar",
            Self::AfterError => "after_error",
            Self::RestoredGap => "restored_gap",
        }
    }
}

/// The answer to a [`Claim`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// Run it, once.
    Execute {
        /// As it stands now: started.
        record: Box<Record>,
        /// Goes with every further word about this run.
        lease_token: Arc<str>,
    },
    /// It ran: here is what it answered.
    UseResult(Box<Record>),
    /// Somebody runs it now.
    InProgress(Box<Record>),
    /// Outcome unknown: a probe or a person must find out.
    Reconcile(Box<Record>),
    /// It failed for good, or must not run again by itself.
    Stop(Box<Record>),
    /// A person or the caller must say that it is meant.
    Confirm {
        /// Why.
        why: WhyConfirm,
        /// What it is like; none for a restored gap.
        similar: Option<Box<Record>>,
        /// To be sent back as `confirm`; none where only an approver may let it through.
        confirm_token: Option<Arc<str>>,
        /// The words that would run.
        fingerprint: Fingerprint,
    },
    /// An approver must let it run.
    AwaitApproval(Box<Record>),
    /// Same intent, other words.
    Conflict {
        /// What is there.
        record: Box<Record>,
        /// Where they differ; empty where the words are erased.
        differs: Differences,
    },
    /// It ran once and its content is erased: it never runs again.
    Gone(Box<Record>),
}

/// The owner of a run is alive.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub key: ExecutionKey,
    /// The right to speak.
    pub lease_token: Arc<str>,
    /// From now on, in milliseconds.
    pub lease_ms: u64,
}

/// The owner of a run says how it ended.
#[derive(Debug, Clone)]
pub struct Complete {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub key: ExecutionKey,
    /// The right to speak.
    pub lease_token: Arc<str>,
    /// How.
    pub outcome: Outcome,
    /// With what.
    pub settlement: Settlement,
    /// Why, for the journal (`accepted_async`, `answer_cut`, `refused` …).
    pub why: Arc<str>,
    /// What was seen.
    pub evidence: Vec<Evidence>,
    /// The caller's name, for the journal.
    pub by: Arc<str>,
}

/// Facts about an execution from elsewhere than its owner: a probe, a runner's progress. Settles an unknown where it carries a verdict.
#[derive(Debug, Clone)]
pub struct Observe {
    /// Which.
    pub key: ExecutionKey,
    /// The epoch that was observed; of another one it is evidence only.
    pub epoch: u32,
    /// A verdict with what it rests on; never [`Outcome::Unknown`].
    pub verdict: Option<(Outcome, Settlement)>,
    /// Why, for the journal.
    pub why: Arc<str>,
    /// What was seen.
    pub evidence: Vec<Evidence>,
    /// `probe`, `relay`.
    pub by: Arc<str>,
    /// No probe will ask again by itself: a person must.
    pub gives_up: bool,
}

/// What must hold of the record's version before an operator's change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMatch {
    /// Exactly this one.
    Version(u64),
    /// Any (a person at a shell who said so).
    Any,
}

/// An operator's change of one execution.
#[derive(Debug, Clone)]
pub struct Change {
    /// Which.
    pub key: ExecutionKey,
    /// Its version must be this.
    pub if_match: IfMatch,
    /// The operator's name.
    pub by: Arc<str>,
    /// What.
    pub verb: Verb,
    /// Why.
    pub reason: Arc<str>,
}

/// What an operator may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// Says how an unknown (or an approval that is refused: `not_executed`) ended. High impact: waits for [`Verb::Confirm`].
    Resolve {
        /// How; never [`Outcome::Unknown`].
        outcome: Outcome,
        /// With what.
        settlement: Settlement,
    },
    /// The second person agrees with the pending verdict, or lets a run that awaits approval go on.
    Confirm,
    /// One new run of what did not execute (or, by an approver, of an `executed_error`).
    Release,
    /// Lets the near-duplicate with this fingerprint through, once.
    LetThrough {
        /// Its words.
        fingerprint: Fingerprint,
    },
    /// A remark.
    Note,
    /// Somebody looks after it.
    Assign {
        /// Who; none: nobody.
        to: Option<Arc<str>>,
    },
    /// A probe is asked for now: it becomes `probing`.
    Probe,
}

/// Why a command about a known key was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No such execution for this tenant.
    #[error("no such execution")]
    NotFound,
    /// Not a lease token of this execution.
    #[error("not a lease token of this execution")]
    ForeignLease,
    /// The token of an older run; what it said is kept as evidence.
    #[error("the lease token of an older run")]
    StaleLease(Box<Record>),
    /// The lease has run out.
    #[error("the lease has run out")]
    LeaseOver(Box<Record>),
    /// It has ended otherwise.
    #[error("it has already ended otherwise")]
    AlreadySettled(Box<Record>),
    /// Its version is another one.
    #[error("its version is another one")]
    VersionMismatch(Box<Record>),
    /// The verb does not fit its state; says why.
    #[error("{why}")]
    NotNow {
        /// A stable word: `not_unknown`, `nothing_pending`, `same_person`, `runs_exhausted`, `approval_changed` …
        code: &'static str,
        /// For people.
        why: &'static str,
        /// As it stands.
        record: Box<Record>,
    },
}

/// A change that was made, or was there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// As it stands now.
    pub record: Box<Record>,
    /// False: it was so already.
    pub changed: bool,
}

/// Everything that the writer takes.
#[derive(Debug, Clone)]
pub enum Command {
    /// A model asked for a call; nobody waits for it.
    Plan(Box<Plan>),
    /// See [`Claim`].
    Claim(Box<Claim>),
    /// See [`Heartbeat`].
    Heartbeat(Heartbeat),
    /// See [`Complete`].
    Complete(Box<Complete>),
    /// See [`Observe`].
    Observe(Box<Observe>),
    /// See [`Change`].
    Change(Box<Change>),
    /// The lease of this epoch has run out.
    Expire {
        /// Which.
        key: ExecutionKey,
        /// Of which epoch.
        epoch: u32,
    },
    /// Another life of the ledger ran it: it becomes unknown.
    Orphan {
        /// Which.
        key: ExecutionKey,
    },
    /// A later request carried its result to the model.
    Reported {
        /// Which.
        key: ExecutionKey,
    },
    /// Its retention is over: content goes, the key stays.
    Erase {
        /// Which.
        key: ExecutionKey,
    },
    /// Something that concerns no execution (a switch, a reload, a restored backup): a line in the journal.
    Record(Box<Remark>),
    /// The store is a restored backup (`true`), or an operator says that what ran since is known (`false`).
    Gap {
        /// Open or ended.
        open: bool,
        /// Who.
        by: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
}

/// A line for the journal that concerns no execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// `route:NAME`, `failover`, `ledger` …
    pub subject: Arc<str>,
    /// What was done.
    pub action: Arc<str>,
    /// State before.
    pub from: Arc<str>,
    /// State after.
    pub to: Arc<str>,
    /// The version after of what it concerns, where it has one of its own (an operator's switch); else 0.
    pub version: u64,
    /// Who.
    pub by: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
}

/// What the writer answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To a claim.
    Claimed(Claimed),
    /// To everything about a known key.
    Changed(Result<Changed, Denied>),
    /// To what concerns no execution: the journal's end after it.
    Noted(Head),
}

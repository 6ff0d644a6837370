//! The right to run: who may have it has been decided; here is what may still hold it back, and how it is given.
//!
//! In: a candidate, which is a record in the words of the claim that nothing known forbids to run. Out: a restored backup's gap, a
//! near-duplicate or a missing approval in its way, or `started` with a lease. Nothing is written where a confirmation is asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::claim::{Asked, answer};
use super::guard::{self, Guard};
use super::step::{self, Act, Step};
use super::{Decision, detail};
use crate::canonical::Arguments;
use crate::command::{Claimed, Env, Planning, ToolRule, WhyConfirm};
use crate::ids::{Occurrence, OperationId, RootId, RunNumber, TenantId};
use crate::key::{ExecutionKey, Fingerprint, Slot};
use crate::record::{Effect, Evidence, Flag, Lease, Reconciliation, Record, State};
use crate::store::{StoreError, View, Write};
use crate::token;

/// Most records of the same root and tool that are looked at for a plan in other words, or a near-duplicate: a run of an agent that
/// calls one tool oftener than that is compared with its newest calls only.
pub(super) const MAX_RECENT: usize = 256;

/// What a plan and a claim both say of a call.
pub(super) struct Origin<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) root: &'a RootId,
    pub(super) operation: Option<&'a OperationId>,
    pub(super) tool: &'a ToolRule,
    pub(super) arguments: &'a Arguments,
    pub(super) slot: Slot,
    pub(super) fingerprint: Fingerprint,
    pub(super) occurrence: Occurrence,
    pub(super) tool_call_id: Option<&'a Arc<str>>,
}

/// A record that is not there yet, planned.
pub(super) fn fresh(
    origin: &Origin<'_>,
    key: ExecutionKey,
    run: Option<(ExecutionKey, RunNumber)>,
    view: &dyn View,
    env: &Env,
) -> Record {
    Record {
        sequence: view.next_sequence(),
        key,
        base: run.map(|(base, _)| base),
        tenant: origin.tenant.clone(),
        root: origin.root.clone(),
        operation: origin.operation.cloned(),
        tool: origin.tool.name.clone(),
        tool_owner: origin.tool.owner.clone(),
        slot: origin.slot,
        fingerprint: origin.fingerprint,
        occurrence: origin.occurrence,
        run: run.map(|(_, run)| run),
        effect: origin.tool.effect,
        impact: origin.tool.impact,
        state: State::Planned,
        failure: None,
        reconciliation: Reconciliation::None,
        version: 0,
        epoch: 0,
        runs: 0,
        arguments: Some(Arc::from(origin.arguments.canonical().as_str())),
        settlement: None,
        erased: false,
        tool_call_id: origin.tool_call_id.cloned(),
        flags: BTreeSet::new(),
        superseded_by: None,
        supersedes: None,
        lease: None,
        pending: None,
        awaits_approval: false,
        approved_by: None,
        needs_release: false,
        released: false,
        has_probe: origin.tool.has_probe,
        let_through: Vec::new(),
        assigned_to: None,
        reported_at: None,
        created_at: env.now,
        changed_at: env.now,
        settled_at: None,
    }
}

/// What a claim says of a call that no plan is known of. Only an operation can have been planned.
pub(super) fn flag(new: &mut Record, asked: &Asked<'_>) -> Result<(), StoreError> {
    let claim = asked.claim;
    if claim.operation.is_none() || asked.is_planned {
        return Ok(());
    }
    new.flags.insert(if is_reworded(asked)? {
        Flag::ChangedArguments
    } else {
        match claim.planning {
            Planning::Complete => Flag::Unplanned,
            Planning::MayBeLost => Flag::PlanIncomplete,
        }
    });
    Ok(())
}

/// Whether the same operation planned the call with this id in other words, and so for another slot.
fn is_reworded(asked: &Asked<'_>) -> Result<bool, StoreError> {
    let claim = asked.claim;
    if claim.tool_call_id.is_none() {
        return Ok(false);
    }
    let recent = asked.view.recent(&claim.tenant, &claim.root, &claim.tool.name, MAX_RECENT)?;
    Ok(recent.iter().any(|record| {
        record.tool_call_id == claim.tool_call_id
            && record.operation == claim.operation
            && record.fingerprint != asked.projected.fingerprint
    }))
}

/// A record that may run, if nothing holds it.
pub(super) struct Candidate {
    /// What is there.
    pub(super) old: Option<Record>,
    /// The same in the words of the claim.
    pub(super) new: Record,
    /// What is written with it.
    pub(super) writes: Vec<Write>,
    /// What is kept of before.
    pub(super) evidence: Vec<Evidence>,
    /// For the journal.
    pub(super) reason: String,
}

impl Candidate {
    /// A record that is not there yet, under the claim's own key.
    pub(super) fn fresh(asked: &Asked<'_>) -> Result<Self, StoreError> {
        let mut new = fresh(&asked.origin(), asked.key, None, asked.view, asked.env);
        flag(&mut new, asked)?;
        Ok(Self { old: None, new, writes: Vec::new(), evidence: Vec::new(), reason: String::new() })
    }

    /// A record that is there, planned or ended without a success, in the words of the claim.
    pub(super) fn of(old: Record, asked: &Asked<'_>) -> Self {
        let claim = asked.claim;
        let mut new = old.clone();
        let mut kept = Vec::new();
        let mut reason = String::new();
        let evidence = |kind: &str, detail: Arc<str>| Evidence {
            at: asked.env.now,
            kind: Arc::from(kind),
            epoch: old.epoch,
            by: Arc::from("ledger"),
            detail,
        };
        if old.fingerprint != asked.projected.fingerprint {
            new.flags.insert(Flag::ChangedArguments);
            reason = format!("in other words than the planned {}", old.fingerprint);
            kept.extend(old.arguments.clone().map(|words| evidence("planned_words", words)));
        }
        if let (Some(outcome), Some(settlement)) = (step::outcome_of(&old), &old.settlement) {
            let by = Arc::from("ledger");
            kept.push(detail::said("earlier_run", old.epoch, &by, outcome, settlement, asked.env));
        }
        new.fingerprint = asked.projected.fingerprint;
        new.arguments = Some(Arc::from(claim.arguments.canonical().as_str()));
        new.tool_owner = claim.tool.owner.clone();
        new.impact = claim.tool.impact;
        new.has_probe = claim.tool.has_probe;
        new.tool_call_id = claim.tool_call_id.clone().or(new.tool_call_id);
        new.operation = new.operation.or_else(|| claim.operation.clone());
        new.reconciliation = Reconciliation::None;
        new.failure = None;
        new.settlement = None;
        new.settled_at = None;
        Self { old: Some(old), new, writes: Vec::new(), evidence: kept, reason }
    }

    /// Whether a person let these very words run.
    fn is_approved(&self) -> bool {
        self.old.as_ref().is_some_and(|old| {
            old.fingerprint == self.new.fingerprint
                && (old.released || (old.state == State::Planned && old.approved_by.is_some()))
        })
    }

    /// Whether it is waiting already, in these words.
    fn awaits(&self) -> bool {
        self.old.as_ref().is_some_and(|old| old.awaits_approval && old.fingerprint == self.new.fingerprint)
    }
}

/// Gives the right to run, or says what holds it back.
pub(super) fn run(asked: &Asked<'_>, mut candidate: Candidate) -> Result<Decision, StoreError> {
    let claim = asked.claim;
    let mut let_through = None;
    if candidate.new.effect == Effect::Write {
        if asked.view.is_gap_open() {
            return Ok(answer(Vec::new(), confirm_gap(asked)));
        }
        match guard::check(asked, candidate.new.epoch)? {
            Guard::Free => {}
            Guard::LetThrough(write) => let_through = Some(write),
            Guard::Held(claimed) => return Ok(answer(Vec::new(), *claimed)),
        }
    }
    let is_approved = candidate.is_approved();
    if (claim.tool.approve_before_run || candidate.new.awaits_approval) && !is_approved {
        return await_approval(asked, candidate);
    }
    candidate.writes.extend(let_through);
    let Candidate { old, mut new, mut writes, evidence, reason } = candidate;
    if old.as_ref().is_none_or(|old| old.state != State::Planned) {
        new.approved_by = None;
    }
    new.state = State::Started;
    new.epoch = new.epoch.checked_add(1).ok_or_else(|| step::damaged("an epoch has no successor"))?;
    new.runs = new.runs.saturating_add(1);
    new.lease = Some(Lease {
        owner: claim.owner.clone(),
        claim_id: claim.claim_id.clone(),
        until: asked.env.now.plus(claim.lease_ms),
    });
    new.awaits_approval = false;
    new.released = false;
    new.needs_release = false;
    new.flags.extend(claim.flags.iter().copied());
    let act = Act { by: Arc::clone(&claim.by), action: "claim", reason: Arc::from(reason) };
    let (write, new) = Step::new(old.as_ref(), act).evidence(evidence).put(new, asked.env)?;
    writes.push(write);
    let lease_token = token::lease(&asked.env.secret, &new.key, new.epoch, claim.claim_id.as_deref());
    Ok(answer(writes, Claimed::Execute { record: Box::new(new), lease_token }))
}

fn confirm_gap(asked: &Asked<'_>) -> Claimed {
    Claimed::Confirm {
        why: WhyConfirm::RestoredGap,
        similar: None,
        confirm_token: None,
        fingerprint: asked.projected.fingerprint,
    }
}

/// The words are kept as they would run; an approval of other words before is void.
fn await_approval(asked: &Asked<'_>, candidate: Candidate) -> Result<Decision, StoreError> {
    let is_waiting = candidate.awaits();
    let Candidate { old, mut new, mut writes, evidence, reason } = candidate;
    if let (true, Some(old)) = (is_waiting, &old) {
        return Ok(answer(writes, Claimed::AwaitApproval(Box::new(old.clone()))));
    }
    new.state = State::Planned;
    new.awaits_approval = true;
    new.approved_by = None;
    new.flags.extend(asked.claim.flags.iter().copied());
    let act = Act { by: Arc::clone(&asked.claim.by), action: "await_approval", reason: Arc::from(reason) };
    let (write, new) = Step::new(old.as_ref(), act).evidence(evidence).put(new, asked.env)?;
    writes.push(write);
    Ok(answer(writes, Claimed::AwaitApproval(Box::new(new))))
}

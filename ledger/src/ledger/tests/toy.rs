//! The fewest rules with which a writer can be tested: who claims first runs, and what is planned is known.

use std::sync::Arc;

use crate::command::{Changed, Claimed, Command, Denied, Env, Reply};
use crate::ids::{OperationId, RootId, TenantId};
use crate::journal::Head;
use crate::key::ExecutionKey;
use crate::machine::Decision;
use crate::record::{Flag, Lease, Outcome, Owner, Reconciliation, Record, State};
use crate::store::{Expected, Put, StoreError, View, Write, first_key};

pub(super) fn put(before: Option<&Record>, record: Record) -> Vec<Write> {
    let expected = before.map(Expected::of);
    vec![Write::Put(Box::new(Put { expected, record, entry: None, evidence: Vec::new(), call: None }))]
}

pub(super) struct Words<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) root: &'a RootId,
    pub(super) operation: Option<OperationId>,
    pub(super) tool: &'a crate::command::ToolRule,
    pub(super) arguments: &'a crate::canonical::Arguments,
    pub(super) occurrence: crate::ids::Occurrence,
}

pub(super) fn fresh(words: &Words<'_>, view: &dyn View, env: &Env) -> Record {
    let projected = words.tool.projection.apply(words.arguments).unwrap();
    Record {
        sequence: view.next_sequence(),
        key: first_key(words.tenant, words.root, &words.tool.name, projected.slot, words.occurrence),
        base: None,
        tenant: words.tenant.clone(),
        root: words.root.clone(),
        operation: words.operation.clone(),
        tool: words.tool.name.clone(),
        tool_owner: None,
        slot: projected.slot,
        fingerprint: projected.fingerprint,
        occurrence: words.occurrence,
        run: None,
        effect: words.tool.effect,
        impact: words.tool.impact,
        state: State::Planned,
        failure: None,
        reconciliation: Reconciliation::None,
        version: 1,
        epoch: 0,
        runs: 0,
        arguments: Some(projected.canonical.as_str().into()),
        settlement: None,
        erased: false,
        tool_call_id: None,
        flags: Default::default(),
        superseded_by: None,
        supersedes: None,
        lease: None,
        pending: None,
        awaits_approval: false,
        approved_by: None,
        needs_release: false,
        released: false,
        has_probe: false,
        let_through: Vec::new(),
        assigned_to: None,
        reported_at: None,
        created_at: env.now,
        changed_at: env.now,
        settled_at: None,
    }
}

fn change(view: &dyn View, key: &ExecutionKey, f: impl FnOnce(&mut Record) -> bool) -> Result<Decision, StoreError> {
    let Some(before) = view.record(key)? else {
        return Ok(Decision { writes: Vec::new(), reply: Reply::Changed(Err(Denied::NotFound)) });
    };
    let mut after = before.clone();
    let changed = f(&mut after);
    after.version += u64::from(changed);
    let writes = if changed { put(Some(&before), after.clone()) } else { Vec::new() };
    Ok(Decision { writes, reply: Reply::Changed(Ok(Changed { record: Box::new(after), changed })) })
}

pub(super) fn decide(command: &Command, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    match command {
        Command::Plan(plan) => {
            let words = Words {
                tenant: &plan.tenant,
                root: &plan.root,
                operation: Some(plan.operation.clone()),
                tool: &plan.tool,
                arguments: &plan.arguments,
                occurrence: plan.occurrence,
            };
            let record = fresh(&words, view, env);
            let there = view.record(&record.key)?;
            let changed = there.is_none();
            let writes = if changed { put(None, record.clone()) } else { Vec::new() };
            Ok(Decision { writes, reply: Reply::Changed(Ok(Changed { record: Box::new(record), changed })) })
        }
        Command::Claim(claim) => {
            let words = Words {
                tenant: &claim.tenant,
                root: &claim.root,
                operation: claim.operation.clone(),
                tool: &claim.tool,
                arguments: &claim.arguments,
                occurrence: claim.occurrence.unwrap_or_default(),
            };
            let mut record = fresh(&words, view, env);
            let before = view.record(&record.key)?;
            match &before {
                None => drop(record.flags.insert(Flag::Unplanned)),
                Some(before) => record = before.clone(),
            }
            let answer: fn(Box<Record>) -> Claimed = match record.state {
                State::Planned => {
                    record.state = State::Started;
                    record.version += 1;
                    record.epoch += 1;
                    record.lease =
                        Some(Lease { owner: claim.owner.clone(), claim_id: None, until: env.now.plus(claim.lease_ms) });
                    let reply = Claimed::Execute { record: Box::new(record.clone()), lease_token: Arc::from("lease") };
                    return Ok(Decision { writes: put(before.as_ref(), record), reply: Reply::Claimed(reply) });
                }
                State::Started => Claimed::InProgress,
                State::Succeeded => Claimed::UseResult,
                State::Failed => Claimed::Stop,
                State::Unknown => Claimed::Reconcile,
            };
            Ok(Decision { writes: Vec::new(), reply: Reply::Claimed(answer(Box::new(record))) })
        }
        Command::Complete(complete) => change(view, &complete.key, |record| {
            let new = !record.state.is_terminal();
            record.state = if complete.outcome == Outcome::Succeeded { State::Succeeded } else { State::Failed };
            record.settlement = Some(complete.settlement.clone());
            new
        }),
        Command::Orphan { key } => change(view, key, |record| {
            assert!(matches!(record.lease.as_ref().unwrap().owner, Owner::Own { .. }));
            record.state = State::Unknown;
            true
        }),
        Command::Expire { key, epoch } => change(view, key, |record| {
            let due = record.epoch == *epoch && record.lease.as_ref().is_some_and(|lease| lease.until <= env.now);
            if due {
                record.state = State::Unknown;
            }
            due
        }),
        Command::Record(_) => Ok(Decision { writes: Vec::new(), reply: Reply::Noted(Head::default()) }),
        other => panic!("not in the toy: {other:?}"),
    }
}

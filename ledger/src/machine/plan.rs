//! A model asked for a call: it is noted before anybody runs it.
//!
//! In: a plan. Out: a planned record, or nothing but the name of the call (to find its occurrence again) where the slot is known
//! already. A plan gives no right to run and takes none away.

use super::right::{self, Origin};
use super::step::{self, Act, Step};
use super::{Decision, reads};
use crate::command::{Env, Plan, Reply};
use crate::journal::Head;
use crate::record::{Effect, Record, State};
use crate::store::{CallDigest, StoreError, View, first_key};

pub(super) fn plan(plan: &Plan, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    let Ok(projected) = plan.tool.projection.apply(&plan.arguments) else {
        // The model left out a key field: nothing that could run was asked for. The claim of it is refused with the pointer.
        return Ok(Decision { writes: Vec::new(), reply: Reply::Noted(Head::default()) });
    };
    let origin = Origin {
        tenant: &plan.tenant,
        root: &plan.root,
        operation: Some(&plan.operation),
        tool: &plan.tool,
        arguments: &plan.arguments,
        slot: projected.slot,
        fingerprint: projected.fingerprint,
        occurrence: plan.occurrence,
        tool_call_id: plan.tool_call_id.as_ref(),
    };
    let call = plan
        .tool_call_id
        .as_ref()
        .map(|id| CallDigest::of(&plan.tenant, &plan.root, &plan.tool.name, projected.slot, id));
    let base = first_key(&plan.tenant, &plan.root, &plan.tool.name, projected.slot, plan.occurrence);
    let found = view.record(&base)?;
    let new = match (plan.tool.effect, found) {
        (_, None) if plan.tool.effect == Effect::Write => right::fresh(&origin, base, None, view, env),
        (Effect::ReadOnly, found) if found.as_ref().is_none_or(is_over_read) => {
            reads::next(&origin, found.as_ref(), view, env)?
        }
        (Effect::Write, Some(read)) if read.run.is_some() => right::fresh(&origin, base, None, view, env),
        (_, Some(record)) => return known(record, call, plan, view),
        (_, None) => return Err(step::damaged("a plan without an effect")),
    };
    let mut new = new;
    new.flags.extend(plan.flags.iter().copied());
    let act = Act { by: "relay".into(), action: "plan", reason: "a model asked for it".into() };
    let (write, new) = Step::new(None, act).call(call).put(new, env)?;
    Ok(Decision::changed(vec![write], new))
}

/// A read whose newest run is over, one way or another: the model wants another one.
fn is_over_read(record: &Record) -> bool {
    record.run.is_some() && !matches!(record.state, State::Planned | State::Started)
}

fn known(record: Record, call: Option<CallDigest>, plan: &Plan, view: &dyn View) -> Result<Decision, StoreError> {
    let writes = match call {
        Some(call) if view.call(&call)? != Some(plan.occurrence) => vec![step::call_of(&record, call)],
        _ => Vec::new(),
    };
    Ok(Decision::changed(writes, record))
}

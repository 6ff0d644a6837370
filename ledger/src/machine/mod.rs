//! All rules of an execution's life: one command against what is there makes what is to be written, and the answer. Pure.
//!
//! In: a [`Command`], a [`View`] of what is there, [`Env`] (time, this life, the secret). Out: a [`Decision`]. A file for each family
//! of commands; `step` is the only place that makes a write, and holds it to the invariants of every record (its version grows, its
//! epoch never falls, terminal facts never change, what is started has a lease). The README's section *A record's life* is the table.

mod claim;
mod detail;
mod guard;
mod keeper;
mod observe;
mod operator;
mod owner;
mod plan;
mod reads;
mod right;
mod step;
mod words;

use crate::command::{Changed, Command, Denied, Env, Reply};
use crate::journal::Head;
use crate::record::Record;
use crate::store::{StoreError, View, Write};

/// What a command comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// To be persisted, all or nothing, before the answer is given.
    pub writes: Vec<Write>,
    /// The answer. The head in [`Reply::Noted`] is a placeholder: only who persists knows it.
    pub reply: Reply,
}

/// Decides.
///
/// Arguments that the tool's projection refuses have no key: a plan of them is dropped ([`Reply::Noted`]), a claim is answered
/// [`Denied::NotFound`] (callers check arguments first, for the pointer).
///
/// # Errors
/// When the view cannot be read, or what it shows cannot be.
pub fn decide(command: &Command, view: &dyn View, env: &Env) -> Result<Decision, StoreError> {
    match command {
        Command::Plan(plan) => plan::plan(plan, view, env),
        Command::Claim(claim) => claim::claim(claim, view, env),
        Command::Heartbeat(heartbeat) => owner::heartbeat(heartbeat, view, env),
        Command::Complete(complete) => owner::complete(complete, view, env),
        Command::Observe(observe) => observe::observe(observe, view, env),
        Command::Change(change) => operator::change(change, view, env),
        Command::Expire { key, epoch } => keeper::expire(key, *epoch, view, env),
        Command::Orphan { key } => keeper::orphan(key, view, env),
        Command::Reported { key } => keeper::reported(key, view, env),
        Command::Erase { key } => keeper::erase(key, view, env),
        Command::Record(remark) => Ok(keeper::note(remark, env)),
        // What is so already is no news for the journal.
        Command::Gap { open, .. } if *open == view.is_gap_open() => {
            Ok(Decision { writes: Vec::new(), reply: Reply::Noted(Head::default()) })
        }
        Command::Gap { open, by, reason } => Ok(keeper::gap(*open, by, reason, env)),
    }
}

impl Decision {
    /// The record as these writes leave it.
    fn changed(writes: Vec<Write>, record: Record) -> Self {
        let changed = !writes.is_empty();
        Self { writes, reply: Reply::Changed(Ok(Changed { record: Box::new(record), changed })) }
    }

    fn denied(writes: Vec<Write>, why: Denied) -> Self {
        Self { writes, reply: Reply::Changed(Err(why)) }
    }
}

//! Deciding a batch: commands in their order, each after the plans that concern it, over what this batch decided before.
//!
//! In: commands, the store's view, what came behind. Out: a [`Round`]: all writes, the replies to be given once they are persisted, and what to
//! put back if they are not. Nothing here writes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::behind::{Backlog, Pending};
use super::overlay::Overlay;
use super::queue::Job;
use super::{Decide, Unavailable};
use crate::command::{Command, Env, Reply};
use crate::journal::Draft;
use crate::machine::Decision;
use crate::record::{Record, State};
use crate::store::{Sighting, Store, StoreError, View, Write};

/// A transition that is told once it is persisted.
pub(super) struct Done {
    pub(super) from: Option<State>,
    pub(super) record: Record,
    pub(super) entry: Option<Draft>,
}

/// What a batch comes to.
#[derive(Default)]
pub(super) struct Round {
    pub(super) writes: Vec<Write>,
    /// One for each command.
    pub(super) replies: Vec<Result<Reply, Unavailable>>,
    pub(super) done: Vec<Done>,
    /// Plans that are in it.
    pub(super) plans: Vec<(u64, Pending)>,
    /// Of these, plans that could not be decided.
    pub(super) plans_lost: u64,
    pub(super) sightings: Vec<Sighting>,
}

impl Round {
    pub(super) fn take_sightings(&mut self, backlog: &mut Backlog) {
        self.sightings = backlog.some_sightings();
        if !self.sightings.is_empty() {
            self.writes.push(Write::Sightings(self.sightings.clone()));
        }
    }

    fn take(&mut self, view: &mut Overlay<'_>, decision: Decision) -> Reply {
        view.apply(&decision.writes);
        for write in &decision.writes {
            if let Write::Put(put) = write {
                self.done.push(Done {
                    from: put.expected.map(|expected| expected.state),
                    record: put.record.clone(),
                    entry: put.entry.clone(),
                });
            }
        }
        self.writes.extend(decision.writes);
        decision.reply
    }

    fn plan(&mut self, view: &mut Overlay<'_>, id: u64, plan: Pending, step: Step<'_>) -> Result<(), StoreError> {
        match step(&plan.command, view) {
            Ok(decision) => {
                self.take(view, decision);
                self.plans.push((id, plan));
            }
            Err(StoreError::Io(why)) => {
                self.plans.push((id, plan));
                return Err(StoreError::Io(why));
            }
            Err(StoreError::Damaged(_) | StoreError::Conflict) => {
                self.plans.push((id, plan));
                self.plans_lost += 1;
            }
        }
        Ok(())
    }
}

type Step<'a> = &'a dyn Fn(&Command, &dyn View) -> Result<Decision, StoreError>;

/// Decides `jobs`, and at most `plans_most` plans beside those that concern them.
///
/// # Errors
/// [`StoreError::Io`] where the store cannot be read at all: the whole batch counts for nothing. What meets a damaged place is answered
/// so, and the others go on.
pub(super) fn decide(
    round: &mut Round,
    jobs: &[Job],
    store: &dyn Store,
    decide: Decide,
    env: &Env,
    backlog: &mut Backlog,
    plans_most: usize,
) -> Result<(), StoreError> {
    let mut view = Overlay::over(store);
    let step = |command: &Command, view: &dyn View| {
        // A store may panic over a damaged page, and one command that does must not end the writer for all.
        catch_unwind(AssertUnwindSafe(|| decide(command, view, env)))
            .unwrap_or_else(|_| Err(StoreError::Damaged("it panicked while it was read".to_owned())))
    };
    for job in jobs {
        let mut concerned = backlog.concerning(&job.command).into_iter();
        while let Some((id, plan)) = concerned.next() {
            if let Err(error) = round.plan(&mut view, id, plan, &step) {
                round.plans.extend(concerned);
                return Err(error);
            }
        }
        let reply = match step(&job.command, &view) {
            Ok(decision) => Ok(round.take(&mut view, decision)),
            Err(StoreError::Io(why)) => return Err(StoreError::Io(why)),
            Err(error) => Err(Unavailable::from(error)),
        };
        round.replies.push(reply);
    }
    let mut part = backlog.part(plans_most).into_iter();
    while let Some((id, plan)) = part.next() {
        if let Err(error) = round.plan(&mut view, id, plan, &step) {
            round.plans.extend(part);
            return Err(error);
        }
    }
    Ok(())
}

//! The plan for a request that somebody only asks about, with what is closed in this process and what was seen of its routes:
//! `GET /admin/v1/explain`. The words are [`plan::explain`](crate::plan::explain)'s, as offline.

use crate::attempt::cost;
use crate::clock::{Instant, UnixMillis};
use crate::plan::World;
use crate::plan::explain::{Ask, AskError, Explanation, explain as explained};

use super::app::{App, random_u64};

/// Explains, as things stand now.
///
/// # Errors
/// When workflow, dialect, headers or request cannot be read.
pub fn explain(app: &App, ask: &Ask) -> Result<Explanation, AskError> {
    let current = app.current();
    let world = World {
        approvals: &current.settings.approvals,
        gate: &*app.board,
        now: UnixMillis::now(),
        at: Instant::now(),
        draw: random_u64(),
    };
    explained(&current.settings, ask, &world, &|route, contract| {
        (app.observed.need(&route.name), cost::estimate(route, &contract.facts))
    })
}

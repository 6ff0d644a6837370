//! Is a route open *now*? Kill switches, breakers, limits. Pure: time is an argument.
//!
//! The plan asks a [`Gate`] for what is closed at its moment; what can only be known when an attempt begins (capacity, failover
//! limits, the one probe of a tripped route) is asked again then, of the [`Board`].
//!
//! In reading order: `breaker` one route's health · `window` how much happened lately · `limits` how much is in use · `retry_budget` what
//! attempts after the first may add · `switches` what operators switched off · `board` all of it by name, with the locks.

pub mod board;
pub mod breaker;
pub mod limits;
pub mod retry_budget;
pub mod switches;
pub mod window;

use std::fmt;

use crate::clock::Instant;
use crate::ids::{RouteId, WorkflowId};

pub use board::{Asking, Board, Pass, RouteView};
pub use switches::{Switch, Switches};

/// Why a route is not open at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// An operator killed it.
    Killed,
    /// Its breaker has tripped.
    Tripped {
        /// When the next probe may go.
        until: Instant,
    },
    /// Its `limits` are reached.
    Capacity,
    /// Its `failover_limits` are reached.
    FailoverLimit,
}

/// What the plan asks of the moment.
pub trait Gate: fmt::Debug {
    /// Why the route is not open now, if it is not. `recovery`: another route should have served.
    fn closed(&self, route: &RouteId, recovery: bool, now: Instant) -> Option<Closed>;

    /// Whether an operator switched failover off, for all or for this workflow.
    fn failover_off(&self, workflow: &WorkflowId) -> bool;
}

/// Nothing is closed: the offline `explain`, and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllOpen;

impl Gate for AllOpen {
    fn closed(&self, _: &RouteId, _: bool, _: Instant) -> Option<Closed> {
        None
    }

    fn failover_off(&self, _: &WorkflowId) -> bool {
        false
    }
}

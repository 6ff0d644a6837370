//! What can be switched off, and how one switch stands. Plain data, with its form on disk: a format byte, then JSON.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::UnixMillis;
use crate::gate::Switch;
use crate::ids::{RouteId, WorkflowId};

/// First byte of every stored value. Another one is another build's, and is refused instead of guessed at.
const FORMAT: u8 = 1;

/// What can be switched off.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A route: it gets no new attempt.
    Route(RouteId),
    /// Failover of every workflow.
    Failover,
    /// Failover of one workflow.
    WorkflowFailover(WorkflowId),
}

impl Subject {
    /// Whether it belongs to the failover document, whose switches share one version (see [`Record::version`]).
    pub fn is_failover(&self) -> bool {
        !matches!(self, Self::Route(_))
    }

    /// Reads what [`Display`](fmt::Display) wrote.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None => (text == "failover").then_some(Self::Failover),
            Some(("route", name)) => Some(Self::Route(RouteId::new(name))),
            Some(("failover", name)) => Some(Self::WorkflowFailover(WorkflowId::new(name))),
            Some(_) => None,
        }
    }

    /// What the journal calls a change of it.
    pub(super) fn action(&self, stop: bool) -> &'static str {
        match (self.is_failover(), stop) {
            (false, true) => "kill",
            (false, false) => "restore",
            (true, true) => "disable",
            (true, false) => "enable",
        }
    }

    /// What the journal calls its states.
    pub(super) fn state(&self, stopped: bool) -> &'static str {
        match (self.is_failover(), stopped) {
            (false, true) => "killed",
            (false, false) => "live",
            (true, true) => "disabled",
            (true, false) => "enabled",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(route) => write!(f, "route:{route}"),
            Self::Failover => f.write_str("failover"),
            Self::WorkflowFailover(workflow) => write!(f, "failover:{workflow}"),
        }
    }
}

/// How a switch stands, and who put it so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Switched off: killed, disabled.
    pub stopped: bool,
    /// The reason given; empty for a switch that nobody ever touched.
    pub reason: String,
    /// The operator's name.
    pub by: String,
    /// Since when.
    pub since: UnixMillis,
    /// 0 for one that nobody ever touched. A route counts its own changes; all failover switches share one count, so that one
    /// `ETag` stands for all of them.
    pub version: u64,
}

impl Default for Record {
    fn default() -> Self {
        Self { stopped: false, reason: String::new(), by: String::new(), since: UnixMillis(0), version: 0 }
    }
}

impl Record {
    /// For the gate; `None` when it is not switched off.
    pub(super) fn switch(&self) -> Option<Switch> {
        self.stopped.then(|| Switch { by: self.by.clone(), reason: self.reason.clone(), since: self.since })
    }
}

/// A value as stored. Empty, and so refused when read, in the impossible case that it cannot be written as JSON.
pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    match serde_json::to_writer(&mut bytes, value) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}

/// A stored value; `None` when this build did not write it.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (format, json) = bytes.split_first()?;
    (*format == FORMAT).then(|| serde_json::from_slice(json).ok())?
}

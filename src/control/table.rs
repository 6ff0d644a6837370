//! How all switches stand, and what a request to change one comes to. It decides; the control store saves and publishes.
//!
//! A switch that is put *on* (kill, disable) counts at once; one that is taken off (restore, enable) counts when it is saved.
//! Until then the record before stays the effective one, and nobody else can change it by its old version.

use std::collections::BTreeMap;

use tokio::sync::watch;

use crate::clock::UnixMillis;
use crate::gate::Switches;

use super::journal::{Entry, Head};
use super::record::{Record, Subject};

/// A change that somebody asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Of what.
    pub subject: Subject,
    /// `true`: kill, disable. `false`: restore, enable.
    pub stop: bool,
    /// The operator's name.
    pub by: String,
    /// The reason, checked by whoever read it.
    pub reason: String,
    /// `If-Match`.
    pub precondition: Precondition,
    /// Now.
    pub now: UnixMillis,
}

/// What must hold for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Whatever the version.
    Any,
    /// This version of the record (of the failover document, where it is one of its switches).
    Version(u64),
}

/// Whether a record is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saving {
    Pending,
    Saved,
    /// It could not be written, or nobody knows.
    Lost,
}

/// One switch.
#[derive(Debug, Default)]
struct Held {
    /// As decided.
    record: Record,
    /// As effective, while taking the switch off is not saved yet.
    before: Option<Record>,
    /// `None`: it is on disk.
    saving: Option<watch::Receiver<Saving>>,
}

impl Held {
    fn effective(&self) -> &Record {
        self.before.as_ref().unwrap_or(&self.record)
    }
}

/// A switch as shown.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// How it stands.
    pub record: Record,
    /// It would survive a restart.
    pub saved: bool,
}

/// What a request comes to.
#[derive(Debug)]
pub(super) enum Decision {
    /// It stands so already.
    Unchanged(Record),
    /// Somebody else is putting it so; wait for that.
    Join(Record, watch::Receiver<Saving>),
    /// The version is another one.
    Mismatch(u64),
    /// To be saved.
    Change(Record, Entry),
}

/// A switch that counts and is not on the disk.
#[derive(Debug)]
pub(super) struct Mended {
    pub(super) subject: Subject,
    pub(super) record: Record,
    pub(super) entry: Entry,
}

/// The entry behind `head` that says so.
fn after(head: &Head, subject: &Subject, was_stopped: bool, record: &Record, at: UnixMillis) -> Entry {
    let mut entry = Entry {
        sequence: head.sequence + 1,
        at,
        by: record.by.clone(),
        action: subject.action(record.stopped).to_owned(),
        subject: subject.to_string(),
        from: subject.state(was_stopped).to_owned(),
        to: subject.state(record.stopped).to_owned(),
        version: record.version,
        reason: record.reason.clone(),
        previous: head.hash.clone(),
        hash: String::new(),
    };
    entry.hash = entry.digest();
    entry
}

/// All switches.
#[derive(Debug, Default)]
pub(super) struct Table {
    held: BTreeMap<Subject, Held>,
    head: Head,
}

impl Table {
    pub(super) fn new(records: Vec<(Subject, Record)>, head: Head) -> Self {
        let held = |record| Held { record, before: None, saving: None };
        Self { held: records.into_iter().map(|(subject, record)| (subject, held(record))).collect(), head }
    }

    /// As it is effective.
    pub(super) fn known(&self) -> BTreeMap<Subject, Known> {
        let known = |held: &Held| Known {
            record: held.effective().clone(),
            saved: held.before.is_some() || held.saving.as_ref().is_none_or(|saving| *saving.borrow() == Saving::Saved),
        };
        self.held.iter().map(|(subject, held)| (subject.clone(), known(held))).collect()
    }

    /// The version that stands for all failover switches.
    fn failover_version(&self) -> u64 {
        let failover = self.held.iter().filter(|(subject, _)| subject.is_failover());
        failover.map(|(_, held)| held.record.version).max().unwrap_or_default()
    }

    /// For the gate.
    pub(super) fn switches(&self) -> Switches {
        let mut switches = Switches::default();
        for (subject, held) in &self.held {
            let Some(switch) = held.effective().switch() else { continue };
            match subject {
                Subject::Route(route) => drop(switches.killed.insert(route.clone(), switch)),
                Subject::Failover => switches.failover_off = Some(switch),
                Subject::WorkflowFailover(workflow) => {
                    switches.workflow_failover_off.insert(workflow.clone(), switch);
                }
            }
        }
        switches
    }

    /// What a request comes to. Changes nothing.
    pub(super) fn decide(&self, request: &Request) -> Decision {
        let none = Held::default();
        let held = self.held.get(&request.subject).unwrap_or(&none);
        let subject = &request.subject;
        let shared = if subject.is_failover() { self.failover_version() } else { held.record.version };
        // While a restore is being saved nobody can know its version: who comes by the old one was too late.
        let fits = match request.precondition {
            Precondition::Any => true,
            Precondition::Version(version) => version == held.record.version || version == shared,
        };
        if !fits || (held.before.is_some() && !request.stop) {
            return Decision::Mismatch(if subject.is_failover() { shared } else { held.record.version });
        }
        if held.record.stopped == request.stop {
            match &held.saving {
                None => return Decision::Unchanged(held.record.clone()),
                Some(saving) if *saving.borrow() == Saving::Saved => return Decision::Unchanged(held.record.clone()),
                Some(saving) if *saving.borrow() == Saving::Pending => {
                    return Decision::Join(held.record.clone(), saving.clone());
                }
                // It stands so and would not survive a restart: try again to save it.
                Some(_) => {}
            }
        }
        let record = Record {
            stopped: request.stop,
            reason: request.reason.clone(),
            by: request.by.clone(),
            since: request.now,
            version: shared + 1,
        };
        let entry = after(&self.head, subject, held.record.stopped, &record, request.now);
        Decision::Change(record, entry)
    }

    /// The store was opened anew, and this is what is on the disk. What is switched off here or there stays off: nobody was told
    /// that it is on. Takes over what only the disk knows; gives what is to be written, in the order of the journal.
    pub(super) fn mend(&mut self, disk: Vec<(Subject, Record)>, head: Head, now: UnixMillis) -> Vec<Mended> {
        let mut disk: BTreeMap<Subject, Record> = disk.into_iter().collect();
        let mut differ = Vec::new();
        for (subject, held) in &mut self.held {
            let saved = disk.remove(subject).unwrap_or_default();
            if held.record == saved {
                held.saving = None;
            } else if held.record.stopped {
                differ.push((subject.clone(), saved, held.record.clone()));
            } else {
                *held = Held { record: saved, before: None, saving: None };
            }
        }
        // Another relay may have had the file meanwhile.
        let held = |record| Held { record, before: None, saving: None };
        self.held.extend(disk.into_iter().map(|(subject, record)| (subject, held(record))));
        self.head = head;
        differ.sort_by_key(|(_, _, record)| record.version);
        let mut shared = self.failover_version();
        let mut head = self.head.clone();
        let mut mended = Vec::new();
        for (subject, saved, mut record) in differ {
            // Its own time, if it was never written; else a write that was thought to have failed has undone it, which is undone now.
            let at = if record.version > saved.version { record.since } else { now };
            if record.version <= saved.version {
                let last = if subject.is_failover() { shared.max(saved.version) } else { saved.version };
                record.version = last + 1;
            }
            shared = if subject.is_failover() { shared.max(record.version) } else { shared };
            let entry = after(&head, &subject, saved.stopped, &record, at);
            head = Head { sequence: entry.sequence, hash: entry.hash.clone() };
            mended.push(Mended { subject, record, entry });
        }
        mended
    }

    /// The change is on its way to the disk; `entry` is the new end of the journal.
    pub(super) fn begin(&mut self, subject: &Subject, record: Record, entry: &Entry, saving: watch::Receiver<Saving>) {
        self.head = Head { sequence: entry.sequence, hash: entry.hash.clone() };
        let held = self.held.entry(subject.clone()).or_default();
        // A record that was never saved and is taken off must not come back as the one before a failed save.
        held.before = (!record.stopped).then(|| held.effective().clone());
        held.record = record;
        held.saving = Some(saving);
    }

    /// The switch is on, and the disk cannot be told.
    pub(super) fn stop_unsaved(&mut self, subject: &Subject, record: Record) {
        let (_, lost) = watch::channel(Saving::Lost);
        let held = self.held.entry(subject.clone()).or_default();
        *held = Held { record, before: None, saving: Some(lost) };
    }

    /// How saving that version ended.
    pub(super) fn end(&mut self, subject: &Subject, version: u64, saved: bool) {
        let Some(held) = self.held.get_mut(subject).filter(|held| held.record.version == version) else {
            return; // It was changed again since; that change's own end counts.
        };
        match (saved, held.before.take()) {
            (true, _) => held.saving = None,
            (false, Some(before)) => {
                held.record = before;
                held.saving = None;
            }
            // A kill stays. Its `saving` will say that it is lost.
            (false, None) => {}
        }
    }
}

//! What the machine sees while a batch is decided: the store, and over it what this batch has decided and not written yet.
//!
//! In: the store's view and the writes of each decision. Out: a [`View`] in which the second command of a batch meets what the first one
//! did, so that a batch comes to the same as its commands one by one.

use std::collections::HashMap;

use crate::ids::{Occurrence, RootId, TenantId, ToolName};
use crate::key::ExecutionKey;
use crate::record::Record;
use crate::store::{CallDigest, StoreError, View, Write};

/// A store's view with the writes of a batch on top.
pub(super) struct Overlay<'a> {
    below: &'a dyn View,
    records: HashMap<ExecutionKey, Record>,
    /// Records that are new in this batch, in the order of their making, by tenant, root and tool.
    fresh: HashMap<(TenantId, RootId, ToolName), Vec<ExecutionKey>>,
    /// For the base key of reads the newest run that this batch touched.
    bases: HashMap<ExecutionKey, ExecutionKey>,
    calls: HashMap<CallDigest, Occurrence>,
    next_sequence: u64,
    gap: bool,
}

impl<'a> Overlay<'a> {
    pub(super) fn over(below: &'a dyn View) -> Self {
        Self {
            below,
            records: HashMap::new(),
            fresh: HashMap::new(),
            bases: HashMap::new(),
            calls: HashMap::new(),
            next_sequence: below.next_sequence(),
            gap: below.is_gap_open(),
        }
    }

    /// Takes what was decided, to be seen by the commands after it.
    pub(super) fn apply(&mut self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::Put(put) => {
                    let record = &put.record;
                    if put.expected.is_none() {
                        let scope = (record.tenant.clone(), record.root.clone(), record.tool.clone());
                        self.fresh.entry(scope).or_default().push(record.key);
                        self.next_sequence = self.next_sequence.max(record.sequence.saturating_add(1));
                    }
                    if let Some(call) = put.call {
                        self.calls.insert(call, record.occurrence);
                    }
                    if let Some(base) = record.base {
                        let newest = self.bases.get(&base).and_then(|key| self.records.get(key));
                        if newest.is_none_or(|newest| newest.sequence <= record.sequence) {
                            self.bases.insert(base, record.key);
                        }
                    }
                    self.records.insert(record.key, record.clone());
                }
                Write::Gap(open, _) => self.gap = *open,
                Write::Note(_) | Write::Sightings(_) => {}
            }
        }
    }

    /// The same record as this batch left it.
    fn current(&self, record: Record) -> Record {
        self.records.get(&record.key).cloned().unwrap_or(record)
    }
}

impl View for Overlay<'_> {
    fn record(&self, key: &ExecutionKey) -> Result<Option<Record>, StoreError> {
        if let Some(record) = self.records.get(key) {
            return Ok(Some(record.clone()));
        }
        let below = self.below.record(key)?.map(|record| self.current(record));
        let here = self.bases.get(key).and_then(|key| self.records.get(key));
        Ok(match (here, below) {
            // An older run may have been touched here while the newest lies in the store.
            (Some(here), Some(below)) if below.sequence > here.sequence => Some(below),
            (Some(here), _) => Some(here.clone()),
            (None, below) => below,
        })
    }

    fn recent(
        &self,
        tenant: &TenantId,
        root: &RootId,
        tool: &ToolName,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let fresh = self.fresh.get(&(tenant.clone(), root.clone(), tool.clone()));
        let fresh = fresh.into_iter().flatten().rev().filter_map(|key| self.records.get(key));
        let mut found: Vec<Record> = fresh.take(limit).cloned().collect();
        let rest = limit - found.len();
        if rest > 0 {
            found.extend(self.below.recent(tenant, root, tool, rest)?.into_iter().map(|record| self.current(record)));
        }
        Ok(found)
    }

    fn call(&self, call: &CallDigest) -> Result<Option<Occurrence>, StoreError> {
        match self.calls.get(call) {
            Some(occurrence) => Ok(Some(*occurrence)),
            None => self.below.call(call),
        }
    }

    fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    fn is_gap_open(&self) -> bool {
        self.gap
    }
}

//! The store in memory: plain maps behind a lock. For tests, for trying things out, and as the judge of the other stores: it keeps the same
//! contract in the plainest way there is, and shares no code with them but the journal's and the hashes'.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{
    Broken, CallDigest, ERASED, Expected, Filter, Page, Put, Reader, SIGHTINGS_MAX, SIGHTINGS_MILLIS, Sighting, Store,
    StoreError, Verdict, View, Write,
};
use crate::content::{Salt, Salts, content, evidence_hash, facts_hash, secret_of};
use crate::ids::{Occurrence, RootId, TenantId, ToolName};
use crate::journal::{Draft, Entry, Head, Verifier};
use crate::key::ExecutionKey;
use crate::record::{Evidence, Record, State, UnixMillis};

/// Old sightings that one batch takes out at least, when there are any.
const SWEEP_MIN: usize = 64;

/// What a batch would make of a record, and of its number: looked at before anything is changed.
type Foreseen = HashMap<ExecutionKey, (u64, Expected)>;

#[derive(Clone)]
struct Kept {
    record: Record,
    salt: Salt,
    /// Numbers of the entries about it.
    entries: Vec<u64>,
    /// With the entry that it came with, and whether it was erased.
    evidence: Vec<(u64, bool, Evidence)>,
}

struct Inner {
    /// Record `n` stands at `n - 1`.
    records: Vec<Kept>,
    keys: HashMap<ExecutionKey, u64>,
    /// Key of a read without its run → the newest run.
    bases: HashMap<ExecutionKey, u64>,
    /// Where they belong, in the order of their numbers.
    groups: HashMap<(TenantId, RootId, ToolName), Vec<u64>>,
    journal: Vec<Entry>,
    calls: HashMap<CallDigest, Occurrence>,
    sightings: HashMap<[u8; 16], (u64, Sighting)>,
    places: BTreeMap<u64, [u8; 16]>,
    place: u64,
    salts: Salts,
    gap: bool,
    running: Option<UnixMillis>,
    sightings_max: usize,
}

/// The store.
pub struct MemoryStore {
    inner: Arc<RwLock<Inner>>,
    secret: [u8; 32],
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryStore")
    }
}

struct MemoryReader(Arc<RwLock<Inner>>);

fn reading(inner: &RwLock<Inner>) -> RwLockReadGuard<'_, Inner> {
    inner.read().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryStore {
    /// An empty one. Its secret and its salts are made of `fresh`, which ought to be random.
    #[must_use]
    pub fn new(fresh: [u8; 32]) -> Self {
        Self::with_sightings_max(fresh, SIGHTINGS_MAX)
    }

    /// One that keeps so many sightings.
    #[must_use]
    pub fn with_sightings_max(fresh: [u8; 32], sightings_max: usize) -> Self {
        let inner = Inner {
            records: Vec::new(),
            keys: HashMap::new(),
            bases: HashMap::new(),
            groups: HashMap::new(),
            journal: Vec::new(),
            calls: HashMap::new(),
            sightings: HashMap::new(),
            places: BTreeMap::new(),
            place: 0,
            salts: Salts::new(&fresh),
            gap: false,
            running: None,
            sightings_max,
        };
        Self { inner: Arc::new(RwLock::new(inner)), secret: secret_of(&fresh) }
    }

    fn reading(&self) -> RwLockReadGuard<'_, Inner> {
        reading(&self.inner)
    }

    fn writing(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next(&self) -> u64 {
        self.records.len() as u64 + 1
    }

    fn head(&self) -> Head {
        self.journal.last().map(Entry::head).unwrap_or_default()
    }

    fn at(&self, sequence: u64) -> Option<&Kept> {
        self.records.get(usize::try_from(sequence.checked_sub(1)?).ok()?)
    }

    fn find(&self, key: &ExecutionKey) -> Option<&Kept> {
        self.keys.get(key).or_else(|| self.bases.get(key)).and_then(|sequence| self.at(*sequence))
    }

    /// Whether all expectations of a batch hold, each after what comes before it.
    fn foresee(&self, batch: &[Write]) -> Result<(), StoreError> {
        let (mut foreseen, mut next) = (Foreseen::new(), self.next());
        for write in batch {
            let Write::Put(put) = write else { continue };
            let key = put.record.key;
            let found = foreseen.get(&key).copied().or_else(|| {
                let kept = self.keys.get(&key).and_then(|sequence| self.at(*sequence))?;
                Some((kept.record.sequence, Expected::of(&kept.record)))
            });
            if put.expected != found.map(|(_, expected)| expected)
                || put.record.sequence != found.map_or(next, |(sequence, _)| sequence)
            {
                return Err(StoreError::Conflict);
            }
            next = next.max(put.record.sequence + 1);
            foreseen.insert(key, (put.record.sequence, Expected::of(&put.record)));
        }
        Ok(())
    }

    fn chain(&mut self, draft: Draft, content: Arc<str>) -> u64 {
        let entry = draft.chained(&self.head(), content);
        let sequence = entry.sequence;
        self.journal.push(entry);
        sequence
    }

    fn put(&mut self, put: Put) {
        let Put { record, entry, evidence, call, .. } = put;
        let at = record.sequence;
        let mut kept = match self.at(at) {
            Some(kept) => kept.clone(),
            None => {
                Kept { record: record.clone(), salt: self.salts.salt(at), entries: Vec::new(), evidence: Vec::new() }
            }
        };
        if record.erased && !kept.record.erased {
            kept.salt = Salt::default();
            for (_, erased, one) in &mut kept.evidence {
                (*erased, one.detail) = (true, Arc::from(ERASED));
            }
        }
        if let Some(draft) = entry {
            let number = self.chain(draft, content(&kept.salt, &record, &evidence));
            kept.entries.push(number);
        }
        let last = kept.entries.last().copied().unwrap_or_default();
        kept.evidence.extend(evidence.into_iter().map(|one| (last, false, one)));
        if let Some(call) = call {
            self.calls.insert(call, record.occurrence);
        }
        kept.record = record;
        let slot = usize::try_from(at - 1).ok().and_then(|at| self.records.get_mut(at));
        if let Some(old) = slot {
            *old = kept;
            return;
        }
        let record = &kept.record;
        self.keys.insert(record.key, at);
        self.bases.extend(record.base.map(|base| (base, at)));
        let group = (record.tenant.clone(), record.root.clone(), record.tool.clone());
        self.groups.entry(group).or_default().push(at);
        self.records.push(kept);
    }

    fn sightings(&mut self, sightings: Vec<Sighting>) {
        let count = sightings.len();
        let newest = sightings.iter().map(|sighting| sighting.at.0).max().unwrap_or_default();
        for sighting in sightings {
            self.place += 1;
            let digest = sighting.digest;
            if let Some((before, _)) = self.sightings.insert(digest, (self.place, sighting)) {
                self.places.remove(&before);
            }
            self.places.insert(self.place, digest);
        }
        for _ in 0..(2 * count).max(SWEEP_MIN) {
            let Some((place, digest)) = self.places.first_key_value().map(|(place, digest)| (*place, *digest)) else {
                break;
            };
            let at = self.sightings.get(&digest).map_or(0, |(_, sighting)| sighting.at.0);
            if self.places.len() <= self.sightings_max && at.saturating_add(SIGHTINGS_MILLIS) >= newest {
                break;
            }
            self.places.remove(&place);
            self.sightings.remove(&digest);
        }
    }

    fn verify(&self, wanted: Option<&str>) -> Verdict {
        let mut verifier = Verifier::new(wanted);
        for (number, entry) in (1..).zip(&self.journal) {
            if let Err(broken) = verifier.take(number, Some(entry)) {
                return verifier.finish(Some(broken));
            }
        }
        for kept in &self.records {
            let broken = |sequence, why| Some(Broken { sequence, why: Arc::from(why), key: Some(kept.record.key) });
            let last = kept.entries.last().copied().unwrap_or_default();
            for number in &kept.entries {
                let Some(entry) = usize::try_from(number - 1).ok().and_then(|at| self.journal.get(at)) else {
                    return verifier.finish(broken(*number, "record_differs"));
                };
                let (facts, seen) = entry.content.split_once('.').unwrap_or((&entry.content, ""));
                if *number == last && facts != facts_hash(&kept.salt, &kept.record) {
                    return verifier.finish(broken(*number, "record_differs"));
                }
                let with: Vec<_> = kept.evidence.iter().filter(|(of, ..)| of == number).collect();
                let plain: Vec<Evidence> = with.iter().map(|(.., one)| one.clone()).collect();
                let erased = with.iter().any(|(_, erased, _)| *erased);
                if !seen.is_empty() && !erased && seen != evidence_hash(&kept.salt, &plain) {
                    return verifier.finish(broken(*number, "evidence_differs"));
                }
            }
            if last == 0 {
                return verifier.finish(broken(0, "record_differs"));
            }
            verifier.records += 1;
            verifier.erased += u64::from(kept.record.erased);
        }
        verifier.finish(None)
    }
}

impl View for MemoryStore {
    fn record(&self, key: &ExecutionKey) -> Result<Option<Record>, StoreError> {
        Ok(self.reading().find(key).map(|kept| kept.record.clone()))
    }

    fn recent(
        &self,
        tenant: &TenantId,
        root: &RootId,
        tool: &ToolName,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let inner = self.reading();
        let group = inner.groups.get(&(tenant.clone(), root.clone(), tool.clone()));
        let newest = group.into_iter().flatten().rev().filter_map(|sequence| inner.at(*sequence));
        Ok(newest.take(limit).map(|kept| kept.record.clone()).collect())
    }

    fn call(&self, call: &CallDigest) -> Result<Option<Occurrence>, StoreError> {
        Ok(self.reading().calls.get(call).copied())
    }

    fn next_sequence(&self) -> u64 {
        self.reading().next()
    }

    fn is_gap_open(&self) -> bool {
        self.reading().gap
    }
}

impl Store for MemoryStore {
    fn persist(&mut self, batch: Vec<Write>) -> Result<Head, StoreError> {
        let mut inner = self.writing();
        inner.foresee(&batch)?;
        let before = inner.records.len();
        for write in batch {
            match write {
                Write::Put(put) => inner.put(*put),
                Write::Note(draft) => drop(inner.chain(draft, Arc::from(""))),
                Write::Gap(open, draft) => {
                    inner.gap = open;
                    inner.chain(draft, Arc::from(""));
                }
                Write::Sightings(sightings) => inner.sightings(sightings),
            }
        }
        let head = inner.head();
        if inner.records.len() > before {
            inner.salts = inner.salts.after(&head.hash);
        }
        Ok(head)
    }

    fn reopen(&mut self, saved: &Head) -> Result<(), StoreError> {
        if self.reading().verify(Some(&saved.hash)).ok {
            return Ok(());
        }
        Err(StoreError::Damaged("its journal does not have what was written last".to_owned()))
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(MemoryReader(Arc::clone(&self.inner)))
    }

    fn head(&self) -> Head {
        self.reading().head()
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }

    fn mark_running(&mut self, since: Option<UnixMillis>) -> Result<Option<UnixMillis>, StoreError> {
        Ok(std::mem::replace(&mut self.writing().running, since))
    }

    fn due(&self, now: UnixMillis, limit: usize) -> Result<Vec<(ExecutionKey, u32)>, StoreError> {
        let inner = self.reading();
        let started = inner.records.iter().map(|kept| &kept.record).filter(|record| record.state == State::Started);
        let mut due: Vec<_> = started
            .filter_map(|record| Some((record.lease.as_ref()?.until, record.sequence, record)))
            .filter(|(until, ..)| *until <= now)
            .collect();
        due.sort_by_key(|(until, sequence, _)| (*until, *sequence));
        Ok(due.into_iter().take(limit).map(|(.., record)| (record.key, record.epoch)).collect())
    }

    fn open_records(&self, after: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let inner = self.reading();
        let records = inner.records.iter().map(|kept| &kept.record);
        let open = records.filter(|record| record.sequence > after && !record.state.is_terminal());
        Ok(open.take(limit).cloned().collect())
    }
}

impl Reader for MemoryReader {
    fn record(&self, key: &ExecutionKey) -> Result<Option<Record>, StoreError> {
        Ok(reading(&self.0).find(key).map(|kept| kept.record.clone()))
    }

    fn history(&self, key: &ExecutionKey, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let inner = reading(&self.0);
        let Some(kept) = inner.find(key) else { return Ok(Vec::new()) };
        let skipped = kept.entries.len().saturating_sub(limit);
        let numbers = kept.entries.iter().skip(skipped).filter_map(|number| usize::try_from(number - 1).ok());
        Ok(numbers.filter_map(|at| inner.journal.get(at)).cloned().collect())
    }

    fn evidence(&self, key: &ExecutionKey) -> Result<Vec<Evidence>, StoreError> {
        let inner = reading(&self.0);
        let evidence = inner.find(key).map(|kept| kept.evidence.iter().map(|(.., one)| one.clone()).collect());
        Ok(evidence.unwrap_or_default())
    }

    fn list(&self, filter: &Filter, limit: usize) -> Result<Page, StoreError> {
        let inner = reading(&self.0);
        let records = inner.records.iter().map(|kept| &kept.record).filter(|record| record.sequence > filter.after);
        let records: Vec<Record> = records.filter(|record| filter.shows(record)).take(limit).cloned().collect();
        let next = records.last().map(|record| record.sequence).filter(|_| records.len() == limit);
        Ok(Page { records, next })
    }

    fn sighting(&self, digest: &[u8; 16]) -> Result<Option<Sighting>, StoreError> {
        Ok(reading(&self.0).sightings.get(digest).map(|(_, sighting)| sighting.clone()))
    }

    fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let inner = reading(&self.0);
        Ok(inner.journal.iter().filter(|entry| entry.sequence >= from).take(limit).cloned().collect())
    }

    fn head(&self) -> Result<Head, StoreError> {
        Ok(reading(&self.0).head())
    }

    fn verify(&self, wanted: Option<&str>) -> Result<Verdict, StoreError> {
        Ok(reading(&self.0).verify(wanted))
    }
}

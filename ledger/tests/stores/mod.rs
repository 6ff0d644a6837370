//! What the tests of stores share: hand-made records and random batches of writes, the same from the same seed.
#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy exempts only the test functions themselves")]
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod disk;

use std::collections::BTreeSet;
use std::sync::Arc;

use rubicon_ledger::store::{CallDigest, Expected, Filter, Put, Reader, Sighting, Store, Write};
use rubicon_ledger::{
    Draft, Effect, Entry, Evidence, ExecutionKey, Failure, Fingerprint, Flag, Impact, KeyParts, Lease, Occurrence,
    OperationId, Outcome, Owner, Pending, Reconciliation, Record, RootId, RunNumber, Settlement, Slot, State, TenantId,
    ToolName, ToolResult, UnixMillis,
};

/// Random numbers from a seed (splitmix64).
#[derive(Clone)]
pub(crate) struct Rng(pub u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes());
        }
        bytes
    }
}

pub(crate) fn draft(at: u64, action: &str, record: Option<(&Record, &str)>) -> Draft {
    Draft {
        at: UnixMillis(at),
        by: "ann".into(),
        action: action.into(),
        subject: record.map_or_else(|| "ledger".into(), |(record, _)| Arc::from(record.key.to_string())),
        from: record.map_or("", |(_, from)| from).into(),
        to: record.map_or("", |(record, _)| record.state.name()).into(),
        version: record.map_or(0, |(record, _)| record.version),
        epoch: record.map_or(0, |(record, _)| record.epoch),
        reason: "because".into(),
    }
}

/// A started record; `n` tells one from another.
pub(crate) fn record(sequence: u64, n: u64, at: u64) -> Record {
    let tenant = TenantId::new(["acme", "other"][(n % 2) as usize]).unwrap();
    let root = RootId::new(&format!("run-{}", n % 7)).unwrap();
    let tool = ToolName::new(["pay", "mail", "look"][(n % 3) as usize]).unwrap();
    let digest = *blake3::hash(&n.to_le_bytes()).as_bytes();
    let slot = Slot::from_bytes(digest);
    let run = (n % 3 == 2).then_some(RunNumber(n));
    let parts = KeyParts { tenant: &tenant, root: &root, tool: &tool, slot, occurrence: Occurrence(0), run };
    let base = run.map(|_| {
        let slot = Slot::from_bytes(*blake3::hash(&(n % 9).to_le_bytes()).as_bytes());
        KeyParts { slot, run: None, ..parts }.key()
    });
    Record {
        sequence,
        key: parts.key(),
        base,
        operation: (!n.is_multiple_of(5)).then(|| OperationId::new(&format!("op-{}", n % 11)).unwrap()),
        tool_owner: n.is_multiple_of(2).then(|| "payments".into()),
        tenant,
        root,
        tool,
        slot,
        fingerprint: Fingerprint::from_bytes(digest),
        occurrence: Occurrence(0),
        run,
        effect: if run.is_some() { Effect::ReadOnly } else { Effect::Write },
        impact: Impact::Normal,
        state: State::Started,
        failure: None,
        reconciliation: Reconciliation::None,
        version: 1,
        epoch: 1,
        runs: 1,
        arguments: Some(format!("{{\"amount\":{n},\"to\":\"DE{n:020}\"}}").into()),
        settlement: None,
        erased: false,
        tool_call_id: n.is_multiple_of(4).then(|| format!("call_{n}").into()),
        flags: BTreeSet::new(),
        superseded_by: None,
        supersedes: None,
        lease: Some(Lease {
            owner: if n % 4 == 1 { Owner::Own { boot: n } } else { Owner::Client },
            claim_id: (n % 2 == 1).then(|| "claim".into()),
            until: UnixMillis(at + 30_000),
        }),
        pending: None,
        awaits_approval: false,
        approved_by: None,
        needs_release: false,
        released: false,
        has_probe: false,
        let_through: Vec::new(),
        assigned_to: None,
        reported_at: None,
        created_at: UnixMillis(at),
        changed_at: UnixMillis(at),
        settled_at: None,
    }
}

pub(crate) fn evidence(at: u64, kind: &str, detail: &str) -> Evidence {
    Evidence { at: UnixMillis(at), kind: kind.into(), epoch: 1, by: "relay".into(), detail: detail.into() }
}

/// The write that makes a record.
pub(crate) fn made(record: Record) -> Write {
    Write::Put(Box::new(put_of(record)))
}

pub(crate) fn put_of(record: Record) -> Put {
    let entry = Some(draft(record.created_at.0, "claim", Some((&record, ""))));
    Put { expected: None, record, entry, evidence: Vec::new(), call: None }
}

/// The write that changes `old` by `change`, with a line in the journal.
pub(crate) fn changed(old: &Record, action: &str, at: u64, change: impl FnOnce(&mut Record)) -> (Record, Put) {
    let mut record = old.clone();
    record.version += 1;
    record.changed_at = UnixMillis(at);
    change(&mut record);
    let entry = Some(draft(at, action, Some((&record, old.state.name()))));
    (record.clone(), Put { expected: Some(Expected::of(old)), record, entry, evidence: Vec::new(), call: None })
}

/// The write that settles `old` with this body.
pub(crate) fn settled(old: &Record, at: u64, body: &[u8]) -> (Record, Put) {
    changed(old, "complete", at, |record| {
        record.state = State::Succeeded;
        record.settled_at = Some(UnixMillis(at));
        record.settlement = Some(settlement(body));
    })
}

pub(crate) fn settlement(body: &[u8]) -> Settlement {
    let result = ToolResult { status: Some(200), content_type: Some("text/plain".into()), body: Arc::from(body) };
    Settlement { result: Some(result), external_reference: Some("ref-1".into()), error: None }
}

/// Makes random batches, and knows what they come to.
#[derive(Clone)]
pub(crate) struct Maker {
    pub(crate) rng: Rng,
    pub(crate) records: Vec<Record>,
    pub(crate) now: u64,
    pub(crate) made: u64,
    /// Result bodies are up to this long.
    pub(crate) body_max: u64,
}

impl Maker {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng(seed), records: Vec::new(), now: 1_700_000_000_000, made: 0, body_max: 40_000 }
    }

    /// A batch of up to `most` writes.
    pub(crate) fn batch(&mut self, most: u64) -> Vec<Write> {
        let count = 1 + self.rng.below(most);
        (0..count).map(|_| self.write()).collect()
    }

    fn write(&mut self) -> Write {
        self.now += self.rng.below(5_000);
        match self.rng.below(12) {
            _ if self.records.is_empty() => self.make(),
            0..=4 => self.make(),
            5 => Write::Note(draft(self.now, "reload", None)),
            6 if self.rng.one_in(3) => Write::Gap(self.rng.one_in(2), draft(self.now, "gap", None)),
            6 => Write::Sightings((0..=self.rng.below(4)).map(|_| self.sighting()).collect()),
            _ => self.change(),
        }
    }

    fn sighting(&mut self) -> Sighting {
        let mut digest = [0; 16];
        digest[0] = self.rng.below(60) as u8;
        Sighting {
            digest,
            root: RootId::new("run-1").unwrap(),
            operation: OperationId::new(&format!("op-{}", self.rng.below(9))).unwrap(),
            key: self.rng.one_in(2).then(|| self.records[0].key),
            at: UnixMillis(self.now),
        }
    }

    fn make(&mut self) -> Write {
        self.made += 1;
        let mut record = record(self.records.len() as u64 + 1, self.made, self.now);
        if self.rng.one_in(5) {
            record.state = State::Planned;
            (record.lease, record.epoch, record.runs) = (None, 0, 0);
        }
        self.records.push(record.clone());
        let call = self.rng.one_in(3).then(|| CallDigest(*record.key.as_bytes()));
        let evidence = if self.rng.one_in(4) { vec![evidence(self.now, "sending", "{\"bytes\":12}")] } else { vec![] };
        let entry = Some(draft(self.now, "claim", Some((&record, ""))));
        Write::Put(Box::new(Put { expected: None, record, entry, evidence, call }))
    }

    fn change(&mut self) -> Write {
        let at = self.rng.below(self.records.len() as u64) as usize;
        let old = self.records[at].clone();
        let now = self.now;
        let body = vec![b'x'; self.rng.below(if self.rng.clone().one_in(4) { self.body_max } else { 300 }) as usize];
        let pick = self.rng.below(6);
        let (record, mut put) = match (old.state, pick) {
            (State::Planned, _) => changed(&old, "claim", now, |record| {
                record.state = State::Started;
                (record.epoch, record.runs) = (1, 1);
                record.lease = Some(Lease { owner: Owner::Client, claim_id: None, until: UnixMillis(now + 10_000) });
            }),
            (State::Started, 0 | 1) => changed(&old, "heartbeat", now, |record| {
                if let Some(lease) = &mut record.lease {
                    lease.until = UnixMillis(now + 60_000);
                }
            }),
            (State::Started, 2) => changed(&old, "expire", now, |record| {
                record.state = State::Unknown;
                record.reconciliation = Reconciliation::NeedsOperator;
            }),
            (State::Unknown, 0) => changed(&old, "resolve", now, |record| {
                record.reconciliation = Reconciliation::PendingSecond;
                record.pending = Some(Pending {
                    outcome: Outcome::Succeeded,
                    settlement: settlement(&body),
                    by: "ann".into(),
                    reason: "seen".into(),
                    version: old.version,
                    fingerprint: old.fingerprint,
                    at: UnixMillis(now),
                });
            }),
            (State::Unknown, 1) => changed(&old, "resolve", now, |record| {
                record.state = State::Failed;
                record.failure = Some(Failure::NotExecuted);
                record.reconciliation = Reconciliation::Resolved;
                record.settled_at = Some(UnixMillis(now));
                record.needs_release = true;
                record.released = true;
                record.has_probe = true;
                record.pending = None;
            }),
            (State::Started | State::Unknown, _) => {
                let (mut record, mut put) = settled(&old, now, &body);
                record.pending = None;
                put.record = record.clone();
                (record, put)
            }
            (State::Succeeded | State::Failed, 0) => changed(&old, "erase", now, |record| {
                (record.erased, record.arguments, record.settlement) = (true, None, None);
            }),
            (State::Succeeded | State::Failed, _) => changed(&old, "note", now, |record| {
                record.flags.insert([Flag::Unplanned, Flag::Superseded][(pick % 2) as usize]);
                record.assigned_to = Some(format!("person-{pick}").into());
                record.let_through.push(record.fingerprint);
                record.reported_at = Some(UnixMillis(now));
            }),
        };
        if put.entry.as_ref().is_some_and(|entry| &*entry.action == "heartbeat") {
            put.entry = None;
        } else if self.rng.one_in(3) {
            put.evidence =
                (0..=self.rng.below(2)).map(|n| evidence(now, "answer", &format!("{{\"n\":{n}}}"))).collect();
        }
        self.records[at] = record;
        Write::Put(Box::new(put))
    }
}

/// Everything that a store shows, to be compared.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) records: Vec<Record>,
    pub(crate) histories: Vec<Vec<Entry>>,
    pub(crate) evidence: Vec<Vec<Evidence>>,
    pub(crate) journal: Vec<Entry>,
    pub(crate) sightings: Vec<Option<Sighting>>,
    pub(crate) calls: Vec<Option<Occurrence>>,
    pub(crate) gap: bool,
    pub(crate) next: u64,
    pub(crate) due: Vec<(ExecutionKey, u32)>,
    pub(crate) open: Vec<Record>,
}

pub(crate) fn listed(reader: &dyn Reader, filter: &Filter, limit: usize) -> Vec<Record> {
    let (mut records, mut filter) = (Vec::new(), filter.clone());
    loop {
        let page = reader.list(&filter, limit).unwrap();
        records.extend(page.records);
        match page.next {
            Some(next) => {
                assert!(next > filter.after, "a list goes on");
                filter.after = next;
            }
            None => return records,
        }
    }
}

pub(crate) fn shown(store: &dyn Store) -> Shown {
    try_shown(store).unwrap()
}

pub(crate) fn try_shown(store: &dyn Store) -> Result<Shown, rubicon_ledger::store::StoreError> {
    let reader = store.reader();
    let mut records = Vec::new();
    let mut filter = Filter::default();
    loop {
        let page = reader.list(&filter, 100)?;
        records.extend(page.records);
        match page.next {
            Some(next) => filter.after = next,
            None => break,
        }
    }
    let (mut histories, mut all_evidence, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for record in &records {
        histories.push(reader.history(&record.key, 1_000)?);
        all_evidence.push(reader.evidence(&record.key)?);
        calls.push(store.call(&CallDigest(*record.key.as_bytes()))?);
    }
    let sightings = (0..60_u8).map(|first| {
        let mut digest = [0; 16];
        digest[0] = first;
        reader.sighting(&digest)
    });
    Ok(Shown {
        histories,
        evidence: all_evidence,
        journal: reader.entries(1, usize::MAX)?,
        sightings: sightings.collect::<Result<_, _>>()?,
        calls,
        gap: store.is_gap_open(),
        next: store.next_sequence(),
        due: store.due(UnixMillis(u64::MAX), 10_000)?,
        open: store.open_records(0, 10_000)?,
        records,
    })
}

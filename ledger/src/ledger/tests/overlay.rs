//! The overlay: a batch sees what it did itself over what the store has.

use super::*;
use crate::ids::RunNumber;
use crate::ledger::overlay::Overlay;
use crate::store::{CallDigest, Put, Write};

/// A record of this invoice; a run of a read where a number is given.
fn record(view: &dyn View, invoice: u64, run: Option<u64>) -> Record {
    let claim = claim(invoice);
    let words = toy::Words {
        tenant: &claim.tenant,
        root: &claim.root,
        operation: None,
        tool: &claim.tool,
        arguments: &claim.arguments,
        occurrence: Occurrence(4),
    };
    let env = Env { now: UnixMillis(1), boot: BOOT, secret: [0; 32] };
    let mut record = toy::fresh(&words, view, &env);
    if let Some(run) = run {
        let mut bytes = *record.key.as_bytes();
        bytes[0] ^= u8::try_from(run).unwrap();
        record.base = Some(record.key);
        record.key = ExecutionKey::from_bytes(bytes);
        record.run = Some(RunNumber(run));
    }
    record
}

/// A store with these, made over it one by one.
fn with(invoices: &[(u64, Option<u64>)]) -> (Shared, Vec<Record>) {
    let mut store = Shared::default();
    let made = invoices.iter().map(|(invoice, run)| {
        let record = record(&store, *invoice, *run);
        store.persist(toy::put(None, record.clone())).unwrap();
        record
    });
    let made = made.collect();
    (store, made)
}

fn changed(record: &Record) -> (Record, Vec<Write>) {
    let after = Record { version: record.version + 1, state: State::Started, ..record.clone() };
    let writes = toy::put(Some(record), after.clone());
    (after, writes)
}

#[test]
fn a_record_is_as_the_batch_left_it() {
    let (store, made) = with(&[(1, None), (2, None)]);
    let mut view = Overlay::over(&store);
    let (after, writes) = changed(&made[0]);
    view.apply(&writes);
    assert_eq!(view.record(&made[0].key).unwrap(), Some(after));
    assert_eq!(view.record(&made[1].key).unwrap().as_ref(), Some(&made[1]));
    assert_eq!(view.record(&record(&view, 3, None).key).unwrap(), None);
    assert_eq!(View::record(&store, &made[0].key).unwrap().as_ref(), Some(&made[0]), "nothing is written");
}

#[test]
fn new_records_come_first_and_get_numbers_of_their_own() {
    let (store, made) = with(&[(1, None), (2, None), (3, None)]);
    let mut view = Overlay::over(&store);
    let (second, writes) = changed(&made[1]);
    view.apply(&writes);
    assert_eq!(view.next_sequence(), 4);
    let fourth = record(&view, 4, None);
    view.apply(&toy::put(None, fourth.clone()));
    let fifth = record(&view, 5, None);
    view.apply(&toy::put(None, fifth.clone()));
    assert_eq!((fourth.sequence, fifth.sequence, view.next_sequence()), (4, 5, 6));
    let all = [fifth.clone(), fourth.clone(), made[2].clone(), second, made[0].clone()];
    for limit in 0..7 {
        let recent = view.recent(&fifth.tenant, &fifth.root, &fifth.tool, limit).unwrap();
        assert_eq!(recent, all[..limit.min(5)], "{limit}");
    }
    let other = RootId::new("another").unwrap();
    assert!(view.recent(&fifth.tenant, &other, &fifth.tool, 9).unwrap().is_empty());
}

#[test]
fn the_key_of_a_read_finds_its_newest_run_wherever_that_is() {
    // The test's store finds no base: the newest run of the store is told by a wrapper.
    struct Newest(Shared, Record);
    impl View for Newest {
        fn record(&self, key: &ExecutionKey) -> Result<Option<Record>, StoreError> {
            if self.1.base == Some(*key) { Ok(Some(self.1.clone())) } else { View::record(&self.0, key) }
        }
        fn recent(&self, _: &TenantId, _: &RootId, _: &ToolName, _: usize) -> Result<Vec<Record>, StoreError> {
            Ok(Vec::new())
        }
        fn call(&self, _: &CallDigest) -> Result<Option<Occurrence>, StoreError> {
            Ok(None)
        }
        fn next_sequence(&self) -> u64 {
            self.0.next_sequence()
        }
        fn is_gap_open(&self) -> bool {
            false
        }
    }
    let (store, made) = with(&[(1, Some(1)), (1, Some(2))]);
    let below = Newest(store, made[1].clone());
    let base = made[0].base.unwrap();
    let mut view = Overlay::over(&below);
    assert_eq!(view.record(&base).unwrap().as_ref(), Some(&made[1]));
    // An older run changes: the newest stays the newest.
    view.apply(&changed(&made[0]).1);
    assert_eq!(view.record(&base).unwrap().as_ref(), Some(&made[1]));
    let (after, writes) = changed(&made[1]);
    view.apply(&writes);
    assert_eq!(view.record(&base).unwrap(), Some(after));
    let third = record(&view, 1, Some(3));
    view.apply(&toy::put(None, third.clone()));
    view.apply(&changed(&changed(&made[0]).0).1);
    assert_eq!(view.record(&base).unwrap(), Some(third));
}

#[test]
fn planned_calls_and_the_gap_are_seen_at_once() {
    let (store, _) = with(&[]);
    let mut view = Overlay::over(&store);
    let (call, record) = (CallDigest([9; 32]), record(&store, 1, None));
    assert_eq!(view.call(&call).unwrap(), None);
    let put = Put { expected: None, record, entry: None, evidence: Vec::new(), call: Some(call) };
    let draft = Draft {
        at: UnixMillis(1),
        by: "ops".into(),
        action: "gap".into(),
        subject: "ledger".into(),
        from: "".into(),
        to: "".into(),
        version: 0,
        epoch: 0,
        reason: "".into(),
    };
    view.apply(&[Write::Put(Box::new(put)), Write::Gap(true, draft.clone())]);
    assert_eq!((view.call(&call).unwrap(), view.is_gap_open()), (Some(Occurrence(4)), true));
    view.apply(&[Write::Gap(false, draft)]);
    assert!(!view.is_gap_open());
}

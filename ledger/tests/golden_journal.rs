//! The journal's end after a fixed story, pinned: a head that somebody kept must be found by every later version of this crate.
//!
//! It depends on keys, fingerprints, salts, content hashes, entries and their chain, so that none of them can change unnoticed; and both
//! stores must come to it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy exempts only the test functions themselves"
)]

use std::sync::Arc;

use rubicon_ledger::store::{MemoryStore, RedbOptions, RedbStore, Store};
use rubicon_ledger::{
    Arguments, Claim, Claimed, Command, Complete, Effect, Env, Impact, OperationId, Outcome, Owner, Planning,
    Projection, Reply, RootId, Settlement, TenantId, ToolName, ToolResult, ToolRule, UnixMillis, decide,
};

/// The end of [`story`]. If it changes, heads that were logged by released versions are no longer found: that needs a new format.
const HEAD: &str = "b87f78ad5821bd75c25886400b5e3302402640b381d2f5cff8758a2021dbae6c";

fn told(store: &mut dyn Store, now: u64, command: &Command) -> Reply {
    let env = Env { now: UnixMillis(now), boot: 1, secret: store.secret() };
    let decision = decide(command, &*store, &env).unwrap();
    store.persist(decision.writes).unwrap();
    decision.reply
}

/// A payment is claimed and settled, another one runs out of its lease.
fn story(store: &mut dyn Store) -> String {
    let tool = Arc::new(ToolRule {
        name: ToolName::new("pay").unwrap(),
        effect: Effect::Write,
        impact: Impact::Normal,
        projection: Arc::new(Projection::new(vec!["/invoice".parse().unwrap()], Vec::new()).unwrap()),
        max_runs: 3,
        guard_similar: true,
        approve_before_run: false,
        has_probe: false,
        owner: Some(Arc::from("payments")),
    });
    let claim = |arguments: &str| Claim {
        tenant: TenantId::new("acme").unwrap(),
        root: RootId::new("run-1").unwrap(),
        operation: Some(OperationId::new("op-1").unwrap()),
        tool: Arc::clone(&tool),
        arguments: Arguments::parse(arguments.as_bytes()).unwrap(),
        occurrence: None,
        tool_call_id: Some(Arc::from("call_1")),
        claim_id: Some(Arc::from("c1")),
        owner: Owner::Client,
        lease_ms: 1000,
        confirm: None,
        planning: Planning::Complete,
        flags: Vec::new(),
        by: Arc::from("worker"),
    };
    let first = Command::Claim(Box::new(claim(r#"{"invoice":7,"amount":12.50}"#)));
    let Reply::Claimed(Claimed::Execute { record, lease_token }) = told(store, 1_000, &first) else {
        panic!("no right to run")
    };
    let result = ToolResult {
        status: Some(200),
        content_type: Some(Arc::from("a/b")),
        body: Arc::from(&b"{\"ok\": 1}\xff"[..]),
    };
    let complete = Complete {
        tenant: record.tenant.clone(),
        key: record.key,
        lease_token,
        outcome: Outcome::Succeeded,
        settlement: Settlement { result: Some(result), external_reference: Some(Arc::from("ch_1")), error: None },
        why: Arc::from("owner_said"),
        evidence: Vec::new(),
        by: Arc::from("worker"),
    };
    told(store, 1_500, &Command::Complete(Box::new(complete)));
    let second = Command::Claim(Box::new(claim(r#"{"invoice":8}"#)));
    let Reply::Claimed(Claimed::Execute { record, .. }) = told(store, 2_000, &second) else {
        panic!("no right to run")
    };
    told(store, 9_000, &Command::Expire { key: record.key, epoch: record.epoch });
    store.head().hash.to_string()
}

#[test]
fn a_fixed_story_ends_in_the_pinned_head_in_both_stores() {
    let seed = [7; 32];
    assert_eq!(story(&mut MemoryStore::new(seed)), HEAD, "in memory");
    let folder = tempfile::tempdir().unwrap();
    let mut store = RedbStore::open(&folder.path().join("ledger.redb"), RedbOptions::new(seed)).unwrap();
    assert_eq!(story(&mut store), HEAD, "in a file");
    assert!(store.reader().verify(Some(HEAD)).unwrap().ok);
}

//! Rules of the machine that the model test's tool does not have: reads, approvals, near-duplicates, two persons, gaps, lost runs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests; clippy exempts only the test functions")]

use std::sync::Arc;

use rubicon_ledger::store::{MemoryStore, Store, View};
use rubicon_ledger::{
    Arguments, Change, Changed, Claim, Claimed, Command, Complete, Denied, Effect, Env, ExecutionKey, Flag, IfMatch,
    Impact, Occurrence, OperationId, Outcome, Owner, Plan, Planning, Projection, Reconciliation, Record, Reply, RootId,
    Settlement, State, TenantId, ToolName, ToolRule, UnixMillis, Verb, WhyConfirm, decide,
};

struct World {
    store: MemoryStore,
    now: u64,
    boot: u64,
    tool: ToolRule,
}

fn nothing() -> Settlement {
    Settlement { result: None, external_reference: None, error: None }
}

impl World {
    fn new(effect: Effect) -> Self {
        let tool = ToolRule {
            name: ToolName::new("pay").unwrap(),
            effect,
            impact: Impact::Normal,
            projection: Arc::new(Projection::default()),
            max_runs: 2,
            guard_similar: true,
            approve_before_run: false,
            has_probe: false,
            owner: None,
        };
        Self { store: MemoryStore::new([1; 32]), now: 1_000, boot: 1, tool }
    }

    fn reply(&mut self, command: &Command) -> Reply {
        let env = Env { now: UnixMillis(self.now), boot: self.boot, secret: [2; 32] };
        let decision = decide(command, &self.store, &env).unwrap();
        self.store.persist(decision.writes).unwrap();
        decision.reply
    }

    fn changed(&mut self, command: &Command) -> Result<Changed, Denied> {
        match self.reply(command) {
            Reply::Changed(changed) => changed,
            other => panic!("{other:?}"),
        }
    }

    fn asked(&self, arguments: &str) -> Claim {
        Claim {
            tenant: TenantId::new("t").unwrap(),
            root: RootId::new("r").unwrap(),
            operation: Some(OperationId::new("op").unwrap()),
            tool: Arc::new(self.tool.clone()),
            arguments: Arguments::parse(arguments.as_bytes()).unwrap(),
            occurrence: None,
            tool_call_id: None,
            claim_id: None,
            owner: Owner::Client,
            lease_ms: 100,
            confirm: None,
            planning: Planning::Complete,
            flags: Vec::new(),
            by: "client".into(),
        }
    }

    fn claim_as(&mut self, claim: Claim) -> Claimed {
        match self.reply(&Command::Claim(Box::new(claim))) {
            Reply::Claimed(claimed) => claimed,
            other => panic!("{other:?}"),
        }
    }

    fn claim(&mut self, arguments: &str) -> Claimed {
        let claim = self.asked(arguments);
        self.claim_as(claim)
    }

    fn plan(&mut self, arguments: &str, occurrence: u32, id: &str) -> Record {
        let claim = self.asked(arguments);
        let plan = Plan {
            tenant: claim.tenant,
            root: claim.root,
            operation: claim.operation.unwrap(),
            tool: claim.tool,
            arguments: claim.arguments,
            occurrence: Occurrence(occurrence),
            tool_call_id: Some(id.into()),
            flags: Vec::new(),
        };
        *self.changed(&Command::Plan(Box::new(plan))).unwrap().record
    }

    fn complete(&mut self, key: ExecutionKey, token: &Arc<str>, outcome: Outcome) -> Result<Changed, Denied> {
        self.changed(&Command::Complete(Box::new(Complete {
            tenant: TenantId::new("t").unwrap(),
            key,
            lease_token: Arc::clone(token),
            outcome,
            settlement: nothing(),
            why: "said".into(),
            evidence: Vec::new(),
            by: "client".into(),
        })))
    }

    fn change(&mut self, key: ExecutionKey, by: &str, verb: Verb) -> Result<Changed, Denied> {
        let version = self.store.record(&key).unwrap().unwrap().version;
        let if_match = IfMatch::Version(version);
        self.changed(&Command::Change(Box::new(Change { key, if_match, by: by.into(), verb, reason: "seen".into() })))
    }
}

fn run(claimed: Claimed) -> (Record, Arc<str>) {
    match claimed {
        Claimed::Execute { record, lease_token } => (*record, lease_token),
        other => panic!("{other:?}"),
    }
}

fn code(denied: Result<Changed, Denied>) -> &'static str {
    match denied {
        Err(Denied::NotNow { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_running_read_is_joined_and_a_settled_or_unknown_one_runs_again() {
    let mut world = World::new(Effect::ReadOnly);
    let (first, token) = run(world.claim("{}"));
    assert!(matches!(world.claim("{}"), Claimed::InProgress(record) if record.key == first.key));
    world.complete(first.key, &token, Outcome::Succeeded).unwrap();
    let (second, _) = run(world.claim("{}"));
    assert_eq!((first.base, first.run.unwrap().0, second.run.unwrap().0), (second.base, 1, 2));
    world.now += 100;
    let (third, _) = run(world.claim("{}"));
    assert_eq!(third.run.unwrap().0, 3);
    let lost = world.store.record(&second.key).unwrap().unwrap();
    assert_eq!((lost.state, lost.reconciliation), (State::Unknown, Reconciliation::None));
    // A plan of the running one is that one; of a settled one it is the next, and its claim takes it.
    assert_eq!(world.plan("{}", 0, "a").key, third.key);
    world.now += 100;
    world.changed(&Command::Expire { key: third.key, epoch: 1 }).unwrap();
    let planned = world.plan("{}", 0, "b");
    let (fourth, _) = run(world.claim("{}"));
    assert_eq!((planned.key, fourth.run.unwrap().0, fourth.flags.is_empty()), (fourth.key, 4, true));
}

#[test]
fn plans_and_claims_meet_and_what_is_odd_is_flagged() {
    let mut world = World::new(Effect::Write);
    world.tool.guard_similar = false;
    let planned = world.plan(r#"{"a":1}"#, 1, "call_1");
    let mut claim = world.asked(r#"{"a":1}"#);
    claim.tool_call_id = Some("call_1".into());
    let (record, _) = run(world.claim_as(claim));
    assert_eq!((record.key, record.occurrence.0, record.flags.is_empty()), (planned.key, 1, true));
    let flags = |claimed| run(claimed).0.flags.into_iter().collect::<Vec<_>>();
    let mut claim = world.asked(r#"{"a":2}"#);
    claim.tool_call_id = Some("call_1".into());
    assert_eq!(flags(world.claim_as(claim)), [Flag::ChangedArguments]);
    let claimed = world.claim(r#"{"a":3}"#);
    assert_eq!(flags(claimed), [Flag::Unplanned]);
    let mut claim = world.asked(r#"{"a":4}"#);
    claim.planning = Planning::MayBeLost;
    assert_eq!(flags(world.claim_as(claim)), [Flag::PlanIncomplete]);
    let mut claim = world.asked(r#"{"a":5}"#);
    claim.operation = None;
    assert_eq!(flags(world.claim_as(claim)), []);
}

#[test]
fn a_near_duplicate_is_held_and_its_token_counts_once() {
    let mut world = World::new(Effect::Write);
    let (first, token) = run(world.claim(r#"{"m":"pay the fee"}"#));
    let again = r#"{"m":"please pay the fee"}"#;
    let Claimed::Confirm { why: WhyConfirm::Similar, similar: Some(similar), confirm_token: Some(confirm), .. } =
        world.claim(again)
    else {
        panic!("not held")
    };
    assert_eq!(similar.key, first.key);
    // Bound to both words: not for a third wording, and a wrong one is as none.
    for (words, text) in [(r#"{"m":"do pay the fee"}"#, &*confirm), (again, "ct_0")] {
        let mut claim = world.asked(words);
        claim.confirm = Some(text.into());
        assert!(matches!(world.claim_as(claim), Claimed::Confirm { .. }));
    }
    let mut claim = world.asked(again);
    claim.confirm = Some(Arc::clone(&confirm));
    let (second, second_token) = run(world.claim_as(claim));
    world.complete(second.key, &second_token, Outcome::NotExecuted).unwrap();
    let mut claim = world.asked(again);
    claim.confirm = Some(confirm);
    assert!(matches!(world.claim_as(claim), Claimed::Confirm { .. }), "used twice");
    // Just succeeded still holds, until a quarter of an hour is over.
    world.complete(first.key, &token, Outcome::Succeeded).unwrap();
    world.now += 899_999;
    assert!(matches!(world.claim(again), Claimed::Confirm { .. }));
    world.now += 1;
    run(world.claim(again));
}

#[test]
fn where_impact_is_high_an_approver_lets_a_near_duplicate_through_once() {
    let mut world = World::new(Effect::Write);
    world.tool.impact = Impact::High;
    let (first, _) = run(world.claim(r#"{"m":"pay the fee"}"#));
    let again = r#"{"m":"please pay the fee"}"#;
    let Claimed::Confirm { confirm_token: None, fingerprint, .. } = world.claim(again) else { panic!("not held") };
    world.change(first.key, "ann", Verb::LetThrough { fingerprint }).unwrap();
    let (second, token) = run(world.claim(again));
    world.complete(second.key, &token, Outcome::NotExecuted).unwrap();
    assert!(matches!(world.claim(again), Claimed::Confirm { .. }), "let through twice");
}

#[test]
fn where_impact_is_high_two_persons_resolve() {
    let mut world = World::new(Effect::Write);
    world.tool.impact = Impact::High;
    let (record, token) = run(world.claim("{}"));
    let verdict = || Verb::Resolve { outcome: Outcome::NotExecuted, settlement: nothing() };
    assert_eq!(code(world.change(record.key, "ann", verdict())), "not_unknown");
    world.complete(record.key, &token, Outcome::Unknown).unwrap();
    assert_eq!(code(world.change(record.key, "bob", Verb::Confirm)), "nothing_pending");
    let pending = world.change(record.key, "ann", verdict()).unwrap().record;
    assert_eq!((pending.state, pending.reconciliation), (State::Unknown, Reconciliation::PendingSecond));
    assert_eq!(code(world.change(record.key, "ann", Verb::Confirm)), "same_person");
    world.change(record.key, "bob", Verb::Note).unwrap();
    let settled = world.change(record.key, "bob", Verb::Confirm).unwrap().record;
    assert_eq!((settled.state, settled.needs_release, settled.pending.is_none()), (State::Failed, true, true));
    assert!(matches!(world.claim("{}"), Claimed::Stop(_)));
    // The owner was right all along: kept, and told.
    assert!(matches!(world.complete(record.key, &token, Outcome::Succeeded), Err(Denied::AlreadySettled(record))
        if record.flags.contains(&Flag::DoubleEffectSuspected)));
    world.change(record.key, "bob", Verb::Release).unwrap();
    assert_eq!(run(world.claim("{}")).0.epoch, 2);
    assert!(matches!(world.complete(record.key, &token, Outcome::Succeeded), Err(Denied::StaleLease(_))));
}

#[test]
fn a_late_owner_voids_a_verdict_that_waits() {
    let mut world = World::new(Effect::Write);
    world.tool.impact = Impact::High;
    let (record, token) = run(world.claim("{}"));
    world.now += 100;
    world.changed(&Command::Expire { key: record.key, epoch: 1 }).unwrap();
    let verdict = Verb::Resolve { outcome: Outcome::NotExecuted, settlement: nothing() };
    world.change(record.key, "ann", verdict).unwrap();
    let late = world.complete(record.key, &token, Outcome::Succeeded).unwrap().record;
    assert_eq!((late.state, late.reconciliation), (State::Succeeded, Reconciliation::Resolved));
    assert_eq!(code(world.change(record.key, "bob", Verb::Confirm)), "nothing_pending");
}

#[test]
fn an_approval_is_for_these_words_and_one_run() {
    let mut world = World::new(Effect::Write);
    world.tool.approve_before_run = true;
    world.tool.projection = Arc::new(Projection::new(vec!["/to".parse().unwrap()], vec![]).unwrap());
    let (one, other) = (r#"{"to":1,"m":"a"}"#, r#"{"to":1,"m":"b"}"#);
    let Claimed::AwaitApproval(record) = world.claim(one) else { panic!("it ran") };
    world.change(record.key, "ann", Verb::Confirm).unwrap();
    assert!(matches!(world.claim(other), Claimed::AwaitApproval(_)));
    assert!(matches!(world.claim(other), Claimed::AwaitApproval(_)));
    world.change(record.key, "ann", Verb::Confirm).unwrap();
    let (running, token) = run(world.claim(other));
    assert_eq!((running.key, running.approved_by.as_deref()), (record.key, Some("ann")));
    world.complete(record.key, &token, Outcome::NotExecuted).unwrap();
    assert!(matches!(world.claim(other), Claimed::AwaitApproval(_)));
    let refuse = Verb::Resolve { outcome: Outcome::NotExecuted, settlement: nothing() };
    let refused = world.change(record.key, "ann", refuse).unwrap().record;
    assert_eq!((refused.state, refused.needs_release), (State::Failed, true));
    assert!(matches!(world.claim(other), Claimed::Stop(_)));
}

#[test]
fn in_a_gap_no_write_runs_and_what_succeeded_still_answers() {
    let mut world = World::new(Effect::Write);
    let (record, token) = run(world.claim("{}"));
    world.complete(record.key, &token, Outcome::Succeeded).unwrap();
    world.reply(&Command::Gap { open: true, by: "ann".into(), reason: "restored".into() });
    assert!(matches!(world.claim("{}"), Claimed::UseResult(_)));
    let held = world.claim(r#"{"a":1}"#);
    assert!(matches!(held, Claimed::Confirm { why: WhyConfirm::RestoredGap, similar: None, confirm_token: None, .. }));
    world.reply(&Command::Gap { open: false, by: "ann".into(), reason: "looked".into() });
    run(world.claim(r#"{"a":1}"#));
}

#[test]
fn runs_of_another_life_are_unknown_and_clients_keep_theirs() {
    let mut world = World::new(Effect::Write);
    let (client, _) = run(world.claim("{}"));
    let mut own = world.asked(r#"{"a":1}"#);
    own.owner = Owner::Own { boot: 1 };
    own.claim_id = Some("same".into());
    let (own, _) = (run(world.claim_as(own.clone())).0, assert_twice(&mut world, own));
    for (boot, states) in [(1, [State::Started; 2]), (2, [State::Started, State::Unknown])] {
        world.boot = boot;
        let after = [client.key, own.key].map(|key| world.changed(&Command::Orphan { key }).unwrap().record.state);
        assert_eq!(after, states, "boot {boot}");
    }
}

/// The ledger's own run is not given out again, even to the same name.
fn assert_twice(world: &mut World, claim: Claim) {
    assert!(matches!(world.claim_as(claim), Claimed::InProgress(_)));
}

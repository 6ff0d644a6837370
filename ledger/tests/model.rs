//! The machine against a plain oracle: random commands on a few intents in several words, tenants and roots, with stale and foreign
//! tokens, repeated commands and a clock that steps both ways. The oracle knows nothing of records: only what may run, and what it said.
//! The seed is printed where they disagree.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests; clippy exempts only the test functions")]

use std::collections::HashMap;
use std::sync::Arc;

use rubicon_ledger::store::{MemoryStore, Store, View};
use rubicon_ledger::{
    Arguments, Change, Claim, Claimed, Command, Complete, Decision, Denied, Effect, Env, ExecutionKey, Heartbeat,
    IfMatch, Impact, Observe, OperationId, Outcome, Owner, Plan, Planning, Projection, Record, Reply, RootId,
    Settlement, State, TenantId, ToolName, ToolResult, ToolRule, UnixMillis, Verb, WhyConfirm, decide,
};

const SECRET: [u8; 32] = [9; 32];
const MAX_RUNS: u32 = 2;
const SEEDS: u64 = 150;
const STEPS: u32 = 250;

/// A small generator of its own, so that a seed means the same run for ever.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Status {
    Planned,
    Running { until: u64, claim: Option<u64>, epoch: u32 },
    Unknown,
    Ended(Outcome, u64),
}

/// One wording of an intent, as the oracle sees it.
#[derive(Debug, Clone)]
struct Words {
    word: u64,
    status: Status,
    epoch: u32,
    runs: u32,
    needs_release: bool,
    released: bool,
    erased: bool,
    key: Option<ExecutionKey>,
}

impl Words {
    fn new(word: u64, runs: u32) -> Self {
        Self {
            word,
            status: Status::Planned,
            epoch: 0,
            runs,
            needs_release: false,
            released: false,
            erased: false,
            key: None,
        }
    }

    fn lapse(&mut self, now: u64) {
        if matches!(self.status, Status::Running { until, .. } if until <= now) {
            self.status = Status::Unknown;
        }
    }

    fn may_run(&self) -> bool {
        match self.status {
            Status::Planned => true,
            Status::Ended(Outcome::NotExecuted, _) => self.released || (!self.needs_release && self.runs < MAX_RUNS),
            Status::Ended(Outcome::ExecutedError, _) => self.released,
            _ => false,
        }
    }

    fn run(&mut self, claim: Option<u64>, until: u64) {
        self.epoch += 1;
        self.runs += 1;
        self.released = false;
        self.status = Status::Running { until, claim, epoch: self.epoch };
    }

    fn end(&mut self, outcome: Outcome, text: u64) {
        self.status = if outcome == Outcome::Unknown { Status::Unknown } else { Status::Ended(outcome, text) };
    }
}

/// What a claim of these words is answered, and the intent after it.
fn foresee(
    intent: &mut Vec<Words>,
    word: u64,
    claim: Option<u64>,
    confirmed: bool,
    now: u64,
    until: u64,
) -> &'static str {
    let Some(last) = intent.last_mut() else {
        let mut words = Words::new(word, 0);
        words.run(claim, until);
        intent.push(words);
        return "execute";
    };
    last.lapse(now);
    if last.word == word {
        if last.erased {
            return "gone";
        }
        if last.may_run() {
            last.run(claim, until);
            return "execute";
        }
        return match &last.status {
            Status::Running { claim: theirs, .. } if claim.is_some() && *theirs == claim => "execute",
            Status::Running { .. } => "in_progress",
            Status::Unknown => "reconcile",
            Status::Ended(Outcome::Succeeded, _) => "use_result",
            _ => "stop",
        };
    }
    let replaced = intent.iter().any(|words| words.word == word);
    let Some(last) = intent.last_mut() else { return "" };
    if replaced {
        return "conflict";
    }
    let (outcome, runs) = match last.status {
        Status::Planned => {
            last.word = word;
            last.run(claim, until);
            return "execute";
        }
        Status::Running { .. } | Status::Unknown | Status::Ended(Outcome::Succeeded, _) => return "conflict",
        Status::Ended(outcome, _) => (outcome, last.runs),
    };
    if last.erased {
        return "gone";
    }
    if !last.may_run() {
        if outcome == Outcome::NotExecuted {
            return "stop";
        }
        if !confirmed {
            return "confirm";
        }
    }
    last.released = false;
    let mut words = Words::new(word, runs);
    words.run(claim, until);
    intent.push(words);
    "execute"
}

fn said(claimed: &Claimed) -> &'static str {
    match claimed {
        Claimed::Execute { .. } => "execute",
        Claimed::UseResult(_) => "use_result",
        Claimed::InProgress(_) => "in_progress",
        Claimed::Reconcile(_) => "reconcile",
        Claimed::Stop(_) => "stop",
        Claimed::Confirm { .. } => "confirm",
        Claimed::AwaitApproval(_) => "await_approval",
        Claimed::Conflict { .. } => "conflict",
        Claimed::Gone(_) => "gone",
    }
}

fn settlement(text: u64) -> Settlement {
    let body = Arc::from(format!("answer {text}").into_bytes());
    Settlement {
        result: Some(ToolResult { status: Some(200), content_type: None, body }),
        external_reference: None,
        error: None,
    }
}

fn rule() -> Arc<ToolRule> {
    Arc::new(ToolRule {
        name: ToolName::new("pay").unwrap(),
        effect: Effect::Write,
        impact: Impact::Normal,
        projection: Arc::new(Projection::new(vec!["/invoice".parse().unwrap()], vec![]).unwrap()),
        max_runs: MAX_RUNS,
        guard_similar: true,
        approve_before_run: false,
        has_probe: true,
        owner: None,
    })
}

fn arguments(invoice: u64, word: u64) -> Arguments {
    Arguments::parse(format!(r#"{{"invoice":{invoice},"reason":"in words {word}"}}"#).as_bytes()).unwrap()
}

struct World {
    random: Random,
    store: MemoryStore,
    now: u64,
    /// By tenant, root and invoice.
    intents: HashMap<(u64, u64, u64), Vec<Words>>,
    /// Every lease token that was ever given: whose, key, epoch, token.
    tokens: Vec<((u64, u64, u64), ExecutionKey, u32, Arc<str>)>,
    /// The last confirm token of an intent.
    confirms: HashMap<(u64, u64, u64), (Arc<str>, u64)>,
    tool: Arc<ToolRule>,
}

impl World {
    fn decide(&mut self, command: &Command) -> Reply {
        let env = Env { now: UnixMillis(self.now), boot: 1, secret: SECRET };
        let Decision { writes, reply } = decide(command, &self.store, &env).unwrap();
        self.store.persist(writes).unwrap();
        reply
    }

    fn changed(&mut self, command: &Command) -> Result<rubicon_ledger::Changed, Denied> {
        match self.decide(command) {
            Reply::Changed(changed) => changed,
            other => panic!("{other:?}"),
        }
    }

    fn step(&mut self) {
        match self.random.below(12) {
            0 => self.now += self.random.below(400),
            1 => self.now = self.now.saturating_sub(self.random.below(150)),
            2 | 3 => self.complete(),
            4 => self.heartbeat(),
            5 => self.operate(),
            6 => self.keep(),
            7 => self.plan(),
            _ => self.claim(),
        }
        self.agree();
    }

    fn pick(&mut self) -> (u64, u64, u64) {
        (self.random.below(2), self.random.below(2), self.random.below(2))
    }

    fn plan(&mut self) {
        let intent = self.pick();
        let word = self.random.below(3);
        let plan = Plan {
            tenant: TenantId::new(&format!("t{}", intent.0)).unwrap(),
            root: RootId::new(&format!("r{}", intent.1)).unwrap(),
            operation: OperationId::new("op").unwrap(),
            tool: Arc::clone(&self.tool),
            arguments: arguments(intent.2, word),
            occurrence: rubicon_ledger::Occurrence(0),
            tool_call_id: Some(Arc::from("call_0")),
            flags: Vec::new(),
        };
        self.changed(&Command::Plan(Box::new(plan))).unwrap();
        let words = self.intents.entry(intent).or_default();
        if words.is_empty() {
            words.push(Words::new(word, 0));
        }
    }

    fn claim(&mut self) {
        let intent = self.pick();
        let word = self.random.below(3);
        let claim_id = [None, Some(1), Some(2)][usize::try_from(self.random.below(3)).unwrap()];
        let lease_ms = 50 + self.random.below(300);
        let token = self.confirms.get(&intent).cloned().filter(|_| self.random.below(2) == 0);
        let claim = Claim {
            tenant: TenantId::new(&format!("t{}", intent.0)).unwrap(),
            root: RootId::new(&format!("r{}", intent.1)).unwrap(),
            operation: Some(OperationId::new("op").unwrap()),
            tool: Arc::clone(&self.tool),
            arguments: arguments(intent.2, word),
            occurrence: None,
            tool_call_id: None,
            claim_id: claim_id.map(|id| Arc::from(id.to_string())),
            owner: Owner::Client,
            lease_ms,
            confirm: token.as_ref().map(|(token, _)| Arc::clone(token)),
            planning: Planning::Complete,
            flags: Vec::new(),
            by: Arc::from("client"),
        };
        let (now, until) = (self.now, self.now + lease_ms);
        let words = self.intents.entry(intent).or_default();
        // The token counts for the words, the other words and their run that it was given for: `given` names all of them by number.
        let given = word * 1_000_000
            + words.last().map_or(0, |last| u64::from(last.epoch) + 1000 * last.word + 10_000 * words.len() as u64);
        let confirmed = token.as_ref().is_some_and(|(_, bound)| *bound == given);
        let wanted = foresee(words, word, claim_id, confirmed, now, until);
        let Reply::Claimed(claimed) = self.decide(&Command::Claim(Box::new(claim))) else { panic!("no claim") };
        assert_eq!(said(&claimed), wanted, "{intent:?} word {word} {:?}", self.intents[&intent]);
        let last = self.intents.get_mut(&intent).unwrap().last_mut().unwrap();
        match claimed {
            Claimed::Execute { record, lease_token } => {
                assert_eq!((record.state, record.epoch), (State::Started, last.epoch));
                last.key = Some(record.key);
                if !self.tokens.iter().any(|(.., known)| *known == lease_token) {
                    self.tokens.push((intent, record.key, record.epoch, lease_token));
                }
            }
            Claimed::UseResult(record) => {
                let Status::Ended(_, text) = last.status else { panic!("{last:?}") };
                assert_eq!(record.settlement, Some(settlement(text)));
            }
            Claimed::Confirm { why, confirm_token, .. } => {
                assert_eq!(why, WhyConfirm::AfterError);
                self.confirms.insert(intent, (confirm_token.unwrap(), given));
            }
            _ => {}
        }
    }

    /// A token, and whose wording it is; sometimes with a token of another key, which must change nothing.
    fn token(&mut self) -> Option<((u64, u64, u64), ExecutionKey, u32, Arc<str>)> {
        if self.tokens.is_empty() {
            return None;
        }
        let (intent, key, epoch, token) = self.random.of(&self.tokens).clone();
        if self.random.below(8) == 0 {
            let (_, other, _, foreign) = self.random.of(&self.tokens).clone();
            if other != key {
                let before = self.store.record(&key).unwrap();
                let tenant = TenantId::new(&format!("t{}", intent.0)).unwrap();
                let beat = Heartbeat { tenant, key, lease_token: foreign, lease_ms: 9 };
                assert_eq!(self.changed(&Command::Heartbeat(beat)), Err(Denied::ForeignLease));
                let tenant = TenantId::new("another").unwrap();
                let beat = Heartbeat { tenant, key, lease_token: Arc::clone(&token), lease_ms: 9 };
                assert_eq!(self.changed(&Command::Heartbeat(beat)), Err(Denied::NotFound));
                assert_eq!(self.store.record(&key).unwrap(), before);
            }
        }
        Some((intent, key, epoch, token))
    }

    fn words(&mut self, intent: (u64, u64, u64), key: ExecutionKey) -> &mut Words {
        self.intents.get_mut(&intent).unwrap().iter_mut().find(|words| words.key == Some(key)).unwrap()
    }

    fn complete(&mut self) {
        let Some((intent, key, epoch, lease_token)) = self.token() else { return };
        let all =
            [Outcome::Succeeded, Outcome::NotExecuted, Outcome::NotExecuted, Outcome::ExecutedError, Outcome::Unknown];
        let (outcome, text) = (*self.random.of(&all), self.random.below(2));
        let complete = Complete {
            tenant: TenantId::new(&format!("t{}", intent.0)).unwrap(),
            key,
            lease_token,
            outcome,
            settlement: settlement(text),
            why: Arc::from("said"),
            evidence: Vec::new(),
            by: Arc::from("client"),
        };
        let reply = self.changed(&Command::Complete(Box::new(complete)));
        let words = self.words(intent, key);
        if words.epoch != epoch {
            assert!(matches!(reply, Err(Denied::StaleLease(_))), "{reply:?}");
            return;
        }
        match words.status.clone() {
            Status::Running { .. } | Status::Unknown => {
                reply.unwrap();
                words.end(outcome, text);
            }
            Status::Ended(theirs, kept) if theirs == outcome && (kept == text || words.erased) => {
                assert!(!reply.unwrap().changed);
            }
            _ => assert!(matches!(reply, Err(Denied::AlreadySettled(_))), "{reply:?}"),
        }
    }

    fn heartbeat(&mut self) {
        let Some((intent, key, epoch, lease_token)) = self.token() else { return };
        let tenant = TenantId::new(&format!("t{}", intent.0)).unwrap();
        let lease_ms = 50 + self.random.below(300);
        let reply = self.changed(&Command::Heartbeat(Heartbeat { tenant, key, lease_token, lease_ms }));
        let now = self.now;
        let words = self.words(intent, key);
        if words.epoch != epoch {
            assert!(matches!(reply, Err(Denied::StaleLease(_))), "{reply:?}");
            return;
        }
        words.lapse(now);
        match &mut words.status {
            Status::Running { until, .. } => {
                *until = now + lease_ms;
                reply.unwrap();
            }
            Status::Ended(..) => assert!(matches!(reply, Err(Denied::AlreadySettled(_))), "{reply:?}"),
            _ => assert!(matches!(reply, Err(Denied::LeaseOver(_))), "{reply:?}"),
        }
    }

    fn operate(&mut self) {
        let Some((intent, key, _, _)) = self.token() else { return };
        let is_last = self.intents[&intent].last().unwrap().key == Some(key);
        let outcome = *self.random.of(&[Outcome::Succeeded, Outcome::NotExecuted, Outcome::ExecutedError]);
        let text = self.random.below(2);
        let resolves = self.random.below(2) == 0;
        let verb = if resolves { Verb::Resolve { outcome, settlement: settlement(text) } } else { Verb::Release };
        let change = Change { key, if_match: IfMatch::Any, by: "ann".into(), verb, reason: "seen".into() };
        let reply = self.changed(&Command::Change(Box::new(change)));
        let words = self.words(intent, key);
        match (resolves, &words.status) {
            (true, Status::Unknown) => {
                reply.unwrap();
                words.end(outcome, text);
                words.needs_release = outcome == Outcome::NotExecuted;
            }
            (false, Status::Ended(Outcome::NotExecuted | Outcome::ExecutedError, _)) if is_last && !words.erased => {
                reply.unwrap();
                words.released = true;
                words.needs_release = false;
            }
            _ => assert!(reply.is_err(), "{reply:?}"),
        }
    }

    /// Expiry, a probe's verdict, erasure.
    fn keep(&mut self) {
        let Some((intent, key, epoch, _)) = self.token() else { return };
        let now = self.now;
        match self.random.below(5) {
            0 => {
                self.changed(&Command::Erase { key }).ok();
                let words = self.words(intent, key);
                words.erased |= matches!(words.status, Status::Ended(..));
            }
            1 | 2 => {
                let verdict = Some((Outcome::NotExecuted, settlement(1)));
                let observe = Observe {
                    key,
                    epoch,
                    verdict,
                    why: "absent".into(),
                    evidence: vec![],
                    by: "probe".into(),
                    gives_up: false,
                };
                self.changed(&Command::Observe(Box::new(observe))).unwrap();
                let words = self.words(intent, key);
                if words.status == Status::Unknown && words.epoch == epoch {
                    words.end(Outcome::NotExecuted, 1);
                }
            }
            _ => {
                self.changed(&Command::Expire { key, epoch }).unwrap();
                let words = self.words(intent, key);
                if words.epoch == epoch {
                    words.lapse(now);
                }
            }
        }
    }

    /// Every record says what the oracle says.
    fn agree(&self) {
        for words in self.intents.values().flatten() {
            let Some(key) = words.key else { continue };
            let record: Record = self.store.record(&key).unwrap().unwrap();
            let state = match words.status {
                Status::Planned => State::Planned,
                Status::Running { .. } => State::Started,
                Status::Unknown => State::Unknown,
                Status::Ended(Outcome::Succeeded, _) => State::Succeeded,
                Status::Ended(..) => State::Failed,
            };
            assert_eq!((record.state, record.epoch, record.runs), (state, words.epoch, words.runs), "{words:?}");
            assert_eq!((record.erased, record.needs_release), (words.erased, words.needs_release), "{words:?}");
        }
    }
}

#[test]
fn the_machine_does_what_the_oracle_says() {
    let mut executed = 0;
    for seed in 0..SEEDS {
        let run = std::panic::catch_unwind(|| {
            let mut world = World {
                random: Random(seed),
                store: MemoryStore::new([3; 32]),
                now: 1_000_000,
                intents: HashMap::new(),
                tokens: Vec::new(),
                confirms: HashMap::new(),
                tool: rule(),
            };
            for _ in 0..STEPS {
                world.step();
            }
            assert!(world.store.reader().verify(None).unwrap().ok);
            world.tokens.len()
        });
        match run {
            Ok(tokens) => executed += tokens,
            Err(_) => panic!("seed {seed}"),
        }
    }
    assert!(executed > 1000, "the seeds hardly ran anything: {executed}");
}

//! The probe loop: whatever is unknown and can be asked about is asked about, until it is known or a person must decide.
//!
//! In: the ledger's unknowns that are `probing`, the tools' `probe`. Out: [`Observe`]s: each answer as evidence, and in the end a verdict or
//! `gives_up`. One task an execution, most of them asleep; at most [`PROBES_MAX`] ask at once. Unknowns are found by walking the
//! ledger's list of them (which is no scan), at the start, when told, and every few seconds (a client's lease that ran out, an operator's
//! "probe now"). Nothing is kept here that a restart would lose but the count of agreeing answers.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rubicon_ledger::store::Filter;
use rubicon_ledger::{
    Evidence, ExecutionKey, Ledger, Observe, Outcome, Reconciliation, Record, Settlement, State, ToolName, ToolResult,
    failpoint,
};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::attempt::backoff::full_jitter;
use crate::clock::{Instant, UnixMillis};
use crate::config::settings::{ProbeSettings, ToolSettings};

use super::probe::{Agreement, hear, order};
use super::sender::{Seen, send};

/// Probes that ask at once. 16: other systems are asked because something is wrong, which is when they can bear least.
pub const PROBES_MAX: usize = 16;

/// Executions that are asked about in turn; more wait for the next walk.
pub const PROBING_MAX: usize = 10_000;

/// How long one execution is asked about, beyond its `absent_after_ms`, before a person must decide. One hour: what another system
/// does not know by then it will hardly know later, and money should not hang in the air unseen. A restart begins it anew, and so does
/// an operator's "probe now".
pub const PROBED_FOR: Duration = Duration::from_secs(3600);

/// The bound of the first wait between two questions; doubles.
pub const WAIT_BASE: Duration = Duration::from_millis(500);

/// The longest wait between two questions.
pub const WAIT_CAP: Duration = Duration::from_secs(60);

/// How often the list of unknowns is walked without being told.
pub const WALK_EVERY: Duration = Duration::from_secs(2);

/// Executions a page of that walk.
const PAGE: usize = 256;

/// Finds a tool as it is configured now (`Some(None)`: it is not registered). None: nobody can tell any more.
pub type Tools = Box<dyn Fn(&ToolName) -> Option<Option<Arc<ToolSettings>>> + Send + Sync>;

/// What the loop is made of.
pub struct Reconciler {
    /// The ledger.
    pub ledger: Ledger,
    /// How TLS is spoken.
    pub tls: rustls::ClientConfig,
    /// The tools as they are configured now.
    pub tools: Tools,
    /// Random bits.
    pub random: fn() -> u64,
    /// Tells it that something became unknown.
    pub unknown: Arc<Notify>,
    /// Ends it.
    pub stop: CancellationToken,
}

/// The executions that have a task.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<HashSet<ExecutionKey>>>);

impl Asked {
    fn lock(&self) -> MutexGuard<'_, HashSet<ExecutionKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes an execution out again however its task ends.
struct Turn(Asked, ExecutionKey);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl Reconciler {
    /// Runs until stopped. What is being asked then is dropped: a probe changes nothing.
    pub async fn run(self) {
        let this = Arc::new(self);
        let stop = this.stop.clone();
        let (asked, permits) = (Asked::default(), Arc::new(Semaphore::new(PROBES_MAX)));
        let mut tasks = tokio::task::JoinSet::new();
        loop {
            for record in this.fresh(&asked).await {
                let (this, permits) = (Arc::clone(&this), Arc::clone(&permits));
                let turn = Turn(asked.clone(), record.key);
                tasks.spawn(async move {
                    this.ask(*record, &permits).await;
                    drop(turn);
                });
            }
            while tasks.try_join_next().is_some() {}
            tokio::select! {
                () = stop.cancelled() => return,
                () = this.unknown.notified() => {}
                () = tokio::time::sleep(WALK_EVERY) => {}
            }
        }
    }

    /// Unknowns to be asked about that have no task yet; they count as asked from here on.
    async fn fresh(&self, asked: &Asked) -> Vec<Box<Record>> {
        let mut fresh = Vec::new();
        let mut after = 0;
        loop {
            let reader = self.ledger.reader();
            let filter = Filter { state: Some(State::Unknown), after, ..Filter::default() };
            let page = match tokio::task::spawn_blocking(move || reader.list(&filter, PAGE)).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the unknowns cannot be read");
                    return fresh;
                }
                Err(_) => return fresh,
            };
            let mut table = asked.lock();
            for record in page.records {
                let wanted = record.reconciliation == Reconciliation::Probing;
                if wanted && table.len() < PROBING_MAX && table.insert(record.key) {
                    fresh.push(Box::new(record));
                }
            }
            match page.next {
                Some(next) if table.len() < PROBING_MAX => after = next,
                _ => return fresh,
            }
        }
    }

    /// Asks about one execution until it is known, is no longer to be asked about, or the time is over.
    async fn ask(&self, record: Record, permits: &Semaphore) {
        let began = Instant::now();
        let mut agreement = Agreement::default();
        let mut turn = 0;
        loop {
            let Some(tool) = (self.tools)(&record.tool) else { return };
            let Some(tool) = tool else {
                return self.give_up(&record, "tool_not_registered").await;
            };
            let Some(probe) = &tool.probe else { return self.give_up(&record, "no_probe").await };
            let wait = full_jitter(turn, (self.random)(), WAIT_BASE, WAIT_CAP);
            turn = turn.saturating_add(1);
            tokio::time::sleep(wait).await;
            let Ok(_permit) = permits.acquire().await else { return };
            match self.now(record.key).await {
                Some(now)
                    if now.state == State::Unknown
                        && now.reconciliation == Reconciliation::Probing
                        && now.epoch == record.epoch => {}
                _ => return,
            }
            let Some(order) = order(probe, &record.key) else { return self.give_up(&record, "bad_probe_url").await };
            failpoint::hit("probe-sent");
            let seen = send(&self.tls, order, &self.stop).await;
            if self.stop.is_cancelled() {
                return;
            }
            let verdict = agreement.hear(hear(probe, &seen), since(&record, began), probe);
            let over = began.elapsed() >= PROBED_FOR.saturating_add(probe.absence_delay());
            if self.observe(&record, probe, &seen, verdict, over && verdict.is_none()).await
                && (verdict.is_some() || over)
            {
                return;
            }
        }
    }

    /// Notes an answer. A question that got none leaves no trace, save at the end. True: it is noted.
    async fn observe(
        &self,
        record: &Record,
        probe: &ProbeSettings,
        seen: &Seen,
        verdict: Option<Outcome>,
        gives_up: bool,
    ) -> bool {
        let answered = seen.whole().is_some();
        tracing::debug!(key = %record.key, status = seen.status, ?verdict, url = %probe.url, "a probe was answered");
        if !answered && !gives_up {
            return false;
        }
        let settlement = verdict.map(|outcome| (outcome, settlement(outcome, seen)));
        let why = match verdict {
            Some(_) => "probe_verdict",
            None if gives_up => "probe_gave_up",
            None => "probe_answer",
        };
        failpoint::hit("probe-verdict");
        self.tell(record, settlement, why, vec![evidence(record, seen)], gives_up).await
    }

    async fn give_up(&self, record: &Record, why: &'static str) {
        self.tell(record, None, why, Vec::new(), true).await;
    }

    async fn tell(
        &self,
        record: &Record,
        verdict: Option<(Outcome, Settlement)>,
        why: &'static str,
        evidence: Vec<Evidence>,
        gives_up: bool,
    ) -> bool {
        let observe = Observe {
            key: record.key,
            epoch: record.epoch,
            verdict,
            why: Arc::from(why),
            evidence,
            by: Arc::from("probe"),
            gives_up,
        };
        match self.ledger.observe(observe).await {
            Ok(Ok(_)) => {
                tracing::info!(key = %record.key, tool = %record.tool, why, "a probe's answer is noted");
                true
            }
            // Somebody else settled it meanwhile.
            Ok(Err(denied)) => {
                tracing::info!(key = %record.key, %denied, "a probe's answer came too late");
                true
            }
            Err(error) => {
                tracing::warn!(key = %record.key, %error, "a probe's answer is not noted");
                false
            }
        }
    }

    async fn now(&self, key: ExecutionKey) -> Option<Record> {
        let reader = self.ledger.reader();
        tokio::task::spawn_blocking(move || reader.record(&key)).await.ok()?.ok()?
    }
}

/// Since the run was over, as far as is known: it became unknown at or after its end, and this task saw it later still.
fn since(record: &Record, began: Instant) -> Duration {
    let by_clock = Duration::from_millis(UnixMillis::now().0.saturating_sub(record.changed_at.0));
    by_clock.max(began.elapsed())
}

/// What a probe's answer settles with: its bytes are the result that later callers get; it is no answer of the tool, so it has no status.
fn settlement(outcome: Outcome, seen: &Seen) -> Settlement {
    let kept = matches!(outcome, Outcome::Succeeded | Outcome::ExecutedError);
    let result = kept.then(|| ToolResult {
        status: None,
        content_type: seen.content_type.clone(),
        body: Arc::from(&seen.body[..]),
    });
    let error = (!kept).then(|| Arc::from(r#"{"code":"absent"}"#));
    Settlement { result, external_reference: None, error }
}

fn evidence(record: &Record, seen: &Seen) -> Evidence {
    Evidence {
        at: rubicon_ledger::UnixMillis(UnixMillis::now().0),
        kind: Arc::from("probe"),
        epoch: record.epoch,
        by: Arc::from("probe"),
        detail: seen.evidence(true),
    }
}

//! A call that the relay runs itself, in a task that the ledger owns and no client can stop (LEDGER.md 10.4).
//!
//! In: a claim, the tool's settings, the arguments as the caller wrote them. Out: [`Came`]. The order is the promise: the claim is on disk
//! before a byte leaves; the outcome is on disk before a byte of the answer reaches anybody. Callers of the same key wait for the one run
//! and get its stored bytes. Where the outcome cannot be stored they are told so, and the task goes on trying.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use rubicon_ledger::{
    Claim, Claimed, Complete, Denied, Evidence, ExecutionKey, Heartbeat, Ledger, Outcome, Owner, Record, Settlement,
    State, ToolResult, Unavailable, failpoint,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{Instant, UnixMillis};
use crate::config::settings::{ToolEndpoint, ToolSettings};

use super::sender::{BODY_BYTES_MAX, Order, Seen, send};
use super::verdict::{self, Verdict};

/// A lease outlives the tool's time by this: room to store the outcome while the disk is slow. It is renewed at a third all the same.
pub const LEASE_MARGIN: Duration = Duration::from_secs(30);

/// Runs at once. At the bound a call is refused before it is claimed: clients that leave would otherwise pile up runs without limit.
pub const RUNS_MAX: usize = 10_000;

/// Callers that wait for one key (SPEC.md Annex, Bounds).
pub const WAITERS_MAX: usize = 1_000;

/// How often a caller looks at a run that it cannot attach to (it began, or ended, this very moment).
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The first wait before an outcome is stored again, and the longest.
const STORE_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The member of an error with [`asked_wait`], in milliseconds.
const RETRY_AFTER_MS: &str = "retry_after_ms";

/// One call.
#[derive(Debug)]
pub struct Call {
    /// The claim. Owner, lease and claim id (none) are set here.
    pub claim: Claim,
    /// The tool.
    pub tool: Arc<ToolSettings>,
    /// The arguments object as the caller wrote it.
    pub arguments: Bytes,
}

/// What a call came to.
#[derive(Debug)]
pub enum Came {
    /// It ran now, or a twin that was running did: the record as it is on disk.
    Ran {
        /// Settled, or unknown.
        record: Box<Record>,
        /// This caller's own call was not the one that ran.
        replayed: bool,
    },
    /// The ledger decided otherwise ([`Claimed::Execute`] never).
    Decided(Claimed),
    /// It ran, and its outcome is not on disk: nobody may be told what it was.
    NotRecorded(ExecutionKey),
    /// Too many wait for this key.
    TooManyWait(ExecutionKey),
    /// Too many tools run.
    TooManyRun,
    /// The tool has no endpoint.
    NotRunnable,
    /// Nothing could be made durable: nothing ran.
    Unavailable(Unavailable),
}

#[derive(Debug, Clone)]
enum Stage {
    Running,
    NotRecorded,
    Ended(Box<Record>),
}

/// Runs tools.
#[derive(Clone)]
pub struct Runner {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runner")
    }
}

struct Inner {
    ledger: Ledger,
    tls: rustls::ClientConfig,
    boot: u64,
    tasks: TaskTracker,
    cut: CancellationToken,
    /// Told when something becomes unknown.
    unknown: Arc<Notify>,
    permits: Arc<Semaphore>,
    running: Mutex<HashMap<ExecutionKey, watch::Sender<Stage>>>,
}

/// What a [`Runner`] is made of.
pub struct Parts {
    /// The ledger.
    pub ledger: Ledger,
    /// How TLS is spoken.
    pub tls: rustls::ClientConfig,
    /// The random name of this life, as the ledger was told it.
    pub boot: u64,
    /// Whoever waits for these tasks at a shutdown.
    pub tasks: TaskTracker,
    /// The grace of a shutdown is over: runs end, as unknown where anything was sent.
    pub cut: CancellationToken,
    /// Told when something becomes unknown.
    pub unknown: Arc<Notify>,
}

/// A claimed run.
struct Run {
    record: Box<Record>,
    lease_token: Arc<str>,
    lease: Duration,
    by: Arc<str>,
}

impl Runner {
    /// A runner.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { ledger, tls, boot, tasks, cut, unknown } = parts;
        let permits = Arc::new(Semaphore::new(RUNS_MAX));
        let running = Mutex::default();
        Self { inner: Arc::new(Inner { ledger, tls, boot, tasks, cut, unknown, permits, running }) }
    }

    /// Returns when no tool runs. A shutdown waits for it up to its grace.
    pub async fn idle(&self) {
        let all = u32::try_from(RUNS_MAX).unwrap_or(u32::MAX);
        let _ = self.inner.permits.acquire_many(all).await;
    }

    /// Tools that run now.
    #[must_use]
    pub fn running(&self) -> usize {
        RUNS_MAX - self.inner.permits.available_permits()
    }

    /// Claims and runs a call, or waits for the twin that runs, at most `patience`. Dropping the future stops nothing.
    pub async fn call(&self, call: Call, patience: Duration) -> Came {
        if call.tool.endpoint.is_none() {
            return Came::NotRunnable;
        }
        let until = Instant::now() + patience;
        let Ok(permit) = Arc::clone(&self.inner.permits).try_acquire_owned() else { return Came::TooManyRun };
        let (told, came) = oneshot::channel();
        let runner = self.clone();
        self.inner.tasks.spawn(Box::pin(runner.claim_and_run(call, permit, told)));
        match came.await {
            Ok(Came::Decided(Claimed::InProgress(record))) => self.join(record, until).await,
            Ok(came) => came,
            // The task ended without a word: it was aborted with its runtime.
            Err(_) => Came::Unavailable(Unavailable::Closed),
        }
    }

    async fn claim_and_run(self, mut call: Call, permit: OwnedSemaphorePermit, told: oneshot::Sender<Came>) {
        let lease = call.tool.timeout.saturating_add(LEASE_MARGIN);
        call.claim.owner = Owner::Own { boot: self.inner.boot };
        call.claim.lease_ms = millis(lease);
        // With one, a second call of the same name would be given the right to run a second time.
        call.claim.claim_id = None;
        let by = Arc::clone(&call.claim.by);
        failpoint::hit("claim-before-durable");
        let (record, lease_token) = match self.inner.ledger.claim(call.claim).await {
            Ok(Claimed::Execute { record, lease_token }) => (record, lease_token),
            Ok(decided) => {
                let _ = told.send(Came::Decided(decided));
                return;
            }
            Err(error) => {
                let _ = told.send(Came::Unavailable(error));
                return;
            }
        };
        let (stage, _) = watch::channel(Stage::Running);
        self.running_table().insert(record.key, stage.clone());
        failpoint::hit("claim-durable");
        let run = Run { record, lease_token, lease, by };
        Box::pin(self.run(&run, &call.tool, call.arguments, &stage, told)).await;
        self.running_table().remove(&run.record.key);
        drop(permit);
    }

    async fn run(
        &self,
        run: &Run,
        tool: &ToolSettings,
        arguments: Bytes,
        stage: &watch::Sender<Stage>,
        told: oneshot::Sender<Came>,
    ) {
        let Some(endpoint) = &tool.endpoint else { return };
        let order = order(endpoint, run, arguments, tool.timeout);
        let seen = self.while_renewing(run, Box::pin(send(&self.inner.tls, order, &self.inner.cut))).await;
        let verdict = verdict::of(seen.end, seen.counts.bytes_sent, seen.whole(), &tool.result_rules);
        tracing::info!(
            key = %run.record.key, tool = %run.record.tool, outcome = ?verdict.outcome, why = verdict.why,
            bytes_sent = seen.counts.bytes_sent, status = seen.status, "a tool's run ended"
        );
        let complete = complete(run, &seen, verdict);
        let mut told = Some(told);
        let mut wait = STORE_AGAIN.0;
        loop {
            failpoint::hit("outcome-in-commit");
            match self.while_renewing(run, self.inner.ledger.complete(complete.clone())).await {
                Ok(result) => {
                    failpoint::hit("outcome-durable");
                    let record = self.after(result, run).await;
                    if record.state == State::Unknown {
                        self.inner.unknown.notify_one();
                    }
                    stage.send_replace(Stage::Ended(record.clone()));
                    if let Some(told) = told.take() {
                        let _ = told.send(Came::Ran { record, replayed: false });
                    }
                    return;
                }
                Err(error) => {
                    tracing::error!(key = %run.record.key, %error, "the outcome of a tool's run is not recorded yet");
                    stage.send_replace(Stage::NotRecorded);
                    if let Some(told) = told.take() {
                        let _ = told.send(Came::NotRecorded(run.record.key));
                    }
                }
            }
            // At the end of a shutdown nothing is left to try with; the next start finds it started by another life: unknown.
            tokio::select! {
                () = self.inner.cut.cancelled() => return,
                () = tokio::time::sleep(wait) => wait = (wait * 2).min(STORE_AGAIN.1),
            }
        }
    }

    /// The record after its completion was taken or denied. Denied, somebody else settled it first (an operator, a probe): theirs stands,
    /// and what was seen here is evidence.
    async fn after(&self, result: Result<rubicon_ledger::Changed, Denied>, run: &Run) -> Box<Record> {
        match result {
            Ok(changed) => changed.record,
            Err(Denied::StaleLease(record) | Denied::LeaseOver(record) | Denied::AlreadySettled(record)) => record,
            Err(Denied::VersionMismatch(record) | Denied::NotNow { record, .. }) => record,
            Err(denied @ (Denied::NotFound | Denied::ForeignLease)) => {
                tracing::error!(key = %run.record.key, %denied, "a run that was claimed cannot be settled");
                self.look(run.record.key).await.unwrap_or_else(|| run.record.clone())
            }
        }
    }

    /// Drives `work`, renewing the lease at a third of it.
    async fn while_renewing<T>(&self, run: &Run, work: impl Future<Output = T>) -> T {
        let renewing = async {
            loop {
                tokio::time::sleep(run.lease / 3).await;
                let heartbeat = Heartbeat {
                    tenant: run.record.tenant.clone(),
                    key: run.record.key,
                    lease_token: Arc::clone(&run.lease_token),
                    lease_ms: millis(run.lease),
                };
                if let Err(error) = self.inner.ledger.heartbeat(heartbeat).await {
                    tracing::warn!(key = %run.record.key, %error, "a lease is not renewed");
                }
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            () = renewing => std::future::pending().await,
        }
    }

    /// Waits for a twin.
    async fn join(&self, mut record: Box<Record>, until: Instant) -> Came {
        // A client's run is not here to be waited for.
        while matches!(&record.lease, Some(lease) if lease.owner == (Owner::Own { boot: self.inner.boot })) {
            let attached = match self.running_table().get(&record.key) {
                Some(stage) if stage.receiver_count() >= WAITERS_MAX => return Came::TooManyWait(record.key),
                Some(stage) => Some(stage.subscribe()),
                None => None,
            };
            if let Some(mut stage) = attached {
                let ended = stage.wait_for(|stage| !matches!(stage, Stage::Running));
                match tokio::time::timeout_at(until, ended).await {
                    Ok(Ok(stage)) => match &*stage {
                        Stage::Ended(record) => return Came::Ran { record: record.clone(), replayed: true },
                        Stage::NotRecorded | Stage::Running => return Came::NotRecorded(record.key),
                    },
                    Ok(Err(_)) => {}
                    Err(_) => break,
                }
            }
            // It began this moment and is not in the table yet, or ended and is not any more.
            match self.look(record.key).await {
                Some(now) if now.state == State::Started => record = now,
                Some(now) => return Came::Ran { record: now, replayed: true },
                None => break,
            }
            if Instant::now() + LOOK_AGAIN > until {
                break;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Came::Decided(Claimed::InProgress(record))
    }

    async fn look(&self, key: ExecutionKey) -> Option<Box<Record>> {
        let reader = self.inner.ledger.reader();
        let read = tokio::task::spawn_blocking(move || reader.record(&key)).await;
        read.ok()?.ok()?.map(Box::new)
    }

    fn running_table(&self) -> MutexGuard<'_, HashMap<ExecutionKey, watch::Sender<Stage>>> {
        self.inner.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Configured headers first, and then ours: the key and the operation are never somebody else's.
fn order(endpoint: &ToolEndpoint, run: &Run, arguments: Bytes, timeout: Duration) -> Order {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    set(&mut headers, &endpoint.headers);
    if let Ok(key) = HeaderValue::from_str(&run.record.key.to_string()) {
        headers.insert(HeaderName::from_static("idempotency-key"), key);
    }
    let operation = HeaderName::from_static("rubicon-operation-id");
    headers.remove(&operation);
    // One with characters that no header may have was never given out.
    let named = run.record.operation.as_ref().and_then(|id| HeaderValue::from_str(id.as_str()).ok());
    if let Some(id) = named {
        headers.insert(operation, id);
    }
    let (url, method) = (endpoint.url.clone(), endpoint.method.clone());
    Order { url, method, headers, body: arguments, timeout, body_max: BODY_BYTES_MAX }
}

/// Adds configured headers; their values never show in a log.
pub(super) fn set(headers: &mut HeaderMap, configured: &[(HeaderName, crate::config::secret::Secret)]) {
    for (name, value) in configured {
        if let Ok(mut value) = HeaderValue::from_str(value.expose()) {
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
    }
}

/// The error of a run that did not execute: why, and how long the tool asked to wait. Canonical: members in the order of their names.
fn not_executed(why: &str, retry_after: Option<Duration>) -> String {
    let why = serde_json::Value::from(why);
    match retry_after {
        None => format!("{{\"code\":{why}}}"),
        Some(wait) => format!("{{\"code\":{why},\"{RETRY_AFTER_MS}\":{}}}", millis(wait)),
    }
}

/// How long the tool asked to wait before it is called again, where the last run did not execute and it said so.
#[must_use]
pub fn asked_wait(record: &Record) -> Option<Duration> {
    let error = record.settlement.as_ref()?.error.as_deref()?;
    let error: serde_json::Value = serde_json::from_str(error).ok()?;
    error.get(RETRY_AFTER_MS)?.as_u64().map(Duration::from_millis)
}

fn complete(run: &Run, seen: &Seen, verdict: Verdict) -> Complete {
    let kept = matches!(verdict.outcome, Outcome::Succeeded | Outcome::ExecutedError);
    let result = kept.then(|| ToolResult {
        status: seen.status,
        content_type: seen.content_type.clone(),
        body: Arc::from(&seen.body[..]),
    });
    // What is unknown has no error of its own: why is in the journal, what was seen is evidence.
    let error =
        (verdict.outcome == Outcome::NotExecuted).then(|| Arc::from(not_executed(verdict.why, seen.retry_after)));
    Complete {
        tenant: run.record.tenant.clone(),
        key: run.record.key,
        lease_token: Arc::clone(&run.lease_token),
        outcome: verdict.outcome,
        settlement: Settlement { result, external_reference: None, error },
        why: Arc::from(verdict.why),
        evidence: vec![Evidence {
            at: rubicon_ledger::UnixMillis(UnixMillis::now().0),
            kind: Arc::from("sending"),
            epoch: run.record.epoch,
            by: Arc::from("relay"),
            // The bytes of a result are kept as the result; all others are evidence.
            detail: seen.evidence(!kept),
        }],
        by: Arc::clone(&run.by),
    }
}

//! What a mock provider has seen and done, shared by its connections, its owner and its admin paths.
//!
//! The counters live in a `watch` channel, so that a test can wait for a condition and never has to sleep and look again.
//! Requests are kept in a bounded log. Not here: sockets.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Semaphore, watch};

use super::canned::Asked;
use super::http::Request;
use super::prepare::Prepared;
use super::script::Answer;
use crate::clock::Instant;

/// Most requests kept; older ones are forgotten (and still counted).
pub const SEEN_MAX: usize = 1000;

/// Most bytes of bodies kept with them; above it the oldest requests go first, the newest always stays.
pub const SEEN_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Headers whose values are keys: never printed.
const SECRET_HEADERS: [&str; 6] =
    ["authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization"];

/// Counters since the start or the last reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Requests, those without a rule included; counted when read whole, before the first step of the answer.
    #[serde(rename = "total")]
    pub calls: u64,
    /// Requests by the name of the rule; every rule is there.
    pub by_rule: BTreeMap<String, u64>,
    /// Requests no rule fits.
    pub unmatched: u64,
    /// Answers whose peer closed or reset the connection before they were sent whole.
    pub disconnects: u64,
    /// Events written to a socket whole.
    pub events_sent: u64,
    /// Answers that wait at a gate now (not reset).
    pub at_gates: u64,
    /// Answers under way now (not reset). One is over when its last step that writes begins: what a peer sees of the end comes after
    /// that, so whoever counts its own requests never finds one more here.
    pub answering: u64,
    /// The most answers that were under way at once.
    pub most_answering: u64,
    /// Open connections now, those of the admin paths included (not reset).
    pub active_connections: u64,
}

/// A request as it came.
#[derive(Clone)]
pub struct Seen {
    /// Which rule answered; `None`: none fits.
    pub rule: Option<String>,
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
    /// The header lines in order, names as they were sent.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// When it was read whole.
    pub at: Instant,
}

/// One mock provider's state.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) script: Prepared,
    pub(super) started: Instant,
    stats: watch::Sender<Stats>,
    seen: Mutex<VecDeque<Seen>>,
    gates: BTreeMap<String, Semaphore>,
}

/// Counts something as long as it lives.
pub(super) struct Counted<'a> {
    stats: &'a watch::Sender<Stats>,
    which: fn(&mut Stats) -> &mut u64,
}

impl Seen {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        super::http::header(&self.headers, name)
    }

    /// The body as JSON; `Null` where it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The header lines with keys replaced by their length: for whatever is printed or sent.
    pub(super) fn shown_headers(&self) -> Vec<(String, String)> {
        let shown = |(name, value): &(String, String)| {
            let secret = SECRET_HEADERS.iter().any(|secret| name.eq_ignore_ascii_case(secret));
            (name.clone(), if secret { format!("({} bytes)", value.len()) } else { value.clone() })
        };
        self.headers.iter().map(shown).collect()
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen")
            .field("rule", &self.rule)
            .field("method", &self.method)
            .field("path", &self.path)
            .field("headers", &self.shown_headers())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(script: Prepared) -> Self {
        let by_rule = script.rules.iter().map(|rule| (rule.name.clone(), 0)).collect();
        let gates = script.gates.iter().map(|name| (name.clone(), Semaphore::new(0))).collect();
        Self {
            script,
            started: Instant::now(),
            stats: watch::Sender::new(Stats { by_rule, ..Stats::default() }),
            seen: Mutex::default(),
            gates,
        }
    }

    /// Counts and keeps a request, and says how to answer it; `None`: no rule fits.
    pub(super) fn take_call(&self, request: &Request, asked: &Asked) -> Option<&Answer> {
        let fits = |want: &Option<String>, have: Option<&str>| want.is_none() || want.as_deref() == have;
        let rule =
            self.script.rules.iter().find(|rule| {
                fits(&rule.path, Some(request.path.as_str())) && fits(&rule.model, asked.model.as_deref())
            });
        // The log's lock is held over the count, so that the k-th kept request is the k-th call.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push_back(Seen {
            rule: rule.map(|rule| rule.name.clone()),
            method: request.method.clone(),
            path: request.path.clone(),
            query: request.query.clone(),
            headers: request.headers.clone(),
            body: request.body.clone(),
            at: Instant::now(),
        });
        forget_oldest(&mut seen, SEEN_MAX, SEEN_BYTES_MAX);
        let mut before = 0;
        self.stats.send_modify(|stats| {
            stats.calls += 1;
            match rule.and_then(|rule| stats.by_rule.get_mut(&rule.name)) {
                Some(calls) => {
                    before = *calls;
                    *calls += 1;
                }
                None => stats.unmatched += 1,
            }
        });
        let answers = &rule?.answers;
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        answers.get(before).or(answers.last())
    }

    pub(super) fn stats(&self) -> Stats {
        self.stats.borrow().clone()
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub(super) fn event_sent(&self) {
        self.stats.send_modify(|stats| stats.events_sent += 1);
    }

    pub(super) fn peer_left(&self) {
        self.stats.send_modify(|stats| stats.disconnects += 1);
    }

    pub(super) fn connection_opened(&self) -> Counted<'_> {
        Counted::new(&self.stats, |stats| &mut stats.active_connections)
    }

    pub(super) fn answer_began(&self) -> Counted<'_> {
        let counted = Counted::new(&self.stats, |stats| &mut stats.answering);
        self.stats.send_modify(|stats| stats.most_answering = stats.most_answering.max(stats.answering));
        counted
    }

    /// Waits for one permit of a gate. Every gate of the script exists; another would never open.
    pub(super) async fn pass_gate(&self, name: &str) {
        let Some(gate) = self.gates.get(name) else { return std::future::pending().await };
        if let Ok(permit) = gate.try_acquire() {
            return permit.forget();
        }
        let _waiting = Counted::new(&self.stats, |stats| &mut stats.at_gates);
        if let Ok(permit) = gate.acquire().await {
            permit.forget();
        }
    }

    /// Opens a gate by `permits`; false where the script has no such gate.
    pub(super) fn open_gate(&self, name: &str, permits: usize) -> bool {
        let Some(gate) = self.gates.get(name) else { return false };
        // A semaphore panics above its limit; no script needs half the address space of permits.
        gate.add_permits(permits.min((Semaphore::MAX_PERMITS / 2).saturating_sub(gate.available_permits())));
        true
    }

    /// Waits until the counters fulfil a condition, and gives them.
    pub(super) async fn wait_for(&self, mut until: impl FnMut(&Stats) -> bool) -> Stats {
        let mut stats = self.stats.subscribe();
        // The sender lives in `self`, so the wait cannot fail.
        match stats.wait_for(|stats| until(stats)).await {
            Ok(stats) => stats.clone(),
            Err(_) => self.stats(),
        }
    }

    /// Back to the start: no request seen, every rule at its first answer, every gate shut. Running answers go on.
    pub(super) fn reset(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clear();
        for gate in self.gates.values() {
            gate.forget_permits(gate.available_permits());
        }
        self.stats.send_modify(|stats| {
            let by_rule = stats.by_rule.keys().map(|name| (name.clone(), 0)).collect();
            let (at_gates, active_connections, answering) = (stats.at_gates, stats.active_connections, stats.answering);
            let most_answering = answering;
            *stats = Stats { by_rule, at_gates, active_connections, answering, most_answering, ..Stats::default() };
        });
    }
}

impl<'a> Counted<'a> {
    fn new(stats: &'a watch::Sender<Stats>, which: fn(&mut Stats) -> &mut u64) -> Self {
        stats.send_modify(|stats| *which(stats) += 1);
        Self { stats, which }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.stats.send_modify(|stats| *(self.which)(stats) -= 1);
    }
}

fn forget_oldest(seen: &mut VecDeque<Seen>, requests_max: usize, bytes_max: usize) {
    let mut bytes: usize = seen.iter().map(|seen| seen.body.len()).sum();
    while seen.len() > requests_max || (bytes > bytes_max && seen.len() > 1) {
        bytes -= seen.pop_front().map_or(0, |oldest| oldest.body.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &str, body_bytes: usize) -> Seen {
        Seen {
            rule: None,
            method: "POST".to_owned(),
            path: path.to_owned(),
            query: String::new(),
            headers: vec![("Authorization".to_owned(), "Bearer abc".to_owned()), ("x".to_owned(), "y".to_owned())],
            body: Bytes::from(vec![b'q'; body_bytes]),
            at: Instant::now(),
        }
    }

    #[test]
    fn the_log_is_bounded_by_number_and_by_bytes() {
        for (bodies, requests_max, bytes_max, stay) in [
            (&[1, 1, 1][..], 3, 10, &["0", "1", "2"][..]),
            (&[1, 1, 1], 2, 10, &["1", "2"]),
            (&[6, 3, 3], 3, 10, &["1", "2"]),
            (&[1, 1, 20], 3, 10, &["2"]),
        ] {
            let mut log: VecDeque<_> = bodies.iter().enumerate().map(|(at, n)| seen(&at.to_string(), *n)).collect();
            forget_oldest(&mut log, requests_max, bytes_max);
            let paths: Vec<_> = log.iter().map(|seen| seen.path.as_str()).collect();
            assert_eq!(paths, stay, "{bodies:?} {requests_max} {bytes_max}");
        }
    }

    #[test]
    fn keys_and_bodies_are_not_printed() {
        let seen = seen("/p", 5);
        assert_eq!(seen.header("authorization"), Some("Bearer abc"));
        let printed = format!("{seen:?}");
        assert!(printed.contains("(10 bytes)") && printed.contains("/p"), "{printed}");
        assert!(!printed.contains("abc") && !printed.contains("qqqqq"), "{printed}");
    }
}

//! The mock's own paths, on the same port under `/__mock/`: for tests in other languages and in other processes, which cannot
//! call [`MockProvider`](super::MockProvider). No authentication: the mock holds nothing but test data, and the values of
//! headers that carry keys are left out.

use serde_json::{Value, json};

use super::http::Request;
use super::stats::{Seen, Shared};

/// Where the admin paths begin; no rule sees such a request and none is counted.
pub(super) const PREFIX: &str = "/__mock/";

/// Status and JSON body for a request whose path, behind [`PREFIX`], is `path`.
pub(super) fn answer(shared: &Shared, request: &Request, path: &str) -> (u16, Value) {
    let (method, wanted) = (request.method.as_str(), if matches!(path, "calls" | "requests") { "GET" } else { "POST" });
    let known = matches!(path, "calls" | "requests" | "reset") || path.starts_with("gate/");
    if !known {
        return (404, json!({"error": "unknown path; there are calls, requests, reset and gate/{name}"}));
    }
    if method != wanted {
        return (405, json!({"error": format!("{path} takes {wanted}")}));
    }
    match path {
        "calls" => (200, json!(shared.stats())),
        "requests" => (200, Value::Array(shared.seen().iter().map(|seen| shown(shared, seen)).collect())),
        "reset" => {
            shared.reset();
            (200, json!({"reset": true}))
        }
        gate => open(shared, gate.strip_prefix("gate/").unwrap_or(gate), &request.query),
    }
}

fn open(shared: &Shared, name: &str, query: &str) -> (u16, Value) {
    let permits = match query.split('&').find_map(|pair| pair.strip_prefix("n=")) {
        None => Some(1),
        Some(n) => n.parse().ok(),
    };
    match permits {
        None => (400, json!({"error": "n is not a number"})),
        Some(n) if shared.open_gate(name, n) => (200, json!({"gate": name, "opened": n})),
        Some(_) => (404, json!({"error": "the script has no such gate"})),
    }
}

fn shown(shared: &Shared, seen: &Seen) -> Value {
    let body = match serde_json::from_slice(&seen.body) {
        Ok(json) => json,
        Err(_) => Value::from(String::from_utf8_lossy(&seen.body)),
    };
    let at_ms = seen.at.saturating_duration_since(shared.started).as_millis();
    json!({
        "rule": seen.rule,
        "method": seen.method,
        "path": seen.path,
        "query": seen.query,
        "headers": seen.shown_headers(),
        "body": body,
        "at_ms": u64::try_from(at_ms).unwrap_or(u64::MAX),
    })
}

//! What a scene of the ledger tells: lines for people, facts for programs, and the first thing that was not as it must be.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::clock::Instant;

use super::client::Told;

/// A tale under way.
#[derive(Debug, Default)]
pub(super) struct Tale {
    /// For people.
    pub(super) lines: String,
    answers: Vec<Value>,
    record: Value,
    effects: usize,
    problem: Option<String>,
}

impl Tale {
    /// A line.
    pub(super) fn line(&mut self, label: &str, text: &str) {
        // Writing to a String can't fail.
        let _ = writeln!(self.lines, "   {label:<12} {text}");
    }

    /// Waits for an answer to the client and tells it.
    pub(super) async fn answer(&mut self, asking: impl Future<Output = Result<Told, String>>) -> Result<Told, String> {
        let began = Instant::now();
        let told = asking.await?;
        let took = began.elapsed().as_millis();
        let decision = told.decision();
        if decision.is_empty() {
            let replayed = if told.replayed.is_empty() { "-" } else { &told.replayed };
            self.line("client saw", &format!("HTTP {} after {took} ms, Idempotent-Replayed: {replayed}", told.status));
            self.line("", &format!("result: {}", told.body));
        } else {
            let differs = &told.body["differs"];
            let differs = if differs.is_null() { String::new() } else { format!(", differs at {differs}") };
            self.line("client saw", &format!("HTTP {} {decision} after {took} ms{differs}", told.status));
            self.line("", told.body["error"]["message"].as_str().unwrap_or_default());
        }
        let (result, decision) = if decision.is_empty() { (&told.body, None) } else { (&Value::Null, Some(decision)) };
        self.answers.push(json!({
            "status": told.status, "decision": decision, "differs": told.body["differs"],
            "replayed": told.replayed == "true", "result": result,
        }));
        Ok(told)
    }

    /// The execution as it stands in the end.
    pub(super) fn record(&mut self, record: &Value) {
        let mut timeline: Vec<Value> = Vec::new();
        for line in record["history"].as_array().into_iter().flatten() {
            if timeline.last().is_none_or(|last| last["to"] != line["to"]) {
                timeline.push(json!({ "to": line["to"], "by": line["by"] }));
            }
        }
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let told: Vec<String> =
            timeline.iter().map(|line| format!("{} ({})", word(&line["to"]), word(&line["by"]))).collect();
        self.line("timeline", &told.join(" -> "));
        self.record = json!({
            "state": record["state"], "reconciliation": record["reconciliation"], "timeline": timeline,
        });
    }

    /// What the bank counts in the end: one, in every scene.
    pub(super) fn effects(&mut self, effects: usize) {
        self.effects = effects;
        self.line("effects", &format!("{effects}, by the bank's own count"));
        self.must(effects == 1, "one payment and no second");
    }

    /// Notes what must hold, if nothing before it did not.
    pub(super) fn must(&mut self, holds: bool, what: &str) {
        if !holds && self.problem.is_none() {
            self.problem = Some(what.to_owned());
        }
    }

    /// The facts, and the first thing that was not as it must be.
    pub(super) fn told(self) -> (Value, Result<(), String>) {
        let facts = json!({ "answers": self.answers, "execution": self.record, "effects": self.effects });
        (facts, self.problem.map_or(Ok(()), Err))
    }
}

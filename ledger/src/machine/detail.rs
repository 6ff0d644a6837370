//! Answers as evidence: what a late owner or a probe said, as text that is kept beside the record.
//!
//! In: an outcome and its settlement. Out: canonical JSON with all of it, the body included: what was answered is never dropped
//! because it came too late (LEDGER.md 10.4).

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::command::Env;
use crate::record::{Evidence, Outcome, Settlement};

/// Evidence that somebody said how a run ended.
pub(super) fn said(
    kind: &'static str,
    epoch: u32,
    by: &Arc<str>,
    outcome: Outcome,
    settlement: &Settlement,
    env: &Env,
) -> Evidence {
    Evidence { at: env.now, kind: Arc::from(kind), epoch, by: Arc::clone(by), detail: detail(outcome, settlement) }
}

/// Members go in sorted, so that the text is canonical whatever map `serde_json` is built with.
fn detail(outcome: Outcome, settlement: &Settlement) -> Arc<str> {
    let mut members = Map::new();
    let mut text = |name: &str, value: &str| {
        members.insert(name.to_owned(), Value::String(value.to_owned()));
    };
    if let Some(result) = &settlement.result {
        match std::str::from_utf8(&result.body) {
            Ok(body) => text("body", body),
            Err(_) => text("body_hex", &hex(&result.body)),
        }
        if let Some(content_type) = &result.content_type {
            text("content_type", content_type);
        }
    }
    if let Some(error) = &settlement.error {
        text("error", error);
    }
    if let Some(reference) = &settlement.external_reference {
        text("external_reference", reference);
    }
    text("outcome", word(outcome));
    if let Some(status) = settlement.result.as_ref().and_then(|result| result.status) {
        members.insert("status".to_owned(), Value::from(status));
    }
    Arc::from(Value::Object(members).to_string())
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::NotExecuted => "not_executed",
        Outcome::ExecutedError => "executed_error",
        Outcome::Unknown => "unknown",
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]].map(char::from))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Canonical;
    use crate::record::ToolResult;

    #[test]
    fn details_are_canonical_and_keep_the_body() {
        let settlement = |body: &[u8]| Settlement {
            result: Some(ToolResult { status: Some(200), content_type: Some(Arc::from("a/b")), body: Arc::from(body) }),
            external_reference: Some(Arc::from("ref \u{7f}\u{1}\"é")),
            error: Some(Arc::from("{}")),
        };
        for (body, kept) in
            [(&b"{\"ok\": 1}\n"[..], r#""body":"{\"ok\": 1}\n""#), (b"\xff\x0a", r#""body_hex":"ff0a""#)]
        {
            let text = detail(Outcome::Succeeded, &settlement(body));
            assert!(text.contains(kept), "{text}");
            assert_eq!(Canonical::parse(text.as_bytes()).unwrap().as_str(), &*text);
        }
        assert_eq!(
            &*detail(Outcome::Unknown, &Settlement { result: None, external_reference: None, error: None }),
            r#"{"outcome":"unknown"}"#
        );
    }
}

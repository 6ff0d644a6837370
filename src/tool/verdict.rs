//! What the end of a dispatch proves (SPEC.md Annex "Executions", verdicts; LEDGER.md 10.3 where the annex is silent).
//!
//! In: how far the sending came, how the exchange ended, the answer if there is a whole one, the tool's `result_rules`. Out: an
//! [`Outcome`] and a stable word for the journal. Pure. The one rule behind the table: only proof that no byte of the request left, or an
//! answer that says so, is *not executed*; only a whole answer is *succeeded*; everything else is unknown.

use rubicon_ledger::Outcome;
use serde_json::Value;

use crate::config::settings::ResultRule;

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A whole answer came.
    Complete,
    /// No connection: the name, the address, TLS or the certificate; the word says which.
    NoConnection(&'static str),
    /// The deadline came first.
    Timeout,
    /// The relay stopped first.
    Stopped,
    /// The connection broke or ended before the answer was whole.
    Broken,
    /// What came is not HTTP.
    NotHttp,
    /// The answer is over its bound.
    TooLarge,
}

/// How the end of an answer's body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// By its length or by chunks: a cut is seen.
    Told,
    /// By the end of the connection only: a cut cannot be told from an end.
    UntilClose,
}

/// A whole answer.
#[derive(Debug, Clone, Copy)]
pub struct Whole<'a> {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: &'a [u8],
    /// How its end is known.
    pub framing: Framing,
}

/// An outcome, and the word that the journal keeps for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The outcome.
    pub outcome: Outcome,
    /// Why.
    pub why: &'static str,
}

const fn is(outcome: Outcome, why: &'static str) -> Verdict {
    Verdict { outcome, why }
}

/// The verdict on a run. `bytes_sent`: of the request, head included, that the socket took.
#[must_use]
pub fn of(end: End, bytes_sent: u64, whole: Option<Whole<'_>>, rules: &[ResultRule]) -> Verdict {
    if let (End::Complete, Some(answer)) = (end, whole) {
        return of_answer(answer, rules);
    }
    match end {
        End::NoConnection(why) => is(Outcome::NotExecuted, why),
        _ if bytes_sent == 0 => is(Outcome::NotExecuted, "nothing_sent"),
        End::Timeout => is(Outcome::Unknown, "timeout"),
        End::Stopped => is(Outcome::Unknown, "shutdown"),
        End::NotHttp => is(Outcome::Unknown, "answer_not_http"),
        End::TooLarge => is(Outcome::Unknown, "answer_too_large"),
        End::Complete | End::Broken => is(Outcome::Unknown, "answer_cut"),
    }
}

/// The verdict on a whole answer.
fn of_answer(answer: Whole<'_>, rules: &[ResultRule]) -> Verdict {
    let by_status = of_status(answer.status);
    // The body of an error or of a receipt (202) proves nothing, unless the rule says which status it means.
    let finished = (200..300).contains(&answer.status) && answer.status != 202;
    match judge(answer.status, answer.body, rules, finished) {
        Judged::Rule(outcome) => return is(outcome, "result_rule"),
        Judged::NotJson if by_status.outcome == Outcome::Succeeded => {
            return is(Outcome::Unknown, "answer_not_json");
        }
        Judged::NoRule | Judged::NotJson => {}
    }
    // A body that only the connection's end ends may have been cut: what would be kept for ever must be whole by itself.
    let kept = matches!(by_status.outcome, Outcome::Succeeded | Outcome::ExecutedError);
    if kept && answer.framing == Framing::UntilClose && !is_whole_json(answer.body) {
        return is(Outcome::Unknown, "answer_end_not_told");
    }
    by_status
}

/// What a status alone means (SPEC.md Annex "Executions").
fn of_status(status: u16) -> Verdict {
    match status {
        202 => is(Outcome::Unknown, "accepted_async"),
        200..=299 => is(Outcome::Succeeded, "answered"),
        307 | 308 => is(Outcome::NotExecuted, "redirect_not_followed"),
        401 | 403 | 405 | 413 | 415 | 429 => is(Outcome::NotExecuted, "refused"),
        408 | 409 | 412 | 423 | 425 => is(Outcome::Unknown, "ambiguous_status"),
        400..=499 => is(Outcome::ExecutedError, "tool_error"),
        300..=399 => is(Outcome::Unknown, "redirect_not_followed"),
        500..=599 => is(Outcome::Unknown, "server_error"),
        _ => is(Outcome::Unknown, "unexpected_status"),
    }
}

/// What rules say of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// The first rule that matches.
    Rule(Outcome),
    /// No rule matches.
    NoRule,
    /// A rule wanted to look into the body, which is no JSON.
    NotJson,
}

/// Applies rules to a whole answer: the first that matches wins. `any`: rules that name no status look at it, too.
#[must_use]
pub fn judge(status: u16, body: &[u8], rules: &[ResultRule], any: bool) -> Judged {
    let applies = |rule: &&ResultRule| rule.status.map_or(any, |wanted| wanted == status);
    let mut json: Option<Option<Value>> = None;
    for rule in rules.iter().filter(applies) {
        let Some(pointer) = &rule.pointer else { return Judged::Rule(rule.outcome) };
        let read = json.get_or_insert_with(|| serde_json::from_slice(body).ok());
        let found = read.as_ref().and_then(|document| document.pointer(&pointer.to_string()));
        let fits = match (found, &rule.equals) {
            (Some(found), Some(wanted)) => same(found, wanted),
            // Without `equals` a rule asks whether something is there.
            (Some(_), None) => true,
            (None, _) => false,
        };
        if fits {
            return Judged::Rule(rule.outcome);
        }
    }
    if matches!(json, Some(None)) { Judged::NotJson } else { Judged::NoRule }
}

/// Equal as JSON: `1`, `1.0` and `1e0` are one number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let both_whole = a.is_f64() == b.is_f64();
            if both_whole { a == b } else { a.as_f64() == b.as_f64() }
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// Whether a body shows by itself that nothing is missing: an object, array or string. Half a number is a number.
fn is_whole_json(body: &[u8]) -> bool {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'[' | b'"')) && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(status: u16, body: &str) -> Verdict {
        let answer = Whole { status, body: body.as_bytes(), framing: Framing::Told };
        of(End::Complete, 100, Some(answer), &[])
    }

    #[test]
    fn every_status_has_the_verdict_of_the_annex() {
        for status in 100..=599 {
            let wanted = match status {
                202 => Outcome::Unknown,
                200..=299 => Outcome::Succeeded,
                401 | 403 | 405 | 413 | 415 | 429 | 307 | 308 => Outcome::NotExecuted,
                408 | 409 | 412 | 423 | 425 => Outcome::Unknown,
                400..=499 => Outcome::ExecutedError,
                _ => Outcome::Unknown,
            };
            assert_eq!(whole(status, "").outcome, wanted, "{status}");
        }
        assert_eq!(whole(202, "{}").why, "accepted_async");
    }

    #[test]
    fn without_a_whole_answer_only_a_request_of_which_nothing_left_did_not_run() {
        let ends = [
            (End::NoConnection("refused"), Outcome::NotExecuted, Outcome::NotExecuted),
            (End::Timeout, Outcome::NotExecuted, Outcome::Unknown),
            (End::Stopped, Outcome::NotExecuted, Outcome::Unknown),
            (End::Broken, Outcome::NotExecuted, Outcome::Unknown),
            (End::NotHttp, Outcome::NotExecuted, Outcome::Unknown),
            (End::TooLarge, Outcome::NotExecuted, Outcome::Unknown),
            (End::Complete, Outcome::NotExecuted, Outcome::Unknown),
        ];
        for (end, unsent, sent) in ends {
            assert_eq!(of(end, 0, None, &[]).outcome, unsent, "{end:?}, nothing sent");
            assert_eq!(of(end, 1, None, &[]).outcome, sent, "{end:?}, a byte sent");
        }
    }

    #[test]
    fn a_body_that_only_the_close_ends_must_be_whole_by_itself() {
        let rows = [
            (200, "{\"a\":1}", Outcome::Succeeded),
            (200, " [1] ", Outcome::Succeeded),
            (200, "{\"a\":1", Outcome::Unknown),
            (200, "12", Outcome::Unknown),
            (200, "", Outcome::Unknown),
            (404, "gone", Outcome::ExecutedError),
            (404, "{}", Outcome::ExecutedError),
            (401, "no", Outcome::NotExecuted),
        ];
        for (status, body, wanted) in rows {
            let answer = Whole { status, body: body.as_bytes(), framing: Framing::UntilClose };
            let wanted = if status == 404 && body == "gone" { Outcome::Unknown } else { wanted };
            assert_eq!(of(End::Complete, 9, Some(answer), &[]).outcome, wanted, "{status} {body}");
        }
    }

    fn rule(pointer: Option<&str>, equals: Option<Value>, status: Option<u16>, outcome: Outcome) -> ResultRule {
        ResultRule { pointer: pointer.map(|text| text.parse().expect("a pointer")), equals, status, outcome }
    }

    #[test]
    fn the_first_rule_that_matches_wins() {
        let rules = [
            rule(Some("/ok"), Some(Value::Bool(false)), None, Outcome::ExecutedError),
            rule(Some("/n"), Some(serde_json::json!({ "x": [1] })), None, Outcome::NotExecuted),
            rule(Some("/there"), None, None, Outcome::Unknown),
            rule(None, None, Some(409), Outcome::Succeeded),
            rule(Some("/code"), Some("gone".into()), Some(500), Outcome::NotExecuted),
        ];
        let rows = [
            (200, r#"{"ok":false,"there":1}"#, Outcome::ExecutedError),
            (200, r#"{"n":{"x":[1.0]}}"#, Outcome::NotExecuted),
            (200, r#"{"there":null}"#, Outcome::Unknown),
            (200, r#"{"ok":true}"#, Outcome::Succeeded),
            (202, r#"{"ok":false}"#, Outcome::Unknown),
            (400, r#"{"ok":true}"#, Outcome::ExecutedError),
            (409, "", Outcome::Succeeded),
            (500, r#"{"code":"gone"}"#, Outcome::NotExecuted),
            (500, r#"{"ok":false}"#, Outcome::Unknown),
            (500, "no json", Outcome::Unknown),
            // A rule had to look into it and could not: nobody knows what it says.
            (200, "no json", Outcome::Unknown),
        ];
        for (status, body, wanted) in rows {
            let answer = Whole { status, body: body.as_bytes(), framing: Framing::Told };
            assert_eq!(of(End::Complete, 9, Some(answer), &rules).outcome, wanted, "{status} {body}");
        }
    }

    #[test]
    fn large_whole_numbers_are_compared_as_they_are() {
        assert!(!same(&serde_json::json!(9_007_199_254_740_993_u64), &serde_json::json!(9_007_199_254_740_992_u64)));
        assert!(same(&serde_json::json!(1), &serde_json::json!(1.0)));
    }
}

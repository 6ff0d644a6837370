//! `EXECUTIONS.md` out of the code: every call, decision, status, code and bound of the ledger's HTTP side.
//!
//! In: the functions that make the answers, called with each decision; the members and bounds that the calls read; the room's own source,
//! from which each `Problem::new` is taken with its status and whether it may be sent again. Out: the document. A code that has no words in
//! [`CODES`] fails the test, and so do words whose code is gone. Checked in, so that it can be read without building; the test below fails
//! when it is stale and rewrites it when `RUBICON_UPDATE_DOCS=1` is set. Built for tests only.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use rubicon_ledger::{Claimed, Denied, Differences, Entry, Outcome, Record, Unavailable, WhyConfirm};
use serde_json::{Value, json};

use crate::tool::object::Execution;
use crate::tool::run::{RUNS_MAX, WAITERS_MAX};
use crate::tool::verdict::{self, End, Framing, Whole};

use super::answer::Problem;
use super::{answer, body, calls, claims, decision, prefer, settle, tools};

mod scan;

const HEAD: &str = include_str!("head.md");

/// What each code means beyond the decisions, and what to do; in the order in which they are printed.
const CODES: &[(&str, &str)] = &[
    ("invalid_json", "The body is no JSON object."),
    (
        "unknown_member",
        "The body has a member that the call does not know. None is ignored: a misspelt one might mean a second run.",
    ),
    ("missing_member", "A member is missing. `operation_id` or `root` must be there."),
    ("invalid_member", "A member has a value that it cannot have, or stands there twice."),
    ("invalid_header", "`Rubicon-Root` is no single name."),
    (
        "invalid_arguments",
        "The arguments have no canonical form, lack a key field or do not fit the tool's schema: `pointer` says where, \
      `reason` why. 413: too large.",
    ),
    ("invalid_error", "`error` has no canonical form: `pointer`, `reason`. 413: too large."),
    (
        "result_too_large",
        "The result is over its bound. Keep it elsewhere, and complete with its `external_reference`.",
    ),
    ("tool_not_runnable", "The tool has no `endpoint`: claim it and run it yourself."),
    ("unknown_tool", "No `[tool.NAME]` of this name."),
    ("tool_not_allowed", "The client's `tools` do not list it."),
    ("tenant_unusable", "The client's tenant has a name that the ledger cannot keep."),
    ("execution_not_found", "No such execution of this tenant. Another tenant's looks the same."),
    (
        "not_executed",
        "From `POST /v1/tools/…` only: it ran now, and it is proved that it had no effect. The same call runs it again, within \
      `max_runs`. `decision` is `not_executed`.",
    ),
    (
        "ledger_unavailable",
        "Nothing can be made durable now. What was asked may be found done later: ask again; do not run anything.",
    ),
    (
        "outcome_not_recorded",
        "From `POST /v1/tools/…` only: it ran, and its outcome is not on disk yet, so it is not told. Ask again.",
    ),
    ("too_many_waiters", "As many as may wait for this execution do."),
    ("too_many_runs", "As many tools as may run at once do."),
    ("client_gone", "Nobody reads this: the client had left. What the relay runs goes on."),
];

/// Codes that `Problem::new` gets from a variable, by the file and the variable: looked at by hand.
const VARIABLE: &[(&str, &str, &[&str])] = &[
    // What every endpoint refuses alike: in the head.
    ("answer.rs", "&failure.rubicon.reason", &[]),
    ("body.rs", "error.code", &["invalid_json"]),
    // By calling it.
    ("settle.rs", "code", &[]),
];

fn render() -> String {
    let mut text = String::from(HEAD);
    calls_table(&mut text);
    decisions(&mut text);
    owners(&mut text);
    verdicts(&mut text);
    codes(&mut text);
    bounds(&mut text);
    object(&mut text);
    text
}

fn calls_table(text: &mut String) {
    text.push_str("\n## Calls\n\n| call | members of the body | body at most |\n| --- | --- | --- |\n");
    let row = |text: &mut String, call: &str, members: &[&str], max: usize| {
        let members: Vec<String> = members.iter().map(|name| format!("`{name}`")).collect();
        let max = if max >> 20 > 0 { format!("{} MiB", max >> 20) } else { format!("{} KiB", max >> 10) };
        let _ = writeln!(text, "| `{call}` | {} | {max} |", members.join(", "));
    };
    row(text, "POST /v1/executions", &calls::MEMBERS, calls::CLAIM_BYTES_MAX);
    row(text, "POST /v1/executions/{key}/heartbeat", &settle::HEARTBEAT_MEMBERS, settle::HEARTBEAT_BYTES_MAX);
    row(text, "POST /v1/executions/{key}/complete", &settle::COMPLETE_MEMBERS, settle::COMPLETE_BYTES_MAX);
    row(text, "POST /v1/tools/{tool}", &tools::MEMBERS, tools::CALL_BYTES_MAX);
    text.push_str("| `GET /v1/executions/{key}` | none | |\n");
}

/// `| decision | status | retryable | beside it | says |`
fn decisions(text: &mut String) {
    text.push_str(
        "\n## Decisions on a claim\n\n`decision` stands in the body of each. Where it is a refusal, `error.code` is the same word, save for \
         `gone`.\n\n| decision | status | retryable | beside it | meant |\n| --- | --- | --- | --- | --- |\n",
    );
    for (claimed, meant) in every_decision() {
        match decision::granted(&claimed) {
            Some((status, name)) => {
                let beside = if name == "execute" { "`execution`, `lease_token`" } else { "`execution`" };
                let _ = writeln!(text, "| `{name}` | {} | | {beside} | {meant} |", status.as_u16());
            }
            None => {
                let problem = decision::refused(&claimed);
                let (status, _, message, again) = problem.told();
                let object = if matches!(claimed, Claimed::Confirm { .. }) { "`similar`" } else { "`execution`" };
                let members = problem.members().into_iter().map(|name| format!("`{name}`"));
                let beside: Vec<String> = std::iter::once(object.to_owned()).chain(members).collect();
                let meant = if meant.is_empty() { message } else { meant };
                let name = problem.decision();
                let _ = writeln!(text, "| `{name}` | {status} | {} | {} | {meant} |", retry(again), beside.join(", "));
            }
        }
    }
    let _ = writeln!(
        text,
        "\n`model_text` is what a model may be told of an unknown, and all of it:\n\n> {}",
        decision::model_text(&record("unknown", None))
    );
}

fn every_decision() -> Vec<(Claimed, &'static str)> {
    let of = |state: &str, failure: Option<&str>| Box::new(record(state, failure));
    let confirm = |why, token: Option<&str>| Claimed::Confirm {
        why,
        similar: Some(of("unknown", None)),
        confirm_token: token.map(Into::into),
        fingerprint: record("unknown", None).fingerprint,
    };
    let mut released = of("failed", Some("not_executed"));
    released.needs_release = true;
    let mut replaced = of("failed", Some("not_executed"));
    replaced.superseded_by = Some(replaced.key);
    let differs = Differences { pointers: Vec::new(), complete: true };
    vec![
        (
            Claimed::Execute { record: of("started", None), lease_token: "lt".into() },
            "Run it, once, until `execution.lease_until`; then complete it. A claim with the same `claim_id` gets this again while the lease lasts.",
        ),
        (
            Claimed::UseResult(of("succeeded", None)),
            "It ran: `execution.result` is what it answered, byte for byte. `Idempotent-Replayed: true`.",
        ),
        (
            Claimed::AwaitApproval(of("planned", None)),
            "The tool's `approval`, or an operator, wants a person first. Claim again later.",
        ),
        (Claimed::InProgress(of("started", None)), ""),
        (Claimed::Reconcile(of("unknown", None)), ""),
        (Claimed::Stop(of("failed", Some("executed_error"))), ""),
        (Claimed::Stop(of("failed", Some("not_executed"))), ""),
        (Claimed::Stop(released), ""),
        (Claimed::Stop(replaced), ""),
        (Claimed::Conflict { record: of("succeeded", None), differs }, ""),
        (confirm(WhyConfirm::Similar, Some("ct")), ""),
        (confirm(WhyConfirm::Similar, None), ""),
        (confirm(WhyConfirm::AfterError, Some("ct")), ""),
        (confirm(WhyConfirm::AfterError, None), ""),
        (confirm(WhyConfirm::RestoredGap, None), ""),
        (Claimed::Gone(of("succeeded", None)), ""),
    ]
}

fn owners(text: &mut String) {
    text.push_str(
        "\n## What the owner of a run is told\n\n`heartbeat` and `complete` answer `200 {\"execution\": …}`; the same completion again is 200, \
         too. Otherwise:\n\n| `error.code` | status | retryable | says |\n| --- | --- | --- | --- |\n",
    );
    for denied in every_denial() {
        let problem = settle::problem(&denied);
        let (status, code, message, again) = problem.told();
        let _ = writeln!(text, "| `{code}` | {status} | {} | {message} |", retry(again));
    }
}

/// Those that an owner can meet.
fn every_denial() -> Vec<Denied> {
    let record = || Box::new(record("unknown", None));
    vec![
        Denied::NotFound,
        Denied::ForeignLease,
        Denied::StaleLease(record()),
        Denied::LeaseOver(record()),
        Denied::AlreadySettled(record()),
    ]
}

fn verdicts(text: &mut String) {
    text.push_str(
        "\n## What a tool's answer is taken for\n\nOf a tool that the relay runs, where no `result_rules` say otherwise. A call of which not a \
         byte was sent is `not_executed`; one that was sent in part or whole and has no whole answer is `unknown`. So is a success or an error \
         whose end only the closing connection tells, unless it is whole JSON.\n\n| outcome | statuses | then |\n| --- | --- | --- |\n",
    );
    for (outcome, name, then) in [
        (Outcome::Succeeded, "succeeded", "the tool's status, type and bytes, now and for ever"),
        (Outcome::ExecutedError, "executed_error", "the same: it is final"),
        (Outcome::NotExecuted, "not_executed", "409 `not_executed`, and the same call runs again, within `max_runs`"),
        (Outcome::Unknown, "unknown", "409 `reconcile`; the probe asks, or a person"),
    ] {
        let _ = writeln!(text, "| `{name}` | {} | {then} |", statuses(outcome));
    }
}

/// The statuses of an outcome, runs of them as `a–b`.
fn statuses(outcome: Outcome) -> String {
    let of = |status: u16| {
        let answer = Whole { status, body: b"{}", framing: Framing::Told };
        verdict::of(End::Complete, 100, Some(answer), &[]).outcome
    };
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for status in (200..600).filter(|status| of(*status) == outcome) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == status => *last = status,
            _ => runs.push((status, status)),
        }
    }
    let written = runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}–{last}"),
    });
    written.collect::<Vec<_>>().join(", ")
}

fn codes(text: &mut String) {
    text.push_str("\n## Other codes\n\n| `error.code` | status | retryable | means |\n| --- | --- | --- | --- |\n");
    let found = scan::found();
    for (code, means) in CODES {
        let seen = &found[*code];
        let statuses: Vec<String> = seen.statuses.iter().map(u16::to_string).collect();
        let again = if seen.again { "yes" } else { "no" };
        let _ = writeln!(text, "| `{code}` | {} | {again} | {means} |", statuses.join(", "));
    }
}

fn bounds(text: &mut String) {
    let busy = Problem::unavailable(&Unavailable::Busy);
    assert_eq!(busy.told().3, Some(answer::SOON_S));
    let rows = [
        (
            "`lease_ms`",
            format!("{}–{}, {} if none is said", claims::LEASE_MS_MIN, claims::LEASE_MS_MAX, claims::LEASE_MS),
            "400 `invalid_member`",
        ),
        ("`Prefer: wait=N`", format!("{} s", prefer::WAIT_MAX.as_secs()), "cut to it, as `Preference-Applied` says"),
        (
            "arguments, canonical or as written",
            format!("{} MiB", rubicon_ledger::MAX_BYTES >> 20),
            "413 `invalid_arguments`",
        ),
        ("`result`", format!("{} MiB", settle::RESULT_BYTES_MAX >> 20), "413 `result_too_large`"),
        ("other texts", format!("{} bytes", body::TEXT_BYTES_MAX), "400 `invalid_member`"),
        ("who wait for one execution", WAITERS_MAX.to_string(), "503 `too_many_waiters`"),
        ("tools that run at once", RUNS_MAX.to_string(), "503 `too_many_runs`"),
        ("`Retry-After`", format!("{} s; {} s where the store fails", answer::SOON_S, answer::STORE_S), ""),
    ];
    text.push_str("\n## Bounds\n\n| bound | value | at it |\n| --- | --- | --- |\n");
    for (bound, value, then) in rows {
        let _ = writeln!(text, "| {bound} | {value} | {then} |");
    }
}

fn object(text: &mut String) {
    text.push_str(
        "\n## The object\n\n`execution` and `similar` in answers; `GET` gives it bare, with `evidence`. Times are milliseconds since 1970. \
         Only where they say something there are also `erased`, `supersedes`, `superseded_by` and `reported_at`. A result that is no JSON is a \
         string, or `{\"base64\": …}`.\n\n```json\n",
    );
    let settled = record("succeeded", None);
    let entry: Entry = serde_json::from_value(json!({
        "sequence": 12, "at": 1_781_524_800_000_u64, "by": "worker", "action": "complete", "subject": settled.key, "from": "started",
        "to": "succeeded", "version": 2, "epoch": 1, "reason": "owner_said", "previous": "0".repeat(64), "salt": "0".repeat(64),
        "content": "", "hash": "0".repeat(64),
    }))
    .unwrap();
    let history = [entry];
    let shown = Execution::new(&settled, Some(&history), None);
    let _ = writeln!(text, "{}\n```", serde_json::to_string_pretty(&shown).unwrap());
}

fn retry(again: Option<u64>) -> &'static str {
    if again.is_some() { "yes" } else { "no" }
}

fn record(state: &str, failure: Option<&str>) -> Record {
    let digest = "6901e62c0257f8c21b557fe0800d9c94f266b949bc5c3f154d2ade0db63a32f5";
    let settled = (state == "succeeded").then_some(1_781_524_800_000_u64);
    let result = json!({ "status": 200, "content_type": "application/json", "body": b"{\"refunded\":\"1001\"}" });
    let settlement = settled.map(|_| json!({ "result": result, "external_reference": "re_77", "error": null }));
    let record = json!({
        "sequence": 1, "key": format!("ex_{digest}"), "base": null, "tenant": "t", "root": "run-12", "operation": "op_1",
        "tool": "refund_order", "tool_owner": null, "slot": format!("sl_{digest}"), "fingerprint": format!("fp_{digest}"),
        "occurrence": 0, "run": null, "effect": "write", "impact": "normal", "has_probe": false, "state": state,
        "failure": failure, "reconciliation": "none", "version": 2, "epoch": 1, "runs": 1, "released": false,
        "arguments": "{\"cents\":4200,\"order\":\"1001\"}", "settlement": settlement, "erased": false, "tool_call_id": "call_7",
        "flags": [], "superseded_by": null, "supersedes": null, "lease": null, "pending": null, "awaits_approval": false,
        "approved_by": null, "needs_release": false, "let_through": [], "assigned_to": null, "reported_at": null,
        "created_at": 1_781_524_799_000_u64, "changed_at": 1_781_524_800_000_u64, "settled_at": settled,
    });
    serde_json::from_value::<Record>(record).unwrap()
}

mod tests {
    use super::*;

    #[test]
    fn executions_md_is_what_the_code_answers() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/executions/EXECUTIONS.md");
        let rendered = render();
        if std::env::var_os("RUBICON_UPDATE_DOCS").is_some_and(|value| value == "1") {
            std::fs::write(path, &rendered).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == rendered, "EXECUTIONS.md is stale: run with RUBICON_UPDATE_DOCS=1");
    }

    /// What the source says, what the decisions say and what the words are about are one set.
    #[test]
    fn every_code_has_words_and_no_words_are_left_over() {
        let mut told: BTreeMap<String, &str> = BTreeMap::new();
        for (code, means) in CODES {
            assert!(means.ends_with('.') && !means.contains('|'), "{code}: {means}");
            assert!(told.insert((*code).to_owned(), "words").is_none(), "{code} twice");
        }
        for (claimed, _) in every_decision() {
            if decision::granted(&claimed).is_none() {
                told.insert(decision::refused(&claimed).told().1.to_owned(), "decision");
            }
        }
        for denied in every_denial() {
            told.insert(settle::problem(&denied).told().1.to_owned(), "denial");
        }
        let found: BTreeSet<String> = scan::found().into_keys().collect();
        // These three are made from a variable: their words are the decision's own.
        let called = ["stale_lease", "lease_over", "already_settled"].map(str::to_owned);
        let found: BTreeSet<String> = found.into_iter().chain(called).collect();
        assert_eq!(told.into_keys().collect::<BTreeSet<_>>(), found);
    }

    /// What the head says of every endpoint is what the code of all endpoints says.
    #[test]
    fn the_head_names_what_every_endpoint_refuses_alike() {
        let intake = include_str!("../../relay/intake.rs");
        let codes = scan::of(intake, "Refusal::new(")
            .into_iter()
            .filter_map(|call| call.code.ok().map(|code| (call.statuses, code)));
        let mut codes: Vec<(Vec<u16>, String)> = codes.collect();
        assert!(codes.len() > 5, "{codes:?}");
        for code in ["missing_api_key", "invalid_api_key"] {
            codes.push((vec![401], code.to_owned()));
        }
        codes.push((vec![403], "host_not_allowed".to_owned()));
        for (statuses, code) in codes {
            let said = statuses.iter().all(|status| HEAD.contains(&format!("{status} `{code}`")));
            assert!(said, "{statuses:?} {code} is not in the head");
        }
        let said: Value = json!(HEAD.contains("`overloaded`") && HEAD.contains("`memory`"));
        assert_eq!(said, json!(true));
    }
}

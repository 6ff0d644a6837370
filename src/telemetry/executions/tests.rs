//! Lines of transitions, and the alarms that they raise.

use std::collections::BTreeSet;

use rubicon_ledger::{Arguments, KeyParts, Occurrence, Projection, RootId, TenantId, ToolName, UnixMillis as At};

use super::super::names::EXECUTION_FIELDS;
use super::*;
use crate::config::testing::{TODAY, settings};

/// An execution that is unknown.
fn record() -> Record {
    let (tenant, root) = (TenantId::new("acme").unwrap(), RootId::new("run-1").unwrap());
    let tool = ToolName::new("refund").unwrap();
    let arguments = Arguments::parse(br#"{"card":"SECRET"}"#).unwrap();
    let projected = Projection::default().apply(&arguments).unwrap();
    let parts = KeyParts {
        tenant: &tenant,
        root: &root,
        tool: &tool,
        slot: projected.slot,
        occurrence: Occurrence(0),
        run: None,
    };
    // From JSON: what a record has besides does not concern a line.
    let json = serde_json::json!({
        "sequence": 1, "key": parts.key(), "base": null, "tenant": tenant, "root": root, "operation": null, "tool": tool,
        "tool_owner": null, "slot": projected.slot, "fingerprint": projected.fingerprint, "occurrence": 0, "run": null,
        "effect": "write", "impact": "normal", "has_probe": false, "state": "unknown", "failure": null,
        "reconciliation": "needs_operator", "version": 3, "epoch": 1, "runs": 1, "released": false,
        "arguments": arguments.canonical().as_str(), "settlement": null, "erased": false, "tool_call_id": null, "flags": [],
        "superseded_by": null, "supersedes": null, "lease": null, "pending": null, "awaits_approval": false,
        "approved_by": null, "needs_release": false, "let_through": [], "assigned_to": null, "reported_at": null,
        "created_at": 1_781_524_800_000_u64, "changed_at": 1_781_524_800_123_u64, "settled_at": null,
    });
    serde_json::from_value(json).unwrap()
}

fn entry(action: &str) -> Draft {
    Draft {
        at: At(1_781_524_800_123),
        by: "worker".into(),
        action: action.into(),
        subject: "".into(),
        from: "started".into(),
        to: "unknown".into(),
        version: 3,
        epoch: 1,
        reason: format!("said sk-{} {}", "k7".repeat(20), "x".repeat(5000)).into(),
    }
}

#[test]
fn a_line_has_the_listed_fields_and_no_content() {
    let (mut record, entry) = (record(), entry("complete"));
    record.flags.insert(Flag::Unplanned);
    let line = serde_json::to_value(ExecutionEvent::of(Some(State::Started), &record, &entry)).unwrap();
    let found: BTreeSet<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(found, EXECUTION_FIELDS.iter().map(|field| field.0).collect());
    assert_eq!((line["from"].as_str(), line["to"].as_str()), (Some("started"), Some("unknown")));
    assert_eq!((line["flags"][0].as_str(), line["effect"].as_str()), (Some("unplanned"), Some("write")));
    assert_eq!(line["time"], "2026-06-15T12:00:00.123Z");
    let text = line.to_string();
    assert!(!text.contains("SECRET") && !text.contains("k7k7") && text.len() < 1500, "{text}");
}

fn telemetry(folder: &std::path::Path) -> Telemetry {
    let mut settings = settings(
        "[provider.p]\nkind = \"openai\"\napi_key = \"env:K\"\n[route.r]\nprovider = \"p\"\n[workflow.w]\nprimary = \"r\"\n[tool.refund]\n",
    );
    settings.log.events = crate::config::settings::EventsTo::File(folder.join("events.jsonl"));
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Telemetry::start(&settings, &tls, TODAY).unwrap()
}

#[tokio::test]
async fn transitions_are_told_once_and_raise_their_alarms() {
    let folder = tempfile::tempdir().unwrap();
    let telemetry = telemetry(folder.path());
    let mut record = record();
    telemetry.transition(None, &record, Some(&entry("claim")));
    telemetry.transition(Some(State::Unknown), &record, None);
    record.flags.insert(Flag::DoubleEffectSuspected);
    telemetry.transition(Some(State::Unknown), &record, Some(&entry("evidence")));
    telemetry.transition(Some(State::Unknown), &record, Some(&entry("note")));
    let probed = |reason: &str| Draft { by: "probe".into(), reason: reason.into(), ..entry("observe") };
    telemetry.transition(Some(State::Unknown), &record, Some(&probed("probe_answer")));
    telemetry.transition(Some(State::Unknown), &record, Some(&probed("probe_gave_up")));
    record.state = State::Succeeded;
    telemetry.transition(Some(State::Unknown), &record, Some(&probed("probe_verdict")));
    for available in [true, false, false, true, false] {
        telemetry.ledger_is(available, TODAY);
    }
    telemetry.flush().await;
    let text = std::fs::read_to_string(folder.path().join("events.jsonl")).unwrap();
    let told: Vec<String> = text
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["kind"].as_str().or(line["action"].as_str()).unwrap().to_owned()
        })
        .collect();
    assert_eq!(
        told,
        [
            "claim",
            "evidence",
            "double_effect_suspected",
            "note",
            "observe",
            "observe",
            "observe",
            "ledger_unavailable",
            "ledger_unavailable"
        ]
    );
    let metrics = telemetry.render_metrics();
    for line in [
        "rubicon_alarms_total{kind=\"double_effect_suspected\"} 1",
        "rubicon_alarms_total{kind=\"ledger_unavailable\"} 2",
        "rubicon_execution_transitions_total{tool=\"refund\",from=\"none\",to=\"unknown\"} 1",
        "rubicon_execution_transitions_total{tool=\"refund\",from=\"unknown\",to=\"unknown\"} 4",
        "rubicon_execution_probes_total{tool=\"refund\",result=\"undecided\"} 1",
        "rubicon_execution_probes_total{tool=\"refund\",result=\"gave_up\"} 1",
        "rubicon_execution_probes_total{tool=\"refund\",result=\"succeeded\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
}

#[tokio::test]
async fn a_ledger_that_is_watched_shows_and_neither_keeps_the_other_alive_for_ever() {
    use rubicon_ledger::store::MemoryStore;
    let folder = tempfile::tempdir().unwrap();
    let telemetry = Arc::new(telemetry(folder.path()));
    let clock = Arc::new(|| At(1_781_524_800_000));
    let options =
        rubicon_ledger::Options { observer: Some(telemetry.observer()), ..rubicon_ledger::Options::new(clock, 1) };
    let ledger = Ledger::start(Box::new(MemoryStore::new([7; 32])), options).unwrap();
    telemetry.watch(&ledger);
    let metrics = telemetry.render_metrics();
    assert!(metrics.lines().any(|line| line == "rubicon_ledger_available 1"), "{metrics}");
    assert!(metrics.lines().any(|line| line == "rubicon_executions_open{phase=\"unknown\"} 0"), "{metrics}");
    ledger.close();
    let gone = Arc::downgrade(&telemetry);
    drop((telemetry, ledger));
    assert!(gone.upgrade().is_none());
}

//! What `GET /metrics` says: the names of `names.rs`, and counts that follow the events.

use std::collections::BTreeSet;

use rubicon_ledger::{State, Stats, ToolName};

use super::super::events::{AttemptEvent, AttemptResult, Recovery, RequestEvent, RequestState, Tokens, Whose};
use super::super::executions::LedgerGauges;
use super::super::names::{Kind, METRICS};
use super::*;
use crate::config::testing::{TODAY, settings};

const CONFIG: &str = "[provider.p]\nkind = \"openai\"\napi_key = \"env:K\"\n\
    [route.a]\nprovider = \"p\"\nmodel = \"gpt-x\"\nverified = { on = 2026-01-01, until = 2026-12-31 }\n\
    [route.b]\nprovider = \"p\"\nmodel = \"gpt-y\"\n\
    [workflow.w]\nprimary = \"a\"\nequivalents = [\"b\"]\n\
    [[approval]]\nworkflow = \"w\"\nroute = \"b\"\npurpose = \"failover\"\nuntil = 2026-11-30\n";

fn event(result: AttemptResult, model: &str) -> AttemptEvent {
    let whose = Whose { workflow: Some(WorkflowId::new("w")), ..Whose::default() };
    AttemptEvent {
        whose,
        result,
        sent_model: Some(model.to_owned()),
        cost_usd: Some(0.5),
        duration_ms: 1500,
        first_output_ms: Some(20),
        tokens: Tokens { input_tokens: Some(9), cached_input_tokens: None, output_tokens: Some(3) },
        ..super::super::events::sample()
    }
}

fn gauges(route: &str, circuit: &'static str) -> RouteGauges {
    RouteGauges { route: RouteId::new(route), circuit, in_use: 0, killed: false }
}

fn metrics() -> Metrics {
    let metrics = Metrics::default();
    metrics.config_taken(&settings(CONFIG), 1, TODAY);
    metrics
}

fn has(metrics: &Metrics, line: &str) {
    let text = metrics.render();
    assert!(text.lines().any(|found| found == line), "{line}\n{text}");
}

#[test]
fn the_text_has_every_name_with_its_type_and_no_other() {
    let metrics = metrics();
    metrics.attempt(&event(AttemptResult::Failed, "gpt-x"));
    metrics.attempt(&event(AttemptResult::Accepted, "gpt-x"));
    let whose = || Whose { workflow: Some(WorkflowId::new("w")), ..Whose::default() };
    let request = RequestEvent::without_attempt(whose(), RequestState::Interrupted, TODAY, 3);
    let recovery = Recovery { workflow: "retry", added_latency_ms: Some(3), ..Recovery::default() };
    metrics.request(&RequestEvent { recovery, hold_ms: Some(1), accepted_attempt: Some(2), ..request });
    metrics.hold_limit(&WorkflowId::new("w"));
    metrics.shed("overloaded");
    metrics.alarm(AlarmKind::BadCertificate);
    metrics.outcome(&WorkflowId::new("w"), Outcome::Accepted);
    metrics.routes_from(|| vec![gauges("a", "healthy")]);
    ledger(&metrics);
    let text = metrics.render();
    assert!(text.ends_with("# EOF\n"));
    let mut typed = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let scraped = match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        };
        typed.insert((scraped, kind.to_owned()));
    }
    let named: BTreeSet<_> = METRICS.iter().map(|m| (m.name.to_owned(), m.kind.name().to_owned())).collect();
    assert_eq!(typed, named);
    for metric in METRICS {
        assert_eq!(metric.name.ends_with("_total"), metric.kind == Kind::Counter, "{}", metric.name);
        assert!(!metric.help.ends_with('.'), "{}", metric.name);
    }
}

fn ledger(metrics: &Metrics) {
    let refund = ToolName::new("refund").unwrap();
    metrics.transition(&refund, None, State::Started);
    metrics.claimed(&refund, "execute", Some(Duration::from_millis(3)));
    metrics.probed(&refund, "undecided");
    let stats = Stats { queued: 2, behind: 1, commands: 9, batches: 3, unknown: 4, kept_lost: 1, ..Stats::default() };
    metrics.ledger_from(move || LedgerGauges { available: true, stats });
}

#[test]
fn the_ledger_is_counted_and_read_off() {
    let metrics = Metrics::default();
    let config = format!("{CONFIG}[tool.refund]\n");
    metrics.config_taken(&settings(&config), 1, TODAY);
    assert!(!metrics.render().contains("\nrubicon_ledger_available "), "no ledger is not one that fails");
    ledger(&metrics);
    metrics.transition(&ToolName::new("gone_since").unwrap(), Some(State::Started), State::Unknown);
    for line in [
        "rubicon_execution_transitions_total{tool=\"refund\",from=\"none\",to=\"started\"} 1",
        "rubicon_execution_transitions_total{tool=\"other\",from=\"started\",to=\"unknown\"} 1",
        "rubicon_execution_claims_total{tool=\"refund\",decision=\"execute\"} 1",
        "rubicon_execution_claim_duration_seconds_count 1",
        "rubicon_execution_probes_total{tool=\"refund\",result=\"undecided\"} 1",
        "rubicon_executions_open{phase=\"unknown\"} 4",
        "rubicon_ledger_available 1",
        "rubicon_ledger_queued{queue=\"commands\"} 2",
        "rubicon_ledger_batches_total 3",
        "rubicon_ledger_outcomes_lost_total 1",
    ] {
        has(&metrics, line);
    }
}

#[test]
fn attempts_are_counted_by_what_became_of_them() {
    let metrics = metrics();
    metrics.attempt(&event(AttemptResult::Failed, "gpt-x"));
    metrics.attempt(&event(AttemptResult::Accepted, "gpt-x"));
    metrics.attempt(&AttemptEvent { class: None, ..event(AttemptResult::Unfinished, "whatever a caller sends") });
    has(&metrics, r#"rubicon_attempts_total{route="a",workflow="w",kind="first",class="rate_limited"} 1"#);
    has(&metrics, r#"rubicon_attempts_total{route="a",workflow="w",kind="first",class="none"} 1"#);
    has(&metrics, r#"rubicon_attempts_total{route="a",workflow="w",kind="first",class="unfinished"} 1"#);
    has(&metrics, r#"rubicon_cost_usd_total{workflow="w",route="a"} 0.5"#);
    has(&metrics, r#"rubicon_lost_cost_usd_total{workflow="w",route="a"} 1.0"#);
    has(&metrics, r#"rubicon_throttles_total{route="a",limit_dimension="tokens"} 2"#);
    let text = metrics.render();
    assert!(text.contains(r#"gen_ai_request_model="other""#) && !text.contains("whatever"), "{text}");
    assert!(text.contains(
        r#"gen_ai_client_operation_duration_seconds_sum{gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="gpt-x",error_type="rate_limited"} 1.5"#
    ), "{text}");
}

#[test]
fn requests_without_a_workflow_have_a_label_too() {
    let metrics = metrics();
    let event = RequestEvent::without_attempt(Whose::default(), RequestState::Refused, TODAY, 3);
    metrics.request(&RequestEvent { reason: Some("missing_api_key".to_owned()), ..event });
    has(
        &metrics,
        r#"rubicon_requests_total{workflow="none",dialect="none",state="refused",reason="missing_api_key"} 1"#,
    );
}

#[test]
fn gauges_follow_the_configuration() {
    let metrics = metrics();
    let routes = Arc::new(Mutex::new(vec![gauges("a", "healthy"), gauges("b", "healthy")]));
    let asked = Arc::clone(&routes);
    metrics.routes_from(move || asked.lock().unwrap().clone());
    has(&metrics, r#"rubicon_route_circuit{route="b",state="healthy"} 1"#);
    has(&metrics, r#"rubicon_killed{route="b"} 0"#);
    has(
        &metrics,
        r#"rubicon_approval_expiry_timestamp_seconds{workflow="w",route="b",purpose="failover"} 1796083199.999"#,
    );
    routes.lock().unwrap()[1] = RouteGauges { in_use: 3, killed: true, ..gauges("b", "tripped") };
    has(&metrics, r#"rubicon_killed{route="b"} 1"#);
    has(&metrics, r#"rubicon_route_in_use{route="b"} 3"#);
    has(&metrics, r#"rubicon_route_circuit{route="b",state="tripped"} 1"#);
    has(&metrics, r#"rubicon_route_circuit{route="b",state="healthy"} 0"#);
    let without_b = CONFIG.replace("[route.b]\nprovider = \"p\"\nmodel = \"gpt-y\"\n", "");
    let without_b = without_b.replace("equivalents = [\"b\"]\n", "");
    let (without_b, _) = without_b.split_once("[[approval]]").unwrap();
    metrics.config_taken(&settings(without_b), 2, TODAY);
    routes.lock().unwrap().pop();
    let text = metrics.render();
    assert!(!text.contains(r#"route="b""#), "{text}");
    has(&metrics, "rubicon_config_generation 2");
    has(&metrics, r#"rubicon_alarms_total{kind="bad_certificate"} 0"#);
    metrics.config_refused();
    has(&metrics, "rubicon_config_last_reload_success 0");
    metrics.in_flight_from(|| 7);
    has(&metrics, "rubicon_in_flight 7");
}

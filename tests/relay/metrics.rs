//! `GET /metrics`: what a living relay says is in OpenMetrics' form, has the documented names and bounded labels, and the files that
//! we give operators use names that exist.

use std::collections::BTreeSet;
use std::path::Path;

use rubicon::mock::{Answer, chat_text};
use rubicon::protocol::Dialect;
use rubicon::telemetry::metrics::CONTENT_TYPE;
use rubicon::telemetry::names::{LABELS, METRICS};
use serde_json::Value;

use crate::harness::{Http, client, path, post, relay, request, url};
use crate::setup::{Setup, always, overloaded};
use crate::watched::{samples, sum};

const CHAT: Dialect = Dialect::ChatCompletions;

#[tokio::test]
async fn a_living_relay_says_what_is_documented() {
    let (a, b) = (always(overloaded()).await, always(chat_text(&["from b"])).await);
    let relay = relay(&Setup::primary(a.base_url()).equivalent("b", &b).text()).await;
    let http = client(Http::One);
    for _ in 0..3 {
        post(&http, &relay, path(CHAT), request(CHAT, true)).await;
    }
    let labels: BTreeSet<&str> = LABELS.iter().map(|(label, _)| *label).chain(["le"]).collect();
    for (name, _) in samples(&relay) {
        let (metric, rest) = name.split_once('{').unwrap_or((&name, "}"));
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric);
        assert!(METRICS.iter().any(|known| known.name == metric || known.name == base), "{name}");
        for pair in rest.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty()) {
            let (label, _) = pair.split_once('=').unwrap();
            assert!(labels.contains(label), "{name}");
        }
    }
    assert_eq!(sum(&relay, "rubicon_attempts_total", &["route=\"a\"", "class=\"provider_overloaded\""]), 3.0);
    assert_eq!(
        sum(&relay, "rubicon_attempts_total", &["route=\"b\"", "kind=\"equivalent_failover\"", "class=\"none\""]),
        3.0
    );
    assert_eq!(sum(&relay, "rubicon_added_latency_seconds_count", &[]), 3.0);
    assert_eq!(sum(&relay, "rubicon_build_info", &[]), 1.0);
    assert!(CONTENT_TYPE.starts_with("application/openmetrics-text; version=1.0.0"));
    assert!(relay.app().telemetry.render_metrics().ends_with("# EOF\n"));
}

#[tokio::test]
async fn in_flight_goes_up_and_comes_down() {
    let a = always(Answer::sse().text(": hi\n\n").gate("go")).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    assert_eq!(sum(&relay, "rubicon_in_flight", &[]), 0.0);
    let http = client(Http::One);
    let running =
        http.post(url(&relay, path(CHAT))).header("content-type", "application/json").body(request(CHAT, true));
    let running = tokio::spawn(running.send());
    a.wait_for(|stats| stats.at_gates == 1).await;
    assert_eq!(sum(&relay, "rubicon_in_flight", &[]), 1.0);
    running.abort();
    a.wait_for(|stats| stats.disconnects == 1).await;
    for _ in 0..2000 {
        if sum(&relay, "rubicon_in_flight", &[]) == 0.0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the request stays in flight");
}

/// A caller can't make a new time series.
#[tokio::test]
async fn series_do_not_grow_with_what_callers_send() {
    let a = always(chat_text(&["fine"])).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    let http = client(Http::One);
    let send = async |n: usize| {
        let body = request(CHAT, true).replace("\"m\"", &format!("\"model-{n}\""));
        let posted = http.post(url(&relay, path(CHAT))).header("content-type", "application/json");
        let posted = posted.header("idempotency-key", format!("k{n}")).header("user-agent", format!("a{n}")).body(body);
        crate::harness::send(posted).await
    };
    send(0).await;
    let before = samples(&relay).len();
    for n in 1..30 {
        send(n).await;
    }
    assert_eq!(samples(&relay).len(), before);
    assert_eq!(sum(&relay, "rubicon_requests_total", &[]), 30.0);
}

fn deploy(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Words that look like ours: `rubicon_…` and `gen_ai_client_…`, without a histogram's suffix.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| word.starts_with("rubicon_") || word.starts_with("gen_ai_client_"))
        .map(|word| {
            let histogram = |base: &str| METRICS.iter().any(|metric| metric.name == base);
            let ends = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
            ends.filter(|base| histogram(base)).unwrap_or(word).to_owned()
        })
        .collect()
}

/// Every expression of the dashboard.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if matches!(name.as_str(), "expr" | "query" | "definition") => {
                        found.push(text.clone())
                    }
                    value => expressions(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

fn balanced(expression: &str) {
    let mut open = Vec::new();
    let mut quoted = false;
    for c in expression.chars() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => open.push(c),
            ')' => assert_eq!(open.pop(), Some('('), "{expression}"),
            ']' => assert_eq!(open.pop(), Some('['), "{expression}"),
            '}' => assert_eq!(open.pop(), Some('{'), "{expression}"),
            _ => {}
        }
    }
    assert!(open.is_empty() && !quoted, "{expression}");
}

#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let board: Value = serde_json::from_str(&deploy("grafana-dashboard.json")).expect("JSON");
    let mut found = Vec::new();
    expressions(&board, &mut found);
    assert!(found.len() >= 20, "{found:?}");
    found.iter().for_each(|expression| balanced(expression));
    let panels = board["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        assert!(panel["title"].is_string() && panel["type"].is_string() && panel["gridPos"]["w"].is_u64(), "{panel}");
    }
    used_and_known(
        &found.join("\n"),
        "the dashboard",
        &[
            "rubicon_requests_total",
            "rubicon_attempts_total",
            "rubicon_recoveries_total",
            "rubicon_interruptions_total",
            "rubicon_added_latency_seconds",
            "rubicon_hold_seconds",
            "rubicon_route_circuit",
            "rubicon_route_in_use",
            "rubicon_killed",
            "rubicon_shed_total",
            "rubicon_retry_budget_refused_total",
            "rubicon_throttles_total",
            "rubicon_cost_usd_total",
            "rubicon_lost_cost_usd_total",
            "rubicon_outcomes_total",
            "rubicon_alarms_total",
            "rubicon_events_dropped_total",
            "rubicon_in_flight",
            "gen_ai_client_operation_duration_seconds",
            "gen_ai_client_operation_time_to_first_chunk_seconds",
            "gen_ai_client_token_usage",
        ],
    );
}

fn used_and_known(text: &str, what: &str, important: &[&str]) {
    let used = metrics_in(text);
    for name in &used {
        assert!(METRICS.iter().any(|metric| metric.name == name), "{what} names {name}, which is none of ours");
    }
    for name in important {
        assert!(used.contains(*name), "{what} does not use {name}");
    }
}

#[test]
fn the_alerts_watch_metrics_that_exist() {
    let text = deploy("alerts.yml");
    // A line that begins a rule, and what each rule must have, by its words: enough YAML for a file of our own hand.
    let rules: Vec<&str> = text.split("- alert: ").skip(1).collect();
    assert!(rules.len() >= 10);
    let mut names = BTreeSet::new();
    let mut expressions = String::new();
    for rule in &rules {
        let name = rule.lines().next().unwrap_or_default();
        assert!(names.insert(name) && name.chars().all(|c| c.is_ascii_alphanumeric()), "{name}");
        for part in ["expr: ", "labels:", "severity: ", "annotations:", "summary: ", "description: "] {
            assert_eq!(rule.matches(part).count(), 1, "{part:?} of {name}");
        }
        let expression =
            rule.split("expr: ").nth(1).and_then(|rest| rest.split("\n        labels:").next()).unwrap_or_default();
        let expression = expression.split("\n        for: ").next().unwrap_or_default();
        balanced(expression);
        expressions += &format!("{expression}\n");
    }
    assert!(!text.contains('\t'), "YAML has no tabs");
    used_and_known(
        &expressions,
        "an alert",
        &[
            "rubicon_recoveries_total",
            "rubicon_interruptions_total",
            "rubicon_attempts_total",
            "rubicon_route_circuit",
            "rubicon_shed_total",
            "rubicon_retry_budget_refused_total",
            "rubicon_added_latency_seconds",
            "rubicon_events_dropped_total",
            "rubicon_alarms_total",
            "rubicon_approval_expiry_timestamp_seconds",
            "rubicon_verification_expiry_timestamp_seconds",
            "rubicon_config_last_reload_success",
            "rubicon_killed",
            "rubicon_ledger_available",
            "rubicon_executions_open",
        ],
    );
}

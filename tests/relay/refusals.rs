//! One row a refusal name: the primary is down, the secondary is refused for exactly that reason, gets no call, and both the caller who
//! may see routes and `explain` are told the name.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use rubicon::clock::{Instant, UnixMillis};
use rubicon::config::{self, Sources};
use rubicon::gate::AllOpen;
use rubicon::mock::Answer;
use rubicon::plan::explain::{Ask, Judges, explain};
use rubicon::plan::refusal::{NAMES, When};
use rubicon::plan::{NobodyKnown, World};
use rubicon::protocol::Dialect;
use serde_json::{Value, json};

use crate::harness::{Http, client, path, relay_with, send, url};
use crate::setup::{always, error, overloaded, server_error};
use rubicon::mock::chat_whole_text;

/// What a row changes of a failover that works.
struct Row {
    why: &'static str,
    provider: &'static str,
    route: &'static str,
    workflow: &'static str,
    approval: &'static str,
    members: &'static str,
    alternate: bool,
    /// What the primary says.
    says: fn() -> Answer,
}

const ROUTE: &str = "capabilities = [\"text\"]\nverified = { on = 2026-01-01 }";
const WORKFLOW: &str = "failover = { enabled = true }";
const APPROVAL: &str = "purpose = \"failover\"";
const STALE: &str = "rd1:00000000000000000000000000000000";

fn row(why: &'static str) -> Row {
    Row {
        why,
        provider: "",
        route: ROUTE,
        workflow: WORKFLOW,
        approval: APPROVAL,
        members: "",
        alternate: false,
        says: overloaded,
    }
}

const REQUIRES: [(&str, &str); 9] = [
    ("region", "failover = { enabled = true }\nrequires = { regions = [\"eu\"] }"),
    ("network", "failover = { enabled = true }\nrequires = { network = \"private\" }"),
    ("data_class", "failover = { enabled = true }\nrequires = { data_class = \"pii\" }"),
    ("legal_entity", "failover = { enabled = true }\nrequires = { legal_entities = [\"BV\"] }"),
    ("model_class", "failover = { enabled = true }\nrequires = { model_classes = [\"frontier\"] }"),
    ("safety_profile", "failover = { enabled = true }\nrequires = { safety_profile = \"strict\" }"),
    ("language", "failover = { enabled = true }\nrequires = { languages = [\"nl\"] }"),
    ("schema", "failover = { enabled = true }\nrequires = { schemas = [\"order\"] }"),
    ("capability:pdf", "failover = { enabled = true }\nrequires = { capabilities = [\"pdf\"] }"),
];

fn invalid_key() -> Answer {
    Answer::json_error(401, error("bad key", "invalid_request_error", json!("invalid_api_key")))
}

fn rows() -> Vec<Row> {
    let mut rows = vec![
        Row { workflow: "", ..row("failover_disabled") },
        Row { workflow: "failover = { enabled = true, equivalent = false }", ..row("failover_disabled") },
        Row { alternate: true, approval: "purpose = \"cross_model\"", ..row("cross_model_disabled") },
        Row { approval: "", ..row("approval_missing") },
        Row { approval: "purpose = \"failover\"\nuntil = 2026-01-31", ..row("approval_expired") },
        Row {
            approval: "purpose = \"failover\"\nroute_digest = \"rd1:00000000000000000000000000000000\"",
            ..row("approval_stale")
        },
        Row { route: "capabilities = [\"text\"]", ..row("verification_missing") },
        Row {
            route: "capabilities = [\"text\"]\nverified = { on = 2026-01-01, until = 2026-01-31 }",
            ..row("verification_expired")
        },
        Row {
            route: "capabilities = [\"text\"]\nverified = { on = 2026-01-01, route_digest = \"rd1:00000000000000000000000000000000\" }",
            ..row("verification_stale")
        },
        Row { provider: "network = \"public\"", ..row("network") },
        Row {
            route: "capabilities = [\"text\"]\nverified = { on = 2026-01-01 }\ndialects = [\"anthropic-messages\"]",
            ..row("dialect")
        },
        Row {
            members: ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]",
            ..row("capability:tools")
        },
        Row {
            route: "capabilities = [\"text\"]\nverified = { on = 2026-01-01 }\ncontext_tokens = 100",
            members: ",\"max_tokens\":101",
            ..row("context_too_large")
        },
        Row { members: ",\"previous_response_id\":\"resp_1\"", ..row("pinned:previous_response_id") },
        Row { says: invalid_key, ..row("class_blocked") },
        Row {
            workflow: "failover = { enabled = true, cross_model = true }",
            alternate: true,
            approval: "purpose = \"cross_model\"",
            ..row("class_blocked")
        },
        Row {
            workflow: "failover = { enabled = true }\nenvelope = { side_effects = \"write_possible\" }",
            route: "capabilities = [\"text\", \"mcp\"]\nverified = { on = 2026-01-01 }",
            members: ",\"tools\":[{\"type\":\"mcp\"}]",
            says: server_error,
            ..row("side_effects")
        },
        Row { workflow: "failover = { enabled = true }\nenvelope = { answer_deadline_ms = 1900 }", ..row("time") },
        Row {
            workflow: "failover = { enabled = true }\nenvelope = { max_cost_usd = 0.01 }",
            route: "capabilities = [\"text\"]\nverified = { on = 2026-01-01 }\nprice = { input = 1.0, output = 100.0 }",
            ..row("cost")
        },
    ];
    rows.extend(REQUIRES.iter().map(|(why, workflow)| Row { workflow, ..row(why) }));
    rows
}

#[test]
fn every_name_has_a_row_or_is_of_the_moment() {
    let mut names: BTreeSet<&str> =
        rows().iter().map(|row| row.why.split(':').next().unwrap()).collect::<BTreeSet<_>>();
    // These need a living gate; `plan::order`'s and `plan::eligible`'s tests hold what the plan makes of them.
    names.extend(NAMES.iter().filter(|entry| entry.when == When::Moment).map(|entry| entry.name));
    let all: BTreeSet<&str> = NAMES.iter().map(|entry| entry.name).collect();
    assert_eq!(names, all);
    assert_eq!(STALE.len(), "rd1:".len() + 32);
}

fn config_of(row: &Row, a: &str, b: &str) -> String {
    let list = if row.alternate { "alternates" } else { "equivalents" };
    let approval = if row.approval.is_empty() {
        String::new()
    } else {
        format!("[[approval]]\nworkflow = \"default\"\nroute = \"b\"\n{}\n", row.approval)
    };
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n\
         [[client]]\nname = \"c\"\nkeys = [\"env:C\"]\nshow_routes = true\nworkflows = [\"default\"]\n\
         [provider.a]\nkind = \"openai-compatible\"\nbase_url = \"{a}/v1\"\n\
         [provider.b]\nkind = \"openai-compatible\"\nbase_url = \"{b}/v1\"\n{}\n\
         [route.a]\nprovider = \"a\"\n[route.b]\nprovider = \"b\"\n{}\n\
         [workflow.default]\nprimary = \"a\"\n{list} = [\"b\"]\n{}\n{approval}",
        row.provider, row.route, row.workflow
    )
}

/// The names that `explain` has against `b`.
fn explained(text: &str, key: &str, body: &str) -> Vec<Value> {
    let sources = Sources {
        folder: Path::new(""),
        env: &|_| Some(key.to_owned()),
        read: &|_| Err(io::ErrorKind::NotFound.into()),
        now: UnixMillis::now(),
        terminal: false,
    };
    let settings = config::parse(text, "test.toml", &sources).unwrap().settings;
    let world = World {
        approvals: &settings.approvals,
        gate: &AllOpen,
        now: UnixMillis::now(),
        at: Instant::now(),
        draw: 0,
        issuers: &NobodyKnown,
    };
    let ask = Ask { request: Some(body.to_owned().into()), ..Ask::default() };
    let judges = Judges { figures: &|_, _| (Duration::ZERO, 0.0), no_call: &|_, _, _, _| None };
    let explanation = explain(&settings, &ask, &world, judges).unwrap();
    explanation.refused.iter().map(|reason| json!({ "route": reason.route, "why": reason.why })).collect()
}

#[tokio::test]
async fn the_secondary_is_not_called_and_the_name_is_told() {
    let key = "c".repeat(40);
    for row in rows() {
        let (a, b) = (always((row.says)()).await, always(chat_whole_text("from b")).await);
        let text = config_of(&row, &a.base_url(), &b.base_url());
        let relay = relay_with(&text, &[("C", key.as_str())].into_iter().collect()).await;
        let body =
            format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]{}}}", row.members);
        let request = client(Http::One).post(url(&relay, path(Dialect::ChatCompletions))).bearer_auth(&key);
        // One call of the primary: what is tried again is not this promise's.
        let request = request.header("content-type", "application/json").header("rubicon-max-attempts", "2");
        let answered = send(request.body(body.clone())).await;
        let refused = answered.json()["rubicon"]["refused"].clone();
        assert_eq!(refused, json!([{ "route": "b", "why": row.why }]), "{}: {}", row.why, answered.text());
        assert_eq!(b.calls(), 0, "{}", row.why);
        assert!(a.calls() >= 1, "{}", row.why);
        let entry = NAMES.iter().find(|entry| row.why.split(':').next() == Some(entry.name)).unwrap();
        let expected = if entry.when == When::Failure { json!([]) } else { refused };
        assert_eq!(json!(explained(&text, &key, &body)), expected, "{}: explain", row.why);
    }
}

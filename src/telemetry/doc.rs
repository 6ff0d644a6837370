//! `TELEMETRY.md` out of `names.rs`. The file is checked in, so that it can be read without building; the test fails when it is stale
//! and rewrites it when `RUBICON_UPDATE_DOCS=1` is set. Test only.

use std::fmt::Write as _;

use super::names::{
    ALARM_FIELDS, ATTEMPT_FIELDS, EXECUTION_FIELDS, Field, LABELS, METRICS, REQUEST_FIELDS, SHARED_FIELDS, TASK_FIELDS,
    span,
};

const HEAD: &str = "# What can be watched\n\n\
Made from `src/telemetry/names.rs`; do not edit (`RUBICON_UPDATE_DOCS=1 cargo test --lib telemetry::doc`).\n\n\
## Event lines\n\n\
JSON, a line each, to where `[log] events` says. One line an attempt, one a request of the data plane (also one that was\n\
refused, left or replayed), one an outcome that an application tells, one a transition of a tool's execution, one an alarm. No prompt, output, argument or key is in any.\n\
Every field is always there; what is not known or does not apply is `null`. A dot steps into an object.\n\n";

const METRICS_HEAD: &str = "\n## Metrics\n\n\
`GET /metrics` on the admin side, OpenMetrics text. Names of OpenTelemetry's GenAI conventions where those have one: the attempt is\n\
the *operation* of those, because the relay is the provider's client. `gen_ai_response_model` is left out: providers choose its values.\n\n\
| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n";

const TRACES_HEAD: &str = "\n## Traces\n\n\
OTLP over HTTP (protobuf) where `[telemetry] otlp_endpoint` or OpenTelemetry's variables name a collector. A span an operation (kind\n\
server, the child of the caller's `traceparent`), a child span an attempt (kind client), whose `traceparent` goes to the provider. A\n\
caller that says *not sampled* gets no spans, and its header goes up as it came; without a collector it always does.\n\n\
| attribute | meaning |\n| --- | --- |\n";

fn render() -> String {
    let mut text = String::from(HEAD);
    for (title, fields) in [
        ("`attempt` and `request`", SHARED_FIELDS),
        ("`attempt` also has", ATTEMPT_FIELDS),
        ("`request` also has", REQUEST_FIELDS),
        ("`task`", TASK_FIELDS),
        ("`execution`", EXECUTION_FIELDS),
        ("`alarm`", ALARM_FIELDS),
    ] {
        let _ = writeln!(text, "### {title}\n\n| field | meaning |\n| --- | --- |");
        for Field(name, meaning) in fields {
            let _ = writeln!(text, "| `{name}` | {meaning} |");
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text.push_str(METRICS_HEAD);
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let _ =
            writeln!(text, "| `{}` | {} | {} | {} |", metric.name, metric.kind.name(), labels.join(" "), metric.help);
    }
    text.push_str("\n| label | values |\n| --- | --- |\n");
    for (label, values) in LABELS {
        let _ = writeln!(text, "| `{label}` | {values} |");
    }
    text.push_str(TRACES_HEAD);
    for (name, meaning) in span::ALL {
        let _ = writeln!(text, "| `{name}` | {meaning} |");
    }
    text
}

#[test]
fn telemetry_md_is_what_the_names_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/telemetry/TELEMETRY.md");
    let rendered = render();
    if std::env::var_os("RUBICON_UPDATE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(path, &rendered).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == rendered, "TELEMETRY.md is stale: run with RUBICON_UPDATE_DOCS=1");
}

#[test]
fn every_label_is_explained_and_none_besides() {
    let used: std::collections::BTreeSet<&str> =
        METRICS.iter().flat_map(|metric| metric.labels.iter().copied()).collect();
    let explained: std::collections::BTreeSet<&str> = LABELS.iter().map(|(label, _)| *label).collect();
    assert_eq!(used, explained);
    assert_eq!(explained.len(), LABELS.len());
}

//! `[tool.NAME]` and `client.tools`: one row a mistake, and what a good one comes to.

use std::time::Duration;

use rubicon_ledger::{Effect, Impact, Outcome, ToolName};

use super::super::problem::{Code, Severity};
use super::super::settings::ToolSettings;
use super::{BASE, codes, parsed, with};

fn tool(text: &str) -> std::sync::Arc<ToolSettings> {
    let loaded = parsed(text).unwrap_or_else(|problems| panic!("{problems:#?}"));
    loaded.settings.tools[&ToolName::new("t").unwrap()].clone()
}

#[test]
fn a_name_is_enough_and_the_defaults_are_careful() {
    let plain = BASE.split("[tool.t.endpoint]").next().unwrap();
    let tool = tool(plain);
    assert_eq!((tool.rule.effect, tool.rule.impact, tool.rule.max_runs), (Effect::Write, Impact::Normal, 3));
    assert!(tool.rule.guard_similar && !tool.rule.approve_before_run && !tool.rule.has_probe);
    assert!(tool.schema.is_none() && tool.checker.is_none() && tool.endpoint.is_none() && tool.probe.is_none());
    assert_eq!((tool.timeout, tool.retention), (Duration::from_secs(30), None));
}

#[test]
fn a_full_one_comes_out_as_written() {
    let text = with(
        "[tool.t]",
        r#"owner = "payments"
impact = "high"
schema = "file:schema.json"
key_fields = ["/id"]
ignore_fields = ["/id/trace"]
redact = ["/card", "/card/number"]
retention_days = 2
result_rules = [{ pointer = "/ok", equals = false, outcome = "executed_error" }, { status = 409, outcome = "succeeded" }]"#,
    );
    let text = text.replacen(
        "[tool.t.endpoint]\n",
        "[tool.t.endpoint]\nheaders = { authorization = \"Bearer env:KEY\", X-Api-Key = \"file:key.txt\", x-team = \"a b\" }\n",
        1,
    );
    let tool = tool(&text);
    assert_eq!(tool.rule.owner.as_deref(), Some("payments"));
    assert_eq!(tool.rule.projection.key_fields().len(), 1);
    assert!(tool.schema.is_some() && tool.checker.is_some());
    assert_eq!(tool.retention, Some(Duration::from_secs(172_800)));
    let endpoint = tool.endpoint.as_ref().unwrap();
    assert_eq!((endpoint.url.to_string().as_str(), endpoint.method.as_str()), ("https://t.example/run", "POST"));
    let headers: Vec<_> = endpoint.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    let expected = [("x-api-key", "file-secret"), ("authorization", "Bearer value-of-KEY"), ("x-team", "a b")];
    assert_eq!(headers, expected);
    assert!(!format!("{tool:?}").contains("value-of-KEY"));
    let rules: Vec<_> = tool.result_rules.iter().map(|rule| (rule.status, rule.equals.clone(), rule.outcome)).collect();
    let no = Some(serde_json::Value::Bool(false));
    assert_eq!(rules, [(None, no, Outcome::ExecutedError), (Some(409), None, Outcome::Succeeded)]);
    let probe = tool.probe.as_ref().unwrap();
    assert_eq!((probe.url.as_str(), probe.agree), ("https://t.example/runs/{key}", 1));
    assert!(tool.rule.has_probe);
}

#[test]
fn a_client_names_its_tools_and_without_clients_nobody_does() {
    let loaded = parsed(&with("[[client]]", "tools = [\"t\"]")).unwrap();
    assert_eq!(loaded.settings.clients[0].tools, [ToolName::new("t").unwrap()]);
    let problems = parsed(&with("[[client]]", "tools = [\"tt\", \"t\", \"t\"]")).unwrap_err();
    assert_eq!(codes(&problems), ["unresolved 6", "duplicate 6"]);
    assert!(problems[0].message.contains("did you mean `t`?"), "{}", problems[0].message);
}

/// `(lines put below a header of BASE, codes)`; errors and warnings.
const ROWS: &[(&str, &str, &[&str])] = &[
    ("[tool.t]", "effect = \"reads\"", &["invalid_value"]),
    ("[tool.t]", "efect = \"write\"", &["unknown_key"]),
    ("[tool.t]", "max_runs = 0", &["out_of_range"]),
    ("[tool.t]", "timeout_ms = 0", &["out_of_range"]),
    ("[tool.t]", "retention_days = 0", &["out_of_range"]),
    ("[tool.t]", "approval = true", &["wrong_type"]),
    ("[tool.t]", "similar = \"on\"", &["invalid_value"]),
    ("[tool.t]", "key_fields = \"/id\"", &["wrong_type"]),
    ("[tool.t]", "key_fields = [\"order.id\"]", &["invalid_value"]),
    ("[tool.t]", "key_fields = [\"/a\", \"/a\"]", &["duplicate"]),
    ("[tool.t]", "key_fields = [\"/a/b\"]\nignore_fields = [\"/a\"]", &["invalid_value"]),
    ("[tool.t]", "redact = [\"/~2\"]", &["invalid_value"]),
    ("[tool.t]", "summary = \"to {card}\"", &["invalid_value"]),
    ("[tool.t]", "summary = \"to {/card\"", &["invalid_value"]),
    ("[tool.t]", "schema = 1", &["wrong_type"]),
    ("[tool.t]", "schema = \"schema.json\"", &["schema_invalid"]),
    ("[tool.t]", "schema = \"file:none.json\"", &["schema_invalid"]),
    ("[tool.t]", "schema = \"file:key.txt\"", &["schema_invalid"]),
    ("[tool.t]", "schema = { type = \"objekt\" }", &["schema_invalid"]),
    ("[tool.t]", "schema = { type = \"string\" }", &["schema_invalid"]),
    ("[tool.t]", "schema = { \"$ref\" = \"https://s.example/x.json\" }", &["schema_invalid"]),
    ("[tool.t]", "schema = { \"$ref\" = \"#\" }", &["schema_invalid"]),
    ("[tool.t]", "schema = { properties = { a = { pattern = \"(?=a)\" } } }", &["schema_invalid"]),
    ("[tool.t]", "schema = { const = 2026-01-01 }", &["invalid_value"]),
    ("[tool.t]", "schema = { const = inf }", &["invalid_value"]),
    ("[tool.t]", "schema = { type = [\"object\", \"null\"] }", &[]),
    ("[tool.t]", "result_rules = [{ outcome = \"succeeded\" }]", &["missing_key"]),
    ("[tool.t]", "result_rules = [{ status = 200 }]", &["missing_key"]),
    ("[tool.t]", "result_rules = [{ status = 99, outcome = \"succeeded\" }]", &["out_of_range"]),
    ("[tool.t]", "result_rules = [{ pointer = \"a\", outcome = \"succeeded\" }]", &["invalid_value"]),
    (
        "[tool.t]",
        "result_rules = [{ status = 200, equals = 1, outcome = \"failed\" }]",
        &["invalid_value", "missing_key"],
    ),
    ("[tool.t.endpoint]", "method = \"GET\"", &["invalid_value"]),
    ("[tool.t.endpoint]", "headers = [\"a\"]", &["wrong_type"]),
    ("[tool.t.endpoint]", "headers = { a = 1 }", &["wrong_type"]),
    ("[tool.t.endpoint]", "headers = { \"a b\" = \"x\" }", &["invalid_value"]),
    ("[tool.t.endpoint]", "headers = { Authorization = \"Bearer abc\" }", &["secret_inline"]),
    ("[tool.t.endpoint]", "headers = { authorization = \"Bearer env:UNSET\" }", &["secret_missing"]),
    ("[tool.t.endpoint]", "headers = { authorization = \"Bearer env:EMPTY\" }", &["secret_empty"]),
    ("[tool.t.endpoint]", "headers = { x = \"env:SPACED\" }", &[]),
    ("[tool.t.endpoint]", "headers = { x = \" a\" }", &["secret_invalid"]),
    ("[tool.t.endpoint]", "headers = { X = \"a\", x = \"b\" }", &["duplicate"]),
    ("[tool.t.endpoint]", "headers = { Idempotency-Key = \"a\" }", &["header_not_allowed"]),
    ("[tool.t.endpoint]", "headers = { Rubicon-Root = \"a\" }", &["header_not_allowed"]),
    ("[tool.t.endpoint]", "headers = { Content-Type = \"a\" }", &["header_not_allowed"]),
    ("[tool.t.probe]", "agree = 0", &["out_of_range"]),
    ("[tool.t.probe]", "absent_after_ms = -1", &["out_of_range"]),
    ("[tool.t.probe]", "rule = 1", &["unknown_key"]),
];

#[test]
fn each_mistake_is_reported_on_its_line() {
    for (header, lines, expected) in ROWS {
        let text = with(header, lines);
        let line = text.lines().position(|line| line == *header).unwrap() + 2;
        let found = parsed(&text).map_or_else(|problems| problems, |loaded| loaded.warnings);
        let mut found_codes = codes(&found);
        found_codes.sort();
        let expected: Vec<String> = expected.iter().map(|code| format!("{code} {line}")).collect();
        assert_eq!(found_codes, expected, "{lines}\n{found:#?}");
    }
}

#[test]
fn addresses() {
    for (url, probe, expected) in [
        ("https://t.example/run?x=1", "https://t.example/?id={key}", vec![]),
        ("http://127.0.0.1:9/run", "http://[::1]:9/{key}", vec![]),
        ("http://t.example/run", "http://t.example/{key}", vec!["plain_http", "plain_http"]),
        ("t.example/run", "https://t.example/", vec!["invalid_value", "invalid_value"]),
        ("https://u:SECRET@t.example/", "https://u:SECRET@t.example/{key}", vec!["invalid_value", "invalid_value"]),
        ("https://t.example/#SECRET", "https://{key}.example/", vec!["invalid_value", "invalid_value"]),
        ("https://t.example/{/id}", "https://t.example/{id}/{key}", vec!["invalid_value", "invalid_value"]),
        ("https://t.example/a/../b", "https://t.example:x/{key}", vec!["invalid_value", "invalid_value"]),
    ] {
        let text =
            BASE.replace("https://t.example/runs/{key}", probe).replace("https://t.example/run\"", &format!("{url}\""));
        let found = parsed(&text).err().unwrap_or_default();
        assert_eq!(found.iter().map(|problem| problem.code.name()).collect::<Vec<_>>(), expected, "{url} {probe}");
        assert!(!format!("{found:?}").contains("SECRET"));
    }
    let plain = BASE.replace("https://t.example", "http://t.example");
    let allowed = plain.replacen("[tool.t]\n", "[tool.t]\nallow_plain_http = true\n", 1);
    assert!(parsed(&allowed).is_ok());
}

#[test]
fn fields_are_held_against_the_schema() {
    let schema = "schema = { type = \"object\", properties = { id = {}, note = {}, to = { properties = { iban = {} } } }, required = [\"id\"] }";
    for (lines, severity, expected, says) in [
        ("key_fields = [\"/id\"]", None, "", ""),
        ("key_fields = [\"/idd\"]", Some(Severity::Error), "field_not_in_schema", "did you mean `id`?"),
        ("key_fields = [\"/to/ibna\"]", Some(Severity::Error), "field_not_in_schema", "did you mean `iban`?"),
        ("key_fields = [\"/note\"]", Some(Severity::Warning), "key_field_optional", "not `required`"),
        ("ignore_fields = [\"/nota\"]", Some(Severity::Warning), "field_not_in_schema", "`note`"),
        ("summary = \"{/nota}\"", Some(Severity::Warning), "field_not_in_schema", "`note`"),
    ] {
        let found = parsed(&with("[tool.t]", &format!("{schema}\n{lines}")))
            .map_or_else(|problems| problems, |loaded| loaded.warnings);
        let first = found.first();
        assert_eq!(first.map(|problem| problem.severity), severity, "{lines}: {found:?}");
        assert_eq!(first.map_or("", |problem| problem.code.name()), expected, "{lines}");
        assert!(first.is_none_or(|problem| problem.message.contains(says)), "{lines}: {found:?}");
        assert!(found.len() < 2, "{found:?}");
    }
}

#[test]
fn a_probe_without_rules_is_refused() {
    let without = BASE.split("[[tool.t.probe.rules]]").next().unwrap();
    let empty = without.replacen("[tool.t.probe]\n", "[tool.t.probe]\nrules = []\n", 1);
    for (text, code) in [(without.to_owned(), Code::MissingKey), (empty, Code::InvalidValue)] {
        let problems = parsed(&text).unwrap_err();
        assert_eq!(problems.iter().map(|problem| problem.code).collect::<Vec<_>>(), [code]);
    }
}

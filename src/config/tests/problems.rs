//! One row a mistake: what is reported, and on which line.

use super::super::problem::{Code, Severity};
use super::super::secret::Secret;
use super::super::settings::{LogFormat, ProviderKind, Terminal};
use super::{BASE, codes, parsed, with};
use crate::protocol::Dialect;

#[test]
fn the_smallest_config_loads_with_its_defaults() {
    let text = "[provider.openai]\nkind = \"openai\"\napi_key = \"env:KEY\"\n\n[route.main]\nprovider = \"openai\"\n\n[workflow.default]\nprimary = \"main\"\n";
    let loaded = parsed(text).unwrap();
    assert!(loaded.warnings.is_empty());
    let settings = loaded.settings;
    assert_eq!(settings.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(settings.server.exhausted_status, 424);
    assert_eq!((settings.log.format, settings.log.level.as_str()), (LogFormat::Json, "info"));
    let workflow = settings.workflows.values().next().unwrap();
    assert_eq!(workflow.envelope.max_attempts, 3);
    assert_eq!(workflow.hold.keepalive_after.map(|after| after.as_millis()), Some(15_000));
    assert!(workflow.failover.equivalent && !workflow.failover.enabled && workflow.envelope.repeat_unanswered);
    let provider = &workflow.primary.provider;
    assert_eq!((provider.kind, provider.terminal), (ProviderKind::OpenAi, Terminal::Strict));
    assert_eq!(provider.base_url.to_string(), "https://api.openai.com/v1");
    assert_eq!(provider.account, "openai");
    assert_eq!(provider.api_key.as_ref().map(Secret::expose), Some("value-of-KEY"));
    assert_eq!(workflow.primary.model, None);
    assert_eq!(workflow.primary.dialects, [Dialect::ChatCompletions, Dialect::Responses]);
}

/// `(header in BASE, lines put below it, expected problems by code)`; each problem must stand on one of those lines.
const BELOW: &[(&str, &str, &[&str])] = &[
    ("[server]", "listne = \"127.0.0.1:1\"", &["unknown_key"]),
    ("[server]", "listen = 8080", &["wrong_type"]),
    ("[server]", "listen = \"localhost:8080\"", &["invalid_value"]),
    ("[server]", "listen = \"\"", &["invalid_value"]),
    ("[server]", "listen = \"0.0.0.0:8080\"", &[]),
    ("[server]", "max_in_flight = 0", &["out_of_range"]),
    ("[server]", "max_in_flight = -1", &["out_of_range"]),
    ("[server]", "max_in_flight = 99999999999999999999", &["out_of_range"]),
    ("[server]", "max_in_flight = 0x10", &[]),
    ("[server]", "max_in_flight = 1_000", &[]),
    ("[server]", "max_in_flight = 1.5", &["wrong_type"]),
    ("[server]", "max_in_flight = \"10\"", &["wrong_type"]),
    ("[server]", "cors_origins = [\"https://a.example/\", \"*\"]", &["invalid_value", "invalid_value"]),
    ("[server]", "cors_origins = [\"https://a.example\", \"https://A.example\"]", &["duplicate"]),
    ("[server]", "admin_listen = \"0.0.0.0:8081\"", &["admin_not_loopback"]),
    ("[server]", "admin_listen = \"8081\"", &["invalid_value"]),
    ("[server]", "admin_listen = \"127.0.0.1:9\"\nlisten = \"127.0.0.1:9\"", &["listen_shared"]),
    ("[server]", "admin_listen = \"127.0.0.1:9\"\nlisten = \"0.0.0.0:9\"", &["listen_shared"]),
    ("[server]", "admin_listen = \"127.0.0.1:9\"\nlisten = \"[::]:9\"", &["listen_shared"]),
    ("[server]", "admin_listen = \"127.0.0.1:9\"\nlisten = \"[::ffff:127.0.0.1]:9\"", &["listen_shared"]),
    ("[server]", "admin_listen = \"[::1]:9\"\nlisten = \"0.0.0.0:9\"", &[]),
    ("[server]", "admin_listen = \"127.0.0.1:0\"\nlisten = \"127.0.0.1:0\"", &[]),
    ("[server]", "admin_listen = \"127.0.0.1:10\"\nlisten = \"127.0.0.1:9\"", &[]),
    ("[server]", "store = \"postgres://h/d\"", &["invalid_value"]),
    ("[server]", "store = \"redb:\"", &["invalid_value"]),
    ("[server]", "retry = { share = -0.1, min_per_second = -1 }", &["out_of_range", "out_of_range"]),
    ("[server]", "retry = { share = nan }", &["out_of_range"]),
    ("[server]", "memory_bytes = 1024", &["out_of_range"]),
    ("[telemetry]", "otlp_endpoint = \"collector:4318\"", &["invalid_value"]),
    ("[telemetry]", "otlp_endpoint = \"https://u:p@collector\"", &["invalid_value"]),
    ("[telemetry]", "otlp_endpoint = \"https://collector?key=1\"", &["invalid_value"]),
    ("[telemetry]", "otlp_endpoint = \"https://collector:port\"", &["invalid_value"]),
    ("[telemetry]", "otlp_endpoint = \"https://collector.example/otlp\"", &[]),
    ("[log]", "events = \"file:\"", &["invalid_value"]),
    ("[log]", "level = \"verbose\"", &["invalid_value"]),
    ("[log]", "level = true", &["wrong_type"]),
    ("[[client]]", "tenant = \"a b\"", &["invalid_name"]),
    ("[[client]]", "show_routes = 1", &["wrong_type"]),
    ("[provider.q]", "api_key = \"abc\"", &["secret_inline"]),
    ("[provider.q]", "api_key = \"env:\"", &["secret_inline"]),
    ("[provider.q]", "api_key = \"env:not-a-name\"", &["secret_inline"]),
    ("[provider.q]", "api_key = \"file:\"", &["secret_inline"]),
    ("[provider.q]", "api_key = \"env:UNSET\"", &["secret_missing"]),
    ("[provider.q]", "api_key = \"env:EMPTY\"", &["secret_empty"]),
    ("[provider.q]", "api_key = \"env:SPACED\"", &["secret_invalid"]),
    ("[provider.q]", "api_key = \"file:key.txt\"", &[]),
    ("[provider.q]", "api_key = \"file:crlf.txt\"", &[]),
    ("[provider.q]", "api_key = \"file:two.txt\"", &["secret_invalid"]),
    ("[provider.q]", "api_key = \"file:empty.txt\"", &["secret_empty"]),
    ("[provider.q]", "api_key = \"file:locked.txt\"", &["secret_unreadable"]),
    ("[provider.q]", "api_key = \"file:none.txt\"", &["secret_unreadable"]),
    ("[provider.q]", "forward_headers = [\"x-team\", \"X-Team\"]", &["duplicate"]),
    (
        "[provider.q]",
        "forward_headers = [\"Authorization\", \"cookie\"]",
        &["header_not_allowed", "header_not_allowed"],
    ),
    ("[provider.q]", "forward_headers = [\"a b\", \"\"]", &["invalid_value"]),
    ("[provider.q]", "forward_headers = [\"rubicon-root\"]", &["header_not_allowed"]),
    ("[provider.q]", "idempotency_header = \"te\"", &["header_not_allowed"]),
    ("[provider.q]", "attempts_header = \"a b\"", &["invalid_value"]),
    ("[route.main]", "dialects = []", &["invalid_value"]),
    ("[route.main]", "dialects = [\"anthropic-messages\"]", &["dialect_not_spoken"]),
    ("[route.main]", "dialects = [\"chat\"]", &["invalid_value"]),
    ("[route.main]", "dialects = \"chat-completions\"", &["wrong_type"]),
    ("[route.main]", "capabilities = [1, \"text\"]", &["wrong_type"]),
    ("[route.main]", "price = { input = 1 }", &["missing_key"]),
    ("[route.main]", "price = { input = -1, output = 2 }", &["out_of_range"]),
    ("[route.main]", "price = { input = nan, output = inf }", &["out_of_range", "out_of_range"]),
    ("[route.main]", "price = 3", &["wrong_type"]),
    ("[route.main]", "price = { input = 1_0.5, output = 1e1 }", &[]),
    ("[route.main]", "timeouts = { connect_ms = 0, idle_ms = 99999999 }", &["out_of_range", "out_of_range"]),
    ("[route.main]", "verified = { until = 2027-01-01 }", &["missing_key"]),
    ("[route.main]", "verified = { on = \"2026-11-20\" }", &["wrong_type"]),
    ("[route.main]", "verified = { on = 2026-11-20T10:00:00Z }", &["wrong_type"]),
    ("[route.main]", "verified = { on = 2026-11-20, until = 2026-11-19 }", &["dates_reversed"]),
    ("[route.main]", "verified = { on = 1969-12-31 }", &["out_of_range"]),
    ("[route.main]", "limits = { concurrency = 0 }", &["out_of_range"]),
    ("[route.main]", "breaker = { failures = -1, cooldown_ms = 0 }", &["out_of_range", "out_of_range"]),
    ("[provider.q]", "depends_on = [\"eu\", \"eu\"]", &["duplicate"]),
    ("[workflow.w]", "alternates = [\"other\"]", &["duplicate"]),
    ("[workflow.w]", "alternates = [\"main\", \"main\"]", &["primary_repeated", "duplicate", "primary_repeated"]),
    ("[workflow.w]", "alternates = [\"othr\"]", &["unresolved"]),
    ("[workflow.w]", "models = [\"a\", \"b\", \"a\"]", &["duplicate"]),
    ("[workflow.w]", "max_attempts = 3", &["unknown_key"]),
    ("[workflow.w]", "envelope.max_attempts = 11", &["out_of_range"]),
    ("[workflow.w]", "envelope.max_cost_usd = 0", &["out_of_range"]),
    ("[workflow.w]", "envelope = 1", &["wrong_type"]),
    ("[workflow.w]", "commit = \"first-visible\"", &["invalid_value"]),
    ("[workflow.w]", "requires.network = \"lan\"", &["invalid_value"]),
    ("[[approval]]", "until = 2026-13-01", &["syntax"]),
    ("[[approval]]", "untl = 2026-12-01", &["unknown_key"]),
];

#[test]
fn each_mistake_is_reported_on_its_line() {
    for (header, lines, expected) in BELOW {
        let text = with(header, lines);
        let line = text.lines().position(|line| line == *header).unwrap() + 2;
        let found = parsed(&text).err().unwrap_or_default();
        let expected: Vec<String> = expected.iter().map(|code| format!("{code} {line}")).collect();
        let (mut found_codes, mut expected) = (codes(&found), expected);
        found_codes.sort();
        expected.sort();
        assert_eq!(found_codes, expected, "{lines}\n{found:#?}");
        for problem in &found {
            assert_eq!(problem.severity, Severity::Error);
            assert!(problem.column > 0 && problem.file == "t.toml");
        }
    }
}

/// `(text in BASE, its replacement, expected problems)`.
const REPLACED: &[(&str, &str, &[&str])] = &[
    ("[[client]]", "[client]", &["wrong_type 5"]),
    ("keys = [\"env:WEB\"]", "keys = []", &["missing_key 7"]),
    ("keys = [\"env:WEB\"]\n", "", &["missing_key 5"]),
    ("keys = [\"env:WEB\"]", "keys = [\"env:WEB\", \"env:SAME\"]", &["duplicate 7"]),
    ("keys = [\"env:WEB\"]", "keys = [\"env:UNSET\", \"inline\"]", &["secret_missing 7", "secret_inline 7"]),
    ("workflows = [\"w\"]", "workflows = [\"v\", \"w\", \"w\"]", &["unresolved 8", "duplicate 8"]),
    ("name = \"web\"", "name = \"a/b\"", &["invalid_name 6"]),
    ("kind = \"openai\"\n", "", &["missing_key 10"]),
    ("kind = \"openai\"\n", "kind = \"opnai\"\n", &["invalid_value 11"]),
    ("api_key = \"env:KEY\"\n", "", &["missing_key 10"]),
    ("base_url = \"https://q.example/v1\"\n", "", &["missing_key 14"]),
    ("https://q.example/v1", "http://q.example/v1", &["plain_http 16"]),
    ("https://q.example/v1", "http://localhost:1/v1", &[]),
    ("https://q.example/v1\"", "http://q.example/v1\"\nallow_plain_http = true", &[]),
    ("https://q.example/v1", "https://u:p@q.example/v1", &["base_url_invalid 16"]),
    ("https://q.example/v1", "https://q.example/v1?x=1", &["base_url_invalid 16"]),
    ("[provider.q]", "[provider.\"q q\"]", &["invalid_name 14", "unresolved 22"]),
    ("provider = \"q\"", "provider = \"z\"", &["unresolved 22"]),
    ("provider = \"q\"\n", "", &["missing_key 21"]),
    ("primary = \"main\"", "primary = \"other\"", &["primary_repeated 26"]),
    ("primary = \"main\"", "primary = \"mian\"", &["unresolved 25"]),
    ("equivalents = [\"other\"]", "equivalents = [\"other\", \"other\"]", &["duplicate 26"]),
    ("workflow = \"w\"", "workflow = \"nope\"", &["unresolved 29"]),
    ("route = \"other\"", "route = \"nope\"", &["unresolved 30"]),
    ("purpose = \"failover\"\n", "", &["missing_key 28"]),
    ("[workflow.w]", "[route.main.oops]\nx = 1\n[workflow.w]", &["unknown_key 24"]),
    ("[route.other]", "[route.main]", &["syntax 21"]),
    ("kind = \"openai\"\n", "kind = openai\n", &["syntax 11"]),
    ("role = \"viewer\"", "role = \"root\"", &["invalid_value 38"]),
    ("role = \"viewer\"\n", "", &["missing_key 35"]),
    ("env:TOKEN_OF_ANA", "env:UNSET", &["secret_missing 37"]),
    ("env:TOKEN_OF_ANA", "env:SHORT", &["secret_too_short 37"]),
    ("env:TOKEN_OF_ANA", "env:SAME", &["secret_too_short 37", "key_shared 37"]),
    (
        "[[operator]]",
        "[[operator]]\nname = \"ana\"\ntoken = \"env:TOKEN_OF_ANA\"\nrole = \"viewer\"\n[[operator]]",
        &["duplicate 40", "key_shared 41"],
    ),
];

#[test]
fn each_replacement_is_reported_at_its_place() {
    for (from, to, expected) in REPLACED {
        assert!(BASE.contains(from), "{from}");
        let found = parsed(&BASE.replacen(from, to, 1)).err().unwrap_or_default();
        let (mut found_codes, mut expected) = (codes(&found), expected.to_vec());
        found_codes.sort();
        expected.sort_unstable();
        assert_eq!(found_codes, expected, "{to}\n{found:#?}");
    }
}

#[test]
fn whole_file_rules() {
    let server = "[provider.a]\nkind = \"anthropic\"\napi_key = \"env:KEY\"\n[route.r]\nprovider = \"a\"\n";
    for (text, expected) in [
        (String::new(), vec!["missing_key 1"]),
        ("[workflow]\n".to_owned(), vec!["missing_key 1"]),
        (
            format!("{server}[workflow.w]\nprimary = \"r\"\n[server]\nlisten = \"0.0.0.0:80\"\n"),
            vec!["listen_not_loopback 9"],
        ),
        (
            format!("client = []\n{server}[workflow.w]\nprimary = \"r\"\n[server]\nlisten = \"[::]:80\"\n"),
            vec!["listen_not_loopback 10"],
        ),
        (format!("{server}[workflow.w]\nprimary = \"r\"\n[server]\nlisten = \"[::1]:80\"\n"), vec![]),
        (
            format!(
                "{server}[workflow.a]\nprimary = \"r\"\nmodels = [\"m\"]\n[workflow.b]\nprimary = \"r\"\nmodels = [\"m\"]\n"
            ),
            vec!["model_claimed_twice 11"],
        ),
    ] {
        let found = parsed(&text).err().unwrap_or_default();
        assert_eq!(codes(&found), expected, "{text}\n{found:#?}");
    }
}

#[test]
fn models_may_be_shared_by_workflows_of_different_clients_only() {
    let second = "[workflow.v]\nprimary = \"main\"\nmodels = [\"m\"]\n[[client]]\nname = \"b\"\nkeys = [\"env:B\"]\n";
    let base = with("[workflow.w]", "models = [\"m\"]");
    let apart = format!("{base}{second}workflows = [\"v\"]\n");
    assert!(parsed(&apart).is_ok());
    let together = format!("{base}{second}workflows = [\"v\", \"w\"]\n");
    let problems = parsed(&together).unwrap_err();
    assert_eq!(problems.iter().map(|p| p.code).collect::<Vec<_>>(), [Code::ModelClaimedTwice]);
    assert!(problems[0].message.contains("for client `b`"), "{}", problems[0].message);
    let shared = format!(
        "{BASE}[[client]]\nname = \"b\"\nkeys = [\"env:SAME\"]\n[[client]]\nname = \"b\"\nkeys = [\"env:B\"]\n"
    );
    let problems = parsed(&shared).unwrap_err();
    assert_eq!(problems.iter().map(|p| p.code).collect::<Vec<_>>(), [Code::KeyShared, Code::Duplicate]);
}

#[test]
fn warnings_do_not_refuse() {
    for (header, lines, code) in [
        ("[server]", "exhausted_status = 503", Code::StatusIsRetried),
        ("[route.main]", "verified.on = 2027-01-01", Code::VerifiedInFuture),
        ("[provider.p]", "base_url = \"https://gw.example\"", Code::BaseUrlUnversioned),
        ("[telemetry]", "otlp_endpoint = \"http://collector.example:4318\"", Code::TracesInClear),
    ] {
        let loaded = parsed(&with(header, lines)).unwrap();
        assert_eq!(loaded.warnings.iter().map(|p| p.code).collect::<Vec<_>>(), [code], "{lines}");
    }
    for purpose in ["cross_model", "planned"] {
        let text = BASE.replace("purpose = \"failover\"", &format!("purpose = \"{purpose}\""));
        assert_eq!(codes(&parsed(&text).unwrap().warnings), ["approval_unused 28"]);
    }
    let open = BASE.replacen("[[client]]\nname = \"web\"\nkeys = [\"env:WEB\"]\nworkflows = [\"w\"]\n", "", 1);
    let origins = "[server]\ncors_origins = [\"http://localhost:3000\", \"https://app.example\"]\n";
    let loaded = parsed(&open.replacen("[server]\n", origins, 1)).unwrap();
    assert_eq!(codes(&loaded.warnings), ["cors_not_served 2"]);
    assert_eq!(loaded.settings.server.cors_origins, ["http://localhost:3000", "https://app.example"]);
}

#[test]
fn all_problems_come_at_once_in_the_order_of_the_file() {
    let text = "x = 1\n[server]\nlisten = 1\nmax_body_bytes = 0\n[provider.p]\nkind = \"openai\"\napi_key = \"inline\"\n[route.r]\nprovider = \"nope\"\n[workflow.w]\nprimary = \"r\"\nequivalents = [\"s\"]\n[[approval]]\nworkflow = \"w\"\n";
    let found = parsed(text).unwrap_err();
    let expected = [
        "unknown_key 1",
        "wrong_type 3",
        "out_of_range 4",
        "secret_inline 7",
        "unresolved 9",
        "unresolved 12",
        "missing_key 13",
        "missing_key 13",
    ];
    assert_eq!(codes(&found), expected);
}

#[test]
fn several_syntax_errors_and_what_can_be_said_besides() {
    let text = format!("{}[server\nbroken\n", with("[server]", "listne = 1\nmax_in_flight = = 2"));
    let found = parsed(&text).unwrap_err();
    let syntax = found.iter().filter(|p| p.code == Code::Syntax).count();
    assert!(syntax >= 2, "{found:#?}");
    assert!(codes(&found).contains(&"unknown_key 2".to_owned()), "{found:#?}");
}

#[test]
fn hints_name_what_was_meant() {
    for (header, lines, hint) in [
        ("[server]", "listne = \"x\"", "did you mean `listen`?"),
        ("[workflow.w]", "max_attempts = 3", "it belongs in [workflow.NAME.envelope]"),
        ("[workflow.w]", "alternates = [\"othr\"]", "did you mean `other`?"),
        ("[log]", "level = \"wran\"", "did you mean `warn`?"),
    ] {
        let found = parsed(&with(header, lines)).unwrap_err();
        assert!(found[0].message.contains(hint), "{}", found[0].message);
    }
}

#[test]
fn dates_are_whole_days_in_utc() {
    let loaded = parsed(&with("[route.main]", "verified = { on = 2026-11-20, until = 2026-12-01 }")).unwrap();
    let route = loaded.settings.routes.values().find(|route| route.name.as_str() == "main").unwrap();
    let verified = route.verified.as_ref().unwrap();
    assert_eq!(verified.on.0, 1_795_132_800_000);
    // NOW is the first instant of 2026-12-01, which still counts, to its last millisecond.
    assert_eq!(verified.until.unwrap().0, super::NOW.0 + 86_400_000 - 1);
}

/// Wherever a secret is pasted, and whatever is broken around it, no problem repeats it.
#[test]
fn no_problem_carries_a_secret() {
    // Made here: nothing that looks like a key stands in the sources.
    let secret = format!("sk-{}", "k7".repeat(12));
    let places = [
        ("env:KEY", "{S}"),
        ("env:KEY", "env:{S}"),
        ("env:WEB", "{S}"),
        ("\"openai\"", "\"{S}\""),
        ("https://q.example/v1", "https://user:{S}@q.example/v1"),
        ("https://q.example/v1", "https://q.example/v1?key={S}"),
        ("primary = \"main\"", "primary = \"{S}\""),
        ("[server]", "[server]\n{S} = 1"),
        ("[server]", "[server.{S}]"),
        ("\"env:KEY\"", "{S}"),
        ("https://t.example/run\"", "https://u:{S}@t.example/run\""),
        ("https://t.example/runs/{key}", "https://t.example/runs/{key}#{S}"),
        ("[tool.t.endpoint]", "[tool.t.endpoint]\nheaders = { authorization = \"Bearer {S}\" }"),
        ("[tool.t.endpoint]", "[tool.t.endpoint]\nheaders = { x-team = \"{S}\" }"),
        ("[tool.t.endpoint]", "[tool.t.endpoint]\nheaders = { {S} = \"\" }"),
        ("[tool.t]", "[tool.t]\nsummary = \"{S} {card\""),
        ("[tool.t]", "[tool.t]\nkey_fields = [\"/{S}\"]\nignore_fields = [\"/{S}\"]"),
        ("[tool.t]", "[tool.t]\nschema = { type = \"{S}\" }"),
        ("[tool.t]", "[tool.t]\nschema = \"file:{S}\""),
    ];
    for (from, to) in places {
        let text = BASE.replacen(from, &to.replace("{S}", &secret), 1);
        let at = text.find(&secret).unwrap();
        // The text as it is, and with each of the 60 bytes around the secret knocked out.
        for cut in std::iter::once(None).chain((at.saturating_sub(30)..(at + secret.len() + 30)).map(Some)) {
            let mut bytes = text.clone().into_bytes();
            if let Some(cut) = cut.filter(|cut| *cut < bytes.len() && !(at..at + secret.len()).contains(cut)) {
                bytes.remove(cut);
            }
            let broken = String::from_utf8(bytes).unwrap();
            for problem in parsed(&broken).err().unwrap_or_default() {
                let json = serde_json::to_string(&problem).unwrap();
                assert!(!json.contains("k7k7"), "{json}\n{broken}");
            }
        }
    }
}

/// A digest of another form fits no route: what carries it is stale, which `check` says; the file loads all the same.
#[test]
fn a_malformed_digest_is_a_warning() {
    for digest in ["rd1:", "sha256:00", "rd1:ABC"] {
        let text = with("[route.main]", &format!("verified = {{ on = 2026-11-20, route_digest = \"{digest}\" }}"));
        let warnings = parsed(&text).unwrap().warnings;
        assert_eq!(warnings.iter().map(|problem| problem.code).collect::<Vec<_>>(), [Code::InvalidValue], "{digest}");
    }
}

/// An approval that is about to end is renewed by a second one beside it; the same one twice is a slip.
#[test]
fn approvals_are_renewed_by_another_and_not_by_the_same() {
    let one = "[[approval]]\nworkflow = \"w\"\nroute = \"other\"\npurpose = \"failover\"\nuntil = 2027-03-31\n";
    let plain = BASE.split("[[approval]]").next().unwrap();
    let renewed = format!("{plain}{one}{}", one.replace("2027-03-31", "2027-09-30"));
    assert_eq!(parsed(&renewed).unwrap().settings.approvals.len(), 2);
    let twice = parsed(&format!("{plain}{one}{one}")).unwrap_err();
    assert_eq!(twice.iter().map(|problem| problem.code).collect::<Vec<_>>(), [Code::Duplicate]);
}

#[test]
fn a_broken_header_is_one_problem() {
    for (from, to) in [("[route.main]", "[route.main"), ("[route.main]", "[route.main]]"), ("[route.main]", "[route.]")]
    {
        let text = format!(
            "[provider.p]\nkind = \"openai\"\napi_key = \"env:KEY\"\n\n{from}\nprovider = \"p\"\nkind = \"x\"\nregion = \"eu\"\n\n[workflow.w]\nprimary = \"main\"\nmodles = []\n"
        );
        let found = codes(&parsed(&text.replace(from, to)).unwrap_err());
        assert_eq!(found, ["syntax 5", "unknown_key 12"], "{to}");
    }
}

#[test]
fn a_vendors_own_host_needs_a_key_where_it_is_written_out_too() {
    for (kind, url, more, missing) in [
        ("openai", "https://api.openai.com/v1", "", true),
        ("openai", "https://gateway.example/v1", "", false),
        ("anthropic", "https://api.anthropic.com/v1", "", true),
        ("azure-openai", "https://r.openai.azure.com", "", true),
        ("azure-openai", "https://r.services.ai.azure.com", "", true),
        ("azure-openai", "https://r.openai.azure.com", "api_key = \"env:KEY\"", false),
        ("bedrock", "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", "", true),
        ("bedrock", "https://bedrock-mantle.eu-west-1.api.aws/v1", "", true),
        ("openai-compatible", "https://api.openai.com/v1", "", true),
        ("openai-compatible", "https://api.openai.com/v1", "api_key = \"env:KEY\"", false),
    ] {
        let text = format!(
            "[provider.p]\nkind = \"{kind}\"\nbase_url = \"{url}\"\n{more}\n[route.main]\nprovider = \"p\"\nmodel = \"m\"\n[workflow.w]\nprimary = \"main\"\n"
        );
        let found = parsed(&text).map_or_else(|found| codes(&found), |_| Vec::new());
        assert_eq!(found.contains(&"missing_key 1".to_owned()), missing, "{kind} {url} {more}: {found:?}");
    }
}

//! What `check` finds, one row a case, on top of a failover that works.

use std::io;
use std::path::Path;

use super::*;
use crate::config::{Sources, parse};

/// 2026-12-01T00:00:00Z.
const NOW: UnixMillis = UnixMillis(1_796_083_200_000);

fn loaded(text: &str) -> Loaded {
    let sources = Sources {
        folder: Path::new(""),
        env: &|name| Some(format!("value-of-{name}")),
        read: &|_| Err(io::ErrorKind::NotFound.into()),
        now: NOW,
        terminal: false,
    };
    parse(text, "t.toml", &sources).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}"))
}

/// Fails over as it should; the only findings are live checks.
const GOOD: &str = r#"[provider.p]
kind = "openai"
api_key = "env:KEY"
network = "private"
[provider.q]
kind = "openai-compatible"
base_url = "https://q.example/v1"
network = "public"
data_classes = ["pii"]
legal_entity = "BV"
[provider.a]
kind = "anthropic"
api_key = "env:KEY"
network = "private"
[route.main]
provider = "p"
[route.other]
provider = "q"
region = "eu"
capabilities = ["text"]
context_tokens = 8
verified = { on = 2026-11-01, until = 2027-06-30 }
[route.claude]
provider = "a"
capabilities = ["text"]
verified = { on = 2026-11-01 }
[workflow.w]
primary = "main"
equivalents = ["other"]
[workflow.w.failover]
enabled = true
[[approval]]
workflow = "w"
route = "other"
purpose = "failover"
network = "public"
until = 2027-06-30
"#;

fn found(text: &str) -> Vec<Problem> {
    findings(&loaded(text), NOW)
}

fn serious(list: &[Problem]) -> Vec<String> {
    let list = list.iter().filter(|problem| problem.severity != Severity::Info);
    let mut list: Vec<_> =
        list.map(|problem| format!("{} {} {}", problem.severity.name(), problem.code.name(), problem.key)).collect();
    list.sort();
    list
}

#[test]
fn a_failover_that_works_leaves_only_live_checks() {
    let list = found(GOOD);
    assert_eq!(serious(&list), Vec::<String>::new());
    let info: Vec<_> = list.iter().map(|problem| (problem.code.name(), problem.line)).collect();
    let expected = [
        ("credentials_not_tried", 1),
        ("credentials_not_tried", 5),
        ("credentials_not_tried", 11),
        ("digest_not_compared", 22),
        ("digest_not_compared", 32),
    ];
    assert_eq!(info, expected);
}

const NEVER: &str = "error failover_never_acts workflow.w.failover.enabled";

/// The error for a candidate that can never act, at its key.
macro_rules! never {
    ($key:literal) => {
        concat!("error candidate_ineligible ", $key)
    };
}

#[test]
fn each_flaw_is_found() {
    let rows: &[(&str, &str, &[&str])] = &[
        ("equivalents = [\"other\"]", "", &["error failover_without_candidates workflow.w.failover.enabled"]),
        ("enabled = true", "enabled = false", &["warning failover_disabled workflow.w.equivalents"]),
        (
            "enabled = true",
            "enabled = true\nequivalent = false",
            &[
                "warning failover_disabled workflow.w.equivalents",
                "error failover_without_candidates workflow.w.failover.enabled",
            ],
        ),
        (
            "equivalents = [\"other\"]",
            "equivalents = [\"other\"]\nalternates = [\"claude\"]",
            &["warning failover_disabled workflow.w.alternates"],
        ),
        (
            "enabled = true",
            "enabled = true\ncross_model = true",
            &["warning cross_model_without_alternates workflow.w.failover.cross_model"],
        ),
        (
            "enabled = true",
            "enabled = false\ncross_model = true",
            &[
                "warning failover_disabled workflow.w.equivalents",
                "warning cross_model_without_alternates workflow.w.failover.cross_model",
            ],
        ),
        ("purpose = \"failover\"", "purpose = \"cross_model\"", &[never!("workflow.w.equivalents"), NEVER]),
        ("until = 2027-06-30\n", "until = 2026-11-30\n", &[never!("approval[0].until"), NEVER]),
        ("until = 2027-06-30\n", "until = 2026-12-01\n", &["warning approval_expires_soon approval[0].until"]),
        ("until = 2027-06-30\n", "until = 2026-12-31\n", &[]),
        ("until = 2027-06-30\n", "", &[]),
        ("verified = { on = 2026-11-01, until = 2027-06-30 }\n", "", &[never!("route.other.verified"), NEVER]),
        ("until = 2027-06-30 }", "until = 2026-11-30 }", &[never!("route.other.verified.until"), NEVER]),
        (
            "until = 2027-06-30 }",
            "until = 2026-12-20 }",
            &["warning verification_expires_soon route.other.verified.until"],
        ),
        ("network = \"public\"\nuntil", "until", &["error approval_not_public approval[0].network", NEVER]),
        ("network = \"public\"\ndata_classes", "data_classes", &["warning network_not_stated provider.q.network"]),
        (
            "region = \"eu\"\ncapabilities = [\"text\"]\n",
            "",
            &["error failover_route_states_nothing route.other.capabilities", NEVER],
        ),
        (
            "equivalents = [\"other\"]",
            "equivalents = [\"other\", \"claude\"]",
            // One that works does not excuse another that never can.
            &[never!("workflow.w.equivalents"), never!("route.claude.dialects")],
        ),
        (
            "[workflow.w.failover]",
            "requires.capabilities = [\"tools\"]\n[workflow.w.failover]",
            &[never!("route.other.capabilities"), NEVER],
        ),
        (
            "[workflow.w.failover]",
            "requires.regions = [\"us\"]\n[workflow.w.failover]",
            &[never!("route.other.region"), NEVER],
        ),
        ("[workflow.w.failover]", "requires.regions = [\"us\", \"eu\"]\n[workflow.w.failover]", &[]),
        (
            "[workflow.w.failover]",
            "requires.network = \"private\"\n[workflow.w.failover]",
            &[never!("provider.q.network"), NEVER],
        ),
        ("[workflow.w.failover]", "requires.network = \"public\"\n[workflow.w.failover]", &[]),
        ("[workflow.w.failover]", "requires.data_class = \"pii\"\n[workflow.w.failover]", &[]),
        (
            "[workflow.w.failover]",
            "requires.data_class = \"health\"\n[workflow.w.failover]",
            &[never!("provider.q.data_classes"), NEVER],
        ),
        (
            "[workflow.w.failover]",
            "requires.legal_entities = [\"Inc\"]\n[workflow.w.failover]",
            &[never!("provider.q.legal_entity"), NEVER],
        ),
        (
            "[workflow.w.failover]",
            "requires.model_classes = [\"c\"]\n[workflow.w.failover]",
            &[never!("route.other.model_class"), NEVER],
        ),
        (
            "[workflow.w.failover]",
            "requires.min_context_tokens = 9\n[workflow.w.failover]",
            &[never!("route.other.context_tokens"), NEVER],
        ),
        (
            "[workflow.w.failover]",
            "envelope.max_attempts = 1\n[workflow.w.failover]",
            &["error too_few_attempts workflow.w.envelope.max_attempts"],
        ),
        (
            "[workflow.w.failover]",
            "envelope.deadline_ms = 7000\n[workflow.w.failover]",
            &["error deadline_too_short workflow.w.envelope.deadline_ms"],
        ),
        ("[workflow.w.failover]", "envelope.deadline_ms = 7001\n[workflow.w.failover]", &[]),
        (
            "[workflow.w.failover]",
            "envelope.answer_deadline_ms = 1000\nenvelope.deadline_reasoning_ms = 1\n[workflow.w.failover]",
            &[
                "error deadline_too_short workflow.w.envelope.answer_deadline_ms",
                "error deadline_too_short workflow.w.envelope.deadline_reasoning_ms",
            ],
        ),
        (
            "[workflow.w.failover]",
            "envelope.max_added_latency_ms = 99\n[workflow.w.failover]",
            &["error added_latency_too_short workflow.w.envelope.max_added_latency_ms"],
        ),
        (
            "[workflow.w.failover]",
            "envelope.max_added_latency_ms = 4999\n[workflow.w.failover]",
            &["warning added_latency_too_short workflow.w.envelope.max_added_latency_ms"],
        ),
        (
            "[workflow.w.failover]",
            "envelope.max_added_latency_ms = 59999\n[workflow.w.failover]",
            &["warning added_latency_too_short workflow.w.envelope.max_added_latency_ms"],
        ),
        ("[workflow.w.failover]", "envelope.max_added_latency_ms = 60000\n[workflow.w.failover]", &[]),
        (
            "[workflow.w.failover]",
            "requires.safety_profile = \"strict\"\nrequires.languages = [\"nl\"]\nrequires.schemas = [\"s\"]\n[workflow.w.failover]",
            &[
                never!("route.other.safety_profile"),
                never!("route.other.languages"),
                never!("route.other.schemas"),
                NEVER,
            ],
        ),
        (
            "network = \"public\"\nuntil",
            "network = \"public\"\nroute_digest = \"rd1:00000000000000000000000000000000\"\nuntil",
            &[never!("approval[0].route_digest"), NEVER],
        ),
        (
            "until = 2027-06-30 }",
            "until = 2027-06-30, route_digest = \"rd1:00000000000000000000000000000000\" }",
            &[never!("route.other.verified.route_digest"), NEVER],
        ),
        ("context_tokens = 8\n", "", &[]),
        (
            "legal_entity = \"BV\"\n",
            "legal_entity = \"BV\"\naccount = \"p\"\n",
            &["warning shared_domain workflow.w.equivalents"],
        ),
        (
            "https://q.example/v1\"",
            "https://api.openai.com/proxy/v1\"\napi_key = \"env:KEY\"",
            &["warning shared_domain workflow.w.equivalents"],
        ),
        (
            "[workflow.w.failover]",
            "envelope.max_cost_usd = 1\n[workflow.w.failover]",
            &["warning cost_without_price workflow.w.envelope.max_cost_usd"],
        ),
        ("provider = \"q\"\n", "provider = \"p\"\n", &["warning shared_provider workflow.w.failover.enabled"]),
    ];
    for (from, to, expected) in rows {
        assert!(GOOD.contains(from), "{from}");
        let list = found(&GOOD.replacen(from, to, 1));
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(serious(&list), expected, "{to}\n{list:#?}");
        for problem in &list {
            assert!(problem.line > 0, "{problem:?}");
        }
    }
}

#[test]
fn equivalents_of_another_class_are_questioned() {
    let text = GOOD.replace("provider = \"p\"\n", "provider = \"p\"\nmodel_class = \"small\"\n");
    let text = text.replace("provider = \"q\"\n", "provider = \"q\"\nmodel_class = \"large\"\n");
    assert_eq!(serious(&found(&text)), ["warning model_class_differs workflow.w.equivalents"]);
}

#[test]
fn reasons_have_the_names_of_the_spec() {
    let text = GOOD.replace(
        "[workflow.w.failover]",
        "requires.capabilities = [\"tools\"]\nrequires.regions = [\"us\"]\n[workflow.w.failover]",
    );
    let list = found(&text);
    let told = list.iter().filter(|problem| problem.code.name() == "candidate_ineligible");
    let told: Vec<_> = told.filter_map(|problem| problem.message.split(": ").nth(1)).collect();
    let starts = |name: &str| told.iter().filter(|message| message.starts_with(name)).count();
    assert_eq!((starts("region. "), starts("capability:tools. "), told.len()), (1, 1, 2), "{told:?}");
}

#[test]
fn clients_and_workflows_that_miss_each_other() {
    let text = format!("{GOOD}[[client]]\nname = \"c\"\nkeys = [\"env:C\"]\n");
    let expected = ["warning client_without_workflows client[0].workflows", "warning workflow_unreachable workflow.w"];
    assert_eq!(serious(&found(&text)), expected);
}

#[test]
fn shared_domains_are_declared_on_both_sides() {
    let both = GOOD
        .replace("kind = \"openai\"\n", "kind = \"openai\"\ndepends_on = [\"dc-1\", \"net\"]\n")
        .replace("kind = \"openai-compatible\"\n", "kind = \"openai-compatible\"\ndepends_on = [\"dc-1\"]\n");
    assert_eq!(serious(&found(&both)), ["warning shared_domain workflow.w.equivalents"]);
    let other = both.replace("[\"dc-1\", \"net\"]", "[\"dc-2\", \"net\"]");
    assert_eq!(serious(&found(&other)), Vec::<String>::new());
}

#[test]
fn what_changed_is_stale_and_check_says_which_and_what_it_is_now() {
    let digest = report(&loaded(GOOD), NOW).digests[0].route_digest.clone();
    let approved = GOOD
        .replace("purpose = \"failover\"\n", &format!("purpose = \"failover\"\nroute_digest = \"{digest}\"\n"))
        .replace("until = 2027-06-30 }", &format!("until = 2027-06-30, route_digest = \"{digest}\" }}"));
    assert_eq!(serious(&found(&approved)), Vec::<String>::new());
    let changes = [
        ("https://q.example/v1", "https://elsewhere.example/v1"),
        ("provider = \"q\"\n", "provider = \"q\"\nmodel = \"m-2\"\n"),
        ("legal_entity = \"BV\"\n", "legal_entity = \"BV\"\naccount = \"acct\"\n"),
        ("region = \"eu\"", "region = \"us\""),
        ("network = \"public\"\ndata_classes", "network = \"private\"\ndata_classes"),
    ];
    for (from, to) in changes {
        assert!(approved.contains(from), "{from}");
        let report = report(&loaded(&approved.replacen(from, to, 1)), NOW);
        assert_eq!(
            serious(&report.problems),
            [never!("approval[0].route_digest"), never!("route.other.verified.route_digest"), NEVER,],
            "{to}"
        );
        let now = &report.digests[0];
        assert_eq!((now.route.as_str(), now.verified, now.approvals[0].digest), ("other", Some("other"), "other"));
        let stale = report.problems.iter().find(|problem| problem.key == "approval[0].route_digest").unwrap();
        assert!(stale.message.contains(&format!("It is {} now: {}.", now.route_digest, now.covers)), "{stale:?}");
        assert_eq!(report.disabled[0].why, ["approval_stale", "verification_stale"]);
    }
}

#[test]
fn the_lists() {
    let text = GOOD
        .replace("equivalents = [\"other\"]", "equivalents = [\"other\"]\nalternates = [\"claude\"]")
        .replace("until = 2027-06-30\n", "until = 2026-12-20\n")
        .replace("until = 2027-06-30 }", "until = 2026-12-01 }");
    let report = report(&loaded(&text), NOW);
    let disabled: Vec<_> =
        report.disabled.iter().map(|one| (one.route.as_str(), one.role, one.why.join(" "))).collect();
    let why = "cross_model_disabled approval_missing dialect".to_owned();
    assert_eq!(disabled, [("claude", "alternate", why)]);
    let expiring: Vec<_> =
        report.expiring.iter().map(|one| (one.what, one.route.as_str(), one.until.as_str(), one.days)).collect();
    assert_eq!(expiring, [("approval", "other", "2026-12-20", 19), ("verification", "other", "2026-12-01", 0)]);
    let live: Vec<_> = report.live_checks.iter().map(|one| format!("{} {}", one.route, one.check)).collect();
    assert_eq!(
        live,
        [
            "claude credentials",
            "claude model",
            "claude network",
            "claude answer:anthropic-messages",
            "claude stream:anthropic-messages",
            "other credentials",
            "other model",
            "other region",
            "other answer:chat-completions",
            "other stream:chat-completions",
            "other context",
            "main credentials",
            "main model",
            "main network",
            "main capabilities",
        ]
    );
    let digests: Vec<_> = report.digests.iter().map(|one| (one.route.as_str(), one.verified)).collect();
    assert_eq!(digests, [("claude", Some("none")), ("other", Some("none"))]);
}

#[test]
fn members_of_a_split() {
    let split = |approvals: &[&str], failover: &str| {
        let mut text = GOOD
            .replace(
                "primary = \"main\"\nequivalents = [\"other\"]\n",
                "primary = [{ route = \"main\", weight = 9 }, { route = \"other\", weight = 1 }]\n",
            )
            .replace("enabled = true\n", failover);
        text.truncate(text.find("[[approval]]").unwrap());
        for purpose in approvals {
            text += &format!(
                "[[approval]]\nworkflow = \"w\"\nroute = \"other\"\npurpose = \"{purpose}\"\nnetwork = \"public\"\n"
            );
        }
        report(&loaded(&text), NOW)
    };
    let why = |report: &Report| -> Vec<String> {
        report.disabled.iter().map(|one| format!("{} {}: {}", one.route, one.role, one.why.join(" "))).collect()
    };
    let whole = split(&["planned", "failover"], "enabled = true\n");
    assert_eq!((serious(&whole.problems), why(&whole)), (vec![], vec![]));
    let unapproved = split(&["failover"], "enabled = true\n");
    assert_eq!(serious(&unapproved.problems), ["error split_member_refused workflow.w.primary"]);
    assert_eq!(why(&unapproved), ["other planned (share): approval_missing"]);
    // That a member only has a share is a choice; the first one stands in for it all the same.
    let share = split(&["planned"], "enabled = true\n");
    assert_eq!(serious(&share.problems), Vec::<String>::new());
    assert_eq!(why(&share), ["other planned (standing in): approval_missing network"]);
    let off = split(&["planned"], "enabled = false\n");
    assert_eq!(serious(&off.problems), Vec::<String>::new());
}

#[test]
fn tools() {
    let people = "[[operator]]\nname = \"ana\"\ntoken = \"env:TOKEN_OF_ANA\"\nrole = \"operator\"\n[[operator]]\nname = \"bo\"\ntoken = \"env:TOKEN_OF_BO\"\nrole = \"approver\"\n";
    let careful = "key_fields = [\"/id\"]\nschema = { type = \"object\", properties = { id = {} }, required = [\"id\"] }\n\
        probe = { url = \"https://t.example/{key}\", rules = [{ status = 404, outcome = \"not_executed\" }] }\n";
    let without = ["info tool_without_key_fields", "info tool_without_probe", "info tool_without_schema"];
    let client = "[[client]]\nname = \"c\"\nkeys = [\"env:C\"]\nworkflows = [\"w\"]\n";
    let none: &[&str] = &[];
    for (tool, more, expected) in [
        (careful, people, none),
        (&careful.replace("not_executed", "succeeded"), people, &["info tool_probe_without_absence"]),
        (&careful.replace("not_executed\" }]", "succeeded\" }], absent_after_ms = 9"), people, none),
        ("", people, &without),
        (
            "similar = \"off\"\n",
            people,
            &["info tool_without_probe", "info tool_without_schema", "warning tool_without_key_fields"],
        ),
        ("effect = \"read_only\"\n", "", none),
        ("effect = \"read_only\"\nkey_fields = [\"/id\"]\n", "", none),
        (careful, "", &["warning tool_without_operator"]),
        (&format!("impact = \"high\"\n{careful}"), people, none),
        (
            &format!("impact = \"high\"\n{careful}"),
            people.split("[[operator]]\nname = \"bo\"").next().unwrap(),
            &["warning tool_without_operator"],
        ),
        (
            "effect = \"read_only\"\napproval = \"before_run\"\n",
            people.split("[[operator]]\nname = \"bo\"").next().unwrap(),
            &["warning tool_without_operator"],
        ),
        (careful, &format!("{people}{client}"), &["warning tool_unreachable"]),
        (careful, &format!("{people}[server]\nstore = \"memory\"\n"), &["warning ledger_in_memory"]),
        (careful, &format!("{people}{client}tools = [\"t\"]\n"), none),
    ] {
        let text = format!("{GOOD}[tool.t]\n{tool}{more}");
        let mut list: Vec<_> = found(&text)
            .iter()
            .filter(|problem| problem.code.name().contains("tool") || problem.code.name().contains("ledger"))
            .map(|problem| format!("{} {}", problem.severity.name(), problem.code.name()))
            .collect();
        list.sort();
        assert_eq!(list, expected, "{tool}{more}");
    }
}

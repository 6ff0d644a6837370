//! What `check` finds, one row a case, on top of a failover that works.

use super::super::problem::Severity;
use super::super::{Problem, findings};
use super::{NOW, parsed};

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
    let loaded = parsed(text).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}"));
    findings(&loaded, NOW)
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
        ("digest_not_compared", 31),
    ];
    assert_eq!(info, expected);
}

const NEVER: &str = "error failover_never_acts workflow.w.failover.enabled";
const REFUSED: &str = "warning candidate_ineligible workflow.w.equivalents";

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
        ("purpose = \"failover\"", "purpose = \"cross_model\"", &[REFUSED, NEVER]),
        ("until = 2027-06-30\n", "until = 2026-11-30\n", &[REFUSED, NEVER]),
        ("until = 2027-06-30\n", "until = 2026-12-01\n", &["warning approval_expires_soon approval[0].until"]),
        ("until = 2027-06-30\n", "until = 2026-12-31\n", &[]),
        ("until = 2027-06-30\n", "", &[]),
        ("verified = { on = 2026-11-01, until = 2027-06-30 }\n", "", &[REFUSED, NEVER]),
        ("until = 2027-06-30 }", "until = 2026-11-30 }", &[REFUSED, NEVER]),
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
            &["warning candidate_ineligible workflow.w.equivalents"],
        ),
        ("[workflow.w.failover]", "requires.capabilities = [\"tools\"]\n[workflow.w.failover]", &[REFUSED, NEVER]),
        ("[workflow.w.failover]", "requires.regions = [\"us\"]\n[workflow.w.failover]", &[REFUSED, NEVER]),
        ("[workflow.w.failover]", "requires.regions = [\"us\", \"eu\"]\n[workflow.w.failover]", &[]),
        ("[workflow.w.failover]", "requires.network = \"private\"\n[workflow.w.failover]", &[REFUSED, NEVER]),
        ("[workflow.w.failover]", "requires.network = \"public\"\n[workflow.w.failover]", &[]),
        ("[workflow.w.failover]", "requires.data_class = \"pii\"\n[workflow.w.failover]", &[]),
        ("[workflow.w.failover]", "requires.data_class = \"health\"\n[workflow.w.failover]", &[REFUSED, NEVER]),
        ("[workflow.w.failover]", "requires.legal_entities = [\"Inc\"]\n[workflow.w.failover]", &[REFUSED, NEVER]),
        ("[workflow.w.failover]", "requires.model_classes = [\"c\"]\n[workflow.w.failover]", &[REFUSED, NEVER]),
        ("[workflow.w.failover]", "requires.min_context_tokens = 9\n[workflow.w.failover]", &[REFUSED, NEVER]),
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
        ("[workflow.w.failover]", "envelope.max_added_latency_ms = 5000\n[workflow.w.failover]", &[]),
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
    let message = &list.iter().find(|problem| problem.code.name() == "candidate_ineligible").unwrap().message;
    assert!(message.ends_with("region, capability:tools"), "{message}");
}

#[test]
fn clients_and_workflows_that_miss_each_other() {
    let text = format!("{GOOD}[[client]]\nname = \"c\"\nkeys = [\"env:C\"]\n");
    let expected = ["warning client_without_workflows client[0].workflows", "warning workflow_unreachable workflow.w"];
    assert_eq!(serious(&found(&text)), expected);
}

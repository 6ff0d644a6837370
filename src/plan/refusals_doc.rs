//! `refusals.md` out of [`NAMES`]: the document that users read. Checked in, so that it can be read without building; the test below
//! fails when it is stale and rewrites it when `RUBICON_UPDATE_DOCS=1` is set. Built for tests only.

use std::fmt::Write as _;

use super::refusal::{NAMES, When};

const HEAD: &str = "# Why a route was refused\n\n\
Printed from `src/plan/refusal.rs`; do not edit (`RUBICON_UPDATE_DOCS=1 cargo test --lib _md_is`).\n\n\
The closed list of names in `rubicon.refused[].why`, in `rubicon explain` and `GET /admin/v1/explain`, in `rubicon check`, in logs\n\
and in the console: the same everywhere. Two are families: `capability:<name>` names the capability that is lacking,\n\
`pinned:<field>` the field that holds the state. *Found* says where the reason comes from, and so how long it stands:\n\n\
- **config**: the configuration and the date; it stands for every request, and `check` lists it.\n\
- **request**: this request; another may pass.\n\
- **moment**: what operators, breakers and limits say now.\n\
- **failure**: the controller, after an attempt failed and before the route was asked. (That `max_attempts` are spent is no reason\n  \
against a route: it is `rubicon.reason`.)\n\n\
| name | found | means | what to do |\n| --- | --- | --- | --- |\n";

fn render() -> String {
    let mut text = String::from(HEAD);
    for entry in NAMES {
        let shown = match entry.name {
            "capability" => "capability:<name>",
            "pinned" => "pinned:<field>",
            other => other,
        };
        let _ = writeln!(text, "| `{shown}` | {} | {} | {} |", entry.when.name(), entry.meaning, entry.remedy);
    }
    text
}

mod tests {
    use super::*;

    #[test]
    fn refusals_md_is_what_the_list_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/plan/refusals.md");
        let rendered = render();
        if std::env::var_os("RUBICON_UPDATE_DOCS").is_some_and(|value| value == "1") {
            std::fs::write(path, &rendered).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == rendered, "refusals.md is stale: run with RUBICON_UPDATE_DOCS=1");
    }

    #[test]
    fn every_entry_says_something() {
        for entry in NAMES {
            for sentence in [entry.meaning, entry.remedy] {
                assert!(sentence.ends_with('.') && !sentence.contains('|'), "{}: {sentence}", entry.name);
            }
        }
        assert!(NAMES.iter().any(|entry| entry.when == When::Failure));
    }
}

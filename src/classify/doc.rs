//! `CLASSES.md` out of the rules: what each class is, what may follow it, and by which words and statuses it is given.
//!
//! In: [`Class::ALL`] with the words of `class.rs`, the controller's [`actions`], the status tables and [`TABLES`]. The file is checked
//! in, so that it can be read without building; the test below fails when it is stale and rewrites it when
//! `RUBICON_UPDATE_DOCS=1` is set. Built for tests only.

use std::fmt::Write as _;

use super::Class;
use super::rules::{On, Row, TABLES, Word, by_status, fixed};
use crate::attempt::control::{Actions, actions};

const HEAD: &str = "# How a failure is classified\n\n\
Printed from `src/class.rs`, `src/classify/rules.rs`, `openai.rs` beside it and `src/attempt/control.rs`; do not edit\n\
(`RUBICON_UPDATE_DOCS=1 cargo test --lib classify::doc`).\n\n\
Every failed attempt gets one class (`rubicon.class`), from what the provider said and not from its status alone: the same\n\
`429` is a short wait, an empty account or nothing usable. The class alone decides whether another call may be made; budgets and\n\
approvals then decide whether it is.\n\n\
## Classes\n\n\
*May follow*, before anything was shown. *equivalent*: another route for the same model contract that was not asked yet;\n\
*alternate*: a route to another approved model; *retry*: a route that was asked, after the wait it asked for or a backoff. A\n\
`rate_limited` that asks for less than `failover.wait_first_ms` is waited for before another provider is asked.\n\n\
| class | what it is | may follow |\n| --- | --- | --- |\n";

const STATUSES: &str = "\n## Statuses\n\n\
What a status is where no rule below fits. Those marked * are that whatever the body says. A 429 with a valid wait (`Retry-After`\n\
and its relatives) is `rate_limited`; `ambiguous_429 = \"rate_limited\"` takes one without for that, too. A 529 is\n\
`provider_overloaded` whatever the body says, short of a row of `quota_exhausted`.\n\n\
| status | class |\n| --- | --- |\n";

const RULES: &str = "\n## Rules\n\n\
Tried in this order; the first that fits decides. `code` is an error's type, code, status or reason, exactly (`…part…`: in one of them); \"text\" stands anywhere\n\
in its message; both in lower case. *Seen* says where: a recorded answer, a provider's page, a public report, or a number of our\n\
collection of field cases. An error inside a stream that names no status meets every rule but those for exactly one status.\n\n\
| says | under | class | seen |\n| --- | --- | --- | --- |\n";

/// The whole document.
fn render() -> String {
    let mut text = String::from(HEAD);
    for class in Class::ALL {
        let _ = writeln!(text, "| `{}` | {} | {} |", class.name(), meaning(class), follows(actions(class)));
    }
    text.push_str(STATUSES);
    for class in Class::ALL {
        let statuses = statuses(class);
        if !statuses.is_empty() {
            let _ = writeln!(text, "| {statuses} | `{}` |", class.name());
        }
    }
    text.push_str(RULES);
    for row in TABLES.iter().copied().flatten() {
        let cells = [words(row), under(row.on), format!("`{}`", row.class.name()), row.source.to_owned()];
        let _ = writeln!(text, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    text
}

/// The doc comment of the class in `class.rs`: written once, for both kinds of readers.
fn meaning(class: Class) -> String {
    let variant = format!("    {class:?},");
    let mut comment = Vec::new();
    for line in include_str!("../class.rs").lines() {
        if let Some(words) = line.strip_prefix("    /// ") {
            comment.push(words);
        } else if line == variant {
            return comment.join(" ");
        } else if !line.starts_with("    #[") {
            comment.clear();
        }
    }
    panic!("class.rs has no variant {class:?}")
}

fn follows(actions: Actions) -> String {
    let Actions { equivalent, other_provider_only, alternate, retry } = actions;
    let words: Vec<&str> = [
        (equivalent && !other_provider_only, "equivalent"),
        (equivalent && other_provider_only, "equivalent at another provider"),
        (alternate, "alternate"),
        (retry, "retry"),
    ]
    .into_iter()
    .filter_map(|(allowed, word)| allowed.then_some(word))
    .collect();
    if words.is_empty() { "**no further call**".to_owned() } else { words.join(", else ") }
}

/// The statuses that are this class where no words decide, runs of them as `a–b`. Below 300 there is no error.
fn statuses(class: Class) -> String {
    let of = |status: u16| fixed(status).unwrap_or_else(|| by_status(status));
    let mut runs: Vec<(u16, u16, bool)> = Vec::new();
    for status in (300..600).filter(|status| of(*status) == class) {
        let always = fixed(status).is_some();
        match runs.last_mut() {
            Some((_, last, of_run)) if *last + 1 == status && *of_run == always => *last = status,
            _ => runs.push((status, status, always)),
        }
    }
    let written = runs.iter().map(|(first, last, always)| {
        let mark = if *always { "\\*" } else { "" };
        if first == last { format!("{first}{mark}") } else { format!("{first}–{last}{mark}") }
    });
    written.collect::<Vec<_>>().join(", ")
}

fn words(row: &Row) -> String {
    let words = row.all.iter().map(|word| match word {
        Word::Code(code) => format!("`{code}`"),
        Word::Part(part) => format!("`…{part}…`"),
        Word::Text(text) => format!("\"{text}\""),
    });
    words.collect::<Vec<_>>().join(" and ")
}

fn under(on: On) -> String {
    let list = |list: &[u16]| list.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    match on {
        On::Any => "any".to_owned(),
        On::Only(statuses) => list(statuses),
        On::Exactly(statuses) => format!("exactly {}", list(statuses)),
        On::Client => "4xx but 429".to_owned(),
        On::Vague => "4xx but 401, 402, 403, 429".to_owned(),
        On::NotThrottle => "any but 429".to_owned(),
        On::Busy => "429, 498, 5xx".to_owned(),
        On::Server => "424, 5xx".to_owned(),
    }
}

mod tests {
    use super::*;

    #[test]
    fn classes_md_is_what_the_rules_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/classify/CLASSES.md");
        let rendered = render();
        if std::env::var_os("RUBICON_UPDATE_DOCS").is_some_and(|value| value == "1") {
            std::fs::write(path, &rendered).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == rendered, "CLASSES.md is stale: run with RUBICON_UPDATE_DOCS=1");
    }

    #[test]
    fn nothing_is_left_out() {
        let rendered = render();
        let rules = TABLES.iter().map(|table| table.len()).sum::<usize>();
        assert_eq!(
            rendered.lines().filter(|line| line.ends_with(" |") && line.matches(" | ").count() == 3).count(),
            rules + 2
        );
        for class in Class::ALL {
            assert!(meaning(class).ends_with('.'), "{class:?}: {}", meaning(class));
        }
        for (class, written) in [
            (Class::QuotaExhausted, "402"),
            (Class::TransportTransient, "408\\*, 425\\*"),
            (Class::ProviderServerError, "500, 502, 504, 520–526"),
            (Class::PartialOutput, ""),
        ] {
            assert_eq!(statuses(class), written);
        }
    }
}

//! The refusals that stand in the room's source: each `Problem::new(status, "code", …)` and whether `.retry_after` or `.retryable` follows.
//!
//! In: the text of the files, without their tests. Out: codes with their statuses. A reader of this room's own habits, no parser of Rust: a
//! call whose code is not a literal must stand in [`VARIABLE`](super::VARIABLE), or the test fails.

use std::collections::{BTreeMap, BTreeSet};

use super::VARIABLE;

const FILES: &[(&str, &str)] = &[
    ("answer.rs", include_str!("../answer.rs")),
    ("ask.rs", include_str!("../ask.rs")),
    ("body.rs", include_str!("../body.rs")),
    ("calls.rs", include_str!("../calls.rs")),
    ("claims.rs", include_str!("../claims.rs")),
    ("decision.rs", include_str!("../decision.rs")),
    ("prefer.rs", include_str!("../prefer.rs")),
    ("roots.rs", include_str!("../roots.rs")),
    ("settle.rs", include_str!("../settle.rs")),
    ("tools.rs", include_str!("../tools.rs")),
];

/// How a code is given.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) statuses: BTreeSet<u16>,
    pub(super) again: bool,
}

/// A call as it stands there.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) statuses: Vec<u16>,
    /// The literal, or what stands in its place.
    pub(super) code: Result<String, String>,
    pub(super) again: bool,
}

/// Every code of the room.
pub(super) fn found() -> BTreeMap<String, Seen> {
    let listed: BTreeSet<&str> = FILES.iter().map(|(name, _)| *name).collect();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/executions")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let code = name.ends_with(".rs") && name != "mod.rs";
        assert!(!code || listed.contains(&*name), "{name} is not read for its codes");
    }
    let mut found: BTreeMap<String, Seen> = BTreeMap::new();
    for (file, text) in FILES {
        let mut calls = of(text, "Problem::new(");
        if *file == "answer.rs" {
            calls.extend(of(text, "Self::new("));
        }
        for call in calls {
            let codes = match call.code {
                Ok(code) => vec![code],
                Err(variable) => {
                    let known = VARIABLE.iter().find(|(of, name, _)| of == file && *name == variable);
                    let (_, _, codes) = known.unwrap_or_else(|| panic!("{file}: which codes has {variable:?}?"));
                    codes.iter().map(|code| (*code).to_owned()).collect()
                }
            };
            for code in codes {
                let seen = found.entry(code).or_default();
                seen.statuses.extend(call.statuses.iter().copied());
                seen.again |= call.again;
            }
        }
    }
    found
}

/// The calls of a constructor in a file's production code.
pub(super) fn of(text: &str, constructor: &str) -> Vec<Call> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let rest = text.match_indices(constructor).map(|(at, _)| &text[at + constructor.len()..]);
    rest.map(|rest| call(rest, constructor, text)).collect()
}

fn call(rest: &str, constructor: &str, text: &str) -> Call {
    let arguments: Vec<&str> = rest.splitn(3, ',').map(str::trim).collect();
    let status = arguments[0];
    // A variable's literals stand in the line that gives it its value.
    let given = match status.bytes().all(|byte| byte.is_ascii_lowercase()) {
        true => text.lines().find(|line| line.trim().starts_with(&format!("let {status} = "))).unwrap_or(""),
        false => status,
    };
    let numbers = given.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    let code = arguments[1];
    let literal = code.strip_prefix('"').and_then(|code| code.strip_suffix('"'));
    Call {
        statuses: numbers.collect(),
        code: literal.map(str::to_owned).ok_or_else(|| code.to_owned()),
        again: [".retry_after(", ".retryable("].iter().any(|word| statement(rest, constructor).contains(word)),
    }
}

/// To the end of the statement, without what stands in quotes.
fn statement(rest: &str, constructor: &str) -> String {
    let outside: String = rest.split('"').step_by(2).collect();
    let ends = [outside.find(';'), outside.find("\n    }"), outside.find("\n}"), outside.find(constructor)];
    let end = ends.into_iter().flatten().min().unwrap_or(outside.len());
    outside[..end].to_owned()
}

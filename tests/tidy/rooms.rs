//! The walls between rooms: what pure rooms may not name, and who imports from whom.
//!
//! [`ROOMS`] is both the table and the proof that there is no circle: a room imports only from rooms above it. An import that is
//! not in the table fails, and so does a line of the table that the code no longer needs.

use std::collections::BTreeSet;

use super::none;
use super::source::{Source, line_at, sources, words};

/// Rooms that decide and do nothing. `config` is not one (it reads files), but its `settings` are what they are told.
const PURE: &[&str] =
    &["class", "wire", "reply", "protocol", "classify", "boundary", "accept", "contract", "gate", "plan", "attempt"];

/// Rooms, and the rooms above that each may import from.
const ROOMS: &[(&str, &[&str])] = &[
    ("class", &[]),
    ("clock", &[]),
    ("ids", &[]),
    ("wire", &[]),
    ("reply", &["class", "ids"]),
    ("protocol", &["reply"]),
    ("classify", &["class", "clock", "protocol"]),
    ("boundary", &["protocol"]),
    // The dialects' parts of an answer, and nothing else: what is held is the boundary's, what follows is the relay's.
    ("accept", &["protocol"]),
    // A tool's schema is compiled when it is loaded.
    ("config", &["accept", "clock", "ids", "protocol"]),
    ("contract", &["config", "ids", "protocol"]),
    ("gate", &["classify", "clock", "config", "ids"]),
    ("plan", &["clock", "config", "contract", "gate", "ids", "protocol"]),
    // Switches and journal: the gate's words, a file of its own; it knows neither requests nor configuration.
    ("control", &["clock", "gate", "ids"]),
    // The name of the store's file, to see whether it can be had.
    ("check", &["clock", "config", "control", "ids", "plan"]),
    ("upstream", &["classify", "clock", "config", "contract", "protocol"]),
    ("attempt", &["classify", "clock", "config", "ids", "plan", "protocol"]),
    ("telemetry", &["boundary", "class", "classify", "clock", "config", "ids", "protocol", "reply"]),
    // One request on a connection of its own, with the connector and the TLS of `upstream`; the waits of `attempt`, and how a 429 says
    // one (`classify`).
    ("tool", &["accept", "attempt", "classify", "clock", "config", "upstream"]),
    (
        "relay",
        &[
            "accept",
            "attempt",
            "boundary",
            "classify",
            "clock",
            "config",
            "contract",
            "control",
            "gate",
            "ids",
            "plan",
            "protocol",
            "reply",
            "telemetry",
            "tool",
            "upstream",
            "wire",
        ],
    ),
    ("executions", &["clock", "config", "ids", "protocol", "relay", "telemetry", "tool"]),
    ("admin", &["clock", "config", "control", "gate", "ids", "plan", "relay", "telemetry", "tool"]),
    ("serve", &["admin", "check", "clock", "config", "executions", "relay", "telemetry", "tool"]),
    ("mock", &["clock"]),
    ("demo", &["clock", "config", "control", "ids", "mock", "serve", "wire"]),
    (
        "cli",
        &[
            "attempt",
            "check",
            "clock",
            "config",
            "contract",
            "demo",
            "gate",
            "mock",
            "plan",
            "relay",
            "serve",
            "telemetry",
            "tool",
            "upstream",
        ],
    ),
];

/// What names a runtime, a socket, a file, a process, a clock reading, a random source or a log.
const IMPURE: &[&str] = &[
    "tokio",
    "tokio_util",
    "axum",
    "hyper",
    "hyper_util",
    "hyper_rustls",
    "rustls",
    "reqwest",
    "tower_service",
    "getrandom",
    "rand",
    "tracing",
    "std::fs",
    "std::net",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "SystemTime",
    "Instant::now",
    "UnixMillis::now",
    ".elapsed()",
    "println!",
    "eprintln!",
    "async",
];

/// The parts of the ledger that have a thread, a disk or a clock: its writer, its stores, its failpoints.
const LEDGER_IO: &[&str] = &["ledger/src/ledger/", "ledger/src/store/", "ledger/src/failpoint.rs"];

fn room(path: &str) -> Option<&str> {
    let below = path.strip_prefix("src/")?;
    let (name, _) = below.split_once('/').or_else(|| below.split_once(".rs"))?;
    (!matches!(name, "lib" | "main")).then_some(name)
}

fn impurities(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for name in IMPURE {
        for at in words(&source.code, name) {
            found.push(format!("{}:{}: `{name}` in a pure room", source.path, line_at(&source.code, at)));
        }
    }
    // What is imported as a group escapes the names above.
    for at in words(&source.code, "std::{") {
        found.push(format!("{}:{}: import from `std` line by line", source.path, line_at(&source.code, at)));
    }
    found
}

#[test]
fn pure_rooms_name_no_runtime_socket_file_clock_or_random_source() {
    let sources = sources("src");
    let pure = sources.iter().filter(|source| room(&source.path).is_some_and(|room| PURE.contains(&room)));
    let mut findings: Vec<String> = pure.clone().flat_map(impurities).collect();
    for source in pure {
        for at in
            words(&source.code, "crate::config").filter(|at| !source.code[*at..].starts_with("crate::config::settings"))
        {
            findings.push(format!(
                "{}:{}: pure rooms see `config::settings` only",
                source.path,
                line_at(&source.code, at)
            ));
        }
    }
    none("pure rooms decide, IO rooms do", &findings);
}

#[test]
fn the_ledger_names_none_of_them_either() {
    let sources = sources("ledger/src");
    let pure = sources.iter().filter(|source| !LEDGER_IO.iter().any(|io| source.path.starts_with(io)));
    none("the ledger's rules are pure", &pure.flat_map(impurities).collect::<Vec<_>>());
}

/// The rooms that a file imports from, with the place; or why that cannot be told.
fn imports(source: &Source) -> Vec<Result<(String, usize), String>> {
    let mut found = Vec::new();
    for at in words(&source.code, "crate::") {
        let rest = &source.code[at + "crate::".len()..];
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let line = line_at(&source.code, at);
        // `crate::{a, b}`, and macros of ours at the root, would hide the room.
        let known = ROOMS.iter().any(|(room, _)| *room == name);
        found.push(if known {
            Ok((name, line))
        } else {
            Err(format!("{}:{line}: `crate::` and then a room", source.path))
        });
    }
    let depth = source.path.trim_end_matches("/mod.rs").matches('/').count();
    let climb = "super::".repeat(depth);
    for at in words(&source.code, &climb) {
        let line = line_at(&source.code, at);
        found.push(Err(format!("{}:{line}: `super` climbs out of the room; write `crate::`", source.path)));
    }
    found
}

#[test]
fn rooms_import_from_rooms_above_them_as_the_table_says() {
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    let mut lived_in = BTreeSet::new();
    for source in sources("src") {
        let Some(here) = room(&source.path) else { continue };
        lived_in.insert(here.to_owned());
        let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == here) else {
            findings.push(format!("{}: the room `{here}` is not in the table", source.path));
            continue;
        };
        for import in imports(&source) {
            match import {
                Ok((there, _)) if there == here => {}
                Ok((there, line)) => {
                    if !allowed.contains(&there.as_str()) {
                        findings.push(format!("{}:{line}: `{here}` may not import from `{there}`", source.path));
                    }
                    seen.insert((here.to_owned(), there));
                }
                Err(why) => findings.push(why),
            }
        }
    }
    for (here, allowed) in ROOMS {
        if !lived_in.contains(*here) {
            findings.push(format!("the table's room `{here}` does not exist"));
        }
        for there in *allowed {
            if !seen.contains(&((*here).to_owned(), (*there).to_owned())) {
                findings.push(format!("`{here}` no longer imports from `{there}`: take it out of the table"));
            }
        }
    }
    none("who imports from whom", &findings);
}

#[test]
fn the_table_has_no_circle_and_pure_rooms_stand_on_pure_rooms() {
    for (index, (here, allowed)) in ROOMS.iter().enumerate() {
        for there in *allowed {
            let above = ROOMS[..index].iter().any(|(name, _)| name == there);
            assert!(above, "`{here}` imports from `{there}`, which does not stand above it");
            let told = PURE.contains(there) || matches!(*there, "clock" | "ids" | "config");
            assert!(told || !PURE.contains(here), "pure `{here}` imports from `{there}`");
        }
    }
}

#[test]
fn the_checks_find_what_they_look_for() {
    let source = |code: &str| Source { path: "src/plan/x.rs".to_owned(), code: code.to_owned(), production_lines: 1 };
    for name in IMPURE {
        assert!(!impurities(&source(&format!("a;\nlet x = {name};"))).is_empty(), "{name}");
    }
    let found = imports(&source("crate::relay::x crate::{a} super::super::relay super::y"));
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], Ok(("relay".to_owned(), 1)));
    assert!(found[1].is_err() && found[2].is_err());
}

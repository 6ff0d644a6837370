//! What is true of each file: its first line, its length, and what may stand in none.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::none;
use super::source::{root, sources, words};

/// Over this a file is split.
const LINES_MAX: usize = 600;
/// Over this a file has a line in [`LONG`].
const LINES_WITHOUT_REASON_MAX: usize = 400;

/// Files with more production lines than [`LINES_WITHOUT_REASON_MAX`], and why they stay whole.
const LONG: &[(&str, &str)] = &[
    ("ledger/src/command.rs", "everything that may be asked of the ledger, and every answer, on one page"),
    (
        "ledger/src/ledger/mod.rs",
        "the handle: every question that a program may ask of a ledger, with what each promises",
    ),
    (
        "ledger/src/store/redb/rows.rs",
        "the layout of every row: what is written and what is read back stand side by side",
    ),
    ("src/classify/rules.rs", "one table, read from top to bottom: its order is the judgement"),
    ("src/relay/handler.rs", "admission in the order in which a request meets it, and the small endpoints beside it"),
    ("src/relay/operation.rs", "the one driver: what it may do next stands on one page"),
    ("src/relay/stream.rs", "one streamed attempt from its head to its end, with the state that all of it shares"),
    ("src/tool/run.rs", "one run from its claim to its answer: the order of the steps is the promise"),
];

/// A tracked text file.
struct Text {
    path: String,
    text: String,
}

/// Every text file that is tracked or about to be. `None` where this is no git checkout (an unpacked archive).
fn tracked() -> Option<Vec<Text>> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    let Some(listed) = git.ok().filter(|output| output.status.success()) else {
        assert!(std::env::var_os("CI").is_none(), "git does not list this checkout's files");
        // Past the test harness, which shows nothing of a test that passes.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: not a git checkout\n");
        return None;
    };
    let listed = String::from_utf8(listed.stdout).unwrap();
    // A file that was deleted and is still tracked cannot be read; one that is not UTF-8 is no text.
    let read = |path: &str| fs::read_to_string(root().join(path)).ok();
    let texts: Vec<Text> =
        listed.split('\0').filter_map(|path| read(path).map(|text| Text { path: path.to_owned(), text })).collect();
    assert!(texts.iter().any(|text| text.path == "Cargo.toml"), "git listed {} files", texts.len());
    Some(texts)
}

/// Findings of `check`, a function of one line, over all lines of all files.
fn lines_with(texts: &[Text], check: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let lines =
        texts.iter().flat_map(|file| file.text.lines().enumerate().map(move |(index, line)| (file, index, line)));
    lines
        .filter_map(|(file, index, line)| check(line).map(|what| format!("{}:{}: {what}", file.path, index + 1)))
        .collect()
}

#[test]
fn files_are_no_longer_than_one_can_read() {
    let all = ["src", "ledger/src"].map(sources);
    let mut findings = Vec::new();
    for source in all.iter().flatten() {
        let (lines, reason) = (source.production_lines, LONG.iter().find(|(path, _)| *path == source.path));
        match reason {
            _ if lines > LINES_MAX => findings.push(format!("{}: {lines} lines: split it", source.path)),
            None if lines > LINES_WITHOUT_REASON_MAX => {
                findings.push(format!("{}: {lines} lines and no reason in LONG", source.path));
            }
            Some(_) if lines <= LINES_WITHOUT_REASON_MAX => {
                findings.push(format!("{}: {lines} lines: its reason in LONG is not needed", source.path));
            }
            _ => {}
        }
    }
    for (path, _) in LONG {
        if !Path::new(&root().join(path)).exists() {
            findings.push(format!("{path}: in LONG, and not there"));
        }
    }
    none("a file is one idea", &findings);
}

#[test]
fn every_file_begins_with_what_it_is() {
    let Some(texts) = tracked() else { return };
    let mut findings = Vec::new();
    for Text { path, text } in &texts {
        let begins = match Path::new(path).extension().and_then(|extension| extension.to_str()) {
            Some("rs") => text.starts_with("//! "),
            Some("md") => text.starts_with("# "),
            Some("py") => text.trim_start_matches("#!/usr/bin/env python3\n").starts_with("\"\"\""),
            _ => true,
        };
        if !begins {
            findings.push(format!("{path}: the first line does not say what it is"));
        }
    }
    none("a file begins with what it is", &findings);
}

/// Marks of unfinished work. Put together here, so that this file does not find itself.
fn unfinished(line: &str) -> Option<String> {
    let marks = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"], ["todo", "!"], ["unimplemented", "!"], ["#[ign", "ore"]];
    let found = marks.map(|mark| mark.concat()).into_iter().find(|mark| words(line, mark).next().is_some())?;
    Some(format!("`{found}`"))
}

#[test]
fn nothing_is_marked_as_unfinished() {
    let Some(texts) = tracked() else { return };
    none("finish it or leave it out", &lines_with(&texts, unfinished));
}

/// A path that exists on somebody's machine only: a home folder, or where this checkout lies.
fn machine_path(line: &str) -> Option<String> {
    let homes = ["home", "root", "Users", "work", "farm"].map(|folder| format!("/{folder}/"));
    let here = root().display().to_string();
    let deep = here.matches('/').count() > 1;
    let found = homes.iter().chain(deep.then_some(&here)).find(|path| {
        line.match_indices(path.as_str()).any(|(at, _)| {
            // A folder of such a name inside a longer path, or inside an address, is no place on a machine.
            let before = line[..at].chars().next_back();
            let after = line[at + path.len()..].chars().next();
            !before.is_some_and(|c| c.is_alphanumeric() || "_.-/".contains(c))
                && after.is_some_and(|c| c.is_alphanumeric())
        })
    })?;
    Some(format!("a machine's path (`{found}`)"))
}

#[test]
fn no_machines_paths() {
    let Some(texts) = tracked() else { return };
    none("paths are relative or the user's to choose", &lines_with(&texts, machine_path));
}

/// Addresses of package registries; where packages come from is for the machine that builds to say. The lock file's name for
/// crates.io is the one that cargo writes everywhere.
fn registry(line: &str) -> Option<String> {
    let line = line.replace("registry+https://github.com/rust-lang/crates.io-index", "");
    let hosts = [
        ["registry.", "npmjs"],
        ["registry.", "yarnpkg"],
        ["pypi.", "org"],
        ["python", "hosted.org"],
        ["static.", "crates.io"],
        ["index.", "crates.io"],
        ["proxy.", "golang"],
        ["deb.", "debian"],
        ["registry+", "http"],
        ["--index", "-url"],
        ["\"resolved\":", " \"http"],
    ];
    let found = hosts.map(|host| host.concat()).into_iter().find(|host| line.contains(host.as_str()))?;
    Some(format!("a registry (`{found}`)"))
}

#[test]
fn no_registrys_address() {
    let Some(texts) = tracked() else { return };
    none("where packages come from is the builder's to say", &lines_with(&texts, registry));
}

/// Beginnings of keys, and how many of a key's characters behind one make it look real.
const KEYS: &[([&str; 2], usize)] = &[
    (["sk", "-"], 20),
    (["AK", "IA"], 16),
    (["gh", "p_"], 30),
    (["gh", "o_"], 30),
    (["gh", "s_"], 30),
    (["github", "_pat_"], 20),
    (["xox", "b-"], 10),
    (["xox", "p-"], 10),
    (["AI", "za"], 35),
    (["ey", "J"], 40),
    (["PRIVATE", " KEY-----"], 0),
];

/// A literal that a scanner for leaked keys would report, and that a reader must take for one.
fn key(line: &str) -> Option<String> {
    for (parts, least) in KEYS {
        let start = parts.concat();
        for (at, _) in line.match_indices(&start) {
            let of_key = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            let inside = line[..at].ends_with(of_key);
            let length = line[at + start.len()..].chars().take_while(|c| of_key(*c)).count();
            if !inside && length >= *least {
                return Some(format!("looks like a key (`{start}` and {length} characters)"));
            }
        }
    }
    None
}

#[test]
fn no_keys() {
    let Some(texts) = tracked() else { return };
    none("no key is committed, and nothing that looks like one", &lines_with(&texts, key));
}

#[test]
fn the_checks_find_what_they_look_for() {
    for (check, bad, good) in [
        (unfinished as fn(&str) -> Option<String>, ["// TO", "DO: more"].concat(), "todos".to_owned()),
        (unfinished, ["#[ign", "ore = \"slow\"]"].concat(), "ignored".to_owned()),
        (machine_path, ["see /ho", "me/ann/x"].concat(), "https://example.com/home/ann".to_owned()),
        (
            registry,
            ["https://registry.", "npmjs.org/x"].concat(),
            "source = \"registry+https://github.com/rust-lang/crates.io-index\"".to_owned(),
        ),
        (key, format!("\"{}{}\"", ["sk", "-"].concat(), "a1".repeat(12)), format!("task-{}", "a".repeat(29))),
    ] {
        assert!(check(&bad).is_some(), "{bad}");
        assert!(check(&good).is_none(), "{good}");
    }
}

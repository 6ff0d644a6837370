//! Under which licences our dependencies are, by what they declare: the list of `deny.toml`, checked without `cargo deny`.
//!
//! In: `cargo metadata`, offline, for this platform (the others' crates need not be here). Not checked here: licence texts,
//! advisories; for those run `cargo deny check`.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::none;
use super::source::root;

/// The allowed identifiers, from `deny.toml`.
fn allowed() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let deny: toml::Table = text.parse().unwrap();
    let list = deny["licenses"]["allow"].as_array().unwrap();
    list.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// Whether an SPDX expression can be met from the list. `/` is an old way to write OR. AND binds tighter than OR.
fn met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any(&words, &mut at, allowed);
    met && at == words.len()
}

fn any(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut met = all(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all(words, at, allowed);
    }
    met
}

fn all(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let met = any(words, at, allowed);
        *at += 1;
        return met;
    }
    let mut name = (*word).to_owned();
    if words.get(*at) == Some(&"WITH") {
        name = format!("{name} WITH {}", words.get(*at + 1).copied().unwrap_or_default());
        *at += 2;
    }
    allowed.contains(&name)
}

/// The packages that are built here, as cargo tells.
fn packages() -> Vec<Value> {
    let rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("-vV").output().unwrap();
    let told = String::from_utf8(rustc.stdout).unwrap();
    let host = told.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", host])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("{other}"),
    }
}

#[test]
fn every_dependency_declares_a_licence_that_deny_toml_allows() {
    let allowed = allowed();
    let packages = packages();
    assert!(packages.len() > 50, "cargo told of {} packages", packages.len());
    let mut findings = Vec::new();
    for package in &packages {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or("none"));
        if !met(licence, &allowed) {
            findings.push(format!("{name}: {licence}"));
        }
        let home = "registry+https://github.com/rust-lang/crates.io-index";
        if package["source"].as_str().is_some_and(|source| source != home) {
            findings.push(format!("{name}: comes from {}", package["source"]));
        }
    }
    none("licences that are not in deny.toml's list, and sources other than crates.io", &findings);
}

#[test]
fn expressions_are_read_as_spdx_says() {
    let allowed: BTreeSet<String> = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
    for (expression, good) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("MIT AND ISC", true),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("GPL-3.0 OR MIT AND GPL-2.0", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("Apache-2.0", false),
        ("none", false),
        ("", false),
        ("MIT MIT", false),
    ] {
        assert_eq!(met(expression, &allowed), good, "{expression}");
    }
}

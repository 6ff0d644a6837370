//! `rubicon check`: every problem of a config with its place. Exit 1 on an error.
//!
//! Calls no provider; what only a call could tell is listed as outstanding.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::clock::UnixMillis;
use crate::config::{self, Problem, Severity};

const ABOUT: &str = "\
Reads the config and the environment and reports every problem with file, line and key: what `serve`
would refuse, and what it would accept and you would regret (failovers that can never act, and why;
approvals that run out; deadlines that leave no time). Calls no provider; what only a call could
tell is listed as a note.";

const CODES: &str = "\
Exit codes: 0 no error (warnings and notes are allowed), 1 an error.
What each [code] and each key means: src/config/KEYS.md.";

/// Arguments of `rubicon check`.
#[derive(Debug, Args)]
#[command(about = "Report every problem of a config with its place, and failovers that can never act")]
#[command(long_about = ABOUT, after_long_help = CODES)]
pub struct CheckArgs {
    /// The config file
    #[arg(short, long, value_name = "FILE", default_value = "rubicon.toml")]
    pub config: PathBuf,
    /// Print one JSON object: {"ok": …, "problems": [{severity, file, line, column, key, code, message}]}
    #[arg(long)]
    pub json: bool,
}

#[derive(serde::Serialize)]
struct Report<'r> {
    ok: bool,
    problems: &'r [Problem],
}

/// Checks the file and prints what it found to `out`.
pub fn run(args: &CheckArgs, env: &dyn Fn(&str) -> Option<String>, now: UnixMillis, out: &mut dyn Write) -> ExitCode {
    let problems = match config::load(&args.config, env, now) {
        Ok(loaded) => {
            let mut problems = config::findings(&loaded, now);
            problems.extend(loaded.warnings);
            problems.sort_by_key(|problem| (problem.line, problem.column));
            problems
        }
        Err(problems) => problems,
    };
    let ok = problems.iter().all(|problem| problem.severity != Severity::Error);
    let written =
        if args.json { json(ok, &problems, out) } else { human(&args.config.display().to_string(), &problems, out) };
    // A reader that went away (a closed pipe) changes nothing about the config.
    let _ = written;
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn json(ok: bool, problems: &[Problem], out: &mut dyn Write) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, &Report { ok, problems })?;
    writeln!(out)
}

fn human(file: &str, problems: &[Problem], out: &mut dyn Write) -> std::io::Result<()> {
    for problem in problems {
        writeln!(out, "{problem}")?;
    }
    let count = |severity| problems.iter().filter(|problem| problem.severity == severity).count();
    let (errors, warnings, notes) = (count(Severity::Error), count(Severity::Warning), count(Severity::Info));
    let verdict = if errors == 0 { "ok" } else { "not ok" };
    writeln!(
        out,
        "{file}: {verdict} ({}, {}, {})",
        many(errors, "error"),
        many(warnings, "warning"),
        many(notes, "note")
    )
}

fn many(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_796_083_200_000);

    fn check(text: Option<&str>, json: bool) -> (ExitCode, String) {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("rubicon.toml");
        if let Some(text) = text {
            std::fs::write(&config, text).unwrap();
        }
        let mut out = Vec::new();
        let env = |name: &str| (name == "KEY").then(|| "k-1".to_owned());
        let code = run(&CheckArgs { config, json }, &env, NOW, &mut out);
        let out = String::from_utf8(out).unwrap();
        (code, out.replace(&folder.path().display().to_string(), "DIR"))
    }

    const GOOD: &str = "[provider.p]\nkind = \"openai\"\napi_key = \"env:KEY\"\n[route.r]\nprovider = \"p\"\n[workflow.w]\nprimary = \"r\"\n";

    #[test]
    fn a_good_file_is_ok_and_lists_outstanding_checks() {
        let (code, out) = check(Some(GOOD), false);
        assert_eq!(code, ExitCode::SUCCESS);
        let expected = "DIR/rubicon.toml:1: info: provider.p: address, key and models were not tried: `check` calls nobody [credentials_not_tried]\nDIR/rubicon.toml: ok (0 errors, 0 warnings, 1 note)\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn a_bad_file_exits_with_1_in_both_forms() {
        let bad = GOOD.replace("primary = \"r\"", "primary = \"x\"\nequivalent = []");
        let (code, out) = check(Some(&bad), false);
        assert_eq!(code, ExitCode::FAILURE);
        assert!(out.contains("DIR/rubicon.toml:7: error: workflow.w.primary: "), "{out}");
        assert!(out.contains("did you mean `equivalents`? [unknown_key]\n"), "{out}");
        assert!(out.ends_with("DIR/rubicon.toml: not ok (2 errors, 0 warnings, 0 notes)\n"), "{out}");
        let (code, out) = check(Some(&bad), true);
        assert_eq!(code, ExitCode::FAILURE);
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(value["ok"], false);
        let first = &value["problems"][0];
        assert_eq!((&first["severity"], &first["line"], &first["column"]), (&"error".into(), &7.into(), &1.into()));
        assert_eq!((&first["code"], &first["key"]), (&"unresolved".into(), &"workflow.w.primary".into()));
        assert_eq!(first["file"], "DIR/rubicon.toml");
        assert!(first["message"].is_string());
    }

    #[test]
    fn a_failover_that_never_acts_is_an_error_although_it_loads() {
        let (code, out) = check(Some(&format!("{GOOD}failover.enabled = true\n")), true);
        assert_eq!(code, ExitCode::FAILURE);
        assert!(out.contains("failover_without_candidates"), "{out}");
    }

    #[test]
    fn files_that_cannot_be_read() {
        for text in [None, Some("x".repeat((1 << 20) + 1))] {
            let (code, out) = check(text.as_deref(), false);
            assert_eq!(code, ExitCode::FAILURE);
            assert!(out.starts_with("DIR/rubicon.toml: error: cannot be read: "), "{out}");
            assert!(out.contains("[config_unreadable]"), "{out}");
        }
    }
}

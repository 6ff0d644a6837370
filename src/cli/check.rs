//! `rubicon check`: every problem of a config with its place. Exit 1 on an error.
//!
//! Calls no provider; what only a call could tell is listed as outstanding.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::check::{self, Report};
use crate::clock::UnixMillis;
use crate::config::{self, Severity};

const ABOUT: &str = "\
Reads the config and the environment and reports every problem with file, line and key: what `serve`
would refuse, and what it would accept and you would regret (failovers that can never act, and why;
approvals that run out; deadlines that leave no time; tools whose unknown outcomes nobody may
settle). After the problems come four lists: what is off and why, by the names of
src/plan/refusals.md; what ends within 30 days; what must be tried with real calls, because `check`
calls nobody; and the digest of each failover route, to be pasted into its approval and verification
as `route_digest`.";

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
    /// Print one JSON object: {"ok": …, "problems": [{severity, file, line, column, key, code, message}], "disabled": …,
    /// "expiring": …, "live_checks": …, "digests": …}
    #[arg(long)]
    pub json: bool,
}

#[derive(serde::Serialize)]
struct Printed<'r> {
    ok: bool,
    #[serde(flatten)]
    report: &'r Report,
}

/// Checks the file and prints what it found to `out`.
pub fn run(args: &CheckArgs, env: &dyn Fn(&str) -> Option<String>, now: UnixMillis, out: &mut dyn Write) -> ExitCode {
    let report = match config::load(&args.config, env, now) {
        Ok(loaded) => {
            let mut report = check::report(&loaded, now);
            report.problems.extend(loaded.warnings);
            report.problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
            report
        }
        Err(problems) => Report { problems, ..Report::default() },
    };
    let ok = report.problems.iter().all(|problem| problem.severity != Severity::Error);
    let written =
        if args.json { json(ok, &report, out) } else { human(&args.config.display().to_string(), &report, out) };
    // A reader that went away (a closed pipe) changes nothing about the config.
    let _ = written;
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn json(ok: bool, report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, &Printed { ok, report })?;
    writeln!(out)
}

fn human(file: &str, report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    let problems = &report.problems;
    for problem in problems {
        writeln!(out, "{problem}")?;
    }
    lists(report, out)?;
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

/// The lists after the problems; an empty one is left out.
fn lists(report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    let disabled = report.disabled.iter();
    let disabled = disabled
        .map(|one| format!("workflow {}, route {} as {}: {}", one.workflow, one.route, one.role, one.why.join(", ")));
    section(out, "Disabled, and why:", disabled)?;
    let expiring = report.expiring.iter().map(|one| {
        let of = one.workflow.as_ref().map(|workflow| format!(" for workflow {workflow}")).unwrap_or_default();
        format!("{} of route {}{of}: until {}, {} days", one.what, one.route, one.until, one.days)
    });
    section(out, "Ends within 30 days:", expiring)?;
    let live = report.live_checks.iter().map(|one| format!("route {}: {} ({})", one.route, one.what, one.check));
    section(out, "Must be checked live (`check` calls nobody):", live)?;
    let digests = report.digests.iter().map(|one| {
        let mut stands = Vec::new();
        stands.extend(one.verified.map(|digest| format!("verified: {digest}")));
        let approvals = one.approvals.iter();
        stands.extend(approvals.map(|one| format!("approved for {} ({}): {}", one.workflow, one.purpose, one.digest)));
        let stands = if stands.is_empty() { String::new() } else { format!("; {}", stands.join(", ")) };
        format!("route {}: {} = {}{stands}", one.route, one.route_digest, one.covers)
    });
    section(out, "Digests of failover routes (same, other: compared; none: no `route_digest` given):", digests)
}

fn section(out: &mut dyn Write, title: &str, lines: impl Iterator<Item = String>) -> std::io::Result<()> {
    for (index, line) in lines.enumerate() {
        if index == 0 {
            writeln!(out, "{title}")?;
        }
        writeln!(out, "  {line}")?;
    }
    Ok(())
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
        let expected = "DIR/rubicon.toml:1: info: provider.p: address, key and models were not tried: `check` calls nobody [credentials_not_tried]\nMust be checked live (`check` calls nobody):\n  route r: the key is accepted (credentials)\n  route r: the models that callers name exist there (model)\n  route r: states no `capabilities`: whatever the application uses goes there unchecked, so try that (capabilities)\nDIR/rubicon.toml: ok (0 errors, 0 warnings, 1 note)\n";
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

//! `rubicon init`: writes the smallest config, commented, and says what to do next. Never overwrites.
//!
//! `--failover` adds a second provider and route. What only people can state, the verification and the approval, is there
//! as lines to be uncommented: a file that claimed them by itself would be a false record.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::clock::UnixMillis;

const SMALLEST: &str = include_str!("init.toml");
const FAILOVER: &str = include_str!("init_failover.toml");

/// How long a suggested verification and approval last.
const SUGGESTED_MS: u64 = 90 * 86_400_000;

const ABOUT: &str = "\
Writes the smallest config that serves, commented, and says what to do next. A file that exists is
never touched. With --failover a second provider is in it, and the three steps that people must take
before anything fails over.";

/// Arguments of `rubicon init`.
#[derive(Debug, Args)]
#[command(about = "Write the smallest config, commented", long_about = ABOUT, after_long_help = "Exit codes: 0 written, 1 the file exists or cannot be written.")]
pub struct InitArgs {
    /// Add a second provider and what a failover to it needs
    #[arg(long)]
    pub failover: bool,
    /// The file to write; one that exists is left alone
    #[arg(short, long, value_name = "FILE", default_value = "rubicon.toml", conflicts_with = "stdout")]
    pub output: PathBuf,
    /// Print the config instead of writing a file
    #[arg(long)]
    pub stdout: bool,
}

/// Writes the config.
pub fn run(args: &InitArgs, now: UnixMillis, out: &mut dyn Write, err: &mut dyn Write) -> ExitCode {
    let text = config(args.failover, now);
    let result = if args.stdout { out.write_all(text.as_bytes()) } else { create(&args.output, &text) };
    let shown = args.output.display();
    let said = match &result {
        Ok(()) if args.stdout => Ok(()),
        Ok(()) => writeln!(out, "wrote {shown}. Next:\n{}", next(args.failover, &args.output)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            writeln!(err, "rubicon init: {shown} is there already and was left alone; name another with -o")
        }
        Err(error) => writeln!(err, "rubicon init: {shown} cannot be written: {error}"),
    };
    // Nobody is left to be told that the terminal is gone.
    let _ = said;
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn create(path: &Path, text: &str) -> io::Result<()> {
    // `create_new` refuses and creates in one step, so that two of us cannot overwrite each other.
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

fn next(failover: bool, path: &Path) -> String {
    let keys = if failover { "OPENAI_API_KEY and SECOND_API_KEY" } else { "OPENAI_API_KEY" };
    format!("  set {keys} in the environment\n  rubicon check -c {0}\n  rubicon serve -c {0}", path.display())
}

/// The config's text; suggested dates begin at `now`.
pub fn config(failover: bool, now: UnixMillis) -> String {
    if !failover {
        return SMALLEST.to_owned();
    }
    FAILOVER.replace("{TODAY}", &now.day()).replace("{UNTIL}", &UnixMillis(now.0.saturating_add(SUGGESTED_MS)).day())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self as configuration, Severity};

    const NOW: UnixMillis = UnixMillis(1_796_083_200_000);

    fn parse(text: &str) -> configuration::Loaded {
        let env = |name: &str| matches!(name, "OPENAI_API_KEY" | "SECOND_API_KEY").then(|| format!("key-{name}"));
        let read = |_: &Path| Err(io::ErrorKind::NotFound.into());
        let sources =
            configuration::Sources { folder: Path::new(""), env: &env, read: &read, now: NOW, terminal: true };
        configuration::parse(text, "rubicon.toml", &sources).unwrap_or_else(|problems| panic!("{problems:#?}"))
    }

    fn loud(loaded: &configuration::Loaded) -> Vec<&'static str> {
        let findings = crate::check::findings(loaded, NOW);
        let all = loaded.warnings.iter().chain(&findings);
        all.filter(|p| p.severity != Severity::Info).map(|p| p.code.name()).collect()
    }

    #[test]
    fn the_smallest_config_loads_without_a_word() {
        let loaded = parse(&config(false, NOW));
        assert_eq!(loud(&loaded), Vec::<&str>::new());
    }

    #[test]
    fn the_failover_config_loads_and_says_that_failover_is_off() {
        let loaded = parse(&config(true, NOW));
        assert_eq!(loud(&loaded), ["failover_disabled"]);
    }

    #[test]
    fn uncommented_and_switched_on_it_fails_over() {
        let text = config(true, NOW);
        assert!(text.contains("2026-12-01") && text.contains("2027-03-01") && !text.contains("{TODAY}"), "{text}");
        // `#key = …` is a line to uncomment, `# words` is a comment.
        let lines = text.lines().map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest,
            _ => line,
        });
        let text = lines.collect::<Vec<_>>().join("\n").replace("enabled = false", "enabled = true");
        let loaded = parse(&text);
        assert_eq!(loud(&loaded), Vec::<&str>::new());
        assert_eq!((loaded.settings.approvals.len(), loaded.settings.routes.len()), (1, 2));
    }

    #[test]
    fn a_file_is_written_once_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("rubicon.toml");
        let args = InitArgs { failover: false, output: output.clone(), stdout: false };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        assert_eq!(run(&args, NOW, &mut out, &mut err), ExitCode::SUCCESS);
        assert_eq!(std::fs::read_to_string(&output).unwrap(), config(false, NOW));
        assert!(String::from_utf8(out).unwrap().contains("rubicon check -c"));
        std::fs::write(&output, "mine").unwrap();
        assert_eq!(run(&args, NOW, &mut Vec::new(), &mut err), ExitCode::FAILURE);
        assert_eq!(std::fs::read_to_string(&output).unwrap(), "mine");
        assert!(String::from_utf8(err).unwrap().contains("left alone"));
        let mut out = Vec::new();
        let args = InitArgs { failover: true, output, stdout: true };
        assert_eq!(run(&args, NOW, &mut out, &mut Vec::new()), ExitCode::SUCCESS);
        assert_eq!(String::from_utf8(out).unwrap(), config(true, NOW));
    }
}

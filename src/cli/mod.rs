//! The command line: one file a subcommand, each with its `…Args` and a `run` that returns the exit code.
//!
//! Exit codes (SPEC section 2): 0 ok, 1 found a problem, 2 wrong usage (clap's own). What a command was asked for goes to
//! stdout, everything else to stderr; `--json` makes stdout one JSON object.
//!
//! A further subcommand is a file here, a variant of [`Command`] and an arm of [`run`].

pub mod check;
pub mod demo;
pub mod explain;
pub mod failover;
pub mod init;
pub mod ledger;
pub mod mock;
pub mod operator;
pub mod route;
pub mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::clock::UnixMillis;
use crate::config::Problem;

const ABOUT: &str = "\
A streaming-aware relay between applications and LLM providers. Before the first output that the
application can see or act on, it recovers from a provider's failure in silence; after it, it stops
and says so.";

const START: &str = "\
To begin:
  rubicon demo                     see what it does, with no config and no keys
  rubicon init                     write rubicon.toml (--failover: with a second provider)
  rubicon check                    what is wrong with it, line by line
  rubicon explain                  which routes would serve a request, and why not the others
  rubicon ledger list              what tools were called, and what is not known of them
  rubicon serve                    run it; point an SDK's base_url at http://127.0.0.1:8080/v1

Exit codes: 0 ok, 1 found a problem, 2 wrong usage.";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "rubicon", version, arg_required_else_help = true)]
#[command(about = "A streaming-aware relay between applications and LLM providers", long_about = ABOUT, after_help = START)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands. What each does is said beside its arguments; a doc comment here would replace it in `--help`.
#[derive(Debug, Subcommand)]
#[allow(missing_docs, reason = "see above")]
pub enum Command {
    Init(init::InitArgs),
    Check(check::CheckArgs),
    Explain(explain::ExplainArgs),
    Serve(serve::ServeArgs),
    Route(route::RouteArgs),
    Failover(failover::FailoverArgs),
    Ledger(ledger::LedgerArgs),
    Demo(demo::DemoArgs),
    Mock(mock::MockArgs),
}

/// Runs the command.
pub async fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Init(args) => init::run(&args, UnixMillis::now(), &mut std::io::stdout(), &mut std::io::stderr()),
        Command::Check(args) => check::run(&args, &environment, UnixMillis::now(), &mut std::io::stdout()),
        Command::Explain(args) => explain::run(&args).await,
        Command::Serve(args) => serve::run(args).await,
        Command::Route(args) => route::run(args).await,
        Command::Failover(args) => failover::run(args).await,
        Command::Ledger(args) => ledger::run(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Mock(args) => mock::run(args).await,
    }
}

/// The process's environment; a value that is not UTF-8 counts as not set.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Prints problems for people to stderr, as `serve` does.
fn complain(problems: &[Problem]) {
    for problem in problems {
        crate::telemetry::say(&problem.to_string());
    }
}

/// Ready once SIGINT or SIGTERM comes; from the call on neither ends the process.
#[cfg(unix)]
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Ready once Ctrl-C comes.
#[cfg(not(unix))]
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_usage_is_2_and_help_is_0() {
        for (line, code) in [
            ("rubicon", 2),
            ("rubicon nonsense", 2),
            ("rubicon check --nonsense", 2),
            ("rubicon init --stdout -o f.toml", 2),
            ("rubicon route kill", 2),
            ("rubicon route kill a", 2),
            ("rubicon route restore a --reason x --url http://localhost:1 -c f.toml", 2),
            ("rubicon failover enable", 2),
            ("rubicon explain --nonsense", 2),
            ("rubicon explain --url http://localhost:1 -c f.toml", 2),
            ("rubicon explain --token env:T", 2),
            ("rubicon ledger", 2),
            ("rubicon ledger resolve ex_1 --outcome succeeded", 2),
            ("rubicon ledger resolve ex_1 --outcome unknown --reason x", 2),
            ("rubicon ledger list --state lost", 2),
            ("rubicon ledger list --limit 1001", 2),
            ("rubicon ledger verify --file f --url http://localhost:1", 2),
            ("rubicon ledger show ex_1 --content", 2),
            ("rubicon ledger backup", 2),
            ("rubicon ledger restore --from f --reason x", 2),
            ("rubicon ledger --help", 0),
            ("rubicon --help", 0),
            ("rubicon check --help", 0),
            ("rubicon --version", 0),
        ] {
            let error = Cli::try_parse_from(line.split(' ')).expect_err(line);
            assert_eq!(error.exit_code(), code, "{line}");
        }
        for line in [
            "rubicon route list",
            "rubicon ledger list --state unknown --older-than 15m --json",
            "rubicon ledger show ex_1 --file f --content",
            "rubicon ledger resolve ex_1 --outcome succeeded --reason x --result - --version 3",
            "rubicon ledger verify -c f.toml --head h",
            "rubicon ledger backup --to f -c f.toml",
            "rubicon ledger restore --from f -c f.toml --reason x --force",
            "rubicon route kill a --reason x -c f.toml",
            "rubicon failover disable --reason x --workflow w",
            "rubicon explain -w w -H a:b -H c:d --request - --json",
            "rubicon check",
            "rubicon check -c f.toml --json",
            "rubicon serve -c f.toml",
            "rubicon init --failover",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }
}

//! `rubicon mock`: the scripted provider by itself, for tests in other languages and for trying a configuration by hand.
//!
//! In go a script's path and where to listen; out goes one line with the address, then silence until SIGINT or SIGTERM. The
//! line comes first and is flushed, so that whoever starts this process can wait for it and needs no sleep.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::mock::{EXAMPLE, MockProvider, Script, ScriptProblems};

const STEPS: &str = r#"A SCRIPT is JSON; unknown members are refused:

  {"listen": "127.0.0.1:0",                      port 0: a free one
   "rules": [{"name": "a",                       for the counters; unique
              "path": "/v1/chat/completions",    optional, without the query
              "model": "m-a",                    optional, the request body's `model`
              "answers": [[STEP, ...], ...]}]}   the k-th call gets the k-th, the last repeats

The first rule that fits answers. No rule: 404.

STEPS, in order; falling off the end ends the body properly and keeps the connection:

  {"head": {"status": 200, "headers": {"name": "value"}}}   chunked; with "length": N a content-length,
                                   with "until_close": true neither. Left out: 200 text/event-stream
  {"event": {"name": "n", "data": JSON or "text"}}          one SSE event; the name is optional
  {"text": "..."}  {"file": "p"}   bytes as they are (paths are relative to the script)
  {"json": {...}}                  a whole JSON body
  {"recording": "x.http"}          status line, headers, empty line (LF), body
  {"auto": {"dialect": "chat", "anthropic" or "responses", "text": ["Hel", "lo"],
            "tool": {"name": "t", "arguments": ["{}"]}, "pace_ms": 30}}
                                   a complete answer, streaming or not as the request's `stream` says
  {"delay_ms": N}                  a pause
  {"split": N}                     from here on in pieces of N bytes; 0 ends that
  {"gate": "name"}                 wait for POST /__mock/gate/name
  {"repeat": {"times": N, "steps": [...]}}
  {"hang": true}                   silence on an open connection until the peer leaves
  {"abort": "fin"}  {"abort": "rst"}   close without the body's end; reset
  {"close_before_head": true}      close without a byte
  {"half_head": true}              half a head, then what follows, then close

ADMIN, on the same port, without a key:

  GET  /__mock/calls               {"total": 1, "by_rule": {"a": 1}, "unmatched": 0, "disconnects": 0, ...}
  GET  /__mock/requests            the last 1000; values of headers that carry keys are left out
  POST /__mock/gate/NAME?n=1       lets n waits pass
  POST /__mock/reset               no request seen, first answers again, gates shut

Exit codes: 0 stopped by SIGINT or SIGTERM, 1 the script or the address cannot be used (says file, line and what)."#;

/// Arguments of `rubicon mock`.
#[derive(Debug, clap::Args)]
#[command(
    about = "The scripted provider, by itself",
    long_about = "Answers HTTP requests as a script says: whole answers, streams, and every way a provider can fail. \
                  Prints `mock listening on http://ADDR` and runs until SIGINT or SIGTERM.",
    after_long_help = STEPS
)]
pub struct MockArgs {
    /// The script (JSON); see the long help for what it can say
    #[arg(long, value_name = "FILE", required_unless_present = "example")]
    script: Option<PathBuf>,

    /// Listen there and not where the script says, e.g. 127.0.0.1:0 for a free port
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,

    /// Print the address as one line of JSON: {"listening": "http://ADDR"}
    #[arg(long)]
    json: bool,

    /// Print an example script and leave
    #[arg(long, conflicts_with_all = ["script", "listen", "json"])]
    example: bool,
}

/// Why the mock does not run.
#[derive(Debug, thiserror::Error)]
enum MockError {
    /// The script's form.
    #[error(transparent)]
    Script(#[from] ScriptProblems),
    /// What the script refers to, or the address.
    #[error("{0}")]
    Start(io::Error),
    /// Nobody reads the address, or no signal can be caught.
    #[error("the mock cannot run: {0}")]
    Process(#[from] io::Error),
}

/// Runs `rubicon mock`. Exit code 0 after a signal, 1 on a problem, which is told on stderr.
pub async fn run(args: MockArgs) -> ExitCode {
    match serve(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where stderr is closed as well, the exit code has to do.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::from(1)
        }
    }
}

async fn serve(args: MockArgs) -> Result<(), MockError> {
    if args.example {
        let mut out = io::stdout();
        return Ok(out.write_all(EXAMPLE.as_bytes()).and_then(|()| out.flush())?);
    }
    // Caught from before the line is out: who has read it may stop the process at once.
    let stop = super::stop_signal()?;
    let mock = open(&args).await?;
    announce(&mut io::stdout(), &mock, args.json)?;
    stop.await;
    mock.stop().await;
    Ok(())
}

async fn open(args: &MockArgs) -> Result<MockProvider, MockError> {
    // clap has seen to it that there is one.
    let mut script = Script::load(args.script.as_deref().unwrap_or_else(|| "".as_ref()))?;
    if let Some(listen) = args.listen {
        script.listen = listen;
    }
    let listen = script.listen;
    MockProvider::start(script).await.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => MockError::Start(error),
        kind => MockError::Start(io::Error::new(kind, format!("cannot listen on {listen}: {error}"))),
    })
}

fn announce(out: &mut impl Write, mock: &MockProvider, json: bool) -> io::Result<()> {
    let url = mock.base_url();
    if json {
        writeln!(out, "{}", serde_json::json!({ "listening": url }))?;
    } else {
        writeln!(out, "mock listening on {url}")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser as _};

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: MockArgs,
    }

    fn parse(words: &[&str]) -> Result<MockArgs, clap::Error> {
        Cli::try_parse_from([&["mock"], words].concat()).map(|cli| cli.args)
    }

    #[test]
    fn a_script_or_the_example_must_be_asked_for() {
        Cli::command().debug_assert();
        for (words, good) in [
            (&["--script", "s.json"][..], true),
            (&["--script", "s.json", "--listen", "127.0.0.1:0", "--json"], true),
            (&["--example"], true),
            (&[], false),
            (&["--example", "--json"], false),
            (&["--script", "s.json", "--listen", "localhost"], false),
        ] {
            assert_eq!(parse(words).is_ok(), good, "{words:?}");
        }
    }

    #[tokio::test]
    async fn the_address_is_announced_in_both_forms() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s.json");
        std::fs::write(&path, EXAMPLE).expect("written");
        let args = parse(&["--script", path.to_str().expect("text"), "--listen", "127.0.0.1:0"]).expect("legal");
        let mock = open(&args).await.expect("the example plays");
        let url = mock.base_url();
        for (json, line) in
            [(false, format!("mock listening on {url}\n")), (true, format!("{{\"listening\":\"{url}\"}}\n"))]
        {
            let mut out = Vec::new();
            announce(&mut out, &mock, json).expect("a Vec takes all");
            assert_eq!(String::from_utf8(out).expect("text"), line);
        }
    }

    #[tokio::test]
    async fn problems_name_file_line_and_what() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s.json");
        let name = path.to_str().expect("text");
        let args = parse(&["--script", name]).expect("legal");
        for (text, says) in [
            (None, format!("{name}: ")),
            (Some("{\n\"rule\": []}"), format!("{name}:2: unknown field `rule`")),
            (Some("{\"rules\": [\n{\"name\": \"a\", \"answers\": []}]}"), format!("{name}:2: rule `a` has no answer")),
            (Some("{\"rules\": [], \"listen\": \"192.0.2.1:1\"}"), "cannot listen on 192.0.2.1:1: ".to_owned()),
        ] {
            if let Some(text) = text {
                std::fs::write(&path, text).expect("written");
            }
            let error = open(&args).await.expect_err("a problem").to_string();
            assert!(error.starts_with(&says), "{error}");
        }
    }
}

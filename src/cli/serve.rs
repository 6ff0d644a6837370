//! `rubicon serve`: loads the config, says what is wrong with it, and hands it to the relay.
//!
//! A config with errors does not start. What `check` finds beyond loading is printed and does not stop it: an approval that
//! ran out must not take the primary down.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::clock::UnixMillis;
use crate::config::{self, Loaded, Seen, Severity};
use crate::serve::reload::Reload;
use crate::serve::run::Ended;
use crate::telemetry::lines::FLUSH_MAX;
use crate::telemetry::{log, say};

const ABOUT: &str = "\
Runs the relay. A config with an error does not start it; what `rubicon check` finds beyond that is
printed and does not stop it. Says `listening on http://ADDR` on stderr once it answers.";

const MORE: &str = "\
WHAT IT SERVES, on [server] listen (127.0.0.1:8080):

  POST /v1/chat/completions        OpenAI's format; an SDK's base_url is http://ADDR/v1
  POST /v1/messages                Anthropic's; its SDK's base_url is http://ADDR
  POST /v1/messages/count_tokens
  POST /v1/responses               OpenAI's Responses, what is under /v1/responses/ID with it
  GET  /v1/models                  what the caller may ask for
  GET  /v1/operations/ID           all that is known of a request (ID: the response's Rubicon-Operation-Id)
  DELETE /v1/operations/ID         stops it
  POST /v1/operations/ID/outcome   the application's word on its answer: accepted or rejected
  POST /v1/executions              claims a tool execution; GET …/KEY, POST …/KEY/heartbeat and …/KEY/complete
  POST /v1/tools/TOOL              the relay runs the tool itself, once (src/executions/EXECUTIONS.md: every answer)
  GET  /healthz  /readyz           200 while it runs; 503 on readyz once it shuts down; how the ledger stands

Where there is an [[operator]], on [server] admin_listen (127.0.0.1:8081, loopback only), with an
operator's token as Authorization: Bearer:

  GET  /admin/v1/routes            how each route stands; POST …/ROUTE/kill and …/ROUTE/restore
  GET  /admin/v1/failover          POST …/disable and …/enable, for all or for one workflow
  GET  /admin/v1/operations        of all tenants
  GET  /admin/v1/executions        tool executions; POST …/KEY/resolve, confirm, probe, release, notes, assign …
  GET  /admin/v1/journal           who did what, and why; …/head, …/verify
  GET  /admin/v1/ledger/backup     a copy of the ledger while it is written to
  GET  /admin/v1/explain           which routes would serve a request, and why not the others
  GET  /admin/v1/config            which configuration is in force
  GET  /metrics                    Prometheus; without a token where [server] metrics_open is set
From a shell: `rubicon route`, `rubicon failover` and `rubicon ledger`.

A request belongs to the workflow that the header Rubicon-Workflow names, else to the one whose
`models` has its model, else to the only one that the caller may use.

SIGTERM or SIGINT: no new work; running streams and tools get [server] shutdown_grace_ms; what is
left is cut with an error frame, or unknown. A second one: now. Log lines go to stderr; event lines (JSON, one a request,
one an attempt, one a change of an execution) to stdout, or where [log] events says.

SIGHUP, or a changed file with --watch: the config and what it includes is loaded anew, `file:`
secrets too (`env:` keeps the values of the start). A file with an error changes nothing: the log
says what is wrong, line by line, and the old one serves on. A good one holds for new requests;
what runs keeps what it began with. [server] listen, admin_listen and store, [log] and [telemetry]
wait for a restart, and a warning names each key that differs.

Exit codes: 0 shut down in order, 1 the config or the address cannot be used.";

/// Arguments of `rubicon serve`.
#[derive(Debug, Args)]
#[command(about = "Run the relay", long_about = ABOUT, after_long_help = MORE)]
pub struct ServeArgs {
    /// The config file
    #[arg(short, long, value_name = "FILE", default_value = "rubicon.toml")]
    pub config: PathBuf,
    /// Load the config anew when it, a file that it includes or a `file:` secret changes
    #[arg(long)]
    pub watch: bool,
    /// Print {"listening": …} to stdout once it listens, for programs
    #[arg(long)]
    pub json: bool,
}

/// How long a program that reads stdout has to take the one line of `--json`: who doesn't read it must not keep the relay from serving.
const TOLD_MAX: Duration = Duration::from_secs(1);

/// How long the last log lines have where a second signal asked for the end at once.
const FLUSH_AT_ONCE_MAX: Duration = Duration::from_millis(100);

/// Loads the config and serves until it is told to stop.
pub async fn run(args: ServeArgs) -> ExitCode {
    if let Err(error) = log::start() {
        say(&format!("rubicon serve: no thread for the log: {error}"));
        return ExitCode::FAILURE;
    }
    let (code, flush_max) = match serve(args).await {
        Ok(Ended::Gracefully) => (ExitCode::SUCCESS, FLUSH_MAX),
        Ok(Ended::AtOnce) => (ExitCode::SUCCESS, FLUSH_AT_ONCE_MAX),
        Err(code) => (code, FLUSH_MAX),
    };
    // Where nobody reads the log there is nothing more to do.
    let _ = log::flush(flush_max).await;
    code
}

async fn serve(args: ServeArgs) -> Result<Ended, ExitCode> {
    let (loaded, seen) = load(&args)?;
    crate::telemetry::init(&loaded.settings.log);
    if loaded.settings.clients.is_empty() {
        say("rubicon serve: no [[client]] is configured: loopback only, no key is asked for");
    }
    let operators = !loaded.settings.operators.is_empty();
    let started = |address, admin: Option<SocketAddr>| {
        say(&match admin {
            Some(admin) if operators => format!("rubicon serve: the admin side is on http://{admin}"),
            Some(admin) => {
                format!(
                    "rubicon serve: no [[operator]] is configured: the admin side is off, save http://{admin}/metrics"
                )
            }
            None => "rubicon serve: no [[operator]] is configured: the admin side is off".to_owned(),
        });
        say(&format!("rubicon serve: listening on http://{address}"));
        if args.json {
            let url = |address: SocketAddr| format!("http://{address}");
            tell(serde_json::json!({ "listening": url(address), "admin": admin.map(url) }));
        }
    };
    let secrets = loaded.secrets;
    let reload = Reload { config: args.config, env: super::environment, watch: args.watch, seen, secrets };
    crate::serve::run::run(loaded.settings, reload, started).await.map_err(|error| {
        say(&format!("rubicon serve: {error}"));
        ExitCode::FAILURE
    })
}

/// Prints to stdout, on a thread of its own: it may be a pipe that nobody reads, or whose reader has gone.
fn tell(line: serde_json::Value) {
    let (done, printed) = std::sync::mpsc::channel();
    let print = move || {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        done.send(())
    };
    if std::thread::Builder::new().name("stdout".to_owned()).spawn(print).is_ok() {
        let _ = printed.recv_timeout(TOLD_MAX);
    }
}

/// The config and what was read of it, or the exit code after its problems were printed.
fn load(args: &ServeArgs) -> Result<(Loaded, Vec<Seen>), ExitCode> {
    let now = UnixMillis::now();
    let (result, seen) = config::load_seen(&args.config, &super::environment, now);
    match result {
        Ok(loaded) => {
            super::complain(&loaded.warnings);
            let mut findings = crate::check::findings(&loaded, now);
            findings.retain(|finding| finding.severity != Severity::Info);
            super::complain(&findings);
            Ok((loaded, seen))
        }
        Err(problems) => {
            super::complain(&problems);
            say("rubicon serve: not started; `rubicon check` says the same and more");
            Err(ExitCode::FAILURE)
        }
    }
}

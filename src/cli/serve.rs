//! `rubicon serve`: loads the config, says what is wrong with it, and hands it to the relay.
//!
//! A config with errors does not start. What `check` finds beyond loading is printed and does not stop it: an approval that
//! ran out must not take the primary down.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::clock::UnixMillis;
use crate::config::{self, Loaded, Severity};

/// Arguments of `rubicon serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The config file
    #[arg(short, long, value_name = "FILE", default_value = "rubicon.toml")]
    pub config: PathBuf,
    /// Print {"listening": …} to stdout once it listens, for programs
    #[arg(long)]
    pub json: bool,
}

/// Loads the config and serves until it is told to stop.
pub async fn run(args: ServeArgs) -> ExitCode {
    let loaded = match load(&args) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    crate::telemetry::init(&loaded.settings.log);
    if loaded.settings.clients.is_empty() {
        eprintln!("rubicon serve: no [[client]] is configured: loopback only, no key is asked for");
    }
    eprintln!("rubicon serve: no [[operator]] in this build: the admin side is off");
    let started = |address| {
        eprintln!("rubicon serve: listening on http://{address}");
        if args.json {
            println!("{}", serde_json::json!({ "listening": format!("http://{address}") }));
        }
    };
    match crate::serve::run::run(loaded.settings, started).await {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rubicon serve: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The config, or the exit code after its problems were printed.
fn load(args: &ServeArgs) -> Result<Loaded, ExitCode> {
    let now = UnixMillis::now();
    match config::load(&args.config, &super::environment, now) {
        Ok(loaded) => {
            super::complain(&loaded.warnings);
            let mut findings = config::findings(&loaded, now);
            findings.retain(|finding| finding.severity != Severity::Info);
            super::complain(&findings);
            Ok(loaded)
        }
        Err(problems) => {
            super::complain(&problems);
            eprintln!("rubicon serve: not started; `rubicon check` says the same and more");
            Err(ExitCode::FAILURE)
        }
    }
}

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
}

/// Loads the config and serves until it is told to stop.
pub async fn run(args: ServeArgs) -> ExitCode {
    let _loaded = match load(&args) {
        Ok(loaded) => loaded,
        Err(code) => return code,
    };
    // The one call site of the relay: `crate::serve::run(loaded.settings).await` (the lead's).
    eprintln!("rubicon serve: this build holds no relay; the config was checked and nothing is listening");
    ExitCode::FAILURE
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

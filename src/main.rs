//! Parse, run, exit code. Everything else is in the library.

use std::process::ExitCode;

use clap::Parser as _;

use rubicon::cli::{self, Cli};

fn main() -> ExitCode {
    // Wrong usage ends here, with exit code 2 (clap's own).
    let cli = Cli::parse();
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(cli::run(cli));
            // A thread that hangs on a disk must not keep the process.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            rubicon::telemetry::say(&format!("rubicon: no threads could be started: {error}"));
            ExitCode::FAILURE
        }
    }
}

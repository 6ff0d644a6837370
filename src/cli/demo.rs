//! `rubicon demo`: plays the scenes, narrates them, and stays up.

use std::process::ExitCode;

use clap::Args;

use crate::demo::{Demo, Options, scene_names};

const ABOUT: &str = "\
Plays the scenes of the main job over real HTTP on loopback: two scripted providers, a bank that
pays, the relay that `serve` runs, and a client. Says for each what the client saw, how many calls
each provider got and when the boundary was crossed, or how often the bank paid and what is on
record; then stays up, with lines to try, an operator's among them. One scene starts a second relay
with a store in a temporary folder and kills it; both are gone when it ends.";

/// Arguments of `rubicon demo`.
#[derive(Debug, Args)]
#[command(about = "Play the main scenes on loopback: no config, no keys, no network")]
#[command(long_about = ABOUT, after_long_help = "Exit codes: 0 every scene went as it must, 1 one did not.")]
pub struct DemoArgs {
    /// End after the scenes instead of staying up
    #[arg(long)]
    pub once: bool,
    /// Break this scene's rule on purpose; the exit code must then be 1
    #[arg(long = "break", value_name = "SCENE", value_parser = clap::builder::PossibleValuesParser::new(scene_names()))]
    pub broken: Option<String>,
    /// Play this scene only
    #[arg(long, value_name = "SCENE", value_parser = clap::builder::PossibleValuesParser::new(scene_names()))]
    pub only: Option<String>,
    /// Print one JSON object a scene, for programs
    #[arg(long)]
    pub json: bool,
}

/// Plays; the exit code is 1 if a scene did not go as it must, or if it was stopped before all were played.
pub async fn run(args: DemoArgs) -> ExitCode {
    // Asked for first: stopped in the middle of a scene it takes down what that scene started, too.
    let stop = match super::stop_signal() {
        Ok(stop) => stop,
        Err(error) => return failed(&error.to_string()),
    };
    let mut stop = std::pin::pin!(stop);
    let demo = match Demo::start(&Options { broken: args.broken, only: args.only, json: args.json }).await {
        Ok(demo) => demo,
        Err(problem) => return failed(&problem),
    };
    let mut out = std::io::stdout();
    let good = tokio::select! {
        good = demo.play(&mut out) => good.unwrap_or(false),
        () = &mut stop => false,
    };
    // A reader that is gone (`| head`) wants no more, and a demo that went wrong has only its exit code to tell.
    if !args.once && good && (args.json || demo.lines_to_try(&mut out).is_ok()) {
        stop.await;
    }
    demo.stop().await;
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn failed(problem: &str) -> ExitCode {
    crate::telemetry::say(&format!("rubicon demo: {problem}"));
    ExitCode::FAILURE
}

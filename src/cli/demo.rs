//! `rubicon demo`: plays the scenes, narrates them, and stays up.

use std::process::ExitCode;

use clap::Args;

use crate::demo::{Demo, Options, scene_names};

const ABOUT: &str = "\
Plays the scenes of the main job over real HTTP on loopback: two scripted providers, the relay that
`serve` runs, and a client. Says for each what the client saw, how many calls each provider got and
when the boundary was crossed; then stays up, with lines to try.";

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

/// Plays; the exit code is 1 if a scene did not go as it must.
pub async fn run(args: DemoArgs) -> ExitCode {
    let demo = match Demo::start(&Options { broken: args.broken, only: args.only, json: args.json }).await {
        Ok(demo) => demo,
        Err(problem) => {
            crate::telemetry::say(&format!("rubicon demo: {problem}"));
            return ExitCode::FAILURE;
        }
    };
    let mut out = std::io::stdout();
    let good = demo.play(&mut out).await;
    // A reader that is gone (`| head`) wants no more, and a demo that went wrong has only its exit code to tell.
    let stays = !args.once && matches!(good, Ok(true)) && (args.json || demo.lines_to_try(&mut out).is_ok());
    if stays && let Err(error) = tokio::signal::ctrl_c().await {
        crate::telemetry::say(&format!("rubicon demo: {error}"));
    }
    demo.stop().await;
    if good.unwrap_or(false) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

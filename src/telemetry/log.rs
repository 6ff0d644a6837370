//! Where log lines go: standard error, as text for people or JSON lines for programs. No prompt, output, argument or key is
//! ever a field of a line (a test greps for planted ones).

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::settings::{LogFormat, LogSettings};

/// Starts logging. A second call (tests) changes nothing.
pub fn init(settings: &LogSettings) {
    // Dependencies at debug or trace level may print what they carry (hyper prints heads): never below warn.
    let filter =
        EnvFilter::try_new(format!("warn,rubicon={}", settings.level)).unwrap_or_else(|_| EnvFilter::new("warn"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let ansi = std::io::stderr().is_terminal();
    let _ = match settings.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(ansi).try_init(),
    };
}

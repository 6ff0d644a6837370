//! Where log lines go: standard error, as text for people or JSON lines for programs. No prompt, output, argument or key is
//! ever a field of a line (a test greps for planted ones).
//!
//! Once it is started nothing of the relay writes to standard error but the log's own thread ([`Lines`]): a terminal that is stopped, a
//! pipe that nobody reads or whose reader has gone costs lines, which are counted, and neither a request nor the process.
//! That goes for what `serve` says by itself ([`say`]) and for the report of a panic, too. One log a process, as there is one
//! standard error.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tracing_subscriber::EnvFilter;

use crate::config::settings::{LogFormat, LogSettings};

use super::lines::Lines;

static DROPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

static LOG: OnceLock<Lines> = OnceLock::new();

/// Starts the thread that writes. A second call changes nothing.
///
/// # Errors
/// When no thread can be had.
pub fn start() -> io::Result<()> {
    if LOG.get().is_some() {
        return Ok(());
    }
    // Nobody can be told that standard error fails: the count of what was dropped has to do.
    let lines = Lines::start("log", Box::new(io::stderr()), DROPPED.clone(), |_| {})?;
    let _ = LOG.set(lines);
    // The usual report writes to standard error itself, while the thread that panicked may hold locks.
    std::panic::set_hook(Box::new(|panic| match tracing::dispatcher::has_been_set() {
        true => tracing::error!("{panic}"),
        false => say(&panic.to_string()),
    }));
    Ok(())
}

/// Begins to log what the program traces. A second call (tests) changes nothing.
pub fn init(settings: &LogSettings) {
    // Dependencies at debug or trace level may print what they carry (hyper prints heads): never below warn.
    let filter =
        EnvFilter::try_new(format!("warn,rubicon={}", settings.level)).unwrap_or_else(|_| EnvFilter::new("warn"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| ToLog).with_target(false);
    let ansi = io::stderr().is_terminal();
    let _ = match settings.format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(ansi).try_init(),
    };
}

/// Says one thing to people, as a line of its own whatever the format. Never fails; waits only where no log was started (a command
/// that is about to end).
pub fn say(text: &str) {
    put(format!("{text}\n").into_bytes());
}

/// Waits until everything said so far is written, at most `max`. True if it is.
pub async fn flush(max: Duration) -> bool {
    match LOG.get() {
        Some(lines) => lines.flush(max).await,
        None => true,
    }
}

/// Lines that were not written.
pub(super) fn dropped() -> Counter {
    DROPPED.clone()
}

fn put(line: Vec<u8>) {
    match LOG.get() {
        Some(lines) => lines.line(line),
        None => drop(io::stderr().write_all(&line)),
    }
}

/// Takes one whole line a call, as the subscriber makes them.
struct ToLog;

impl Write for ToLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        put(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

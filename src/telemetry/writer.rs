//! Where event lines go: standard output or error, a file, or nowhere.
//!
//! The lines themselves go through [`Lines`]: no request waits for its line. A file is opened for appending, with mode 0600, and opened
//! anew when the configuration is loaded again, so that logs can be rotated by renaming. Only a regular file is one: a FIFO that
//! nobody reads would keep the relay from starting.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use prometheus_client::metrics::counter::Counter;

use crate::config::settings::EventsTo;

use super::lines::{FLUSH_MAX, Lines};

struct Sink {
    to: EventsTo,
    lines: Lines,
}

/// The writer of one relay.
pub struct EventWriter {
    sink: ArcSwapOption<Sink>,
    dropped: Counter,
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter").field("to", &self.sink.load().as_ref().map(|sink| &sink.to)).finish()
    }
}

impl EventWriter {
    /// Starts writing; `off` starts no thread. `dropped` counts what was not written.
    ///
    /// # Errors
    /// When a file can't be opened or no thread can be had; the message names the file.
    pub fn start(to: &EventsTo, dropped: Counter) -> Result<Self, String> {
        let writer = Self { sink: ArcSwapOption::empty(), dropped };
        writer.direct(to)?;
        Ok(writer)
    }

    /// Writes to `to` from now on; the same file is opened anew. What was queued before goes where it was meant to go.
    ///
    /// # Errors
    /// As [`EventWriter::start`]; nothing changes then.
    pub fn direct(&self, to: &EventsTo) -> Result<(), String> {
        let Some(output) = open(to)? else {
            // The thread writes what it has, and ends.
            self.sink.store(None);
            return Ok(());
        };
        if let Some(sink) = &*self.sink.load()
            && sink.to == *to
        {
            if !matches!(to, EventsTo::File(_)) || sink.lines.switch(output) {
                return Ok(());
            }
            return Err("the event writer is stuck: its file is not opened anew".to_owned());
        }
        let failed = |error: &io::Error| tracing::error!(%error, "event lines can't be written");
        let lines = Lines::start("events", output, self.dropped.clone(), failed)
            .map_err(|error| format!("log.events: no thread to write them: {error}"))?;
        let sink = Sink { to: to.clone(), lines };
        self.sink.store(Some(Arc::new(sink)));
        Ok(())
    }

    /// Whether lines go anywhere: who would make one may spare itself the work.
    pub fn is_on(&self) -> bool {
        self.sink.load().is_some()
    }

    /// Queues one line (without its line end), or drops and counts it. Never waits.
    pub fn line(&self, mut line: Vec<u8>) {
        let sink = self.sink.load();
        let Some(sink) = &*sink else { return };
        line.push(b'\n');
        sink.lines.line(line);
    }

    /// Waits until everything queued so far is written, at most [`FLUSH_MAX`]. True if it is.
    pub async fn flush(&self) -> bool {
        match self.sink.load_full() {
            Some(sink) => sink.lines.flush(FLUSH_MAX).await,
            None => true,
        }
    }
}

fn open(to: &EventsTo) -> Result<Option<Box<dyn Write + Send>>, String> {
    Ok(match to {
        EventsTo::Off => None,
        EventsTo::Stdout => Some(Box::new(io::stdout())),
        EventsTo::Stderr => Some(Box::new(io::stderr())),
        EventsTo::File(path) => {
            let opened = open_file(path);
            Some(Box::new(opened.map_err(|error| format!("log.events: {}: {error}", path.display()))?))
        }
    })
}

/// What is said of a FIFO, a device, a folder.
pub(crate) const NOT_A_FILE: &str = "it exists and is not a regular file";

fn open_file(path: &Path) -> io::Result<std::fs::File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    // Asked before it is opened: that alone would wait for a FIFO's reader.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, NOT_A_FILE));
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_appended_to_kept_private_and_opened_anew() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/events.jsonl");
        let to = EventsTo::File(path.clone());
        let writer = EventWriter::start(&to, Counter::default()).unwrap();
        writer.line(b"one".to_vec());
        assert!(writer.flush().await);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let rotated = folder.path().join("old.jsonl");
        std::fs::rename(&path, &rotated).unwrap();
        writer.line(b"two".to_vec());
        assert!(writer.flush().await);
        writer.direct(&to).unwrap();
        writer.line(b"three".to_vec());
        assert!(writer.flush().await);
        assert_eq!(std::fs::read_to_string(&rotated).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
        let again = EventWriter::start(&to, Counter::default()).unwrap();
        again.line(b"four".to_vec());
        assert!(again.flush().await);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\nfour\n");
        writer.direct(&EventsTo::Off).unwrap();
        assert!(!writer.is_on());
        writer.line(b"five".to_vec());
        assert!(writer.flush().await);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let path = std::path::PathBuf::from("/dev/null/events.jsonl");
        let error = EventWriter::start(&EventsTo::File(path), Counter::default()).unwrap_err();
        assert!(error.contains("/dev/null/events.jsonl"), "{error}");
    }

    /// Opening a FIFO for writing waits for a reader: in a start, and in a reload after somebody put one in the file's place.
    #[tokio::test]
    async fn what_is_not_a_regular_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let to = EventsTo::File(path.clone());
        let fifo = || assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        fifo();
        for path in [path.as_path(), Path::new("/dev/null"), folder.path()] {
            let error = EventWriter::start(&EventsTo::File(path.to_owned()), Counter::default()).unwrap_err();
            assert!(error.contains(&path.display().to_string()) && error.contains(NOT_A_FILE), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        let writer = EventWriter::start(&to, Counter::default()).unwrap();
        let rotated = folder.path().join("old.jsonl");
        std::fs::rename(&path, &rotated).unwrap();
        fifo();
        assert!(writer.direct(&to).unwrap_err().contains(NOT_A_FILE));
        writer.line(b"one".to_vec());
        assert!(writer.flush().await);
        assert_eq!(std::fs::read_to_string(&rotated).unwrap(), "one\n", "it goes on to where it went");
    }
}

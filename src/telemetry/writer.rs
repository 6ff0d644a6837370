//! Event lines on their way out: a thread of its own, a bounded queue, and a count of what was dropped.
//!
//! A request never waits for its line: at a full queue (a pipe that nobody reads, a disk that hangs) the line is dropped and counted.
//! On shutdown the queue is written out within a bound ([`EventWriter::flush`]). A file is opened for appending, with mode 0600, and
//! opened anew when the configuration is loaded again, so that logs can be rotated by renaming.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use crate::clock::Instant;
use crate::config::settings::EventsTo;

/// Lines that may wait. 2,048: a second of a thousand requests a second; with lines of about a kilobyte, 2 MiB.
pub const QUEUE_LINES_MAX: usize = 2048;

/// How long a shutdown waits for the queue to be written.
pub const FLUSH_MAX: Duration = Duration::from_secs(2);

/// A pause between two tries to put the flush into a queue that is full.
const FLUSH_PAUSE: Duration = Duration::from_millis(10);

enum Message {
    Line(Vec<u8>),
    /// Go on with this destination.
    Switch(Box<dyn Write + Send>),
    /// Say when all before it is written.
    Flush(oneshot::Sender<()>),
}

struct Sink {
    to: EventsTo,
    sender: SyncSender<Message>,
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
            if !matches!(to, EventsTo::File(_)) || sink.sender.try_send(Message::Switch(output)).is_ok() {
                return Ok(());
            }
            return Err("the event writer is stuck: its file is not opened anew".to_owned());
        }
        let sink = spawn(to.clone(), output, self.dropped.clone())?;
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
        if sink.sender.try_send(Message::Line(line)).is_err() {
            self.dropped.inc();
        }
    }

    /// Waits until everything queued so far is written, at most [`FLUSH_MAX`]. True if it is.
    pub async fn flush(&self) -> bool {
        let until = Instant::now() + FLUSH_MAX;
        let Some(sink) = self.sink.load_full() else { return true };
        let (done, written) = oneshot::channel();
        let mut message = Message::Flush(done);
        loop {
            match sink.sender.try_send(message) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) if Instant::now() < until => message = back,
                Err(_) => return false,
            }
            tokio::time::sleep(FLUSH_PAUSE).await;
        }
        matches!(tokio::time::timeout_at(until, written).await, Ok(Ok(())))
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

fn open_file(path: &Path) -> io::Result<std::fs::File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn spawn(to: EventsTo, output: Box<dyn Write + Send>, dropped: Counter) -> Result<Sink, String> {
    let (sender, receiver) = sync_channel(QUEUE_LINES_MAX);
    std::thread::Builder::new()
        .name("events".to_owned())
        .spawn(move || write_all(&receiver, output, &dropped))
        .map_err(|error| format!("log.events: no thread to write them: {error}"))?;
    Ok(Sink { to, sender })
}

/// Lines that were taken off the queue and are written with one call.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    lines: u64,
}

/// A batch is written at this size, or when nothing more waits.
const BATCH_BYTES: usize = 64 * 1024;

impl Batch {
    fn write(&mut self, output: &mut dyn Write, dropped: &Counter, failing: &mut bool) {
        if self.lines == 0 {
            return;
        }
        let written = output.write_all(&self.bytes).and_then(|()| output.flush());
        if let Err(error) = &written {
            dropped.inc_by(self.lines);
            if !*failing {
                // Once, not once a line: a full disk would fill the log as well.
                tracing::error!(%error, "event lines can't be written");
            }
        }
        *failing = written.is_err();
        *self = Self::default();
    }
}

fn write_all(receiver: &Receiver<Message>, mut output: Box<dyn Write + Send>, dropped: &Counter) {
    let (mut batch, mut failing) = (Batch::default(), false);
    loop {
        let message = match receiver.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                batch.write(&mut *output, dropped, &mut failing);
                match receiver.recv() {
                    Ok(message) => message,
                    Err(_) => break,
                }
            }
        };
        match message {
            Message::Line(line) => {
                batch.bytes.extend_from_slice(&line);
                batch.lines += 1;
                if batch.bytes.len() >= BATCH_BYTES {
                    batch.write(&mut *output, dropped, &mut failing);
                }
            }
            Message::Switch(next) => {
                batch.write(&mut *output, dropped, &mut failing);
                output = next;
                failing = false;
            }
            Message::Flush(done) => {
                batch.write(&mut *output, dropped, &mut failing);
                let _ = done.send(());
            }
        }
    }
    batch.write(&mut *output, dropped, &mut failing);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Writes nothing until it is let.
    struct Stuck {
        began: mpsc::Sender<()>,
        go: mpsc::Receiver<()>,
        written: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.began.send(());
            let _ = self.go.recv();
            let _ = self.written.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_stuck_destination_costs_lines_and_no_time() {
        let (began_at, began) = mpsc::channel();
        let (go, wait) = mpsc::channel();
        let (written_to, written) = mpsc::channel();
        let dropped = Counter::default();
        let output = Box::new(Stuck { began: began_at, go: wait, written: written_to });
        let sink = spawn(EventsTo::Stdout, output, dropped.clone()).unwrap();
        let writer = EventWriter { sink: ArcSwapOption::from_pointee(sink), dropped: dropped.clone() };
        writer.line(b"first".to_vec());
        began.recv().unwrap();
        // The thread is stuck with the first; the queue takes its bound, and no more.
        for _ in 0..QUEUE_LINES_MAX + 7 {
            writer.line(b"line".to_vec());
        }
        assert_eq!(dropped.get(), 7);
        drop(go);
        assert!(writer.flush().await);
        let all: Vec<u8> = written.try_iter().flatten().collect();
        assert_eq!(all.split(|&byte| byte == b'\n').count() - 1, QUEUE_LINES_MAX + 1);
        assert_eq!(dropped.get(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_does_not_wait_for_ever() {
        let (began_at, began) = mpsc::channel();
        let (_go, wait) = mpsc::channel();
        let (written_to, _written) = mpsc::channel();
        let output = Box::new(Stuck { began: began_at, go: wait, written: written_to });
        let sink = spawn(EventsTo::Stdout, output, Counter::default()).unwrap();
        let writer = EventWriter { sink: ArcSwapOption::from_pointee(sink), dropped: Counter::default() };
        writer.line(b"first".to_vec());
        began.recv().unwrap();
        assert!(!writer.flush().await, "in the queue, never reached");
        for _ in 0..QUEUE_LINES_MAX {
            writer.line(b"line".to_vec());
        }
        assert!(!writer.flush().await, "not even in the queue");
    }

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

    #[tokio::test]
    async fn lines_that_a_destination_refuses_are_counted() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let dropped = Counter::default();
        let sink = spawn(EventsTo::Stdout, Box::new(Full), dropped.clone()).unwrap();
        let writer = EventWriter { sink: ArcSwapOption::from_pointee(sink), dropped: dropped.clone() };
        for _ in 0..3 {
            writer.line(b"line".to_vec());
        }
        assert!(writer.flush().await);
        assert_eq!(dropped.get(), 3);
    }
}

//! Lines on their way out, whether somebody reads them or not: a thread of its own, a bounded queue, and a count of what was dropped.
//!
//! In: whole lines, from any thread. Out: the same lines at their destination, in order. Nobody who has a line to write ever waits or
//! fails: at a full queue (a pipe that nobody reads, a disk that hangs) the line is dropped and counted, and so are lines that the
//! destination refuses (a pipe whose reader has gone, a full disk); the next ones are tried again. Both the event lines
//! ([`EventWriter`](super::writer::EventWriter)) and the log ([`super::log`]) go out this way.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use crate::clock::Instant;

/// Lines that may wait. 2,048: a second of a thousand requests a second.
pub const QUEUE_LINES_MAX: usize = 2048;

/// Their bytes together: lines are about a kilobyte, and a few long ones must not cost memory without bound.
pub const QUEUE_BYTES_MAX: usize = 4 << 20;

/// How long a shutdown waits for the queue to be written.
pub const FLUSH_MAX: Duration = Duration::from_secs(2);

/// A pause between two tries to put the flush into a queue that is full.
const FLUSH_PAUSE: Duration = Duration::from_millis(10);

/// A batch is written at this size, or when nothing more waits.
const BATCH_BYTES: usize = 64 * 1024;

/// What is called at the first failure of a destination, and again at the first after it worked: once, not once a line.
type OnFailure = fn(&io::Error);

enum Message {
    Line(Vec<u8>),
    /// Go on with this destination.
    Switch(Box<dyn Write + Send>),
    /// Say when all before it is written.
    Flush(oneshot::Sender<()>),
}

/// The queue before one thread. When it is dropped the thread writes what it has, and ends.
pub(super) struct Lines {
    sender: SyncSender<Message>,
    /// Bytes in the queue and in the thread's hands.
    bytes: Arc<AtomicUsize>,
    dropped: Counter,
}

impl Lines {
    /// Starts the thread `name`; `dropped` counts what was not written.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(super) fn start(
        name: &str,
        output: Box<dyn Write + Send>,
        dropped: Counter,
        on_failure: OnFailure,
    ) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUE_LINES_MAX);
        let bytes = Arc::new(AtomicUsize::new(0));
        let out = Out { output, bytes: Arc::clone(&bytes), dropped: dropped.clone(), on_failure, failing: false };
        std::thread::Builder::new().name(name.to_owned()).spawn(move || out.run(&receiver))?;
        Ok(Self { sender, bytes, dropped })
    }

    /// Queues one line, its line end included, or drops and counts it. Never waits.
    pub(super) fn line(&self, line: Vec<u8>) {
        let length = line.len();
        let before = self.bytes.fetch_add(length, Ordering::Relaxed);
        let room = before.saturating_add(length) <= QUEUE_BYTES_MAX;
        if !room || self.sender.try_send(Message::Line(line)).is_err() {
            self.bytes.fetch_sub(length, Ordering::Relaxed);
            self.dropped.inc();
        }
    }

    /// Goes on with another destination after what is queued; `false`: the queue is full.
    pub(super) fn switch(&self, output: Box<dyn Write + Send>) -> bool {
        self.sender.try_send(Message::Switch(output)).is_ok()
    }

    /// Waits until everything queued so far is written, at most `max`. True if it is.
    pub(super) async fn flush(&self, max: Duration) -> bool {
        let until = Instant::now() + max;
        let (done, written) = oneshot::channel();
        let mut message = Message::Flush(done);
        loop {
            match self.sender.try_send(message) {
                Ok(()) => break,
                Err(TrySendError::Full(back)) if Instant::now() < until => message = back,
                Err(_) => return false,
            }
            tokio::time::sleep(FLUSH_PAUSE).await;
        }
        matches!(tokio::time::timeout_at(until, written).await, Ok(Ok(())))
    }
}

/// Lines that were taken off the queue and are written with one call.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    lines: u64,
}

/// The thread's side.
struct Out {
    output: Box<dyn Write + Send>,
    bytes: Arc<AtomicUsize>,
    dropped: Counter,
    on_failure: OnFailure,
    failing: bool,
}

impl Out {
    fn run(mut self, receiver: &Receiver<Message>) {
        let mut batch = Batch::default();
        loop {
            let message = match receiver.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    self.write(&mut batch);
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
                        self.write(&mut batch);
                    }
                }
                Message::Switch(next) => {
                    self.write(&mut batch);
                    self.output = next;
                    self.failing = false;
                }
                Message::Flush(done) => {
                    self.write(&mut batch);
                    let _ = done.send(());
                }
            }
        }
        self.write(&mut batch);
    }

    fn write(&mut self, batch: &mut Batch) {
        if batch.lines == 0 {
            return;
        }
        let written = self.output.write_all(&batch.bytes).and_then(|()| self.output.flush());
        self.bytes.fetch_sub(batch.bytes.len(), Ordering::Relaxed);
        if let Err(error) = &written {
            self.dropped.inc_by(batch.lines);
            if !self.failing {
                (self.on_failure)(error);
            }
        }
        self.failing = written.is_err();
        *batch = Batch::default();
    }
}

#[cfg(test)]
mod tests;

//! Destinations that hang, refuse, or come back.

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

fn start(output: impl Write + Send + 'static) -> (Lines, Counter) {
    let dropped = Counter::default();
    (Lines::start("lines", Box::new(output), dropped.clone(), |_| {}).unwrap(), dropped)
}

#[tokio::test]
async fn a_stuck_destination_costs_lines_and_no_time() {
    let (began_at, began) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let (written_to, written) = mpsc::channel();
    let (lines, dropped) = start(Stuck { began: began_at, go: wait, written: written_to });
    lines.line(b"first\n".to_vec());
    began.recv().unwrap();
    // The thread is stuck with the first; the queue takes its bound, and no more.
    for _ in 0..QUEUE_LINES_MAX + 7 {
        lines.line(b"line\n".to_vec());
    }
    assert_eq!(dropped.get(), 7);
    drop(go);
    assert!(lines.flush(FLUSH_MAX).await);
    let all: Vec<u8> = written.try_iter().flatten().collect();
    assert_eq!(all.split(|&byte| byte == b'\n').count() - 1, QUEUE_LINES_MAX + 1);
    assert_eq!(dropped.get(), 7);
}

#[tokio::test]
async fn long_lines_are_bounded_by_their_bytes() {
    let (began_at, began) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    let (written_to, written) = mpsc::channel();
    let (lines, dropped) = start(Stuck { began: began_at, go: wait, written: written_to });
    lines.line(b"x\n".to_vec());
    began.recv().unwrap();
    let long = vec![b'x'; QUEUE_BYTES_MAX / 4];
    for _ in 0..5 {
        lines.line(long.clone());
    }
    assert_eq!(dropped.get(), 2, "three fit beside the first");
    drop(go);
    assert!(lines.flush(FLUSH_MAX).await);
    assert_eq!(written.try_iter().map(|bytes| bytes.len()).sum::<usize>(), 2 + 3 * long.len());
    for _ in 0..4 {
        lines.line(long.clone());
    }
    assert!(lines.flush(FLUSH_MAX).await);
    assert_eq!(dropped.get(), 2, "what was written makes room");
}

#[tokio::test(start_paused = true)]
async fn a_flush_does_not_wait_for_ever() {
    let (began_at, began) = mpsc::channel();
    let (_go, wait) = mpsc::channel();
    let (written_to, _written) = mpsc::channel();
    let (lines, _) = start(Stuck { began: began_at, go: wait, written: written_to });
    lines.line(b"first\n".to_vec());
    began.recv().unwrap();
    assert!(!lines.flush(FLUSH_MAX).await, "in the queue, never reached");
    for _ in 0..QUEUE_LINES_MAX {
        lines.line(b"line\n".to_vec());
    }
    assert!(!lines.flush(FLUSH_MAX).await, "not even in the queue");
}

/// As a pipe whose reader has gone, until one is there again.
struct Refuses {
    times: u32,
    written: mpsc::Sender<Vec<u8>>,
}

impl Write for Refuses {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.times > 0 {
            self.times -= 1;
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let _ = self.written.send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn lines_that_a_destination_refuses_are_counted_and_the_next_are_tried() {
    let (written_to, written) = mpsc::channel();
    let (lines, dropped) = start(Refuses { times: 3, written: written_to });
    for number in 0..4_u8 {
        lines.line(vec![b'0' + number, b'\n']);
        assert!(lines.flush(FLUSH_MAX).await);
    }
    assert_eq!((dropped.get(), written.try_iter().flatten().collect::<Vec<u8>>()), (3, b"3\n".to_vec()));
}

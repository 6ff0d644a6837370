//! Steps to socket: carries out one answer on one connection.
//!
//! In go the steps and the request, out go bytes, and an [`Ending`] that says what becomes of the connection. While an
//! answer is played the connection is also read: that is the only way to notice at once that the peer left during a pause, a
//! gate or a hang. What is read early (a pipelined request) is kept. A peer that only shuts its sending side counts as
//! gone; HTTP clients close both.

use std::future::pending;

use bytes::BytesMut;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::Duration;

use super::canned::{self, Asked};
use super::http::{Request, put, put_chunk, put_head, says_close};
use super::script::{Abort, Answer, Head, Headers, JsonText, Step};
use super::stats::{Counted, Shared};

/// Most bytes read ahead of the running answer; a peer that sends more is no longer read, and its leaving is noticed by the next
/// write alone.
const READ_AHEAD_BYTES_MAX: usize = 64 * 1024;

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It takes the next request.
    KeepAlive,
    /// It is closed in order.
    Close,
    /// It is reset.
    Reset,
    /// The peer closed it.
    PeerLeft,
}

/// How the body is delimited.
enum Body {
    NotBegun,
    Chunked,
    Length { left: u64 },
    UntilClose,
}

struct Player<'a> {
    out: WriteHalf<'a>,
    shared: &'a Shared,
    request: &'a Request,
    asked: &'a Asked,
    body: Body,
    split: usize,
    close_after: bool,
    scratch: Vec<u8>,
    /// The answer is under way.
    under_way: Option<Counted<'a>>,
}

/// Plays an answer to its end, or until the peer leaves.
pub(super) async fn play(
    stream: &mut TcpStream,
    unread: &mut BytesMut,
    shared: &Shared,
    answer: &Answer,
    request: &Request,
    asked: &Asked,
) -> Ending {
    let (read, out) = stream.split();
    let mut player = Player {
        out,
        shared,
        request,
        asked,
        body: Body::NotBegun,
        split: 0,
        close_after: !request.keep_alive,
        scratch: Vec::new(),
        under_way: Some(shared.answer_began()),
    };
    // In this order: an answer that is whole is whole, even if the peer leaves in the same instant.
    tokio::select! {
        biased;
        ending = player.whole(&answer.steps) => ending,
        () = peer_left(read, unread) => Ending::PeerLeft,
    }
}

async fn peer_left(mut read: ReadHalf<'_>, unread: &mut BytesMut) {
    while unread.len() < READ_AHEAD_BYTES_MAX {
        if !matches!(read.read_buf(unread).await, Ok(1..)) {
            return;
        }
    }
    pending().await
}

impl Player<'_> {
    async fn whole(&mut self, steps: &[Step]) -> Ending {
        let played = match self.all_steps(steps).await {
            Ok(()) => self.end().await,
            Err(ending) => Err(ending),
        };
        played.err().unwrap_or(if self.close_after { Ending::Close } else { Ending::KeepAlive })
    }

    async fn all_steps(&mut self, steps: &[Step]) -> Result<(), Ending> {
        let Some((last, before)) = steps.split_last() else { return Ok(()) };
        self.steps(before).await?;
        if !matches!(last, Step::Hang | Step::Gate(_) | Step::DelayMs(_)) {
            self.under_way = None;
        }
        self.step(last).await
    }

    /// Boxed, because steps hold steps. `Err` is an ending before the end.
    fn steps<'b>(&'b mut self, steps: &'b [Step]) -> BoxFuture<'b, Result<(), Ending>> {
        Box::pin(async move {
            for step in steps {
                self.step(step).await?;
            }
            Ok(())
        })
    }

    async fn step(&mut self, step: &Step) -> Result<(), Ending> {
        match step {
            Step::Head(head) => self.head(head).await,
            Step::Event(event) => {
                let name = event.name.as_ref().map_or(String::new(), |name| format!("event: {name}\n"));
                // `split` and not `lines`: an empty data line is one, too.
                let data: String = event.data.split('\n').map(|line| format!("data: {line}\n")).collect();
                self.write(format!("{name}{data}\n").as_bytes()).await?;
                self.shared.event_sent();
                Ok(())
            }
            Step::Text(text) => self.write(text.as_bytes()).await,
            Step::Json(JsonText(json)) => {
                if matches!(self.body, Body::NotBegun) {
                    self.head(&plain_head("application/json", Some(json.len() as u64))).await?;
                }
                self.write(json.as_bytes()).await
            }
            Step::File(path) => self.write(&self.shared.script.file(path)).await,
            Step::Recording(path) => {
                let Some(recording) = self.shared.script.recording(path) else { return Ok(()) };
                self.head(&recording.head).await?;
                self.write(&recording.body).await
            }
            Step::Auto(auto) => {
                let answer = canned::auto(auto, self.asked);
                self.steps(&answer.steps).await
            }
            Step::DelayMs(ms) => {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
                Ok(())
            }
            Step::Split(bytes) => {
                self.split = *bytes;
                Ok(())
            }
            Step::Gate(name) => {
                self.shared.pass_gate(name).await;
                Ok(())
            }
            Step::Hang => pending().await,
            Step::Abort(Abort::Fin) | Step::CloseBeforeHead => Err(Ending::Close),
            Step::Abort(Abort::Rst) => Err(Ending::Reset),
            Step::Repeat(repeat) => {
                for _ in 0..repeat.times {
                    self.steps(&repeat.steps).await?;
                }
                Ok(())
            }
            Step::HalfHead => {
                self.body = Body::UntilClose;
                self.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-str").await
            }
        }
    }

    async fn head(&mut self, head: &Head) -> Result<(), Ending> {
        let mut out = Vec::with_capacity(512);
        put_head(&mut out, head.status, head.reason.as_deref(), &head.headers.0);
        if head.status >= 200 {
            self.body = match head.length {
                Some(left) => Body::Length { left },
                // RFC 9112 6.3: these have no body and no framing.
                None if matches!(head.status, 204 | 304) => Body::Length { left: 0 },
                None if head.until_close || !self.request.chunks => Body::UntilClose,
                None => Body::Chunked,
            };
            match (&self.body, head.length) {
                (Body::Length { .. }, Some(length)) => put(&mut out, format_args!("content-length: {length}\r\n")),
                (Body::Chunked, _) => put(&mut out, format_args!("transfer-encoding: chunked\r\n")),
                _ => {}
            }
            let told = says_close(&head.headers.0);
            self.close_after |= told || matches!(self.body, Body::UntilClose);
            if self.close_after && !told {
                put(&mut out, format_args!("connection: close\r\n"));
            }
        }
        out.extend_from_slice(b"\r\n");
        self.send(&out).await
    }

    /// Body bytes, in the pieces and the framing of the moment.
    async fn write(&mut self, data: &[u8]) -> Result<(), Ending> {
        if matches!(self.body, Body::NotBegun) {
            self.head(&plain_head("text/event-stream", None)).await?;
        }
        if self.split == 0 {
            return self.piece(data).await;
        }
        for piece in data.chunks(self.split) {
            self.piece(piece).await?;
            // Lets the peer run between two pieces where both share a thread, so that it sees them one by one.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn piece(&mut self, data: &[u8]) -> Result<(), Ending> {
        if data.is_empty() {
            return Ok(()); // an empty chunk would be the body's end
        }
        match &mut self.body {
            Body::Chunked => {
                let mut chunk = std::mem::take(&mut self.scratch);
                chunk.clear();
                put_chunk(&mut chunk, data);
                let sent = self.send(&chunk).await;
                self.scratch = chunk;
                sent
            }
            Body::Length { left } => {
                let bytes = data.len() as u64;
                self.close_after |= bytes > *left; // more than announced: nothing can follow on this connection
                *left = left.saturating_sub(bytes);
                self.send(data).await
            }
            Body::NotBegun | Body::UntilClose => self.send(data).await,
        }
    }

    /// The proper end of what was begun.
    async fn end(&mut self) -> Result<(), Ending> {
        match self.body {
            Body::NotBegun => self.head(&plain_head("text/plain", Some(0))).await,
            Body::Chunked => self.send(b"0\r\n\r\n").await,
            Body::Length { left: 0 } => Ok(()),
            Body::Length { .. } | Body::UntilClose => Err(Ending::Close),
        }
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), Ending> {
        self.out.write_all(bytes).await.map_err(|_| Ending::PeerLeft)
    }
}

fn plain_head(content_type: &str, length: Option<u64>) -> Head {
    let headers = Headers(vec![("content-type".to_owned(), content_type.to_owned())]);
    Head { headers, length, ..Head::default() }
}

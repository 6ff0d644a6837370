//! The client's socket as hyper gets it: counts what leaves ([`super::transport`] says why), and bounds what hyper leaves
//! unbounded: a head that never ends, an idle connection, a peer that never reads, a close over unread bytes.
//!
//! The reading half is shared with the [`Transport`], because hyper stops reading where bytes behind a request wait in its buffer,
//! and would not see that client leave. What is read for that is kept and given to hyper first.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Sleep, sleep, sleep_until};
use tokio_util::task::TaskTracker;

use crate::clock::Instant;

use super::transport::{Peer, Transport};

/// A request head must be whole within this (SPEC Annex, Bounds).
const HEAD_MAX: Duration = Duration::from_secs(30);

/// An idle connection is closed after this: longer than the pools of the usual clients (undici 4 s, httpx 5 s, Go 90 s), so
/// that they never reuse a dead one (STREAMS.md 2.3).
const IDLE_MAX: Duration = Duration::from_secs(300);

/// A peer that takes no byte at all for this long while there is something to write has stopped reading.
const WRITE_STALL_MAX: Duration = Duration::from_secs(300);

/// What a lingering close reads and throws away: a client that sends its whole body (32 MiB by default) before it looks at an
/// answer must be able to.
const LINGER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// One read of it.
const LINGER_READ_BYTES: usize = 16 * 1024;

/// How long a lingering close waits for the peer.
const LINGER_MAX: Duration = Duration::from_secs(5);

/// Bytes read ahead of a running request to see whether the client is still there. Beyond it the client's leaving is noticed by
/// the next write only.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// One read of them: there nearly always is none.
const AHEAD_READ_BYTES: usize = 1024;

/// What hyper would read from the peer.
#[derive(Debug)]
struct Incoming<R> {
    read: R,
    /// Read before hyper asked; at most [`AHEAD_BYTES_MAX`].
    ahead: BytesMut,
    /// The peer ended its side, or the socket broke.
    ended: bool,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buf.remaining());
            buf.put_slice(self.ahead.get(..count).unwrap_or_default());
            self.ahead.advance(count);
            return Poll::Ready(Ok(()));
        }
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        let (before, room) = (buf.filled().len(), buf.remaining());
        let result = ready!(Pin::new(&mut self.read).poll_read(cx, buf));
        self.ended = result.is_err() || (room > 0 && buf.filled().len() == before);
        Poll::Ready(result)
    }

    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.ended {
            if self.ahead.len() >= AHEAD_BYTES_MAX {
                return Poll::Pending;
            }
            let mut room = [0; AHEAD_READ_BYTES];
            let mut buf = ReadBuf::new(&mut room);
            let result = ready!(Pin::new(&mut self.read).poll_read(cx, &mut buf));
            self.ended = result.is_err() || buf.filled().is_empty();
            self.ahead.extend_from_slice(buf.filled());
        }
        Poll::Ready(())
    }
}

#[derive(Debug)]
struct Shared<R>(Mutex<Incoming<R>>);

impl<R> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, Incoming<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: AsyncRead + Unpin + Send + std::fmt::Debug> Peer for Shared<R> {
    fn poll_left(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.lock().poll_left(cx)
    }
}

/// What a client's socket must be able to do.
pub trait Socket: Unpin + Send + std::fmt::Debug + 'static {}

impl<T: Unpin + Send + std::fmt::Debug + 'static> Socket for T {}

/// What a stream's head must not say ([`Transport::hide_close`]) …
const SAYS: &[u8] = b"\r\nconnection: close\r\n";

/// … and what stands there instead.
const INSTEAD: &[u8] = b"\r\nrubicon-end: true\r\n";
const _: () = assert!(SAYS.len() == INSTEAD.len());

/// A head whose line was replaced.
struct Without {
    bytes: Vec<u8>,
    /// Where the line begins.
    at: usize,
}

/// The wait of a blocked write.
type Stall = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An accepted socket, in halves.
pub struct ClientIo<R: AsyncRead + Socket = OwnedReadHalf, W: AsyncWrite + Socket = OwnedWriteHalf> {
    incoming: Arc<Shared<R>>,
    /// `None` only while being dropped.
    write: Option<W>,
    transport: Transport,
    tasks: TaskTracker,
    opened: Instant,
    reading: Option<Pin<Box<Sleep>>>,
    writing: Option<Stall>,
    farewell: &'static [u8],
    /// Bytes of [`INSTEAD`] that went out in place of [`SAYS`].
    hidden: usize,
}

impl<R: AsyncRead + Socket, W: AsyncWrite + Socket> std::fmt::Debug for ClientIo<R, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientIo").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl ClientIo {
    /// Wraps a socket; `tasks` owns its lingering close.
    pub fn new(stream: TcpStream, transport: Transport, tasks: TaskTracker) -> Self {
        let (read, write) = stream.into_split();
        Self::of(read, write, transport, tasks)
    }
}

impl<R: AsyncRead + Socket, W: AsyncWrite + Socket> ClientIo<R, W> {
    fn of(read: R, write: W, transport: Transport, tasks: TaskTracker) -> Self {
        let incoming = Arc::new(Shared(Mutex::new(Incoming { read, ahead: BytesMut::new(), ended: false })));
        let weak = Arc::downgrade(&incoming);
        transport.watch(weak);
        Self {
            incoming,
            write: Some(write),
            transport,
            tasks,
            opened: Instant::now(),
            reading: None,
            writing: None,
            farewell: b"",
            hidden: 0,
        }
    }

    fn write(&mut self) -> io::Result<Pin<&mut W>> {
        self.write.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Nothing to read: is this a wait that has a bound?
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shared = &self.transport.0;
        if shared.requests.load(Ordering::Relaxed) > 0 {
            self.reading = None;
            return Poll::Pending;
        }
        let h2 = shared.h2.load(Ordering::Relaxed);
        let first = !shared.seen.load(Ordering::Relaxed);
        let partial = shared.partial.load(Ordering::Relaxed) && !h2;
        let head = first || partial;
        let opened = self.opened;
        let timer = self.reading.get_or_insert_with(|| {
            let until = if first { opened + HEAD_MAX } else { Instant::now() + if head { HEAD_MAX } else { IDLE_MAX } };
            Box::pin(sleep_until(until))
        });
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if partial {
            self.farewell = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// A response head that must not say so without its `connection: close`: another header of the same length stands there, so
    /// that hyper's count of what was written stays right. hyper offers what the socket did not take again as it was, so this
    /// goes on until all of the line is out ([`Self::hid`]).
    fn without_close(&mut self, head: &[u8]) -> Option<Without> {
        if !self.transport.0.hide_close.load(Ordering::Relaxed) {
            return None;
        }
        let (says, instead) = (SAYS.get(self.hidden..)?, INSTEAD.get(self.hidden..)?);
        let end = head.windows(4).position(|four| four == b"\r\n\r\n")?;
        let Some(at) = head.get(..end + 2)?.windows(says.len()).position(|line| line == says) else {
            self.transport.0.hide_close.store(false, Ordering::Relaxed);
            return None;
        };
        let mut bytes = head.to_vec();
        bytes.get_mut(at..at + says.len())?.copy_from_slice(instead);
        Some(Without { bytes, at })
    }

    /// Notes how much of the replaced line the socket took.
    fn hid(&mut self, without: &Without, result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = result {
            self.hidden += count.saturating_sub(without.at);
            if self.hidden >= SAYS.len() {
                self.hidden = 0;
                self.transport.0.hide_close.store(false, Ordering::Relaxed);
            }
        }
    }

    fn wrote(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match result {
            Poll::Ready(Ok(count)) => {
                self.writing = None;
                self.transport.0.written.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let given_up = &self.transport.0.given_up;
                let stall = self.writing.get_or_insert_with(|| {
                    let given_up = given_up.clone();
                    Box::pin(async move {
                        tokio::select! {
                            () = given_up.cancelled_owned() => {}
                            () = sleep(WRITE_STALL_MAX) => {}
                        }
                    })
                });
                stall.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<R: AsyncRead + Socket, W: AsyncWrite + Socket> AsyncRead for ClientIo<R, W> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = this.incoming.lock().poll_read(cx, buf);
        match polled {
            Poll::Ready(result) => {
                let shared = &this.transport.0;
                let idle = shared.requests.load(Ordering::Relaxed) == 0;
                if idle && buf.filled().len() > before && !shared.partial.swap(true, Ordering::Relaxed) {
                    this.reading = None; // From idle to the first byte of a head: another bound.
                }
                Poll::Ready(result)
            }
            Poll::Pending => this.poll_waiting(cx),
        }
    }
}

impl<R: AsyncRead + Socket, W: AsyncWrite + Socket> AsyncWrite for ClientIo<R, W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = match this.without_close(buf) {
            Some(without) => {
                let result = this.write()?.poll_write(cx, &without.bytes);
                this.hid(&without, &result);
                result
            }
            None => this.write()?.poll_write(cx, buf),
        };
        this.wrote(cx, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = match bufs.iter().find(|buf| !buf.is_empty()).and_then(|head| this.without_close(head)) {
            Some(without) => {
                let result = this.write()?.poll_write(cx, &without.bytes);
                this.hid(&without, &result);
                result
            }
            None => this.write()?.poll_write_vectored(cx, bufs),
        };
        this.wrote(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.write()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().write()?.poll_shutdown(cx)
    }
}

impl<R: AsyncRead + Socket, W: AsyncWrite + Socket> Drop for ClientIo<R, W> {
    /// The socket must not be reset while data is queued: bytes of the client that nobody read would make the kernel do just that,
    /// and an error frame or a refusal would be lost. So: end our side, read away what still comes, bounded, then close.
    fn drop(&mut self) {
        let shared = &self.transport.0;
        // What is no request (`partial`) hyper has answered by itself, and read no further.
        let wanted = shared.linger.load(Ordering::Relaxed) || shared.partial.load(Ordering::Relaxed);
        let Some(mut write) = self.write.take().filter(|_| wanted && !self.incoming.lock().ended) else { return };
        if tokio::runtime::Handle::try_current().is_err() {
            return; // The runtime is gone, the process ends.
        }
        let (farewell, incoming) = (self.farewell, Arc::clone(&self.incoming));
        self.tasks.spawn(async move {
            let close = async {
                write.write_all(farewell).await?;
                write.shutdown().await?;
                let mut away = LINGER_BYTES_MAX;
                let mut sink = vec![0; LINGER_READ_BYTES];
                loop {
                    let mut buf = ReadBuf::new(&mut sink);
                    std::future::poll_fn(|cx| incoming.lock().poll_read(cx, &mut buf)).await?;
                    away = away.saturating_sub(u64::try_from(buf.filled().len()).unwrap_or(u64::MAX));
                    if buf.filled().is_empty() || away == 0 {
                        return io::Result::Ok(());
                    }
                }
            };
            // Whatever comes of it, the socket is closed after this.
            let _ = tokio::time::timeout(LINGER_MAX, close).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, DuplexStream, ReadHalf, WriteHalf, duplex};
    use tokio::time::timeout;

    use super::*;

    type Io = ClientIo<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

    fn connected(kernel: usize) -> (DuplexStream, Io, Transport, TaskTracker) {
        let (client, server) = duplex(kernel);
        let (read, write) = tokio::io::split(server);
        let (transport, tasks) = (Transport::default(), TaskTracker::new());
        (client, ClientIo::of(read, write, transport.clone(), tasks.clone()), transport, tasks)
    }

    /// Reads until it fails, and says after how many seconds.
    async fn given_up_after(io: &mut Io) -> u64 {
        let began = Instant::now();
        let mut buf = [0; 64];
        loop {
            match io.read(&mut buf).await {
                Ok(0) => panic!("an end in order"),
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                    return began.elapsed().as_secs();
                }
            }
        }
    }

    async fn all(mut client: DuplexStream) -> String {
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_never_ends_is_answered_with_408() {
        for trickle in [false, true] {
            let (mut client, mut io, _, _) = connected(1024);
            client.write_all(b"POST /v1/messages HT").await.unwrap();
            let (mut more, mut write) = tokio::io::split(client);
            let trickling = tokio::spawn(async move {
                while trickle && write.write_all(b"x").await.is_ok() {
                    sleep(Duration::from_secs(7)).await;
                }
                write
            });
            assert_eq!(given_up_after(&mut io).await, 30, "whether or not bytes come");
            drop(io);
            let mut text = String::new();
            more.read_to_string(&mut text).await.unwrap();
            assert!(text.starts_with("HTTP/1.1 408 ") && text.contains("connection: close"), "{text}");
            drop(trickling.await.unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_byte_is_closed_without_a_word() {
        let (client, mut io, _, _) = connected(1024);
        assert_eq!(given_up_after(&mut io).await, 30);
        drop(io);
        assert_eq!(all(client).await, "");
    }

    #[tokio::test(start_paused = true)]
    async fn between_requests_it_may_be_idle_for_long_but_a_head_may_not_take_long() {
        let (mut client, mut io, transport, _) = connected(1024);
        client.write_all(b"a head").await.unwrap();
        assert_eq!(io.read(&mut [0; 64]).await.unwrap(), 6);
        // Even where the request is over before anything else is read.
        drop(transport.begin(false));
        let mut buf = [0; 64];
        assert!(timeout(Duration::from_secs(290), io.read(&mut buf)).await.is_err(), "idle");
        client.write_all(b"half a").await.unwrap();
        assert_eq!(given_up_after(&mut io).await, 30);
        drop(io);
        assert!(all(client).await.starts_with("HTTP/1.1 408 "));

        let (client, mut io, transport, _) = connected(1024);
        drop(transport.begin(false));
        assert_eq!(given_up_after(&mut io).await, 300);
        drop(io);
        assert_eq!(all(client).await, "");
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_request_runs_silence_is_no_fault() {
        let (_client, mut io, transport, _) = connected(1024);
        let running = transport.begin(false);
        assert!(timeout(Duration::from_secs(100_000), io.read(&mut [0; 64])).await.is_err());
        drop(running);
        assert_eq!(given_up_after(&mut io).await, 300);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (_client, mut io, transport, _) = connected(16);
        let _running = transport.begin(false);
        let began = Instant::now();
        let error = io.write_all(&[b'x'; 64]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, 300));
    }

    /// However little of it the socket takes at a time; and only in the head, and only where it is asked for.
    #[tokio::test(start_paused = true)]
    async fn a_head_is_written_without_its_close() {
        const HEAD: &str = "HTTP/1.1 200 OK\r\na: b\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
        const LAST: &str = "HTTP/1.1 200 OK\r\na: b\r\nconnection: close\r\n\r\n";
        const BODY: &str = "9\r\n\r\nconnection: close\r\n\r\n";
        let mut asks = http::HeaderMap::new();
        asks.insert("connection", "close".parse().unwrap());
        for kernel in [1, 2, 7, 20, 30, 45, 60, 1024] {
            for head in [HEAD, LAST] {
                for hide in [true, false] {
                    for vectored in [true, false] {
                        let (client, mut io, transport, _) = connected(kernel);
                        let _running = transport.begin(false);
                        if hide {
                            transport.hide_close(&asks);
                        }
                        let got = tokio::spawn(all(client));
                        for bytes in [head, BODY] {
                            let mut rest = bytes.as_bytes();
                            while !rest.is_empty() {
                                let count = if vectored {
                                    io.write_vectored(&[io::IoSlice::new(b""), io::IoSlice::new(rest)]).await
                                } else {
                                    tokio::io::AsyncWriteExt::write(&mut io, rest).await
                                };
                                rest = &rest[count.unwrap()..];
                            }
                        }
                        drop(io);
                        let head =
                            if hide { head.replace("connection: close", "rubicon-end: true") } else { head.to_owned() };
                        assert_eq!(got.await.unwrap(), format!("{head}{BODY}"), "{kernel} bytes at a time");
                    }
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_read_to_see_whether_the_client_is_there_is_not_lost() {
        let (mut client, mut io, transport, _) = connected(1 << 20);
        let running = transport.begin(false);
        let left = async |transport: &Transport| {
            timeout(Duration::from_secs(1), transport.while_there(std::future::pending::<()>())).await.is_ok()
        };
        assert!(!left(&transport).await);
        let ahead: Vec<u8> = (0..5000u32).flat_map(u32::to_le_bytes).collect();
        client.write_all(&ahead).await.unwrap();
        assert!(!left(&transport).await);
        client.write_all(b"and more").await.unwrap();
        assert!(!left(&transport).await);
        client.shutdown().await.unwrap();
        assert!(left(&transport).await);
        drop(running);
        let mut seen = Vec::new();
        io.read_to_end(&mut seen).await.unwrap();
        assert_eq!(seen, [&ahead[..], b"and more"].concat());

        // The bound: what is not read can't be looked behind.
        let (mut client, _io, transport, _) = connected(1 << 20);
        client.write_all(&vec![0; AHEAD_BYTES_MAX + 1024]).await.unwrap();
        drop(client);
        assert!(!left(&transport).await);

        // Over HTTP/2 nothing is taken away from hyper.
        let (mut client, mut io, transport, _) = connected(1024);
        let _running = transport.begin(true);
        client.write_all(b"a frame").await.unwrap();
        drop(client);
        assert!(!left(&transport).await);
        assert_eq!(io.read(&mut [0; 64]).await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lingering_close_reads_away_what_comes_and_ends_in_any_case() {
        for (lingers, ends) in [(true, true), (true, false), (false, true)] {
            let (mut client, mut io, transport, tasks) = connected(1024);
            drop(transport.begin(false));
            if lingers {
                transport.linger();
            }
            io.write_all(b"refused").await.unwrap();
            drop(io);
            assert_eq!(tasks.len(), usize::from(lingers));
            let began = Instant::now();
            assert_eq!(client.write_all(&[0; 100_000]).await.is_ok(), lingers, "more than the kernel holds");
            if ends {
                client.shutdown().await.unwrap();
            }
            tasks.close();
            tasks.wait().await;
            assert_eq!(began.elapsed().as_secs(), if ends { 0 } else { 5 });
            assert_eq!(all(client).await, "refused");
        }
    }
}

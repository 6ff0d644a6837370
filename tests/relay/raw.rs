//! A client below the HTTP libraries: a socket that leaves, stalls and talks nonsense as it is told.

use std::net::SocketAddr;

use rubicon::protocol::Dialect;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{PATIENCE, path};

/// One connection and everything that came over it.
pub(crate) struct Raw {
    stream: TcpStream,
    pub(crate) got: Vec<u8>,
}

impl Raw {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = timeout(PATIENCE, TcpStream::connect(address)).await.expect("in time").expect("a connection");
        stream.set_nodelay(true).expect("an open socket");
        Self { stream, got: Vec::new() }
    }

    /// Opens and sends a whole request of a dialect. `headers`: whole lines with their ends.
    pub(crate) async fn post(address: SocketAddr, dialect: Dialect, headers: &str, body: &str) -> Self {
        let mut raw = Self::open(address).await;
        raw.write(message(dialect, address, headers, body).as_bytes()).await;
        raw
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("an open socket");
    }

    /// Writes as much as the other side takes; false: it closed.
    pub(crate) async fn try_write(&mut self, bytes: &[u8]) -> bool {
        timeout(PATIENCE, self.stream.write_all(bytes)).await.expect("in time").is_ok()
    }

    /// Reads until `needle` came.
    pub(crate) async fn read_until(&mut self, needle: &str) {
        let mut from = 0;
        loop {
            let fresh = self.got.get(from..).unwrap_or_default();
            if fresh.windows(needle.len()).any(|window| window == needle.as_bytes()) {
                return;
            }
            from = self.got.len().saturating_sub(needle.len());
            let read = timeout(PATIENCE, self.stream.read_buf(&mut self.got)).await;
            let read = read.unwrap_or_else(|_| panic!("{needle:?} did not come: {}", self.text()));
            assert!(matches!(read, Ok(1..)), "{needle:?} did not come: {read:?}, {}", self.text());
        }
    }

    /// Reads to the end of the connection. True: it was closed in order; false: reset.
    pub(crate) async fn read_to_end(&mut self) -> bool {
        let read = timeout(PATIENCE, self.stream.read_to_end(&mut self.got)).await;
        read.unwrap_or_else(|_| panic!("no end came after: {}", self.text())).is_ok()
    }

    /// What came, as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.got).into_owned()
    }

    /// The status code of the first answer; 0 where none came.
    pub(crate) fn status(&self) -> u16 {
        self.text().split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// What follows the first answer's head.
    pub(crate) fn body(&self) -> String {
        self.text().split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }

    /// Ends the sending side only.
    pub(crate) async fn half_close(&mut self) {
        self.stream.shutdown().await.expect("an open socket");
    }

    /// Resets the connection.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().expect("an open socket");
    }
}

/// A whole HTTP/1.1 request.
pub(crate) fn message(dialect: Dialect, address: SocketAddr, headers: &str, body: &str) -> String {
    let (path, length) = (path(dialect), body.len());
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
}

//! A scripted tool: a raw TCP server that notes every request it gets, byte for byte, and plays one script a connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::harness::PATIENCE;

/// What one connection does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Reads the whole request, answers with these bytes, and waits for another request on the same connection.
    Answer(String),
    /// Reads it, answers with these bytes, and closes.
    AnswerAndClose(String),
    /// Reads it, answers with these bytes, and resets.
    AnswerAndReset(String),
    /// Closes without reading.
    CloseAtOnce,
    /// Reads so many bytes and resets.
    ReadAndReset(usize),
    /// Reads the whole request and says nothing more.
    Hang,
    /// Waits for the word ([`ToolServer::go`]) before it answers.
    AnswerOnGo(String),
}

/// The server.
pub(crate) struct ToolServer {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<usize>>,
    script: Arc<Mutex<Vec<Act>>>,
    go: Arc<tokio::sync::Notify>,
    _accept: AbortOnDropHandle<()>,
}

/// A JSON answer with its length.
pub(crate) fn answer(status: u16, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json; a=b\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl ToolServer {
    /// Plays one act a connection, the last one for ever.
    pub(crate) async fn start(script: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (requests, connections) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<usize>>::default());
        let (script, go) = (Arc::new(Mutex::new(script)), Arc::new(tokio::sync::Notify::new()));
        let accept = {
            let (requests, connections) = (Arc::clone(&requests), Arc::clone(&connections));
            let (script, go) = (Arc::clone(&script), Arc::clone(&go));
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let act = {
                        let mut count = connections.lock().expect("a lock");
                        let script = script.lock().expect("a lock");
                        let act = script.get(*count).or_else(|| script.last()).cloned().expect("an act");
                        *count += 1;
                        act
                    };
                    tokio::spawn(play(stream, act, Arc::clone(&requests), Arc::clone(&go)));
                }
            })
        };
        Self { address, requests, connections, script, go, _accept: AbortOnDropHandle::new(accept) }
    }

    /// One answer to everything.
    pub(crate) async fn always(status: u16, body: &str) -> Self {
        Self::start(vec![Act::Answer(answer(status, body))]).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Whole requests that came, in order.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("a lock").clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().expect("a lock")
    }

    /// Another script for connections from now on.
    pub(crate) fn play(&self, act: Act) {
        *self.script.lock().expect("a lock") = vec![act];
    }

    /// One connection that waits may answer.
    pub(crate) fn go(&self) {
        self.go.notify_one();
    }

    /// Waits until so many requests are there.
    pub(crate) async fn until_requests(&self, count: usize) {
        let there = async {
            while self.requests().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, there).await.expect("the requests come");
    }
}

async fn play(mut stream: TcpStream, act: Act, requests: Arc<Mutex<Vec<String>>>, go: Arc<tokio::sync::Notify>) {
    match act {
        Act::CloseAtOnce => return,
        Act::ReadAndReset(bytes) => {
            let mut got = vec![0; bytes];
            let _ = stream.read_exact(&mut got).await;
            stream.set_zero_linger().expect("a socket");
            return;
        }
        _ => {}
    }
    while let Some(request) = read(&mut stream).await {
        requests.lock().expect("a lock").push(request);
        match &act {
            Act::Answer(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
            }
            Act::AnswerOnGo(bytes) => {
                go.notified().await;
                let _ = stream.write_all(bytes.as_bytes()).await;
            }
            Act::AnswerAndClose(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                let _ = stream.shutdown().await;
                return;
            }
            Act::AnswerAndReset(bytes) => {
                let _ = stream.write_all(bytes.as_bytes()).await;
                stream.set_zero_linger().expect("a socket");
                return;
            }
            Act::Hang | Act::CloseAtOnce | Act::ReadAndReset(_) => {}
        }
    }
}

/// One whole request; none at the end of the connection.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut got = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&got).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.parse().expect("a length"));
            if body.len() >= length {
                return Some(text);
            }
        }
        if stream.read_buf(&mut got).await.ok()? == 0 {
            return None;
        }
    }
}

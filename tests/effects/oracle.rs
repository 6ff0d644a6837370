//! The effect oracle: a tool server that counts what it did, durably, whoever asked and however often.
//!
//! An effect is a line in a file, on the disk before anything is answered. Arguments name the intent and how the server misbehaves
//! afterwards; a status query tells by `Idempotency-Key` whether something was done. Raw sockets, since the misbehaviour is the point.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Largest request that is read: the driver's are a few hundred bytes.
const REQUEST_MAX: usize = 64 * 1024;

/// How the tool misbehaves; `arguments.fault`.
pub(crate) const FAULTS: [&str; 7] = ["none", "slow", "drop_before", "drop_after", "half", "error", "refuse"];

/// One thing done.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) intent: String,
    pub(crate) key: String,
}

struct Shared {
    file: Mutex<std::fs::File>,
    /// Effects by the key that the caller sent.
    by_key: Mutex<HashMap<String, u32>>,
    /// Told when an effect with `fault = "hold"` is done and nothing of its answer will be sent.
    held: Notify,
}

/// The server.
#[derive(Clone)]
pub(crate) struct Oracle {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Oracle {
    pub(crate) async fn start(log: &Path) -> Self {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("a file for effects");
        let shared = Arc::new(Shared { file: Mutex::new(file), by_key: Mutex::default(), held: Notify::new() });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&server);
                tokio::spawn(async move {
                    // A caller that was killed is no failure of the server.
                    let _ = serve(stream, &shared).await;
                });
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Waits until an effect with `fault = "hold"` is done.
    pub(crate) async fn held(&self) {
        self.shared.held.notified().await;
    }
}

/// All effects in the file.
pub(crate) fn effects(log: &Path) -> Vec<Effect> {
    let text = std::fs::read_to_string(log).expect("the effects");
    let one = |line: &str| {
        let (intent, key) = line.split_once(' ').expect("intent and key");
        Effect { intent: intent.to_owned(), key: key.to_owned() }
    };
    // The last line may be half written: the oracle goes on while its book is read.
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(one).collect()
}

impl Shared {
    /// Does it, and lets it be known only once it is on the disk.
    fn act(&self, intent: &str, key: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(file, "{intent} {key}").expect("an effect");
        file.sync_data().expect("an effect on disk");
        *self.by_key.lock().unwrap_or_else(PoisonError::into_inner).entry(key.to_owned()).or_default() += 1;
    }

    fn done(&self, key: &str) -> u32 {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied().unwrap_or_default()
    }
}

struct Request {
    path: String,
    key: String,
    body: Vec<u8>,
}

async fn read(stream: &mut TcpStream) -> std::io::Result<Option<Request>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let header = |name: &str| {
                head.lines().skip(1).find_map(|line| {
                    let (found, value) = line.split_once(':')?;
                    found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
                })
            };
            let length: usize = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let key = header("idempotency-key").unwrap_or_default();
                return Ok(Some(Request { path, key, body: bytes[end + 4..end + 4 + length].to_vec() }));
            }
        }
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await?;
        if count == 0 || bytes.len() > REQUEST_MAX {
            return Ok(None);
        }
        bytes.extend_from_slice(&part[..count]);
    }
}

async fn answer(stream: &mut TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
    stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes()).await
}

/// One request a connection; without a whole request nothing is done.
async fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let Some(request) = read(&mut stream).await? else { return Ok(()) };
    if let Some(key) = request.path.strip_prefix("/status/") {
        let state = if shared.done(key) > 0 { "done" } else { "absent" };
        return answer(&mut stream, "200 OK", &format!("{{\"state\":\"{state}\"}}")).await;
    }
    let arguments: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let (intent, fault) = (arguments["intent"].as_str(), arguments["fault"].as_str().unwrap_or("none"));
    let Some(intent) = intent else { return answer(&mut stream, "400 Bad Request", "{}").await };
    match fault {
        "drop_before" => return Ok(()),
        "refuse" => return answer(&mut stream, "429 Too Many Requests", "{\"error\":\"later\"}").await,
        _ => shared.act(intent, &request.key),
    }
    let done = format!("{{\"charged\":\"{intent}\",\"padding\":\"{}\"}}", "x".repeat(2000));
    match fault {
        "drop_after" => Ok(()),
        "hold" => {
            shared.held.notify_one();
            // Until the caller is gone: nothing of an answer is ever sent.
            let mut rest = [0; 16];
            let _ = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut rest)).await;
            Ok(())
        }
        "half" => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", done.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&done.as_bytes()[..done.len() / 2]).await
        }
        "error" => answer(&mut stream, "500 Internal Server Error", "{\"error\":\"oops\"}").await,
        "slow" => {
            tokio::time::sleep(Duration::from_millis(80)).await;
            answer(&mut stream, "200 OK", &done).await
        }
        _ => answer(&mut stream, "200 OK", &done).await,
    }
}

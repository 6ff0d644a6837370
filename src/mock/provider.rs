//! The scripted provider as a running thing: listener, connections, and what its owner can ask.
//!
//! In goes a script, out comes an address. Every task belongs to the provider: dropping it, or [`MockProvider::stop`], ends the
//! listener and all connections. Faults are the script's business ([`play`](super::play)); this file is plain.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::canned::Asked;
use super::http::{self, Request};
use super::play::{Ending, play};
use super::script::Script;
use super::stats::{Seen, Shared, Stats};
use super::{admin, http::RequestFault};

/// Most connections at a time; more are closed as they come. Above what one loopback client has ports for.
const CONNECTIONS_MAX: usize = 32_768;

/// Pause after a failed accept (out of descriptors, mostly), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A running scripted provider.
///
/// ```no_run
/// # async fn f() -> std::io::Result<()> {
/// use rubicon::mock::{Answer, MockProvider, Script, chat_text};
/// let mock = MockProvider::start(Script::one(chat_text(&["Hel", "lo"]))).await?;
/// let url = format!("{}/v1/chat/completions", mock.base_url());
/// // … let something call `url` …
/// mock.wait_for(|stats| stats.calls == 1).await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MockProvider {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
    listener: AbortOnDropHandle<()>,
}

impl MockProvider {
    /// Reads the script's files, binds and serves. Must be called on a tokio runtime with IO and time.
    ///
    /// # Errors
    /// `InvalidInput`, carrying [`ScriptProblems`](super::ScriptProblems), when the script cannot be played; otherwise what
    /// binding says.
    pub async fn start(script: Script) -> io::Result<Self> {
        let listen = script.listen;
        let prepared = script.prepare().map_err(|problems| io::Error::new(io::ErrorKind::InvalidInput, problems))?;
        let listener = TcpListener::bind(listen).await?;
        let addr = listener.local_addr()?;
        let (shared, stop) = (Arc::new(Shared::new(prepared)), CancellationToken::new());
        let task = tokio::spawn(accept(listener, Arc::clone(&shared), stop.clone()));
        Ok(Self { addr, shared, stop, listener: AbortOnDropHandle::new(task) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://ADDR`, without a slash at the end.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// All counters.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Requests so far, those no rule fits included.
    pub fn calls(&self) -> u64 {
        self.stats().calls
    }

    /// Requests a rule has answered; 0 for a rule the script does not have.
    pub fn calls_of(&self, rule: &str) -> u64 {
        self.stats().by_rule.get(rule).copied().unwrap_or(0)
    }

    /// Events written whole.
    pub fn events_sent(&self) -> u64 {
        self.stats().events_sent
    }

    /// Answers whose peer left before they were sent whole.
    pub fn disconnects(&self) -> u64 {
        self.stats().disconnects
    }

    /// The most answers that were under way at once ([`Stats::most_answering`]).
    pub fn most_answering(&self) -> u64 {
        self.stats().most_answering
    }

    /// Open connections.
    pub fn active_connections(&self) -> u64 {
        self.stats().active_connections
    }

    /// The latest requests, oldest first: up to [`SEEN_MAX`](super::SEEN_MAX).
    pub fn requests(&self) -> Vec<Seen> {
        self.shared.seen()
    }

    /// Lets `permits` waits at this gate pass, now or later. False where the script has no such gate.
    pub fn open_gate(&self, name: &str, permits: usize) -> bool {
        self.shared.open_gate(name, permits)
    }

    /// Waits until the counters fulfil a condition, and gives them. Wakes on every change and never polls by time; it
    /// waits for ever if the condition never comes, so tests put a generous timeout around it.
    pub async fn wait_for(&self, until: impl FnMut(&Stats) -> bool) -> Stats {
        self.shared.wait_for(until).await
    }

    /// Back to the start: no request seen, every rule at its first answer, every gate shut. Running answers go on.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// Closes the port and every connection, and returns when they are closed: from then on connecting is refused.
    pub async fn stop(self) {
        self.stop.cancel();
        // An error would be the task's own panic or cancellation: it is gone either way.
        let _ = self.listener.await;
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < CONNECTIONS_MAX => {
                    connections.spawn(connection(stream, Arc::clone(&shared)));
                }
                Ok(_) => {} // dropped, and so closed
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn connection(mut stream: TcpStream, shared: Arc<Shared>) {
    let _open = shared.connection_opened();
    // An event must leave when it is written; if the option cannot be set the connection is dead, and reading says so.
    let _ = stream.set_nodelay(true);
    let mut unread = BytesMut::new();
    loop {
        let request = match http::read_request(&mut stream, &mut unread).await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(fault) => return refuse(&mut stream, &fault).await,
        };
        let ending = match request.path.strip_prefix(admin::PREFIX) {
            Some(path) => {
                let (status, body) = admin::answer(&shared, &request, path);
                whole(&mut stream, &request, status, &body).await
            }
            None => answer(&mut stream, &mut unread, &shared, &request).await,
        };
        match ending {
            Ending::KeepAlive => {}
            Ending::Close => {
                let _ = stream.shutdown().await;
                return;
            }
            Ending::Reset => {
                let _ = stream.set_zero_linger();
                return;
            }
            Ending::PeerLeft => return,
        }
    }
}

async fn answer(stream: &mut TcpStream, unread: &mut BytesMut, shared: &Shared, request: &Request) -> Ending {
    let asked = read_asked(&request.body);
    let Some(answer) = shared.take_call(request, &asked) else {
        let model = asked.model.as_deref().unwrap_or("none");
        let message = format!("no rule of the mock fits {} {} with model {model}", request.method, request.path);
        let error =
            serde_json::json!({"error": {"message": message, "type": "mock_unmatched", "code": "mock_unmatched"}});
        return whole(stream, request, 404, &error).await;
    };
    let ending = play(stream, unread, shared, answer, request, &asked).await;
    if ending == Ending::PeerLeft {
        shared.peer_left();
    }
    ending
}

async fn whole(stream: &mut TcpStream, request: &Request, status: u16, body: &serde_json::Value) -> Ending {
    let close = !request.keep_alive;
    match stream.write_all(&http::json_answer(status, &body.to_string(), close)).await {
        Err(_) => Ending::PeerLeft,
        Ok(()) if close => Ending::Close,
        Ok(()) => Ending::KeepAlive,
    }
}

async fn refuse(stream: &mut TcpStream, fault: &RequestFault) {
    let Some((status, what)) = fault.answer() else { return };
    let error = serde_json::json!({"error": {"message": what, "type": "mock_bad_request", "code": "mock_bad_request"}});
    let _ = stream.write_all(&http::json_answer(status, &error.to_string(), true)).await;
    let _ = stream.shutdown().await;
}

/// What a body asks for; a body that is not JSON, or not of this form, asks for nothing and fits rules without a model.
fn read_asked(body: &[u8]) -> Asked {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        model: Option<Cow<'a, str>>,
        stream: Option<bool>,
        stream_options: Option<Options>,
    }
    #[derive(Deserialize)]
    struct Options {
        include_usage: Option<bool>,
    }
    let Ok(body) = serde_json::from_slice::<Body<'_>>(body) else { return Asked::default() };
    Asked {
        model: body.model.map(Cow::into_owned),
        stream: body.stream.unwrap_or(false),
        include_usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
    }
}

//! One HTTP/1.1 request on a connection of its own.
//!
//! In: where, what, until when. Out: [`Seen`]: how far the sending came, how it ended, the answer or as much of it as came. hyper's
//! connection is used below any client: there is no pool, so no request can meet a kept connection that is just dying, and nothing here
//! can send a second time, follow a redirect, or send early data (`no_hidden_resend` in `tests/relay/tools.rs`). The exchange is driven
//! in the caller's own task: dropping it ends the connection.

use std::future::{Future as _, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rubicon_ledger::{Canonical, failpoint};
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use crate::classify::retry_after::asked_wait;
use crate::clock::{Instant, UnixMillis};
use crate::upstream::connect::{ConnectError, Connector};

use super::base64;
use super::progress::{Counts, Progress, Watched, socket};
use super::verdict::{End, Framing, Whole};

/// An answer's head (SPEC.md Annex, Bounds).
pub const HEAD_BYTES_MAX: usize = 256 * 1024;

/// An answer's body (SPEC.md Annex, Bounds: 8 MiB).
pub const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// As much of an answer that is no result goes into the evidence. 256 KiB: one page of a record's evidence must stay readable, and the
/// canonical text of a fact is bounded by 1 MiB.
pub const EVIDENCE_BODY_BYTES_MAX: usize = 256 * 1024;

/// What is to be sent.
#[derive(Debug, Clone)]
pub struct Order {
    /// Where.
    pub url: Uri,
    /// How.
    pub method: Method,
    /// With what, save `Host` and `Content-Length`.
    pub headers: HeaderMap,
    /// The body; empty: none.
    pub body: Bytes,
    /// From the connect to the last byte of the answer.
    pub timeout: Duration,
    /// Most bytes of the answer's body.
    pub body_max: usize,
}

/// What was seen of an exchange.
#[derive(Debug, Clone)]
pub struct Seen {
    /// How it ended.
    pub end: End,
    /// Whom it was connected to.
    pub address: Option<SocketAddr>,
    /// What went over it.
    pub counts: Counts,
    /// The whole request left.
    pub request_complete: bool,
    /// When it was over, in milliseconds from the start.
    pub closed_ms: u64,
    /// The answer's status, if its head came.
    pub status: Option<u16>,
    /// Its type, as sent.
    pub content_type: Option<Arc<str>>,
    /// How long to wait, where a 429 or 503 says so.
    pub retry_after: Option<Duration>,
    /// As much of its body as came.
    pub body: Bytes,
    /// How its end is known.
    pub framing: Framing,
    /// What went wrong, in the words of whoever noticed.
    pub error: Option<String>,
}

impl Seen {
    /// The answer, if it is whole.
    #[must_use]
    pub fn whole(&self) -> Option<Whole<'_>> {
        let status = self.status.filter(|_| self.end == End::Complete)?;
        Some(Whole { status, body: &self.body, framing: self.framing })
    }

    /// As canonical JSON, for the record's evidence. `with_body`: the answer's bytes too, up to [`EVIDENCE_BODY_BYTES_MAX`].
    #[must_use]
    pub fn evidence(&self, with_body: bool) -> Arc<str> {
        let counts = &self.counts;
        let mut json = serde_json::json!({
            "address": self.address.map(|address| address.to_string()),
            "connect_ms": counts.connect_ms,
            "bytes_sent": counts.bytes_sent,
            "first_sent_ms": counts.first_sent_ms,
            "last_sent_ms": counts.last_sent_ms,
            "request_complete": self.request_complete,
            "first_byte_ms": counts.first_byte_ms,
            "status": self.status,
            "bytes_received": counts.bytes_received,
            "closed_ms": self.closed_ms,
            "error": self.error,
        });
        if let (true, Some(members)) = (with_body && self.status.is_some(), json.as_object_mut()) {
            let kept = self.body.get(..EVIDENCE_BODY_BYTES_MAX).unwrap_or(&self.body);
            members.insert("content_type".to_owned(), self.content_type.as_deref().into());
            members.insert("body_base64".to_owned(), base64::encode(kept).into());
            members.insert("body_bytes".to_owned(), self.body.len().into());
        }
        let text = json.to_string();
        Canonical::parse(text.as_bytes()).map_or_else(|_| Arc::from("{}"), |canonical| Arc::from(canonical.as_str()))
    }
}

/// As much of the answer as came, readable after the exchange was dropped.
#[derive(Debug, Default)]
struct Partial {
    address: Option<SocketAddr>,
    status: Option<u16>,
    content_type: Option<Arc<str>>,
    retry_after: Option<Duration>,
    until_close: bool,
    body: BytesMut,
    error: Option<String>,
}

/// Sends one request, once. `stop`: ends it early.
pub async fn send(tls: &rustls::ClientConfig, order: Order, stop: &CancellationToken) -> Seen {
    let start = Instant::now();
    let (timeout, body_max) = (order.timeout, order.body_max);
    let mut connector = Connector::new(tls, timeout);
    let url = order.url.clone();
    let (request, total) = request_of(order);
    let progress = Progress::new(start, total);
    let mut partial = Partial::default();
    let end = {
        let watched = progress.clone();
        let partial = &mut partial;
        let exchange = async move {
            let stream = match connector.call(url).await {
                Ok(stream) => stream,
                Err(error) => {
                    partial.error = Some(chain(&error));
                    return no_connection(&error);
                }
            };
            watched.connected();
            partial.address = socket(&stream).peer();
            failpoint::hit("tool-connected");
            exchange(Watched::new(stream, watched.clone()), watched, request, body_max, partial).await
        };
        // The deadline before the work: nothing is sent once it is over.
        tokio::select! {
            biased;
            () = stop.cancelled() => End::Stopped,
            () = tokio::time::sleep_until(start + timeout) => End::Timeout,
            end = exchange => end,
        }
    };
    let Partial { address, status, content_type, retry_after, until_close, body, error } = partial;
    Seen {
        end,
        address,
        counts: progress.counts(),
        request_complete: progress.is_request_complete(),
        closed_ms: progress.elapsed_ms(),
        status,
        content_type,
        retry_after,
        body: body.freeze(),
        framing: if until_close { Framing::UntilClose } else { Framing::Told },
        error: error.or_else(|| match end {
            End::Timeout => Some("the deadline was reached".to_owned()),
            End::Stopped => Some("the relay was shut down".to_owned()),
            _ => None,
        }),
    }
}

/// The request as it goes out, and its bytes in all: every header is set here, so that hyper adds none.
fn request_of(order: Order) -> (Request<Full<Bytes>>, u64) {
    let Order { url, method, mut headers, body, .. } = order;
    let target = url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    let host = match (url.host().unwrap_or_default(), url.port()) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    };
    headers.remove(TRANSFER_ENCODING);
    headers.remove(CONTENT_LENGTH);
    if let Ok(host) = HeaderValue::from_str(&host) {
        headers.insert(HOST, host);
    }
    if !body.is_empty() {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let lines: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum();
    let head = method.as_str().len() + " ".len() + target.len() + " HTTP/1.1\r\n".len() + lines + "\r\n".len();
    let total = u64::try_from(head + body.len()).unwrap_or(u64::MAX);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().unwrap_or_default();
    *request.headers_mut() = headers;
    (request, total)
}

/// The exchange on a connected stream.
async fn exchange(
    io: Watched,
    progress: Progress,
    request: Request<Full<Bytes>>,
    body_max: usize,
    partial: &mut Partial,
) -> End {
    let handshake = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(io)).await;
    let (mut sender, connection) = match handshake {
        Ok(pair) => pair,
        Err(error) => {
            partial.error = Some(chain(&error));
            return End::Broken;
        }
    };
    let mut connection = pin!(connection);
    let mut connected = true;
    let mut answering = pin!(answer(&mut sender, request, body_max, partial));
    poll_fn(move |cx| {
        // How it ended is told to `answering` by what it waits for.
        if connected && connection.as_mut().poll(cx).is_ready() {
            connected = false;
        }
        match answering.as_mut().poll(cx) {
            Poll::Ready(end) => {
                if end == End::Complete {
                    progress.answered();
                }
                Poll::Ready(end)
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn answer(
    sender: &mut http1::SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    body_max: usize,
    partial: &mut Partial,
) -> End {
    let is_head = request.method() == Method::HEAD;
    let response = match sender.send_request(request).await {
        Ok(response) => response,
        Err(error) => {
            partial.error = Some(chain(&error));
            return if error.is_parse() || error.is_parse_status() || error.is_parse_too_large() {
                End::NotHttp
            } else {
                End::Broken
            };
        }
    };
    let (head, mut body) = response.into_parts();
    let head_bytes: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    partial.status = Some(head.status.as_u16());
    let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    partial.content_type = content_type.map(Arc::from);
    if matches!(head.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        partial.retry_after = asked_wait(&head.headers, b"", UnixMillis::now());
    }
    let no_body = is_head || matches!(head.status.as_u16(), 100..=199 | 204 | 304);
    let told = head.headers.contains_key(CONTENT_LENGTH) || head.headers.contains_key(TRANSFER_ENCODING);
    partial.until_close = !no_body && !told;
    if head_bytes > HEAD_BYTES_MAX {
        partial.error = Some(format!("the answer's head is over {HEAD_BYTES_MAX} bytes"));
        return End::TooLarge;
    }
    if body.size_hint().lower() > u64::try_from(body_max).unwrap_or(u64::MAX) {
        partial.error = Some(format!("the answer's body is over {body_max} bytes"));
        return End::TooLarge;
    }
    failpoint::hit("tool-half-response");
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                partial.error = Some(chain(&error));
                return End::Broken;
            }
        };
        let Some(data) = frame.data_ref() else { continue };
        let room = body_max - partial.body.len();
        partial.body.extend_from_slice(data.get(..room).unwrap_or(data));
        if data.len() > room {
            partial.error = Some(format!("the answer's body is over {body_max} bytes"));
            return End::TooLarge;
        }
    }
    failpoint::hit("tool-response-complete");
    End::Complete
}

fn no_connection(error: &ConnectError) -> End {
    match error {
        ConnectError::Dns(_) => End::NoConnection("no_address"),
        ConnectError::Refused(_) => End::NoConnection("connect_refused"),
        ConnectError::Timeout => End::NoConnection("connect_timeout"),
        ConnectError::Tls(_) => End::NoConnection("tls_failed"),
        ConnectError::Certificate(_) => End::NoConnection("certificate_refused"),
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        text.push_str(": ");
        text.push_str(&current.to_string());
        cause = current.source();
    }
    text
}

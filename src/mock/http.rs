//! HTTP/1.1 by hand: requests in, heads and chunks out.
//!
//! By hand because a server library writes only correct answers, and a scripted provider must be able to stop in the middle
//! of a head, lie about a length and leave out a final chunk. Requests are read strictly all the same (RFC 9112): what the
//! relay sends wrongly must fail here and not be forgiven.
//!
//! Not here: HTTP/2, TLS, answers to HEAD, time limits (a client that stays silent costs a task and nothing else).

use std::io::Write as _;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Most bytes of a request's head: twice what the relay accepts from its own callers.
const HEAD_BYTES_MAX: usize = 128 * 1024;

/// Most header lines of a request or its trailer.
const HEADERS_MAX: usize = 128;

/// Most bytes of a request's body: twice the relay's default limit.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most bytes of a chunk's size line (with extensions, which are ignored) or of a trailer.
const CHUNK_LINE_BYTES_MAX: usize = 8 * 1024;

/// Room made for each read.
const READ_BYTES: usize = 16 * 1024;

/// A whole request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the query.
    pub(super) path: String,
    /// Without the question mark.
    pub(super) query: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
    /// Whether the peer can take another answer on this connection.
    pub(super) keep_alive: bool,
    /// Whether the peer understands chunks (HTTP/1.1).
    pub(super) chunks: bool,
}

/// Why there is no request to answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestFault {
    /// The connection ended in the middle of a request.
    Gone,
    /// Not HTTP/1.1; says what.
    Bad(&'static str),
    /// Over a limit: the status for it.
    TooLarge(u16),
}

impl RequestFault {
    /// Status and text of the answer to it; `None` where nobody is left to read one.
    pub(super) fn answer(&self) -> Option<(u16, &'static str)> {
        match self {
            Self::Gone => None,
            Self::Bad(what) => Some((400, what)),
            Self::TooLarge(431) => Some((431, "the request's head is too large")),
            Self::TooLarge(status) => Some((*status, "the request's body is too large")),
        }
    }
}

enum BodyKind {
    Length(usize),
    Chunked,
}

/// Reads the next request. `unread` holds what came after the last one and keeps what comes after this one. `None`: the peer
/// closed between requests.
pub(super) async fn read_request<S>(stream: &mut S, unread: &mut BytesMut) -> Result<Option<Request>, RequestFault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = loop {
        if let Some(request) = take_head(unread)? {
            break request;
        }
        if unread.len() > HEAD_BYTES_MAX {
            return Err(RequestFault::TooLarge(431));
        }
        match read_more(stream, unread).await {
            Err(RequestFault::Gone) if unread.is_empty() => return Ok(None),
            other => other?,
        }
    };
    let kind = body_kind(&request.headers)?;
    if let BodyKind::Length(length) = kind
        && length > BODY_BYTES_MAX
    {
        return Err(RequestFault::TooLarge(413));
    }
    if header(&request.headers, "expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.map_err(|_| RequestFault::Gone)?;
    }
    request.body = match kind {
        BodyKind::Length(length) => {
            fill(stream, unread, length).await?;
            unread.split_to(length).freeze()
        }
        BodyKind::Chunked => read_chunks(stream, unread).await?,
    };
    Ok(Some(request))
}

/// The first value of a header.
pub(super) fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// Whether a `connection` header says close.
pub(super) fn says_close(headers: &[(String, String)]) -> bool {
    header(headers, "connection").is_some_and(|v| v.split(',').any(|one| one.trim().eq_ignore_ascii_case("close")))
}

/// Adds a status line and header lines, without the empty line. `reason` `None`: the usual one.
pub(super) fn put_head(out: &mut Vec<u8>, status: u16, reason: Option<&str>, headers: &[(String, String)]) {
    let usual = || http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let reason = reason.or_else(usual).unwrap_or_default();
    put(out, format_args!("HTTP/1.1 {status} {reason}\r\n"));
    for (name, value) in headers {
        put(out, format_args!("{name}: {value}\r\n"));
    }
}

/// Adds formatted text.
pub(super) fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}

/// Adds one chunk. Never call it with no data: that would be the body's end.
pub(super) fn put_chunk(out: &mut Vec<u8>, data: &[u8]) {
    put(out, format_args!("{:x}\r\n", data.len()));
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// A whole JSON answer.
pub(super) fn json_answer(status: u16, body: &str, close: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 128);
    put_head(&mut out, status, None, &[("content-type".to_owned(), "application/json".to_owned())]);
    if close {
        out.extend_from_slice(b"connection: close\r\n");
    }
    put(&mut out, format_args!("content-length: {}\r\n\r\n{body}", body.len()));
    out
}

fn take_head(unread: &mut BytesMut) -> Result<Option<Request>, RequestFault> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut lines);
    let end = match parsed.parse(unread) {
        Ok(httparse::Status::Complete(end)) => end,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(RequestFault::TooLarge(431)),
        Err(_) => return Err(RequestFault::Bad("the request's head is not HTTP/1.1")),
    };
    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let text = |line: &httparse::Header<'_>| (line.name.to_owned(), String::from_utf8_lossy(line.value).into_owned());
    let headers: Vec<_> = parsed.headers.iter().map(text).collect();
    let method = parsed.method.unwrap_or_default().to_owned();
    let chunks = parsed.version == Some(1);
    let request = Request {
        path: path.to_owned(),
        query: query.to_owned(),
        body: Bytes::new(),
        // An answer to HEAD would have to leave out its body, which no step knows.
        keep_alive: chunks && method != "HEAD" && !says_close(&headers),
        method,
        headers,
        chunks,
    };
    let _ = unread.split_to(end);
    Ok(Some(request))
}

/// RFC 9112 6.3, strictly: both framings at once, or two lengths, are how requests are smuggled.
fn body_kind(headers: &[(String, String)]) -> Result<BodyKind, RequestFault> {
    let all = |name: &'static str| headers.iter().filter(move |(have, _)| have.eq_ignore_ascii_case(name));
    let (lengths, codings) = (all("content-length").count(), all("transfer-encoding").count());
    match (lengths, codings) {
        (0, 0) => Ok(BodyKind::Length(0)),
        (1, 0) => {
            let digits = header(headers, "content-length").unwrap_or_default();
            let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
            number.map(BodyKind::Length).ok_or(RequestFault::Bad("content-length is not a number"))
        }
        (0, 1) if header(headers, "transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) => {
            Ok(BodyKind::Chunked)
        }
        _ => Err(RequestFault::Bad("the request's body has no clear framing")),
    }
}

async fn read_chunks<S>(stream: &mut S, unread: &mut BytesMut) -> Result<Bytes, RequestFault>
where
    S: AsyncRead + Unpin,
{
    let mut body = BytesMut::new();
    loop {
        let size = loop {
            match httparse::parse_chunk_size(unread) {
                Ok(httparse::Status::Complete((used, size))) => {
                    let _ = unread.split_to(used);
                    break size;
                }
                Ok(httparse::Status::Partial) if unread.len() <= CHUNK_LINE_BYTES_MAX => {
                    read_more(stream, unread).await?;
                }
                _ => return Err(RequestFault::Bad("a chunk has no legal size")),
            }
        };
        if size == 0 {
            skip_trailer(stream, unread).await?;
            return Ok(body.freeze());
        }
        let size = usize::try_from(size).ok().filter(|size| *size <= BODY_BYTES_MAX - body.len());
        let size = size.ok_or(RequestFault::TooLarge(413))?;
        fill(stream, unread, size + 2).await?;
        body.extend_from_slice(&unread.split_to(size));
        if unread.split_to(2)[..] != b"\r\n"[..] {
            return Err(RequestFault::Bad("a chunk does not end with its size"));
        }
    }
}

async fn skip_trailer<S>(stream: &mut S, unread: &mut BytesMut) -> Result<(), RequestFault>
where
    S: AsyncRead + Unpin,
{
    loop {
        let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
        match httparse::parse_headers(unread, &mut lines) {
            Ok(httparse::Status::Complete((used, _))) => {
                let _ = unread.split_to(used);
                return Ok(());
            }
            Ok(httparse::Status::Partial) if unread.len() <= CHUNK_LINE_BYTES_MAX => {
                read_more(stream, unread).await?;
            }
            _ => return Err(RequestFault::Bad("the trailer is not legal")),
        }
    }
}

async fn fill<S>(stream: &mut S, unread: &mut BytesMut, bytes: usize) -> Result<(), RequestFault>
where
    S: AsyncRead + Unpin,
{
    while unread.len() < bytes {
        read_more(stream, unread).await?;
    }
    Ok(())
}

async fn read_more<S>(stream: &mut S, unread: &mut BytesMut) -> Result<(), RequestFault>
where
    S: AsyncRead + Unpin,
{
    unread.reserve(READ_BYTES);
    match stream.read_buf(unread).await {
        Ok(0) | Err(_) => Err(RequestFault::Gone),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read from exactly these bytes and an end, and what stays unread.
    async fn read(bytes: &[u8]) -> (Result<Option<Request>, RequestFault>, BytesMut) {
        let (mut client, mut server) = tokio::io::duplex(1 << 20);
        client.write_all(bytes).await.expect("fits");
        client.shutdown().await.expect("open");
        let mut unread = BytesMut::new();
        (read_request(&mut server, &mut unread).await, unread)
    }

    #[tokio::test]
    async fn bodies_come_by_length_or_in_chunks() {
        for (bytes, body, rest) in [
            (&b"GET /a?b=c HTTP/1.1\r\nx: y\r\n\r\n"[..], &b""[..], &b""[..]),
            (b"POST /a?b=c HTTP/1.1\r\ncontent-length: 3\r\n\r\nabcGET", b"abc", b"GET"),
            (
                b"POST /a?b=c HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\nGET",
                b"abc",
                b"GET",
            ),
            (b"POST /a?b=c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nt: u\r\n\r\n", b"", b""),
        ] {
            let (request, unread) = read(bytes).await;
            let request = request.expect("legal").expect("a request");
            assert_eq!((request.path.as_str(), request.query.as_str(), request.keep_alive), ("/a", "b=c", true));
            assert_eq!((&request.body[..], &unread[..]), (body, rest), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[tokio::test]
    async fn what_is_not_a_request_is_refused() {
        let bad = RequestFault::Bad;
        for (bytes, fault) in [
            (&b"GET / HT"[..], RequestFault::Gone),
            (b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nab", RequestFault::Gone),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", bad("the request's head is not HTTP/1.1")),
            (b"POST / HTTP/1.1\r\ncontent-length: +3\r\n\r\nabc", bad("content-length is not a number")),
            (b"POST / HTTP/1.1\r\ncontent-length: 67108865\r\n\r\n", RequestFault::TooLarge(413)),
            (
                b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
                bad("the request's body has no clear framing"),
            ),
            (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", bad("a chunk has no legal size")),
            (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nfffffff\r\n", RequestFault::TooLarge(413)),
            (
                b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc",
                bad("a chunk does not end with its size"),
            ),
        ] {
            let (request, _) = read(bytes).await;
            assert_eq!(request.expect_err("a fault"), fault, "{}", String::from_utf8_lossy(bytes));
        }
        let mut long = b"GET / HTTP/1.1\r\nx: ".to_vec();
        long.resize(HEAD_BYTES_MAX + 2, b'x');
        assert_eq!(read(&long).await.0.expect_err("too long"), RequestFault::TooLarge(431));
        assert!(read(b"").await.0.expect("a close in order").is_none());
    }

    #[tokio::test]
    async fn an_expectation_is_met_before_the_body() {
        let (mut client, mut server) = tokio::io::duplex(1 << 16);
        let head = b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
        client.write_all(head).await.expect("fits");
        let client = async {
            let mut interim = [0; 25];
            client.read_exact(&mut interim).await.expect("an interim answer");
            assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
            client.write_all(b"ok").await.expect("fits");
        };
        let mut unread = BytesMut::new();
        let (request, ()) = tokio::join!(read_request(&mut server, &mut unread), client);
        assert_eq!(&request.expect("legal").expect("a request").body[..], b"ok");
    }

    #[test]
    fn whether_the_connection_can_stay() {
        for (head, keep_alive) in [
            ("GET / HTTP/1.1\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nconnection: x, Close\r\n\r\n", false),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("HEAD / HTTP/1.1\r\n\r\n", false),
        ] {
            let request = take_head(&mut BytesMut::from(head)).expect("legal").expect("whole");
            assert_eq!(request.keep_alive, keep_alive, "{head:?}");
        }
    }
}

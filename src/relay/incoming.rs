//! A provider's body, read: the next data, all of it within a bound, and whether it is an event stream at all.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// Reads until it is plain whether a body is SSE that only has another content type (the official SDKs do not look at it, and a
/// recorded answer has `application/json`); gives what was read: a few undecided bytes and one read.
pub(super) async fn looks_like_sse(body: &mut Incoming) -> (ReadBody, bool) {
    let mut bytes = bytes::BytesMut::new();
    let (mut sse, mut broken) = (None, false);
    while sse.is_none() {
        match next_chunk(body).await {
            Some(Ok(chunk)) => bytes.extend_from_slice(&chunk),
            ended => {
                broken = ended.is_some();
                break;
            }
        }
        sse = starts_like_sse(&bytes);
    }
    (ReadBody { bytes: bytes.freeze(), broken, over: false }, sse == Some(true))
}

/// Whether bytes begin with a comment or a field of SSE; `None`: too few to tell.
fn starts_like_sse(bytes: &[u8]) -> Option<bool> {
    const STARTS: [&[u8]; 5] = [b":", b"data:", b"event:", b"id:", b"retry:"];
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if STARTS.iter().any(|start| bytes.starts_with(start)) {
        return Some(true);
    }
    let may = STARTS.iter().any(|start| start.starts_with(bytes)) || b"\xef\xbb\xbf".starts_with(bytes);
    (!may).then_some(false)
}

/// A missing content type is given the benefit of the doubt; any other than SSE is not.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_none_or(|value| {
        value
            .as_bytes()
            .get(.."text/event-stream".len())
            .is_some_and(|head| head.eq_ignore_ascii_case(b"text/event-stream"))
    })
}

/// The next data of a body; trailers are skipped.
pub(super) async fn next_chunk(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    loop {
        match body.frame().await? {
            Ok(frame) => {
                if let Ok(data) = frame.into_data() {
                    return Some(Ok(data));
                }
            }
            Err(error) => return Some(Err(error)),
        }
    }
}

/// A body read whole, within a bound.
pub(super) struct ReadBody {
    pub(super) bytes: Bytes,
    /// It broke off; `bytes` is what came.
    pub(super) broken: bool,
    /// It is longer than the bound; `bytes` is its beginning.
    pub(super) over: bool,
}

/// Reads a body up to `max` bytes.
pub(super) async fn read_bounded(body: Incoming, max: usize) -> ReadBody {
    read_on(ReadBody { bytes: Bytes::new(), broken: false, over: false }, body, max).await
}

/// The same for a body of which `begun` was read.
pub(super) async fn read_on(begun: ReadBody, mut body: Incoming, max: usize) -> ReadBody {
    let mut bytes = bytes::BytesMut::from(begun.bytes.get(..max).unwrap_or(&begun.bytes));
    let (mut broken, mut over) = (begun.broken, begun.bytes.len() > max);
    while !broken
        && !over
        && let Some(read) = next_chunk(&mut body).await
    {
        let Ok(chunk) = read else {
            broken = true;
            break;
        };
        let room = max - bytes.len();
        over = chunk.len() > room;
        bytes.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
    }
    ReadBody { bytes: bytes.freeze(), broken, over }
}

#[cfg(test)]
mod tests {
    use super::starts_like_sse;

    #[test]
    fn an_event_stream_is_known_by_its_start() {
        for (bytes, sse) in [
            (&b""[..], None),
            (b"d", None),
            (b"data", None),
            (b"data:", Some(true)),
            (b"data: {}\n\n", Some(true)),
            (b"event: message_start\n", Some(true)),
            (b": comment", Some(true)),
            (b"id: 1", Some(true)),
            (b"retry: 5", Some(true)),
            (b"\xef\xbb", None),
            (b"\xef\xbb\xbf", None),
            (b"\xef\xbb\xbfdata:", Some(true)),
            (b"\xef\xbb\xbf{", Some(false)),
            (b"{\"error\":", Some(false)),
            (b"<html>", Some(false)),
            (b"\n", Some(false)),
            (b"date: x", Some(false)),
            (b"datum", Some(false)),
        ] {
            assert_eq!(starts_like_sse(bytes), sse, "{}", String::from_utf8_lossy(bytes));
        }
    }
}

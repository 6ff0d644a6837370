//! Recordings: real answers of providers kept as files. Status line, header lines and an empty line, all ended by LF, then
//! the body's bytes as they came. In go the file's bytes, out come a head and a body.
//!
//! The files carry no framing (length and transfer coding are taken out when they are made), so it is chosen here: streams are
//! sent chunked, anything else with a content-length, as providers do. Chunk borders are not part of a recording.

use bytes::Bytes;

use super::script::{Head, Headers, check_header};

/// A recorded answer.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    pub(super) head: Head,
    pub(super) body: Bytes,
}

/// Takes a recording apart.
pub(super) fn parse(file: &Bytes) -> Result<Recording, String> {
    let end = memchr::memmem::find(file, b"\n\n").ok_or("no empty line ends the head")?;
    let head = std::str::from_utf8(&file[..end]).map_err(|_| "the head is not UTF-8".to_owned())?;
    let mut lines = head.split('\n');
    let line = lines.next().unwrap_or_default();
    let (status, reason) = status_line(line).ok_or_else(|| format!("`{line}` is not a status line"))?;
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("`{line}` is not a header line"))?;
        let value = value.trim();
        check_header(name, value)?;
        headers.push((name.to_owned(), value.to_owned()));
    }
    let body = file.slice(end + 2..);
    let length = if is_stream(&headers) { None } else { Some(body.len() as u64) };
    let head = Head { status, headers: Headers(headers), length, until_close: false, reason: Some(reason.to_owned()) };
    Ok(Recording { head, body })
}

fn status_line(line: &str) -> Option<(u16, &str)> {
    let (status, reason) = line.strip_prefix("HTTP/1.1 ")?.split_once(' ')?;
    let status = status.parse().ok().filter(|status| (200..=999).contains(status))?;
    Some((status, reason))
}

fn is_stream(headers: &[(String, String)]) -> bool {
    let is_type = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-type");
    let value = headers.iter().find(is_type).map(|(_, value)| value.to_ascii_lowercase()).unwrap_or_default();
    ["event-stream", "eventstream", "ndjson", "x-json-stream"].iter().any(|kind| value.contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_body_are_told_apart_at_the_first_empty_line() {
        let file = b"HTTP/1.1 529 \ncontent-type: text/event-stream; charset=utf-8\nx-a: b: c\n\ndata: x\n\n\xff";
        let Recording { head, body } = parse(&Bytes::from_static(file)).expect("a recording");
        assert_eq!((head.status, head.reason.as_deref(), head.length), (529, Some(""), None));
        assert_eq!(head.headers.0[1], ("x-a".to_owned(), "b: c".to_owned()));
        assert_eq!(&body[..], b"data: x\n\n\xff");
    }

    #[test]
    fn what_is_no_stream_has_a_length() {
        for (kind, length) in [
            ("application/json", Some(2)),
            ("text/html", Some(2)),
            ("text/event-stream", None),
            ("application/vnd.amazon.eventstream", None),
            ("application/x-ndjson", None),
        ] {
            let file = format!("HTTP/1.1 200 OK\ncontent-type: {kind}\n\n{{}}");
            assert_eq!(parse(&Bytes::from(file)).expect("a recording").head.length, length, "{kind}");
        }
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        for (file, says) in [
            ("HTTP/1.1 200 OK\nx: y\n", "no empty line"),
            ("HTTP/2 200 OK\n\n", "is not a status line"),
            ("HTTP/1.1 100 Continue\n\n", "is not a status line"),
            ("HTTP/1.1 200 OK\nx\n\n", "is not a header line"),
            ("HTTP/1.1 200 OK\ncontent-length: 3\n\nabc", "set by the mock"),
        ] {
            let error = parse(&Bytes::copy_from_slice(file.as_bytes())).expect_err(file);
            assert!(error.contains(says), "{file:?}: {error}");
        }
    }
}

//! What each step sends.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::Value;

use super::super::{Answer, EXAMPLE, MockProvider, Script, anthropic_text, chat_text};
use super::{client, one, post, raw, start, within};

const GET: &str = "GET /x HTTP/1.1\r\nconnection: close\r\n\r\n";

/// The exact bytes of an answer to a client that wants the connection closed.
#[tokio::test]
async fn steps_to_bytes() {
    const SSE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    const CHUNKED: &str = "transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    for (steps, bytes) in [
        (
            "[]",
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        ),
        (
            r#"[{"event": {"name": "ping", "data": {"b": 1, "a": 2}}}]"#,
            format!("{SSE}{CHUNKED}21\r\nevent: ping\ndata: {{\"b\":1,\"a\":2}}\n\n\r\n0\r\n\r\n"),
        ),
        (
            r#"[{"event": {"data": "one\n\ntwo"}}]"#,
            format!("{SSE}{CHUNKED}1c\r\ndata: one\ndata: \ndata: two\n\n\r\n0\r\n\r\n"),
        ),
        (r#"[{"text": ": hi\n\n"}, {"text": ""}]"#, format!("{SSE}{CHUNKED}6\r\n: hi\n\n\r\n0\r\n\r\n")),
        (
            r#"[{"json": {"b": [1, 2], "a": null}}]"#,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 20\r\nconnection: close\r\n\r\n\
             {\"b\":[1,2],\"a\":null}"
                .to_owned(),
        ),
        (
            r#"[{"head": {"status": 529, "headers": {"X-B": "1", "a": "2", "x-b": "3"}, "length": 2}}, {"text": "ab"}]"#,
            "HTTP/1.1 529 \r\nX-B: 1\r\na: 2\r\nx-b: 3\r\ncontent-length: 2\r\nconnection: close\r\n\r\nab".to_owned(),
        ),
        (
            r#"[{"head": {"until_close": true}}, {"text": "ab"}]"#,
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nab".to_owned(),
        ),
        (
            r#"[{"head": {"status": 103, "headers": {"link": "x"}}}, {"head": {"status": 204}}]"#,
            "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"
                .to_owned(),
        ),
        (
            r#"[{"head": {}}, {"split": 2}, {"text": "abc"}, {"split": 0}, {"text": "def"}]"#,
            format!("HTTP/1.1 200 OK\r\n{CHUNKED}2\r\nab\r\n1\r\nc\r\n3\r\ndef\r\n0\r\n\r\n"),
        ),
        (
            r#"[{"head": {}}, {"repeat": {"times": 2, "steps": [{"text": "a"}, {"repeat": {"times": 2, "steps": [{"text": "b"}]}}]}}]"#,
            format!("HTTP/1.1 200 OK\r\n{CHUNKED}{}0\r\n\r\n", "1\r\na\r\n1\r\nb\r\n1\r\nb\r\n".repeat(2)),
        ),
        (r#"[{"delay_ms": 1}, {"head": {}}]"#, format!("HTTP/1.1 200 OK\r\n{CHUNKED}0\r\n\r\n")),
    ] {
        let mock = one(steps).await;
        assert_eq!(raw(&mock, GET).await, bytes, "{steps}");
    }
}

#[tokio::test]
async fn an_old_client_gets_no_chunks() {
    let mock = one(r#"[{"head": {}}, {"text": "abc"}]"#).await;
    let bytes = raw(&mock, "GET /x HTTP/1.0\r\n\r\n").await;
    assert_eq!(bytes, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc");
}

#[tokio::test]
async fn a_file_is_sent_as_it_is_and_found_beside_the_script() {
    let dir = tempfile::tempdir().expect("a folder");
    let body: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    std::fs::write(dir.path().join("body.bin"), &body).expect("written");
    let script = r#"{"rules": [{"name": "a", "answers": [[{"file": "body.bin"}]]}]}"#;
    std::fs::write(dir.path().join("s.json"), script).expect("written");
    let mock = start(Script::load(&dir.path().join("s.json")).expect("a script")).await;
    drop(dir); // read at the start, not at the call
    assert_eq!(post(&mock, "/", "").await.bytes().await.expect("whole"), body);
}

#[tokio::test]
async fn split_by_one_byte_arrives_byte_by_byte() {
    let mock = one(r#"[{"split": 1}, {"event": {"data": "häl"}}]"#).await;
    let mut answer = post(&mock, "/", "").await;
    let mut all = Vec::new();
    while let Some(piece) = within(answer.chunk()).await.expect("whole") {
        assert_eq!(piece.len(), 1);
        all.extend_from_slice(&piece);
    }
    assert_eq!(all, "data: häl\n\n".as_bytes());
    assert_eq!(mock.events_sent(), 1);
}

#[tokio::test]
async fn gates_open_one_by_one() {
    let mock = one(r#"[{"text": "1"}, {"gate": "g"}, {"text": "2"}, {"gate": "g"}, {"text": "3"}]"#).await;
    let mut answer = post(&mock, "/", "").await;
    assert!(!mock.open_gate("no such gate", 1));
    for piece in ["1", "2"] {
        assert_eq!(within(answer.chunk()).await.expect("whole"), Some(Bytes::from(piece)));
        within(mock.wait_for(|stats| stats.at_gates == 1)).await;
        assert!(mock.open_gate("g", 1));
    }
    assert_eq!(within(answer.chunk()).await.expect("whole"), Some(Bytes::from("3")));
    assert_eq!(within(answer.chunk()).await.expect("whole"), None);
    assert_eq!(mock.stats().at_gates, 0);
    // Opened ahead: nobody waits.
    mock.open_gate("g", 2);
    assert_eq!(post(&mock, "/", "").await.text().await.expect("whole"), "123");
}

#[tokio::test]
async fn auto_obeys_the_requests_own_stream_member() {
    for dialect in ["chat", "chat-completions", "anthropic", "anthropic-messages", "responses"] {
        let mock = one(&format!(r#"[{{"auto": {{"dialect": "{dialect}", "text": ["Hel", "lo"]}}}}]"#)).await;
        let streamed = post(&mock, "/", r#"{"model":"m\u00e4","stream":true}"#).await;
        assert_eq!(streamed.headers()["content-type"], "text/event-stream", "{dialect}");
        let streamed = streamed.text().await.expect("whole");
        assert!(streamed.contains("\"Hel\"") && streamed.contains("\"lo\"") && streamed.contains("mä"), "{streamed}");
        for body in [r#"{"model":"m"}"#, r#"{"model":"m","stream":false}"#, "not JSON"] {
            let whole = post(&mock, "/", body).await;
            assert_eq!(whole.headers()["content-type"], "application/json", "{dialect} {body}");
            assert!(whole.text().await.expect("whole").contains("\"Hello\""), "{dialect} {body}");
        }
    }
}

#[tokio::test]
async fn canned_streams_arrive_as_an_independent_reader_expects() {
    use eventsource_stream::Eventsource as _;
    use futures_util::StreamExt as _;
    for (answer, names, last) in [
        (chat_text(&["Hel", "lo"]), vec!["message"; 6], "[DONE]"),
        (
            anthropic_text(&["Hi"]),
            vec![
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop",
            ],
            r#"{"type":"message_stop"}"#,
        ),
    ] {
        let mock = start(Script::one(answer)).await;
        let events = post(&mock, "/", "").await.bytes_stream().eventsource();
        let events: Vec<_> = within(events.map(|event| event.expect("legal SSE")).collect()).await;
        assert_eq!(events.iter().map(|event| event.event.as_str()).collect::<Vec<_>>(), names);
        assert_eq!(events.last().map(|event| event.data.as_str()), Some(last));
        assert_eq!(mock.events_sent(), events.len() as u64);
    }
}

#[tokio::test]
async fn the_example_plays() {
    let mut script = Script::parse("example.json", EXAMPLE.to_owned()).expect("the example is a script");
    script.listen.set_port(0);
    let mock = start(script).await;
    let chat = "/v1/chat/completions";
    let flaky = post(&mock, chat, r#"{"model":"m-flaky"}"#).await;
    assert_eq!(flaky.status().as_u16(), 503);
    assert_eq!(flaky.headers()["retry-after"], "1");
    let whole: Value = post(&mock, chat, r#"{"model":"other"}"#).await.json().await.expect("JSON");
    assert_eq!(whole["choices"][0]["message"]["content"], "Hello");
    let cut = post(&mock, "/v1/messages", r#"{"model":"m-cut"}"#).await;
    assert!(within(cut.text()).await.is_err());
}

/// The recordings lie beside the checkout and are not part of it; `None` where they are not there, which is a failure in CI.
fn recordings() -> Option<Vec<PathBuf>> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/recordings"));
    if !root.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "the recordings are missing");
        // Past the test harness, which shows nothing of a test that passes.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: no recordings beside the checkout\n");
        return None;
    }
    let mut found = Vec::new();
    for folder in std::fs::read_dir(root).expect("a folder").flatten().filter(|entry| entry.path().is_dir()) {
        let files = std::fs::read_dir(folder.path()).expect("a folder").flatten().map(|entry| entry.path());
        found.extend(files.filter(|path| path.extension().is_some_and(|e| e == "http")));
    }
    found.sort();
    Some(found)
}

#[tokio::test]
async fn every_recording_arrives_byte_for_byte() {
    let Some(files) = recordings() else { return };
    assert!(files.len() > 200, "only {} recordings", files.len());
    let client = client();
    let mut script = Script::default();
    for (at, file) in files.iter().enumerate() {
        let rule = super::super::Rule::new(&at.to_string()).path(&format!("/{at}"));
        script = script.rule(rule.answer(Answer::new().recording(file)));
    }
    let mock: MockProvider = start(script).await;
    for (at, file) in files.iter().enumerate() {
        let bytes = std::fs::read(file).expect("a file");
        let end = bytes.windows(2).position(|two| two == b"\n\n").expect("an empty line");
        let head = std::str::from_utf8(&bytes[..end]).expect("text");
        let answer = within(client.get(format!("{}/{at}", mock.base_url())).send()).await.expect("an answer");
        let (status, lines) = head.split_once('\n').unwrap_or((head, ""));
        assert_eq!(status.split(' ').nth(1), Some(answer.status().as_str()), "{}", file.display());
        for line in lines.lines() {
            let (name, value) = line.split_once(':').expect("a header line");
            let mut values = answer.headers().get_all(name).iter();
            assert!(values.any(|have| have.as_bytes() == value.trim().as_bytes()), "{} {line}", file.display());
        }
        assert!(within(answer.bytes()).await.expect("whole") == bytes[end + 2..], "{}", file.display());
    }
    let stats = mock.stats();
    assert_eq!((stats.calls, stats.disconnects), (files.len() as u64, 0));
}

//! What a client sees of each fault, and that the mock sees a client's.

use std::error::Error as _;
use std::io;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{one, post, raw, try_post, within};

/// The IO error at the bottom of a client's error, if there is one.
fn io_kind(error: &reqwest::Error) -> Option<io::ErrorKind> {
    let mut at = error.source();
    while let Some(error) = at {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        at = error.source();
    }
    None
}

#[tokio::test]
async fn an_aborted_body_delivers_what_came_and_then_fails() {
    for (steps, reset) in [
        (r#"[{"text": "abc"}, {"abort": "fin"}]"#, false),
        (r#"[{"text": "abc"}, {"gate": "g"}, {"abort": "rst"}]"#, true),
        (r#"[{"head": {"length": 9}}, {"text": "abc"}]"#, false),
        (r#"[{"head": {"length": 9}}, {"text": "abc"}, {"gate": "g"}, {"abort": "rst"}]"#, true),
    ] {
        let mock = one(steps).await;
        let mut answer = post(&mock, "/", "").await;
        assert_eq!(within(answer.chunk()).await.expect("what was sent"), Some(Bytes::from("abc")), "{steps}");
        mock.open_gate("g", 1);
        let error = within(answer.chunk()).await.expect_err("the body has no end");
        assert_eq!(io_kind(&error) == Some(io::ErrorKind::ConnectionReset), reset, "{steps}: {error:?}");
        // The mock broke it off, not the peer.
        assert_eq!(mock.disconnects(), 0, "{steps}");
    }
}

#[tokio::test]
async fn without_a_whole_head_there_is_no_answer() {
    for steps in [
        r#"[{"close_before_head": true}]"#,
        r#"[{"abort": "fin"}]"#,
        r#"[{"abort": "rst"}]"#,
        r#"[{"half_head": true}]"#,
        r#"[{"half_head": true}, {"text": "eam\r\nx"}, {"abort": "fin"}]"#,
    ] {
        let mock = one(steps).await;
        assert!(try_post(&mock, "/", "{}").await.is_err(), "{steps}");
        assert!(mock.calls() >= 1, "{steps}");
    }
    let half = raw(&one(r#"[{"half_head": true}]"#).await, "GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(half, "HTTP/1.1 200 OK\r\ncontent-type: text/event-str");
}

#[tokio::test]
async fn a_body_longer_than_announced_is_sent_and_closes() {
    let mock = one(r#"[{"head": {"length": 2}}, {"text": "abcd"}]"#).await;
    let bytes = raw(&mock, "GET / HTTP/1.1\r\n\r\n").await;
    assert_eq!(bytes, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabcd");
}

/// Closing and resetting, while the mock is silent, waits, sleeps or writes.
#[tokio::test]
async fn a_peer_that_leaves_is_noticed_whatever_the_mock_does() {
    for (steps, sent_before) in [
        (r#"[{"text": "a"}, {"hang": true}]"#, true),
        (r#"[{"hang": true}]"#, false),
        (r#"[{"text": "a"}, {"gate": "g"}]"#, true),
        (r#"[{"text": "a"}, {"delay_ms": 3600000}]"#, true),
        (
            r#"[{"repeat": {"times": 1000000, "steps": [{"text": "a long enough text to fill any socket buffer"}]}}]"#,
            true,
        ),
    ] {
        for reset in [false, true] {
            let mock = one(steps).await;
            let mut stream = TcpStream::connect(mock.addr()).await.expect("a listener");
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("open");
            within(mock.wait_for(|stats| stats.calls == 1)).await;
            if sent_before {
                within(stream.read_u8()).await.expect("a byte");
            }
            assert_eq!((mock.disconnects(), mock.active_connections()), (0, 1), "{steps}");
            if reset {
                stream.set_zero_linger().expect("an open socket");
            }
            drop(stream);
            within(mock.wait_for(|stats| stats.disconnects == 1 && stats.active_connections == 0)).await;
            assert_eq!(mock.stats().at_gates, 0, "{steps}");
        }
    }
}

#[tokio::test]
async fn a_real_client_that_drops_its_answer_is_noticed() {
    let mock = one(r#"[{"event": {"data": "1"}}, {"hang": true}]"#).await;
    let mut answer = post(&mock, "/", "").await;
    assert_eq!(within(answer.chunk()).await.expect("the event"), Some(Bytes::from("data: 1\n\n")));
    assert_eq!(mock.disconnects(), 0);
    drop(answer);
    within(mock.wait_for(|stats| stats.disconnects == 1)).await;
}

#[tokio::test]
async fn a_request_that_is_none_is_refused_and_not_counted() {
    let mock = one("[]").await;
    for (request, status) in [
        ("nonsense\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", "400"),
        ("POST / HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n", "413"),
    ] {
        let bytes = raw(&mock, request).await;
        assert!(bytes.starts_with(&format!("HTTP/1.1 {status} ")), "{bytes}");
        assert!(bytes.contains("connection: close"), "{bytes}");
    }
    assert_eq!(mock.calls(), 0);
}

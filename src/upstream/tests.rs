//! What the client proves: no request is sent twice, and whether any byte of one was sent.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use http_body_util::BodyExt as _;

use super::*;
use crate::mock::{Answer, MockProvider, Rule, Script, Step};

fn client(connect_timeout: Duration) -> Upstream {
    Upstream::new(&connect::tls_config().unwrap(), connect_timeout)
}

fn request(base: &str) -> Request<Full<Bytes>> {
    Request::post(format!("{base}/v1/x")).body(Full::new(Bytes::from_static(b"{}"))).unwrap()
}

async fn send(client: &Upstream, base: &str) -> Result<u16, TransportFault> {
    let response = client.send(request(base)).await?;
    let status = response.status().as_u16();
    // Read to its end, so that the connection is kept.
    response.into_body().collect().await.unwrap();
    Ok(status)
}

fn step(step: Step) -> Answer {
    Answer::new().step(step)
}

#[tokio::test]
async fn a_request_that_went_out_is_never_sent_again() {
    let rows = [
        ("closed", step(Step::CloseBeforeHead)),
        ("reset", Answer::new().abort_rst()),
        ("half a head, then closed", step(Step::HalfHead)),
        ("an interim answer, then closed", Answer::new().head(103, &[]).abort_fin()),
        ("an interim answer, then reset", Answer::new().head(100, &[]).delay_ms(20).abort_rst()),
    ];
    for (what, answer) in rows {
        for kept in [false, true] {
            let rule = Rule::new("r");
            let rule = if kept { rule.answer(Answer::json(200, serde_json::json!({}))) } else { rule };
            let provider = MockProvider::start(Script::default().rule(rule.answer(answer.clone()))).await.unwrap();
            let client = client(Duration::from_secs(5));
            if kept {
                assert_eq!(send(&client, &provider.base_url()).await, Ok(200));
            }
            let fault = send(&client, &provider.base_url()).await;
            assert_eq!(fault, Err(TransportFault::Reset { sent: true }), "{what}, kept={kept}");
            assert_eq!(provider.calls(), 1 + u64::from(kept), "{what}, kept={kept}: seen exactly once");
        }
    }
}

/// Answers one request, waits for word, closes that connection and then, if asked to, answers one more on another.
fn one_answer_then_closed(again: bool) -> (String, mpsc::Sender<()>, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (close, told) = mpsc::channel();
    let (done, closed) = mpsc::channel();
    let answer = |listener: &TcpListener| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut seen = Vec::new();
        let mut buffer = [0; 1024];
        while !seen.ends_with(b"\r\n\r\n{}") {
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "the request is whole");
            seen.extend_from_slice(&buffer[..count]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        stream
    };
    std::thread::spawn(move || {
        let stream = answer(&listener);
        told.recv().unwrap();
        drop(stream);
        if !again {
            drop(listener);
            done.send(()).unwrap();
            return;
        }
        done.send(()).unwrap();
        answer(&listener);
    });
    (base, close, closed)
}

/// Leaves the client with a kept connection that is dead and in its pool all the same: the runtime has one thread, which is blocked
/// while the other side closes; the one `yield_now` after it lets the IO driver see that, and the test's own future is polled before
/// the connection's task is.
async fn dead_connection(client: &Upstream, base: &str, close: &mpsc::Sender<()>, closed: &mpsc::Receiver<()>) {
    assert_eq!(send(client, base).await, Ok(200));
    for _ in 0..100 {
        tokio::task::yield_now().await; // lets the connection's task put it back
    }
    close.send(()).unwrap();
    closed.recv().unwrap();
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn a_kept_connection_that_turned_out_to_be_dead_is_told_from_a_lost_answer() {
    let client = client(Duration::from_secs(5));
    let (base, close, closed) = one_answer_then_closed(false);
    dead_connection(&client, &base, &close, &closed).await;
    let mut request = request(&base);
    let connection = capture_connection(&mut request);
    let error = client.client.request(request).await.unwrap_err();
    assert_eq!(fault_of(&error, &connection), TransportFault::Reset { sent: false });
}

#[tokio::test]
async fn a_request_of_which_nothing_left_goes_out_on_another_connection() {
    let client = client(Duration::from_secs(5));
    let (base, close, closed) = one_answer_then_closed(true);
    dead_connection(&client, &base, &close, &closed).await;
    assert_eq!(send(&client, &base).await, Ok(200));
    // And when nobody listens any more, the fault of that other connection is what is told.
    let (base, close, closed) = one_answer_then_closed(false);
    dead_connection(&client, &base, &close, &closed).await;
    assert_eq!(send(&client, &base).await, Err(TransportFault::Refused));
}

#[tokio::test]
async fn faults_of_connecting() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    // Takes connections (the kernel does) and never says a word: a TLS handshake that hangs counts as connecting.
    assert_eq!(
        send(&client(Duration::from_millis(100)), &format!("https://{address}")).await,
        Err(TransportFault::ConnectTimeout)
    );
    drop(port);
    let client = client(Duration::from_secs(5));
    assert_eq!(send(&client, &format!("http://{address}")).await, Err(TransportFault::Refused));
    assert_eq!(send(&client, "http://nobody.invalid").await, Err(TransportFault::Dns));
    let plain = MockProvider::start(Script::one(Answer::new())).await.unwrap();
    let https = plain.base_url().replace("http://", "https://");
    assert_eq!(send(&client, &https).await, Err(TransportFault::Tls));
}

#[tokio::test]
async fn what_is_no_http_or_too_long_is_a_bad_head() {
    for bytes in
        [b"SSH-2.0-OpenSSH_9.6\r\n".to_vec(), [&b"HTTP/1.1 200 OK\r\nx: "[..], &vec![b'y'; 300 * 1024]].concat()]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(&bytes); // The client hangs up in the middle of a head that is too long.
        });
        assert_eq!(send(&client(Duration::from_secs(5)), &base).await, Err(TransportFault::BadHead));
        server.join().unwrap();
    }
}

#[tokio::test]
async fn redirects_and_interim_answers_are_left_alone() {
    let rule = Rule::new("r")
        .answer(Answer::new().head(307, &[("location", "/elsewhere")]))
        .answer(Answer::new().head(103, &[]).then(Answer::json(200, serde_json::json!({}))));
    let provider = MockProvider::start(Script::default().rule(rule)).await.unwrap();
    let client = client(Duration::from_secs(5));
    assert_eq!(send(&client, &provider.base_url()).await, Ok(307));
    assert_eq!(send(&client, &provider.base_url()).await, Ok(200));
    assert_eq!(provider.calls(), 2);
}

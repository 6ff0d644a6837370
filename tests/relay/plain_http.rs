//! HTTP/1.1 as old and plain clients speak it: HTTP/1.0, `Connection: close`, two hosts. A cut stream must look cut to all of them.

use rubicon::mock::{Answer, Rule, chat, chat_text, chat_whole_text};
use rubicon::protocol::Dialect;
use serde_json::json;

use crate::harness::{provider, relay, request, two};
use crate::raw::{Raw, message};
use crate::setup::always;

const CHAT: Dialect = Dialect::ChatCompletions;

/// The lines of the first head, in small letters.
fn head(raw: &Raw) -> Vec<String> {
    let text = raw.text();
    text.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase().lines().map(str::to_owned).collect()
}

fn says(raw: &Raw, line: &str) -> bool {
    head(raw).iter().any(|found| found == line)
}

/// The data of a chunked body, and whether its last chunk came and nothing after it.
fn dechunked(mut rest: &str) -> (String, bool) {
    let mut data = String::new();
    while !rest.is_empty() {
        let (size, tail) = rest.split_once("\r\n").expect("a chunk's size");
        let size = usize::from_str_radix(size, 16).expect("a number");
        if size == 0 {
            assert_eq!(tail, "\r\n", "nothing after the last chunk");
            return (data, true);
        }
        data += &tail[..size];
        rest = tail[size..].strip_prefix("\r\n").expect("whole chunks");
    }
    (data, false)
}

#[tokio::test]
async fn http_1_0_gets_no_stream() {
    for dialect in Dialect::ALL {
        let whole = match dialect {
            CHAT => chat_whole_text("whole"),
            Dialect::AnthropicMessages => rubicon::mock::anthropic_whole_text("whole"),
            Dialect::Responses => rubicon::mock::responses_whole_text("whole"),
        };
        let a = provider(Rule::new("a").answer(whole)).await;
        let relay = relay(&two(&a, &a, "")).await;
        let ask = async |stream: bool, headers: &str| {
            let whole = message(dialect, relay.address(), headers, &request(dialect, stream));
            let mut raw = Raw::open(relay.address()).await;
            raw.write(whole.replace("HTTP/1.1", "HTTP/1.0").as_bytes()).await;
            assert!(raw.read_to_end().await, "{}", raw.text());
            raw
        };
        for headers in ["", "idempotency-key: k\r\n"] {
            let refused = ask(true, headers).await;
            let error: serde_json::Value = serde_json::from_str(&refused.body()).expect("JSON");
            assert_eq!((refused.status(), &error["error"]["code"]), (426, &json!("http_version_not_supported")));
            assert_eq!(error["type"] == "error", dialect == Dialect::AnthropicMessages, "{error}");
            assert!(error["rubicon"]["attempts"] == 0 && error["rubicon"]["retryable"] == false, "{error}");
            assert!(says(&refused, "x-should-retry: false"), "{}", refused.text());
            assert_eq!(a.calls(), 0, "nobody is called");
        }
        let answered = ask(false, "").await;
        assert_eq!(answered.status(), 200, "{}", answered.text());
        assert!(answered.body().contains("whole") && !says(&answered, "transfer-encoding: chunked"));
        assert!(says(&answered, &format!("content-length: {}", answered.body().len())), "{}", answered.text());
        assert_eq!(a.calls(), 1);
    }
}

#[tokio::test]
async fn a_stream_never_says_that_its_connection_ends_with_it() {
    let begun = || Answer::sse().step(chat::role()).step(chat::delta("shown"));
    let rows = [
        ("whole", chat_text(&["shown"]), true),
        ("cut", begun().delay_ms(30).abort_rst(), false),
        ("broken off", begun().abort_fin(), false),
    ];
    // hyper takes notice of the word in any place of a list and in any case; several lines are one list.
    let forms = ["close", "Close", "CLOSE", "Close, TE", "te,  close", "keep-alive, cLoSe", "te\r\nconnection: close"];
    for (what, answer, complete) in rows {
        let a = always(answer).await;
        let relay = relay(&two(&a, &a, "failover = { enabled = false }")).await;
        for form in forms {
            {
                let what = format!("{what}, {form:?}");
                let headers = format!("connection: {form}\r\n");
                let mut raw = Raw::post(relay.address(), CHAT, &headers, &request(CHAT, true)).await;
                assert!(raw.read_to_end().await, "{what}: closed in order");
                assert_eq!(raw.status(), 200, "{what}");
                let head = head(&raw);
                assert!(!head.iter().any(|line| line.starts_with("connection:")), "{what}: {head:?}");
                assert!(says(&raw, "transfer-encoding: chunked"), "{what}: {head:?}");
                assert!(says(&raw, "content-type: text/event-stream"), "{what}: {head:?}");
                let (data, ended) = dechunked(&raw.body());
                assert_eq!(ended, complete, "{what}: {data}");
                assert!(data.contains("shown"), "{what}: {data}");
                assert_eq!(data.ends_with("data: [DONE]\n\n"), complete, "{what}: {data}");
                assert_eq!(data.contains("\"interrupted\""), !complete, "{what}: {data}");
            }
        }
        assert_eq!(a.calls(), forms.len() as u64, "{what}");
    }
}

#[tokio::test]
async fn a_stream_that_began_with_keep_alives_does_not_either() {
    let a = always(Answer::new().gate("go").then(chat_text(&["shown"]))).await;
    let relay = relay(&two(&a, &a, "hold = { keepalive_after_ms = 20 }")).await;
    let mut raw = Raw::post(relay.address(), CHAT, "connection: close\r\n", &request(CHAT, true)).await;
    raw.read_until(": keep-alive").await;
    a.open_gate("go", 1);
    assert!(raw.read_to_end().await);
    assert!(!head(&raw).iter().any(|line| line.starts_with("connection:")), "{}", raw.text());
    let (data, ended) = dechunked(&raw.body());
    assert!(ended && data.ends_with("data: [DONE]\n\n"), "{data}");
}

#[tokio::test]
async fn other_requests_are_answered_as_ever() {
    let a =
        provider(Rule::new("a").answer(Answer::auto(rubicon::mock::AutoDialect::ChatCompletions, &["shown"]))).await;
    let relay = relay(&two(&a, &a, "")).await;
    // A whole answer and a refusal say what hyper says.
    for (stream, headers, status) in
        [(false, "", 200), (false, "rubicon-max-attempts: x\r\n", 400), (true, "rubicon-max-attempts: x\r\n", 400)]
    {
        let headers = format!("connection: close\r\n{headers}");
        let mut raw = Raw::post(relay.address(), CHAT, &headers, &request(CHAT, stream)).await;
        assert!(raw.read_to_end().await);
        assert_eq!((raw.status(), says(&raw, "connection: close")), (status, true), "{}", raw.text());
    }
    // Several streams on one connection, then one that ends it; the words of a body are nobody's header.
    let mut raw = Raw::open(relay.address()).await;
    let body = request(CHAT, true).replace("\"hi\"", "\"\\r\\nconnection: close\\r\\n\"");
    for turn in 1..=3 {
        raw.got.clear();
        let last = turn == 3;
        let headers = if last { "connection: close\r\n" } else { "" };
        raw.write(message(CHAT, relay.address(), headers, &body).as_bytes()).await;
        raw.read_until("\r\n0\r\n\r\n").await;
        assert!(!head(&raw).iter().any(|line| line.starts_with("connection:")), "{}", raw.text());
        assert!(dechunked(&raw.body()).1);
        assert_eq!(says(&raw, "rubicon-end: true"), last);
        assert_eq!(a.calls(), 1 + turn);
    }
    assert!(raw.read_to_end().await, "the socket is closed after it");
}

#[tokio::test]
async fn two_hosts_are_none() {
    let a = always(chat_text(&["shown"])).await;
    let relay = relay(&two(&a, &a, "")).await;
    let address = relay.address();
    for second in [format!("{address}"), "localhost".to_owned(), "evil.test".to_owned()] {
        for stream in [true, false] {
            let mut raw = Raw::post(address, CHAT, &format!("host: {second}\r\n"), &request(CHAT, stream)).await;
            raw.read_until("\"error\"").await;
            assert_eq!(raw.status(), 403, "{}", raw.text());
        }
    }
    let mut get = Raw::open(address).await;
    get.write(format!("GET /v1/models HTTP/1.1\r\nhost: {address}\r\nhost: {address}\r\n\r\n").as_bytes()).await;
    get.read_until("\"error\"").await;
    assert_eq!((get.status(), a.calls()), (403, 0));
}

//! What the mock knows afterwards, and how it answers by rule and by call.

use std::io;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::{Answer, MockProvider, Rule, Script, ScriptProblems};
use super::{client, one, post, start, within};

fn by_rule() -> Script {
    Script::default()
        .rule(Rule::new("a").path("/p").model("m").answer(Answer::new().text("a0")).answer(Answer::new().text("a1")))
        .rule(Rule::new("b").model("m").answer(Answer::new().text("b")))
        .rule(Rule::new("c").path("/q").answer(Answer::new().text("c")))
}

#[tokio::test]
async fn the_first_rule_that_fits_answers_and_its_last_answer_repeats() {
    let mock = start(by_rule()).await;
    let m = r#"{"model":"m","messages":[{"model":"n"}]}"#;
    for (path, body, status, text) in [
        ("/p", m, 200, "a0"),
        ("/q", m, 200, "b"),
        ("/p?x=y", m, 200, "a1"),
        ("/p", m, 200, "a1"),
        ("/q", r#"{"model":"n"}"#, 200, "c"),
        ("/q", "not JSON", 200, "c"),
        ("/p", r#"{"model":"n"}"#, 404, "no rule of the mock fits POST /p with model n"),
        ("/p", "", 404, "with model none"),
    ] {
        let answer = post(&mock, path, body).await;
        assert_eq!(answer.status().as_u16(), status, "{path} {body}");
        let got = answer.text().await.expect("whole");
        assert!(if status == 200 { got == text } else { got.contains(text) }, "{path} {body}: {got}");
    }
    let stats = mock.stats();
    assert_eq!((stats.calls, stats.unmatched), (8, 2));
    assert_eq!(["a", "b", "c", "d"].map(|rule| mock.calls_of(rule)), [3, 1, 2, 0]);
}

#[tokio::test]
async fn requests_are_kept_as_they_came() {
    let mock = start(by_rule()).await;
    let request = client().post(format!("{}/q?k=v", mock.base_url())).header("x-test", "1").body("body");
    within(request.send()).await.expect("an answer");
    post(&mock, "/none", r#"{"a":1}"#).await;
    let seen = mock.requests();
    assert_eq!(seen.len(), 2);
    assert_eq!((seen[0].rule.as_deref(), seen[1].rule.as_deref()), (Some("c"), None));
    assert_eq!((seen[0].method.as_str(), seen[0].path.as_str(), seen[0].query.as_str()), ("POST", "/q", "k=v"));
    assert_eq!((seen[0].header("X-Test"), &seen[0].body[..]), (Some("1"), &b"body"[..]));
    assert_eq!((seen[0].json(), seen[1].json()), (Value::Null, json!({"a": 1})));
    assert!(seen[0].at <= seen[1].at);
}

#[tokio::test]
async fn one_connection_serves_request_after_request() {
    let mock = one(r#"[{"head": {}}, {"text": "x"}]"#).await;
    let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    let mut stream = TcpStream::connect(mock.addr()).await.expect("a listener");
    // One alone, then two at once: the second is read early, while the first is answered.
    for requests in [1, 2] {
        stream.write_all("GET / HTTP/1.1\r\n\r\n".repeat(requests).as_bytes()).await.expect("open");
        let mut bytes = vec![0; answer.len() * requests];
        within(stream.read_exact(&mut bytes)).await.expect("answers");
        assert_eq!(bytes, answer.repeat(requests));
    }
    assert_eq!((mock.calls(), mock.active_connections()), (3, 1));
    drop(stream);
    // Between requests nobody is cut off.
    let stats = within(mock.wait_for(|stats| stats.active_connections == 0)).await;
    assert_eq!(stats.disconnects, 0);
}

#[tokio::test]
async fn the_admin_paths_say_the_same_over_http() {
    let script = Script::one(Answer::new().text("1").gate("g").text("2").gate("g").text("3"));
    let mock = start(script).await;
    let client = client();
    let url = |path: &str| format!("{}/__mock/{path}", mock.base_url());
    let get = |path: &str| client.get(url(path)).send();
    let send = |path: &str| client.post(url(path)).send();

    let mut answer =
        within(client.post(mock.base_url()).header("authorization", "k").body("{}").send()).await.expect("200");
    assert_eq!(within(send("gate/g?n=2")).await.expect("an answer").status(), 200);
    let mut text = Vec::new();
    while let Some(piece) = within(answer.chunk()).await.expect("whole") {
        text.extend_from_slice(&piece);
    }
    assert_eq!(text, b"123");

    let calls: Value = within(get("calls")).await.expect("an answer").json().await.expect("JSON");
    for (member, value) in
        [("total", json!(1)), ("by_rule", json!({"any": 1})), ("unmatched", json!(0)), ("disconnects", json!(0))]
    {
        assert_eq!(calls[member], value, "{member}");
    }
    let requests: Value = within(get("requests")).await.expect("an answer").json().await.expect("JSON");
    assert_eq!((&requests[0]["rule"], &requests[0]["body"]), (&json!("any"), &json!({})));
    assert!(requests[0]["headers"].as_array().expect("lines").contains(&json!(["authorization", "(1 bytes)"])));

    for (path, post, status) in [
        ("gate/none", true, 404),
        ("gate/g?n=x", true, 400),
        ("calls", true, 405),
        ("reset", false, 405),
        ("other", false, 404),
        ("reset", true, 200),
    ] {
        let answer = if post { within(send(path)).await } else { within(get(path)).await };
        assert_eq!(answer.expect("an answer").status(), status, "{path}");
    }
    assert_eq!((mock.calls(), mock.calls_of("any"), mock.requests().len()), (0, 0, 0));
}

#[tokio::test]
async fn a_reset_goes_back_to_the_first_answer_and_shuts_the_gates() {
    let rule = Rule::new("a").answer(Answer::new().text("0")).answer(Answer::new().text("1").gate("g"));
    let mock = start(Script::default().rule(rule)).await;
    mock.open_gate("g", 5);
    for text in ["0", "1", "1"] {
        assert_eq!(post(&mock, "/", "").await.text().await.expect("whole"), text);
    }
    mock.reset();
    assert_eq!(post(&mock, "/", "").await.text().await.expect("whole"), "0");
    let waits = post(&mock, "/", "").await;
    within(mock.wait_for(|stats| stats.at_gates == 1)).await;
    mock.open_gate("g", 1);
    assert_eq!(within(waits.text()).await.expect("whole"), "1");
}

#[tokio::test]
async fn a_stopped_mock_refuses_connections_and_ends_its_own() {
    let mock = one(r#"[{"text": "a"}, {"hang": true}]"#).await;
    let addr = mock.addr();
    let mut answer = post(&mock, "/", "").await;
    within(answer.chunk()).await.expect("the text");
    within(mock.stop()).await;
    assert!(within(answer.chunk()).await.is_err());
    let error = TcpStream::connect(addr).await.expect_err("nobody listens");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_dropped_mock_ends_its_connections() {
    let mock = one(r#"[{"text": "a"}, {"hang": true}]"#).await;
    let mut answer = post(&mock, "/", "").await;
    within(answer.chunk()).await.expect("the text");
    drop(mock);
    assert!(within(answer.chunk()).await.is_err());
}

#[tokio::test]
async fn what_cannot_be_played_does_not_start() {
    let error = MockProvider::start(Script::one(Answer::new().file("no-such-file"))).await.expect_err("no file");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let problems = error.get_ref().and_then(|inner| inner.downcast_ref::<ScriptProblems>()).expect("problems");
    assert!(problems.0[0].what.starts_with("no-such-file: "), "{problems}");
    let first = one("[]").await;
    let error = MockProvider::start(Script::default().listen(first.addr())).await.expect_err("the port is taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn answers_at_once_are_counted() {
    let answer = Answer::new().text("1").gate("g").text("2");
    let mock = start(Script::one(answer)).await;
    let ask = || tokio::spawn(client().post(mock.base_url()).body("{}").send());
    let running = [ask(), ask()];
    let stats = within(mock.wait_for(|stats| stats.at_gates == 2)).await;
    assert_eq!((stats.answering, stats.most_answering), (2, 2));
    mock.open_gate("g", 1);
    within(mock.wait_for(|stats| stats.answering == 1)).await;
    mock.reset();
    assert_eq!((mock.stats().answering, mock.most_answering()), (1, 1), "what runs goes on");
    mock.open_gate("g", 2);
    within(mock.wait_for(|stats| stats.answering == 0)).await;
    drop(running);
    assert_eq!(mock.most_answering(), 1);
}

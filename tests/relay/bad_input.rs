//! Bad input: a clear error in the caller's dialect, no provider called, the process unharmed, other streams untouched. One
//! stream runs all the while and ends as it must.

use std::collections::BTreeMap;

use rubicon::mock::{Answer, MockProvider, Rule, Script, Step, chat, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::Value;
use tokio::time::timeout;

use crate::child::{Serving, code, file, printed, run};
use crate::harness::{
    Answered, Http, PATIENCE, client, path, post, provider, read, relay, relay_with, request, send, two, url,
};
use crate::raw::{Raw, message};

const CHAT: Dialect = Dialect::ChatCompletions;
const ANTHROPIC: Dialect = Dialect::AnthropicMessages;
const DIALECTS: [Dialect; 3] = Dialect::ALL;

/// Two workflows, three clients: one for both workflows, one for the second, one for none.
async fn keyed(stub: &MockProvider) -> Server {
    let base = stub.base_url();
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nmax_body_bytes = 4096\nmax_in_flight = 3\n\
         [[client]]\nname = \"both\"\nkeys = [\"env:BOTH\"]\nworkflows = [\"one\", \"two\"]\n\
         [[client]]\nname = \"second\"\nkeys = [\"env:SECOND\"]\nworkflows = [\"two\"]\n\
         [[client]]\nname = \"none\"\nkeys = [\"env:NONE\"]\n\
         [provider.a]\nkind = \"openai-compatible\"\nbase_url = \"{base}/v1\"\n[route.a]\nprovider = \"a\"\n\
         dialects = [\"chat-completions\", \"anthropic-messages\", \"responses\"]\n\
         [workflow.one]\nmodels = [\"m\"]\nprimary = \"a\"\n[workflow.two]\nmodels = [\"m2\"]\nprimary = \"a\"\n"
    );
    relay_with(&text, &BTreeMap::from([("BOTH", "key-both"), ("SECOND", "key-second"), ("NONE", "key-none")])).await
}

/// One bad request: what is changed of a good one, and what must come back.
struct Bad {
    name: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    /// `None`: the dialect's good request.
    body: Option<Vec<u8>>,
    status: u16,
    code: &'static str,
}

fn bad(name: &'static str, status: u16, code: &'static str) -> Bad {
    Bad { name, headers: Vec::new(), body: None, status, code }
}

impl Bad {
    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }
}

fn rows() -> Vec<Bad> {
    let second = ("authorization", "Bearer key-second");
    vec![
        bad("no body", 400, "invalid_json").body(""),
        bad("cut JSON", 400, "invalid_json").body("{\"model\":\"m\",\"messages\":["),
        bad("an array", 400, "invalid_json").body("[]"),
        bad("null", 400, "invalid_json").body("null"),
        bad("two objects", 400, "invalid_json").body("{\"model\":\"m\"}{}"),
        bad("not UTF-8", 400, "invalid_json").body(b"{\"model\":\"\xff\xfe\"}".to_vec()),
        bad("model twice", 400, "model_twice").body("{\"model\":\"m\",\"messages\":[],\"model\":\"m\"}"),
        bad("model is a number", 400, "invalid_type").body("{\"model\":7,\"messages\":[]}"),
        bad("stream is text", 400, "invalid_type").body("{\"model\":\"m\",\"stream\":\"yes\",\"messages\":[]}"),
        bad("model of nobody", 400, "unknown_model").body("{\"model\":\"other\",\"messages\":[]}"),
        bad("no model, two workflows", 400, "unknown_model").body("{\"messages\":[]}"),
        bad("too large", 413, "request_too_large").body(vec![b' '; 5000]),
        bad("not JSON by its type", 415, "unsupported_media_type").header("content-type", "text/plain"),
        bad("a form", 415, "unsupported_media_type").header("content-type", "multipart/form-data; boundary=x"),
        bad("compressed", 415, "unsupported_content_encoding").header("content-encoding", "gzip"),
        bad("workflow of nobody", 400, "unknown_workflow").header("rubicon-workflow", "three"),
        bad("workflow of another client", 400, "unknown_workflow")
            .header(second.0, second.1)
            .header("rubicon-workflow", "one"),
        bad("a client without workflows", 403, "no_workflow_allowed").header("authorization", "Bearer key-none"),
        bad("no key", 401, "missing_api_key").header("authorization", ""),
        bad("no bearer", 401, "missing_api_key").header("authorization", "Basic key-both"),
        bad("wrong key", 401, "invalid_api_key").header("authorization", "Bearer key-bot"),
        bad("longer key", 401, "invalid_api_key").header("authorization", "Bearer key-both-and-more"),
        bad("deadline 0", 400, "invalid_header").header("rubicon-deadline-ms", "0"),
        bad("deadline in words", 400, "invalid_header").header("rubicon-deadline-ms", "soon"),
        bad("negative attempts", 400, "invalid_header").header("rubicon-max-attempts", "-1"),
        bad("attempts used in words", 400, "invalid_header").header("rubicon-attempts-used", "few"),
        bad("an SDK's odd count", 400, "invalid_header").header("x-stainless-retry-count", "?"),
        bad("odd side effects", 400, "invalid_header").header("rubicon-side-effects", "all"),
        bad("a key with a space", 400, "invalid_header").header("idempotency-key", "a b"),
        bad("ids", 400, "not_built_yet").header("rubicon-ids", "1"),
        bad("restart", 404, "operation_not_found").header("rubicon-restart-of", "op_unknown"),
        bad("ids", 400, "not_built_yet").header("rubicon-ids", "1"),
    ]
}

/// The shape of the dialect's errors, and the relay's own member.
fn assert_error(dialect: Dialect, answer: &Answered, status: u16, code: &str, what: &str) -> Value {
    assert_eq!(answer.status, status, "{what}: {}", answer.text());
    assert!(answer.clean && answer.header("content-type").starts_with("application/json"), "{what}: {answer:?}");
    let body = answer.json();
    let error = &body["error"];
    assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{what}: {body}");
    assert!(error["type"].is_string(), "{what}: {body}");
    assert_eq!(error["code"], code, "{what}: {body}");
    match dialect {
        CHAT | Dialect::Responses => {
            assert!(body.get("type").is_none() && error.get("param").is_some(), "{what}: {body}")
        }
        ANTHROPIC => assert_eq!(body["type"], "error", "{what}: {body}"),
    }
    let own = &body["rubicon"];
    assert_eq!((&own["reason"], &own["attempts"]), (&code.into(), &0.into()), "{what}: {body}");
    let shed = matches!(status, 429 | 503);
    assert_eq!(own["status"], if shed { "unavailable" } else { "rejected" }, "{what}: {body}");
    assert_eq!(answer.header("x-should-retry"), if shed { "" } else { "false" }, "{what}");
    body
}

#[tokio::test]
async fn every_bad_request_gets_a_clear_error_and_calls_nobody() {
    let long = Answer::sse().step(chat::role()).step(chat::delta("still ")).gate("end");
    let long = long.step(chat::delta("here")).step(chat::finish("stop")).step(chat::done());
    let stub = provider(Rule::new("a").answer(long).answer(chat_text(&["good"]))).await;
    let relay = keyed(&stub).await;
    for http in [Http::One, Http::Two] {
        stub.reset();
        let client = client(http);
        let good =
            |dialect: Dialect| client.post(url(&relay, path(dialect))).header("content-type", "application/json");
        let running = good(CHAT).header("authorization", "Bearer key-both").body(request(CHAT, true)).send();
        let mut running = running.await.expect("a head");
        let mut seen = running.chunk().await.expect("data").expect("not the end").to_vec();

        for dialect in DIALECTS {
            for row in rows() {
                let what = format!("{} ({dialect:?}, {http:?})", row.name);
                let mut headers = reqwest::header::HeaderMap::new();
                headers.insert("authorization", "Bearer key-both".parse().expect("a value"));
                for (name, value) in &row.headers {
                    if value.is_empty() {
                        headers.remove(*name);
                    } else {
                        headers.insert(*name, value.parse().expect("a value"));
                    }
                }
                // `headers` replaces what the builder has under the same name.
                let body = row.body.unwrap_or_else(|| request(dialect, true).into_bytes());
                let answer = send(good(dialect).headers(headers).body(body)).await;
                assert_error(dialect, &answer, row.status, row.code, &what);
                assert_eq!(answer.header("cache-control"), "no-store", "{what}");
            }
        }
        assert_eq!(stub.calls(), 1, "{http:?}: a bad request reached the provider");

        // The keys that are right, in every form that the SDKs send.
        for (name, value) in
            [("authorization", "Bearer key-both"), ("x-api-key", "key-both"), ("x-goog-api-key", "key-both")]
        {
            for dialect in DIALECTS {
                let answer = send(good(dialect).header(name, value).body(request(dialect, true))).await;
                assert_eq!(answer.status, 200, "{name} {dialect:?}: {}", answer.text());
            }
        }
        assert!(stub.open_gate("end", 1));
        while let Some(chunk) = running.chunk().await.expect("untouched") {
            seen.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(seen).expect("UTF-8");
        assert!(text.contains("still ") && text.contains("here") && text.ends_with("data: [DONE]\n\n"), "{text}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods() {
    let stub = provider(Rule::new("a").answer(chat_text(&["x"]))).await;
    let relay = relay(&two(&stub, &stub, "")).await;
    for http in [Http::One, Http::Two] {
        let client = client(http);
        for (method, path, status, code, dialect) in [
            ("POST", "/", 404, "not_found", CHAT),
            ("POST", "/v1/chat/completion", 404, "not_found", CHAT),
            ("GET", "/v1/chat/completions/", 404, "not_found", CHAT),
            ("POST", "/v1/messages/batches", 404, "not_found", ANTHROPIC),
            ("GET", "/v1/responses/resp_1", 404, "not_built_yet", CHAT),
            ("GET", "/v1/responses", 405, "method_not_allowed", CHAT),
            ("POST", "/v1/completions", 404, "not_found", CHAT),
            ("GET", "/v1/chat/completions", 405, "method_not_allowed", CHAT),
            ("PUT", "/v1/messages", 405, "method_not_allowed", ANTHROPIC),
            ("DELETE", "/v1/models", 405, "method_not_allowed", CHAT),
            ("GET", "/v1/operations/op_unknown", 404, "operation_not_found", CHAT),
            ("DELETE", "/v1/operations/op_unknown", 404, "operation_not_found", CHAT),
        ] {
            let method = method.parse().expect("a method");
            let answer = send(client.request(method, url(&relay, path)).body("{}")).await;
            assert_error(dialect, &answer, status, code, path);
        }
    }
    assert_eq!(stub.calls(), 0);
}

#[tokio::test]
async fn without_clients_only_loopback_names_are_served() {
    let stub = provider(Rule::new("a").answer(chat_text(&["x"]))).await;
    let relay = relay(&two(&stub, &stub, "")).await;
    let port = relay.address().port();
    for (lines, good) in [
        (format!("host: 127.0.0.1:{port}\r\n"), true),
        (format!("host: LOCALHOST:{port}\r\n"), true),
        (format!("host: [::1]:{port}\r\n"), true),
        ("host: localhost\r\norigin: http://localhost:3000\r\n".to_owned(), true),
        ("host: localhost\r\nauthorization: Bearer whatever\r\nx-api-key: whatever\r\n".to_owned(), true),
        ("host: evil.test\r\n".to_owned(), false),
        ("host: localhost.evil.test\r\n".to_owned(), false),
        (format!("host: 127.0.0.1.evil.test:{port}\r\n"), false),
        ("host: localhost\r\norigin: https://evil.test\r\n".to_owned(), false),
        ("host: localhost\r\norigin: null\r\n".to_owned(), false),
        ("host: \r\n".to_owned(), false),
        (String::new(), false),
    ] {
        for dialect in DIALECTS {
            let before = stub.calls();
            let (path, body) = (path(dialect), request(dialect, true));
            let head =
                format!("POST {path} HTTP/1.1\r\n{lines}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let mut raw = Raw::open(relay.address()).await;
            raw.write(format!("{head}{body}").as_bytes()).await;
            assert!(raw.read_to_end().await, "{lines:?}");
            assert_eq!(raw.status(), if good { 200 } else { 403 }, "{lines:?}: {}", raw.text());
            assert_eq!(stub.calls() - before, u64::from(good), "{lines:?}");
            if !good {
                let body: Value = serde_json::from_str(&raw.body()).expect("JSON");
                assert_eq!(body["error"]["code"], "host_not_allowed", "{body}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_no_http_harms_nobody() {
    let stub = provider(Rule::new("a").answer(chat_text(&["x"]))).await;
    let relay = relay(&two(&stub, &stub, "")).await;
    let (address, body) = (relay.address(), request(CHAT, true));
    let with = |lines: &str| format!("POST {} HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n\r\n{body}", path(CHAT));
    let long = "x".repeat(80 * 1024);
    let many: String = (0..500).map(|n| format!("x-{n}: y\r\n")).collect();
    for (what, bytes, statuses) in [
        ("a long header", message(CHAT, address, &format!("x-long: {long}\r\n"), &body), &[431][..]),
        ("many headers", message(CHAT, address, &many, &body), &[431]),
        ("a long target", format!("POST /{long} HTTP/1.1\r\nhost: localhost\r\n\r\n"), &[414, 431]),
        ("TLS", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\r\n\r\n".to_owned(), &[400]),
        ("nonsense", "what?\r\n\r\n".to_owned(), &[400]),
        ("another version", "POST / HTTP/3.1\r\n\r\n".to_owned(), &[400, 505]),
        ("two lengths", with(&format!("content-length: {}\r\ncontent-length: 3", body.len())), &[400]),
        ("a negative length", with("content-length: -5"), &[400]),
        ("an unknown coding", with("transfer-encoding: zip"), &[400, 501]),
        ("a broken chunk", with("transfer-encoding: chunked"), &[400]),
        ("half an HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense that is no frame at all".to_owned(), &[0]),
    ] {
        let mut raw = Raw::open(address).await;
        raw.try_write(bytes.as_bytes()).await;
        raw.half_close().await;
        raw.read_to_end().await;
        let status = raw.status();
        let seen = if raw.text().starts_with("HTTP/1.1 ") { status } else { 0 };
        assert!(statuses.contains(&seen), "{what}: {}", raw.text());
        assert_eq!(stub.calls(), 0, "{what}");
    }
    let large = reqwest::header::HeaderValue::from_str(&long).expect("a value");
    let two = client(Http::Two);
    let answer = send(two.post(url(&relay, path(CHAT))).header("x-long", large).body(body.clone())).await;
    assert_eq!((answer.status, stub.calls()), (431, 0), "a long header over HTTP/2");
    // A head over the limit, but not absurdly so, is refused in the dialect.
    for dialect in Dialect::ALL {
        let long = reqwest::header::HeaderValue::from_str(&long).expect("a value");
        let to = client(Http::One).post(url(&relay, path(dialect))).header("x-long", long);
        let answer = send(to.body(request(dialect, true))).await;
        assert_eq!((answer.status, stub.calls()), (431, 0));
        assert_eq!(answer.json()["error"]["code"], "request_head_too_large");
        assert_eq!(answer.json()["type"] == "error", dialect == Dialect::AnthropicMessages);
    }
    let good = post(&client(Http::One), &relay, path(CHAT), body).await;
    assert_eq!((good.status, stub.calls()), (200, 1), "and all is well");
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_reads_only_after_it_has_written_all() {
    // Most SDKs of scripting languages do so. A socket closed over unread bytes is reset by the kernel, and the answer lost.
    let stub = provider(Rule::new("a").answer(chat_text(&["x"]))).await;
    let relay = keyed(&stub).await;
    let body = " ".repeat(24 << 20);
    for (headers, status) in [("authorization: Bearer key-both\r\n", 413), ("", 401), ("x-api-key: wrong\r\n", 401)] {
        for dialect in DIALECTS {
            let mut raw = Raw::open(relay.address()).await;
            let whole = message(dialect, relay.address(), headers, &body);
            assert!(raw.try_write(whole.as_bytes()).await, "{status} {dialect:?}: cut while writing");
            raw.read_until("\r\n\r\n").await;
            assert_eq!(raw.status(), status, "{}", raw.text());
            assert!(raw.text().contains("\r\nconnection: close\r\n"), "nothing more can be sent there: {}", raw.text());
        }
    }
    // Where the body was read the connection stays.
    let mut raw = Raw::post(relay.address(), CHAT, "x-api-key: key-both\r\n", "{}").await;
    raw.read_until("unknown_model").await;
    raw.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    raw.read_until("\"ok\"").await;
    assert!(!raw.text().contains("connection: close"), "{}", raw.text());
    assert_eq!(stub.calls(), 0);
}

#[tokio::test]
async fn a_body_of_unknown_length_has_the_same_bound() {
    let stub = provider(Rule::new("a").answer(chat_text(&["x"]))).await;
    let relay = keyed(&stub).await;
    for dialect in DIALECTS {
        let mut raw = Raw::open(relay.address()).await;
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: x\r\nx-api-key: key-both\r\ntransfer-encoding: chunked\r\n\r\n",
            path(dialect)
        );
        raw.write(head.as_bytes()).await;
        // More than the bound, and never an end.
        for _ in 0..6 {
            raw.write(format!("400\r\n{}\r\n", " ".repeat(1024)).as_bytes()).await;
        }
        raw.read_until("request_too_large").await;
        assert_eq!(raw.status(), 413);
    }
    assert_eq!(stub.calls(), 0);
}

#[tokio::test]
async fn nesting_without_end_is_no_harm() {
    let stub = provider(Rule::new("a").answer(Answer::json_error(400, serde_json::json!({ "error": {} })))).await;
    let relay = relay(&two(&stub, &stub, "")).await;
    let client = client(Http::One);
    let deep = 1 << 20;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for member in ["messages", "tools", "tool_choice", "response_format", "thinking", "metadata", "system", "x"] {
            for dialect in DIALECTS {
                let value = format!("{}1{}", open.repeat(deep), close.repeat(deep));
                let answer =
                    post(&client, &relay, path(dialect), format!("{{\"model\":\"m\",\"{member}\":{value}}}")).await;
                assert_eq!(answer.status, 400, "{member} {dialect:?}: {}", answer.text());
            }
        }
    }
}

#[tokio::test]
async fn what_is_over_the_limit_in_flight_is_shed() {
    let stub =
        provider(Rule::new("a").answer(Answer::sse().step(chat::delta("x")).hang()).answer(chat_text(&["y"]))).await;
    let relay = keyed(&stub).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        stub.reset();
        let headers = "authorization: Bearer key-both\r\n";
        let mut raw = Raw::post(relay.address(), CHAT, headers, &request(CHAT, true)).await;
        raw.read_until("\"x\"").await;
        running.push(raw);
    }
    let client = client(Http::One);
    let ask = |dialect: Dialect| {
        let to = client.post(url(&relay, path(dialect))).header("x-api-key", "key-both");
        send(to.header("content-type", "application/json").body(request(dialect, true)))
    };
    for dialect in DIALECTS {
        let answer = ask(dialect).await;
        let body = assert_error(dialect, &answer, 503, "overloaded", "shed");
        assert_eq!((answer.header("retry-after"), &body["rubicon"]["retryable"]), ("1", &true.into()));
    }
    assert_eq!(stub.calls(), 1);
    // Who knows no key learns nothing of the load.
    let stranger = send(client.post(url(&relay, path(CHAT))).body(request(CHAT, true))).await;
    assert_eq!(stranger.status, 401);
    running.pop();
    timeout(PATIENCE, relay.app().admission.at_most(2)).await.expect("a permit");
    assert_eq!(ask(CHAT).await.status, 200);
}

/// A provider's answer that is over a bound, before and after the boundary.
#[tokio::test]
async fn a_provider_over_a_bound_is_a_failure_before_and_an_interruption_after() {
    let long = "x".repeat(70_000);
    let line = |prefix: &str| Step::Text(format!("{prefix}{long}\n\n"));
    let event = Step::Text("data: x\n".repeat(10_000) + "\n");
    // A line that never ends: the bound must be seen at the byte over it, not at the line's end.
    let endless = Step::Text(format!("data: {long}"));
    let config = |a: &MockProvider, b: &MockProvider| {
        format!("[server]\nlisten = \"127.0.0.1:0\"\nmax_event_bytes = 65536\n{}", two(a, b, ""))
    };
    for (what, step) in
        [("a line", line("data: ")), ("a comment", line(": ")), ("an event", event), ("an endless line", endless)]
    {
        for after in [false, true] {
            let mut answer = Answer::sse().step(chat::role());
            if after {
                answer = answer.step(chat::delta("seen"));
            }
            let a = provider(Rule::new("a").answer(answer.step(step.clone()).hang())).await;
            let b = provider(Rule::new("b").answer(chat_text(&["from b"]))).await;
            let relay = relay(&config(&a, &b)).await;
            let answer = post(&client(Http::One), &relay, path(CHAT), request(CHAT, true)).await;
            if after {
                assert!(!answer.clean && answer.text().contains("seen"), "{what}: {answer:?}");
                let own = &answer.last_event()["error"]["rubicon"];
                assert_eq!(
                    (&own["status"], &own["reason"]),
                    (&"interrupted".into(), &"partial_output".into()),
                    "{what}"
                );
                assert_eq!((a.calls(), b.calls()), (1, 0), "{what}");
            } else {
                assert!(answer.clean && answer.text().contains("from b"), "{what}: {answer:?}");
                assert_eq!((a.calls(), b.calls()), (1, 1), "{what}");
            }
            assert!(!answer.text().contains("xxxx"), "{what}: nothing of it was passed on");
            timeout(PATIENCE, a.wait_for(|stats| stats.disconnects == 1)).await.expect("and the rest is not read");
        }
    }
}

#[tokio::test]
async fn a_providers_head_over_its_bound_is_a_failure() {
    let head = Answer::new().head(200, &[("content-type", "text/event-stream"), ("x-long", &"x".repeat(300 * 1024))]);
    let a = provider(Rule::new("a").answer(head.step(chat::delta("a")).hang())).await;
    let b = provider(Rule::new("b").answer(chat_text(&["from b"]))).await;
    let relay = relay(&two(&a, &b, "")).await;
    let answer = post(&client(Http::One), &relay, path(CHAT), request(CHAT, true)).await;
    assert!(answer.clean && answer.text().contains("from b"), "{answer:?}");
}

/// Twelve problems of different kinds, each on a line of its own.
const MANY: &str = r#"[server]
listen = "nowhere"
max_in_flight = 0
colour = "red"
[provider.p]
kind = "openai"
base_url = "ftp://x"
[provider.q]
kind = "telepathy"
[route.r]
provider = "nobody"
timeouts = { idle_ms = "long" }
[workflow.w]
primary = "elsewhere"
resume = { keep_ms = 1 }
[[client]]
name = "c"
keys = ["env:NOT_SET_ANYWHERE"]
workflows = ["none"]
[[approval]]
workflow = "w"
"#;

#[tokio::test]
async fn a_config_with_many_problems_tells_all_of_them_at_once() {
    let (_folder, path) = file("rubicon.toml", MANY);
    let output = run(&["check", "-c", &path], &[]).await;
    let text = printed(&output);
    assert_eq!(code(&output), 1, "{text}");
    for (line, key) in [
        (2, "server.listen"),
        (3, "server.max_in_flight"),
        (4, "server.colour"),
        (7, "provider.p.base_url"),
        (9, "provider.q.kind"),
        (11, "route.r.provider"),
        (12, "route.r.timeouts.idle_ms"),
        (14, "workflow.w.primary"),
        (15, "workflow.w.resume"),
        (18, "client"),
        (19, "client"),
        (20, "approval"),
    ] {
        let place = format!("{path}:{line}: error: {key}");
        assert!(text.contains(&place), "{place} is missing:\n{text}");
    }
    let output = run(&["check", "-c", &path, "--json"], &[]).await;
    assert_eq!(code(&output), 1);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["ok"], false);
    assert!(report["problems"].as_array().is_some_and(|problems| problems.len() >= 12), "{report}");

    let output = run(&["serve", "-c", &path], &[]).await;
    let text = printed(&output);
    assert_eq!(code(&output), 1, "{text}");
    assert!(text.contains("not started") && text.contains("server.colour") && text.contains("approval"), "{text}");
}

#[tokio::test]
async fn exit_codes_of_the_binary() {
    let good = "[provider.p]\nkind = \"openai\"\napi_key = \"env:KEY\"\n[route.r]\nprovider = \"p\"\n[workflow.w]\nprimary = \"r\"\n";
    let open = format!("[server]\nlisten = \"0.0.0.0:0\"\n{good}");
    let (_one, good) = file("good.toml", good);
    let (_two, open) = file("open.toml", &open);
    let (_three, broken) = file("broken.toml", "[provider.p\nkind = ");
    let env: &[(&str, &str)] = &[("KEY", "a-key-for-tests")];
    for (args, env, expected) in [
        (&["check", "-c", &good][..], env, 0),
        (&["check", "-c", &good], &[], 1),
        (&["check", "-c", "/nonexistent/rubicon.toml"], env, 1),
        (&["check", "-c", &broken], env, 1),
        (&["check", "-c", &open], env, 1),
        (&["serve", "-c", &good], &[], 1),
        (&["serve", "-c", &open], env, 1),
        (&["serve", "-c", "/nonexistent/rubicon.toml"], env, 1),
        (&[], env, 2),
        (&["dance"], env, 2),
        (&["check", "--nonsense"], env, 2),
        (&["serve", "-c"], env, 2),
        (&["--help"], env, 0),
        (&["--version"], env, 0),
        (&["serve", "--help"], env, 0),
    ] {
        let output = run(args, env).await;
        assert_eq!(code(&output), expected, "{args:?}: {}", printed(&output));
        assert!(!printed(&output).contains("a-key-for-tests"), "{args:?}");
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_told_and_ends_with_1() {
    let stub = MockProvider::start(Script::one(chat_text(&["x"]))).await.expect("a stub");
    let text = two(&stub, &stub, "");
    let first = Serving::start("", &text, &[]).await;
    let (_folder, path) = file("rubicon.toml", &format!("[server]\nlisten = \"{}\"\n{text}", first.address));
    let output = run(&["serve", "-c", &path], &[]).await;
    let told = printed(&output);
    assert_eq!(code(&output), 1, "{told}");
    assert!(told.to_lowercase().contains("in use"), "{told}");
    // The first one is none the worse for it.
    let ask = client(Http::One).post(first.url(path_of_chat())).body(request(CHAT, true)).send().await.expect("a head");
    assert_eq!(read(ask).await.status, 200);
    assert_eq!(first.stop().await.0, 0);
}

fn path_of_chat() -> &'static str {
    path(CHAT)
}

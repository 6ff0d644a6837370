//! Paths that a workflow passes through: to its primary's provider, once, as they are, and back.

use rubicon::clock::UnixMillis;
use rubicon::gate::{Switch, Switches};
use rubicon::ids::RouteId;
use rubicon::mock::{Answer, MockProvider, Rule, Script, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::json;

use crate::harness::{Answered, Http, client, path, post, provider, read, relay, relay_with, request, send, url};
use crate::raw::Raw;
use crate::setup::{Setup, always, refused_base};
use crate::streams::error_frame_of;

const LISTED: &str =
    r#"passthrough = ["/v1/files", "/v1/files/*", "/v1/embeddings", "/v1/responses/{id}", "/v1/messages/batches"]"#;

/// A primary at a provider that takes a key.
fn setup(at: &MockProvider) -> Setup {
    Setup::primary(at.base_url()).with_provider("api_key = \"env:KEY\"").workflow(LISTED)
}

async fn start(setup: &Setup) -> Server {
    relay_with(&setup.text(), &[("KEY", "zebra-upstream"), ("YAK", "yak-client"), ("EWE", "ewe-client")].into()).await
}

async fn ask(relay: &Server, method: &str, path: &str, body: &[u8]) -> Answered {
    let method = method.parse().expect("a method");
    send(client(Http::One).request(method, url(relay, path)).body(body.to_vec())).await
}

fn code(answered: &Answered) -> (u16, String) {
    let code = answered.json()["error"]["code"].as_str().unwrap_or_default().to_owned();
    (answered.status, code)
}

#[tokio::test]
async fn a_request_and_its_answer_pass_as_they_are() {
    // Bytes that are no UTF-8 can't stand in a script, so there is a file.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("content");
    let content: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(&file, &content).expect("a file");
    let head = [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment; filename=\"x.bin\""),
        ("x-request-id", "req-1"),
        ("set-cookie", "a=b"),
        ("x-ratelimit-remaining-requests", "7"),
        ("openai-organization", "org"),
    ];
    let a = always(Answer::new().head(200, &head).file(&file)).await;
    let relay = start(&setup(&a)).await;
    for http in [Http::One, Http::Two] {
        for (method, path, query, sent) in [
            ("GET", "/v1/files/file-1/content", "", &b""[..]),
            ("POST", "/v1/files", "purpose=x&limit=%20", b"--b\r\n\xff\xfe\r\n--b--"),
            ("DELETE", "/v1/files/a%2Fb%20c", "", b""),
            ("PUT", "/v1/files/x", "", b"{\"a\":1}"),
            ("PATCH", "/v1/responses/resp_1", "", b"null"),
        ] {
            a.reset();
            let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}&api_key=mine") };
            let answered = send(
                client(http)
                    .request(method.parse().expect("a method"), url(&relay, &target))
                    .header("content-type", "multipart/form-data; boundary=b")
                    .header("authorization", "Bearer callers-own")
                    .header("x-api-key", "callers-own")
                    .header("cookie", "session=1")
                    .header("x-forwarded-for", "10.0.0.1")
                    .header("openai-beta", "assistants=v2")
                    .header("idempotency-key", "k")
                    .body(sent.to_vec()),
            )
            .await;
            assert!(answered.status == 200 && answered.clean && answered.body == content, "{method} {path}");
            assert_eq!(answered.header("content-type"), "application/octet-stream");
            assert_eq!(answered.header("content-disposition"), "attachment; filename=\"x.bin\"");
            assert_eq!(answered.header("rubicon-provider-request-id"), "req-1");
            assert_eq!((answered.header("rubicon-attempts"), answered.header("rubicon-recovery")), ("1", "none"));
            for kept in ["set-cookie", "x-ratelimit-remaining-requests", "openai-organization", "rubicon-operation-id"]
            {
                assert!(!answered.headers.contains_key(kept), "{kept}");
            }
            let seen = a.requests().pop().expect("a call");
            assert_eq!((a.calls(), seen.method.as_str(), seen.path.as_str()), (1, method, path));
            assert_eq!((seen.query.as_str(), &seen.body[..]), (query, sent), "no key of the caller's in it");
            assert_eq!(seen.header("content-type"), Some("multipart/form-data; boundary=b"));
            assert_eq!(seen.header("authorization"), Some("Bearer zebra-upstream"));
            assert_eq!(seen.header("openai-beta"), Some("assistants=v2"));
            for stripped in ["cookie", "x-api-key", "x-forwarded-for", "idempotency-key"] {
                assert_eq!(seen.header(stripped), None, "{stripped}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_not_listed_is_not_served() {
    let a = always(Answer::json(200, json!({}))).await;
    let plain = relay(&Setup::primary(a.base_url()).text()).await;
    let listed = start(&setup(&a)).await;
    for (method, path, without, with) in [
        ("GET", "/v1/files", "not_found", None),
        ("GET", "/v1/responses/resp_1", "not_built_yet", None),
        ("GET", "/v1/responses/resp_1/input_items", "not_built_yet", Some("not_built_yet")),
        ("GET", "/v1/filesystem", "not_found", Some("not_found")),
        ("GET", "/v1/files/", "not_found", Some("not_found")),
        ("POST", "/v1/embeddings/x", "not_found", Some("not_found")),
        ("GET", "/files", "not_found", Some("not_found")),
        ("GET", "/v1/%66iles", "not_found", Some("not_found")),
    ] {
        a.reset();
        assert_eq!(code(&ask(&plain, method, path, b"").await), (404, without.to_owned()), "{path}");
        assert_eq!(a.calls(), 0);
        let answered = ask(&listed, method, path, b"").await;
        match with {
            None => assert_eq!((answered.status, a.calls()), (200, 1), "{path}"),
            Some(with) => assert_eq!((code(&answered), a.calls()), ((404, with.to_owned()), 0), "{path}"),
        }
    }
}

#[tokio::test]
async fn no_path_leads_elsewhere() {
    let a = always(Answer::json(200, json!({}))).await;
    let relay = start(&setup(&a)).await;
    let status = async |target: &str, lines: &str| {
        let mut raw = Raw::open(relay.address()).await;
        let message = format!("GET {target} HTTP/1.1\r\nhost: {}\r\n{lines}connection: close\r\n\r\n", relay.address());
        raw.write(message.as_bytes()).await;
        raw.read_to_end().await;
        raw.status()
    };
    for target in [
        "/v1/files/..",
        "/v1/files/../admin",
        "/v1/files/%2e%2e/admin",
        "/v1/files/x/%2E./%2e.",
        "/v1/files/..%2fadmin",
        "/v1/files/..%5cadmin",
        "/v1/files/..;/admin",
        "/v1/files/.",
        "/v1/files/%00",
        "/v1/files/%0d%0ahost:evil.test",
        "/v1/files/%zz",
    ] {
        assert_eq!(status(target, "").await, 400, "{target}");
    }
    assert_eq!(a.calls(), 0);
    // The host of an absolute target and of the header is the caller's own affair, never the provider's.
    for (target, path) in [
        (format!("http://{}/v1/files/x", relay.address()), "/v1/files/x"),
        ("/v1/files/@evil.test".to_owned(), "/v1/files/@evil.test"),
        ("/v1/files/evil.test:80".to_owned(), "/v1/files/evil.test:80"),
        ("/v1/files/a%2F%2Fevil.test".to_owned(), "/v1/files/a%2F%2Fevil.test"),
    ] {
        a.reset();
        assert_eq!(status(&target, "x-forwarded-host: evil.test\r\n").await, 200, "{target}");
        let seen = a.requests().pop().expect("a call");
        assert_eq!((seen.path.as_str(), seen.header("host")), (path, Some(a.addr().to_string().as_str())));
    }
}

#[tokio::test]
async fn refusals_before_any_call() {
    let a = always(Answer::json(200, json!({}))).await;
    let relay = start(&setup(&a).server("max_body_bytes = 1024")).await;
    let large = ask(&relay, "POST", "/v1/files", &[b'x'; 1025]).await;
    assert_eq!(code(&large), (413, "request_too_large".to_owned()));
    let gzip = client(Http::One).post(url(&relay, "/v1/files")).header("content-encoding", "gzip").body("x");
    assert_eq!(code(&send(gzip).await), (415, "unsupported_content_encoding".to_owned()));
    assert_eq!(code(&ask(&relay, "TRACE", "/v1/files", b"").await), (405, "method_not_allowed".to_owned()));
    let bad = client(Http::One).get(url(&relay, "/v1/files")).header("rubicon-deadline-ms", "soon");
    assert_eq!(send(bad).await.status, 400);
    let mut old = Raw::open(relay.address()).await;
    old.write(format!("GET /v1/files HTTP/1.0\r\nhost: {}\r\n\r\n", relay.address()).as_bytes()).await;
    old.read_to_end().await;
    assert_eq!((old.status(), a.calls()), (426, 0));
}

/// Two workflows with paths of their own and one in common, for two clients.
fn shared(a: &MockProvider, b: &MockProvider) -> String {
    let mut text = String::from("[server]\nlisten = \"127.0.0.1:0\"\n");
    for (name, at) in [("a", a), ("b", b)] {
        text += &format!(
            "[provider.{name}]\nkind = \"openai-compatible\"\nbase_url = \"{}/v1\"\n\
             [route.{name}]\nprovider = \"{name}\"\nmodel = \"model-of-{name}\"\n\
             [workflow.{name}]\nprimary = \"{name}\"\nmodels = [\"alias-{name}\"]\n\
             passthrough = [\"/v1/embeddings\", \"/v1/only-{name}\"]\n",
            at.base_url()
        );
    }
    text + "[[client]]\nname = \"yak\"\nkeys = [\"env:YAK\"]\nworkflows = [\"a\", \"b\"]\n\
            [[client]]\nname = \"ewe\"\nkeys = [\"env:EWE\"]\nworkflows = [\"b\"]\nshow_routes = true\n"
}

#[tokio::test]
async fn which_workflow_it_is() {
    let (a, b) = (always(Answer::json(200, json!({}))).await, always(Answer::json(200, json!({}))).await);
    let relay = relay_with(&shared(&a, &b), &[("YAK", "yak-client"), ("EWE", "ewe-client")].into()).await;
    let row = |key, path, workflow, body, status, code, model| (key, path, workflow, body, status, code, model);
    for (key, path, workflow, body, status, expected, model) in [
        row("yak-client", "/v1/embeddings", "a", "{}", 200, "a", None),
        row("yak-client", "/v1/embeddings", "b", r#"{"model":"alias-a"}"#, 200, "b", Some("alias-a")),
        row("yak-client", "/v1/embeddings", "", r#"{"model": "alias-a","x":1}"#, 200, "a", Some("model-of-a")),
        row("yak-client", "/v1/embeddings", "", r#"{"model":"b"}"#, 200, "b", Some("model-of-b")),
        row("yak-client", "/v1/embeddings", "", r#"{"model":"text-embedding"}"#, 400, "workflow_missing", None),
        row("yak-client", "/v1/embeddings", "", "not json", 400, "workflow_missing", None),
        row("yak-client", "/v1/only-b", "", r#"{"model":"text-embedding"}"#, 200, "b", Some("text-embedding")),
        row("yak-client", "/v1/only-b", "a", "{}", 404, "passthrough_not_configured", None),
        row("yak-client", "/v1/only-b", "", r#"{"model":"alias-a"}"#, 404, "passthrough_not_configured", None),
        row("yak-client", "/v1/embeddings", "none", "{}", 400, "unknown_workflow", None),
        row("ewe-client", "/v1/embeddings", "", "{}", 200, "b", None),
        row("ewe-client", "/v1/embeddings", "a", "{}", 400, "unknown_workflow", None),
        row("ewe-client", "/v1/only-a", "", "{}", 404, "passthrough_not_configured", None),
        row("wolf", "/v1/embeddings", "", "{}", 401, "invalid_api_key", None),
        row("", "/v1/embeddings", "", "{}", 401, "missing_api_key", None),
    ] {
        a.reset();
        b.reset();
        let mut asked = client(Http::One).post(url(&relay, path)).header("content-type", "application/json");
        if !key.is_empty() {
            asked = asked.header("authorization", format!("Bearer {key}"));
        }
        if !workflow.is_empty() {
            asked = asked.header("rubicon-workflow", workflow);
        }
        let answered = send(asked.body(body)).await;
        let what = format!("{key} {path} {workflow} {body}: {}", answered.text());
        assert_eq!(answered.status, status, "{what}");
        if status != 200 {
            assert_eq!((code(&answered).1.as_str(), a.calls() + b.calls()), (expected, 0), "{what}");
            continue;
        }
        assert_eq!((a.calls(), b.calls()), if expected == "a" { (1, 0) } else { (0, 1) }, "{what}");
        let seen = if expected == "a" { a.requests() } else { b.requests() }.pop().expect("a call");
        assert_eq!(seen.json()["model"].as_str(), model, "{what}");
        assert_eq!(answered.header("rubicon-served-route"), if key == "ewe-client" { "b" } else { "" });
        if body.contains("\"x\":1") {
            assert_eq!(&seen.body[..], br#"{"model": "model-of-a","x":1}"#, "the rest as it was");
        }
    }
}

#[tokio::test]
async fn failures_are_told_and_nothing_is_sent_twice() {
    let gone = refused_base().await;
    let b = always(Answer::json(200, json!({}))).await;
    let quoted = |status| {
        Answer::json_error(
            status,
            json!({ "error": { "message": "No such thing: zebra-upstream", "type": "invalid_request_error",
            "param": "id", "code": "nope" } }),
        )
    };
    let rows = [
        ("a rejection", quoted(404), 404, "invalid_request"),
        ("a bad request", quoted(400), 400, "invalid_request"),
        ("a wrong key", quoted(401), 424, "authentication_or_permission"),
        ("a server error", quoted(500), 424, "provider_server_error"),
        ("overload", quoted(503), 424, "provider_overloaded"),
        ("a rate", quoted(429).header("retry-after", "9"), 424, "rate_limited"),
        ("a redirect", Answer::new().head(302, &[("location", "http://evil.test/")]), 424, "unclassified"),
        ("a conflict", quoted(409), 424, "unclassified"),
        ("a reset", Answer::new().abort_rst(), 424, "transport_transient"),
        ("no answer", Answer::new().hang(), 424, "transport_transient"),
    ];
    for (what, answer, status, class) in rows {
        let a = always(answer).await;
        let relay = start(&setup(&a).with_route("timeouts = { answer_ms = 300 }").equivalent("b", &b)).await;
        for (path, anthropic) in [("/v1/files/x", false), ("/v1/messages/batches", true)] {
            a.reset();
            let answered = ask(&relay, "GET", path, b"").await;
            let found = answered.json();
            assert_eq!((answered.status, &found["rubicon"]["class"]), (status, &json!(class)), "{what}: {found}");
            assert_eq!(found["type"] == "error", anthropic, "{what}: {found}");
            assert!(found["error"]["message"].is_string() && found["rubicon"]["operation_id"].is_null(), "{found}");
            assert_eq!((a.calls(), b.calls(), &found["rubicon"]["attempts"]), (1, 0, &json!(1)), "{what}");
            assert_eq!(answered.header("x-should-retry"), "false", "{what}");
            assert!(!answered.text().contains("zebra") && !answered.headers.contains_key("location"), "{found}");
            assert_eq!(answered.header("retry-after"), if what == "a rate" { "9" } else { "" });
        }
    }
    let text = setup(&b).text().replacen(&b.base_url(), &gone, 1);
    let relay = relay_with(&text, &[("KEY", "zebra-upstream")].into()).await;
    let answered = ask(&relay, "POST", "/v1/embeddings", b"{}").await;
    assert_eq!((answered.status, &answered.json()["rubicon"]["class"]), (424, &json!("transport_transient")));
}

const RESPONSE_ENDS: &str = "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n";

/// A stream of a response that is made in the background, or fetched by its id, is whole with its own end only.
#[tokio::test]
async fn a_stream_of_responses_without_its_end_is_no_whole_one() {
    const CREATED: &str = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":4,\"response\":{\"id\":\"resp_1\"}}\n\n";
    const FAILED: &str = "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\"}}\n\n";
    for (text, clean, framed) in [
        (CREATED.to_owned(), false, true),
        (format!("{CREATED}{RESPONSE_ENDS}"), true, false),
        (format!("{CREATED}{FAILED}"), true, false),
        (format!("{CREATED}data: {{\"type\":"), false, false),
    ] {
        let length = text.len().to_string();
        let head = [("content-type", "text/event-stream"), ("content-length", length.as_str())];
        let a = always(Answer::new().head(200, &head).text(&text)).await;
        let relay = start(&setup(&a).workflow(r#"passthrough = ["/v1/responses", "/v1/responses/{id}"]"#)).await;
        for (method, path, body) in [
            ("GET", "/v1/responses/resp_1?stream=true", &b""[..]),
            ("POST", "/v1/responses", br#"{"model":"m","input":"hi","background":true,"stream":true}"#),
        ] {
            for http in [Http::One, Http::Two] {
                let asked = client(http).request(method.parse().expect("a method"), url(&relay, path));
                let answered = send(asked.header("content-type", "application/json").body(body.to_vec())).await;
                let tail = answered.text().strip_prefix(&text).unwrap_or_else(|| panic!("{}", answered.text()));
                assert_eq!((answered.status, answered.clean), (200, clean), "{method} {text}");
                assert_eq!(!tail.is_empty(), framed, "{method}: {tail}");
                if framed {
                    let rubicon = error_frame_of(Dialect::Responses, tail.as_bytes());
                    assert_eq!((&rubicon["after"], &rubicon["actions"]), (&json!(1), &json!(["resume"])), "{tail}");
                    assert!(tail.contains("\"sequence_number\":5"), "{tail}");
                }
            }
        }
    }
}

#[tokio::test]
async fn an_answer_passes_piece_by_piece_and_a_cut_one_is_no_whole_one() {
    let begun = || Answer::sse().text("data: one\n\n").gate("go");
    for (rest, whole) in [
        (begun().text(RESPONSE_ENDS), true),
        (begun().text("data: tw").abort_fin(), false),
        (begun().text("data: tw").abort_rst(), false),
        (begun().hang(), false),
    ] {
        let a = always(rest).await;
        let relay = start(&setup(&a).with_route("timeouts = { idle_ms = 300 }").server("max_in_flight = 1")).await;
        for http in [Http::One, Http::Two] {
            // What is short of `idle_ms` is the test's own way to the gate.
            let asked = client(http).get(url(&relay, "/v1/responses/resp_1?stream=true&starting_after=2"));
            let mut response = asked.send().await.expect("a head");
            assert_eq!(response.status(), 200);
            let first = response.chunk().await.expect("data").expect("data");
            assert_eq!(&first[..], b"data: one\n\n", "before the rest was sent");
            // It counts as one of those in flight until its end.
            let shed = ask(&relay, "GET", "/v1/files", b"").await;
            assert_eq!(code(&shed), (503, "overloaded".to_owned()));
            a.open_gate("go", 1);
            let answered = read(response).await;
            assert_eq!(answered.clean, whole, "{}", answered.text());
            assert!(!whole || answered.text() == RESPONSE_ENDS, "{}", answered.text());
            assert_eq!(answered.header("x-accel-buffering"), "no");
        }
        assert_eq!(a.calls(), 2);
    }
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_call_with_it() {
    let a = always(Answer::new().hang()).await;
    let relay = start(&setup(&a)).await;
    let mut raw = Raw::open(relay.address()).await;
    raw.write(format!("GET /v1/files HTTP/1.1\r\nhost: {}\r\n\r\n", relay.address()).as_bytes()).await;
    a.wait_for(|stats| stats.calls == 1).await;
    raw.reset();
    a.wait_for(|stats| stats.disconnects == 1).await;
}

#[tokio::test]
async fn a_shutdown_ends_what_passes_when_its_grace_is_over() {
    let a = MockProvider::start(
        Script::default()
            .rule(Rule::new("stream").path("/v1/files/stream").answer(Answer::sse().text("data: one\n\n").hang()))
            .rule(Rule::new("silent").answer(Answer::new().hang())),
    )
    .await
    .expect("a provider");
    let relay = start(&setup(&a).server("shutdown_grace_ms = 100")).await;
    let mut streamed = client(Http::One).get(url(&relay, "/v1/files/stream")).send().await.expect("a head");
    assert!(streamed.chunk().await.expect("data").is_some());
    let waiting = ["GET", "POST"].map(|method| {
        let request = client(Http::One).request(method.parse().expect("a method"), url(&relay, "/v1/files"));
        tokio::spawn(send(request))
    });
    a.wait_for(|stats| stats.calls == 3).await;
    relay.shutdown().await;
    assert!(!read(streamed).await.clean, "cut, not ended");
    let [safe, unsafe_] = waiting;
    let safe = safe.await.expect("an answer");
    assert_eq!(code(&safe), (503, "shutting_down".to_owned()));
    // It may have acted, so nobody is invited to send it again.
    let answered = unsafe_.await.expect("an answer");
    assert_eq!(code(&answered), (424, "shutting_down".to_owned()));
    assert_eq!(answered.json()["rubicon"]["class"], "side_effect_uncertain");
}

#[tokio::test]
async fn the_endpoints_of_the_relay_go_on_as_ever() {
    let a = provider(Rule::new("chat").path("/v1/chat/completions").answer(chat_text(&["hello"]))).await;
    let relay = start(&setup(&a)).await;
    let chat = rubicon::protocol::Dialect::ChatCompletions;
    let answered = post(&client(Http::One), &relay, path(chat), request(chat, true)).await;
    assert!(answered.clean && answered.text().contains("hello") && !answered.header("rubicon-operation-id").is_empty());
    assert_eq!(ask(&relay, "GET", "/v1/models", b"").await.status, 200);
    assert_eq!(code(&ask(&relay, "DELETE", "/v1/models", b"").await), (405, "method_not_allowed".to_owned()));
}

#[tokio::test]
async fn a_killed_route_gets_nothing_and_limits_hold_to_the_last_byte() {
    let head = || Answer::new().head(200, &[("content-type", "application/octet-stream")]);
    let a =
        provider(Rule::new("a").answer(head().text("begun").gate("end").text(" done")).answer(head().text("x"))).await;
    let relay = start(&setup(&a).with_route("limits = { concurrency = 1 }")).await;
    let running = client(Http::One).get(url(&relay, "/v1/files/1")).send().await.expect("a head");
    let shed = ask(&relay, "GET", "/v1/files/2", b"").await;
    assert_eq!(code(&shed), (429, "no_eligible_fallback".to_owned()));
    assert!(!shed.header("retry-after").is_empty() && shed.header("x-should-retry").is_empty());
    let switch = Switch { by: "ana".to_owned(), reason: "drill".to_owned(), since: UnixMillis(1) };
    let killed = [(RouteId::new("a"), switch)].into();
    relay.app().board.set_switches(Switches { killed, ..Switches::default() });
    assert_eq!(code(&ask(&relay, "GET", "/v1/files/2", b"").await), (503, "no_eligible_fallback".to_owned()));
    assert_eq!(a.calls(), 1);
    assert!(a.open_gate("end", 1));
    assert_eq!(read(running).await.text(), "begun done", "what runs goes on");
    relay.app().board.set_switches(Switches::default());
    relay.app().admission.idle().await;
    assert_eq!(ask(&relay, "GET", "/v1/files/2", b"").await.status, 200);
}

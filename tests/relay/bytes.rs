//! Same dialect in and out is the same bytes, both ways: every recording at every chunking, over both protocols; and the request.

use std::collections::BTreeMap;

use rubicon::mock::{Answer, MockProvider, Rule, Script, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;

use crate::harness::{Answered, Http, client, path, post, provider, recordings, relay, relay_with, send, two, url};
use crate::streams::{Told, error_frame_of, is_stream, request_for, told};

/// Pieces that a recording is sent in; 0: whole.
const SPLITS: [usize; 5] = [0, 1000, 64, 7, 1];

/// Pieces in all that one recording may be sent in: a write and a read each. `RUBICON_PIECES` sets it; the splitter's own tests
/// go through all chunkings without a socket.
fn pieces_max() -> usize {
    std::env::var("RUBICON_PIECES").map_or(4_000, |text| text.parse().expect("RUBICON_PIECES is a number"))
}

fn expect(dialect: Dialect, told: &Told, lenient: bool, got: &Answered, how: &str) {
    let name = format!("{} {how}", told.name);
    if told.boundary.is_none() && !told.ends(lenient) {
        assert_ne!(got.status, 200, "{name}: nothing was shown and nothing ended");
        return;
    }
    assert_eq!(got.status, told.status, "{name}");
    let whole = told.until(told.fault.unwrap_or(told.blocks.len()));
    let tail = got.body.strip_prefix(&whole[..]).unwrap_or_else(|| panic!("{name}: other bytes"));
    if told.ends(lenient) {
        assert!(tail.is_empty(), "{name}: {}", String::from_utf8_lossy(tail));
        assert!(got.clean, "{name}: aborted");
    } else {
        assert_eq!(error_frame_of(dialect, tail)["after"], told.events_before_fault(), "{name}");
        assert!(!got.clean, "{name}: a clean end");
    }
}

async fn one(relay: &Server, client: &reqwest::Client, dialect: Dialect, model: &str, choices: u32) -> Answered {
    post(client, relay, path(dialect), request_for(dialect, model, choices)).await
}

async fn all(dialect: Dialect, folder: &str, http: Http, splits: &[usize]) {
    let all = recordings(folder);
    let all: Vec<_> = all.iter().filter(|one| is_stream(one)).map(|one| (one, told(dialect, one))).collect();
    if all.is_empty() {
        return;
    }
    let (mut script, mut cases) = (Script::default(), Vec::new());
    for (recording, told) in &all {
        for &split in splits {
            if split == 0 || recording.body.len() / split <= pieces_max() {
                let model = format!("{} in pieces of {split}", told.name);
                let answer = Answer::new().split(split).recording(recording.path.clone());
                script = script.rule(Rule::new(&model).model(&model).answer(answer));
                cases.push((told, split, model));
            }
        }
    }
    let a = MockProvider::start(script).await.expect("a mock");
    let client = client(http);
    let down = provider(Rule::new("b").answer(Answer::json_error(500, serde_json::json!({})))).await;
    for lenient in [false, true] {
        let text = two(&a, &down, "failover = { enabled = false }");
        let relay = relay(&if lenient { text.replace("\"strict\"", "\"lenient\"") } else { text }).await;
        for (told, split, model) in &cases {
            // Lenient differs where the terminal event is missing; once each is enough for the others.
            if !lenient || *split == 64 || told.ends(true) != told.ends(false) {
                let got = one(&relay, &client, dialect, model, told.choices).await;
                expect(dialect, told, lenient, &got, &format!("in pieces of {split}, lenient {lenient}"));
            }
        }
    }
    assert_eq!(down.calls(), 0);
    let whole = all.iter().filter(|(_, told)| told.ends(false)).count();
    assert!(whole * 2 > all.len(), "{whole} of {}", all.len());
}

#[tokio::test]
async fn chat_completions_over_http1() {
    all(Dialect::ChatCompletions, "chat-completions", Http::One, &SPLITS).await;
}

#[tokio::test]
async fn chat_completions_over_h2c() {
    all(Dialect::ChatCompletions, "chat-completions", Http::Two, &[0, 64]).await;
}

#[tokio::test]
async fn anthropic_messages_over_http1() {
    all(Dialect::AnthropicMessages, "anthropic-messages", Http::One, &SPLITS).await;
}

#[tokio::test]
async fn anthropic_messages_over_h2c() {
    all(Dialect::AnthropicMessages, "anthropic-messages", Http::Two, &[0, 64]).await;
}

#[tokio::test]
async fn responses_over_http1() {
    all(Dialect::Responses, "responses", Http::One, &SPLITS).await;
}

#[tokio::test]
async fn responses_over_h2c() {
    all(Dialect::Responses, "responses", Http::Two, &[0, 64]).await;
}

const TEXT: &str = "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}";
const FINISH: &str = "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}";

/// What recordings do not have: a BOM, comments on both sides of the boundary, odd fields, blank lines, CR and CRLF, torn anywhere.
#[tokio::test]
async fn what_the_standard_allows_passes_as_it_is() {
    let rows: [(&str, String, String); 6] = [
        ("a BOM is dropped", format!("\u{feff}data: {TEXT}\n\n"), format!("data: {TEXT}\n\n")),
        (
            "comments before the boundary are dropped, those inside events and after it are not",
            format!(": a\n\n\n: b\ndata: {TEXT}\n\n: c\n\n"),
            format!(": b\ndata: {TEXT}\n\n: c\n\n"),
        ),
        (
            "fields without data and unknown fields pass",
            format!("retry: 5\n\nid: 7\nx: y\ndata: {TEXT}\n\nid: 8\n\n"),
            format!("retry: 5\n\nid: 7\nx: y\ndata: {TEXT}\n\nid: 8\n\n"),
        ),
        ("CRLF", format!("data: {TEXT}\r\n\r\n: c\r\n\r\n"), format!("data: {TEXT}\r\n\r\n: c\r\n\r\n")),
        ("CR", format!("data: {TEXT}\r\r: c\r\r"), format!("data: {TEXT}\r\r: c\r\r")),
        (
            "mixed ends, no space, data in lines",
            "data:{\"choices\":[\r\ndata: {\"index\":0,\"delta\":{\"content\":\"\u{1f600}\"}}]}\n\r\n".to_owned(),
            "data:{\"choices\":[\r\ndata: {\"index\":0,\"delta\":{\"content\":\"\u{1f600}\"}}]}\n\r\n".to_owned(),
        ),
    ];
    let end = format!("data: {FINISH}\n\ndata: [DONE]\n\n");
    let preamble = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n";
    for http in [Http::One, Http::Two] {
        let client = client(http);
        for (what, sent, expected) in &rows {
            for split in [0, 1, 2, 3] {
                let answer = |body: String| Answer::sse().split(split).text(&(body + &end));
                let held = sent.replace('\u{feff}', "");
                let a =
                    provider(Rule::new("a").answer(answer(sent.clone())).answer(answer(format!("{preamble}{held}"))))
                        .await;
                let relay = relay(&two(&a, &a, "")).await;
                for before in ["", preamble] {
                    let got = one(&relay, &client, Dialect::ChatCompletions, "m", 1).await;
                    assert_eq!(got.text(), format!("{before}{expected}{end}"), "{what}, {split}, {http:?}");
                    assert!(got.clean);
                }
            }
        }
    }
}

/// The request as the provider must see it: the caller's bytes, the model's name apart.
#[tokio::test]
async fn a_request_keeps_its_bytes() {
    const MODEL: &str = "\"\\u006dy-mod\\u00e9l\"";
    let bodies: &[(&str, String)] = &[
        (
            "/v1/chat/completions",
            format!(
                "\t{{ \"zeta\" : [1e400, -0.0, 12345678901234567890123] ,\r\n \"messages\":[{{\"content\":\"\\u0068i\\/\\ud83d\\ude00 \u{1f600}\", \
                 \"role\":\"user\",\"model\":\"not this one\", \"x\":{{}}}}],\"model\"  :  {MODEL} , \"stream\" : false, \"a\":{{\"model\":1}},\"n\":1 }}\n "
            ),
        ),
        (
            "/v1/messages",
            format!("{{\"unknown\":{{\"b\":1,\"a\":2,\"b\":3}},\"model\":{MODEL},\"max_tokens\":1,\"messages\":[]}}"),
        ),
        ("/v1/messages/count_tokens", format!("{{ \"messages\":[],\n\"model\":{MODEL} }}")),
    ];
    let a = provider(Rule::new("a").answer(Answer::json(200, serde_json::json!({})))).await;
    for named in [false, true] {
        let config = two(&a, &a, "envelope = { max_attempts = 1 }");
        let config = if named {
            config.replace("[route.a]\n", "[route.a]\nmodel = \"an \\\"odd\\\" \u{e9} name\"\n")
        } else {
            config
        };
        let relay = relay(&config).await;
        for http in [Http::One, Http::Two] {
            for (path, body) in bodies {
                a.reset();
                post(&client(http), &relay, path, body.clone()).await;
                let seen = a.requests();
                assert_eq!(seen.len(), 1, "{path}");
                let sent = std::str::from_utf8(&seen[0].body).expect("UTF-8");
                let (before, after) = body.split_once(MODEL).expect("a model");
                let model = sent
                    .strip_prefix(before)
                    .and_then(|rest| rest.strip_suffix(after))
                    .unwrap_or_else(|| panic!("{path}: other bytes than the model's changed\n{body}\n{sent}"));
                if named {
                    let model: String = serde_json::from_str(model).expect("a string");
                    assert_eq!(model, "an \"odd\" \u{e9} name");
                } else {
                    assert_eq!(model, MODEL, "passes as it was written");
                }
                assert_eq!(seen[0].path, *path);
            }
        }
    }
}

/// Nothing goes up that is not on the list, and the query goes as it is.
#[tokio::test]
async fn only_listed_headers_go_up() {
    let a = provider(Rule::new("a").answer(chat_text(&["x"]))).await;
    let config = format!(
        "[[client]]\nname = \"c\"\nkeys = [\"env:CALLER\"]\nworkflows = [\"default\"]\n{}",
        two(&a, &a, "").replace(
            "[provider.a]\n",
            "[provider.a]\napi_key = \"env:UP\"\nforward_headers = [\"x-forwarded-by-wish\"]\n"
        )
    );
    let relay = relay_with(&config, &BTreeMap::from([("CALLER", "caller-word"), ("UP", "provider-word")])).await;
    let listed = [
        ("accept", "text/event-stream"),
        ("user-agent", "an-sdk/1.0"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-beta", "text"),
        ("openai-beta", "text"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("x-forwarded-by-wish", "kept"),
    ];
    let others = [
        ("authorization", "Bearer caller-word"),
        ("x-api-key", "caller-word"),
        ("x-goog-api-key", "caller-word"),
        ("cookie", "session=caller-word"),
        ("proxy-authorization", "Basic caller-word"),
        ("accept-encoding", "gzip, br"),
        ("x-forwarded-for", "192.0.2.1"),
        ("forwarded", "for=192.0.2.1"),
        ("te", "trailers"),
        ("origin", "http://localhost"),
        ("referer", "http://localhost/"),
        ("x-stainless-retry-count", "0"),
        ("rubicon-attempts-used", "0"),
        ("rubicon-workflow", "default"),
        ("x-unknown", "caller-word"),
        ("openai-organization", "caller-word"),
    ];
    for http in [Http::One, Http::Two] {
        for dialect in Dialect::ALL {
            a.reset();
            let mut request = client(http)
                .post(url(&relay, &format!("{}?beta=true&q=%C3%A9%20+a&empty=&&q=2", path(dialect))))
                .header("content-type", "application/json; charset=utf-8")
                .body(request_for(dialect, "m", 1));
            for (name, value) in listed.iter().chain(&others) {
                request = request.header(*name, *value);
            }
            let got = send(request.header("idempotency-key", format!("{dialect:?}-{http:?}"))).await;
            assert_eq!(got.status, 200, "{}", got.text());
            let seen = a.requests().pop().expect("a call");
            assert_eq!(seen.query, "beta=true&q=%C3%A9%20+a&empty=&&q=2");
            let mut expected: BTreeMap<&str, &str> = listed.iter().copied().collect();
            let length = seen.body.len().to_string();
            let host = a.addr().to_string();
            expected.extend([
                ("content-type", "application/json"),
                ("accept-encoding", "identity"),
                ("authorization", "Bearer provider-word"),
                ("content-length", &length),
                ("host", &host),
            ]);
            let got: BTreeMap<String, String> =
                seen.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
            let got: BTreeMap<&str, &str> = got.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(got, expected);
            assert_eq!(seen.headers.len(), expected.len(), "none twice");
        }
    }
}

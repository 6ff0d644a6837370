//! No key, prompt, output or argument in anything that is printed or logged; no key in any answer. The real binary is driven down
//! every path with planted words, and everything that came out of it is searched.

use rubicon::mock::{Answer, AutoDialect, MockProvider, Rule, Script, anthropic, chat, responses};
use rubicon::protocol::Dialect;
use serde_json::json;

use crate::child::{Running, Serving, code, file, printed, run};
use crate::harness::{Http, client, path, two};
use crate::raw::{Raw, message};

/// Words, and not what looks like a key: no pattern may be what saves them.
const PROVIDER_KEY: &str = "planted-zebra-upstream";
const CLIENT_KEY: &str = "planted-yak-client";
const WRONG_KEY: &str = "planted-wolf-stranger";
const PROMPT: &str = "planted walrus prompt";
const OUTPUT: &str = "planted vulture output";
const ARGUMENT: &str = "planted urchin argument";
const FAULT: &str = "planted toucan fault";
const HEADER: &str = "planted-snake-header";

const KEYS: [&str; 3] = [PROVIDER_KEY, CLIENT_KEY, WRONG_KEY];
const DIALECTS: [Dialect; 3] = Dialect::ALL;
const MODELS: [&str; 9] = ["fine", "down", "cut", "fault", "silent-fault", "bad", "denied", "html", "no-json"];

/// Everything the log may not hold.
fn never_logged() -> Vec<&'static str> {
    [&KEYS[..], &[PROMPT, OUTPUT, ARGUMENT, FAULT, HEADER, "planted"]].concat()
}

fn assert_free(of: &[&str], text: &str, what: &str) {
    for word in of {
        if let Some(at) = text.find(word) {
            let from = text[..at].char_indices().rev().nth(200).map_or(0, |(at, _)| at);
            let to = text[at..].char_indices().nth(200).map_or(text.len(), |(more, _)| at + more);
            panic!("{what} holds {word:?}: …{}…", &text[from..to]);
        }
    }
}

fn answer_of(model: &str, dialect: Dialect, second: bool) -> Answer {
    let quoted = format!("{FAULT}, your key is {PROVIDER_KEY} and the rest");
    let error = |status: u16| {
        Answer::json_error(
            status,
            json!({ "type": "error", "error": { "message": quoted, "type": PROVIDER_KEY, "param": PROVIDER_KEY,
                "code": PROVIDER_KEY } }),
        )
    };
    let (preamble, said, fault) = match dialect {
        Dialect::ChatCompletions => {
            (Answer::sse().step(chat::role()), chat::delta(OUTPUT), chat::error("server_error", PROVIDER_KEY, &quoted))
        }
        Dialect::AnthropicMessages => (
            Answer::sse().step(anthropic::message_start()).step(anthropic::text_start(0)),
            anthropic::text_delta(0, OUTPUT),
            anthropic::error("api_error", &quoted),
        ),
        Dialect::Responses => (
            Answer::sse().step(responses::created(0)).step(responses::message_added(1, 0)),
            responses::text_delta(2, 0, OUTPUT),
            responses::error(3, "server_error", PROVIDER_KEY, &quoted),
        ),
    };
    match model {
        "down" if !second => error(503),
        "cut" => preamble.step(said).delay_ms(30).abort_rst(),
        "fault" => preamble.step(said).step(fault),
        "silent-fault" if !second => preamble.step(fault),
        "bad" => error(400),
        "denied" => error(401),
        "html" => Answer::new().head(500, &[("content-type", "text/html")]).text(&format!("<h1>{quoted}</h1>")),
        "no-json" => {
            Answer::new().head(200, &[("content-type", "application/json")]).text(&format!("<{OUTPUT}{FAULT}"))
        }
        _ => fine(dialect),
    }
}

/// Text and a tool call, streamed or whole as asked.
fn fine(dialect: Dialect) -> Answer {
    let mut answer = match dialect {
        Dialect::ChatCompletions => Answer::auto(AutoDialect::ChatCompletions, &[OUTPUT]),
        Dialect::AnthropicMessages => Answer::auto(AutoDialect::AnthropicMessages, &[OUTPUT]),
        Dialect::Responses => Answer::auto(AutoDialect::Responses, &[OUTPUT]),
    };
    for step in &mut answer.steps {
        if let rubicon::mock::Step::Auto(auto) = step {
            let arguments = vec![json!({ "order": ARGUMENT }).to_string()];
            auto.tool = Some(rubicon::mock::AutoTool { name: "refund".to_owned(), arguments });
        }
    }
    answer
}

async fn stub(second: bool) -> MockProvider {
    let mut script = Script::default();
    for model in MODELS {
        for dialect in DIALECTS {
            let rule = Rule::new(&format!("{model} {dialect:?}")).model(model).path(path(dialect));
            script = script.rule(rule.answer(answer_of(model, dialect, second)));
        }
    }
    MockProvider::start(script).await.expect("a stub")
}

fn body(model: &str, stream: bool) -> String {
    json!({ "model": model, "stream": stream, "max_tokens": 9, "messages": [{ "role": "user", "content": PROMPT }],
        "metadata": { "user": PROMPT } })
    .to_string()
}

/// Every answer of every model, and every refusal; all that came back, heads included.
async fn drive(relay: &Serving) -> String {
    let client = client(Http::One);
    let mut seen = String::new();
    let keep = async |seen: &mut String, request: reqwest::RequestBuilder| {
        let mut response = request.send().await.expect("a head");
        *seen += &format!("{} {:?}\n", response.status(), response.headers());
        while let Ok(Some(chunk)) = response.chunk().await {
            *seen += &String::from_utf8_lossy(&chunk);
        }
    };
    let to = |path: &str, key: &str| {
        let request = client.post(relay.url(path)).header("content-type", "application/json");
        request.header("authorization", format!("Bearer {key}"))
    };
    for model in MODELS {
        for dialect in DIALECTS {
            for stream in [true, false] {
                let id = format!("{model}-{dialect:?}-{stream}");
                // Twice: the second one is a replay, or a conflict.
                for _ in 0..2 {
                    let request = to(path(dialect), CLIENT_KEY).header("idempotency-key", &id);
                    keep(&mut seen, request.body(body(model, stream))).await;
                }
                keep(&mut seen, to(path(dialect), CLIENT_KEY).body(body(model, stream))).await;
                let record = client.get(relay.url(&format!("/v1/operations/{id}"))).bearer_auth(CLIENT_KEY);
                keep(&mut seen, record).await;
            }
        }
    }
    for dialect in DIALECTS {
        let path = path(dialect);
        let good = body("fine", true);
        keep(&mut seen, to(path, WRONG_KEY).body(good.clone())).await;
        keep(&mut seen, client.post(relay.url(path)).header("x-api-key", WRONG_KEY).body(good.clone())).await;
        keep(&mut seen, client.get(relay.url("/v1/models")).header("x-goog-api-key", WRONG_KEY)).await;
        keep(&mut seen, to(path, CLIENT_KEY).body(good[..good.len() - 2].to_owned())).await;
        keep(&mut seen, to(path, CLIENT_KEY).body(format!("{{\"model\":[\"{PROMPT}\"]}}"))).await;
        keep(&mut seen, to(path, CLIENT_KEY).body(format!("{PROMPT} is no JSON"))).await;
        keep(&mut seen, to(path, CLIENT_KEY).body(PROMPT.repeat(100_000))).await;
        keep(&mut seen, to(&format!("{path}?key={WRONG_KEY}"), CLIENT_KEY).body(good.clone())).await;
        for name in
            ["rubicon-workflow", "rubicon-deadline-ms", "rubicon-side-effects", "content-encoding", "rubicon-root"]
        {
            keep(&mut seen, to(path, CLIENT_KEY).header(name, HEADER).body(good.clone())).await;
        }
        keep(&mut seen, to(path, CLIENT_KEY).header("x-long", HEADER.repeat(5000)).body(good.clone())).await;
        // Leaves in the middle: of its request, and of its answer.
        let whole = message(dialect, relay.address, &format!("authorization: Bearer {CLIENT_KEY}\r\n"), &good);
        Raw::open(relay.address).await.write(&whole.as_bytes()[..whole.len() - 5]).await;
        let mut leaving = Raw::open(relay.address).await;
        leaving.write(whole.as_bytes()).await;
        leaving.read_until("200 OK").await;
        // No HTTP at all.
        let mut odd = Raw::open(relay.address).await;
        odd.write(format!("POST / HTTP/1.1\r\nauthorization: Bearer {CLIENT_KEY}\r\n{HEADER}\0\r\n\r\n").as_bytes())
            .await;
        odd.read_to_end().await;
        seen += &odd.text();
    }
    seen
}

#[tokio::test]
async fn nothing_that_is_logged_or_answered_tells_what_it_must_not() {
    for (format, level) in [("json", "trace"), ("text", "trace")] {
        let (a, b) = (stub(false).await, stub(true).await);
        let keyed = "api_key = \"env:UPSTREAM\"\nterminal";
        // Its provider fails more often than a breaker would stand.
        let text =
            two(&a, &b, "").replace("terminal", keyed).replace("verified", "breaker = { failures = 0 }\nverified")
                + "[[client]]\nname = \"c\"\nkeys = [\"env:CLIENT\"]\nworkflows = [\"default\"]\n"
                + &format!("[log]\nformat = \"{format}\"\nlevel = \"{level}\"\n");
        let env =
            [("UPSTREAM", PROVIDER_KEY), ("CLIENT", CLIENT_KEY), ("RUST_LOG", "trace"), ("RUST_BACKTRACE", "full")];
        let relay = Serving::start("max_body_bytes = 1000000\nretry = { min_per_second = 1000000 }", &text, &env).await;
        let seen = drive(&relay).await;
        let (code, log) = relay.stop().await;
        assert_eq!(code, 0, "{log}");

        // What was planted was really on its way; otherwise the search below would prove nothing.
        let sent = a.requests();
        assert!(sent.iter().any(|request| request.header("authorization") == Some(&format!("Bearer {PROVIDER_KEY}"))));
        assert!(sent.iter().any(|request| String::from_utf8_lossy(&request.body).contains(PROMPT)));
        assert!(sent.iter().all(|request| !format!("{:?}", request.headers).contains(CLIENT_KEY)), "sent upstream");
        for word in [OUTPUT, ARGUMENT, FAULT, "[masked]", "invalid_api_key", "equivalent_failover", "interrupted"] {
            assert!(seen.contains(word), "{word:?} did not come by");
        }
        for word in ["operation ended", "attempt failed", "request refused", "stream interrupted"] {
            assert!(log.contains(word), "{word:?} was not logged: {log}");
        }
        assert_free(&never_logged(), &log, &format!("the {format} log"));
        assert_free(&KEYS, &seen, "an answer");
        assert_free(&[PROMPT, HEADER], &seen, "an answer");
    }
}

#[tokio::test]
async fn no_command_prints_a_key() {
    const LINES: [&str; 12] = [
        "api_key = \"KEY\"",
        "api_key = \"KEY",
        "api_key = KEY",
        "api_key = [\"KEY\"]",
        "api_key = { value = \"KEY\" }",
        "api_key = \"env:UPSTREAM\"\napi_key = \"KEY\"",
        "api_kee = \"KEY\"",
        "api_key = \"file:key.txt\"",
        "base_url = \"https://user:KEY@example.test/v1\"",
        "base_url = \"https://example.test/v1?key=KEY\"",
        "api_key = \"env:EMPTY\"",
        "api_key = \"\"\"KEY\n\"\"\"",
    ];
    let env = [("UPSTREAM", PROVIDER_KEY), ("CLIENT", CLIENT_KEY), ("ODD", "planted\nodd"), ("EMPTY", "")];
    let rest = "[route.r]\nprovider = \"p\"\n[workflow.w]\nprimary = \"r\"\n";
    let mut configs: Vec<String> = LINES
        .iter()
        .map(|line| format!("[provider.p]\nkind = \"openai\"\n{}\n{rest}", line.replace("KEY", PROVIDER_KEY)))
        .collect();
    let clients = |keys: &str| {
        let client = |name| format!("[[client]]\nname = \"{name}\"\nkeys = {keys}\nworkflows = [\"w\"]\n");
        format!("[provider.p]\nkind = \"openai\"\napi_key = \"env:UPSTREAM\"\n{rest}{}{}", client("c"), client("d"))
    };
    configs.push(clients("[\"env:CLIENT\"]"));
    configs.push(clients(&format!("[\"{CLIENT_KEY}\"]")));
    configs.push(clients(&format!("\"{CLIENT_KEY}\"")));
    configs.push(clients("[\"env:ODD\"]"));
    configs.push(format!("[[operator]]\nname = \"o\"\ntoken = \"{CLIENT_KEY}\"\n{}", configs[0]));
    let never = never_logged();
    for config in configs {
        let (folder, path) = file("rubicon.toml", &config);
        std::fs::write(folder.path().join("key.txt"), format!("{PROVIDER_KEY}\n{CLIENT_KEY}\n")).expect("a file");
        for args in [&["check", "-c", &path][..], &["check", "--json", "-c", &path], &["serve", "-c", &path]] {
            let output = run(args, &env).await;
            assert_eq!(code(&output), 1, "each of them is a problem: {config}\n{}", printed(&output));
            assert_free(&never, &printed(&output), &format!("{args:?} of\n{config}\n"));
        }
    }
    let good = clients("[\"env:CLIENT\"]").split("[[client]]\nname = \"d\"").next().expect("a part").to_owned();
    let (_folder, path) = file("rubicon.toml", &good);
    for args in
        [&["check", "-c", &path][..], &["init", "--stdout"], &["--help"], &["serve", "--help"], &["mock", "--help"]]
    {
        let output = run(args, &env).await;
        assert_eq!(code(&output), 0, "{args:?}: {}", printed(&output));
        assert_free(&never, &printed(&output), &format!("{args:?}"));
    }
}

#[tokio::test]
async fn the_mock_prints_nothing_of_what_passes_and_shows_no_key() {
    let script = json!({ "rules": [{ "name": "r", "answers": [[{ "text": OUTPUT }]] }] }).to_string();
    let (_folder, path) = file("script.json", &script);
    let running =
        Running::start(&["mock", "--script", &path, "--listen", "127.0.0.1:0"], &[], "mock listening on ").await;
    let (client, base) = (client(Http::One), running.told.clone());
    for (name, value) in [("authorization", "Bearer KEY"), ("x-api-key", "KEY"), ("cookie", "KEY")] {
        let request =
            client.post(format!("{base}/v1/chat/completions")).header(name, value.replace("KEY", PROVIDER_KEY));
        let answer = request.body(body("m", true)).send().await.expect("a head").text().await.expect("text");
        assert_eq!(answer, OUTPUT);
    }
    let requests =
        client.get(format!("{base}/__mock/requests")).send().await.expect("a head").text().await.expect("text");
    assert!(requests.contains("/v1/chat/completions"), "{requests}");
    assert_free(&KEYS, &requests, "/__mock/requests");
    let (code, text) = running.stop().await;
    assert_eq!(code, 0);
    assert_free(&never_logged(), &text, "the mock's output");
}

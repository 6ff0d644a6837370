//! Every request writes one line and every attempt one, whatever became of them; metrics say the same; no secret is in either; and
//! nobody waits for a line.

use std::time::Duration;

use rubicon::mock::{Answer, MockProvider, Rule, chat, chat_text, chat_whole_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, client, path, provider, relay, relay_with, request, send, url};
use crate::setup::{Setup, always, error, limited, overloaded, server_error};
use crate::watched::{Lines, sum};

const CHAT: Dialect = Dialect::ChatCompletions;
const PRICE: &str = "model = \"sent\"\nprice = { input = 1.0, output = 2.0 }";

fn call(relay: &Server, stream: bool) -> reqwest::RequestBuilder {
    let request = client(Http::One).post(url(relay, path(CHAT))).header("content-type", "application/json");
    request.body(self::request(CHAT, stream))
}

async fn ask(relay: &Server, stream: bool) -> Answered {
    send(call(relay, stream)).await
}

async fn watched(setup: Setup) -> (Server, Lines) {
    let lines = Lines::new();
    (relay(&setup.tables(&lines.table()).text()).await, lines)
}

/// Members, dotted, and what they must be.
fn says(line: &Value, expected: &[(&str, Value)]) {
    for (name, value) in expected {
        let found = name.split('.').fold(line, |at, part| &at[part]);
        assert_eq!(found, value, "{name} of {line:#}");
    }
}

fn success(transport: impl Into<Value>, contract: impl Into<Value>) -> (&'static str, Value) {
    ("success", json!({ "transport": transport.into(), "contract": contract.into(), "task": null }))
}

#[tokio::test]
async fn an_answer_streamed_or_whole() {
    for stream in [true, false] {
        let a = always(if stream { chat_text(&["Hello"]) } else { chat_whole_text("Hello") }).await;
        let (relay, lines) = watched(Setup::primary(a.base_url()).with_route(PRICE).workflow("version = 7")).await;
        assert_eq!(ask(&relay, stream).await.status, 200);
        let (request, attempts) = lines.one(&relay).await;
        let (input, output) = (request["input_tokens"].as_f64().unwrap(), request["output_tokens"].as_f64().unwrap());
        let cost = input / 1e6 + 2.0 * output / 1e6;
        assert!((request["cost_usd"].as_f64().unwrap() - cost).abs() < 1e-12, "{request}");
        let shared = [
            ("workflow", json!("default")),
            ("workflow_version", json!(7)),
            ("client", json!("local")),
            ("tenant", json!("local")),
            ("dialect", json!("chat-completions")),
            ("call", json!("chat")),
            ("stream", json!(stream)),
            ("requested_model", json!("m")),
            ("served_model", json!("mock-model")),
            ("route", json!("a")),
            ("class", json!(null)),
            ("status", json!(200)),
            ("circuit", json!("healthy")),
            ("limit_dimension", json!(null)),
            ("cost_usd", request["cost_usd"].clone()),
            success(true, true),
        ];
        says(&request, &shared);
        says(&attempts[0], &shared);
        says(
            &request,
            &[
                ("state", json!("completed")),
                ("reason", json!(null)),
                ("attempts", json!(1)),
                ("accepted_attempt", json!(1)),
                ("lost_cost_usd", json!(null)),
                ("recovery.workflow", json!("none")),
                (
                    "recovery.attempts",
                    json!({"first": 1, "retry": 0, "equivalent_failover": 0, "cross_model_fallback": 0}),
                ),
                ("recovery.recovered", json!(false)),
                ("recovery.reason", json!(null)),
                ("replay", json!(null)),
            ],
        );
        says(
            &attempts[0],
            &[
                ("attempt", json!(1)),
                ("kind", json!("first")),
                ("provider", json!("a")),
                ("sent_model", json!("sent")),
                ("result", json!("accepted")),
                ("cost_estimated", json!(false)),
            ],
        );
        for line in [&request, &attempts[0]] {
            assert_eq!(line["first_output_ms"].is_u64(), stream, "{line}");
            assert!(line["hold_ms"].is_u64() && line["duration_ms"].is_u64(), "{line}");
            assert_eq!(line["operation"], request["operation"]);
        }
        assert!(request["recovery"]["added_latency_ms"].is_u64());
        assert_eq!(request["boundary"].is_null(), !stream, "{request}");
    }
}

#[tokio::test]
async fn recoveries_of_each_kind() {
    let rows = [
        // What recovers, and from what.
        ("retry", "rate_limited"),
        ("equivalent_failover", "provider_overloaded"),
        ("cross_model_fallback", "model_unavailable"),
    ];
    for (kind, reason) in rows {
        let b = always(chat_text(&["from b"])).await;
        let gone = error("The model does not exist", "invalid_request_error", json!("model_not_found"));
        let rule = match kind {
            "retry" => Rule::new("a").answer(limited("retry-after-ms", "1")).answer(chat_text(&["later"])),
            "equivalent_failover" => Rule::new("a").answer(overloaded()),
            _ => Rule::new("a").answer(Answer::json_error(404, gone)),
        };
        let a = provider(rule).await;
        let setup = match kind {
            "retry" => Setup::primary(a.base_url()),
            "equivalent_failover" => Setup::primary(a.base_url()).equivalent("b", &b),
            _ => Setup::primary(a.base_url()).alternate("b", &b),
        };
        let (relay, lines) = watched(setup).await;
        assert_eq!(ask(&relay, true).await.status, 200);
        let (request, attempts) = lines.one(&relay).await;
        let mut by_kind = json!({"first": 1, "retry": 0, "equivalent_failover": 0, "cross_model_fallback": 0});
        by_kind[kind] = json!(1);
        says(
            &request,
            &[
                ("state", json!("completed")),
                ("route", json!(if kind == "retry" { "a" } else { "b" })),
                ("accepted_attempt", json!(2)),
                ("recovery.workflow", json!(kind)),
                ("recovery.recovered", json!(true)),
                ("recovery.reason", json!(reason)),
                ("recovery.attempts", by_kind),
                success(true, true),
            ],
        );
        says(&attempts[0], &[("result", json!("failed")), ("class", json!(reason)), success(false, Value::Null)]);
        says(&attempts[1], &[("result", json!("accepted")), ("kind", json!(kind)), ("attempt", json!(2))]);
        let recovered = [format!("kind=\"{kind}\""), "recovered=\"true\"".to_owned()];
        let recovered: Vec<&str> = recovered.iter().map(String::as_str).collect();
        assert_eq!(sum(&relay, "rubicon_recoveries_total", &recovered), 1.0);
    }
}

#[tokio::test]
async fn a_throttle_says_which_limit() {
    let said = "Rate limit reached for m on tokens per min (TPM): Limit 10, Used 10. Please try again in 9s.";
    let answer =
        Answer::json_error(429, error(said, "tokens", json!("rate_limit_exceeded"))).header("retry-after", "9");
    let a = always(answer).await;
    let (relay, lines) = watched(Setup::primary(a.base_url()).workflow("envelope = { max_attempts = 1 }")).await;
    assert_eq!(ask(&relay, true).await.status, 424);
    let (request, attempts) = lines.one(&relay).await;
    says(
        &request,
        &[
            ("state", json!("failed")),
            ("reason", json!("attempts_exhausted")),
            ("class", json!("rate_limited")),
            ("status", json!(424)),
            ("limit_dimension", json!("tokens")),
            ("accepted_attempt", json!(null)),
            ("recovery.added_latency_ms", json!(null)),
        ],
    );
    says(
        &attempts[0],
        &[("status", json!(429)), ("limit_dimension", json!("tokens")), ("retry_after_ms", json!(9000))],
    );
    assert_eq!(sum(&relay, "rubicon_throttles_total", &["route=\"a\"", "limit_dimension=\"tokens\""]), 1.0);
}

#[tokio::test]
async fn an_interruption_tells_transport_from_contract() {
    let begun = Answer::sse().step(chat::role()).step(chat::delta("Hel"));
    for (answer, transport, contract) in [
        (begun.clone().abort_rst(), json!(false), json!(null)),
        (begun.step(chat::error("server_error", "x", "sorry")), json!(true), json!(false)),
    ] {
        let a = always(answer).await;
        let (relay, lines) = watched(Setup::primary(a.base_url()).with_route(PRICE)).await;
        assert!(!ask(&relay, true).await.clean);
        let (request, attempts) = lines.one(&relay).await;
        for line in [&request, &attempts[0]] {
            says(
                line,
                &[
                    ("class", json!("partial_output")),
                    ("status", json!(200)),
                    success(transport.clone(), contract.clone()),
                ],
            );
        }
        says(
            &request,
            &[
                ("state", json!("interrupted")),
                ("reason", json!("partial_output")),
                ("accepted_attempt", json!(1)),
                ("cost_usd", json!(null)),
                ("events", json!(2)),
            ],
        );
        says(&attempts[0], &[("result", json!("interrupted")), ("cost_estimated", json!(true))]);
        assert!(request["lost_cost_usd"].as_f64().unwrap() > 0.0, "an answer that was cut is not paid for by nobody");
        assert_eq!(sum(&relay, "rubicon_interruptions_total", &["reason=\"partial_output\""]), 1.0);
        assert_eq!(sum(&relay, "rubicon_cost_usd_total", &[]), 0.0);
    }
}

#[tokio::test]
async fn refused_before_any_call() {
    let a = always(chat_text(&["never"])).await;
    let lines = Lines::new();
    let client_table = "[[client]]\nname = \"web\"\nkeys = [\"env:KEY\"]\nworkflows = [\"default\"]\n";
    let text = Setup::primary(a.base_url()).tables(client_table).tables(&lines.table()).text();
    let relay = relay_with(&text, &[("KEY", "the-key-of-the-client")].into()).await;
    let key = "Bearer the-key-of-the-client";
    let plain = || client(Http::One).post(url(&relay, path(CHAT))).header("content-type", "application/json");
    let rows: Vec<(reqwest::RequestBuilder, u16, &str, Value, Value)> = vec![
        (plain().body(request(CHAT, true)), 401, "missing_api_key", json!(null), json!(null)),
        (plain().header("authorization", key).body("{"), 400, "invalid_json", json!("web"), json!(null)),
        (
            plain().header("authorization", key).header("rubicon-attempts-used", "9").body(request(CHAT, true)),
            424,
            "attempts_exhausted",
            json!("web"),
            json!("default"),
        ),
        (
            plain().header("authorization", key).header("rubicon-restart-of", "nobody").body(request(CHAT, true)),
            404,
            "operation_not_found",
            json!("web"),
            json!("default"),
        ),
    ];
    for (at, (request, status, reason, client, workflow)) in rows.into_iter().enumerate() {
        assert_eq!(send(request).await.status, status);
        let all = lines.of(&relay, "request", at + 1).await;
        says(
            &all[at],
            &[
                ("status", json!(status)),
                ("reason", json!(reason)),
                ("client", client),
                ("workflow", workflow),
                ("attempts", json!(0)),
                ("route", json!(null)),
                ("dialect", json!("chat-completions")),
                success(Value::Null, Value::Null),
            ],
        );
    }
    lines.of(&relay, "attempt", 0).await;
    assert_eq!(a.calls(), 0);
    assert_eq!(sum(&relay, "rubicon_requests_total", &[]), 4.0);
    assert_eq!(sum(&relay, "rubicon_requests_total", &["state=\"refused\""]), 3.0);
}

#[tokio::test]
async fn a_client_that_left_and_one_that_stopped() {
    for stopped in [false, true] {
        let a = always(Answer::sse().step(chat::delta("x")).gate("never")).await;
        let (relay, lines) = watched(Setup::primary(a.base_url())).await;
        let running = tokio::spawn(send(call(&relay, true).header("idempotency-key", "op")));
        a.wait_for(|stats| stats.at_gates == 1).await;
        while relay_state(&relay).await["after"] != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if stopped {
            send(client(Http::One).delete(url(&relay, "/v1/operations/op"))).await;
            running.await.unwrap();
        } else {
            running.abort();
        }
        let (request, attempts) = lines.one(&relay).await;
        let (state, reason) = if stopped { ("stopped", "stopped") } else { ("interrupted", "client_gone") };
        says(
            &request,
            &[
                ("state", json!(state)),
                ("reason", json!(reason)),
                ("class", json!(null)),
                ("operation", json!("op")),
                success(Value::Null, Value::Null),
            ],
        );
        says(&attempts[0], &[("result", json!("unfinished")), ("class", json!(null))]);
        assert_eq!(sum(&relay, "rubicon_attempts_total", &["class=\"unfinished\""]), 1.0);
    }
}

async fn relay_state(relay: &Server) -> Value {
    send(client(Http::One).get(url(relay, "/v1/operations/op"))).await.json()
}

#[tokio::test]
async fn one_that_leaves_before_its_body_is_whole_has_a_line_too() {
    let a = always(chat_text(&["never"])).await;
    let (relay, lines) = watched(Setup::primary(a.base_url())).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut raw = crate::raw::Raw::open(relay.address()).await;
    raw.write(format!("{head}content-length: 100\r\n\r\n{{").as_bytes()).await;
    while relay.app().admission.in_flight() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(raw);
    let request = lines.of(&relay, "request", 1).await.remove(0);
    says(&request, &[("state", json!("refused")), ("attempts", json!(0)), ("operation", json!(null))]);
    assert_eq!(a.calls(), 0);
}

#[tokio::test]
async fn replays_and_joins_are_marked_and_cost_nothing() {
    let a = always(Answer::new().gate("go").then(chat_whole_text("once"))).await;
    let (relay, lines) = watched(Setup::primary(a.base_url()).with_route(PRICE)).await;
    let keyed = || send(call(&relay, false).header("idempotency-key", "k"));
    let first = tokio::spawn(keyed());
    a.wait_for(|stats| stats.at_gates == 1).await;
    let second = tokio::spawn(keyed());
    while relay.app().admission.in_flight() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    a.open_gate("go", 1);
    assert_eq!((first.await.unwrap().status, second.await.unwrap().status, keyed().await.status), (200, 200, 200));
    let mut requests = lines.of(&relay, "request", 3).await;
    requests.sort_by_key(|line| line["replay"].to_string());
    for (line, replay) in requests.iter().zip([json!("joined"), json!("replayed"), json!(null)]) {
        says(line, &[("replay", replay.clone()), ("operation", json!("k")), ("status", json!(200))]);
        says(line, &[("state", json!(if replay.is_null() { "completed" } else { "replayed" }))]);
        assert_eq!(line["cost_usd"].is_null(), !replay.is_null(), "{line}");
    }
    lines.of(&relay, "attempt", 1).await;
}

/// A mix of everything: sums of the lines are the metrics.
#[tokio::test]
async fn sums_of_lines_and_metrics_agree() {
    let rule = Rule::new("a")
        .answer(chat_text(&["one"]))
        .answer(server_error())
        .answer(Answer::sse().step(chat::delta("cut")).abort_rst())
        .answer(Answer::json_error(400, json!({"error": {"message": "no"}})))
        .answer(chat_text(&["five"]));
    let (a, b): (MockProvider, MockProvider) = (provider(rule).await, always(chat_text(&["from b"])).await);
    let (relay, lines) =
        watched(Setup::primary(a.base_url()).with_route(PRICE).equivalent("b", &b).with_route(PRICE)).await;
    for _ in 0..6 {
        ask(&relay, true).await;
    }
    send(client(Http::One).post(url(&relay, path(CHAT))).header("content-type", "text/plain").body("x")).await;
    let requests = lines.of(&relay, "request", 7).await;
    let attempts: Vec<Value> = lines.all(&relay).await.into_iter().filter(|line| line["event"] == "attempt").collect();
    assert_eq!(a.calls() + b.calls(), attempts.len() as u64);
    let total = |lines: &[Value], member: &str| lines.iter().filter_map(|line| line[member].as_f64()).sum::<f64>();
    let close = |left: f64, right: f64, what: &str| assert!((left - right).abs() < 1e-9, "{what}: {left} {right}");
    close(sum(&relay, "rubicon_requests_total", &[]), 7.0, "requests");
    close(sum(&relay, "rubicon_attempts_total", &[]), attempts.len() as f64, "attempts");
    close(total(&requests, "attempts"), attempts.len() as f64, "attempts of requests");
    close(sum(&relay, "rubicon_cost_usd_total", &[]), total(&requests, "cost_usd"), "cost");
    close(sum(&relay, "rubicon_lost_cost_usd_total", &[]), total(&requests, "lost_cost_usd"), "lost cost");
    let cost = total(&requests, "cost_usd") + total(&requests, "lost_cost_usd");
    close(total(&attempts, "cost_usd"), cost, "every dollar is in one of both");
    assert!(total(&requests, "cost_usd") > 0.0 && total(&requests, "lost_cost_usd") > 0.0);
    for state in ["completed", "interrupted", "failed", "refused"] {
        let count = requests.iter().filter(|line| line["state"] == state).count();
        close(sum(&relay, "rubicon_requests_total", &[&format!("state=\"{state}\"")]), count as f64, state);
        assert!(count > 0, "{state}");
    }
    let spent = sum(&relay, "gen_ai_client_token_usage_sum", &["gen_ai_token_type=\"output\""]);
    close(spent, total(&attempts, "output_tokens"), "tokens");
    close(sum(&relay, "gen_ai_client_operation_duration_seconds_count", &[]), attempts.len() as f64, "durations");
}

#[tokio::test]
async fn no_prompt_output_argument_or_key_is_in_any_line_or_metric() {
    const PLANTED: [&str; 6] =
        ["planted-prompt", "planted-output", "planted-fault", "planted-upstream", "planted-client", "planted-header"];
    let rule = Rule::new("a")
        .answer(chat_text(&["planted-output"]))
        .answer(Answer::json_error(
            400,
            error("planted-fault key planted-upstream", "planted-fault", json!("planted-fault")),
        ))
        .answer(Answer::sse().step(chat::delta("planted-output")).step(chat::error(
            "planted-fault",
            "planted-fault",
            "planted-fault",
        )));
    let a = provider(rule).await;
    let lines = Lines::new();
    let text = Setup::primary(a.base_url())
        .with_provider("api_key = \"env:UP\"")
        .tables("[[client]]\nname = \"web\"\nkeys = [\"env:KEY\"]\nworkflows = [\"default\"]\n")
        .tables(&lines.table())
        .text();
    let relay = relay_with(&text, &[("UP", "planted-upstream"), ("KEY", "planted-client")].into()).await;
    let body = request(CHAT, true).replace("\"hi\"", "\"planted-prompt\"");
    for key in ["planted-client", "planted-client", "planted-client", "planted-client-wrong"] {
        let request = client(Http::One).post(url(&relay, path(CHAT))).header("content-type", "application/json");
        let request = request.header("authorization", format!("Bearer {key}")).header("x-other", "planted-header");
        send(request.body(body.clone())).await;
    }
    lines.of(&relay, "request", 4).await;
    let told = lines.text(&relay).await + &relay.app().telemetry.render_metrics();
    for planted in PLANTED {
        assert!(!told.contains(planted), "{planted}: {told}");
    }
    // A model is the caller's word: it is shown, but never a key, and never a label.
    let body = body.replace("\"m\"", &format!("\"sk-{}\"", "proj-0123456789abcdefghij0123"));
    let request = client(Http::One).post(url(&relay, path(CHAT))).header("content-type", "application/json");
    send(request.header("authorization", "Bearer planted-client").body(body)).await;
    lines.of(&relay, "request", 5).await;
    let told = lines.text(&relay).await + &relay.app().telemetry.render_metrics();
    assert!(!told.contains("0123456789abcdef"), "{told}");
}

/// A file for events that can't be had is said at start, and a reload that can't have it changes nothing.
#[tokio::test]
async fn rotation_by_reload() {
    let a = always(chat_text(&["fine"])).await;
    let (relay, lines) = watched(Setup::primary(a.base_url())).await;
    ask(&relay, true).await;
    lines.of(&relay, "request", 1).await;
    let settings = relay.app().current().settings.clone();
    let rubicon::config::settings::EventsTo::File(path) = &settings.log.events else { panic!("no file") };
    std::fs::rename(path, path.with_extension("old")).unwrap();
    relay.app().replace(settings.clone());
    ask(&relay, true).await;
    lines.of(&relay, "request", 1).await;
    assert_eq!(sum(&relay, "rubicon_config_generation", &[]), 2.0);
}

#[tokio::test]
async fn what_passes_through_has_a_line_and_no_attempt() {
    let a = provider(Rule::new("files").answer(Answer::json(200, json!({"data": []})))).await;
    let (relay, lines) = watched(Setup::primary(a.base_url()).workflow("passthrough = [\"/v1/files\"]")).await;
    assert_eq!(send(client(Http::One).get(url(&relay, "/v1/files"))).await.status, 200);
    let request = lines.of(&relay, "request", 1).await.remove(0);
    says(
        &request,
        &[
            ("call", json!("passthrough")),
            ("state", json!("completed")),
            ("workflow", json!("default")),
            ("route", json!("a")),
            ("status", json!(200)),
            ("attempts", json!(0)),
        ],
    );
    lines.of(&relay, "attempt", 0).await;
}

/// Its line is written when its last byte is, and says how that went.
#[tokio::test]
async fn what_passes_through_is_told_at_its_end() {
    let begun = || Answer::sse().text("data: one\n\n").gate("go");
    for (rest, state, reason, class) in [
        (begun().text("data: two\n\n"), "completed", json!(null), json!(null)),
        (begun().text("data: tw").abort_rst(), "interrupted", json!("partial_output"), json!("partial_output")),
        (begun().hang(), "interrupted", json!("client_gone"), json!(null)),
        (begun().hang(), "interrupted", json!("shutting_down"), json!(null)),
    ] {
        let a = always(rest).await;
        let setup = Setup::primary(a.base_url()).workflow("passthrough = [\"/v1/files\"]");
        let (relay, lines) = watched(setup.server("shutdown_grace_ms = 100")).await;
        let mut response = client(Http::One).get(url(&relay, "/v1/files")).send().await.expect("a head");
        response.chunk().await.expect("data").expect("data");
        lines.of(&relay, "request", 0).await;
        if reason == "client_gone" {
            drop(response);
        } else if reason == "shutting_down" {
            relay.app().drain();
            relay.app().cut.cancel();
            assert!(!crate::harness::read(response).await.clean);
        } else {
            a.open_gate("go", 1);
            assert_eq!(crate::harness::read(response).await.clean, state == "completed");
        }
        let request = lines.of(&relay, "request", 1).await.remove(0);
        says(
            &request,
            &[
                ("call", json!("passthrough")),
                ("state", json!(state)),
                ("reason", reason),
                ("class", class),
                ("status", json!(200)),
                ("route", json!("a")),
            ],
        );
    }
}

/// One that failed says of which class.
#[tokio::test]
async fn what_could_not_pass_through_has_its_class() {
    let a = always(overloaded()).await;
    let (relay, lines) = watched(Setup::primary(a.base_url()).workflow("passthrough = [\"/v1/files\"]")).await;
    assert_eq!(send(client(Http::One).get(url(&relay, "/v1/files"))).await.status, 424);
    let request = lines.of(&relay, "request", 1).await.remove(0);
    says(&request, &[("state", json!("refused")), ("class", json!("provider_overloaded")), ("status", json!(424))]);
}

//! The table of conditions for failover to another provider, one row each: transient; sustained throttling; invalid, access,
//! refusal, limits; partial output or uncertain action; model-specific. Of each row: the order of the routes, the calls that each
//! provider counted, the outcome, and how long it took. A blocked row makes no secondary call.
//!
//! Three approved and verified routes, each at a provider of its own: `a` (primary), `b` (equivalent), `c` (alternate).

use std::collections::BTreeMap;
use std::time::Duration;

use rubicon::clock::Instant;
use rubicon::mock::{Answer, MockProvider, Rule, Script, Step, chat, chat_text, chat_whole_text};
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, client, relay_with, send, url};
use crate::setup::{Setup, error, limited, overloaded, server_error};

const KEY: &str = "conditions-key-0123456789abcdef0123456789";

/// How a row must end.
#[derive(Clone, Copy)]
enum End {
    /// The answer of the last route of the order, whole and clean, with this `Rubicon-Recovery`.
    Answered(&'static str),
    /// An error with this status and class, and nothing shown.
    Refused(u16, &'static str),
    /// Cut after output, with this class.
    Interrupted(&'static str),
}

struct Row {
    /// A group of the table and the case.
    name: &'static str,
    /// What `a`, `b` and `c` answer; what is absent answers well.
    a: Answer,
    b: Option<Answer>,
    /// Members of the request beside model, stream and messages.
    request: &'static str,
    /// Routes in the order in which they were asked.
    order: &'static [&'static str],
    /// Not before this: a wait that a provider asked for is obeyed.
    at_least_ms: u64,
    end: End,
}

fn row(name: &'static str, a: Answer, order: &'static [&'static str], end: End) -> Row {
    Row { name, a, b: None, request: "", order, at_least_ms: 0, end }
}

fn openai(status: u16, message: &str, kind: &str, code: &str) -> Answer {
    Answer::json_error(status, error(message, kind, json!(code)))
}

/// A stream that has shown text and then goes on as `how` says.
fn shown() -> Answer {
    Answer::sse().step(chat::role()).step(chat::delta("Hel"))
}

const FAILED_OVER: End = End::Answered("equivalent_failover");
const OTHER_MODEL: End = End::Answered("cross_model_fallback");
const MCP: &str = r#","tools":[{"type":"mcp","server_label":"pay","server_url":"https://mcp.example.test","require_approval":"never"}]"#;

fn transient() -> Vec<Row> {
    vec![
        row("transient: 503 overloaded", overloaded(), &["a", "b"], FAILED_OVER),
        row("transient: 500", server_error(), &["a", "b"], FAILED_OVER),
        row("transient: 502 of a proxy", Answer::new().head(502, &[]).text("bad gateway"), &["a", "b"], FAILED_OVER),
        row("transient: 408", openai(408, "Request timed out", "timeout", "timeout"), &["a", "b"], FAILED_OVER),
        row("transient: closed before the head", Answer::new().step(Step::CloseBeforeHead), &["a", "b"], FAILED_OVER),
        row("transient: half a head", Answer::new().step(Step::HalfHead), &["a", "b"], FAILED_OVER),
        row("transient: reset in the prelude", Answer::sse().step(chat::role()).abort_rst(), &["a", "b"], FAILED_OVER),
        row("transient: ends in the prelude", Answer::sse().step(chat::role()), &["a", "b"], FAILED_OVER),
        row("transient: an empty 200", Answer::new().head(200, &[]), &["a", "b"], FAILED_OVER),
        row(
            "transient: an error event in the prelude",
            Answer::sse().step(chat::role()).step(chat::error(
                "server_error",
                "server_error",
                "The server had an error",
            )),
            &["a", "b"],
            FAILED_OVER,
        ),
        // The second failure decides for itself.
        Row {
            b: Some(openai(401, "Incorrect API key", "invalid_request_error", "invalid_api_key")),
            ..row(
                "transient: and then no access elsewhere",
                overloaded(),
                &["a", "b"],
                End::Refused(424, "authentication_or_permission"),
            )
        },
        Row { at_least_ms: 300, ..row("transient: silence", Answer::new().hang(), &["a", "b"], FAILED_OVER) },
    ]
}

fn throttled() -> Vec<Row> {
    vec![
        row("throttling: told to wait long", limited("retry-after", "20"), &["a", "b"], FAILED_OVER),
        Row {
            at_least_ms: 300,
            ..row(
                "throttling: a short wait, sustained",
                limited("retry-after-ms", "300"),
                &["a", "a", "b"],
                FAILED_OVER,
            )
        },
        Row {
            b: Some(limited("retry-after", "30")),
            ..row(
                "throttling: both told to wait beyond the deadline",
                limited("retry-after", "30"),
                &["a", "b"],
                End::Refused(424, "deadline_exhausted"),
            )
        },
    ]
}

fn blocked() -> Vec<Row> {
    let stop = |name, answer, status, class| row(name, answer, &["a"], End::Refused(status, class));
    vec![
        stop(
            "invalid: 400",
            openai(400, "Unknown parameter", "invalid_request_error", "unknown_parameter"),
            400,
            "invalid_request",
        ),
        stop("invalid: 422", openai(422, "Unprocessable", "invalid_request_error", "invalid"), 422, "invalid_request"),
        stop(
            "limits: context too long",
            openai(
                400,
                "This model's maximum context length is 8192 tokens",
                "invalid_request_error",
                "context_length_exceeded",
            ),
            400,
            "invalid_request",
        ),
        stop(
            "access: 401",
            openai(401, "Incorrect API key", "invalid_request_error", "invalid_api_key"),
            424,
            "authentication_or_permission",
        ),
        stop(
            "access: 403",
            openai(403, "Not allowed", "permission_error", "forbidden"),
            424,
            "authentication_or_permission",
        ),
        stop(
            "refusal: content filter",
            openai(400, "The prompt was filtered", "invalid_request_error", "content_filter"),
            400,
            "refusal",
        ),
        stop(
            "limits: quota under 429",
            openai(
                429,
                "You exceeded your current quota, please check your plan and billing details",
                "insufficient_quota",
                "insufficient_quota",
            ),
            424,
            "quota_exhausted",
        ),
        stop(
            "limits: quota under 403",
            openai(403, "Billing hard limit has been reached", "insufficient_quota", "billing_hard_limit_reached"),
            424,
            "quota_exhausted",
        ),
        stop(
            "limits: quota under 402",
            openai(402, "Insufficient credits", "insufficient_quota", "insufficient_credits"),
            424,
            "quota_exhausted",
        ),
        stop("limits: a 429 that says nothing", Answer::new().head(429, &[]), 424, "ambiguous_429"),
        stop(
            "unknown: a redirect",
            Answer::new().head(302, &[("location", "https://elsewhere.example.test/")]),
            424,
            "unclassified",
        ),
        stop("unknown: 409", openai(409, "Conflict", "conflict", "conflict"), 424, "unclassified"),
    ]
}

fn after_the_boundary() -> Vec<Row> {
    let cut = |name, answer, class| row(name, answer, &["a"], End::Interrupted(class));
    let uncertain = |name, answer, end| Row { request: MCP, ..row(name, answer, &["a"], end) };
    vec![
        cut("partial: reset after text", shown().abort_rst(), "partial_output"),
        cut("partial: ended without its end", shown().abort_fin(), "partial_output"),
        cut("partial: a clean end without a finish reason", shown(), "partial_output"),
        cut(
            "partial: overload after text",
            shown().step(chat::error("overloaded_error", "overloaded", "Overloaded")),
            "partial_output",
        ),
        cut(
            "partial: quota after text",
            shown().step(chat::error("insufficient_quota", "insufficient_quota", "quota")),
            "partial_output",
        ),
        uncertain(
            "uncertain: a 500 where a tool may have acted",
            server_error(),
            End::Refused(424, "side_effect_uncertain"),
        ),
        uncertain(
            "uncertain: reset in the prelude, a tool may have acted",
            Answer::sse().step(chat::role()).abort_rst(),
            End::Refused(424, "side_effect_uncertain"),
        ),
        // Refused before it ran: proof that no tool acted.
        Row { request: MCP, ..row("certain: 503 overloaded, nothing ran", overloaded(), &["a", "b"], FAILED_OVER) },
    ]
}

fn model_specific() -> Vec<Row> {
    let no_model = || openai(404, "The model `m` does not exist", "invalid_request_error", "model_not_found");
    vec![
        row("model: unknown at the primary", no_model(), &["a", "b"], FAILED_OVER),
        Row {
            b: Some(no_model()),
            ..row("model: unknown at both, an alternate is approved", no_model(), &["a", "b", "c"], OTHER_MODEL)
        },
        row(
            "model: the answer breaks the contract",
            Answer::new().head(200, &[("content-type", "text/html")]).text("<html>hello</html>"),
            &["a", "b"],
            FAILED_OVER,
        ),
        row(
            "model: another 404",
            openai(404, "Unknown request URL", "invalid_request_error", "unknown_url"),
            &["a"],
            End::Refused(404, "invalid_request"),
        ),
    ]
}

fn rows() -> Vec<(String, Row)> {
    let groups = [transient(), throttled(), blocked(), after_the_boundary(), model_specific()];
    groups.into_iter().flatten().enumerate().map(|(n, row)| (format!("case-{n}"), row)).collect()
}

async fn scripted(name: &str, pick: impl Fn(&Row) -> Option<Answer>) -> MockProvider {
    let text = format!("from {name}");
    let script = rows().into_iter().fold(Script::default(), |script, (model, row)| {
        let answer = pick(&row).unwrap_or_else(|| chat_text(&[&text]));
        script.rule(Rule::new(&model).model(&model).answer(answer))
    });
    MockProvider::start(script).await.unwrap()
}

async fn between(a: &MockProvider, b: &MockProvider, c: &MockProvider) -> Server {
    // Each row is a request of its own: what came before it must not have tripped a breaker or used up a shared budget.
    let own = "timeouts = { first_output_ms = 300 }\nbreaker = { failures = 0 }";
    let setup = Setup::primary(a.base_url())
        .with_route(own)
        .equivalent("b", b)
        .with_route("breaker = { failures = 0 }")
        .alternate("c", c)
        .with_route("breaker = { failures = 0 }")
        .server("retry = { min_per_second = 1000 }")
        .workflow("envelope = { deadline_ms = 8000, max_attempts = 3, side_effects = \"write_possible\" }")
        .tables("[[client]]\nname = \"t\"\nkeys = [\"env:KEY\"]\nworkflows = [\"default\"]\nshow_routes = true");
    relay_with(&setup.text(), &BTreeMap::from([("KEY", KEY)])).await
}

async fn ask(relay: &Server, model: &str, row: &Row) -> Answered {
    let body =
        format!(r#"{{"model":"{model}","stream":true{},"messages":[{{"role":"user","content":"hi"}}]}}"#, row.request);
    let post = client(Http::One).post(url(relay, "/v1/chat/completions"));
    send(post.bearer_auth(KEY).header("content-type", "application/json").body(body)).await
}

/// What the relay remembers of the operation.
async fn view(relay: &Server, answered: &Answered) -> Value {
    let path = format!("/v1/operations/{}", answered.header("rubicon-operation-id"));
    send(client(Http::One).get(url(relay, &path)).bearer_auth(KEY)).await.json()
}

fn assert_end(answered: &Answered, row: &Row) {
    let name = row.name;
    match row.end {
        End::Answered(recovery) => {
            assert_eq!((answered.status, answered.clean), (200, true), "{name}: {}", answered.text());
            assert_eq!(answered.header("rubicon-recovery"), recovery, "{name}");
            let last = row.order.last().expect("a route");
            assert!(answered.text().contains(&format!("from {last}")), "{name}: {}", answered.text());
            assert!(!answered.text().contains("Hel\""), "{name}: bytes of two attempts");
        }
        End::Refused(status, class) => {
            let json = answered.json();
            assert_eq!((answered.status, &json["rubicon"]["class"]), (status, &json!(class)), "{name}: {json}");
            assert_eq!(answered.header("x-should-retry"), "false", "{name}");
        }
        End::Interrupted(class) => {
            assert_eq!((answered.status, answered.clean), (200, false), "{name}: {}", answered.text());
            let frame = answered.last_event();
            assert_eq!(frame["error"]["rubicon"]["class"], class, "{name}: {frame}");
        }
    }
}

#[tokio::test]
async fn the_table_of_conditions() {
    let a = scripted("a", |row| Some(row.a.clone())).await;
    let b = scripted("b", |row| row.b.clone()).await;
    let c = scripted("c", |_| None).await;
    let relay = between(&a, &b, &c).await;
    for (model, row) in rows() {
        let began = Instant::now();
        let answered = ask(&relay, &model, &row).await;
        let took = began.elapsed();
        assert_end(&answered, &row);
        let count = |name: &str| row.order.iter().filter(|route| **route == name).count() as u64;
        let calls = [a.calls_of(&model), b.calls_of(&model), c.calls_of(&model)];
        assert_eq!(calls, ["a", "b", "c"].map(count), "{}: calls of a, b, c", row.name);
        let view = view(&relay, &answered).await;
        let attempts = view["attempts"].as_array().expect("attempts");
        let order: Vec<&str> = attempts.iter().filter_map(|attempt| attempt["route"].as_str()).collect();
        assert_eq!(order, row.order, "{}: {view}", row.name);
        // A lower bound only: a busy machine may take longer, and the deadline of 8 s bounds it from above.
        assert!(took >= Duration::from_millis(row.at_least_ms), "{}: {took:?}", row.name);
        println!("{:55} {:9} {:4} ms", row.name, row.order.join(" "), took.as_millis());
    }
}

/// What a class blocks without streaming it blocks with it, and the other way round.
#[tokio::test]
async fn blocked_rows_block_whole_answers_too() {
    let blocked = || blocked().into_iter().enumerate().map(|(n, row)| (format!("case-{n}"), row));
    let script = |pick: &dyn Fn(&Row) -> Answer| {
        blocked().fold(Script::default(), |script, (model, row)| {
            script.rule(Rule::new(&model).model(&model).answer(pick(&row)))
        })
    };
    let a = MockProvider::start(script(&|row| row.a.clone())).await.unwrap();
    let b = MockProvider::start(script(&|_| chat_whole_text("from b"))).await.unwrap();
    let c = MockProvider::start(script(&|_| chat_whole_text("from c"))).await.unwrap();
    let relay = between(&a, &b, &c).await;
    for (model, row) in blocked() {
        let body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]}}"#);
        let post = client(Http::One).post(url(&relay, "/v1/chat/completions"));
        let answered = send(post.bearer_auth(KEY).header("content-type", "application/json").body(body)).await;
        assert_end(&answered, &row);
        assert_eq!([a.calls_of(&model), b.calls_of(&model), c.calls_of(&model)], [1, 0, 0], "{}", row.name);
    }
}

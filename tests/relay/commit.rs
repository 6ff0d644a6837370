//! `commit = "tool_call_complete"` and `"validated"`: a tool call that is cut, is no JSON or does not fit its schema never reaches a
//! client. Before anything was shown another route answers in silence; after text the stream is interrupted without the call.
//! Good ones come byte for byte.

use rubicon::mock::{
    Answer, MockProvider, Rule, Step, anthropic, anthropic_text, anthropic_whole_text, anthropic_whole_tool_use, chat,
    chat_text, chat_whole_text, chat_whole_tool_call, responses, responses_text, responses_whole_text,
    responses_whole_tool_call,
};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, PATIENCE, client, path, post, provider, relay, two, url};
use crate::streams::error_frame_of;

const POLICIES: [&str; 2] = ["tool_call_complete", "validated"];

/// Arguments that a call must not have, each with whether the stream breaks off there.
const BAD: [(&str, [&str; 2], bool); 3] = [
    ("cut", ["{\"amount\"", ":1"], true),
    ("no JSON", ["{\"amount\"", ":1"], false),
    ("unfit", ["{\"amount\"", ":\"1\"}"], false),
];

const GOOD: [&str; 2] = ["{\"amount\"", ": 12}"];

fn schema() -> Value {
    json!({"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]})
}

/// A request with the tool `pay`, and (`form`) a schema for the text.
fn request(dialect: Dialect, stream: bool, form: bool) -> String {
    let mut request = json!({"model": "m", "stream": stream});
    let input = if dialect == Dialect::Responses { "input" } else { "messages" };
    request[input] = json!([{"role": "user", "content": "hi"}]);
    match dialect {
        Dialect::ChatCompletions => {
            request["tools"] = json!([{"type": "function", "function": {"name": "pay", "parameters": schema()}}]);
            if form {
                request["response_format"] =
                    json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema()}});
            }
        }
        Dialect::AnthropicMessages => {
            request["max_tokens"] = json!(64);
            request["tools"] = json!([{"name": "pay", "input_schema": schema()}]);
            if form {
                request["output_config"] = json!({"format": {"type": "json_schema", "schema": schema()}});
            }
        }
        Dialect::Responses => {
            request["tools"] = json!([{"type": "function", "name": "pay", "parameters": schema()}]);
            if form {
                request["text"] = json!({"format": {"type": "json_schema", "name": "x", "schema": schema()}});
            }
        }
    }
    request.to_string()
}

fn start(dialect: Dialect) -> Vec<Step> {
    match dialect {
        Dialect::ChatCompletions => vec![chat::role()],
        Dialect::AnthropicMessages => vec![anthropic::message_start(), anthropic::ping()],
        Dialect::Responses => vec![responses::created(0), responses::in_progress(1)],
    }
}

/// Text as a block or item 0 of its own.
fn text(dialect: Dialect, said: &str) -> Vec<Step> {
    match dialect {
        Dialect::ChatCompletions => vec![chat::delta(said)],
        Dialect::AnthropicMessages => {
            vec![anthropic::text_start(0), anthropic::text_delta(0, said), anthropic::block_stop(0)]
        }
        Dialect::Responses => {
            let content = json!([{"type": "output_text", "text": said}]);
            let item = json!({"type": "message", "status": "completed", "role": "assistant", "content": content});
            let done = format!(",\"output_index\":0,\"item\":{item}");
            vec![
                responses::message_added(2, 0),
                responses::text_delta(3, 0, said),
                responses::event("response.output_item.done", 4, &done),
            ]
        }
    }
}

/// A call as it comes, and what makes it whole (chat: the finish reason, which is the stream's).
fn call(dialect: Dialect, index: u32, pieces: [&str; 2]) -> (Vec<Step>, Vec<Step>) {
    match dialect {
        Dialect::ChatCompletions => {
            let chunk = |call: Value| {
                Step::Text(format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})))
            };
            let index = index - 1;
            let first = json!({"index": index, "id": format!("c{index}"), "type": "function", "function": {"name": "pay", "arguments": ""}});
            let mut steps = vec![chunk(first)];
            steps.extend(pieces.map(|piece| chunk(json!({"index": index, "function": {"arguments": piece}}))));
            (steps, Vec::new())
        }
        Dialect::AnthropicMessages => {
            let mut steps = vec![anthropic::tool_start(index, "pay")];
            steps.extend(pieces.map(|piece| anthropic::input_delta(index, piece)));
            (steps, vec![anthropic::block_stop(index)])
        }
        Dialect::Responses => {
            let mut steps = vec![responses::call_added(5, index, "pay")];
            steps.extend(pieces.map(|piece| responses::arguments_delta(6, index, piece)));
            let item =
                json!({"type": "function_call", "status": "completed", "name": "pay", "arguments": pieces.concat()});
            let done = format!(",\"output_index\":{index},\"item\":{item}");
            (steps, vec![responses::event("response.output_item.done", 8, &done)])
        }
    }
}

fn end(dialect: Dialect, reason: &str) -> Vec<Step> {
    match (dialect, reason) {
        (Dialect::ChatCompletions, _) => vec![chat::finish(reason), chat::usage(3), chat::done()],
        (Dialect::AnthropicMessages, "length") => {
            vec![anthropic::message_delta("max_tokens", 3), anthropic::message_stop()]
        }
        (Dialect::AnthropicMessages, "content_filter") => {
            vec![anthropic::message_delta("refusal", 3), anthropic::message_stop()]
        }
        (Dialect::AnthropicMessages, _) => vec![anthropic::message_delta("end_turn", 3), anthropic::message_stop()],
        (Dialect::Responses, "length") => vec![responses::incomplete(9, "max_output_tokens")],
        (Dialect::Responses, "content_filter") => vec![responses::incomplete(9, "content_filter")],
        (Dialect::Responses, _) => vec![responses::completed(9, "", 3)],
    }
}

/// What steps of the mock send.
fn written(steps: &[Step]) -> String {
    let event = |step: &Step| match step {
        Step::Event(event) => {
            let name = event.name.as_ref().map_or(String::new(), |name| format!("event: {name}\n"));
            format!("{name}data: {}\n\n", event.data)
        }
        Step::Text(text) => text.clone(),
        _ => String::new(),
    };
    steps.iter().map(event).collect()
}

fn steps(answer: Answer, steps: &[Step]) -> Answer {
    steps.iter().fold(answer, |answer, step| answer.step(step.clone()))
}

/// A call that must not be shown, from its first event on.
fn bad_call(dialect: Dialect, answer: Answer, pieces: [&str; 2], cut: bool) -> Answer {
    let (begun, whole) = call(dialect, 1, pieces);
    let answer = steps(answer, &begun);
    if cut { answer.abort_fin() } else { steps(steps(answer, &whole), &end(dialect, "tool_calls")) }
}

async fn b_of(dialect: Dialect, said: &str) -> (MockProvider, String) {
    let answer = match dialect {
        Dialect::ChatCompletions => chat_text(&[said]),
        Dialect::AnthropicMessages => anthropic_text(&[said]),
        Dialect::Responses => responses_text(&[said]),
    };
    let bytes = written(&answer.steps);
    (provider(Rule::new("b").answer(answer)).await, bytes)
}

/// One request to `a` under a policy, with `b` behind it.
async fn ask(policy: &str, a: &MockProvider, b: &MockProvider, dialect: Dialect, body: String) -> Answered {
    let relay = relay(&two(a, b, &format!("commit = \"{policy}\""))).await;
    post(&client(Http::One), &relay, path(dialect), body).await
}

#[tokio::test]
async fn a_bad_call_before_anything_was_shown_is_answered_elsewhere_in_silence() {
    for dialect in Dialect::ALL {
        let (b, b_bytes) = b_of(dialect, "from b").await;
        for policy in POLICIES {
            for (what, pieces, cut) in BAD {
                let answer = bad_call(dialect, steps(Answer::sse(), &start(dialect)), pieces, cut);
                let a = provider(Rule::new("a").answer(answer)).await;
                let got = ask(policy, &a, &b, dialect, request(dialect, true, false)).await;
                assert_eq!(
                    (got.status, got.clean, got.text()),
                    (200, true, b_bytes.as_str()),
                    "{policy} {dialect:?} {what}"
                );
                assert_eq!((got.header("rubicon-attempts"), a.calls()), ("2", 1), "{policy} {dialect:?} {what}");
            }
        }
        // By the default it goes out as it comes.
        let mut sent = start(dialect);
        let (begun, whole) = call(dialect, 1, BAD[2].1);
        sent.extend([begun, whole, end(dialect, "tool_calls")].concat());
        let a = provider(Rule::new("a").answer(steps(Answer::sse(), &sent))).await;
        let got = ask("first_visible", &a, &b, dialect, request(dialect, true, false)).await;
        assert_eq!((got.header("rubicon-attempts"), got.text()), ("1", written(&sent).as_str()));
    }
}

#[tokio::test]
async fn a_bad_call_after_text_is_an_interruption_without_any_byte_of_it() {
    for dialect in Dialect::ALL {
        for (what, pieces, cut) in BAD {
            let shown = [start(dialect), text(dialect, "one moment")].concat();
            let answer = bad_call(dialect, steps(Answer::sse(), &shown), pieces, cut);
            let a = provider(Rule::new("a").answer(answer)).await;
            let (b, b_bytes) = b_of(dialect, "from b").await;
            let got = ask("tool_call_complete", &a, &b, dialect, request(dialect, true, false)).await;
            assert_eq!((got.status, got.clean, b.calls()), (200, false, 0), "{dialect:?} {what}");
            let tail = got.text().strip_prefix(&written(&shown)).unwrap_or_else(|| panic!("{what}: {}", got.text()));
            let rubicon = error_frame_of(dialect, tail.as_bytes());
            assert_eq!(
                (&rubicon["reason"], &rubicon["after"]),
                (&json!("partial_output"), &json!(shown.len())),
                "{what}"
            );
            assert!(!got.text().contains("amount"), "{what}: {}", got.text());
            // `validated` shows no text before the call is judged, so another route can answer.
            let got = ask("validated", &a, &b, dialect, request(dialect, true, false)).await;
            assert_eq!((got.text(), b.calls()), (b_bytes.as_str(), 1), "{dialect:?} {what}");
        }
    }
}

#[tokio::test]
async fn good_calls_come_byte_for_byte() {
    for dialect in Dialect::ALL {
        let (b, _) = b_of(dialect, "from b").await;
        for policy in POLICIES {
            for with_text in [false, true] {
                let mut sent = start(dialect);
                if with_text {
                    sent.extend(text(dialect, "one moment"));
                }
                for index in [1, 2] {
                    let (begun, whole) = call(dialect, index, GOOD);
                    sent.extend([begun, whole].concat());
                }
                sent.extend(end(dialect, "tool_calls"));
                let a = provider(Rule::new("a").answer(steps(Answer::sse(), &sent))).await;
                let got = ask(policy, &a, &b, dialect, request(dialect, true, false)).await;
                assert_eq!(
                    (got.status, got.clean, got.text()),
                    (200, true, written(&sent).as_str()),
                    "{policy} {dialect:?}"
                );
            }
        }
        assert_eq!(b.calls(), 0);
    }
}

/// Of two calls the second one is bad. Where each call has an end of its own the first one was whole and is out; in chat the finish
/// reason ends both, so neither is.
#[tokio::test]
async fn of_parallel_calls_only_whole_ones_are_released() {
    for dialect in Dialect::ALL {
        let ((first, first_end), (second, second_end)) = (call(dialect, 1, GOOD), call(dialect, 2, BAD[1].1));
        let mut shown = [start(dialect), text(dialect, "one moment")].concat();
        let before = shown.clone();
        shown.extend([first, first_end].concat());
        let answer = steps(Answer::sse(), &[shown.clone(), second, second_end, end(dialect, "tool_calls")].concat());
        let a = provider(Rule::new("a").answer(answer)).await;
        let (b, _) = b_of(dialect, "from b").await;
        let got = ask("tool_call_complete", &a, &b, dialect, request(dialect, true, false)).await;
        let expected = if dialect == Dialect::ChatCompletions { before } else { shown };
        let tail = got.text().strip_prefix(&written(&expected)).unwrap_or_else(|| panic!("{}", got.text()));
        assert_eq!(error_frame_of(dialect, tail.as_bytes())["after"], expected.len(), "{dialect:?}");
        assert!(!got.clean && b.calls() == 0);
    }
}

#[tokio::test]
async fn a_whole_text_is_shown_when_it_has_its_form() {
    for dialect in Dialect::ALL {
        let (b, b_bytes) = b_of(dialect, "{\"amount\":7}").await;
        for (said, reason, form, good) in [
            ("{\"amount\":12}", "stop", true, true),
            ("{\"amount\":\"12\"}", "stop", true, false),
            ("amount: 12", "stop", true, false),
            ("{\"amount\":", "length", true, false),
            ("{\"amount\":", "length", false, true),
        ] {
            let sent = [start(dialect), text(dialect, said), end(dialect, reason)].concat();
            let a = provider(Rule::new("a").answer(steps(Answer::sse(), &sent))).await;
            let got = ask("validated", &a, &b, dialect, request(dialect, true, form)).await;
            let (expected, attempts) = if good { (written(&sent), "1") } else { (b_bytes.clone(), "2") };
            assert_eq!(
                (got.status, got.clean, got.text()),
                (200, true, expected.as_str()),
                "{dialect:?} {said} {reason}"
            );
            assert_eq!(got.header("rubicon-attempts"), attempts, "{dialect:?} {said} {reason}");
        }
        // Cut after all of its text: nothing was shown.
        let sent = [start(dialect), text(dialect, "{\"amount\":12}")].concat();
        let a = provider(Rule::new("a").answer(steps(Answer::sse(), &sent).abort_fin())).await;
        let got = ask("validated", &a, &b, dialect, request(dialect, true, true)).await;
        assert_eq!((got.text(), got.header("rubicon-attempts")), (b_bytes.as_str(), "2"));
        // Filtered: nobody else is asked.
        let before = b.calls();
        let sent = [start(dialect), text(dialect, "{\"amount\":12}"), end(dialect, "content_filter")].concat();
        let a = provider(Rule::new("a").answer(steps(Answer::sse(), &sent))).await;
        let got = ask("validated", &a, &b, dialect, request(dialect, true, true)).await;
        assert_eq!((got.status, b.calls()), (400, before), "{}", got.text());
        assert!(got.text().contains("\"refusal\""), "{}", got.text());
    }
}

#[tokio::test]
async fn whole_answers_are_judged_alike() {
    for dialect in Dialect::ALL {
        let call = |arguments: &str| match dialect {
            Dialect::ChatCompletions => chat_whole_tool_call("pay", arguments),
            Dialect::AnthropicMessages => anthropic_whole_tool_use("pay", arguments),
            Dialect::Responses => responses_whole_tool_call("pay", arguments),
        };
        let said = |text: &str| match dialect {
            Dialect::ChatCompletions => chat_whole_text(text),
            Dialect::AnthropicMessages => anthropic_whole_text(text),
            Dialect::Responses => responses_whole_text(text),
        };
        let b = provider(Rule::new("b").answer(said("{\"amount\":7}"))).await;
        for (policy, answer, good) in [
            ("tool_call_complete", call("{\"amount\":1}"), true),
            ("tool_call_complete", call("{\"amount\":\"1\"}"), false),
            ("tool_call_complete", said("free"), true),
            ("validated", call("{\"amount\":1}"), true),
            ("validated", call("{}"), false),
            ("validated", said("{\"amount\":1}"), true),
            ("validated", said("free"), false),
            ("first_visible", call("{}"), true),
        ] {
            let a = provider(Rule::new("a").answer(answer)).await;
            let got = ask(policy, &a, &b, dialect, request(dialect, false, true)).await;
            let attempts = if good { "1" } else { "2" };
            assert_eq!(
                (got.status, got.header("rubicon-attempts")),
                (200, attempts),
                "{policy} {dialect:?}: {}",
                got.text()
            );
        }
    }
}

/// A call over 1 MiB, and an answer over 8 MiB: the attempt fails rather than show what was not judged.
#[tokio::test]
async fn at_the_bounds_the_attempt_fails() {
    let dialect = Dialect::ChatCompletions;
    let (b, b_bytes) = b_of(dialect, "from b").await;
    let long = "1".repeat(400 * 1024);
    let (begun, _) = call(dialect, 1, [&long, &long]);
    let call = steps(Answer::sse(), &[start(dialect), begun.clone()].concat());
    let call = steps(steps(call, &begun[2..]), &end(dialect, "tool_calls"));
    let said = steps(Answer::sse(), &start(dialect)).repeat(22, Answer::new().step(chat::delta(&long)));
    let said = steps(said, &end(dialect, "stop"));
    for (policy, answer) in [("tool_call_complete", &call), ("validated", &call), ("validated", &said)] {
        let a = provider(Rule::new("a").answer(answer.clone())).await;
        let got = ask(policy, &a, &b, dialect, request(dialect, true, false)).await;
        assert_eq!((got.text(), got.header("rubicon-attempts")), (b_bytes.as_str(), "2"), "{policy}");
    }
    // The same text, where only calls wait.
    let a = provider(Rule::new("a").answer(said)).await;
    let got = ask("tool_call_complete", &a, &b, dialect, request(dialect, true, false)).await;
    assert_eq!((got.clean, got.header("rubicon-attempts")), (true, "1"));
}

async fn open(relay: &Server, dialect: Dialect) -> reqwest::Response {
    let request = client(Http::One).post(url(relay, path(dialect))).body(request(dialect, true, false));
    let sent = request.header("content-type", "application/json").send();
    tokio::time::timeout(PATIENCE, sent).await.expect("a head in time").expect("a head")
}

/// While an answer or a call waits the client is kept with keep-alives, which are no part of it.
#[tokio::test]
async fn keep_alives_go_out_while_something_waits() {
    for dialect in Dialect::ALL {
        let keepalive = String::from_utf8(dialect.keepalive(false, false).to_vec()).expect("UTF-8");
        for policy in POLICIES {
            let shown = [start(dialect), text(dialect, "one moment")].concat();
            let (begun, whole) = call(dialect, 1, GOOD);
            let rest = [whole, end(dialect, "tool_calls")].concat();
            let answer = steps(steps(steps(Answer::sse(), &shown), &begun).gate("whole"), &rest);
            let a = provider(Rule::new("a").answer(answer)).await;
            let (b, _) = b_of(dialect, "from b").await;
            let hold = "hold = { keepalive_after_ms = 20 }";
            let relay = relay(&two(&a, &b, &format!("commit = \"{policy}\"\n{hold}"))).await;
            let mut response = open(&relay, dialect).await;
            let before = if policy == "validated" { String::new() } else { written(&shown) };
            let mut got = String::new();
            let mut opened = false;
            while let Some(chunk) =
                tokio::time::timeout(PATIENCE, response.chunk()).await.expect("in time").expect("clean")
            {
                got += std::str::from_utf8(&chunk).expect("UTF-8");
                let kept = got.replace(&keepalive, "");
                let pauses = (got.len() - kept.len()) / keepalive.len();
                if !opened && kept == before && got.ends_with(&keepalive) && pauses > 2 {
                    assert!(a.open_gate("whole", 1));
                    opened = true;
                }
                assert!(opened || before.starts_with(&kept), "{policy} {dialect:?}: {got}");
            }
            assert_eq!(got.replace(&keepalive, ""), written(&[shown, begun, rest].concat()), "{policy} {dialect:?}");
            assert!(opened && b.calls() == 0);
        }
    }
}

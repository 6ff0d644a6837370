//! The responses dialect: what is held and what crosses, every form of a failure before output, hosted tools that may have acted,
//! the two frames of an interruption to the byte, ends, keep-alives, and what a request may not ask for.

use rubicon::mock::{Answer, AutoDialect, MockProvider, Rule, Step, responses, responses_text, responses_whole_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, PATIENCE, client, path, post, provider, read, relay, request, send, two, url};
use crate::setup::{always, overloaded};
use crate::streams::error_frame_of;

const RESPONSES: Dialect = Dialect::Responses;

async fn ask(relay: &Server) -> Answered {
    post(&client(Http::One), relay, path(RESPONSES), request(RESPONSES, true)).await
}

async fn record(relay: &Server, answered: &Answered) -> Value {
    let operation = format!("/v1/operations/{}", answered.header("rubicon-operation-id"));
    send(client(Http::One).get(url(relay, &operation))).await.json()
}

fn played(steps: &[Step]) -> Answer {
    steps.iter().fold(Answer::sse(), |answer, step| answer.step(step.clone()))
}

/// What event steps of the mock send.
fn written(steps: &[Step]) -> String {
    let event = |step: &Step| match step {
        Step::Event(event) => {
            format!("event: {}\ndata: {}\n\n", event.name.as_deref().unwrap_or_default(), event.data)
        }
        Step::Text(text) => text.clone(),
        other => panic!("no bytes: {other:?}"),
    };
    steps.iter().map(event).collect()
}

fn item(number: u64, event: &str, item: &str) -> Step {
    responses::event(event, number, &format!(",\"output_index\":0,\"item\":{item}"))
}

const ADDED: &str = "response.output_item.added";
const DONE: &str = "response.output_item.done";

/// Everything that shows nothing, as providers send it.
fn prelude() -> Vec<Step> {
    let event = responses::event;
    vec![
        responses::created(0),
        event("response.queued", 1, ""),
        responses::in_progress(2),
        Step::Text(": OPENROUTER PROCESSING\n\n".to_owned()),
        responses::keepalive(3),
        event("response.compaction.compacting", 4, ",\"item_id\":\"cmp_1\",\"output_index\":0"),
        item(5, DONE, r#"{"type":"compaction","id":"cmp_1","encrypted_content":"gAAA"}"#),
        item(6, ADDED, r#"{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[]}"#),
        event("response.mcp_list_tools.in_progress", 7, ",\"item_id\":\"mcpl_1\""),
        event("response.mcp_list_tools.completed", 8, ",\"item_id\":\"mcpl_1\""),
        item(
            9,
            DONE,
            r#"{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[{"name":"t","input_schema":{}}]}"#,
        ),
        item(10, ADDED, r#"{"type":"reasoning","id":"rs_1","summary":[],"content":[],"encrypted_content":"gAAA"}"#),
        event("response.reasoning_summary_part.added", 11, ",\"part\":{\"type\":\"summary_text\",\"text\":\"\"}"),
        event("response.reasoning_summary_text.delta", 12, ",\"delta\":\"\""),
        item(13, DONE, r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAAB"}"#),
        responses::message_added(14, 1),
        responses::part_added(15, 1),
        event("response.output_text.delta", 16, ",\"delta\":\"\""),
    ]
}

async fn b() -> MockProvider {
    provider(Rule::new("b").answer(responses_text(&["from ", "b"]))).await
}

/// b's bytes and nothing of a's, whole, and one call each.
async fn assert_from_b(answered: &Answered, a: &MockProvider, b: &MockProvider, what: &str) {
    let direct = client(Http::One).post(format!("{}{}", b.base_url(), path(RESPONSES))).body(request(RESPONSES, true));
    let expected = send(direct).await;
    assert_eq!((answered.status, answered.text(), answered.clean), (200, expected.text(), true), "{what}");
    assert_eq!((answered.header("rubicon-attempts"), a.calls(), b.calls()), ("2", 1, 2), "{what}");
    assert_eq!(answered.header("rubicon-recovery"), "equivalent_failover", "{what}");
}

#[tokio::test]
async fn nothing_of_the_prelude_crosses_and_a_failure_behind_any_of_it_is_not_seen() {
    let prelude = prelude();
    for events in 0..=prelude.len() {
        let (a, b) = (always(played(&prelude[..events]).delay_ms(5).abort_rst()).await, b().await);
        let relay = relay(&two(&a, &b, "")).await;
        assert_from_b(&ask(&relay).await, &a, &b, &format!("after {events} events")).await;
    }
}

#[tokio::test]
async fn the_prelude_comes_whole_and_in_order_with_the_first_output() {
    let mut all = prelude();
    all.push(responses::text_delta(17, 1, "Hel"));
    all.push(responses::completed(18, "", 1));
    let (a, b) = (always(played(&all)).await, b().await);
    let relay = relay(&two(&a, &b, "")).await;
    let got = ask(&relay).await;
    // Held comments are dropped.
    let expected = written(&all).replace(": OPENROUTER PROCESSING\n\n", "");
    assert_eq!((got.text(), got.clean, b.calls()), (expected.as_str(), true, 0));
    let known = record(&relay, &got).await;
    assert_eq!(
        (&known["boundary"]["why"], &known["finish_reason"]),
        (&json!({ "visible": "text" }), &json!("completed"))
    );
    assert_eq!(known["usage"]["output_tokens"], 1);
}

#[tokio::test]
async fn every_form_of_a_failure_before_output_fails_over() {
    let nested = || responses::error(2, "server_error", "server_error", "it broke");
    let failed = || responses::failed(3, "server_error", "it broke");
    let both = "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"m\",\"error\":{\"message\":\"m\"}}\n\n";
    let refuted = r#","response":{"status":"failed","error":{"code":"server_error","message":"m"},"output":[]}"#;
    for (what, tail) in [
        ("nested", vec![nested()]),
        ("nested, and the response that failed", vec![nested(), failed()]),
        ("flat", vec![responses::error_flat(2, "server_error", "it broke")]),
        ("both forms", vec![Step::Text(both.to_owned())]),
        ("without its event line", vec![Step::Text(both.replace("event: error\n", ""))]),
        ("failed alone", vec![failed()]),
        ("completed, and says that it failed", vec![responses::event("response.completed", 2, refuted)]),
        ("at capacity", vec![responses::failed(2, "server_is_overloaded", "at capacity")]),
        ("an end without an end", vec![]),
        ("a gateway's end alone", vec![Step::Text("data: [DONE]\n\n".to_owned())]),
    ] {
        let steps = [vec![responses::created(0), responses::in_progress(1)], tail].concat();
        let (a, b) = (always(played(&steps)).await, b().await);
        let relay = relay(&two(&a, &b, "")).await;
        assert_from_b(&ask(&relay).await, &a, &b, what).await;
    }
}

#[tokio::test]
async fn a_hosted_tool_commits_before_any_text_and_may_have_acted() {
    let event = responses::event;
    let acts = [
        item(1, ADDED, r#"{"type":"mcp_call","id":"i","name":"pay","arguments":""}"#),
        item(1, ADDED, r#"{"type":"code_interpreter_call","id":"i","code":"","container_id":"c"}"#),
        item(1, ADDED, r#"{"type":"computer_call","id":"i","call_id":"c"}"#),
        item(1, ADDED, r#"{"type":"shell_call","id":"i"}"#),
        item(1, ADDED, r#"{"type":"local_shell_call","id":"i"}"#),
        item(1, ADDED, r#"{"type":"apply_patch_call","id":"i"}"#),
        item(1, ADDED, r#"{"type":"robot_arm_call","id":"i"}"#),
        item(1, DONE, r#"{"type":"mcp_call","id":"i","output":"paid"}"#),
        event("response.mcp_call.in_progress", 1, ",\"item_id\":\"i\""),
        event("response.code_interpreter_call_code.delta", 1, ",\"delta\":\"\""),
        event("response.shell_call_command.added", 1, ",\"command\":\"\""),
    ];
    let looks = [
        item(1, ADDED, r#"{"type":"web_search_call","id":"i"}"#),
        item(1, ADDED, r#"{"type":"file_search_call","id":"i"}"#),
        item(1, ADDED, r#"{"type":"image_generation_call","id":"i"}"#),
        event("response.web_search_call.searching", 1, ",\"item_id\":\"i\""),
        event("response.image_generation_call.generating", 1, ",\"item_id\":\"i\""),
    ];
    let shows = [
        item(1, ADDED, r#"{"type":"function_call","id":"i","name":"f","arguments":""}"#),
        item(1, ADDED, r#"{"type":"custom_tool_call","id":"i","name":"f","input":""}"#),
        item(1, ADDED, r#"{"type":"mcp_approval_request","id":"i","name":"pay"}"#),
        item(1, ADDED, r#"{"type":"hologram","id":"i"}"#),
        item(1, ADDED, r#"{"type":"message","id":"i","content":[{"type":"output_text","text":"early"}]}"#),
        event("response.image_generation_call.partial_image", 1, ",\"partial_image_b64\":\"AAAA\""),
        event("response.output_text.done", 1, ",\"text\":\"never a delta\""),
        event("response.something.new", 1, ""),
    ];
    let rows = acts.iter().map(|step| (step, true)).chain(looks.iter().chain(&shows).map(|step| (step, false)));
    for (step, acted) in rows {
        let sent = [responses::created(0), step.clone()];
        let (a, b) = (always(played(&sent).delay_ms(20).abort_rst()).await, b().await);
        let relay = relay(&two(&a, &b, "")).await;
        let got = ask(&relay).await;
        let what = format!("{step:?}");
        let tail = got.text().strip_prefix(&written(&sent)).unwrap_or_else(|| panic!("{what}: {}", got.text()));
        let rubicon = error_frame_of(RESPONSES, tail.as_bytes());
        let (class, action) =
            if acted { ("side_effect_uncertain", "reconcile") } else { ("partial_output", "restart") };
        assert_eq!((&rubicon["reason"], &rubicon["actions"]), (&json!(class), &json!([action])), "{what}");
        assert_eq!((&rubicon["unresolved_executions"], got.clean), (&json!(u32::from(acted)), false), "{what}");
        assert_eq!((a.calls(), b.calls()), (1, 0), "{what}: never run twice");
    }
}

/// A stored call in what `response.completed` repeats is nothing that happens now.
#[tokio::test]
async fn what_the_end_repeats_does_not_matter() {
    let output = r#"{"type":"mcp_call","id":"i","output":"paid"},{"type":"message","id":"m","content":[{"type":"output_text","text":"x"}]}"#;
    let all = [responses::created(0), responses::completed(1, output, 1)];
    let (a, b) = (always(played(&all).abort_rst()).await, b().await);
    let relay = relay(&two(&a, &b, "")).await;
    let got = ask(&relay).await;
    assert_eq!((got.text(), got.clean), (written(&all).as_str(), true));
    let known = record(&relay, &got).await;
    assert_eq!((&known["state"], &known["unresolved_executions"]), (&json!("completed"), &json!(0)), "{known}");
}

#[tokio::test]
async fn an_interruption_is_two_frames_to_the_byte_and_an_abort() {
    let sent = [responses::created(0), responses::message_added(1, 0), responses::text_delta(7, 0, "Hel")];
    for (tail, words) in [
        (vec![], "the provider ended its stream without its end marker"),
        (vec![responses::failed(8, "server_is_overloaded", "We are at capacity.")], "We are at capacity"),
        (
            vec![responses::error(8, "server_error", "c", "It broke."), responses::failed(9, "c", "It broke.")],
            "It broke",
        ),
    ] {
        let (a, b) = (always(played(&[sent.to_vec(), tail.clone()].concat())).await, b().await);
        let relay = relay(&two(&a, &b, "")).await;
        let ask = client(Http::One).post(url(&relay, path(RESPONSES))).header("idempotency-key", "op-7");
        let got = send(ask.body(request(RESPONSES, true))).await;
        let tail_bytes = got.text().strip_prefix(&written(&sent)).unwrap_or_else(|| panic!("{}", got.text()));
        let rubicon = error_frame_of(RESPONSES, tail_bytes.as_bytes());
        let message =
            format!("The answer was interrupted: {words}. What was shown is incomplete; nothing was sent again.");
        let error = json!({
            "type": "error", "code": "rubicon_interrupted", "message": message, "param": null, "sequence_number": 8,
            "error": { "message": message, "type": "upstream_error", "param": null, "code": "rubicon_interrupted" },
            "rubicon": rubicon,
        });
        let failed = json!({
            "type": "response.failed", "sequence_number": 9,
            "response": {
                "id": responses::ID, "object": "response", "created_at": 1_700_000_000, "status": "failed",
                "error": { "code": "rubicon_interrupted", "message": message, "rubicon": rubicon },
                "incomplete_details": null, "instructions": null, "metadata": {}, "model": rubicon::mock::MODEL, "output": [],
                "parallel_tool_calls": true, "temperature": null, "tool_choice": "auto", "tools": [], "top_p": null,
                "usage": null,
            },
        });
        let expected = format!("event: error\ndata: {error}\n\nevent: response.failed\ndata: {failed}\n\n");
        assert_eq!(tail_bytes, expected);
        assert_eq!((&rubicon["after"], &rubicon["operation_id"]), (&json!(3), &json!("op-7")));
        assert_eq!((got.clean, a.calls(), b.calls()), (false, 1, 0));
    }
}

#[tokio::test]
async fn an_incomplete_response_is_an_end() {
    for shown in [true, false] {
        let mut all = vec![responses::created(0)];
        all.extend(shown.then(|| responses::text_delta(1, 0, "Hel")));
        all.push(responses::incomplete(2, "max_output_tokens"));
        all.push(Step::Text("data: [DONE]\n\n".to_owned()));
        let (a, b) = (always(played(&all).hang()).await, b().await);
        let relay = relay(&two(&a, &b, "")).await;
        let got = ask(&relay).await;
        assert_eq!((got.text(), got.clean, b.calls()), (written(&all).as_str(), true, 0));
        let known = record(&relay, &got).await;
        assert_eq!((&known["state"], &known["finish_reason"]), (&json!("completed"), &json!("max_output_tokens")));
    }
}

#[tokio::test]
async fn a_response_in_the_background_is_refused_before_anybody_is_asked() {
    let (a, b) = (b().await, b().await);
    let relay = relay(&two(&a, &b, "")).await;
    for stream in [true, false] {
        let body = request(RESPONSES, stream).replace("\"stream\"", "\"background\":true,\"stream\"");
        let got = post(&client(Http::One), &relay, path(RESPONSES), body).await;
        let error = &got.json()["error"];
        assert_eq!(
            (got.status, &error["code"], &error["param"]),
            (400, &json!("background_not_supported"), &json!("background"))
        );
    }
    assert_eq!((a.calls(), b.calls()), (0, 0));
}

/// Frames for whoever counts events; comments for an official SDK, whose helpers raise at an event before `response.created`.
#[tokio::test]
async fn keep_alives_are_events_but_for_official_sdks() {
    const FRAME: &str = "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":0}\n\n";
    const COMMENT: &str = ": keep-alive\n\n";
    for (header, expected) in [("user-agent", FRAME), ("x-stainless-lang", COMMENT)] {
        let (a, b) = (always(Answer::new().gate("fail").then(overloaded())).await, b().await);
        let relay = relay(&two(&a, &b, "hold = { keepalive_after_ms = 30 }")).await;
        let ask = client(Http::One).post(url(&relay, path(RESPONSES))).header(header, "python");
        let sending = ask.body(request(RESPONSES, true)).send();
        let mut response = tokio::time::timeout(PATIENCE, sending).await.expect("in time").expect("a head");
        let mut waited = Vec::new();
        while waited.len() < 3 * expected.len() {
            let chunk = tokio::time::timeout(PATIENCE, response.chunk()).await.expect("in time").expect("no abort");
            waited.extend_from_slice(&chunk.expect("no end"));
        }
        assert!(a.open_gate("fail", 1));
        let rest = read(response).await;
        let all = format!("{}{}", String::from_utf8(waited).expect("UTF-8"), rest.text());
        let answer = all.trim_start_matches(expected);
        assert!(answer.starts_with("event: response.created\n") && answer.contains("\"from \""), "{all}");
        assert!(rest.clean && !answer.contains("keep"), "{all}");
    }
}

#[tokio::test]
async fn only_the_model_is_rewritten() {
    let body = " {\n\"input\" : [ {\"role\":\"user\",\"content\":\"h\\u00e9\\ud83d\"}],\"model\":\"m\" , \"stream\":true,\
                \"store\":false,\"metadata\":{\"model\":\"m\"},\"unknown\":[1.50,{}],\"include\":[\"reasoning.encrypted_content\"]}";
    let a = always(responses_text(&["x"])).await;
    let text = two(&a, &a, "").replace("[route.a]\n", "[route.a]\nmodel = \"gpt-x\"\n");
    let relay = relay(&text).await;
    let got = post(&client(Http::One), &relay, path(RESPONSES), body).await;
    assert_eq!((got.status, got.clean), (200, true));
    let seen = a.requests().pop().expect("a call");
    assert_eq!(seen.path, "/v1/responses");
    assert_eq!(String::from_utf8_lossy(&seen.body), body.replacen("\"model\":\"m\"", "\"model\":\"gpt-x\"", 1));
}

#[tokio::test]
async fn whole_answers_pass_and_failed_ones_fail_over() {
    let failed = json!({ "id": "r", "object": "response", "status": "failed", "output": [],
        "error": { "code": "server_error", "message": "it broke" } });
    let background = json!({ "id": "r", "object": "response", "status": "in_progress", "output": [] });
    for (what, answer, calls) in [
        ("fine", responses_whole_text("fine"), (1, 0)),
        ("failed", Answer::json(200, failed), (1, 1)),
        ("goes on somewhere", Answer::json(200, background), (1, 1)),
        (
            "an error in a 200",
            Answer::json(200, json!({ "error": { "message": "m", "type": "server_error" } })),
            (1, 1),
        ),
    ] {
        let (a, b) = (always(answer).await, always(Answer::auto(AutoDialect::Responses, &["from b"])).await);
        let relay = relay(&two(&a, &b, "")).await;
        let got = post(&client(Http::One), &relay, path(RESPONSES), request(RESPONSES, false)).await;
        let text = got.json()["output"][0]["content"][0]["text"].clone();
        assert_eq!((got.status, a.calls(), b.calls()), (200, calls.0, calls.1), "{what}: {}", got.text());
        assert_eq!(text, if calls.1 == 0 { "fine" } else { "from b" }, "{what}");
    }
}

/// What a route speaks that says nothing: OpenAI both of its dialects, a compatible server chat-completions only.
#[tokio::test]
async fn who_speaks_it_unasked() {
    for (kind, status) in [("openai", 200), ("openai-compatible", 400)] {
        let a = always(responses_text(&["x"])).await;
        let relay = relay(&format!(
            "[provider.p]\nkind = \"{kind}\"\nbase_url = \"{}/v1\"\n[route.r]\nprovider = \"p\"\n[workflow.default]\nprimary = \"r\"\n",
            a.base_url()
        ))
        .await;
        let got = ask(&relay).await;
        assert_eq!((got.status, a.calls()), (status, u64::from(status == 200)), "{kind}: {}", got.text());
        if status == 400 {
            assert_eq!(got.json()["error"]["code"], "dialect_not_supported");
        }
    }
}

/// State that only the account of the primary can be presumed to hold never goes elsewhere.
#[tokio::test]
async fn pinned_state_stays() {
    for (member, pinned) in [
        ("\"previous_response_id\":\"resp_1\"", true),
        ("\"conversation\":{\"id\":\"conv_1\"}", true),
        ("\"previous_response_id\":null", false),
    ] {
        let (a, b) = (always(overloaded()).await, b().await);
        let relay = relay(&two(&a, &b, "envelope = { max_attempts = 2 }")).await;
        let body = request(RESPONSES, true).replace("\"stream\"", &format!("{member},\"stream\""));
        let got = post(&client(Http::One), &relay, path(RESPONSES), body).await;
        assert_eq!((got.status == 200, b.calls()), (!pinned, u64::from(!pinned)), "{member}: {}", got.text());
    }
}

/// What a failed answer itself says that it did: also where no tool was declared (a stored prompt has them).
#[tokio::test]
async fn a_failed_answer_that_tells_of_a_tool_that_may_act_is_never_repeated() {
    let failed = |output: &str, code: &str| {
        format!(
            r#"{{"id":"resp_1","object":"response","status":"failed","error":{{"code":"{code}","message":"m"}},"output":[{output}]}}"#
        )
    };
    let pay = r#"{"type":"mcp_call","id":"i","name":"pay","output":"paid"}"#;
    let search = r#"{"type":"web_search_call","id":"i","status":"completed"}"#;
    for (output, code, acted) in
        [(pay, "server_error", true), (pay, "invalid_prompt", true), (search, "server_error", false)]
    {
        let response = failed(output, code);
        let told =
            [responses::created(0), responses::event("response.failed", 1, &format!(",\"response\":{response}"))];
        let json = |status: u16| Answer::json(status, serde_json::from_str(&response).expect("JSON"));
        for (streamed, answer) in [(true, played(&told)), (true, json(200)), (false, json(200)), (false, json(500))] {
            let second = if streamed { responses_text(&["b"]) } else { responses_whole_text("b") };
            let (a, b) = (always(answer).await, provider(Rule::new("b").answer(second)).await);
            let relay = relay(&two(&a, &b, "")).await;
            let got = post(&client(Http::One), &relay, path(RESPONSES), request(RESPONSES, streamed)).await;
            if acted {
                let rubicon = &got.json()["rubicon"];
                assert_eq!((got.status, &rubicon["reason"]), (424, &json!("side_effect_uncertain")), "{}", got.text());
                assert_eq!((&rubicon["actions"], &rubicon["retryable"]), (&json!(["reconcile"]), &json!(false)));
                let known = record(&relay, &got).await;
                assert_eq!(known["unresolved_executions"], 1, "{known}");
            } else {
                assert_eq!(
                    (got.status, got.header("rubicon-recovery")),
                    (200, "equivalent_failover"),
                    "{}",
                    got.text()
                );
            }
            assert_eq!((a.calls(), b.calls()), (1, u64::from(!acted)), "{output} {code} {streamed}");
        }
    }
}

/// Items in the response that a stream begins with are output as if they were announced.
#[tokio::test]
async fn what_a_stream_begins_with_crosses_when_it_shows_something() {
    for (output, reason) in [
        (r#"{"type":"message","id":"m","content":[{"type":"output_text","text":"early"}]}"#, "partial_output"),
        (r#"{"type":"mcp_call","id":"i","name":"pay"}"#, "side_effect_uncertain"),
    ] {
        let response = format!(",\"response\":{{\"id\":\"resp_1\",\"status\":\"in_progress\",\"output\":[{output}]}}");
        let sent = [responses::created(0), responses::event("response.in_progress", 1, &response)];
        let (a, b) = (always(played(&sent).delay_ms(20).abort_rst()).await, b().await);
        let relay = relay(&two(&a, &b, "")).await;
        let got = ask(&relay).await;
        let tail = got.text().strip_prefix(&written(&sent)).unwrap_or_else(|| panic!("{}", got.text()));
        assert_eq!(error_frame_of(RESPONSES, tail.as_bytes())["reason"], reason);
        assert_eq!((got.clean, a.calls(), b.calls()), (false, 1, 0));
    }
}

#[tokio::test]
async fn the_requests_own_fault_in_a_stream_stops() {
    for (code, status, class) in [
        ("invalid_image", 400, "invalid_request"),
        ("bio_policy", 400, "refusal"),
        ("data_residency_mismatch", 424, "authentication_or_permission"),
        ("usage_not_included", 424, "quota_exhausted"),
    ] {
        let (a, b) = (always(played(&[responses::created(0), responses::failed(1, code, "m")])).await, b().await);
        let relay = relay(&two(&a, &b, "")).await;
        let got = ask(&relay).await;
        assert_eq!((got.status, &got.json()["rubicon"]["class"]), (status, &json!(class)), "{}", got.text());
        assert_eq!((a.calls(), b.calls()), (1, 0), "{code}: no second call");
    }
}

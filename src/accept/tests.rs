//! What is judged, as tables; and schemas that somebody wrote to do harm.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::Broken;
use super::guard::{ARGUMENTS_BYTES_MAX, CALLS_MAX, Guard, Stand};
use super::schema::{SCHEMA_BYTES_MAX, Schema};
use super::wanted::Wanted;
use crate::protocol::Dialect;

fn wanted(dialect: Dialect, whole: bool, body: &Value) -> Arc<Wanted> {
    Arc::new(Wanted::of(dialect, whole, &Bytes::from(body.to_string())))
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
}

fn tools(dialect: Dialect) -> Value {
    match dialect {
        Dialect::ChatCompletions => json!({"tools": [
            {"type": "function", "function": {"name": "f", "parameters": schema()}},
            {"type": "function", "function": {"name": "none"}},
            {"type": "custom", "custom": {"name": "free"}}]}),
        Dialect::AnthropicMessages => json!({"tools": [{"name": "f", "input_schema": schema()}, {"name": "none"}]}),
        Dialect::Responses => json!({"tools": [
            {"type": "function", "name": "none"}, {"type": "custom", "name": "free"},
            {"type": "namespace", "name": "s", "tools": [{"type": "function", "name": "f", "parameters": schema()}]}]}),
    }
}

/// A stream's stands; the last event is its end.
fn stands(guard: &mut Guard, events: &[Value], finish: &str) -> Vec<Stand> {
    let last = events.len() - 1;
    let read = |(at, event): (usize, &Value)| {
        let text = event.to_string();
        let data = if event == "[DONE]" { "[DONE]" } else { text.as_str() };
        guard.read(b"", data.as_bytes(), at == last, Some(finish))
    };
    events.iter().enumerate().map(read).collect()
}

/// Lifecycle, a call in two pieces, its end, the stream's end.
fn call(dialect: Dialect, name: &str, pieces: [&str; 2]) -> Vec<Value> {
    let [first, second] = pieces;
    let whole = pieces.concat();
    match dialect {
        Dialect::ChatCompletions => {
            let chunk = |delta: Value, finish: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
            let part = |json: Value| chunk(json!({"tool_calls": [json]}), Value::Null);
            vec![
                chunk(json!({"role": "assistant"}), Value::Null),
                part(json!({"index": 0, "id": "c", "type": "function", "function": {"name": name, "arguments": ""}})),
                part(json!({"index": 0, "function": {"arguments": first}})),
                part(json!({"index": 0, "function": {"arguments": second}})),
                chunk(json!({}), json!("tool_calls")),
                json!("[DONE]"),
            ]
        }
        Dialect::AnthropicMessages => {
            let delta = |text: &str| {
                let delta = json!({"type": "input_json_delta", "partial_json": text});
                json!({"type": "content_block_delta", "index": 1, "delta": delta})
            };
            let block = json!({"type": "tool_use", "id": "t", "name": name, "input": {}});
            vec![
                json!({"type": "message_start", "message": {"content": []}}),
                json!({"type": "content_block_start", "index": 1, "content_block": block}),
                delta(first),
                delta(second),
                json!({"type": "content_block_stop", "index": 1}),
                json!({"type": "message_stop"}),
            ]
        }
        Dialect::Responses => {
            let item = |status: &str, arguments: &str| json!({"type": "function_call", "status": status, "name": name, "arguments": arguments});
            let delta = |text: &str| json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": text});
            vec![
                json!({"type": "response.created", "response": {"output": []}}),
                json!({"type": "response.output_item.added", "output_index": 1, "item": item("in_progress", "")}),
                delta(first),
                delta(second),
                json!({"type": "response.output_item.done", "output_index": 1, "item": item("completed", &whole)}),
                json!({"type": "response.completed", "response": {"output": [{"type": "reasoning"}, item("completed", &whole)]}}),
            ]
        }
    }
}

#[test]
fn a_call_waits_until_it_is_whole_and_is_judged_then() {
    use Stand::{Free, Open, Whole};
    for dialect in Dialect::ALL {
        for (name, pieces, broken) in [
            ("f", ["{\"n\"", ":1}"], None),
            ("f", ["{\"n\": \"\\u00e9\"", "}"], Some(Broken::CallUnfit)),
            ("f", ["{}", ""], Some(Broken::CallUnfit)),
            ("f", ["{\"n\":1", ""], Some(Broken::CallNotJson)),
            ("f", ["{\"n\":1}", "{\"n\":1}"], Some(Broken::CallNotJson)),
            ("none", ["{\"a\"", ":[]}"], None),
            ("none", ["", ""], None),
            ("none", ["{", ""], Some(Broken::CallNotJson)),
            ("unheard-of", ["7", ""], None),
            ("unheard-of", ["nothing", ""], Some(Broken::CallNotJson)),
        ] {
            let events = call(dialect, name, pieces);
            let mut guard = Guard::new(wanted(dialect, false, &tools(dialect)));
            let got = stands(&mut guard, &events, "tool_calls");
            let end = if dialect == Dialect::Responses { Whole } else { Free };
            let expected = match broken {
                None => [Free, Open, Open, Open, Whole, end],
                Some(broken) => [Free, Open, Open, Open, Stand::Broken(broken), Stand::Broken(broken)],
            };
            assert_eq!(got, expected, "{dialect:?} {name} {pieces:?}");

            let mut guard = Guard::new(wanted(dialect, true, &tools(dialect)));
            let got = stands(&mut guard, &events, "tool_calls");
            let expected = match broken {
                None => [Open, Open, Open, Open, Open, Whole],
                Some(broken) => [Open, Open, Open, Open, Stand::Broken(broken), Stand::Broken(broken)],
            };
            assert_eq!(got, expected, "{dialect:?} {name} {pieces:?}, as a whole");
        }
        // The end comes before the call's own.
        let mut events = call(dialect, "f", ["{\"n\"", ":1}"]);
        events.remove(4);
        if dialect == Dialect::Responses {
            events.pop();
            events.push(json!({"type": "response.incomplete", "response": {"output": []}}));
        }
        let mut guard = Guard::new(wanted(dialect, false, &tools(dialect)));
        assert_eq!(stands(&mut guard, &events, "length").last(), Some(&Stand::Broken(Broken::CallCut)), "{dialect:?}");
        assert_eq!(guard.finish(None), Err(Broken::CallCut));
    }
}

#[test]
fn oddities_of_servers() {
    let chat =
        |calls: Value, finish: Value| json!({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": finish}]});
    let called =
        |id: &str, arguments: Value| json!({"index": 0, "id": id, "function": {"name": "f", "arguments": arguments}});
    let dialect = Dialect::ChatCompletions;
    for (what, events, good) in [
        (
            "all calls have one index",
            vec![
                chat(json!([called("a", json!("{\"n\":1}"))]), Value::Null),
                chat(json!([called("b", json!("{\"n\":2}"))]), json!("stop")),
            ],
            true,
        ),
        ("arguments are an object", vec![chat(json!([called("a", json!({"n": 1}))]), json!("tool_calls"))], true),
        ("an object that does not fit", vec![chat(json!([called("a", json!({"m": 1}))]), json!("tool_calls"))], false),
        (
            "free text",
            vec![chat(
                json!([{"index": 0, "type": "custom", "custom": {"name": "free", "input": "no {json"}}]),
                json!("tool_calls"),
            )],
            true,
        ),
        (
            "the older form",
            vec![
                json!({"choices": [{"delta": {"function_call": {"name": "f", "arguments": "{}"}}, "finish_reason": "function_call"}]}),
            ],
            false,
        ),
    ] {
        let mut guard = Guard::new(wanted(dialect, false, &tools(dialect)));
        let got = stands(&mut guard, &events, "tool_calls");
        assert_eq!(got.last() == Some(&Stand::Whole), good, "{what}: {got:?}");
    }
    // Half an emoji in each of two events.
    let mut guard = Guard::new(wanted(dialect, false, &tools(dialect)));
    let halves = [r#""{\"n\":1,\"e\":\"\ud83d""#, r#""\ude00\"}""#];
    for (half, finish, stand) in [(halves[0], "null", Stand::Open), (halves[1], "\"stop\"", Stand::Whole)] {
        let data = format!(
            r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"function":{{"name":"f","arguments":{half}}}}}]}},"finish_reason":{finish}}}]}}"#
        );
        assert_eq!(guard.read(b"", data.as_bytes(), false, None), stand);
    }
    // Tools that the provider runs are no calls of the application's.
    let hosted = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use", "name": "web_search"}});
    let piece =
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{"}});
    let mut guard = Guard::new(wanted(Dialect::AnthropicMessages, false, &tools(Dialect::AnthropicMessages)));
    assert_eq!(stands(&mut guard, &[hosted, piece], "end_turn"), [Stand::Free, Stand::Free]);
}

#[test]
fn the_bounds_on_calls() {
    let dialect = Dialect::ChatCompletions;
    let piece = |index: usize, text: &str| json!({"choices": [{"delta": {"tool_calls": [{"index": index, "function": {"name": "x", "arguments": text}}]}}]});
    let half = "1".repeat(ARGUMENTS_BYTES_MAX / 2);
    let mut guard = Guard::new(wanted(dialect, false, &json!({})));
    for (text, stand) in [(&*half, Stand::Open), (&half, Stand::Open), ("1", Stand::Broken(Broken::CallTooLarge))] {
        assert_eq!(guard.read(b"", piece(0, text).to_string().as_bytes(), false, None), stand);
    }
    let mut guard = Guard::new(wanted(dialect, false, &json!({})));
    for index in 0..=CALLS_MAX {
        let stand = if index < CALLS_MAX { Stand::Open } else { Stand::Broken(Broken::CallTooLarge) };
        assert_eq!(guard.read(b"", piece(index, "1").to_string().as_bytes(), false, None), stand);
    }
}

/// A request that wants text by the schema, and a whole answer.
fn answer(dialect: Dialect, text: &str, finish: &str) -> (Value, Value) {
    match dialect {
        Dialect::ChatCompletions => (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema()}}}),
            json!({"choices": [{"message": {"content": text}, "finish_reason": finish}]}),
        ),
        Dialect::AnthropicMessages => (
            json!({"output_config": {"format": {"type": "json_schema", "schema": schema()}}}),
            json!({"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": text}], "stop_reason": finish}),
        ),
        Dialect::Responses => (
            json!({"text": {"format": {"type": "json_schema", "name": "x", "schema": schema()}}}),
            json!({"output": [{"type": "reasoning"}, {"type": "message", "content": [{"type": "output_text", "text": text}]}]}),
        ),
    }
}

#[test]
fn text_in_a_declared_form() {
    for dialect in Dialect::ALL {
        for (text, finish, expected) in [
            ("{\"n\": 1}", "stop", Ok(())),
            ("{\"n\": 1}\n", "length", Ok(())),
            ("{\"n\": 1", "length", Err(Broken::TextNotJson)),
            ("{\"n\": \"1\"}", "stop", Err(Broken::TextUnfit)),
            ("Sure! {\"n\": 1}", "stop", Err(Broken::TextNotJson)),
            ("", "stop", Err(Broken::NoText)),
            ("{\"n\": 1}", "content_filter", Err(Broken::Refused)),
            ("{\"n\": 1}", "abort", Err(Broken::Failed)),
        ] {
            let (request, whole) = answer(dialect, text, finish);
            let judge = |whole_answer: bool, request: &Value| {
                let wanted = wanted(dialect, whole_answer, request);
                Guard::judge_answer(wanted, whole.to_string().as_bytes(), Some(finish))
            };
            assert_eq!(judge(true, &request), expected, "{dialect:?} {text} {finish}");
            assert_eq!(judge(false, &request), Ok(()), "{dialect:?}: `tool_call_complete` looks at calls alone");
            let finish_counts = expected.err().filter(|broken| matches!(broken, Broken::Refused | Broken::Failed));
            assert_eq!(judge(true, &json!({})), finish_counts.map_or(Ok(()), Err), "{dialect:?}: nothing was declared");
        }
    }
    let object = json!({"response_format": {"type": "json_object"}});
    for (message, good) in [
        (json!({"content": "{}"}), true),
        (json!({"content": "[]"}), false),
        (json!({"content": "one moment", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}), true),
        (json!({"content": null, "refusal": "no"}), true),
        (json!({"content": [{"type": "text", "text": "{"}, {"type": "text", "text": "}"}]}), true),
    ] {
        let whole = json!({"choices": [{"message": message, "finish_reason": "stop"}]}).to_string();
        let judged = Guard::judge_answer(wanted(Dialect::ChatCompletions, true, &object), whole.as_bytes(), None);
        assert_eq!(judged.is_ok(), good, "{whole}");
    }
}

#[test]
fn schemas_that_cannot_be_judged_fit_everything() {
    let compiled = |schema: &Value| Schema::compile(&schema.to_string());
    for schema in [
        json!({"type": "nonsense"}),
        json!({"$ref": "https://example.test/schema.json"}),
        json!({"$ref": "file:///etc/hostname"}),
        json!({"properties": {"a": {"$ref": "#"}}}),
        json!({"$ref": "#nowhere"}),
        json!({"$ref": "#/$defs/missing"}),
        json!({"$dynamicRef": "#x"}),
        json!({"properties": {"a": {"$id": "https://example.test/other", "$ref": "#"}}}),
        json!({"pattern": "(?=x)y"}),
        json!({"pattern": "(((a{1,1000}){1,1000}){1,1000})"}),
        json!({"description": "x".repeat(SCHEMA_BYTES_MAX)}),
        json!({"$schema": "https://example.test/own-dialect"}),
    ] {
        assert!(compiled(&schema).is_none(), "{}", &schema.to_string()[..60.min(schema.to_string().len())]);
    }
    assert!(Schema::compile("{").is_none());
    let draft7 = compiled(
        &json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {"type": "string"}}, "items": {"$ref": "#/definitions/a"}}),
    );
    let draft7 = draft7.expect("a schema");
    assert!(draft7.fits(&json!(["x"])) && !draft7.fits(&json!([1])));
}

/// Recursion, doubling and patterns: each ends soon, on a stack like a worker's.
#[test]
fn harm_is_bounded() {
    let run = || {
        let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
        // Refers to itself, twice a level.
        let twice = json!({"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "required": ["b"]});
        // Each definition is the next one, twice.
        let mut doubling = json!({"$ref": "#/$defs/d0"});
        for at in 0..60 {
            let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
            doubling["$defs"][format!("d{at}")] = json!({"anyOf": [next, next]});
        }
        doubling["$defs"]["d60"] = json!({"type": "string"});
        // A circle without an end.
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}});
        let slow = json!({"pattern": "^(a|aa|a*)*$"});
        for (what, schema) in [("twice", twice), ("doubling", doubling), ("circle", circle), ("slow", slow)] {
            let Some(schema) = Schema::compile(&schema.to_string()) else { continue };
            for value in [deep(1), deep(20), deep(100), json!("a".repeat(50_000) + "b"), json!(vec![1; 10_000])] {
                schema.fits(&value);
            }
            assert!(!what.is_empty());
        }
        // The longest chain that is taken.
        let mut chain = String::from("{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
        for at in 0..160 {
            write!(chain, "\"d{at}\":{{\"items\":{{\"$ref\":\"#/$defs/d{}\"}}}},", at + 1).expect("written");
        }
        chain += "\"d160\":{\"$ref\":\"#\"}}}";
        if let Some(schema) = Schema::compile(&chain) {
            schema.fits(&(0..120).fold(json!(1), |inner, _| json!([inner])));
        }
    };
    std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(run).expect("a thread").join().expect("no panic");
}

//! Calls of all dialects, told once each, as soon as a client could act on them.

use super::*;

/// What each event tells.
fn told(dialect: Dialect, events: &[String]) -> Vec<Vec<(Option<String>, String, String)>> {
    let mut collector = Collector::new(dialect);
    let mut all = Vec::new();
    for event in events {
        if collector.wants(event.as_bytes()) {
            collector.read(b"", event.as_bytes());
        }
        all.push(collector.take().into_iter().map(|call| (call.id, call.name, words(&call.words))).collect());
    }
    all
}

fn words(words: &Words) -> String {
    match words {
        Words::Json(arguments) => arguments.canonical().as_str().to_owned(),
        Words::Raw(text) => format!("raw {text}"),
    }
}

fn one(id: &str, name: &str, arguments: &str) -> Vec<(Option<String>, String, String)> {
    vec![(Some(id.to_owned()), name.to_owned(), arguments.to_owned())]
}

fn chat(calls: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{calls}]}}}}]}}"#)
}

const FINISH: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;

fn piece(index: u32, piece: &str) -> String {
    let piece = serde_json::Value::from(piece);
    chat(&format!(r#"{{"index":{index},"function":{{"arguments":{piece}}}}}"#))
}

fn head(index: u32, id: &str, name: &str) -> String {
    chat(&format!(r#"{{"index":{index},"id":"{id}","function":{{"name":"{name}","arguments":""}}}}"#))
}

#[test]
fn chat_calls_are_told_when_their_object_closes() {
    let events = [
        head(0, "c0", "pay"),
        piece(0, "{\"to\": \"}\\\"{\", \"n\""),
        piece(0, ": [1, {}]"),
        piece(0, "}"),
        head(1, "c1", "look"),
        FINISH.to_owned(),
        FINISH.to_owned(),
    ];
    let told = told(Dialect::ChatCompletions, &events);
    assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 0, 1, 0, 1, 0]);
    assert_eq!(told[3], one("c0", "pay", r#"{"n":[1,{}],"to":"}\"{"}"#));
    assert_eq!(told[5], one("c1", "look", "{}"), "no arguments at all");
}

#[test]
fn chat_calls_of_one_number_are_told_apart_by_their_ids() {
    let whole =
        |id: &str| chat(&format!(r#"{{"index":0,"id":"{id}","function":{{"name":"pay","arguments":"{{\"a\":1}}"}}}}"#));
    let told = told(Dialect::ChatCompletions, &[whole("c0"), whole("c1"), FINISH.to_owned()]);
    assert_eq!(told, [one("c0", "pay", "{\"a\":1}"), one("c1", "pay", "{\"a\":1}"), vec![]]);
}

#[test]
fn what_has_no_canonical_form_is_raw() {
    let events = [
        head(0, "c0", "pay"),
        piece(0, "{\"a\":1,\"a\":2}"),
        head(1, "c1", "pay"),
        piece(1, "{\"a\""),
        FINISH.to_owned(),
    ];
    let told = told(Dialect::ChatCompletions, &events);
    assert_eq!(told[1], one("c0", "pay", "raw {\"a\":1,\"a\":2}"));
    assert_eq!(told[4], one("c1", "pay", "raw {\"a\""));
}

#[test]
fn the_object_closes_where_escapes_of_either_level_say_so() {
    for pieces in [
        &[r#"{\"a\":\"\\\"}\"}"#][..],
        &[r#"{\u0022a\u0022:\u0022}\u0022"#, "}"],
        &[r#"{\"a\":\"\\\\\"}"#],
        &[r#"{\"a\":\"\ud83d"#, r#"\ude00}\"}"#],
        &["[", "{},", "{}", "]"],
    ] {
        let mut nesting = Nesting::default();
        for (at, piece) in pieces.iter().enumerate() {
            assert!(!nesting.closed, "{pieces:?} {at}");
            nesting.follow(piece);
        }
        assert!(nesting.closed, "{pieces:?}");
    }
}

#[test]
fn anthropic_calls() {
    let start = |input: &str| {
        format!(
            r#"{{"type":"content_block_start","index":1,"content_block":{{"type":"tool_use","id":"t1","name":"pay","input":{input}}}}}"#
        )
    };
    let delta = |piece: &str| {
        let piece = serde_json::Value::from(piece);
        format!(
            r#"{{"type":"content_block_delta","index":1,"delta":{{"type":"input_json_delta","partial_json":{piece}}}}}"#
        )
    };
    let stop = r#"{"type":"content_block_stop","index":1}"#.to_owned();
    let events = [start("{}"), delta(""), delta("{\"a\""), delta(": 1}"), stop.clone()];
    let pieces = told(Dialect::AnthropicMessages, &events);
    assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 0, 1, 0]);
    assert_eq!(pieces[3], one("t1", "pay", "{\"a\":1}"));
    assert_eq!(told(Dialect::AnthropicMessages, &[start("{}"), stop.clone()])[1], one("t1", "pay", "{}"));
    assert_eq!(told(Dialect::AnthropicMessages, &[start("{\"a\":1}"), stop])[0], one("t1", "pay", "{\"a\":1}"));
}

fn item(kind: &str, call: &str) -> String {
    format!(r#"{{"type":"response.output_item.{kind}","output_index":0,"item":{call}}}"#)
}

const CALL: &str = r#"{"type":"function_call","call_id":"c1","name":"pay","arguments":"{\"a\":1}"}"#;

#[test]
fn responses_calls_are_told_once_though_the_dialect_tells_them_thrice() {
    let begun = CALL.replace(r#""{\"a\":1}""#, "\"\"");
    let delta = r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{\"a\":1}"}"#;
    let done = r#"{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{\"a\":1}"}"#;
    let completed = format!(r#"{{"type":"response.completed","response":{{"output":[{CALL}]}}}}"#);
    let expected = one("c1", "pay", "{\"a\":1}");
    for (events, at) in [
        (vec![item("added", &begun), delta.to_owned(), done.to_owned(), item("done", CALL), completed.clone()], 1),
        (vec![item("added", &begun), done.to_owned(), item("done", CALL), completed.clone()], 1),
        (vec![item("done", CALL), completed.clone()], 0),
        (vec![completed.clone()], 0),
    ] {
        let told = told(Dialect::Responses, &events);
        for (index, calls) in told.iter().enumerate() {
            assert_eq!(*calls, if index == at { expected.clone() } else { vec![] }, "{events:?} {index}");
        }
    }
}

#[test]
fn custom_tools_and_calls_that_were_cut() {
    let custom = r#"{"type":"custom_tool_call","call_id":"c1","name":"sh","input":"{}"}"#;
    assert_eq!(told(Dialect::Responses, &[item("done", custom)])[0], one("c1", "sh", "raw {}"));
    let cut = CALL.replace(r#""name""#, r#""status":"incomplete","name""#).replace("\\\"a\\\":1}", "");
    assert_eq!(told(Dialect::Responses, &[item("added", &cut)])[0], vec![]);
}

#[test]
fn whole_answers() {
    for (dialect, body, expected) in [
        (
            Dialect::ChatCompletions,
            r#"{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"f","arguments":"{}"}}]}}]}"#,
            [one("a", "f", "{}"), one("b", "f", "{}")].concat(),
        ),
        (
            Dialect::AnthropicMessages,
            r#"{"type":"message","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"a","name":"f","input":{}}]}"#,
            one("a", "f", "{}"),
        ),
        (
            Dialect::Responses,
            r#"{"output":[{"type":"reasoning"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}]}"#,
            one("a", "f", "{}"),
        ),
    ] {
        let mut collector = Collector::new(dialect);
        collector.read_answer(body.as_bytes());
        let told: Vec<_> = collector.take().into_iter().map(|call| (call.id, call.name, words(&call.words))).collect();
        assert_eq!(told, expected, "{dialect:?}");
        assert!(!collector.lost());
    }
}

#[test]
fn the_bounds_hold_and_are_told() {
    let mut collector = Collector::new(Dialect::ChatCompletions);
    let large = "x".repeat(ARGUMENTS_BYTES_MAX / 2);
    for event in [head(0, "c0", "pay"), piece(0, "{\"a\":\""), piece(0, &large), piece(0, &large), piece(0, "\"}")] {
        collector.read(b"", event.as_bytes());
    }
    collector.read(b"", FINISH.as_bytes());
    assert_eq!((collector.take(), collector.lost()), (vec![], true));

    let mut collector = Collector::new(Dialect::ChatCompletions);
    for index in 0..=OPEN_MAX {
        collector.read(b"", head(u32::try_from(index).unwrap(), "c", "pay").as_bytes());
    }
    collector.read(b"", FINISH.as_bytes());
    assert_eq!((collector.take().len(), collector.lost()), (OPEN_MAX, true));

    let mut collector = Collector::new(Dialect::ChatCompletions);
    for index in 0..=CALLS_MAX {
        collector.read(b"", head(0, &format!("c{index}"), "pay").as_bytes());
        collector.read(b"", piece(0, "{}").as_bytes());
    }
    assert_eq!((collector.take().len(), collector.lost()), (CALLS_MAX, true));
}

#[test]
fn a_stream_without_tools_is_not_read() {
    let mut collector = Collector::new(Dialect::ChatCompletions);
    assert!(!collector.wants(br#"data: {"choices":[{"index":0,"delta":{"content":"tools"}}]}"#));
    assert!(collector.wants(head(0, "c", "pay").as_bytes()));
    assert!(collector.wants(b"anything after it"));
}

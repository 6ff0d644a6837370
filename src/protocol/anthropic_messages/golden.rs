//! Recorded streams in, readings out: one row a recording, and what must hold for any bytes at all (proptest).
//!
//! The splitter here is naive on purpose (whole body, LF or CRLF): it tests the reader and not `wire`.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::stream::Reader;
use super::stream::tests::EXAMPLES;
use crate::protocol::signal::VisibleKind::{Citation, HostedResult, Reasoning, Text, ToolCall};
use crate::protocol::signal::{Ending, Show, StreamReader};

const LOOKS_UP: Show = Show::Effect { may_act: false };
const MAY_ACT: Show = Show::Effect { may_act: true };

/// What a recording must read as.
struct Golden {
    file: &'static str,
    /// Events with data.
    events: usize,
    /// The first event that crosses (from 0) and what it shows.
    crossing: Option<(usize, Show)>,
    /// What else shows later: `(event, show)`, the first of each kind.
    later: &'static [(usize, Show)],
    ending: Ending,
    stop_reason: Option<&'static str>,
    /// The fault's type.
    fault: Option<&'static str>,
    /// Input, cached, output.
    usage: [Option<u64>; 3],
    model: Option<&'static str>,
}

const GOLDEN: &[Golden] = &[
    Golden {
        file: "anthropic-citations-01",
        events: 8,
        crossing: Some((3, Show::Visible(Citation))),
        later: &[(4, Show::Visible(Text))],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(672), Some(0), Some(39)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-code-execution-01",
        events: 35,
        crossing: Some((3, Show::Visible(Reasoning))),
        later: &[
            (8, Show::Visible(Text)),
            (10, MAY_ACT),
            (12, Show::Visible(ToolCall)),
            (21, Show::Visible(HostedResult)),
        ],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(4714), Some(0), Some(304)],
        model: Some("claude-sonnet-4-6"),
    },
    Golden {
        file: "anthropic-context-management-01",
        events: 36,
        crossing: Some((3, Show::Visible(Text))),
        later: &[],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(859), Some(0), Some(122)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-empty-text-01",
        events: 8,
        crossing: None,
        later: &[],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(18), Some(0), Some(4)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-error-first-01",
        events: 1,
        crossing: None,
        later: &[],
        ending: Ending::Open,
        stop_reason: None,
        fault: Some("overloaded_error"),
        usage: [None, None, None],
        model: None,
    },
    Golden {
        file: "anthropic-legacy-complete-01",
        events: 4,
        crossing: Some((0, Show::Visible(Text))),
        later: &[],
        ending: Ending::Finished,
        stop_reason: Some("max_tokens"),
        fault: None,
        usage: [None, None, None],
        model: Some("claude-2.1"),
    },
    Golden {
        file: "anthropic-max-tokens-01",
        events: 7,
        crossing: Some((3, Show::Visible(Text))),
        later: &[],
        ending: Ending::Terminal,
        stop_reason: Some("max_tokens"),
        fault: None,
        usage: [Some(12), Some(0), Some(3)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-mcp-01",
        events: 63,
        crossing: Some((2, Show::Visible(Reasoning))),
        later: &[
            (10, MAY_ACT),
            (12, Show::Visible(ToolCall)),
            (29, Show::Visible(HostedResult)),
            (32, Show::Visible(Text)),
        ],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(3042), Some(0), Some(354)],
        model: Some("claude-sonnet-4-5-20250929"),
    },
    Golden {
        file: "anthropic-no-blocks-01",
        events: 3,
        crossing: None,
        later: &[],
        ending: Ending::Terminal,
        stop_reason: Some("stop_sequence"),
        fault: None,
        usage: [Some(18), Some(0), Some(1)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-redacted-thinking-01",
        events: 27,
        crossing: Some((1, Show::Visible(Reasoning))),
        later: &[(9, Show::Visible(Text))],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(92), Some(0), Some(189)],
        model: Some("claude-sonnet-4-5-20250929"),
    },
    Golden {
        file: "anthropic-refusal-01",
        events: 14,
        crossing: Some((3, Show::Visible(Reasoning))),
        later: &[(10, Show::Visible(Text))],
        ending: Ending::Terminal,
        stop_reason: Some("refusal"),
        fault: None,
        usage: [Some(28), Some(0), Some(106)],
        model: Some("claude-fable-5"),
    },
    Golden {
        file: "anthropic-stop-sequence-01",
        events: 10,
        crossing: Some((3, Show::Visible(Text))),
        later: &[],
        ending: Ending::Terminal,
        stop_reason: Some("stop_sequence"),
        fault: None,
        usage: [Some(16), Some(0), Some(28)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-text-01",
        events: 11,
        crossing: Some((3, Show::Visible(Text))),
        later: &[],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(230), Some(0), Some(94)],
        model: Some("claude-sonnet-4-5-20250929"),
    },
    Golden {
        file: "anthropic-text-tool-use-01",
        events: 21,
        crossing: Some((3, Show::Visible(Text))),
        later: &[(9, Show::Visible(ToolCall))],
        ending: Ending::Terminal,
        stop_reason: Some("tool_use"),
        fault: None,
        usage: [Some(3069), Some(2750), Some(97)],
        model: Some("claude-sonnet-4-6"),
    },
    Golden {
        file: "anthropic-text-utf8-01",
        events: 10,
        crossing: Some((3, Show::Visible(Text))),
        later: &[],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(678), Some(0), Some(82)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-thinking-01",
        events: 17,
        crossing: Some((3, Show::Visible(Reasoning))),
        later: &[(12, Show::Visible(Text))],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(46), Some(0), Some(133)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-thinking-cut-01",
        events: 24,
        crossing: Some((3, Show::Visible(Reasoning))),
        later: &[(8, Show::Visible(Text))],
        ending: Ending::Terminal,
        stop_reason: Some("max_tokens"),
        fault: None,
        usage: [Some(61), Some(0), Some(1025)],
        model: Some("claude-sonnet-4-6"),
    },
    Golden {
        file: "anthropic-thinking-tool-01",
        events: 13,
        crossing: Some((3, Show::Visible(Reasoning))),
        later: &[(8, Show::Visible(ToolCall))],
        ending: Ending::Terminal,
        stop_reason: Some("tool_use"),
        fault: None,
        usage: [Some(598), Some(0), Some(92)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-tool-cut-01",
        events: 15,
        crossing: Some((3, Show::Visible(Text))),
        later: &[(9, Show::Visible(ToolCall))],
        ending: Ending::Finished,
        stop_reason: Some("max_tokens"),
        fault: None,
        usage: [Some(450), Some(0), Some(124)],
        model: Some("claude-3-7-sonnet-20250219"),
    },
    Golden {
        file: "anthropic-tool-search-01",
        events: 36,
        crossing: Some((3, Show::Visible(Text))),
        later: &[(10, LOOKS_UP), (12, Show::Visible(ToolCall)), (17, Show::Visible(HostedResult))],
        ending: Ending::Terminal,
        stop_reason: Some("tool_use"),
        fault: None,
        usage: [Some(1595), Some(0), Some(143)],
        model: Some("claude-sonnet-4-6"),
    },
    Golden {
        file: "anthropic-tool-use-01",
        events: 7,
        crossing: Some((1, Show::Visible(ToolCall))),
        later: &[],
        ending: Ending::Terminal,
        stop_reason: Some("tool_use"),
        fault: None,
        usage: [Some(543), Some(0), Some(40)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-tool-use-no-ping-01",
        events: 103,
        crossing: Some((1, Show::Visible(ToolCall))),
        later: &[],
        ending: Ending::Terminal,
        stop_reason: Some("tool_use"),
        fault: None,
        usage: [Some(416), Some(0), Some(141)],
        model: Some("claude-sonnet-4-20250514"),
    },
    Golden {
        file: "anthropic-web-fetch-01",
        events: 42,
        crossing: Some((2, Show::Visible(Text))),
        later: &[(9, LOOKS_UP), (11, Show::Visible(ToolCall)), (20, Show::Visible(HostedResult))],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(3727), Some(0), Some(115)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-web-search-01",
        events: 30,
        crossing: Some((1, LOOKS_UP)),
        later: &[
            (4, Show::Visible(ToolCall)),
            (12, Show::Visible(HostedResult)),
            (15, Show::Visible(Text)),
            (19, Show::Visible(Citation)),
        ],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(14163), Some(0), Some(104)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "anthropic-web-search-turns-01",
        events: 34,
        crossing: Some((1, LOOKS_UP)),
        later: &[
            (4, Show::Visible(ToolCall)),
            (12, Show::Visible(HostedResult)),
            (15, Show::Visible(Citation)),
            (16, Show::Visible(Text)),
        ],
        ending: Ending::Terminal,
        stop_reason: Some("end_turn"),
        fault: None,
        usage: [Some(9447), Some(0), Some(114)],
        model: Some("claude-haiku-4-5-20251001"),
    },
    Golden {
        file: "gateway-messages-done-01",
        events: 10,
        crossing: Some((2, Show::Visible(Text))),
        later: &[],
        ending: Ending::Terminal,
        stop_reason: Some("max_tokens"),
        fault: None,
        usage: [Some(32), Some(0), Some(16)],
        model: Some("anthropic/claude-haiku-4.5"),
    },
    Golden {
        file: "vertex-text-tool-01",
        events: 20,
        crossing: Some((3, Show::Visible(Text))),
        later: &[(11, Show::Visible(ToolCall))],
        ending: Ending::Terminal,
        stop_reason: Some("tool_use"),
        fault: None,
        usage: [Some(394), Some(0), Some(76)],
        model: Some("claude-3-7-sonnet-20250219"),
    },
];

fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/recordings"));
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(std::env::var_os("CI").is_none(), "no recordings beside the checkout");
    // Past the test harness, which shows nothing of a test that passes.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: no recordings beside the checkout\n");
    None
}

/// Name and data of each whole event; an unfinished one at the end is dropped (WHATWG HTML 9.2.6).
fn split(body: &str) -> Vec<(String, String)> {
    let body = body.replace("\r\n", "\n");
    let Some((whole, _)) = body.rsplit_once("\n\n") else { return Vec::new() };
    let field = |block: &str, name: &str| -> Vec<String> {
        let values = block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        values.map(|value| value.strip_prefix(' ').unwrap_or(value).to_owned()).collect()
    };
    let events = whole.split("\n\n").map(|block| (field(block, "event"), field(block, "data")));
    events
        .filter(|(_, data)| !data.is_empty())
        .map(|(name, data)| (name.last().cloned().unwrap_or_default(), data.join("\n")))
        .collect()
}

fn recordings(folder: &std::path::Path) -> Vec<(String, Vec<(String, String)>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.join("anthropic-messages")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "http") {
            let text = fs::read_to_string(&path).unwrap();
            let (_, body) = text.split_once("\n\n").unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            found.push((name, split(body)));
        }
    }
    found.sort();
    found
}

#[test]
fn recorded_streams() {
    let Some(folder) = folder() else { return };
    let recordings = recordings(&folder);
    let files: Vec<_> = recordings.iter().map(|(file, _)| file.as_str()).collect();
    assert_eq!(files, GOLDEN.iter().map(|row| row.file).collect::<Vec<_>>());
    for ((file, events), row) in recordings.iter().zip(GOLDEN) {
        let mut reader = Reader::new();
        let mut shown: Vec<(usize, Show)> = Vec::new();
        let mut fault = None;
        for (at, (name, data)) in events.iter().enumerate() {
            let reading = reader.read(name.as_bytes(), data.as_bytes());
            if let Some(told) = reading.fault {
                fault = told.kind;
            } else if !matches!(reading.show, Show::Preamble | Show::Ping)
                && shown.iter().all(|(_, show)| *show != reading.show)
            {
                shown.push((at, reading.show));
            }
        }
        assert_eq!(events.len(), row.events, "{file}");
        assert_eq!(shown.first().copied(), row.crossing, "{file}");
        assert_eq!(shown.get(1..).unwrap_or_default(), row.later, "{file}");
        assert_eq!(reader.ending(), row.ending, "{file}");
        assert_eq!(reader.finish_reason(), row.stop_reason, "{file}");
        assert_eq!(fault.as_deref(), row.fault, "{file}");
        let usage = reader.usage();
        assert_eq!([usage.input_tokens, usage.cached_input_tokens, usage.output_tokens], row.usage, "{file}");
        assert_eq!(reader.served_model(), row.model, "{file}");
    }
}

/// The event line adds nothing where the JSON says its type: proxies that drop it change no reading.
#[test]
fn recorded_streams_without_event_lines() {
    let Some(folder) = folder() else { return };
    for (file, events) in recordings(&folder) {
        let (mut with, mut without) = (Reader::new(), Reader::new());
        for (name, data) in &events {
            assert_eq!(
                with.read(name.as_bytes(), data.as_bytes()),
                without.read(b"", data.as_bytes()),
                "{file}: {data}"
            );
        }
        assert_eq!((with.ending(), with.usage()), (without.ending(), without.usage()), "{file}");
    }
}

#[test]
fn recorded_errors() {
    let Some(folder) = folder() else { return };
    for (file, kind, message_starts) in [
        ("anthropic-400-prompt-too-long-01", Some("invalid_request_error"), "prompt is too long: 3333404"),
        ("anthropic-400-wrong-api-01", Some("invalid_request_error"), "\"claude-haiku-4-5\" is not supported"),
        ("anthropic-401-invalid-key-01", Some("authentication_error"), "invalid x-api-key"),
        ("anthropic-404-model-01", Some("not_found_error"), "model: this-model"),
        ("anthropic-429-input-tokens-01", Some("rate_limit_error"), "This request would exceed"),
        ("anthropic-429-no-retry-01", Some("rate_limit_error"), "This request would exceed"),
        ("anthropic-429-rpm-01", Some("rate_limit_error"), "Number of requests"),
        ("anthropic-500-api-error-01", Some("api_error"), "Internal server error"),
        ("anthropic-503-envoy-01", None, ""),
        ("anthropic-529-overloaded-01", Some("overloaded_error"), "Overloaded"),
    ] {
        let text = fs::read_to_string(folder.join("errors").join(file).with_extension("http")).unwrap();
        let (_, body) = text.split_once("\n\n").unwrap();
        let fault = super::fault::of_body(body.as_bytes());
        assert_eq!(fault.as_ref().and_then(|fault| fault.kind.as_deref()), kind, "{file}");
        let message = fault.and_then(|fault| fault.message).unwrap_or_default();
        assert!(message.starts_with(message_starts), "{file}: {message}");
    }
}

/// Each recorded request is read, and names what the answer's recording is about.
#[test]
fn recorded_requests() {
    let Some(folder) = folder() else { return };
    let folder = folder.join("anthropic-messages");
    for (file, hosted, capabilities) in [
        ("anthropic-citations-01", None, &["citations", "file", "text"][..]),
        ("anthropic-code-execution-01", Some(("code_execution", true)), &["code_execution", "reasoning", "text"]),
        ("anthropic-mcp-01", Some(("mcp", true)), &["mcp", "reasoning", "text"]),
        ("anthropic-thinking-tool-01", None, &["reasoning", "text", "tools"]),
        (
            "anthropic-tool-search-01",
            Some(("tool_search_tool_regex", false)),
            &["text", "tool_search_tool_regex", "tools"],
        ),
        ("anthropic-web-fetch-01", Some(("web_fetch", false)), &["text", "web_fetch"]),
        ("anthropic-web-search-01", Some(("web_search", false)), &["text", "web_search"]),
        ("vertex-text-tool-01", None, &["parallel_tools", "text", "tools"]),
    ] {
        let body = fs::read(folder.join(file).with_extension("request.json")).unwrap();
        let facts = super::request::read(&body.into()).unwrap();
        let first = facts.hosted_tools.first().map(|tool| (tool.name.as_str(), tool.may_act));
        assert_eq!(first, hosted, "{file}");
        assert_eq!(facts.capabilities, capabilities, "{file}");
        assert!(facts.stream && facts.text_bytes > 0, "{file}");
    }
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "json") {
            let facts = super::request::read(&fs::read(&path).unwrap().into());
            assert!(facts.is_ok(), "{}: {facts:?}", path.display());
        }
    }
}

fn rank(ending: Ending) -> u8 {
    match ending {
        Ending::Open => 0,
        Ending::Finished => 1,
        Ending::Terminal => 2,
    }
}

/// A body that has something of everything the request reader looks at.
const REQUEST: &str = r#"{"stream":true,"model":"claude-x","max_tokens":9,"thinking":{"type":"adaptive"},"container":{"id":"c"},
    "system":[{"type":"text","text":"s"}],"mcp_servers":[{"name":"s"}],"tools":[{"type":"web_search_20250305"},{"name":"f"}],
    "messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","signature":"E"},
    {"type":"tool_result","content":[{"type":"document","source":{"type":"content","content":[{"type":"image","source":
    {"file_id":"f"}}]}}]},{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"x"}}}]}]}"#;

/// A few bytes replaced, taken out or put in.
fn edited(text: impl Strategy<Value = &'static str>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::option::of(prop_oneof![any::<u8>(), Just(b'"'), Just(b'}')]);
    let edit = (any::<prop::sample::Index>(), byte, any::<bool>());
    (text, prop::collection::vec(edit, 0..4)).prop_map(|(text, edits)| {
        let mut data = text.as_bytes().to_vec();
        for (at, byte, grows) in edits {
            let at = at.index(data.len().max(1));
            match byte {
                Some(byte) if grows => data.insert(at, byte),
                Some(byte) => data.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
                None if grows => data.truncate(at),
                None => drop(data.drain(at..(at + 1).min(data.len()))),
            }
        }
        data
    })
}

/// Any example under any name; half of the time one of those that end something, so that ends meet.
fn event() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let ends: Vec<&'static str> = EXAMPLES.iter().map(|(_, data)| *data).filter(|data| data.contains("stop")).collect();
    let names = prop::sample::select(EXAMPLES).prop_map(|(name, _)| name);
    let all = prop::sample::select(EXAMPLES).prop_map(|(_, data)| data);
    (names, edited(prop_oneof![all, prop::sample::select(ends)]))
}

proptest! {
    /// No bytes make the reader panic or take an end back, and what an event shows does not hang on those before it.
    #[test]
    fn any_events(events in prop::collection::vec(event(), 0..12)) {
        let mut reader = Reader::new();
        let mut last = 0;
        for (name, data) in events {
            let reading = reader.read(name.as_bytes(), &data);
            prop_assert_eq!(Reader::new().read(name.as_bytes(), &data), reading);
            let now = rank(reader.ending());
            prop_assert!(now >= last);
            last = now;
            prop_assert!(reader.finish_reason().is_none_or(|reason| reason.len() <= super::usage::NAME_BYTES_MAX));
        }
    }

    /// No bytes make the readers of whole bodies panic, and what is an answer is no error.
    #[test]
    fn any_answers((_, data) in event()) {
        let answer = super::usage::of_answer(&data);
        prop_assert!(!(answer.valid && super::fault::of_body(&data).is_some()));
    }

    /// No bytes make the request's reader panic; what it takes has its model where it says.
    #[test]
    fn any_requests(data in edited(Just(REQUEST))) {
        let body = bytes::Bytes::from(data);
        if let Ok(facts) = super::request::read(&body) {
            let renamed = crate::protocol::request::with_model(&body, &facts, "claude-y");
            let again = super::request::read(&renamed).unwrap();
            prop_assert_eq!(again.model.map(|(name, _)| name), Some("claude-y".to_owned()));
            prop_assert_eq!((again.pins, again.capabilities), (facts.pins, facts.capabilities));
        }
    }
}

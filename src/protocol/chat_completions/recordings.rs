//! The readers on recordings: streams, whole answers, error bodies and requests.
//!
//! The table of streams was made by a script of another language with rules of its own (what is in the deltas, which choices
//! finished), not by the reader; rows that differed were looked up in the recording.
//! The recordings stand beside the checkout, not in it; without them the test says so and passes (in CI it fails). Deliberately
//! naive: the splitter here knows only what the recordings need, so that it can't share a mistake with `wire`.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::stream::Reader;
use super::{fault, request, usage};
use crate::protocol::signal::Ending::{self, Finished, Open, Terminal};
use crate::protocol::signal::VisibleKind::{self, Citation, Reasoning, Refusal, Text, ToolCall};
use crate::protocol::signal::{Show, StreamReader as _};

/// Where the recordings are, if they are.
fn folder() -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/recordings"));
    if path.is_dir() {
        return Some(path.to_owned());
    }
    assert!(std::env::var_os("CI").is_none(), "CI runs with the recordings beside the checkout");
    // Past the test harness, which shows nothing of a test that passes.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: no recordings beside the checkout\n");
    None
}

/// (event name, data) of every event that has data, and the body.
fn events(path: &Path) -> (Vec<(String, String)>, String) {
    let file = String::from_utf8(fs::read(path).unwrap()).unwrap();
    let (_, body) = file.split_once("\n\n").unwrap();
    let mut events = Vec::new();
    let (mut name, mut data) = (String::new(), Vec::new());
    for line in body.replace("\r\n", "\n").split('\n') {
        if let Some(value) = line.strip_prefix("data:") {
            data.push(value.strip_prefix(' ').unwrap_or(value).to_owned());
        } else if let Some(value) = line.strip_prefix("event:") {
            name = value.trim().to_owned();
        } else if line.is_empty() {
            if !data.is_empty() {
                events.push((std::mem::take(&mut name), data.join("\n")));
            }
            data.clear();
            name.clear();
        }
    }
    (events, body.to_owned())
}

/// File, the request's `n`, events with data, the first one that crosses and what it shows, the one that is a fault, ending, last
/// finish reason, input and output tokens.
type Golden = (
    &'static str,
    u32,
    usize,
    Option<(usize, VisibleKind)>,
    Option<usize>,
    Ending,
    Option<&'static str>,
    Option<u64>,
    Option<u64>,
);

#[rustfmt::skip]
const STREAMS: &[Golden] = &[
    ("azure-content-filter-results-01", 1, 42, Some((2, Text)), None, Terminal, Some("stop"), None, None),
    ("azure-foundry-grok-tool-01", 1, 4, Some((0, ToolCall)), None, Terminal, Some("tool_calls"), Some(205), Some(18)),
    ("azure-gpt35-01", 1, 32, Some((2, Text)), None, Terminal, Some("stop"), None, None),
    ("azure-prompt-filter-01", 1, 31, Some((2, Text)), None, Terminal, Some("stop"), None, None),
    ("azure-tool-call-01", 1, 11, Some((1, ToolCall)), None, Terminal, Some("tool_calls"), Some(66), Some(17)),
    ("cloudflare-workers-ai-01", 1, 11, Some((0, Text)), None, Terminal, Some("stop"), Some(199), Some(26)),
    ("copilot-parallel-tools-01", 1, 8, Some((2, ToolCall)), None, Terminal, Some("tool_calls"), Some(157), Some(46)),
    ("crusoe-text-01", 1, 17, Some((1, Text)), None, Terminal, Some("stop"), Some(46), Some(14)),
    ("databricks-claude-01", 1, 6, Some((0, Text)), None, Terminal, Some("stop"), Some(193), Some(14)),
    ("deepseek-cumulative-usage-01", 1, 10, Some((1, Text)), None, Terminal, Some("stop"), Some(12), Some(8)),
    ("deepseek-logprobs-reasoning-01", 1, 4, Some((1, Reasoning)), None, Terminal, Some("length"), Some(20), Some(1)),
    ("deepseek-reasoning-01", 1, 49, Some((1, Reasoning)), None, Terminal, Some("stop"), Some(17), Some(47)),
    ("deepseek-reasoning-huge-01", 1, 4835, Some((1, Reasoning)), None, Terminal, Some("stop"), Some(48), Some(4833)),
    ("deepseek-tool-call-01", 1, 28, Some((1, ToolCall)), None, Terminal, Some("tool_calls"), Some(348), Some(65)),
    ("deepseek-utf8-01", 1, 13, Some((1, Text)), None, Terminal, Some("stop"), Some(5), Some(11)),
    ("doubleword-length-01", 1, 3, Some((0, Reasoning)), None, Terminal, Some("length"), Some(24), Some(1)),
    ("featherless-comments-01", 1, 6, Some((3, Text)), None, Terminal, Some("stop"), None, None),
    ("fireworks-text-01", 1, 174, Some((1, Text)), None, Terminal, Some("stop"), Some(67), Some(1110)),
    ("github-models-json-01", 1, 7, Some((2, Text)), None, Terminal, Some("stop"), Some(165), Some(3)),
    ("gpustack-no-done-01", 1, 171, Some((1, Reasoning)), None, Finished, Some("stop"), Some(15), Some(171)),
    ("groq-error-event-01", 1, 95, Some((1, Reasoning)), Some(94), Open, None, None, None),
    ("groq-gptoss-reasoning-tool-01", 1, 26, Some((1, Reasoning)), None, Terminal, Some("tool_calls"), Some(304), Some(49)),
    ("groq-text-01", 1, 75, Some((1, Text)), None, Terminal, Some("stop"), Some(18), Some(73)),
    ("groq-tool-call-01", 1, 16, Some((1, Text)), None, Terminal, Some("tool_calls"), Some(93), Some(32)),
    ("hf-router-kimi-01", 1, 32, Some((1, Text)), None, Terminal, Some("stop"), Some(293), Some(29)),
    ("hf-router-no-done-01", 1, 4, Some((1, Text)), None, Finished, Some("stop"), Some(200), Some(9)),
    ("hyperbolic-text-01", 1, 4, Some((1, Text)), None, Terminal, Some("stop"), Some(48), Some(3)),
    ("litellm-proxy-01", 1, 25, Some((0, Text)), None, Terminal, Some("stop"), Some(13), Some(22)),
    ("llamacpp-gptoss-tool-01", 1, 27, Some((1, Reasoning)), None, Terminal, Some("tool_calls"), Some(139), Some(41)),
    ("llamacpp-n2-01", 2, 13, Some((2, Text)), None, Terminal, Some("stop"), Some(28), Some(8)),
    ("llamacpp-unicode-01", 1, 19, Some((1, Text)), None, Terminal, Some("stop"), Some(60), Some(20)),
    ("mistral-n2-01", 2, 9, Some((2, Text)), None, Terminal, Some("stop"), Some(20), Some(8)),
    ("mistral-text-01", 1, 12, Some((1, Text)), None, Terminal, Some("stop"), Some(14), Some(9)),
    ("mistral-tool-call-01", 1, 3, Some((1, ToolCall)), None, Terminal, Some("tool_calls"), Some(96), Some(23)),
    ("mistral-utf8-01", 1, 15, Some((1, Text)), None, Terminal, Some("stop"), Some(222), Some(43)),
    ("mistralrs-reasoning-01", 1, 209, Some((1, Reasoning)), None, Terminal, Some("stop"), Some(41), Some(208)),
    ("nebius-text-01", 1, 5, Some((1, Text)), None, Terminal, Some("stop"), None, None),
    ("novita-text-01", 1, 8, Some((5, Text)), None, Terminal, Some("stop"), None, None),
    ("nscale-201-no-done-01", 1, 8, Some((1, Text)), None, Finished, Some("stop"), Some(42), Some(6)),
    ("ollama-cloud-tool-01", 1, 19, Some((0, Reasoning)), None, Terminal, Some("tool_calls"), Some(169), Some(55)),
    ("ollama-local-reasoning-01", 1, 167, Some((0, Reasoning)), None, Terminal, Some("stop"), None, None),
    ("ollama-native-ndjson-01", 1, 0, None, None, Open, None, None, None),
    ("openai-emoji-text-01", 1, 13, Some((1, Text)), None, Terminal, Some("stop"), Some(7), Some(18)),
    ("openai-error-midstream-model-01", 1, 325, Some((1, Text)), Some(323), Open, None, None, None),
    ("openai-legacy-completions-01", 1, 12, Some((0, Text)), None, Terminal, Some("stop"), Some(5), Some(9)),
    ("openai-logprobs-01", 1, 11, Some((1, Text)), None, Terminal, Some("stop"), Some(7), Some(10)),
    ("openai-long-output-01", 1, 733, Some((1, Text)), None, Terminal, Some("stop"), None, None),
    ("openai-n2-nousage-01", 2, 40, Some((1, Text)), None, Terminal, Some("stop"), None, None),
    ("openai-n2-usage-01", 2, 47, Some((1, Text)), None, Terminal, Some("stop"), Some(13), Some(43)),
    ("openai-parallel-tools-01", 1, 16, Some((1, ToolCall)), None, Terminal, Some("tool_calls"), Some(75), Some(53)),
    ("openai-parallel-tools-nousage-01", 1, 16, Some((1, ToolCall)), None, Terminal, Some("tool_calls"), None, None),
    ("openai-reasoning-no-text-01", 1, 4, None, None, Terminal, Some("length"), Some(14), Some(50)),
    ("openai-refusal-01", 1, 16, Some((1, Refusal)), None, Terminal, Some("stop"), Some(64), Some(13)),
    ("openai-structured-json-schema-01", 1, 9, Some((1, Text)), None, Terminal, Some("stop"), Some(62), Some(5)),
    ("openai-text-2023-01", 1, 12, Some((1, Text)), None, Terminal, Some("stop"), None, None),
    ("openai-text-usage-01", 1, 18, Some((1, Text)), None, Terminal, Some("stop"), Some(16), Some(14)),
    ("openai-tool-call-01", 1, 16, Some((0, ToolCall)), None, Terminal, Some("tool_calls"), Some(218), Some(22)),
    ("openai-tool-call-gpt4-turbo-01", 1, 11, Some((0, ToolCall)), None, Terminal, Some("tool_calls"), None, None),
    ("openai-tool-call-text-first-01", 1, 37, Some((0, ToolCall)), None, Terminal, Some("tool_calls"), Some(166), Some(43)),
    ("openai-tool-forced-stop-01", 1, 9, Some((0, ToolCall)), None, Terminal, Some("stop"), Some(109), Some(5)),
    ("openai-utf8-long-01", 1, 53, Some((1, Text)), None, Terminal, Some("stop"), None, None),
    ("openai-web-search-01", 1, 26, Some((1, Text)), None, Terminal, Some("stop"), None, None),
    ("openrouter-cache-usage-01", 1, 4, Some((0, Text)), None, Terminal, Some("stop"), Some(254), Some(5)),
    ("openrouter-comment-text-01", 1, 4, Some((0, Text)), None, Terminal, Some("stop"), Some(15), Some(9)),
    ("openrouter-comment-tool-01", 1, 10, Some((0, ToolCall)), None, Terminal, Some("tool_calls"), Some(633), Some(75)),
    ("openrouter-comments-longer-01", 1, 49, Some((0, Text)), None, Terminal, Some("stop"), Some(633), Some(143)),
    ("openrouter-end-turn-2024-01", 1, 8, Some((2, Text)), None, Terminal, Some("end_turn"), Some(82), Some(7)),
    ("openrouter-error-chunk-01", 1, 5, Some((0, Reasoning)), Some(3), Finished, Some("length"), Some(43), Some(10)),
    ("openrouter-gemini-parallel-tools-01", 1, 8, Some((0, Reasoning)), None, Terminal, Some("tool_calls"), Some(157), Some(32)),
    ("openrouter-gemini-reasoning-01", 1, 9, Some((0, Reasoning)), None, Terminal, Some("stop"), Some(13), Some(1003)),
    ("openrouter-image-huge-line-02", 1, 4, Some((0, Text)), None, Terminal, Some("stop"), Some(2), Some(1295)),
    ("openrouter-refusal-01", 1, 15, Some((0, Refusal)), None, Terminal, Some("stop"), Some(49), Some(13)),
    ("openrouter-web-search-01", 1, 20, Some((0, Citation)), None, Terminal, Some("stop"), Some(2317), Some(53)),
    ("perplexity-crlf-large-01", 1, 191, Some((0, Text)), None, Finished, Some("stop"), Some(8), Some(213)),
    ("perplexity-no-done-01", 1, 4, Some((0, Text)), None, Finished, Some("stop"), Some(4365), Some(3)),
    ("sambanova-text-01", 1, 4, Some((1, Text)), None, Terminal, Some("stop"), None, None),
    ("snowflake-no-finish-01", 1, 4, Some((0, Text)), None, Open, None, Some(22), Some(5)),
    ("tgi-error-first-01", 1, 1, None, Some(0), Open, None, None, None),
    ("tgi-nospace-01", 1, 15, Some((0, Text)), None, Finished, Some("eos_token"), None, None),
    ("together-text-01", 1, 82, Some((1, Text)), None, Terminal, Some("stop"), Some(20), Some(79)),
    ("together-token-id-01", 1, 54, Some((0, Text)), None, Terminal, Some("eos"), Some(37), Some(53)),
    ("together-tool-two-finishes-01", 1, 6, Some((1, ToolCall)), None, Terminal, Some("stop"), Some(207), Some(42)),
    ("venice-reasoning-length-01", 1, 19, Some((1, Reasoning)), None, Terminal, Some("length"), Some(5789), Some(16)),
    ("vercel-gateway-parallel-tools-01", 1, 15, Some((1, Text)), None, Terminal, Some("tool_calls"), Some(502), Some(137)),
    ("vllm-length-01", 1, 22, Some((1, Text)), None, Terminal, Some("length"), None, None),
    ("writer-tool-01", 1, 6, Some((1, ToolCall)), None, Finished, Some("tool_calls"), Some(194), Some(22)),
    ("xai-parallel-tools-01", 1, 5, Some((0, ToolCall)), None, Terminal, Some("tool_calls"), Some(432), Some(204)),
    ("xai-reasoning-tool-01", 1, 40, Some((0, Reasoning)), None, Terminal, Some("tool_calls"), Some(496), Some(198)),
    ("zai-reasoning-01", 1, 59, Some((0, Reasoning)), None, Terminal, Some("stop"), Some(13), Some(59)),
];

#[test]
fn recorded_streams() {
    let Some(folder) = folder() else { return };
    for golden in STREAMS {
        let (file, choices, ..) = golden;
        let (events, _) = events(&folder.join("chat-completions").join(format!("{file}.http")));
        let mut reader = Reader::new(*choices);
        let (mut first, mut faulty) = (None, None);
        for (at, (name, data)) in events.iter().enumerate() {
            let reading = reader.read(name.as_bytes(), data.as_bytes());
            match reading.show {
                _ if reading.fault.is_some() => faulty = faulty.or(Some(at)),
                Show::Visible(kind) => first = first.or(Some((at, kind))),
                Show::Effect { .. } => panic!("{file}: no recording has a hosted tool's event"),
                Show::Preamble | Show::Ping => {}
            }
        }
        let usage = reader.usage();
        let found = (*file, *choices, events.len(), first, faulty, reader.ending(), reader.finish_reason());
        let expected = (golden.0, golden.1, golden.2, golden.3, golden.4, golden.5, golden.6);
        assert_eq!(found, expected);
        assert_eq!((usage.input_tokens, usage.output_tokens), (golden.7, golden.8), "{file}");
    }
}

#[test]
fn no_recorded_stream_is_without_a_row() {
    let Some(folder) = folder() else { return };
    for entry in fs::read_dir(folder.join("chat-completions")).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_some_and(|extension| extension == "http") {
            assert!(STREAMS.iter().any(|golden| golden.0 == stem), "{stem}");
        }
    }
}

/// Every stream cut before any of its events: not one prefix without the last event is taken for a whole (strict) stream.
#[test]
fn no_cut_stream_is_terminal() {
    let Some(folder) = folder() else { return };
    for (file, choices, _, _, _, ending, ..) in STREAMS.iter().filter(|golden| golden.5 == Terminal) {
        let (events, _) = events(&folder.join("chat-completions").join(format!("{file}.http")));
        let mut reader = Reader::new(*choices);
        for (name, data) in &events {
            assert_ne!(reader.ending(), *ending, "{file}");
            reader.read(name.as_bytes(), data.as_bytes());
        }
        assert_eq!(reader.ending(), *ending, "{file}");
    }
}

#[test]
fn recorded_error_bodies() {
    let Some(folder) = folder() else { return };
    let mut faults = 0;
    for entry in fs::read_dir(folder.join("errors")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "http") {
            continue;
        }
        let (_, body) = events(&path);
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        let found = fault::of_body(body.as_bytes());
        let json = matches!(body.trim_start().as_bytes().first(), Some(b'{' | b'['));
        assert_eq!(found.is_some(), json && !file.contains("-200-"), "{file}: {found:?}");
        assert_eq!(usage::of_answer(body.as_bytes()).valid, file.contains("-200-"), "{file}");
        if let Some(fault) = found {
            assert!(fault.message.is_some(), "{file}");
            faults += 1;
        }
    }
    assert!(faults > 60, "only {faults}");
}

#[test]
fn recorded_whole_answers() {
    let Some(folder) = folder() else { return };
    for (file, finish, model, output) in [
        ("azure-200-content-filter-01", "content_filter", "gpt-35-turbo", None),
        ("openrouter-200-json-keepalive-01", "stop", "openai/o1", Some(9)),
    ] {
        let (_, body) = events(&folder.join("errors").join(format!("{file}.http")));
        let answer = usage::of_answer(body.as_bytes());
        assert!(answer.valid, "{file}");
        assert_eq!(
            (answer.finish_reason.as_deref(), answer.served_model.as_deref()),
            (Some(finish), Some(model)),
            "{file}"
        );
        if output.is_some() {
            assert_eq!(answer.usage.output_tokens, output, "{file}");
        }
    }
}

#[test]
fn recorded_requests_are_read() {
    let Some(folder) = folder() else { return };
    let mut tools = 0;
    for entry in fs::read_dir(folder.join("chat-completions")).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().ends_with(".request.json") {
            continue;
        }
        let body = Bytes::from(fs::read(&path).unwrap());
        let facts = request::read(&body).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Some((name, range)) = &facts.model {
            assert_eq!(serde_json::from_slice::<String>(&body[range.clone()]).unwrap(), *name);
        }
        let asks = String::from_utf8_lossy(&body).contains("\"messages\""); // two are of another endpoint
        assert!(facts.text_bytes <= body.len() as u64 && (facts.text_bytes > 0) == asks, "{}", path.display());
        tools += usize::from(facts.capabilities.iter().any(|name| name == "tools"));
    }
    assert!(tools > 10, "only {tools}");
}

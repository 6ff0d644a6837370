//! The readers on recordings: streams whole and cut, error bodies, requests.
//!
//! The table of streams was made by a script of another language with rules of its own, not by the reader. The recordings stand beside
//! the checkout, not in it; without them the test says so and passes (in CI it fails). Deliberately naive: the splitter here
//! knows only what the recordings need, so that it can't share a mistake with `wire`.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::stream::Reader;
use super::{fault, request};
use crate::protocol::signal::Ending::{self, Open, Terminal};
use crate::protocol::signal::Show::{self, Effect, Visible};
use crate::protocol::signal::StreamReader as _;
use crate::protocol::signal::VisibleKind::{Reasoning, Refusal, Text, ToolCall};

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

/// (event name, data) of every event that has data.
fn events(path: &Path) -> Vec<(String, String)> {
    let file = String::from_utf8(fs::read(path).unwrap()).unwrap();
    let (_, body) = file.split_once("\n\n").unwrap();
    let (mut events, mut name, mut data) = (Vec::new(), String::new(), Vec::new());
    for line in body.replace("\r\n", "\n").split('\n') {
        if let Some(value) = line.strip_prefix("data:") {
            data.push(value.strip_prefix(' ').unwrap_or(value).to_owned());
        } else if let Some(value) = line.strip_prefix("event:") {
            value.trim().clone_into(&mut name);
        } else if line.is_empty() {
            if !data.is_empty() {
                events.push((std::mem::take(&mut name), data.join("\n")));
            }
            data.clear();
            name.clear();
        }
    }
    events
}

/// File, events with data, the first one that crosses and what it shows, the first that is a fault, ending, finish reason, input and
/// output tokens.
type Golden =
    (&'static str, usize, Option<(usize, Show)>, Option<usize>, Ending, Option<&'static str>, Option<u64>, Option<u64>);

#[rustfmt::skip]
const STREAMS: &[Golden] = &[
    ("azure-incomplete-01", 9, Some((4, Visible(Text))), None, Terminal, Some("content_filter"), Some(0), Some(0)),
    ("azure-text-01", 11, Some((6, Visible(Text))), None, Terminal, Some("completed"), Some(18), Some(120)),
    ("bedrock-mantle-function-call-01", 7, Some((2, Visible(ToolCall))), None, Terminal, Some("completed"), Some(88), Some(14)),
    ("chatgpt-codex-text-01", 24, Some((4, Visible(Text))), None, Terminal, Some("completed"), Some(58), Some(20)),
    ("copilot-id-rotation-01", 69, Some((4, Visible(Reasoning))), None, Terminal, Some("completed"), Some(19), Some(105)),
    ("deepseek-reasoning-01", 26, Some((4, Visible(Reasoning))), None, Terminal, Some("completed"), Some(95), Some(14)),
    ("lmstudio-tool-call-01", 77, Some((4, Visible(Reasoning))), None, Terminal, Some("completed"), Some(182), Some(61)),
    ("openai-apply-patch-01", 38, Some((2, Effect { may_act: true })), None, Terminal, Some("completed"), Some(642), Some(67)),
    ("openai-code-interpreter-01", 365, Some((4, Visible(Reasoning))), None, Terminal, Some("completed"), Some(3727), Some(347)),
    ("openai-custom-tool-01", 8, Some((2, Visible(ToolCall))), None, Terminal, Some("completed"), Some(50), Some(20)),
    ("openai-emoji-01", 18, Some((4, Visible(Text))), None, Terminal, Some("completed"), Some(9), Some(12)),
    ("openai-error-rate-limit-01", 4, None, Some(2), Open, None, None, None),
    ("openai-file-search-01", 21, Some((2, Effect { may_act: false })), None, Terminal, Some("completed"), Some(1177), Some(37)),
    ("openai-function-call-01", 23, Some((4, Visible(ToolCall))), None, Terminal, Some("completed"), Some(87), Some(339)),
    ("openai-image-generation-01", 16, Some((4, Effect { may_act: false })), None, Terminal, Some("completed"), Some(2941), Some(1249)),
    ("openai-incomplete-01", 58, Some((4, Visible(Text))), None, Terminal, Some("max_output_tokens"), Some(14), Some(50)),
    ("openai-japanese-01", 48, Some((4, Visible(Text))), None, Terminal, Some("completed"), Some(10), Some(41)),
    ("openai-mcp-approval-01", 11, Some((8, Visible(ToolCall))), None, Terminal, Some("completed"), Some(422), Some(48)),
    ("openai-mcp-list-tools-01", 119, Some((14, Visible(Text))), None, Terminal, Some("completed"), Some(1199), Some(103)),
    ("openai-phase-01", 33, Some((6, Visible(Text))), None, Terminal, Some("completed"), Some(63), Some(69)),
    ("openai-reasoning-summary-01", 270, Some((4, Visible(Reasoning))), None, Terminal, Some("completed"), Some(36), Some(518)),
    ("openai-refusal-01", 17, Some((4, Visible(Refusal))), None, Terminal, Some("completed"), Some(54), Some(11)),
    ("openai-text-01", 17, Some((6, Visible(Text))), None, Terminal, Some("completed"), Some(13), Some(284)),
    ("openai-thinking-tool-01", 94, Some((4, Visible(Reasoning))), None, Terminal, Some("completed"), Some(63), Some(121)),
    ("openai-web-search-01", 28, Some((2, Effect { may_act: false })), None, Terminal, Some("completed"), Some(17508), Some(201)),
    ("openrouter-raw-cot-01", 41, Some((4, Visible(Reasoning))), None, Terminal, Some("completed"), Some(78), Some(37)),
    ("openrouter-reasoning-01", 12, Some((6, Visible(Text))), None, Terminal, Some("completed"), Some(20), Some(19)),
    ("xai-comment-01", 29, Some((4, Visible(Reasoning))), None, Terminal, Some("completed"), Some(199), Some(82)),
    ("xai-text-01", 36, Some((4, Visible(Reasoning))), None, Terminal, Some("completed"), Some(470), Some(81)),
];

#[test]
fn recorded_streams() {
    let Some(folder) = folder() else { return };
    for golden in STREAMS {
        let file = golden.0;
        let events = events(&folder.join("responses").join(format!("{file}.http")));
        let mut reader = Reader::new();
        let (mut first, mut faulty) = (None, None);
        for (at, (name, data)) in events.iter().enumerate() {
            let reading = reader.read(name.as_bytes(), data.as_bytes());
            match reading.show {
                _ if reading.fault.is_some() => faulty = faulty.or(Some(at)),
                Visible(_) | Effect { .. } => first = first.or(Some((at, reading.show))),
                Show::Preamble | Show::Ping => {}
            }
        }
        let usage = reader.usage();
        let found = (file, events.len(), first, faulty, reader.ending(), reader.finish_reason());
        assert_eq!(found, (golden.0, golden.1, golden.2, golden.3, golden.4, golden.5));
        assert_eq!((usage.input_tokens, usage.output_tokens), (golden.6, golden.7), "{file}");
        // Numbered from 0 without a gap: the relay's own frame goes on where the stream stood.
        let numbered = events.iter().filter(|(_, data)| data.contains("\"sequence_number\"")).count();
        if numbered + 1 >= events.len() && golden.3.is_none() && !RENUMBERED.contains(&file) {
            assert_eq!(reader.place().sequence, numbered as u64, "{file}");
        }
        assert!(
            reader.issued().len() > usize::from(golden.3.is_none()),
            "{file}: at least an id of a response and one of an item"
        );
    }
}

/// Recordings whose numbers have gaps or start elsewhere.
const RENUMBERED: &[&str] = &[];

#[test]
fn no_recorded_stream_is_without_a_row() {
    let Some(folder) = folder() else { return };
    for entry in fs::read_dir(folder.join("responses")).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_some_and(|extension| extension == "http") {
            assert!(STREAMS.iter().any(|golden| golden.0 == stem), "{stem}");
        }
    }
}

/// Every stream cut before any of its events: not one prefix without the terminal event is taken for a whole stream.
#[test]
fn no_cut_stream_is_terminal() {
    let Some(folder) = folder() else { return };
    for golden in STREAMS.iter().filter(|golden| golden.4 == Terminal) {
        let file = golden.0;
        let mut reader = Reader::new();
        for (name, data) in events(&folder.join("responses").join(format!("{file}.http"))) {
            assert_eq!(reader.ending() == Terminal, data == "[DONE]", "{file}");
            reader.read(name.as_bytes(), data.as_bytes());
        }
        assert_eq!(reader.ending(), Terminal, "{file}");
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
        let file = fs::read_to_string(&path).unwrap();
        let (_, body) = file.split_once("\n\n").unwrap();
        let json = matches!(body.trim_start().as_bytes().first(), Some(b'{' | b'['));
        let is_error = json && !path.to_string_lossy().contains("-200-");
        assert_eq!(fault::of_body(body.as_bytes()).is_some(), is_error, "{}", path.display());
        faults += usize::from(is_error);
    }
    assert!(faults > 60, "only {faults}");
}

#[test]
fn recorded_requests_are_read() {
    let Some(folder) = folder() else { return };
    let (mut tools, mut hosted) = (0, 0);
    for entry in fs::read_dir(folder.join("responses")).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().ends_with(".request.json") {
            continue;
        }
        let body = Bytes::from(fs::read(&path).unwrap());
        let facts = request::read(&body).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Some((name, range)) = &facts.model {
            assert_eq!(serde_json::from_slice::<String>(&body[range.clone()]).unwrap(), *name);
        }
        assert!(facts.text_bytes > 0 && facts.text_bytes <= body.len() as u64, "{}", path.display());
        tools += usize::from(facts.capabilities.iter().any(|name| name == "tools"));
        hosted += usize::from(!facts.hosted_tools.is_empty());
    }
    assert!(tools > 2 && hosted > 2, "only {tools} and {hosted}");
}

//! Recorded streams in, readings out: one row a recording, and what must hold for any bytes at all (proptest).
//!
//! The splitter here is naive on purpose (whole body, LF or CRLF): it tests the reader and not `wire`.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::stream::Reader;
use crate::protocol::signal::VisibleKind::{
    Citation, HostedResult, Reasoning, Refusal, Text, ToolCall, Unknown,
};
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
    /// What shows later and crosses for another reason than the first: `(event, show)` of the first of each kind.
    later: &'static [(usize, Show)],
    ending: Ending,
    stop_reason: Option<&'static str>,
    /// The fault's type.
    fault: Option<&'static str>,
    /// Input, cached, output.
    usage: [Option<u64>; 3],
    model: Option<&'static str>,
}

const GOLDEN: &[Golden] = &[];

fn folder() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/recordings"));
    if folder.is_dir() {
        return Some(folder);
    }
    assert!(std::env::var_os("CI").is_none(), "no recordings beside the checkout");
    println!("skipped: no recordings beside the checkout");
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
fn dump() {
    let Some(folder) = folder() else { return };
    for (file, events) in recordings(&folder) {
        let mut reader = Reader::new();
        let mut crossing = None;
        let mut later: Vec<(usize, Show)> = Vec::new();
        let mut fault = None;
        for (at, (name, data)) in events.iter().enumerate() {
            let reading = reader.read(name.as_bytes(), data.as_bytes());
            if let Some(f) = reading.fault { fault = f.kind; continue }
            if matches!(reading.show, Show::Preamble | Show::Ping) { continue }
            if crossing.is_none() { crossing = Some((at, reading.show)) }
            else if crossing.is_some_and(|(_, s)| s != reading.show) && later.iter().all(|(_, s)| *s != reading.show) { later.push((at, reading.show)) }
        }
        let u = reader.usage();
        println!("G Golden {{ file: {file:?}, events: {}, crossing: {crossing:?}, later: &{later:?}, ending: Ending::{:?}, stop_reason: {:?}, fault: {fault:?}, usage: [{:?}, {:?}, {:?}], model: {:?} }},",
            events.len(), reader.ending(), reader.finish_reason(), u.input_tokens, u.cached_input_tokens, u.output_tokens, reader.served_model());
    }
}

//! What a recorded stream is, told by the test itself: its blocks, its boundary, its end. For the modules that play recordings.

use bytes::Bytes;
use rubicon::protocol::Dialect;
use rubicon::protocol::signal::{Ending, Show};

use crate::harness::Recording;

/// Recordings that are no streams of their dialect's endpoint, and why.
const NOT_STREAMS: &[(&str, &str)] = &[
    ("anthropic-error-first-01", "its only event is an error: an HTTP error, not a stream"),
    ("anthropic-legacy-complete-01", "the legacy /v1/complete format"),
    ("openai-error-rate-limit-01", "its first event but lifecycle is an error: an HTTP error, not a stream"),
    ("ollama-native-ndjson-01", "newline-delimited JSON, no SSE"),
    ("openai-legacy-completions-01", "the legacy /v1/completions format"),
    ("tgi-error-first-01", "its only event is an error: an HTTP error, not a stream"),
];

/// Whether a recording is a stream of its dialect.
pub(crate) fn is_stream(recording: &Recording) -> bool {
    !NOT_STREAMS.iter().any(|(name, _)| *name == recording.name)
}

/// One block: up to and with its blank line.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub(crate) raw: Bytes,
    /// Comment lines or nothing.
    pub(crate) comment: bool,
    /// It has data, so it counts.
    pub(crate) event: bool,
}

/// A recording and what is to be expected of it.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) status: u16,
    pub(crate) blocks: Vec<Block>,
    /// The first block that crosses the boundary.
    pub(crate) boundary: Option<usize>,
    /// The block that is the provider's error event.
    pub(crate) fault: Option<usize>,
    /// The request's `n`.
    pub(crate) choices: u32,
    endings: Vec<Ending>,
}

impl Told {
    /// Whether the whole stream ends cleanly.
    pub(crate) fn ends(&self, lenient: bool) -> bool {
        self.ends_after(self.blocks.len(), lenient)
    }

    /// Whether its first `blocks` blocks are a whole stream, as far as `terminal` is concerned.
    pub(crate) fn ends_after(&self, blocks: usize, lenient: bool) -> bool {
        let ending = blocks.checked_sub(1).map_or(Ending::Open, |last| self.endings[last]);
        self.fault.is_none_or(|fault| fault >= blocks)
            && (ending == Ending::Terminal || (lenient && ending == Ending::Finished))
    }

    /// What the client has when the boundary is crossed (everything, where none is): held comments are dropped.
    pub(crate) fn until_boundary(&self) -> Vec<u8> {
        self.until(self.boundary.map_or(self.blocks.len(), |boundary| boundary + 1))
    }

    /// What the client has after the first `blocks` blocks, if it has anything.
    pub(crate) fn until(&self, blocks: usize) -> Vec<u8> {
        let held = self.boundary.unwrap_or(self.blocks.len());
        let shown = |(at, block): (usize, &Block)| (at > held || !block.comment).then(|| block.raw.clone());
        self.blocks.iter().take(blocks).enumerate().filter_map(shown).collect::<Vec<_>>().concat()
    }

    /// Events among the first `blocks` blocks.
    pub(crate) fn events(&self, blocks: usize) -> u64 {
        self.blocks.iter().take(blocks).filter(|block| block.event).count() as u64
    }

    /// Events that come before the provider's error event.
    pub(crate) fn events_before_fault(&self) -> u64 {
        self.events(self.fault.unwrap_or(self.blocks.len()))
    }
}

/// Cuts at blank lines, as naively as can be: with LF and CRLF, which is all that recordings have.
fn blocks(body: &Bytes) -> Vec<Block> {
    let (mut blocks, mut start, mut at) = (Vec::new(), 0, 0);
    let (mut comment, mut event) = (true, false);
    while let Some(end) = body[at..].iter().position(|&byte| byte == b'\n').map(|found| at + found + 1) {
        let line = body[at..end].trim_ascii_end();
        assert!(!line.contains(&b'\r'), "a lone CR: this splitter is too naive");
        at = end;
        if line.is_empty() {
            blocks.push(Block { raw: body.slice(start..end), comment, event });
            (start, comment, event) = (end, true, false);
        } else {
            comment &= line.starts_with(b":");
            event |= line.starts_with(b"data:");
        }
    }
    // What follows the last blank line is no block.
    blocks
}

/// The value of the `event:` line and the data.
fn fields(raw: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut name, mut data) = (Vec::new(), Vec::new());
    for line in raw.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)) {
        if let Some(value) = line.strip_prefix(b"event:") {
            name = value.strip_prefix(b" ").unwrap_or(value).to_vec();
        } else if let Some(value) = line.strip_prefix(b"data:") {
            data.push(value.strip_prefix(b" ").unwrap_or(value).to_vec());
        }
    }
    (name, data.join(&b'\n'))
}

/// Looks at a recording.
pub(crate) fn told(dialect: Dialect, recording: &Recording) -> Told {
    let body = match recording.body.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) => recording.body.slice_ref(rest),
        None => recording.body.clone(),
    };
    let blocks = blocks(&body);
    let choices = if recording.name.contains("-n2-") { 2 } else { 1 };
    let mut reader = dialect.stream_reader(choices);
    let (mut boundary, mut fault, mut endings) = (None, None, Vec::new());
    for (at, block) in blocks.iter().enumerate() {
        if block.event && fault.is_none() {
            let (name, data) = fields(&block.raw);
            let over = reader.ending() == Ending::Terminal;
            let reading = reader.read(&name, &data);
            assert!(!over || reading.terminal, "{}: an event after the end", recording.name);
            // A terminal event before any finish reason is withheld like an error: its client would take the stream for whole.
            if reading.fault.is_some() || (reading.terminal && reader.ending() == Ending::Open) {
                fault = Some(at);
            } else if boundary.is_none() && !matches!(reading.show, Show::Preamble | Show::Ping) {
                boundary = Some(at);
            }
        }
        endings.push(reader.ending());
    }
    Told { name: recording.name.clone(), status: recording.status, blocks, boundary, fault, choices, endings }
}

/// A streaming request for a model, with `n` where the dialect has it.
pub(crate) fn request_for(dialect: Dialect, model: &str, choices: u32) -> String {
    let extra = match dialect {
        Dialect::ChatCompletions if choices > 1 => format!(",\"n\":{choices}"),
        Dialect::ChatCompletions => String::new(),
        Dialect::AnthropicMessages => ",\"max_tokens\":64".to_owned(),
        Dialect::Responses => String::new(),
    };
    let input = if dialect == Dialect::Responses { "input" } else { "messages" };
    format!("{{\"model\":\"{model}\",\"stream\":true{extra},\"{input}\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}")
}

/// Takes exactly one error frame of the dialect apart, in the shape that its SDKs raise (STREAMS.md 2.2), and gives its `rubicon`.
pub(crate) fn error_frame_of(dialect: Dialect, bytes: &[u8]) -> serde_json::Value {
    let text = std::str::from_utf8(bytes).expect("UTF-8");
    let start = match dialect {
        Dialect::ChatCompletions => "data: ",
        Dialect::AnthropicMessages => "event: error\ndata: ",
        Dialect::Responses => return responses_frames_of(text),
    };
    let json = text
        .strip_prefix(start)
        .and_then(|rest| rest.strip_suffix("\n\n"))
        .filter(|json| !json.contains('\n'))
        .unwrap_or_else(|| panic!("not one error frame: {text:?}"));
    let frame: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let members: Vec<&str> = frame.as_object().expect("an object").keys().map(String::as_str).collect();
    assert!(frame["error"]["message"].is_string() && frame["error"]["type"].is_string(), "{frame}");
    match dialect {
        Dialect::ChatCompletions => {
            assert_eq!(members, ["error"], "{frame}");
            frame["error"]["rubicon"].clone()
        }
        Dialect::AnthropicMessages | Dialect::Responses => {
            assert_eq!(frame["type"], "error", "{frame}");
            frame["rubicon"].clone()
        }
    }
}

/// The two frames of the responses dialect: `error`, flat and nested in one, then `response.failed` with the same text.
fn responses_frames_of(text: &str) -> serde_json::Value {
    let parts = text.strip_suffix("\n\n").and_then(|text| text.strip_prefix("event: error\ndata: "));
    let parts = parts.and_then(|text| text.split_once("\n\nevent: response.failed\ndata: "));
    let (error, failed) = parts.unwrap_or_else(|| panic!("not the two frames: {text:?}"));
    let parse = |json: &str| -> serde_json::Value {
        assert!(!json.contains('\n'), "one line: {json}");
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
    };
    let (error, failed) = (parse(error), parse(failed));
    let response = &failed["response"];
    assert_eq!((&error["type"], &failed["type"]), (&"error".into(), &"response.failed".into()));
    assert!(error["error"]["message"].is_string() && error["error"]["type"].is_string(), "{error}");
    assert_eq!((&error["message"], &error["code"]), (&error["error"]["message"], &error["error"]["code"]), "{error}");
    assert_eq!((&response["status"], &response["error"]["code"]), (&"failed".into(), &"rubicon_interrupted".into()));
    assert_eq!((&response["error"]["message"], &response["error"]["rubicon"]), (&error["message"], &error["rubicon"]));
    let number = |frame: &serde_json::Value| frame["sequence_number"].as_u64().expect("a number");
    assert_eq!(number(&failed), number(&error) + 1);
    error["rubicon"].clone()
}

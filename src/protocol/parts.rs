//! What an answer is made of, as far as it can be judged: calls of the application's tools, and text; and what the request declared
//! of both.
//!
//! In: events, whole answers and request bodies, taken apart by each dialect's `calls.rs`. Out: [`Part`]s in the order of the answer,
//! [`Declared`]. Pieces are the insides of JSON strings *as written*: half a surrogate pair may stand in one event and the other
//! half in the next (FIELD_CASES F41), so they are put together first and unescaped after. Read only where a workflow's `commit`
//! asks for it. Deliberately not here: putting together, and what fits (`accept`).

use std::borrow::Cow;

/// Where in an answer something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// The choice; 0 in dialects that have none.
    pub choice: u64,
    /// The tool call's or block's number within it.
    pub index: u64,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A call stands there; told with each piece of it.
    Call {
        /// Its place.
        at: At,
        /// Its id, where this event tells it.
        id: Option<Cow<'a, str>>,
        /// The tool's name, where this event tells it.
        name: Option<Cow<'a, str>>,
        /// Its input is free text and no JSON (custom tools).
        freeform: bool,
    },
    /// A piece of the call's arguments.
    Piece {
        /// Its place.
        at: At,
        /// Inside of a JSON string, as written.
        inner: &'a str,
    },
    /// All of the call's arguments, told once more.
    Whole {
        /// Its place.
        at: At,
        /// Inside of a JSON string, as written.
        inner: &'a str,
    },
    /// The call's arguments as a JSON value.
    Input {
        /// Its place.
        at: At,
        /// The value.
        json: &'a str,
    },
    /// The call is whole.
    Ends {
        /// Its place.
        at: At,
        /// The provider itself says that it was cut.
        cut: bool,
    },
    /// Every call of the choice is whole.
    ChoiceEnds(u64),
    /// A piece of text; a whole one (`whole`) replaces what came.
    Text {
        /// Its place.
        at: At,
        /// Inside of a JSON string, as written.
        inner: &'a str,
        /// All of the text.
        whole: bool,
    },
    /// The choice says that it refuses, in words.
    Refusal(u64),
}

/// A tool that the application runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool<'a> {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments, where it declares one.
    pub schema: Option<&'a str>,
}

/// The form that the request wants the text in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format<'a> {
    /// A JSON object.
    Object,
    /// JSON that fits a schema; `None` where none is told.
    Schema(Option<&'a str>),
}

/// What a request declares of its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared<'a> {
    /// Its tools, at most [`TOOLS_MAX`]; of one name there may be several (namespaces).
    pub tools: Vec<Tool<'a>>,
    /// `response_format`, `text.format`, `output_config.format`.
    pub format: Option<Format<'a>>,
}

/// Tools kept of one request; OpenAI takes 128. Calls of those past it are parsed and fit any schema.
pub const TOOLS_MAX: usize = 1024;

impl<'a> Declared<'a> {
    /// Adds a tool, within the bound. `null` is no schema.
    pub fn tool(&mut self, name: Option<Cow<'_, str>>, schema: Option<&'a str>) {
        if let Some(name) = name.filter(|_| self.tools.len() < TOOLS_MAX) {
            self.tools.push(Tool { name: name.into_owned(), schema: schema.filter(|schema| *schema != "null") });
        }
    }
}

/// The inside of a JSON string, as written; `None` for any other value.
pub fn inner(json: &str) -> Option<&str> {
    json.strip_prefix('"')?.strip_suffix('"')
}

//! What a request declares of its answer, kept for all attempts: schemas are compiled once a request, and only those that are used.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::Value;

use super::Broken;
use super::schema::Schema;
use crate::protocol::Dialect;
use crate::protocol::parts::Format;

/// A schema as it stands in the request, compiled when it is first asked.
#[derive(Debug)]
struct Lazy {
    json: Bytes,
    compiled: OnceLock<Option<Schema>>,
}

impl Lazy {
    /// `json` is a part of `body`, so that nothing is copied.
    fn new(body: &Bytes, json: &str) -> Self {
        Self { json: body.slice_ref(json.as_bytes()), compiled: OnceLock::new() }
    }

    fn fits(&self, value: &Value) -> bool {
        let compile = || Schema::compile(std::str::from_utf8(&self.json).ok()?);
        self.compiled.get_or_init(compile).as_ref().is_none_or(|schema| schema.fits(value))
    }
}

/// The form of the text.
#[derive(Debug)]
enum Form {
    Object,
    Schema(Option<Lazy>),
}

/// What a request declares.
#[derive(Debug)]
pub struct Wanted {
    /// The dialect that its answers are in.
    pub(super) dialect: Dialect,
    /// The whole answer is judged, and not calls alone.
    pub(super) whole: bool,
    /// By name; `None`: without a schema. Of one name there may be several.
    tools: BTreeMap<String, Vec<Option<Lazy>>>,
    form: Option<Form>,
}

impl Wanted {
    /// Reads a request's body. `whole`: `validated`; else `tool_call_complete`.
    pub fn of(dialect: Dialect, whole: bool, body: &Bytes) -> Self {
        let declared = dialect.declared(body);
        let mut tools: BTreeMap<String, Vec<Option<Lazy>>> = BTreeMap::new();
        for tool in declared.tools {
            tools.entry(tool.name).or_default().push(tool.schema.map(|schema| Lazy::new(body, schema)));
        }
        let form = declared.format.filter(|_| whole).map(|format| match format {
            Format::Object => Form::Object,
            Format::Schema(schema) => Form::Schema(schema.map(|schema| Lazy::new(body, schema))),
        });
        Self { dialect, whole, tools, form }
    }

    /// Whether text has to have a form.
    pub(super) fn has_form(&self) -> bool {
        self.form.is_some()
    }

    /// Judges the arguments of a whole call. Of a tool that the request does not declare (some are declared by what a search has
    /// found) they need to be JSON. `blank` arguments are `{}` where the dialect says so, or where the tool declares none.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn judge_call(&self, name: Option<&str>, arguments: &str) -> Result<(), Broken> {
        let schemas = name.and_then(|name| self.tools.get(name));
        let without = || schemas.is_some_and(|schemas| schemas.iter().any(Option::is_none));
        let blank = arguments.trim_ascii().is_empty();
        let arguments =
            if blank && (self.dialect == Dialect::AnthropicMessages || without()) { "{}" } else { arguments };
        let value: Value = serde_json::from_str(arguments).map_err(|_| Broken::CallNotJson)?;
        let fits = schemas.is_none_or(|schemas| {
            schemas.iter().any(|schema| schema.as_ref().is_none_or(|schema| schema.fits(&value)))
        });
        if fits { Ok(()) } else { Err(Broken::CallUnfit) }
    }

    /// Judges a whole text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn judge_text(&self, text: &str) -> Result<(), Broken> {
        let Some(form) = &self.form else { return Ok(()) };
        let value: Value = serde_json::from_str(text).map_err(|_| Broken::TextNotJson)?;
        match form {
            Form::Object if !value.is_object() => Err(Broken::TextNotJson),
            Form::Schema(Some(schema)) if !schema.fits(&value) => Err(Broken::TextUnfit),
            _ => Ok(()),
        }
    }
}

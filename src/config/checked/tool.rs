//! `[tool.NAME]`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rubicon_ledger::{BadProjection, Effect, Impact, Pointer, Projection, ToolName, ToolRule};
use serde_json::Value;

use crate::accept::schema::Schema;

use super::super::node::{Item, Node};
use super::super::problem::{Code, Problems, shown};
use super::super::settings::{Template, ToolSettings};
use super::super::{Sources, nearest, reason};
use super::tool_fields::{self, Found};
use super::tool_http;

const DAY_SECONDS: u64 = 86_400;

/// Pointers in `redact`; each is a walk through every document that is shown.
const REDACT_MAX: usize = 64;

/// All tools that could be built.
pub(super) fn all(
    root: &Node,
    problems: &mut Problems<'_>,
    sources: &Sources<'_>,
) -> BTreeMap<ToolName, Arc<ToolSettings>> {
    let mut all = BTreeMap::new();
    for (name, node) in root.named("tool") {
        if let Some(tool) = one(name, node, problems, sources) {
            all.insert(tool.rule.name.clone(), Arc::new(tool));
        }
    }
    all
}

fn one(name: &str, node: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> Option<ToolSettings> {
    let schema = schema(node, problems, sources);
    let (schema, checker) = schema.map_or((None, None), |(text, checker)| (Some(text), Some(checker)));
    let key_fields = pointers(node, "key_fields", problems);
    let ignore_fields = pointers(node, "ignore_fields", problems);
    let redact: Vec<Pointer> = pointers(node, "redact", problems).into_iter().map(|(_, pointer)| pointer).collect();
    if redact.len() > REDACT_MAX {
        let message = format!("over {REDACT_MAX} pointers");
        problems.error(Code::OutOfRange, node.at_of("redact"), &node.key_of("redact"), message);
    }
    let summary = summary(node, schema.as_ref(), problems);
    if let Some(schema) = &schema {
        key_fields_exist(node, schema, &key_fields, problems);
        may_exist(schema, &ignore_fields, &node.key_of("ignore_fields"), problems);
    }
    let projection = projection(node, &key_fields, &ignore_fields, problems);
    let endpoint = tool_http::endpoint(node, problems, sources);
    let probe = tool_http::probe(node, problems, sources);
    let result_rules = tool_http::rules(node, "result_rules", problems);
    let rule = ToolRule {
        name: ToolName::new(name).ok()?,
        effect: if node.text("effect") == Some("read_only") { Effect::ReadOnly } else { Effect::Write },
        impact: if node.text("impact") == Some("high") { Impact::High } else { Impact::Normal },
        projection: Arc::new(projection?),
        max_runs: u32::try_from(node.int("max_runs")).unwrap_or(u32::MAX),
        guard_similar: node.text("similar") != Some("off"),
        approve_before_run: node.text("approval") == Some("before_run"),
        has_probe: probe.is_some(),
        owner: node.text("owner").map(Arc::from),
    };
    Some(ToolSettings {
        rule: Arc::new(rule),
        schema,
        checker,
        endpoint,
        timeout: node.millis("timeout_ms"),
        result_rules,
        probe,
        summary,
        retention: node.opt_int("retention_days").map(|days| Duration::from_secs(days * DAY_SECONDS)),
        redact,
    })
}

/// `schema`, as it was written and compiled.
fn schema(node: &Node, problems: &mut Problems<'_>, sources: &Sources<'_>) -> Option<(Arc<Value>, Arc<Schema>)> {
    let (at, key) = (node.at_of("schema"), node.key_of("schema"));
    let schema = match (node.json("schema"), node.text("schema")) {
        (Some(json), _) => json.clone(),
        (None, Some(text)) => match from_file(text, sources) {
            Ok(json) => json,
            Err(message) => {
                problems.error(Code::SchemaInvalid, at, &key, message);
                return None;
            }
        },
        (None, None) => return None,
    };
    let takes_objects = match schema.get("type") {
        None => schema.is_object(),
        Some(Value::Array(types)) => types.iter().any(|name| name == "object"),
        Some(name) => name == "object",
    };
    let compiled = Schema::build(&schema);
    if compiled.is_ok() && !takes_objects {
        let message = "arguments are an object, which this schema does not take: `type = \"object\"`";
        problems.error(Code::SchemaInvalid, at, &key, message);
    }
    match compiled {
        Ok(checker) => Some((Arc::new(schema), Arc::new(checker))),
        Err(why) => {
            problems.error(Code::SchemaInvalid, at, &key, format!("cannot be judged by: {}", why.what()));
            None
        }
    }
}

fn from_file(text: &str, sources: &Sources<'_>) -> Result<Value, String> {
    let Some(path) = text.strip_prefix("file:").filter(|path| !path.is_empty()) else {
        return Err("expects a table, or `file:PATH` of a JSON file".to_owned());
    };
    let text = (sources.read)(&sources.folder.join(path)).map_err(|error| {
        format!("the file cannot be read: {} (relative paths start at the config's folder)", reason(&error))
    })?;
    serde_json::from_str(&text)
        .map_err(|error| format!("the file is not JSON: line {}, column {}", error.line(), error.column()))
}

type Placed = (usize, Pointer);

/// JSON Pointers, each with its place.
fn pointers(node: &Node, name: &str, problems: &mut Problems<'_>) -> Vec<Placed> {
    let key = node.key_of(name);
    let mut all: Vec<Placed> = Vec::new();
    for Item { at, text } in node.items(name).unwrap_or_default() {
        match text.parse::<Pointer>() {
            Ok(pointer) if pointer.is_root() => {
                problems.error(Code::InvalidValue, *at, &key, "the empty pointer names the whole document");
            }
            Ok(pointer) if all.iter().any(|(_, known)| *known == pointer) => {
                problems.error(Code::Duplicate, *at, &key, format!("{} stands here twice", shown(text)));
            }
            Ok(pointer) => all.push((*at, pointer)),
            Err(error) => {
                let hint = match text.starts_with(['/', '#', '$']) {
                    false => format!("; `/{}`?", text.replace('.', "/")),
                    true => String::new(),
                };
                let hint = if shown(text).starts_with('`') { hint } else { String::new() };
                problems.error(Code::InvalidValue, *at, &key, format!("{error}{hint}"));
            }
        }
    }
    all
}

fn projection(
    node: &Node,
    key_fields: &[Placed],
    ignore_fields: &[Placed],
    problems: &mut Problems<'_>,
) -> Option<Projection> {
    let plain = |list: &[Placed]| list.iter().map(|(_, pointer)| pointer.clone()).collect();
    match Projection::new(plain(key_fields), plain(ignore_fields)) {
        Ok(projection) => Some(projection),
        Err(error) => {
            let place = match &error {
                BadProjection::KeyIgnored { key, .. } => key_fields.iter().find(|(_, known)| known == key),
                _ => None,
            };
            let at = place.map_or_else(|| node.at_of("key_fields"), |(at, _)| *at);
            let message = match &error {
                BadProjection::KeyIgnored { key, ignored } => {
                    let (key, ignored) = (shown(&key.to_string()), shown(&ignored.to_string()));
                    format!("key field {key} lies within the ignored field {ignored}")
                }
                // Repeated ones were reported where they stand.
                _ => "has too many pointers, or one that names nothing".to_owned(),
            };
            problems.error(Code::InvalidValue, at, &node.key_of("key_fields"), message);
            None
        }
    }
}

fn key_fields_exist(node: &Node, schema: &Value, key_fields: &[Placed], problems: &mut Problems<'_>) {
    let key = node.key_of("key_fields");
    for (at, pointer) in key_fields {
        match tool_fields::find(schema, pointer) {
            Found::Required => {}
            Found::Optional => {
                let message = format!(
                    "{} is not `required` by the schema: a call without it is refused",
                    shown(&pointer.to_string())
                );
                problems.warning(Code::KeyFieldOptional, *at, &key, message);
            }
            Found::Nowhere(known) => {
                problems.error(Code::FieldNotInSchema, *at, &key, nowhere(pointer, &known));
            }
        }
    }
}

/// Reports pointers that are no properties of the schema, where that does no more than nothing.
fn may_exist(schema: &Value, fields: &[Placed], key: &str, problems: &mut Problems<'_>) {
    for (at, pointer) in fields {
        if let Found::Nowhere(known) = tool_fields::find(schema, pointer) {
            problems.warning(Code::FieldNotInSchema, *at, key, nowhere(pointer, &known));
        }
    }
}

fn nowhere(pointer: &Pointer, known: &[String]) -> String {
    let last = pointer.tokens().last().unwrap_or_default();
    let hint = nearest::hint(last, known.iter().map(String::as_str));
    format!("{} is no property of the schema{hint}", shown(&pointer.to_string()))
}

/// `summary`.
fn summary(node: &Node, schema: Option<&Arc<Value>>, problems: &mut Problems<'_>) -> Option<String> {
    let text = node.text("summary")?;
    let (at, key) = (node.at_of("summary"), node.key_of("summary"));
    match Template::parse(text) {
        Err(bad) => {
            problems.error(Code::InvalidValue, at, &key, format!("character {}: {}", bad.column, bad.why));
            None
        }
        Ok(template) => {
            if let Some(schema) = schema {
                let fields: Vec<Placed> = template.fields().map(|pointer| (at, pointer.clone())).collect();
                may_exist(schema, &fields, &key, problems);
            }
            Some(text.to_owned())
        }
    }
}

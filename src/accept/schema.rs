//! A JSON schema out of a request, and whether a value fits it, in bounded time and depth.
//!
//! In: a schema as a caller wrote it (nobody may trust it), values as a model wrote them. Out: yes or no. Never is anything fetched: a
//! `$ref` to anywhere but the schema's own definitions makes it one that can't be judged, and so does a circle of them: doubled, it takes
//! time without bound. Patterns run on the `regex` engine, linear in the
//! text; one that needs look-around can't be judged. `format` is a note and not a check, as in the current draft. What can't be
//! judged fits: the provider has taken the schema, and an answer is not held against a rule that we cannot read.

use std::collections::BTreeMap;
use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// Bytes of one schema; the largest that providers take are a fraction of it.
pub const SCHEMA_BYTES_MAX: usize = 128 * 1024;

/// Levels of a schema with every reference put in place: the depth of recursion, which a worker thread's stack (2 MiB) must bear.
pub const LEVELS_MAX: usize = 256;

/// Values in a schema, with every reference put in place, times values in an answer; over it judging could hold a worker thread for
/// longer than some tenths of a second.
pub const WORK_MAX: usize = 16 * 1024 * 1024;

/// Bytes of one compiled pattern, and of its cache.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// Patterns of one schema.
const PATTERNS_MAX: usize = 64;

/// A schema that can be judged by.
pub struct Schema {
    validator: Validator,
    values: usize,
}

impl fmt::Debug for Schema {
    /// Its name only: settings that hold one also hold the text it was made of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Schema")
    }
}

/// Why a schema can't be judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unjudgeable {
    /// Over [`SCHEMA_BYTES_MAX`], [`WORK_MAX`] or 64 patterns.
    TooLarge,
    /// Over [`LEVELS_MAX`] with every reference put in place.
    TooDeep,
    /// A reference to anywhere but its own definitions by `#/…`, or to one that does not exist.
    RefersElsewhere,
    /// A reference that leads back to itself.
    Circle,
    /// No JSON Schema, or a pattern that the engine can't run.
    NotASchema,
}

impl Unjudgeable {
    /// In words, for whoever wrote it.
    #[must_use]
    pub fn what(self) -> &'static str {
        match self {
            Self::TooLarge => "it is too large, or has too many patterns",
            Self::TooDeep => "it is too deep, with every `$ref` put in place",
            Self::RefersElsewhere => {
                "a `$ref` leads to anywhere but a definition of its own (`#/$defs/…`): nothing is fetched"
            }
            Self::Circle => "a `$ref` leads back to itself",
            Self::NotASchema => "it is no valid JSON Schema, or has a pattern with look-around",
        }
    }
}

/// Where a value does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// JSON Pointer into the value.
    pub at: String,
    /// The schema's keyword that it breaks: `type`, `required`, `enum` …
    pub keyword: String,
}

/// What comes of judging by a bounded schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It fits.
    Fits,
    /// It does not; the first place found.
    Unfit(Misfit),
    /// The value is too large to be judged by this schema.
    TooLarge,
}

impl Schema {
    /// Reads a schema. `None`: it can't be judged by (no schema, over a bound, refers elsewhere or to itself, or has a pattern that we
    /// can't run).
    pub fn compile(json: &str) -> Option<Self> {
        if json.len() > SCHEMA_BYTES_MAX {
            return None;
        }
        Self::build(&serde_json::from_str(json).ok()?).ok()
    }

    /// Reads a schema whose size somebody else bounds, and says what is wrong with it.
    ///
    /// # Errors
    /// Why it can't be judged by.
    pub fn build(schema: &Value) -> Result<Self, Unjudgeable> {
        let mut unfolding = Unfolding { schema, known: BTreeMap::new(), patterns: 0 };
        let Unfolded { values, .. } = unfolding.unfold(schema, 0)?;
        if values > WORK_MAX || unfolding.patterns > PATTERNS_MAX {
            return Err(Unjudgeable::TooLarge);
        }
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
        let options = jsonschema::options().offline().should_validate_formats(false).with_pattern_options(patterns);
        let validator = options.build(schema).map_err(|_| Unjudgeable::NotASchema)?;
        Ok(Self { validator, values })
    }

    /// Whether a value fits, and where it does not. One that can't be judged is told apart: unlike a provider, nobody else has checked it.
    pub fn judge(&self, value: &Value) -> Judged {
        if self.values.saturating_mul(size(value)) > WORK_MAX {
            return Judged::TooLarge;
        }
        match self.validator.validate(value) {
            Ok(()) => Judged::Fits,
            Err(error) => Judged::Unfit(Misfit { at: place(&error), keyword: error.kind().keyword().to_owned() }),
        }
    }

    /// Whether a value fits. One that is too large to be judged by this schema does.
    pub fn fits(&self, value: &Value) -> bool {
        self.values.saturating_mul(size(value)) > WORK_MAX || self.validator.is_valid(value)
    }
}

/// Where an error is: of a member that is missing or too many, the member itself.
fn place(error: &ValidationError<'_>) -> String {
    let member = match error.kind() {
        ValidationErrorKind::Required { property } => property.as_str(),
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => unexpected.first().map(String::as_str),
        _ => None,
    };
    let object = error.instance_path().as_str();
    member.map_or_else(|| object.to_owned(), |name| format!("{object}/{}", name.replace('~', "~0").replace('/', "~1")))
}

/// What a part of a schema comes to with every reference put in place.
#[derive(Clone, Copy, Default)]
struct Unfolded {
    values: usize,
    levels: usize,
}

/// Adds up a schema without writing it out: a definition that is referred to is looked at once.
struct Unfolding<'s> {
    schema: &'s Value,
    /// By JSON Pointer; `None` while it is being looked at, so that a circle is found.
    known: BTreeMap<&'s str, Option<Unfolded>>,
    patterns: usize,
}

impl<'s> Unfolding<'s> {
    /// Refused: it refers elsewhere, by a name of its own, or to itself, or is too deep. `above`: levels above it.
    fn unfold(&mut self, value: &'s Value, above: usize) -> Result<Unfolded, Unjudgeable> {
        if above >= LEVELS_MAX {
            return Err(Unjudgeable::TooDeep);
        }
        let mut all = Unfolded { values: 1, levels: 1 };
        let mut add = |part: Unfolded| {
            all.values = all.values.saturating_add(part.values);
            all.levels = all.levels.max(1 + part.levels);
        };
        match value {
            Value::Array(items) => {
                for item in items {
                    add(self.unfold(item, above + 1)?);
                }
            }
            Value::Object(members) => {
                for (name, part) in members {
                    match (name.as_str(), part) {
                        ("$ref", Value::String(to)) => add(self.target(to, above + 1)?),
                        ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                            return Err(Unjudgeable::RefersElsewhere);
                        }
                        ("$id", Value::String(_)) if is_inner(self.schema, members) => {
                            return Err(Unjudgeable::RefersElsewhere);
                        }
                        ("pattern", Value::String(_)) => self.patterns += 1,
                        ("patternProperties", Value::Object(named)) => self.patterns += named.len(),
                        _ => {}
                    }
                    add(self.unfold(part, above + 1)?);
                }
            }
            _ => {}
        }
        if above + all.levels > LEVELS_MAX { Err(Unjudgeable::TooDeep) } else { Ok(all) }
    }

    fn target(&mut self, to: &'s str, above: usize) -> Result<Unfolded, Unjudgeable> {
        // Escapes of URLs would need decoding first; nobody writes them.
        let at = to.strip_prefix('#').filter(|at| (at.is_empty() || at.starts_with('/')) && !at.contains('%'));
        let at = at.ok_or(Unjudgeable::RefersElsewhere)?;
        if let Some(known) = self.known.get(at) {
            let known = known.ok_or(Unjudgeable::Circle)?;
            return if above + known.levels > LEVELS_MAX { Err(Unjudgeable::TooDeep) } else { Ok(known) };
        }
        self.known.insert(at, None);
        let target = self.schema.pointer(at).ok_or(Unjudgeable::RefersElsewhere)?;
        let unfolded = self.unfold(target, above)?;
        self.known.insert(at, Some(unfolded));
        Ok(unfolded)
    }
}

/// Whether an object is another one than the schema's own: there `$id` gives references another root.
fn is_inner(schema: &Value, members: &serde_json::Map<String, Value>) -> bool {
    schema.as_object().is_none_or(|own| !std::ptr::eq(own, members))
}

/// Values within a value, itself included.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

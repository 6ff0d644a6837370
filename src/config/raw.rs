//! A file with every value's type, range and word checked against `keys.rs`, and every node with its place.
//!
//! In: a parsed TOML document. Out: a tree of [`Node`]s in which unknown keys are gone and a bad value is [`Value::Bad`];
//! each was reported here, once, so that `checked/` reads on without repeating it. Depth is bounded by the table (four levels),
//! breadth by the size of the file. Reading the tree is `node.rs`.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};
use toml::value::Datetime;

use crate::clock::UnixMillis;

use super::keys::{self, Default, Key, Kind, State, Word};
use super::nearest;
use super::node::{Item, Node, Value};
use super::problem::{Code, Problems, shown};

/// What is particular to one of several files.
pub(super) struct Scope<'s> {
    /// Offset of its first byte, see [`Problems`].
    pub(super) base: usize,
    /// The tables that an included file may hold; `None`: the config itself, which may hold all.
    pub(super) allow: Option<&'s [&'s str]>,
    /// How many entries of an array of tables the files before it have: indices in keys go on from there.
    pub(super) before: &'s dyn Fn(&str) -> usize,
}

/// Checks one file against the table of keys. What is absent stays absent: see [`complete`].
pub(super) fn read(document: &DeTable<'_>, scope: &Scope<'_>, problems: &mut Problems<'_>) -> Children {
    Walk { problems, scope }.children("", "", document)
}

/// Adds what is absent at the root when all files were read: tables that are always there, and reports of required ones.
pub(super) fn complete(children: Children, problems: &mut Problems<'_>) -> Node {
    let scope = Scope { base: 0, allow: None, before: &|_| 0 };
    Walk { problems, scope: &scope }.complete(0, String::new(), "", children)
}

/// What stands in a table, by name.
pub(super) type Children = BTreeMap<&'static str, Node>;

struct Walk<'w, 'a> {
    problems: &'w mut Problems<'a>,
    scope: &'w Scope<'w>,
}

impl Walk<'_, '_> {
    /// The place of a value in all files.
    fn at<T>(&self, spanned: &Spanned<T>) -> usize {
        self.scope.base + spanned.span().start
    }

    fn table(&mut self, at: usize, key: String, pattern: &'static str, table: &DeTable<'_>) -> Node {
        let children = self.children(&key, pattern, table);
        self.complete(at, key, pattern, children)
    }

    fn children(&mut self, key: &str, pattern: &'static str, table: &DeTable<'_>) -> Children {
        let mut children = BTreeMap::new();
        for (name, value) in table {
            let (child_at, name) = (self.at(name), name.get_ref().as_ref());
            match keys::child(pattern, name) {
                None => {
                    let message = format!("unknown key {}{}", shown(name), suggestion(pattern, name));
                    self.problems.error(Code::UnknownKey, child_at, &join(key, name), message);
                }
                Some(spec) if pattern.is_empty() && self.scope.allow.is_some_and(|all| !all.contains(&spec.name())) => {
                    let allowed = self.scope.allow.unwrap_or_default().join(", ");
                    let message =
                        format!("an included file may not hold `{name}` here; its `include` allows {allowed}");
                    self.problems.error(Code::NotAllowedHere, child_at, &join(key, name), message);
                }
                Some(spec) if spec.state == State::NotBuilt => {
                    let message = format!("this build does not act on `{}` yet; remove it", spec.written());
                    self.problems.error(Code::NotBuiltYet, child_at, &join(key, name), message);
                }
                Some(spec) => {
                    let (child_key, pattern) = (join(key, name), spec.path);
                    let value = self.value(spec, child_at, &child_key, value);
                    children.insert(spec.name(), Node { at: child_at, key: child_key, pattern, value });
                }
            }
        }
        children
    }

    fn complete(&mut self, at: usize, key: String, pattern: &'static str, mut children: Children) -> Node {
        for spec in keys::children(pattern) {
            if children.contains_key(spec.name()) {
                continue;
            }
            match spec.default {
                Default::Required => {
                    let message = format!("`{}` is required: {}", spec.name(), spec.meaning);
                    self.problems.error(Code::MissingKey, at, &join(&key, spec.name()), message);
                }
                Default::Empty => {
                    let empty = self.table(at, join(&key, spec.name()), spec.path, &DeTable::new());
                    children.insert(spec.name(), empty);
                }
                _ => {}
            }
        }
        Node { at, key, pattern, value: Value::Table(children) }
    }

    fn value(&mut self, spec: &'static Key, at: usize, key: &str, value: &Spanned<DeValue<'_>>) -> Value {
        match (spec.kind, value.get_ref()) {
            (Kind::Table, DeValue::Table(table)) => self.table(at, key.to_owned(), spec.path, table).value,
            (Kind::Named, DeValue::Table(table)) => self.named(spec, key, table),
            (Kind::Tables | Kind::RouteOrSplit, DeValue::Array(array)) => self.tables(spec, key, array),
            (Kind::Tables, DeValue::Table(_)) => {
                let message = format!("write [[{0}]] with double brackets: there may be several", spec.path);
                self.problems.error(Code::WrongType, at, key, message);
                Value::Bad
            }
            (Kind::Text | Kind::Secret | Kind::RouteOrSplit, DeValue::String(text)) => {
                if text.is_empty() {
                    self.problems.error(Code::InvalidValue, at, key, "must not be empty");
                    return Value::Bad;
                }
                Value::Text(text.clone().into_owned())
            }
            (Kind::Choice(words), DeValue::String(text)) => {
                if self.word(words, at, key, text) {
                    Value::Text(text.clone().into_owned())
                } else {
                    Value::Bad
                }
            }
            (Kind::Texts | Kind::Secrets | Kind::Choices(_), DeValue::Array(array)) => self.texts(spec, key, array),
            (Kind::Strings, DeValue::Table(table)) => self.strings(spec, key, table),
            (Kind::JsonOrFile, DeValue::String(text)) => Value::Text(text.clone().into_owned()),
            (Kind::JsonOrFile, DeValue::Table(_)) | (Kind::Json, _) => match json(value) {
                Ok(json) => Value::Json(json),
                Err(place) => {
                    let message = "has a date, or a number that JSON cannot carry exactly";
                    self.problems.error(Code::InvalidValue, self.scope.base + place, key, message);
                    Value::Bad
                }
            },
            (Kind::Flag, DeValue::Boolean(flag)) => Value::Flag(*flag),
            (Kind::Int { min, max, unit }, DeValue::Integer(int)) => {
                let int = i128::from_str_radix(int.as_str(), int.radix()).ok();
                match int.and_then(|int| u64::try_from(int).ok()).filter(|int| (min..=max).contains(int)) {
                    Some(int) => Value::Int(int),
                    None => self.out_of_range(at, key, &format!("{min} to {max} {unit}")),
                }
            }
            (Kind::Number { min, max, unit }, DeValue::Integer(_) | DeValue::Float(_)) => {
                match decimal(value.get_ref()).filter(|number| (min..=max).contains(number)) {
                    Some(number) => Value::Number(number),
                    None => self.out_of_range(at, key, &format!("{min} to {max} {unit}")),
                }
            }
            (Kind::Date, DeValue::Datetime(when)) => self.date(at, key, when),
            (_, other) => {
                self.wrong_type(at, key, &expected(spec), other);
                Value::Bad
            }
        }
    }

    fn named(&mut self, spec: &'static Key, key: &str, table: &DeTable<'_>) -> Value {
        let mut all = BTreeMap::new();
        for (name, value) in table {
            let (at, name) = (self.at(name), name.get_ref().as_ref());
            let key = join(key, name);
            if !is_name(name) {
                self.problems.error(Code::InvalidName, at, &key, "a name is 1–64 of A-Z a-z 0-9 _ - .");
            }
            match value.get_ref() {
                DeValue::Table(table) => {
                    all.insert(name.to_owned(), self.table(at, key, spec.path, table));
                }
                other => {
                    self.wrong_type(at, &key, &format!("a table: write [{}.NAME]", spec.path), other);
                    all.insert(name.to_owned(), Node { at, key, pattern: spec.path, value: Value::Bad });
                }
            }
        }
        Value::Named(all)
    }

    /// Names here are header fields, which may be longer and hold other characters than ours: whoever reads them checks them.
    fn strings(&mut self, spec: &'static Key, key: &str, table: &DeTable<'_>) -> Value {
        let mut all = BTreeMap::new();
        for (name, value) in table {
            let (at, name) = (self.at(name), name.get_ref().as_ref());
            let key = join(key, name);
            let value = if let DeValue::String(text) = value.get_ref() {
                Value::Text(text.clone().into_owned())
            } else {
                self.wrong_type(at, &key, "a string", value.get_ref());
                Value::Bad
            };
            all.insert(name.to_owned(), Node { at, key, pattern: spec.path, value });
        }
        Value::Named(all)
    }

    fn tables(&mut self, spec: &'static Key, key: &str, array: &DeArray<'_>) -> Value {
        let mut all = Vec::new();
        let before = (self.scope.before)(spec.path);
        for (index, entry) in array.iter().enumerate() {
            let (at, key) = (self.at(entry), format!("{key}[{}]", before + index));
            match entry.get_ref() {
                DeValue::Table(table) => all.push(self.table(at, key, spec.path, table)),
                other => self.wrong_type(at, &key, "a table", other),
            }
        }
        Value::Tables(all)
    }

    fn texts(&mut self, spec: &'static Key, key: &str, array: &DeArray<'_>) -> Value {
        let mut items = Vec::new();
        let mut good = true;
        for (index, entry) in array.iter().enumerate() {
            let (at, key) = (self.at(entry), format!("{key}[{index}]"));
            let DeValue::String(text) = entry.get_ref() else {
                self.wrong_type(at, &key, "a string", entry.get_ref());
                good = false;
                continue;
            };
            if let Kind::Choices(words) = spec.kind {
                good &= self.word(words, at, &key, text);
            } else if text.is_empty() {
                self.problems.error(Code::InvalidValue, at, &key, "must not be empty");
                good = false;
            }
            items.push(Item { at, text: text.clone().into_owned() });
        }
        if good { Value::Texts(items) } else { Value::Bad }
    }

    fn date(&mut self, at: usize, key: &str, when: &Datetime) -> Value {
        let (Some(date), None, None) = (when.date, when.time, when.offset) else {
            self.problems.error(Code::WrongType, at, key, "expects a date alone, such as 2027-03-31 (UTC days)");
            return Value::Bad;
        };
        match start_of_day(date) {
            Some(start) => Value::Date(start),
            None => self.out_of_range(at, key, "a day of the calendar, from 1970 on"),
        }
    }

    fn word(&mut self, words: &[Word], at: usize, key: &str, text: &str) -> bool {
        match words.iter().find(|word| word.0 == text) {
            Some(Word(_, true)) => true,
            Some(Word(word, false)) => {
                let message = format!("`{word}` is not built yet; this build has {}", list(words));
                self.problems.error(Code::NotBuiltYet, at, key, message);
                false
            }
            None => {
                let hint = nearest::hint(text, words.iter().map(|word| word.0));
                let message = format!("{} is none of {}{hint}", shown(text), list(words));
                self.problems.error(Code::InvalidValue, at, key, message);
                false
            }
        }
    }

    fn wrong_type(&mut self, at: usize, key: &str, expected: &str, found: &DeValue<'_>) {
        self.problems.error(Code::WrongType, at, key, format!("expects {expected}, found {}", found.type_str()));
    }

    fn out_of_range(&mut self, at: usize, key: &str, range: &str) -> Value {
        self.problems.error(Code::OutOfRange, at, key, format!("must be {}", range.trim_end()));
        Value::Bad
    }
}

fn expected(spec: &Key) -> String {
    match spec.kind {
        Kind::Choice(words) => format!("one of {}", list(words)),
        Kind::Choices(words) => format!("an array of {}", list(words)),
        Kind::Int { .. } => "an integer".into(),
        Kind::Number { .. } => "a number".into(),
        Kind::Date => "a date such as 2027-03-31, without quotes".into(),
        Kind::Named => format!("tables: write [{}.NAME]", spec.path),
        _ => format!("type {}", spec.type_text()),
    }
}

/// The built words, or all where none of them is.
fn list(words: &[Word]) -> String {
    words.iter().filter(|word| word.1).map(|word| word.0).collect::<Vec<_>>().join(", ")
}

/// A near name here, or the table in which that name belongs.
fn suggestion(pattern: &str, name: &str) -> String {
    let near = nearest::hint(name, keys::children(pattern).map(Key::name));
    if !near.is_empty() {
        return near;
    }
    let elsewhere = keys::KEYS.iter().find(|key| key.name() == name && key.state != State::NotBuilt);
    let belongs =
        elsewhere.and_then(|key| key.written().rsplit_once('.').map(|(table, _)| format!("; it belongs in [{table}]")));
    belongs.unwrap_or_default()
}

fn join(parent: &str, name: &str) -> String {
    let bare =
        !name.is_empty() && name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    let name = if bare && !super::problem::looks_secret(name) { name } else { "(not shown)" };
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}

/// Names stand in headers, metrics and paths, so they are kept to characters that are safe in all of them.
pub(super) fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

fn decimal(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(float) => float.as_str().parse().ok(),
        #[allow(clippy::cast_precision_loss, reason = "prices in dollars; 2^53 of them are enough")]
        DeValue::Integer(int) => i64::from_str_radix(int.as_str(), int.radix()).ok().map(|int| int as f64),
        _ => None,
    }
}

/// A TOML value as JSON, or where it has none: dates, `nan`, `inf`, integers beyond 64 bits.
fn json(value: &Spanned<DeValue<'_>>) -> Result<serde_json::Value, usize> {
    use serde_json::Value as Json;
    let no = || value.span().start;
    Ok(match value.get_ref() {
        DeValue::String(text) => Json::String(text.clone().into_owned()),
        DeValue::Integer(int) => {
            let int = i128::from_str_radix(int.as_str(), int.radix()).map_err(|_| no())?;
            Json::Number(serde_json::Number::from_i128(int).ok_or_else(no)?)
        }
        DeValue::Float(_) => {
            let float = decimal(value.get_ref()).and_then(serde_json::Number::from_f64);
            Json::Number(float.ok_or_else(no)?)
        }
        DeValue::Boolean(flag) => Json::Bool(*flag),
        DeValue::Datetime(_) => return Err(no()),
        DeValue::Array(items) => Json::Array(items.iter().map(json).collect::<Result<_, _>>()?),
        DeValue::Table(table) => {
            let member = |(name, value): (&Spanned<_>, &_)| -> Result<(String, Json), usize> {
                let name: &std::borrow::Cow<'_, str> = name.get_ref();
                Ok((name.clone().into_owned(), json(value)?))
            };
            Json::Object(table.iter().map(member).collect::<Result<_, _>>()?)
        }
    })
}

fn start_of_day(date: toml::value::Date) -> Option<UnixMillis> {
    let (year, month, day) =
        (i16::try_from(date.year).ok()?, i8::try_from(date.month).ok()?, i8::try_from(date.day).ok()?);
    let date = jiff::civil::Date::new(year, month, day).ok()?;
    let since = date.duration_since(jiff::civil::Date::new(1970, 1, 1).ok()?);
    u64::try_from(since.as_millis()).ok().map(UnixMillis)
}

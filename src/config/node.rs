//! The config as a checked tree: what was written, with its place, and getters that know the table's defaults.
//!
//! Made by `raw.rs`, read by `checked/`. A value that was wrong is [`Value::Bad`] and was reported; its getter says what it says
//! of an absent one. Nothing here prints: a node may hold a key that somebody wrote inline, so there is no `Debug`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::UnixMillis;

use super::keys::{self, Default};

/// A key's value and its place.
pub(super) struct Node {
    /// Byte offset of the key (of the item, in arrays).
    pub(super) at: usize,
    /// The key as reported: `route.main.timeouts`.
    pub(super) key: String,
    /// The key's path in the table.
    pub(super) pattern: &'static str,
    /// What was written.
    pub(super) value: Value,
}

/// A value of the type that the table of keys asks for.
pub(super) enum Value {
    /// There, wrong, and reported.
    Bad,
    /// A string or word.
    Text(String),
    /// An array of strings.
    Texts(Vec<Item>),
    /// A boolean.
    Flag(bool),
    /// An integer within its range.
    Int(u64),
    /// A decimal number within its range.
    Number(f64),
    /// A day, its first millisecond in UTC.
    Date(UnixMillis),
    /// What JSON has.
    Json(serde_json::Value),
    /// A table: what was written of it.
    Table(BTreeMap<&'static str, Node>),
    /// Tables by names that the user chose.
    Named(BTreeMap<String, Node>),
    /// An array of tables.
    Tables(Vec<Node>),
}

/// An entry of an array of strings.
pub(super) struct Item {
    /// Byte offset.
    pub(super) at: usize,
    /// The string.
    pub(super) text: String,
}

impl Node {
    fn child(&self, name: &str) -> Option<&Node> {
        debug_assert!(keys::child(self.pattern, name).is_some(), "{}.{name} is not in the table", self.pattern);
        match &self.value {
            Value::Table(children) => children.get(name),
            _ => None,
        }
    }

    fn default(&self, name: &str) -> Option<Default> {
        keys::child(self.pattern, name).map(|key| key.default)
    }

    /// The reported key of a child, whether it is there or not.
    pub(super) fn key_of(&self, name: &str) -> String {
        if self.key.is_empty() { name.to_owned() } else { format!("{}.{name}", self.key) }
    }

    /// Where a child stands; this node's place when it is absent.
    pub(super) fn at_of(&self, name: &str) -> usize {
        self.child(name).map_or(self.at, |child| child.at)
    }

    /// Whether the child is written down, good or bad.
    pub(super) fn has(&self, name: &str) -> bool {
        self.child(name).is_some()
    }

    /// A string or word; the table's default when it is absent or bad.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match (self.child(name).map(|child| &child.value), self.default(name)) {
            (Some(Value::Text(text)), _) => Some(text),
            (_, Some(Default::Text(text))) => Some(text),
            _ => None,
        }
    }

    /// An owned string.
    pub(super) fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    /// An array of strings, with places; `None` when it is absent or bad.
    pub(super) fn items(&self, name: &str) -> Option<&[Item]> {
        match self.child(name).map(|child| &child.value) {
            Some(Value::Texts(items)) => Some(items),
            _ => None,
        }
    }

    /// An array of strings.
    pub(super) fn texts(&self, name: &str) -> Option<Vec<String>> {
        self.items(name).map(|items| items.iter().map(|item| item.text.clone()).collect())
    }

    /// A flag; the table's default when it is absent or bad.
    pub(super) fn flag(&self, name: &str) -> bool {
        match (self.child(name).map(|child| &child.value), self.default(name)) {
            (Some(Value::Flag(flag)), _) => *flag,
            (_, Some(Default::Flag(flag))) => flag,
            _ => false,
        }
    }

    /// An integer or the table's default.
    pub(super) fn opt_int(&self, name: &str) -> Option<u64> {
        match (self.child(name).map(|child| &child.value), self.default(name)) {
            (Some(Value::Int(int)), _) => Some(*int),
            (_, Some(Default::Int(int))) => Some(int),
            _ => None,
        }
    }

    /// An integer of a key that has a default.
    pub(super) fn int(&self, name: &str) -> u64 {
        debug_assert!(matches!(self.default(name), Some(Default::Int(_))), "{}.{name} has no default", self.pattern);
        self.opt_int(name).unwrap_or(0)
    }

    /// An integer of bounded range as a size.
    pub(super) fn size(&self, name: &str) -> usize {
        usize::try_from(self.int(name)).unwrap_or(usize::MAX)
    }

    /// Milliseconds of a key that has a default.
    pub(super) fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(self.int(name))
    }

    /// Milliseconds.
    pub(super) fn opt_millis(&self, name: &str) -> Option<Duration> {
        self.opt_int(name).map(Duration::from_millis)
    }

    /// A decimal number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        match self.child(name).map(|child| &child.value) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A day's first millisecond.
    pub(super) fn date(&self, name: &str) -> Option<UnixMillis> {
        match self.child(name).map(|child| &child.value) {
            Some(Value::Date(date)) => Some(*date),
            _ => None,
        }
    }

    /// A JSON value.
    pub(super) fn json(&self, name: &str) -> Option<&serde_json::Value> {
        match self.child(name).map(|child| &child.value) {
            Some(Value::Json(json)) => Some(json),
            _ => None,
        }
    }

    /// This node's own string, for tables of strings.
    pub(super) fn own_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A table; `None` when it is absent or bad.
    pub(super) fn table(&self, name: &str) -> Option<&Node> {
        self.child(name).filter(|child| matches!(child.value, Value::Table(_)))
    }

    /// Tables by name, in order of their names. Those that are bad as a whole are left out.
    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = (&str, &Node)> {
        let all = match self.child(name).map(|child| &child.value) {
            Some(Value::Named(all)) => Some(all),
            _ => None,
        };
        all.into_iter().flatten().map(|(name, node)| (name.as_str(), node))
    }

    /// Whether the child is an array of tables, be it empty.
    pub(super) fn is_tables(&self, name: &str) -> bool {
        self.child(name).is_some_and(|child| matches!(child.value, Value::Tables(_)))
    }

    /// An array of tables.
    pub(super) fn tables(&self, name: &str) -> &[Node] {
        match self.child(name).map(|child| &child.value) {
            Some(Value::Tables(all)) => all,
            _ => &[],
        }
    }

    /// Calls `see` with key and offset of this node and all below.
    pub(super) fn each(&self, see: &mut dyn FnMut(&str, usize)) {
        see(&self.key, self.at);
        match &self.value {
            Value::Table(all) => all.values().for_each(|node| node.each(see)),
            Value::Named(all) => all.values().for_each(|node| node.each(see)),
            Value::Tables(all) => all.iter().for_each(|node| node.each(see)),
            _ => {}
        }
    }
}

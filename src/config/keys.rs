//! Every key that a config may hold, in one table: its type and range, its default, what it means, and whether this build
//! acts on it. Unknown-key detection, type checks, defaults and `KEYS.md` all come from here, so they cannot disagree.
//!
//! Paths are without names and indices: `provider.kind` is `kind` in every `[provider.NAME]`. The rows themselves are in
//! `keys_table.rs`. What needs more than one value (names that must resolve, dates in order) is `checked/`'s business.

pub(super) use super::keys_table::KEYS;

/// One row.
#[derive(Debug)]
pub(super) struct Key {
    /// Path without names and indices.
    pub(super) path: &'static str,
    /// Type and range.
    pub(super) kind: Kind,
    /// What holds when it is absent.
    pub(super) default: Default,
    /// Whether this build acts on it.
    pub(super) state: State,
    /// For people.
    pub(super) meaning: &'static str,
}

/// Type and range of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A table with the keys below it.
    Table,
    /// Tables by name: `[provider.NAME]`.
    Named,
    /// An array of tables: `[[client]]`.
    Tables,
    /// A non-empty string.
    Text,
    /// Non-empty strings.
    Texts,
    /// A route's name, or an array of tables with the keys below it: a planned split.
    RouteOrSplit,
    /// `env:NAME` or `file:PATH`.
    Secret,
    /// Several of them.
    Secrets,
    /// true or false.
    Flag,
    /// An integer in an inclusive range.
    Int {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
        /// `ms`, `bytes` … or empty.
        unit: &'static str,
    },
    /// A decimal number in an inclusive range; integers are accepted.
    Number {
        /// Least.
        min: f64,
        /// Most.
        max: f64,
        /// `USD` …
        unit: &'static str,
    },
    /// A TOML local date.
    Date,
    /// One of these words.
    Choice(&'static [Word]),
    /// Several of these words.
    Choices(&'static [Word]),
    /// A table of strings by names that are none of this table's: header fields.
    Strings,
    /// Any value that JSON has.
    Json,
    /// `file:PATH`, or any table that JSON has.
    JsonOrFile,
    /// Not looked at (not built yet); the text names the type for the documentation.
    Opaque(&'static str),
}

/// A word of a choice, and whether this build acts on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word(pub(super) &'static str, pub(super) bool);

/// What holds when a key is absent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Default {
    /// It must be there.
    Required,
    /// Nothing; the text says what that means.
    Absent(&'static str),
    /// A table that is always there, with its keys' defaults.
    Empty,
    /// An integer.
    Int(u64),
    /// A flag.
    Flag(bool),
    /// A word.
    Text(&'static str),
}

/// Whether this build acts on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Read and used.
    Acted,
    /// Refused with `not_built_yet`, with everything below it.
    NotBuilt,
}

/// The keys directly below `parent` (the root: empty).
pub(super) fn children(parent: &str) -> impl Iterator<Item = &'static Key> + '_ {
    KEYS.iter().filter(move |key| last_segment_below(parent, key.path).is_some())
}

/// The key `name` directly below `parent`.
pub(super) fn child(parent: &str, name: &str) -> Option<&'static Key> {
    children(parent).find(|key| key.name() == name)
}

fn last_segment_below<'p>(parent: &str, path: &'p str) -> Option<&'p str> {
    let rest = if parent.is_empty() { path } else { path.strip_prefix(parent)?.strip_prefix('.')? };
    (!rest.contains('.')).then_some(rest)
}

impl Key {
    /// The last part of the path.
    pub(super) fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// The path as written in documents: `provider.NAME.kind`, `client[].name`.
    pub(super) fn written(&self) -> String {
        let mut written = String::new();
        let mut above = String::new();
        for part in self.path.split('.') {
            if !above.is_empty() {
                above.push('.');
                written.push('.');
            }
            above.push_str(part);
            written.push_str(part);
            let is_leaf = above == self.path;
            match KEYS.iter().find(|key| key.path == above).map(|key| key.kind) {
                Some(Kind::Named) if !is_leaf => written.push_str(".NAME"),
                Some(Kind::Tables | Kind::RouteOrSplit) if !is_leaf => written.push_str("[]"),
                _ => {}
            }
        }
        written
    }

    /// Type, range and words, for documents and messages.
    pub(super) fn type_text(&self) -> String {
        let words = |words: &[Word]| words.iter().map(|word| format!("`{}`", word.0)).collect::<Vec<_>>().join(", ");
        match self.kind {
            Kind::Table => "table".into(),
            Kind::Named => "tables by name".into(),
            Kind::Tables => "array of tables".into(),
            Kind::Text => "string".into(),
            Kind::RouteOrSplit => "string, or array of tables".into(),
            Kind::Texts => "array of strings".into(),
            Kind::Secret => "`env:NAME` or `file:PATH`".into(),
            Kind::Secrets => "array of `env:NAME` or `file:PATH`".into(),
            Kind::Flag => "boolean".into(),
            Kind::Int { min, max, .. } => format!("integer, {min}–{max}"),
            Kind::Number { min, max, .. } => format!("number, {min}–{max}"),
            Kind::Date => "date".into(),
            Kind::Choice(list) => format!("one of {}", words(list)),
            Kind::Choices(list) => format!("array of {}", words(list)),
            Kind::Strings => "table of strings".into(),
            Kind::Json => "any value".into(),
            Kind::JsonOrFile => "table, or `file:PATH`".into(),
            Kind::Opaque(text) => text.into(),
        }
    }

    /// The unit, where there is one.
    pub(super) fn unit(&self) -> &'static str {
        match self.kind {
            Kind::Int { unit, .. } | Kind::Number { unit, .. } => unit,
            Kind::Date => "day (UTC)",
            _ => "",
        }
    }

    /// The default, for documents.
    pub(super) fn default_text(&self) -> String {
        match self.default {
            Default::Required => "**required**".into(),
            Default::Absent(meaning) => meaning.into(),
            Default::Empty => "its keys' defaults".into(),
            Default::Int(value) => value.to_string(),
            Default::Flag(value) => value.to_string(),
            Default::Text(value) => format!("`{value}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_unique_and_have_parents_that_are_tables() {
        let mut seen = std::collections::BTreeSet::new();
        for key in KEYS {
            assert!(seen.insert(key.path), "{} twice", key.path);
            if let Some((parent, _)) = key.path.rsplit_once('.') {
                let parent = KEYS.iter().find(|key| key.path == parent).expect(key.path);
                let is_table = matches!(parent.kind, Kind::Table | Kind::Named | Kind::Tables | Kind::RouteOrSplit);
                assert!(is_table, "{}", key.path);
            }
        }
    }

    #[test]
    fn defaults_fit_their_types() {
        for key in KEYS {
            let fits = match (key.kind, key.default) {
                (Kind::Int { min, max, .. }, Default::Int(value)) => (min..=max).contains(&value),
                (Kind::Choice(words), Default::Text(value)) => words.iter().any(|word| word.0 == value && word.1),
                (Kind::Flag, Default::Flag(_)) | (Kind::Text, Default::Text(_)) | (Kind::Table, Default::Empty) => true,
                (_, Default::Required | Default::Absent(_)) => true,
                _ => false,
            };
            assert!(fits, "{}", key.path);
        }
    }

    #[test]
    fn written_paths_show_names_and_arrays() {
        for (path, written) in [
            ("provider.kind", "provider.NAME.kind"),
            ("client.keys", "client[].keys"),
            ("workflow.primary.weight", "workflow.NAME.primary[].weight"),
            ("workflow.envelope.max_attempts", "workflow.NAME.envelope.max_attempts"),
            ("server.listen", "server.listen"),
        ] {
            assert_eq!(KEYS.iter().find(|key| key.path == path).map(Key::written).as_deref(), Some(written));
        }
    }
}

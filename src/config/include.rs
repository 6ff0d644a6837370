//! `include = [{ path = "workflows/*.toml", allow = ["workflow"] }]`: further files, each with nothing but what it is allowed.
//!
//! In: the config's own tables and a way to read files. Out: the same tables with those of the included files in them, or
//! problems with their places. The platform team writes the `include`; what an application team writes in its own file can't grant
//! itself an approval or a route, because the allowed tables are named in the file that it does not own.
//!
//! Paths start at the config's folder, and so do all paths written in an included file: who moves a workflow between files moves
//! no secret. One `*` or more in the last part of a path match any characters, but no leading dot (editors' and Kubernetes' hidden
//! entries); files are taken in the order of their names. An included file includes nothing.

use std::io;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::node::{Node, Value};
use super::problem::{Code, Problems, shown};
use super::raw::{self, Children, Scope};
use super::{reason, syntax};

/// Files included in all. A config is read by people; more would be a database.
pub(super) const FILES_MAX: usize = 256;
/// Bytes of all included files; each is also bounded like the config itself.
pub(super) const BYTES_MAX: usize = 8 << 20;
/// Entries looked at in a folder that a pattern names: one with more is another folder named by mistake.
pub(super) const ENTRIES_MAX: usize = 10_000;

/// Reads what an `include` names.
pub(super) trait Files {
    /// A file's text, bounded by [`super::CONFIG_BYTES_MAX`].
    ///
    /// # Errors
    /// When it can't be read, is no regular file, too large or not UTF-8.
    fn text(&self, path: &Path) -> io::Result<String>;

    /// The names of what is in a folder, at most [`ENTRIES_MAX`]; those that are not UTF-8 are left out.
    ///
    /// # Errors
    /// When it can't be read or has more entries.
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;
}

/// What has no files: texts in tests and the demo.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoFiles;

impl Files for NoFiles {
    fn text(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn names(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::NotFound.into())
    }
}

/// Adds the tables of all included files to those of the config, whose path is `main`.
pub(super) fn add_all(root: &mut Children, main: &Path, files: &dyn Files, problems: &mut Problems<'_>) {
    let Some(Node { value: Value::Tables(includes), .. }) = root.remove("include") else { return };
    let mut reading = Reading { main, files, problems, taken: Vec::new(), bytes: 0 };
    for include in &includes {
        let allow: Vec<&str> =
            include.items("allow").unwrap_or_default().iter().map(|item| item.text.as_str()).collect();
        if include.items("allow").is_some_and(<[_]>::is_empty) {
            let message = "an include that allows nothing has nothing to give";
            reading.problems.error(Code::InvalidValue, include.at_of("allow"), &include.key_of("allow"), message);
        }
        let Some(path) = include.text("path") else { continue };
        if allow.is_empty() {
            continue; // Absent, empty or wrong: reported. To read the files would call all their tables forbidden.
        }
        for name in reading.matches(include, path) {
            if !reading.one(include, &name, &allow, root) {
                return;
            }
        }
    }
}

struct Reading<'r, 'p> {
    main: &'r Path,
    files: &'r dyn Files,
    problems: &'r mut Problems<'p>,
    /// Paths of the files taken so far.
    taken: Vec<PathBuf>,
    bytes: usize,
}

impl Reading<'_, '_> {
    fn folder(&self) -> &Path {
        self.main.parent().unwrap_or(Path::new(""))
    }

    fn refuse(&mut self, include: &Node, code: Code, message: String) {
        self.problems.error(code, include.at_of("path"), &include.key_of("path"), message);
    }

    /// The files that a path names, relative to the config's folder.
    fn matches(&mut self, include: &Node, path: &str) -> Vec<String> {
        let (folder, pattern) = path.rsplit_once('/').map_or(("", path), |(folder, last)| (folder, last));
        if folder.contains('*') || pattern.is_empty() {
            let message = "expects a file's path; `*` may stand in its last part only".to_owned();
            self.refuse(include, Code::InvalidValue, message);
            return Vec::new();
        }
        if !pattern.contains('*') {
            return vec![path.to_owned()];
        }
        let below = if path.starts_with('/') && folder.is_empty() { "/" } else { folder };
        let names = match self.files.names(&self.folder().join(below)) {
            Ok(names) => names,
            Err(error) => {
                let message = format!("the folder cannot be read: {} (paths start at the config's)", reason(&error));
                self.refuse(include, Code::ConfigUnreadable, message);
                return Vec::new();
            }
        };
        let mut found: Vec<String> = names.into_iter().filter(|name| fits(pattern, name)).collect();
        if found.is_empty() {
            let message = "no file matches: nothing is included";
            self.problems.warning(Code::IncludeEmpty, include.at_of("path"), &include.key_of("path"), message);
        }
        found.sort();
        let prefix = path.strip_suffix(pattern).unwrap_or_default();
        found.into_iter().map(|name| format!("{prefix}{name}")).collect()
    }

    /// Reads one file. `false`: a bound was reached, and nothing more is read.
    fn one(&mut self, include: &Node, name: &str, allow: &[&str], root: &mut Children) -> bool {
        let path = self.folder().join(name);
        if path == self.main || self.taken.contains(&path) {
            let what = if path == self.main { "is the config itself" } else { "is included already" };
            self.refuse(include, Code::Duplicate, format!("{} {what}", shown(name)));
            return true;
        }
        if self.taken.len() == FILES_MAX {
            self.refuse(include, Code::ConfigUnreadable, format!("over {FILES_MAX} included files"));
            return false;
        }
        self.taken.push(path.clone());
        let text = match self.files.text(&path) {
            Ok(text) => text,
            Err(error) => {
                let why = reason(&error);
                let message = format!("{} cannot be read: {why} (paths start at the config's folder)", shown(name));
                self.refuse(include, Code::ConfigUnreadable, message);
                return true;
            }
        };
        self.bytes += text.len();
        if self.bytes > BYTES_MAX {
            self.refuse(include, Code::ConfigUnreadable, format!("over {BYTES_MAX} bytes of included files"));
            return false;
        }
        let base = self.problems.add(path.display().to_string(), text.clone());
        let (document, errors) = DeTable::parse_recoverable(&text);
        syntax(&errors, base, self.problems);
        let before = |path: &str| match root.get(path).map(|node| &node.value) {
            Some(Value::Tables(all)) => all.len(),
            _ => 0,
        };
        let scope = Scope { base, allow: Some(allow), before: &before };
        let children = raw::read(document.get_ref(), &scope, self.problems);
        self.merge(root, children);
        true
    }

    /// Adds a file's tables. Included files hold tables by name and arrays of tables only.
    fn merge(&mut self, root: &mut Children, children: Children) {
        for (name, node) in children {
            let Some(known) = root.get_mut(name) else {
                root.insert(name, node);
                continue;
            };
            match (&mut known.value, node.value) {
                (Value::Named(all), Value::Named(more)) => {
                    for (name, node) in more {
                        if let Some(first) = all.get(&name) {
                            let place = self.problems.written_place(first.at);
                            let message = format!("{} stands in {place}, too", shown(&name));
                            self.problems.error(Code::Duplicate, node.at, &node.key, message);
                        } else {
                            all.insert(name, node);
                        }
                    }
                }
                (Value::Tables(all), Value::Tables(more)) => all.extend(more),
                // One of them is wrong and was reported.
                _ => {}
            }
        }
    }
}

/// Whether a name fits a pattern in which `*` stands for any characters, or none.
fn fits(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", false),
            ("*.toml", ".a.toml", false),
            (".*", ".a", true),
            ("*.toml", "a.toml.bak", false),
            ("a*.toml", "a.toml", true),
            ("a*.toml", "b.toml", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*", "anything", true),
            ("**", "anything", true),
            ("a", "a", true),
            ("a", "ab", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}

//! The configuration: a TOML file in, complete and consistent [`settings`] out, or *all* problems with file, line and key.
//!
//! Stages: TOML (`toml`, several syntax errors at once) → `raw.rs` (every value against the table of keys, `keys.rs`) →
//! `checked/` (names resolve, secrets are read, values agree with each other) → [`Settings`]. What `check`
//! says beyond that (a config may load and still hold a failover that can never act) is the room [`check`](crate::check)'s. `KEYS.md` documents every key.
//!
//! [`parse`] is pure: environment and files come in through [`Sources`]. Only [`load`] touches the disk.
//! Not here: loading anew on SIGHUP.

mod checked;
mod keys;
mod keys_doc;
mod keys_table;
mod nearest;
mod node;
pub mod outside;
pub mod passthrough;
mod problem;
mod raw;
pub mod secret;
pub mod settings;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod token_file;

use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;

use toml::de::DeTable;

use crate::clock::UnixMillis;

pub use keys_doc::render as keys_markdown;
pub(crate) use problem::shown;
pub use problem::{Code, PROBLEMS_MAX, Problem, Severity};
use problem::{Places, Problems};
use settings::Settings;

/// Largest config file. A config is written by people; what is larger is another file named by mistake.
pub const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// Largest secret file: a head of 64 KiB could not carry more anyway.
pub const SECRET_BYTES_MAX: u64 = 64 << 10;

/// A config without errors.
#[derive(Debug)]
pub struct Loaded {
    /// What it says.
    pub settings: Settings,
    /// What is probably not meant.
    pub warnings: Vec<Problem>,
    places: Places,
}

impl Loaded {
    /// Where a key stands: file, line and column; those of the nearest key above it when it is not written down, line and column 0
    /// where nothing of it is.
    pub fn place(&self, key: &str) -> (String, usize, usize) {
        let (line, column) = self.places.of(key);
        (self.places.file.clone(), line, column)
    }
}

/// Where values outside the text come from.
pub struct Sources<'s> {
    /// The config file's folder: relative paths start here.
    pub folder: &'s Path,
    /// The environment.
    pub env: &'s dyn Fn(&str) -> Option<String>,
    /// Reads a secret's file, bounded by [`SECRET_BYTES_MAX`].
    pub read: &'s dyn Fn(&Path) -> io::Result<String>,
    /// Now, to tell future dates.
    pub now: UnixMillis,
    /// Whether the log goes to a terminal (the default of `log.format`).
    pub terminal: bool,
}

/// Reads and checks the file at `path`.
///
/// # Errors
/// All problems found, warnings included, when at least one is an error.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>, now: UnixMillis) -> Result<Loaded, Vec<Problem>> {
    let file = path.display().to_string();
    let folder = path.parent().unwrap_or(Path::new(""));
    match read_bounded(path, CONFIG_BYTES_MAX) {
        Ok(text) => {
            let terminal = io::stderr().is_terminal();
            parse(&text, &file, &Sources { folder, env, read: &read_secret_file, now, terminal })
        }
        Err(error) => {
            let message = format!("cannot be read: {}", reason(&error));
            let (severity, code, key) = (Severity::Error, Code::ConfigUnreadable, String::new());
            Err(vec![Problem { severity, file, line: 0, column: 0, key, code, message }])
        }
    }
}

/// Checks a config's text; `file` is how problems name it.
///
/// # Errors
/// All problems found, warnings included, when at least one is an error.
pub fn parse(text: &str, file: &str, sources: &Sources<'_>) -> Result<Loaded, Vec<Problem>> {
    let mut problems = Problems::new(file, text);
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        let at = error.span().map_or(0, |span| span.start);
        problems.error(Code::Syntax, at, "", format!("not TOML: {}", error.message()));
    }
    let root = raw::read(document.get_ref(), &mut problems);
    let settings = checked::build(&root, &mut problems, sources);
    let mut places = Places { file: file.to_owned(), ..Places::default() };
    root.each(&mut |key, at| {
        places.by_key.insert(key.to_owned(), problems.place(at));
    });
    let mut list = problems.finish();
    if !syntax_errors.is_empty() {
        drop_followers(&mut list);
    }
    match settings {
        Some(settings) if list.iter().all(|problem| problem.severity != Severity::Error) => {
            Ok(Loaded { settings, warnings: list, places })
        }
        _ => Err(list),
    }
}

/// After a syntax error the parser has guessed. What stands on the same line, and what depends on the rest of the file being
/// understood, would mislead; what is wrong with single values elsewhere stays.
fn drop_followers(list: &mut Vec<Problem>) {
    let broken: Vec<usize> = list.iter().filter(|problem| problem.code == Code::Syntax).map(|p| p.line).collect();
    list.retain(|problem| match problem.code {
        Code::Syntax | Code::TooManyProblems => true,
        Code::UnknownKey
        | Code::NotBuiltYet
        | Code::WrongType
        | Code::OutOfRange
        | Code::InvalidValue
        | Code::SecretInline => !broken.contains(&problem.line),
        _ => false,
    });
}

fn read_secret_file(path: &Path) -> io::Result<String> {
    read_bounded(path, SECRET_BYTES_MAX)
}

/// Reads a regular file. Anything else is refused before it is opened: to open a pipe without a writer waits for ever, and a
/// device may never end.
fn read_bounded(path: &Path, max: u64) -> io::Result<String> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "a folder"));
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "not a regular file"));
    }
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    let read = file.take(max + 1).read_to_string(&mut text)?;
    if read as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too large"));
    }
    Ok(text)
}

/// Why a file cannot be read, without the operating system's text (which may hold a path).
fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file",
        io::ErrorKind::PermissionDenied => "permission denied",
        io::ErrorKind::InvalidData => "it is not UTF-8",
        io::ErrorKind::FileTooLarge => "it is too large",
        io::ErrorKind::IsADirectory => "it is a folder",
        io::ErrorKind::Unsupported => "it is not a regular file",
        _ => "the operating system refused",
    }
}

//! The configuration: a TOML file in, complete and consistent [`settings`] out, or *all* problems with file, line and key.
//!
//! Stages: TOML (`toml`, several syntax errors at once) → `raw.rs` (every value against the table of keys, `keys.rs`) →
//! `checked/` (names resolve, secrets are read, values agree with each other) → [`Settings`]. What `check`
//! says beyond that (a config may load and still hold a failover that can never act) is the room [`check`](crate::check)'s. `KEYS.md` documents every key.
//!
//! [`parse`] is pure: environment and files come in through [`Sources`]. Only [`load`] touches the disk (`disk.rs`), further files
//! included (`include.rs`). [`changes()`] tells what differs between two loads; when to load anew is `serve`'s business.

mod changes;
mod checked;
mod disk;
mod include;
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

pub use changes::{Changes, changes, keep_what_needs_a_restart};
use disk::Disk;
pub use disk::Seen;
use include::{Files, NoFiles};
pub use keys_doc::render as keys_markdown;
pub(crate) use problem::shown;
pub use problem::{Code, PROBLEMS_MAX, Problem, Severity};
use problem::{Places, Problems};
use raw::Scope;
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
    /// One hash of all secrets' values, to see that one changed; `None` where they did not come from [`load`].
    pub secrets: Option<blake3::Hash>,
    places: Places,
}

impl Loaded {
    /// Where a key stands: file, line and column; those of the nearest key above it when it is not written down, line and column 0
    /// where nothing of it is.
    pub fn place(&self, key: &str) -> (String, usize, usize) {
        let (line, column) = self.places.of(key);
        (self.places.file_of(key).to_owned(), line, column)
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

/// Reads and checks the file at `path`, and what it includes.
///
/// # Errors
/// All problems found, warnings included, when at least one is an error.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>, now: UnixMillis) -> Result<Loaded, Vec<Problem>> {
    load_seen(path, env, now).0
}

/// [`load`], and every file and folder that was looked at, whether or not the config is good.
pub fn load_seen(
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    now: UnixMillis,
) -> (Result<Loaded, Vec<Problem>>, Vec<Seen>) {
    let disk = Disk::new();
    let result = load_from(&disk, path, env, now);
    (result, disk.seen())
}

fn load_from(
    disk: &Disk,
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    now: UnixMillis,
) -> Result<Loaded, Vec<Problem>> {
    let file = path.display().to_string();
    let text = disk.config(path).map_err(|error| {
        let message = format!("cannot be read: {}", reason(&error));
        let (severity, code, key) = (Severity::Error, Code::ConfigUnreadable, String::new());
        vec![Problem { severity, file: file.clone(), line: 0, column: 0, key, code, message }]
    })?;
    let env = |name: &str| {
        let value = env(name);
        disk.note(value.as_deref());
        value
    };
    let read = |path: &Path| disk.secret(path);
    let folder = path.parent().unwrap_or(Path::new(""));
    let sources = Sources { folder, env: &env, read: &read, now, terminal: io::stderr().is_terminal() };
    let mut loaded = parse_with(&text, path, &sources, disk)?;
    loaded.secrets = Some(disk.secrets());
    Ok(loaded)
}

/// Checks a config's text; `file` is how problems name it. It can't include files: for that it is [`load`]ed.
///
/// # Errors
/// All problems found, warnings included, when at least one is an error.
pub fn parse(text: &str, file: &str, sources: &Sources<'_>) -> Result<Loaded, Vec<Problem>> {
    parse_with(text, Path::new(file), sources, &NoFiles)
}

fn parse_with(text: &str, path: &Path, sources: &Sources<'_>, files: &dyn Files) -> Result<Loaded, Vec<Problem>> {
    let file = path.display().to_string();
    let mut problems = Problems::new(&file, text);
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    syntax(&syntax_errors, 0, &mut problems);
    let scope = Scope { base: 0, allow: None, before: &|_| 0 };
    let mut children = raw::read(document.get_ref(), &scope, &mut problems);
    include::add_all(&mut children, path, files, &mut problems);
    let root = raw::complete(children, &mut problems);
    let settings = checked::build(&root, &mut problems, sources);
    let mut places = Places { file, files: problems.files(), ..Places::default() };
    root.each(&mut |key, at| {
        places.by_key.insert(key.to_owned(), problems.place(at));
    });
    let broken = problems.broken();
    let mut list = problems.finish();
    drop_followers(&mut list, &broken);
    drop_of_unread(&mut list);
    match settings {
        Some(settings) if list.iter().all(|problem| problem.severity != Severity::Error) => {
            Ok(Loaded { settings, warnings: list, places, secrets: None })
        }
        _ => Err(list),
    }
}

/// Reports what is not TOML in a text that begins at `base`.
fn syntax(errors: &[toml::de::Error], base: usize, problems: &mut Problems<'_>) {
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        problems.error(Code::Syntax, base + at, "", format!("not TOML: {}", error.message()));
    }
}

/// After a syntax error the parser has guessed. What stands on the same line, or below a header that it could not read, and what depends on
/// the rest of the file being understood, would mislead; what is wrong with single values elsewhere stays.
fn drop_followers(list: &mut Vec<Problem>, broken: &[(String, usize, usize)]) {
    if broken.is_empty() {
        return;
    }
    let within = |problem: &Problem, below: bool| {
        broken.iter().any(|(file, first, last)| {
            let first = first + usize::from(below);
            *file == problem.file && (first..=*last).contains(&problem.line)
        })
    };
    list.retain(|problem| match problem.code {
        // Keys that landed in another table stand there twice.
        Code::Syntax => !(problem.message.contains("duplicate key") && within(problem, true)),
        Code::TooManyProblems | Code::ConfigUnreadable => true,
        Code::UnknownKey
        | Code::NotAllowedHere
        | Code::NotBuiltYet
        | Code::WrongType
        | Code::OutOfRange
        | Code::InvalidValue
        | Code::SecretInline => !within(problem, false),
        _ => false,
    });
}

/// Where an include could not be read, what it would have brought is not missing: nobody knows. What is wrong with what was read stays.
fn drop_of_unread(list: &mut Vec<Problem>) {
    let is_include = |problem: &Problem| {
        problem.severity == Severity::Error
            && problem.key.starts_with("include")
            && matches!(problem.code, Code::ConfigUnreadable | Code::InvalidValue | Code::WrongType | Code::MissingKey)
    };
    if !list.iter().any(is_include) {
        return;
    }
    list.retain(|problem| match problem.code {
        Code::MissingKey => problem.key.contains(['.', '[']),
        Code::Unresolved | Code::ListenNotLoopback | Code::CorsNotServed => false,
        _ => true,
    });
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

//! `env:NAME` and `file:PATH` to secrets. No message repeats what was written: a key pasted where a reference belongs
//! must not reach a terminal or a log.

use std::path::Path;

use super::super::problem::{Code, Problems, looks_secret};
use super::super::secret::Secret;
use super::super::{Sources, reason};

/// Reads the secret that `reference` names.
pub(super) fn read(
    reference: &str,
    at: usize,
    key: &str,
    problems: &mut Problems<'_>,
    sources: &Sources<'_>,
) -> Option<Secret> {
    match usable(reference, sources) {
        Ok(secret) => Some(secret),
        Err((code, message)) => {
            problems.error(code, at, key, message);
            None
        }
    }
}

/// The same without a place.
pub(in super::super) fn usable(reference: &str, sources: &Sources<'_>) -> Result<Secret, (Code, String)> {
    match value(reference, sources)? {
        value if value.is_empty() => Err((Code::SecretEmpty, "the variable or file is there and empty".to_owned())),
        value if !value.bytes().all(|byte| byte.is_ascii_graphic()) => Err((
            Code::SecretInvalid,
            "the secret has spaces, line ends or characters beyond ASCII; no header can carry it".to_owned(),
        )),
        value => Ok(Secret::new(value)),
    }
}

/// A header's value: text, a reference, or a word before one (`Bearer env:NAME`). `credential`: text alone is refused.
pub(super) fn header_value(text: &str, credential: bool, sources: &Sources<'_>) -> Result<Secret, (Code, String)> {
    let is_reference = |text: &str| text.starts_with("env:") || text.starts_with("file:");
    let whole = if is_reference(text) {
        value(text, sources)?
    } else if let Some((word, reference)) = text.split_once(' ').filter(|(_, rest)| is_reference(rest)) {
        match value(reference, sources)? {
            value if value.is_empty() => value,
            value => format!("{word} {value}"),
        }
    } else if credential || looks_secret(text) {
        let message = "a credential is never written here: use \"env:NAME\", \"file:PATH\" or \"Bearer env:NAME\"";
        return Err((Code::SecretInline, message.to_owned()));
    } else {
        text.to_owned()
    };
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    match whole {
        whole if whole.trim_ascii().is_empty() => Err((Code::SecretEmpty, "is there and empty".to_owned())),
        whole if whole.trim_ascii() != whole || !whole.bytes().all(is_plain) => Err((
            Code::SecretInvalid,
            "has line ends, characters beyond ASCII or spaces at an end; no header can carry it".to_owned(),
        )),
        whole => Ok(Secret::new(whole)),
    }
}

fn value(reference: &str, sources: &Sources<'_>) -> Result<String, (Code, String)> {
    if let Some(name) = reference.strip_prefix("env:").filter(|name| is_variable(name)) {
        return (sources.env)(name).ok_or_else(|| {
            // A name in the usual style is shown; anything else might be a key after a stray `env:`.
            let usual =
                name.len() <= 64 && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
            let name = if usual { format!("`{name}`") } else { "named here".to_owned() };
            (Code::SecretMissing, format!("the environment variable {name} is not set (or is not UTF-8)"))
        });
    }
    if let Some(path) = reference.strip_prefix("file:").filter(|path| !path.is_empty()) {
        let mut text = (sources.read)(&sources.folder.join(Path::new(path))).map_err(|error| {
            let message = format!(
                "the secret's file cannot be read: {} (relative paths start at the config's folder)",
                reason(&error)
            );
            (Code::SecretUnreadable, message)
        })?;
        if text.ends_with('\n') {
            text.pop();
            if text.ends_with('\r') {
                text.pop();
            }
        }
        return Ok(text);
    }
    Err((Code::SecretInline, "a secret is never written here: use \"env:NAME\" or \"file:PATH\"".to_owned()))
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

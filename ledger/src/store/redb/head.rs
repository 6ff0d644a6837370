//! The last known end of the journal, in a small file beside the store: `NAME.head`.
//!
//! A chain cannot tell that its end was cut off, and a file that has lost everything is only a new file. So whoever runs the ledger keeps its
//! head elsewhere, every minute and at the end ([`keep_head`]), and opening compares: what was there must be there.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::held::OpenError;
use crate::journal::Head;

/// `DIR/NAME.head` beside `DIR/NAME.redb`.
#[must_use]
pub fn head_path(ledger: &Path) -> PathBuf {
    ledger.with_extension("head")
}

/// Keeps the head beside the ledger at `ledger`, durably, in place of the last one.
///
/// # Errors
/// Of the file system.
pub fn keep_head(ledger: &Path, head: &Head) -> io::Result<()> {
    let path = head_path(ledger);
    let draft = path.with_extension("head.new");
    let mut file = File::create(&draft)?;
    writeln!(file, "{} {}", head.sequence, head.hash)?;
    file.sync_all()?;
    fs::rename(&draft, &path)
}

/// The head that was kept last; none where none was.
///
/// # Errors
/// [`OpenError`] where there is one that cannot be read: a guard that nobody can read is not to be passed in silence.
pub fn kept_head(ledger: &Path) -> Result<Option<Head>, OpenError> {
    let path = head_path(ledger);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io(&path, error)),
    };
    let head = text.trim_end().split_once(' ').and_then(|(sequence, hash)| {
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(Head { sequence: sequence.parse().ok()?, hash: is_hash.then(|| Arc::from(hash))? })
    });
    match head {
        Some(head) => Ok(Some(head)),
        None => Err(OpenError::io(&path, io::Error::new(io::ErrorKind::InvalidData, "not a head of a journal"))),
    }
}

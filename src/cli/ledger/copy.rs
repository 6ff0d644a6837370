//! Copies of a ledger: backups, and what is put back from one.
//!
//! A copy gets its name only when it is whole, on the disk and looked through. Nothing is ever overwritten: what a restore takes the place
//! of is moved aside.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rubicon_ledger::store::{FileLock, OpenError, Store as _, Verdict, Write, head_path, keep_head};
use rubicon_ledger::{Draft, UnixMillis};
use serde_json::{Value, json};

use super::super::operator::Failure;
use super::args::{BackupArgs, RestoreArgs};
use super::file::{self, Opened};
use crate::clock;
use crate::config::outside;

/// What the process with this id writes before it has the name `to`.
pub(super) fn part_path(to: &Path, process: u32) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{process}.part"));
    to.with_file_name(name)
}

/// A file that is being written beside its name, and gets it when it is whole.
pub(super) struct Part {
    pub(super) file: File,
    path: PathBuf,
}

impl Part {
    /// Begins it; `to` must not be there.
    pub(super) fn new(to: &Path) -> Result<Self, Failure> {
        if to.exists() {
            return Err(Failure::problem(format!("{}: is there already; nothing is overwritten", to.display())));
        }
        Self::beside(to)
    }

    /// Begins what is to take the place of `to`.
    fn beside(to: &Path) -> Result<Self, Failure> {
        let path = part_path(to, std::process::id());
        // What tools were called with is nobody else's business.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|error| Failure::problem(format!("{}: {error}", path.display())))?;
        Ok(Self { file, path })
    }

    /// It could not be written.
    pub(super) fn failed(&self, error: &io::Error) -> Failure {
        Failure::problem(format!("{}: {error}", self.path.display()))
    }
}

impl Part {
    /// Opens what was written, which must hold.
    fn looked_through(&self) -> Result<(Opened, Verdict), Failure> {
        self.file.sync_all().map_err(|error| self.failed(&error))?;
        let opened = file::open(&self.path);
        let opened = opened.map_err(|error| Failure::problem(format!("that is no whole ledger: {error}")))?;
        let verdict = opened.reader().verify(None).map_err(|error| file::cannot_read(&error))?;
        match &verdict.broken {
            None => Ok((opened, verdict)),
            Some(broken) => {
                let message =
                    format!("it does not hold (entry {} is {}); nothing is kept", broken.sequence, broken.why);
                Err(Failure::problem(message))
            }
        }
    }

    /// Gives it its name. Not a rename: what somebody else put there meanwhile stays.
    fn named(&self, to: &Path) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::problem(format!("{}: {error}", to.display()));
        fs::hard_link(&self.path, to).map_err(failed)?;
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Gone already where it got its name.
        let _ = fs::remove_file(&self.path);
    }
}

/// A copy that is whole: looked through, synced, then under its name; what is in it.
pub(super) fn finished(part: Part, to: &Path) -> Result<Value, Failure> {
    let (opened, verdict) = part.looked_through()?;
    drop(opened);
    let bytes = fs::metadata(&part.path).map_err(|error| part.failed(&error))?.len();
    part.named(to)?;
    Ok(json!({
        "file": to.display().to_string(),
        "bytes": bytes,
        "entries": verdict.entries,
        "records": verdict.records,
        "head": verdict.head,
    }))
}

/// `backup`: nobody writes while it is open here, so its bytes are a copy.
pub(super) fn backup(opened: Box<Opened>, backup: &BackupArgs) -> Result<Value, Failure> {
    let mut part = Part::new(&backup.to)?;
    let copied = File::open(&opened.path).and_then(|mut from| io::copy(&mut from, &mut part.file));
    copied.map_err(|error| part.failed(&error))?;
    drop(opened);
    finished(part, &backup.to)
}

/// `restore`: the gap of the backup is opened and journaled in it before it gets the ledger's name, so that no relay can ever run over it
/// as if nothing had happened since.
pub(super) fn restore(restore: &RestoreArgs) -> Result<Value, Failure> {
    // The journal keeps it for ever: what the admin side refuses is refused here.
    for (option, text) in [("reason", &restore.reason), ("by", &restore.by)] {
        if text.trim().is_empty() || text.chars().any(char::is_control) {
            return Err(Failure::Usage(format!("--{option}: one line of text, and not an empty one")));
        }
    }
    let target = target(restore)?;
    let there = target.exists();
    // Held until the other one is in its place: no relay starts over it in between. Not read: it may be what is damaged.
    let _held = match FileLock::of(&target) {
        Err(error @ OpenError::InUse(_)) => return Err(file::cannot_open(&error)),
        held => held.ok(),
    };
    if there && !restore.force {
        let message =
            format!("{}: there is a ledger; --force moves it aside and puts the backup in its place", target.display());
        return Err(Failure::problem(message));
    }
    let mut part = Part::beside(&target)?;
    let copied = File::open(&restore.from).and_then(|mut from| io::copy(&mut from, &mut part.file));
    copied.map_err(|error| Failure::problem(format!("{}: {error}", restore.from.display())))?;
    let (mut opened, verdict) = part.looked_through()?;
    let draft = Draft {
        at: UnixMillis(clock::UnixMillis::now().0),
        by: Arc::from(&*restore.by),
        action: Arc::from("gap_open"),
        subject: Arc::from("ledger"),
        from: Arc::from(""),
        to: Arc::from("gap"),
        version: 0,
        epoch: 0,
        reason: Arc::from(&*restore.reason),
    };
    let head = opened.store.persist(vec![Write::Gap(true, draft)]).map_err(|error| file::cannot_read(&error))?;
    drop(opened);
    let failed = |error: io::Error| Failure::problem(format!("{}: {error}", target.display()));
    let replaced = if there { Some(aside(&target).map_err(failed)?) } else { None };
    // A start in between finds a head without a ledger, and says so.
    keep_head(&target, &head).map_err(failed)?;
    part.named(&target)?;
    Ok(json!({
        "file": target.display().to_string(),
        "replaced": replaced.map(|path| path.display().to_string()),
        "entries": verdict.entries,
        "records": verdict.records,
        "head": head,
        "gap": "open",
    }))
}

fn target(restore: &RestoreArgs) -> Result<PathBuf, Failure> {
    match (&restore.file, &restore.config) {
        (Some(file), _) => Ok(file.clone()),
        (None, Some(config)) => {
            let file = outside::store_file(config).map_err(Failure::problem)?;
            file.ok_or_else(|| Failure::problem("the relay of this config keeps nothing on disk (server.store)"))
        }
        (None, None) => Err(Failure::Usage("--config or --file".to_owned())),
    }
}

/// Moves the ledger, and the head beside it, to names that nothing has.
fn aside(target: &Path) -> io::Result<PathBuf> {
    let named = |path: &Path, n: u32| {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".replaced-{n}"));
        path.with_file_name(name)
    };
    let head = head_path(target);
    let free = (1..=REPLACED_MAX).find(|n| !named(target, *n).exists() && !named(&head, *n).exists());
    let n = free.ok_or_else(|| io::Error::other("too many ledgers were moved aside here; remove some"))?;
    let to = named(target, n);
    fs::rename(target, &to)?;
    if head.exists() {
        fs::rename(&head, named(&head, n))?;
    }
    Ok(to)
}

/// Ledgers that were moved aside in one folder.
const REPLACED_MAX: u32 = 100;

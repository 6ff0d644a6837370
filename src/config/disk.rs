//! The config's files on disk, and what is remembered of each look at one: enough to tell later that a load would read something
//! else (`serve --watch`), and that two loads read the same secrets.
//!
//! In: paths. Out: bounded texts, and [`Seen`]. A file's stamp is taken before it is read, so that a change during the load is
//! seen afterwards. Stamps follow symbolic links: the swap of a link, which is how Kubernetes changes a mounted ConfigMap, shows
//! as another inode.

use std::cell::RefCell;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::include::{ENTRIES_MAX, Files};
use super::{CONFIG_BYTES_MAX, SECRET_BYTES_MAX, read_bounded};

/// A file or folder that a load looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    path: PathBuf,
    was: Option<Stamp>,
}

/// Which file it is and when it was written last; without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    /// Also moved by another mode or owner, and by writers that set the time of writing themselves.
    changed: (i64, i64),
}

impl Seen {
    fn look(path: &Path) -> Self {
        let stamp = std::fs::metadata(path).ok().map(|data| Stamp {
            device: data.dev(),
            inode: data.ino(),
            bytes: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        });
        Self { path: path.to_owned(), was: stamp }
    }

    /// The same path as it is now; equal if nothing changed. Blocks on the file system.
    #[must_use]
    pub fn again(&self) -> Self {
        Self::look(&self.path)
    }
}

/// Reads files and remembers what it looked at.
pub(super) struct Disk {
    seen: RefCell<Vec<Seen>>,
    secrets: RefCell<blake3::Hasher>,
}

impl Disk {
    pub(super) fn new() -> Self {
        Self { seen: RefCell::new(Vec::new()), secrets: RefCell::new(blake3::Hasher::new()) }
    }

    /// The config itself.
    pub(super) fn config(&self, path: &Path) -> io::Result<String> {
        self.look(path);
        read_bounded(path, CONFIG_BYTES_MAX)
    }

    /// A secret's file.
    pub(super) fn secret(&self, path: &Path) -> io::Result<String> {
        self.look(path);
        let text = read_bounded(path, SECRET_BYTES_MAX);
        self.note(text.as_deref().ok());
        text
    }

    /// Takes a secret's value into [`Disk::secrets`], wherever it came from.
    pub(super) fn note(&self, value: Option<&str>) {
        let mut secrets = self.secrets.borrow_mut();
        let value = value.unwrap_or_default();
        secrets.update(&(value.len() as u64).to_le_bytes());
        secrets.update(value.as_bytes());
    }

    /// One hash of all secrets in the order in which they were read. Settings print no secret, so that without it a changed key would
    /// not be seen.
    pub(super) fn secrets(&self) -> blake3::Hash {
        self.secrets.borrow().finalize()
    }

    /// Everything that was looked at.
    pub(super) fn seen(self) -> Vec<Seen> {
        self.seen.into_inner()
    }

    fn look(&self, path: &Path) {
        self.seen.borrow_mut().push(Seen::look(path));
    }
}

impl Files for Disk {
    fn text(&self, path: &Path) -> io::Result<String> {
        self.config(path)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.look(folder);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            if names.len() == ENTRIES_MAX {
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too many entries"));
            }
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }
}

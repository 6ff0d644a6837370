//! The file under the store: opened or made, let go of and opened anew.
//!
//! In: a path, or for tests any backend. Out: a database that whoever reads or writes holds for as long as that takes. A database that has
//! met an IO error takes nothing any more; the file is then closed, which also gives up the lock on it, and opened again. Deliberately
//! not one code with the control file's (`src/control/held.rs`): that one belongs to the relay, and neither knows the other.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, StorageBackend};

use super::tables::{self, FORMAT};
use super::{RedbOptions, guarded};
use crate::journal::Head;
use crate::store::StoreError;

/// How long a reader may hold up that the file is opened anew; it is tried again later.
const READERS_WAIT_MAX: Duration = Duration::from_secs(1);

/// How often it looks whether the last one is gone.
const READERS_LOOK: Duration = Duration::from_millis(10);

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{0}: another process uses this ledger; one process owns it at a time")]
    InUse(PathBuf),
    /// There is none, and none was to be made.
    #[error("{0}: there is no ledger")]
    Missing(PathBuf),
    /// A ledger is never empty: whatever was in it is gone, and to begin anew would run everything again.
    #[error(
        "{0}: the ledger is empty (0 bytes): what ran is not known any more; restore a backup in its place, or remove the file by hand \
         to begin anew"
    )]
    Emptied(PathBuf),
    /// What was known to be in it is not.
    #[error(
        "{path}: the ledger has lost what was in it: entry {} with hash {} was there and {found}; restore a backup in its place, or, to \
         go on with what is left, remove {head} by hand",
        kept.sequence, kept.hash, head = super::head_path(path).display()
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// What it had.
        kept: Head,
        /// What it has.
        found: String,
    },
    /// The file or its folder.
    #[error("{path}: the ledger cannot be opened: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not what this build writes, or is damaged.
    #[error("{path}: not a ledger that this build can read ({what}); restore a backup, or run the build that wrote it")]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl OpenError {
    pub(super) fn not_ours(path: &Path, what: impl ToString) -> Self {
        Self::NotOurs { path: path.to_owned(), what: what.to_string() }
    }

    pub(super) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error }
    }

    pub(super) fn of(path: &Path, error: DatabaseError) -> Self {
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::InUse(path.to_owned()),
            DatabaseError::Storage(redb::StorageError::Io(error)) if error.kind() != io::ErrorKind::InvalidData => {
                Self::io(path, error)
            }
            other => Self::not_ours(path, other),
        }
    }
}

/// The lock of a ledger's file without the ledger: whatever is in it is not read. No store opens the file while this is held.
#[derive(Debug)]
pub struct FileLock(#[expect(dead_code, reason = "held, not used")] FileBackend);

impl FileLock {
    /// Takes it.
    ///
    /// # Errors
    /// [`OpenError::InUse`] while a process has the ledger; [`OpenError::Missing`], [`OpenError::Io`].
    pub fn of(path: &Path) -> Result<Self, OpenError> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OpenError::Missing(path.to_owned()),
            _ => OpenError::io(path, error),
        })?;
        let backend = FileBackend::new(file).map_err(|error| OpenError::of(path, error))?;
        match backend.try_lock_range(Bound::Unbounded, Bound::Unbounded) {
            Ok(true) => Ok(Self(backend)),
            Ok(false) => Err(OpenError::InUse(path.to_owned())),
            Err(error) => Err(OpenError::io(path, error.into())),
        }
    }
}

/// Opens the database; `true`: makes it where there is none.
type Opener = Box<dyn Fn(bool) -> Result<Database, OpenError> + Send + Sync>;

/// The database, or none while it cannot be opened.
pub(super) struct Held {
    open: Opener,
    /// `None`: it could not be opened anew.
    database: Mutex<Option<Arc<Database>>>,
}

impl Held {
    /// Opens or makes the file, and its folder.
    pub(super) fn file(path: &Path, options: &RedbOptions) -> Result<Self, OpenError> {
        let (file, made_with) = (path.to_owned(), options.clone());
        Self::with(path, options, move |make| backend(&file, &made_with, make))
    }

    /// Over any backend; `make` is what to make it with, now and whenever an IO has failed.
    pub(super) fn with<B: StorageBackend>(
        path: &Path,
        options: &RedbOptions,
        make: impl Fn(bool) -> Result<B, OpenError> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        Self::opened(path, options, make, true)
    }

    /// As [`Held::with`], of what must be there.
    pub(super) fn existing<B: StorageBackend>(
        path: &Path,
        options: &RedbOptions,
        make: impl Fn(bool) -> Result<B, OpenError> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        Self::opened(path, options, make, false)
    }

    fn opened<B: StorageBackend>(
        path: &Path,
        options: &RedbOptions,
        make: impl Fn(bool) -> Result<B, OpenError> + Send + Sync + 'static,
        new: bool,
    ) -> Result<Self, OpenError> {
        let (named, options) = (path.to_owned(), options.clone());
        let open: Opener = Box::new(move |new| database(make(new)?, &named, &options, new));
        let database = Mutex::new(Some(Arc::new(open(new)?)));
        Ok(Self { open, database })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Database>>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database of this moment.
    ///
    /// # Errors
    /// When it could not be opened anew.
    pub(super) fn database(&self) -> Result<Arc<Database>, StoreError> {
        self.lock().clone().ok_or_else(|| StoreError::Io("it could not be opened anew".to_owned()))
    }

    /// Opens the file anew after an IO failed: nobody knows what of the last write is on the disk.
    ///
    /// # Errors
    /// When somebody still reads from it, or it cannot be opened.
    pub(super) fn reopen(&self) -> Result<(), StoreError> {
        self.close()?;
        let database = (self.open)(false).map_err(|error| StoreError::Io(error.to_string()))?;
        *self.lock() = Some(Arc::new(database));
        Ok(())
    }

    /// Lets go of the file, and of the lock on it, once nobody reads from it any more.
    fn close(&self) -> Result<(), StoreError> {
        let Some(mut database) = self.lock().take() else { return Ok(()) };
        let mut waited = Duration::ZERO;
        loop {
            match Arc::try_unwrap(database) {
                // A panic of a database that met damage must not end the writer.
                Ok(last) => {
                    return guarded(move || {
                        drop(last);
                        Ok(())
                    });
                }
                Err(shared) if waited >= READERS_WAIT_MAX => {
                    *self.lock() = Some(shared);
                    return Err(StoreError::Io("somebody still reads from it".to_owned()));
                }
                Err(shared) => database = shared,
            }
            std::thread::park_timeout(READERS_LOOK);
            waited += READERS_LOOK;
        }
    }
}

/// The database over a backend; makes the tables of a new one where `new` allows it.
pub(super) fn database(
    backend: impl StorageBackend,
    path: &Path,
    options: &RedbOptions,
    new: bool,
) -> Result<Database, OpenError> {
    let open = move || {
        let database = Builder::new()
            .set_cache_size(options.cache_bytes)
            .set_check_integrity_on_open(options.check_all)
            .create_with_backend(backend)
            .map_err(|error| OpenError::of(path, error));
        Ok(database)
    };
    let database = guarded(open).map_err(|error| OpenError::not_ours(path, error))??;
    let format = guarded(|| tables::prepare(&database, new.then_some(&options.fresh)));
    let why = match format {
        Ok(Some(FORMAT)) => return Ok(database),
        Ok(Some(other)) => format!("format {other} and not {FORMAT}"),
        Ok(None) => "there is nothing in it".to_owned(),
        Err(error) => error.to_string(),
    };
    close(database);
    Err(OpenError::not_ours(path, why))
}

/// Lets go of it. redb writes its last state then, and panics where the file makes none; a store that is closed has nothing to say any more.
fn close(database: impl Sized) {
    let _ = guarded(move || {
        drop(database);
        Ok(())
    });
}

impl Drop for Held {
    fn drop(&mut self) {
        let last = self.lock().take();
        close(last);
    }
}

/// Makes a new file, under its name only when it is whole: a start that is cut short leaves no empty store behind.
fn make_file(path: &Path, options: &RedbOptions, folder: &Path) -> Result<(), OpenError> {
    let io = |error| OpenError::io(path, error);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.{}.new", std::process::id()));
    let made = (|| {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&draft);
        let backend = FileBackend::new(file.map_err(io)?).map_err(|error| OpenError::of(path, error))?;
        drop(database(backend, path, options, true)?);
        // Not a rename: another process that starts at the same moment must not lose what it has made.
        match fs::hard_link(&draft, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            // A file system without hard links.
            Err(_) => fs::rename(&draft, path).map_err(io)?,
            Ok(()) => {}
        }
        // A file whose name is not on disk is gone after a power cut, whatever was synced into it.
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)
    })();
    let _ = fs::remove_file(&draft);
    made
}

/// The file as a backend. One that is gone is not made again behind a process that runs: its journal would begin anew.
fn backend(path: &Path, options: &RedbOptions, make: bool) -> Result<FileBackend, OpenError> {
    let io = |error| OpenError::io(path, error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if make {
        fs::create_dir_all(folder).map_err(io)?;
    }
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => return Err(OpenError::not_ours(path, "it is not a regular file")),
        Ok(found) if found.len() == 0 => return Err(OpenError::Emptied(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound && make => make_file(path, options, folder)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(OpenError::Missing(path.to_owned())),
        Err(error) => return Err(io(error)),
        Ok(_) => {}
    }
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(io)?;
    }
    FileBackend::new(file).map_err(|error| OpenError::of(path, error))
}

//! The file under the control store: opened or made, let go of and opened anew.
//!
//! In: a path, or for tests any backend. Out: a database that whoever reads or writes holds for as long as that takes. A database
//! that has met an IO error takes nothing any more; the file is then closed, which also gives up the lock on it, and opened again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redb::backends::FileBackend;
use redb::{Builder, Database, DatabaseError, ReadableTable as _, StorageBackend};

use super::store::{Failed, ISSUERS, JOURNAL, META, SWITCHES, write};

/// Layout of the tables. A file with another one is refused.
const LAYOUT: u8 = 1;

/// Pages that redb may keep in memory: all of a usual control file.
const CACHE_BYTES: usize = 8 << 20;

/// How long a reader of the journal may hold up that the file is opened anew; it is tried again later.
const READERS_WAIT_MAX: Duration = Duration::from_secs(1);

/// How often it looks whether the last one is gone.
const READERS_LOOK: Duration = Duration::from_millis(10);

/// Why the control store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{0}: another process uses this control store; one relay owns it at a time")]
    InUse(PathBuf),
    /// A store is never empty: whatever was in it is gone, and to begin anew would forget every kill in silence.
    #[error(
        "{0}: the control store is empty (0 bytes): its switches and its journal are lost; put a copy in its place, or remove the \
         file by hand to begin anew with nothing switched off"
    )]
    Emptied(PathBuf),
    /// The file or its folder.
    #[error("{path}: the control store cannot be opened: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not what this build writes.
    #[error("{path}: not a control store of this build ({what}); move it away, or run the build that wrote it")]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
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
    pub(super) fn file(path: &Path) -> Result<Self, OpenError> {
        let file = path.to_owned();
        Self::with(path, move |make| backend(&file, make))
    }

    /// Over any backend; `make` is what to make it with, now and whenever an IO has failed.
    pub(super) fn with<B: StorageBackend>(
        path: &Path,
        make: impl Fn(bool) -> Result<B, OpenError> + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let named = path.to_owned();
        let open: Opener = Box::new(move |new| database(make(new)?, &named));
        let database = Mutex::new(Some(Arc::new(open(true)?)));
        Ok(Self { open, database })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Database>>> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database of this moment.
    ///
    /// # Errors
    /// When it could not be opened anew.
    pub(super) fn database(&self) -> Result<Arc<Database>, Failed> {
        self.lock().clone().ok_or_else(|| Failed("it could not be opened anew".to_owned()))
    }

    /// Opens the file anew after an IO failed: nobody knows what of the last write is on the disk.
    ///
    /// # Errors
    /// When somebody still reads from it, or it cannot be opened.
    pub(super) fn reopen(&self) -> Result<(), Failed> {
        self.close()?;
        let database = (self.open)(false).map_err(|error| Failed(error.to_string()))?;
        *self.lock() = Some(Arc::new(database));
        Ok(())
    }

    /// Lets go of the file, and of the lock on it, once nobody reads from it any more.
    fn close(&self) -> Result<(), Failed> {
        let Some(mut database) = self.lock().take() else { return Ok(()) };
        let mut waited = Duration::ZERO;
        loop {
            match Arc::try_unwrap(database) {
                Ok(last) => {
                    drop(last);
                    return Ok(());
                }
                Err(shared) if waited >= READERS_WAIT_MAX => {
                    *self.lock() = Some(shared);
                    return Err(Failed("somebody still reads from it".to_owned()));
                }
                Err(shared) => database = shared,
            }
            std::thread::park_timeout(READERS_LOOK);
            waited += READERS_LOOK;
        }
    }
}

/// `DIR/NAME-control.redb` beside the ledger's `DIR/NAME.redb`.
pub fn control_path(ledger: &Path) -> PathBuf {
    let stem = ledger.file_stem().unwrap_or_default().to_string_lossy();
    ledger.with_file_name(format!("{stem}-control.redb"))
}

/// The database over a backend; makes the tables of a new one.
fn database(backend: impl StorageBackend, path: &Path) -> Result<Database, OpenError> {
    let database = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend);
    let database = database.map_err(|error| opening(path, error))?;
    let not_ours = |what| OpenError::NotOurs { path: path.to_owned(), what };
    let layout = layout(&database).map_err(|Failed(what)| not_ours(what))?;
    if layout == LAYOUT {
        return Ok(database);
    }
    Err(not_ours(format!("layout {layout} and not {LAYOUT}")))
}

/// Makes a new file, under its name only when it is whole: a start that is cut short leaves no empty store behind.
fn make_file(path: &Path, folder: &Path) -> Result<(), OpenError> {
    let io = |error| OpenError::Io { path: path.to_owned(), error };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.{}.new", std::process::id()));
    let made = (|| {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&draft);
        drop(database(FileBackend::new(file.map_err(io)?).map_err(|error| opening(path, error))?, path)?);
        // Not a rename: another relay that starts at the same moment must not lose what it has made.
        match fs::hard_link(&draft, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            // A file system without hard links.
            Err(_) => fs::rename(&draft, path).map_err(io)?,
            Ok(()) => {}
        }
        // A file whose name is not on disk is gone after a power cut, whatever was synced into it.
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
        tracing::info!(path = %path.display(), "a new control store: nothing is switched off, and its journal begins");
        Ok(())
    })();
    let _ = fs::remove_file(&draft);
    made
}

/// The file as a backend. One that is gone is not made again behind a relay that runs: its journal would begin anew.
fn backend(path: &Path, make: bool) -> Result<FileBackend, OpenError> {
    let io = |error| OpenError::Io { path: path.to_owned(), error };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if make {
        fs::create_dir_all(folder).map_err(io)?;
    }
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            return Err(OpenError::NotOurs { path: path.to_owned(), what: "it is not a regular file".to_owned() });
        }
        Ok(found) if found.len() == 0 => return Err(OpenError::Emptied(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound && make => make_file(path, folder)?,
        Err(error) => return Err(io(error)),
        Ok(_) => {}
    }
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(io)?;
    }
    FileBackend::new(file).map_err(|error| opening(path, error))
}

/// The file's layout; makes the tables of a new one.
fn layout(database: &Database) -> Result<u8, Failed> {
    let transaction = write(database)?;
    let layout = {
        let mut meta = transaction.open_table(META)?;
        let known = meta.get("layout")?.and_then(|value| value.value().first().copied());
        if known.is_none() {
            meta.insert("layout", [LAYOUT].as_slice())?;
        }
        known
    };
    transaction.open_table(SWITCHES)?;
    transaction.open_table(JOURNAL)?;
    transaction.open_table(ISSUERS)?;
    match layout {
        Some(_) => transaction.abort()?,
        None => transaction.commit()?,
    }
    Ok(layout.unwrap_or(LAYOUT))
}

fn opening(path: &Path, error: DatabaseError) -> OpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse(path),
        DatabaseError::Storage(redb::StorageError::Io(error)) if error.kind() != io::ErrorKind::InvalidData => {
            OpenError::Io { path, error }
        }
        other => OpenError::NotOurs { path, what: other.to_string() },
    }
}

//! redb's own file, with its syncs counted.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::StorageBackend;
use redb::backends::FileBackend;
use rubicon_ledger::store::OpenError;

/// A file that counts how often it is synced.
#[derive(Debug)]
pub(crate) struct Counted {
    file: FileBackend,
    syncs: Arc<AtomicU64>,
}

impl Counted {
    pub(crate) fn open(path: &Path, new: bool, syncs: &Arc<AtomicU64>) -> Result<Self, OpenError> {
        let io = |error| OpenError::Io { path: path.to_owned(), error };
        let file = OpenOptions::new().read(true).write(true).create(new).truncate(false).open(path).map_err(io)?;
        let file = FileBackend::new(file).map_err(|error| io(io::Error::other(error)))?;
        Ok(Self { file, syncs: Arc::clone(syncs) })
    }
}

impl StorageBackend for Counted {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.file.write(offset, data)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.file.close()
    }
}

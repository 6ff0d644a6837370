//! A ledger that nobody runs, to be looked at: nothing in the file is changed, not even by the repair after a crash.
//!
//! redb repairs by writing. What it writes goes into memory here, over the file as it is ([`Overlay`]); a process that has the file open is
//! noticed by its lock.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use redb::StorageBackend;

use super::RedbOptions;
use super::held::{Held, OpenError};
use super::read::RedbReader;
use crate::store::Reader;

/// Bytes of a piece that is kept in memory once something is written to it.
const PIECE: u64 = 4096;

/// Most that a repair may write; more is no repair of ours (every commit leaves what opening needs).
const PIECES_MAX: usize = 64 << 10;

/// Opens a ledger that nobody runs, for reading. With `check_all` each page is looked at first, which takes as long as reading the file.
///
/// # Errors
/// [`OpenError`]: [`OpenError::InUse`] while a process runs it.
pub fn open_offline(path: &Path, check_all: bool) -> Result<Arc<dyn Reader>, OpenError> {
    Ok(Arc::new(RedbReader(Arc::new(hold(path, check_all)?))))
}

/// The file of a ledger that nobody runs.
pub(super) fn hold(path: &Path, check_all: bool) -> Result<Held, OpenError> {
    let options = RedbOptions { check_all, ..RedbOptions::new([0; 32]) };
    let named = path.to_owned();
    Held::existing(path, &options, move |_| {
        Overlay::over(opened(&named)?).map_err(|error| OpenError::io(&named, error))
    })
}

/// The file, locked against a process that would run it.
fn opened(path: &Path) -> Result<File, OpenError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(OpenError::Missing(path.to_owned())),
        Err(error) => return Err(OpenError::io(path, error)),
    };
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => return Err(OpenError::io(path, error)),
    }
    let metadata = file.metadata().map_err(|error| OpenError::io(path, error))?;
    if metadata.is_file() && metadata.len() == 0 {
        return Err(OpenError::Emptied(path.to_owned()));
    }
    Ok(file)
}

#[derive(Debug)]
struct Over {
    length: u64,
    /// Of the file, that still shows: less after it was cut.
    shown: u64,
    pieces: BTreeMap<u64, Vec<u8>>,
}

/// A file with what was written on top of it.
#[derive(Debug)]
struct Overlay {
    file: File,
    over: Mutex<Over>,
}

impl Overlay {
    fn over(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file, over: Mutex::new(Over { length, shown: length, pieces: BTreeMap::new() }) })
    }

    /// The part of a piece that the file has; zeros after it.
    fn below(&self, piece: u64, shown: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; PIECE as usize];
        let from = piece * PIECE;
        let there = usize::try_from(shown.saturating_sub(from).min(PIECE)).unwrap_or_default();
        self.file.read_exact_at(&mut bytes[..there], from)?;
        Ok(bytes)
    }

    /// The pieces of a range: number, where in the piece, and which part of the range.
    fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset + done as u64;
            let within = usize::try_from(at % PIECE).unwrap_or_default();
            let part = (PIECE as usize - within).min(length - done);
            let range = done..done + part;
            done += part;
            (part > 0).then_some((at / PIECE, within, range))
        })
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.over.lock().unwrap_or_else(PoisonError::into_inner).length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        if offset.saturating_add(out.len() as u64) > over.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if over.pieces.is_empty() && offset + out.len() as u64 <= over.shown {
            return self.file.read_exact_at(out, offset);
        }
        for (piece, within, range) in Self::parts(offset, out.len()) {
            let length = range.len();
            match over.pieces.get(&piece) {
                Some(bytes) => out[range].copy_from_slice(&bytes[within..within + length]),
                None => out[range].copy_from_slice(&self.below(piece, over.shown)?[within..within + length]),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        if len < over.length {
            over.pieces.split_off(&len.div_ceil(PIECE));
            let cut = usize::try_from(len % PIECE).unwrap_or_default();
            if let Some(last) = over.pieces.get_mut(&(len / PIECE)) {
                last[cut..].fill(0);
            }
            over.shown = over.shown.min(len);
        }
        over.length = len;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        over.length = over.length.max(offset + data.len() as u64);
        let shown = over.shown;
        for (piece, within, range) in Self::parts(offset, data.len()) {
            if over.pieces.len() >= PIECES_MAX {
                return Err(io::Error::other("opening it for reading would have to write too much"));
            }
            let length = range.len();
            if let std::collections::btree_map::Entry::Vacant(entry) = over.pieces.entry(piece) {
                entry.insert(self.below(piece, shown)?);
            }
            if let Some(bytes) = over.pieces.get_mut(&piece) {
                bytes[within..within + length].copy_from_slice(&data[range]);
            }
        }
        Ok(())
    }
}

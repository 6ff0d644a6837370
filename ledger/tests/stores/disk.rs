//! A disk in memory that loses what was not synced: writes since the last sync survive a crash in part, torn at 512 bytes.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io;
use std::sync::{Arc, Mutex};

use redb::StorageBackend;

use super::Rng;

/// What a disk tears a write at.
const SECTOR: usize = 512;

#[derive(Debug, Clone)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

#[derive(Debug, Default)]
struct State {
    /// As a program sees it.
    seen: Vec<u8>,
    /// As it is for sure after the last sync.
    synced: Vec<u8>,
    unsynced: Vec<Change>,
    /// Writes, syncs and changes of length so far.
    changes: u64,
    syncs: u64,
    /// Every change from this one on fails.
    fails_at: Option<u64>,
    /// Longest that there is room for.
    room: Option<u64>,
    /// Backends that hold it.
    held: u64,
}

/// The disk; cheap to clone. Each [`Disk::backend`] is an opened file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
pub(crate) struct Backend(Disk);

impl Disk {
    pub(crate) fn of(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State { seen: image.clone(), synced: image, ..State::default() })))
    }

    pub(crate) fn backend(&self) -> Backend {
        self.lock().held += 1;
        Backend(self.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn image(&self) -> Vec<u8> {
        self.lock().seen.clone()
    }

    /// What is there for sure.
    pub(crate) fn synced(&self) -> Vec<u8> {
        self.lock().synced.clone()
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    pub(crate) fn unsynced(&self) -> usize {
        self.lock().unsynced.len()
    }

    pub(crate) fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// Every change after so many more fails; none: no more.
    pub(crate) fn fail_after(&self, changes: Option<u64>) {
        let mut state = self.lock();
        state.fails_at = changes.map(|more| state.changes + more);
    }

    /// It has room for so many bytes.
    pub(crate) fn set_room(&self, room: Option<u64>) {
        self.lock().room = room;
    }

    /// What a crash at this moment may leave: what was synced, and of the rest a part, in order or not, each whole or torn.
    pub(crate) fn crashed(&self, rng: &mut Rng) -> Vec<u8> {
        let state = self.lock();
        let mut image = state.synced.clone();
        let mut rest = state.unsynced.clone();
        if rng.one_in(2) {
            for at in (1..rest.len()).rev() {
                rest.swap(at, rng.below(at as u64 + 1) as usize);
            }
        }
        let torn = rng.one_in(2);
        for change in rest {
            if rng.one_in(2) {
                continue;
            }
            match change {
                Change::Length(length) => image.resize(length as usize, 0),
                Change::Write(at, bytes) => {
                    for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                        if torn && rng.one_in(2) {
                            continue;
                        }
                        put(&mut image, at + (number * SECTOR) as u64, sector);
                    }
                }
            }
        }
        image
    }
}

fn put(image: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (from, to) = (at as usize, at as usize + bytes.len());
    if image.len() < to {
        image.resize(to, 0);
    }
    image[from..to].copy_from_slice(bytes);
}

impl State {
    fn change(&mut self) -> Result<(), io::Error> {
        if self.fails_at.is_some_and(|at| self.changes >= at) {
            return Err(io::Error::other("the disk is gone"));
        }
        self.changes += 1;
        Ok(())
    }

    fn fits(&self, length: u64) -> Result<(), io::Error> {
        if self.room.is_some_and(|room| length > room && length > self.seen.len() as u64) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.0.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let state = self.0.lock();
        let from = offset as usize;
        let bytes = state.seen.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        let mut state = self.0.lock();
        state.change()?;
        state.fits(len)?;
        state.seen.resize(len as usize, 0);
        state.unsynced.push(Change::Length(len));
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.0.lock();
        state.change()?;
        state.synced = state.seen.clone();
        state.unsynced.clear();
        state.syncs += 1;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let mut state = self.0.lock();
        state.change()?;
        state.fits(offset + data.len() as u64)?;
        put(&mut state.seen, offset, data);
        state.unsynced.push(Change::Write(offset, data.to_vec()));
        Ok(())
    }

    fn close(&self) -> Result<(), io::Error> {
        self.0.lock().held -= 1;
        Ok(())
    }
}

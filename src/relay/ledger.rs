//! The ledger of a relay: its store as the configuration names it, and its journal's head beside it.
//!
//! In: `[server] store`, and who sees its transitions. Out: the ledger, and the random name of this life, by which the relay's own runs are told from those of a life
//! before it. The head is kept in a file of its own ([`keep_head`]), so that a store that lost its tail is found when it is opened.

use std::path::Path;
use std::sync::Arc;

use rubicon_ledger::store::{MemoryStore, RedbOptions, RedbStore, Store};
use rubicon_ledger::{Ledger, Observer, Options};

use crate::clock::UnixMillis;
use crate::config::settings::StoreSettings;

/// An opened ledger.
pub(super) struct Opened {
    /// The handle.
    pub(super) ledger: Ledger,
    /// The name of this life.
    pub(super) boot: u64,
}

/// Opens it, and makes what another life left running unknown. Blocks on the disk.
///
/// # Errors
/// When there is no randomness, or the store cannot be opened, and what to do about it.
pub(super) fn open(store: &StoreSettings, observer: Observer) -> Result<Opened, String> {
    let mut fresh = [0; 32];
    getrandom::fill(&mut fresh).map_err(|error| format!("no randomness for the ledger: {error}"))?;
    // A name that another life had would make its runs look like ours.
    let boot = getrandom::u64().map_err(|error| format!("no randomness for the ledger: {error}"))?;
    let store: Box<dyn Store> = match store {
        StoreSettings::Memory => Box::new(MemoryStore::new(fresh)),
        StoreSettings::Redb(path) => {
            Box::new(RedbStore::open(path, RedbOptions::new(fresh)).map_err(|error| error.to_string())?)
        }
    };
    let clock = Arc::new(|| rubicon_ledger::UnixMillis(UnixMillis::now().0));
    let options = Options { observer: Some(observer), ..Options::new(clock, boot) };
    let ledger = Ledger::start(store, options).map_err(|error| error.to_string())?;
    Ok(Opened { ledger, boot })
}

/// Keeps the journal's head beside the store, and says it. Blocks on the disk.
pub fn keep_head(ledger: &Ledger, store: &Path) {
    let head = ledger.head();
    tracing::info!(entries = head.sequence, head = %head.hash, "the ledger's journal");
    if let Err(error) = rubicon_ledger::store::keep_head(store, &head) {
        tracing::warn!(%error, "the head of the ledger's journal cannot be kept beside it");
    }
}

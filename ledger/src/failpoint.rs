//! Named points where a test may end the process as `kill -9` would: no destructor runs, nothing is flushed.
//!
//! Only with the feature `testing`, which no release has; without it [`hit`] is nothing. `RUBICON_FAILPOINT=name` ends the process the first
//! time that `name` is reached, `name:3` the third time.

/// Ends the process here if a test asked for it.
#[inline]
pub fn hit(name: &str) {
    #[cfg(feature = "testing")]
    armed::hit(name);
    #[cfg(not(feature = "testing"))]
    let _ = name;
}

#[cfg(feature = "testing")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Armed {
        name: String,
        at: u64,
        seen: AtomicU64,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    fn read() -> Option<Armed> {
        let text = std::env::var("RUBICON_FAILPOINT").ok()?;
        let (name, at) = match text.rsplit_once(':') {
            Some((name, at)) => (name.to_owned(), at.parse().unwrap_or(1)),
            None => (text, 1),
        };
        Some(Armed { name, at, seen: AtomicU64::new(0) })
    }

    pub(super) fn hit(name: &str) {
        let Some(armed) = ARMED.get_or_init(read) else { return };
        if armed.name == name && armed.seen.fetch_add(1, Ordering::SeqCst) + 1 == armed.at {
            std::process::abort();
        }
    }
}

//! A token that somebody else renews in a file: Entra's access tokens live about an hour and a sidecar writes the next one.
//!
//! In: the path, and the token as it was when the configuration was loaded. Out: the last good token. The file is read again
//! when it is asked for after [`LOOKED_AT_EVERY`], whatever its times say: a read of some kilobytes a second costs as little as
//! a stat, and can't miss a change within one tick of a file system's clock. A file that is missing, empty, too large or no
//! token (half written) changes nothing: the last good token stays, and the log says once that it does, without any of it.
//! Deliberately not here: when it is asked, and on which thread (`upstream::token`).

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Instant;

use super::secret::Secret;
use super::{SECRET_BYTES_MAX, read_bounded, reason};

/// How long a token is taken for current without a look at its file.
pub const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// A token's file and its last good content. Prints its path only: what was looked at when is no difference between two loads of a
/// configuration ([`changes`](super::changes)), and the token is nobody's business.
pub struct TokenFile {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    token: Secret,
    /// When a look began last; `None`: none since the configuration was loaded.
    looked_at: Option<Instant>,
    /// A look is going on: a file system that hangs takes one thread, not one a second.
    looking: bool,
    /// The last look found no token.
    failing: bool,
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenFile").field(&self.path).finish()
    }
}

impl TokenFile {
    /// `first` is what stands in the file now.
    pub fn new(path: PathBuf, first: Secret) -> Self {
        Self { path, state: Mutex::new(State { token: first, looked_at: None, looking: false, failing: false }) }
    }

    /// The token as far as it is known.
    pub fn last_good(&self) -> Secret {
        self.state().token.clone()
    }

    /// Whether the file must be looked at again. A yes is given to one asker only, who must [`look`](Self::look).
    pub fn is_due(&self, now: Instant) -> bool {
        let mut state = self.state();
        let old = state.looked_at.is_none_or(|at| now.saturating_duration_since(at) >= LOOKED_AT_EVERY);
        let due = old && !state.looking;
        if due {
            (state.looked_at, state.looking) = (Some(now), true);
        }
        due
    }

    /// Reads the file, blocking: at most [`SECRET_BYTES_MAX`], and only a regular file.
    pub fn look(&self) {
        let found = match read_bounded(&self.path, SECRET_BYTES_MAX) {
            Ok(text) if text.trim_ascii().is_empty() => Err("it is empty"),
            Ok(text) if !text.trim_ascii().bytes().all(|byte| byte.is_ascii_graphic()) => Err("it is not one token"),
            Ok(text) => Ok(Secret::new(text.trim_ascii().to_owned())),
            Err(error) => Err(reason(&error)),
        };
        let mut state = self.state();
        state.looking = false;
        match found {
            Ok(token) => {
                if state.failing {
                    tracing::info!("an entra_token file is good again");
                }
                state.failing = false;
                state.token = token;
            }
            Err(why) => {
                if !state.failing {
                    tracing::warn!(why, "an entra_token file can't be used: its last good token is sent on");
                }
                state.failing = true;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held, and a whole token stands in it at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_good_token_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let file = TokenFile::new(path.clone(), Secret::new("first".into()));
        let reads = |content: Option<&[u8]>| {
            match content {
                Some(content) => std::fs::write(&path, content).unwrap(),
                None => std::fs::remove_file(&path).unwrap(),
            }
            file.look();
            file.last_good().expose().to_owned()
        };
        let large = vec![b'x'; usize::try_from(SECRET_BYTES_MAX).unwrap() + 1];
        for (content, token) in [
            (Some(&b"second\n"[..]), "second"),
            (Some(b""), "second"),
            (Some(b" \r\n"), "second"),
            (Some(b"two words"), "second"),
            (Some(b"\xff\xfe"), "second"),
            (Some(&large), "second"),
            (None, "second"),
            (Some(b" third \r\n"), "third"),
            (Some(b"forth"), "forth"),
        ] {
            assert_eq!(reads(content), token, "{:?}", content.map(<[u8]>::len));
        }
        assert!(!format!("{file:?}").contains("forth"));
        let (looked, _) = (file.is_due(Instant::now()), file.look());
        let fresh = TokenFile::new(path.clone(), Secret::new("another".into()));
        assert!(looked && format!("{file:?}") == format!("{fresh:?}"), "a look is no change of the configuration");
    }

    #[tokio::test(start_paused = true)]
    async fn one_look_a_second_whoever_asks() {
        let file = TokenFile::new(PathBuf::from("nowhere"), Secret::new("t".into()));
        assert!(file.is_due(Instant::now()) && !file.is_due(Instant::now()));
        tokio::time::advance(3 * LOOKED_AT_EVERY).await;
        assert!(!file.is_due(Instant::now()), "the first look still goes on");
        file.look();
        assert!(file.is_due(Instant::now()));
        file.look();
        tokio::time::advance(LOOKED_AT_EVERY - Duration::from_millis(1)).await;
        assert!(!file.is_due(Instant::now()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(file.is_due(Instant::now()) && !file.is_due(Instant::now()));
    }
}

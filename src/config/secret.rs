//! A secret value that cannot be printed by accident: `Debug` shows nothing of it, there is no `Display`, and the only way
//! out has a name that a reviewer sees.

use std::fmt;

/// An API key or a client key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value read from the environment or a file.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The value, for the one place that must send or compare it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

//! A secret value that cannot be printed by accident: `Debug` shows nothing of it, there is no `Display`, and the only way
//! out has a name that a reviewer sees. Comparing takes the same time whatever the difference.

use std::fmt;

/// An API key or a client key.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value read from the environment or a file.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The value, for the one place that must send it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `presented` is this secret. Hashes are compared, and `blake3::Hash` compares in constant time, so the time
    /// taken tells nothing of how many leading characters were right.
    pub fn matches(&self, presented: &str) -> bool {
        blake3::hash(self.0.as_bytes()) == blake3::hash(presented.as_bytes())
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_only_itself_and_prints_nothing() {
        let secret = Secret::new("correct horse".into());
        for (presented, same) in
            [("correct horse", true), ("correct hors", false), ("correct horse ", false), ("", false)]
        {
            assert_eq!(secret.matches(presented), same, "{presented:?}");
        }
        assert_eq!(secret, secret.clone());
        assert_ne!(secret, Secret::new("battery".into()));
        assert_eq!(format!("{secret:?}"), "[secret]");
    }
}

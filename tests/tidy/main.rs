//! What holds in the source itself and no compiler says: which rooms are pure, which import which, how long a file may be, what
//! may not be committed, and under which licences our dependencies are.
//!
//! In: the files of this checkout as text; nothing of the library is called. Out: a test a rule, whose failure names file, line
//! and what to do. `rooms` holds the walls, `files` what is true of each file, `licences` asks cargo, `source` reads Rust
//! well enough to tell code from comments, strings and tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod files;
mod licences;
mod rooms;
mod source;

/// Fails with all findings at once.
fn none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

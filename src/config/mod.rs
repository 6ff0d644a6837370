//! The configuration: `raw.rs` mirrors the file, `checked.rs` turns it into [`settings`], collecting *all* problems with
//! file, line and key; `secret.rs` keeps keys out of every print.

pub mod secret;
pub mod settings;

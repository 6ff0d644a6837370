//! Checked settings from a text, for the unit tests of other rooms: what they judge then is what a real file gives. Test only.

use std::io;
use std::path::Path;

use super::settings::Settings;
use super::{Sources, parse};
use crate::clock::UnixMillis;

/// 2026-06-15, noon: "today" of configs in tests.
pub(crate) const TODAY: UnixMillis = UnixMillis(1_781_524_800_000);

/// The settings; every `env:NAME` is `secret-of-NAME`, padded to a credible length.
pub(crate) fn settings(text: &str) -> Settings {
    let sources = Sources {
        folder: Path::new(""),
        env: &|name| (!name.starts_with("OTEL_")).then(|| format!("secret-of-{name}{}", "-".repeat(32))),
        read: &|_| Err(io::ErrorKind::NotFound.into()),
        now: TODAY,
        terminal: false,
    };
    parse(text, "test.toml", &sources).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}")).settings
}

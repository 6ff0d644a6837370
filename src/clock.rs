//! Time. Durations are measured on tokio's monotonic [`Instant`], so that tests can pause it; what is stored or
//! compared with a date is [`UnixMillis`]. This is the only file that reads the wall clock: everything else is told.

pub use tokio::time::Instant;

/// Wall time in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// Reads the wall clock. A clock before 1970 reads as 1970.
    #[allow(clippy::disallowed_methods, reason = "the one reader of the wall clock")]
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX).saturating_add_signed(offset_ms()))
    }

    /// The UTC day as TOML writes it; 1970's first where it is out of the calendar.
    pub fn day(self) -> String {
        let millis = i64::try_from(self.0).unwrap_or(0);
        let timestamp = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        jiff::tz::Offset::UTC.to_datetime(timestamp).date().to_string()
    }
}

/// `RUBICON_CLOCK_OFFSET_MS`: expiry and purge driven from outside. Only with the feature `testing`, which no release has.
#[cfg(feature = "testing")]
fn offset_ms() -> i64 {
    static OFFSET: std::sync::OnceLock<i64> = std::sync::OnceLock::new();
    *OFFSET
        .get_or_init(|| std::env::var("RUBICON_CLOCK_OFFSET_MS").ok().and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// Without the feature `testing` the clock is what it is.
#[cfg(not(feature = "testing"))]
const fn offset_ms() -> i64 {
    0
}

//! Backoff.
use std::time::Duration;
/// Base.
pub const BASE: Duration = Duration::from_millis(250);
/// Cap.
pub const CAP: Duration = Duration::from_secs(8);
/// Full jitter.
pub fn full_jitter(attempt: u32, random: u64, base: Duration, cap: Duration) -> Duration {
    let ceiling = base.saturating_mul(1 << attempt.min(16)).min(cap);
    let span = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(random % span)
}

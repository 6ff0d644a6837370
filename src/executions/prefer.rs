//! `Prefer: wait=N` (RFC 7240): how long a caller would wait for a run that goes on.

use std::time::Duration;

use http::HeaderMap;

/// Longest wait; a longer one asked for is cut to it and told so by `Preference-Applied`. Under the idle limits of usual proxies.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);

/// The wait that is asked for, in whole seconds and within [`WAIT_MAX`]; what cannot be read counts as not said, as the RFC wants it.
pub(super) fn wait(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let preferences = values.flat_map(|value| value.split(','));
    // Of several the first counts (RFC 7240, section 2).
    let seconds = preferences.filter_map(|preference| {
        // Parameters may follow, which `wait` has none of.
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim().trim_matches('"'))
    });
    let seconds = seconds.map(|text| if digits(text) { text.parse().unwrap_or(u64::MAX) } else { 0 }).next()?;
    (seconds > 0).then(|| Duration::from_secs(seconds).min(WAIT_MAX))
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_as_the_rfc_writes_them() {
        let wait = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("prefer", value.parse().unwrap());
            }
            super::wait(&headers).map(|wait| wait.as_secs())
        };
        assert_eq!(wait(&[]), None);
        assert_eq!(wait(&["wait=10"]), Some(10));
        assert_eq!(wait(&["respond-async, Wait = \"5\"; x=y"]), Some(5));
        assert_eq!(wait(&["respond-async", "wait=5", "wait=9"]), Some(5));
        assert_eq!(wait(&["wait=61"]), Some(60));
        assert_eq!(wait(&["wait=99999999999999999999999"]), Some(60));
        for none in ["wait", "wait=", "wait=0", "wait=-1", "wait=1.5", "wait=soon", "waiting=3"] {
            assert_eq!(wait(&[none]), None, "{none}");
        }
    }
}

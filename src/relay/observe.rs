//! What was seen of each route: the median time to first output, which tells how much time a next attempt needs.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::attempt::budget::NEED_WITHOUT_DATA;
use crate::ids::RouteId;

/// Samples kept a route: enough for a median that follows the last minutes, small enough to sort at each decision.
const SAMPLES: usize = 32;

/// What is added to a median at least: a loaded machine's scheduling alone takes some of it.
const MARGIN_MIN: Duration = Duration::from_millis(100);

/// Recent times to first output (connect included), a route.
#[derive(Debug, Default)]
pub struct Observations {
    routes: Mutex<BTreeMap<RouteId, Ring>>,
}

#[derive(Debug, Default)]
struct Ring {
    samples: Vec<Duration>,
    next: usize,
}

impl Observations {
    /// Drops what was seen of routes that are no more.
    pub fn keep(&self, still: impl Fn(&RouteId) -> bool) {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner).retain(|route, _| still(route));
    }

    /// Notes one.
    pub fn first_output(&self, route: &RouteId, took: Duration) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        // Routes are configured, and those that no longer are get dropped at a reload, so their number is bounded.
        let ring = routes.entry(route.clone()).or_default();
        if ring.samples.len() < SAMPLES {
            ring.samples.push(took);
        } else if let Some(slot) = ring.samples.get_mut(ring.next) {
            *slot = took;
        }
        ring.next = (ring.next + 1) % SAMPLES;
    }

    /// The time an attempt there needs, connect included: twice the observed median (half of all attempts take longer than the
    /// median itself), at least a tenth of a second more; 2 s without data.
    pub fn need(&self, route: &RouteId) -> Duration {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ring) = routes.get(route) else { return NEED_WITHOUT_DATA };
        let mut sorted = ring.samples.clone();
        sorted.sort_unstable();
        let median = sorted.get(sorted.len() / 2).copied();
        median.map_or(NEED_WITHOUT_DATA, |median| (median * 2).max(median + MARGIN_MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_last_samples() {
        let seen = Observations::default();
        let route = RouteId::new("a");
        assert_eq!(seen.need(&route), NEED_WITHOUT_DATA);
        for ms in [100, 900, 300] {
            seen.first_output(&route, Duration::from_millis(ms));
        }
        assert_eq!(seen.need(&route), Duration::from_millis(600));
        for _ in 0..SAMPLES {
            seen.first_output(&route, Duration::from_millis(50));
        }
        assert_eq!(seen.need(&route), Duration::from_millis(150));
        assert_eq!(seen.need(&RouteId::new("b")), NEED_WITHOUT_DATA);
    }
}

//! The breaker's table, row by row, with a clock of the test's own.

use super::*;

const SETTINGS: BreakerSettings = BreakerSettings { failures: 3, cooldown: Duration::from_secs(5) };

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A breaker that tripped at `now`.
fn tripped(now: Instant) -> Breaker {
    let mut breaker = Breaker::default();
    for n in 0..3 {
        let ticket = breaker.admit(&SETTINGS, false, now).expect("healthy");
        let change = breaker.failed(ticket, &SETTINGS, None, now);
        assert_eq!(change, (n == 2).then_some(Change::Tripped { until: now + s(5) }));
    }
    breaker
}

fn probe(breaker: &mut Breaker, now: Instant) -> Ticket {
    let ticket = breaker.admit(&SETTINGS, false, now).expect("a probe");
    assert!(ticket.is_probe());
    assert_eq!(breaker.state(), BreakerState::Probing);
    ticket
}

#[test]
fn failures_in_a_row_trip_it_and_one_success_between_them_does_not() {
    let now = Instant::now();
    let mut breaker = Breaker::default();
    for outcome in [false, false, true, false, false, true, false, false] {
        let ticket = breaker.admit(&SETTINGS, false, now).expect("healthy");
        let change = if outcome { breaker.succeeded(ticket) } else { breaker.failed(ticket, &SETTINGS, None, now) };
        assert_eq!(change, None);
    }
    assert_eq!((breaker.state(), breaker.failures()), (BreakerState::Healthy, 2));
    let ticket = breaker.admit(&SETTINGS, false, now).expect("healthy");
    assert_eq!(breaker.failed(ticket, &SETTINGS, None, now), Some(Change::Tripped { until: now + s(5) }));
    assert_eq!(breaker.admit(&SETTINGS, false, now + s(4)), Err(now + s(5)));
}

#[test]
fn one_probe_at_a_time_and_it_decides() {
    let now = Instant::now();
    let mut breaker = tripped(now);
    let first = probe(&mut breaker, now + s(5));
    assert_eq!(breaker.admit(&SETTINGS, false, now + s(60)), Err(now + s(60) + PROBE_HINT), "one is under way");
    assert_eq!(breaker.failed(first, &SETTINGS, None, now + s(6)), Some(Change::Tripped { until: now + s(16) }));
    assert_eq!(breaker.admit(&SETTINGS, false, now + s(15)), Err(now + s(16)));
    let second = probe(&mut breaker, now + s(16));
    assert_eq!(breaker.succeeded(second), Some(Change::Healed));
    assert_eq!(breaker.state(), BreakerState::Healthy);
    assert!(!breaker.admit(&SETTINGS, false, now + s(16)).expect("healthy").is_probe());
}

#[test]
fn the_cooldown_doubles_up_to_twelve_times() {
    let mut now = Instant::now();
    let mut breaker = tripped(now);
    let mut cooldown = 5;
    for next in [10, 20, 40, 60, 60, 60] {
        now += s(cooldown);
        let ticket = probe(&mut breaker, now);
        assert_eq!(breaker.failed(ticket, &SETTINGS, None, now), Some(Change::Tripped { until: now + s(next) }));
        cooldown = next;
    }
    // Once healed, the next trip begins anew.
    now += s(cooldown);
    let ticket = probe(&mut breaker, now);
    breaker.succeeded(ticket);
    let tickets: Vec<_> = (0..3).map(|_| breaker.admit(&SETTINGS, false, now).expect("healthy")).collect();
    let last = tickets.into_iter().filter_map(|ticket| breaker.failed(ticket, &SETTINGS, None, now)).next_back();
    assert_eq!(last, Some(Change::Tripped { until: now + s(5) }));
}

#[test]
fn a_wait_that_the_provider_asks_for_extends_the_cooldown_within_its_bound() {
    for (asked, cooldown) in [(None, 5), (Some(1), 5), (Some(30), 30), (Some(3600), 60)] {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        let tickets: Vec<_> = (0..3).map(|_| breaker.admit(&SETTINGS, false, now).expect("healthy")).collect();
        let changes: Vec<_> =
            tickets.into_iter().map(|ticket| breaker.failed(ticket, &SETTINGS, asked.map(s), now)).collect();
        assert_eq!(changes, [None, None, Some(Change::Tripped { until: now + s(cooldown) })], "{asked:?}");
        // The next cooldown doubles the own one, not the wait that was asked for.
        let at = now + s(cooldown);
        let ticket = probe(&mut breaker, at);
        assert_eq!(breaker.failed(ticket, &SETTINGS, None, at), Some(Change::Tripped { until: at + s(10) }));
    }
}

#[test]
fn what_began_before_the_trip_changes_nothing_after_it() {
    let now = Instant::now();
    let mut breaker = Breaker::default();
    let old: Vec<_> = (0..10).map(|_| breaker.admit(&SETTINGS, false, now).expect("healthy")).collect();
    let changes: Vec<_> = old.iter().filter_map(|ticket| breaker.failed(*ticket, &SETTINGS, None, now)).collect();
    assert_eq!(changes, [Change::Tripped { until: now + s(5) }], "the rest says nothing new");
    assert_eq!(breaker.succeeded(old[0]), None);
    assert_eq!(breaker.state(), BreakerState::Tripped);
    // Nor does it end a probe, give one back, or count once the route is healthy.
    let ticket = probe(&mut breaker, now + s(5));
    breaker.given_back(old[1]);
    assert_eq!(breaker.failed(old[1], &SETTINGS, None, now + s(5)), None);
    assert_eq!(breaker.state(), BreakerState::Probing);
    breaker.succeeded(ticket);
    assert_eq!(breaker.failed(old[2], &SETTINGS, None, now + s(6)), None);
    assert_eq!(breaker.failures(), 0);
}

#[test]
fn a_probe_that_says_nothing_is_given_back() {
    let now = Instant::now();
    let mut breaker = tripped(now);
    let ticket = probe(&mut breaker, now + s(5));
    breaker.given_back(ticket);
    assert_eq!(breaker.state(), BreakerState::Tripped);
    probe(&mut breaker, now + s(5));
    // Given back twice is given back once.
    breaker.succeeded(ticket);
    breaker.given_back(ticket);
    assert_eq!(breaker.state(), BreakerState::Healthy);
}

#[test]
fn the_only_route_is_asked_all_the_same() {
    let now = Instant::now();
    let mut breaker = tripped(now);
    let beside = breaker.admit(&SETTINGS, true, now).expect("no other route");
    assert!(!beside.is_probe());
    assert_eq!(breaker.failed(beside, &SETTINGS, None, now), None, "the cooldown is the probe's to change");
    let ticket = breaker.admit(&SETTINGS, true, now + s(5)).expect("the probe");
    assert!(ticket.is_probe());
    let beside = breaker.admit(&SETTINGS, true, now + s(5)).expect("beside the probe");
    assert_eq!(breaker.succeeded(beside), Some(Change::Healed), "it began after the trip, and lives");
    assert_eq!(breaker.failed(ticket, &SETTINGS, None, now + s(6)), None);
    assert_eq!(breaker.state(), BreakerState::Healthy);
}

#[test]
fn none_at_all_never_trips_and_a_reload_may_switch_it_off() {
    let now = Instant::now();
    let off = BreakerSettings { failures: 0, ..SETTINGS };
    let mut breaker = Breaker::default();
    for _ in 0..100 {
        let ticket = breaker.admit(&off, false, now).expect("never tripped");
        assert_eq!(breaker.failed(ticket, &off, Some(s(60)), now), None);
    }
    let mut breaker = tripped(now);
    assert_eq!(breaker.closed_until(&off, now), None);
    assert!(!breaker.admit(&off, false, now).expect("switched off").is_probe());
    assert_eq!(breaker.state(), BreakerState::Healthy);
}

#[test]
fn every_class_says_something_or_nothing() {
    let fails: Vec<_> = Class::ALL.into_iter().filter(|class| sign(*class) == Sign::Fails).collect();
    assert_eq!(
        fails,
        [Class::TransportTransient, Class::RateLimited, Class::ProviderOverloaded, Class::ProviderServerError]
    );
    assert_eq!(sign(Class::InvalidRequest), Sign::Lives);
    assert_eq!(sign(Class::ModelUnavailable), Sign::Nothing);
}

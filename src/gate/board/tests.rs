//! The board as its users see it: by name, with passes that come and go in any order.

use super::*;
use crate::clock::UnixMillis;
use crate::config::testing::settings;
use crate::gate::Switch;

fn routes(lines: &str) -> Vec<Arc<RouteSettings>> {
    let text = format!(
        "[provider.p]\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         [route.a]\nprovider = \"p\"\n{lines}\n[route.b]\nprovider = \"p\"\n[workflow.w]\nprimary = \"a\"\nequivalents = [\"b\"]\n"
    );
    settings(&text).routes.into_values().collect()
}

fn board(routes: &[Arc<RouteSettings>]) -> Board {
    let board = Board::default();
    board.configure(routes);
    board
}

fn asking(route: &RouteSettings, recovery: bool) -> Asking<'_> {
    Asking { route, recovery, even_if_tripped: false, tokens: 10 }
}

fn view(board: &Board, now: Instant) -> RouteView {
    board.view(now).into_iter().next().expect("a route")
}

const A: &str = "limits = { concurrency = 2 }\nfailover_limits = { concurrency = 1 }\n\
                 breaker = { failures = 2, cooldown_ms = 1000 }";

#[test]
fn a_pass_holds_its_place_until_it_is_dropped() {
    let routes = routes(A);
    let (board, now) = (board(&routes), Instant::now());
    let name = &routes[0].name;
    let recovering = board.enter(&asking(&routes[0], true), now).expect("free");
    assert_eq!(board.enter(&asking(&routes[0], true), now).err(), Some(Closed::FailoverLimit));
    assert_eq!(board.closed(name, true, now), Some(Closed::FailoverLimit));
    assert_eq!(board.closed(name, false, now), None);
    let mut own = board.enter(&asking(&routes[0], false), now).expect("free");
    own.succeeded();
    assert_eq!(board.closed(name, false, now), Some(Closed::Capacity), "its success ends nothing");
    assert_eq!(board.opens_in(name, false, 1, now), Some(Duration::from_secs(1)));
    drop((recovering, own));
    assert_eq!((board.closed(name, true, now), board.opens_in(name, true, 1, now)), (None, None));
    assert_eq!((view(&board, now).attempts, view(&board, now).recovering), (0, 0));
}

#[test]
fn a_probe_is_one_and_comes_back_when_dropped() {
    let routes = routes(A);
    let (board, now) = (board(&routes), Instant::now());
    let name = &routes[0].name;
    for _ in 0..2 {
        let mut pass = board.enter(&asking(&routes[0], false), now).expect("healthy");
        pass.failed(Class::ProviderOverloaded, None, now);
    }
    let until = now + Duration::from_secs(1);
    assert_eq!(board.closed(name, false, now), Some(Closed::Tripped { until }));
    assert_eq!(board.enter(&asking(&routes[0], false), now).err(), Some(Closed::Tripped { until }));
    assert_eq!(board.opens_in(name, false, 1, now), Some(Duration::from_secs(1)));
    let lone = Asking { even_if_tripped: true, ..asking(&routes[0], false) };
    assert!(!board.enter(&lone, now).expect("no other route").is_probe());
    assert_eq!(board.closed(name, false, until), None, "the next one is the probe");
    let probe = board.enter(&asking(&routes[0], false), until).expect("the probe");
    assert!(probe.is_probe());
    assert!(matches!(board.closed(name, false, until), Some(Closed::Tripped { .. })));
    assert_eq!(view(&board, until).breaker, BreakerState::Probing);
    drop(probe);
    let mut again = board.enter(&asking(&routes[0], false), until).expect("the next probe");
    assert_eq!(again.failed(Class::ModelUnavailable, None, until), None, "says nothing, so it is given back");
    let mut last = board.enter(&asking(&routes[0], false), until).expect("a probe while that one is held");
    assert_eq!(last.failed(Class::InvalidRequest, None, until), Some(Change::Healed), "it answered");
    assert_eq!(last.succeeded(), None, "one report an attempt");
}

#[test]
fn who_does_not_fit_is_not_the_probe() {
    let routes = routes(A);
    let (board, now) = (board(&routes), Instant::now());
    let held: Vec<_> = (0..2).map(|_| board.enter(&asking(&routes[0], false), now).expect("free")).collect();
    for mut pass in held {
        pass.failed(Class::RateLimited, None, now);
        std::mem::forget(pass); // its place stays taken
    }
    let later = now + Duration::from_secs(1);
    assert_eq!(board.enter(&asking(&routes[0], false), later).err(), Some(Closed::Capacity));
    assert_eq!(view(&board, later).breaker, BreakerState::Tripped);
}

#[test]
fn a_reload_changes_limits_and_keeps_what_is_known() {
    let old = routes(A);
    let (board, now) = (board(&old), Instant::now());
    let _held = board.enter(&asking(&old[0], false), now).expect("free");
    let new = routes("limits = { concurrency = 1 }");
    board.configure(&new[..1]);
    assert_eq!(board.closed(&new[0].name, false, now), Some(Closed::Capacity));
    assert!(board.enter(&asking(&old[0], false), now).is_ok(), "who was admitted under the old limits keeps them");
    // A route that is gone: an old request may still use it.
    let pass = board.enter(&asking(&old[1], false), now).expect("unlimited");
    assert_eq!(board.view(now).len(), 1, "it is not shown any more");
    board.configure(&new);
    assert_eq!(board.view(now).iter().map(|route| route.attempts).collect::<Vec<_>>(), [1, 1]);
    drop(pass);
    assert_eq!(board.view(now)[1].attempts, 0);
}

#[test]
fn switches_are_in_force_at_once() {
    let routes = routes("");
    let (board, now) = (board(&routes), Instant::now());
    let switch = || Switch { by: "ana".to_owned(), reason: "drill".to_owned(), since: UnixMillis(1) };
    let (a, w) = (routes[0].name.clone(), WorkflowId::new("w"));
    let running = board.enter(&asking(&routes[0], false), now).expect("open");
    board.set_switches(Switches { killed: [(a.clone(), switch())].into(), ..Switches::default() });
    assert_eq!(board.closed(&a, false, now), Some(Closed::Killed));
    let even = Asking { even_if_tripped: true, ..asking(&routes[0], false) };
    assert_eq!(board.enter(&even, now).err(), Some(Closed::Killed));
    assert_eq!(board.opens_in(&a, false, 1, now), Some(KILLED_HINT));
    assert!(view(&board, now).killed && view(&board, now).attempts == 1, "what runs goes on");
    assert!(!board.failover_off(&w));
    board.set_switches(Switches { workflow_failover_off: [(w.clone(), switch())].into(), ..Switches::default() });
    assert!(board.failover_off(&w) && !board.failover_off(&WorkflowId::new("v")));
    board.set_switches(Switches { failover_off: Some(switch()), ..Switches::default() });
    assert!(board.failover_off(&w) && board.failover_off(&WorkflowId::new("v")));
    drop(running);
}

proptest::proptest! {
    /// Attempts come, fail, succeed, are dropped, in any order and at any time: never above a cap, never two probes, and nothing is
    /// left when all have gone.
    #[test]
    fn no_cap_is_passed_and_nothing_is_lost(steps: Vec<(u8, u16)>) {
        let routes = routes(A);
        let (board, mut now) = (board(&routes), Instant::now());
        let mut passes: Vec<(Pass, bool)> = Vec::new();
        for (what, number) in steps {
            now += Duration::from_millis(u64::from(number % 400));
            let at = usize::from(number) % passes.len().max(1);
            match what % 6 {
                0..=2 => {
                    let recovery = what % 2 == 0;
                    passes.extend(board.enter(&asking(&routes[0], recovery), now).ok().map(|pass| (pass, recovery)));
                }
                3 if !passes.is_empty() => drop(passes.swap_remove(at)),
                4 if !passes.is_empty() => drop(passes[at].0.succeeded()),
                5 if !passes.is_empty() => drop(passes[at].0.failed(Class::TransportTransient, None, now)),
                _ => {}
            }
            let seen = view(&board, now);
            let recovering = passes.iter().filter(|(_, recovery)| *recovery).count();
            proptest::prop_assert_eq!(usize::try_from(seen.attempts).unwrap(), passes.len());
            proptest::prop_assert_eq!(usize::try_from(seen.recovering).unwrap(), recovering);
            proptest::prop_assert!(seen.attempts <= 2 && seen.recovering <= 1);
            let probes = passes.iter().filter(|(pass, _)| pass.is_probe()).count();
            let probing = usize::from(seen.breaker == BreakerState::Probing);
            proptest::prop_assert!(probes <= 1 && probing <= probes, "{} probes, {:?}", probes, seen.breaker);
        }
        passes.clear();
        let seen = view(&board, now);
        proptest::prop_assert_eq!((seen.attempts, seen.recovering), (0, 0));
        proptest::prop_assert!(seen.breaker != BreakerState::Probing);
    }
}

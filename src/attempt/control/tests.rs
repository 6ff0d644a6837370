//! One row a rule of SPEC section 6's decision column and the paragraphs under it.

use std::sync::Arc;

use super::*;
use crate::classify::Said;
use crate::config::settings::{
    BreakerSettings, Envelope, FailoverLimits, Limits, Network, ProviderKind, ProviderSettings, RouteSettings,
    SideEffects, Terminal, Timeouts,
};
use crate::ids::{ProviderId, RouteId};
use crate::plan::Candidate;

fn route(name: &str, provider: &str) -> Arc<RouteSettings> {
    let second = Duration::from_secs(1);
    Arc::new(RouteSettings {
        name: RouteId::new(name),
        provider: Arc::new(ProviderSettings {
            name: ProviderId::new(provider),
            kind: ProviderKind::OpenAi,
            base_url: http::Uri::from_static("http://127.0.0.1:1/v1"),
            api_key: None,
            entra_token: None,
            account: provider.to_owned(),
            legal_entity: None,
            data_classes: None,
            network: Some(Network::Private),
            terminal: Terminal::Strict,
            forward_headers: Vec::new(),
            ambiguous_429_is_rate_limit: false,
            attempts_header: None,
            idempotency_header: None,
            depends_on: Vec::new(),
        }),
        model: None,
        model_class: None,
        region: None,
        dialects: Vec::new(),
        capabilities: None,
        context_tokens: None,
        max_output_tokens: None,
        price: None,
        timeouts: Timeouts {
            connect: second,
            first_output: second,
            first_output_reasoning: second,
            idle: second,
            answer: second,
        },
        verified: None,
        limits: Limits::default(),
        failover_limits: FailoverLimits::default(),
        breaker: BreakerSettings { failures: 10, cooldown: second },
        oncall: None,
        schemas: None,
        languages: None,
        safety_profile: None,
    })
}

fn plan(routes: &[(&str, &str, Role)]) -> Plan {
    let candidates = routes.iter().map(|(name, provider, role)| Candidate {
        route: route(name, provider),
        role: *role,
        last_resort: false,
    });
    Plan { candidates: candidates.collect(), ..Plan::default() }
}

fn verdict(class: Class) -> Verdict {
    Verdict {
        class,
        may_have_run: false,
        retry_after: None,
        provider_status: None,
        said: Said::default(),
        alarm: false,
        limit: None,
    }
}

/// A situation whose first candidate failed once, with everything else roomy; `change` makes the row.
struct Case {
    plan: Plan,
    tried: Vec<Tried>,
    failed: usize,
    verdict: Verdict,
    budget: Budget,
    needs: Vec<(Duration, f64)>,
    cut_early: bool,
    hosted_may_act: bool,
    acted: bool,
    wait_first: Duration,
    now: Instant,
    random: u64,
}

impl Case {
    fn new(routes: &[(&str, &str, Role)], class: Class) -> Self {
        let now = Instant::now();
        let envelope = Envelope {
            deadline: Duration::from_secs(30),
            deadline_reasoning: Duration::from_secs(30),
            answer_deadline: Duration::from_secs(30),
            stream: None,
            max_attempts: 5,
            max_added_latency: None,
            max_cost_usd: None,
            side_effects: SideEffects::ReadOnly,
            repeat_unanswered: true,
        };
        let mut budget = Budget::new(now, Duration::from_secs(30), envelope, 0);
        budget.begin(0.0);
        let mut tried = vec![Tried::default(); routes.len()];
        tried[0] = Tried { attempts: 1, class: Some(class), ready_at: None, shut: false };
        Self {
            plan: plan(routes),
            tried,
            failed: 0,
            verdict: verdict(class),
            budget,
            needs: vec![(Duration::from_secs(2), 0.0); routes.len()],
            cut_early: false,
            hosted_may_act: false,
            acted: false,
            wait_first: Duration::from_secs(1),
            now,
            random: 0,
        }
    }

    fn told(mut self, wait: Duration) -> Self {
        self.verdict.retry_after = Some(wait);
        self.tried[self.failed].ready_at = Some(self.now + wait);
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn decide(&self) -> Next {
        decide(&Situation {
            plan: &self.plan,
            tried: &self.tried,
            failed: self.failed,
            verdict: &self.verdict,
            budget: &self.budget,
            needs: &self.needs,
            cut_early: self.cut_early,
            hosted_may_act: self.hosted_may_act,
            acted: self.acted,
            wait_first: self.wait_first,
            now: self.now,
            random: self.random,
        })
    }
}

const A: (&str, &str, Role) = ("a", "p1", Role::Primary);
const B: (&str, &str, Role) = ("b", "p2", Role::Equivalent);
const B_SAME: (&str, &str, Role) = ("b", "p1", Role::Equivalent);
const C: (&str, &str, Role) = ("c", "p3", Role::Equivalent);
const X: (&str, &str, Role) = ("x", "p4", Role::Alternate);

const RECOVERABLE: [Class; 4] =
    [Class::TransportTransient, Class::RateLimited, Class::ProviderOverloaded, Class::ProviderServerError];

fn go(candidate: usize) -> Next {
    Next::Attempt { candidate, wait: Duration::ZERO }
}

fn stop(reason: Stop, class: Class) -> Next {
    Next::Stop { reason, class }
}

#[test]
fn recoverable_classes_go_to_the_equivalent_then_retry() {
    for class in RECOVERABLE {
        assert_eq!(Case::new(&[A, B, X], class).decide(), go(1), "{class:?}");
        // Alone: the same route again, after a jittered wait (random 0: none).
        assert_eq!(Case::new(&[A], class).decide(), go(0), "{class:?}");
        // An alternate is not for these.
        assert_eq!(Case::new(&[A, X], class).decide(), go(0), "{class:?}");
    }
}

#[test]
fn model_and_contract_failures_go_to_another_provider_then_to_an_alternate() {
    for class in [Class::ModelUnavailable, Class::ContractFailure] {
        assert_eq!(Case::new(&[A, B_SAME, C, X], class).decide(), go(2), "{class:?}");
        assert_eq!(Case::new(&[A, B_SAME, X], class).decide(), go(2), "{class:?}");
        assert_eq!(Case::new(&[A, B_SAME], class).decide(), stop(Stop::NoEligibleFallback, class), "{class:?}");
        assert_eq!(Case::new(&[A], class).decide(), stop(Stop::NoEligibleFallback, class), "never the same again");
        // Two providers broke it in turn: the first one's other route is not "another provider" for the second.
        let both = |later: Class| {
            Case::new(&[A, B_SAME, C, X], later).with(|case| {
                case.tried[0].class = Some(class);
                case.tried[2] = Tried { attempts: 1, class: Some(later), ready_at: None, shut: false };
                case.failed = 2;
            })
        };
        assert_eq!(both(class).decide(), go(3), "{class:?}");
        assert_eq!(both(Class::ProviderOverloaded).decide(), go(2), "{class:?}: again, and not to b");
    }
}

#[test]
fn blocked_classes_stop() {
    for class in [
        Class::QuotaExhausted,
        Class::Ambiguous429,
        Class::AuthenticationOrPermission,
        Class::InvalidRequest,
        Class::Refusal,
        Class::DeadlineExhausted,
        Class::PartialOutput,
        Class::SideEffectUncertain,
        Class::Unclassified,
    ] {
        assert_eq!(Case::new(&[A, B, X], class).decide(), stop(Stop::Blocked, class));
    }
}

#[test]
fn the_whole_chain_is_walked_before_anybody_is_asked_twice() {
    let mut case = Case::new(&[A, B, C], Class::ProviderServerError);
    case.failed = 1;
    case.tried[1] = Tried { attempts: 1, class: Some(Class::ProviderOverloaded), ready_at: None, shut: false };
    assert_eq!(case.decide(), go(2));
    case.failed = 2;
    case.tried[2] = Tried { attempts: 1, class: Some(Class::ModelUnavailable), ready_at: None, shut: false };
    case.verdict.class = Class::ModelUnavailable;
    assert_eq!(case.decide(), go(0), "the one whose model is out is not asked again, the others may be");
}

#[test]
fn a_short_wait_that_was_told_beats_a_change_of_provider() {
    let short = Duration::from_millis(900);
    let told = Case::new(&[A, B], Class::RateLimited).told(short);
    assert_eq!(told.decide(), Next::Attempt { candidate: 0, wait: short });
    let long = Case::new(&[A, B], Class::RateLimited).told(Duration::from_secs(1));
    assert_eq!(long.decide(), go(1), "a second or more: the equivalent");
    let again = Case::new(&[A, B], Class::RateLimited).told(short).with(|case| case.tried[0].attempts = 2);
    assert_eq!(again.decide(), go(1), "it waited once and was refused again");
    let overloaded = Case::new(&[A, B], Class::ProviderOverloaded).told(short);
    assert_eq!(overloaded.decide(), go(1), "only a rate limit waits first");
    let alone = Case::new(&[A], Class::RateLimited).told(Duration::from_secs(20));
    assert_eq!(alone.decide(), Next::Attempt { candidate: 0, wait: Duration::from_secs(20) });
    let too_long = Case::new(&[A], Class::RateLimited).told(Duration::from_secs(29));
    assert_eq!(too_long.decide(), stop(Stop::DeadlineExhausted, Class::DeadlineExhausted));
}

#[test]
fn sent_and_no_answer() {
    let unanswered = |change: fn(&mut Case)| {
        Case::new(&[A, B], Class::ProviderServerError)
            .with(|case| case.verdict.may_have_run = true)
            .with(change)
            .decide()
    };
    let uncertain = stop(Stop::SideEffectUncertain, Class::SideEffectUncertain);
    assert_eq!(unanswered(|_| {}), go(1));
    assert_eq!(unanswered(|case| case.hosted_may_act = true), uncertain);
    assert_eq!(unanswered(|case| case.acted = true), uncertain);
    for class in Class::ALL {
        let told = Case::new(&[A, B], class).with(|case| case.acted = true);
        assert_eq!(told.decide(), uncertain, "{class:?}: what has acted has acted");
    }
    assert_eq!(unanswered(|case| case.budget.envelope.repeat_unanswered = false), uncertain);
    let proved = |change: fn(&mut Case)| Case::new(&[A, B], Class::ProviderOverloaded).with(change).decide();
    assert_eq!(proved(|case| case.hosted_may_act = true), go(1));
    assert_eq!(proved(|case| case.budget.envelope.repeat_unanswered = false), go(1));
}

#[test]
fn every_budget_stops() {
    let class = Class::ProviderOverloaded;
    let row = |change: fn(&mut Case)| Case::new(&[A, B], class).with(change).decide();
    assert_eq!(row(|case| case.budget.attempts = 5), stop(Stop::AttemptsExhausted, class));
    assert_eq!(row(|case| case.budget.attempts_elsewhere = 4), stop(Stop::AttemptsExhausted, class));
    assert_eq!(row(|case| case.budget.envelope.max_attempts = 1), stop(Stop::AttemptsExhausted, class));
    assert_eq!(
        row(|case| case.now += Duration::from_millis(28_001)),
        stop(Stop::DeadlineExhausted, Class::DeadlineExhausted),
        "an attempt needs 2 s"
    );
    assert_eq!(row(|case| case.now += Duration::from_secs(28)), go(1));
    let late = |case: &mut Case| {
        case.budget.envelope.max_added_latency = Some(Duration::from_secs(3));
        case.now += Duration::from_millis(3001);
    };
    assert_eq!(row(late), stop(Stop::AddedLatencyExhausted, class));
    let costly = |case: &mut Case| {
        case.budget.envelope.max_cost_usd = Some(0.3);
        case.budget.spent_usd = 0.2;
        case.needs = vec![(Duration::ZERO, 0.2); 2];
    };
    assert_eq!(row(costly), stop(Stop::CostExhausted, class));
    let exact = |case: &mut Case| {
        case.budget.envelope.max_cost_usd = Some(0.3);
        case.budget.spent_usd = 0.2;
        case.needs = vec![(Duration::ZERO, 0.1); 2];
    };
    assert_eq!(row(exact), go(1), "0.1 + 0.2 fits 0.3");
}

#[test]
fn an_option_that_does_not_fit_gives_way_to_one_that_does() {
    let case = Case::new(&[A, B, C], Class::ProviderOverloaded).with(|case| {
        case.budget.envelope.max_cost_usd = Some(1.0);
        case.needs = vec![(Duration::ZERO, 0.1), (Duration::ZERO, 5.0), (Duration::ZERO, 0.1)];
    });
    assert_eq!(case.decide(), go(2));
}

#[test]
fn retries_back_off_with_full_jitter() {
    let mut case = Case::new(&[A], Class::ProviderServerError).with(|case| case.random = u64::MAX);
    let mut longest = Duration::ZERO;
    for attempts in 1..5 {
        case.tried[0].attempts = attempts;
        let Next::Attempt { candidate: 0, wait } = case.decide() else { panic!() };
        assert!(wait <= backoff::BACKOFF_CAP);
        longest = longest.max(wait);
    }
    assert!(longest > Duration::ZERO);
}

#[test]
fn an_attempt_is_cut_early_only_for_an_untried_equivalent() {
    let cut = |routes: &[(&str, &str, Role)], change: fn(&mut Case)| {
        let case = Case::new(routes, Class::TransportTransient).with(change);
        cut_at(&case.plan, &case.tried, &case.needs, &case.budget, 0, case.now) - case.now
    };
    let (whole, early) = (Duration::from_secs(30), Duration::from_secs(28));
    assert_eq!(cut(&[A, B], |_| {}), early);
    assert_eq!(cut(&[A], |_| {}), whole);
    assert_eq!(cut(&[A, X], |_| {}), whole);
    assert_eq!(cut(&[A, B], |case| case.tried[1].attempts = 1), whole);
    assert_eq!(cut(&[A, B], |case| case.budget.attempts = 5), whole, "no attempt is left for it");
    let short = |case: &mut Case| case.budget.deadline = case.now + Duration::from_millis(2100);
    assert_eq!(cut(&[A, B], short), Duration::from_millis(2100), "100 ms would be no attempt at all");
    let after_cut = Case::new(&[A, B], Class::TransportTransient).with(|case| {
        case.cut_early = true;
        case.now += Duration::from_millis(28_040);
    });
    assert_eq!(after_cut.decide(), go(1), "the time that was kept for the fallback is its own");
}

#[test]
fn what_the_gate_refused_is_not_asked_again() {
    let shut = |index: usize| move |case: &mut Case| case.tried[index].shut = true;
    let class = Class::ProviderOverloaded;
    assert_eq!(Case::new(&[A, B, C], class).with(shut(1)).decide(), go(2));
    let Next::Attempt { candidate: 0, .. } = Case::new(&[A, B], class).with(shut(1)).decide() else { panic!() };
    let both = Case::new(&[A, B], class).with(shut(0)).with(shut(1));
    assert_eq!(both.decide(), stop(Stop::NoEligibleFallback, class));
    // Not even for the short wait that it asked for itself.
    let told = Case::new(&[A, B], Class::RateLimited).told(Duration::from_millis(10)).with(shut(0));
    assert_eq!(told.decide(), go(1));
    // Nor is an attempt cut early for its sake.
    let case = Case::new(&[A, B], Class::TransportTransient).with(shut(1));
    assert_eq!(cut_at(&case.plan, &case.tried, &case.needs, &case.budget, 0, case.now), case.budget.deadline);
}

#[test]
fn who_is_asked_first() {
    let primary = RouteId::new("a");
    let none: &[Refusal] = &[];
    for (routes, shut, reasons, first) in [
        (&[A, B][..], &[][..], none, Some(0)),
        (&[A, B, C], &[0], none, Some(1)),
        (&[A, B, C], &[0, 1], none, Some(2)),
        (&[A, B], &[0, 1], none, None),
        // An alternate is for a model that is out.
        (&[A, X], &[0], none, None),
        (&[X], &[], &[Refusal::Tripped], None),
        (&[X], &[], &[Refusal::Tripped, Refusal::Capacity], None),
        (&[X], &[], &[Refusal::Killed], Some(0)),
        (&[X], &[], &[Refusal::Tripped, Refusal::Pinned("signature")], Some(0)),
        (&[X], &[0], &[Refusal::Killed], None),
        (&[], &[], none, None),
    ] {
        let mut plan = plan(routes);
        plan.refused.extend((!reasons.is_empty()).then(|| (primary.clone(), reasons.to_vec())));
        let mut tried = vec![Tried::default(); routes.len()];
        shut.iter().for_each(|index: &usize| tried[*index].shut = true);
        assert_eq!(super::first(&plan, &tried, &primary), first, "{routes:?} {shut:?} {reasons:?}");
    }
}

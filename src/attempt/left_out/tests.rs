//! One row a reason of a failure, by class and budget.

use std::collections::BTreeSet;

use super::*;
use crate::attempt::control::Tried;
use crate::classify::{Class, Said, Verdict};
use crate::clock::Instant;
use crate::config::settings::Settings;
use crate::config::testing::settings;
use crate::plan::refusal::{NAMES, When};
use crate::plan::{Candidate, Plan};

fn four() -> (Settings, Plan) {
    let mut text = String::from("[workflow.w]\nprimary = \"a\"\n");
    for (n, (name, provider)) in [("a", "p"), ("b", "p"), ("c", "q"), ("x", "q")].into_iter().enumerate() {
        if provider == name || n == 0 || n == 2 {
            text += &format!(
                "[provider.{provider}]\nkind = \"openai-compatible\"\nbase_url = \"http://127.0.0.1:{}/v1\"\n",
                n + 1
            );
        }
        text += &format!("[route.{name}]\nprovider = \"{provider}\"\n");
    }
    let settings = settings(&text);
    let roles = [Role::Primary, Role::Equivalent, Role::Equivalent, Role::Alternate];
    let candidates = settings.routes.values().zip(roles);
    let candidates = candidates
        .map(|(route, role)| Candidate { route: std::sync::Arc::clone(route), role, last_resort: false })
        .collect();
    (settings, Plan { candidates, ..Plan::default() })
}

struct Row {
    class: Class,
    may_have_run: bool,
    hosted: bool,
    attempts: u32,
    left_ms: u64,
    max_cost: Option<f64>,
    expected: &'static [&'static str],
}

#[test]
fn each_candidate_that_was_not_asked_has_its_reason() {
    let (settings, plan) = four();
    let row = |class, expected| Row {
        class,
        may_have_run: false,
        hosted: false,
        attempts: 1,
        left_ms: 60_000,
        max_cost: None,
        expected,
    };
    let rows = [
        row(Class::Refusal, &["1 class_blocked", "2 class_blocked", "3 class_blocked"]),
        row(Class::QuotaExhausted, &["1 class_blocked", "2 class_blocked", "3 class_blocked"]),
        // Equivalents may be asked: nothing is said against them.
        row(Class::ProviderOverloaded, &["3 class_blocked"]),
        // The model is out at this provider: not at another route of it.
        row(Class::ModelUnavailable, &["1 class_blocked"]),
        Row { left_ms: 10, ..row(Class::ProviderOverloaded, &["1 time", "2 time", "3 class_blocked"]) },
        Row { max_cost: Some(0.2), ..row(Class::ProviderOverloaded, &["2 cost", "3 class_blocked"]) },
        Row { attempts: 3, ..row(Class::ProviderOverloaded, &["3 class_blocked"]) },
        Row { attempts: 3, max_cost: Some(0.2), ..row(Class::ProviderOverloaded, &["2 cost", "3 class_blocked"]) },
        Row {
            may_have_run: true,
            hosted: true,
            ..row(Class::TransportTransient, &["1 side_effects", "2 side_effects", "3 side_effects"])
        },
    ];
    let mut seen = BTreeSet::new();
    for row in rows {
        let workflow = settings.workflows.values().next().unwrap();
        let now = Instant::now();
        let mut envelope = workflow.envelope;
        envelope.max_cost_usd = row.max_cost;
        let mut budget = Budget::new(now, Duration::from_millis(row.left_ms), envelope, 0);
        for _ in 0..row.attempts {
            budget.begin(0.0);
        }
        let verdict = Verdict {
            class: row.class,
            may_have_run: row.may_have_run,
            retry_after: None,
            provider_status: None,
            said: Said::default(),
            alarm: false,
            limit: None,
        };
        let mut tried = vec![Tried::default(); 4];
        tried[0] = Tried { attempts: row.attempts, class: Some(row.class), ready_at: None, shut: false };
        let needs = [0.1, 0.1, 0.3, 0.3].map(|cost| (Duration::from_millis(100), cost));
        let situation = Situation {
            plan: &plan,
            tried: &tried,
            failed: 0,
            verdict: &verdict,
            budget: &budget,
            needs: &needs,
            cut_early: false,
            hosted_may_act: row.hosted,
            acted: false,
            wait_first: Duration::from_secs(1),
            now,
            random: 0,
        };
        let left = left_out(&situation);
        let told: Vec<_> = left.iter().map(|(index, reason)| format!("{index} {reason}")).collect();
        assert_eq!(told, row.expected, "{:?}", row.class);
        seen.extend(left.iter().map(|(_, reason)| reason.family()));
        if row.max_cost.is_some() {
            assert_eq!(unaffordable(&budget, &needs), [(2, Refusal::Cost), (3, Refusal::Cost)]);
        }
    }
    let of_failures: BTreeSet<_> =
        NAMES.iter().filter(|entry| entry.when == When::Failure).map(|entry| entry.name).collect();
    assert_eq!(seen, of_failures, "a reason of a failure without a row");
}

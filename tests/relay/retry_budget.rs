//! Attempts after the first are paid from one budget a route: retries help while few fail, and must not multiply an outage.

use rubicon::clock::UnixMillis;
use rubicon::gate::{Switch, Switches};
use rubicon::ids::RouteId;
use rubicon::mock::chat_text;
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::json;

use crate::harness::{Answered, Http, client, path, post, relay, request};
use crate::setup::{Setup, always, overloaded};
use crate::watched::sum;

const DIALECTS: [Dialect; 2] = [Dialect::ChatCompletions, Dialect::AnthropicMessages];

async fn ask(relay: &Server, dialect: Dialect) -> Answered {
    post(&client(Http::One), relay, path(dialect), request(dialect, true)).await
}

#[track_caller]
fn assert_spent(answered: &Answered, attempts: u32) {
    let json = answered.json();
    let rubicon = &json["rubicon"];
    assert_eq!(answered.status, 424, "{json}");
    assert_eq!(
        (&rubicon["reason"], &rubicon["class"], &rubicon["attempts"], &rubicon["retryable"]),
        (&json!("retry_budget_exhausted"), &json!("provider_overloaded"), &json!(attempts), &json!(true)),
        "{json}"
    );
    let wait: u64 = answered.header("retry-after").parse().expect("seconds");
    assert!((1..=3).contains(&wait), "{wait}");
    assert_eq!(answered.header("x-should-retry"), "false", "the relay has spent the budget");
}

#[tokio::test]
async fn without_a_budget_there_is_one_attempt() {
    for dialect in DIALECTS {
        let (a, b) = (always(overloaded()).await, always(chat_text(&["from b"])).await);
        let setup =
            Setup::primary(a.base_url()).equivalent("b", &b).server("retry = { share = 0, min_per_second = 0 }");
        let relay = relay(&setup.text()).await;
        for calls in 1..=3 {
            assert_spent(&ask(&relay, dialect).await, 1);
            assert_eq!((a.calls(), b.calls()), (calls, 0));
            assert_eq!(sum(&relay, "rubicon_retry_budget_refused_total", &[]), calls as f64);
        }
        // A first attempt needs none, wherever it goes.
        let switch = Switch { by: "ana".to_owned(), reason: "drill".to_owned(), since: UnixMillis(1) };
        let killed = [(RouteId::new("a"), switch)].into();
        relay.app().board.set_switches(Switches { killed, ..Switches::default() });
        if dialect == Dialect::ChatCompletions {
            let answered = ask(&relay, dialect).await;
            assert!(answered.text().contains("from b"), "{}", answered.text());
        }
    }
}

#[tokio::test]
async fn a_share_of_the_operations() {
    // One further attempt an operation: the first two are made, the third is not.
    let (a, b) = (always(overloaded()).await, always(overloaded()).await);
    let setup = Setup::primary(a.base_url())
        .equivalent("b", &b)
        .server("retry = { share = 1, min_per_second = 0 }")
        .workflow("envelope = { max_attempts = 5 }");
    let relay = relay(&setup.text()).await;
    assert_spent(&ask(&relay, Dialect::ChatCompletions).await, 2);
    assert_eq!((a.calls(), b.calls()), (1, 1));
}

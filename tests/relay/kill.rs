//! Kill and failover switches: in force for the next attempt, nothing of what streams is touched, still there after `kill -9`, and
//! not held up by a disk that fails.

mod disk;

use futures_util::future::join_all;
use rubicon::mock::chat_whole_text;
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{self, Answered, Http, client, send, url};
use crate::operators::{Who, admin, change, get, with_operators};
use crate::setup::{Setup, always, limited, overloaded};

fn why() -> Value {
    json!({ "reason": "drill" })
}

fn call(relay: &Server, stream: bool) -> impl Future<Output = Answered> + Send + 'static {
    let request = client(Http::One).post(url(relay, "/v1/chat/completions")).header("content-type", "application/json");
    send(request.body(harness::request(Dialect::ChatCompletions, stream)))
}

#[tokio::test]
async fn without_another_route_nobody_is_called_until_it_is_restored() {
    let a = always(chat_whole_text("x")).await;
    let relay = with_operators(Setup::primary(a.base_url())).await;
    let base = admin(&relay);
    change(&base, "/admin/v1/routes/a/kill", Who::Operator, "*", why()).await;
    for stream in [true, false] {
        let refused = call(&relay, stream).await;
        let json = refused.json();
        assert!(refused.status >= 400, "{json}");
        assert_eq!((&json["rubicon"]["attempts"], a.calls()), (&json!(0), 0), "{json}");
    }
    let restored = change(&base, "/admin/v1/routes/a/restore", Who::Approver, "\"1\"", why()).await;
    assert_eq!((restored.status, call(&relay, false).await.status, a.calls()), (200, 200, 1));
}

#[tokio::test]
async fn an_operation_that_waits_to_try_again_does_not() {
    let a = always(limited("retry-after", "1")).await;
    let relay = with_operators(Setup::primary(a.base_url())).await;
    let waiting = tokio::spawn(call(&relay, true));
    a.wait_for(|stats| stats.calls == 1).await;
    change(&admin(&relay), "/admin/v1/routes/a/kill", Who::Operator, "*", why()).await;
    let refused = waiting.await.expect("no panic");
    assert!(refused.status >= 400, "{}", refused.text());
    assert_eq!(a.calls(), 1, "{}", refused.text());
}

#[tokio::test]
async fn failover_switched_off_for_all_or_for_one_workflow_goes_nowhere() {
    for body in [json!({ "reason": "drill" }), json!({ "reason": "drill", "workflow": "default" })] {
        let (a, b) = (always(overloaded()).await, always(chat_whole_text("from b")).await);
        let setup = Setup::primary(a.base_url()).equivalent("b", &b).workflow("envelope = { max_attempts = 2 }");
        let relay = with_operators(setup).await;
        let base = admin(&relay);
        assert_eq!((call(&relay, false).await.status, b.calls()), (200, 1));
        let disabled = change(&base, "/admin/v1/failover/disable", Who::Operator, "*", body.clone()).await;
        assert_eq!(disabled.status, 200);
        assert!(call(&relay, false).await.status >= 400);
        assert_eq!(b.calls(), 1, "{body}");
        let enabled = change(&base, "/admin/v1/failover/enable", Who::Approver, disabled.header("etag"), body).await;
        assert_eq!((enabled.status, call(&relay, false).await.status, b.calls()), (200, 200, 2));
    }
}

#[tokio::test]
async fn of_two_restores_at_once_exactly_one_wins() {
    let relay = with_operators(Setup::primary("http://127.0.0.1:9")).await;
    let base = admin(&relay);
    for round in 0..10_u64 {
        let version = round * 2 + 1;
        change(&base, "/admin/v1/routes/a/kill", Who::Operator, "*", why()).await;
        let tag = format!("\"{version}\"");
        let both = [0, 1].map(|_| change(&base, "/admin/v1/routes/a/restore", Who::Approver, &tag, why()));
        let mut statuses: Vec<u16> = join_all(both).await.iter().map(|answered| answered.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 412], "round {round}");
    }
    let verdict = get(&base, "/admin/v1/journal/verify", Who::Viewer).await.json();
    assert_eq!((&verdict["ok"], &verdict["entries"]), (&json!(true), &json!(20)));
}

//! A route is killed while a hundred streams run on it: the next attempt stays away, and none of the hundred notices.

use futures_util::future::join_all;
use rubicon::mock::{Answer, chat, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;
use serde_json::json;

use crate::harness::{self, Answered, Http, client, send, url};
use crate::operators::{Who, admin, change, with_operators};
use crate::setup::{Setup, always};

fn call(relay: &Server, stream: bool) -> impl Future<Output = Answered> + Send + 'static {
    let request = client(Http::One).post(url(relay, "/v1/chat/completions")).header("content-type", "application/json");
    send(request.body(harness::request(Dialect::ChatCompletions, stream)))
}

#[tokio::test]
async fn new_attempts_stay_away_and_a_hundred_running_streams_do_not_notice() {
    let _turn = crate::turn().await;
    const STREAMS: usize = 100;
    let answer = Answer::sse().step(chat::role()).step(chat::delta("Hel")).gate("go").step(chat::delta("lo"));
    let a = always(answer.step(chat::finish("stop")).step(chat::done())).await;
    let b = always(chat_text(&["from b"])).await;
    let relay = with_operators(Setup::primary(a.base_url()).equivalent("b", &b)).await;
    let running: Vec<_> = (0..STREAMS).map(|_| tokio::spawn(call(&relay, true))).collect();
    a.wait_for(|stats| stats.at_gates == STREAMS as u64).await;
    let killed =
        change(&admin(&relay), "/admin/v1/routes/a/kill", Who::Operator, "*", json!({ "reason": "drill" })).await;
    assert_eq!(killed.status, 200);
    // The answer came, so the very next attempt knows.
    for _ in 0..10 {
        let served = call(&relay, true).await;
        assert!(served.clean && served.text().contains("from b"), "{}", served.text());
    }
    assert_eq!((a.calls(), b.calls()), (STREAMS as u64, 10));
    a.open_gate("go", STREAMS);
    for stream in join_all(running).await {
        let stream = stream.expect("no panic");
        assert!(stream.clean && stream.text().contains("lo") && stream.text().contains("[DONE]"), "{}", stream.text());
    }
}

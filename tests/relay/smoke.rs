//! The harness itself: one stream through, one failover, one interruption, over both protocols.

use rubicon::mock::{Answer, Rule, chat, chat_text};
use rubicon::protocol::Dialect;

use crate::harness::{Http, client, path, post, provider, relay, request, two};

#[tokio::test]
async fn a_stream_a_failover_an_interruption() {
    for http in [Http::One, Http::Two] {
        let half = Answer::sse().step(chat::role()).step(chat::delta("Hel")).delay_ms(50).abort_rst();
        let down = Answer::json_error(503, serde_json::json!({ "error": { "message": "overloaded" } }));
        let a = provider(Rule::new("a").answer(chat_text(&["Hel", "lo"])).answer(down).answer(half)).await;
        let b = provider(Rule::new("b").answer(chat_text(&["from b"]))).await;
        let relay = relay(&two(&a, &b, "")).await;
        let client = client(http);
        let ask = || post(&client, &relay, path(Dialect::ChatCompletions), request(Dialect::ChatCompletions, true));

        let through = ask().await;
        assert_eq!((through.status, through.clean), (200, true));
        assert!(through.text().ends_with("data: [DONE]\n\n"));
        assert_eq!(through.header("rubicon-recovery"), "none");

        let recovered = ask().await;
        assert!(recovered.text().contains("from b") && recovered.clean);
        assert_eq!(recovered.header("rubicon-recovery"), "equivalent_failover");
        assert_eq!(recovered.header("rubicon-attempts"), "2");

        let cut = ask().await;
        assert!(!cut.clean, "{}", cut.text());
        assert_eq!(cut.last_event()["error"]["rubicon"]["status"], "interrupted");
        assert_eq!((a.calls(), b.calls()), (3, 1));
    }
}

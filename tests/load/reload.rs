//! A configuration is replaced, well and badly, while 500 streams run: not one of them notices. The real binary, real signals.

use rubicon::mock::{Rule, chat_text};
use rubicon::protocol::Dialect;
use tokio::task::JoinSet;

use crate::harness::{Http, client, provider, read, request, send};
use crate::reloader::{REFUSED, Relay, TAKEN, UNCHANGED, config, halves};

const CHAT: Dialect = Dialect::ChatCompletions;

#[tokio::test]
async fn no_stream_of_500_is_lost_to_reloads_good_and_bad() {
    let _turn = crate::turn().await;
    const STREAMS: usize = 500;
    let (a, b) =
        (provider(Rule::new("a").answer(halves())).await, provider(Rule::new("b").answer(chat_text(&["b"]))).await);
    let first = config(&a, "", "");
    let relay = Relay::start(&[("rubicon.toml", &first)], &[], &[]).await;
    // What the provider says, without a relay.
    let direct = client(Http::One).post(format!("{}/v1/chat/completions", a.base_url())).body(request(CHAT, true));
    let direct = tokio::spawn(send(direct));
    a.wait_for(|stats| stats.at_gates == 1).await;
    assert!(a.open_gate("go", 1));
    let whole = direct.await.expect("the provider's own answer").body;

    let http = client(Http::Two);
    let mut streams = JoinSet::new();
    for _ in 0..STREAMS {
        let request = relay.ask(&http, true);
        streams.spawn(async move { read(request.send().await.expect("a head")).await });
    }
    a.wait_for(|stats| stats.at_gates == STREAMS as u64).await;

    // Another address and model, for new requests only.
    let second = config(&b, "", "model = \"another\"");
    let said = relay.reload(&second, TAKEN, 1).await;
    assert!(said.contains("provider.p, route.main, workflow.w"), "{said}");
    let answered = relay.answer(true).await;
    assert_eq!((answered.status, b.calls(), a.calls()), (200, 1, STREAMS as u64 + 1), "{}", answered.text());
    assert_eq!(b.requests()[0].json()["model"], "another");

    // A broken file: every problem, with its line and key; and nothing else.
    let broken = second
        .replace("terminal = \"strict\"", "terminal = \"srtict\"")
        .replace("primary = \"main\"", "primry = \"main\"");
    let said = relay.reload(&broken, REFUSED, 1).await;
    for (line, key) in [(7, "provider.p.terminal"), (12, "workflow.w.primry"), (11, "workflow.w.primary")] {
        let place = format!("rubicon.toml:{line}: error: {key}: ");
        assert!(said.contains(&place), "{place} is not in\n{said}");
    }
    let answered = relay.answer(true).await;
    assert_eq!((answered.status, b.calls()), (200, 2), "{}", answered.text());
    std::fs::remove_file(relay.folder.path().join("rubicon.toml")).expect("a file");
    relay.running.signal("HUP").await;
    let said = relay.running.says(REFUSED, 2).await;
    assert!(said.contains("[config_unreadable]"), "{said}");

    // And a good one again.
    relay.reload(&second, UNCHANGED, 1).await;
    relay.reload(&first, TAKEN, 2).await;
    assert_eq!(a.stats().at_gates, STREAMS as u64);
    assert!(a.open_gate("go", STREAMS));
    let mut ended = 0;
    while let Some(answered) = streams.join_next().await {
        let answered = answered.expect("a stream");
        assert!(answered.clean && answered.status == 200 && answered.body == whole, "{}", answered.text());
        ended += 1;
    }
    assert_eq!((ended, a.calls()), (STREAMS, STREAMS as u64 + 1));
    let (code, _) = relay.running.stop().await;
    assert_eq!(code, 0);
}

//! First output, idle, whole stream, whole answer, deadlines: different timers. Each test makes one short and shows that it, and none
//! of the others, did what happened.

use std::time::Duration;

use rubicon::mock::{Answer, chat, chat_text, chat_whole_text};
use serde_json::json;
use tokio::time::Instant;

use super::{CHAT, ask, ask_body, assert_from, assert_reason};
use crate::harness::{Answered, relay, request};
use crate::setup::{Setup, always};

/// Far under the timers that must not fire (a minute or more), far over the ones that do.
const SOON: Duration = Duration::from_secs(20);

fn frame_message(answered: &Answered) -> String {
    assert!(!answered.clean, "{}", answered.text());
    assert_eq!(answered.last_event()["error"]["rubicon"]["status"], "interrupted");
    answered.last_event()["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn first_output_ends_an_attempt_that_shows_nothing_however_lively() {
    let lively = Answer::sse().step(chat::role()).repeat(400, Answer::new().delay_ms(20).text(": ping\n\n"));
    let (a, b) = (always(lively).await, always(chat_text(&["from b"])).await);
    // idle_ms, answer_ms and all deadlines stay at a minute and more.
    let setup = Setup::primary(a.base_url()).with_route("timeouts = { first_output_ms = 300 }").equivalent("b", &b);
    let began = Instant::now();
    assert_from(&ask(&relay(&setup.text()).await, true, &[]).await, "b", "equivalent_failover");
    assert!(began.elapsed() >= Duration::from_millis(300) && began.elapsed() < Duration::from_secs(7));
    a.wait_for(|stats| stats.disconnects == 1).await;
}

#[tokio::test]
async fn first_output_is_another_where_reasoning_is_asked_for() {
    let slow = Answer::new().delay_ms(700).then(chat_text(&["from a"]));
    let (a, b) = (always(slow).await, always(chat_text(&["from b"])).await);
    let setup = Setup::primary(a.base_url()).with_route("timeouts = { first_output_ms = 300 }").equivalent("b", &b);
    let relay = relay(&setup.text()).await;
    let thinking = request(CHAT, true).replace("\"stream\"", "\"reasoning_effort\":\"high\",\"stream\"");
    assert_from(&ask_body(&relay, thinking, &[]).await, "a", "none");
    assert_from(&ask(&relay, true, &[]).await, "b", "equivalent_failover");
}

#[tokio::test]
async fn idle_is_for_after_the_boundary_only() {
    let pause = || Answer::new().delay_ms(700);
    let answer = Answer::sse().step(chat::role()).then(pause()).step(chat::delta("Hel")).step(chat::delta("lo")).hang();
    let a = always(answer).await;
    let setup = Setup::primary(a.base_url()).with_route("timeouts = { idle_ms = 300 }");
    let began = Instant::now();
    let answered = ask(&relay(&setup.text()).await, true, &[]).await;
    assert!(began.elapsed() < SOON);
    assert!(answered.text().contains("Hel"), "700 ms of silence before the boundary are no idleness");
    assert!(frame_message(&answered).contains("sent nothing for 300 ms"), "{}", answered.text());
    assert_eq!(a.calls(), 1);
}

#[tokio::test]
async fn any_byte_resets_idle() {
    let drip = Answer::sse().step(chat::delta("Hel")).repeat(20, Answer::new().delay_ms(60).text(": p\n\n"));
    let a = always(drip.step(chat::finish("stop")).step(chat::done())).await;
    // 1.2 s of comments only, and first_output_ms is over long before as well.
    let setup = Setup::primary(a.base_url()).with_route("timeouts = { idle_ms = 900, first_output_ms = 900 }");
    let answered = ask(&relay(&setup.text()).await, true, &[]).await;
    assert!(answered.clean, "{}", answered.text());
}

#[tokio::test]
async fn stream_ms_ends_a_stream_that_goes_on_and_on() {
    let endless = Answer::sse().repeat(10_000, Answer::new().delay_ms(20).step(chat::delta("x")));
    let a = always(endless).await;
    let setup = Setup::primary(a.base_url())
        .with_route("timeouts = { first_output_ms = 400, idle_ms = 400 }")
        .workflow("envelope = { stream_ms = 1000, deadline_ms = 500 }");
    let began = Instant::now();
    let answered = ask(&relay(&setup.text()).await, true, &[]).await;
    assert!(began.elapsed() >= Duration::from_secs(1) && began.elapsed() < SOON);
    // Neither the deadline (to the boundary) nor the first-output timer cut what had begun.
    assert!(frame_message(&answered).contains("took longer than 1000 ms"), "{}", answered.text());
    a.wait_for(|stats| stats.disconnects == 1).await;
}

#[tokio::test]
async fn answer_ms_is_for_whole_answers() {
    // 700 ms without a byte: first_output_ms and idle_ms are not for this.
    let slow = Answer::new().delay_ms(700).then(chat_whole_text("from a"));
    let a = always(slow).await;
    let short = Setup::primary(a.base_url()).with_route("timeouts = { first_output_ms = 300, idle_ms = 300 }");
    assert_from(&ask(&relay(&short.text()).await, false, &[]).await, "a", "none");
    // A body that trickles is no answer in time.
    let drip = Answer::new().head(200, &[("content-type", "application/json")]);
    let drip = drip.repeat(1000, Answer::new().delay_ms(20).text(" "));
    let (a, b) = (always(drip).await, always(chat_whole_text("from b")).await);
    let setup = Setup::primary(a.base_url()).with_route("timeouts = { answer_ms = 300 }").equivalent("b", &b);
    let began = Instant::now();
    assert_from(&ask(&relay(&setup.text()).await, false, &[]).await, "b", "equivalent_failover");
    assert!(began.elapsed() < SOON);
}

#[tokio::test]
async fn each_kind_of_request_has_its_own_deadline() {
    let thinking = || request(CHAT, true).replace("\"stream\"", "\"reasoning_effort\":\"high\",\"stream\"");
    for (envelope, kind) in [
        ("deadline_ms = 300", "streamed"),
        ("deadline_reasoning_ms = 300", "reasoning"),
        ("answer_deadline_ms = 300", "whole"),
    ] {
        let a = always(
            Answer::new().delay_ms(900).then(Answer::auto(rubicon::mock::AutoDialect::ChatCompletions, &["from a"])),
        )
        .await;
        let setup = Setup::primary(a.base_url()).workflow(&format!("envelope = {{ {envelope} }}"));
        let relay = relay(&setup.text()).await;
        for (asked, body) in
            [("streamed", request(CHAT, true)), ("reasoning", thinking()), ("whole", request(CHAT, false))]
        {
            let before = a.calls();
            let answered = ask_body(&relay, body, &[]).await;
            assert_eq!(a.calls() - before, 1);
            if asked == kind {
                let json = assert_reason(&answered, "deadline_exhausted", 1);
                assert_eq!(json["rubicon"]["class"], "deadline_exhausted");
                assert_eq!(json["rubicon"].get("provider_status"), None, "{json}");
            } else {
                assert_from(&answered, "a", "none");
            }
        }
    }
}

#[tokio::test]
async fn the_callers_deadline_tightens_the_one_that_applies() {
    let a = always(Answer::new().hang()).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    for stream in [true, false] {
        let began = Instant::now();
        let answered = ask(&relay, stream, &[("rubicon-deadline-ms", "300")]).await;
        assert!(began.elapsed() < SOON);
        assert_reason(&answered, "deadline_exhausted", 1);
    }
    for bad in ["0", "-1", "x", "1.5"] {
        let answered = ask(&relay, true, &[("rubicon-deadline-ms", bad)]).await;
        assert_eq!((answered.status, &answered.json()["error"]["code"]), (400, &json!("invalid_header")), "{bad}");
    }
}

#[tokio::test]
async fn an_attempt_is_cut_early_enough_for_the_fallback_to_answer_in_time() {
    for stream in [true, false] {
        let a = always(Answer::new().hang()).await;
        let b = always(Answer::auto(rubicon::mock::AutoDialect::ChatCompletions, &["from b"])).await;
        let relay = relay(&Setup::primary(a.base_url()).equivalent("b", &b).text()).await;
        // Nothing is known of b, so 2 s are kept for it; every timer of a's own is a minute or more.
        let began = Instant::now();
        let answered = ask(&relay, stream, &[("rubicon-deadline-ms", "3000")]).await;
        assert_from(&answered, "b", "equivalent_failover");
        assert!(began.elapsed() < Duration::from_secs(3), "before the deadline, not at it");
        assert_eq!((a.calls(), b.calls()), (1, 1));
    }
}

#[tokio::test]
async fn without_a_fallback_an_attempt_has_all_the_time_there_is() {
    let a = always(Answer::new().delay_ms(1500).then(chat_text(&["from a"]))).await;
    let relay = relay(&Setup::primary(a.base_url()).text()).await;
    assert_from(&ask(&relay, true, &[("rubicon-deadline-ms", "3000")]).await, "a", "none");
}

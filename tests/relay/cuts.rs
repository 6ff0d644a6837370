//! A stream that is cut: before the boundary nobody notices, from it on the client gets exactly what came, one error frame and an
//! abort, and nobody is asked again. (The same a thousand times over: `tests/load/frames.rs`.)

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use rubicon::mock::{
    Answer, MockProvider, Rule, Script, Step, anthropic, anthropic_text, chat, chat_text, responses, responses_text,
};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;

use crate::harness::{
    Http, PATIENCE, Recording, client, path, post, provider, recordings, relay, send, two, undaunted, url,
};
use crate::streams::{Told, error_frame_of, is_stream, request_for, told};

/// How a stream dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The connection is closed in order, without the body's end.
    Fin,
    /// The connection is reset.
    Rst,
    /// The body ends properly, the stream did not.
    Clean,
    /// The provider's error event, then a proper end.
    Error,
    /// Half of the next event, then a close.
    MidEvent,
}

const KINDS: [Kind; 5] = [Kind::Fin, Kind::Rst, Kind::Clean, Kind::Error, Kind::MidEvent];

/// Where the mock waits before it cuts: until the client has what came before, because a reset may overtake data.
const GATE: &str = "cut";

/// A recording up to `blocks` blocks, then the cut.
fn cut(dialect: Dialect, told: &Told, blocks: usize, kind: Kind, gate: &str) -> Answer {
    let text = |raw: &[u8]| Step::Text(std::str::from_utf8(raw).expect("UTF-8").to_owned());
    let mut answer = Answer::new().head(told.status, &[("content-type", "text/event-stream")]);
    for block in &told.blocks[..blocks] {
        answer = answer.step(text(&block.raw));
    }
    if told.boundary.is_some_and(|boundary| blocks > boundary) {
        answer = answer.gate(gate);
    }
    match (kind, told.blocks.get(blocks)) {
        (Kind::Fin, _) => answer.abort_fin(),
        (Kind::Rst, _) => answer.abort_rst(),
        (Kind::Clean, _) => answer,
        (Kind::Error, _) => answer.step(match dialect {
            Dialect::ChatCompletions => chat::error("server_error", "boom", "it broke"),
            Dialect::AnthropicMessages => anthropic::error("api_error", "it broke"),
            Dialect::Responses => responses::error(7, "server_error", "boom", "it broke"),
        }),
        (Kind::MidEvent, Some(next)) => {
            let half = (1..=next.raw.len() / 2).rev().find(|&at| std::str::from_utf8(&next.raw[..at]).is_ok());
            answer.step(text(&next.raw[..half.unwrap_or(1)])).abort_fin()
        }
        (Kind::MidEvent, None) => answer.text("data: {\"half").abort_fin(),
    }
}

/// After how many blocks recordings are cut: all places of a short one; of a long one its start, around the boundary, the middle
/// and the end.
fn places(told: &Told) -> Vec<usize> {
    let all = told.blocks.len().min(told.fault.unwrap_or(usize::MAX));
    if all <= 8 {
        return (0..=all).collect();
    }
    let boundary = told.boundary.unwrap_or(0);
    let mut places = vec![0, 1, boundary, boundary + 1, boundary + 2, all / 2, all - 2, all - 1, all];
    places.retain(|&place| place <= all);
    places.sort_unstable();
    places.dedup();
    places
}

fn fallback(dialect: Dialect) -> Answer {
    match dialect {
        Dialect::ChatCompletions => chat_text(&["from b", " and whole"]),
        Dialect::AnthropicMessages => anthropic_text(&["from b", " and whole"]),
        Dialect::Responses => responses_text(&["from b", " and whole"]),
    }
}

struct Case<'a> {
    told: &'a Told,
    blocks: usize,
    kind: Kind,
    /// Names the rule, the model and the gate.
    name: String,
}

/// Plays one case; true if the fallback answered.
async fn play(
    relay: &Server,
    a: &MockProvider,
    client: &reqwest::Client,
    dialect: Dialect,
    case: &Case<'_>,
    whole: &[u8],
) -> bool {
    let Case { told, blocks, kind, name } = case;
    let body = request_for(dialect, name, told.choices);
    let send = client.post(url(relay, path(dialect))).header("content-type", "application/json").body(body).send();
    let mut response = tokio::time::timeout(PATIENCE, send).await.expect("a head in time").expect("a head");
    let crossed = told.boundary.is_some_and(|boundary| *blocks > boundary);
    let attempts = response.headers()["rubicon-attempts"].to_str().expect("visible").to_owned();
    let due = told.until(*blocks);
    let (mut got, mut opened) = (Vec::new(), false);
    let clean = loop {
        if crossed && !opened && got.len() >= due.len() {
            opened = a.open_gate(name, 1);
            assert!(opened);
        }
        match tokio::time::timeout(PATIENCE, response.chunk()).await.unwrap_or_else(|_| panic!("{name}: hangs")) {
            Ok(Some(chunk)) => got.extend_from_slice(&chunk),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    // What comes after the end, an error too, is the tail of a whole answer.
    let ended = told.ends_after(*blocks, false);
    if !crossed && !ended {
        assert_eq!((response.status().as_u16(), attempts.as_str(), clean), (200, "2", true), "{name}");
        assert!(got == whole, "{name}: not the fallback's bytes: {}", String::from_utf8_lossy(&got));
        return true;
    }
    assert_eq!((response.status().as_u16(), attempts.as_str()), (told.status, "1"), "{name}");
    let tail = got.strip_prefix(&due[..]).unwrap_or_else(|| panic!("{name}: other bytes"));
    if ended {
        assert!(clean && tail.is_empty(), "{name}: {}", String::from_utf8_lossy(tail));
    } else {
        assert!(!clean, "{name}: a clean end");
        let rubicon = error_frame_of(dialect, tail);
        assert_eq!(rubicon["status"], "interrupted", "{name}");
        assert_eq!(rubicon["after"], told.events(*blocks), "{name}");
        assert_eq!(rubicon["retryable"], false, "{name}");
        if *kind == Kind::Error {
            assert!(String::from_utf8_lossy(tail).contains("it broke"), "{name}: the provider's words");
        }
    }
    false
}

/// Plays all cases, several at a time, then counts who was called.
async fn play_all(dialect: Dialect, cases: Vec<Case<'_>>, https: &[Http]) {
    let script = cases.iter().fold(Script::default(), |script, case| {
        let answer = cut(dialect, case.told, case.blocks, case.kind, &case.name);
        // A gate must be known to the mock also where the case waits at none.
        let never = Answer::new().gate(&case.name);
        script.rule(Rule::new(&case.name).model(&case.name).answer(answer.clone()).answer(answer).answer(never))
    });
    let a = MockProvider::start(script).await.expect("a mock");
    let b = provider(Rule::new("b").answer(fallback(dialect))).await;
    // One attempt a provider: failing over is all that is asked for here.
    let relay = relay(&undaunted(&two(&a, &b, "envelope = { max_attempts = 2 }"))).await;
    let plain = post(&client(Http::One), &relay, path(dialect), request_for(dialect, "nobody", 1)).await;
    assert!(plain.status != 200 || plain.clean, "the mock knows no such model");
    let before = (a.calls(), b.calls());
    let whole = {
        // The fallback by itself.
        let direct = client(Http::One).post(format!("{}{}", b.base_url(), path(dialect)));
        send(direct.header("content-type", "application/json").body(request_for(dialect, "x", 1))).await.body
    };
    let recovered = AtomicU64::new(0);
    for http in https {
        let client = client(*http);
        futures_util::stream::iter(&cases)
            .for_each_concurrent(8, |case| {
                let (relay, a, client, whole, recovered) = (&relay, &a, &client, &whole, &recovered);
                async move {
                    if play(relay, a, client, dialect, case, whole).await {
                        recovered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
            .await;
    }
    let recovered = recovered.into_inner();
    assert_eq!(a.calls() - before.0, (cases.len() * https.len()) as u64, "each asked once");
    assert_eq!(
        b.calls() - before.1 - 1,
        recovered,
        "the fallback is asked where nothing was shown, once, and nowhere else"
    );
    assert!(recovered > 0 && recovered < a.calls(), "both sides of the boundary");
}

fn case<'a>(told: &'a Told, blocks: usize, kind: Kind) -> Case<'a> {
    Case { told, blocks, kind, name: format!("{GATE} {} after {blocks} by {kind:?}", told.name) }
}

/// Every place and every kind of cut, on one small stream a dialect.
#[tokio::test]
async fn every_cut_of_a_short_stream() {
    for dialect in Dialect::ALL {
        let answer = match dialect {
            Dialect::ChatCompletions => chat_text(&["Hel", "lo", "\u{1f600}"]),
            Dialect::AnthropicMessages => anthropic_text(&["Hel", "lo", "\u{1f600}"]),
            Dialect::Responses => responses_text(&["Hel", "lo", "\u{1f600}"]),
        };
        let body: String = answer.steps.iter().filter_map(written).collect();
        let recording =
            Recording { name: "short".to_owned(), path: "".into(), status: 200, body: body.into_bytes().into() };
        let told = told(dialect, &recording);
        let cases = (0..=told.blocks.len())
            .flat_map(|blocks| KINDS.map(|kind| (blocks, kind)))
            .map(|(blocks, kind)| case(&told, blocks, kind))
            .collect();
        play_all(dialect, cases, &[Http::One, Http::Two]).await;
    }
}

/// What an event step of the mock sends.
fn written(step: &Step) -> Option<String> {
    let Step::Event(event) = step else { return None };
    let name = event.name.as_ref().map_or(String::new(), |name| format!("event: {name}\n"));
    Some(format!("{name}data: {}\n\n", event.data))
}

async fn recorded(dialect: Dialect, folder: &str) {
    let all: Vec<Told> = recordings(folder).iter().filter(|one| is_stream(one)).map(|one| told(dialect, one)).collect();
    if all.is_empty() {
        return;
    }
    // Each place with another kind, so that all kinds meet all sorts of places.
    let cases: Vec<Case<'_>> = all
        .iter()
        .enumerate()
        .flat_map(|(at, told)| places(told).into_iter().enumerate().map(move |(nth, blocks)| (at + nth, told, blocks)))
        .map(|(turn, told, blocks)| case(told, blocks, KINDS[turn % KINDS.len()]))
        .collect();
    let half = cases.len() / 2;
    let mut cases = cases.into_iter();
    play_all(dialect, cases.by_ref().take(half).collect(), &[Http::One]).await;
    play_all(dialect, cases.collect(), &[Http::Two]).await;
}

#[tokio::test]
async fn recorded_chat_completions() {
    recorded(Dialect::ChatCompletions, "chat-completions").await;
}

#[tokio::test]
async fn recorded_anthropic_messages() {
    recorded(Dialect::AnthropicMessages, "anthropic-messages").await;
}

#[tokio::test]
async fn recorded_responses() {
    recorded(Dialect::Responses, "responses").await;
}

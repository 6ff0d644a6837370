//! A planned split: every request is somebody's share and no recovery; when the chosen member fails, another stands in where it is approved
//! for that, and the answer says so.

use std::collections::BTreeMap;

use rubicon::mock::{MockProvider, chat_whole_text};
use rubicon::protocol::Dialect;

use crate::harness::{Http, client, path, post, relay, request};
use crate::setup::{always, overloaded};

const CHAT: Dialect = Dialect::ChatCompletions;

/// Requests of one test. With two members of one weight, that one of them gets none happens once in 2^39 runs.
const REQUESTS: usize = 40;

fn config(a: &MockProvider, b: &MockProvider, purposes: &[&str], failover: &str) -> String {
    let mut text = String::from("[server]\nlisten = \"127.0.0.1:0\"\nretry = { share = 1.0, min_per_second = 1000 }\n");
    for (name, at) in [("a", a), ("b", b)] {
        text += &format!(
            "[provider.{name}]\nkind = \"openai-compatible\"\nbase_url = \"{}/v1\"\n[route.{name}]\nprovider = \"{name}\"\n\
             capabilities = [\"text\"]\nverified = {{ on = 2026-01-01 }}\nbreaker = {{ failures = 0 }}\n",
            at.base_url()
        );
    }
    text += "[workflow.default]\nprimary = [{ route = \"a\", weight = 1 }, { route = \"b\", weight = 1 }]\n";
    text += &format!("failover = {{ {failover} }}\nenvelope = {{ max_attempts = 2 }}\n");
    for purpose in purposes {
        text += &format!("[[approval]]\nworkflow = \"default\"\nroute = \"b\"\npurpose = \"{purpose}\"\n");
    }
    text
}

/// How often each (status, recovery) was seen.
async fn seen(text: &str) -> BTreeMap<(u16, String), usize> {
    let relay = relay(text).await;
    let client = client(Http::One);
    let mut seen = BTreeMap::new();
    for _ in 0..REQUESTS {
        let answered = post(&client, &relay, path(CHAT), request(CHAT, false)).await;
        *seen.entry((answered.status, answered.header("rubicon-recovery").to_owned())).or_default() += 1;
    }
    seen
}

#[tokio::test]
async fn both_members_serve_and_neither_is_a_recovery() {
    let (a, b) = (always(chat_whole_text("from a")).await, always(chat_whole_text("from b")).await);
    let seen = seen(&config(&a, &b, &["planned"], "enabled = false")).await;
    assert_eq!(seen, BTreeMap::from([((200, "none".to_owned()), REQUESTS)]));
    assert!(a.calls() > 0 && b.calls() > 0, "{} and {}", a.calls(), b.calls());
}

#[tokio::test]
async fn a_member_without_approval_gets_nothing() {
    let (a, b) = (always(chat_whole_text("from a")).await, always(chat_whole_text("from b")).await);
    let seen = seen(&config(&a, &b, &[], "enabled = true")).await;
    assert_eq!(seen, BTreeMap::from([((200, "none".to_owned()), REQUESTS)]));
    assert_eq!((usize::try_from(a.calls()).unwrap(), b.calls()), (REQUESTS, 0));
}

#[tokio::test]
async fn the_other_member_stands_in_where_it_may() {
    let (a, b) = (always(overloaded()).await, always(chat_whole_text("from b")).await);
    let seen = seen(&config(&a, &b, &["planned", "failover"], "enabled = true")).await;
    let recoveries: Vec<_> = seen.keys().map(|(status, recovery)| (*status, recovery.as_str())).collect();
    assert_eq!(recoveries, [(200, "equivalent_failover"), (200, "none")], "{seen:?}");
    assert_eq!(usize::try_from(b.calls()).unwrap(), REQUESTS);
}

#[tokio::test]
async fn a_share_alone_is_no_leave_to_stand_in() {
    let (a, b) = (always(overloaded()).await, always(chat_whole_text("from b")).await);
    let seen = seen(&config(&a, &b, &["planned"], "enabled = true")).await;
    let recoveries: Vec<_> = seen.keys().map(|(status, recovery)| (*status, recovery.as_str())).collect();
    assert_eq!(recoveries, [(200, "none"), (424, "")], "{seen:?}");
}

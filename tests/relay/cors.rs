//! Pages of named origins may call the data plane, those of others may not, and without any name there is no CORS at all.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use http::Method;
use rubicon::clock::UnixMillis;
use rubicon::config::{self, Sources};
use rubicon::mock::{Answer, chat, chat_text};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;

use crate::harness::{Answered, Http, client, path, relay_with, request, send, url};
use crate::setup::{Setup, always};

const ORIGIN: &str = "https://app.example";
const KEY: &str = "the-key-of-the-page";
const CHAT: Dialect = Dialect::ChatCompletions;

/// A relay with a client, and `[server] cors_origins`.
fn text(base: String, origins: &str) -> String {
    let client = "[[client]]\nname = \"page\"\nkeys = [\"env:KEY\"]\nworkflows = [\"default\"]";
    Setup::primary(base).server(&format!("cors_origins = {origins}")).tables(client).text()
}

async fn start(text: &str) -> Server {
    relay_with(text, &BTreeMap::from([("KEY", KEY)])).await
}

async fn preflight(relay: &Server, origin: &str, path: &str, method: &str) -> Answered {
    let request = client(Http::One).request(Method::OPTIONS, url(relay, path)).header("origin", origin);
    let asked = "authorization,content-type,x-stainless-retry-count,rubicon-workflow,idempotency-key";
    let request = request.header("access-control-request-method", method);
    send(request.header("access-control-request-headers", asked)).await
}

async fn ask(relay: &Server, origin: &str, key: &str) -> Answered {
    let request = client(Http::One).post(url(relay, path(CHAT))).body(request(CHAT, true));
    let request = request.header("content-type", "application/json").header("origin", origin);
    send(request.header("authorization", format!("Bearer {key}"))).await
}

fn cors_headers(answered: &Answered) -> Vec<&str> {
    answered.headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("access-control-")).collect()
}

#[tokio::test]
async fn a_named_origins_page_may_ask_and_read() {
    let a = always(chat_text(&["to the page"])).await;
    let relay = start(&text(a.base_url(), "[\"https://other.example\", \"https://app.example\"]")).await;
    // Preflights carry no key.
    for (path, method) in [("/v1/chat/completions", "POST"), ("/v1/messages", "POST"), ("/v1/operations/x", "DELETE")] {
        let answered = preflight(&relay, ORIGIN, path, method).await;
        assert_eq!((answered.status, answered.header("access-control-allow-origin")), (200, ORIGIN), "{path}");
        let methods = answered.header("access-control-allow-methods");
        assert!(["GET", "POST", "DELETE"].iter().all(|method| methods.contains(method)), "{methods}");
        let headers = answered.header("access-control-allow-headers");
        assert!(headers.contains("x-stainless-retry-count") && headers.contains("rubicon-workflow"), "{headers}");
        assert_eq!(answered.header("access-control-max-age"), "600");
        assert_eq!(answered.header("access-control-allow-credentials"), "");
        assert!(answered.body.is_empty());
    }
    assert_eq!(a.calls(), 0);
    let answered = ask(&relay, ORIGIN, KEY).await;
    assert_eq!((answered.status, answered.header("access-control-allow-origin")), (200, ORIGIN));
    assert!(answered.clean && answered.text().contains("to the page"));
    assert!(answered.header("vary").to_ascii_lowercase().contains("origin"));
    let exposed = answered.header("access-control-expose-headers").to_ascii_lowercase();
    // Whatever the relay says of itself can be read.
    for name in answered.headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("rubicon-")) {
        assert!(exposed.split(',').any(|shown| shown.trim() == name), "{name} is not in {exposed}");
    }
    for name in ["x-should-retry", "retry-after", "idempotent-replayed", "rubicon-resume", "etag", "location"] {
        assert!(exposed.contains(name), "{name} is not in {exposed}");
    }
    // A refusal can be read, too.
    let answered = ask(&relay, ORIGIN, "no-key-of-ours").await;
    assert_eq!((answered.status, answered.header("access-control-allow-origin")), (401, ORIGIN));
}

#[tokio::test]
async fn other_origins_get_what_they_would_get_without_cors() {
    let a = always(chat_text(&["a"])).await;
    for (origins, origin) in [
        ("[]", ORIGIN),
        ("[\"https://app.example\"]", "https://evil.example"),
        ("[\"https://app.example\"]", "https://app.example.evil"),
        ("[\"https://app.example\"]", "http://app.example"),
        ("[\"https://app.example\"]", "https://app.example:8443"),
        ("[\"https://app.example\"]", "null"),
    ] {
        let relay = start(&text(a.base_url(), origins)).await;
        let answered = preflight(&relay, origin, path(CHAT), "POST").await;
        assert_eq!((answered.status, cors_headers(&answered)), (405, vec![]), "{origins} {origin}");
        let answered = ask(&relay, origin, KEY).await;
        assert_eq!((answered.status, cors_headers(&answered)), (200, vec![]), "{origins} {origin}");
    }
    let relay = start(&text(a.base_url(), "[\"https://app.example\"]")).await;
    // No origin, and an OPTIONS that is no preflight.
    let plain = client(Http::One).get(url(&relay, "/healthz"));
    assert_eq!(cors_headers(&send(plain).await), Vec::<&str>::new());
    let options = client(Http::One).request(Method::OPTIONS, url(&relay, path(CHAT))).header("origin", ORIGIN);
    assert_eq!(send(options).await.status, 405);
}

/// The body is the relay's own: an interruption is an error frame and an abort for a page, too.
#[tokio::test]
async fn streams_end_for_a_page_as_for_anybody() {
    let cut = Answer::sse().step(chat::role()).step(chat::delta("shown")).delay_ms(30).abort_rst();
    let a = always(cut).await;
    let relay = start(&text(a.base_url(), "[\"https://app.example\"]")).await;
    for origin in [ORIGIN, "https://evil.example"] {
        let answered = ask(&relay, origin, KEY).await;
        assert_eq!(answered.status, 200);
        assert!(!answered.clean, "{origin}: an abort");
        assert_eq!(answered.last_event()["error"]["rubicon"]["status"], "interrupted", "{}", answered.text());
    }
}

#[tokio::test]
async fn origins_change_with_the_configuration() {
    let a = always(chat_text(&["a"])).await;
    let relay = start(&text(a.base_url(), "[]")).await;
    assert_eq!(preflight(&relay, ORIGIN, path(CHAT), "POST").await.status, 405);
    for (origins, status) in [("[\"https://app.example\"]", 200), ("[\"https://other.example\"]", 405)] {
        let sources = Sources {
            folder: Path::new(""),
            env: &|_| Some(KEY.to_owned()),
            read: &|_| Err(io::ErrorKind::NotFound.into()),
            now: UnixMillis::now(),
            terminal: false,
        };
        let loaded = config::parse(&text(a.base_url(), origins), "test.toml", &sources).expect("a config");
        relay.app().replace(Arc::new(loaded.settings));
        assert_eq!(preflight(&relay, ORIGIN, path(CHAT), "POST").await.status, status, "{origins}");
    }
}

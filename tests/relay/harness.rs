//! What the promises share: a relay from a config text, scripted providers, a client that keeps every byte, the recordings.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use rubicon::clock::UnixMillis;
use rubicon::config::settings::Settings;
use rubicon::config::{self, Sources};
use rubicon::mock::{MockProvider, Rule, Script};
use rubicon::protocol::Dialect;
use rubicon::serve::Server;

/// No single answer of a test takes longer; a hang becomes a failure with a place.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Sockets that the largest test holds at once: 500 streams have four each where client, relay and provider are this process.
const DESCRIPTORS: u64 = 4096;

/// Raises this process's soft limit of descriptors (often 1024) to what the largest test needs, once; children inherit it. Where the
/// hard limit is lower it says so and goes as far as it can.
pub(crate) fn many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let wanted = maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
        let raised = current.is_none_or(|current| current >= wanted)
            || setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok();
        if !raised || wanted < DESCRIPTORS {
            // Past the test harness, which shows nothing of a test that passes.
            let line = format!(
                "only {wanted} descriptors may be open here: tests with many streams may fail for want of them\n"
            );
            let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
        }
    });
}

/// The settings of a config text. `env:NAME` secrets read `env`.
pub(crate) fn settings_with(text: &str, env: &BTreeMap<&str, &str>) -> Settings {
    let sources = Sources {
        folder: Path::new(""),
        env: &|name| env.get(name).map(|value| (*value).to_owned()),
        read: &|_| Err(io::ErrorKind::NotFound.into()),
        now: UnixMillis::now(),
        terminal: false,
    };
    let text =
        if text.contains("[server]") { text.to_owned() } else { format!("[server]\nlisten = \"127.0.0.1:0\"\n{text}") };
    // Else the lines of all tests would stand between the test runner's own.
    let text = if text.contains("[log]") { text } else { format!("{text}\n[log]\nevents = \"off\"\n") };
    config::parse(&text, "test.toml", &sources).unwrap_or_else(|problems| panic!("{problems:#?}\n{text}")).settings
}

/// Starts a relay on a free loopback port. `env:NAME` secrets read `env`.
pub(crate) async fn relay_with(text: &str, env: &BTreeMap<&str, &str>) -> Server {
    many_descriptors();
    Server::start(settings_with(text, env)).await.expect("a relay")
}

/// Starts a relay without secrets.
pub(crate) async fn relay(text: &str) -> Server {
    relay_with(text, &BTreeMap::new()).await
}

/// A provider that answers everything by one rule.
pub(crate) async fn provider(rule: Rule) -> MockProvider {
    MockProvider::start(Script::default().rule(rule)).await.expect("a mock provider")
}

/// Two strict providers `a` and `b` that speak all dialects, routes of the same names, and a workflow `default` that may fail
/// over from `a` to `b`. `workflow` is what else stands under `[workflow.default]` (inline tables: `envelope = {…}`).
pub(crate) fn two(a: &MockProvider, b: &MockProvider, workflow: &str) -> String {
    let mut text = String::new();
    for (name, base) in [("a", a.base_url()), ("b", b.base_url())] {
        text += &format!(
            "[provider.{name}]\nkind = \"openai-compatible\"\nbase_url = \"{base}/v1\"\nterminal = \"strict\"\n\
             [route.{name}]\nprovider = \"{name}\"\ndialects = [\"chat-completions\", \"anthropic-messages\", \"responses\"]\n\
             capabilities = [\"text\", \"tools\", \"image\", \"reasoning\", \"json_schema\"]\n\
             verified = {{ on = 2026-01-01, by = \"test\" }}\n"
        );
    }
    let failover = if workflow.contains("failover =") { "" } else { "failover = { enabled = true }\n" };
    text + &format!(
        "[workflow.default]\nprimary = \"a\"\nequivalents = [\"b\"]\n{failover}{workflow}\n\
         [[approval]]\nworkflow = \"default\"\nroute = \"b\"\npurpose = \"failover\"\nby = \"test\"\n"
    )
}

/// The same configuration without breakers and with a shared budget that is never spent: for promises about one operation, of which
/// hundreds fail one after another on one relay.
pub(crate) fn undaunted(text: &str) -> String {
    let text = text.replace("]\nprovider = ", "]\nbreaker = { failures = 0 }\nprovider = ");
    let retry = "[server]\nretry = { min_per_second = 1000000 }\n";
    let text = text.replace("[server]\n", retry);
    if text.contains("[server]") { text } else { format!("{retry}listen = \"127.0.0.1:0\"\n{text}") }
}

/// The path of a dialect's streaming call.
pub(crate) fn path(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::ChatCompletions => "/v1/chat/completions",
        Dialect::AnthropicMessages => "/v1/messages",
        Dialect::Responses => "/v1/responses",
    }
}

/// A small request of a dialect.
pub(crate) fn request(dialect: Dialect, stream: bool) -> String {
    let max = if dialect == Dialect::AnthropicMessages { ",\"max_tokens\":64" } else { "" };
    let input = if dialect == Dialect::Responses { "input" } else { "messages" };
    format!("{{\"model\":\"m\",\"stream\":{stream}{max},\"{input}\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}")
}

/// HTTP/1.1, or HTTP/2 with prior knowledge (h2c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Http {
    One,
    Two,
}

/// A client that neither retries nor follows.
pub(crate) fn client(http: Http) -> reqwest::Client {
    let builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never());
    match http {
        Http::One => builder.http1_only(),
        Http::Two => builder.http2_prior_knowledge(),
    }
    .build()
    .expect("a client")
}

/// What a client got.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
    /// The body ended properly.
    pub(crate) clean: bool,
}

impl Answered {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("visible"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The data of the last SSE event, as JSON.
    pub(crate) fn last_event(&self) -> serde_json::Value {
        let text = self.text();
        let data = text.rsplit("data: ").next().unwrap_or_default().trim_end();
        serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"))
    }
}

/// Posts a body and reads everything.
pub(crate) async fn post(client: &reqwest::Client, relay: &Server, path: &str, body: impl Into<String>) -> Answered {
    send(client.post(url(relay, path)).header("content-type", "application/json").body(body.into())).await
}

pub(crate) fn url(relay: &Server, path: &str) -> String {
    format!("http://{}{path}", relay.address())
}

/// Sends a request and reads everything.
pub(crate) async fn send(request: reqwest::RequestBuilder) -> Answered {
    let response = tokio::time::timeout(PATIENCE, request.send()).await.expect("a head in time").expect("a head");
    read(response).await
}

/// Reads everything of a response.
pub(crate) async fn read(mut response: reqwest::Response) -> Answered {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut body = Vec::new();
    let clean = loop {
        match tokio::time::timeout(PATIENCE, response.chunk()).await.expect("data in time") {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    Answered { status, headers, body, clean }
}

/// A recorded answer.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

/// All recordings of a folder, sorted; empty (with a visible line) where the recordings are not beside the checkout. In CI they
/// must be.
pub(crate) fn recordings(folder: &str) -> Vec<Recording> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/recordings").join(folder);
    let Ok(entries) = std::fs::read_dir(&root) else {
        assert!(std::env::var_os("CI").is_none(), "CI must have the recordings");
        // Past the test harness, which shows nothing of a test that passes.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"skipped: no recordings beside the checkout\n");
        return Vec::new();
    };
    let mut found: Vec<Recording> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "http"))
        .map(|path| {
            let bytes = std::fs::read(&path).expect("a recording");
            let split = bytes.windows(2).position(|pair| pair == b"\n\n").expect("a head");
            let head = String::from_utf8_lossy(&bytes[..split]).into_owned();
            let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            Recording { name, path, status, body: Bytes::from(bytes).slice(split + 2..) }
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!found.is_empty(), "{} is empty", root.display());
    found
}

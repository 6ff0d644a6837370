//! The mock against real sockets: `steps` what each step sends, `faults` what a client sees of each fault, `counts` what the
//! mock knows afterwards. No test waits by time; the one limit here only turns a hang into a failure.

mod counts;
mod faults;
mod steps;

use std::future::Future;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Answer, MockProvider, Script};

/// A test that takes so long hangs.
const HANG: Duration = Duration::from_secs(60);

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, what).await.expect("the test hangs")
}

async fn start(script: Script) -> MockProvider {
    MockProvider::start(script).await.expect("a script that can be played")
}

/// A mock that answers everything with these steps, given as JSON.
async fn one(steps: &str) -> MockProvider {
    start(Script::one(serde_json::from_str::<Answer>(steps).expect(steps))).await
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().expect("a client")
}

async fn post(mock: &MockProvider, path: &str, body: &str) -> reqwest::Response {
    try_post(mock, path, body).await.expect("an answer")
}

async fn try_post(mock: &MockProvider, path: &str, body: &str) -> reqwest::Result<reqwest::Response> {
    within(client().post(format!("{}{path}", mock.base_url())).body(body.to_owned()).send()).await
}

/// Everything a raw connection gives for these bytes until the mock closes it.
async fn raw(mock: &MockProvider, request: &str) -> String {
    let mut stream = TcpStream::connect(mock.addr()).await.expect("a listener");
    stream.write_all(request.as_bytes()).await.expect("open");
    let mut all = Vec::new();
    within(stream.read_to_end(&mut all)).await.expect("a close in order");
    String::from_utf8(all).expect("text")
}

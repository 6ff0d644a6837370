//! A running `rubicon serve` whose config file the test owns and replaces, for the promises of reload: here and under load.

use std::net::SocketAddr;
use std::path::Path;

use rubicon::mock::{Answer, MockProvider, chat};
use rubicon::protocol::Dialect;

use crate::child::Running;
use crate::harness::{Answered, Http, client, path, request, send};

const CHAT: Dialect = Dialect::ChatCompletions;
/// What the log says of each way a load can end.
pub(crate) const TAKEN: &str = "the configuration is loaded: it holds for new requests";
pub(crate) const UNCHANGED: &str = "the configuration is loaded: nothing in it has changed";
pub(crate) const REFUSED: &str = "the configuration is not loaded";

/// A running `rubicon serve` whose config the test owns.
pub(crate) struct Relay {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) running: Running,
    address: SocketAddr,
}

impl Relay {
    /// `files` are written first; `rubicon.toml` is one of them.
    pub(crate) async fn start(files: &[(&str, &str)], more: &[&str], env: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            write(folder.path(), name, text);
        }
        Self::start_in(folder, more, env).await
    }

    pub(crate) async fn start_in(folder: tempfile::TempDir, more: &[&str], env: &[(&str, &str)]) -> Self {
        let config = folder.path().join("rubicon.toml");
        let args = [&["serve", "-c", config.to_str().expect("UTF-8")], more].concat();
        let running = Running::start(&args, env, "rubicon serve: listening on http://").await;
        let address = running.told.parse().expect("an address");
        Self { folder, running, address }
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        write(self.folder.path(), name, text);
    }

    /// Replaces the config and asks for a load, the `times`th that ends in `how`.
    pub(crate) async fn reload(&self, text: &str, how: &str, times: usize) -> String {
        self.write("rubicon.toml", text);
        self.running.signal("HUP").await;
        self.running.says(how, times).await
    }

    pub(crate) fn ask(&self, http: &reqwest::Client, stream: bool) -> reqwest::RequestBuilder {
        let url = format!("http://{}{}", self.address, path(CHAT));
        http.post(url).header("content-type", "application/json").body(request(CHAT, stream))
    }

    pub(crate) async fn answer(&self, stream: bool) -> Answered {
        send(self.ask(&client(Http::One), stream)).await
    }

    pub(crate) async fn answer_to(&self, key: &str) -> u16 {
        send(self.ask(&client(Http::One), true).header("authorization", format!("Bearer {key}"))).await.status
    }
}

/// Renamed into place, as every careful writer does.
pub(crate) fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let new = folder.join("new");
    std::fs::write(&new, text).expect("a file");
    std::fs::rename(new, path).expect("a rename");
}

/// One route `main` at a provider, and lines for its tables.
pub(crate) fn config(at: &MockProvider, server: &str, route: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n{server}\n[provider.p]\nkind = \"openai-compatible\"\nbase_url = \"{}/v1\"\n\
         terminal = \"strict\"\n[route.main]\nprovider = \"p\"\n{route}\n[workflow.w]\nprimary = \"main\"\n",
        at.base_url()
    )
}

/// A stream that stops in the middle until its gate is opened.
pub(crate) fn halves() -> Answer {
    let first = Answer::sse().step(chat::role()).step(chat::delta("first half, "));
    first.gate("go").step(chat::delta("second half")).step(chat::finish("stop")).step(chat::done())
}

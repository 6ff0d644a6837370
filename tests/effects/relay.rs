//! The relay under test as a child that may die at any moment, and the place where it is reached now.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

/// Longest that a start may take: the machines are shared.
const START: Duration = Duration::from_secs(60);

/// Where the relay is reached; none while it is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Up {
    pub(crate) data: SocketAddr,
    pub(crate) admin: String,
    /// One more with each start.
    pub(crate) life: u64,
}

/// A running child.
pub(crate) struct Life {
    child: Child,
    said: Arc<Mutex<String>>,
}

/// Starts lives of the relay over one folder.
pub(crate) struct Relay {
    folder: PathBuf,
    pub(crate) up: watch::Sender<Option<Up>>,
    lives: u64,
}

pub(crate) const TOKEN: &str = "effects-approver-token-0001";
pub(crate) const KEY: &str = "effects-client-key-0001";

fn config(oracle: &str) -> String {
    format!(
        r#"[server]
listen = "127.0.0.1:0"
admin_listen = "127.0.0.1:0"
store = "redb:rubicon.redb"

[log]
events = "off"

[[client]]
name = "agent"
tenant = "effects"
keys = ["env:KEY"]
workflows = ["default"]
tools = ["charge", "charge_probed", "own"]

[[operator]]
name = "ana"
token = "env:TOKEN"
role = "approver"

[provider.mock]
kind = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"
api_key = "env:KEY"

[route.main]
provider = "mock"

[workflow.default]
primary = "main"

[tool.charge]
effect = "write"
key_fields = ["/intent"]
ignore_fields = ["/fault"]
endpoint = {{ url = "{oracle}/charge" }}
timeout_ms = 3000
max_runs = 20

[tool.charge_probed]
effect = "write"
key_fields = ["/intent"]
ignore_fields = ["/fault"]
endpoint = {{ url = "{oracle}/charge" }}
timeout_ms = 3000
max_runs = 20
probe = {{ url = "{oracle}/status/{{key}}", rules = [{{ pointer = "/state", equals = "done", outcome = "succeeded" }}, {{ pointer = "/state", equals = "absent", outcome = "not_executed" }}], absent_after_ms = 3500, agree = 1 }}

[tool.own]
effect = "write"
key_fields = ["/intent"]
ignore_fields = ["/fault"]
max_runs = 20
"#
    )
}

impl Relay {
    pub(crate) fn new(folder: &Path, oracle: &str) -> Self {
        std::fs::write(folder.join("rubicon.toml"), config(oracle)).expect("a config");
        Self { folder: folder.to_owned(), up: watch::Sender::new(None), lives: 0 }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.join("rubicon.toml")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rubicon"));
        command.env_clear().env("KEY", KEY).env("TOKEN", TOKEN).args(args).arg("-c").arg(self.config());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Runs a command over the same config to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> std::process::Output {
        timeout(START, self.command(args).output()).await.expect("an end in time").expect("the binary runs")
    }

    /// A new life, with a point at which it is to die.
    pub(crate) async fn start(&mut self, failpoint: Option<&str>) -> Life {
        let mut command = self.command(&["serve"]);
        if let Some(point) = failpoint {
            command.env("RUBICON_FAILPOINT", point);
        }
        let mut child = command.spawn().expect("the binary runs");
        let said = Arc::new(Mutex::new(String::new()));
        let (line_of, lines) = watch::channel((None, None));
        for from in [
            Box::new(child.stdout.take().expect("out")) as Box<dyn tokio::io::AsyncRead + Send + Unpin>,
            Box::new(child.stderr.take().expect("err")),
        ] {
            let (said, line_of) = (Arc::clone(&said), line_of.clone());
            tokio::spawn(async move {
                let mut lines = BufReader::new(from).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if let Some(rest) = line.strip_prefix("rubicon serve: listening on http://") {
                        line_of.send_modify(|found: &mut (Option<SocketAddr>, Option<String>)| {
                            found.0 = rest.parse().ok()
                        });
                    }
                    if let Some(rest) = line.strip_prefix("rubicon serve: the admin side is on ") {
                        line_of.send_modify(|found| found.1 = Some(rest.to_owned()));
                    }
                    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                    // The last part is enough to see why it did not start.
                    if said.len() > 64 * 1024 {
                        said.clear();
                    }
                    said.push_str(&line);
                    said.push('\n');
                }
            });
        }
        drop(line_of);
        let mut lines = lines;
        let life = Life { child, said };
        let ready = timeout(START, lines.wait_for(|found| found.0.is_some() && found.1.is_some())).await;
        let found = match ready {
            Ok(Ok(found)) => (found.0, found.1.clone()),
            // It died while it started (a point on the way up), or said nothing.
            Ok(Err(_)) => (None, None),
            Err(_) => panic!("it did not start: {}", life.said()),
        };
        if let (Some(data), Some(admin)) = found {
            self.lives += 1;
            self.up.send_replace(Some(Up { data, admin, life: self.lives }));
        }
        life
    }
}

impl Life {
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it is dead by itself; none: it lives on.
    pub(crate) async fn died(&mut self, within: Duration) -> Option<ExitStatus> {
        timeout(within, self.child.wait()).await.ok().map(|status| status.expect("a child"))
    }

    /// `kill -9`.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("killed");
    }

    /// SIGTERM, to its end.
    pub(crate) async fn stop(mut self) -> String {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.expect("kill").success());
        let status = timeout(START, self.child.wait()).await.expect("an end in time").expect("a child");
        assert!(status.success(), "{status}: {}", self.said());
        self.said()
    }
}

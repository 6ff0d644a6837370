//! A relay of its own for a scene that kills it: this very executable as `rubicon serve`, its config and its store in a temporary folder.
//!
//! In: the lines of a config. Out: where it listens, and `kill -9`. Whatever happens to the scene, process and folder are gone after it:
//! both go when they are dropped. Its environment is empty but for the operator's token, so that nothing of the machine's leaks in.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

/// How long it may take to listen.
const STARTED_MAX: Duration = Duration::from_secs(15);

/// The variable that its operator's token is in.
pub(super) const TOKEN: &str = "RUBICON_DEMO_TOKEN";

/// Where its stderr goes, in its folder.
const LOG: &str = "stderr.log";

/// Where its config is, in its folder.
const CONFIG: &str = "rubicon.toml";

/// A folder that is removed with all that is in it.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes one that nobody else can read.
    pub(super) fn new() -> Result<Self, String> {
        let name = format!("rubicon-demo-{:016x}", getrandom::u64().map_err(|error| error.to_string())?);
        let path = std::env::temp_dir().join(name);
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| format!("the folder {} cannot be made: {error}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean up: it is in the folder for that.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running `rubicon serve`.
pub(super) struct Child {
    process: std::process::Child,
    /// Base URL of the data plane.
    pub(super) base: String,
    /// Base URL of the admin side.
    pub(super) admin: String,
}

impl Child {
    /// Starts it in `folder` and waits until it listens.
    pub(super) async fn start(folder: &Folder, config: &str, token: &str) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a second relay cannot be started: {error}");
        let file = folder.path().join(CONFIG);
        fs::write(&file, config).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["serve", "--json", "-c"]).arg(&file).env_clear().env(TOKEN, token);
        let log = File::create(folder.path().join(LOG)).map_err(failed)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let process = command.spawn().map_err(failed)?;
        // From here on it is killed if anything goes wrong.
        let mut child = Self { process, base: String::new(), admin: String::new() };
        let stdout = child.process.stdout.take();
        let first = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
            read.transpose().map(|_| line)
        });
        let line = match timeout(STARTED_MAX, first).await {
            Ok(Ok(read)) => read.map_err(failed)?,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("a second relay did not listen in time".to_owned()),
        };
        let told: Value = serde_json::from_str(&line).unwrap_or_default();
        let (Some(base), Some(admin)) = (told["listening"].as_str(), told["admin"].as_str()) else {
            let log = fs::read_to_string(folder.path().join(LOG)).unwrap_or_default();
            return Err(format!("a second relay did not start: {}", log.trim_end().replace('\n', "; ")));
        };
        (child.base, child.admin) = (base.to_owned(), admin.to_owned());
        Ok(child)
    }

    /// `kill -9`, and waits until it is gone.
    pub(super) fn kill(self) {
        drop(self);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SIGKILL on Unix. One that is gone already is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! The real binary as a child: run to its end or until it is stopped, its memory, and every byte it printed.

use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child as Process, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::PATIENCE;

/// The binary under test, in an environment of its own: nothing of the machine's settings leaks in.
fn binary(env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rubicon"));
    command.env_clear().envs(env.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end.
pub(crate) async fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    let output = binary(env).args(args).output();
    timeout(PATIENCE, output).await.unwrap_or_else(|_| panic!("rubicon {args:?} did not end")).expect("the binary runs")
}

/// The exit code; a signal is none.
pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

/// Everything it printed.
pub(crate) fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A file in a folder of its own.
pub(crate) fn file(name: &str, text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("a file");
    let path = path.to_str().expect("UTF-8").to_owned();
    (folder, path)
}

/// The binary, running until it is stopped.
pub(crate) struct Running {
    process: Process,
    /// What followed the prefix on the line that was waited for.
    pub(crate) told: String,
    printed: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts it and waits for a line that begins with `prefix`.
    pub(crate) async fn start(args: &[&str], env: &[(&str, &str)], prefix: &str) -> Self {
        Self::of(binary(env).args(args), prefix).await
    }

    /// The same on a disk that takes nothing beyond the first `blocks` of any file: writes fail there, as on a full one.
    pub(crate) async fn start_on_full_disk(args: &[&str], env: &[(&str, &str)], prefix: &str, blocks: u32) -> Self {
        let mut command = Command::new("/bin/sh");
        // The signal that would end the process is ignored, and stays so in the program that takes over.
        let line = format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$0\" \"$@\"");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_rubicon")]).args(args);
        command.env_clear().envs(env.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::of(&mut command, prefix).await
    }

    /// The same with another standard error, or another standard output: what goes there is not collected.
    pub(crate) async fn start_with(
        args: &[&str],
        env: &[(&str, &str)],
        prefix: &str,
        (stdout, stderr): (Stdio, Stdio),
    ) -> Self {
        let mut command = binary(env);
        command.args(args).stdout(stdout).stderr(stderr);
        Self::of(&mut command, prefix).await
    }

    async fn of(command: &mut Command, prefix: &str) -> Self {
        let mut process = command.spawn().expect("the binary runs");
        let printed = Arc::new(Mutex::new(Vec::new()));
        let mut readers = Vec::new();
        readers.extend(process.stdout.take().map(|from| collect(from, &printed)));
        readers.extend(process.stderr.take().map(|from| collect(from, &printed)));
        let told = timeout(PATIENCE, async {
            loop {
                let text = String::from_utf8_lossy(&lock(&printed)).into_owned();
                let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
                if let Some(rest) = whole.lines().find_map(|line| line.strip_prefix(prefix)) {
                    return rest.to_owned();
                }
                assert!(process.try_wait().expect("a child").is_none(), "it ended: {text}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let told = told.await.expect("started in time");
        Self { process, told, printed, readers }
    }

    /// What follows the prefix on a line that it has printed.
    pub(crate) fn line(&self, prefix: &str) -> String {
        let printed = String::from_utf8_lossy(&lock(&self.printed)).into_owned();
        let found = printed.lines().find_map(|line| line.strip_prefix(prefix));
        found.unwrap_or_else(|| panic!("no line {prefix:?}: {printed}")).to_owned()
    }

    fn pid(&self) -> u32 {
        self.process.id().expect("it runs")
    }

    /// Sends a signal, `HUP` or `TERM`.
    pub(crate) async fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status().await;
        assert!(sent.expect("kill").success());
    }

    /// Waits until `text` was printed `times` times; everything that was printed so far.
    pub(crate) async fn says(&self, text: &str, times: usize) -> String {
        let said = timeout(PATIENCE, async {
            loop {
                let printed = String::from_utf8_lossy(&lock(&self.printed)).into_owned();
                if printed.matches(text).count() >= times {
                    return printed;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        said.await.unwrap_or_else(|_| {
            panic!("{text:?} was not said {times} times:\n{}", String::from_utf8_lossy(&lock(&self.printed)))
        })
    }

    /// There is room on the disk of [`Running::start_on_full_disk`] from now on.
    #[cfg(target_os = "linux")]
    async fn make_room(&self) {
        let pid = self.pid().to_string();
        let made = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited:"]).status().await;
        assert!(made.expect("prlimit of util-linux").success());
    }

    /// SIGTERM; the exit code and everything it printed.
    pub(crate) async fn stop(mut self) -> (i32, String) {
        self.signal("TERM").await;
        let status = timeout(PATIENCE, self.process.wait()).await.expect("an end in time").expect("a child");
        for reader in self.readers.drain(..) {
            reader.await.expect("a reader");
        }
        let printed = String::from_utf8_lossy(&lock(&self.printed)).into_owned();
        (status.code().unwrap_or_else(|| panic!("ended by a signal: {printed}")), printed)
    }
}

/// A running `rubicon serve`.
pub(crate) struct Serving {
    running: Running,
    pub(crate) address: SocketAddr,
    _folder: Option<tempfile::TempDir>,
}

/// Resident memory now and at its highest, bytes.
#[allow(dead_code, reason = "tests/load weighs it")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

impl Serving {
    /// Starts it on a free port. `text` has no `[server]` table; `server` is what stands in one.
    pub(crate) async fn start(server: &str, text: &str, env: &[(&str, &str)]) -> Self {
        let text = format!("[server]\nlisten = \"127.0.0.1:0\"\n{server}\n{text}");
        let (folder, path) = file("rubicon.toml", &text);
        let running = Running::start(&["serve", "-c", &path], env, "rubicon serve: listening on http://").await;
        let address = running.told.parse().expect("an address");
        Self { running, address, _folder: Some(folder) }
    }

    /// Starts it with a config in a folder that outlives it. `full_disk`: as [`Running::start_on_full_disk`].
    pub(crate) async fn start_in(
        folder: &std::path::Path,
        text: &str,
        env: &[(&str, &str)],
        full_disk: Option<u32>,
    ) -> Self {
        let path = folder.join("rubicon.toml");
        std::fs::write(&path, text).expect("a file");
        let args = ["serve", "-c", path.to_str().expect("UTF-8")];
        let prefix = "rubicon serve: listening on http://";
        let running = match full_disk {
            None => Running::start(&args, env, prefix).await,
            Some(blocks) => Running::start_on_full_disk(&args, env, prefix, blocks).await,
        };
        let address = running.told.parse().expect("an address");
        Self { running, address, _folder: None }
    }

    /// As [`Running::says`].
    pub(crate) async fn says(&self, text: &str, times: usize) -> String {
        self.running.says(text, times).await
    }

    /// The admin side's base URL.
    pub(crate) fn admin(&self) -> String {
        self.running.line("rubicon serve: the admin side is on ")
    }

    /// There is room on its full disk from now on.
    #[cfg(target_os = "linux")]
    pub(crate) async fn make_room(&self) {
        self.running.make_room().await;
    }

    /// `kill -9`.
    pub(crate) async fn kill_9(mut self) {
        self.running.process.kill().await.expect("killed");
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    #[allow(dead_code, reason = "tests/load weighs it")]
    pub(crate) fn memory(&self) -> Memory {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.running.pid())).expect("a Linux /proc");
        let kib = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.trim().trim_end_matches("kB").trim().parse().expect("a number")
        };
        Memory { now: kib("VmRSS:") * 1024, peak: kib("VmHWM:") * 1024 }
    }

    /// SIGTERM; the exit code and everything it printed.
    pub(crate) async fn stop(self) -> (i32, String) {
        self.running.stop().await
    }
}

fn collect(mut from: impl AsyncRead + Unpin + Send + 'static, into: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    let into = Arc::clone(into);
    tokio::spawn(async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            lock(&into).extend_from_slice(&buffer[..count]);
        }
    })
}

fn lock(printed: &Mutex<Vec<u8>>) -> std::sync::MutexGuard<'_, Vec<u8>> {
    printed.lock().unwrap_or_else(PoisonError::into_inner)
}

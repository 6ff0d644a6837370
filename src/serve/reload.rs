//! Loads the configuration anew: on SIGHUP, and with `--watch` when a file that the last load read has changed.
//!
//! One load at a time: this task is the only one that loads, and signals that come meanwhile are one more load after it. The files
//! are read on a thread of their own, so that a file system that hangs takes neither a worker of the runtime nor the shutdown. A bad
//! file changes nothing; what is wrong with it is in the log and in [`App::reload_status`]. The environment of a process does not
//! change, so `env:` keeps the values of the start; `file:` secrets are read at every load.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::oneshot;

use crate::clock::UnixMillis;
use crate::config::{self, Loaded, Problem, Seen, Severity};
use crate::relay::app::App;

/// How often a watch looks. Under a second nobody waits for; stats of a handful of files cost nothing at this pace.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How to load the configuration anew, and what the last load saw.
#[derive(Debug)]
pub struct Reload {
    /// The config file.
    pub config: PathBuf,
    /// The environment.
    pub env: fn(&str) -> Option<String>,
    /// Whether to look for changes; SIGHUP is always heard.
    pub watch: bool,
    /// What the first load looked at.
    pub seen: Vec<Seen>,
    /// [`Loaded::secrets`] of the first load.
    pub secrets: Option<blake3::Hash>,
}

impl Reload {
    /// Loads whenever it is asked to. Runs until it is dropped.
    pub(super) async fn run(mut self, app: Arc<App>, mut hangups: Signal) {
        let mut changed = None;
        loop {
            let why = tokio::select! {
                heard = hangups.recv() => match heard {
                    Some(()) => "SIGHUP",
                    None => return,
                },
                () = tokio::time::sleep(LOOK_EVERY), if self.watch => {
                    if !self.look(&mut changed).await {
                        continue;
                    }
                    "a changed file"
                }
            };
            changed = None;
            self.load(&app, why).await;
        }
    }

    /// Whether something changed since the last load and has stayed as it is since the last look: files are written in pieces, and
    /// several of them one after the other.
    async fn look(&self, changed: &mut Option<Vec<Seen>>) -> bool {
        let seen = self.seen.clone();
        let Some(now) = aside(move || seen.iter().map(Seen::again).collect::<Vec<_>>()).await else { return false };
        if now == self.seen {
            *changed = None;
            return false;
        }
        let settled = changed.as_ref() == Some(&now);
        *changed = Some(now);
        settled
    }

    async fn load(&mut self, app: &App, why: &'static str) {
        tracing::info!(why, "loading the configuration anew");
        let (path, env) = (self.config.clone(), self.env);
        let loading = aside(move || {
            let now = UnixMillis::now();
            let (result, seen) = config::load_seen(&path, &env, now);
            let result = result.map(|loaded| {
                let mut findings = crate::check::findings(&loaded, now);
                findings.retain(|finding| finding.severity != Severity::Info);
                (loaded, findings)
            });
            (result, seen)
        });
        let Some((result, seen)) = loading.await else {
            tracing::error!("the configuration could not be loaded: no thread could be started; nothing changed");
            return;
        };
        self.seen = seen;
        match result {
            Ok((loaded, findings)) => self.take(app, loaded, &findings),
            Err(problems) => refuse(app, &problems),
        }
    }

    /// Puts a good configuration in force.
    fn take(&mut self, app: &App, mut loaded: Loaded, findings: &[Problem]) {
        let current = app.current();
        let kept = match config::keep_what_needs_a_restart(&current.settings, &mut loaded) {
            Ok(kept) => kept,
            Err(problem) => return refuse(app, &[problem]),
        };
        for problem in loaded.warnings.iter().chain(findings).chain(&kept) {
            tell(problem);
        }
        let changes = config::changes(&current.settings, self.secrets, &loaded);
        self.secrets = loaded.secrets;
        let needs_restart = kept.into_iter().map(|problem| problem.key).collect();
        if changes.is_empty() {
            app.reload_taken(UnixMillis::now(), needs_restart);
            tracing::info!(generation = current.generation, "the configuration is loaded: nothing in it has changed");
            return;
        }
        let (old, new) = (&current.settings, &loaded.settings);
        let (clients, operators) =
            (!old.clients.is_empty() && new.clients.is_empty(), !old.operators.is_empty() && new.operators.is_empty());
        app.replace(Arc::new(loaded.settings));
        if clients {
            tracing::warn!(
                "no [[client]] is left: no key is asked for any more, and whoever is on this machine may call (loopback only)"
            );
        }
        if operators {
            tracing::warn!(
                "no [[operator]] is left: the admin side is off, and nobody can kill or restore; switches stay as they are"
            );
        }
        app.reload_taken(UnixMillis::now(), needs_restart);
        let generation = app.current().generation;
        let changed = changes.names.join(", ");
        tracing::info!(generation, changed, "the configuration is loaded: it holds for new requests");
    }
}

fn refuse(app: &App, problems: &[Problem]) {
    problems.iter().for_each(tell);
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
    let errors: Vec<String> = errors.map(ToString::to_string).collect();
    tracing::error!(
        errors = errors.len(),
        "the configuration is not loaded: nothing changed, and the old one serves on"
    );
    app.reload_failed(UnixMillis::now(), errors);
}

/// One line a problem, as `check` prints it. No problem holds a secret.
fn tell(problem: &Problem) {
    let (file, line, key, code) = (problem.file.as_str(), problem.line, problem.key.as_str(), problem.code.name());
    match problem.severity {
        Severity::Error => tracing::error!(file, line, key, code, "{problem}"),
        Severity::Warning => tracing::warn!(file, line, key, code, "{problem}"),
        Severity::Info => tracing::info!(file, line, key, code, "{problem}"),
    }
}

/// Runs what may block for long. `None`: no thread could be started.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (send, done) = oneshot::channel();
    let thread = std::thread::Builder::new().name("config".to_owned());
    // Who waits may be gone at a shutdown.
    thread.spawn(move || send.send(work()).is_ok()).ok()?;
    done.await.ok()
}

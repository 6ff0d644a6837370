//! `rubicon demo`: scripted providers, the relay and a client, all on loopback; no config, no keys, no network.
//!
//! Each scene is played by real HTTP through the very server that `rubicon serve` runs, narrated, and checked: the exit code
//! is 1 if one did not go as it must. The counts are the stubs' own. After the scenes it stays up for lines to try.

mod client;
mod scenes;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use crate::clock::{Instant, UnixMillis};
use crate::config::{self, Sources};
use crate::control::record::Subject;
use crate::control::table::{Precondition, Request};
use crate::ids::RouteId;
use crate::mock::{MockProvider, Script};
use crate::serve::Server;

use client::{Client, Ended, Seen};
use scenes::{Outcome, Scene};

/// Where the demo listens when the port is free, so that the lines to try look familiar.
const PREFERRED: &str = "127.0.0.1:8080";

/// What to play.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The scene to break on purpose, by name.
    pub broken: Option<String>,
    /// Play one scene only, by name.
    pub only: Option<String>,
    /// JSON lines, one a scene, for programs.
    pub json: bool,
}

/// The names of all scenes.
pub fn scene_names() -> Vec<&'static str> {
    Scene::ALL.iter().map(|scene| scene.name()).collect()
}

/// Everything the demo runs.
pub struct Demo {
    primary: MockProvider,
    secondary: MockProvider,
    relay: Server,
    broken: Option<Scene>,
    only: Option<Scene>,
    json: bool,
}

impl std::fmt::Debug for Demo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Demo").finish_non_exhaustive()
    }
}

impl Demo {
    /// Starts stubs and relay.
    ///
    /// # Errors
    /// When a scene's name is not known, or loopback can't be listened on.
    pub async fn start(options: &Options) -> Result<Self, String> {
        let broken = named(options.broken.as_deref())?;
        let only = named(options.only.as_deref())?;
        let script = |rule: &dyn Fn(Scene) -> crate::mock::Rule| {
            Scene::ALL.iter().fold(Script::default(), |script, scene| script.rule(rule(*scene)))
        };
        let start = |script| async { MockProvider::start(script).await.map_err(|error| error.to_string()) };
        let primary = start(script(&|scene| scene.primary(broken == Some(scene)))).await?;
        let secondary = start(script(&|scene| scene.secondary())).await?;
        let text = config_text(&primary, &secondary, broken);
        let listening = async |at: &str| {
            let settings = settings(&format!("[server]\nlisten = \"{at}\"\n[log]\nevents = \"off\"\n{text}"))?;
            Server::start(settings).await.map_err(|error| format!("the relay can't listen on {at}: {error}"))
        };
        let relay = match listening(PREFERRED).await {
            Ok(relay) => relay,
            Err(_) => listening("127.0.0.1:0").await?,
        };
        Ok(Self { primary, secondary, relay, broken, only, json: options.json })
    }

    /// Plays the scenes, telling `out`. True if all went as they must.
    ///
    /// # Errors
    /// When `out` can't be written.
    pub async fn play(&self, out: &mut impl Write) -> io::Result<bool> {
        if !self.json {
            writeln!(out, "Rubicon demo: two scripted providers and the relay on {}\n", self.relay.address())?;
        }
        let scenes: Vec<Scene> =
            Scene::ALL.into_iter().filter(|scene| self.only.is_none_or(|only| only == *scene)).collect();
        let mut bad = 0;
        for (index, scene) in scenes.iter().enumerate() {
            let mut lines = String::new();
            let (report, result) = self.scene(*scene, &mut lines).await;
            bad += usize::from(result.is_err());
            if self.json {
                let expected = result.err();
                let ok = expected.is_none();
                let line = serde_json::json!({ "scene": scene.name(), "ok": ok, "expected": expected, "seen": report });
                writeln!(out, "{line}")?;
                continue;
            }
            writeln!(out, "{}. {}  [{}]", index + 1, scene.title(), scene.name())?;
            out.write_all(lines.as_bytes())?;
            match result {
                Ok(()) => writeln!(out, "   ok\n")?,
                Err(what) => writeln!(out, "   NOT AS IT MUST BE: expected {what}\n")?,
            }
        }
        if !self.json {
            writeln!(out, "{} of {} scenes went as they must", scenes.len() - bad, scenes.len())?;
        }
        Ok(bad == 0)
    }

    /// Plays one scene: what was seen (for programs), and the first thing that was not as it must be.
    async fn scene(&self, scene: Scene, lines: &mut String) -> (serde_json::Value, Result<(), String>) {
        match self.observe(scene, lines).await {
            Ok((seen, calls, known)) => {
                let report = serde_json::json!({
                    "status": seen.status, "recovery": seen.recovery, "text": seen.text, "arguments": seen.arguments,
                    "clean_end": seen.ended == Ended::Clean, "rubicon_status": seen.rubicon("status"),
                    "rubicon_reason": seen.rubicon("reason"), "calls": { "primary": calls.0, "secondary": calls.1 },
                    "boundary": known["boundary"],
                });
                (report, scene.check(&Outcome { seen: &seen, calls }))
            }
            Err(problem) => (serde_json::Value::Null, Err(format!("an answer, but {problem}"))),
        }
    }

    async fn observe(&self, scene: Scene, lines: &mut String) -> Result<(Seen, (u64, u64), serde_json::Value), String> {
        let client = Client::new(format!("http://{}", self.relay.address()));
        let kills = scene.kills(self.broken == Some(scene));
        if kills {
            self.switch("primary", true).await?;
        }
        let began = Instant::now();
        let mut seen = client.post(scene.path(), &scene.request()).await?;
        let took = began.elapsed();
        if kills {
            self.switch("primary", false).await?;
        }
        if let Some(next) = scene.next_turn(self.broken == Some(scene)) {
            seen = client.post(scene.path(), &next).await?;
        }
        if scene.client_repeats(self.broken == Some(scene)) {
            client.post(scene.path(), &scene.request()).await?;
        }
        let calls = (self.primary.calls_of(scene.name()), self.secondary.calls_of(scene.name()));
        let known = client.get(&format!("/v1/operations/{}", seen.operation)).await?;
        describe(lines, &seen, took.as_millis(), calls, &known);
        Ok((seen, calls, known))
    }

    /// Kills or restores a route, as the admin side does.
    async fn switch(&self, route: &str, stop: bool) -> Result<(), String> {
        let change = Request {
            subject: Subject::Route(RouteId::new(route)),
            stop,
            by: "the demo".to_owned(),
            reason: "a scene".to_owned(),
            precondition: Precondition::Any,
            now: UnixMillis::now(),
        };
        self.relay.app().control.change(change).await.map(drop).map_err(|refused| format!("{refused:?}"))
    }

    /// Lines to try by hand while it stays up.
    ///
    /// # Errors
    /// When `out` can't be written.
    pub fn lines_to_try(&self, out: &mut impl Write) -> io::Result<()> {
        let base = format!("http://{}", self.relay.address());
        writeln!(out, "\nStill up. Try:\n")?;
        writeln!(out, "  curl -s {base}/v1/models")?;
        for scene in [Scene::Clean, Scene::Failover503, Scene::CutAfterOutput, Scene::Quota] {
            writeln!(
                out,
                "  curl -isN {base}{} -H 'content-type: application/json' \\\n       -d '{{\"model\":\"{}\",\"stream\":true,\
                 \"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}'",
                scene.path(),
                scene.name()
            )?;
        }
        writeln!(out, "\nor point an SDK at it: base_url = \"{base}/v1\", any api_key, model = \"failover-503\"")?;
        writeln!(out, "Ctrl-C ends it.")
    }

    /// Takes everything down.
    pub async fn stop(self) {
        self.relay.shutdown().await;
        self.primary.stop().await;
        self.secondary.stop().await;
    }
}

fn named(name: Option<&str>) -> Result<Option<Scene>, String> {
    let Some(name) = name else { return Ok(None) };
    let found = Scene::ALL.into_iter().find(|scene| scene.name() == name);
    found.map(Some).ok_or_else(|| format!("there is no scene {name:?}; there are: {}", scene_names().join(", ")))
}

fn settings(text: &str) -> Result<config::settings::Settings, String> {
    let sources = Sources {
        folder: Path::new(""),
        env: &|_| None,
        read: &|_| Err(io::ErrorKind::NotFound.into()),
        now: UnixMillis::now(),
        terminal: false,
    };
    config::parse(text, "demo", &sources).map(|loaded| loaded.settings).map_err(|problems| {
        problems.iter().map(|problem| format!("{}: {}", problem.key, problem.message)).collect::<Vec<_>>().join("; ")
    })
}

/// The demo's configuration: two providers, a route a dialect each, a workflow a scene.
fn config_text(primary: &MockProvider, secondary: &MockProvider, broken: Option<Scene>) -> String {
    let mut text = String::new();
    for (name, stub) in [("primary", primary), ("secondary", secondary)] {
        let base = stub.base_url();
        // Writing to a String can't fail.
        let _ = write!(
            text,
            "[provider.{name}]\nkind = \"openai-compatible\"\nbase_url = \"{base}/v1\"\nterminal = \"strict\"\n\
             [route.{name}]\nprovider = \"{name}\"\ndialects = [\"chat-completions\", \"anthropic-messages\", \"responses\"]\n\
             capabilities = [\"text\", \"tools\"]\nverified = {{ on = 2026-01-01, by = \"demo\" }}\n"
        );
    }
    for scene in Scene::ALL {
        let name = scene.name();
        let _ = write!(
            text,
            "[workflow.{name}]\nmodels = [\"{name}\"]\nprimary = \"primary\"\nequivalents = [\"secondary\"]\n\
             envelope = {{ {} }}\nfailover = {{ enabled = {} }}\n\
             [[approval]]\nworkflow = \"{name}\"\nroute = \"secondary\"\npurpose = \"failover\"\nby = \"demo\"\n",
            scene.envelope(),
            scene.failover(broken == Some(scene)),
        );
    }
    text
}

fn describe(lines: &mut String, seen: &Seen, took: u128, calls: (u64, u64), known: &serde_json::Value) {
    let mut line = |text: String| {
        let _ = writeln!(lines, "   {text}");
    };
    let how = match (seen.ended, seen.status) {
        (Ended::Aborted, _) => "then the connection was aborted",
        (Ended::Clean, 200) => "and a clean end",
        (Ended::Clean, _) => "as a JSON error",
    };
    let recovery = if seen.recovery.is_empty() { "-" } else { &seen.recovery };
    line(format!(
        "client saw   HTTP {} {how}, after {took} ms (attempts {}, recovery {recovery})",
        seen.status, seen.attempts
    ));
    if !seen.text.is_empty() {
        line(format!("             text: {:?}", seen.text));
    }
    if !seen.arguments.is_empty() {
        line(format!("             tool arguments: {:?}", seen.arguments));
    }
    if let Some(error) = &seen.error {
        line(format!("             error: {}", error["error"]["message"].as_str().unwrap_or_default()));
        line(format!("             rubicon: status {}, reason {}", seen.rubicon("status"), seen.rubicon("reason")));
    }
    line(format!("calls        primary {}, secondary {}", calls.0, calls.1));
    line(match known["boundary"].as_object() {
        Some(boundary) => format!(
            "boundary     crossed after {} ms by attempt {} ({})",
            boundary["at_ms"], boundary["attempt"], boundary["why"]
        ),
        None => "boundary     never crossed".to_owned(),
    });
}

//! `rubicon demo`: scripted providers, a bank, the relay and a client, all on loopback; no config, no keys, no network.
//!
//! Each scene is played by real HTTP through the very server that `rubicon serve` runs, narrated, and checked: the exit code
//! is 1 if one did not go as it must. The counts are the stubs' own. After the scenes it stays up for lines to try. What becomes of
//! requests is in `scenes`, what becomes of tool calls in `ledger`; one of these kills a relay, a child of this process.

mod by_hand;
mod child;
mod client;
mod ledger;
mod scenes;
mod setup;
mod tale;
mod tool;

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::clock::{Instant, UnixMillis};
use crate::control::record::Subject;
use crate::control::table::{Precondition, Request};
use crate::ids::RouteId;
use crate::mock::{MockProvider, Script};
use crate::serve::Server;

use client::{Client, Ended, Seen};
use ledger::{LedgerScene, Stage};
use scenes::{Outcome, Scene};
use tool::Bank;

/// Where the demo listens, its admin side too: at the ports of every example where they are free, so that the lines to try look familiar.
const LISTEN: [(&str, &str); 3] =
    [("127.0.0.1:8080", "127.0.0.1:8081"), ("127.0.0.1:8080", "127.0.0.1:0"), ("127.0.0.1:0", "127.0.0.1:0")];

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
    Part::all().map(Part::name).collect()
}

/// A scene of either kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// What becomes of a request.
    Stream(Scene),
    /// What becomes of a tool call.
    Ledger(LedgerScene),
}

impl Part {
    fn all() -> impl Iterator<Item = Self> {
        Scene::ALL.into_iter().map(Self::Stream).chain(LedgerScene::ALL.into_iter().map(Self::Ledger))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Stream(scene) => scene.name(),
            Self::Ledger(scene) => scene.name(),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Stream(scene) => scene.title(),
            Self::Ledger(scene) => scene.title(),
        }
    }
}

/// Everything the demo runs.
pub struct Demo {
    primary: MockProvider,
    secondary: MockProvider,
    bank: Bank,
    relay: Server,
    /// The operator's.
    token: String,
    broken: Option<Part>,
    only: Option<Part>,
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
        let primary = script(&|scene| scene.primary(broken == Some(Part::Stream(scene)))).rule(LedgerScene::model());
        let primary = start(primary).await?;
        let secondary = start(script(&|scene| scene.secondary())).await?;
        let bank = Bank::start(&LedgerScene::accounts()).await?;
        let token = fresh_token()?;
        let parts = setup::Parts { primary: &primary, secondary: &secondary, bank: &bank, broken };
        let mut relay = Err("nothing is to be listened on".to_owned());
        for (listen, admin) in LISTEN {
            let settings = setup::settings(&setup::config_text(listen, admin, &parts), &token)?;
            relay = Server::start(settings).await.map_err(|error| format!("the relay can't listen: {error}"));
            if relay.is_ok() {
                break;
            }
        }
        let relay = relay?;
        Ok(Self { primary, secondary, bank, relay, token, broken, only, json: options.json })
    }

    /// Plays the scenes, telling `out`. True if all went as they must.
    ///
    /// # Errors
    /// When `out` can't be written.
    pub async fn play(&self, out: &mut impl Write) -> io::Result<bool> {
        if !self.json {
            let address = self.relay.address();
            writeln!(out, "Rubicon demo: two scripted providers, a bank that pays, and the relay on {address}\n")?;
        }
        let scenes: Vec<Part> = Part::all().filter(|part| self.only.is_none_or(|only| only == *part)).collect();
        let mut bad = 0;
        for (index, scene) in scenes.iter().enumerate() {
            let mut lines = String::new();
            let (report, result) = self.part(*scene, &mut lines).await;
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

    /// Plays one scene of either kind.
    async fn part(&self, part: Part, lines: &mut String) -> (serde_json::Value, Result<(), String>) {
        let scene = match part {
            Part::Stream(scene) => return self.scene(scene, lines).await,
            Part::Ledger(scene) => scene,
        };
        let base = format!("http://{}", self.relay.address());
        let broken = self.broken == Some(part);
        let stage = Stage { base, bank: &self.bank, provider: &self.primary, token: &self.token, broken };
        let tale = scene.play(&stage).await;
        lines.push_str(&tale.lines);
        tale.told()
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
        let broken = self.broken == Some(Part::Stream(scene));
        let kills = scene.kills(broken);
        if kills {
            self.switch("primary", true).await?;
        }
        let began = Instant::now();
        let mut seen = client.post(scene.path(), &scene.request()).await?;
        let took = began.elapsed();
        if kills {
            self.switch("primary", false).await?;
        }
        if let Some(next) = scene.next_turn(broken) {
            seen = client.post(scene.path(), &next).await?;
        }
        if scene.client_repeats(broken) {
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
        by_hand::lines(out, &base, &self.admin(), &self.token)?;
        writeln!(out, "\nor point an SDK at it: base_url = \"{base}/v1\", any api_key, model = \"failover-503\"")?;
        writeln!(out, "Ctrl-C ends it.")
    }

    fn admin(&self) -> String {
        self.relay.admin_address().map(|address| format!("http://{address}")).unwrap_or_default()
    }

    /// Takes everything down.
    pub async fn stop(self) {
        self.relay.shutdown().await;
        self.primary.stop().await;
        self.secondary.stop().await;
    }
}

fn named(name: Option<&str>) -> Result<Option<Part>, String> {
    let Some(name) = name else { return Ok(None) };
    let found = Part::all().find(|part| part.name() == name);
    found.map(Some).ok_or_else(|| format!("there is no scene {name:?}; there are: {}", scene_names().join(", ")))
}

/// A token for this run, as hard to guess as any.
fn fresh_token() -> Result<String, String> {
    let random = || getrandom::u64().map_err(|error| format!("no randomness for a token: {error}"));
    Ok(format!("{:016x}{:016x}", random()?, random()?))
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

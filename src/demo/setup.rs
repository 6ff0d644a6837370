//! The demo's configuration, as text that goes through the same checks as everybody's: providers, a workflow a scene, tools, an operator.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::clock::UnixMillis;
use crate::config::{self, Sources};
use crate::mock::MockProvider;

use super::Part;
use super::child::TOKEN;
use super::ledger::{BY_HAND, LedgerScene};
use super::scenes::Scene;
use super::tool::Bank;

/// After so long without an answer a tool's outcome is unknown, in ms. Short: it is what the scene waits for.
const TOOL_TIMEOUT_MS: u32 = 300;

/// What the demo's relay runs with, beside where it listens.
pub(super) struct Parts<'a> {
    pub(super) primary: &'a MockProvider,
    pub(super) secondary: &'a MockProvider,
    pub(super) bank: &'a Bank,
    pub(super) broken: Option<Part>,
}

/// An operator who may do everything, on loopback, with a token made for this run.
pub(super) const OPERATOR: &str =
    "[[operator]]\nname = \"demo\"\ntoken = \"env:RUBICON_DEMO_TOKEN\"\nrole = \"approver\"\n";

/// Loads a configuration.
pub(super) fn settings(text: &str, token: &str) -> Result<config::settings::Settings, String> {
    let sources = Sources {
        folder: Path::new(""),
        env: &|name| (name == TOKEN).then(|| token.to_owned()),
        read: &|_| Err(io::ErrorKind::NotFound.into()),
        now: UnixMillis::now(),
        terminal: false,
    };
    config::parse(text, "demo", &sources).map(|loaded| loaded.settings).map_err(|problems| {
        problems.iter().map(|problem| format!("{}: {}", problem.key, problem.message)).collect::<Vec<_>>().join("; ")
    })
}

/// The demo's configuration: two providers, a route a dialect each, a workflow a scene, three tools.
pub(super) fn config_text(listen: &str, admin: &str, parts: &Parts<'_>) -> String {
    let mut text = format!(
        "[server]\nlisten = \"{listen}\"\nadmin_listen = \"{admin}\"\nstore = \"memory\"\n[log]\nevents = \"off\"\n{OPERATOR}"
    );
    for (name, stub) in [("primary", parts.primary), ("secondary", parts.secondary)] {
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
            scene.failover(parts.broken == Some(Part::Stream(scene))),
        );
    }
    let reworded = LedgerScene::RewordedPayment.name();
    let _ = write!(text, "[workflow.{reworded}]\nmodels = [\"{reworded}\"]\nprimary = \"primary\"\n");
    tools(&mut text, parts);
    text
}

/// `charge` has a status query, `pay` says what makes a payment the same one, `transfer` has nothing but a person to ask.
fn tools(text: &mut String, Parts { bank, broken, .. }: &Parts<'_>) {
    let (timeout, reworded) = (LedgerScene::ToolTimeout, LedgerScene::RewordedPayment);
    let broken = *broken == Some(Part::Ledger(reworded));
    let same = if broken { "similar = \"off\"" } else { "key_fields = [\"/invoice\"]" };
    let _ = write!(
        text,
        "[tool.charge]\nendpoint = {{ url = \"{}\" }}\ntimeout_ms = {TOOL_TIMEOUT_MS}\nkey_fields = [\"/invoice\"]\n\
         probe = {{ url = \"{}\", rules = [{{ pointer = \"/state\", equals = \"paid\", outcome = \"succeeded\" }}] }}\n\
         [tool.pay]\nendpoint = {{ url = \"{}\" }}\n{same}\n\
         [tool.transfer]\nendpoint = {{ url = \"{}\" }}\ntimeout_ms = {TOOL_TIMEOUT_MS}\nkey_fields = [\"/invoice\"]\n",
        bank.pays_at(timeout.name()),
        bank.asked_at(timeout.name()),
        bank.pays_at(reworded.name()),
        bank.pays_at(BY_HAND),
    );
}

/// The configuration of the relay that is killed: one tool, and a store on disk.
pub(super) fn child_text(provider: &MockProvider, bank: &Bank, store: &str) -> String {
    let (base, url) = (provider.base_url(), bank.pays_at(LedgerScene::Kill9.name()));
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nstore = \"redb:{store}.redb\"\n\
         shutdown_grace_ms = 100\n[log]\nevents = \"off\"\n{OPERATOR}\
         [provider.primary]\nkind = \"openai-compatible\"\nbase_url = \"{base}/v1\"\n[route.primary]\nprovider = \"primary\"\n\
         [workflow.default]\nprimary = \"primary\"\n\
         [tool.transfer]\nendpoint = {{ url = \"{url}\" }}\nkey_fields = [\"/invoice\"]\n"
    )
}

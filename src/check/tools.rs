//! Tools of the ledger: what an unknown outcome will meet. Whom it goes to, who may decide, and which calls the ledger cannot tell apart.
//!
//! A note a thing and no more than one about each of a tool's keys: a config with thirty tools must stay readable.

use rubicon_ledger::{Effect, Impact, Outcome};

use crate::config::settings::{OperatorRole, Settings, StoreSettings, ToolSettings};
use crate::config::{Code, Severity};

use super::Finder;

pub(super) fn find(finder: &mut Finder<'_>) {
    let settings = &finder.loaded.settings;
    for (name, tool) in &settings.tools {
        let key = format!("tool.{name}");
        if !settings.clients.is_empty() && !settings.clients.iter().any(|client| client.tools.contains(name)) {
            let message = format!("no [[client]] may use tool `{name}`: its `tools` must list it");
            finder.push(Severity::Warning, Code::ToolUnreachable, key.clone(), message);
        }
        approvers(settings, tool, &key, finder);
        if tool.rule.effect == Effect::Write {
            identity(tool, &key, finder);
            outcome(tool, &key, finder);
        }
    }
    if settings.server.store == StoreSettings::Memory
        && settings.tools.values().any(|tool| tool.rule.effect == Effect::Write)
    {
        let message =
            "`memory` forgets every execution with the process: after a restart a tool that writes may run again";
        finder.push(Severity::Warning, Code::LedgerInMemory, "server.store".to_owned(), message);
    }
}

/// Which calls are the same intent.
fn identity(tool: &ToolSettings, key: &str, finder: &mut Finder<'_>) {
    if !tool.rule.projection.has_key_fields() {
        let (severity, rest) = if tool.rule.guard_similar {
            (Severity::Info, "only calls that differ in free text alone are held for confirmation")
        } else {
            (Severity::Warning, "and `similar = \"off\"` lets it run")
        };
        let message = format!("no `key_fields`: the same intent in other words is another one; {rest}");
        finder.push(severity, Code::ToolWithoutKeyFields, key.to_owned(), message);
    }
    if tool.schema.is_none() {
        let message = "no `schema`: arguments of any shape are claimed and run";
        finder.push(Severity::Info, Code::ToolWithoutSchema, key.to_owned(), message);
    }
}

/// Who finds out about an unknown.
fn outcome(tool: &ToolSettings, key: &str, finder: &mut Finder<'_>) {
    let Some(probe) = &tool.probe else {
        let message = "no `probe`: every unknown outcome waits for a person";
        finder.push(Severity::Info, Code::ToolWithoutProbe, key.to_owned(), message);
        return;
    };
    if probe.absent_after.is_none() && !probe.rules.iter().any(|rule| rule.outcome == Outcome::NotExecuted) {
        let message = "no `absent_after_ms`, and no rule says `not_executed`: a 404 is no word, so what never ran waits for a person";
        finder.push(Severity::Info, Code::ToolProbeWithoutAbsence, key.to_owned(), message);
    }
}

/// Whether there are the persons that the tool's rules need.
fn approvers(settings: &Settings, tool: &ToolSettings, key: &str, finder: &mut Finder<'_>) {
    let least = |role: OperatorRole| settings.operators.iter().filter(move |one| one.role >= role).count();
    let (operators, approvers) = (least(OperatorRole::Operator), least(OperatorRole::Approver));
    let writes = tool.rule.effect == Effect::Write;
    let message = if tool.rule.approve_before_run && approvers == 0 {
        "`approval = \"before_run\"` and no [[operator]] is an approver: it can never run"
    } else if writes && tool.rule.impact == Impact::High && (approvers == 0 || operators < 2) {
        "`impact = \"high\"` needs an operator and, as second person, an approver: its unknown outcomes cannot be resolved"
    } else if writes && operators == 0 {
        "no [[operator]] may resolve its unknown outcomes: what a probe does not find out stays unknown"
    } else {
        return;
    };
    finder.push(Severity::Warning, Code::ToolWithoutOperator, key.to_owned(), message);
}

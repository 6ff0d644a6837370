//! What `check` says beyond loading: failovers that can never act, what will soon stop them from acting, what is off and why, and what
//! nobody has tried.
//!
//! In: a config that loaded, and now. Out: a [`Report`]. An error here does not keep `serve` from starting: an approval that ran out
//! overnight must not take the primary down with it.
//!
//! A room above `plan` and not a part of `config`, because the reasons are `plan`'s own predicates
//! ([`eligible::standing`](crate::plan::eligible::standing)): what `check` says of a route is what a request would hear. Those that depend on
//! a request or on the moment (pins, capacity, breaker) are not here.

mod budgets;
mod domains;
mod failover;
mod lists;
mod paths;
mod tools;

use serde::Serialize;

use crate::clock::UnixMillis;
use crate::config::settings::Settings;
use crate::config::{Code, Loaded, Problem, Severity};
use crate::ids::{RouteId, WorkflowId};

/// Everything.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Problems with their places, in the order of the file.
    pub problems: Vec<Problem>,
    /// Routes that serve no request as the configuration stands, and why.
    pub disabled: Vec<Disabled>,
    /// Approvals and verifications that end within 30 days.
    pub expiring: Vec<Expiring>,
    /// What must be tried with real calls before failover can be relied on.
    pub live_checks: Vec<LiveCheck>,
    /// The digest of each route that may stand in, to be pasted into its approval and verification.
    pub digests: Vec<Digest>,
}

/// A route that serves no request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Disabled {
    /// The workflow.
    pub workflow: WorkflowId,
    /// The route.
    pub route: RouteId,
    /// As what: `planned` (a share of the split), `equivalent`, `alternate`.
    pub role: &'static str,
    /// Every reason by its refusal name.
    pub why: Vec<String>,
}

/// Something that ends within 30 days.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Expiring {
    /// `approval` or `verification`.
    pub what: &'static str,
    /// The workflow of an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowId>,
    /// The route.
    pub route: RouteId,
    /// The last day (UTC).
    pub until: String,
    /// Whole days left; negative: it ended so many days ago.
    pub days: i64,
}

/// One thing to try with a real call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LiveCheck {
    /// The route.
    pub route: RouteId,
    /// A stable name: `credentials`, `model`, `region`, `network`, `context`, `answer:<dialect>`, `stream:<dialect>`,
    /// `capability:<name>`.
    pub check: String,
    /// What to see.
    pub what: String,
}

/// What approvals and verifications are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Digest {
    /// The route.
    pub route: RouteId,
    /// Its digest as it is.
    pub route_digest: String,
    /// Host, model, account, region and network in words.
    pub covers: String,
    /// Its verification's digest: `same`, `other`, `none` (not given, so not compared); absent without verification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<&'static str>,
    /// The same of each approval.
    pub approvals: Vec<ApprovedAs>,
}

/// One approval's digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApprovedAs {
    /// The workflow.
    pub workflow: WorkflowId,
    /// The purpose.
    pub purpose: &'static str,
    /// `same`, `other`, `none`.
    pub digest: &'static str,
}

/// Everything that `check` finds beyond loading.
pub fn report(loaded: &Loaded, now: UnixMillis) -> Report {
    let settings = &loaded.settings;
    let mut finder = Finder { loaded, now, report: Report::default() };
    for workflow in settings.workflows.values() {
        failover::find(workflow, &mut finder);
        budgets::cost(workflow, &mut finder);
    }
    reachable(settings, &mut finder);
    paths::find(&mut finder);
    lists::find(&mut finder);
    tools::find(&mut finder);
    let mut report = finder.report;
    report.problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    report
}

/// Its problems alone, in the order of the file.
pub fn findings(loaded: &Loaded, now: UnixMillis) -> Vec<Problem> {
    report(loaded, now).problems
}

/// Collects.
struct Finder<'l> {
    loaded: &'l Loaded,
    now: UnixMillis,
    report: Report,
}

impl Finder<'_> {
    /// Adds a problem once.
    fn push(&mut self, severity: Severity, code: Code, key: String, message: impl Into<String>) {
        let (file, line, column) = self.loaded.place(&key);
        let problem = Problem { severity, file, line, column, key, code, message: message.into() };
        if !self.report.problems.contains(&problem) {
            self.report.problems.push(problem);
        }
    }
}

fn reachable(settings: &Settings, finder: &mut Finder<'_>) {
    for (index, client) in settings.clients.iter().enumerate().filter(|(_, client)| client.workflows.is_empty()) {
        let message = format!("client `{}` may call nothing: it names no `workflows`", client.name);
        finder.push(Severity::Warning, Code::ClientWithoutWorkflows, format!("client[{index}].workflows"), message);
    }
    for name in settings.workflows.keys().filter(|_| !settings.clients.is_empty()) {
        if !settings.clients.iter().any(|client| client.workflows.contains(name)) {
            let message = format!("no [[client]] may call workflow `{name}`");
            finder.push(Severity::Warning, Code::WorkflowUnreachable, format!("workflow.{name}"), message);
        }
    }
}

#[cfg(test)]
mod tests;

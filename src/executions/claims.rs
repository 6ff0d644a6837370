//! A claim: from a body to the ledger's decision.
//!
//! In: who asks, the members of the body, headers. Out: a [`Claim`] in which everything is checked that can be checked before anything is
//! recorded (names, lists, bounds, canonical form, key fields, the tool's schema), and what the ledger decided on it, after a
//! wait where the caller would rather wait for a run that goes on.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use rubicon_ledger::{Arguments, Claim, Claimed, Occurrence, OperationId, Owner, RootId, State, TenantId, ToolName};
use tokio::time::timeout_at;

use crate::clock::Instant;
use crate::config::settings::{Settings, ToolSettings};
use crate::relay::app::App;
use crate::relay::auth::Caller;
use crate::telemetry::executions;
use crate::tool::arguments;

use super::answer::{Problem, SOON_S, aside, shared};
use super::body::{Body, invalid, missing};
use super::roots;

/// Milliseconds of a lease, where the claim does not say (SPEC Annex, Bounds).
pub(super) const LEASE_MS: u64 = 60_000;
/// Shortest lease: below it a lease ends while its 201 is on the way.
pub(super) const LEASE_MS_MIN: u64 = 100;
/// Longest lease: what runs for more than a day sends heartbeats.
pub(super) const LEASE_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// How often a waiter looks by itself, should it have missed what it waits for.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The tool that a caller may claim or run.
pub(super) fn tool(settings: &Settings, caller: &Caller, name: &str) -> Result<Arc<ToolSettings>, Problem> {
    let named = ToolName::new(name).ok();
    let Some(name) = named.filter(|name| settings.tools.contains_key(name)) else {
        let message = "No tool of this name is registered: what is not in the configuration is never run.";
        return Err(Problem::new(404, "unknown_tool", message).param("tool"));
    };
    caller.tools.get(&name).cloned().ok_or_else(|| {
        let message =
            format!("The client may not claim or run the tool {:?}: its `tools` do not list it.", name.as_str());
        Problem::new(403, "tool_not_allowed", message).param("tool")
    })
}

/// Reads a claim; `headers` may name the root.
pub(super) async fn read(
    app: &App,
    caller: &Caller,
    headers: &HeaderMap,
    body: &Body<'_>,
    tool: &ToolSettings,
    owner: Owner,
    lease_ms: u64,
) -> Result<Claim, Problem> {
    let operation = match body.text("operation_id")? {
        None => None,
        Some(id) => Some(OperationId::new(&id).map_err(|wrong| invalid("operation_id", &format!("is {wrong}")))?),
    };
    let named = root(body, headers)?;
    if operation.is_none() && named.is_none() {
        return Err(missing("operation_id"));
    }
    let occurrence = body.number("occurrence", 0, u64::from(u32::MAX))?;
    let occurrence = occurrence.and_then(|number| u32::try_from(number).ok()).map(Occurrence);
    let (tool_call_id, claim_id) = (body.text("tool_call_id")?, body.text("claim_id")?);
    let confirm = body.text("confirm")?;
    let arguments = arguments(body, tool)?;
    // The name of a client's tenant was checked with the configuration.
    let tenant = tenant(caller)?;
    let (root, flags) = match (named, &operation) {
        (Some(root), _) => (root, Vec::new()),
        (None, Some(operation)) => roots::root_of(app, &caller.tenant, operation).await?,
        (None, None) => return Err(missing("operation_id")),
    };
    let planning = roots::planning(app, &caller.tenant, operation.as_ref());
    Ok(Claim {
        tenant,
        root,
        operation,
        tool: Arc::clone(&tool.rule),
        arguments,
        occurrence,
        tool_call_id,
        claim_id,
        owner,
        lease_ms,
        confirm,
        planning,
        flags,
        by: shared(caller.client.as_str()),
    })
}

/// The caller's tenant, in the ledger's words.
pub(super) fn tenant(caller: &Caller) -> Result<TenantId, Problem> {
    TenantId::new(caller.tenant.as_str()).map_err(|wrong| {
        let message = format!("The tenant of this client cannot keep executions: its name is {wrong}.");
        Problem::new(403, "tenant_unusable", message)
    })
}

/// The root that body or header name. Two that differ are a mistake that might run something twice.
fn root(body: &Body<'_>, headers: &HeaderMap) -> Result<Option<RootId>, Problem> {
    let said = body.text("root")?;
    let mut values = headers.get_all("rubicon-root").iter();
    let header = match (values.next(), values.next()) {
        (None, _) => None,
        (Some(value), None) => value.to_str().ok().map(str::trim),
        (Some(_), Some(_)) => Some(""),
    };
    let wrong = |wrong: &dyn std::fmt::Display| invalid("root", &format!("is {wrong}"));
    match (said, header) {
        (Some(said), Some(header)) if *said != *header => {
            Err(invalid("root", "differs from the header Rubicon-Root: name one root"))
        }
        (Some(name), _) => RootId::new(&name).map(Some).map_err(|error| wrong(&error)),
        (None, Some(name)) => RootId::new(name).map(Some).map_err(|error| {
            Problem::new(400, "invalid_header", format!("Rubicon-Root must be one name; it is {error}."))
        }),
        (None, None) => Ok(None),
    }
}

/// The arguments, as far as they can be judged before anything is recorded.
fn arguments(body: &Body<'_>, tool: &ToolSettings) -> Result<Arguments, Problem> {
    let raw = body.written("arguments").ok_or_else(|| missing("arguments"))?;
    arguments::read(tool, raw.get().as_bytes()).map_err(|bad| Problem::arguments(&bad))
}

/// What the ledger decided, and whether it was waited for.
pub(super) struct Decided {
    pub(super) claimed: Claimed,
    pub(super) waited: bool,
}

/// Asks the ledger; with `wait`, a run that goes on is waited for so long, and then asked again.
pub(super) async fn decide(app: &App, claim: Claim, wait: Option<Duration>) -> Result<Decided, Problem> {
    let until = wait.map(|wait| Instant::now() + wait);
    let mut waited = false;
    loop {
        let began = Instant::now();
        let claimed = app.ledger.claim(claim.clone()).await;
        let word = claimed.as_ref().map_or(executions::UNAVAILABLE, executions::decision);
        app.telemetry.claimed(&claim.tool.name, word, began.elapsed());
        let claimed = claimed.map_err(|error| Problem::unavailable(&error))?;
        let (Claimed::InProgress(record), Some(until)) = (&claimed, until) else {
            return Ok(Decided { claimed, waited });
        };
        if Instant::now() >= until {
            return Ok(Decided { claimed, waited });
        }
        let key = record.key;
        let waiter = app.ledger.changed(&key).map_err(|_| too_many())?;
        waited = true;
        // It may have ended between the answer and the subscription.
        let reader = app.ledger.reader();
        let now = aside(move || reader.record(&key)).await?;
        if now.is_none_or(|record| record.state != State::Started) {
            continue;
        }
        tokio::select! {
            _ = timeout_at(until.min(Instant::now() + LOOK_EVERY), waiter.moved()) => {}
            // The relay goes down: the caller had better ask another one.
            () = app.cut.cancelled() => return Ok(Decided { claimed, waited }),
        }
    }
}

fn too_many() -> Problem {
    let message = "As many callers as may wait for this execution already do.";
    Problem::new(503, "too_many_waiters", message).retry_after(SOON_S)
}

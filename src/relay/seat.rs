//! The relay's own seat at the stream: whole tool calls of a committed answer become plans of the ledger, and are remembered as emitted.
//!
//! In: an answer's events as they are judged. Out: [`Plan`]s for registered tools that the client may call, [`Sighting`]s for
//! every call. Noted *before* the event that completes the call goes to the client (as `issued.rs` does): a fast client's claim must not
//! meet a relay that does not know yet. Nothing here waits: both go into the ledger's memory, and to its disk behind it; what finds no
//! room there makes the operation's plans incomplete, which its claims then say instead of `unplanned`. Without a registered tool there
//! is nothing to claim, so nothing is noted. Deliberately not here: what a call is (`protocol::emitted`), and to which run the
//! operation belongs (`roots.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rubicon_ledger::store::{Sighting, first_key};
use rubicon_ledger::{Ledger, Occurrence, Plan, Slot, ToolName, ToolRule, UnixMillis};

use crate::clock;
use crate::config::settings::ToolSettings;
use crate::contract::Endpoint;
use crate::protocol::Dialect;
use crate::protocol::emitted::Collector;
use crate::protocol::words::{self, Emitted, Words};

use super::app::App;
use super::operation::Run;
use super::operations::Names;
use super::roots::Root;

/// What is kept of one answer.
#[derive(Debug)]
pub(super) struct Seat {
    collector: Collector,
    numbers: Numbers,
    /// Whole calls whose events go out next.
    due: Vec<Emitted>,
    /// None was noted yet.
    is_first: bool,
}

impl Seat {
    /// At one answer.
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { collector: Collector::new(dialect), numbers: Numbers::default(), due: Vec::new(), is_first: true }
    }

    /// An event that is part of the answer; `data` makes what it costs to have only where it is wanted.
    pub(super) fn read(&mut self, raw: &[u8], name: &[u8], data: impl FnOnce() -> Bytes) {
        if self.collector.wants(raw) {
            self.collector.read(name, &data());
        }
    }

    /// A whole answer.
    pub(super) fn read_answer(&mut self, body: &[u8]) {
        self.collector.read_answer(body);
        self.ripen();
    }

    /// Everything that was read goes out next.
    pub(super) fn ripen(&mut self) {
        self.due.append(&mut self.collector.take());
    }
}

/// Numbers same slots inside one response: 0, 1, 2 …, in whatever words. Choices are alternatives of which a client takes one, so each
/// counts for itself.
#[derive(Debug, Default)]
struct Numbers(BTreeMap<(u64, ToolName, Slot), u32>);

impl Numbers {
    fn next(&mut self, choice: u64, tool: &ToolName, slot: Slot) -> Occurrence {
        let count = self.0.entry((choice, tool.clone(), slot)).or_insert(0);
        let number = *count;
        *count = count.saturating_add(1);
        Occurrence(number)
    }
}

/// What a call comes to.
#[derive(Debug)]
struct Noted {
    plan: Option<Plan>,
    sightings: Vec<Sighting>,
}

/// A call of an operation's answer. `response` is the answer's id, where requests may name it in place of the call.
fn note(
    names: &Names,
    root: &Root,
    tools: &BTreeMap<ToolName, Arc<ToolSettings>>,
    numbers: &mut Numbers,
    call: &Emitted,
    response: Option<&str>,
    at: UnixMillis,
) -> Noted {
    let rule = ToolName::new(&call.name).ok().and_then(|name| tools.get(&name)).map(|tool| &tool.rule);
    let plan = rule.and_then(|rule| {
        // Without a canonical form, or without a key field, it can't be claimed either: the claim says why.
        let Words::Json(arguments) = &call.words else { return None };
        let slot = rule.projection.apply(arguments).ok()?.slot;
        let occurrence = numbers.next(call.choice, &rule.name, slot);
        let key = first_key(&names.tenant, &root.id, &rule.name, slot, occurrence);
        let plan = Plan {
            tenant: names.tenant.clone(),
            root: root.id.clone(),
            operation: names.operation.clone(),
            tool: Arc::<ToolRule>::clone(rule),
            arguments: arguments.clone(),
            occurrence,
            tool_call_id: call.id.as_deref().map(Arc::from),
            flags: root.flags(),
        };
        Some((plan, key))
    });
    let (plan, key) = plan.unzip();
    let tenant = names.tenant.as_str();
    let by_response = response.and_then(|response| call.digest_in(tenant, response));
    let sightings = call.digest(tenant).into_iter().chain(by_response).map(|digest| Sighting {
        digest,
        root: root.id.clone(),
        operation: names.operation.clone(),
        key,
        at,
    });
    Noted { plan, sightings: sightings.collect() }
}

/// The ledger, where there is something to be noted: a registered tool.
pub(super) fn ledger<'a>(app: &'a App, settings: &crate::config::settings::Settings) -> Option<&'a Ledger> {
    (!settings.tools.is_empty()).then_some(&app.ledger)
}

/// Now, as the ledger writes it.
pub(super) fn now() -> UnixMillis {
    UnixMillis(clock::UnixMillis::now().0)
}

impl Run {
    /// A seat at one attempt's answer; none where there is nothing to be noted.
    pub(super) fn seat(&self) -> Option<Seat> {
        ledger(&self.job.app, &self.job.current.settings)?;
        (self.job.contract.endpoint != Endpoint::CountTokens).then(|| Seat::new(self.dialect))
    }

    /// Notes the calls that go out next.
    pub(super) fn note_calls(&self, seat: &mut Seat, response: impl FnOnce() -> Option<String>) {
        let operation = &self.job.operation;
        if seat.collector.lost() {
            operation.plans_lost();
        }
        if seat.due.is_empty() {
            return;
        }
        let Some(ledger) = ledger(&self.job.app, &self.job.current.settings) else { return };
        let response = response();
        let at = now();
        let mut sightings = Vec::new();
        for call in seat.due.drain(..) {
            let tools = &self.job.caller.tools;
            let noted =
                note(operation.names(), &operation.root, tools, &mut seat.numbers, &call, response.as_deref(), at);
            if noted.plan.is_some_and(|plan| !ledger.plan(plan)) {
                operation.plans_lost();
            }
            sightings.extend(noted.sightings);
        }
        if let Some(first) = sightings.first().filter(|_| seat.is_first) {
            // By it the operation's root is known when the operation itself is forgotten.
            let digest = words::of_operation(operation.tenant.as_str(), operation.id.as_str());
            sightings.push(Sighting { digest, key: None, ..first.clone() });
            seat.is_first = false;
        }
        if !sightings.is_empty() && !ledger.saw(sightings) {
            // A later turn would not be known to belong to this run.
            tracing::warn!(operation = %operation.id, "emitted tool calls were not remembered: no room");
        }
    }
}

#[cfg(test)]
mod tests;

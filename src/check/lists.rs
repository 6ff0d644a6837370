//! What ends soon, what must be tried with real calls, and which digests there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clock::UnixMillis;
use crate::config::settings::{Network, Purpose, RouteSettings, Settings, WorkflowSettings};
use crate::config::{Code, Severity};
use crate::ids::RouteId;
use crate::plan::digest;

use super::failover::purpose_name;
use super::{ApprovedAs, Digest, Expiring, Finder, LiveCheck};

const DAY_MS: u64 = 86_400_000;

/// How early an end is announced.
const SOON_MS: u64 = 30 * DAY_MS;

pub(super) fn find(finder: &mut Finder<'_>) {
    let settings = &finder.loaded.settings;
    let further = further(settings);
    expiring(&further, finder);
    for provider in settings.providers.values() {
        let what =
            if provider.credential().is_some() { "address, key and models were" } else { "address and models were" };
        let message = format!("{what} not tried: `check` calls nobody");
        finder.push(Severity::Info, Code::CredentialsNotTried, format!("provider.{}", provider.name), message);
    }
    not_compared(&further, finder);
    for route in further.values() {
        finder.report.digests.push(digests(settings, route));
        finder.report.live_checks.extend(live_checks(route));
    }
    let unstated = settings.workflows.values().map(|workflow| &workflow.primary);
    let unstated: BTreeMap<_, _> = unstated
        .filter(|route| route.capabilities.is_none() && !further.contains_key(&route.name))
        .map(|route| (&route.name, route))
        .collect();
    for route in unstated.into_values() {
        finder.report.live_checks.extend(of_primary(route));
    }
}

/// Every route that is not a primary of its own right: members of splits, equivalents, alternates.
fn further(settings: &Settings) -> BTreeMap<RouteId, &Arc<RouteSettings>> {
    let of = |workflow: &'_ WorkflowSettings| -> BTreeSet<RouteId> {
        let members = workflow.splits.iter().skip(1).map(|split| &split.route);
        let all = members.chain(&workflow.equivalents).chain(&workflow.alternates);
        all.map(|route| route.name.clone()).collect()
    };
    let names: BTreeSet<RouteId> = settings.workflows.values().flat_map(|workflow| of(workflow)).collect();
    settings.routes.iter().filter(|(name, _)| names.contains(name)).map(|(name, route)| (name.clone(), route)).collect()
}

/// Whether an approval is of a route that stands so in its workflow.
fn is_used(settings: &Settings, approval: &crate::config::settings::Approval) -> bool {
    settings.workflows.get(&approval.workflow).is_some_and(|workflow| {
        let named = |routes: &[Arc<RouteSettings>]| routes.iter().any(|route| route.name == approval.route);
        let member = || workflow.splits.iter().skip(1).any(|split| split.route.name == approval.route);
        match approval.purpose {
            Purpose::Failover => named(&workflow.equivalents) || member(),
            Purpose::CrossModel => named(&workflow.alternates),
            Purpose::Planned => member(),
        }
    })
}

fn soon(until: Option<UnixMillis>, now: UnixMillis) -> Option<(UnixMillis, i64)> {
    let until = until.filter(|until| *until >= now && until.0.saturating_sub(now.0) < SOON_MS)?;
    Some((until, i64::try_from(until.0.saturating_sub(now.0) / DAY_MS).unwrap_or(i64::MAX)))
}

fn expiring(further: &BTreeMap<RouteId, &Arc<RouteSettings>>, finder: &mut Finder<'_>) {
    let settings = &finder.loaded.settings;
    for (index, approval) in settings.approvals.iter().enumerate().filter(|(_, one)| is_used(settings, one)) {
        let Some((until, days)) = soon(approval.until, finder.now) else { continue };
        let renewed = settings.approvals.iter().any(|other| {
            (&other.workflow, &other.route, other.purpose) == (&approval.workflow, &approval.route, approval.purpose)
                && other.until.is_none_or(|later| Some(later) > approval.until)
        });
        if renewed {
            continue;
        }
        let message = format!(
            "ends in {days} days; workflow `{}` then cannot use `{}` for {}",
            approval.workflow,
            approval.route,
            purpose_name(approval.purpose)
        );
        finder.push(Severity::Warning, Code::ApprovalExpiresSoon, format!("approval[{index}].until"), message);
        finder.report.expiring.push(Expiring {
            what: "approval",
            workflow: Some(approval.workflow.clone()),
            route: approval.route.clone(),
            until: until.day(),
            days,
        });
    }
    for route in further.values() {
        let Some((until, days)) = route.verified.as_ref().and_then(|verified| soon(verified.until, finder.now)) else {
            continue;
        };
        let key = format!("route.{}.verified.until", route.name);
        let message = format!("ends in {days} days; nothing then fails over to `{}`", route.name);
        finder.push(Severity::Warning, Code::VerificationExpiresSoon, key, message);
        finder.report.expiring.push(Expiring {
            what: "verification",
            workflow: None,
            route: route.name.clone(),
            until: until.day(),
            days,
        });
    }
}

/// What carries no digest: nobody can tell whether the route is still the one that was looked at.
fn not_compared(further: &BTreeMap<RouteId, &Arc<RouteSettings>>, finder: &mut Finder<'_>) {
    let settings = &finder.loaded.settings;
    for (index, approval) in settings.approvals.iter().enumerate() {
        if approval.route_digest.is_none() && is_used(settings, approval) {
            let message =
                format!("no `route_digest`: whether `{}` is still what was approved is not compared", approval.route);
            finder.push(Severity::Info, Code::DigestNotCompared, format!("approval[{index}]"), message);
        }
    }
    for route in further.values() {
        if route.verified.as_ref().is_some_and(|verified| verified.route_digest.is_none()) {
            let message =
                format!("no `route_digest`: whether `{}` is still what was verified is not compared", route.name);
            finder.push(Severity::Info, Code::DigestNotCompared, format!("route.{}.verified", route.name), message);
        }
    }
}

fn digests(settings: &Settings, route: &RouteSettings) -> Digest {
    let current = digest::route_digest(route);
    let compared = |digest: &Option<String>| match digest {
        None => "none",
        Some(digest) if *digest == current => "same",
        Some(_) => "other",
    };
    let approvals = settings.approvals.iter().filter(|approval| approval.route == route.name);
    Digest {
        route: route.name.clone(),
        covers: digest::covers(route),
        verified: route.verified.as_ref().map(|verified| compared(&verified.route_digest)),
        approvals: approvals
            .map(|approval| ApprovedAs {
                workflow: approval.workflow.clone(),
                purpose: purpose_name(approval.purpose),
                digest: compared(&approval.route_digest),
            })
            .collect(),
        route_digest: current,
    }
}

fn live(route: &RouteSettings, check: impl Into<String>, what: impl Into<String>) -> LiveCheck {
    LiveCheck { route: route.name.clone(), check: check.into(), what: what.into() }
}

/// What only calls can tell of a route that may stand in: a fixed list, drawn from what the route states.
fn live_checks(route: &RouteSettings) -> Vec<LiveCheck> {
    let mut list = basics(route);
    for dialect in route.dialects.iter().map(|dialect| dialect.name()) {
        list.push(live(
            route,
            format!("answer:{dialect}"),
            format!("{dialect}: a request without streaming gets a whole answer"),
        ));
        list.push(live(
            route,
            format!("stream:{dialect}"),
            format!("{dialect}: a stream shows text and ends with the dialect's own terminal event"),
        ));
    }
    for name in route.capabilities.iter().flatten() {
        let what = match name.as_str() {
            "text" => continue,
            "tools" => "a declared tool is called, streamed and not, and its result is taken up".to_owned(),
            "parallel_tools" => "two tools are called in one answer".to_owned(),
            "json_schema" => "an answer keeps the schema of the request".to_owned(),
            "image" => "a question about an image is answered from it".to_owned(),
            "audio" => "spoken input is understood, spoken output comes".to_owned(),
            "file" => "a question about a document is answered from it".to_owned(),
            "reasoning" => "a request for reasoning is accepted, and reasons".to_owned(),
            other => format!("a request that uses {other} is answered with it, and not without"),
        };
        list.push(live(route, format!("capability:{name}"), what));
    }
    if let Some(tokens) = route.context_tokens {
        list.push(live(route, "context", format!("a request of about {tokens} tokens is answered")));
    }
    list
}

/// Of a primary that states nothing: that it answers at all.
fn of_primary(route: &RouteSettings) -> Vec<LiveCheck> {
    let mut list = basics(route);
    list.push(live(
        route,
        "capabilities",
        "states no `capabilities`: whatever the application uses goes there unchecked, so try that",
    ));
    list
}

fn basics(route: &RouteSettings) -> Vec<LiveCheck> {
    let key = if route.provider.credential().is_some() { "the key is accepted" } else { "the address answers" };
    let model = route.model.as_ref().map_or_else(
        || "the models that callers name exist there".to_owned(),
        |_| "the model sent upstream exists there".to_owned(),
    );
    let mut list = vec![live(route, "credentials", key), live(route, "model", model)];
    if let Some(region) = &route.region {
        list.push(live(route, "region", format!("the address serves from {region}, and from nowhere else")));
    }
    if route.provider.network == Some(Network::Private) {
        list.push(live(route, "network", "the address is reached by the private way only"));
    }
    list
}

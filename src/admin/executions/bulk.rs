//! One change of many executions: a filter, a cap, a dry run first.
//!
//! A dry run names what would be changed and gives an entity tag of exactly that: keys and versions. The change itself carries the tag as
//! `If-Match`, so that it does what was seen and nothing else; each execution is then changed by the version that was
//! seen, under the same rules as one alone. More than `max` that fit: nothing is changed.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use http::header::IF_MATCH;
use http::{HeaderMap, Request};
use rubicon_ledger::store::Filter;
use rubicon_ledger::{Change, Denied, ExecutionKey, IfMatch, Settlement, Verb};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::relay::app::App;
use crate::relay::secrets::masked;

use super::super::Answer;
use super::super::answer::{Problem, tagged};
use super::super::auth::Operator;
use super::super::change::{line, read_body, reason};
use super::super::ledger;
use super::super::query::Query;
use super::body::Members;
use super::change::outcome;
use super::filter::from_body;
use super::list::{now, walk};

/// A filter and a few words.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// Executions that one call may change, where it names no other number.
const MAX: u64 = 100;

/// Executions that one call may change at all: as many as a page of a list shows.
const MAX_MAX: u64 = 1000;

/// Pages that the store may give up early: two million records are looked at, then the filter is too wide to be sure of.
const SCANS: usize = 100;

/// One of them.
#[derive(Debug, Serialize)]
struct Item {
    key: ExecutionKey,
    /// That was seen.
    version: u64,
    state: &'static str,
    tool: String,
    /// What became of it: `changed`, `unchanged`, `refused`; null in a dry run.
    result: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// What is to be done with each.
fn verb(members: &Members) -> Result<Verb, Problem> {
    let invalid = |message: &str| Problem::new(400, "invalid_body", message);
    let only = |name: &str, action: &str| {
        let stray = members.raw(name).is_some();
        if stray { Err(invalid(&format!("`{name}` belongs to {action}."))) } else { Ok(()) }
    };
    let action = members.text("action")?.unwrap_or_default();
    if action != "resolve" {
        only("outcome", "resolve")?;
    }
    if action != "assign" {
        only("to", "assign")?;
    }
    match action.as_str() {
        "resolve" => {
            let outcome = outcome(members.text("outcome")?)?;
            let settlement = Settlement { result: None, external_reference: None, error: None };
            Ok(Verb::Resolve { outcome, settlement })
        }
        "release" => Ok(Verb::Release),
        "probe" => Ok(Verb::Probe),
        "note" => Ok(Verb::Note),
        "assign" => {
            let to = members.text("to")?.map(|text| line(&text, "invalid_to")).transpose()?;
            Ok(Verb::Assign { to: to.map(Arc::from) })
        }
        // A second person looks at each.
        _ => Err(invalid("`action` is one of resolve (with `outcome`), release, probe, assign (with `to`), note.")),
    }
}

/// What was seen, in one word.
fn tag(items: &[Item], more: bool) -> String {
    let mut hasher = blake3::Hasher::new();
    for item in items {
        hasher.update(item.key.as_bytes());
        hasher.update(&item.version.to_be_bytes());
    }
    hasher.update(&[u8::from(more)]);
    format!("\"bulk-{}\"", hasher.finalize().to_hex().get(..32).unwrap_or_default())
}

/// Whether it is what was seen.
fn seen(headers: &HeaderMap, tag: &str) -> Result<(), Problem> {
    let mut values = headers.get_all(IF_MATCH).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        let message = "Ask with \"dry_run\": true first, and send its ETag as If-Match.";
        return Err(Problem::new(428, "precondition_required", message));
    };
    let value = value.to_str().unwrap_or_default().trim();
    let bare = |text: &str| text.trim_matches('"').to_owned();
    if bare(value) == bare(tag) {
        return Ok(());
    }
    let message = "What the filter finds is not what the dry run showed: look again before you decide.";
    Err(Problem::new(412, "version_mismatch", message))
}

/// `POST /admin/v1/executions/bulk {filter, action, outcome?, to?, dry_run, max, reason}`.
pub(super) async fn bulk(State(app): State<Arc<App>>, request: Request<Body>) -> Answer {
    Query::read(request.uri(), &[])?;
    let (parts, body) = request.into_parts();
    let operator = parts.extensions.get::<Operator>().cloned();
    let operator = operator.ok_or_else(|| Problem::new(401, "missing_token", "No operator."))?;
    let body = read_body(body, parts.extensions.get(), BODY_BYTES_MAX).await?;
    let members = Members::read(&body, &["filter", "action", "outcome", "to", "dry_run", "max", "reason"])?;
    let (filter, echo) = from_body(members.json("filter")?.as_ref(), now())?;
    let verb = verb(&members)?;
    let dry_run = members.flag("dry_run")?;
    let max = members.number("max")?.unwrap_or(MAX);
    if max == 0 || max > MAX_MAX {
        return Err(Problem::new(400, "invalid_body", format!("`max` is from 1 to {MAX_MAX}.")));
    }
    let said = members.text("reason")?.unwrap_or_default();
    let why = if dry_run && said.is_empty() { String::new() } else { reason(&said)? };
    let why: Arc<str> = Arc::from(masked(&app.current().settings, &why));
    let (mut items, more) = found(&app, filter, max).await?;
    let tag = tag(&items, more);
    if dry_run {
        return Ok(tagged(&told(&items, more, &members, echo, dry_run), &tag));
    }
    seen(&parts.headers, &tag)?;
    if more {
        let message =
            format!("More than {max} fit; nothing was changed. Raise `max` (to {MAX_MAX}) or narrow the filter.");
        return Err(Problem::new(409, "over_max", message).with("max", max));
    }
    let by: Arc<str> = Arc::from(operator.name);
    for item in &mut items {
        let change = Change {
            key: item.key,
            if_match: IfMatch::Version(item.version),
            by: Arc::clone(&by),
            verb: verb.clone(),
            reason: Arc::clone(&why),
        };
        item.became(ledger::of(&app).change(change).await);
    }
    Ok(tagged(&told(&items, more, &members, echo, dry_run), &tag))
}

/// What fits now, and whether there is more than `max`.
async fn found(app: &App, filter: Filter, max: u64) -> Result<(Vec<Item>, bool), Problem> {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let found = ledger::read(app, move |reader| {
        walk(reader, filter, max.saturating_add(1), SCANS, |record| Item {
            key: record.key,
            version: record.version,
            state: record.state.name(),
            tool: record.tool.to_string(),
            result: None,
            code: None,
            message: None,
        })
    });
    let (mut items, next) = found.await?;
    let more = items.len() > max || next.is_some();
    items.truncate(max);
    Ok((items, more))
}

impl Item {
    fn became(&mut self, changed: Result<Result<rubicon_ledger::Changed, Denied>, rubicon_ledger::Unavailable>) {
        let problem = match changed {
            Ok(Ok(changed)) => {
                self.result = Some(if changed.changed { "changed" } else { "unchanged" });
                self.version = changed.record.version;
                self.state = changed.record.state.name();
                return;
            }
            Ok(Err(denied)) => ledger::denied(&denied),
            Err(error) => ledger::unavailable(&error),
        };
        self.result = Some("refused");
        self.code = Some(problem.code().to_owned());
        self.message = Some(problem.message().to_owned());
    }
}

fn told(items: &[Item], more: bool, members: &Members, echo: Map<String, Value>, dry_run: bool) -> Value {
    let count = |result: &str| items.iter().filter(|item| item.result == Some(result)).count();
    json!({
        "filter": echo,
        "action": members.json("action").ok().flatten(),
        "outcome": members.json("outcome").ok().flatten(),
        "dry_run": dry_run,
        "matched": items.len(),
        "over_max": more,
        "changed": count("changed"),
        "unchanged": count("unchanged"),
        "refused": count("refused"),
        "results": items,
    })
}

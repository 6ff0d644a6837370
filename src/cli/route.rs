//! `rubicon route list|kill|restore`: the routes of a running relay, through its admin side.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::header::HeaderValue;
use serde_json::{Value, json};

use super::operator::{self, Client, Connect, Failure, flag, since, table, text, who};

const ABOUT: &str = "\
Lists the routes of a running relay, kills one (no new attempt goes to it; what streams goes on) or
restores it. Each change is journaled with the operator's name and the reason, and survives a
restart. Killing takes the role operator, restoring the role approver.";

/// Arguments of `rubicon route`.
#[derive(Debug, Args)]
#[command(about = "List, kill and restore routes of a running relay", long_about = ABOUT, after_long_help = operator::CODES)]
pub struct RouteArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RouteCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum RouteCommand {
    /// All routes, and how they stand
    List {
        /// Where and as whom.
        #[command(flatten)]
        connect: Connect,
    },
    /// No new attempt goes to the route, whatever its version
    Kill(Switch),
    /// The route is open again, if nobody changed it meanwhile
    Restore(Switch),
}

/// Which route, and why.
#[derive(Debug, Args)]
pub struct Switch {
    /// The route's name
    pub route: String,
    /// Why; the journal keeps it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Where and as whom.
    #[command(flatten)]
    pub connect: Connect,
}

/// Does it.
pub async fn run(args: RouteArgs) -> ExitCode {
    match args.command {
        RouteCommand::List { connect } => operator::told("route list", connect.json, list(&connect).await, listed),
        RouteCommand::Kill(switch) => {
            operator::told("route kill", switch.connect.json, change(&switch, "kill").await, changed)
        }
        RouteCommand::Restore(switch) => {
            operator::told("route restore", switch.connect.json, change(&switch, "restore").await, changed)
        }
    }
}

async fn list(connect: &Connect) -> Result<Value, Failure> {
    Ok(Client::new(connect)?.get("/admin/v1/routes").await?.body)
}

async fn change(switch: &Switch, verb: &str) -> Result<Value, Failure> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if switch.route.is_empty() || !switch.route.bytes().all(plain) {
        return Err(Failure::Usage("a route's name has only A-Z a-z 0-9 _ - .".to_owned()));
    }
    let client = Client::new(&switch.connect)?;
    let path = format!("/admin/v1/routes/{}", switch.route);
    // To kill must not fail for somebody else having been there; to restore must.
    let matches = if verb == "kill" { None } else { client.get(&path).await?.etag };
    let matches = matches.unwrap_or(HeaderValue::from_static("*"));
    Ok(client.post(&format!("{path}/{verb}"), matches, &json!({ "reason": switch.reason })).await?.body)
}

fn state(route: &Value) -> &'static str {
    if flag(route, "killed") { "killed" } else { "live" }
}

fn listed(body: &Value) -> String {
    const HEAD: [&str; 11] =
        ["ROUTE", "PROVIDER", "STATE", "CIRCUIT", "IN USE", "RECOVERY", "ONCALL", "VERSION", "SINCE", "BY", "REASON"];
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for route in body.get("routes").and_then(Value::as_array).into_iter().flatten() {
        let provider = if flag(route, "configured") { text(route, "provider") } else { "(not in the config)" };
        let saved = route.get("saved").and_then(Value::as_bool) != Some(false);
        rows.push(vec![
            text(route, "route").to_owned(),
            provider.to_owned(),
            format!("{}{}", state(route), if saved { "" } else { " (not saved)" }),
            circuit(route),
            in_use(route, "in_use", "limits"),
            in_use(route, "recovery_in_use", "failover_limits"),
            text(route, "oncall").to_owned(),
            route.get("version").map(Value::to_string).unwrap_or_default(),
            since(route),
            text(route, "by").to_owned(),
            text(route, "reason").to_owned(),
        ]);
    }
    table(&rows)
}

/// The breaker, and when it may be asked again.
fn circuit(route: &Value) -> String {
    let state = text(route, "circuit");
    match (state, route.get("opens_in_ms").and_then(Value::as_u64), route.get("failures").and_then(Value::as_u64)) {
        ("tripped", Some(ms), _) => format!("tripped, {} s", ms.div_ceil(1000)),
        ("healthy", _, Some(failures)) if failures > 0 => format!("healthy, {failures} failed"),
        _ => state.to_owned(),
    }
}

/// Attempts that go on, and how many may.
fn in_use(route: &Value, count: &str, limits: &str) -> String {
    let Some(count) = route.get(count).and_then(Value::as_u64) else { return String::new() };
    let most = route.get(limits).and_then(|limits| limits.get("concurrency")).and_then(Value::as_u64);
    most.map_or_else(|| count.to_string(), |most| format!("{count}/{most}"))
}

fn changed(route: &Value) -> String {
    let already = if flag(route, "changed") { "" } else { " already" };
    format!("{} is {}{already}{}\n", text(route, "route"), state(route), who(route))
}

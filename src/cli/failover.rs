//! `rubicon failover show|disable|enable`: whether a running relay fails over, through its admin side.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use http::header::HeaderValue;
use serde_json::{Value, json};

use super::operator::{self, Client, Connect, Failure, flag, since, table, text, who};

const ABOUT: &str = "\
Shows whether a running relay may fail over, and switches it off and on: for all workflows, or for
one. Retries on the same route go on. Each change is journaled with the operator's name and the
reason, and survives a restart. Disabling takes the role operator, enabling the role approver.";

/// Arguments of `rubicon failover`.
#[derive(Debug, Args)]
#[command(about = "Show failover of a running relay, disable and enable it", long_about = ABOUT, after_long_help = operator::CODES)]
pub struct FailoverArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: FailoverCommand,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum FailoverCommand {
    /// How it stands, for all and for each workflow
    Show {
        /// Where and as whom.
        #[command(flatten)]
        connect: Connect,
    },
    /// Nothing fails over any more, whatever the version
    Disable(Switch),
    /// It may again, if nobody changed it meanwhile
    Enable(Switch),
}

/// Of which workflow, and why.
#[derive(Debug, Args)]
pub struct Switch {
    /// Of this workflow only [default: of all]
    #[arg(long, value_name = "NAME")]
    pub workflow: Option<String>,
    /// Why; the journal keeps it
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Where and as whom.
    #[command(flatten)]
    pub connect: Connect,
}

/// Does it.
pub async fn run(args: FailoverArgs) -> ExitCode {
    match args.command {
        FailoverCommand::Show { connect } => operator::told("failover show", connect.json, show(&connect).await, shown),
        FailoverCommand::Disable(switch) => {
            operator::told("failover disable", switch.connect.json, change(&switch, "disable").await, shown)
        }
        FailoverCommand::Enable(switch) => {
            operator::told("failover enable", switch.connect.json, change(&switch, "enable").await, shown)
        }
    }
}

const PATH: &str = "/admin/v1/failover";

async fn show(connect: &Connect) -> Result<Value, Failure> {
    Ok(Client::new(connect)?.get(PATH).await?.body)
}

async fn change(switch: &Switch, verb: &str) -> Result<Value, Failure> {
    let client = Client::new(&switch.connect)?;
    let matches = if verb == "disable" { None } else { client.get(PATH).await?.etag };
    let matches = matches.unwrap_or(HeaderValue::from_static("*"));
    let mut body = json!({ "reason": switch.reason });
    if let (Some(workflow), Some(body)) = (&switch.workflow, body.as_object_mut()) {
        body.insert("workflow".to_owned(), json!(workflow));
    }
    Ok(client.post(&format!("{PATH}/{verb}"), matches, &body).await?.body)
}

fn shown(body: &Value) -> String {
    let state = |value| if flag(value, "disabled") { "disabled" } else { "enabled" };
    let mut rows = vec![["WORKFLOW", "STATE", "IN CONFIG", "SINCE", "BY", "REASON"].map(str::to_owned).to_vec()];
    for workflow in body.get("workflows").and_then(Value::as_array).into_iter().flatten() {
        let configured = match workflow.get("enabled_in_config").and_then(Value::as_bool) {
            Some(true) => "enabled",
            Some(false) => "disabled",
            None => "(no such workflow)",
        };
        let saved = workflow.get("saved").and_then(Value::as_bool) != Some(false);
        rows.push(vec![
            text(workflow, "workflow").to_owned(),
            format!("{}{}", state(workflow), if saved { "" } else { " (not saved)" }),
            configured.to_owned(),
            since(workflow),
            text(workflow, "by").to_owned(),
            text(workflow, "reason").to_owned(),
        ]);
    }
    format!("failover of all workflows: {}{}\n\n{}", state(body), who(body), table(&rows))
}
